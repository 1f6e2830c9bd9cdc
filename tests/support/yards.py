"""A yard over a storage in memory, with a clock that the test controls.

`OpenYard` is a server without sockets: journal, engine, door, compactor. `snapshot` returns
what clients could see of it, so that two yards can be compared; `recount` compares every counter
and every index with the jobs themselves.
"""

from typing import Final

from jobyard.engine.jobs.listing import prioritized_jobs
from jobyard.engine.jobs.put import NewJob, enter, intern, make_room, put, room_for
from jobyard.engine.jobs.queues import is_ruled, open_queue
from jobyard.engine.jobs.take import offer, take, take_job
from jobyard.engine.jobs.tick import tick
from jobyard.engine.logs.text import texts_between
from jobyard.engine.recovery.compaction import IDLE, Compactor
from jobyard.engine.recovery.replay import Recovered, open_yard
from jobyard.engine.state.yard import Yard
from jobyard.journal.bodies import Bodies
from jobyard.journal.format.log_record import head_bytes
from jobyard.journal.format.record import MOVED_SIZE, STATE_SIZE
from jobyard.journal.format.segment import Segment
from jobyard.journal.journal import Journal
from jobyard.journal.recovery.reader import Reader
from jobyard.journal.space.live_bytes import entry_bytes, queue_bytes
from jobyard.journal.storage import Storage
from jobyard.model.details import JobCounters, JobDetails, MemberState, Outcome
from jobyard.model.details_codec import size_of
from jobyard.model.family import BEANSTALK, BUNQUEUE, GLIDE
from jobyard.model.index.append_list import AppendList
from jobyard.model.job import BLOCKED, DEAD, DELAYED, DONE, GONE, LEASED, MSGPACK, RAW, READY, Job
from jobyard.model.lease import Lease, LeaseSet, Proof, Terms
from jobyard.model.limits import URGENT_RANK
from jobyard.model.policy import PLAIN, Policy
from jobyard.model.queue import Queue
from jobyard.model.throttle.ready_lists import ReadyList, ReadyLists
from jobyard.model.throttle.settings import Rules
from jobyard.model.topic.config import BARRED
from jobyard.model.topic.log import LogTopic
from jobyard.protocols.beanstalk.door import TERMS, BeanstalkDoor
from jobyard.protocols.beanstalk.session import BeanstalkSession
from jobyard.protocols.session import Peer
from tests.support.bare import FixedFacts
from tests.support.indexes import (
    check_bag,
    check_heap,
    group_of,
    ids,
    is_behind,
    recount_bodies,
    recount_glide_names,
    recount_shelves,
    stands_in_stream,
)

NOW_MS: Final = 1_700_000_000_000
SEGMENT_SIZE: Final = 1 << 16
BUDGET: Final = 1 << 40
JOB_SIZE_MAX: Final = 1 << 20
TOKEN_TERMS: Final = Terms(BUNQUEUE, Proof.TOKEN, 3000, "worker")

# A history window that nothing leaves.
ALL_HISTORY = (86_400_000, 1 << 40)

# Everything a client could see of one job, and of a yard.
Facts = tuple[object, ...]
Snapshot = dict[object, Facts]


class Ears(Peer):
    """A peer that counts how often it was woken."""

    def __init__(self) -> None:
        self.stirs = 0

    def wake(self) -> None:
        self.stirs += 1


class Client:
    """One beanstalk connection without a socket."""

    def __init__(self, site: "OpenYard") -> None:
        self._site = site
        self.ears = Ears()
        self.session = BeanstalkSession(site.door, self.ears)
        self.lease_set: LeaseSet = self.session._lease_set

    def say(self, data: bytes) -> bytes:
        """Send bytes; return the immediate answer."""
        self.session.receive(data, self._site.now_ms)
        return self.hear()

    def hear(self) -> bytes:
        """Return the answers since the last call."""
        return self.session.take_output()

    def leave(self) -> None:
        """Close the connection."""
        self.session.closed(self._site.now_ms)


