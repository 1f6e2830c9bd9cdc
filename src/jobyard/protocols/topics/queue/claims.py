"""Claims with an id: claimed once, read again as JSON or as columns, and extended together.

A claim without an id is served as ever, by `leases`. A set is claimed, shown and extended in
slices, since it may have ten times as many jobs as another claim.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64

from jobyard.engine.jobs.queues import drop_watch, hold_watch
from jobyard.engine.jobs.take import cancel_wait, wait
from jobyard.engine.state.tasks import Task
from jobyard.engine.state.timers import Alarm
from jobyard.engine.topics import topic_queue
from jobyard.engine.topics.claim_sets import (
    SetClaiming,
    SetExtension,
    find_claim_set,
    live_lease,
)
from jobyard.engine.topics.topic_setup import config_of
from jobyard.errors import Refused, StorageFull
from jobyard.model.lease import NOBODY, Holder
from jobyard.model.limits import NEVER_MS
from jobyard.model.topic.config import LEASE_MS_MAX, clamp_lease_ms
from jobyard.protocols.http.call import JSON_TYPE, HttpRefused, PendingCall
from jobyard.protocols.http.long_calls import LongCall
from jobyard.protocols.http.long_calls import in_http as refusal_of
from jobyard.protocols.session import PIECE_SIZE
from jobyard.protocols.topics.answers import begin, finish, finish_long, put_bool, put_int
from jobyard.protocols.topics.body import invalid, is_strict, read_body, whole
from jobyard.protocols.topics.find import find_queue, no_topic, queue_of
from jobyard.protocols.topics.limits import hold_wait
from jobyard.protocols.topics.queue import leases
from jobyard.protocols.topics.queue.claim_columns import ClaimColumns
from jobyard.protocols.topics.records.jobs import write_lease
from jobyard.protocols.topics.records.reads import WAIT_MS_MAX
from jobyard.protocols.topics.txn_fields import check_id, check_worker, in_http, put_limits
from jobyard.wire.arrow.stream import ARROW_STREAM
from jobyard.wire.http.accept import names
from jobyard.wire.json.write import write_text
from jobyard.wire.msgpack.forms import KIND_ABSENT, KIND_NIL

if TYPE_CHECKING:
    from jobyard.model.lease import Lease
    from jobyard.model.queue import Queue
    from jobyard.model.topic.claim_set import ClaimSet
    from jobyard.model.waiter import Waiter
    from jobyard.protocols.http.call import HttpCall
    from jobyard.protocols.topics.door import TopicsDoor
    from jobyard.wire.json.read import JsonFields

SET_CLAIM_MAX: Final = 10_000
_SHOW_UNITS: Final = 3
_BYTES_PER_UNIT: Final = 1024
_EXTEND_FIELDS: Final = frozenset({"lease_ms", "worker", "epoch", "strict"})


def claim(door: TopicsDoor, call: HttpCall) -> None:
    """POST /v0/topics/{topic}/claim."""
    queue = queue_of(door.yard, call.params[0])
    fields = read_body(call, may_be_empty=False)
    is_strict(fields, leases.CLAIM_FIELDS)
    if fields.kind(b"claim_id") in (KIND_ABSENT, KIND_NIL):
        leases.claim(door, call, queue, fields)
        return
    _begin_set(door, call, queue, fields)


def _begin_set(door: TopicsDoor, call: HttpCall, queue: Queue, fields: JsonFields) -> None:
    claim_id = check_id(fields.text(b"claim_id") or "", "a claim_id")
    node = leases.node_of(fields)
    most = max(1, min(whole(fields, b"max", 1), SET_CLAIM_MAX))
    lease_ms = clamp_lease_ms(whole(fields, b"lease_ms", config_of(queue).lease_ms))
    wait_ms = min(whole(fields, b"wait_ms", 0), WAIT_MS_MAX)
    check_worker(door.yard, call, fields)
    wanted = _WantedSet(door, call, queue, claim_id, node, most, lease_ms)
    wanted.until_ms = call.now_ms + wait_ms
    wanted.claim()


@final
class _WantedSet(Alarm, Holder, PendingCall):
    """A claim with an id; it may wait for a first job. Its leases outlive the connection."""

    def __init__(
        self,
        door: TopicsDoor,
        call: HttpCall,
        queue: Queue,
        claim_id: str,
        node: str,
        most: i64,
        lease_ms: i64,
    ) -> None:
        super().__init__(door.yard.new_number(), NEVER_MS, 0)
        self._door = door
        self._call = call
        self._queue = queue
        self._claim_id: str = claim_id
        self._node: str = node
        self._most: i64 = most
        self._lease_ms: i64 = lease_ms
        self.until_ms: i64 = 0
        self._waiter: Waiter | None = None
        self._has_watch: bool = False

    def claim(self) -> None:
        """Claim the jobs, in slices, and show them."""
        task = _ClaimAndShow(
            self._door, self._queue, self._claim_id, self._node, self._most, self._lease_ms
        )
        LongCall(self._door.yard.tasks, self._call, task, partial(self._claimed, task)).begin()

    def _claimed(self, task: _ClaimAndShow) -> None:
        """Answer, or wait for a job."""
        call = self._call
        if task.claiming.claim_set is None and call.now_ms < self.until_ms:
            self._wait()
            return
        self._leave()
        show = task.show
        assert show is not None
        _answer_set(call, self._queue, show, is_duplicate=task.claiming.is_duplicate)

    def _wait(self) -> None:
        yard = self._door.yard
        if not self._has_watch:
            hold_wait(self._door, self._call)
            hold_watch(self._queue)
            self._has_watch = True
        lease_set = yard.new_lease_set(self)
        terms = topic_queue.terms_of(self._queue, self._node, self._lease_ms)
        waiter = wait(yard, [self._queue], lease_set, terms, self.until_ms, NEVER_MS)
        waiter.is_notify_only = True
        self._waiter = waiter
        self._call.wait(self)

    def sighted(self, waiter: Waiter, now_ms: i64) -> None:  # noqa: ARG002  there is only one
        """Claim soon: there is a job. Not from within the verb that made it ready."""
        self._waiter = None
        self._door.yard.arm(self, now_ms)

    def ring(self, now_ms: i64) -> None:
        """Claim now."""
        yard = self._door.yard
        self._stop()
        call = self._call
        call.now_ms = now_ms
        call.pending = None
        if find_queue(yard, self._queue.name) is not self._queue:
            self._refuse_lost()
            return
        try:
            self.claim()
        except (Refused, StorageFull) as refused:
            call.answer_refusal(refusal_of(refused))
            self._leave()

    def waited_enough(self, waiter: Waiter, *, is_deadline_soon: bool) -> None:  # noqa: ARG002
        """Answer with no jobs, or that the topic was removed."""
        self._waiter = None
        if find_queue(self._door.yard, self._queue.name) is self._queue:
            self._answer_nothing()
        else:
            self._refuse_lost()

    def stop_waiting(self, now_ms: i64) -> None:  # noqa: ARG002  the trait's
        """Answer with no jobs."""
        self._stop()
        self._answer_nothing()

    def gone(self, now_ms: i64) -> None:  # noqa: ARG002  the trait's
        """Stop waiting."""
        self._stop()
        self._leave()

    def drained(self, now_ms: i64) -> None:
        """Ignore it: nothing is sent before the answer."""

    def _stop(self) -> None:
        yard = self._door.yard
        yard.disarm(self)
        if self._waiter is not None:
            cancel_wait(yard, self._waiter)
            self._waiter.lease_set.holder = NOBODY
            self._waiter = None

    def _refuse_lost(self) -> None:
        self._leave()
        self._call.answer_refusal(no_topic(self._queue.name))

    def _answer_nothing(self) -> None:
        self._door.yard.disarm(self)
        self._leave()
        show = SetShow(self._door, None, self._claim_id)
        show.begin()
        _answer_set(self._call, self._queue, show, is_duplicate=False)

    def _leave(self) -> None:
        if self._has_watch:
            self._has_watch = False
            drop_watch(self._door.yard, self._queue)


@final
class _ClaimAndShow(Task):
    """Claims a set and writes the answer, both in slices."""

    def __init__(
        self,
        door: TopicsDoor,
        queue: Queue,
        claim_id: str,
        node: str,
        most: i64,
        lease_ms: i64,
    ) -> None:
        super().__init__()
        self._door = door
        self._claim_id: str = claim_id
        self.claiming = SetClaiming(door.yard, queue, claim_id, node, most, lease_ms)
        self.show: SetShow | None = None

    def step(self, most: i64, now_ms: i64) -> i64:
        """Claim some jobs, then write some."""
        done: i64 = 0
        if self.show is None:
            try:
                done = self.claiming.step(most, now_ms)
            except Refused as refused:
                raise in_http(refused) from None
            if done >= most:
                return done
            self.show = SetShow(self._door, self.claiming.claim_set, self._claim_id)
            self.show.begin()
        return done + self.show.step(most - done, now_ms)


@final
class SetShow(Task):
    """Writes the jobs of a set that are still leased."""

    def __init__(
        self,
        door: TopicsDoor,
        claim_set: ClaimSet | None,
        claim_id: str,
        columns: ClaimColumns | None = None,
    ) -> None:
        super().__init__()
        self._door = door
        self._claim_set = claim_set
        self.claim_id: str = claim_id
        # For an answer in columns.
        self.columns = columns
        self._next: i64 = 0
        self.count: i64 = 0
        self.pieces: list[bytes] = []
        self.out = BytesWriter()

    def begin(self) -> None:
        """Begin the answer in JSON."""
        self.out.write(b',"claimed":[')

    def left_out(self) -> i64:
        """Return how many jobs of the set are no longer leased."""
        return 0 if self._claim_set is None else self._claim_set.count - self.count

    def step(self, most: i64, now_ms: i64) -> i64:
        """Write some jobs."""
        claim_set = self._claim_set
        if claim_set is None:
            return 0
        done: i64 = 0
        while done < most and self._next < len(claim_set.seqs):
            lease = live_lease(self._door.yard, claim_set, self._next, now_ms)
            self._next += 1
            done += 1
            body = None if lease is None else self._body_of(lease)
            if lease is None or body is None:
                continue
            done += _SHOW_UNITS + len(body) // _BYTES_PER_UNIT
            if self.columns is not None:
                self.columns.add(lease, body)
            else:
                self._write(lease, body)
            self.count += 1
        return max(done, most) if self._next < len(claim_set.seqs) else min(done, most - 1)

    def _body_of(self, lease: Lease) -> bytes | None:
        """Return the body of a leased job; None if it is damaged on disk."""
        if self.columns is not None and not self.columns.has_bodies:
            return b""
        if len(lease.body) == i64(lease.job.size):
            return lease.body
        # A lease from before a restart holds no body that is only on disk.
        return self._door.yard.bodies.fetch(lease.job)

    def _write(self, lease: Lease, body: bytes) -> None:
        out = self.out
        out.write(b",{" if self.count > 0 else b"{")
        write_lease(out, self._door, lease, body)
        out.write(b"}")
        if len(out) > PIECE_SIZE:
            self.pieces.append(out.getvalue())
            self.out = BytesWriter()


def _answer_set(call: HttpCall, queue: Queue, show: SetShow, *, is_duplicate: bool) -> None:
    """Answer with the jobs of a set."""
    head = begin(queue.name)
    pieces = [head.getvalue(), *show.pieces]
    out = show.out
    put_int(out, b'],"count":', show.count)
    put_int(out, b',"ready":', topic_queue.ready_count(queue))
    out.write(b',"claim_id":')
    write_text(out, show.claim_id)
    put_bool(out, b',"duplicate":', value=is_duplicate)
    put_int(out, b',"left_out":', show.left_out())
    put_limits(out, call.session.door.yard)
    journal = call.session.door.yard.journal
    call.await_batch(journal.newest(), is_synced=queue.is_synced)
    finish_long(call, pieces, out)


def _find(door: TopicsDoor, call: HttpCall) -> tuple[Queue, ClaimSet]:
    queue = queue_of(door.yard, call.params[0])
    claim_id = check_id(call.params[1], "a claim_id")
    found = find_claim_set(door.yard, queue, claim_id)
    if found is None:
        message = f"queue {queue.name} has no claim {claim_id}"
        raise HttpRefused(404, "claim_not_found", message)
    return queue, found


def show(door: TopicsDoor, call: HttpCall) -> None:
    """GET /v0/topics/{topic}/claims/{claim}."""
    queue, claim_set = _find(door, call)
    accept = call.header("accept")
    # Checked for JSON too, where they have no effect.
    columns = ClaimColumns(door, call, queue)
    if names(accept, ARROW_STREAM) and not names(accept, JSON_TYPE):
        task = SetShow(door, claim_set, claim_set.claim_id, columns)
        shown = partial(_shown_as_columns, call, task, columns)
    else:
        task = SetShow(door, claim_set, claim_set.claim_id)
        task.begin()
        shown = partial(_answer_set, call, queue, task, is_duplicate=True)
    LongCall(door.yard.tasks, call, task, shown).begin()


def _shown_as_columns(call: HttpCall, task: SetShow, columns: ClaimColumns) -> None:
    call.answer(200, columns.stream(task.claim_id, task.left_out()), ARROW_STREAM)


def extend(door: TopicsDoor, call: HttpCall) -> None:
    """POST /v0/topics/{topic}/claims/{claim}/extend."""
    queue, claim_set = _find(door, call)
    fields = read_body(call, may_be_empty=False)
    is_strict(fields, _EXTEND_FIELDS)
    if fields.kind(b"lease_ms") in (KIND_ABSENT, KIND_NIL):
        raise invalid("lease_ms is required")
    lease_ms = min(whole(fields, b"lease_ms", 0), LEASE_MS_MAX)
    check_worker(door.yard, call, fields)
    task = SetExtension(door.yard, claim_set, lease_ms, call.now_ms)
    finish_call = partial(_extended, door, call, queue, claim_set, task)
    LongCall(door.yard.tasks, call, task, finish_call).begin()


def _extended(
    door: TopicsDoor, call: HttpCall, queue: Queue, claim_set: ClaimSet, task: SetExtension
) -> None:
    out = begin(queue.name)
    out.write(b',"claim_id":')
    write_text(out, claim_set.claim_id)
    put_int(out, b',"extended":', task.count)
    put_int(out, b',"left_out":', claim_set.count - task.count)
    put_int(out, b',"deadline":', door.wall_ms(task.until_ms))
    call.await_batch(door.yard.journal.newest(), is_synced=queue.is_synced)
    finish(call, out)
