"""The verbs by which a job leaves a queue for a holder, now or when one comes.

A job taken is leased: it belongs to one book until its run ends by a verb of `end`. Several queues
are searched for the least (rank, stamp); who waits is served first come first served per queue.
Where many wait and many jobs come, they are served over turns; who comes meanwhile gets none of the
jobs that those in line are still to get.
"""

from typing import Final, final

from mypy_extensions import i64

from jobyard.engine.jobs import dead_letters
from jobyard.engine.jobs.durable_leases import keep_lease, see_to_room
from jobyard.engine.jobs.low_watermarks import remember_floors
from jobyard.engine.state import bus
from jobyard.engine.state.admission import next_open_ms, open_head, passed, shelf_head
from jobyard.engine.state.placement import reopen, stand, step_down
from jobyard.engine.state.tasks import Task
from jobyard.engine.state.yard import Yard, abs_stamp
from jobyard.errors import NotFound, StorageFull
from jobyard.journal.damage import CORRUPT as CORRUPT_TEXT
from jobyard.journal.format.record import CORRUPT, DUE_SET, FAILED, RANKED
from jobyard.model.details import DAMAGED, REASON, TTL_OVER, Extra, Fields
from jobyard.model.family import (
    LEASE_OF_TOPIC,
    LOCK_DURATION,
    OWN_TTR,
    PLACE_IS_ENTRY,
    TTL_IS_DEATH,
    traits,
)
from jobyard.model.job import DEAD, DELAYED, READY, Job
from jobyard.model.limits import NEVER_MS
from jobyard.model.queue import CONNECTION, LISTED, Book, Lease, Link, Queue, Terms, Waiter
from jobyard.model.throttle.ordering_group import lane_of
from jobyard.model.throttle.ready_lists import STREAM
from jobyard.model.throttle.settings import DEFAULTS
from jobyard.model.topic.config import LEASE_MS_DEFAULT, TopicConfig
from jobyard.model.transition import End

# How long a job of another family is leased to a beanstalk client that cannot say.
FOREIGN_TTR_MS: Final = 30_000

# What it takes to hand a job to one who waits, answer included.
SERVE_UNITS: Final = 4

# Where one queue is named.
_NO_QUEUES: Final[list[Queue]] = []

# A dead letter that finds no room is tried again after this.
LETTER_WAIT_MS: Final = 1000


def head_of(queue: Queue, now_ms: i64) -> Job | None:
    """Return the job that would leave the queue next."""
    if queue.pause_until_ms > now_ms:
        return None
    if queue.rules is not None:
        return open_head(queue, queue.rules, now_ms)
    ready = queue.ready.items
    if not ready:
        return None
    job = ready[0]
    assert isinstance(job, Job)
    return job


def best_job(queues: list[Queue], now_ms: i64) -> Job | None:
    """Return the job with the least (rank, stamp) that may leave any of the queues."""
    best: Job | None = None
    for queue in queues:
        head = head_of(queue, now_ms)
        if head is None:
            continue
        if best is None or (
            head.sort_key < best.sort_key
            or (head.sort_key == best.sort_key and head.stamp < best.stamp)
        ):
            best = head
    return best


def take(yard: Yard, queues: list[Queue], book: Book, terms: Terms, now_ms: i64) -> Lease | None:
    """Lease the first ready job of the open queues to the holder of `book`."""
    return _take_first(yard, _open_queues(yard, queues, now_ms), None, 0, book, terms, now_ms)


def _take_first(
    yard: Yard,
    queues: list[Queue],
    shelved: Queue | None,
    shelf: i64,
    book: Book,
    terms: Terms,
    now_ms: i64,
) -> Lease | None:
    """Lease the first ready job of some queues, or of one shelf of one queue."""
    aside: list[Job] | None = None
    try:
        while True:
            job = best_job(queues, now_ms) if shelved is None else _head_on(shelved, shelf, now_ms)
            if job is None:
                return None
            if _must_go(yard, job, now_ms):
                aside = _pass_over(yard, job, aside, now_ms)
                continue
            if job.queue.rules is not None:
                passed(job, job.queue.rules, now_ms)
            if shelved is not None:
                _rename_entry(yard, job, now_ms)
            lease = _lease(yard, job, book, terms, now_ms)
            if lease is not None:
                return lease
    finally:
        if aside is not None:
            for job in aside:
                yard.step_back(job)


