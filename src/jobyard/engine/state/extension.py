"""The base class of tables that a layer above adds to the yard, which the yard only holds."""

from mypy_extensions import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class Extension:
    """Tables of one protocol or layer."""
