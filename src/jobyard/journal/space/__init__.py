"""How many bytes of a segment are live, and what compaction copies out of it."""
