"""Clients of the doors without a socket, and the bytes of their protocols."""
