"""The setup of a queue that is a topic: configuration, idempotency keys, time to live, removal.

Its configuration, the keys of its writes and the floors below which jobs were evicted are entries
of the journal, so an empty queue survives a restart with all of them, and no seq is given twice.
"""

from typing import Final, final

from librt.strings import BytesWriter, read_i64_le, write_i64_le
from mypy_extensions import i64

from jobyard.engine.jobs.lease_events import defer_lease_events, send_lease_events
from jobyard.engine.jobs.listing import ALL_STATES, jobs_by_seq_of, jobs_in, seq_of
from jobyard.engine.jobs.low_watermarks import remember_floors
from jobyard.engine.jobs.move import erase
from jobyard.engine.jobs.put import reserve_and_evict, ttl_of
from jobyard.engine.jobs.queues import drop_if_idle
from jobyard.engine.jobs.take import cancel_wait
from jobyard.engine.state.record_keys import (
    drop_keys,
    remember_keys,
    set_window,
    window_room,
)
from jobyard.engine.state.tasks import Task
from jobyard.engine.state.timers import Alarm
from jobyard.engine.state.yard import Yard
from jobyard.engine.subscriptions.subscriptions import drop_subscriptions
from jobyard.errors import StorageFull, YardFull
from jobyard.journal.format.record import ENTRY_SIZE
from jobyard.journal.space.live_bytes import queue_bytes
from jobyard.model.entry import Entry, EntryKind
from jobyard.model.index.recent_keys import RecentKeys
from jobyard.model.job import BLOCKED, GONE, LEASED, Job
from jobyard.model.lease import Proof
from jobyard.model.limits import NEVER_MS
from jobyard.model.queue import Queue
from jobyard.model.topic.config import DISCARD_OLD, FSYNC, QUEUE, TopicConfig, decode_config
from jobyard.model.topic.key_table import KeyTable
from jobyard.model.topic.new_keys import NewKeys
from jobyard.model.topic.state import KeyedWrite, TopicState
from jobyard.model.waiter import Waiter

# Expired keys that one write drops; the next write drops more.
_KEYS_FORGOTTEN: Final = 64
# Keys of writes that are stored for a queue; beyond this the oldest is dropped.
WRITES_MAX: Final = 100_000

# Cost of dropping one of them, in units of work.
_FORGET_UNITS: Final = 2

# Jobs that are looked at together.
_SLICE: Final = 1024

# Jobs that one ring of an alarm removes; the delay before a retry if the disk is full or jobs run.
_RING_MAX: Final = 500
_AGAIN_MS: Final = 1000


def config_of(queue: Queue) -> TopicConfig:
    """Return the configuration of a queue, for reading only."""
    config = queue.config
    return _DEFAULTS if config is None else config


def _default_config() -> TopicConfig:
    config = TopicConfig()
    config.type = QUEUE
    return config


_DEFAULTS: Final = _default_config()


def open_topic_queue(yard: Yard, name: str, config: TopicConfig, now_ms: i64) -> Queue:
    """Create a queue, or configure the existing one; YardFull changes nothing."""
    queue = yard.queues.get(name)
    if queue is None:
        queue = Queue(name)
    set_queue_config(yard, queue, config, now_ms)
    return queue


def set_queue_config(yard: Yard, queue: Queue, config: TopicConfig, now_ms: i64) -> None:
    """Replace the configuration of a queue; with discard `old`, evict what exceeds it."""
    journal = yard.journal
    if journal.is_on:
        key = queue.name.encode()
        value = config.encode()
        room: i64 = ENTRY_SIZE + len(key) + len(value) + 4 * queue_bytes(queue)
        if queue.topic_state is not None:
            room += window_room(queue.topic_state.record_keys)
        if not journal.admit(room, now_ms):
            raise YardFull
        if queue.number == 0:
            # Even without a job: seqs of an earlier queue with this name must not count.
            journal.append_queue(queue, key)
        elif queue.config is None:
            # From here on its next seq is recorded, whatever happens to its jobs.
            journal.append_name(queue, key)
        journal.set_entry(EntryKind.CONFIG, key, value)
    elif queue.number == 0:
        # It tells this queue from others of its name.
        queue.number = journal.next_queue
        journal.next_queue += 1
    yard.queues[queue.name] = queue
    _configure(yard, queue, config, now_ms)
    set_window(yard, topic_state_of(queue).record_keys, config.key_window_ms, now_ms)
    if config.discard == DISCARD_OLD:
        try:
            reserve_and_evict(yard, queue, 0, 0, 0, now_ms)
        except YardFull:
            # The next write evicts, or is refused.
            return


