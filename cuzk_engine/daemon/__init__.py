"""The background process: a supervisor that serves, stores, schedules and gathers, and one process for each device."""
