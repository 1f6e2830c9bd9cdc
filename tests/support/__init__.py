"""Shared parts of the tests: transcripts, their players, server processes, sockets with timeouts.

Nothing here knows what a test checks; every wait here has a deadline.
"""
