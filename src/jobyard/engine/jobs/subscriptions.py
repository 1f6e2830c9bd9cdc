"""The verbs of subscriptions: who reads all jobs of a queue, what they were given, what is over.

A subscription takes no job away and keeps none from being taken; a job that is taken, done or
removed elsewhere is gone for it too. The journal remembers what is over and what is to come again,
not to whom an entry was given: as leases do, deliveries end with a restart, and what was not
acknowledged is given anew. Who had it may still acknowledge it until somebody has it again.
"""

from typing import Final, final

from mypy_extensions import i64

from jobyard.engine.jobs.deliveries import DeliveryWalk, Freeing, Sweeping
from jobyard.engine.jobs.listing import jobs_in
from jobyard.engine.jobs.queues import drop_if_idle, open_queue
from jobyard.engine.jobs.subscription_entries import (
    DONE,
    FLOOR,
    REPEAT,
    LeftEntries,
    StaleEntries,
    drop,
    drop_floor,
    floor_of,
    is_of,
    note_done,
    note_floor,
    note_repeat,
    repeat_facts,
)
from jobyard.engine.state.timers import Alarm
from jobyard.engine.state.yard import Yard, abs_stamp
from jobyard.model.entry import AUDIENCE, Entry
from jobyard.model.family import LOCK_DURATION, traits
from jobyard.model.glidemq.stored_values import StreamReader
from jobyard.model.glidemq.subscriptions import (
    Audience,
    Delivery,
    Repeat,
    Subscription,
    has_entry,
    is_entry,
)
from jobyard.model.index.sorted_blocks import SortedBlocks
from jobyard.model.job import GONE, LEASED, READY, Job
from jobyard.model.limits import NEVER_MS
from jobyard.model.queue import Queue

_STANDING: Final = frozenset((READY, LEASED))
# What is over below the floor and is forgotten at a time, at the least: so nobody is ever behind.
_FORGOTTEN_AT_ONCE: Final = 256
# Entries that are looked at in one go.
_LOOKED_AT: Final = 256
# Repeats that become due in one go; the others do in the turns that follow.
_DUE_AT_ONCE: Final = 500
# What it takes to give an entry again, in units of work.
GIVE_UNITS: Final = 10


@final
class RepeatsDue(Alarm):
    """Lets subscriptions of a queue get again what is due."""

    def __init__(self, yard: Yard, queue: Queue) -> None:
        super().__init__(yard.new_number(), NEVER_MS, 0)
        self._yard = yard
        self._queue = queue

    def ring(self, now_ms: i64) -> None:
        """Let go of what is due."""
        repeat_due(self._yard, self._queue, now_ms, now_ms)


# -- subscriptions -----------------------------------------------------------------------------


def find(queue: Queue | None, name: bytes) -> Subscription | None:
    """Return the subscription of that name."""
    if queue is None or queue.audience is None:
        return None
    return queue.audience.subscriptions.get(name)


def is_alive(queue: Queue, subscription: Subscription) -> bool:
    """Tell whether a subscription has not ended."""
    return find(queue, subscription.name) is subscription


def audience_of(queue: Queue) -> Audience:
    """Return the audience of a queue, making it on first use."""
    audience = queue.audience
    if audience is None:
        audience = Audience()
        queue.audience = audience
    if not audience.is_filled:
        for job in jobs_in(queue, _STANDING):
            if has_entry(job):
                audience.take_in(job)
        audience.is_filled = True
    return audience


def watch(queue: Queue, reader: StreamReader) -> None:
    """Tell a reader of whatever comes to the stream of a queue, which stays as long as it is."""
    if queue.audience is None:
        queue.audience = Audience()
    queue.audience.readers.append(reader)


def unwatch(yard: Yard, queue: Queue, reader: StreamReader) -> None:
    """Tell a reader no more."""
    audience = queue.audience
    if audience is not None and reader in audience.readers:
        audience.readers.remove(reader)
        let_go(yard, queue, audience)


def let_go(yard: Yard, queue: Queue, audience: Audience) -> None:
    """Let an audience go that nobody is part of."""
    if audience.subscriptions or audience.readers or audience.filling_count > 0:
        return
    if audience.alarm is not None:
        yard.disarm(audience.alarm)
    queue.audience = None
    if audience.count() > 0:
        yard.tasks.follow(Freeing(audience))
    drop_if_idle(yard, queue)


