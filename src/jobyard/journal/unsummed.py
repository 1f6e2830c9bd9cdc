"""Computes the checksums of a long batch a part at a time: one MiB takes about a millisecond.

Such a batch is closed like any other, so its size and all offsets in it are known at once. Only its
header and its sums are missing; it is written when they are complete.
"""

from typing import TYPE_CHECKING, Final, final
from zlib import crc32

from mypy_extensions import i64

from jobyard.journal.format.segment import (
    BATCH_HEADER_SIZE,
    HeadFields,
    Segment,
    begin_head,
    end_head,
)
from jobyard.journal.format.sums import Summing, sums_size

if TYPE_CHECKING:
    from librt.strings import BytesWriter

# The most bytes of a body that are summed at once.
BODY_PART: Final = 256 << 10


@final
class Unsummed:
    """A batch whose pieces are complete except for the header and the sums, which are zeros."""

    def __init__(
        self,
        segment: Segment,
        number: i64,
        fields: HeadFields,
        records: list[bytes],
        bodies: list[bytes],
        bodies_crc: i64,
    ) -> None:
        """Begin a batch at the end of its segment; `bodies_crc` is -1 if it is unknown."""
        start: i64 = segment.end + BATCH_HEADER_SIZE
        size: i64 = 0
        for piece in records:
            size += len(piece)
        self._sums_size: i64 = sums_size(start, size)
        bodies_size: i64 = 0
        for body in bodies:
            bodies_size += len(body)
        self._head: BytesWriter = begin_head(
            segment, number, fields, size + self._sums_size, bodies_size
        )
        self._summing = Summing(records, start)
        self._sums_index: i64 = 1 + len(records)
        self.pieces: list[bytes] = [
            bytes(BATCH_HEADER_SIZE),
            *records,
            bytes(int(self._sums_size)),
            *bodies,
        ]
        # The body to sum next, how much of it is summed, and the checksum so far.
        self._body: i64 = self._sums_index + 1
        self._body_at: i64 = 0
        self._crc: i64 = 0
        if bodies_crc >= 0:
            self._crc = bodies_crc
            self._body = len(self.pieces)

    def proceed(self, most: i64) -> i64:
        """Sum about `most` bytes more; return how many. Fewer mean that the batch is complete."""
        done: i64 = 0
        if self._sums_size > 0:
            done = self._summing.proceed(most)
        while done < most and self._body < len(self.pieces):
            done += self._sum_body(min(most - done, BODY_PART))
        if done < most:
            self._complete()
        return done

    def _sum_body(self, most: i64) -> i64:
        body = self.pieces[self._body]
        part = body[self._body_at : self._body_at + most]
        self._crc = i64(crc32(part, self._crc))
        self._body_at += len(part)
        if self._body_at == len(body):
            self._body += 1
            self._body_at = 0
        return len(part)

    def _complete(self) -> None:
        sums = self._summing.sums() if self._sums_size > 0 else b""
        summed = sums or b"".join(self.pieces[1 : self._sums_index])
        end_head(self._head, self._crc, sums, summed)
        self.pieces[self._sums_index] = sums
        self.pieces[0] = self._head.getvalue()
