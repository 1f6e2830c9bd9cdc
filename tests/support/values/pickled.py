"""Values as they arrive in another process."""

from multiprocessing.reduction import ForkingPickler
from typing import TypeVar

_T = TypeVar("_T")


def packed(value: object) -> bytes:
    """Return the bytes in which a value is sent."""
    return bytes(ForkingPickler.dumps(value))


def sent(value: _T) -> _T:
    """Return the copy that another process gets."""
    copy: _T = ForkingPickler.loads(packed(value))
    return copy
