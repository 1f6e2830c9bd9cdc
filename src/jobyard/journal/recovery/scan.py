"""Reads the journal back: which batches count, in which order, and where the torn tail begins.

Sealed segments must be whole; any flaw in one refuses the start. The last segment of either
temperature may be torn if it is of the last boot. Behind the newest batch known to be durable,
batches count only as far as their numbers run without a gap; the rest was never acknowledged and
is cut. A flaw before that mark is damage, not a torn tail.

`mend` makes the cut final before the server listens: it writes the uncertain batches again in
place (the page cache may hold bytes that never reached the disk), seals the segment there and
syncs. After an interruption it does the same again.
"""

from contextlib import suppress
from typing import final
from zlib import crc32

from librt.strings import read_i32_le, read_i64_le
from mypy_extensions import i64

from jobyard.errors import JournalDamaged, JournalNewer, ReadFailed, StartRefused
from jobyard.journal.format.newest_segment import check_newest
from jobyard.journal.format.record import PUT_SIZE
from jobyard.journal.format.segment import (
    BATCH_HEADER_SIZE,
    BATCH_MAGIC,
    SEAL_MAGIC,
    SEAL_SIZE,
    SEGMENT_FORMAT,
    SEGMENT_FORMAT_OLDEST,
    SEGMENT_HEADER_SIZE,
    SEGMENT_MAGIC,
    BatchHead,
    HeadFields,
    Segment,
    encode_seal,
    is_strange,
    segment_name,
    segment_number,
    spare_number,
)
from jobyard.journal.journal import Journal
from jobyard.journal.recovery.reader import Reader
from jobyard.journal.storage import Storage


@final
class Tail:
    """The end of one stream of segments, which a crash may have torn."""

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self.numbers: list[i64] = []
        self.offsets: list[i64] = []
        self.durable: i64 = 0
        # The newest batch of the other temperature when each of these was written.
        self.others: list[i64] = []
        self.is_sealed: bool = False
        # Whole batches and seals beyond the first flaw.
        self.strays: list[BatchHead] = []
        self.next_id: i64 = 1
        self.end: i64 = SEGMENT_HEADER_SIZE


def _unreadable(name: str, offset: i64) -> JournalDamaged:
    return JournalDamaged(name, offset, "the disk cannot read this sector")


def _read(storage: Storage, name: str, offset: i64, size: i64) -> bytes:
    """Return bytes of a file; bytes that the disk cannot read are damage."""
    try:
        return storage.read(name, offset, size)
    except ReadFailed as error:
        raise _unreadable(name, error.offset) from error


def _lost_batch(tail: Tail) -> JournalDamaged:
    why = "a batch known to be on disk cannot be read"
    return JournalDamaged(tail.segment.name, tail.end, why)


def _number_of(segment: Segment) -> int:
    return segment.number


def _strays(reader: Reader, offset: i64) -> list[BatchHead]:
    """Return every whole batch and seal from `offset` on, at any position."""
    strays: list[BatchHead] = []
    found = reader.find_batch(offset)
    while found >= 0:
        reader.offset = found
        head = reader.next()
        while head is not None:
            strays.append(head)
            head = reader.next()
        found = reader.find_batch(reader.offset + 1)
    return strays


def scan_tail(storage: Storage, segment: Segment) -> Tail:
    """Read a segment that may be torn, and check its long bodies too."""
    tail = Tail(segment)
    reader = Reader(storage, segment)
    while True:
        offset = reader.offset
        head = reader.next()
        if head is not None:
            # A header is right about what came before it even if its own long bodies are torn.
            tail.next_id = max(tail.next_id, head.next_id)
            tail.durable = max(tail.durable, head.durable)
            tail.others.append(head.other)
        if head is None or not reader.is_part2_whole(head, offset):
            tail.strays = _strays(reader, offset + 1)
            break
        tail.end = reader.offset
        if head.magic == SEAL_MAGIC:
            tail.durable = max(tail.durable, head.number)
            tail.is_sealed = True
            break
        tail.numbers.append(head.number)
        tail.offsets.append(offset)
    tail.durable = max(tail.durable, reader.stated_durable)
    tail.next_id = max(tail.next_id, reader.stated_id)
    if reader.failed_at >= 0:
        # A crash tears what is being written; it makes no sector of acknowledged data unreadable.
        raise _unreadable(segment.name, reader.failed_at)
    return tail


