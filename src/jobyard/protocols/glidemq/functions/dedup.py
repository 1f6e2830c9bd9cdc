"""Entries of jobs that were added with a deduplication id, and when they are dropped.

An entry is `<job id>:<time added>`, a field of the hash `dedup` of its queue. Old entries are
searched, over turns, each time there are twice as many as the last search left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from jobyard.engine.glidemq import add as glide_add
from jobyard.engine.glidemq import stored_values
from jobyard.engine.state.tasks import Task
from jobyard.model.job import DEAD, DONE
from jobyard.protocols.glidemq.keyspace.key_parts import text_of

if TYPE_CHECKING:
    from jobyard.engine.state.yard import Yard

# Entries of ended jobs are kept this long; a throttle window cannot be longer.
DEDUP_AGE_MS: Final = 7 * 86_400_000
DEDUP_FEW: Final = 1024
DEDUP_MARKS_MAX: Final = 10_000
# No time has more digits.
_DIGITS_MAX: Final = 18


def added_ms(note: bytes) -> int:
    """Return when the job of an entry was added, -1 if the entry does not say."""
    _, _, text = note.partition(b":")
    return int(text) if text.isdigit() and len(text) <= _DIGITS_MAX else -1


@final
class DedupNoteTask(Task):
    """Drops the entries of jobs that ended long ago."""

    def __init__(
        self, yard: Yard, marks: dict[bytes, int], key: bytes, queue_name: str, ts: i64
    ) -> None:
        super().__init__()
        self._yard = yard
        self._marks = marks
        self._key = key
        self._queue_name = queue_name
        self._before: i64 = ts - DEDUP_AGE_MS
        notes = yard.stored_values.keys.get(key)
        self._ids: list[bytes] = [] if notes is None else list(notes.table)

    def step(self, most: i64, now_ms: i64) -> i64:
        """Check some entries."""
        notes = stored_values.find(self._yard, self._key, now_ms)
        if notes is None:
            self._marks.pop(self._key, None)
            return 0
        old: list[bytes] = []
        done: i64 = 0
        while self._ids and done < most:
            dedup_id = self._ids.pop()
            note = notes.table.get(dedup_id)
            done += 1
            if note is not None and self._is_old(note):
                old.append(dedup_id)
                done += 1
        stored_values.drop_fields(self._yard, notes, old)
        if done < most:
            self._marks[self._key] = 2 * len(notes.table) + DEDUP_FEW
        return done

    def _is_old(self, note: bytes) -> bool:
        if not 0 <= added_ms(note) < self._before:
            return False
        queue = self._yard.queues.get(self._queue_name)
        job_id = text_of(note.partition(b":")[0])
        job = None if queue is None else glide_add.find(self._yard, queue, job_id)
        return job is None or job.state in (DEAD, DONE)


def forget_old(
    yard: Yard, marks: dict[bytes, int], key: bytes, queue_name: str, ts: i64, now_ms: i64
) -> None:
    """Search for old entries if there are twice as many as the last search left."""
    notes = stored_values.find(yard, key, now_ms)
    if notes is None or len(notes.table) < marks.get(key, DEDUP_FEW):
        return
    if len(marks) >= DEDUP_MARKS_MAX:
        marks.clear()
    # Until the search knows how many are left.
    marks[key] = 2 * len(notes.table) + DEDUP_FEW
    yard.tasks.follow(DedupNoteTask(yard, marks, key, queue_name, ts))
