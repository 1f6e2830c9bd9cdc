"""A beanstalk client next to bunqueue ones: its jobs are in the same journal, in its own tubes.

It has no model of beanstalk, which other runs have: only the jobs it put, those known to be gone,
and the bodies it must get back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jobyard.journal.reply_gate import Outbox
from jobyard.model.family import BEANSTALK
from jobyard.protocols.beanstalk.session import BeanstalkSession
from sim.network import Ear, Mouth
from sim.state import Violation

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from jobyard.engine.state.yard import Yard
    from sim.boot import Boot

_WORDS: Final = ("put", "put", "reserve", "reserve", "delete", "delete", "release", "bury", "kick")
TTR_MS: Final = 120_000
# The id of a job that does not exist; small numbers may be jobs of other clients.
NOBODY: Final = 1 << 40


class Guest:
    """One beanstalk connection, reopened after every restart."""

    def __init__(self, rng: Random, delivered: Callable[[int], None]) -> None:
        self._rng = rng
        self._delivered = delivered
        self._puts_count = 0
        self.jobs: dict[int, bytes] = {}
        self._gone: dict[int, bytes] = {}
        # When each was taken; an expired lease is no longer ours.
        self._held: dict[int, int] = {}
        self.body = b""
        self._session: BeanstalkSession
        self._outbox: Outbox
        self._promises: list[tuple[int, int]] = []
        self._said_size = 0
        self._heard_size = 0

    def enter(self, boot: Boot) -> None:
        """Connect to a new process, and check that it has only jobs that were put."""
        self._session = BeanstalkSession(boot.door, Ear([]))
        self._outbox = Outbox(boot.gate, Mouth(self._hear))
        self._promises.clear()
        self._said_size = self._heard_size = 0
        self._held.clear()
        known = {**self._gone, **self.jobs}
        self.jobs = {}
        for job in boot.yard.jobs.all():
            if job.family == BEANSTALK:
                number = int(job.id)
                body = boot.yard.bodies.fetch(job)
                if known.get(number, self.body) != body:
                    raise Violation("no job from nowhere", f"job {number} of beanstalk: {body!r}")
                self.jobs[number] = known.pop(number, self.body)
        self._gone = {n: body for n, body in known.items() if n < boot.journal.next_id}

    def is_eager(self, odds: float) -> bool:
        """Return whether it wants to send something."""
        return self._rng.random() < odds

    def say(self, now_ms: int) -> None:
        """Send one command and keep its answer for `told`."""
        rng = self._rng
        word = rng.choice(_WORDS)
        number = rng.choice(list(self._held or self.jobs or {NOBODY: 0}))
        line = {
            "reserve": b"reserve-with-timeout 0",
            "delete": b"delete %d" % number,
            "release": b"release %d %d %d" % (number, rng.choice((0, 5)), rng.choice((0, 1))),
            "bury": b"bury %d 7" % number,
            "kick": b"kick 3",
        }.get(word)
        self._number = number
        if line is None:
            self._puts_count += 1
            size = rng.choice((0, 30, 5000))
            self.body = b"%d:" % self._puts_count + b"y" * size
            line = b"put 1 %d 120 %d\r\n%s" % (rng.choice((0, 0, 1)), len(self.body), self.body)
        self._session.receive(line + b"\r\n", now_ms)

    _number = 0

    def told(self, now_ms: int, opened: int) -> bytes:
        """Check the answer, which depends on batch `opened` if it discloses a change."""
        answer = self._session.take_output()
        words = answer.split(b"\r\n", 1)[0].split()
        kind = words[0]
        batch = 0
        if kind == b"INSERTED":
            number = int(words[1])
            if number in self.jobs or number in self._gone:
                raise Violation("ids", f"{number} was issued before")
            self.jobs[number] = self.body
            batch = opened
        elif kind == b"RESERVED":
            self._taken(int(words[1]), answer, now_ms)
        elif kind == b"DELETED":
            self._gone[self._number] = self.jobs.pop(self._number)
            self._held.pop(self._number, None)
            batch = opened
        elif kind in {b"RELEASED", b"BURIED"}:
            # A full disk may skip the record of a release.
            del self._held[self._number]
        elif kind not in {b"NOT_FOUND", b"TIMED_OUT", b"KICKED", b"OUT_OF_MEMORY"}:
            raise Violation("reply", f"the guest got {answer[:60]!r}")
        self._said_size += len(answer)
        self._promises.append((self._said_size, batch))
        self._outbox.hand(answer, self._session.awaits)
        return answer

    def _taken(self, number: int, answer: bytes, now_ms: int) -> None:
        body = answer.split(b"\r\n", 1)[1][:-2]
        if self.jobs.get(number) != body:
            raise Violation("lease", f"the guest was given job {number} with {body[:40]!r}")
        if now_ms - self._held.get(number, -TTR_MS) < TTR_MS:
            raise Violation("lease", f"the guest was given job {number}, which it holds")
        self._held[number] = now_ms

    def _hear(self, data: bytes) -> None:
        self._heard_size += len(data)
        while self._promises and self._promises[0][0] <= self._heard_size:
            self._delivered(self._promises.pop(0)[1])

    def count(self, yard: Yard) -> None:
        """Check that all its jobs are there."""
        lost = [number for number in self.jobs if yard.jobs.get(number) is None]
        if lost:
            raise Violation("lost", f"jobs {lost} of beanstalk are not there")
