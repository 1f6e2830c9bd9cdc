"""A beanstalk client in the tubes of glide-mq jobs: takes the best job of all lists and ends it.

The job it gets must be one that a worker of any door could get; what it finishes or buries is
done or dead at every door. It ends a run before other clients act, so its leases never expire.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobyard.model.job import DEAD, READY
from jobyard.model.throttle.ready_lists import ReadyList
from jobyard.protocols.beanstalk.entrance import BeanstalkEntrance
from sim.network import Line
from sim.state import Violation

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.glidemq.boot import GlideBoot
    from sim.glidemq.model import GlideModel
    from sim.glidemq.nouns import GlideJob


class Visitor:
    """One connection, reopened after every restart."""

    def __init__(self, queues: tuple[str, ...], delivered: Callable[[int], None]) -> None:
        self._queues = queues
        self._delivered = delivered
        self._line: Line[int]

    def enter(self, boot: GlideBoot, now_ms: int) -> None:
        """Connect to a new process, and watch the tubes."""
        self._line = Line(boot, BeanstalkEntrance(boot.door), 0, self._delivered)
        words = [f"watch {queue}" for queue in self._queues] + ["ignore default"]
        for word in words:
            self._line.session.receive(word.encode() + b"\r\n", now_ms)
        self._line.hand(self._line.session.take_output(), 0)

    def say(self, line: bytes, now_ms: int) -> bytes:
        """Send a line; return the answer."""
        self._line.session.receive(line + b"\r\n", now_ms)
        return bytes(self._line.session.take_output())

    def taken(self, model: GlideModel, answer: bytes) -> GlideJob | None:
        """Check the job it was given, if any."""
        ready = [
            job
            for queue in self._queues
            for ready_list in (
                ReadyList.STREAM,
                ReadyList.STAGED,
                ReadyList.PROMOTED,
                ReadyList.LIFO,
            )
            for job in model.available(queue, ready_list)
        ]
        head, _, body = answer.partition(b"\r\n")
        if head == b"TIMED_OUT":
            if ready:
                raise Violation("waiters", f"the visitor got nothing: {ready[:3]}")
            self._line.hand(answer, 0)
            return None
        job = model.jobs.get(int(head.split()[1]))
        if job is None or job not in ready or job.state != READY:
            raise Violation("lease", f"the visitor was given {answer[:60]!r}: {job}")
        if body[:-2] != job.data:
            raise Violation("body", f"the visitor was given {body[:60]!r} for {job}")
        mine = (job.rank, model.place_of(job))
        first = min((other.rank, model.place_of(other)) for other in ready)
        if first < mine:
            raise Violation("order", f"the visitor was given {job}, not the best")
        self._line.hand(answer, job.batch)
        model.run(job, "beanstalk", is_list=False)
        return job

    def ended(self, model: GlideModel, job: GlideJob, answer: bytes, *, is_good: bool) -> None:
        """Check that a run ended as requested."""
        if answer != (b"DELETED\r\n" if is_good else b"BURIED\r\n"):
            raise Violation("reply", f"the visitor got {answer!r} for {job}")
        if is_good:
            model.completed(job, b"", is_kept=True)
        else:
            if job.delay > 0 and not job.is_delay_apart():
                job.note_delay(job.delay)
            job.attempts += 1
            job.failure = job.error = b"buried"
            job.failure_began = model.now if job.held is None else job.held.since
            model.rest(job, DEAD)
        self._line.hand(answer, model.batch)
