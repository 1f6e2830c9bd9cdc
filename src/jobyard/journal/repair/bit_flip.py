"""Finds the one flipped bit that makes bytes match their checksum again.

A single bit is by far the most common damage. A 32-bit CRC distinguishes all single-bit flips in a
few thousand bytes, so trying each of them finds the flipped bit, and finds none if more is damaged:
one in a million other damages to a sector passes for a single bit. In longer pieces more would
pass; these are not corrected unless something else confirms the result.
"""

from typing import Final
from zlib import crc32

# The most bytes to correct if only the checksum confirms the result.
SIZE_MAX: Final = 4096

# Tables to step a CRC forward by its lowest byte, and back by its highest.
_ZERO: Final = crc32(b"\0")
_ON: Final = [crc32(bytes([value])) ^ _ZERO for value in range(256)]
_BACK: Final = {on >> 24: value for value, on in enumerate(_ON)}
_BITS: Final = {_ON[1 << bit]: bit for bit in range(8)}


def corrected(data: bytes, known: int, before: int = 0, most: int = SIZE_MAX) -> bytes | None:
    """Return data with the one bit flipped that makes its checksum `known`; None if there is none.

    `before` is the checksum of what precedes the data.
    """
    if len(data) > most or not 0 <= known < 1 << 32:
        return None
    # How a flipped bit changes the checksum depends only on how many bytes follow it. So step the
    # difference back byte by byte, until it is that of a single bit in the last byte.
    wrong = crc32(data, before) ^ known
    for at in range(len(data) - 1, -1, -1):
        bit = _BITS.get(wrong)
        if bit is not None:
            return _flipped(data, at, bit)
        value = _BACK[wrong >> 24]
        wrong = ((wrong ^ _ON[value]) << 8 & 0xFFFFFFFF) | value
    return None


def _flipped(data: bytes, at: int, bit: int) -> bytes:
    changed = bytearray(data)
    changed[at] ^= 1 << bit
    return bytes(changed)