def subscribe(yard: Yard, queue: Queue, name: bytes, cursor: i64) -> Subscription:
    """Let all jobs behind a stamp be read under a name nobody has."""
    subscription = Subscription(name, cursor)
    subscription.birth = yard.journal.next_record()
    subscription.epoch = subscription.birth
    note_floor(yard, queue, subscription, is_needed=True)
    audience_of(queue).subscriptions[name] = subscription
    return subscription


def move_to(yard: Yard, queue: Queue, subscription: Subscription, cursor: i64) -> None:
    """Let a subscription go on behind another stamp; what it was given stays so."""
    subscription.cursor = cursor
    first = subscription.first_pending()
    subscription.floor = cursor if first == 0 else min(cursor, first - 1)
    left = LeftEntries(yard, queue, subscription)
    subscription.epoch = yard.journal.next_record()
    note_floor(yard, queue, subscription, is_needed=True)
    yard.tasks.begin(left, None, yard.now_ms)
    audience_of(queue).wake()


def unsubscribe(yard: Yard, queue: Queue, subscription: Subscription) -> None:
    """End a subscription, with all it remembers."""
    audience = audience_of(queue)
    drop_floor(yard, queue, subscription)
    del audience.subscriptions[subscription.name]
    subscription.is_over = True
    left = LeftEntries(yard, queue, subscription)
    left.add_repeats(audience, subscription)
    yard.tasks.begin(left, None, yard.now_ms)
    for table in (subscription.pending, subscription.ready, subscription.again):
        if table.count > 0:
            yard.tasks.follow(Freeing(table))
    # Who still goes through them finds nothing.
    subscription.pending = SortedBlocks()
    subscription.ready = SortedBlocks()
    subscription.again = SortedBlocks()
    subscription.held = {}
    # Who waits is told that there is nothing to wait for.
    audience.wake()
    let_go(yard, queue, audience)


def is_subscribed(queue: Queue) -> bool:
    """Tell whether anybody subscribed to a queue."""
    return queue.audience is not None and len(queue.audience.subscriptions) > 0


def drop_audience(yard: Yard, queue: Queue) -> None:
    """End all subscriptions of a queue."""
    audience = queue.audience
    if audience is not None:
        for subscription in list(audience.subscriptions.values()):
            unsubscribe(yard, queue, subscription)


# -- what is given -----------------------------------------------------------------------------


def deliver(
    yard: Yard, queue: Queue, subscription: Subscription, consumer: bytes, count: i64, now_ms: i64
) -> list[Delivery]:
    """Give a consumer up to `count` entries that no other of its subscription has."""
    audience = audience_of(queue)
    if audience.late or audience.orphans:
        _catch_up(yard, queue, audience, now_ms)
    if _is_paused(queue, now_ms):
        return []
    remembered = subscription.pending.count + subscription.done.count
    if remembered > subscription.sweep_at and not subscription.is_sweeping:
        yard.tasks.begin(Sweeping(subscription), None, now_ms)
    given = _deliver_repeats(yard, queue, subscription, consumer, count, now_ms)
    at = subscription.cursor
    while len(given) < count:
        some = min(count - len(given), _LOOKED_AT)
        stamps, jobs = audience.entries_after(at, some)
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


def _deliver_repeats(
    yard: Yard, queue: Queue, subscription: Subscription, consumer: bytes, count: i64, now_ms: i64
) -> list[Delivery]:
    """Give a consumer up to `count` of the repeats that are ready."""
    given: list[Delivery] = []
    while subscription.ready.count > 0 and len(given) < count:
        repeat = subscription.ready.values_from(0, 1)[0]
        assert isinstance(repeat, Repeat)
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


def _catch_up(yard: Yard, queue: Queue, audience: Audience, now_ms: i64) -> None:
    """Let those get a job who have passed its place, where it was not when they did."""
    for key in audience.orphans:
        yard.journal.drop_entry(AUDIENCE, key)
    audience.orphans.clear()
    jobs = audience.late
    audience.late = []
    for job in jobs:
        if not has_entry(job):
            continue
        for subscription in audience.subscriptions.values():
            if subscription.cursor >= abs_stamp(job.stamp):
                repeat_at(yard, queue, subscription, job, now_ms, now_ms)


def hand_to(subscription: Subscription, delivery: Delivery, consumer: bytes, now_ms: i64) -> None:
    """Let another consumer have what one was given."""
    subscription.hand(delivery, consumer)
    delivery.at_ms = now_ms
    delivery.count += 1


