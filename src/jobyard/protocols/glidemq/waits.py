"""What a connection waits for: more of a command, the end of its patience, the next turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from jobyard.protocols.glidemq.call import Blocked
from jobyard.protocols.next_turn import NextTurn

if TYPE_CHECKING:
    from jobyard.protocols.glidemq.session import GlidemqSession


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
class TurnWait(Blocked):
    """Lets other connections go first: the commands of this one took enough of the turn."""

    def __init__(self, session: GlidemqSession) -> None:
        self._turn = NextTurn(session.door.yard.tasks, session.peer)

    def try_again(self, now_ms: i64) -> bool:  # noqa: ARG002  the session's
        """Tell whether the next turn has come. There is nothing to answer."""
        return self._turn.has_come

    def give_up(self) -> None:
        """Wait on: it comes by itself."""

    def may_give_up(self) -> bool:
        """Tell that it does not wait for anything that may not come."""
        return False

    def leave(self) -> None:
        """Wait no more."""
        self._turn.leave()
