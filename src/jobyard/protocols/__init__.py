"""One wire protocol each: bytes in, engine verbs, bytes out. No sockets, no clock.

Protocols never import each other; what they share is in `session`.
"""
