"""Yards in memory: the disk, the clock, the doors of one boot, and what can be seen of them."""
