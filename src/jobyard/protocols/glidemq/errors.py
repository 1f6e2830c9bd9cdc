"""Errors of this door, in the words of Valkey that clients know."""

from typing import Final, final

from jobyard.errors import Refused

SYNTAX: Final = "ERR syntax error"
NOT_INTEGER: Final = "ERR value is not an integer or out of range"
NOT_FLOAT: Final = "ERR value is not a valid float"
WRONG_TYPE: Final = "WRONGTYPE Operation against a key holding the wrong kind of value"
NO_AUTH: Final = "NOAUTH Authentication required."
WRONG_PAIR: Final = "WRONGPASS invalid username-password pair or user is disabled."
NO_PROTO: Final = "NOPROTO unsupported protocol version"
OVERFLOW: Final = "ERR increment or decrement would overflow"
OUT_OF_MEMORY_ERROR: Final = "OOM command not allowed when used memory > 'maxmemory'."
AUTH_TIMED_OUT: Final = "ERR authentication timed out"
MEMORY_FULL_ERROR: Final = "ERR out of memory for unfinished commands, try again later"
DISK_FULL_ERROR: Final = "MISCONF no space left on the disk"
EXEC_ABORT: Final = "EXECABORT Transaction discarded because of previous errors."
LONG_TRANSACTION: Final = (
    "ERR transaction too large: it would keep all other clients waiting while it runs. Send "
    "several smaller ones, or a plain pipeline (in redis-py: transaction=False)"
)
TRANSACTION_TOO_LONG: Final = (
    "ERR too much work for a transaction, which runs in one piece: request less, or use no MULTI"
)
NO_SCRIPTS: Final = (
    "ERR this server does not run Lua scripts: libraries that bring their own, such as BullMQ, "
    "do not work here; use glide-mq, or bunqueue, whose API is like BullMQ's"
)
NO_CLUSTER: Final = "ERR This instance has cluster support disabled"
NOT_CHANGED_SO: Final = "ERR this key shows the jobs of a queue and cannot be changed this way"


class Wrong(Refused):
    """A command that is refused; the text is the reply and starts with its error code."""


@final
class Denied(Wrong):
    """A wrong password."""


def unknown_command(name: str, arguments: list[str]) -> Wrong:
    """Return the reply to an unknown command."""
    shown = "".join(f"'{argument[:128]}' " for argument in arguments)[:128]
    return Wrong(f"ERR unknown command '{name[:128]}', with args beginning with: {shown}")


def unknown_subcommand(name: str, sub: str) -> Wrong:
    """Return the reply to an unknown subcommand."""
    return Wrong(f"ERR unknown subcommand '{sub[:128]}'. Try {name} HELP.")


def wrong_count(name: str) -> Wrong:
    """Return the reply to a command with too few or too many arguments."""
    return Wrong(f"ERR wrong number of arguments for '{name.lower()}' command")
