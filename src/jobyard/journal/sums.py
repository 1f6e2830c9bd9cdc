"""A checksum for each sector of a batch's records, so that damage costs what it hit and no more.

Behind the records of a batch that are longer than a sector lies one i64 per sector of the file they
touch: the checksum of the records' bytes in it, and in the upper half where the first record that
begins in it does, counted from 1 (0: none begins there). The checksum in the header of the batch
is then over the header and these sums, so every byte is still summed once when it is written.

A record begins somewhere; without the upper half a reader that has lost one sector would not know
where to go on.
"""

from typing import Final
from zlib import crc32

from librt.strings import BytesWriter, read_i32_le, read_i64_le, write_i64_le
from mypy_extensions import i64

BLOCK: Final = 512
SUM_SIZE: Final = 8
_SHIFT: Final = 9
_SUM_BITS: Final = 0xFFFFFFFF


def sums_size(start: i64, size: i64) -> i64:
    """Return how many bytes of sums go with so many bytes of records that begin at `start`."""
    if size <= BLOCK:
        return 0
    return SUM_SIZE * (((start + size - 1) >> _SHIFT) - (start >> _SHIFT) + 1)


def sums_size_max(size: i64) -> i64:
    """Return the most that `sums_size` can be, wherever the records begin."""
    return (size >> (_SHIFT - 3)) + 2 * SUM_SIZE


def encode_sums(records: bytes, start: i64) -> bytes:
    """Return the sums of records that begin at `start` in their file."""
    out = BytesWriter()
    size: i64 = len(records)
    at: i64 = 0
    record: i64 = 0
    while at < size:
        stop: i64 = min(size, at + BLOCK - (start + at) % BLOCK)
        first: i64 = 0
        if record < stop:
            first = record - at + 1
            while record < stop:
                length = i64(read_i32_le(records, record + 4))
                assert length >= 8
                record += length
        # A copy of a sector costs less than a view of it.
        write_i64_le(out, i64(crc32(records[at:stop])) | first << 32)
        at = stop
    return out.getvalue()


def find_bad(data: bytes, at: i64, start: i64, size: i64, skip: i64 = 0) -> i64:
    """Return the number of the first sector of records that is not as it was written, or -1.

    The records are at `at` in `data` and at `start` in their file, and their sums behind them.
    `skip` sectors are not looked at.
    """
    sums_at = at + size
    number: i64 = 0
    end = at + size
    while at < end:
        stop = min(end, at + BLOCK - start % BLOCK)
        if number >= skip:
            known = read_i64_le(data, sums_at + number * SUM_SIZE) & _SUM_BITS
            if i64(crc32(data[at:stop])) != known:
                return number
        start += stop - at
        at = stop
        number += 1
    return -1


def first_record(sums: bytes, number: i64) -> i64:
    """Return where the first record begins in a sector, from the sector's first byte; or -1."""
    return (read_i64_le(sums, number * SUM_SIZE) >> 32) - 1
