"""Recordings of telemetry: one file, bounded, that opens wherever it is taken."""
