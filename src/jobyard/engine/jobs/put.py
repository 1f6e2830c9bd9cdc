"""The verbs by which jobs enter a queue: one, or many of which all enter or none.

A session describes what it wants as a `Wish`; here is decided whether the job may enter, or which
job already stands for it.
"""

from typing import Final, final

from mypy_extensions import i64, mypyc_attr, u8

from jobyard.engine.jobs.listing import is_long, roster_of
from jobyard.engine.jobs.low_watermarks import floors_room, remember_floors
from jobyard.engine.jobs.take import let_go, offer
from jobyard.engine.state.bus import DUPLICATED, Event
from jobyard.engine.state.yard import POLICIES_MAX, Yard
from jobyard.errors import NameTaken, StorageFull, YardFull
from jobyard.journal.format.record import ENTRY_SIZE, GONE_SIZE, LONG_BODY_SIZE, PUT_SIZE
from jobyard.journal.journal import Journal
from jobyard.journal.space.live_bytes import queue_bytes
from jobyard.model.ahead import Ahead
from jobyard.model.details import Extra, is_put_blocked, size_of
from jobyard.model.entry import POLICY
from jobyard.model.family import IDS_PER_QUEUE, READY_LISTS, traits
from jobyard.model.index.jobs_by_seq import Roster, weight_of
from jobyard.model.job import BLOCKED, DELAYED, LEASED, READY, Job
from jobyard.model.limits import NEVER_MS, SEQ_BLOCK
from jobyard.model.policy import LIFO, PLAIN, Policy
from jobyard.model.queue import Queue
from jobyard.model.throttle.ready_lists import STACK, STAGED, STREAM
from jobyard.model.topic.config import BARRED, DISCARD_REJECT, TopicConfig
from jobyard.model.topic.log import TopicFull, WriteTooLarge

# Jobs that are looked at together where the oldest have to make way.
_OLDEST: Final = 64


@final
@mypyc_attr(free_list_len=1)
class Wish:
    """What a client asked for beyond queue, body and place in line."""

    def __init__(self, family: u8, codec: u8, body: bytes) -> None:
        self.family: u8 = family
        self.codec: u8 = codec
        self.body: bytes = body
        self.rank: i64 = 0
        self.delay_ms: i64 = 0
        self.own_ms: i64 = 0
        self.policy: Policy = PLAIN
        self.extra: Extra | None = None


def put(  # noqa: PLR0913, PLR0917  the fields of a put are the protocol's
    yard: Yard,
    queue: Queue,
    family: u8,
    codec: u8,
    rank: i64,
    delay_ms: i64,
    own_ms: i64,
    body: bytes,
    now_ms: i64,
) -> Job:
    """Add a plain job, and hand it to the first who waits there; YardFull changes nothing."""
    journal = yard.journal
    size: i64 = len(body)
    if queue.config is not None:
        onward = _onward_room(queue, size)
        make_way(yard, queue, 1, size, size + PUT_SIZE + _name_room(queue) + onward, now_ms)
        if onward > 0:
            make_room(yard, size + PUT_SIZE + _name_room(queue) + onward, now_ms)
    if not yard.bodies.admits(size):
        raise YardFull
    if journal.is_on and not journal.admit(size + _name_room(queue), now_ms):
        raise YardFull
    job = Job(0, queue, 0, 0, rank, now_ms, delay_ms, own_ms, PLAIN, body, size, family, codec)
    enter_made(yard, job, body, now_ms)
    if queue.first_link is not None:
        offer(yard, queue, now_ms)
    return job


def room_for(queue: Queue, wish: Wish) -> i64:
    """Return the most bytes of the journal that the job of a wish takes."""
    size = job_room(wish)
    return size + queue_room(queue, size)


def job_room(wish: Wish) -> i64:
    """Return the most bytes of the journal that the job of a wish takes in any queue."""
    return base_room(wish) + policy_room(wish.policy)


def base_room(wish: Wish) -> i64:
    """Return the same without what tells of its policy."""
    size: i64 = PUT_SIZE + LONG_BODY_SIZE + len(wish.body)
    extra = wish.extra
    if extra is None:
        return size
    return size + (len(extra.ahead) if extra.ahead else size_of(extra))


def policy_room(policy: Policy) -> i64:
    """Return the most bytes of the journal that the first job of a policy takes for that."""
    if policy.number != 0 or policy is PLAIN:
        return 0
    return ENTRY_SIZE + 16 + len(policy.text)


def queue_room(queue: Queue, size: i64) -> i64:
    """Return the most bytes that follow from a job of so many being in this queue."""
    if queue.config is not None:
        return _onward_room(queue, size) + _name_room(queue)
    return _name_room(queue)


