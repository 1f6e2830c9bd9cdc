"""Every verb of the engine, drawn from a seed: jobs of both families, rules, flows, keys, notes.

`RandomVerbs` calls the engine as a session would: it never makes calls that a session refuses.
Nothing here knows the expected result.
"""

from collections.abc import Callable
from random import Random
from typing import Final

from jobyard.engine.jobs import finish, move
from jobyard.engine.jobs.put import NewJob, enter, intern, make_job, make_room, room_for
from jobyard.engine.jobs.queues import copy_settings, set_group, set_settings
from jobyard.engine.jobs.take import offer, take, take_job
from jobyard.engine.state.names import rules_of
from jobyard.errors import YardFull
from jobyard.model.details import JobDetails, LogLine
from jobyard.model.details_codec import FieldWriter, Tag, log_field
from jobyard.model.family import BEANSTALK, BUNQUEUE
from jobyard.model.job import BLOCKED, DEAD, DELAYED, DONE, JSON, LEASED, MSGPACK, READY, Job
from jobyard.model.members import Member
from jobyard.model.policy import (
    BACKOFF_FIXED,
    CHILD_BLOCKS,
    CHILD_CONTINUES_PARENT,
    CHILD_FAILS_PARENT,
    CHILD_IGNORED,
    CHILD_REMOVED,
    LIFO,
    PLAIN,
    REMOVE_DEAD,
    REMOVE_DONE,
    Policy,
)
from jobyard.protocols.beanstalk.door import TERMS
from tests.support.site.site import TOKEN_TERMS
from tests.support.site.yard import OpenYard

QUEUES: Final = ("default", "a", "b")
SIZES: Final = (0, 10, 300, 5000)
# The states a job may be in for each way to move it.
MOVABLE: Final = (
    (DELAYED,),
    (DEAD, DONE),
    (READY, DELAYED),
    (READY, DELAYED),
    (READY, DELAYED),
    (READY, DELAYED, DEAD),
)
CHILD_WAYS: Final = (
    CHILD_BLOCKS,
    CHILD_FAILS_PARENT,
    CHILD_IGNORED,
    CHILD_REMOVED,
    CHILD_CONTINUES_PARENT,
)


