"""The command words of the protocol, in the order in which beanstalkd tries them.

A word is matched as a prefix of the line, and for most commands the space after it is part of the
word. That decides which errors are UNKNOWN_COMMAND and which are BAD_FORMAT.
"""

from typing import Final, final

from mypy_extensions import i64

BAD_FORMAT: Final = b"BAD_FORMAT\r\n"
UNKNOWN_COMMAND: Final = b"UNKNOWN_COMMAND\r\n"
NOT_FOUND: Final = b"NOT_FOUND\r\n"
# The job exists, and stats-job shows it, but its body is damaged on disk.
INTERNAL_ERROR: Final = b"INTERNAL_ERROR\r\n"
TIMED_OUT: Final = b"TIMED_OUT\r\n"
OUT_OF_MEMORY: Final = b"OUT_OF_MEMORY\r\n"


@final
class InputMode:
    """How the next input of a connection is read."""

    LINES: Final = 0
    BODY: Final = 1
    SKIPPED_BODY: Final = 2
    LONG_LINE: Final = 3
    REFUSED_BODY: Final = 4
    # Instead of a position: the rest of the command has not arrived yet.
    INCOMPLETE: Final = -1


@final
class CommandNo:
    """The counter of `stats` that a command increments, in the order of the cmd-* lines."""

    PUT: Final = 0
    PEEK: Final = 1
    PEEK_READY: Final = 2
    PEEK_DELAYED: Final = 3
    PEEK_BURIED: Final = 4
    RESERVE: Final = 5
    RESERVE_WITH_TIMEOUT: Final = 6
    DELETE: Final = 7
    RELEASE: Final = 8
    USE: Final = 9
    WATCH: Final = 10
    IGNORE: Final = 11
    BURY: Final = 12
    KICK: Final = 13
    TOUCH: Final = 14
    STATS: Final = 15
    STATS_JOB: Final = 16
    STATS_TUBE: Final = 17
    LIST_TUBES: Final = 18
    LIST_TUBE_USED: Final = 19
    LIST_TUBES_WATCHED: Final = 20
    PAUSE_TUBE: Final = 21
    # Commands from here on have no line in the output.
    UNCOUNTED: Final = 22
    RESERVE_JOB: Final = 22
    KICK_JOB: Final = 23
    QUIT: Final = 24


@final
class Operand:
    """The kind of operand that follows a command word."""

    NOTHING: Final = 0
    NUMBER: Final = 1
    NAME: Final = 2


WORDS: Final[list[tuple[bytes, int, int]]] = [
    (b"peek ", CommandNo.PEEK, Operand.NUMBER),
    (b"peek-ready", CommandNo.PEEK_READY, Operand.NOTHING),
    (b"peek-delayed", CommandNo.PEEK_DELAYED, Operand.NOTHING),
    (b"peek-buried", CommandNo.PEEK_BURIED, Operand.NOTHING),
    (b"reserve-with-timeout ", CommandNo.RESERVE_WITH_TIMEOUT, Operand.NUMBER),
    (b"reserve-job ", CommandNo.RESERVE_JOB, Operand.NUMBER),
    (b"reserve", CommandNo.RESERVE, Operand.NOTHING),
    (b"delete ", CommandNo.DELETE, Operand.NUMBER),
    (b"release ", CommandNo.RELEASE, Operand.NUMBER),
    (b"bury ", CommandNo.BURY, Operand.NUMBER),
    (b"kick ", CommandNo.KICK, Operand.NUMBER),
    (b"kick-job ", CommandNo.KICK_JOB, Operand.NUMBER),
    (b"touch ", CommandNo.TOUCH, Operand.NUMBER),
    (b"stats-job ", CommandNo.STATS_JOB, Operand.NUMBER),
    (b"stats-tube ", CommandNo.STATS_TUBE, Operand.NAME),
    (b"stats", CommandNo.STATS, Operand.NOTHING),
    (b"use ", CommandNo.USE, Operand.NAME),
    (b"watch ", CommandNo.WATCH, Operand.NAME),
    (b"ignore ", CommandNo.IGNORE, Operand.NAME),
    (b"list-tubes-watched", CommandNo.LIST_TUBES_WATCHED, Operand.NOTHING),
    (b"list-tube-used", CommandNo.LIST_TUBE_USED, Operand.NOTHING),
    (b"list-tubes", CommandNo.LIST_TUBES, Operand.NOTHING),
    (b"quit", CommandNo.QUIT, Operand.NOTHING),
    (b"pause-tube", CommandNo.PAUSE_TUBE, Operand.NAME),
]


def find(line: bytes) -> tuple[bytes, int, int] | None:
    """Return word, code and operand of the command that a line begins with."""
    for entry in WORDS:
        if line.startswith(entry[0]):
            return entry
    return None


def name_of(data: bytes, at: i64) -> str:
    """Return the name of the command at `at`, for the log: never text that a client chose."""
    entry = find(data[at : at + 32])
    # Only put has a body, and `at` may point into it.
    return "put" if entry is None else entry[0].decode().strip()
