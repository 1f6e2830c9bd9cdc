"""Bunqueue clients in the simulator: what they ask, and what the yard must then answer."""
