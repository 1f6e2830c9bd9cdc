"""The state of glide-mq jobs as clients see it, and the changes that time makes to them.

Holds jobs, pauses, groups and deduplication entries in plain dicts, and the steps of a job's life
that commands and time share. Where the yard has a choice (a place in line, the moment at which it
helps a queue without workers) it is read from the yard and checked to be legal. Times are those of
the boot's steady clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jobyard.engine.state.names import glide_key
from jobyard.model.family import GLIDE
from jobyard.model.job import BLOCKED, DEAD, DELAYED, DONE, LEASED, READY
from jobyard.model.throttle.ordering_group import ordering_of
from jobyard.model.throttle.ready_lists import ReadyList
from sim.glidemq.nouns import STAMP_SHIFT, Ask, GlideJob, Held
from sim.state import Violation

if TYPE_CHECKING:
    from collections.abc import Callable

    from jobyard.engine.state.yard import Yard
    from jobyard.model.job import Job

# How long the yard leaves a job to workers for promotion, and a running one to its worker.
WAIT_MS: Final = 5000
SILENCE_MS: Final = 60_000
ROUND_MS: Final = 1000
REST_MS: Final = 7 * 86_400_000


class GlideState:
    """The whole state that glide-mq clients should find."""

    def __init__(self, reach: Callable[[str], None]) -> None:
        self.reach = reach
        self.yard: Yard
        self.now = 0
        self.wall_offset = 0
        # The batch that was open before the yard acted.
        self.batch = 0
        # By their number in the yard; removed jobs may come back after a power cut.
        self.jobs: dict[int, GlideJob] = {}
        self.gone: dict[int, GlideJob] = {}
        self.paused: set[str] = set()
        # By queue: since when it has a group or lost a reader, and the consumers that read from it,
        # each with the last connection it used.
        self.groups: dict[str, tuple[int, dict[str, int]]] = {}
        self.newest_place = 0
        # The newest of the places from before a restart.
        self.boot_place = 0
        self._endings = 0
        # Jobs with ordering keys that have started and are in their ready lists.
        self._going_on: set[int] = set()
        # Those of a key that were in their ready lists when the last turn ended.
        self._stood: set[int] = set()
        # By queue and key: the next job where several may run.
        self._fronts: dict[tuple[str, str], int] = {}
        # Given in one turn of the yard, in an order that the answers do not show.
        self.just_given: set[tuple[str, str]] = set()
        # Queues of scheduled jobs that were found expired in this turn.
        self.just_laid: list[str] = []
        # By queue: keys of jobs that were found expired in this turn.
        self._groups_laid: set[tuple[str, str]] = set()

    # -- finding -----------------------------------------------------------------------------------

    def find(self, queue: str, job_id: str) -> GlideJob | None:
        """Return a job by its id."""
        for job in self.jobs.values():
            if job.queue == queue and job.id == job_id:
                return job
        return None

    def of_queue(self, queue: str, *states: int) -> list[GlideJob]:
        """Return the jobs of a queue that are in some states."""
        return [j for j in self.jobs.values() if j.queue == queue and j.state in states]

    def of_state(self, state: int) -> list[GlideJob]:
        """Return all jobs that are in a state."""
        return [job for job in self.jobs.values() if job.state == state]

    def on_ready_list(self, queue: str, ready_list: int) -> list[GlideJob]:
        """Return the ready jobs of a list, including those that wait behind others of their key."""
        return [job for job in self.of_queue(queue, READY) if job.ready_list == ready_list]

    def ordering_of(self, job: GlideJob) -> list[GlideJob]:
        """Return the jobs of the same key."""
        ordering = job.new_job.ordering
        return [
            j for j in self.jobs.values() if j.queue == job.queue and j.new_job.ordering == ordering
        ]

    def available(self, queue: str, ready_list: int) -> list[GlideJob]:
        """Return the jobs of a ready list that a worker could get."""
        if queue in self.paused:
            return []
        jobs = self.on_ready_list(queue, ready_list)
        return [job for job in jobs if not job.is_old(self.now) and self.is_standing(job)]

    def is_standing(self, job: GlideJob) -> bool:
        """Return whether a ready job is in its ready list, not blocked by others of its key."""
        if not job.new_job.ordering:
            return True
        if job.deliveries > 0:
            # If more have started than may run, some are revived jobs, and wait too.
            return not self.is_crowded(job) or job.number in self._going_on
        others = self.ordering_of(job)
        if sum(other.has_started() for other in others) >= max(job.new_job.concurrency, 1):
            return False
        if job.new_job.concurrency <= 1:
            before = [j for j in others if j.is_open() and not j.deliveries and j.order < job.order]
            return not before
        return self._fronts.get((job.queue, job.new_job.ordering)) == job.number

    def is_crowded(self, job: GlideJob) -> bool:
        """Return whether a job has started, and more of its key have than may run at once."""
        if not job.new_job.ordering or not job.has_started():
            return False
        started = sum(other.has_started() for other in self.ordering_of(job))
        return started > max(job.new_job.concurrency, 1)

    def came_up(self, job: GlideJob) -> bool:
        """Return whether a job entered its ready list in this turn because its key allowed it."""
        return bool(job.new_job.ordering) and job.number not in self._stood

    def came_late(self, job: GlideJob) -> bool:
        """Return whether a job may have entered its list after a worker had looked there in vain.

        Another job of its key was found expired in a list that was checked later.
        """
        return self.came_up(job) and (job.queue, job.new_job.ordering) in self._groups_laid

    def is_parked(self, job: GlideJob) -> bool:
        """Return whether a ready job waits for others of its key, none of which may start."""
        if (
            not job.new_job.ordering
            or job.state != READY
            or job.ready_list == ReadyList.STAGED
            or self.is_standing(job)
        ):
            return False
        new = [
            other
            for other in self.ordering_of(job)
            if other.state == READY and not other.deliveries
        ]
        return job.deliveries > 0 or not any(self.is_standing(other) for other in new)

    def shown(self, job: GlideJob) -> dict[bytes, bytes]:
        """Return a job as the hash that clients read."""
        fields = job.shown(self.wall_offset)
        if fields[b"state"] == b"waiting" and self.is_parked(job):
            fields[b"state"] = b"group-waiting"
        return fields

    def advance(self, job: GlideJob) -> None:
        """Choose the next job of a key with several slots; it stays next until it starts."""
        if not job.new_job.ordering or job.new_job.concurrency <= 1:
            return
        place = (job.queue, job.new_job.ordering)
        ordering = self.ordering_of(job)
        front = self.jobs.get(self._fronts.pop(place, 0))
        if sum(other.has_started() for other in ordering) >= job.new_job.concurrency:
            return
        if front is None or front.state != READY or front.deliveries > 0:
            ready = [other for other in ordering if other.state == READY and not other.deliveries]
            front = min(ready, key=lambda other: other.order, default=None)
        if front is not None:
            self._fronts[place] = front.number

    def place_of(self, job: GlideJob) -> int:
        """Return the place in line of a job; a new place is behind all others."""
        if job.place is not None:
            return job.place
        found = self.yard.jobs.get(job.number)
        assert found is not None
        place = int(found.stamp)
        if abs(place) <= self.newest_place:
            raise Violation("order", f"{job} got place {place}, {self.newest_place} was given")
        if place * job.sign < 0:
            raise Violation("order", f"{job} got place {place}")
        job.place = place
        return place

    # -- steps of a life ---------------------------------------------------------------------------

    def stand(self, job: GlideJob, ready_list: int) -> None:
        """Make a job ready in a list, as the last one."""
        if self._fronts.get((job.queue, job.new_job.ordering)) == job.number:
            # A job that is moved is no longer next, and may become it again.
            del self._fronts[job.queue, job.new_job.ordering]
        job.held = None
        job.state = READY
        job.ready_list = ready_list
        job.stood = self.now
        job.place = None
        job.sign = -1 if ready_list == ReadyList.LIFO else 1
        job.batch = self.batch
        self.advance(job)

    def run(self, job: GlideJob, consumer: str, *, is_list: bool) -> None:
        """Lease a job to a worker."""
        job.state = LEASED
        job.ready_list = ReadyList.STREAM
        job.deliveries += 1
        job.held = Held(consumer, self.now, is_list=is_list)
        self.advance(job)

    def put_off(self, job: GlideJob, delay: int, *, is_new: bool) -> None:
        """Delay a job."""
        job.held = None
        job.state = DELAYED
        job.ready_list = ReadyList.STREAM
        job.delay = delay
        job.due = self.now + delay
        job.batch = self.batch
        if is_new:
            job.place = None
            job.sign = 1
        self.advance(job)

    def rest(self, job: GlideJob, state: int) -> None:
        """End a job."""
        held = job.held
        job.started = 0 if held is None else held.since
        job.held = None
        job.state = state
        job.ready_list = ReadyList.STREAM
        job.ended = self.now
        self._endings += 1
        job.ending = self._endings
        job.batch = self.batch
        self.advance(job)

    def lay(self, job: GlideJob, error: bytes) -> None:
        """Make a job dead that was not run to its end."""
        self.rest(job, DEAD)
        job.started = 0
        job.error = error

    def remove(self, job: GlideJob) -> None:
        """Remove a job."""
        del self.jobs[job.number]
        self.gone[job.number] = job
        self.advance(job)

    def completed(self, job: GlideJob, result: bytes, *, is_kept: bool) -> None:
        """Complete a run, and continue the parents that wait for no other job."""
        self.rest(job, DONE)
        job.result = result
        for parent in self.jobs.values():
            for label, (number, is_done) in parent.members.items():
                if number == job.number and not is_done and parent.is_open():
                    parent.members[label] = (number, True)
                    self.look_again(parent)
        if not is_kept:
            self.remove(job)

    def look_again(self, parent: GlideJob) -> None:
        """Continue a parent that no longer waits for a child."""
        parent.batch = self.batch
        if parent.state == BLOCKED and parent.open_members() == 0:
            self.reach("parent released")
            self.stand(parent, ReadyList.STREAM)

    def stalled(self, job: GlideJob, most: int) -> None:
        """End the run of a job whose worker was silent for too long."""
        # No answer depends on it: a restart ends the run as well.
        batch = job.batch
        job.stalls += 1
        if job.stalls > most:
            self.lay(job, b"job stalled more than maxStalledCount")
        else:
            self.reach("job reclaimed")
            self.stand(job, ReadyList.STREAM)
            job.due = self.now
        job.batch = batch

    def promoted(self, job: GlideJob) -> None:
        """Put a scheduled job where workers find it."""
        job.due = min(job.due, self.now)
        ready_list = ReadyList.PROMOTED if job.rank > 0 else ReadyList.STREAM
        self.stand(job, ReadyList.LIFO if job.new_job.is_lifo else ready_list)

    def come_due(self, job: GlideJob) -> None:
        """End the delay of a job."""
        place = self.place_of(job)
        job.state = READY
        job.ready_list = ReadyList.STAGED
        job.stood = self.now
        if place >= 0:
            job.place = (job.due << STAMP_SHIFT) | (job.number & ((1 << STAMP_SHIFT) - 1))
        self.advance(job)

    # -- time --------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Apply everything that is due, as the yard did."""
        for job in sorted(self.of_state(DELAYED), key=lambda one: one.due):
            if job.due <= self.now:
                self.come_due(job)
        for job in list(self.jobs.values()):
            if job.state in {READY, DELAYED} and job.is_old(self.now):
                self.reach("outlived its time")
                self.lay(job, b"expired")
            elif job.state == READY and job.ready_list == ReadyList.STAGED:
                self._unstage(job)
            elif job.held is not None:
                self._give_back(job, job.held)
            elif job.state == DONE and self.now - job.ended >= REST_MS:
                self._forget(job)

    def _forget(self, job: GlideJob) -> None:
        """Drop a job that was done long ago: within a short while, not at once."""
        if self.yard.jobs.get(job.number) is None:
            self.remove(job)

    def follow_old(self) -> None:
        """Mark jobs as dead that were found expired."""
        self.just_laid = []
        self._groups_laid.clear()
        for job in self.jobs.values():
            if job.state not in {READY, DELAYED} or not job.is_old(self.now):
                continue
            found = self.yard.jobs.get(job.number)
            if found is not None and found.state == DEAD and found.outcome().error == "expired":
                if job.state == DELAYED and job.due <= self.now:
                    self.come_due(job)
                if job.is_scheduled():
                    self.just_laid.append(job.queue)
                self._groups_laid.add((job.queue, job.new_job.ordering))
                self.lay(job, b"expired")

    def _unstage(self, job: GlideJob) -> None:
        """Move a job that no worker promoted to the stream, if the yard did so."""
        since, _ = self.groups.get(job.queue, (self.now, {}))
        if job.due > self.now - WAIT_MS or job.queue not in self.groups:
            return
        found = self.yard.jobs.get(job.number)
        has_moved = found is not None and (
            found.state == LEASED or found.ready_list == ReadyList.STREAM
        )
        if has_moved:
            self.reach("promoted by the yard")
            self.stand(job, ReadyList.STREAM)
        elif max(job.due + WAIT_MS, job.stood, since) + ROUND_MS < self.now:
            raise Violation("liveness", f"{job} stays where no worker finds it")

    def _give_back(self, job: GlideJob, held: Held) -> None:
        """Make a job ready whose worker is gone, if the yard did so."""
        if job.queue not in self.groups:
            return
        since, readers = self.groups[job.queue]
        silent = self.now - held.beat
        # The worker of a job taken from a list is unknown.
        is_there = bool(readers) if held.is_list or not held.consumer else held.consumer in readers
        if is_there or silent < SILENCE_MS:
            return
        found = self.yard.jobs.get(job.number)
        if found is not None and found.lease is not None and found.lease.beat_ms == held.beat:
            if silent > SILENCE_MS + ROUND_MS and since + ROUND_MS < self.now:
                raise Violation("liveness", f"{job} stays with a worker that is gone")
            return
        self.reach("given back by the yard")
        self.stalled(job, 1)

    def note_reader(self, ask: Ask) -> None:
        """Note a consumer that reads from a group over a connection, and the group too."""
        self.groups.setdefault(ask.queue, (self.now, {}))[1][ask.consumer] = ask.number

    def closed(self, number: int) -> None:
        """Close a connection; the jobs it took stay with its consumer."""
        for queue, (_, readers) in self.groups.items():
            left = {name: other for name, other in readers.items() if other != number}
            if len(left) < len(readers):
                self.groups[queue] = (self.now, left)

    # -- checks ------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Read the places that jobs got in this turn of the yard."""
        self._going_on.clear()
        self._stood.clear()
        for job in self.jobs.values():
            found = self.yard.jobs.get(job.number)
            if found is None:
                raise Violation("lost", f"{job} is not there")
            self.place_of(job)
            part = None if found.details is None else found.details.glide
            if part is not None and part.is_standing:
                self._stood.add(job.number)
                if job.deliveries > 0:
                    self._going_on.add(job.number)
            ordering = ordering_of(found.details)
            if job.new_job.concurrency > 1 and ordering is not None:
                # Jobs that came in one tick may have come in another order.
                front = ordering.next_job
                self._fronts[job.queue, job.new_job.ordering] = (
                    0 if front is None else int(front.id)
                )
            if (
                not job.is_open()
                and found.details is not None
                and found.details.outcome is not None
            ):
                # An ended job has no place in line.
                job.place = int(found.stamp)
                job.ending = int(found.details.outcome.key)
                self._endings = max(self._endings, job.ending)

    def check_waiting(self, ask: Ask) -> None:
        """Check that a waiting reader has reason to wait."""
        if ask.until <= self.now:
            raise Violation("waiters", f"{ask} waits longer than requested")
        ready = self.available(ask.queue, ReadyList.STREAM)
        queue = self.yard.queues.get(ask.queue)
        # A client that waits for the next job of a key is served with the next tick, which is due.
        is_soon = queue is not None and queue.pos >= 0 and queue.sort_key <= self.now
        if ready and not is_soon:
            raise Violation("waiters", f"{ask} waits but {ready[0]} is ready")

    def check(self) -> None:
        """Check that every job is where it should be."""
        count = 0
        for found in self.yard.jobs.all():
            if found.family == GLIDE:
                count += 1
                job = self.jobs.get(int(found.id))
                if job is None:
                    raise Violation("no job from nowhere", f"job {found.id} is there")
                self._check_job(job, found)
        if count != len(self.jobs):
            lost = [job for n, job in self.jobs.items() if self.yard.jobs.get(n) is None]
            raise Violation("lost", f"{lost[:3]} are not there")
        self.newest_place = max(self.newest_place, int(self.yard.last_stamp))
        for queue in {job.queue for job in self.jobs.values()}:
            self._check_orderings(queue)

    def _check_job(self, job: GlideJob, found: Job) -> None:
        stands = (int(found.state), int(found.ready_list), int(found.rank), int(found.delay_ms))
        wanted = (job.state, job.ready_list, job.rank, job.delay)
        counts = (int(found.attempts), int(found.deliveries), int(found.stalls()))
        known = (job.attempts, job.deliveries, job.stalls)
        place = (int(found.stamp), found.queue.name)
        if (stands, counts, place) != (wanted, known, (job.place, job.queue)):
            raise Violation("state", f"{job} is at {stands} {counts} {place}, not {wanted}")
        if job.state == DELAYED and int(found.due_ms) != job.due:
            raise Violation("state", f"{job} is due at {found.due_ms}, not {job.due}")

    def _check_orderings(self, queue: str) -> None:
        """Check that no more jobs of a key run than allowed, and that none overtook another."""
        orderings: dict[str, list[GlideJob]] = {}
        for job in self.of_queue(queue, LEASED, READY, DELAYED, BLOCKED):
            if job.new_job.ordering:
                orderings.setdefault(job.new_job.ordering, []).append(job)
        for jobs in orderings.values():
            running = [job for job in jobs if job.state == LEASED]
            if len(running) > max(jobs[0].new_job.concurrency, 1):
                raise Violation("ordering", f"{running} run at once")

    # -- restarts ----------------------------------------------------------------------------------

    def adopt(self, yard: Yard) -> None:
        """Continue from a yard that came back as it should."""
        known = {**self.gone, **self.jobs}
        self.yard = yard
        self.jobs = {}
        self.groups = {}
        for found in yard.jobs.all():
            if found.family != GLIDE:
                continue
            number = int(found.id)
            job = known.pop(number, None)
            if job is None or job.queue != found.queue.name:
                raise Violation("no job from nowhere", f"job {number} was never put")
            job.recall(found, yard.bodies.fetch(found), self.now)
            if found.state == DONE:
                job.result = yard.bodies.fetch_result(found) or b""
            job.batch = 0
            self.jobs[number] = job
            if job.new_job.custom:
                name = glide_key(found.queue, job.id)
                if yard.names.glide.get(name) is not found:
                    raise Violation("names", f"{job} is not found by its id")
        # Numbers of jobs that were lost before any client saw them may be issued again.
        self.gone = {n: job for n, job in known.items() if n < yard.journal.next_id}
        self._fronts = {}
        for job in self.jobs.values():
            self.advance(job)
        self._endings = max((job.ending for job in self.jobs.values()), default=0)
        self.newest_place = self.boot_place = int(yard.last_stamp)
        self.paused = {
            queue.name
            for queue in yard.queues.values()
            if queue.rules is not None and queue.rules.settings.is_paused
        }
