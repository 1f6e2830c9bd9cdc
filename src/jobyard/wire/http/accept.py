"""Parses the Accept header: whether a client accepts a media type."""

from typing import Final

_ANY: Final = "*/*"


def admits(accept: str, kind: str) -> bool:
    """Return whether the header accepts a media type; the most specific matching range decides."""
    if not accept:
        return True
    whole_type = kind[: kind.index("/")] + "/*"
    closest = 0
    is_admitted = False
    for part in accept.split(","):
        words = part.split(";")
        name = words[0].strip().lower()
        if name == kind:
            closeness = 3
        elif name == whole_type:
            closeness = 2
        elif name == _ANY:
            closeness = 1
        else:
            continue
        if closeness >= closest:
            closest = closeness
            is_admitted = not _is_unwanted(words)
    return is_admitted


def names(accept: str, kind: str) -> bool:
    """Return whether the header accepts a media type by its full name."""
    for part in accept.split(","):
        words = part.split(";")
        if words[0].strip().lower() == kind:
            return not _is_unwanted(words)
    return False


def _is_unwanted(words: list[str]) -> bool:
    """Return whether the weight of a range is 0."""
    for word in words[1:]:
        name, _, weight = word.partition("=")
        if name.strip().lower() == "q":
            digits = weight.strip()
            return digits[:1] == "0" and not digits.strip("0.")
    return False
