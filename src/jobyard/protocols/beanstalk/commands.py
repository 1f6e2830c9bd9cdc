"""The words of the protocol, in the order beanstalkd tries them.

A word is matched as a prefix of the line, and for most commands the space after it is part of the
word. That decides which mistakes are UNKNOWN_COMMAND and which BAD_FORMAT.
"""

from typing import Final

from mypy_extensions import i64

BAD_FORMAT: Final = b"BAD_FORMAT\r\n"
UNKNOWN_COMMAND: Final = b"UNKNOWN_COMMAND\r\n"
NOT_FOUND: Final = b"NOT_FOUND\r\n"
# There is such a job, as stats-job says too, but its body is damaged on disk.
INTERNAL_ERROR: Final = b"INTERNAL_ERROR\r\n"
TIMED_OUT: Final = b"TIMED_OUT\r\n"
OUT_OF_MEMORY: Final = b"OUT_OF_MEMORY\r\n"

# Which counter of `stats` a command raises; the order is that of the cmd-* lines.
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
# Well-formed commands from here on have no line in the output.
UNCOUNTED: Final = 22
RESERVE_JOB: Final = 22
KICK_JOB: Final = 23
QUIT: Final = 24


# What may follow a word.
NOTHING: Final = 0
NUMBER: Final = 1
NAME: Final = 2

WORDS: Final[list[tuple[bytes, int, int]]] = [
    (b"peek ", PEEK, NUMBER),
    (b"peek-ready", PEEK_READY, NOTHING),
    (b"peek-delayed", PEEK_DELAYED, NOTHING),
    (b"peek-buried", PEEK_BURIED, NOTHING),
    (b"reserve-with-timeout ", RESERVE_WITH_TIMEOUT, NUMBER),
    (b"reserve-job ", RESERVE_JOB, NUMBER),
    (b"reserve", RESERVE, NOTHING),
    (b"delete ", DELETE, NUMBER),
    (b"release ", RELEASE, NUMBER),
    (b"bury ", BURY, NUMBER),
    (b"kick ", KICK, NUMBER),
    (b"kick-job ", KICK_JOB, NUMBER),
    (b"touch ", TOUCH, NUMBER),
    (b"stats-job ", STATS_JOB, NUMBER),
    (b"stats-tube ", STATS_TUBE, NAME),
    (b"stats", STATS, NOTHING),
    (b"use ", USE, NAME),
    (b"watch ", WATCH, NAME),
    (b"ignore ", IGNORE, NAME),
    (b"list-tubes-watched", LIST_TUBES_WATCHED, NOTHING),
    (b"list-tube-used", LIST_TUBE_USED, NOTHING),
    (b"list-tubes", LIST_TUBES, NOTHING),
    (b"quit", QUIT, NOTHING),
    (b"pause-tube", PAUSE_TUBE, NAME),
]


def find(line: bytes) -> tuple[bytes, int, int] | None:
    """Return word, code and shape of the command a line begins with."""
    for entry in WORDS:
        if line.startswith(entry[0]):
            return entry
    return None


def name_of(data: bytes, at: i64) -> str:
    """Return the name of the command at `at`, for the log: never anything a client chose."""
    entry = find(data[at : at + 32])
    # A put is the only command with a body, which may be all that is there.
    return "put" if entry is None else entry[0].decode().strip()
