"""Finds jobs by what clients call them, and by what they stand for.

Custom ids (one name space over all queues, and for glide-mq one a queue), keys that keep a second
job like the first out (one name space a queue), members of groups, jobs that others wait for, and
the alarms of jobs that live for a limited time. All of it follows from the jobs, so nothing here is
in the journal.
"""

from collections import deque
from typing import Final, final

from mypy_extensions import i64

from jobyard.model.details import OPEN, Extra
from jobyard.model.family import IDS_PER_QUEUE, traits
from jobyard.model.index.heap import Heap
from jobyard.model.index.item import Item
from jobyard.model.index.name_table import NameTable
from jobyard.model.index.sharded_dict import ShardedDict
from jobyard.model.job import DEAD, DONE, Job
from jobyard.model.queue import Queue
from jobyard.model.throttle.ordering_group import lane_of
from jobyard.model.throttle.ready_lists import Shelves
from jobyard.model.throttle.settings import Rules

# So many jobs that others began to wait for are remembered in their order.
AWAITED_LATELY: Final = 4096


@final
class Expiry(Item):
    """The end of a job's time to live. `sort_key` is that time."""

    def __init__(self, job: Job, at_ms: i64) -> None:
        super().__init__(job.id, at_ms, job.id)
        self.job: Job = job


@final
class Names:
    """The tables behind the names."""

    def __init__(self, timers: Heap) -> None:
        self._timers = timers
        self.custom = NameTable()
        # Those of glide-mq, each with its queue; no client of another door finds a job by them.
        self.glide = NameTable()
        # By the id of a job: those that wait for it.
        self.dependents: ShardedDict[int, list[Job]] = ShardedDict()
        # How often a job was the first to wait for another, and for which ones lately.
        self.awaited_count: i64 = 0
        self.lately_awaited: deque[int] = deque(maxlen=AWAITED_LATELY)

    def enter(self, job: Job, *, is_known: bool = False) -> None:
        """Take in a job that has something to be found by.

        If `is_known`, whoever lets it enter notes its name, and for whom it waits.
        """
        if job.policy.ttl_ms > 0 and job.state not in (DEAD, DONE):
            self.begin_ttl(job)
        extra = job.extra
        if extra is None:
            return
        if not is_known and extra.custom_id:
            self._enter_custom(job, extra.custom_id)
        _join(job, extra)
        if job.state in (DEAD, DONE):
            return
        if extra.unique_key:
            self.take_key(job)
        if not is_known and extra.members is not None:
            for member in extra.members:
                if member.state == OPEN:
                    self.wait_for(job, member.child_id)

    def recall(self, job: Job) -> None:
        """Take in a job that a restart brought back.

        Of two with one key the younger need not be the owner: a key whose time is over is taken
        from a job that lives on, perhaps by an older one that is brought back.
        """
        extra = job.extra
        keys = job.queue.keys
        owner = keys.get(extra.unique_key) if extra is not None and keys is not None else None
        self.enter(job)
        if owner is not None and _outlasts(owner, job):
            self.take_key(owner)

    def named(self, custom_id: str) -> Job | None:
        """Return the job that was put with an id of the client's own, but for glide-mq."""
        job = self.custom.get(custom_id)
        return None if job is None or job.id < job.queue.gone_before else job

    def wait_for(self, job: Job, child_id: i64) -> None:
        """Note that one job waits for another."""
        waiting = self.dependents.get(int(child_id))
        if waiting is None:
            self.wait_first(child_id, [job])
        else:
            waiting.append(job)

    def wait_first(self, child_id: i64, jobs: list[Job]) -> None:
        """Note that jobs wait for one that no other waits for."""
        self.dependents.put(int(child_id), jobs)
        self.awaited_count += 1
        self.lately_awaited.append(int(child_id))

    def stop_waiting(self, job: Job, child_id: i64) -> None:
        """Note that it waits no more."""
        waiting = self.dependents.get(int(child_id))
        if waiting is not None and job in waiting:
            waiting.remove(job)
            if not waiting:
                self.dependents.remove(int(child_id))

    def leave(self, job: Job) -> None:
        """Let a job go that is gone."""
        extra = job.extra
        if extra is None:
            return
        self.end_ttl(extra)
        if extra.custom_id:
            self._leave_custom(job, extra.custom_id)
        lane = lane_of(extra)
        if lane is not None:
            lane.jobs_count -= 1
            shelves_of(job.queue).forget_idle(lane)
        self.free_key(job)
        group = extra.group
        if group is not None:
            group.jobs_count -= 1
            rules_of(job.queue).forget_idle(group)
        if extra.members is not None:
            for member in extra.members:
                if member.state == OPEN:
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
        """Arm the alarm of a job that lives for a limited time, unless it is armed."""
        extra = job.more()
        expiry = extra.expiry
        if expiry is None:
            expiry = Expiry(job, job.created_ms + job.policy.ttl_ms)
            extra.expiry = expiry
        if expiry.pos < 0:
            self._timers.push(expiry)

    def end_ttl(self, extra: Extra) -> None:
        """Disarm the alarm of a job that ended before its time was over."""
        expiry = extra.expiry
        if expiry is not None:
            extra.expiry = None
            if expiry.pos >= 0:
                self._timers.remove(expiry)

    def take_key(self, job: Job) -> None:
        """Make a job the owner of its key."""
        extra = job.extra
        assert extra is not None
        keys = job.queue.keys
        if keys is None:
            keys = ShardedDict()
            job.queue.keys = keys
        keys.put(extra.unique_key, job)

    def rest(self, job: Job) -> None:
        """Give up what only a job has that may run: its key, its alarm, its waiting for others."""
        extra = job.extra
        if extra is None:
            return
        self.end_ttl(extra)
        self.free_key(job)
        if extra.members is not None:
            for member in extra.members:
                if member.state == OPEN:
                    self.stop_waiting(job, member.child_id)

    def has_lost_key(self, job: Job) -> bool:
        """Tell whether another job took the key of this one while it was at rest."""
        extra = job.extra
        keys = job.queue.keys
        if extra is None or keys is None or not extra.unique_key:
            return False
        owner = keys.get(extra.unique_key)
        return owner is not None and owner is not job

    def come_back(self, job: Job) -> None:
        """Take up the key of a job that was at rest, if it is free, and its waiting for others."""
        extra = job.extra
        if extra is None:
            return
        if extra.unique_key and not self.has_lost_key(job):
            self.take_key(job)
        part = extra.glide
        if part is not None and part.lane is not None and job.deliveries == 0:
            part.lane.rejoin(job, part)
        if extra.members is not None:
            for member in extra.members:
                if member.state == OPEN:
                    self.wait_for(job, member.child_id)

    def free_key(self, job: Job) -> None:
        """Let others with the same key in: the job has come to its end."""
        extra = job.extra
        keys = job.queue.keys
        if extra is None:
            return
        if keys is not None and extra.unique_key and keys.get(extra.unique_key) is job:
            keys.remove(extra.unique_key)


