"""Commands of consumer groups other than `workers`: each group reads all jobs of a queue.

Such a group takes no jobs: an entry that it acknowledges stays for all others. An entry that is
gone from the stream is no longer pending once a consumer claims or lists it.
"""

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from jobyard.engine.jobs.queues import open_queue
from jobyard.engine.subscriptions import subscriptions as verbs
from jobyard.engine.subscriptions.deliveries import is_there
from jobyard.engine.subscriptions.order import SubscriptionFill, needs_filling
from jobyard.model.glidemq.subscriptions import Delivery, Subscription
from jobyard.model.queue import Queue
from jobyard.protocols.glidemq.call import Call
from jobyard.protocols.glidemq.errors import Wrong, unknown_subcommand
from jobyard.protocols.glidemq.groups.args import AutoClaimArgs, ClaimArgs, PendingArgs, entry_id
from jobyard.protocols.glidemq.groups.delivery_gather import (
    DeliveryGather,
    GivenEntries,
    idle_ms,
)
from jobyard.protocols.glidemq.keyspace.views.stream import ENTRY_MAX, entry_fields, entry_text
from jobyard.protocols.glidemq.long_commands import begin
from jobyard.wire.resp.write import (
    write_array,
    write_bulk,
    write_integer,
    write_map,
    write_nil,
    write_nil_array,
    write_ok,
)

# Per queue. Each new job is checked by all of them.
SUBSCRIPTIONS_MAX: Final = 1000
GROUP_NAME_SIZE_MAX: Final = 1024
# Cost of describing one consumer.
_CONSUMER_NS: Final = 500


def no_group(name: bytes) -> Wrong:
    """Return the reply for a missing group."""
    shown = name[:128].decode("utf-8", "replace")
    return Wrong(f"NOGROUP No such consumer group '{shown}' for this stream")


def found(queue: Queue | None, name: bytes) -> Subscription:
    """Return the group of that name, which must exist."""
    subscription = verbs.find(queue, name)
    if subscription is None:
        raise no_group(name)
    return subscription


def note_seen(subscription: Subscription, consumer: bytes, now_ms: i64) -> None:
    """Record that a consumer is active; refuse a name that is too long to store."""
    if len(consumer) > GROUP_NAME_SIZE_MAX:
        raise Wrong(f"ERR a consumer name can have at most {GROUP_NAME_SIZE_MAX} bytes")
    subscription.note_seen(consumer, now_ms)


def names(queue: Queue | None) -> list[bytes]:
    """Return the names of all subscriptions of a queue."""
    if queue is None or queue.subscriptions is None:
        return []
    return list(queue.subscriptions.by_name)


# -- entries -----------------------------------------------------------------------------------


def write_delivery(call: Call, delivery: Delivery) -> None:
    """Write a delivered entry; one that is gone has no fields."""
    write_array(call.out, 2)
    write_bulk(call.out, entry_text(delivery.stamp))
    if not is_there(delivery):
        write_nil_array(call.out, call.proto)
        return
    fields = entry_fields(delivery.job)
    if delivery.repeat is not None:
        fields += [b"retryGroup", delivery.repeat.subscription.name]
    write_array(call.out, len(fields))
    for value in fields:
        write_bulk(call.out, value)


# -- XGROUP ------------------------------------------------------------------------------------


def is_known(call: Call, queue_name: str) -> bool:
    """Return whether the group to create already exists."""
    return verbs.find(call.yard.queues.get(queue_name), call.arg(3)) is not None


def create(call: Call, queue_name: str) -> None:
    """Create the group."""
    name = call.arg(3)
    if not name or len(name) > GROUP_NAME_SIZE_MAX:
        raise Wrong(f"ERR a consumer group name must have 1 to {GROUP_NAME_SIZE_MAX} bytes")
    if b"\0" in name:
        # The name becomes part of keys, which cannot contain one.
        raise Wrong("ERR a consumer group name cannot contain a zero byte")
    if len(names(call.yard.queues.get(queue_name))) >= SUBSCRIPTIONS_MAX:
        raise Wrong(f"ERR a stream can have at most {SUBSCRIPTIONS_MAX} consumer groups")
    cursor = _cursor(call)
    verbs.subscribe(call.yard, open_queue(call.yard, queue_name), name, cursor)
    call.door.promoter.look_after(queue_name)


