"""The base class of tables that a layer above adds to the yard, which the yard only holds."""


class Extension:
    """Tables of one protocol or layer."""
