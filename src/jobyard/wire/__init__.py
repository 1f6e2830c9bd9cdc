"""Bytes to frames and back, both directions, with no I/O; shared by protocols and clients."""
