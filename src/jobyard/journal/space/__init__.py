"""How many bytes of a segment live, and what compaction copies out of it."""
