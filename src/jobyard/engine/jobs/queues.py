"""The verbs for queues, which exist from their first user or job to their last."""

from mypy_extensions import i64

from jobyard.engine.jobs.take import offer
from jobyard.engine.state import bus
from jobyard.engine.state.names import rules_of
from jobyard.engine.state.yard import Yard
from jobyard.model.entry import EntryKind
from jobyard.model.queue import Queue
from jobyard.model.throttle.settings import DEFAULTS, Bucket, Group, Rules, Settings
from jobyard.model.topic.config import BARRED, EVENTS_TOPIC


def open_queue(yard: Yard, name: str) -> Queue:
    """Return the queue of that name; create it if needed. One with the name of a log is barred."""
    queue = yard.queues.get(name)
    if queue is None:
        queue = Queue(name)
        yard.queues[name] = queue
        if name in yard.logs or (name == EVENTS_TOPIC and yard.journal.history.is_on):
            queue.config = BARRED
    return queue


def hold_user(queue: Queue) -> None:
    """Count a connection that puts here."""
    queue.users_count += 1


def drop_user(yard: Yard, queue: Queue) -> None:
    """Uncount a connection that puts here."""
    queue.users_count -= 1
    drop_if_idle(yard, queue)


def hold_watch(queue: Queue) -> None:
    """Count a connection that takes from here."""
    queue.watchers_count += 1


def drop_watch(yard: Yard, queue: Queue) -> None:
    """Uncount a connection that takes from here."""
    queue.watchers_count -= 1
    drop_if_idle(yard, queue)


def drop_if_idle(yard: Yard, queue: Queue) -> None:
    """Drop a queue that is empty and not referred to, with its counters."""
    if queue.frees_before > 0:
        # A grave (`obliterate.py`) has no name in the yard.
        return
    if (
        queue.users_count > 0
        or queue.watchers_count > 0
        or queue.is_pinned
        or queue.is_counted
        or (queue.config is not None and queue.config is not BARRED)
        or queue.jobs_count() > 0
        or (queue.rules is not None and is_ruled(queue.rules))
        or queue.subscriptions is not None
    ):
        return
    yard.disarm(queue)
    if queue.sweep is not None:
        yard.disarm(queue.sweep)
    yard.journal.retire_queue(queue)
    del yard.queues[queue.name]


def keep_counting(yard: Yard, queue: Queue) -> None:
    """Keep the seqs of a queue rising even if it is empty; the caller has reserved the room."""
    if yard.journal.is_on:
        yard.journal.set_entry(EntryKind.COUNTED, queue.name.encode(), b"")
    queue.is_counted = True


def stop_counting(yard: Yard, queue: Queue) -> None:
    """Restart the seqs of a queue once it is empty."""
    if queue.is_counted:
        queue.is_counted = False
        if yard.journal.is_on:
            yard.journal.drop_entry(EntryKind.COUNTED, queue.name.encode())
        drop_if_idle(yard, queue)


def is_ruled(rules: Rules) -> bool:
    """Return whether anything is set that must outlast the last job of a queue."""
    return len(rules.groups) > 0 or rules.settings.encode() != DEFAULTS.encode()


def settings_of(queue: Queue) -> Settings:
    """Return the settings of a queue, for reading only."""
    rules = queue.rules
    return DEFAULTS if rules is None else rules.settings


def set_settings(yard: Yard, queue: Queue, settings: Settings, now_ms: i64) -> None:
    """Replace the settings of a queue, and serve clients that the old ones held up."""
    rules = rules_of(queue)
    was_paused = rules.settings.is_paused
    if yard.journal.is_on:
        key = queue.name.encode()
        if settings.encode() != DEFAULTS.encode():
            yard.journal.set_entry(EntryKind.SETTINGS, key, settings.encode())
        else:
            yard.journal.drop_entry(EntryKind.SETTINGS, key)
    apply_settings(queue, settings, now_ms, is_new=True)
    if was_paused != settings.is_paused and yard.bus.is_on:
        kind = bus.EventName.PAUSED if settings.is_paused else bus.EventName.RESUMED
        yard.bus.publish(bus.Event(kind, queue, None, now_ms))
    _serve_held_up(yard, queue, now_ms)
    drop_if_idle(yard, queue)


def apply_settings(queue: Queue, settings: Settings, now_ms: i64, *, is_new: bool) -> None:
    """Apply settings; a rate limit starts with a full bucket if it is new, else an empty one."""
    rules = rules_of(queue)
    old = rules.settings
    rules.settings = settings
    if settings.rate_most < 0:
        rules.bucket = None
    elif (
        rules.bucket is None
        or old.rate_most != settings.rate_most
        or old.rate_ms != settings.rate_ms
    ):
        rules.bucket = Bucket(settings.rate_most, settings.rate_ms)
        if is_new:
            rules.bucket.fill(now_ms)
        else:
            rules.bucket.begin(now_ms)


def copy_settings(queue: Queue) -> Settings:
    """Return a copy of the settings of a queue, to be changed and set."""
    settings = Settings()
    settings.fill(settings_of(queue).encode())
    return settings


def group_key(queue: Queue, group: Group) -> bytes:
    """Return the key of a group's settings in the journal."""
    return f"{queue.name}\0{group.name}".encode()


def set_group(yard: Yard, queue: Queue, group: Group, now_ms: i64) -> None:
    """Store a changed group, and serve clients that its old settings held up."""
    if yard.journal.is_on:
        if group.is_plain():
            yard.journal.drop_entry(EntryKind.GROUP, group_key(queue, group))
        else:
            yard.journal.set_entry(EntryKind.GROUP, group_key(queue, group), group.encode())
    rules_of(queue).forget_idle(group)
    offer(yard, queue, now_ms)


def _serve_held_up(yard: Yard, queue: Queue, now_ms: i64) -> None:
    """Serve clients that a pause or a limit may have held up."""
    offer(yard, queue, now_ms)
    if queue.subscriptions is not None:
        queue.subscriptions.wake()


def pause(yard: Yard, queue: Queue, length_ms: i64, now_ms: i64) -> None:
    """Pause a queue for a time; a new pause replaces the old one, zero ends it."""
    queue.pause_ms = length_ms
    queue.pause_until_ms = now_ms + length_ms
    queue.pauses_count += 1
    if length_ms == 0:
        _serve_held_up(yard, queue, now_ms)
    else:
        yard.arm(queue, queue.pause_until_ms)


def set_paused(yard: Yard, queue: Queue, now_ms: i64, *, is_paused: bool) -> None:
    """Pause a queue until it is resumed; resuming ends a timed pause as well."""
    if not is_paused:
        end_pause(yard, queue, now_ms)
    if settings_of(queue).is_paused != is_paused:
        settings = copy_settings(queue)
        settings.is_paused = is_paused
        set_settings(yard, queue, settings, now_ms)


def end_pause(yard: Yard, queue: Queue, now_ms: i64) -> None:
    """End a timed pause, whichever client paused the queue."""
    if queue.pause_until_ms > now_ms:
        queue.pause_ms = 0
        queue.pause_until_ms = 0
        _serve_held_up(yard, queue, now_ms)
