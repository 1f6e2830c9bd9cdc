"""The steps by which jobs enter a queue: room, eviction, the record, and the place in the queue.

A session describes the job that it wants as a `NewJob`; `put_transaction.py` runs these steps and
deduplicates. Every refusal comes before the first record, so a refused put changes nothing.
"""

from typing import Final, final

from mypy_extensions import i64, mypyc_attr, u8

from jobyard.engine.jobs.listing import is_long, jobs_by_seq_of
from jobyard.engine.jobs.low_watermarks import floors_room, remember_floors
from jobyard.engine.jobs.take import drop_job, offer
from jobyard.engine.state.bus import Event, EventName
from jobyard.engine.state.yard import POLICIES_MAX, Yard
from jobyard.errors import NameTaken, StorageFull, YardFull
from jobyard.journal.format.record import ENTRY_SIZE, GONE_SIZE, LONG_BODY_SIZE, PUT_SIZE
from jobyard.journal.journal import Journal
from jobyard.journal.space.live_bytes import queue_bytes
from jobyard.model.ahead import EncodedAhead
from jobyard.model.details import JobDetails, is_put_blocked
from jobyard.model.details_codec import size_of
from jobyard.model.entry import EntryKind
from jobyard.model.family import IDS_PER_QUEUE, READY_LISTS, traits
from jobyard.model.index.jobs_by_seq import JobsBySeq, weight_of
from jobyard.model.job import BLOCKED, DELAYED, LEASED, READY, Job
from jobyard.model.limits import NEVER_MS, SEQ_BLOCK
from jobyard.model.policy import LIFO, PLAIN, Policy, policy_key
from jobyard.model.queue import Queue
from jobyard.model.throttle.ready_lists import ReadyList
from jobyard.model.topic.config import BARRED, DISCARD_REJECT, TopicConfig
from jobyard.model.topic.log import TopicFull, WriteTooLarge

# Jobs that are looked at together in the search for the oldest to evict.
_OLDEST: Final = 64


@final
@mypyc_attr(free_list_len=1)
class NewJob:
    """A job as a client requested it, before it enters a queue."""

    def __init__(self, family: u8, codec: u8, body: bytes) -> None:
        self.family: u8 = family
        self.codec: u8 = codec
        self.body: bytes = body
        self.rank: i64 = 0
        self.delay_ms: i64 = 0
        self.own_ms: i64 = 0
        self.policy: Policy = PLAIN
        self.details: JobDetails | None = None


