"""The lower half of the journal: batches, segments, room on the disk, and what is durable.

Append (memory) -> write (kernel) -> sync (disk) -> durable. A position is a batch number: a record
appended now is safe once `durable >= open_number`. The records appended between two commits are one
batch; all of it is read back or none. This module does not know what the records mean.

The open batch always belongs to a known segment: `make_room` closes it and rolls to the next
segment before a verb appends what would not fit, so places and live bytes are exact from the
start, and the records of one verb never straddle two batches.

Space for the end of every live job is reserved in existing files, so a full disk refuses new jobs
and nothing else. A failed write or sync raises StorageFailed; the caller must stop.
"""

from typing import TYPE_CHECKING, Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from jobyard.errors import ReadFailed, StorageFull
from jobyard.journal.damage import Damages
from jobyard.journal.format.newest_segment import note_newest
from jobyard.journal.format.record import LONG_BODY_SIZE, PUT_SIZE, write_alive
from jobyard.journal.format.segment import (
    BATCH_HEADER_SIZE,
    COLD,
    HOT,
    SEAL_SIZE,
    SEGMENT_HEADER_SIZE,
    HeadFields,
    Segment,
    crc_of,
    encode_pieces,
    encode_seal,
    encode_segment_header,
    segment_name,
    spare_name,
)
from jobyard.journal.format.sums import sums_size, sums_size_max
from jobyard.journal.outgoing import LONG_BATCH, Outgoing, OutgoingBatch
from jobyard.journal.space.live_bytes import LiveBytes
from jobyard.journal.space.survivors import Survivors
from jobyard.journal.storage import Storage, read_around
from jobyard.journal.unsummed import Unsummed
from jobyard.model.details_codec import place_result, size_of
from jobyard.model.index.sharded_dict import ShardedDict
from jobyard.model.limits import INLINE_BODY_MAX

if TYPE_CHECKING:
    from jobyard.model.entry import Entry
    from jobyard.model.job import Job

# Reserved in existing files for each live job: a GONE, which is what a full disk writes of any end
# that has to be written, and a share of a batch header.
RESERVED_PER_JOB: Final = 64
# Ids reserved ahead where an answer may precede the sync, so that a lost tail never reuses one.
ID_BLOCK: Final = 1 << 16
# The first segment of a boot is filled with zeros before the server listens; this takes a few ms.
FIRST_SEGMENT_SIZE: Final = 4 << 20
# How long a full disk counts as full before the next attempt.
FULL_RETRY_MS: Final = 200
# How many reads of one body, or of one page of a log, may fail before the rest is given up.
READ_FAILURES_MAX: Final = 24


