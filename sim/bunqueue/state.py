"""The state of bunqueue jobs as clients see it, and the changes that time makes to them.

Holds jobs, keys, pauses and locks in plain dicts, and the steps of a job's life that commands and
time share. Where the yard has a choice it is read from the yard and checked to be legal. Times are
those of the boot's steady clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jobyard.model.details import FailureReason
from jobyard.model.family import BUNQUEUE
from jobyard.model.job import BLOCKED, DEAD, DELAYED, DONE, READY
from jobyard.wire.msgpack.forms import decode
from sim.state import Violation

if TYPE_CHECKING:
    from collections.abc import Callable

    from jobyard.engine.state.yard import Yard
    from jobyard.model.job import Job
    from sim.bunqueue.nouns import Ask, BunClient, BunJob, Lock

STALLS_MAX: Final = 3
# How long ended jobs are kept.
REST_MS: Final = 7 * 86_400_000


class BunState:
    """The whole state that bunqueue clients should find."""

    def __init__(self, reach: Callable[[str], None]) -> None:
        self.reach = reach
        self.may_fill = False
        # Results and done jobs that a full disk has not kept since the start.
        self.lost_count = 0
        self.yard: Yard
        self.now = 0
        # By their number in the yard; removed jobs may come back after a power cut.
        self.jobs: dict[int, BunJob] = {}
        self.gone: dict[int, BunJob] = {}
        self.by_id: dict[str, BunJob] = {}
        self.keys: dict[tuple[str, str], BunJob] = {}
        self.paused: set[str] = set()
        self.most_active: dict[str, int] = {}
        self.clients: list[BunClient] = []

    def waiting_for(self, number: int) -> list[BunJob]:
        """Return the jobs that wait for another."""
        return [
            job
            for job in self.jobs.values()
            if number in job.waits and job.state not in {DEAD, DONE}
        ]

    def reaches(self, job: BunJob, target: int) -> bool:
        """Return whether a job waits, directly or indirectly, for another."""
        seen: set[int] = set()
        ahead = set(job.waits)
        while ahead:
            number = ahead.pop()
            if number == target:
                return True
            seen.add(number)
            child = self.jobs.get(number)
            if child is not None:
                ahead |= child.waits - seen
        return False

    def available(self, queue: str) -> list[BunJob]:
        """Return the jobs that a puller could get."""
        if queue in self.paused:
            return []
        active = sum(1 for job in self.jobs.values() if job.queue == queue and job.lock is not None)
        if 0 <= self.most_active.get(queue, -1) <= active:
            return []
        return [job for job in self.jobs.values() if job.queue == queue and job.state == READY]

    def drop_old(self, named: str = "") -> None:
        """Drop expired jobs that a puller has found, except the named one."""
        for job in list(self.jobs.values()):
            if not job.ttl_ms or job.state != READY or not self.is_old(job) or job.id == named:
                continue
            if self.yard.jobs.get(job.number) is None:
                self.remove(job)

    def is_old(self, job: BunJob) -> bool:
        """Return whether a job has expired."""
        return 0 < job.ttl_ms <= self.now - job.created

    def complete(self, job: BunJob, result: object) -> None:
        """Complete a run."""
        self.free(job)
        found = self.yard.jobs.get(job.number)
        if job.removes_done:
            self.remove(job)
        elif found is None:
            self._note_lost(job)
            self.remove(job)
        else:
            job.state = DONE
            job.result = result
            if found.state == DONE and found.outcome().reason == FailureReason.RESULT_LOST:
                self._note_lost(job)
                job.result = None
            self.rest(job)
        for parent in self.waiting_for(job.number):
            parent.waits.discard(job.number)
            self._unblock(parent)

    def _note_lost(self, job: BunJob) -> None:
        """Check that a full disk has reported a result, or a done job, that it did not keep."""
        journal = self.yard.journal
        self.lost_count += 1
        if not self.may_fill or self.lost_count > journal.results_lost + journal.done_lost:
            raise Violation("full disk", f"job {job.number} is done and not kept, without a report")
        self.reach("result not kept")

    def _unblock(self, parent: BunJob) -> None:
        if parent.state == BLOCKED and not parent.waits:
            self.reach("unblocked")
            parent.is_plain = False
            parent.state = DELAYED if parent.due > self.now else READY

    def failed(self, job: BunJob, *, is_final: bool) -> None:
        """Fail a run: the job is retried later, or dead."""
        self.free(job)
        job.attempts += 1
        job.is_plain = False
        if is_final or job.attempts >= job.max_attempts:
            self._die(job)
            return
        least, most = job.backoff()
        found = self.yard.jobs.get(job.number)
        if found is None and self.is_old(job):
            job.state = READY
            return
        if found is None:
            raise Violation("lost", f"{job} failed and is not there")
        if most == 0:
            job.state = READY
            return
        job.state = DELAYED
        job.due = int(found.due_ms)
        if not least <= job.due - self.now <= most:
            raise Violation("backoff", f"{job} waits {job.due - self.now} ms")

    def _die(self, job: BunJob) -> None:
        job.last_token = None
        if job.attempts > job.max_attempts:
            raise Violation("attempts", f"{job} died after {job.attempts} attempts")
        if job.removes_dead:
            self.remove(job)
        else:
            self.reach("dead job")
            job.state = DEAD
            self.rest(job)

    def free(self, job: BunJob, *, late: bool = False) -> None:
        """End the lock of a job; `late` if the holder of the token may still finish it."""
        lock = job.lock
        job.lock = None
        job.last_token = lock.token if lock is not None and late else None

    def rest(self, job: BunJob) -> None:
        """Free the key of a job that has ended."""
        job.ended = self.now
        if job.key and self.keys.get((job.queue, job.key)) is job:
            del self.keys[job.queue, job.key]

    def remove(self, job: BunJob) -> None:
        """Remove a job."""
        self.rest(job)
        self.free(job)
        del self.jobs[job.number]
        if self.by_id.get(job.id) is job:
            del self.by_id[job.id]
        self.gone[job.number] = job

    def revived(self, job: BunJob) -> None:
        """Bring a dead job back with all its attempts."""
        found = self.yard.jobs.get(job.number)
        if self.may_fill and found is not None and int(found.state) == job.state:
            return
        self.reach("revived")
        job.result = None
        job.waits = {n for n in job.waits if n in self.jobs and self.jobs[n].state != DONE}
        job.state = BLOCKED if job.waits else READY
        # A delay is not waited for twice.
        job.due = self.now
        job.attempts = job.stalls = 0
        job.last_token = None
        job.is_plain = False
        if job.key:
            owner = self.keys.get((job.queue, job.key))
            if owner is None:
                self.keys[job.queue, job.key] = job
            else:
                job.key = ""

    def tick(self) -> None:
        """Apply everything that is due."""
        for job in list(self.jobs.values()):
            lock = job.lock
            if job.state == DELAYED and job.due <= self.now:
                job.state = READY
            elif lock is not None and min(lock.until, lock.stop_at) <= self.now:
                self._ran_out(job, lock)
            if job.state in {DONE, DEAD} and self.now - job.ended >= REST_MS:
                # It is removed within a short while, not at once.
                if self.yard.jobs.get(job.number) is None:
                    self.remove(job)
            elif self.may_fill and self.yard.jobs.get(job.number) is not None:
                continue
            elif self.is_old(job) and job.state in {READY, DELAYED}:
                self.reach("outlived its time")
                self.remove(job)

    def _ran_out(self, job: BunJob, lock: Lock) -> None:
        found = self.yard.jobs.get(job.number)
        lease = None if found is None else found.lease
        if self.may_fill and lease is not None and int(lease.started_ms) == lock.since:
            # Others must be notified of its end, for which there is no room yet.
            lock.until = max(lock.until, self.now + 1000)
            lock.stop_at = max(lock.stop_at, self.now + 1000)
            return
        if lock.stop_at <= self.now:
            self.reach("run timed out")
            self.failed(job, is_final=False)
            return
        self.reach("stalled")
        self.free(job, late=True)
        job.attempts += 1
        job.stalls += 1
        if job.attempts >= job.max_attempts or job.stalls >= STALLS_MAX:
            self._die(job)
        else:
            job.state = READY

    def closed(self, client: BunClient) -> None:
        """Give back what a connection held, except for locks that another client renews."""
        self.clients.remove(client)
        client.is_gone = True
        for job in self.jobs.values():
            lock = job.lock
            if lock is None or lock.client is not client:
                continue
            if lock.is_renewed and lock.token is not None:
                self.reach("lock outlives its connection")
                lock.client = None
            else:
                self.free(job, late=True)
                job.state = READY

    def check_waiting(self, client: BunClient, ask: Ask) -> None:
        """Check that a waiting puller has reason to wait."""
        if ask.until <= self.now:
            raise Violation("waiters", f"{ask} waits longer than requested")
        ready = [job for job in self.available(ask.text("queue")) if not self.is_old(job)]
        if ready:
            raise Violation("waiters", f"{ask} of {client.number} waits but {ready[0]} is ready")

    def check(self) -> None:
        """Check that every job is where it should be."""
        jobs = self.yard.jobs
        for number, job in self.jobs.items():
            found = jobs.get(number)
            if found is None:
                raise Violation("lost", f"{job} is not there")
            stands = (int(found.state), int(found.attempts), int(found.stalls()), int(found.rank))
            if stands != (job.state, job.attempts, job.stalls, job.rank()):
                raise Violation("state", f"{job} is at {stands}")
        keys = {
            (queue.name, key): int(owner.id)
            for queue in self.yard.queues.values()
            for key, owner in (queue.keys or {}).items()
        }
        wanted = {place: job.number for place, job in self.keys.items()}
        if keys != wanted:
            raise Violation("dedup", f"keys are owned by {keys}, not {wanted}")

    def adopt(self, yard: Yard) -> None:
        """Continue from a yard that came back as it should."""
        known = {**self.gone, **self.jobs}
        self.yard = yard
        self.jobs = {}
        self.by_id = {}
        self.keys = {}
        self.clients = []
        self.lost_count = 0
        for found in yard.jobs.all():
            if found.family != BUNQUEUE:
                continue
            number = int(found.id)
            if number not in known:
                raise Violation("no job from nowhere", f"job {number} was never put")
            self._take_back(known.pop(number), found)
        # Numbers of jobs that were lost before any client saw them may be issued again.
        self.gone = {n: job for n, job in known.items() if n < yard.journal.next_id}
        self.paused.clear()
        self.most_active.clear()
        for queue in yard.queues.values():
            for key, owner in (queue.keys or {}).items():
                self.keys[queue.name, key] = self.jobs[int(owner.id)]
            if queue.rules is not None:
                if queue.rules.settings.is_paused:
                    self.paused.add(queue.name)
                if queue.rules.settings.concurrency >= 0:
                    self.most_active[queue.name] = int(queue.rules.settings.concurrency)

    def _take_back(self, job: BunJob, found: Job) -> None:
        job.recall(found)
        body = self.yard.bodies.fetch(found)
        # A result that cannot be read is reported as damaged elsewhere.
        job.data = job.data if body is None else body
        result = self.yard.bodies.fetch_result(found) if found.state == DONE else None
        if result:
            job.result = decode(result, 0, len(result))
        self.jobs[job.number] = job
        self.by_id[job.id] = job