def _open_queues(yard: Yard, queues: list[Queue], now_ms: i64) -> list[Queue]:
    """Return the queues from which one who comes now may take a job."""
    is_owed = False
    for queue in queues:
        if queue.rules is not None:
            reopen(yard, queue, now_ms)
        if queue.is_serving:
            is_owed = True
    if not is_owed:
        return queues
    return [queue for queue in queues if not queue.is_serving or queue.has_spare()]


def take_one(yard: Yard, queue: Queue, book: Book, terms: Terms, now_ms: i64) -> Lease | None:
    """Lease the first ready job of one queue to the holder of `book`."""
    if queue.is_serving and not queue.has_spare():
        return None
    if queue.rules is not None:
        reopen(yard, queue, now_ms)
    while True:
        job = head_of(queue, now_ms)
        if job is None:
            return None
        if _must_go(yard, job, now_ms):
            return take(yard, [queue], book, terms, now_ms)
        if queue.rules is not None:
            passed(job, queue.rules, now_ms)
        lease = _lease(yard, job, book, terms, now_ms)
        if lease is not None:
            return lease


def take_from(
    yard: Yard, queue: Queue, shelf: i64, book: Book, terms: Terms, now_ms: i64
) -> Lease | None:
    """Lease the first ready job of one shelf of a queue to the holder of `book`."""
    if queue.pause_until_ms > now_ms or (queue.is_serving and not queue.has_spare()):
        return None
    if queue.rules is not None:
        reopen(yard, queue, now_ms)
    return _take_first(yard, _NO_QUEUES, queue, shelf, book, terms, now_ms)


def _head_on(queue: Queue, shelf: i64, now_ms: i64) -> Job | None:
    rules = queue.rules
    if rules is not None:
        return shelf_head(queue, rules, shelf, now_ms)
    return head_of(queue, now_ms) if shelf == STREAM else None


def _rename_entry(yard: Yard, job: Job, now_ms: i64) -> None:
    """Let a job that somebody lost to a restart be known by another entry, once it is taken again.

    Who lost it knows it by the old one, and may no more end what is another's. It stays on its
    shelf: in its lane others may stand before it.
    """
    is_named = traits(job.family) & PLACE_IS_ENTRY != 0 and job.deliveries > 0
    if not is_named or abs_stamp(job.stamp) > yard.boot_stamp:
        return
    move = End(job, RANKED, READY)
    move.stamp = yard.stamp(now_ms)
    try:
        if yard.journal.is_on:
            yard.journal.append_move(job, move, now_ms)
    except StorageFull:
        # It goes under its old name: there is no room to remember another.
        return
    step_down(yard, job)
    job.stamp = move.stamp
    stand(yard, job)
    if job.queue.roster is not None:
        job.queue.roster.note_moved(job)
    if job.extra is not None:
        yard.apply_news(job, b"")


def _must_go(yard: Yard, job: Job, now_ms: i64) -> bool:
    """Tell whether a job is not to be taken: it outlived its time, or was taken too often."""
    ttl_ms = job.policy.ttl_ms
    if ttl_ms > 0 and now_ms >= job.created_ms + ttl_ms:
        return True
    config = job.queue.config
    if config is None:
        return False
    return _is_old(job, config, now_ms) or (
        dead_letters.is_spent(job, config) and dead_letters.may_send(yard, job)
    )


def _is_old(job: Job, config: TopicConfig, now_ms: i64) -> bool:
    return 0 < config.ttl_ms <= now_ms - job.created_ms


def _pass_over(yard: Yard, job: Job, aside: list[Job] | None, now_ms: i64) -> list[Job] | None:
    """Let a job go that must, or let others pass it where it cannot go.

    For one whose time is over others may wait: its alarm is due and tells them. They may have to be
    served, which cannot be done from within serving, and on a full disk they are told only later.
    """
    ttl_ms = job.policy.ttl_ms
    config = job.queue.config
    is_old = config is not None and _is_old(job, config, now_ms)
    if is_old or (ttl_ms > 0 and now_ms >= job.created_ms + ttl_ms):
        if traits(job.family) & TTL_IS_DEATH and not is_old:
            if _is_laid(yard, job, now_ms):
                return aside
        elif not yard.names.dependents.has(int(job.id)):
            let_go(yard, job, now_ms)
            if is_old:
                _raise_floor(yard, job)
            return aside
    elif dead_letters.send(yard, job, now_ms) or _put_off(yard, job, now_ms):
        return aside
    yard.step_aside(job)
    if aside is None:
        return [job]
    aside.append(job)
    return aside


