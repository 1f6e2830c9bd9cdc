"""Reads, writes and deletes records of topics."""