class OpenYard:
    """Journal, engine and door of one boot."""

    def __init__(
        self,
        storage: Storage | None = None,
        now_ms: int = NOW_MS,
        *,
        segment_size: int = SEGMENT_SIZE,
        budget: int = BUDGET,
        ids_ahead: bool = False,
        job_size_max: int = JOB_SIZE_MAX,
        window: tuple[int, int] = (0, 0),
    ) -> None:
        self.now_ms = now_ms
        self.storage = storage
        self.journal = Journal(storage, segment_size, ids_ahead=ids_ahead)
        # Of history: age in ms, and bytes.
        self.journal.history.keep(*window)
        self.bodies = Bodies(self.journal, budget)
        self.yard = Yard(self.journal, self.bodies)
        self.recovered: Recovered | None = None
        if storage is not None:
            self.recovered = open_yard(self.yard, storage, now_ms)
        superseded = self.recovered.superseded if self.recovered is not None else []
        self.compactor = Compactor(self.yard, superseded)
        self.door = BeanstalkDoor(self.yard, FixedFacts(), job_size_max, now_ms)
        self._worker: Client | None = None

    @property
    def lease_set(self) -> LeaseSet:
        """Return the lease set of the bunqueue holder, whose connection opens on first use."""
        if self._worker is None:
            self._worker = self.connect()
        return self._worker.lease_set

    def connect(self) -> Client:
        """Open a connection."""
        return Client(self)

    def queue(self, name: str = "default") -> Queue:
        """Return a queue."""
        return open_queue(self.yard, name)

    def put(
        self,
        body: bytes = b"body",
        queue: str = "default",
        rank: int = 0,
        delay_ms: int = 0,
        ttr_ms: int = 60_000,
    ) -> Job:
        """Put a job."""
        target = self.queue(queue)
        return put(self.yard, target, BEANSTALK, RAW, rank, delay_ms, ttr_ms, body, self.now_ms)

    def enter(
        self,
        body: bytes = b"body",
        queue: str = "default",
        *,
        rank: int = 0,
        delay_ms: int = 0,
        policy: Policy = PLAIN,
        details: JobDetails | None = None,
    ) -> Job:
        """Put a job of the bunqueue family, and serve waiting clients."""
        target = self.queue(queue)
        new_job = NewJob(BUNQUEUE, MSGPACK, body)
        new_job.rank, new_job.delay_ms, new_job.own_ms = rank, delay_ms, self.now_ms
        new_job.policy = policy if policy is PLAIN else intern(self.yard, policy)
        new_job.details = details
        make_room(self.yard, room_for(target, new_job), self.now_ms)
        job = enter(self.yard, target, new_job, self.now_ms)
        offer(self.yard, target, self.now_ms)
        return job

    def pull(self, *queues: str) -> Lease | None:
        """Lease the best job of some queues at the bunqueue door, if one is available."""
        found = [self.queue(name) for name in queues or ("default",)]
        return take(self.yard, found, self.lease_set, TOKEN_TERMS, self.now_ms)

    def run(self, job: Job) -> Job:
        """Lease one given job at the bunqueue door."""
        take_job(self.yard, job.id, self.lease_set, TOKEN_TERMS, self.now_ms)
        return job

    def take(self, lease_set: LeaseSet, *queues: str) -> Lease:
        """Lease the best job of some queues, which must exist."""
        found = [self.queue(name) for name in queues or ("default",)]
        lease = take(self.yard, found, lease_set, TERMS, self.now_ms)
        assert lease is not None
        return lease

    def tick(self, ms: int = 0) -> int:
        """Move the clock and fire due timers."""
        self.now_ms += ms
        return tick(self.yard, self.now_ms)

    def commit(self) -> None:
        """Write and sync what was appended, as the committer does."""
        self.journal.commit()
        self.bodies.cool()

    def compact(self, most: int = 10_000) -> int:
        """Run the compactor, with a commit after every step, until nothing is left to do."""
        for steps in range(most):
            was_idle = self.compactor.phase == IDLE
            more = self.compactor.step()
            self.commit()
            if was_idle and not more:
                return steps
        return most