def _put_off(yard: Yard, job: Job, now_ms: i64) -> bool:
    """Delay a job that should be a dead letter and cannot be one yet; False on a full disk."""
    move = End(job, DUE_SET, DELAYED)
    move.due_ms = now_ms + LETTER_WAIT_MS
    try:
        if yard.bodies.fetch(job) is None:
            _set_aside(yard, job, now_ms)
        else:
            yard.move(job, move, now_ms)
    except StorageFull:
        return False
    return True


def let_go(yard: Yard, job: Job, now_ms: i64) -> None:
    """Remove a job, and tell those who listen; who waits for it is not told."""
    before = job.state
    lease = job.lease
    yard.counters.of(job).removed += 1
    yard.drop(job, now_ms)
    job.queue.finished_count += 1
    if yard.bus.is_on and yard.bus.hears(job.queue):
        event = bus.Event(bus.REMOVED, job.queue, job, now_ms)
        event.before = "delayed" if before == DELAYED else "waiting"
        yard.bus.tell(event)
    if lease is not None and lease.book.is_watched:
        tell_holder(yard, lease, now_ms)


def _is_laid(yard: Yard, job: Job, now_ms: i64) -> bool:
    """Let a job be dead that outlived its time; False on a full disk."""
    try:
        lay_expired(yard, job, now_ms)
    except StorageFull:
        return False
    return True


def lay_expired(yard: Yard, job: Job, now_ms: i64) -> None:
    """Let a job of glide-mq be dead whose time to live is over; its parent waits on."""
    if job.state == DELAYED and job.due_ms <= now_ms:
        # Its delay ended first, as a replay will find.
        yard.delay_over(job)
    move = End(job, FAILED, DEAD)
    fields = Fields()
    fields.numbers(REASON, (TTL_OVER,), b"expired")
    move.news = fields.done()
    job.more()
    yard.move(job, move, now_ms)
    if yard.bus.is_on:
        event = bus.Event(bus.FAILED, job.queue, job, now_ms)
        event.error = "expired"
        event.reason = TTL_OVER
        event.is_final = True
        event.is_dead = True
        yard.bus.tell(event)


def _raise_floor(yard: Yard, job: Job) -> None:
    """Remember of a queue that is a topic that a job of it outlived its time."""
    queue = job.queue
    stock = queue.stock
    if stock is not None and job.key >= stock.ttl_floor:
        stock.ttl_floor = job.key + 1
        remember_floors(yard, queue)


def tell_holder(yard: Yard, lease: Lease, now_ms: i64) -> None:
    """Tell a holder that a lease of its watched book is over, now or when the verb is through."""
    if yard.ended is not None:
        yard.ended.append(lease)
    else:
        lease.book.holder.lease_ended(lease, now_ms)


def take_job(yard: Yard, job_id: i64, book: Book, terms: Terms, now_ms: i64) -> Lease:
    """Lease one given job that waits for no other, even if it is delayed, dead or paused."""
    job = yard.jobs.get(job_id)
    if job is None or job.state not in (READY, DELAYED, DEAD):
        raise NotFound
    config = job.queue.config
    if (
        config is not None
        and dead_letters.is_spent(job, config)
        and dead_letters.send(yard, job, now_ms)
    ):
        raise NotFound
    if job.state == DEAD and job.extra is not None and job.extra.open_count() > 0:
        # It waits for others still: kicked, it waits on or learns what became of them.
        raise NotFound
    lease = _lease(yard, job, book, terms, now_ms)
    if lease is None:
        raise NotFound
    return lease


