"""The proving engine of cuzk: formats, Groth16, devices, scheduler, telemetry, daemon, client, command line."""

__version__ = "0.1.0"
