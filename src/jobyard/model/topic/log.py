"""A log: records in the order they were appended, read by cursor, removed from the oldest end.

Seqs rise and are never reused. `earliest_seq` is that of the first existing record, or `next_seq`
if there is none. Three floors tell why everything below them is gone: by cap, by time, or because a
client deleted it; readers are notified of the first two only.

Holds the records of one log in chunks and everything known about them; knows no journal and no
clock. Invariant: `count` and `bytes` are those of the live records of all chunks, and every chunk
but the last has one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i32, i64, mypyc_attr, trait

from jobyard.errors import YardFull
from jobyard.model.index.recent_keys import RecentKeys
from jobyard.model.topic.log_chunk import (
    ALIVE_SLOT,
    CHUNK_BYTES,
    DEAD_SLOT,
    LOG_CHUNK_ROWS,
    LogChunk,
)
from jobyard.model.topic.log_rows import binary_size

if TYPE_CHECKING:
    from jobyard.model.index.item import Item
    from jobyard.model.topic.config import TopicConfig
    from jobyard.model.topic.key_table import KeyTable
    from jobyard.model.topic.log_rows import LogRows

# Why a reader has missed records.
CAP: Final = "cap"
TTL: Final = "ttl"
MIXED: Final = "mixed"
RECREATED: Final = "recreated"


class TopicFull(YardFull):
    """The topic is full, and configured to refuse new records instead of removing old ones."""


class WriteTooLarge(TopicFull):
    """One write is larger than all that the topic may ever hold."""


def incarnation_of(log: LogTopic) -> str:
    """Return the id of this life of a log; a string, as JavaScript numbers are too short for it."""
    return str(int(log.incarnation))


@final
class LogRecord:
    """A record as its writer sent it: data is JSON text or bytes, meta JSON text or empty."""

    def __init__(
        self,
        data: bytes,
        meta: bytes = b"",
        tag: str = "",
        node: str = "",
        *,
        is_binary: bool = False,
    ) -> None:
        self.data: bytes = data
        self.meta: bytes = meta
        self.tag: str = tag
        self.node: str = node
        self.is_binary: bool = is_binary

    def size(self) -> i64:
        """Return the size of data and meta in a log."""
        size: i64 = len(self.data)
        return (binary_size(size) if self.is_binary else size) + len(self.meta)


@final
class Tombstone:
    """Marks records that were removed before a reader reached them."""

    def __init__(
        self, gap_from: i64, gap_to: i64, reason: str, earliest_seq: i64, head_seq: i64
    ) -> None:
        self.gap_from: i64 = gap_from
        self.gap_to: i64 = gap_to
        self.reason: str = reason
        # Some of them may have been deleted earlier.
        self.missed_estimate: i64 = gap_to - gap_from + 1
        self.earliest_seq: i64 = earliest_seq
        self.head_seq: i64 = head_seq


@final
class LogQuery:
    """Which records a reader wants, and how they are shown."""

    def __init__(
        self,
        from_seq: i64,
        limit: i64,
        max_bytes: i64,
        nodes: tuple[str, ...] = (),
        *,
        include_tags: bool = False,
        include_meta: bool = True,
        include_data: bool = True,
    ) -> None:
        self.from_seq: i64 = from_seq
        self.limit: i64 = limit
        self.max_bytes: i64 = max_bytes
        self.nodes: tuple[str, ...] = nodes
        self.include_tags: bool = include_tags
        self.include_meta: bool = include_meta
        self.include_data: bool = include_data


@final
class LogPage:
    """What a reader gets: `records`, joined, are the items of a JSON array."""

    def __init__(self, head_seq: i64, earliest_seq: i64, batch: i64) -> None:
        self.records: list[bytes] = []
        self.count: i64 = 0
        self.next_from_seq: i64 = 0
        self.head_seq: i64 = head_seq
        self.earliest_seq: i64 = earliest_seq
        self.tombstone: Tombstone | None = None
        # Records scanned, shown or not.
        self.scanned: i64 = 0
        # The batch that must be safe (if `is_synced`, on disk) before the page is sent.
        self.batch: i64 = batch
        self.is_synced: bool = False


@final
class Appended:
    """The seqs of a write, or of an earlier write with the same key."""

    def __init__(self, first_seq: i64, last_seq: i64, batch: i64, *, is_deduped: bool) -> None:
        self.first_seq: i64 = first_seq
        self.last_seq: i64 = last_seq
        self.is_deduped: bool = is_deduped
        self.batch: i64 = batch


@trait
class RecordForwarder:
    """Passes the records of a log on to other topics."""

    def room(self, count: i64, size: i64) -> i64:
        """Return the most journal bytes that this many records and bytes can take there."""
        raise NotImplementedError

    def at_once(self, count: i64) -> i64:
        """Return how many of `count` records would be passed on one by one in this turn."""
        raise NotImplementedError

    def copy(self, now_ms: i64) -> None:
        """Pass on what was appended."""


@mypyc_attr(allow_interpreted_subclasses=True)
@trait
class LogReader:
    """A reader that is notified of changes of a log."""

    def appended(self, log: LogTopic) -> None:
        """Read again: something was appended or set, or the log was dropped."""


@mypyc_attr(allow_interpreted_subclasses=True)
class OpenLogReader(LogReader):
    """A reader that need not be compiled: an interpreted class cannot have a compiled trait."""


@final
class WriteKey:
    """What is remembered of a write with a key."""

    def __init__(self, first_seq: i64, last_seq: i64, at_ms: i64, batch: i64) -> None:
        self.first_seq: i64 = first_seq
        self.last_seq: i64 = last_seq
        self.at_ms: i64 = at_ms
        self.batch: i64 = batch
        # The segment that holds its record, and its size there.
        self.segment: i64 = 0
        self.weight: i64 = 0


@final
class LogTopic:
    """One log."""

    def __init__(self, name: str, config: TopicConfig) -> None:
        self.name: str = name
        self.config: TopicConfig = config
        # Number in the journal, and the segment that holds the record of its head.
        self.number: i64 = 0
        self.segment: i32 = 0
        self.incarnation: i64 = 0
        self.is_dropped: bool = False
        # Whether the journal ever got a record of it.
        self.is_written: bool = False
        self.next_seq: i64 = 1
        # The journal reserves seqs below this before they are given out.
        self.seq_limit: i64 = 1
        self.durable_limit: i64 = 1
        self.limit_batch: i64 = 0
        self.earliest_seq: i64 = 1
        # Whether more records are due for removal than could be removed at once.
        self.is_late: bool = False
        self.cap_floor: i64 = 1
        self.ttl_floor: i64 = 1
        self.erased_floor: i64 = 1
        self.count: i64 = 0
        self.bytes: i64 = 0
        # Of records that follow in the same turn, for which the caps must leave room.
        self.promised_count: i64 = 0
        self.promised_bytes: i64 = 0
        # Up to this many bytes, what cursors hold need not be counted again.
        self.hold_counted_at: i64 = 0
        # Bytes of text in memory, and how much of it is counted in the memory budget.
        self.memory: i64 = 0
        self.memory_counted: i64 = 0
        # Wall time; 0 before the first write.
        self.last_write_ms: i64 = 0
        # Steady time; not stored.
        self.last_read_ms: i64 = 0
        # Batch of the newest change.
        self.batch: i64 = 0
        self.chunks: list[LogChunk] = []
        # While the journal is read back, records may be added to any chunk.
        self.is_filling: bool = False
        # Text of chunks that begin below this seq was dropped from memory, where possible.
        self.cooled_below: i64 = 0
        # Whether a task is dropping text from memory.
        self.is_cooling: bool = False
        self.keys: RecentKeys[WriteKey] = RecentKeys()
        # The keys of records; None if none ever had one.
        self.record_keys: KeyTable | None = None
        self.readers: dict[LogReader, None] = {}
        self.onward: RecordForwarder | None = None
        # Fires when the first record expires.
        self.alarm: Item | None = None
        # Bytes of removed records by segment, not yet subtracted from its live bytes.
        self.freed: dict[int, int] = {}

    def evict_floor(self) -> i64:
        """Return the seq below which records were lost that no client deleted."""
        return max(self.cap_floor, self.ttl_floor)

    def floor(self) -> i64:
        """Return the seq below which there is no record."""
        return max(self.cap_floor, self.ttl_floor, self.erased_floor)

    # -- lookup --------------------------------------------------------------------------------

    def chunk_index(self, seq: i64) -> i64:
        """Return the index of the first chunk that ends at `seq` or later."""
        low: i64 = 0
        high: i64 = len(self.chunks)
        while low < high:
            middle = (low + high) // 2
            if self.chunks[middle].last_seq() < seq:
                low = middle + 1
            else:
                high = middle
        return low

    def chunk_of(self, seq: i64) -> LogChunk | None:
        """Return the chunk that has a slot for `seq`."""
        index = self.chunk_index(seq)
        if index < len(self.chunks) and self.chunks[index].base <= seq:
            return self.chunks[index]
        return None

    def ts_after(self, seq: i64) -> i64:
        """Return the wall time of the first record after a seq; 0 if there is none."""
        index = self.chunk_index(seq + 1)
        while index < len(self.chunks):
            chunk = self.chunks[index]
            slot = next_alive(chunk, max(seq + 1 - chunk.base, 0))
            if slot < chunk.used():
                return chunk.ts[slot]
            index += 1
        return 0

    def is_alive(self, seq: i64) -> bool:
        """Return whether there is a record with this seq."""
        chunk = self.chunk_of(seq)
        return chunk is not None and chunk.is_alive(seq - chunk.base)

    # -- adding --------------------------------------------------------------------------------

    def add(self, rows: LogRows, segment: i64) -> bool:
        """Add rows after all existing records; their seqs are consecutive.

        If many rows fill a chunk, its texts are left to be joined later; returns True then.
        """
        start: i64 = 0
        count: i64 = len(rows.seqs)
        chunks_count = len(self.chunks)
        while start < count:
            seq = rows.first_seq + start
            chunk = self._open_chunk(seq, is_joining=count == 1)
            end = min(count, start + chunk_base(chunk.base) + LOG_CHUNK_ROWS - seq)
            memory = chunk.memory
            if memory + rows.size > CHUNK_BYTES:
                end = _end_by_size(rows, start, end, CHUNK_BYTES - memory)
            size = chunk.bytes
            chunk.extend(rows, start, end, segment)
            chunk.batch = self.batch
            self.memory += chunk.memory - memory
            self.bytes += chunk.bytes - size
            self.count += end - start
            start = end
        return count > 1 and len(self.chunks) > max(chunks_count, 1)

    def _open_chunk(self, seq: i64, *, is_joining: bool) -> LogChunk:
        """Return the chunk whose next slot is that of `seq`; join the texts of the one before."""
        chunks = self.chunks
        if not chunks or not _takes(chunks[-1], seq):
            if chunks and not self.is_filling:
                if chunks[-1].count == 0:
                    self.memory -= chunks.pop().memory
                elif is_joining:
                    chunks[-1].join()
            chunks.append(LogChunk(self._base_after(len(chunks), seq)))
        chunk = chunks[-1]
        chunk.pad(seq - chunk.base)
        return chunk

    def _base_after(self, index: i64, seq: i64) -> i64:
        """Return the base of a new chunk for `seq`, which follows those before `index`."""
        base = chunk_base(seq)
        return max(base, self.chunks[index - 1].last_seq() + 1) if index > 0 else base

    def cool(self, chunk: LogChunk) -> None:
        """Drop the text of a full chunk from memory."""
        memory = chunk.memory
        chunk.cool()
        self.memory += chunk.memory - memory

    def put_back(self, rows: LogRows, i: i64, segment: i64) -> None:
        """Add row `i` where it belongs; only while the journal is read back."""
        seq: i64 = rows.seqs[i]
        index = self.chunk_index(seq)
        chunks = self.chunks
        if index == len(chunks) or chunks[index].base > seq:
            # No chunk has a slot for it: the one before gets one, or it begins a chunk.
            if index > 0 and _takes(chunks[index - 1], seq):
                index -= 1
            else:
                chunks.insert(index, LogChunk(self._base_after(index, seq)))
        chunk = chunks[index]
        base = chunk.base
        memory = chunk.memory
        size = chunk.bytes
        if seq - base < chunk.used():
            chunk.fill(seq - base, rows, i, segment)
        else:
            chunk.pad(seq - base)
            chunk.extend(rows, i, i + 1, segment)
        self.memory += chunk.memory - memory
        self.bytes += chunk.bytes - size
        self.count += 1

    # -- removing ------------------------------------------------------------------------------

    def kill(self, chunk: LogChunk, slot: i64) -> None:
        """Remove a record; the caller must then call `find_earliest`."""
        segment = chunk.segments[slot]
        if segment != 0:
            self.freed[segment] = self.freed.get(segment, 0) + chunk.weight_of(slot)
        memory = chunk.memory
        size = chunk.bytes
        chunk.kill(slot)
        self.memory += chunk.memory - memory
        self.bytes += chunk.bytes - size
        self.count -= 1

    def kill_chunk(self, chunk: LogChunk) -> None:
        """Remove all records of a chunk; the caller must then call `find_earliest`."""
        self._free_all(chunk)
        memory = chunk.memory
        self.bytes -= chunk.bytes
        self.count -= chunk.count
        chunk.kill_all()
        self.memory += chunk.memory - memory

    def take_all(self) -> list[LogChunk]:
        """Remove all records at once; return their chunks, to be freed later."""
        chunks = self.chunks
        for chunk in chunks:
            self._free_all(chunk)
        self.chunks = []
        self.count = 0
        self.bytes = 0
        self.memory = 0
        self.find_earliest()
        return chunks

    def _free_all(self, chunk: LogChunk) -> None:
        """Count the bytes of all records of a chunk as freed."""
        if chunk.count == 0:
            return
        if chunk.is_in_one_segment():
            self._free(chunk.segments[0], chunk.weight())
            return
        weight: i64 = 0
        segment: i64 = 0
        used = chunk.used()
        slot = next_alive(chunk, 0)
        while slot < used:
            if chunk.segments[slot] != segment:
                self._free(segment, weight)
                segment = chunk.segments[slot]
                weight = 0
            weight += chunk.weight_of(slot)
            slot = next_alive(chunk, slot + 1)
        self._free(segment, weight)

    def _free(self, segment: i64, weight: i64) -> None:
        if segment != 0:
            self.freed[segment] = self.freed.get(segment, 0) + weight

    def kill_below(self, floor: i64) -> None:
        """Remove every record below `floor`."""
        for chunk in self.chunks:
            if chunk.base >= floor:
                break
            if chunk.last_seq() < floor:
                self.kill_chunk(chunk)
                continue
            end = min(floor - chunk.base, chunk.used())
            slot = next_alive(chunk, 0)
            while slot < end:
                self.kill(chunk, slot)
                slot = next_alive(chunk, slot + 1)
        while len(self.chunks) > 1 and self.chunks[0].count == 0:
            self.memory -= self.chunks[0].memory
            del self.chunks[0]
        self.find_earliest()

    def sweep(self) -> None:
        """Remove chunks without a record, wherever they are, and find the first record."""
        kept: list[LogChunk] = []
        for chunk in self.chunks:
            if chunk.count > 0 or chunk is self.chunks[-1]:
                kept.append(chunk)
            else:
                self.memory -= chunk.memory
        self.chunks = kept
        self.find_earliest()

    def find_earliest(self) -> None:
        """Find the first record."""
        self.earliest_seq = self.next_seq
        for chunk in self.chunks:
            if chunk.count > 0:
                self.earliest_seq = chunk.base + next_alive(chunk, 0)
                break

    def floor_without(self, count: i64, size: i64) -> i64:
        """Return the seq below which there are this many records and bytes, or all."""
        floor = self.earliest_seq
        for chunk in self.chunks:
            if count <= 0 and size <= 0:
                return floor
            if chunk.count == 0:
                continue
            if count > chunk.count or size > chunk.bytes:
                count -= chunk.count
                size -= chunk.bytes
                floor = chunk.base + last_alive(chunk) + 1
                continue
            slot = next_alive(chunk, 0)
            while slot < chunk.used() and (count > 0 or size > 0):
                count -= 1
                size -= chunk.content_size(slot)
                floor = chunk.base + slot + 1
                slot = next_alive(chunk, slot + 1)
        return floor

    def bytes_between(self, first_seq: i64, end_seq: i64) -> i64:
        """Return the bytes of records from a seq up to another, counting whole chunks."""
        size: i64 = 0
        index = self.chunk_index(first_seq)
        while index < len(self.chunks) and self.chunks[index].base < end_seq:
            size += self.chunks[index].bytes
            index += 1
        return size

    def floor_of_first(self, count: i64) -> i64:
        """Return the seq below which the first `count` records are, or one above all.

        Not simply `count` above the first seq: seqs have gaps.
        """
        return self.floor_without(count, 0) if self.count > count else self.next_seq + 1

    def floor_before(self, at_ms: i64, bound: i64) -> i64:
        """Return the seq below which are the records from before `at_ms`, or `bound`."""
        floor = self.earliest_seq
        for chunk in self.chunks:
            slot = next_alive(chunk, 0)
            while slot < chunk.used():
                if chunk.at[slot] >= at_ms or floor >= bound:
                    return floor
                floor = chunk.base + slot + 1
                slot = next_alive(chunk, slot + 1)
        return floor

    def earliest_at_ms(self) -> i64:
        """Return when the first record was appended; there must be one."""
        chunk = self.chunk_of(self.earliest_seq)
        assert chunk is not None
        return chunk.at[self.earliest_seq - chunk.base]


def chunk_base(seq: i64) -> i64:
    """Return the first seq that a chunk may have which a seq belongs to.

    Chunks of little text begin there; of much text, several chunks share the range.
    """
    return (seq - 1) // LOG_CHUNK_ROWS * LOG_CHUNK_ROWS + 1


def _takes(chunk: LogChunk, seq: i64) -> bool:
    """Return whether a chunk may get a slot for a seq after its last one."""
    is_open = chunk.memory < CHUNK_BYTES and not chunk.is_joined
    return is_open and chunk_base(chunk.base) == chunk_base(seq)


def _end_by_size(rows: LogRows, start: i64, end: i64, left: i64) -> i64:
    """Return the end of the rows from `start` on that fill a chunk; at least one."""
    at = start + 1
    left -= len(rows.texts[start])
    while at < end and left > 0:
        left -= len(rows.texts[at])
        at += 1
    return at


def next_alive(chunk: LogChunk, slot: i64) -> i64:
    """Return the first slot from `slot` on with a record, or the number of slots."""
    found = chunk.dead.find(ALIVE_SLOT, slot)
    return found if found >= 0 else chunk.used()


def last_alive(chunk: LogChunk) -> i64:
    """Return the last slot with a record; there must be one."""
    return chunk.dead.rfind(ALIVE_SLOT)


def next_dead(chunk: LogChunk, slot: i64) -> i64:
    """Return the first slot from `slot` on without a record, or the number of slots."""
    found = chunk.dead.find(DEAD_SLOT, slot)
    return found if found >= 0 else chunk.used()
