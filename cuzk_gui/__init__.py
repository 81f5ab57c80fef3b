"""The window. It knows the engine only through ``cuzk_engine.client`` and the event types of ``cuzk_engine.events``."""
