"""What the engine tells about itself while it runs: columns on the wire, the hub that spreads them, the sampler."""