def boot(storage: Storage, *bodies: bytes) -> OpenYard:
    """Open a yard and put some jobs, one batch each."""
    site = OpenYard(storage)
    for body in bodies:
        site.put(body)
        site.commit()
    return site


def batches(storage: Storage, segment: Segment) -> list[tuple[int, int, int]]:
    """Return (number, offset, size) of every batch of a segment."""
    reader = Reader(storage, segment)
    found: list[tuple[int, int, int]] = []
    while True:
        offset = int(reader.offset)
        head = reader.next()
        if head is None:
            return found
        found.append((int(head.number), offset, int(head.total_size())))


def snapshot(yard: Yard) -> Snapshot:
    """Return what clients could see after a restart, which ends most leases."""
    found: Snapshot = {}
    for job in yard.jobs.all():
        found[int(job.id)] = _facts(yard, job)
    for name, queue in yard.queues.items():
        found.update(_queue_facts(name, queue))
    found.update((f"custom {one}", (int(job.id),)) for one, job in yard.names.custom.items())
    found.update((f"glide {one}", (int(job.id),)) for one, job in yard.names.glide.items())
    for child_id, parents in yard.names.dependents.items():
        found[f"dependents {child_id}"] = tuple(sorted(int(job.id) for job in parents))
    for name, log in yard.logs.items():
        found[f"log {name}"] = log_facts(yard, log)
    for entry in yard.journal.entries.values():
        if not entry.is_gone:
            found[f"entry {entry.kind} {entry.key!r}"] = (entry.value,)
    return found


def log_facts(yard: Yard, log: LogTopic) -> Facts:
    """Return what a reader or writer could see of a log."""
    rows = [
        (
            int(chunk.base) + slot,
            texts_between(yard.journal, chunk, slot, slot + 1),
            chunk.label_at(slot),
            chunk.at[slot],
        )
        for chunk in log.chunks
        for slot in range(chunk.used())
        if chunk.is_alive(slot)
    ]
    keys = [(name, key.first_seq, key.last_seq, key.at_ms) for name, key in log.keys.items()]
    floors = (int(log.cap_floor), int(log.ttl_floor), int(log.earliest_seq))
    counts = (int(log.count), int(log.bytes), int(log.next_seq), int(log.last_write_ms))
    return (log.config.encode(), int(log.incarnation), floors, counts, rows, sorted(keys))


def _queue_facts(name: str, queue: Queue) -> Snapshot:
    found: Snapshot = {}
    if queue.dead.live_count > 0:
        found[f"buried {name}"] = tuple(buried(queue))
    if queue.done.live_count > 0:
        found[f"done {name}"] = tuple(resting(queue.done))
    if queue.keys is not None and queue.keys.count > 0:
        owners = sorted(queue.keys.items())
        found[f"keys {name}"] = tuple((key, int(job.id)) for key, job in owners)
    if queue.rules is not None and is_ruled(queue.rules):
        found[f"rules {name}"] = _rules_facts(queue.rules)
    if queue.config is not None and queue.config is not BARRED:
        found[f"topic {name}"] = _topic_facts(queue)
    return found


def _topic_facts(queue: Queue) -> Facts:
    assert queue.config is not None
    assert queue.jobs_by_seq is not None
    topic_state = queue.topic_state
    assert topic_state is not None
    return (
        queue.config.encode(),
        int(queue.next_seq),
        int(queue.jobs_by_seq.bytes),
        topic_state.encode_floors(),
    )


def _rules_facts(rules: Rules) -> Facts:
    groups = sorted(rules.groups.items())
    return (
        rules.settings.encode(),
        tuple((name, group.encode(), int(group.jobs_count)) for name, group in groups),
    )