def when_filled(call: Call, queue_name: str, run: Callable[[], None]) -> None:
    """Create a group once the entries of its stream are sorted."""
    queue = call.yard.queues.get(queue_name)
    if queue is None or not needs_filling(queue):
        run()
        return
    filling = SubscriptionFill(call.yard, queue)

    def finish() -> None:
        try:
            run()
        finally:
            filling.end()

    begin(call, filling, finish)


def _cursor(call: Call) -> i64:
    start = call.arg(4)
    return call.yard.last_stamp if start == b"$" else entry_id(start)


def xgroup(call: Call, queue: Queue | None) -> None:
    """Change an existing group."""
    name = call.arg(3)
    if call.is_word(1, b"DESTROY") and call.count() == 4:
        subscription = verbs.find(queue, name)
        if queue is not None and subscription is not None:
            verbs.unsubscribe(call.yard, queue, subscription)
        write_integer(call.out, 0 if subscription is None else 1)
        return
    subscription = found(queue, name)
    assert queue is not None
    if call.is_word(1, b"SETID") and call.count() in (5, 7):
        verbs.move_to(call.yard, queue, subscription, _cursor(call))
        write_ok(call.out)
    elif call.is_word(1, b"CREATECONSUMER") and call.count() == 5:
        is_new = call.arg(4) not in subscription.consumers
        note_seen(subscription, call.arg(4), call.now_ms)
        write_integer(call.out, 1 if is_new else 0)
    elif call.is_word(1, b"DELCONSUMER") and call.count() == 5:
        dropping = verbs.ConsumerDrop(call.yard, queue, subscription, call.arg(4))
        units = verbs.GIVE_UNITS * subscription.pending_count()
        begin(call, dropping, lambda: write_integer(call.out, dropping.count), units)
    else:
        raise unknown_subcommand("XGROUP", call.command.text(1))


# -- XACK, XPENDING ----------------------------------------------------------------------------


def acknowledged(call: Call, queue: Queue | None, stamps: list[i64]) -> int:
    """Acknowledge entries of a group; return how many were pending."""
    subscription = verbs.find(queue, call.arg(2))
    if queue is None or subscription is None:
        return 0
    return verbs.acknowledge(call.yard, queue, subscription, stamps)


def xpending(call: Call, queue: Queue | None) -> None:
    """Answer with the pending entries, or with their number by consumer."""
    subscription = found(queue, call.arg(2))
    if call.count() == 3:
        _summary(call, subscription)
        return
    asked = PendingArgs(call)
    chosen = DeliveryGather(call, subscription, asked.low, asked.high, asked.count)
    chosen.consumer = asked.consumer
    chosen.least_ms = asked.least_ms
    begin(call, chosen, lambda: GivenEntries(chosen, call.now_ms))


def _summary(call: Call, subscription: Subscription) -> None:
    write_array(call.out, 4)
    write_integer(call.out, subscription.pending_count())
    if subscription.pending_count() == 0:
        write_nil(call.out, call.proto)
        write_nil(call.out, call.proto)
        write_nil_array(call.out, call.proto)
        return
    write_bulk(call.out, entry_text(subscription.least_given()))
    write_bulk(call.out, entry_text(subscription.greatest_given()))
    held = subscription.held
    call.session.work_ns += _CONSUMER_NS * len(held)
    write_array(call.out, len(held))
    for name in sorted(held):
        write_array(call.out, 2)
        write_bulk(call.out, name)
        write_bulk(call.out, str(held[name]).encode())


# -- XCLAIM and XAUTOCLAIM ---------------------------------------------------------------------


def xautoclaim(call: Call, queue: Queue | None) -> None:
    """Claim entries that have been idle for long; acknowledge those that are gone."""
    subscription = found(queue, call.arg(2))
    assert queue is not None
    asked = AutoClaimArgs(call)
    note_seen(subscription, asked.consumer, call.now_ms)
    # One more gives the next cursor.
    idle = DeliveryGather(call, subscription, asked.low, ENTRY_MAX, asked.count + 1)
    idle.least_ms = asked.least_ms
    begin(call, idle, lambda: _claim_found(call, asked, queue, idle))


