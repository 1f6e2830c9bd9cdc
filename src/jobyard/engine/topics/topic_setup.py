"""What is set up for a queue that is a topic, and what time does to it.

Its configuration, the keys of its writes and the floors below which jobs were evicted are entries
of the journal, so an empty queue survives a restart with all of them, and no seq is given twice.
"""

from typing import Final, final

from librt.strings import BytesWriter, read_i64_le, write_i64_le
from mypy_extensions import i64

from jobyard.engine.jobs.lease_events import hold_tidings, send_tidings
from jobyard.engine.jobs.listing import ALL_STATES, jobs_in, roster_of, seq_of
from jobyard.engine.jobs.low_watermarks import remember_floors
from jobyard.engine.jobs.move import erase
from jobyard.engine.jobs.put import make_way, ttl_of
from jobyard.engine.jobs.queues import drop_if_idle
from jobyard.engine.jobs.subscriptions import drop_audience
from jobyard.engine.jobs.take import cancel_wait
from jobyard.engine.state.tasks import Task
from jobyard.engine.state.timers import Alarm
from jobyard.engine.state.yard import Yard
from jobyard.errors import StorageFull, YardFull
from jobyard.journal.format.record import ENTRY_SIZE
from jobyard.journal.space.live_bytes import queue_bytes
from jobyard.model.entry import CONFIG, COUNTED, FLOORS, WRITE, Entry
from jobyard.model.index.recent_keys import RecentKeys
from jobyard.model.job import BLOCKED, GONE, LEASED, Job
from jobyard.model.limits import NEVER_MS
from jobyard.model.queue import NODE, Queue, Waiter
from jobyard.model.topic.config import DISCARD_OLD, FSYNC, QUEUE, TopicConfig, decode_config
from jobyard.model.topic.state import Stock, Write

# Keys of writes whose time is over that one write forgets; others are forgotten by the next.
_KEYS_FORGOTTEN: Final = 64
# Keys of writes that are remembered for a queue; beyond these the oldest goes.
WRITES_MAX: Final = 100_000

# Work to forget one of them, in units of a task.
_FORGET_UNITS: Final = 2

# Jobs that are looked at together.
_SLICE: Final = 1024

# Jobs that one ring of an alarm lets go; a full disk and what runs is looked at again later.
_RING_MAX: Final = 500
_AGAIN_MS: Final = 1000


def config_of(queue: Queue) -> TopicConfig:
    """Return the configuration of a queue, to look at only."""
    config = queue.config
    return _DEFAULTS if config is None else config


def _default_config() -> TopicConfig:
    config = TopicConfig()
    config.type = QUEUE
    return config


_DEFAULTS: Final = _default_config()


def open_topic_queue(yard: Yard, name: str, config: TopicConfig, now_ms: i64) -> Queue:
    """Make a queue, or configure the one that is there; YardFull changes nothing."""
    queue = yard.queues.get(name)
    if queue is None:
        queue = Queue(name)
    set_queue_config(yard, queue, config, now_ms)
    return queue


def set_queue_config(yard: Yard, queue: Queue, config: TopicConfig, now_ms: i64) -> None:
    """Replace the configuration of a queue; what may not stay by it goes, where that is asked."""
    journal = yard.journal
    if journal.is_on:
        key = queue.name.encode()
        value = config.encode()
        room: i64 = ENTRY_SIZE + len(key) + len(value) + 4 * queue_bytes(queue)
        if not journal.admit(room, now_ms):
            raise YardFull
        if queue.number == 0:
            # Even without a job: seqs of a queue that had this name before must not count.
            journal.append_queue(queue, key)
        elif queue.config is None:
            # How far its seqs have come is told from here on, whatever becomes of its jobs.
            journal.append_name(queue, key)
        journal.set_entry(CONFIG, key, value)
    yard.queues[queue.name] = queue
    _configure(yard, queue, config, now_ms)
    if config.discard == DISCARD_OLD:
        try:
            make_way(yard, queue, 0, 0, 0, now_ms)
        except YardFull:
            # The next write finds the room, or is refused.
            return