def is_told_again(queue: Queue) -> bool:
    """Tell whether other jobs than the first of a queue take more room than they do in any."""
    return queue.config is not None or queue.is_counted


def room_for_all(queue: Queue, wishes: list[Wish], size: i64) -> i64:
    """Return the most bytes that the jobs of some wishes take, which have `size` in any queue."""
    count: i64 = len(wishes)
    room = size + count * _name_room(queue)
    stock = queue.stock
    if queue.config is None or stock is None or stock.onward is None:
        return room
    onward = stock.onward
    at_once = onward.at_once(count)
    if at_once < count:
        room += onward.room(count, size)
    for wish in wishes[:at_once]:
        room += onward.room(1, job_room(wish))
    return room


def _onward_room(queue: Queue, size: i64) -> i64:
    """Return the most bytes of the journal that copies of a job take, where routers lead away."""
    stock = queue.stock
    return 0 if stock is None or stock.onward is None else stock.onward.room(1, size)


def make_room(yard: Yard, size: i64, now_ms: i64) -> None:
    """See that `size` bytes of jobs can be taken in, all in one batch; YardFull if not."""
    if not yard.bodies.admits(size):
        raise YardFull
    if yard.journal.is_on and not yard.journal.admit(size, now_ms):
        raise YardFull


def make_room_in_parts(yard: Yard, size: i64, now_ms: i64) -> None:
    """See that `size` bytes of jobs can be taken in, in several batches; YardFull if not."""
    if not yard.bodies.admits(size):
        raise YardFull
    if yard.journal.is_on and not yard.journal.admit_parts(size, now_ms):
        raise YardFull


def make_way(
    yard: Yard,
    queue: Queue,
    count: i64,
    size: i64,
    room: i64,
    now_ms: i64,
    *,
    may_exceed: bool = False,
) -> None:
    """Let the oldest jobs go where a queue may not hold so many more.

    TopicFull changes nothing, nor does NameTaken, for a queue whose name is that of a log. Where
    more are put than a queue may ever hold, and `may_exceed`, `shed` lets the first of them go.

    `size` is that of bodies and metas, `room` what they need of the journal: made here too, so that
    who goes and who comes stand in one batch.
    """
    config = queue.config
    assert config is not None
    if config is BARRED:
        raise NameTaken(queue.name)
    victims = _victims(yard, queue, config, count, size, may_exceed=may_exceed)
    if config.is_exceeded_by(count, size):
        room += floors_room(queue) + GONE_SIZE * count
        make_room(yard, room + _eviction_room(queue, victims), now_ms)
    if victims:
        make_room(yard, room + _eviction_room(queue, victims), now_ms)
        evict(yard, queue, victims, now_ms)
    stock = queue.stock
    if config.ttl_ms > 0 and stock is not None and stock.alarm is not None:
        yard.arm(stock.alarm, now_ms + ttl_of(config))


def shed(yard: Yard, queue: Queue, count: i64, size: i64, now_ms: i64) -> None:
    """Let the oldest jobs go of a write that was larger than its queue may ever be.

    `make_way` has made room for the records.
    """
    config = queue.config
    if config is None or not config.is_exceeded_by(count, size):
        return
    victims = _victims(yard, queue, config, 0, 0, may_exceed=False)
    if victims:
        evict(yard, queue, victims, now_ms)