def _lease(yard: Yard, job: Job, book: Book, terms: Terms, now_ms: i64) -> Lease | None:
    """Lease a job, or bury it and return None when its body cannot be read back.

    YardFull changes nothing: a lease that is to outlive the server could not be noted.
    """
    body = job.body
    if body is None:
        body = yard.bodies.fetch(job)
        if body is None:
            _set_aside(yard, job, now_ms)
            return None
    if terms.is_kept:
        see_to_room(yard, job, terms.label)
    yard.leases_issued += 1
    is_own = terms.proof == CONNECTION and traits(job.family) & OWN_TTR != 0
    ttl_ms: i64 = job.own_ms if is_own else lease_ms(job, terms)
    lease = Lease(yard.leases_issued, job, book, now_ms, ttl_ms, terms, body)
    timeout_ms = job.policy.timeout_ms
    if timeout_ms > 0:
        lease.sort_key = min(lease.sort_key, now_ms + timeout_ms)
    if yard.journal.is_on:
        yard.journal.append_lease(lease)
    yard.counters.at(i64(job.family), terms.door).taken += 1
    yard.apply_taken(job, lease)
    if terms.proof != LISTED:
        job.queue.taken_stamp = job.stamp
    extra = job.extra
    if extra is not None:
        extra.last_lease = 0
        _look_behind(yard, job.queue, extra, now_ms)
    if terms.is_kept or lease.taken_from == DEAD:
        _take_note(yard, lease)
    if yard.bus.is_wide:
        # Who listens to one queue alone does not care.
        yard.bus.tell(bus.Event(bus.PULLED, job.queue, job, now_ms))
    return lease


def _take_note(yard: Yard, lease: Lease) -> None:
    if lease.taken_from == DEAD:
        _left_dead(yard, lease.job)
    if lease.terms.is_kept:
        keep_lease(yard, lease)


def _left_dead(yard: Yard, job: Job) -> None:
    if job.queue.roster is not None:
        job.queue.roster.note_moved(job)
    if job.trail != 0:
        # It weighs less without its ending, wherever that was told: a full disk took no lease.
        ledger = yard.journal.ledger
        ledger.trail(job, ledger.segments[i64(job.trail)])


def _look_behind(yard: Yard, queue: Queue, extra: Extra, now_ms: i64) -> None:
    """See that who waits gets the next of a lane, which may stand on the shelf at which they wait.

    With the next tick: this may be within serving them.
    """
    if queue.first_link is not None and lane_of(extra) is not None:
        yard.arm(queue, now_ms)


def lease_ms(job: Job, terms: Terms) -> i64:
    """Return how long a lease lasts: by the taker's door, then by the job, then by its queue."""
    if terms.proof == CONNECTION:
        return ttr_ms(job)
    if terms.ttl_ms > 0:
        return terms.ttl_ms
    if traits(job.family) & OWN_TTR:
        return job.own_ms
    rules = job.queue.rules
    settings = DEFAULTS if rules is None else rules.settings
    if not settings.stalls_on:
        return NEVER_MS // 2
    stall_ms = job.policy.stall_ms
    return (stall_ms if stall_ms > 0 else settings.stall_ms) + settings.stall_grace_ms


def ttr_ms(job: Job) -> i64:
    """Return how long a beanstalk client may work on a job."""
    if traits(job.family) & OWN_TTR:
        return job.own_ms
    if traits(job.family) & LEASE_OF_TOPIC:
        config = job.queue.config
        return LEASE_MS_DEFAULT if config is None else config.lease_ms
    wished_ms = job.policy.stall_ms if traits(job.family) & LOCK_DURATION else job.policy.timeout_ms
    return wished_ms if wished_ms > 0 else FOREIGN_TTR_MS


def _set_aside(yard: Yard, job: Job, now_ms: i64) -> None:
    """Bury a job whose body is damaged on disk, so that it is seen and nobody gets wrong bytes."""
    if job.state == DEAD:
        return
    move = End(job, CORRUPT, DEAD)
    fields = Fields()
    fields.numbers(REASON, (DAMAGED,), CORRUPT_TEXT.encode())
    move.news = fields.done()
    job.more()
    yard.move(job, move, now_ms)
    if yard.bus.is_on:
        event = bus.Event(bus.FAILED, job.queue, job, now_ms)
        event.error = CORRUPT_TEXT
        event.reason = DAMAGED
        event.is_final = True
        event.is_dead = True
        yard.bus.tell(event)


