"""What a connection waits for besides jobs: a delayed refusal, and the next turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from jobyard.protocols.glidemq.client import Blocked
from jobyard.protocols.next_turn import NextTurn

if TYPE_CHECKING:
    from jobyard.protocols.glidemq.client import Client


@final
class HeldBack(Blocked):
    """A refusal that is sent with a delay."""

    def __init__(self, session: Client, text: str) -> None:
        self._session = session
        self._text = text

    def try_again(self, now_ms: i64) -> bool:  # noqa: ARG002  only time helps
        """Keep waiting."""
        return False

    def give_up(self) -> None:
        """Send the refusal."""
        self._session.say_error(self._text)

    def leave(self) -> None:
        """Do nothing: nothing is reserved for it."""


@final
class TurnWait(Blocked):
    """Lets other connections run first: this one used its share of the turn."""

    def __init__(self, session: Client) -> None:
        self._turn = NextTurn(session.door.yard.tasks, session.peer)

    def try_again(self, now_ms: i64) -> bool:  # noqa: ARG002  the session's
        """Return whether the next turn has come. There is nothing to answer."""
        return self._turn.has_come

    def give_up(self) -> None:
        """Keep waiting: the next turn always comes."""

    def may_give_up(self) -> bool:
        """Return False: the next turn always comes."""
        return False

    def leave(self) -> None:
        """Stop waiting."""
        self._turn.leave()
