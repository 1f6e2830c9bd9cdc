"""The functions of workers, called for a subscription: a group other than `workers`.

Runs of such a group are its own: a message that the group completed, or that failed there for good,
is unchanged for all others. Failures are counted per group, in `job:<id>:sub:<group>`.
"""

from typing import Final, final

from mypy_extensions import i64

from jobyard.engine.glidemq import add as glide_add
from jobyard.engine.glidemq import stored_values
from jobyard.engine.glidemq import take as glide_take
from jobyard.engine.glidemq.flows import complete_child
from jobyard.engine.subscriptions import subscriptions as verbs
from jobyard.engine.subscriptions.deliveries import DeliveryWalk
from jobyard.model.glidemq.fields import GlideFlag
from jobyard.model.glidemq.subscriptions import Delivery, Subscription
from jobyard.model.job import Job
from jobyard.model.queue import Queue
from jobyard.protocols.glidemq.function_call import Fcall
from jobyard.protocols.glidemq.groups.args import entry_id
from jobyard.protocols.glidemq.groups.subscriptions import found
from jobyard.protocols.glidemq.keyspace import key_parts
from jobyard.protocols.glidemq.keyspace.key_parts import bytes_of
from jobyard.protocols.glidemq.keyspace.views.job import job_fields, number
from jobyard.protocols.glidemq.keyspace.views.writes import set_data
from jobyard.protocols.glidemq.long_commands import begin

# How long the failure count of a message in a group is kept.
_COUNTED_MS: Final = 86_400_000
# Subscriptions checked per unit of work for a heartbeat of a message.
_ASKED_PER_UNIT: Final = 4
_STALLED: Final = b"job stalled more than maxStalledCount"


def _stamp(call: Fcall, at: i64) -> i64:
    """Return the stamp of the entry that an argument names; 0 for none."""
    return entry_id(call.arg(at)) if call.arg(at) else 0


def _job(call: Fcall, queue: Queue) -> Job | None:
    return glide_add.find(call.yard, queue, call.text(0))


def _subscribed(call: Fcall, queue_at: i64, group_at: i64) -> tuple[Queue, Subscription]:
    queue = call.known_queue(queue_at, key_parts.KeyPart.STREAM)
    subscription = found(queue, call.arg(group_at))
    assert queue is not None
    return queue, subscription


# -- start and end of a run --------------------------------------------------------------------


def promote(call: Fcall, queue: Queue, ts: i64) -> i64:
    """Redeliver to groups what is due by the clock of the caller."""
    if queue.subscriptions is None:
        return 0
    due_ms = max(ts - call.yard.journal.wall_offset_ms, call.now_ms)
    jobs = verbs.repeat_due(call.yard, queue, due_ms, call.now_ms)
    for job in jobs:
        call.events.publish_job(job, b"promoted", call.now_ms)
    return len(jobs)


def activate(call: Fcall, job: Job | None) -> None:
    """Start a run and answer with the job's fields; a missing group has no entry to update."""
    queue = call.known_queue(1, key_parts.KeyPart.STREAM)
    subscription = verbs.find(queue, call.arg(2))
    if queue is None or job is None:
        call.answer("")
        return
    part = None if job.details is None else job.details.glide
    if part is not None and part.flags & GlideFlag.REVOKED:
        call.answer("REVOKED")
        return
    stamp = _stamp(call, 1)
    if glide_take.expire_if_over(call.yard, job, call.now_ms):
        if subscription is not None:
            verbs.acknowledge(call.yard, queue, subscription, [stamp])
        call.answer("EXPIRED")
        return
    delivery = None if subscription is None else subscription.find(stamp)
    if delivery is not None:
        delivery.at_ms = call.now_ms
    call.answer_all(_running_fields(call, job))


def _running_fields(call: Fcall, job: Job) -> list[bytes]:
    """Return the fields of a job as if it were running, which it is only for this group."""
    fields = job_fields(call.yard, job)
    now = number(call.now_ms + call.yard.journal.wall_offset_ms)
    shown = {b"state": b"active", b"processedOn": now, b"lastActive": now}
    for at in range(0, len(fields), 2):
        value = shown.pop(fields[at], None)
        if value is not None:
            fields[at + 1] = value
    for name, value in shown.items():
        fields += (name, value)
    return fields


def complete(call: Fcall, *, label_at: i64) -> None:
    """Complete a run."""
    queue, subscription = _subscribed(call, 0, 4)
    label = call.text(label_at)
    job = _job(call, queue)
    count = verbs.acknowledge(call.yard, queue, subscription, [_stamp(call, 1)])
    if job is None or count == 0:
        # An answer that comes too late does not count.
        return
    event_fields = [b"returnvalue", call.arg(2) or b"null"]
    call.events.publish(
        queue, b"completed", bytes_of(glide_add.id_of(job)), event_fields, call.now_ms
    )
    if label and call.keys_count > 6:
        place = call.place(6, key_parts.KeyPart.JOB)
        parents = call.yard.queues.get(place.queue_name)
        parent = None if parents is None else glide_add.find(call.yard, parents, place.rest)
        if parent is not None:
            complete_child(call.yard, parent, label, call.arg(2), call.now_ms)


