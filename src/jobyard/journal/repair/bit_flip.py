"""Finds the one flipped bit that makes bytes match their checksum again.

The commonest damage by far is a single bit. A CRC of 32 bits tells any two single bits of a few
thousand apart, so looking at each of them finds the one that was flipped, and finds none where more
is damaged: of other damage to a sector one in a million passes for a single bit. In longer pieces
more would pass, and they are left alone unless something else tells right from wrong.
"""

from typing import Final
from zlib import crc32

# The most bytes in which a bit is looked for where nothing but the checksum tells.
SIZE_MAX: Final = 4096

# How a checksum goes on from its lowest byte, and back from its highest.
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
    # Flipping a bit changes the checksum in a way that depends on how much follows, and on nothing
    # else. Taken back byte by byte, it is at some place that of a bit in the last byte.
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
