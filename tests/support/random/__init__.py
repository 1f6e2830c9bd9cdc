"""Clients that act at random, drawn from a seed."""