def fail(call: Fcall, attempts: i64, backoff_ms: i64) -> None:
    """Fail a run: the message is redelivered to the group, or finished for it."""
    queue, subscription = _subscribed(call, 0, 6)
    job = _job(call, queue)
    stamp = _stamp(call, 1)
    delivery = subscription.find(stamp)
    if job is None or delivery is None:
        # An entry delivered before a restart and not since will be delivered again anyway.
        is_late = job is not None and verbs.may_be_late(call.yard, subscription, stamp)
        call.answer("retrying" if is_late else "failed")
        return
    made = _count_failure(call, subscription)
    reason = [b"failedReason", call.arg(2)]
    job_id = bytes_of(glide_add.id_of(job))
    if attempts > 0 and made < attempts:
        due_ms = call.now_ms + backoff_ms
        verbs.give_again(call.yard, queue, subscription, delivery, due_ms, call.now_ms)
        event_fields = [*reason, b"attemptsMade", number(made), b"delay", number(backoff_ms)]
        call.events.publish(queue, b"retrying", job_id, event_fields, call.now_ms)
        call.answer("retrying")
        return
    verbs.acknowledge(call.yard, queue, subscription, [stamp])
    call.events.publish(queue, b"failed", job_id, reason, call.now_ms)
    call.answer("failed")


def _count_failure(call: Fcall, subscription: Subscription) -> i64:
    """Count one more failure of a message in a group; return the total."""
    name = call.key(4) + b":sub:" + subscription.name
    known = stored_values.find(call.yard, name, call.now_ms)
    text = b"" if known is None else known.table.get(b"a", b"")
    made: i64 = (int(text) if text.isdigit() and len(text) < 16 else 0) + 1
    stored_values.set_fields(call.yard, name, {b"a": number(made)}, call.now_ms)
    key = stored_values.find(call.yard, name, call.now_ms)
    if key is not None:
        stored_values.expire(call.yard, key, call.now_ms + _COUNTED_MS, call.now_ms)
    return made


def defer(call: Fcall) -> None:
    """Return a message to the group, behind all others."""
    queue, subscription = _subscribed(call, 0, 2)
    delivery = subscription.find(_stamp(call, 1))
    if delivery is not None:
        verbs.give_again(call.yard, queue, subscription, delivery, call.now_ms, call.now_ms)
    call.answer_number(0 if delivery is None else 1)


def move_to_delayed(call: Fcall, job: Job | None, delay_ms: i64) -> None:
    """Return a message to the group for a while, with new data if given."""
    queue, subscription = _subscribed(call, 1, 4)
    delivery = subscription.find(_stamp(call, 1))
    if job is None or delivery is None:
        call.answer("error:not_found" if job is None else "error:not_active")
        return
    if call.arg(5):
        set_data(call.yard, job, call.arg(5), call.now_ms)
    due_ms = call.now_ms + delay_ms
    verbs.give_again(call.yard, queue, subscription, delivery, due_ms, call.now_ms)
    call.answer("ok")


# -- stalled consumers -------------------------------------------------------------------------


def reclaim(call: Fcall, idle_ms: i64, stalls_max: i64) -> None:
    """Redeliver messages of a group whose consumers are silent."""
    queue, subscription = _subscribed(call, 0, 0)
    reclaiming = Reclaiming(call, queue, subscription, idle_ms, stalls_max)
    units = verbs.GIVE_UNITS * subscription.pending_count()
    begin(call.call, reclaiming, lambda: call.answer_number(reclaiming.count), units)


@final
class Reclaiming(DeliveryWalk):
    """Takes messages back from silent consumers of a group."""

    def __init__(
        self, call: Fcall, queue: Queue, subscription: Subscription, idle_ms: i64, stalls_max: i64
    ) -> None:
        super().__init__(subscription, 0, call.yard.last_stamp)
        self._call = call
        self._queue = queue
        self._idle_ms: i64 = idle_ms
        self._stalls_max: i64 = stalls_max
        self.count: i64 = 0

    def step(self, most: i64, now_ms: i64) -> i64:
        """Check some messages."""
        # A later slice runs at its own time.
        self._call.now_ms = now_ms
        if not verbs.is_alive(self._queue, self.subscription):
            return 0
        return super().step(most, now_ms)

    def look(self, delivery: Delivery, now_ms: i64) -> i64:
        """Take one message back if its consumer is silent."""
        subscriptions = self._queue.subscriptions
        assert subscriptions is not None
        # Each subscription may have had a heartbeat for it.
        units: i64 = len(subscriptions.by_name) // _ASKED_PER_UNIT
        if not verbs.is_silent(self._queue, delivery, self._idle_ms, now_ms):
            return units
        _stall(self._call, self._queue, self.subscription, delivery, self._stalls_max)
        self.count += 1
        return units + verbs.GIVE_UNITS


def _stall(
    call: Fcall, queue: Queue, subscription: Subscription, delivery: Delivery, stalls_max: i64
) -> None:
    job = delivery.job
    stalls = verbs.stalls_of(delivery) + 1
    job_id = bytes_of(glide_add.id_of(job))
    if stalls <= stalls_max:
        now_ms = call.now_ms
        verbs.give_again(call.yard, queue, subscription, delivery, now_ms, now_ms, stalls)
        call.events.publish(queue, b"stalled", job_id, [], now_ms)
        return
    verbs.acknowledge(call.yard, queue, subscription, [delivery.stamp])
    call.events.publish(queue, b"failed", job_id, [b"failedReason", _STALLED], call.now_ms)
