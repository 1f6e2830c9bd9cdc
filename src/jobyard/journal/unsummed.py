"""The checksums of a long batch, made some at a time: those of a MiB take about a millisecond.

Such a batch is closed as others are, so its size and the places in it are known at once. Only its
header and its sums are missing, and it is written when they are there.
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

# Of bodies, which are summed whole: no more of one of them at once than this.
BODY_PART: Final = 256 << 10


@final
class Unsummed:
    """A batch whose pieces are all there but for the first and the sums, which are zeros yet."""

    def __init__(
        self,
        segment: Segment,
        number: i64,
        fields: HeadFields,
        records: list[bytes],
        bodies: list[bytes],
        bodies_crc: i64,
    ) -> None:
        """Begin a batch at the end of its segment; `bodies_crc` is -1 if it is not known."""
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
        # The body that is summed next, how far it is, and what came out so far.
        self._body: i64 = self._sums_index + 1
        self._body_at: i64 = 0
        self._crc: i64 = 0
        if bodies_crc >= 0:
            self._crc = bodies_crc
            self._body = len(self.pieces)

    def go_on(self, most: i64) -> i64:
        """Sum about `most` bytes more; return how many. Fewer say that the batch is complete."""
        done: i64 = 0
        if self._sums_size > 0:
            done = self._summing.go_on(most)
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