def _configure(yard: Yard, queue: Queue, config: TopicConfig, now_ms: i64) -> None:
    queue.config = config
    queue.is_synced = config.durability == FSYNC
    stock = stock_of(queue)
    oldest = roster_of(queue).oldest()
    alarm = stock.alarm
    if config.ttl_ms == 0:
        if alarm is not None:
            yard.disarm(alarm)
            stock.alarm = None
        return
    if alarm is None:
        alarm = Sunset(yard, queue)
        stock.alarm = alarm
    if oldest is not None:
        yard.arm(alarm, max(now_ms, min(oldest.created_ms, now_ms) + ttl_of(config)))


def stock_of(queue: Queue) -> Stock:
    """Return the topic side of a queue, making it on first use."""
    stock = queue.stock
    if stock is None:
        stock = Stock()
        queue.stock = stock
    return stock


def drop_topic_queue(yard: Yard, queue: Queue, now_ms: i64) -> None:
    """Remove a queue with all its jobs and its configuration; a later one begins at seq 1."""
    number = queue.number
    hold_tidings(yard)
    try:
        _wipe(yard, queue, now_ms)
    finally:
        send_tidings(yard, now_ms)
    journal = yard.journal
    stock = stock_of(queue)
    if stock.writes.count() > 0:
        yard.tasks.begin(WritesForgotten(yard, number, stock.writes), None, now_ms)
    if stock.alarm is not None:
        yard.disarm(stock.alarm)
    if journal.is_on:
        journal.drop_entry(CONFIG, queue.name.encode())
        journal.drop_entry(FLOORS, queue.name.encode())
        journal.drop_entry(COUNTED, queue.name.encode())
    queue.is_counted = False
    queue.config = None
    queue.is_synced = False
    queue.stock = None
    queue.roster = None
    # Who still uses the queue at another door goes on with it under a new number.
    journal.retire_queue(queue)
    queue.number = 0
    queue.next_seq = 1
    queue.seq_limit = 1
    queue.limit_before = 1
    queue.limit_batch = 0
    if isinstance(stock.cohort, Alarm):
        yard.disarm(stock.cohort)
        stock.cohort.ring(now_ms)
    for waiter in _waiters(queue):
        cancel_wait(yard, waiter)
        waiter.book.holder.waited_enough(waiter, is_deadline_soon=False)
    drop_audience(yard, queue)
    if yard.queues.get(queue.name) is queue:
        drop_if_idle(yard, queue)


def _wipe(yard: Yard, queue: Queue, now_ms: i64) -> None:
    # Those that wait for others go first: so no removal of a child moves its parent.
    for job in jobs_in(queue, frozenset((BLOCKED,))):
        erase(yard, job, now_ms)
    for job in sorted(jobs_in(queue, ALL_STATES), key=seq_of):
        if job.state != GONE:
            erase(yard, job, now_ms)


def _waiters(queue: Queue) -> list[Waiter]:
    """Return those who wait at the door of topics."""
    found: list[Waiter] = []
    link = queue.first_link
    while link is not None:
        if link.waiter.terms.proof == NODE:
            found.append(link.waiter)
        link = link.after
    return found


def load_topic_queues(yard: Yard, now_ms: i64) -> None:
    """Configure again what was configured before the last stop, and recall keys and floors."""
    writes: list[Entry] = []
    for entry in yard.journal.entries.values():
        if entry.is_gone:
            continue
        if entry.kind == CONFIG:
            _load_config(yard, entry, now_ms)
        elif entry.kind == FLOORS:
            stock_of(_queue_named(yard, entry.key.decode())).fill_floors(entry.value)
        elif entry.kind == WRITE:
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
    """Return a queue for which something is remembered, so that it lives even without jobs."""
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
    write = Write(read_i64_le(value, 0), read_i64_le(value, 8), until_ms, 0)
    stock_of(queue).writes.put(key, write)


def _until_ms(entry: Entry) -> int:
    return read_i64_le(entry.value, 16)


# -- keys of writes ---------------------------------------------------------------------------


def known_write(yard: Yard, queue: Queue, key: str, now_ms: i64) -> Write | None:
    """Return the earlier write with a key; those whose time is over are forgotten."""
    writes = stock_of(queue).writes
    for _ in range(_KEYS_FORGOTTEN):
        oldest = writes.oldest()
        if oldest is None or oldest[1].until_ms > now_ms:
            break
        _forget_oldest(yard, queue.number, writes)
    known = writes.get(key)
    # One behind it may have been made while the window was shorter.
    return known if known is not None and known.until_ms > now_ms else None


