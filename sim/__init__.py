"""The simulator: complete server runs in one thread, every random choice drawn from one seed."""