def _facts(yard: Yard, job: Job) -> Facts:
    details = job.details if job.details is not None else JobDetails()
    state = READY if job.state == LEASED and details.kept is None else int(job.state)
    counts = details.counters if details.counters is not None else JobCounters()
    counters = (counts.timeouts, counts.releases, counts.buries, counts.kicks)
    return (
        job.queue.name,
        state,
        int(job.rank),
        int(job.key),
        int(job.stamp),
        int(job.created_ms),
        int(job.due_ms) if state == DELAYED else 0,
        int(job.delay_ms),
        int(job.own_ms),
        yard.bodies.fetch(job),
        yard.bodies.fetch_result(job) if state == DONE else b"",
        int(job.deliveries),
        counters,
        int(counts.stalls),
        int(job.attempts),
        (int(job.family), int(job.codec), job.policy.text),
        # A job taken from another ready list comes back to the stream.
        int(job.ready_list),
        *extra_facts(details),
    )


def extra_facts(details: JobDetails) -> Facts:
    """Return the details of a job."""
    key: Facts = ()
    if details.unique_key:
        key = (details.unique_key, details.key_mode, details.key_ttl_ms, details.key_until_ms)
    ended: Facts = ()
    outcome = details.outcome
    if outcome is not None:
        ended = (outcome.ended_ms, outcome.started_ms, outcome.reason, outcome.error)
        ended += (outcome.codec, outcome.result_size)
    record_meta: Facts = ()
    if details.record_meta is not None:
        record_meta = (details.record_meta.tag, details.record_meta.node, details.record_meta.meta)
    glide: Facts = ()
    if details.glide is not None:
        glide = (details.glide.encode(), sorted((details.glide.overlay or {}).items()))
    kept: Facts = ()
    if details.kept is not None:
        one = details.kept
        kept = (one.name, one.node, int(one.started_ms), int(one.until_ms), int(one.ttl_ms))
    return (
        (
            details.custom_id,
            key,
            details.group_id,
            details.protocol_fields,
            details.parent_id,
            record_meta,
        ),
        [(one.child_id, one.label, one.state, one.value) for one in details.members or ()],
        (details.progress, details.message),
        [(line.at_ms, line.level, line.text) for line in details.logs or ()],
        [
            (one.attempt, one.started_ms, one.failed_ms, one.reason, one.error)
            for one in details.failures or ()
        ],
        (details.stack, details.retries, details.retried_ms),
        ended,
        kept,
        glide,
    )


def buried(queue: Queue) -> list[int]:
    """Return the ids of a queue's dead jobs, oldest burial first."""
    return resting(queue.dead)


def resting(line: AppendList) -> list[int]:
    """Return the ids of ended jobs, the first to end first."""
    return [int(outcome.job.id) for outcome in line.live() if isinstance(outcome, Outcome)]


def recount(yard: Yard) -> None:
    """Compare every index and counter of a yard with its jobs."""
    jobs = yard.jobs.all()
    assert yard.jobs.count == len(jobs)
    by_state = {READY: 0, DELAYED: 0, LEASED: 0, DEAD: 0, DONE: 0, BLOCKED: 0}
    for job in jobs:
        by_state[int(job.state)] += 1
        assert yard.jobs.get(job.id) is job
        assert yard.queues[job.queue.name] is job.queue
        assert (job.lease is not None) == (job.state == LEASED)
        assert job.lease is not None or job.details is None or job.details.kept is None
    assert yard.ready_count == by_state[READY]
    assert yard.delayed_count == by_state[DELAYED]
    assert yard.leased_count == by_state[LEASED]
    assert yard.dead_count == by_state[DEAD]
    assert yard.done_count == by_state[DONE]
    assert yard.blocked_count == by_state[BLOCKED]
    assert yard.urgent_count == sum(is_urgent(job) for job in jobs)
    recount_bodies(yard, jobs)
    _recount_names(yard, jobs)
    for name, queue in yard.queues.items():
        assert queue.name == name
        _recount_queue(queue, [job for job in jobs if job.queue is queue])
    for log in yard.logs.values():
        _recount_log(log)
    check_heap(yard.timers)
    if yard.journal.is_on:
        recount_live_bytes(yard)