def _configure(yard: Yard, queue: Queue, config: TopicConfig, now_ms: i64) -> None:
    queue.config = config
    queue.is_synced = config.durability == FSYNC
    topic_state = topic_state_of(queue)
    oldest = jobs_by_seq_of(queue).oldest()
    alarm = topic_state.alarm
    if config.ttl_ms == 0:
        if alarm is not None:
            yard.disarm(alarm)
            topic_state.alarm = None
        return
    if alarm is None:
        alarm = JobTtlAlarm(yard, queue)
        topic_state.alarm = alarm
    if oldest is not None:
        yard.arm(alarm, max(now_ms, min(oldest.created_ms, now_ms) + ttl_of(config)))


def topic_state_of(queue: Queue) -> TopicState:
    """Return the topic state of a queue; create it on first use."""
    topic_state = queue.topic_state
    if topic_state is None:
        topic_state = TopicState()
        queue.topic_state = topic_state
    return topic_state


def drop_topic_queue(yard: Yard, queue: Queue, now_ms: i64) -> None:
    """Remove a queue with all its jobs and its configuration; a later one starts at seq 1."""
    number = queue.number
    defer_lease_events(yard)
    try:
        _wipe(yard, queue, now_ms)
    finally:
        send_lease_events(yard, now_ms)
    journal = yard.journal
    topic_state = topic_state_of(queue)
    if topic_state.writes.count() > 0:
        yard.tasks.begin(WriteKeyTask(yard, number, topic_state.writes), None, now_ms)
    if topic_state.alarm is not None:
        yard.disarm(topic_state.alarm)
    drop_keys(yard, topic_state.record_keys, now_ms)
    if journal.is_on:
        journal.drop_entry(EntryKind.CONFIG, queue.name.encode())
        journal.drop_entry(EntryKind.FLOORS, queue.name.encode())
        journal.drop_entry(EntryKind.COUNTED, queue.name.encode())
    queue.is_counted = False
    queue.config = None
    queue.is_synced = False
    queue.topic_state = None
    queue.jobs_by_seq = None
    # Clients of other doors may still use the queue; it continues under a new number.
    journal.retire_queue(queue)
    queue.number = 0
    queue.next_seq = 1
    queue.seq_limit = 1
    queue.durable_limit = 1
    queue.limit_batch = 0
    if isinstance(topic_state.claim_window, Alarm):
        yard.disarm(topic_state.claim_window)
        topic_state.claim_window.ring(now_ms)
    for waiter in _waiters(queue):
        cancel_wait(yard, waiter)
        waiter.lease_set.holder.waited_enough(waiter, is_deadline_soon=False)
    drop_subscriptions(yard, queue)
    if yard.queues.get(queue.name) is queue:
        drop_if_idle(yard, queue)


def _wipe(yard: Yard, queue: Queue, now_ms: i64) -> None:
    # Jobs that wait for others go first, so that no removal of a child moves its parent.
    for job in jobs_in(queue, frozenset((BLOCKED,))):
        erase(yard, job, now_ms)
    for job in sorted(jobs_in(queue, ALL_STATES), key=seq_of):
        if job.state != GONE:
            erase(yard, job, now_ms)


def _waiters(queue: Queue) -> list[Waiter]:
    """Return the waiters from the door of topics."""
    found: list[Waiter] = []
    link = queue.first_link
    while link is not None:
        if link.waiter.terms.proof == Proof.NODE:
            found.append(link.waiter)
        link = link.after
    return found