def put(  # noqa: PLR0913, PLR0917  the fields of a put
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
    """Add a plain job and offer it to the first waiting client; YardFull changes nothing."""
    journal = yard.journal
    size: i64 = len(body)
    if queue.config is not None:
        reserve_and_evict(yard, queue, 1, size, size + PUT_SIZE + queue_room(queue, size), now_ms)
    else:
        if not yard.bodies.admits(size):
            raise YardFull
        if journal.is_on and not journal.admit(size + _name_room(queue), now_ms):
            raise YardFull
    job = Job(0, queue, 0, 0, rank, now_ms, delay_ms, own_ms, PLAIN, body, size, family, codec)
    enter(yard, job, now_ms)
    if queue.first_link is not None:
        offer(yard, queue, now_ms)
    return job


def room_for(queue: Queue, new_job: NewJob) -> i64:
    """Return the most journal bytes that a new job takes."""
    size = job_room(new_job)
    return size + queue_room(queue, size)


def job_room(new_job: NewJob) -> i64:
    """Return the most journal bytes that a new job takes, whatever its queue."""
    return base_room(new_job) + policy_room(new_job.policy)


def base_room(new_job: NewJob) -> i64:
    """Return the same without the entry of its policy."""
    size: i64 = PUT_SIZE + LONG_BODY_SIZE + len(new_job.body)
    details = new_job.details
    if details is None:
        return size
    return size + (len(details.ahead) if details.ahead else size_of(details))


def policy_room(policy: Policy) -> i64:
    """Return the most journal bytes that a policy takes with its first job."""
    if policy.number != 0 or policy is PLAIN:
        return 0
    return ENTRY_SIZE + 16 + len(policy.text)


def queue_room(queue: Queue, size: i64) -> i64:
    """Return the most journal bytes that this queue adds to a job of `size` bytes."""
    if queue.config is not None:
        return _onward_room(queue, size) + _name_room(queue)
    return _name_room(queue)


def may_need_name_again(queue: Queue) -> bool:
    """Return whether later jobs of a queue, too, may need room beyond their own records."""
    return queue.config is not None or queue.is_counted


def room_for_all(queue: Queue, new_jobs: list[NewJob], size: i64) -> i64:
    """Return the most journal bytes that new jobs take, which have `size` whatever the queue."""
    count: i64 = len(new_jobs)
    room = size + count * _name_room(queue)
    topic_state = queue.topic_state
    if queue.config is None or topic_state is None or topic_state.onward is None:
        return room
    onward = topic_state.onward
    at_once = onward.at_once(count)
    if at_once < count:
        room += onward.room(count, size)
    for new_job in new_jobs[:at_once]:
        room += onward.room(1, job_room(new_job))
    return room


def _onward_room(queue: Queue, size: i64) -> i64:
    """Return the most journal bytes that the copies of a job by routers take."""
    topic_state = queue.topic_state
    return (
        0 if topic_state is None or topic_state.onward is None else topic_state.onward.room(1, size)
    )


def make_room(yard: Yard, size: i64, now_ms: i64) -> None:
    """Ensure that `size` bytes of jobs can enter in one batch; YardFull if not."""
    if not yard.bodies.admits(size):
        raise YardFull
    if yard.journal.is_on and not yard.journal.admit(size, now_ms):
        raise YardFull


def make_room_in_parts(yard: Yard, size: i64, now_ms: i64) -> None:
    """Ensure that `size` bytes of jobs can enter in several batches; YardFull if not."""
    if not yard.bodies.admits(size):
        raise YardFull
    if yard.journal.is_on and not yard.journal.admit_parts(size, now_ms):
        raise YardFull


def reserve_and_evict(
    yard: Yard,
    queue: Queue,
    count: i64,
    size: i64,
    room: i64,
    now_ms: i64,
    *,
    may_exceed: bool = False,
) -> None:
    """Reserve room, and evict the oldest jobs if a queue may not hold `count` more.

    YardFull and TopicFull change nothing; neither does NameTaken, for a queue that has the name of
    a log. With `may_exceed`, more may be put than a queue may ever hold, and `evict_excess` evicts
    the first of them.

    `size` is the size of bodies and metas, `room` all that their put needs in the journal: reserved
    once, before the first eviction, so that evicted and new jobs are in one batch.
    """
    config = queue.config
    assert config is not None
    victims = _victims(yard, queue, config, count, size, may_exceed=may_exceed)
    if config.is_exceeded_by(count, size):
        room += floors_room(queue) + GONE_SIZE * count
    room += _eviction_room(queue, victims)
    if room > 0:
        make_room(yard, room, now_ms)
    _evict_for_new(yard, queue, config, victims, now_ms)


def reserve_and_evict_all(
    yard: Yard,
    topics: list[Queue],
    queues: list[Queue],
    new_jobs: list[NewJob],
    room: i64,
    now_ms: i64,
) -> None:
    """Do the same for new jobs, each in the queue of its index; `topics` lists topics once."""
    victims_by_topic: list[list[Job]] = []
    for topic in topics:
        config = topic.config
        assert config is not None
        count: i64 = 0
        size: i64 = 0
        for at in range(len(new_jobs)):
            if queues[at] is topic:
                count += 1
                size += len(new_jobs[at].body)
        victims = _victims(yard, topic, config, count, size, may_exceed=False)
        victims_by_topic.append(victims)
        room += _eviction_room(topic, victims)
    make_room(yard, room, now_ms)
    for each in range(len(topics)):
        config = topics[each].config
        assert config is not None
        _evict_for_new(yard, topics[each], config, victims_by_topic[each], now_ms)


def _evict_for_new(
    yard: Yard, queue: Queue, config: TopicConfig, victims: list[Job], now_ms: i64
) -> None:
    """Evict jobs for new ones that enter now, and have these expire in time."""
    if victims:
        evict(yard, queue, victims, now_ms)
    topic_state = queue.topic_state
    if config.ttl_ms > 0 and topic_state is not None and topic_state.alarm is not None:
        yard.arm(topic_state.alarm, now_ms + ttl_of(config))


def evict_excess(yard: Yard, queue: Queue, count: i64, size: i64, now_ms: i64) -> None:
    """Evict the oldest jobs of a write that was larger than its queue may ever be.

    `reserve_and_evict` has reserved room for the records.
    """
    config = queue.config
    if config is None or not config.is_exceeded_by(count, size):
        return
    victims = _victims(yard, queue, config, 0, 0, may_exceed=False)
    if victims:
        evict(yard, queue, victims, now_ms)


def ttl_of(config: TopicConfig) -> i64:
    """Return how long jobs live, limited to what a timer can hold."""
    return min(config.ttl_ms, NEVER_MS // 2)


def check_capacity(queue: Queue, count: i64, size: i64) -> None:
    """Refuse what `reserve_and_evict` would: more jobs or bytes than a queue may hold."""
    config = queue.config
    assert config is not None
    too_many, too_long = _excess(queue, config, count, size)
    if too_many > 0 or too_long > 0:
        _refuse_excess(config, count, size, may_exceed=False)


def way_room(yard: Yard, queue: Queue, count: i64, size: i64) -> i64:
    """Return the journal bytes that `reserve_and_evict` takes for evictions; refuse as it would."""
    config = queue.config
    assert config is not None
    victims = _victims(yard, queue, config, count, size, may_exceed=False)
    return _eviction_room(queue, victims)


def _victims(
    yard: Yard, queue: Queue, config: TopicConfig, count: i64, size: i64, *, may_exceed: bool
) -> list[Job]:
    """Return the jobs to evict: never one that runs, or that others wait for."""
    too_many, too_long = _excess(queue, config, count, size)
    if too_many <= 0 and too_long <= 0:
        return []
    _refuse_excess(config, count, size, may_exceed=may_exceed)
    jobs_by_seq = queue.jobs_by_seq
    assert jobs_by_seq is not None
    return _oldest(yard, jobs_by_seq, too_many, too_long)


def _excess(queue: Queue, config: TopicConfig, count: i64, size: i64) -> tuple[i64, i64]:
    """Return by how many jobs and bytes the caps would be exceeded; NameTaken for a log's name."""
    if config is BARRED:
        raise NameTaken(queue.name)
    jobs_by_seq = queue.jobs_by_seq
    assert jobs_by_seq is not None
    too_many: i64 = 0
    too_long: i64 = 0
    if config.cap_records > 0:
        too_many = queue.jobs_count() - queue.done.live_count + count - config.cap_records
    if config.cap_bytes > 0:
        too_long = jobs_by_seq.bytes + size - config.cap_bytes
    return too_many, too_long


def _refuse_excess(config: TopicConfig, count: i64, size: i64, *, may_exceed: bool) -> None:
    is_rejecting = config.discard == DISCARD_REJECT
    if config.is_exceeded_by(count, size) and (is_rejecting or not may_exceed):
        raise WriteTooLarge
    if is_rejecting:
        raise TopicFull


def _oldest(yard: Yard, jobs_by_seq: JobsBySeq, too_many: i64, too_long: i64) -> list[Job]:
    victims: list[Job] = []
    first = jobs_by_seq.oldest()
    seq: i64 = 0 if first is None else first.key - 1
    while True:
        jobs = jobs_by_seq.after(seq, _OLDEST)
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
    if not victims:
        return 0
    size: i64 = floors_room(queue)
    for job in victims:
        details = job.details
        bases = 0 if details is None or details.old_bases is None else len(details.old_bases)
        size += GONE_SIZE * (1 + bases)
    return size


def evict(yard: Yard, queue: Queue, victims: list[Job], now_ms: i64) -> None:
    """Remove jobs for which a queue has no room; room for the records was reserved."""
    for job in victims:
        drop_job(yard, job, now_ms)
    topic_state = queue.topic_state
    assert topic_state is not None
    topic_state.cap_floor = max(topic_state.cap_floor, victims[-1].key + 1)
    remember_floors(yard, queue)


def make_job(queue: Queue, new_job: NewJob) -> Job:
    """Build a job, which gets its id, time and place when it enters."""
    body = new_job.body
    job = Job(
        0,
        queue,
        0,
        0,
        new_job.rank,
        0,
        new_job.delay_ms,
        new_job.own_ms,
        new_job.policy,
        body,
        len(body),
        new_job.family,
        new_job.codec,
    )
    job.details = new_job.details
    return job


def enter(
    yard: Yard, job: Job, now_ms: i64, ahead: EncodedAhead | None = None, first_id: i64 = 0
) -> Job:
    """Add a job that was built, and return it; room was reserved, and its key and name are free.

    Clients that wait are not served yet: the records of several jobs may have to be in one batch.
    `first_id` is set for jobs of a flow: the caller sets their names and links. `ahead` holds their
    records if these were encoded before.
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
        elif may_need_name_again(queue):
            _append_seqs(journal, queue, seq)
        if ahead is None:
            body = job.body
            assert body is not None
            journal.append_put(job, body)
        else:
            journal.append_put_ahead(job, ahead, first_id)
    yard.bodies.keep(job)
    yard.apply_put(job, state, is_known=first_id != 0)
    if job.id & 511 == 0 and queue.jobs_by_seq is None and is_long(queue):
        jobs_by_seq_of(queue)
    _publish_entered(yard, queue, job, now_ms)
    return job


def _publish_entered(yard: Yard, queue: Queue, job: Job, now_ms: i64) -> None:
    """Count a job that has entered, publish its event, and copy it to routers."""
    queue.total_count += 1
    yard.counters.at(i64(job.family), i64(job.family)).put += 1
    if yard.bus.is_on:
        yard.bus.publish_pushed(queue, job, now_ms)
    if queue.config is not None:
        topic_state = queue.topic_state
        if topic_state is not None and topic_state.onward is not None:
            topic_state.onward.copy(now_ms)


def free_seqs(queue: Queue, count: i64) -> i64:
    """Return the first of the next `count` consecutive seqs that are not ids chosen by clients."""
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
    """Return the state of a new job; set its ready list if it is ready."""
    details = job.details
    if details is not None and is_put_blocked(details):
        return BLOCKED
    if job.delay_ms > 0:
        return DELAYED
    if traits(job.family) & READY_LISTS:
        job.ready_list = u8(first_list(job.rank, job.policy))
    return READY


def first_list(rank: i64, policy: Policy) -> i64:
    """Return the ready list of a glide-mq job that is ready at once."""
    if rank > 0:
        return ReadyList.STAGED
    return ReadyList.LIFO if policy.flags & LIFO else ReadyList.STREAM


def _append_seqs(journal: Journal, queue: Queue, seq: i64) -> None:
    """Ensure that no seq is given twice, whatever is deleted or lost."""
    # Every segment with jobs of such a queue records the next seq, even when the newest job was
    # deleted with its segment.
    is_due = i64(queue.segment) != journal.hot.number
    if journal.is_answered_early() and not queue.is_synced:
        # Answered jobs may be lost: seqs are reserved ahead, and unused ones are skipped then.
        if journal.durable >= queue.limit_batch:
            queue.durable_limit = queue.seq_limit
        if seq + SEQ_BLOCK // 2 > queue.seq_limit:
            queue.seq_limit = seq + SEQ_BLOCK
            is_due = True
        if is_due:
            journal.append_name(queue, queue.name.encode())
            queue.limit_batch = journal.open_number
        if seq >= queue.durable_limit:
            journal.seqs_sync_batch = max(journal.seqs_sync_batch, queue.limit_batch)
    elif is_due:
        journal.append_name(queue, queue.name.encode())


def give_back_seqs(yard: Yard) -> None:
    """Cancel the reservation of unused seqs: the server shuts down cleanly."""
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
    # A name takes at most four bytes per character.
    if queue.number != 0 and not may_need_name_again(queue):
        return 0
    return 4 * queue_bytes(queue)


# -- policies ----------------------------------------------------------------------------------


def intern(yard: Yard, policy: Policy) -> Policy:
    """Return the policy of the yard with the same content."""
    text = policy.encode()
    known = yard.policies.get(text)
    if known is not None:
        return known
    policy.text = text
    if len(yard.policies) >= yard.policies_max:
        _forget_unused(yard)
        # Those in use stay; another search pays only once there are twice as many.
        yard.policies_max = max(POLICIES_MAX, 2 * len(yard.policies))
    yard.policies[text] = policy
    return policy


def _remember(yard: Yard, policy: Policy) -> None:
    """Give a policy its number, and write it before the first job that has it."""
    number = yard.next_policy
    if yard.journal.is_on:
        yard.journal.set_entry(EntryKind.POLICY, policy_key(number), policy.text)
    policy.number = number
    yard.next_policy = number + 1


def _forget_unused(yard: Yard) -> None:
    journal = yard.journal
    for text, policy in list(yard.policies.items()):
        if policy.jobs_count == 0:
            del yard.policies[text]
            # A put that is about to use it must write it again.
            number, policy.number = policy.number, 0
            entry = journal.entries.get((EntryKind.POLICY, policy_key(number)))
            if entry is not None:
                journal.forget_entry(entry)


def publish_duplicate(yard: Yard, owner: Job, now_ms: i64) -> None:
    """Publish the event that a put found an existing job."""
    if yard.bus.is_on:
        yard.bus.publish(Event(EventName.DUPLICATED, owner.queue, owner, now_ms))
