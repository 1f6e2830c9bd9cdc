"""The yard as keys of a Redis database."""
