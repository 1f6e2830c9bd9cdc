"""The start and the end of a turn, common to all loops.

begin: fire due timers. Then the connections read and run. end: run a slice of each task, resume
woken sessions, run a slice of compaction, commit what was appended. The loop then sleeps at most
until the time that `end` returns.
"""

import gc
from collections.abc import Callable
from typing import final

from mypy_extensions import i64, mypyc_attr

from jobyard.engine.jobs.tick import tick
from jobyard.engine.recovery.compaction import IDLE, Compactor
from jobyard.engine.state.yard import Yard
from jobyard.errors import Refused
from jobyard.model.limits import NEVER_MS
from jobyard.protocols.session import Peer
from jobyard.protocols.shared_limits import MEMORY_DEFAULT, SharedLimits
from jobyard.server.edge import ErrorBoundary

# How often an idle compactor looks for a segment to compact.
COMPACTION_LOOK_MS = 250
# How many rounds of sessions that wake each other, or themselves, run within one turn. The rest
# follows in the next turn, after connections with input.
ROUNDS_MAX = 8


@mypyc_attr(allow_interpreted_subclasses=True)
class Wakeable(Peer):
    """A connection that can be resumed without new input."""

    def proceed(self, now_ms: i64) -> None:
        """Run what has become possible and send its output."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Commits:
    """The interface of the committer to a turn."""

    def turn(self, now_ms: int) -> int:
        """Commit what clients wait for; return when to call again at the latest."""
        raise NotImplementedError


@final
class Turns:
    """The part of a turn that does not depend on the loop."""

    def __init__(
        self,
        yard: Yard,
        commits: Commits | None,
        compactor: Compactor | None,
        shared_limits: SharedLimits | None = None,
    ) -> None:
        self.yard = yard
        self.error_boundary = ErrorBoundary(yard)
        self.shared_limits: SharedLimits = shared_limits or SharedLimits(MEMORY_DEFAULT)
        self._commits = commits
        self._compactor = compactor
        self._look_ms: i64 = 0
        self._is_compacting: bool = False
        self._second_ms: i64 = 0
        self.on_second: Callable[[], None] | None = None
        self.woken: list[Wakeable] = []

    def stop(self) -> None:
        """Stop using the disk: the journal is sealed. The loop itself may still run for a while."""
        self._commits = None
        self._compactor = None
        self.on_second = None

    def begin(self, now_ms: i64) -> None:
        """Fire due timers."""
        self._tick(now_ms)
        # No client waits for a reply to what timers change.
        self.yard.journal.command_sync_batch = 0
        if now_ms >= self._second_ms:
            self._second_ms = now_ms + 1000
            if self.on_second is not None:
                self.on_second()

    def _tick(self, now_ms: i64) -> None:
        try:
            tick(self.yard, now_ms)
        except Exception as error:
            if self.error_boundary.survives(error, self.yard.errors.changes_before_ring, "a timer"):
                # The failed timer was already removed; the others fire in the next turn.
                return
            raise

    def end(self, now_ms: i64) -> i64:
        """Finish the turn; return when the next one must begin at the latest."""
        tasks = self.yard.tasks
        self._work(now_ms)
        rounds: i64 = 0
        while self.woken and rounds < ROUNDS_MAX:
            rounds += 1
            woken = self.woken
            self.woken = []
            for one in woken:
                one.proceed(now_ms)
        next_ms = self.yard.next_timer_ms()
        commits = self._commits
        if commits is not None:
            if self._compact(now_ms):
                next_ms = now_ms
            next_ms = min(next_ms, commits.turn(now_ms))
            if self.yard.watchers.look(self.yard.journal.history.next_durable):
                next_ms = now_ms
        # Replies released by the commit may have woken sessions.
        return now_ms if self.woken or tasks.count() > 0 else next_ms

    def _work(self, now_ms: i64) -> None:
        tasks = self.yard.tasks
        is_long = tasks.count() > 0
        try:
            tasks.proceed(now_ms)
        except Exception as error:
            task = tasks.running
            # Only a task that changes nothing can be abandoned half done.
            if task is None or not task.is_reading:
                raise
            if self.error_boundary.survives(error, self.yard.changes(), "a long command"):
                tasks.give_up(Refused("internal error; see the server log"), now_ms)
                return
            raise
        if is_long:
            # Tasks free as many objects as they allocate. The collector counts the difference, so
            # without this it would examine the objects of many slices at once.
            gc.collect(0)

    def _compact(self, now_ms: i64) -> bool:
        compactor = self._compactor
        if compactor is None:
            return False
        if compactor.phase == IDLE and not self._is_compacting:
            if now_ms < self._look_ms:
                return False
            self._look_ms = now_ms + COMPACTION_LOOK_MS
        self._is_compacting = compactor.step()
        return self._is_compacting


def timeout_s(next_ms: i64, now_ms: i64, most_s: float) -> float:
    """Return how long the loop may sleep, in seconds."""
    if next_ms >= NEVER_MS:
        return most_s
    left = next_ms - now_ms
    return 0.0 if left <= 0 else min(most_s, float(left) / 1000.0)
