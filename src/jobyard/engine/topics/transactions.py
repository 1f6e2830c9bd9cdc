"""Commits: everything done under the name of a transaction happens once, all of it or nothing.

A commit is prepared in slices: staged records are read back and made into rows and jobs. Then all
of it enters at one moment and in one batch: records, ends of runs, cursors, the fence, and the
outcome of the transaction. Everything that may refuse is checked before the first change, and room
for all records is made at once; while they are appended, the batch is not closed, nobody is given a
job, and routers wait. So a crash leaves all of it or nothing, and no client sees a part.

What is checked before the moment is checked again at it, since anything may happen between slices;
if it changed what has to enter, the preparation is repeated. Knows no protocol.
"""

import json
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from jobyard.engine.jobs.lease_events import defer_lease_events, send_lease_events
from jobyard.engine.jobs.low_watermarks import remember_floors
from jobyard.engine.jobs.queues import drop_watch, hold_watch
from jobyard.engine.jobs.take import offer
from jobyard.engine.logs.cursors import CursorChange, apply_cursor, cursor_room
from jobyard.engine.logs.logs import trim
from jobyard.engine.state.tasks import Task
from jobyard.engine.state.yard import Yard
from jobyard.engine.topics.commit_ends import (
    EndKind,
    HeldRuns,
    RunEnd,
    SkipReason,
    apply_end,
)
from jobyard.engine.topics.commit_targets import CommitTarget, TargetMissing, target_of
from jobyard.engine.topics.fences import check_fence, raise_fence
from jobyard.engine.topics.stages import (
    TooManyTxns,
    TxnCommitted,
    TxnDiffers,
    check_count,
    decide,
    end_txn,
    is_committed,
    new_outcome,
    outcome_room,
    touch_txn,
)
from jobyard.errors import Refused, StorageFull, YardFull
from jobyard.model.topic.txn import DecidedTxn, OpenTxn, StagedChunk, TxnState

if TYPE_CHECKING:
    from jobyard.model.queue import Queue

__all__ = [
    "Commit",
    "CommitPart",
    "CommitRequest",
    "Incomplete",
    "OtherRows",
    "StageExpired",
    "TooManyBytes",
    "TooManyRows",
    "TooManyTxns",
    "TxnCommitted",
    "TxnDiffers",
    "abort",
    "look",
]

# The end of a run takes as long as so many records, and a dead letter is a write of its own; a key
# takes as long as one record, besides its own.
_ROWS_PER_END: Final = 3
_ROWS_PER_LETTER: Final = 20
# So many characters of an error take as long as a record: it is written, and is in `_events`.
_ERROR_PER_ROW: Final = 64
# A larger commit enters in a turn of its own.
_AT_ONCE: Final = 1000
# How often a commit is prepared again because others changed what has to enter.
_AGAIN_MAX: Final = 4
_ALL: Final = 1 << 40


@final
class CommitPart:
    """A part of a transaction: one attempt at it, and what was staged by that."""

    def __init__(self, topic: str, part: i64, attempt: i64, chunks: i64, rows: i64) -> None:
        self.topic: str = topic
        self.part: i64 = part
        self.attempt: i64 = attempt
        self.chunks: i64 = chunks
        self.rows: i64 = rows


class Incomplete(Refused):
    """A chunk that a commit names is missing."""

    def __init__(self, topic: str, part: i64, chunk: i64) -> None:
        super().__init__(f"part {int(part)} of topic {topic} lacks chunk {int(chunk)}")
        self.topic: str = topic
        self.part: i64 = part
        self.chunk: i64 = chunk


class OtherRows(Refused):
    """The chunks of a part have more or fewer records than a commit says."""

    def __init__(self, part: CommitPart, rows: i64) -> None:
        wanted = int(part.rows)
        where = f"part {int(part.part)} of topic {part.topic}"
        super().__init__(f"{where} has {int(rows)} records, not {wanted}")
        self.part: CommitPart = part
        self.rows: i64 = rows


class StageExpired(Refused):
    """The stages of the transaction have expired."""


class SameJobId(Refused):
    """Records for two queues have the same id for their jobs."""