def load_topic_queues(yard: Yard, now_ms: i64) -> None:
    """Restore configurations, idempotency keys and floors after a start."""
    writes: list[Entry] = []
    for entry in yard.journal.entries.values():
        if entry.is_gone:
            continue
        if entry.kind == EntryKind.CONFIG:
            _load_config(yard, entry, now_ms)
        elif entry.kind == EntryKind.FLOORS:
            topic_state_of(_queue_named(yard, entry.key.decode())).fill_floors(entry.value)
        elif entry.kind == EntryKind.WRITE:
            writes.append(entry)
    writes.sort(key=_until_ms)
    by_number = {int(queue.number): queue for queue in yard.queues.values()}
    for entry in writes:
        _load_write(yard, entry, by_number, now_ms)


def _load_config(yard: Yard, entry: Entry, now_ms: i64) -> None:
    config = decode_config(entry.value)
    if config.type == QUEUE:
        _configure(yard, _queue_named(yard, entry.key.decode()), config, now_ms)


def _queue_named(yard: Yard, name: str) -> Queue:
    """Return a queue that has entries in the journal; create it, even without jobs."""
    queue = yard.queues.get(name)
    if queue is None:
        queue = Queue(name)
        yard.queues[name] = queue
    return queue


def _load_write(yard: Yard, entry: Entry, by_number: dict[int, Queue], now_ms: i64) -> None:
    journal = yard.journal
    number, _, key = entry.key.decode().partition("\0")
    queue = by_number.get(int(number))
    value = entry.value
    until_ms = read_i64_le(value, 16) - journal.wall_offset_ms
    if queue is None or until_ms <= now_ms:
        # Its queue is gone, or its time is over.
        journal.forget_entry(entry)
        return
    write = KeyedWrite(read_i64_le(value, 0), read_i64_le(value, 8), until_ms, 0)
    topic_state_of(queue).writes.put(key, write)


def _until_ms(entry: Entry) -> int:
    return read_i64_le(entry.value, 16)


# -- keys of writes ---------------------------------------------------------------------------


def known_write(yard: Yard, queue: Queue, key: str, now_ms: i64) -> KeyedWrite | None:
    """Return the earlier write with a key; drop some expired keys."""
    writes = topic_state_of(queue).writes
    for _ in range(_KEYS_FORGOTTEN):
        oldest = writes.oldest()
        if oldest is None or oldest[1].until_ms > now_ms:
            break
        _forget_oldest(yard, queue.number, writes)
    known = writes.get(key)
    # Expired keys need not be the oldest: the window may have been shorter for later writes.
    return known if known is not None and known.until_ms > now_ms else None


