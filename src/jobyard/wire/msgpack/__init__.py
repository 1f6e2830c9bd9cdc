"""MessagePack, as bunqueue frames use it."""
