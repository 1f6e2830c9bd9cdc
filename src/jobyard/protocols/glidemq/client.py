"""A glide-mq connection as commands see it: who the client is, and what it may ask of its session.

The session that runs commands implements it; commands know only this, so that the modules of a
command never depend on the session that calls them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64, mypyc_attr

from jobyard.protocols.session import Peer, Session

if TYPE_CHECKING:
    from jobyard.model.lease import Lease
    from jobyard.protocols.glidemq.door import GlidemqDoor
    from jobyard.wire.resp.read import Command

# Modes of CLIENT REPLY.
REPLIES_ON: Final = 0
REPLIES_OFF: Final = 1
REPLIES_SKIP: Final = 2


@mypyc_attr(allow_interpreted_subclasses=True)
class Blocked:
    """A command that waits; its connection runs nothing else meanwhile."""

    def try_again(self, now_ms: i64) -> bool:
        """Answer if the command can be completed now; return whether it was."""
        raise NotImplementedError

    def give_up(self) -> None:
        """Answer that the wait has timed out."""
        raise NotImplementedError

    def may_give_up(self) -> bool:
        """Return whether it waits for something that may never come, so that it may time out."""
        return True

    def mute(self) -> None:
        """Suppress the reply."""

    def leave(self) -> None:
        """Remove the command from everything it waits on."""
        raise NotImplementedError

    def stand_aside(self, queue_name: str, consumer: str) -> None:
        """Take no more jobs of a queue for this consumer, but keep waiting."""


class Client(Session):
    """The client of one connection, and the state of that connection."""

    def __init__(self, door: GlidemqDoor, peer: Peer) -> None:
        super().__init__(peer, door.yard.journal)
        self.door = door
        self.is_known: bool = not door.password
        self.proto: i64 = 2
        door.sessions_total += 1
        self.id: i64 = door.sessions_total
        door.sessions[self.id] = self
        self.name: bytes = b""
        self.library: bytes = b""
        self.library_version: bytes = b""
        self.began_ms: i64 = -1
        self.heard_ms: i64 = 0
        self.last_command: bytes = b"NULL"
        self.replies: i64 = REPLIES_ON
        # The commands of a transaction; None outside of one.
        self.queued: list[Command] | None = None
        # Units that the running transaction may still use; -1 outside of one.
        self.units_left: i64 = -1
        # Cost of the commands since this connection was last allowed to run, in approximate
        # nanoseconds.
        self.work_ns: i64 = 0
        # Jobs taken since the last input; the client may not have received them yet.
        self.handed: list[Lease] = []

    def say_error(self, text: str) -> None:
        """Answer with an error."""
        raise NotImplementedError

    def block(self, blocked: Blocked, until_ms: i64) -> None:
        """Run nothing else until a waiting command is answered."""
        raise NotImplementedError

    def is_blocked(self) -> bool:
        """Return whether a command of this connection waits."""
        raise NotImplementedError

    def stand_aside(self, queue_name: str, consumer: str) -> None:
        """Give no more jobs to a worker that signed off, if it waits here."""
        raise NotImplementedError

    def take_back(self, queue_name: str, consumer: str, now_ms: i64) -> None:
        """Return jobs to their queue that this worker was given and has not received."""
        raise NotImplementedError

    def execute(self, now_ms: i64) -> None:
        """Run the transaction in one turn and hence in one batch."""
        raise NotImplementedError

    def end_transaction(self) -> None:
        """Discard the transaction, if there is one."""
        raise NotImplementedError

    def expect_auth(self, now_ms: i64) -> None:
        """Set the deadline for authentication."""
        raise NotImplementedError

    def authenticate(self) -> None:
        """Accept a connection that gave the password."""
        raise NotImplementedError

    def deauthenticate(self) -> None:
        """Require the password again, if there is one."""
        raise NotImplementedError
