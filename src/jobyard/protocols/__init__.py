"""One package for each wire protocol: bytes in, engine verbs, bytes out. No sockets, no clock.

Protocols never import each other; they share the modules of this package and `http`.
"""
