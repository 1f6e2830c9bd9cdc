"""Finds the one flipped bit that makes bytes match their checksum again.

The commonest damage by far is a single bit. A CRC of 32 bits tells any two single bits of a few
thousand apart, so trying each of them finds the one that was flipped, and finds none where more is
damaged: of other damage to a sector one in a million passes for a single bit. Longer pieces are not
tried: they take too long, and more would pass.
"""

from typing import Final
from zlib import crc32

# The most bytes in which a bit is looked for.
SIZE_MAX: Final = 4096


def corrected(data: bytes, known: int, before: int = 0) -> bytes | None:
    """Return data with the one bit flipped that makes its checksum `known`; None if there is none.

    `before` is the checksum of what precedes the data.
    """
    if len(data) > SIZE_MAX:
        return None
    # Flipping a bit changes the checksum in a way that depends on where it is, and on nothing else.
    wrong = crc32(data, before) ^ known
    zero = crc32(bytes(len(data)))
    trial = bytearray(len(data))
    for at in range(len(data)):
        for bit in range(8):
            trial[at] = 1 << bit
            if crc32(trial) ^ zero == wrong:
                return _flipped(data, at, bit)
        trial[at] = 0
    return None


def _flipped(data: bytes, at: int, bit: int) -> bytes:
    changed = bytearray(data)
    changed[at] ^= 1 << bit
    return bytes(changed)