def is_urgent(job: Job) -> bool:
    """Return whether a job counts as urgent: groups and ready lists are unknown to beanstalk."""
    return job.state == READY and job.rank < URGENT_RANK and stands_in_stream(job)


def _recount_queue(queue: Queue, jobs: list[Job]) -> None:
    ready = [job for job in jobs if job.state == READY]
    delayed = [job for job in jobs if job.state == DELAYED]
    leased = [job for job in jobs if job.state == LEASED]
    dead = [job for job in jobs if job.state == DEAD]
    done = [job for job in jobs if job.state == DONE]
    plain = [job for job in ready if stands_in_stream(job)]
    assert ids(queue.ready) == sorted(int(job.id) for job in plain)
    assert queue.held_count == len(ready) - len(plain)
    assert ids(queue.delayed) == sorted(int(job.id) for job in delayed)
    assert all(job.sort_key == job.rank for job in ready if not is_behind(job))
    assert all(job.ready_list == ReadyList.STREAM for job in jobs if job.state != READY)
    assert all(job.sort_key == job.due_ms for job in delayed)
    check_bag(queue.leased, leased)
    check_bag(queue.blocked, [job for job in jobs if job.state == BLOCKED])
    assert queue.urgent_count == sum(is_urgent(job) for job in jobs)
    assert queue.ahead_count == len(prioritized_jobs(queue))
    assert sorted(buried(queue)) == sorted(int(job.id) for job in dead)
    assert queue.dead.live_count == len(dead)
    assert queue.perishable_count == sum(job.family == BUNQUEUE for job in dead)
    assert sorted(resting(queue.done)) == sorted(int(job.id) for job in done)
    assert queue.done.live_count == len(done)
    assert queue.jobs_count() == len(jobs)
    check_heap(queue.ready)
    check_heap(queue.delayed)
    if queue.rules is not None:
        _recount_groups(queue.rules, jobs)
        recount_shelves(queue.rules.ready_lists or ReadyLists(), jobs)
    else:
        assert all(stands_in_stream(job) for job in ready)
    if delayed:
        assert queue.pos >= 0, "a delay without a timer never ends"
        assert queue.sort_key <= queue.delayed.items[0].sort_key
    for job in leased:
        lease = job.lease
        assert lease is not None
        lease_set = lease.lease_set
        assert lease in lease_set.leases.items
        assert lease_set.pos >= 0, "a lease without a timer never ends"
        assert lease_set.sort_key <= lease_set.soonest_ms()
        check_heap(lease_set.leases)
    _recount_waiters(queue)


def _recount_log(log: LogTopic) -> None:
    assert log.count == sum(int(chunk.count) for chunk in log.chunks)
    assert log.bytes == sum(int(chunk.bytes) for chunk in log.chunks)
    assert log.memory == sum(int(chunk.memory) for chunk in log.chunks)
    assert not log.freed
    first = log.next_seq
    for chunk in reversed(log.chunks):
        alive = [slot for slot in range(chunk.used()) if chunk.is_alive(slot)]
        assert chunk.count == len(alive)
        assert chunk.bytes == sum(int(chunk.content_size(slot)) for slot in alive)
        assert alive or chunk is log.chunks[-1]
        if alive:
            first = chunk.base + alive[0]
            assert chunk.base + alive[-1] < log.next_seq
    assert log.earliest_seq == first
    assert log.evict_floor() <= log.earliest_seq


def _recount_waiters(queue: Queue) -> None:
    waiting = 0
    link = queue.first_link
    while link is not None:
        waiting += 1
        assert link.queue is queue
        assert link in link.waiter.links
        link = link.after
    assert queue.waiting_count == waiting


