"""Compares every counter and every index of a yard with the jobs themselves."""

from jobyard.engine.jobs.listing import prioritized_jobs
from jobyard.engine.state.yard import Yard
from jobyard.journal.format.log_record import head_bytes
from jobyard.journal.format.record import MOVED_SIZE, STATE_SIZE
from jobyard.journal.space.live_bytes import entry_bytes, queue_bytes
from jobyard.model.details import JobDetails
from jobyard.model.details_codec import size_of
from jobyard.model.family import BUNQUEUE, GLIDE
from jobyard.model.job import BLOCKED, DEAD, DELAYED, DONE, GONE, LEASED, READY, Job
from jobyard.model.limits import URGENT_RANK
from jobyard.model.members import MemberState
from jobyard.model.queue import Queue
from jobyard.model.throttle.ready_lists import ReadyList, ReadyLists
from jobyard.model.throttle.settings import Rules
from jobyard.model.topic.log import LogTopic
from tests.support.engine.record_keys import add_key_bytes
from tests.support.site.indexes import (
    all_logs,
    check_bag,
    check_heap,
    group_of,
    ids,
    is_behind,
    recount_bodies,
    recount_glide_names,
    recount_ready_lists,
    recount_txns,
    stands_in_stream,
)
from tests.support.site.snapshot import buried, resting


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
        assert job.lease is not None or job.details is None or job.details.durable_lease is None
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
    for log in all_logs(yard):
        _recount_log(log)
    recount_txns(yard)
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
        recount_ready_lists(queue.rules.ready_lists or ReadyLists(), jobs)
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
    for log in all_logs(yard):
        _add_log_bytes(log, live)
    add_key_bytes(yard, live)
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
