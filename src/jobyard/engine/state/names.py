"""Finds jobs by the names that clients give them, and by their deduplication keys.

Custom ids (one namespace for all queues; for glide-mq one per queue), deduplication keys (one
namespace per queue), members of groups, jobs that others wait for, and the alarms of jobs with a
time to live. All of it is derived from the jobs, so nothing here is in the journal.
"""

from collections import deque
from typing import Final, final

from mypy_extensions import i64

from jobyard.model.details import JobDetails
from jobyard.model.family import IDS_PER_QUEUE, traits
from jobyard.model.index.heap import Heap
from jobyard.model.index.item import Item
from jobyard.model.index.name_table import NameTable
from jobyard.model.index.sharded_dict import ShardedDict
from jobyard.model.job import DEAD, DONE, Job
from jobyard.model.members import MemberState
from jobyard.model.queue import Queue
from jobyard.model.throttle.ordering_group import ensure_ordering, ordering_of, rejoin
from jobyard.model.throttle.ready_lists import ReadyLists
from jobyard.model.throttle.settings import Rules

# How many of the latest jobs that others began to wait for are kept, in order.
AWAITED_LATELY: Final = 4096


@final
class Expiry(Item):
    """The end of a job's time to live. `sort_key` is that time."""

    def __init__(self, job: Job, at_ms: i64) -> None:
        super().__init__(job.id, at_ms, job.id)
        self.job: Job = job


@final
class Names:
    """Tables from names to jobs."""

    def __init__(self, timers: Heap) -> None:
        self._timers = timers
        self.custom = NameTable()
        # Ids of glide-mq, each with its queue; clients of other doors do not find jobs by them.
        self.glide = NameTable()
        # By the id of a job: the jobs that wait for it.
        self.dependents: ShardedDict[int, list[Job]] = ShardedDict()
        # How often jobs began to wait for one that no other waited for, and the latest of these.
        self.awaited_count: i64 = 0
        self.lately_awaited: deque[int] = deque(maxlen=AWAITED_LATELY)

    def enter(self, job: Job, *, is_known: bool = False) -> None:
        """Add a new job to the tables.

        If `is_known`, the caller adds its custom id and the jobs that it waits for.
        """
        if job.policy.ttl_ms > 0 and job.state not in (DEAD, DONE):
            self.begin_ttl(job)
        details = job.details
        if details is None:
            return
        if not is_known and details.custom_id:
            self._enter_custom(job, details.custom_id)
        _join(job, details)
        if job.state in (DEAD, DONE):
            return
        if details.unique_key:
            self.take_key(job)
        if not is_known and details.members is not None:
            for member in details.members:
                if member.state == MemberState.OPEN:
                    self.wait_for(job, member.child_id)

    def recall(self, job: Job) -> None:
        """Add a job to the tables after a restart.

        If two jobs have the same key, the younger one need not be the owner: an expired key is
        taken from its job, perhaps by an older job that is retried.
        """
        details = job.details
        keys = job.queue.keys
        owner = keys.get(details.unique_key) if details is not None and keys is not None else None
        self.enter(job)
        if owner is not None and _outlasts(owner, job):
            self.take_key(owner)

    def named(self, custom_id: str) -> Job | None:
        """Return the job with a custom id, except those of glide-mq."""
        job = self.custom.get(custom_id)
        return None if job is None or job.id < job.queue.gone_before else job

    def wait_for(self, job: Job, child_id: i64) -> None:
        """Register that one job waits for another."""
        waiting = self.dependents.get(int(child_id))
        if waiting is None:
            self.wait_first(child_id, [job])
        else:
            waiting.append(job)

    def wait_first(self, child_id: i64, jobs: list[Job]) -> None:
        """Register that jobs wait for one that no other waits for."""
        self.dependents.put(int(child_id), jobs)
        self.awaited_count += 1
        self.lately_awaited.append(int(child_id))

    def stop_waiting(self, job: Job, child_id: i64) -> None:
        """Register that one job no longer waits for another."""
        waiting = self.dependents.get(int(child_id))
        if waiting is not None and job in waiting:
            waiting.remove(job)
            if not waiting:
                self.dependents.remove(int(child_id))

    def leave(self, job: Job) -> None:
        """Remove a job from the tables."""
        details = job.details
        if details is None:
            return
        self.end_ttl(details)
        if details.custom_id:
            self._leave_custom(job, details.custom_id)
        ordering = ordering_of(details)
        if ordering is not None:
            ordering.jobs_count -= 1
            ready_lists_of(job.queue).forget_idle(ordering)
        self.free_key(job)
        group = details.group
        if group is not None:
            group.jobs_count -= 1
            rules_of(job.queue).forget_idle(group)
        if details.members is not None:
            for member in details.members:
                if member.state == MemberState.OPEN:
                    self.stop_waiting(job, member.child_id)

    def _enter_custom(self, job: Job, custom_id: str) -> None:
        if not traits(job.family) & IDS_PER_QUEUE:
            self.custom.put(custom_id, job)
            return
        queue = job.queue
        self.glide.put(glide_key(queue, custom_id), job)
        seq = seq_of(custom_id)
        if seq > 0:
            if queue.chosen is None:
                queue.chosen = ShardedDict()
            queue.chosen.put(int(seq), job)

    def _leave_custom(self, job: Job, custom_id: str) -> None:
        is_glide = traits(job.family) & IDS_PER_QUEUE != 0
        table = self.glide if is_glide else self.custom
        key = glide_key(job.queue, custom_id) if is_glide else custom_id
        if table.get(key) is not job:
            return
        table.remove(key)
        chosen = job.queue.chosen
        if is_glide and chosen is not None:
            chosen.discard(int(seq_of(custom_id)))
            if chosen.count == 0:
                job.queue.chosen = None

    def begin_ttl(self, job: Job) -> None:
        """Arm the alarm of a job with a time to live, unless it is armed already."""
        details = job.ensure_details()
        expiry = details.expiry
        if expiry is None:
            expiry = Expiry(job, job.created_ms + job.policy.ttl_ms)
            details.expiry = expiry
        if expiry.pos < 0:
            self._timers.push(expiry)

    def end_ttl(self, details: JobDetails) -> None:
        """Disarm the alarm of a job that ended before its time was over."""
        expiry = details.expiry
        if expiry is not None:
            details.expiry = None
            if expiry.pos >= 0:
                self._timers.remove(expiry)

    def take_key(self, job: Job) -> None:
        """Make a job the owner of its key."""
        details = job.details
        assert details is not None
        keys = job.queue.keys
        if keys is None:
            keys = ShardedDict()
            job.queue.keys = keys
        keys.put(details.unique_key, job)

    def rest(self, job: Job) -> None:
        """Remove what an ended job no longer has: its key, its alarm, its waits for others."""
        details = job.details
        if details is None:
            return
        self.end_ttl(details)
        self.free_key(job)
        if details.members is not None:
            for member in details.members:
                if member.state == MemberState.OPEN:
                    self.stop_waiting(job, member.child_id)

    def has_lost_key(self, job: Job) -> bool:
        """Return whether another job took the key of this one after it ended."""
        details = job.details
        keys = job.queue.keys
        if details is None or keys is None or not details.unique_key:
            return False
        owner = keys.get(details.unique_key)
        return owner is not None and owner is not job

    def come_back(self, job: Job) -> None:
        """Restore what `rest` removed from an ended job: its key, if free, and its waits."""
        details = job.details
        if details is None:
            return
        if details.unique_key and not self.has_lost_key(job):
            self.take_key(job)
        rejoin(job, details)
        if details.members is not None:
            for member in details.members:
                if member.state == MemberState.OPEN:
                    self.wait_for(job, member.child_id)

    def free_key(self, job: Job) -> None:
        """Free the key of a job that has ended, so that others can use it."""
        details = job.details
        keys = job.queue.keys
        if details is None:
            return
        if keys is not None and details.unique_key and keys.get(details.unique_key) is job:
            keys.remove(details.unique_key)


