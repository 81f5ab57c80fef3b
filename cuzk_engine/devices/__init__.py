"""Devices that prove: the protocol in ``base``, the CPU in ``cpu``."""
