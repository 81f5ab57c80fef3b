"""What the window shows, without Qt: bounded in size, fed by digests of the telemetry stream, mirrored by the
widgets."""
