"""What a device did with its time, why it was idle, and what would change that. Pure functions over events."""