class TooManyRows(Refused):
    """A commit has more records and ends of runs than may enter at one moment."""

    def __init__(self, rows: i64, most: i64) -> None:
        counted = (
            f"{_ROWS_PER_END} for each ended run, {_ROWS_PER_LETTER} for each dead letter, "
            f"one for each {_ERROR_PER_ROW} characters of an error, two for each record with a key"
        )
        super().__init__(f"{int(rows)} records, {counted}; at most {int(most)}")
        self.rows: i64 = rows
        self.most: i64 = most


class TooManyBytes(Refused):
    """The records and dead letters of a commit are larger than what others may wait for."""

    def __init__(self, size: i64, most: i64) -> None:
        counted = f"{int(size)} bytes of records and of the data of dead letters"
        super().__init__(f"{counted}; at most {int(most)}")
        self.bytes: i64 = size
        self.most: i64 = most


@final
class CommitRequest:
    """What a commit consists of."""

    def __init__(self, name: str) -> None:
        self.name: str = name
        self.parts: list[CommitPart] = []
        self.ends: list[RunEnd] = []
        self.cursors: list[CursorChange] = []
        self.worker: str = ""
        self.epoch: i64 = 0
        # Of everything above but the worker: another commit under the name has another digest.
        self.digest: str = ""


@final
class Commit(Task):
    """One commit, from the first check to the moment when it enters."""

    def __init__(self, yard: Yard, request: CommitRequest) -> None:
        super().__init__()
        self._yard = yard
        self._request = request
        self._txn: OpenTxn | None = None
        # The chunks of each topic, in the order of the request.
        self._chunks: dict[str, list[StagedChunk]] = {}
        self._rows: i64 = 0
        # Of the records that the request names.
        self._bytes: i64 = 0
        for end in request.ends:
            is_letter = end.kind == EndKind.DEAD_LETTER
            self._rows += _ROWS_PER_LETTER if is_letter else _ROWS_PER_END
            self._rows += len(end.error) // _ERROR_PER_ROW
        self._targets: list[CommitTarget] = []
        self._runs = HeldRuns(yard, [])
        self._is_begun: bool = False
        self._has_rested: bool = False
        self._again: i64 = _AGAIN_MAX
        # The result: fields of a JSON object; whether it was committed before; and whether the
        # reply waits for the disk.
        self.answer: str = ""
        self.is_duplicate: bool = False
        self.is_synced: bool = False
        self.batch: i64 = 0

    def step(self, most: i64, now_ms: i64) -> i64:
        """Do a slice of the preparation, and at its end let everything enter."""
        is_first = not self._is_begun
        if is_first:
            self._is_begun = True
            # In a record of its own: it holds even if the commit is refused, or was made before. A
            # driver that starts again begins with a repetition.
            self._raise_fence(now_ms)
        # Before each slice: the client may have sent the same commit again meanwhile.
        if self._is_done_before():
            return 0
        if is_first:
            self._begin(now_ms)
        done: i64 = 0
        while True:
            done += self._prepare(most - done, now_ms)
            if done >= most:
                return done
            if self._must_rest():
                return most
            self._check(now_ms)
            runs = HeldRuns(self._yard, self._request.ends)
            runs.proceed(_ALL, now_ms)
            self._check_bytes(runs.letter_bytes())
            if self._is_current(runs, now_ms):
                self._check_targets(now_ms)
                self._enter(runs, now_ms)
                return min(done, most - 1)
            self._again -= 1
            self._prepare_again(now_ms)
            if self._again <= 0:
                self._prepare(_ALL, now_ms)

    def _raise_fence(self, now_ms: i64) -> None:
        request = self._request
        try:
            raise_fence(self._yard, request.worker, request.epoch, now_ms)
        except (YardFull, TooManyTxns):
            # A repetition is answered all the same: what it asks for is done.
            decided = self._yard.txns.decided.get(request.name)
            if decided is None or decided.state != TxnState.COMMITTED:
                raise

    def _is_done_before(self) -> bool:
        """Return whether the same commit was made before; refuse if another one was."""
        yard = self._yard
        decided = yard.txns.decided.get(self._request.name)
        if decided is None:
            return False
        if decided.state == TxnState.COMMITTED:
            if decided.digest != self._request.digest:
                raise TxnDiffers(
                    f"transaction {self._request.name} was committed with other content"
                )
            self.answer = decided.answer
            self.is_duplicate = True
            self.is_synced = True
            self.batch = yard.journal.appended
            yard.txns.repeated_count += 1
            return True
        is_empty = len(self._request.parts) == 0 or self._request.name in yard.txns.open
        if decided.state == TxnState.EXPIRED and not is_empty:
            raise StageExpired(f"the stages of transaction {self._request.name} have expired")
        return False

    # -- before the moment ---------------------------------------------------------------------

    def _begin(self, now_ms: i64) -> None:
        yard = self._yard
        request = self._request
        for change in request.cursors:
            change.check(yard)
        if request.name not in yard.txns.open:
            check_count(yard, request.name)
        self._find_chunks(now_ms)
        self._check_size()
        self._check_bytes(0)
        self._prepare_again(now_ms)

    def _size(self) -> i64:
        """Return the size of the commit in records, as far as it is known."""
        size = self._rows
        for target in self._targets:
            size += target.key_count()
        return size

    def _check_size(self) -> None:
        size = self._size()
        if size > self._yard.txns.rows_max:
            raise TooManyRows(size, self._yard.txns.rows_max)

    def _check_bytes(self, more: i64) -> None:
        """Refuse more bytes than may be written at one moment; `more` are those of letters."""
        size = self._bytes + more
        if size > self._yard.txns.bytes_max:
            raise TooManyBytes(size, self._yard.txns.bytes_max)

    def _find_chunks(self, now_ms: i64) -> None:
        """Find the chunks that the request names; Incomplete if one is missing."""
        request = self._request
        txn = self._yard.txns.open.get(request.name)
        self._txn = txn
        if txn is not None:
            touch_txn(self._yard, txn, now_ms)
        for part in request.parts:
            rows: i64 = 0
            found = self._chunks.setdefault(part.topic, [])
            number: i64 = 0
            while number < part.chunks:
                key = (part.topic, int(part.part), int(part.attempt), int(number))
                chunk = None if txn is None else txn.chunks.get(key)
                if chunk is None:
                    raise Incomplete(part.topic, part.part, number)
                rows += chunk.rows
                self._bytes += chunk.size
                found.append(chunk)
                number += 1
            if rows != part.rows:
                raise OtherRows(part, rows)
            self._rows += rows

    def _prepare_again(self, now_ms: i64) -> None:
        yard = self._yard
        # Only records can belong to the end of a run.
        self._runs = HeldRuns(yard, self._request.ends if self._chunks else [])
        self._targets = []
        for topic, chunks in self._chunks.items():
            self._targets.append(target_of(yard, topic, chunks, now_ms))

    def _prepare(self, most: i64, now_ms: i64) -> i64:
        """Do about `most` units of the preparation; return less than that once all is done."""
        done = self._runs.proceed(most, now_ms)
        if done >= most:
            return done
        ending = self._runs.ending
        for target in self._targets:
            while not target.is_read():
                if done >= most:
                    return done
                self._check_chunks()
                done += target.read_some(ending, now_ms)
                self._check_size()
            if done < most:
                done += target.stamp_some(most - done, now_ms)
        return done

    def _must_rest(self) -> bool:
        """Return whether the commit is so large that it must enter in a turn of its own."""
        if self._has_rested or self._size() <= _AT_ONCE:
            return False
        self._has_rested = True
        tasks = self._yard.tasks
        tasks.leave_less(tasks.units_per_turn)
        return True

    def _check_chunks(self) -> None:
        """Refuse if the transaction was aborted or has expired meanwhile."""
        txn = self._txn
        if txn is not None and self._yard.txns.open.get(txn.name) is not txn:
            part = self._request.parts[0]
            raise Incomplete(part.topic, part.part, 0)

    def _check(self, now_ms: i64) -> None:
        """Refuse whatever must be refused, before anything is changed."""
        yard = self._yard
        request = self._request
        check_fence(yard, request.worker, request.epoch)
        for change in request.cursors:
            change.check(yard)
        if request.name not in yard.txns.open:
            check_count(yard, request.name)
        if self._chunks:
            self._check_chunks()
        job_ids: set[str] = set()
        for target in self._targets:
            log = yard.logs.get(target.name)
            if log is not None:
                # Not while records of the commit are appended.
                trim(yard, log, now_ms)
            if target.keys is not None:
                _check_job_ids(target.keys.kept_job_ids(), job_ids)
            if not target.is_there() and log is None and target.name not in yard.queues:
                raise TargetMissing(target.name)

    def _is_current(self, runs: HeldRuns, now_ms: i64) -> bool:
        """Return whether what is prepared is what has to enter now."""
        has_links = any(target.has_links for target in self._targets)
        if has_links and runs.ending != self._runs.ending:
            return False
        for target in self._targets:
            if not target.is_there() or not target.has_same_duplicates(now_ms):
                return False
        return True

    def _check_targets(self, now_ms: i64) -> None:
        """Refuse records that one of the topics, or the memory, has no room for."""
        memory: i64 = 0
        pinned: i64 = 0
        for target in self._targets:
            target.check(now_ms)
            memory += target.memory()
            pinned += target.pinned()
        bodies = self._yard.bodies
        if not bodies.admits(memory) or (pinned > 0 and not bodies.admits_pinned(pinned)):
            raise YardFull

    # -- the moment ----------------------------------------------------------------------------

    def _enter(self, runs: HeldRuns, now_ms: i64) -> None:
        """Let everything enter."""
        yard = self._yard
        self._make_room(runs, now_ms)
        queues = list({lease.job.queue: None for lease in runs.leases})
        journal = yard.journal
        number = journal.open_number
        for queue in queues:
            hold_watch(queue)
        offers: list[Queue] = []
        yard.txns.held_offers = offers
        was_held = yard.routers.is_held
        yard.routers.is_held = True
        journal.is_whole = True
        defer_lease_events(yard)
        try:
            self._enter_all(runs, now_ms)
        except (Refused, StorageFull) as error:
            # It would be reported as a refusal that changed nothing.
            raise AssertionError("a commit was refused when a part of it had entered") from error
        finally:
            journal.is_whole = False
            yard.routers.is_held = was_held
            yard.txns.held_offers = None
        assert journal.open_number == number
        send_lease_events(yard, now_ms)
        for queue in dict.fromkeys(offers):
            if queue.first_link is not None:
                offer(yard, queue, now_ms)
        for queue in queues:
            drop_watch(yard, queue)
        yard.tasks.leave_less(self._size())

    def _make_room(self, runs: HeldRuns, now_ms: i64) -> None:
        """Make room for all records of the commit; YardFull changes nothing."""
        yard = self._yard
        request = self._request
        # The longest answer: all runs skipped.
        answer_size: i64 = 256
        for end in request.ends:
            answer_size += 64 + 2 * len(end.queue)
        room: i64 = 4096
        for target in self._targets:
            room += target.room()
            answer_size += 160 + 2 * len(target.name)
        outcome = DecidedTxn(TxnState.COMMITTED, request.digest, "", 0, 0)
        room += outcome_room(request.name, outcome) + 6 * answer_size
        room += runs.room()
        for change in request.cursors:
            room += cursor_room(change.cursor)
        if not yard.journal.is_on:
            return
        if self._targets or request.cursors:
            is_admitted = yard.journal.admit(room, now_ms)
        else:
            # On a full disk, jobs can end in the room that is reserved for that.
            is_admitted = yard.journal.admit_change(room, now_ms)
        if not is_admitted:
            raise YardFull

    def _enter_all(self, runs: HeldRuns, now_ms: i64) -> None:
        yard = self._yard
        request = self._request
        for target in self._targets:
            target.make_way(now_ms)
        targets = self._targets
        # Letters and errors may not take the room that was checked for the records.
        for target in targets:
            target.promise(1)
        self._end_runs(runs, now_ms)
        for target in targets:
            target.promise(-1)
        topics: dict[str, dict[str, int]] = {}
        for target in self._targets:
            written = target.enter(now_ms)
            count = int(written.last_seq - written.first_seq + 1)
            topics[target.name] = {
                "first_seq": int(written.first_seq),
                "last_seq": int(written.last_seq),
                "written": count,
                "duplicates": int(target.duplicates()),
                "left_out": int(target.left_out),
            }
            self.is_synced = self.is_synced or target.is_synced()
        for change in request.cursors:
            apply_cursor(yard, change.cursor, now_ms)
        self.answer = _answer(topics, runs, len(request.cursors))
        outcome = new_outcome(yard, TxnState.COMMITTED, request.digest, self.answer, now_ms)
        decide(yard, request.name, outcome)
        self.batch = yard.journal.appended
        # Whatever the durability class, a commit that was answered is never lost.
        yard.journal.raise_to(self.batch)
        yard.txns.committed_count += 1

    def _end_runs(self, runs: HeldRuns, now_ms: i64) -> None:
        """End the runs; one for which there is no room is skipped, with the records of its job."""
        yard = self._yard
        failed: list[int] = []
        for each in range(len(runs.ends)):
            try:
                apply_end(yard, runs.leases[each].job, runs.ends[each], now_ms)
            except (YardFull, StorageFull):
                failed.append(each)
        self._remember_letters(runs)
        if not failed:
            return
        for each in failed:
            runs.skip(runs.ends[each], SkipReason.NO_ROOM)
        failed.reverse()
        for each in failed:
            del runs.ends[each]
            del runs.leases[each]
        if any(target.has_links for target in self._targets):
            self._targets = []
            self._runs = runs
            for topic, chunks in self._chunks.items():
                self._targets.append(target_of(yard, topic, chunks, now_ms))
            self._prepare(_ALL, now_ms)

    def _remember_letters(self, runs: HeldRuns) -> None:
        """Write how many jobs of each queue became letters."""
        queues: dict[Queue, None] = {}
        for each, end in enumerate(runs.ends):
            if end.kind == EndKind.DEAD_LETTER:
                queues[runs.leases[each].job.queue] = None
        for queue in queues:
            if queue.topic_state is not None:
                remember_floors(self._yard, queue)


