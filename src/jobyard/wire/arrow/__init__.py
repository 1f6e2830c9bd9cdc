"""Arrow IPC streams."""