def beat(queue: Queue, job: Job, now_ms: i64) -> None:
    """Take note that whoever was given a job is alive. Nothing is recorded."""
    audience = queue.audience
    if audience is None:
        return
    stamp = int(abs_stamp(job.stamp))
    for subscription in audience.subscriptions.values():
        delivery = subscription.find_pending(stamp)
        if delivery is not None and delivery.job is job:
            delivery.at_ms = now_ms
        repeat = subscription.find_repeat(job)
        again = None if repeat is None else subscription.find_again(int(repeat.stamp))
        if again is not None:
            again.at_ms = now_ms


def heard_ms(queue: Queue, job: Job) -> i64:
    """Return when something was heard last of a job that was given to somebody, or 0."""
    audience = queue.audience
    newest: i64 = 0
    if audience is None:
        return newest
    stamp = int(abs_stamp(job.stamp))
    for subscription in audience.subscriptions.values():
        delivery = subscription.find_pending(stamp)
        if delivery is not None:
            newest = max(newest, delivery.at_ms)
    return newest


# -- what is over ------------------------------------------------------------------------------


def acknowledge(yard: Yard, queue: Queue, subscription: Subscription, stamps: list[i64]) -> i64:
    """Let entries be over; return how many were not before."""
    count: i64 = 0
    above: list[int] = []
    for stamp in stamps:
        number = int(stamp)
        if subscription.take_pending(number):
            # What it is to read once more is not over with this.
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
    """Tell whether an entry may have been given before a restart, and not since."""
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
    """Forget some of what the floor tells by now; the rest does no harm until it is forgotten."""
    done = subscription.done
    while most > 0 and done.count > 0 and done.first() <= subscription.floor:
        stamp = done.first()
        done.pop(int(stamp))
        drop(yard, queue, DONE, int(stamp), subscription)
        most -= 1


@final
class ConsumerDrop(DeliveryWalk):
    """Forgets a consumer; what it was given is given to others."""

    def __init__(
        self, yard: Yard, queue: Queue, subscription: Subscription, consumer: bytes
    ) -> None:
        super().__init__(subscription, 0, yard.last_stamp)
        self._yard = yard
        self._queue = queue
        self._consumer: bytes = consumer
        # What it is given from now on is not meant.
        self._last: i64 = subscription.gives
        self._is_begun: bool = False
        self.count: i64 = 0

    def step(self, most: i64, now_ms: i64) -> i64:
        """Give some to others."""
        subscription = self.subscription
        if not self._is_begun:
            self._is_begun = True
            subscription.consumers.pop(self._consumer, None)
        if self._consumer not in subscription.held or not is_alive(self._queue, subscription):
            return 0
        return super().step(most, now_ms)

    def look(self, delivery: Delivery, now_ms: i64) -> i64:
        """Give one to others if the consumer has it."""
        if delivery.consumer != self._consumer or delivery.number > self._last:
            return 0
        give_again(self._yard, self._queue, self.subscription, delivery, now_ms, now_ms)
        self.count += 1
        return GIVE_UNITS


def is_silent(queue: Queue, delivery: Delivery, idle_ms: i64, now_ms: i64) -> bool:
    """Tell whether nothing has been heard for long of the consumer that was given an entry."""
    job = delivery.job
    lock_ms: i64 = job.policy.stall_ms if traits(job.family) & LOCK_DURATION else 0
    heard = max(delivery.at_ms, heard_ms(queue, job))
    return now_ms - heard >= (lock_ms if lock_ms > 0 else idle_ms)


def stalls_of(delivery: Delivery) -> i64:
    """Return how often consumers of an entry have fallen silent before."""
    return 0 if delivery.repeat is None else delivery.repeat.stalls


# -- repeats -----------------------------------------------------------------------------------


def give_again(
    yard: Yard,
    queue: Queue,
    subscription: Subscription,
    delivery: Delivery,
    due_ms: i64,
    now_ms: i64,
    stalls: i64 = 0,
) -> None:
    """Let an entry be over, and its job be got again at a time."""
    stamp = delivery.stamp
    job = delivery.job
    if not has_entry(job):
        acknowledge(yard, queue, subscription, [stamp])
        return
    # First what must not be lost.
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
) -> Repeat:
    """Let one subscription get a job again at a time; YardFull changes nothing."""
    note_repeat(yard, queue, subscription, job.id, due_ms, stalls)
    repeat = Repeat(subscription, job, due_ms, stalls)
    _stand(yard, queue, repeat, now_ms)
    return repeat