@final
class Recovery:
    """The segments on disk, and where the journal ends in them."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.segments: list[Segment] = []
        # No id below this one may be issued again.
        self.next_id: i64 = 1
        self.empty: list[Segment] = []
        self.epoch: i64 = 0
        # Newest batch known to be on disk, and the first batch number that no longer counts.
        self.durable: i64 = 0
        self.cut: i64 = 1 << 62
        self.cut_bytes: i64 = 0
        self.next_number: i64 = 1
        self._tails: list[Tail] = []
        self._epochs: dict[int, int] = {}

    def survey(self) -> None:
        """Find the segments and decide where the journal ends."""
        for name in sorted(self._storage.names()):
            if is_strange(name):
                raise StartRefused(
                    f"{name} is not a journal file, only named like one: move it elsewhere"
                )
            number = segment_number(name)
            if number > 0:
                self._read_header(name, number)
        self.durable = check_newest(self._storage)
        for temperature in (0, 1):
            self._survey_tail([s for s in self.segments if s.temperature == temperature])
        self.segments = [s for s in self.segments if s not in self.empty]
        for tail in self._tails:
            self.durable = max(self.durable, tail.durable)
            self.next_id = max(self.next_id, tail.next_id)
            for stray in tail.strays:
                self.durable = max(self.durable, stray.durable)
                self.next_id = max(self.next_id, stray.next_id)
        for tail in self._tails:
            for stray in tail.strays:
                if stray.magic == SEAL_MAGIC or 0 < stray.previous <= self.durable:
                    raise _lost_batch(tail)
        self._check_ends()
        self._check_newest_durable()
        self._find_cut()

    def _check_newest_durable(self) -> None:
        """Refuse when the newest batch known to be on disk is in no segment.

        Its segment cannot have been removed: removal is announced only after a newer batch is
        durable.
        """
        if self.durable == 0:
            return
        for tail in self._tails:
            if self.durable in tail.numbers:
                return
        if not self._tails:
            newest = max(self.segments + self.empty, key=_number_of)
            why = "nothing in the segment can be read, but a batch in it is known to be on disk"
            raise JournalDamaged(newest.name, 0, why)
        # If a batch was begun behind the last readable one, it is most likely the lost one.
        for tail in self._tails:
            if not tail.is_sealed and self._torn_bytes(tail) > 0:
                raise _lost_batch(tail)
        raise _lost_batch(self._tails[0])

    def _check_ends(self) -> None:
        """Refuse when the end of one temperature is lost though the other says it was durable.

        Only segments of the last boot count: its newest segments cannot have been removed.
        """
        newest: list[i64] = [0, 0]
        for tail in self._tails:
            if tail.numbers:
                side = tail.segment.temperature
                newest[side] = max(newest[side], tail.numbers[-1])
        for tail in self._tails:
            other = 1 - tail.segment.temperature
            is_last_boot = self._epochs[tail.segment.number] == self.epoch
            known = max([number for number in tail.others if number <= self.durable], default=0)
            if is_last_boot and newest[other] < known:
                short = self._last_tail(other)
                # If that one is whole, the next is missing, and replay finds out which one it is.
                if short is not None and not short.is_sealed:
                    raise _lost_batch(short)

    def _last_tail(self, temperature: i64) -> Tail | None:
        """Return the end of the newest segment of one temperature, empty ones included."""
        for segment in sorted(self.segments + self.empty, key=_number_of, reverse=True):
            if segment.temperature == temperature:
                for tail in self._tails:
                    if tail.segment is segment:
                        return tail
                return Tail(segment)
        return None

    def _read_header(self, name: str, number: int) -> None:
        storage = self._storage
        segment = Segment(number, 0, storage.size(name))
        header = _read(storage, name, 0, SEGMENT_HEADER_SIZE)
        whole = (
            len(header) == SEGMENT_HEADER_SIZE
            and header.startswith(SEGMENT_MAGIC)
            and read_i64_le(header, 56) == crc32(header[:56])
        )
        if whole and read_i32_le(header, 8) > SEGMENT_FORMAT:
            raise JournalNewer(name, 8, "written by a newer version of Jobyard: use that version")
        if whole and read_i32_le(header, 8) < SEGMENT_FORMAT_OLDEST:
            raise JournalNewer(name, 8, "written by a version of Jobyard that is too old to read")
        if not whole or read_i32_le(header, 12) != number:
            # A header is synced before the first batch is written, so a bad one means that there
            # are no batches, unless batches of this segment are found.
            reader = Reader(storage, segment)
            stray = reader.find_stray(SEGMENT_HEADER_SIZE)
            if reader.failed_at >= 0:
                raise _unreadable(name, reader.failed_at)
            if stray is not None:
                raise JournalDamaged(name, 0, "the header of the segment is damaged")
            self.empty.append(segment)
            return
        segment.temperature = i64(read_i32_le(header, 20))
        segment.prior = read_i64_le(header, 48)
        self.next_id = max(self.next_id, read_i64_le(header, 24))
        self.epoch = max(self.epoch, i64(read_i32_le(header, 16)))
        self._epochs[number] = int(read_i32_le(header, 16))
        self.segments.append(segment)

    def _survey_tail(self, segments: list[Segment]) -> None:
        """Scan from the last segment back to the second that holds batches.

        The last may be torn if it is of the last boot, which sealed, on disk, what it found before
        it began a segment. The one before is sealed, and its seal says what was durable then.
        """
        found = 0
        may_be_torn = True
        for segment in reversed(segments):
            if found == 2:
                # Interrupted starts leave segments that were only begun before newer ones.
                if self._is_only_begun(segment):
                    self.empty.append(segment)
                continue
            tail = scan_tail(self._storage, segment)
            if tail.numbers or tail.strays or tail.is_sealed:
                is_last_boot = self._epochs[segment.number] == self.epoch
                if not tail.is_sealed and not (may_be_torn and is_last_boot):
                    why = "the segment cannot be read to its end"
                    raise JournalDamaged(segment.name, tail.end, why)
                may_be_torn = False
                self._tails.append(tail)
                # One may have been sealed before its first batch was durable.
                found += 1 if tail.numbers else 0
            else:
                self.empty.append(segment)
                # Nothing in it counts except what its torn batch says about earlier ones.
                self.durable = max(self.durable, tail.durable)

    def _is_only_begun(self, segment: Segment) -> bool:
        """Return whether a segment holds nothing that can be read as a batch of it.

        If it was in use all the same, others list it, and `require` reports it.
        """
        data = _read(self._storage, segment.name, SEGMENT_HEADER_SIZE, BATCH_HEADER_SIZE)
        if len(data) == BATCH_HEADER_SIZE:
            head = BatchHead(data, 0)
            if head.segment == segment.number and head.magic in (BATCH_MAGIC, SEAL_MAGIC):
                return False
        tail = scan_tail(self._storage, segment)
        return not (tail.numbers or tail.strays or tail.is_sealed)

    def require(self, expected: set[int]) -> None:
        """Refuse when a segment that must exist is missing or holds nothing."""
        there = {int(segment.number) for segment in self.segments}
        begun = {int(segment.number) for segment in self.empty}
        for number in sorted(expected):
            if number in begun:
                why = "nothing in the segment can be read"
                raise JournalDamaged(segment_name(number), SEGMENT_HEADER_SIZE, why)
            if number not in there:
                raise JournalDamaged(segment_name(number), 0, "the segment is missing")

    def _find_cut(self) -> None:
        known = sorted({number for tail in self._tails for number in tail.numbers})
        expected = self.durable + 1
        for number in known:
            if number < expected:
                continue
            if number > expected:
                break
            expected += 1
        self.cut = expected
        self.next_number = max(self.next_number, expected)
        for tail in self._tails:
            while tail.numbers and tail.numbers[-1] >= self.cut:
                tail.numbers.pop()
                tail.end = tail.offsets.pop()
                tail.is_sealed = False
            if not tail.is_sealed:
                self.cut_bytes += self._torn_bytes(tail)
            tail.segment.end = tail.end
        if self.cut_bytes > 0:
            # It may have been acknowledged after all: none of its ids is issued again.
            self.next_id += self.cut_bytes // PUT_SIZE + 1

    def _torn_bytes(self, tail: Tail) -> i64:
        """Return the size of a batch that was begun behind the end of a tail, mostly 0.

        A recycled file holds batches of an older use there, which are not a torn tail. A batch
        that was begun has at least two of these: this segment, the last boot, and a number that
        is not durable yet.
        """
        segment = tail.segment
        data = _read(self._storage, segment.name, tail.end, BATCH_HEADER_SIZE)
        if len(data) < BATCH_HEADER_SIZE:
            return len(data)
        head = BatchHead(data, 0)
        signs = 1 if head.segment == segment.number else 0
        signs += 1 if head.epoch == self.epoch else 0
        signs += 1 if head.number > self.durable else 0
        return min(max(head.total_size(), 1), segment.size - tail.end) if signs >= 2 else 0

    def torn(self) -> list[Segment]:
        """Return the segments that a start will cut and seal."""
        return [tail.segment for tail in self._tails if not tail.is_sealed]

    def streams(self) -> list[list[Segment]]:
        """Return the hot and the cold segments, each in the order of their batches."""
        return [[s for s in self.segments if s.temperature == t] for t in (0, 1)]

    def mend(self, fields: HeadFields) -> None:
        """Make the cut final: write uncertain batches again, then seal the segments."""
        storage = self._storage
        for tail in self._tails:
            # Everything before a seal must be on disk first.
            self._write_again(tail)
            storage.sync(tail.segment.name)
        for tail in self._tails:
            if not tail.is_sealed:
                self._seal(tail, fields)

    def clear(self) -> None:
        """Remove segments that never held a batch, once a newer one has been begun."""
        for segment in self.empty:
            self._storage.unlink(segment.name)
        self._storage.sync_directory()

    def _write_again(self, tail: Tail) -> None:
        """Write again what is not known to be on disk: maybe only the page cache has it."""
        storage = self._storage
        name = tail.segment.name
        start = tail.end - SEAL_SIZE if tail.is_sealed else tail.end
        for number, offset in zip(tail.numbers, tail.offsets, strict=True):
            if number > self.durable:
                start = min(start, offset)
        storage.write(name, start, _read(storage, name, start, tail.end - start))
        tail.segment.last_batch = tail.numbers[-1] if tail.numbers else 0

    def _seal(self, tail: Tail, fields: HeadFields) -> None:
        storage = self._storage
        segment = tail.segment
        # Until both temperatures are sealed, each seal names the last batch of the other one.
        fields.other = 0
        for other in self._tails:
            if other.numbers and other.segment.temperature != segment.temperature:
                fields.other = max(fields.other, other.numbers[-1])
        storage.write(segment.name, tail.end, encode_seal(segment, self.next_number - 1, fields))
        storage.sync(segment.name)
        segment.end = tail.end + SEAL_SIZE
        storage.truncate(segment.name, segment.end)
        segment.size = segment.end

    def resume(self, journal: Journal) -> None:
        """Set the counters of a journal to where the last boot stopped."""
        journal.epoch = self.epoch + 1
        journal.next_id = max(journal.next_id, self.next_id)
        journal.open_number = self.next_number
        journal.written = self.next_number - 1
        journal.durable = self.next_number - 1
        journal.appended = self.next_number - 1
        for segment in self.segments:
            journal.next_segment = max(journal.next_segment, segment.number + 1)
        for segment in self.empty:
            journal.next_segment = max(journal.next_segment, segment.number + 1)
        for name in self._storage.names():
            number = spare_number(name)
            if number == 0:
                continue
            journal.next_segment = max(journal.next_segment, number + 1)
            if self._storage.size(name) == journal.segment_size:
                journal.add_spare(name)
            else:
                self._storage.unlink(name)


def newest_durable(storage: Storage) -> i64:
    """Return the newest batch that any source says was on disk, whether it is there or not."""
    recovery = Recovery(storage)
    with suppress(JournalDamaged):
        recovery.survey()
    return recovery.durable


@final
class Merge:
    """Batches of the hot and the cold segments in the order of their numbers."""

    def __init__(self, storage: Storage, recovery: Recovery) -> None:
        self._storage = storage
        self._cut: i64 = recovery.cut
        self._streams = recovery.streams()
        self._readers: list[Reader | None] = [None, None]
        self._heads: list[BatchHead | None] = [None, None]
        self.batch_offset: i64 = 0

    def next(self) -> tuple[Reader, BatchHead] | None:
        """Return the next batch and the reader whose `data` at `at` holds it."""
        for side in (0, 1):
            if self._heads[side] is None:
                self._heads[side] = self._advance(side)
        hot = self._heads[0]
        cold = self._heads[1]
        if hot is None and cold is None:
            return None
        side = 0 if cold is None or (hot is not None and hot.number < cold.number) else 1
        head = self._heads[side]
        reader = self._readers[side]
        assert head is not None
        assert reader is not None
        self._heads[side] = None
        self.batch_offset = reader.offset - head.total_size()
        return reader, head

    def _advance(self, side: int) -> BatchHead | None:
        while True:
            reader = self._readers[side]
            if reader is None:
                if not self._streams[side]:
                    return None
                reader = Reader(self._storage, self._streams[side].pop(0))
                self._readers[side] = reader
            head = reader.next()
            if head is not None and head.magic == BATCH_MAGIC and head.number < self._cut:
                return head
            if reader.failed_at >= 0:
                raise _unreadable(reader.segment.name, reader.failed_at)
            if not self._streams[side]:
                return None
            if head is None or head.magic != SEAL_MAGIC:
                why = "the segment cannot be read to its end"
                raise JournalDamaged(reader.segment.name, reader.offset, why)
            reader.segment.end = reader.offset
            reader.segment.is_sealed = True
            self._readers[side] = None