def remember_write(
    yard: Yard, queue: Queue, key: str, first_seq: i64, count: i64, now_ms: i64
) -> None:
    """Store the key of a write that is about to be made; room for its entry was reserved."""
    window_ms = min(config_of(queue).idempotency_window_ms, NEVER_MS // 2)
    if window_ms == 0:
        return
    until_ms: i64 = now_ms + window_ms
    journal = yard.journal
    writes = topic_state_of(queue).writes
    if writes.count() >= WRITES_MAX:
        _forget_oldest(yard, queue.number, writes)
    if journal.is_on:
        if queue.number == 0:
            journal.append_queue(queue, queue.name.encode())
        out = BytesWriter()
        write_i64_le(out, first_seq)
        write_i64_le(out, count)
        write_i64_le(out, until_ms + journal.wall_offset_ms)
        journal.set_entry(EntryKind.WRITE, _write_key(queue.number, key), out.getvalue())
    batch = journal.open_number if journal.is_on else 0
    writes.put(key, KeyedWrite(first_seq, count, until_ms, batch))


def remember_job_keys(yard: Yard, queue: Queue, keys: NewKeys, first_seq: i64, now_ms: i64) -> None:
    """Store the keys of jobs that are put, the first of them with `first_seq`; room was made."""
    topic_state = topic_state_of(queue)
    table = topic_state.record_keys
    if table is None:
        table = KeyTable(queue.name, config_of(queue).key_window_ms)
        topic_state.record_keys = table
    remember_keys(yard, table, keys, first_seq, now_ms, is_written=yard.journal.is_on)


def _forget_oldest(yard: Yard, number: i64, writes: RecentKeys[KeyedWrite]) -> bool:
    """Drop the oldest key of a queue, which has expired or whose queue is removed; False if none.

    No record is written. A restart may find it again, or an older write with this key: both have
    expired by then, since a key is used again only after that, or no queue has their number.
    """
    oldest = writes.oldest()
    if oldest is None:
        return False
    writes.remove_oldest()
    entry = yard.journal.entries.get((EntryKind.WRITE, _write_key(number, oldest[0])))
    if entry is not None:
        yard.journal.forget_entry(entry)
    return True


@final
class WriteKeyTask(Task):
    """Drops the keys of writes to a queue that was removed."""

    def __init__(self, yard: Yard, number: i64, writes: RecentKeys[KeyedWrite]) -> None:
        super().__init__()
        self._yard = yard
        # A later queue of the same name has another number.
        self._number = number
        self._writes = writes

    def step(self, most: i64, now_ms: i64) -> i64:  # noqa: ARG002  set by Task
        """Drop some."""
        done: i64 = 0
        while done < most and _forget_oldest(self._yard, self._number, self._writes):
            done += _FORGET_UNITS
        return done


def _write_key(number: i64, key: str) -> bytes:
    return f"{int(number)}\0{key}".encode()


# -- time to live -----------------------------------------------------------------------------


@final
class JobTtlAlarm(Alarm):
    """Rings when the oldest job of a queue has expired."""

    def __init__(self, yard: Yard, queue: Queue) -> None:
        super().__init__(yard.new_number(), NEVER_MS, 0)
        self._yard = yard
        self._queue = queue

    def ring(self, now_ms: i64) -> None:
        """Remove expired jobs."""
        next_ms = sweep_old(self._yard, self._queue, now_ms)
        if next_ms < NEVER_MS:
            # Not in this turn again: the rest is left to the next one.
            self._yard.arm(self, max(next_ms, now_ms + 1))


def sweep_old(yard: Yard, queue: Queue, now_ms: i64) -> i64:
    """Remove expired jobs, except those that run; return when to sweep next."""
    ttl_ms = ttl_of(config_of(queue))
    jobs_by_seq = jobs_by_seq_of(queue)
    oldest = jobs_by_seq.oldest()
    if oldest is None or ttl_ms == 0:
        return NEVER_MS
    seq: i64 = oldest.key - 1
    next_ms: i64 = NEVER_MS
    left: i64 = _RING_MAX
    while next_ms > now_ms:
        jobs = jobs_by_seq.after(seq, _SLICE)
        if not jobs:
            break
        for job in jobs:
            seq = job.key
            if job.created_ms + ttl_ms > now_ms:
                # A job from before the clock was set back expires late: wait at most the TTL.
                return min(next_ms, min(job.created_ms, now_ms) + ttl_ms)
            if job.state == GONE:
                # Removed with a job before it, for which it waited.
                continue
            if job.state == LEASED:
                next_ms = min(next_ms, now_ms + _AGAIN_MS)
            elif left == 0 or not _outlived(yard, job, now_ms):
                return now_ms + (0 if left == 0 else _AGAIN_MS)
            else:
                left -= 1
    return next_ms


def _outlived(yard: Yard, job: Job, now_ms: i64) -> bool:
    """Remove an expired job; False if the disk has no room for the record."""
    try:
        erase(yard, job, now_ms)
    except (YardFull, StorageFull):
        return False
    queue = job.queue
    topic_state = topic_state_of(queue)
    topic_state.ttl_floor = max(topic_state.ttl_floor, job.key + 1)
    remember_floors(yard, queue)
    return True
