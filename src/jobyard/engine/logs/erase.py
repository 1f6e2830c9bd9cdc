"""Deletes records of a log: those below a seq, those with a tag, or some by their seqs.

Very many are deleted in slices, the oldest first, and anything may happen to the log in between.
Records appended after the request stay. After a crash in the middle the rest still exists: there is
no record of the whole request.
"""

from bisect import bisect_right
from json.encoder import encode_basestring_ascii
from typing import Final, final

from mypy_extensions import i64

from jobyard.engine.logs.logs import make_head_room, remember_head, settle, trim
from jobyard.engine.state.tasks import Task
from jobyard.engine.state.yard import Yard
from jobyard.errors import StorageFull, YardFull
from jobyard.journal.format.log_record import Erased
from jobyard.model.topic.log import LogTopic
from jobyard.model.topic.log_chunk import LogChunk

# How many records of whole chunks are freed, or searched, in one unit of work; a record that is
# deleted singly is one unit.
_FREED_PER_UNIT: Final = 8
_SEEN_PER_UNIT: Final = 32
# More units than any log needs.
_ALL: Final = 1 << 40


@final
class Erasure(Task):
    """Deletes existing records below `before_seq` (-1: all), with `has_match` only those tagged."""

    def __init__(
        self,
        yard: Yard,
        log: LogTopic,
        before_seq: i64,
        tag: str,
        *,
        is_prefix: bool,
        has_match: bool,
    ) -> None:
        super().__init__()
        self._yard = yard
        self._log = log
        self._bound: i64 = log.next_seq if before_seq < 0 else min(before_seq, log.next_seq)
        self._has_match: bool = has_match
        needle = b'"$tag":' + encode_basestring_ascii(tag).encode()
        self._needle: bytes = needle[:-1] if is_prefix else needle + b","
        # All seqs below are done.
        self._next: i64 = 0
        self.count: i64 = 0

    def step(self, most: i64, now_ms: i64) -> i64:
        """Delete a slice of the records."""
        log = self._log
        if log.is_dropped:
            return 0
        trim(self._yard, log, now_ms)
        if log.count <= self._yard.tasks.units_per_turn:
            # So few that it delays no one.
            self._delete(_ALL)
            return 0
        done = self._delete(most)
        return max(done, most) if self._next < self._bound else min(done, most - 1)

    def _delete(self, most: i64) -> i64:
        return self._erase_tagged(most) if self._has_match else self._erase_below(most)

    def _erase_below(self, most: i64) -> i64:
        """Delete some of the oldest records, at least a chunk; return how many units it took."""
        yard = self._yard
        log = self._log
        bound = self._bound
        rows: i64 = 0
        floor = bound
        for chunk in log.chunks:
            rows += chunk.count
            if chunk.last_seq() + 1 >= bound:
                break
            if rows >= most * _FREED_PER_UNIT:
                floor = chunk.last_seq() + 1
                break
        self._next = floor
        if log.count == 0 or floor <= log.earliest_seq:
            return 1
        try:
            make_head_room(yard, log, 0)
        except StorageFull as error:
            raise YardFull from error
        before = log.count
        log.erased_floor = max(log.erased_floor, floor)
        remember_head(yard, log)
        log.kill_below(floor)
        settle(yard, log)
        self.count += before - log.count
        return 1 + rows // _FREED_PER_UNIT

    def _erase_tagged(self, most: i64) -> i64:
        """Search some chunks, at least one; return how many units it took."""
        log = self._log
        found: list[tuple[LogChunk, list[int]]] = []
        done: i64 = 0
        index = log.chunk_index(self._next)
        while index < len(log.chunks) and done < most and self._next < self._bound:
            chunk = log.chunks[index]
            slots = _tagged(chunk, self._needle)
            if chunk.last_seq() >= self._bound:
                slots = [slot for slot in slots if chunk.base + slot < self._bound]
            if slots:
                found.append((chunk, slots))
                self.count += len(slots)
            done += 1 + chunk.used() // _SEEN_PER_UNIT + len(slots)
            self._next = chunk.last_seq() + 1
            index += 1
        if index == len(log.chunks):
            self._next = self._bound
        if found:
            _erase_found(self._yard, log, found)
        return done


def erase_seqs(yard: Yard, log: LogTopic, seqs: list[int]) -> None:
    """Delete single records, all of which must exist."""
    found: dict[int, tuple[LogChunk, list[int]]] = {}
    for seq in seqs:
        chunk = log.chunk_of(seq)
        assert chunk is not None
        base = int(chunk.base)
        found.setdefault(base, (chunk, []))[1].append(seq - base)
    _erase_found(yard, log, list(found.values()))


def _erase_found(yard: Yard, log: LogTopic, found: list[tuple[LogChunk, list[int]]]) -> None:
    records = _by_segment(log, found)
    size: i64 = 0
    for one in records:
        size += one.length()
    try:
        make_head_room(yard, log, size)
    except StorageFull as error:
        raise YardFull from error
    remember_head(yard, log)
    yard.journal.append_erased(log, records)
    for chunk, slots in found:
        if len(slots) == chunk.count:
            log.kill_chunk(chunk)
            continue
        for slot in slots:
            log.kill(chunk, slot)
    log.sweep()
    settle(yard, log)


def _by_segment(log: LogTopic, found: list[tuple[LogChunk, list[int]]]) -> list[Erased]:
    """Return the ERASED records for deleted records, one for each segment that holds some."""
    erased: dict[int, Erased] = {}
    for chunk, slots in found:
        for slot in slots:
            segment = chunk.segments[slot]
            if segment == 0:
                continue
            if segment not in erased:
                erased[segment] = Erased(log.number, segment)
            erased[segment].add(chunk.base + slot)
    return list(erased.values())


def _tagged(chunk: LogChunk, needle: bytes) -> list[int]:
    """Return the slots of records whose labels begin with `needle`."""
    if not chunk.has_labels:
        return []
    slots: list[int] = []
    if not chunk.is_joined:
        for slot, label in enumerate(chunk.labels):
            if label.startswith(needle):
                slots.append(slot)
        return slots
    # Inside a label nothing looks like the beginning of one, because quotes are escaped.
    at = chunk.label_text.find(needle)
    while at >= 0:
        slot = bisect_right(chunk.label_ends, at)
        if chunk.dead[slot] == 0:
            slots.append(slot)
        at = chunk.label_text.find(needle, at + 1)
    return slots