def _stand(yard: Yard, queue: Queue, repeat: Repeat, now_ms: i64) -> None:
    audience = audience_of(queue)
    subscription = repeat.subscription
    old = subscription.find_repeat(repeat.job)
    if old is not None:
        _take_out(audience, old)
    subscription.repeats.put(int(repeat.key), repeat)
    if repeat.sort_key <= now_ms:
        _make_ready(yard, repeat, now_ms)
        audience.wake()
        return
    audience.due.push(repeat)
    if audience.alarm is None:
        audience.alarm = RepeatsDue(yard, queue)
    yard.arm(audience.alarm, repeat.sort_key)


def _make_ready(yard: Yard, repeat: Repeat, now_ms: i64) -> None:
    repeat.stamp = yard.stamp(now_ms)
    repeat.subscription.ready.put(int(repeat.stamp), repeat)


def _take_out(audience: Audience, repeat: Repeat) -> None:
    """Let a repeat stand nowhere any more."""
    subscription = repeat.subscription
    if repeat.pos >= 0:
        audience.due.remove(repeat)
    subscription.ready.pop(int(repeat.stamp))
    subscription.take_again(int(repeat.stamp))
    subscription.repeats.pop(int(repeat.key))


def _forget(yard: Yard, queue: Queue, repeat: Repeat) -> None:
    """Let a repeat be over."""
    _take_out(audience_of(queue), repeat)
    drop(yard, queue, REPEAT, int(repeat.key), repeat.subscription)


def repeat_due(yard: Yard, queue: Queue, due_ms: i64, now_ms: i64) -> list[Job]:
    """Let subscriptions get some of what is due up to a time; return the jobs."""
    audience = queue.audience
    jobs: list[Job] = []
    if audience is None:
        return jobs
    items = audience.due.items
    left: i64 = _DUE_AT_ONCE
    while items and items[0].sort_key <= due_ms and left > 0:
        left -= 1
        repeat = items[0]
        assert isinstance(repeat, Repeat)
        audience.due.remove(repeat)
        if repeat.subscription.is_over:
            continue
        if repeat.job.state == GONE:
            _forget(yard, queue, repeat)
            continue
        _make_ready(yard, repeat, now_ms)
        jobs.append(repeat.job)
    if items and audience.alarm is not None:
        yard.arm(audience.alarm, max(items[0].sort_key, now_ms + 1))
    if jobs:
        audience.wake()
    return jobs


def waiting_repeats(queue: Queue) -> list[Repeat]:
    """Return the repeats whose time has not come, in no order."""
    found: list[Repeat] = []
    if queue.audience is not None:
        for item in queue.audience.due.items:
            assert isinstance(item, Repeat)
            if not item.subscription.is_over:
                found.append(item)
    return found


def drop_repeats(yard: Yard, queue: Queue) -> i64:
    """Let nobody get again what is not due; return how much that was."""
    waiting = waiting_repeats(queue)
    for repeat in waiting:
        _forget(yard, queue, repeat)
    return len(waiting)


# -- after a restart ------------------------------------------------------------------------


def load_audiences(yard: Yard, entries: list[Entry], now_ms: i64) -> None:
    """Set again what the entries of kind AUDIENCE say."""
    for entry in entries:
        name, _, element = entry.key.partition(b"\0")
        if element[:1] == FLOOR:
            queue = open_queue(yard, name.decode())
            audience_of(queue).subscriptions[element[1:]] = floor_of(entry)
    stale: list[tuple[Entry, bytes]] = []
    for entry in entries:
        name, _, element = entry.key.partition(b"\0")
        tag = element[:1]
        if tag == FLOOR:
            continue
        queue_found = yard.queues.get(name.decode())
        subscription = find(queue_found, element[9:])
        if queue_found is None or subscription is None or not is_of(entry, tag, subscription):
            stale.append((entry, entry.value))
            continue
        number = int.from_bytes(element[1:9], "big")
        if tag == DONE:
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
        audience_of(queue).orphans.append(entry.key)
        return
    due_ms, stalls = repeat_facts(entry)
    repeat = Repeat(subscription, job, due_ms - yard.journal.wall_offset_ms, stalls)
    _stand(yard, queue, repeat, now_ms)
