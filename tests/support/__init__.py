"""Shared parts of the tests: yards in memory, clients, servers, transcripts, random commands.

Nothing here knows what a test checks; every wait here has a deadline.
"""
