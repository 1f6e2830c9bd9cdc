"""Reads the journal back at a start."""