def _join(job: Job, details: JobDetails) -> None:
    """Add a job to its group or ordering group."""
    if details.group_id:
        rules = rules_of(job.queue)
        details.group = rules.group(details.group_id)
        details.group.jobs_count += 1
    part = details.glide
    if part is not None and part.ordering_key:
        ordering = ensure_ordering(ready_lists_of(job.queue), part.ordering_key)
        part.ordering = ordering
        ordering.add(job, part)


def _outlasts(owner: Job, other: Job) -> bool:
    """Return whether a job keeps its key longer than another job with the same key."""
    mine = owner.details
    theirs = other.details
    assert mine is not None
    assert theirs is not None
    if theirs.key_until_ms == 0:
        return False
    return mine.key_until_ms == 0 or mine.key_until_ms > theirs.key_until_ms


def glide_key(queue: Queue, custom_id: str) -> str:
    """Return the table key of a glide-mq job, whose id is unique only within its queue."""
    return f"{queue.name}\0{custom_id}"


def seq_of(job_id: str) -> i64:
    """Return the seq that an id spells in canonical decimal form, or 0."""
    if not job_id.isdigit() or not job_id.isascii() or len(job_id) > 18 or job_id[0] == "0":
        return 0
    return int(job_id)


def ready_lists_of(queue: Queue) -> ReadyLists:
    """Return the ready lists of a queue, creating them on first use."""
    rules = rules_of(queue)
    ready_lists = rules.ready_lists
    if ready_lists is None:
        ready_lists = ReadyLists()
        rules.ready_lists = ready_lists
    return ready_lists


def rules_of(queue: Queue) -> Rules:
    """Return the rules of a queue, creating them on first use."""
    rules = queue.rules
    if rules is None:
        rules = Rules()
        queue.rules = rules
    return rules
