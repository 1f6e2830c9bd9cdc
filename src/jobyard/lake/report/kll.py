"""KLL sketches as Spark's `kll_sketch_agg_bigint` makes them, read without Java.

Apache DataSketches calls the format "KllLongsSketch, compact". All numbers are little-endian:

    byte 0     length of the preamble in words of four bytes
    byte 1     1, or 2 if the sketch has one value alone
    byte 2     15, the family KLL
    byte 3     flags: 1 empty, 4 one value alone
    byte 4-5   k        byte 6   m
    -- one value alone: the value at byte 8, and no more. Empty: no more.
    byte 8-15  how many values it has seen
    byte 18    number of levels, L
    byte 20-   L numbers of four bytes: where each level begins
    then       the least value, the greatest value, the values of all levels, of eight bytes each

A value of level n stands for 2**n values. Sketches are merged by putting their values together,
which adds no error to the one they have. A column of sketches is decoded as a whole, with numpy:
a week has a million of them. Nothing here knows what the values mean.
"""

from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from jobyard.client.errors import Code, JobyardError

Longs = NDArray[np.int64]

_FAMILY: Final = 15
_EMPTY: Final = 1
_SINGLE: Final = 4
# Bytes before the levels, and of least and greatest value.
_PREAMBLE: Final = 20
_ENDS: Final = 16
# A level holds what 2**level values were: 2**40 runs in a minute are not possible.
_LEVELS_MAX: Final = 40


class Values(NamedTuple):
    """The values that sketches hold, in the order of the sketches."""

    # The row of the sketch in its column, the value, and for how many it stands.
    row: Longs
    value: Longs
    weight: Longs


def values_of(column: pa.Array) -> Values:
    """Return the values of all sketches of a column; null is a sketch without values."""
    if column.null_count:
        column = pc.fill_null(column, b"")
    sizes: Longs = np.asarray(pc.binary_length(column)).astype(np.int64)
    if not sizes.sum():
        empty = np.zeros(0, dtype=np.int64)
        return Values(empty, empty, empty)
    if (sizes % 4).any() or ((sizes < 8) & (sizes > 0)).any():
        raise _damaged("its size is not possible")
    words = np.frombuffer(_bytes_of(column), dtype="<u4")
    starts: Longs = (np.cumsum(sizes) - sizes) // 4
    return _decode(words, starts, sizes)


def _bytes_of(column: pa.Array) -> memoryview:
    """Return the bytes of all rows, one after the other."""
    _, offsets, content = column.buffers()
    width = "<i8" if pa.types.is_large_binary(column.type) else "<i4"
    ends = np.frombuffer(offsets, dtype=width)[column.offset : column.offset + len(column) + 1]
    return memoryview(content)[int(ends[0]) : int(ends[-1])]


def _decode(words: NDArray[np.uint32], starts: Longs, sizes: Longs) -> Values:
    rows: Longs = np.flatnonzero(sizes)
    starts, sizes = starts[rows], sizes[rows]
    head = words[starts]
    if ((head >> 16) & 0xFF != _FAMILY).any():
        raise _damaged("it is of another family")
    flags = head >> 24
    is_empty, is_single = flags & _EMPTY != 0, flags & _SINGLE != 0
    is_full = ~(is_empty | is_single)
    if (sizes[is_full] < _PREAMBLE + 4 + _ENDS).any() or (sizes[is_single] != 16).any():
        raise _damaged("it is too short")
    levels: Longs = np.zeros(len(rows), dtype=np.int64)
    levels[is_full] = (words[starts[is_full] + 4] >> 16) & 0xFF
    if (levels[is_full] == 0).any() or levels.max() > _LEVELS_MAX:
        raise _damaged("its number of levels is not possible")
    # Everything before the values, in bytes.
    before = np.where(is_full, _PREAMBLE + 4 * levels + _ENDS, 8)
    before = np.where(is_empty, sizes, before)
    counts: Longs = (sizes - before) // 8
    if (counts < 0).any() or ((sizes - before) % 8).any():
        raise _damaged("its size and its number of levels differ")
    is_value = np.ones(len(words), dtype=bool)
    for word in range(int(before.max()) // 4):
        is_value[starts[before > 4 * word] + word] = False
    value = words[is_value].view("<i8").astype(np.int64, copy=False)
    weight = _weights(words, starts, levels, counts)
    return Values(np.repeat(rows, counts), value, weight)


def _weights(words: NDArray[np.uint32], starts: Longs, levels: Longs, counts: Longs) -> Longs:
    """Return for how many each value stands: 2 to the power of its level."""
    total = int(counts.sum())
    if levels.max() <= 1:
        return np.ones(total, dtype=np.int64)
    firsts = np.cumsum(counts) - counts
    # A level begins where the level number rises by one; behind the sketch it is 0 again.
    rises: Longs = np.zeros(total + 1, dtype=np.int64)
    for level in range(1, int(levels.max())):
        deep = levels > level
        begin = words[starts[deep] + 5 + level].astype(np.int64) - words[starts[deep] + 5]
        if (begin < 0).any() or (begin > counts[deep]).any():
            raise _damaged("a level begins outside it")
        np.add.at(rises, firsts[deep] + begin, 1)
        np.add.at(rises, firsts[deep] + counts[deep], -1)
    exponents: Longs = np.cumsum(rises[:-1])
    return np.left_shift(np.ones(total, dtype=np.int64), exponents)


def _damaged(what: str) -> JobyardError:
    return JobyardError(
        Code.LAKE_DAMAGED,
        f"A KLL sketch in the table queue_minute cannot be read: {what}.",
        remedy="Rebuild the table: jobyard pipeline backfill.",
    )
