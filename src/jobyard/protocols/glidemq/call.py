"""One command being run: its session, its arguments, and where the reply goes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from jobyard.model.glidemq.stored_values import ValueKind
from jobyard.protocols.glidemq.errors import NOT_INTEGER, WRONG_TYPE, Wrong

if TYPE_CHECKING:
    from jobyard.protocols.glidemq.client import Client
    from jobyard.protocols.glidemq.keyspace.key import RedisKey
    from jobyard.wire.resp.read import Command

# Approximate cost of a command and of each argument, in nanoseconds. Most arguments of a function
# are options of one job.
COMMAND_NS: Final = 4000
ARGUMENT_NS: Final = 1000
FUNCTION_ARGUMENT_NS: Final = 125
# Cost of handing over one job, for commands that may request many.
LEASE_NS: Final = 1000

Run = Callable[["Call"], None]


@final
class Call:
    """A command and its context."""

    def __init__(self, session: Client, command: Command, now_ms: i64, *, may_wait: bool) -> None:
        self.session = session
        self.door = session.door
        self.yard = session.door.yard
        self.command = command
        self.out = session.out
        self.proto: i64 = session.proto
        self.now_ms: i64 = now_ms
        # Commands in a transaction must answer at once.
        self.may_wait = may_wait

    def count(self) -> i64:
        """Return the number of arguments, including the command name."""
        return self.command.count()

    def arg(self, at: i64) -> bytes:
        """Return an argument."""
        return self.command.arg(at)

    def args(self, start: i64) -> list[bytes]:
        """Return all arguments from `start` on."""
        command = self.command
        return [command.arg(at) for at in range(start, command.count())]

    def args_between(self, start: i64, end: i64) -> list[bytes]:
        """Return the arguments from `start` up to, not including, `end`."""
        command = self.command
        return [command.arg(at) for at in range(start, end)]

    def integer(self, at: i64) -> i64:
        """Return an argument that must be an integer."""
        number = self.command.integer(at)
        if number is None:
            raise Wrong(NOT_INTEGER)
        return number

    def is_word(self, at: i64, word: bytes) -> bool:
        """Return whether the argument exists and is this word."""
        return at < self.command.count() and self.command.is_word(at, word)

    def key(self, at: i64, kind: i64) -> RedisKey:
        """Return the key that an argument names; it must be missing or of that kind."""
        keyed = self.door.keyed(self.command.arg(at), self.now_ms)
        if keyed.kind() not in (ValueKind.NONE, kind):
            raise Wrong(WRONG_TYPE)
        return keyed

    def found(self, at: i64, kind: i64) -> RedisKey | None:
        """Return the key that an argument names, or None if missing; it must be of that kind."""
        keyed = self.door.keyed(self.command.arg(at), self.now_ms)
        there = keyed.kind()
        if there not in (ValueKind.NONE, kind):
            raise Wrong(WRONG_TYPE)
        return None if there == ValueKind.NONE else keyed


@final
class CommandSpec:
    """A command: how many arguments it takes, where its keys are, and what runs it."""

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
        # Including the name; if negative, the minimum.
        self.arity: i64 = arity
        # As COMMAND shows them. "still" is ours: the command neither reads nor changes the yard.
        self.flags = flags.split()
        self.is_still = "still" in self.flags
        self.is_open = "no_auth" in self.flags
        # First key, last key (counted from the end if negative), step; zeros if there are no keys.
        self.keys = keys

    def price_of(self, count: i64) -> i64:
        """Return the approximate cost for `count` arguments, without the work that tasks count."""
        return self._own_ns + self._argument_ns * count

    def takes(self, count: i64) -> bool:
        """Return whether a command may have this number of arguments."""
        return count == self.arity if self.arity > 0 else count >= -self.arity


def is_http(command: Command) -> bool:
    """Return whether a command is the first line of an HTTP request."""
    return command.count() == 3 and command.arg(2).startswith(b"HTTP/")
