"""Reads the Accept header: whether a client takes what it is about to be given."""

from typing import Final

_ANY: Final = "*/*"


def admits(accept: str, kind: str) -> bool:
    """Tell whether a header admits a media type; the closest range that names it decides."""
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
    """Tell whether a header asks for a media type by its name."""
    for part in accept.split(","):
        words = part.split(";")
        if words[0].strip().lower() == kind:
            return not _is_unwanted(words)
    return False


def _is_unwanted(words: list[str]) -> bool:
    """Tell whether the weight of a range is 0."""
    for word in words[1:]:
        name, _, weight = word.partition("=")
        if name.strip().lower() == "q":
            digits = weight.strip()
            return digits[:1] == "0" and not digits.strip("0.")
    return False