def wait(
    yard: Yard, queues: list[Queue], book: Book, terms: Terms, until_ms: i64, soon_ms: i64
) -> Waiter:
    """Stand in line at every queue until served, until `until_ms`, or until `soon_ms`."""
    waiter = Waiter(yard.new_number(), book, terms, until_ms, soon_ms)
    for queue in queues:
        queue.link(waiter)
        if queue.rules is not None:
            arm_gate(yard, queue, yard.now_ms)
    yard.timers.push(waiter)
    return waiter


def cancel_wait(yard: Yard, waiter: Waiter) -> None:
    """Leave every line."""
    yard.disarm(waiter)
    for link in waiter.links:
        link.queue.unlink(link)
    waiter.links.clear()


def offer(yard: Yard, queue: Queue, now_ms: i64) -> None:
    """Hand ready jobs to those who wait at the queue, for as long as there are both.

    Where these are many, the first get theirs now, and the others in the turns that follow.
    """
    if queue.is_serving:
        return
    if _serve(yard, queue, yard.tasks.served_at_once, now_ms):
        queue.is_serving = True
        yard.tasks.follow(Serving(yard, queue))


def _serve(yard: Yard, queue: Queue, most: i64, now_ms: i64) -> bool:
    """Hand out about `most` jobs; True if there may be more jobs and more who wait for them."""
    up_to = yard.leases_issued + most
    sighted: i64 = 0
    while True:
        link = queue.first_link
        if link is None or (not queue.ready.items and queue.held_count == 0):
            return False
        if yard.leases_issued + sighted >= up_to:
            return True
        waiter = link.waiter
        lease: Lease | None = None
        if waiter.is_stream_only:
            sighted += 1
            if not _offer_stream(yard, queue, link, now_ms):
                return False
            continue
        if not waiter.is_scout:
            lease = take_one(yard, queue, waiter.target, waiter.terms, now_ms)
        elif head_of(queue, now_ms) is not None:
            sighted += 1
            cancel_wait(yard, waiter)
            waiter.book.holder.sighted(waiter, now_ms)
            continue
        if lease is None:
            if queue.rules is not None:
                arm_gate(yard, queue, now_ms)
            return False
        cancel_wait(yard, waiter)
        waiter.book.holder.given(waiter, lease)


@final
class Serving(Task):
    """Serves a long line of clients that wait, in order."""

    def __init__(self, yard: Yard, queue: Queue) -> None:
        super().__init__()
        self._yard = yard
        self._queue = queue

    def step(self, most: i64, now_ms: i64) -> i64:
        """Serve some of them."""
        queue = self._queue
        # Not for those who are served now: they take what they are given.
        queue.is_serving = False
        count = max(1, most // SERVE_UNITS)
        queue.is_serving = _serve(self._yard, queue, count, now_ms)
        return most if queue.is_serving else 0


def _offer_stream(yard: Yard, queue: Queue, link: Link | None, now_ms: i64) -> bool:
    """Serve the first who can be of a line that begins with one for the stream alone.

    One of those must not hide a job on another shelf from who stands behind it.
    """
    while link is not None:
        waiter = link.waiter
        lease: Lease | None = None
        if waiter.is_stream_only:
            lease = take_from(yard, queue, STREAM, waiter.target, waiter.terms, now_ms)
        elif waiter.is_scout:
            if head_of(queue, now_ms) is None:
                break
            cancel_wait(yard, waiter)
            waiter.book.holder.sighted(waiter, now_ms)
            return True
        else:
            lease = take_one(yard, queue, waiter.target, waiter.terms, now_ms)
            if lease is None:
                break
        if lease is not None:
            cancel_wait(yard, waiter)
            waiter.book.holder.given(waiter, lease)
            return True
        link = link.after
    if queue.rules is not None:
        arm_gate(yard, queue, now_ms)
    return False


def arm_gate(yard: Yard, queue: Queue, now_ms: i64) -> None:
    """Look again when a limit of the rate lets the next job pass."""
    rules = queue.rules
    assert rules is not None
    at_ms = next_open_ms(queue, rules, now_ms)
    if at_ms < NEVER_MS:
        yard.arm(queue, max(at_ms, now_ms + 1))