def _recount_groups(rules: Rules, jobs: list[Job]) -> None:
    for name, group in rules.groups.items():
        assert group.name == name
        members = [job for job in jobs if group_of(job) is group]
        assert group.jobs_count == len(members)
        assert group.leased_count == sum(job.state == LEASED for job in members)
        ready = sorted(int(job.id) for job in members if job.state == READY)
        assert ids(group.ready) == ready
        assert (group in rules.ring) == (len(ready) > 0)
        check_heap(group.ready)
    assert len(set(map(id, rules.ring))) == len(rules.ring)
    assert all(rules.groups.get(group.name) is group for group in rules.ring)


def _recount_names(yard: Yard, jobs: list[Job]) -> None:
    """Compare the tables by which jobs are found with the jobs."""
    custom: dict[str, Job] = {}
    waiting: dict[int, list[int]] = {}
    for job in jobs:
        details = job.details if job.details is not None else JobDetails()
        if details.custom_id and job.family != GLIDE:
            custom[details.custom_id] = job
        if job.state in (READY, DELAYED) and job.policy.ttl_ms > 0:
            assert details.expiry is not None, "a time to live without an alarm never ends"
            assert details.expiry in yard.timers.items
        if job.state in (DEAD, DONE):
            assert details.expiry is None
            continue
        keys = job.queue.keys
        assert not details.unique_key or (keys is not None and keys.has(details.unique_key))
        for member in details.members or ():
            if member.state == MemberState.OPEN:
                waiting.setdefault(int(member.child_id), []).append(int(job.id))
    assert dict(yard.names.custom.items()) == custom
    recount_glide_names(yard, jobs)
    told = {
        child_id: sorted(int(job.id) for job in parents if job.state not in (DEAD, DONE))
        for child_id, parents in yard.names.dependents.items()
    }
    assert {child_id: parents for child_id, parents in told.items() if parents} == waiting
    for queue in yard.queues.values():
        for key, owner in (queue.keys or {}).items():
            assert owner.ensure_details().unique_key == key
            assert owner.state not in (DEAD, DONE, GONE)


def _add_log_bytes(log: LogTopic, live: dict[int, int]) -> None:
    if log.segment != 0:
        live[int(log.segment)] += int(head_bytes(log))
    for key in log.keys.values():
        if key.segment != 0:
            live[int(key.segment)] += int(key.weight)
    for chunk in log.chunks:
        for slot in range(chunk.used()):
            if chunk.is_alive(slot) and chunk.segments[slot] != 0:
                live[chunk.segments[slot]] += int(chunk.weight_of(slot))


def live_bytes(yard: Yard) -> dict[int, int]:
    """Return what compaction would have to save of each segment, counted from the jobs."""
    journal = yard.journal
    live = {int(number): 0 for number in journal.segments}
    for job in yard.jobs.all():
        details = job.details if job.details is not None else JobDetails()
        live[int(job.place >> 32)] += MOVED_SIZE + int(job.size) + int(details.base_weight)
        if job.trail != 0:
            live[int(job.trail)] += STATE_SIZE + int(size_of(details))
    for entry in journal.entries.values():
        assert entry.segment != 0, "an entry that is stored nowhere"
        live[int(entry.segment)] += int(entry_bytes(entry))
    for queue in yard.queues.values():
        if queue.segment != 0:
            live[int(queue.segment)] += int(queue_bytes(queue))
    for log in yard.logs.values():
        _add_log_bytes(log, live)
    for number, segment in journal.segments.items():
        assert set(segment.kills) <= set(journal.segments), "a kill outlived the base it kills"
        live[int(number)] += sum(segment.kills.values())
    return live


def recount_live_bytes(yard: Yard) -> None:
    """Compare the live bytes of every segment with the jobs."""
    journal = yard.journal
    counted = {int(number): int(segment.live) for number, segment in journal.segments.items()}
    assert counted == live_bytes(yard)
    assert journal.live_bytes.jobs_count == yard.jobs.count
