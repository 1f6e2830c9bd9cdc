"""What every turn of the loop begins and ends with, whichever loop it is.

begin: timers that are due. Then the connections read and run. end: long work does a slice, sessions
that others stirred go on, what was appended is committed, compaction does a slice. The loop then
sleeps no longer than `end` says.
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
from jobyard.protocols.shared_limits import MEMORY_DEFAULT, Guard
from jobyard.server.edge import Edge

# How often an idle compactor looks for a victim.
COMPACTION_LOOK_MS = 250
# How often sessions that stir each other, or themselves, go on within one turn. The rest goes on in
# the next, behind the connections that have something to read.
ROUNDS_MAX = 8


@mypyc_attr(allow_interpreted_subclasses=True)
class Stirrable(Peer):
    """A connection that has something to do outside its own reading."""

    def go_on(self, now_ms: i64) -> None:
        """Run and send what has become possible."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Commits:
    """The committer as a turn sees it."""

    def turn(self, now_ms: int) -> int:
        """Commit what someone waits for; return when to be called again at the latest."""
        raise NotImplementedError


@final
class Turns:
    """The part of a turn that does not depend on the loop."""

    def __init__(
        self,
        yard: Yard,
        commits: Commits | None,
        compactor: Compactor | None,
        guard: Guard | None = None,
    ) -> None:
        self.yard = yard
        self.edge = Edge(yard)
        self.guard: Guard = guard or Guard(MEMORY_DEFAULT)
        self._commits = commits
        self._compactor = compactor
        self._look_ms: i64 = 0
        self._is_compacting: bool = False
        self._second_ms: i64 = 0
        self.on_second: Callable[[], None] | None = None
        self.stirred: list[Stirrable] = []

    def stop(self) -> None:
        """Touch the disk no more: the journal is sealed. The loop itself may run on for a while."""
        self._commits = None
        self._compactor = None
        self.on_second = None

    def begin(self, now_ms: i64) -> None:
        """Fire what is due."""
        self._tick(now_ms)
        # What time does is answered to nobody.
        self.yard.journal.raised = 0
        if now_ms >= self._second_ms:
            self._second_ms = now_ms + 1000
            if self.on_second is not None:
                self.on_second()

    def _tick(self, now_ms: i64) -> None:
        try:
            tick(self.yard, now_ms)
        except Exception as error:
            if self.edge.survives(error, self.yard.errors.changes_before_ring, "a timer"):
                # What rang stands among the timers no more; the others ring in the next turn.
                return
            raise

    def end(self, now_ms: i64) -> i64:
        """Finish the turn; return when the next must begin at the latest."""
        tasks = self.yard.tasks
        self._work(now_ms)
        rounds: i64 = 0
        while self.stirred and rounds < ROUNDS_MAX:
            rounds += 1
            stirred = self.stirred
            self.stirred = []
            for one in stirred:
                one.go_on(now_ms)
        next_ms = self.yard.next_timer_ms()
        commits = self._commits
        if commits is not None:
            if self._compact(now_ms):
                next_ms = now_ms
            next_ms = min(next_ms, commits.turn(now_ms))
            if self.yard.onlookers.look(self.yard.journal.history.next_durable):
                next_ms = now_ms
        # Answers that a commit let go may have let sessions go on.
        return now_ms if self.stirred or tasks.count() > 0 else next_ms

    def _work(self, now_ms: i64) -> None:
        tasks = self.yard.tasks
        is_long = tasks.count() > 0
        try:
            tasks.go_on(now_ms)
        except Exception as error:
            task = tasks.running
            # Only what reads can be left half done.
            if task is None or not task.is_reading:
                raise
            if self.edge.survives(error, self.yard.changes(), "a long command"):
                tasks.give_up(Refused("the server failed to do this; its log tells more"), now_ms)
                return
            raise
        if is_long:
            # Long work frees as many objects as it makes, so the collector, which goes by the
            # difference, would look at those of all its slices together.
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