def ttl_of(config: TopicConfig) -> i64:
    """Return how long jobs live; what is longer than any timer is as good as for ever."""
    return min(config.ttl_ms, NEVER_MS // 2)


def make_way_for(yard: Yard, queue: Queue, wishes: list[Wish], now_ms: i64) -> None:
    """Let the oldest jobs go for many more of one queue, if it is a topic."""
    if queue.config is None or not wishes:
        return
    size: i64 = 0
    room: i64 = 0
    for wish in wishes:
        size += len(wish.body)
        room += room_for(queue, wish)
    make_way(yard, queue, len(wishes), size, room, now_ms)


def check_way(queue: Queue, count: i64, size: i64) -> None:
    """Refuse so many jobs of so many bytes that a queue may not hold, as `make_way` would."""
    config = queue.config
    assert config is not None
    if config is BARRED:
        raise NameTaken(queue.name)
    too_many, too_long = _excess(queue, config, count, size)
    if too_many > 0 or too_long > 0:
        _refuse_excess(config, count, size, may_exceed=False)


def _victims(
    yard: Yard, queue: Queue, config: TopicConfig, count: i64, size: i64, *, may_exceed: bool
) -> list[Job]:
    """Return the jobs that must go for others: never one that runs, or that others wait for."""
    too_many, too_long = _excess(queue, config, count, size)
    if too_many <= 0 and too_long <= 0:
        return []
    _refuse_excess(config, count, size, may_exceed=may_exceed)
    roster = queue.roster
    assert roster is not None
    return _oldest(yard, roster, too_many, too_long)


def _excess(queue: Queue, config: TopicConfig, count: i64, size: i64) -> tuple[i64, i64]:
    """Return how many jobs and bytes there would be too many."""
    roster = queue.roster
    assert roster is not None
    too_many: i64 = 0
    too_long: i64 = 0
    if config.cap_records > 0:
        too_many = queue.jobs_count() - queue.done.live_count + count - config.cap_records
    if config.cap_bytes > 0:
        too_long = roster.bytes + size - config.cap_bytes
    return too_many, too_long


def _refuse_excess(config: TopicConfig, count: i64, size: i64, *, may_exceed: bool) -> None:
    is_rejecting = config.discard == DISCARD_REJECT
    if config.is_exceeded_by(count, size) and (is_rejecting or not may_exceed):
        raise WriteTooLarge
    if is_rejecting:
        raise TopicFull


def _oldest(yard: Yard, roster: Roster, too_many: i64, too_long: i64) -> list[Job]:
    victims: list[Job] = []
    first = roster.oldest()
    seq: i64 = 0 if first is None else first.key - 1
    while True:
        jobs = roster.after(seq, _OLDEST)
        if not jobs:
            return victims
        for job in jobs:
            seq = job.key
            if job.state == LEASED or yard.names.dependents.has(int(job.id)):
                continue
            victims.append(job)
            too_many -= 1
            too_long -= weight_of(job)
            if too_many <= 0 and too_long <= 0:
                return victims


def _eviction_room(queue: Queue, victims: list[Job]) -> i64:
    size: i64 = floors_room(queue)
    for job in victims:
        extra = job.extra
        bases = 0 if extra is None or extra.old_bases is None else len(extra.old_bases)
        size += GONE_SIZE * (1 + bases)
    return size


def evict(yard: Yard, queue: Queue, victims: list[Job], now_ms: i64) -> None:
    """Let jobs go for which a queue has no room; room was made for the records."""
    for job in victims:
        let_go(yard, job, now_ms)
    stock = queue.stock
    assert stock is not None
    stock.cap_floor = max(stock.cap_floor, victims[-1].key + 1)
    remember_floors(yard, queue)


def enter(yard: Yard, queue: Queue, wish: Wish, now_ms: i64) -> Job:
    """Add the job of a wish; room was made, and no key or name stands against it.

    Who waits is not served yet: the records of several jobs may have to lie in one batch.
    """
    job = make_job(queue, wish)
    enter_made(yard, job, wish.body, now_ms)
    return job


def make_job(queue: Queue, wish: Wish) -> Job:
    """Make the job of a wish, which has no number, time or place before it enters."""
    body = wish.body
    job = Job(
        0,
        queue,
        0,
        0,
        wish.rank,
        0,
        wish.delay_ms,
        wish.own_ms,
        wish.policy,
        body,
        len(body),
        wish.family,
        wish.codec,
    )
    job.extra = wish.extra
    return job


def enter_made(
    yard: Yard, job: Job, body: bytes, now_ms: i64, ahead: Ahead | None = None, first_id: i64 = 0
) -> None:
    """Add a job that was made; as `enter`.

    One of several that wait for each other, of which the first has an id that is told, gets its
    name and its ties from whoever lets them enter. What is written of it may have been made ready.
    """
    journal = yard.journal
    queue = job.queue
    policy = job.policy
    if policy.number == 0 and policy is not PLAIN:
        _remember(yard, policy)
    job.id = journal.next_id
    journal.next_id = job.id + 1
    seq = queue.next_seq
    if queue.chosen is not None and not traits(job.family) & IDS_PER_QUEUE:
        seq = free_seqs(queue, 1)
    queue.next_seq = seq + 1
    job.key = seq
    stamp = yard.stamp(now_ms)
    job.stamp = -stamp if policy.flags & LIFO else stamp
    job.created_ms = now_ms
    job.due_ms = now_ms + job.delay_ms
    state = _first_state(job)
    if journal.is_on:
        if queue.number == 0:
            journal.append_queue(queue, queue.name.encode())
        elif is_told_again(queue):
            _tell_seqs(journal, queue, seq)
        if ahead is None:
            journal.append_put(job, body)
        else:
            journal.append_put_ahead(job, ahead, first_id)
    yard.bodies.keep(job)
    yard.apply_put(job, state, is_known=first_id != 0)
    if job.id & 511 == 0 and queue.roster is None and is_long(queue):
        roster_of(queue)
    _tell_entered(yard, queue, job, now_ms)


def _tell_entered(yard: Yard, queue: Queue, job: Job, now_ms: i64) -> None:
    """Count a job that has entered, and tell those who look."""
    queue.total_count += 1
    yard.counters.at(i64(job.family), i64(job.family)).put += 1
    if yard.bus.is_on:
        yard.bus.tell_pushed(queue, job, now_ms)
    if queue.config is not None:
        stock = queue.stock
        if stock is not None and stock.onward is not None:
            stock.onward.copy(now_ms)


def free_seqs(queue: Queue, count: i64) -> i64:
    """Return the first of so many next seqs in a row of which none is an id that was chosen."""
    first = queue.next_seq
    chosen = queue.chosen
    if chosen is None:
        return first
    seq = first
    while seq < first + count:
        if chosen.has(int(seq)):
            first = seq + 1
        seq += 1
    return first


def _first_state(job: Job) -> i64:
    """Return the state of a new job, which stands on its shelf if it is ready."""
    extra = job.extra
    if extra is not None and is_put_blocked(extra):
        return BLOCKED
    if job.delay_ms > 0:
        return DELAYED
    if traits(job.family) & READY_LISTS:
        job.shelf = u8(first_shelf(job.rank, job.policy))
    return READY


def first_shelf(rank: i64, policy: Policy) -> i64:
    """Return where a job of glide-mq stands that is ready at once."""
    if rank > 0:
        return STAGED
    return STACK if policy.flags & LIFO else STREAM


def _tell_seqs(journal: Journal, queue: Queue, seq: i64) -> None:
    """See that a seq that is counted is not given twice, whatever is let go of or lost."""
    # Every segment with jobs of such a queue tells how far its seqs had come, even when the last
    # job that had one was let go with its segment.
    is_due = i64(queue.segment) != journal.hot.number
    if journal.is_answered_early() and not queue.is_synced:
        # What is answered may be lost: seqs are reserved ahead, and the rest is left out then.
        if journal.durable >= queue.limit_batch:
            queue.limit_before = queue.seq_limit
        if seq + SEQ_BLOCK // 2 > queue.seq_limit:
            queue.seq_limit = seq + SEQ_BLOCK
            is_due = True
        if is_due:
            journal.append_name(queue, queue.name.encode())
            queue.limit_batch = journal.open_number
        if seq >= queue.limit_before:
            journal.sync_wanted = max(journal.sync_wanted, queue.limit_batch)
    elif is_due:
        journal.append_name(queue, queue.name.encode())


def give_back_seqs(yard: Yard) -> None:
    """Reserve no more seqs than were given: the server stops in good order."""
    journal = yard.journal
    for queue in yard.queues.values():
        if queue.seq_limit > queue.next_seq and queue.number != 0:
            limit = queue.seq_limit
            queue.seq_limit = queue.next_seq
            try:
                journal.append_name(queue, queue.name.encode())
            except StorageFull:
                queue.seq_limit = limit
                return


def _name_room(queue: Queue) -> i64:
    # A name is at most four bytes a character.
    if queue.number != 0 and not is_told_again(queue):
        return 0
    return 4 * queue_bytes(queue)


# -- policies ----------------------------------------------------------------------------------


def intern(yard: Yard, policy: Policy) -> Policy:
    """Return the one policy of the yard that wishes the same."""
    text = policy.encode()
    known = yard.policies.get(text)
    if known is not None:
        return known
    policy.text = text
    if len(yard.policies) >= yard.policies_max:
        _forget_unused(yard)
        # Those in use stay; to look through them again pays only once there are twice as many.
        yard.policies_max = max(POLICIES_MAX, 2 * len(yard.policies))
    yard.policies[text] = policy
    return policy


def _remember(yard: Yard, policy: Policy) -> None:
    """Give a policy its number, and write it down ahead of the first job that has it."""
    number = yard.next_policy
    if yard.journal.is_on:
        yard.journal.set_entry(POLICY, policy_key(number), policy.text)
    policy.number = number
    yard.next_policy = number + 1


def policy_key(number: i64) -> bytes:
    """Return the key of a policy in the journal."""
    return int(number).to_bytes(8, "little")


def _forget_unused(yard: Yard) -> None:
    journal = yard.journal
    for text, policy in list(yard.policies.items()):
        if policy.jobs_count == 0:
            del yard.policies[text]
            # Who is about to put a job with it must write it down again.
            number, policy.number = policy.number, 0
            entry = journal.entries.get((POLICY, policy_key(number)))
            if entry is not None:
                journal.forget_entry(entry)


def tell_duplicate(yard: Yard, owner: Job, now_ms: i64) -> None:
    """Tell that a put found its job already there."""
    if yard.bus.is_on:
        yard.bus.tell(Event(DUPLICATED, owner.queue, owner, now_ms))
