"""Bunqueue clients in the simulator: their commands, and the answers the yard must give."""
