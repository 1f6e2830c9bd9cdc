"""One command on its way: who sent it, what it says, where the answer goes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64, mypyc_attr

from jobyard.model.glidemq.stored_values import NO_KIND
from jobyard.protocols.glidemq.errors import NOT_INTEGER, WRONG_TYPE, Wrong

if TYPE_CHECKING:
    from jobyard.protocols.glidemq.keyspace.key import Keyed
    from jobyard.protocols.glidemq.session import GlidemqSession
    from jobyard.wire.resp.read import Command

# What CLIENT REPLY asked for.
REPLIES_ON: Final = 0
REPLIES_OFF: Final = 1
REPLIES_SKIP: Final = 2

# What a command takes, and each of its arguments, in nanoseconds or so. Most arguments of a
# function are options of one job.
COMMAND_NS: Final = 4000
ARGUMENT_NS: Final = 1000
FUNCTION_ARGUMENT_NS: Final = 125
# What it takes to hand a job over, where a command may ask for many.
LEASE_NS: Final = 1000

Run = Callable[["Call"], None]


@final
class Call:
    """A command and its surroundings."""

    def __init__(
        self, session: GlidemqSession, command: Command, now_ms: i64, *, may_wait: bool
    ) -> None:
        self.session = session
        self.door = session.door
        self.yard = session.door.yard
        self.command = command
        self.out = session.out
        self.proto: i64 = session.proto
        self.now_ms: i64 = now_ms
        # A command of a transaction answers at once.
        self.may_wait = may_wait

    def count(self) -> i64:
        """Return how many arguments there are, the name included."""
        return self.command.count()

    def arg(self, at: i64) -> bytes:
        """Return an argument."""
        return self.command.arg(at)

    def args(self, start: i64) -> list[bytes]:
        """Return all arguments from one on."""
        command = self.command
        return [command.arg(at) for at in range(start, command.count())]

    def args_between(self, start: i64, end: i64) -> list[bytes]:
        """Return the arguments from one up to before another."""
        command = self.command
        return [command.arg(at) for at in range(start, end)]

    def integer(self, at: i64) -> i64:
        """Return an argument that must be a number."""
        number = self.command.integer(at)
        if number is None:
            raise Wrong(NOT_INTEGER)
        return number

    def is_word(self, at: i64, word: bytes) -> bool:
        """Tell whether there is such an argument, and it is this word."""
        return at < self.command.count() and self.command.is_word(at, word)

    def key(self, at: i64, kind: i64) -> Keyed:
        """Return the key an argument names, which is of that kind or not there."""
        keyed = self.door.keyed(self.command.arg(at), self.now_ms)
        if keyed.kind() not in (NO_KIND, kind):
            raise Wrong(WRONG_TYPE)
        return keyed

    def found(self, at: i64, kind: i64) -> Keyed | None:
        """Return the key an argument names if it is there, and of that kind."""
        keyed = self.door.keyed(self.command.arg(at), self.now_ms)
        there = keyed.kind()
        if there not in (NO_KIND, kind):
            raise Wrong(WRONG_TYPE)
        return None if there == NO_KIND else keyed


@final
class Spec:
    """A command: how many arguments it takes, where its keys stand, what it does."""

    def __init__(
        self,
        run: Run,
        arity: i64,
        flags: str,
        keys: tuple[int, int, int],
        *,
        own_ns: i64 = COMMAND_NS,
        argument_ns: i64 = ARGUMENT_NS,
    ) -> None:
        self.run = run
        self._own_ns: i64 = own_ns
        self._argument_ns: i64 = argument_ns
        # The name included; negative if it is the least.
        self.arity: i64 = arity
        # As COMMAND shows them; "still" is our own: it neither shows nor changes the yard.
        self.flags = flags.split()
        self.is_still = "still" in self.flags
        self.is_open = "no_auth" in self.flags
        # First key, last key (from the end, if negative), step; zeros for none.
        self.keys = keys

    def price_of(self, count: i64) -> i64:
        """Return about how long so many arguments take, apart from what tasks count."""
        return self._own_ns + self._argument_ns * count

    def takes(self, count: i64) -> bool:
        """Tell whether a command may have so many arguments."""
        return count == self.arity if self.arity > 0 else count >= -self.arity


@mypyc_attr(allow_interpreted_subclasses=True)
class Blocked:
    """A command that waits; its connection runs nothing else meanwhile."""

    def try_again(self, now_ms: i64) -> bool:
        """Answer if it can be done now; tell whether it was."""
        raise NotImplementedError

    def give_up(self) -> None:
        """Answer that the time is over."""
        raise NotImplementedError

    def may_give_up(self) -> bool:
        """Tell whether it waits for what may not come, so that its peer may have enough of it."""
        return True

    def mute(self) -> None:
        """Take note that no answer is wanted."""

    def leave(self) -> None:
        """Wait nowhere any more."""
        raise NotImplementedError

    def stand_aside(self, queue_name: str, consumer: str) -> None:
        """Take nothing of a queue any more for a worker of that name, and wait on."""


def is_http(command: Command) -> bool:
    """Tell whether a command is the first line of an HTTP request."""
    return command.count() == 3 and command.arg(2).startswith(b"HTTP/")
