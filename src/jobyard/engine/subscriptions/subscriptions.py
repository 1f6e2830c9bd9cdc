"""The verbs of subscriptions: consumers that read all jobs of a queue, deliveries, redeliveries.

A subscription takes no job away and keeps none from being taken; a job that is taken, done or
removed elsewhere is gone for it too. The journal stores what is done and what will be redelivered,
not which consumer has an entry: like leases, deliveries end with a restart, and entries that were
not acknowledged are delivered again. Their former consumers can still acknowledge them until then.
"""

from typing import Final, final

from mypy_extensions import i64

from jobyard.engine.jobs.listing import jobs_in
from jobyard.engine.jobs.queues import drop_if_idle, open_queue
from jobyard.engine.state.timers import Alarm
from jobyard.engine.state.yard import Yard, abs_stamp
from jobyard.engine.subscriptions.deliveries import (
    DeliveryWalk,
    StaleDeliveryTask,
    SubscriptionFreeing,
)
from jobyard.engine.subscriptions.entries import (
    ACKED_ENTRY,
    FLOOR_ENTRY,
    REDELIVERY_ENTRY,
    LeftEntries,
    StaleEntries,
    drop,
    drop_floor,
    floor_of,
    is_of,
    note_done,
    note_floor,
    note_redelivery,
    repeat_facts,
)
from jobyard.model.entry import Entry, EntryKind
from jobyard.model.family import LOCK_DURATION, traits
from jobyard.model.glidemq.stored_values import StreamReader
from jobyard.model.glidemq.subscriptions import (
    Delivery,
    Redelivery,
    Subscription,
    Subscriptions,
    has_entry,
    is_entry,
)
from jobyard.model.index.sorted_blocks import SortedBlocks
from jobyard.model.job import GONE, LEASED, READY, Job
from jobyard.model.limits import NEVER_MS
from jobyard.model.queue import Queue

_STANDING: Final = frozenset((READY, LEASED))
# Done entries below the floor that are dropped at a time, at least, so that drops keep up.
_FORGOTTEN_AT_ONCE: Final = 256
# Entries that are looked at in one go.
_LOOKED_AT: Final = 256
# Redeliveries that become ready in one go; the others follow in later turns.
_DUE_AT_ONCE: Final = 500
# Cost of a redelivery, in units of work.
GIVE_UNITS: Final = 10


@final
class RedeliveryAlarm(Alarm):
    """Makes the due redeliveries of a queue ready."""

    def __init__(self, yard: Yard, queue: Queue) -> None:
        super().__init__(yard.new_number(), NEVER_MS, 0)
        self._yard = yard
        self._queue = queue

    def ring(self, now_ms: i64) -> None:
        """Make due redeliveries ready."""
        repeat_due(self._yard, self._queue, now_ms, now_ms)


# -- subscriptions -----------------------------------------------------------------------------


def find(queue: Queue | None, name: bytes) -> Subscription | None:
    """Return the subscription of that name."""
    if queue is None or queue.subscriptions is None:
        return None
    return queue.subscriptions.by_name.get(name)


def is_alive(queue: Queue, subscription: Subscription) -> bool:
    """Return whether a subscription has not ended."""
    return find(queue, subscription.name) is subscription


def subscriptions_of(queue: Queue) -> Subscriptions:
    """Return the subscriptions of a queue; create their table on first use."""
    subscriptions = queue.subscriptions
    if subscriptions is None:
        subscriptions = Subscriptions()
        queue.subscriptions = subscriptions
    if not subscriptions.is_filled:
        for job in jobs_in(queue, _STANDING):
            if has_entry(job):
                subscriptions.take_in(job)
        subscriptions.is_filled = True
    return subscriptions


def watch(queue: Queue, reader: StreamReader) -> None:
    """Notify a reader of new entries in the stream of a queue; keeps the queue alive."""
    if queue.subscriptions is None:
        queue.subscriptions = Subscriptions()
    queue.subscriptions.readers.append(reader)


def unwatch(yard: Yard, queue: Queue, reader: StreamReader) -> None:
    """Stop notifying a reader."""
    subscriptions = queue.subscriptions
    if subscriptions is not None and reader in subscriptions.readers:
        subscriptions.readers.remove(reader)
        drop_if_unused(yard, queue, subscriptions)


