"""A checksum for each sector of a batch's records, so that damage costs only what it hit.

If the records of a batch are longer than a sector, one i64 follows them for each sector of the file
they touch. The lower half is the checksum of the records' bytes in that sector; the upper half is
where the first record in it begins, counted from 1 (0: none begins there). The checksum in the
header of the batch then covers the header and these sums, so every byte is still summed once when
it is written.

Without the upper half, a reader that has lost a sector could not find the next record.
"""

from typing import Final, final
from zlib import crc32

from librt.strings import BytesWriter, read_i32_le, read_i64_le, write_i64_le
from mypy_extensions import i64

BLOCK: Final = 512
SUM_SIZE: Final = 8
_SHIFT: Final = 9
_SUM_BITS: Final = 0xFFFFFFFF


def sums_size(start: i64, size: i64) -> i64:
    """Return the size of the sums of `size` bytes of records that begin at `start`."""
    if size <= BLOCK:
        return 0
    return SUM_SIZE * (((start + size - 1) >> _SHIFT) - (start >> _SHIFT) + 1)


def sums_size_max(size: i64) -> i64:
    """Return the upper bound of `sums_size`, wherever the records begin."""
    return (size >> (_SHIFT - 3)) + 2 * SUM_SIZE


def encode_sums(records: bytes, start: i64) -> bytes:
    """Return the sums of records that begin at `start` in their file."""
    summing = Summing([records], start)
    summing.proceed(len(records))
    return summing.sums()


@final
class Summing:
    """Computes the sums of records that come in pieces, a part at a time.

    A record may be split between pieces anywhere except in its first eight bytes.
    """

    def __init__(self, pieces: list[bytes], start: i64) -> None:
        self._pieces = pieces
        self._start: i64 = start
        self._size: i64 = 0
        for piece in pieces:
            self._size += len(piece)
        self._out = BytesWriter()
        # How many bytes are summed; the piece that holds the next one, and where it begins.
        self._at: i64 = 0
        self._index: i64 = 0
        self._base: i64 = 0
        # Where the next record begins.
        self._record: i64 = 0

    def proceed(self, most: i64) -> i64:
        """Sum more sectors, about `most` bytes; return how many bytes were summed."""
        begun = self._at
        end = min(begun + most, self._size)
        while self._at < end:
            self._sum_sector()
        return self._at - begun

    def _sum_sector(self) -> None:
        at = self._at
        stop: i64 = min(self._size, at + BLOCK - (self._start + at) % BLOCK)
        first: i64 = 0
        crc: i64 = 0
        begin = at
        while at < stop:
            piece = self._pieces[self._index]
            base = self._base
            piece_end: i64 = base + len(piece)
            part_end: i64 = min(stop, piece_end)
            record = self._record
            if record < part_end:
                if first == 0:
                    first = record - begin + 1
                while record < part_end:
                    length = i64(read_i32_le(piece, record - base + 4))
                    assert length >= 8
                    record += length
                self._record = record
            # A copy of a sector costs less than a view of it.
            crc = i64(crc32(piece[at - base : part_end - base], crc))
            at = part_end
            if at == piece_end:
                self._index += 1
                self._base = piece_end
        write_i64_le(self._out, crc | first << 32)
        self._at = stop

    def is_done(self) -> bool:
        """Return whether every sector has a sum."""
        return self._at == self._size

    def sums(self) -> bytes:
        """Return all sums."""
        assert self._at == self._size
        return self._out.getvalue()


def find_bad(data: bytes, at: i64, start: i64, size: i64, skip: i64 = 0) -> i64:
    """Return the number of the first damaged sector of records, or -1.

    The records are at `at` in `data` and at `start` in their file, followed by their sums.
    The first `skip` sectors are not checked.
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
    """Return where the first record in a sector begins, relative to its first byte, or -1."""
    return (read_i64_le(sums, number * SUM_SIZE) >> 32) - 1
