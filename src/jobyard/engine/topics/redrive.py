"""Redrives dead letters and dead jobs of a queue that a caller names: they become ready again.

Each letter, and each dead job, is moved in one batch together with the key under which that is done
(decision 45: the keys of records). So a call that was cut off half-way, in whichever turn, can be
repeated: what it moved under its key is not moved again, whatever became of it since. A letter
becomes a new job that names the one it was; a dead job keeps its number.

Knows no protocol; how a body is patched is the caller's.
"""

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from jobyard.engine.jobs.dead_letters import DeadLetter, read_dead_letter
from jobyard.engine.jobs.move import kick_dead, set_body
from jobyard.engine.jobs.take import offer
from jobyard.engine.state.record_keys import keys_of, keys_room, known_keys
from jobyard.engine.state.tasks import Task
from jobyard.engine.state.yard import Yard
from jobyard.engine.topics.topic_queue import record_of_letter, write_again
from jobyard.engine.topics.topic_setup import (
    config_of,
    remember_job_keys,
    set_queue_config,
    topic_state_of,
)
from jobyard.errors import StorageFull, TextDamaged, YardFull
from jobyard.journal.format.record import END_ROOM, STATE_SIZE
from jobyard.model.details_codec import size_of
from jobyard.model.job import BYTES, DEAD, GONE, JSON, Job
from jobyard.model.queue import Queue
from jobyard.model.topic.key_table import redrive_digest
from jobyard.model.topic.log import LogTopic, WriteTooLarge
from jobyard.model.topic.new_keys import NewKeys, TooManyKeys

# Units of work: of one that is only looked at, of a letter and of a dead job that are moved.
_SEEN_UNITS: Final = 2
_LETTER_UNITS: Final = 30
_JOB_UNITS: Final = 15
# Reading, patching and writing a body takes one for as many bytes.
_BYTES_PER_UNIT: Final = 256
# In the place of the incarnation of the log of letters.
_OF_JOBS: Final = "jobs"


@final
class RedriveSkip:
    """Why a letter or a dead job was not moved."""

    GONE: Final = "gone"
    OTHER_QUEUE: Final = "other_queue"
    NOT_DEAD: Final = "not_dead"
    NOT_JSON: Final = "not_json"
    TOO_LARGE: Final = "too_large"
    CORRUPT: Final = "corrupt"


@mypyc_attr(allow_interpreted_subclasses=True)
class BodyPatch:
    """How bodies change before they are moved; this base class leaves them as they are."""

    def applied(self, codec: i64, body: bytes) -> bytes | None:  # noqa: ARG002  for subclasses
        """Return a body with its changes in the same codec; None if it is not JSON."""
        return body


@final
class RedriveRequest:
    """What a call names: seqs of letters, or numbers of jobs."""

    def __init__(self, ids: list[int], *, are_jobs: bool) -> None:
        self.ids: list[int] = ids
        self.are_jobs: bool = are_jobs
        # Empty: nothing is remembered.
        self.key: str = ""
        self.patch: BodyPatch | None = None
        # Only look what would be moved.
        self.is_dry: bool = False
        # The longest body and meta after a patch.
        self.size_max: i64 = 0