def drop_if_unused(yard: Yard, queue: Queue, subscriptions: Subscriptions) -> None:
    """Drop the subscriptions table of a queue if it has no subscription and no reader."""
    if subscriptions.by_name or subscriptions.readers or subscriptions.filling_count > 0:
        return
    if subscriptions.alarm is not None:
        yard.disarm(subscriptions.alarm)
    queue.subscriptions = None
    if subscriptions.count() > 0:
        yard.tasks.follow(SubscriptionFreeing(subscriptions))
    drop_if_idle(yard, queue)


def subscribe(yard: Yard, queue: Queue, name: bytes, cursor: i64) -> Subscription:
    """Create a subscription with a new name that reads all jobs after a stamp."""
    subscription = Subscription(name, cursor)
    subscription.birth = yard.journal.next_record()
    subscription.epoch = subscription.birth
    note_floor(yard, queue, subscription, is_needed=True)
    subscriptions_of(queue).by_name[name] = subscription
    return subscription


def move_to(yard: Yard, queue: Queue, subscription: Subscription, cursor: i64) -> None:
    """Make a subscription continue after another stamp; its pending deliveries stay."""
    subscription.cursor = cursor
    first = subscription.first_pending()
    subscription.floor = cursor if first == 0 else min(cursor, first - 1)
    left = LeftEntries(yard, queue, subscription)
    subscription.epoch = yard.journal.next_record()
    note_floor(yard, queue, subscription, is_needed=True)
    yard.tasks.begin(left, None, yard.now_ms)
    subscriptions_of(queue).wake()


def unsubscribe(yard: Yard, queue: Queue, subscription: Subscription) -> None:
    """End a subscription and drop everything stored for it."""
    subscriptions = subscriptions_of(queue)
    drop_floor(yard, queue, subscription)
    del subscriptions.by_name[subscription.name]
    subscription.is_over = True
    left = LeftEntries(yard, queue, subscription)
    left.add_redeliveries(subscriptions, subscription)
    yard.tasks.begin(left, None, yard.now_ms)
    for table in (subscription.pending, subscription.ready, subscription.again):
        if table.count > 0:
            yard.tasks.follow(SubscriptionFreeing(table))
    # Tasks that still iterate over them find nothing.
    subscription.pending = SortedBlocks()
    subscription.ready = SortedBlocks()
    subscription.again = SortedBlocks()
    subscription.held = {}
    # Waiting readers learn that there is nothing to wait for.
    subscriptions.wake()
    drop_if_unused(yard, queue, subscriptions)


def is_subscribed(queue: Queue) -> bool:
    """Return whether a queue has subscriptions."""
    return queue.subscriptions is not None and len(queue.subscriptions.by_name) > 0


def drop_subscriptions(yard: Yard, queue: Queue) -> None:
    """End all subscriptions of a queue."""
    subscriptions = queue.subscriptions
    if subscriptions is not None:
        for subscription in list(subscriptions.by_name.values()):
            unsubscribe(yard, queue, subscription)


# -- deliveries --------------------------------------------------------------------------------


def deliver(
    yard: Yard, queue: Queue, subscription: Subscription, consumer: bytes, count: i64, now_ms: i64
) -> list[Delivery]:
    """Deliver up to `count` entries that no other consumer of the subscription has."""
    subscriptions = subscriptions_of(queue)
    if subscriptions.late or subscriptions.leftover_keys:
        _catch_up(yard, queue, subscriptions, now_ms)
    if _is_paused(queue, now_ms):
        return []
    remembered = subscription.pending.count + subscription.done.count
    if remembered > subscription.sweep_at and not subscription.is_sweeping:
        yard.tasks.begin(StaleDeliveryTask(subscription), None, now_ms)
    given = _redeliver(yard, queue, subscription, consumer, count, now_ms)
    at = subscription.cursor
    while len(given) < count:
        some = min(count - len(given), _LOOKED_AT)
        stamps, jobs = subscriptions.entries_after(at, some)
        for each in range(len(stamps)):
            stamp = stamps[each]
            at = stamp
            if not is_entry(jobs[each], stamp):
                continue
            subscription.cursor = stamp
            if subscription.done.get(stamp) is None:
                delivery = Delivery(stamp, jobs[each], consumer, now_ms)
                subscription.give(delivery)
                given.append(delivery)
        if len(stamps) < some:
            break
    return given


