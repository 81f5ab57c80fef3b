"""The window of cuzk: knows the engine only through its client and its event types."""
