"""What several test rooms share: transcripts, their players, server processes, sockets that end.

Nothing here knows what a test wants to prove; a wait without a deadline does not exist here.
"""
