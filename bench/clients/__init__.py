"""Clients of the servers under test: each queries, fills, reads or measures one thing."""