def _redeliver(
    yard: Yard, queue: Queue, subscription: Subscription, consumer: bytes, count: i64, now_ms: i64
) -> list[Delivery]:
    """Deliver up to `count` of the redeliveries that are ready."""
    given: list[Delivery] = []
    while subscription.ready.count > 0 and len(given) < count:
        repeat = subscription.ready.values_from(0, 1)[0]
        assert isinstance(repeat, Redelivery)
        if not has_entry(repeat.job):
            _forget(yard, queue, repeat)
            continue
        subscription.ready.pop(int(repeat.stamp))
        delivery = Delivery(repeat.stamp, repeat.job, consumer, now_ms)
        delivery.repeat = repeat
        subscription.give(delivery)
        given.append(delivery)
    return given


def _is_paused(queue: Queue, now_ms: i64) -> bool:
    if queue.pause_until_ms > now_ms:
        return True
    rules = queue.rules
    return rules is not None and rules.settings.is_paused


def _catch_up(yard: Yard, queue: Queue, subscriptions: Subscriptions, now_ms: i64) -> None:
    """Redeliver late jobs to subscriptions whose cursor passed their stamps without them."""
    for key in subscriptions.leftover_keys:
        yard.journal.drop_entry(EntryKind.SUBSCRIPTIONS, key)
    subscriptions.leftover_keys.clear()
    jobs = subscriptions.late
    subscriptions.late = []
    for job in jobs:
        if not has_entry(job):
            continue
        for subscription in subscriptions.by_name.values():
            if subscription.cursor >= abs_stamp(job.stamp):
                repeat_at(yard, queue, subscription, job, now_ms, now_ms)


def hand_to(subscription: Subscription, delivery: Delivery, consumer: bytes, now_ms: i64) -> None:
    """Transfer a delivery to another consumer."""
    subscription.hand(delivery, consumer)
    delivery.at_ms = now_ms
    delivery.count += 1


def beat(queue: Queue, job: Job, now_ms: i64) -> None:
    """Note a heartbeat of the consumers of a job; nothing is written to the journal."""
    subscriptions = queue.subscriptions
    if subscriptions is None:
        return
    stamp = int(abs_stamp(job.stamp))
    for subscription in subscriptions.by_name.values():
        delivery = subscription.find_pending(stamp)
        if delivery is not None and delivery.job is job:
            delivery.at_ms = now_ms
        repeat = subscription.find_repeat(job)
        again = None if repeat is None else subscription.find_again(int(repeat.stamp))
        if again is not None:
            again.at_ms = now_ms


def heard_ms(queue: Queue, job: Job) -> i64:
    """Return the time of the last heartbeat or delivery of a pending job, or 0."""
    subscriptions = queue.subscriptions
    newest: i64 = 0
    if subscriptions is None:
        return newest
    stamp = int(abs_stamp(job.stamp))
    for subscription in subscriptions.by_name.values():
        delivery = subscription.find_pending(stamp)
        if delivery is not None:
            newest = max(newest, delivery.at_ms)
    return newest


# -- acknowledgements --------------------------------------------------------------------------


def acknowledge(yard: Yard, queue: Queue, subscription: Subscription, stamps: list[i64]) -> i64:
    """Mark entries as done; return how many were not done before."""
    count: i64 = 0
    above: list[int] = []
    for stamp in stamps:
        number = int(stamp)
        if subscription.take_pending(number):
            # Entries after a cursor that was moved back will be read again, so they stay open.
            if stamp <= subscription.cursor:
                above.append(number)
        elif (again := subscription.find_again(number)) is not None:
            assert again.repeat is not None
            _forget(yard, queue, again.repeat)
        elif may_be_late(yard, subscription, stamp):
            above.append(number)
        else:
            continue
        count += 1
    if above:
        _raise_floor(yard, queue, subscription, above)
    return count


def may_be_late(yard: Yard, subscription: Subscription, stamp: i64) -> bool:
    """Return whether an entry may have been delivered before a restart, and not since."""
    if not subscription.cursor < stamp <= yard.boot_stamp:
        return False
    return subscription.done.get(int(stamp)) is None


def _raise_floor(yard: Yard, queue: Queue, subscription: Subscription, over: list[int]) -> None:
    first = subscription.first_pending()
    floor = subscription.cursor if first == 0 else first - 1
    if floor > subscription.floor:
        subscription.floor = floor
        note_floor(yard, queue, subscription, is_needed=False)
    _forget_done(yard, queue, subscription, 2 * len(over) + _FORGOTTEN_AT_ONCE)
    for stamp in over:
        if stamp > subscription.floor:
            subscription.done.put(stamp, stamp)
            note_done(yard, queue, subscription, stamp)