def _join(job: Job, extra: Extra) -> None:
    """Let a job belong to its group or lane."""
    if extra.group_id:
        rules = rules_of(job.queue)
        extra.group = rules.group(extra.group_id)
        extra.group.jobs_count += 1
    part = extra.glide
    if part is not None and part.lane_key:
        lane = shelves_of(job.queue).lane(part.lane_key)
        part.lane = lane
        lane.add(job, part)


def _outlasts(owner: Job, other: Job) -> bool:
    """Tell whether a job keeps its key longer than another that has the same."""
    mine = owner.extra
    theirs = other.extra
    assert mine is not None
    assert theirs is not None
    if theirs.key_until_ms == 0:
        return False
    return mine.key_until_ms == 0 or mine.key_until_ms > theirs.key_until_ms


def glide_key(queue: Queue, custom_id: str) -> str:
    """Return where a job of glide-mq is found: its ids are unique within their queue only."""
    return f"{queue.name}\0{custom_id}"


def seq_of(job_id: str) -> i64:
    """Return the seq that is spelt like an id, or 0; no other spelling of a number is one."""
    if not job_id.isdigit() or not job_id.isascii() or len(job_id) > 18 or job_id[0] == "0":
        return 0
    return int(job_id)


def shelves_of(queue: Queue) -> Shelves:
    """Return the shelves of a queue, making them on first use."""
    rules = rules_of(queue)
    shelves = rules.shelves
    if shelves is None:
        shelves = Shelves()
        rules.shelves = shelves
    return shelves


def rules_of(queue: Queue) -> Rules:
    """Return the rules of a queue, making them on first use."""
    rules = queue.rules
    if rules is None:
        rules = Rules()
        queue.rules = rules
    return rules
