"""Where the text of a log is: in memory while the budget lasts, otherwise only in the journal.

The oldest text is freed first, because readers mostly follow the newest, and a chunk at a time. It
is read back from its place for each reader and not kept: the page cache holds what is read often.
Text from the disk is verified by its checksum. Without a journal no text is freed.
"""

from typing import Final, final
from zlib import crc32

from mypy_extensions import i64

from jobyard.engine.state.tasks import Task
from jobyard.engine.state.yard import Yard
from jobyard.errors import TextDamaged
from jobyard.journal.format.segment import segment_name
from jobyard.journal.journal import Journal
from jobyard.model.topic.log import LogTopic
from jobyard.model.topic.log_chunk import LogChunk

# The longest gap between two texts that are read together.
GAP_MAX: Final = 4096
# How many other logs every write beyond the budget checks for text to free.
TURNS: Final = 4
# Bytes of text evicted at once; bytes evicted, and bytes freed, in one unit of work.
COOLED_AT_ONCE: Final = 1 << 20
COOLED_PER_UNIT: Final = 2048
TEXT_FREED_PER_UNIT: Final = 32 << 10
# Units of work to join the texts of a chunk.
JOIN_UNITS: Final = 150


def cool(yard: Yard, log: LogTopic) -> None:
    """Free old text while there is too much in memory: of this log, then of a few others.

    A large amount is freed only in part at once, and the rest over turns.
    """
    if yard.bodies.has_budget(0) or not yard.journal.is_on:
        return
    left = _cool_one(yard, log, COOLED_AT_ONCE)
    turns = 0
    while turns < TURNS and left > 0 and not yard.bodies.has_budget(0):
        if not yard.cooling:
            yard.cooling = list(yard.logs)
        other = yard.logs.get(yard.cooling.pop()) if yard.cooling else None
        if other is not None:
            left = _cool_one(yard, other, left)
        turns += 1
    if left <= 0 and not log.is_cooling:
        log.is_cooling = True
        yard.tasks.follow(TextEviction(yard, log))


def _cool_one(yard: Yard, log: LogTopic, most: i64) -> i64:
    """Free about `most` bytes of old text; return how much of `most` is left."""
    last: i64 = len(log.chunks) - 1
    index = log.chunk_index(log.cooled_below)
    while index < last and most > 0 and not yard.bodies.has_budget(0):
        chunk = log.chunks[index]
        if chunk.batch > yard.journal.written:
            return most
        if not chunk.is_cold and chunk.can_cool():
            summed = chunk.sum_some(most)
            if summed >= most:
                return 0
            most -= summed
            _cool_chunk(yard, log, chunk)
        log.cooled_below = chunk.last_seq() + 1
        index += 1
    return most


def _cool_chunk(yard: Yard, log: LogTopic, chunk: LogChunk) -> None:
    memory = log.memory
    pieces = chunk.pieces
    log.cool(chunk)
    yard.bodies.in_memory += log.memory - memory
    log.memory_counted = log.memory
    if memory - log.memory > COOLED_AT_ONCE:
        yard.tasks.follow(TextFreeing(pieces))


@final
class TextEviction(Task):
    """Frees text of a log that is beyond the budget."""

    def __init__(self, yard: Yard, log: LogTopic) -> None:
        super().__init__()
        self._yard = yard
        self._log = log

    def step(self, most: i64, now_ms: i64) -> i64:  # noqa: ARG002  the task's
        """Free a slice of the text."""
        size = most * COOLED_PER_UNIT
        left = _cool_one(self._yard, self._log, size)
        if left <= 0:
            return most
        self._log.is_cooling = False
        return (size - left) // COOLED_PER_UNIT


@final
class TextFreeing(Task):
    """Frees the memory of long texts."""

    def __init__(self, texts: list[bytes]) -> None:
        super().__init__()
        self._texts = texts

    def step(self, most: i64, now_ms: i64) -> i64:  # noqa: ARG002  the task's
        """Free some of the texts."""
        return free_some(self._texts, most)


def free_some(texts: list[bytes], most: i64) -> i64:
    """Free some texts; return how many units that took, fewer than `most` if all are freed."""
    done: i64 = 0
    while done < most and texts:
        done += 1 + len(texts.pop()) // TEXT_FREED_PER_UNIT
    return done


def texts_between(journal: Journal, chunk: LogChunk, start: i64, end: i64) -> list[bytes]:
    """Return the texts of slots that all hold records; raise TextDamaged if one is damaged."""
    if not chunk.is_joined:
        return chunk.pieces[start:end]
    if not chunk.is_cold:
        return [chunk.text_at(slot) for slot in range(int(start), int(end))]
    texts: list[bytes] = []
    while start < end:
        # Texts that are not written yet are read batch by batch.
        stop = _run_end(chunk, start, end, 0 if journal.pending else GAP_MAX)
        first: i64 = chunk.offsets[start]
        size = chunk.offsets[stop - 1] + chunk.size_of(stop - 1) - first
        data = journal.read(chunk.segments[start], first, size)
        while start < stop:
            at: i64 = chunk.offsets[start] - first
            text = data[at : at + chunk.size_of(start)]
            if crc32(text) != chunk.crcs[start]:
                raise _damaged(journal, chunk, start, stop, data, first)
            texts.append(text)
            start += 1
    return texts


def _damaged(
    journal: Journal, chunk: LogChunk, slot: i64, stop: i64, data: bytes, first: i64
) -> TextDamaged:
    """Find how many records from a damaged one on are damaged, and register the damage.

    `data` is what was read up to `stop`, and `first` the offset where it begins.
    """
    offset = int(chunk.offsets[slot])
    last = slot
    while last + 1 < stop:
        at: i64 = chunk.offsets[last + 1] - first
        if crc32(data[at : at + chunk.size_of(last + 1)]) == chunk.crcs[last + 1]:
            break
        last += 1
    where = f"{segment_name(chunk.segments[slot])} at offset {offset}"
    damage = TextDamaged(int(chunk.base + slot), int(chunk.base + last), where)
    journal.damages.note_text(chunk.segments[slot], offset, str(damage))
    return damage


def text_at(journal: Journal, chunk: LogChunk, slot: i64) -> bytes:
    """Return the text of a slot that holds a record."""
    if chunk.is_cold:
        return texts_between(journal, chunk, slot, slot + 1)[0]
    return chunk.text_at(slot)


def _run_end(chunk: LogChunk, start: i64, end: i64, gap_max: i64) -> i64:
    """Return the end of a run of texts that are close enough to be read at once."""
    slot = start + 1
    while slot < end and chunk.segments[slot] == chunk.segments[start]:
        gap = chunk.offsets[slot] - (chunk.offsets[slot - 1] + chunk.size_of(slot - 1))
        if not 0 <= gap <= gap_max:
            break
        slot += 1
    return slot


@final
class TextJoining(Task):
    """Joins the texts of chunks that a write of many records has filled."""

    def __init__(self, log: LogTopic, first_seq: i64) -> None:
        super().__init__()
        self._log = log
        self._next: i64 = first_seq

    def step(self, most: i64, now_ms: i64) -> i64:  # noqa: ARG002  the task's
        """Join some texts, except those of the newest chunk, which still grows."""
        done: i64 = 0
        chunks = self._log.chunks
        index = self._log.chunk_index(self._next)
        while done < most and index < len(chunks) - 1:
            chunks[index].join()
            self._next = chunks[index].last_seq() + 1
            index += 1
            done += JOIN_UNITS
        return done