def _check_job_ids(more: list[str], job_ids: set[str]) -> None:
    """Refuse ids that records for another queue have too; add the others."""
    for job_id in more:
        if job_id in job_ids:
            raise SameJobId(f"records for two queues have the job_id {job_id}")
    job_ids.update(more)


def _answer(topics: dict[str, dict[str, int]], runs: HeldRuns, cursors_count: int) -> str:
    """Return what a commit did, as fields of a JSON object without braces."""
    counts = [0, 0, 0]
    for end in runs.ends:
        counts[end.kind] += 1
    skipped: list[tuple[str, int, str]] = []
    for each in range(len(runs.skipped)):
        end = runs.skipped[each]
        skipped.append((end.queue, int(end.seq), runs.reasons[each]))
    fields = {
        "topics": topics,
        "acked": counts[0],
        "nacked": counts[1],
        "dead_lettered": counts[2],
        "skipped": skipped,
        "cursors": cursors_count,
    }
    return json.dumps(fields, separators=(",", ":"))[1:-1]


# -- other verbs -------------------------------------------------------------------------------


def abort(yard: Yard, name: str, now_ms: i64) -> None:
    """Drop the stages of a transaction; TxnCommitted if it is committed."""
    if is_committed(yard, name):
        raise TxnCommitted(f"transaction {name} is committed")
    if name in yard.txns.open:
        end_txn(yard, name, TxnState.ABORTED, now_ms)


def look(yard: Yard, name: str, now_ms: i64) -> str:
    """Return the state of a transaction; a call that names it renews the time of its stages."""
    txn = yard.txns.open.get(name)
    if txn is not None:
        touch_txn(yard, txn, now_ms)
        return TxnState.OPEN
    decided = yard.txns.decided.get(name)
    return TxnState.UNKNOWN if decided is None else decided.state