def _claim_found(call: Call, asked: AutoClaimArgs, queue: Queue, idle: DeliveryGather) -> None:
    """Claim the entries found, if they are still idle."""
    subscription = idle.subscription
    if not verbs.is_alive(queue, subscription):
        raise no_group(subscription.name)
    cursor = b"0-0"
    if len(idle.items) > asked.count:
        cursor = entry_text(idle.items.pop().stamp)
    claimed: list[Delivery] = []
    gone: list[i64] = []
    for delivery in idle.still_given(call.now_ms):
        if not is_there(delivery):
            gone.append(delivery.stamp)
            continue
        verbs.hand_to(subscription, delivery, asked.consumer, call.now_ms)
        if asked.is_short:
            delivery.count -= 1
        claimed.append(delivery)
    verbs.acknowledge(call.yard, queue, subscription, gone)
    write_array(call.out, 3)
    write_bulk(call.out, cursor)
    _write_claimed(call, claimed, is_short=asked.is_short)
    write_array(call.out, len(gone))
    for stamp in gone:
        write_bulk(call.out, entry_text(stamp))


def xclaim(call: Call, queue: Queue | None) -> None:
    """Claim some entries; acknowledge those that are gone."""
    subscription = found(queue, call.arg(2))
    assert queue is not None
    asked = ClaimArgs(call)
    note_seen(subscription, asked.consumer, call.now_ms)
    claimed: list[Delivery] = []
    gone: list[i64] = []
    for stamp in asked.stamps:
        delivery = subscription.find(stamp)
        if delivery is None or idle_ms(delivery, call.now_ms) < asked.least_ms:
            continue
        if not is_there(delivery):
            gone.append(stamp)
            continue
        verbs.hand_to(subscription, delivery, asked.consumer, call.now_ms)
        if asked.is_short:
            delivery.count -= 1
        if asked.times >= 0:
            delivery.count = asked.times
        if asked.idle_ms >= 0:
            delivery.at_ms = call.now_ms - asked.idle_ms
        claimed.append(delivery)
    verbs.acknowledge(call.yard, queue, subscription, gone)
    _write_claimed(call, claimed, is_short=asked.is_short)


def _write_claimed(call: Call, claimed: list[Delivery], *, is_short: bool) -> None:
    write_array(call.out, len(claimed))
    for delivery in claimed:
        if is_short:
            write_bulk(call.out, entry_text(delivery.stamp))
        else:
            write_delivery(call, delivery)


# -- XINFO -------------------------------------------------------------------------------------


def info_groups(call: Call, groups: list[tuple[Subscription, int]]) -> None:
    """Describe subscriptions, each with its lag."""
    for subscription, lag in groups:
        write_map(call.out, 6, call.proto)
        write_bulk(call.out, b"name")
        write_bulk(call.out, subscription.name)
        write_bulk(call.out, b"consumers")
        write_integer(call.out, len(subscription.consumers))
        write_bulk(call.out, b"pending")
        write_integer(call.out, subscription.pending_count())
        write_bulk(call.out, b"last-delivered-id")
        write_bulk(call.out, entry_text(subscription.cursor))
        write_bulk(call.out, b"entries-read")
        write_nil(call.out, call.proto)
        write_bulk(call.out, b"lag")
        write_integer(call.out, lag)


def info_consumers(call: Call, queue: Queue | None) -> None:
    """Describe the consumers of a group."""
    subscription = found(queue, call.arg(3))
    held = subscription.held
    consumers = sorted(subscription.consumers)
    call.session.work_ns += _CONSUMER_NS * len(consumers)
    write_array(call.out, len(consumers))
    for name in consumers:
        idle = max(int(call.now_ms) - subscription.consumers[name], 0)
        write_map(call.out, 4, call.proto)
        write_bulk(call.out, b"name")
        write_bulk(call.out, name)
        write_bulk(call.out, b"pending")
        write_integer(call.out, held.get(name, 0))
        write_bulk(call.out, b"idle")
        write_integer(call.out, idle)
        write_bulk(call.out, b"inactive")
        write_integer(call.out, idle)