def remember_write(
    yard: Yard, queue: Queue, key: str, first_seq: i64, count: i64, now_ms: i64
) -> None:
    """Remember a write that is about to be made; room was made for its entry."""
    window_ms = min(config_of(queue).idempotency_window_ms, NEVER_MS // 2)
    if window_ms == 0:
        return
    until_ms: i64 = now_ms + window_ms
    journal = yard.journal
    writes = stock_of(queue).writes
    if writes.count() >= WRITES_MAX:
        _forget_oldest(yard, queue.number, writes)
    if journal.is_on:
        if queue.number == 0:
            journal.append_queue(queue, queue.name.encode())
        out = BytesWriter()
        write_i64_le(out, first_seq)
        write_i64_le(out, count)
        write_i64_le(out, until_ms + journal.wall_offset_ms)
        journal.set_entry(WRITE, _write_key(queue.number, key), out.getvalue())
    batch = journal.open_number if journal.is_on else 0
    writes.put(key, Write(first_seq, count, until_ms, batch))


def _forget_oldest(yard: Yard, number: i64, writes: RecentKeys[Write]) -> bool:
    """Forget the oldest write of a queue: its time is over, or its queue goes; False if none.

    No record says so. A restart may find it again, or an older write with this key: the time of
    both is over then too, for a key is used again only after that, or no queue has their number.
    """
    oldest = writes.oldest()
    if oldest is None:
        return False
    writes.remove_oldest()
    entry = yard.journal.entries.get((WRITE, _write_key(number, oldest[0])))
    if entry is not None:
        yard.journal.forget_entry(entry)
    return True


@final
class WritesForgotten(Task):
    """Forgets the writes with a key to a queue that was removed."""

    def __init__(self, yard: Yard, number: i64, writes: RecentKeys[Write]) -> None:
        super().__init__()
        self._yard = yard
        # A later queue of the same name has another.
        self._number = number
        self._writes = writes

    def step(self, most: i64, now_ms: i64) -> i64:  # noqa: ARG002  nothing is left to be told
        """Forget some."""
        done: i64 = 0
        while done < most and _forget_oldest(self._yard, self._number, self._writes):
            done += _FORGET_UNITS
        return done


def _write_key(number: i64, key: str) -> bytes:
    return f"{int(number)}\0{key}".encode()


# -- time to live -----------------------------------------------------------------------------


@final
class Sunset(Alarm):
    """Rings when the oldest job of a queue has outlived its time."""

    def __init__(self, yard: Yard, queue: Queue) -> None:
        super().__init__(yard.new_number(), NEVER_MS, 0)
        self._yard = yard
        self._queue = queue

    def ring(self, now_ms: i64) -> None:
        """Let go what is too old."""
        next_ms = sweep_old(self._yard, self._queue, now_ms)
        if next_ms < NEVER_MS:
            # What is left is for the next turn.
            self._yard.arm(self, max(next_ms, now_ms + 1))


def sweep_old(yard: Yard, queue: Queue, now_ms: i64) -> i64:
    """Remove jobs that outlived their time, but for those that run; return when to come again."""
    ttl_ms = ttl_of(config_of(queue))
    roster = roster_of(queue)
    oldest = roster.oldest()
    if oldest is None or ttl_ms == 0:
        return NEVER_MS
    seq: i64 = oldest.key - 1
    next_ms: i64 = NEVER_MS
    left: i64 = _RING_MAX
    while next_ms > now_ms:
        jobs = roster.after(seq, _SLICE)
        if not jobs:
            break
        for job in jobs:
            seq = job.key
            if job.created_ms + ttl_ms > now_ms:
                # One made before the clock was set back may leave long before its time is over.
                return min(next_ms, min(job.created_ms, now_ms) + ttl_ms)
            if job.state == GONE:
                # With one before it, for which it waited.
                continue
            if job.state == LEASED:
                next_ms = min(next_ms, now_ms + _AGAIN_MS)
            elif left == 0 or not _outlived(yard, job, now_ms):
                return now_ms + (0 if left == 0 else _AGAIN_MS)
            else:
                left -= 1
    return next_ms


def _outlived(yard: Yard, job: Job, now_ms: i64) -> bool:
    """Remove a job whose time is over; False on a disk without room to say so."""
    try:
        erase(yard, job, now_ms)
    except (YardFull, StorageFull):
        return False
    queue = job.queue
    stock = stock_of(queue)
    stock.ttl_floor = max(stock.ttl_floor, job.key + 1)
    remember_floors(yard, queue)
    return True