def _forget_done(yard: Yard, queue: Queue, subscription: Subscription, most: i64) -> None:
    """Drop some done entries that the floor covers by now; the rest does no harm meanwhile."""
    done = subscription.done
    while most > 0 and done.count > 0 and done.first() <= subscription.floor:
        stamp = done.first()
        done.pop(int(stamp))
        drop(yard, queue, ACKED_ENTRY, int(stamp), subscription)
        most -= 1


@final
class ConsumerDrop(DeliveryWalk):
    """Removes a consumer; its pending entries are redelivered to others."""

    def __init__(
        self, yard: Yard, queue: Queue, subscription: Subscription, consumer: bytes
    ) -> None:
        super().__init__(subscription, 0, yard.last_stamp)
        self._yard = yard
        self._queue = queue
        self._consumer: bytes = consumer
        # Later deliveries to it are not affected.
        self._last: i64 = subscription.gives
        self._is_begun: bool = False
        self.count: i64 = 0

    def step(self, most: i64, now_ms: i64) -> i64:
        """Redeliver some."""
        subscription = self.subscription
        if not self._is_begun:
            self._is_begun = True
            subscription.consumers.pop(self._consumer, None)
        if self._consumer not in subscription.held or not is_alive(self._queue, subscription):
            return 0
        return super().step(most, now_ms)

    def look(self, delivery: Delivery, now_ms: i64) -> i64:
        """Redeliver one if the consumer has it."""
        if delivery.consumer != self._consumer or delivery.number > self._last:
            return 0
        give_again(self._yard, self._queue, self.subscription, delivery, now_ms, now_ms)
        self.count += 1
        return GIVE_UNITS


def is_silent(queue: Queue, delivery: Delivery, idle_ms: i64, now_ms: i64) -> bool:
    """Return whether the consumer of a delivery sent no heartbeat for the lock or idle time."""
    job = delivery.job
    lock_ms: i64 = job.policy.stall_ms if traits(job.family) & LOCK_DURATION else 0
    heard = max(delivery.at_ms, heard_ms(queue, job))
    return now_ms - heard >= (lock_ms if lock_ms > 0 else idle_ms)


def stalls_of(delivery: Delivery) -> i64:
    """Return how often an entry has stalled before."""
    return 0 if delivery.repeat is None else delivery.repeat.stalls


# -- redeliveries ------------------------------------------------------------------------------


def give_again(
    yard: Yard,
    queue: Queue,
    subscription: Subscription,
    delivery: Delivery,
    due_ms: i64,
    now_ms: i64,
    stalls: i64 = 0,
) -> None:
    """Mark an entry as done, and redeliver its job at a time."""
    stamp = delivery.stamp
    job = delivery.job
    if not has_entry(job):
        acknowledge(yard, queue, subscription, [stamp])
        return
    # The redelivery first: it must not be lost.
    repeat_at(yard, queue, subscription, job, due_ms, now_ms, stalls)
    acknowledge(yard, queue, subscription, [stamp])


def repeat_at(
    yard: Yard,
    queue: Queue,
    subscription: Subscription,
    job: Job,
    due_ms: i64,
    now_ms: i64,
    stalls: i64 = 0,
) -> Redelivery:
    """Schedule a redelivery to one subscription; YardFull changes nothing."""
    note_redelivery(yard, queue, subscription, job.id, due_ms, stalls)
    repeat = Redelivery(subscription, job, due_ms, stalls)
    _stand(yard, queue, repeat, now_ms)
    return repeat


def _stand(yard: Yard, queue: Queue, repeat: Redelivery, now_ms: i64) -> None:
    subscriptions = subscriptions_of(queue)
    subscription = repeat.subscription
    old = subscription.find_repeat(repeat.job)
    if old is not None:
        _take_out(subscriptions, old)
    subscription.redeliveries.put(int(repeat.key), repeat)
    if repeat.sort_key <= now_ms:
        _make_ready(yard, repeat, now_ms)
        subscriptions.wake()
        return
    subscriptions.due.push(repeat)
    if subscriptions.alarm is None:
        subscriptions.alarm = RedeliveryAlarm(yard, queue)
    yard.arm(subscriptions.alarm, repeat.sort_key)