class RandomVerbs:
    """Two holders of one yard and a random generator that chooses what happens next."""

    def __init__(self, site: OpenYard, seed: int) -> None:
        self.site = site
        self.random = Random(seed)
        self._puts = 0
        self.holders = [site.connect() for _ in range(2)]
        self._deeds: list[Callable[[], None]] = [
            *[self.put_one] * 6,
            *[self.take_one] * 5,
            *[self.end_one] * 5,
            *[self.move_one] * 4,
            *[self.note_one] * 2,
            self.wake_one,
            self.erase_one,
            self.put_flow,
            self.change_body,
            self.change_rules,
            self.leave,
        ]

    def step(self) -> None:
        """Let some time pass, then do one thing."""
        self.site.jump(self.random.choice((0, 0, 1, 5, 100, 1000)))
        self.random.choice(self._deeds)()

    def forget(self, deed: Callable[[], None]) -> None:
        """Exclude one of the actions."""
        self._deeds = [each for each in self._deeds if each != deed]

    def go_on_at(self, site: OpenYard) -> None:
        """Continue with a restarted yard, in which no job is held."""
        self.site = site
        self.holders = [site.connect() for _ in self.holders]

    def erase_all(self) -> None:
        """Erase every job, held or not."""
        for job in self.site.yard.jobs.all():
            if self.site.yard.jobs.get(job.id) is job:
                move.erase(self.site.yard, job, self.site.now_ms)

    # -- in -----------------------------------------------------------------------------------

    def put_one(self) -> None:
        """Put a job of either family."""
        draw = self.random
        if draw.random() < 0.25:
            delay_ms = draw.choice((0, 0, 50, 2000))
            self.site.put(self._body(), draw.choice(QUEUES), draw.randrange(2000), delay_ms, 2000)
            return
        self._enter(draw.choice(QUEUES), self._details())

    def put_flow(self) -> None:
        """Put some jobs, then one that waits for them and for some existing ones."""
        draw = self.random
        count = draw.randrange(1, 3)
        parent_id = int(self.site.journal.next_id) + count
        children = []
        for _ in range(count):
            of_parent = JobDetails()
            of_parent.parent_id = parent_id
            children.append(self._enter(draw.choice(QUEUES), of_parent))
        living = self._jobs(READY, DELAYED, LEASED, BLOCKED)
        children += draw.sample(living, min(len(living), draw.randrange(2)))
        details = self._details() or JobDetails()
        members = {int(child.id): child for child in children}
        details.members = [
            Member(child_id, f"{child.queue.name}:{child_id}")
            for child_id, child in members.items()
        ]
        parent = self._enter(draw.choice(QUEUES), details)
        assert (parent.state, parent.id) == (BLOCKED, parent_id)

    def _enter(self, name: str, details: JobDetails | None) -> Job:
        draw = self.random
        queue = self.site.queue(name)
        if details is not None and queue.keys is not None and queue.keys.has(details.unique_key):
            details.unique_key = ""
        new_job = NewJob(BUNQUEUE, draw.choice((MSGPACK, JSON)), self._body())
        new_job.rank = draw.randrange(-3, 3)
        new_job.delay_ms = draw.choice((0, 0, 0, 50, 2000))
        new_job.own_ms = self.site.now_ms
        new_job.policy = self._policy()
        new_job.details = details
        make_room(self.site.yard, room_for(queue, new_job), self.site.now_ms)
        job = enter(self.site.yard, make_job(queue, new_job), self.site.now_ms)
        offer(self.site.yard, queue, self.site.now_ms)
        return job

    def _policy(self) -> Policy:
        draw = self.random
        if draw.random() < 0.3:
            return PLAIN
        policy = Policy(0)
        policy.name = draw.choice(("default", "mail"))
        policy.max_attempts = draw.choice((0, 1, 2, 3))
        policy.backoff_kind = draw.choice((policy.backoff_kind, BACKOFF_FIXED))
        policy.backoff_ms = draw.choice((0, 200))
        policy.timeout_ms = draw.choice((0, 0, 1500))
        policy.ttl_ms = draw.choice((0, 0, 4000))
        policy.flags = draw.choice((0, 0, 0, LIFO, REMOVE_DONE, REMOVE_DEAD))
        policy.child_failure = draw.choice(CHILD_WAYS)
        return intern(self.site.yard, policy)

    def _details(self) -> JobDetails | None:
        draw = self.random
        if draw.random() < 0.4:
            return None
        details = JobDetails()
        if draw.random() < 0.3:
            details.custom_id = f"job {self._puts} \N{SNOWMAN}"
        if draw.random() < 0.4:
            details.unique_key = draw.choice(("k1", "k2", "k3"))
            details.key_ttl_ms = draw.choice((0, 5000))
            details.key_until_ms = (
                self.site.now_ms + details.key_ttl_ms if details.key_ttl_ms else 0
            )
        if draw.random() < 0.4:
            details.group_id = draw.choice(("g1", "g2"))
        if draw.random() < 0.3:
            details.protocol_fields = b"\x81\xa4tags\x90"
            details.parent_id = draw.randrange(1, 50)
        return details

    def _body(self) -> bytes:
        self._puts += 1
        size = self.random.choice(SIZES)
        return (b"%d;" % self._puts * (size // 2 + 1))[:size]

    # -- out ----------------------------------------------------------------------------------

    def take_one(self) -> None:
        """Take a job, at either door."""
        draw = self.random
        queues = [self.site.queue(name) for name in QUEUES if name in self.site.yard.queues]
        terms = draw.choice((TERMS, TOKEN_TERMS))
        take(self.site.yard, queues, draw.choice(self.holders).lease_set, terms, self.site.now_ms)

    def end_one(self) -> None:
        """End the run of a job in a random way."""
        draw = self.random
        held = self._jobs(LEASED)
        if not held:
            return
        job = draw.choice(held)
        yard, now_ms = self.site.yard, self.site.now_ms
        choice = draw.randrange(10)
        if choice < 3:
            result = draw.choice((b"", b"\xc3", b"r" * 700))
            keep = draw.choice((-1, -1, 0, 1))
            try:
                finish.complete(yard, job, result, MSGPACK, keep, now_ms)
            except YardFull:
                # Its parents have no memory for the result.
                finish.complete(yard, job, b"", MSGPACK, keep, now_ms)
        elif choice < 6:
            stack = draw.choice(("", "at line 1\nat line 2"))
            is_final = draw.random() < 0.3
            finish.fail(
                yard, job, f"failed \N{SNOWMAN} {now_ms}", now_ms, stack=stack, is_final=is_final
            )
        elif choice == 6:
            finish.give_back(yard, job, now_ms)
        elif choice == 7:
            finish.bury(yard, job, draw.randrange(2000), now_ms)
        elif choice == 8:
            lease = job.lease
            assert lease is not None
            finish.touch(yard, lease, 4000, now_ms)
        elif job.family == BEANSTALK:
            finish.release(yard, job, draw.randrange(2000), draw.choice((0, 500)), now_ms)
        elif job.details is not None and job.details.open_count() > 0:
            finish.park(yard, job, now_ms)

    def leave(self) -> None:
        """Close a holder with its leases, and open another."""
        at = self.random.randrange(len(self.holders))
        self.holders[at].leave()
        self.holders[at] = self.site.connect()

    # -- about --------------------------------------------------------------------------------

    def move_one(self) -> None:
        """Change a job that is not running."""
        draw = self.random
        yard, now_ms = self.site.yard, self.site.now_ms
        choice = draw.randrange(6)
        jobs = self._jobs(*MOVABLE[choice])
        if not jobs:
            return
        job = draw.choice(jobs)
        if choice == 0:
            move.promote(yard, job, now_ms)
        elif choice == 1:
            move.revive(yard, job, now_ms)
        elif choice == 2:
            is_lifo = draw.choice((None, None, True, False))
            move.set_rank(yard, job, draw.randrange(-3, 2000), now_ms, is_lifo=is_lifo)
        elif choice == 3:
            move.set_due(yard, job, draw.choice((0, 400)), now_ms)
        elif choice == 4:
            move.make_dead(yard, job, "made dead", now_ms)
        elif job.state != DEAD or job.details is None or job.details.open_count() == 0:
            take_job(yard, job.id, draw.choice(self.holders).lease_set, TERMS, now_ms)

    def wake_one(self) -> None:
        """Kick a job that a beanstalk client can kick."""
        draw = self.random
        yard, now_ms = self.site.yard, self.site.now_ms
        asleep = self._jobs(DEAD, DELAYED)
        if yard.queues and draw.random() < 0.5:
            move.kick(yard, draw.choice(list(yard.queues.values())), 2, now_ms)
        elif asleep:
            move.kick_job(yard, draw.choice(asleep).id, now_ms)

    def erase_one(self) -> None:
        """Erase a job, held or not, unless there are few."""
        draw = self.random
        yard, now_ms = self.site.yard, self.site.now_ms
        if yard.jobs.count <= 20:
            return
        idle = self._jobs(READY, DELAYED, DEAD, DONE, BLOCKED)
        if idle and draw.random() < 0.5:
            move.remove(yard, draw.choice(idle), now_ms)
        else:
            move.erase(yard, draw.choice(yard.jobs.all()), now_ms)

    def note_one(self) -> None:
        """Change details of a job, or free its key."""
        draw = self.random
        yard = self.site.yard
        jobs = [job for job in yard.jobs.all() if job.family == BUNQUEUE]
        if not jobs:
            return
        job = draw.choice(jobs)
        details = job.ensure_details()
        fields = FieldWriter()
        choice = draw.randrange(5)
        if choice == 0:
            fields.text(Tag.PROGRESS, f"{draw.randrange(100)}\0on the way")
        elif choice in (1, 2):
            log_field(fields, LogLine(self.site.now_ms, "info", "line \N{SNOWMAN}\0"))
        elif choice == 3:
            fields.numbers(Tag.LOGS_CUT, (draw.randrange(3),), b"")
        elif details.unique_key and draw.random() < 0.5:
            yard.names.free_key(job)
            fields.begin(Tag.KEY_DROPPED, 0)
        elif details.unique_key:
            fields.numbers(Tag.KEY_UNTIL, (self.site.now_ms + 1000,), b"")
        else:
            return
        yard.note(job, fields.done())

    def change_body(self) -> None:
        """Give a job another body."""
        jobs = self.site.yard.jobs.all()
        if jobs:
            job = self.random.choice(jobs)
            move.set_body(self.site.yard, job, self._body(), job.codec, self.site.now_ms)

    def change_rules(self) -> None:
        """Set a pause or a limit of a queue or a group, mostly a short one."""
        draw = self.random
        yard, now_ms = self.site.yard, self.site.now_ms
        queue = self.site.queue(draw.choice(QUEUES))
        rules = rules_of(queue)
        if draw.random() < 0.5 and rules.groups:
            group = draw.choice(list(rules.groups.values()))
            group.concurrency = draw.choice((-1, 1, 2))
            group.is_paused = draw.random() < 0.2
            group.set_rate(*draw.choice(((-1, 0), (5, 1000))))
            set_group(yard, queue, group, now_ms)
            return
        settings = copy_settings(queue)
        settings.is_paused = draw.random() < 0.2
        settings.concurrency = draw.choice((-1, 5))
        settings.rate_most, settings.rate_ms = draw.choice(((-1, 0), (10, 1000)))
        settings.stalls_max = draw.choice((1, 3))
        settings.dead_max = draw.choice((3, 10_000))
        set_settings(yard, queue, settings, now_ms)

    def _jobs(self, *states: int) -> list[Job]:
        return [job for job in self.site.yard.jobs.all() if job.state in states]
