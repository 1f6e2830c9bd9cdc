"""What a connection waits for: more of a command, the end of its patience, the next turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from jobyard.engine.alarm import Alarm
from jobyard.engine.tasks import Starter, Task
from jobyard.model.limits import NEVER_MS
from jobyard.sessions.glidemq.call import Blocked

if TYPE_CHECKING:
    from jobyard.sessions.glidemq.session import GlidemqSession


@final
class Patience(Alarm):
    """Ends the waiting of one command."""

    def __init__(self, session: GlidemqSession) -> None:
        super().__init__(0, NEVER_MS, 0)
        self._session = session

    def ring(self, now_ms: i64) -> None:
        """Answer that the time is over."""
        self._session.waited_enough(now_ms)


@final
class Idleness(Alarm):
    """Gives up on a command of which no more comes."""

    def __init__(self, session: GlidemqSession) -> None:
        super().__init__(0, NEVER_MS, 0)
        self._session = session

    def ring(self, now_ms: i64) -> None:
        """Cut the connection off, unless bytes have come meanwhile."""
        self._session.look_at_input(now_ms)


@final
class HeldBack(Blocked):
    """A refusal that is told later."""

    def __init__(self, session: GlidemqSession, text: str) -> None:
        self._session = session
        self._text = text

    def try_again(self, now_ms: i64) -> bool:  # noqa: ARG002  only time helps
        """Wait on."""
        return False

    def give_up(self) -> None:
        """Tell it."""
        self._session.say_error(self._text)

    def leave(self) -> None:
        """Nothing was held for it."""


@final
class Rest(Task):
    """Nothing to do before the next turn."""

    def step(self, most: i64, now_ms: i64) -> i64:  # noqa: ARG002  the task's
        """Do nothing."""
        return 0


@final
class NextTurn(Blocked, Starter):
    """Lets other connections go first: the commands of this one took enough of the turn."""

    def __init__(self, session: GlidemqSession) -> None:
        self._session = session
        self._rest: Rest | None = Rest()

    def begin(self) -> None:
        """Wait for the next turn."""
        rest = self._rest
        assert rest is not None
        rest.starter = self
        self._session.door.yard.tasks.rest(rest)

    def task_ended(self, task: Task, refusal: Exception | None, now_ms: i64) -> None:  # noqa: ARG002
        """Take note that it has come."""
        self._rest = None
        self._session.peer.stirred()

    def try_again(self, now_ms: i64) -> bool:  # noqa: ARG002  the session's
        """Tell whether it has come. There is nothing to answer."""
        return self._rest is None

    def give_up(self) -> None:
        """Wait on: it comes by itself."""

    def may_give_up(self) -> bool:
        """Tell that it does not wait for anything that may not come."""
        return False

    def leave(self) -> None:
        """Wait no more."""
        if self._rest is not None:
            self._rest.starter = None
            self._rest = None