@final
class Redrive(Task):
    """One such call."""

    def __init__(self, yard: Yard, queue: Queue, request: RedriveRequest) -> None:
        super().__init__()
        self.is_reading = request.is_dry
        self._yard = yard
        self._queue = queue
        self._request = request
        self._log: LogTopic | None = yard.logs.get(config_of(queue).dead_letter or "")
        # A queue that is created again has another one.
        self._topic_state = topic_state_of(queue)
        self._next: i64 = 0
        # The result. What was moved now, and before under this key, with the seqs it got.
        self.moved: list[int] = []
        self.moved_seqs: list[int] = []
        self.known: list[int] = []
        self.known_seqs: list[int] = []
        self.skipped: list[int] = []
        self.reasons: list[str] = []
        # Why it stopped before its end, if it did, and whether the queue was removed meanwhile.
        self.refusal: Exception | None = None
        self.is_lost: bool = False

    def left(self) -> i64:
        """Return how many were not reached because it was stopped."""
        return len(self._request.ids) - self._next

    def step(self, most: i64, now_ms: i64) -> i64:
        """Move some."""
        yard = self._yard
        queue = self._queue
        ids = self._request.ids
        done: i64 = 0
        while done < most and self._next < len(ids):
            if yard.queues.get(queue.name) is not queue or not self._is_same():
                self.is_lost = True
                break
            try:
                done += self._move(i64(ids[self._next]), now_ms)
            except (YardFull, StorageFull, TooManyKeys) as refusal:
                self.refusal = refusal
                break
            self._next += 1
        is_over = self.is_lost or self.refusal is not None or self._next >= len(ids)
        return min(done, most - 1) if is_over else max(done, most)

    def _is_same(self) -> bool:
        return self._queue.topic_state is self._topic_state

    def _move(self, number: i64, now_ms: i64) -> i64:
        """Move one if that is possible; return the units it took."""
        request = self._request
        log = self._log
        keys: NewKeys | None = None
        if request.key:
            source = _OF_JOBS
            if not request.are_jobs:
                source = "" if log is None else str(int(log.incarnation))
            keys = self._keys_of(redrive_digest(request.key, source, number), number, now_ms)
            if keys is None:
                return _SEEN_UNITS
        if request.are_jobs:
            return self._move_job(number, keys, now_ms)
        return self._move_letter(number, keys, now_ms)

    def _keys_of(self, digest: bytes, number: i64, now_ms: i64) -> NewKeys | None:
        """Return the key to be stored; None if it is known, so that this was moved before."""
        keys = NewKeys()
        keys.add_digest(digest)
        table = keys_of(self._yard, self._queue.name)
        known_keys(self._yard, table, keys, config_of(self._queue), now_ms)
        if keys.kept:
            return keys
        self.known.append(int(number))
        self.known_seqs.append(keys.duplicate_seqs[0])
        return None

    def _skip(self, number: i64, reason: str) -> i64:
        self.skipped.append(int(number))
        self.reasons.append(reason)
        return _SEEN_UNITS

    def _note(self, number: i64, seq: i64) -> None:
        self.moved.append(int(number))
        self.moved_seqs.append(int(seq))

    # -- letters -------------------------------------------------------------------------------

    def _move_letter(self, seq: i64, keys: NewKeys | None, now_ms: i64) -> i64:
        request = self._request
        log = self._log
        if log is None or not _is_letter(log, seq):
            return self._skip(seq, RedriveSkip.GONE)
        try:
            letter = read_dead_letter(self._yard, log, seq)
        except TextDamaged:
            return self._skip(seq, RedriveSkip.CORRUPT)
        if letter.origin_queue != self._queue.name:
            return self._skip(seq, RedriveSkip.OTHER_QUEUE)
        units = _LETTER_UNITS + len(letter.record.data) // _BYTES_PER_UNIT
        if request.patch is not None and not _patch_letter(letter, request.patch):
            self._skip(seq, RedriveSkip.NOT_JSON)
            return units
        record = record_of_letter(letter)
        size: i64 = len(record.data) + len(record.meta)
        is_patched_long = request.patch is not None and size > request.size_max
        if is_patched_long or config_of(self._queue).is_exceeded_by(1, size):
            self._skip(seq, RedriveSkip.TOO_LARGE)
        elif request.is_dry:
            self._note(seq, 0)
        else:
            try:
                new = write_again(self._yard, self._queue, log, seq, record, keys, now_ms)
            except WriteTooLarge:
                return units + self._skip(seq, RedriveSkip.TOO_LARGE)
            self._note(seq, new)
        return units

    # -- dead jobs -----------------------------------------------------------------------------

    def _move_job(self, job_id: i64, keys: NewKeys | None, now_ms: i64) -> i64:
        job = self._yard.jobs.get(job_id)
        if job is None or job.state == GONE:
            return self._skip(job_id, RedriveSkip.GONE)
        if job.queue is not self._queue:
            return self._skip(job_id, RedriveSkip.OTHER_QUEUE)
        if job.state != DEAD:
            return self._skip(job_id, RedriveSkip.NOT_DEAD)
        body: bytes | None = None
        units: i64 = _JOB_UNITS
        patch = self._request.patch
        if patch is not None:
            units += i64(job.size) // _BYTES_PER_UNIT
            body, reason = self._patched(job, patch)
            if reason:
                return units + self._skip(job_id, reason)
        if self._request.is_dry:
            self._note(job_id, 0)
        else:
            self._bring_back(job, body, keys, now_ms)
            self._note(job_id, job.key)
        return units

    def _patched(self, job: Job, patch: BodyPatch) -> tuple[bytes | None, str]:
        """Return the patched body of a job, or why there is none."""
        before = self._yard.bodies.fetch(job)
        if before is None:
            return None, RedriveSkip.CORRUPT
        body = patch.applied(i64(job.codec), before)
        if body is None:
            return None, RedriveSkip.NOT_JSON
        is_long = len(body) > self._request.size_max
        return body, RedriveSkip.TOO_LARGE if is_long else ""

    def _bring_back(self, job: Job, body: bytes | None, keys: NewKeys | None, now_ms: i64) -> None:
        """Make a dead job ready, with another body if one is given, in one batch with its key."""
        yard = self._yard
        queue = self._queue
        journal = yard.journal
        if keys is not None and queue.config is None:
            # It must outlive its jobs, as their keys do.
            set_queue_config(yard, queue, config_of(queue), now_ms)
        room: i64 = STATE_SIZE + END_ROOM
        if job.details is not None:
            room += 2 * size_of(job.details)
        if body is not None:
            room += journal.body_room(job, body)
        if keys is not None:
            room += keys_room(queue.name, keys_of(yard, queue.name), keys)
        if journal.is_on and not journal.admit(room, now_ms):
            raise YardFull
        number = journal.open_number
        # What members have become can exceed the estimate.
        journal.is_whole = True
        try:
            if body is not None:
                set_body(yard, job, body, job.codec, now_ms)
            kick_dead(yard, job, now_ms)
            if keys is not None:
                remember_job_keys(yard, queue, keys, job.key, now_ms)
        finally:
            journal.is_whole = False
        assert journal.open_number == number
        offer(yard, queue, now_ms)


def _is_letter(log: LogTopic, seq: i64) -> bool:
    """Return whether a record exists that may be a dead letter."""
    chunk = log.chunk_of(seq)
    if log.is_dropped or chunk is None:
        return False
    slot = seq - chunk.base
    return chunk.is_alive(slot) and chunk.metas[slot] > 0


def _patch_letter(letter: DeadLetter, patch: BodyPatch) -> bool:
    """Patch the data of a letter; False if they are not JSON."""
    record = letter.record
    data = patch.applied(BYTES if record.is_binary else JSON, record.data)
    if data is None:
        return False
    record.data = data
    return True
