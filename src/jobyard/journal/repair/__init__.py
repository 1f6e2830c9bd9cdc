"""Recovers the readable parts of a damaged journal."""