class Batches(Outgoing):
    """The open batch and the segments."""

    def __init__(  # noqa: PLR0915  all of its state
        self, storage: Storage | None, segment_size: i64, *, ids_ahead: bool
    ) -> None:
        super().__init__(storage)
        self.is_on: bool = storage is not None
        self.segment_size: i64 = segment_size
        self._ids_ahead: bool = ids_ahead
        self.epoch: i64 = 1
        self.wall_offset_ms: i64 = 0
        # Batches: the one being filled, and the newest with a record that a reply waits for.
        self.open_number: i64 = 1
        self.appended: i64 = 0
        self.next_id: i64 = 1
        self.records_count: i64 = 0
        self.moved_count: i64 = 0
        self._records_sealed: i64 = 0
        # The number of the first record of this boot: numbers continue over restarts.
        self.record_base: i64 = 0
        # The time in the newest record about a job or a log.
        self.newest_event_ms: i64 = 0
        # Where the newest END record ends in the hot segment.
        self.record_end: i64 = 0
        # Newest batch by temperature.
        self._newest: list[i64] = [0, 0]
        # The records of the open batch: long pieces that are not copied again, and the rest.
        self._cut: list[bytes] = []
        self._cut_size: i64 = 0
        self._part1 = BytesWriter()
        self._part2: list[bytes] = []
        self._part2_size: i64 = 0
        self._long_jobs: list[Job] = []
        self._long_offsets: list[i64] = []
        # Jobs whose results were read back into memory to be written again.
        self.warmed: list[Job] = []
        self.live_bytes = LiveBytes()
        self.entries: ShardedDict[tuple[int, bytes], Entry] = ShardedDict()
        self.segments: dict[int, Segment] = self.live_bytes.segments
        self.next_segment: i64 = 1
        self.next_queue: i64 = 1
        self.hot: Segment = Segment(0, HOT, 0)
        self.cold: Segment | None = None
        self.spares: list[str] = []
        # A batch that must be on disk before any reply: it reserves the seqs of a log.
        self.seqs_sync_batch: i64 = 0
        # A batch with a record whose reply must wait for the disk, though the server's durability
        # class requires less; 0 if no such record was appended since `take_command_sync_batch`.
        self.command_sync_batch: i64 = 0
        # Results that a full disk had no room for, and jobs that were not kept even without one.
        self.results_lost: i64 = 0
        self.done_lost: i64 = 0
        # Damage found since the start.
        self.damages = Damages()
        self.is_full: bool = False
        self._full_until_ms: i64 = 0
        # The disk was too full: history must make room.
        self.is_short: bool = False
        # Whether the open batch may not be closed: a verb of many parts is being appended.
        self.is_whole: bool = False

    # -- room ---------------------------------------------------------------------------------

    def admit(self, size: i64, now_ms: i64) -> bool:
        """Make room for a new job of `size` body bytes; False when the disk has none."""
        needed: i64 = PUT_SIZE + LONG_BODY_SIZE + size
        # Spare files change neither the open segment nor what is left in it.
        left = self._left(needed)
        missing = self._missing_after(needed, left)
        if missing > 0:
            # Even if not all spare files could be created, there may be enough room now.
            self._grow(now_ms, missing)
            if self._missing_after(needed, left) > 0:
                return False
        if left < 0 and not self.is_whole:
            try:
                self._roll(needed)
            except StorageFull:
                self._set_full(now_ms)
                return False
        return True

    def admit_parts(self, size: i64, now_ms: i64) -> bool:
        """Create files for `size` bytes of several batches; return False if there is no room.

        Opens none of them: a file for all of it would delay other connections while it is created.
        """
        missing = self._missing_of_parts(size)
        if missing > 0:
            self._grow(now_ms, missing)
        return self._missing_of_parts(size) <= 0

    def _missing_of_parts(self, size: i64) -> i64:
        return self._promised() + size - self._left(0) - len(self.spares) * self._usable()

    def has_room(self, size: i64) -> bool:
        """Return whether `size` bytes can be written without using reserved space."""
        return not self.is_full or self._missing(size) <= 0

    def has_room_aside(self, size: i64, share: i64) -> bool:
        """Return whether `size` bytes fit if at most `share` bytes of reserved space are used."""
        return not self.is_full or self._missing(size) <= share

    def admit_change(self, size: i64, now_ms: i64) -> bool:
        """Make room for a change of an existing job; on a full disk, use reserved space."""
        if self.admit(size, now_ms):
            return True
        if self._missing(size) > self.segment_size:
            return False
        try:
            self.make_room(size)
        except StorageFull:
            return False
        return True

    def _missing(self, needed: i64) -> i64:
        """Return how many more bytes of spare files are required to append `needed` bytes."""
        return self._missing_after(needed, self._left(needed))

    def _missing_after(self, needed: i64, left: i64) -> i64:
        """Return the same if it is known how much `needed` bytes leave of the hot segment."""
        rest = self._left(0)
        missing = self._promised() + needed - rest - len(self.spares) * self._usable()
        if left >= 0 or self.is_whole:
            return missing
        # A roll leaves the rest of the segment unused. What fits into no segment gets a file of
        # its own, which does not count as reserved space.
        is_long = self._segment_for(needed) > self.segment_size
        return missing + rest - (needed if is_long else 0)

    def _fits(self, size: i64) -> bool:
        return self.is_whole or self._left(size) >= 0

    def _left(self, size: i64) -> i64:
        """Return how much `size` more bytes leave of the hot segment; below 0 they do not fit.

        The open batch needs sums, a header and a seal after it as well.
        """
        records: i64 = self._cut_size + len(self._part1) + size
        batch: i64 = BATCH_HEADER_SIZE + records + sums_size_max(records) + self._part2_size
        return self.hot.size - self.hot.end - batch - SEAL_SIZE

    def _usable(self) -> i64:
        return self.segment_size - SEGMENT_HEADER_SIZE - SEAL_SIZE

    def _promised(self) -> i64:
        """Return how many bytes are reserved so that every job can end even on a full disk.

        Two segments more than the ends themselves need: one for compaction to write to, and one
        for the next roll, which leaves the end of a segment unused.
        """
        return self.live_bytes.jobs_count * RESERVED_PER_JOB + 2 * self.segment_size

    def spares_wanted(self) -> i64:
        """Return how many more spare files are needed, including one for the next roll."""
        return self._spares_for(self._missing(0) + self._usable())

    def _spares_for(self, missing: i64) -> i64:
        return max(0, (missing + self._usable() - 1) // self._usable())

    def _grow(self, now_ms: i64, missing: i64) -> None:
        """Create the missing spare files, unless the disk was full a moment ago."""
        if self.is_full and now_ms < self._full_until_ms:
            return
        try:
            for _ in range(self._spares_for(missing)):
                name = self.new_spare_name()
                self.storage().create(name, self.segment_size)
                self.storage().sync_directory()
                self.add_spare(name)
        except StorageFull:
            self._set_full(now_ms)
        else:
            self.is_full = False

    def _set_full(self, now_ms: i64) -> None:
        self.is_full, self._full_until_ms = True, now_ms + FULL_RETRY_MS
        self.is_short = True

    def retry_full(self, now_ms: i64) -> None:
        """Check whether a full disk has room again; called periodically while it is full."""
        if self.is_full and now_ms >= self._full_until_ms:
            self._grow(now_ms, self._missing(0))

    def note_full(self) -> None:
        """Mark the disk as full; the next attempt may follow at once."""
        self.is_full = True
        self.is_short = True

    def new_spare_name(self) -> str:
        """Return a name for a new spare file."""
        return spare_name(self.take_segment_number())

    def take_segment_number(self) -> i64:
        """Return a number for a new file; numbers are never used twice."""
        number = self.next_segment
        self.next_segment = number + 1
        return number

    def add_spare(self, name: str) -> None:
        """Count a spare file as usable."""
        self.spares.append(name)

    def make_room(self, size: i64) -> None:
        """Ensure that `size` more bytes fit into the open batch and its segment."""
        if not self._fits(size):
            self._roll(size)

    def _roll(self, size: i64) -> None:
        """Close the hot segment and open a new one that holds at least `size` bytes."""
        fresh = self.open_segment(HOT, max(self.segment_size, self._segment_for(size)))
        self.seal_batch()
        self.seal_segment(self.hot)
        self.hot = fresh
        note_newest(self.storage(), self.hot.number)
        self._append_alive()

    def _segment_for(self, size: i64) -> i64:
        """Return the size of a segment whose first verb appends `size` bytes."""
        records: i64 = size + 16 + 4 * (len(self.segments) + 1)
        sums = sums_size_max(records)
        return SEGMENT_HEADER_SIZE + BATCH_HEADER_SIZE + records + sums + SEAL_SIZE

    def start(self) -> None:
        """Open the first segment of this boot: a short one, since a boot may be short too."""
        try:
            self.hot = self.open_segment(HOT, min(self.segment_size, FIRST_SEGMENT_SIZE))
        except StorageFull:
            # The spares of the last boot have their space reserved.
            self.hot = self.open_segment(HOT, self.segment_size)
        note_newest(self.storage(), self.hot.number)
        self._append_alive()
        self.commit()

    def _append_alive(self) -> None:
        alive = [number for number in sorted(self.segments) if not self.segments[number].is_leaving]
        write_alive(self._part1, alive)
        self.records_count += 1

    def open_segment(self, temperature: i64, size: i64) -> Segment:
        """Turn a spare into an empty segment whose header and name are on disk."""
        storage = self.storage()
        if size == self.segment_size and self.spares:
            spare = self.spares.pop()
        else:
            spare = spare_name(self.take_segment_number())
            storage.create(spare, size)
        segment = Segment(self.take_segment_number(), temperature, size)
        if temperature == HOT and self.history.is_on:
            segment.prior = self.history.last_hot or segment.number
            self.history.last_hot = segment.number
        storage.rename(spare, segment.name)
        header = encode_segment_header(
            segment, self.epoch, self._id_limit(), self.open_number - 1, self.wall_offset_ms
        )
        storage.write(segment.name, 0, header)
        storage.sync(segment.name)
        storage.sync_directory()
        self.segments[segment.number] = segment
        return segment

    def read(self, number: i64, offset: i64, size: i64) -> bytes:
        """Return bytes of a segment, whether they are on disk or not written yet.

        Zeros where the disk cannot read: the caller verifies a checksum.
        """
        for one in self.pending:
            if one.segment.number == number and 0 <= offset - one.offset < one.size:
                return one.read(offset - one.offset, size)
        return read_around(self.storage(), segment_name(number), offset, size, READ_FAILURES_MAX)

    def is_readable(self, number: i64, offset: i64, size: i64) -> bool:
        """Return whether the disk can read these bytes of a segment, whether right or wrong."""
        try:
            self.storage().read(segment_name(number), offset, size)
        except ReadFailed:
            return False
        return True

    # -- batches ------------------------------------------------------------------------------

    def has_open_records(self) -> bool:
        """Return whether anything was appended since the last batch was closed."""
        return len(self._part1) > 0 or self._cut_size > 0

    def newest(self) -> i64:
        """Return the batch that holds the newest record of any kind."""
        return self.open_number - (0 if self.has_open_records() else 1)

    def next_record(self) -> i64:
        """Return the number of the next record."""
        return self.record_base + self.records_count

    def open_bytes(self) -> i64:
        """Return the size of the open batch's records."""
        return self._cut_size + len(self._part1) + self._part2_size

    def _here(self) -> i64:
        """Return where the next record will begin in the hot segment."""
        return self.hot.end + BATCH_HEADER_SIZE + self._cut_size + len(self._part1)

    def _cut_off(self, texts: list[bytes]) -> None:
        """Add long texts of the newest record to the open batch without copying them."""
        self._cut.append(self._part1.getvalue())
        self._cut.extend(texts)
        self._cut_size += len(self._part1)
        for text in texts:
            self._cut_size += len(text)
        self._part1.truncate(0)

    def seal_batch(self) -> None:
        """Close the open batch, if it holds anything."""
        if not self.has_open_records():
            return
        hot = self.hot
        bodies = self._part2
        size: i64 = self._cut_size + len(self._part1)
        if self._long_jobs:
            records_at: i64 = hot.end + BATCH_HEADER_SIZE
            start: i64 = records_at + size + sums_size(records_at, size)
            for job, offset in zip(self._long_jobs, self._long_offsets, strict=True):
                job.place = (hot.number << 32) | (start + offset)
        records = self._cut
        records.append(self._part1.getvalue())
        self._cut = []
        self._cut_size = 0
        if size > LONG_BATCH:
            # Truncating would keep its memory.
            self._part1 = BytesWriter()
        else:
            self._part1.truncate(0)
        crc: i64 = 0
        if bodies:
            crc = -1
            if len(bodies) == 1 and len(self._long_jobs) == 1:
                # Already summed when it was appended: a second time takes 5 ms for 10 MiB.
                crc = self._long_jobs[0].crc
            # Also if no long job is left: its body may have been replaced by a short one since.
            self._long_jobs.clear()
            self._long_offsets.clear()
            self._part2 = []
            self._part2_size = 0
        self._queue_batch(hot, records, bodies, crc, self.records_count - self._records_sealed)

    def _queue_batch(
        self, segment: Segment, records: list[bytes], bodies: list[bytes], crc: i64, count: i64
    ) -> None:
        """Assign a number and a place to a batch, and queue it for writing.

        `crc` is the checksum of all bodies, or -1 if it is unknown.
        """
        number = self.open_number
        fields = self._head_fields(segment)
        to_sum: i64 = 0
        for piece in records:
            to_sum += len(piece)
        if crc < 0:
            for body in bodies:
                to_sum += len(body)
        if to_sum > self.summed_at_once:
            unsummed = Unsummed(segment, number, fields, records, bodies, crc)
            batch = OutgoingBatch(segment, unsummed.pieces, number, fields.next_id, is_seal=False)
            batch.unsummed = unsummed
        else:
            crc = crc if crc >= 0 else crc_of(bodies)
            pieces = encode_pieces(segment, number, fields, b"".join(records), bodies, crc)
            batch = OutgoingBatch(segment, pieces, number, fields.next_id, is_seal=False)
        first = self.record_base + self._records_sealed
        self._records_sealed += count
        self.pending.append(batch)
        if self.history.is_on:
            newest_ms = self.newest_event_ms + self.wall_offset_ms
            rows = (self.last_row, self.rows_count)
            self.history.add_batch(segment, segment.end, first, count, newest_ms, rows)
            self.history.expect(segment, number, first + count, rows)
        segment.end += batch.size
        segment.last_batch = number
        self._newest[segment.temperature] = number
        self.open_number = number + 1

    def _head_fields(self, segment: Segment) -> HeadFields:
        fields = HeadFields(self.epoch, self.wall_offset_ms, self._id_limit())
        fields.durable = self.durable
        fields.first_record = self.record_base + self._records_sealed
        fields.other = self._newest[1 - segment.temperature]
        return fields

    def _id_limit(self) -> i64:
        if not self._ids_ahead:
            return self.next_id
        return (self.next_id // ID_BLOCK + 2) * ID_BLOCK

    def ids_at_risk(self) -> bool:
        """Return whether an id or seq near the limit that is on disk has been issued."""
        if self.seqs_sync_batch > self.durable:
            return True
        return self._ids_ahead and self.next_id + ID_BLOCK // 2 > self._id_limit_durable

    def is_answered_early(self) -> bool:
        """Return whether a reply may precede the sync of its records."""
        return self._ids_ahead

    def raise_to(self, number: i64) -> None:
        """Make the replies of the current command wait until batch `number` is on disk."""
        if self._ids_ahead:
            self.command_sync_batch = max(self.command_sync_batch, number)

    def take_command_sync_batch(self) -> i64:
        """Return the batch that must be on disk before the last command's reply, or 0."""
        raised = self.command_sync_batch
        self.command_sync_batch = 0
        return raised

    def seal_segment(self, segment: Segment) -> None:
        """Queue the seal of a segment that gets no more batches."""
        number = self.open_number - 1
        fields = self._head_fields(segment)
        data = encode_seal(segment, number, fields)
        self.pending.append(OutgoingBatch(segment, [data], number, fields.next_id, is_seal=True))
        segment.end += SEAL_SIZE

    def write_cold(self, saved: Survivors) -> i64:
        """Write what compaction copies as one batch of a cold segment, in its current state.

        It is closed between two hot batches, so its number orders it against every change before
        and after; the new places are valid from here on. Returns the number of the segment.
        """
        self.seal_batch()
        part1 = BytesWriter()
        offsets = saved.encode(part1)
        records: i64 = len(part1)
        size: i64 = BATCH_HEADER_SIZE + records + sums_size_max(records) + saved.part2_size
        segment = self._cold_segment(size + SEAL_SIZE)
        start: i64 = segment.end + BATCH_HEADER_SIZE
        part2_start: i64 = start + records + sums_size(start, records)
        for i in range(len(saved.jobs)):
            job = saved.jobs[i]
            long = job.size > INLINE_BODY_MAX
            self.live_bytes.leave_base(job)
            details = job.details
            weight: i64 = 0 if details is None else size_of(details)
            offset = (part2_start if long else start) + offsets[i]
            self.live_bytes.take_base(job, segment, offset, weight)
        for job in saved.states:
            self.live_bytes.trail(job, segment)
        for job, end in zip(saved.results, saved.result_ends, strict=True):
            place_result(job, segment.number, start + end)
        for base in saved.kill_bases:
            self.live_bytes.count_kill(segment, base)
        for queue in saved.queues:
            self.live_bytes.hold_queue(queue, segment)
        for entry in saved.entries:
            self.live_bytes.forget_entry(entry)
            self.live_bytes.hold_entry(entry, segment)
        for name in saved.names:
            self.history.move_name(name, self.segments.get(name.segment), segment)
        for i in range(len(saved.keys)):
            self.live_bytes.move_keys(saved.key_tables[i], saved.key_numbers[i], segment)
        self._move_logs(saved, segment)
        count = saved.count()
        self.records_count += count
        self.moved_count += count
        crc = -1 if saved.part2 else 0
        self._queue_batch(segment, [part1.getvalue()], saved.part2, crc, count)
        return segment.number

    def _move_logs(self, saved: Survivors, segment: Segment) -> None:
        live_bytes = self.live_bytes
        start: i64 = segment.end + BATCH_HEADER_SIZE
        for log in saved.heads:
            live_bytes.hold_head(log, segment)
        for erased in saved.erased:
            live_bytes.count_erased(segment, erased.segment, erased.length())
        for i in range(len(saved.rows)):
            rows = saved.rows[i]
            for seq, offset in zip(rows.seqs, rows.offsets, strict=True):
                live_bytes.move_row(saved.rows_logs[i], seq, segment, start + offset)
            key = saved.rows_keys[i]
            if key is not None:
                live_bytes.hold_key(key, segment, key.weight)

    def _cold_segment(self, size: i64) -> Segment:
        cold = self.cold
        if cold is not None and cold.end + size <= cold.size:
            return cold
        overhead: i64 = SEGMENT_HEADER_SIZE + size
        try:
            fresh = self.open_segment(COLD, max(self.segment_size, overhead))
        except StorageFull:
            # Among fresh records it is in a worse place, but the victim makes room for both.
            if not self._fits(size):
                raise
            return self.hot
        if cold is not None:
            self.seal_segment(cold)
        self.cold = fresh
        # The next hot batch lists it as required, so that its loss is detected.
        self.make_room(8 + 4 * len(self.segments))
        self._append_alive()
        return fresh

    # -- to the disk --------------------------------------------------------------------------

    def vouch(self) -> None:
        """Write the newest durable batch to the file `newest` if the journal is idle.

        Without it, damage to the newest batch would look like a tail torn by a crash. Only for
        callers that have synced everything that is marked as durable.
        """
        is_idle = not self.pending and not self.has_open_records() and self.written == self.durable
        if is_idle and self._vouched < self.durable:
            self._vouched = self.durable
            note_newest(self.storage(), self.hot.number, self.durable)

    def close(self) -> None:
        """Commit, and seal every segment, so that the next start finds no open end."""
        self.commit()
        if self.cold is not None:
            self.seal_segment(self.cold)
        self.seal_segment(self.hot)
        self.write_pending()

    def commit(self) -> None:
        """Close, write and sync what was appended: everything is durable on return."""
        self.seal_batch()
        self.write_pending()
        storage = self.storage()
        for name in self.take_unsynced():
            storage.sync(name)
        self.mark_durable(self.written, self._id_limit_written)