def _make_ready(yard: Yard, repeat: Redelivery, now_ms: i64) -> None:
    repeat.stamp = yard.stamp(now_ms)
    repeat.subscription.ready.put(int(repeat.stamp), repeat)


def _take_out(subscriptions: Subscriptions, repeat: Redelivery) -> None:
    """Remove a redelivery from every index."""
    subscription = repeat.subscription
    if repeat.pos >= 0:
        subscriptions.due.remove(repeat)
    subscription.ready.pop(int(repeat.stamp))
    subscription.take_again(int(repeat.stamp))
    subscription.redeliveries.pop(int(repeat.key))


def _forget(yard: Yard, queue: Queue, repeat: Redelivery) -> None:
    """Remove a redelivery and its journal entry."""
    _take_out(subscriptions_of(queue), repeat)
    drop(yard, queue, REDELIVERY_ENTRY, int(repeat.key), repeat.subscription)


def repeat_due(yard: Yard, queue: Queue, due_ms: i64, now_ms: i64) -> list[Job]:
    """Make some redeliveries ready that are due at `due_ms` or before; return their jobs."""
    subscriptions = queue.subscriptions
    jobs: list[Job] = []
    if subscriptions is None:
        return jobs
    items = subscriptions.due.items
    left: i64 = _DUE_AT_ONCE
    while items and items[0].sort_key <= due_ms and left > 0:
        left -= 1
        repeat = items[0]
        assert isinstance(repeat, Redelivery)
        subscriptions.due.remove(repeat)
        if repeat.subscription.is_over:
            continue
        if repeat.job.state == GONE:
            _forget(yard, queue, repeat)
            continue
        _make_ready(yard, repeat, now_ms)
        jobs.append(repeat.job)
    if items and subscriptions.alarm is not None:
        yard.arm(subscriptions.alarm, max(items[0].sort_key, now_ms + 1))
    if jobs:
        subscriptions.wake()
    return jobs


def waiting_redeliveries(queue: Queue) -> list[Redelivery]:
    """Return the redeliveries that are not due yet, in no order."""
    found: list[Redelivery] = []
    if queue.subscriptions is not None:
        for item in queue.subscriptions.due.items:
            assert isinstance(item, Redelivery)
            if not item.subscription.is_over:
                found.append(item)
    return found


def drop_redeliveries(yard: Yard, queue: Queue) -> i64:
    """Drop the redeliveries that are not due yet; return how many there were."""
    waiting = waiting_redeliveries(queue)
    for repeat in waiting:
        _forget(yard, queue, repeat)
    return len(waiting)


# -- after a restart ------------------------------------------------------------------------


def load_subscriptions(yard: Yard, entries: list[Entry], now_ms: i64) -> None:
    """Restore subscriptions from the entries of kind SUBSCRIPTIONS."""
    for entry in entries:
        name, _, element = entry.key.partition(b"\0")
        if element[:1] == FLOOR_ENTRY:
            queue = open_queue(yard, name.decode())
            subscriptions_of(queue).by_name[element[1:]] = floor_of(entry)
    stale: list[tuple[Entry, bytes]] = []
    for entry in entries:
        name, _, element = entry.key.partition(b"\0")
        tag = element[:1]
        if tag == FLOOR_ENTRY:
            continue
        queue_found = yard.queues.get(name.decode())
        subscription = find(queue_found, element[9:])
        if queue_found is None or subscription is None or not is_of(entry, tag, subscription):
            stale.append((entry, entry.value))
            continue
        number = int.from_bytes(element[1:9], "big")
        if tag == ACKED_ENTRY:
            subscription.done.put(number, number)
        else:
            _load_repeat(yard, queue_found, subscription, entry, number, now_ms)
    if stale:
        yard.tasks.follow(StaleEntries(yard, stale))


def _load_repeat(
    yard: Yard, queue: Queue, subscription: Subscription, entry: Entry, job_id: int, now_ms: i64
) -> None:
    job = yard.jobs.get(job_id)
    if job is None:
        subscriptions_of(queue).leftover_keys.append(entry.key)
        return
    due_ms, stalls = repeat_facts(entry)
    repeat = Redelivery(subscription, job, due_ms - yard.journal.wall_offset_ms, stalls)
    _stand(yard, queue, repeat, now_ms)
