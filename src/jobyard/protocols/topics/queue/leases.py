"""Claims jobs of a queue, and acknowledges, returns, dead-letters or extends claimed jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from jobyard.engine.jobs.finish import hand_over, untake
from jobyard.engine.jobs.queues import drop_watch, hold_watch
from jobyard.engine.jobs.take import cancel_wait, wait
from jobyard.engine.state.timers import Alarm
from jobyard.engine.topics import topic_queue
from jobyard.engine.topics.claim_window import ClaimWaiter, WaitingClaim, join_window, leave_window
from jobyard.engine.topics.topic_setup import config_of
from jobyard.model.lease import NOBODY, Holder, Lease, Terms
from jobyard.model.limits import NEVER_MS
from jobyard.model.topic.config import LEASE_MS_MAX, clamp_lease_ms
from jobyard.protocols.http.call import HttpCall, HttpRefused, PendingCall, UndoIfUnsent
from jobyard.protocols.topics.answers import begin, finish, put_int
from jobyard.protocols.topics.body import array, invalid, is_strict, read_body, text, whole
from jobyard.protocols.topics.find import find_queue, no_topic, queue_of
from jobyard.protocols.topics.limits import hold_wait
from jobyard.protocols.topics.records.jobs import write_lease
from jobyard.protocols.topics.records.reads import WAIT_MS_MAX
from jobyard.protocols.topics.records.record import NODE_MAX
from jobyard.protocols.topics.txn_fields import check_worker, put_limits
from jobyard.wire.json.read import JsonFields, integer_at
from jobyard.wire.json.write import write_int
from jobyard.wire.msgpack.forms import KIND_ABSENT, KIND_NIL

if TYPE_CHECKING:
    from librt.strings import BytesWriter

    from jobyard.model.queue import Queue
    from jobyard.model.waiter import Waiter
    from jobyard.protocols.topics.door import TopicsDoor

# The fields of each call, for callers that want others refused.
CLAIM_FIELDS: Final = frozenset(
    ("node", "max", "lease_ms", "wait_ms", "claim_id", "worker", "epoch", "strict")
)
ACK_FIELDS: Final = frozenset(("node", "seqs", "lease_ids", "strict"))
DEAD_LETTER_FIELDS: Final = ACK_FIELDS | {"error"}
NACK_FIELDS: Final = DEAD_LETTER_FIELDS | {"delay_ms"}
PURGE_FIELDS: Final = frozenset(("max", "strict"))
EXTEND_FIELDS: Final = ACK_FIELDS | {"lease_ms", "worker", "epoch"}

CLAIM_MAX: Final = 1000
SEQS_MAX: Final = 1000
NACK_DELAY_MS_MAX: Final = 86_400_000
# The longest error of a nack or a dead letter, in bytes.
RUN_ERROR_MAX: Final = 4096


def claim(door: TopicsDoor, call: HttpCall, queue: Queue, fields: JsonFields) -> None:
    """Serve a claim without an id."""
    node = node_of(fields)
    most = max(1, min(whole(fields, b"max", 1), CLAIM_MAX))
    lease_ms = clamp_lease_ms(whole(fields, b"lease_ms", config_of(queue).lease_ms))
    wait_ms = min(whole(fields, b"wait_ms", 0), WAIT_MS_MAX)
    # After everything that may be refused with 400: such a call changes nothing.
    check_worker(door.yard, call, fields)
    # A caller with a worker ends runs in commits.
    shows_limits = fields.kind(b"worker") not in (KIND_ABSENT, KIND_NIL)
    if config_of(queue).claim_jitter_ms > 0:
        hold_wait(door, call)
        terms = topic_queue.terms_of(queue, node, lease_ms)
        share = _Share(door, call, queue, terms, most, call.now_ms + wait_ms)
        share.shows_limits = shows_limits
        return
    yard = door.yard
    lease_set = topic_queue.node_leases(yard, node)
    taken = topic_queue.claim(yard, queue, node, most, lease_ms, lease_set, call.now_ms)
    if not taken and wait_ms > 0:
        hold_wait(door, call)
        waiting = _Wait(door, call, queue, node, most, lease_ms, call.now_ms + wait_ms)
        waiting.shows_limits = shows_limits
        return
    answer_claim(door, call, queue, taken, shows_limits=shows_limits)


@final
class _Share(Alarm, ClaimWaiter, PendingCall):
    """A claim that is served together with other claims of its claim window."""

    def __init__(
        self, door: TopicsDoor, call: HttpCall, queue: Queue, terms: Terms, most: i64, until_ms: i64
    ) -> None:
        super().__init__(door.yard.new_number(), until_ms, 0)
        self._door = door
        self._call = call
        self._queue = queue
        self.shows_limits: bool = False
        self._waiting_claim = WaitingClaim(terms, most, until_ms, self)
        join_window(door.yard, queue, self._waiting_claim, call.now_ms)
        if until_ms > call.now_ms:
            door.yard.arm(self, until_ms)
        call.wait(self)

    def served(self, waiting_claim: WaitingClaim, leases: list[Lease]) -> None:  # noqa: ARG002  there is only one
        """Answer with the jobs of this claim."""
        self._door.yard.disarm(self)
        self._answer(leases)

    def queue_lost(self, waiting_claim: WaitingClaim) -> None:  # noqa: ARG002  there is only one
        """Answer that the topic was removed."""
        self._door.yard.disarm(self)
        self._call.answer_refusal(no_topic(self._queue.name))

    def ring(self, now_ms: i64) -> None:
        """Answer with no jobs, unless the window is about to be served."""
        if not self._waiting_claim.is_dealt_soon():
            self.stop_waiting(now_ms)

    def stop_waiting(self, now_ms: i64) -> None:
        """Answer with no jobs."""
        self.gone(now_ms)
        self._answer([])

    def _answer(self, leases: list[Lease]) -> None:
        shows_limits = self.shows_limits
        answer_claim(self._door, self._call, self._queue, leases, shows_limits=shows_limits)

    def gone(self, now_ms: i64) -> None:  # noqa: ARG002  the trait's
        """Leave the claim window."""
        self._door.yard.disarm(self)
        leave_window(self._waiting_claim)

    def drained(self, now_ms: i64) -> None:
        """Ignore it: nothing is sent before the answer."""


@final
class _Wait(Holder, PendingCall):
    """A claim that waits for a job. Its leases outlive the connection."""

    def __init__(
        self,
        door: TopicsDoor,
        call: HttpCall,
        queue: Queue,
        node: str,
        most: i64,
        lease_ms: i64,
        until_ms: i64,
    ) -> None:
        self._door = door
        self._call = call
        self._queue = queue
        self._node = node
        self._most: i64 = most
        self._lease_ms: i64 = lease_ms
        self.shows_limits: bool = False
        yard = door.yard
        self._lease_set = yard.new_lease_set(self)
        hold_watch(queue)
        terms = topic_queue.terms_of(queue, node, lease_ms)
        self._waiter: Waiter = wait(yard, [queue], self._lease_set, terms, until_ms, NEVER_MS)
        call.wait(self)

    def given(self, waiter: Waiter, lease: Lease) -> None:  # noqa: ARG002  there is only one
        """Answer with the job that arrived, and with more if they are ready."""
        yard = self._door.yard
        # The node holds the lease from here on, so the lease does not keep this call alive.
        lease_set = topic_queue.node_leases(yard, self._node)
        hand_over(yard, lease, lease_set)
        yard.disarm(self._lease_set)
        taken = [lease]
        if self._most > 1:
            most = self._most - 1
            now_ms = lease.started_ms
            taken += topic_queue.claim(
                yard, self._queue, self._node, most, self._lease_ms, lease_set, now_ms
            )
        self._answer(topic_queue.by_seq(taken))

    def waited_enough(self, waiter: Waiter, *, is_deadline_soon: bool) -> None:  # noqa: ARG002
        """Answer with no jobs, or that the topic was removed."""
        yard = self._door.yard
        name = self._queue.name
        if find_queue(yard, name) is self._queue:
            self._answer([])
        else:
            self._call.answer_refusal(no_topic(name))
            self._leave()

    def stop_waiting(self, now_ms: i64) -> None:  # noqa: ARG002  the trait's
        """Answer with no jobs."""
        cancel_wait(self._door.yard, self._waiter)
        self._answer([])

    def gone(self, now_ms: i64) -> None:  # noqa: ARG002  the trait's
        """Stop waiting."""
        cancel_wait(self._door.yard, self._waiter)
        self._leave()

    def drained(self, now_ms: i64) -> None:
        """Ignore it: nothing is sent before the answer."""

    def _answer(self, taken: list[Lease]) -> None:
        shows_limits = self.shows_limits
        answer_claim(self._door, self._call, self._queue, taken, shows_limits=shows_limits)
        self._leave()

    def _leave(self) -> None:
        drop_watch(self._door.yard, self._queue)
        self._lease_set.holder = NOBODY


def answer_claim(
    door: TopicsDoor, call: HttpCall, queue: Queue, taken: list[Lease], *, shows_limits: bool
) -> None:
    """Answer with leased jobs, and with what a commit may hold."""
    out = begin(queue.name)
    out.write(b',"claimed":[')
    for at, lease in enumerate(taken):
        out.write(b"," if at > 0 else b"")
        out.write(b"{")
        write_lease(out, door, lease)
        out.write(b"}")
        call.await_batch(lease.job.batch, is_synced=queue.is_synced)
    put_int(out, b'],"count":', len(taken))
    put_int(out, b',"ready":', topic_queue.counts(queue).ready)
    if shows_limits:
        put_limits(out, door.yard)
    if taken:
        call.session.undo = _Claimed(door, taken)
    finish(call, out, is_claim=True)


@final
class _Claimed(UndoIfUnsent):
    """Leases in an answer that may never be sent."""

    def __init__(self, door: TopicsDoor, leases: list[Lease]) -> None:
        self._door = door
        self._leases = leases

    def lost(self, now_ms: i64) -> None:
        """Return the jobs to the queue."""
        untake(self._door.yard, self._leases, now_ms)


def ack(door: TopicsDoor, call: HttpCall) -> None:
    """POST /v0/topics/{topic}/ack."""
    queue = queue_of(door.yard, call.params[0])
    fields = read_body(call, may_be_empty=False)
    is_strict(fields, ACK_FIELDS)
    node, seqs, names = _leases(fields)
    ended = topic_queue.ack(door.yard, queue, node, seqs, names, call.now_ms)
    _answer_ended(call, queue, b',"acked":', ended)


def nack(door: TopicsDoor, call: HttpCall) -> None:
    """POST /v0/topics/{topic}/nack."""
    queue = queue_of(door.yard, call.params[0])
    fields = read_body(call, may_be_empty=False)
    is_strict(fields, NACK_FIELDS)
    node, seqs, names = _leases(fields)
    delay_ms = whole(fields, b"delay_ms", -1)
    if delay_ms > NACK_DELAY_MS_MAX:
        raise invalid(f"delay_ms must be at most {NACK_DELAY_MS_MAX}")
    error = text(fields, b"error", RUN_ERROR_MAX)
    ended = topic_queue.nack(
        door.yard, queue, node, seqs, names, delay_ms, call.now_ms, error=error
    )
    _answer_ended(call, queue, b',"nacked":', ended)


def dead_letter(door: TopicsDoor, call: HttpCall) -> None:
    """POST /v0/topics/{topic}/dead-letter."""
    queue = queue_of(door.yard, call.params[0])
    fields = read_body(call, may_be_empty=False)
    is_strict(fields, DEAD_LETTER_FIELDS)
    node, seqs, names = _leases(fields)
    error = text(fields, b"error", RUN_ERROR_MAX)
    ended = topic_queue.give_up(door.yard, queue, node, seqs, names, call.now_ms, error=error)
    _answer_ended(call, queue, b',"dead_lettered":', ended)


def extend(door: TopicsDoor, call: HttpCall) -> None:
    """POST /v0/topics/{topic}/extend."""
    queue = queue_of(door.yard, call.params[0])
    fields = read_body(call, may_be_empty=False)
    is_strict(fields, EXTEND_FIELDS)
    node, seqs, names = _leases(fields)
    if fields.kind(b"lease_ms") in (KIND_ABSENT, KIND_NIL):
        raise invalid("lease_ms is required")
    lease_ms = clamp_lease_ms(min(whole(fields, b"lease_ms", 0), LEASE_MS_MAX))
    check_worker(door.yard, call, fields)
    ended = topic_queue.extend(door.yard, queue, node, seqs, names, lease_ms, call.now_ms)
    out = begin(queue.name)
    put_int(out, b',"extended":', ended.done)
    _write_skipped(out, ended.skipped)
    out.write(b',"deadlines":{')
    is_first = True
    for seq, until_ms in ended.deadlines.items():
        out.write(b'"' if is_first else b',"')
        write_int(out, i64(seq))
        put_int(out, b'":', door.wall_ms(i64(until_ms)))
        is_first = False
    out.write(b"}")
    # A skipped seq discloses that its lease has ended, so the answer waits for that record too.
    call.await_batch(max(ended.batch, door.yard.journal.appended), is_synced=queue.is_synced)
    finish(call, out)


def purge(door: TopicsDoor, call: HttpCall) -> None:
    """POST /v0/topics/{topic}/purge."""
    queue = queue_of(door.yard, call.params[0])
    fields = read_body(call, may_be_empty=True)
    is_strict(fields, PURGE_FIELDS)
    most = max(1, min(whole(fields, b"max", CLAIM_MAX), CLAIM_MAX))
    count = topic_queue.purge(door.yard, queue, most, call.now_ms)
    answer_count(door, call, queue, b',"purged":', count)


def answer_count(door: TopicsDoor, call: HttpCall, queue: Queue, key: bytes, count: i64) -> None:
    """Answer with how many dead jobs and letters were changed."""
    out = begin(queue.name)
    put_int(out, key, count)
    call.await_batch(door.yard.journal.newest(), is_synced=queue.is_synced)
    finish(call, out, is_synced=queue.is_synced)


def node_of(fields: JsonFields) -> str:
    """Return the node that a call must name."""
    node = text(fields, b"node", NODE_MAX)
    if not node:
        raise invalid("node is required")
    return node


def _leases(fields: JsonFields) -> tuple[str, list[int], list[str] | None]:
    """Return the node, seqs and lease ids in a body."""
    node = node_of(fields)
    spans = array(fields, b"seqs", SEQS_MAX)
    if len(spans) > SEQS_MAX:
        raise HttpRefused(400, "batch_too_large", f"a call has at most {SEQS_MAX} seqs")
    seqs: list[int] = []
    for start, end in spans:
        seq = integer_at(fields.data, start, end, -1)
        if seq < 0:
            raise invalid("seqs must be whole numbers")
        seqs.append(int(seq))
    if fields.kind(b"lease_ids") in (KIND_ABSENT, KIND_NIL):
        return node, seqs, None
    names = fields.texts(b"lease_ids")
    if names is None or len(names) != len(seqs):
        raise invalid("lease_ids must be strings, one for each seq")
    return node, seqs, names


def _answer_ended(call: HttpCall, queue: Queue, key: bytes, ended: topic_queue.Ended) -> None:
    out = begin(queue.name)
    put_int(out, key, ended.done)
    _write_skipped(out, ended.skipped)
    counts = topic_queue.counts(queue)
    put_int(out, b',"ready":', counts.ready)
    put_int(out, b',"in_flight":', counts.in_flight)
    is_synced = ended.done > 0 and queue.is_synced
    call.await_batch(ended.batch, is_synced=is_synced)
    finish(call, out, is_synced=is_synced)


def _write_skipped(out: BytesWriter, skipped: list[int]) -> None:
    out.write(b',"skipped":[')
    for at, seq in enumerate(skipped):
        out.write(b"," if at > 0 else b"")
        write_int(out, i64(seq))
    out.write(b"]")
