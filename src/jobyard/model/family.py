"""Families: the protocol through which a job came in decides its behavior, wherever it runs.

Every difference between families is a named rule, and `traits` says which rules apply to which
family; `docs/one-job-any-door.md` shows the table. The engine asks for rules, not for families.

A new family needs its number, name and rules here, and its column in that table, which a test
holds against this module. No other module of model, journal or engine has to change;
`docs/architecture.md` lists what a new protocol needs besides.
"""

from typing import Final

from mypy_extensions import i64, u8

# Part of the journal's format.
BEANSTALK: Final = 1
BUNQUEUE: Final = 2
GLIDE: Final = 3
TOPICS: Final = 4

# More than the greatest number of a family, or of a door, which has the number of its family.
FAMILIES_MAX: Final = 8

# As users see families and doors: in metrics and in the history.
FAMILY_NAMES: Final[dict[int, str]] = {
    BEANSTALK: "beanstalk",
    BUNQUEUE: "bunqueue",
    GLIDE: "glidemq",
    TOPICS: "topics",
}

# -- rules -------------------------------------------------------------------------------------

COUNTS_ATTEMPTS: Final = 1 << 0
ONE_ATTEMPT: Final = 1 << 1
EXACT_BACKOFF: Final = 1 << 2
FREE_STALLS: Final = 1 << 3
TTL_IS_DEATH: Final = 1 << 4
DEAD_PERISH: Final = 1 << 5
DEAD_LETTERS: Final = 1 << 6
NEW_PLACE: Final = 1 << 7
PLACE_IS_ENTRY: Final = 1 << 8
READY_LISTS: Final = 1 << 9
ORDERING_KEYS: Final = 1 << 10
IDS_PER_QUEUE: Final = 1 << 11
SHOWS_FIRST_DELAY: Final = 1 << 12
TAKER_SETS_RANK: Final = 1 << 13
OWN_TTR: Final = 1 << 14
LOCK_DURATION: Final = 1 << 15
LEASE_OF_TOPIC: Final = 1 << 16

# What each rule means, in the order of the table in the documentation.
RULES: Final[tuple[tuple[int, str], ...]] = (
    (COUNTS_ATTEMPTS, "failed runs count as attempts, which are limited; its result is kept"),
    (ONE_ATTEMPT, "one attempt unless the client requests more"),
    (EXACT_BACKOFF, "retried after exactly its backoff, without jitter"),
    (FREE_STALLS, "a lost lease counts as a stall, not as an attempt"),
    (TTL_IS_DEATH, "dead, not removed, when its time to live ends"),
    (DEAD_PERISH, "dead jobs are trimmed, expire and are retried as their queue is configured"),
    (DEAD_LETTERS, "when given up, it becomes a record of its queue's dead-letter topic"),
    (NEW_PLACE, "goes behind all other jobs when it comes back"),
    (PLACE_IS_ENTRY, "its place in the queue is a stream entry id, never reused"),
    (READY_LISTS, "ready jobs are in separate lists until they are promoted"),
    (ORDERING_KEYS, "may have an ordering key, and then holds up other jobs with that key"),
    (IDS_PER_QUEUE, "an id chosen by the client is known only within its queue"),
    (SHOWS_FIRST_DELAY, "shows its original delay after it failed"),
    (TAKER_SETS_RANK, "release and bury set a new priority"),
    (OWN_TTR, "carries its own time to run"),
    (LOCK_DURATION, "carries how long its worker may be silent"),
    (LEASE_OF_TOPIC, "its queue sets how long it is leased"),
)

_BEANSTALK: Final = TAKER_SETS_RANK | OWN_TTR
_BUNQUEUE: Final = COUNTS_ATTEMPTS | DEAD_PERISH | NEW_PLACE
_GLIDE: Final = (
    COUNTS_ATTEMPTS
    | ONE_ATTEMPT
    | EXACT_BACKOFF
    | FREE_STALLS
    | TTL_IS_DEATH
    | NEW_PLACE
    | PLACE_IS_ENTRY
    | READY_LISTS
    | ORDERING_KEYS
    | IDS_PER_QUEUE
    | SHOWS_FIRST_DELAY
    | LOCK_DURATION
)
_TOPICS: Final = DEAD_LETTERS | LEASE_OF_TOPIC


def traits(family: u8) -> i64:
    """Return the rules that hold for jobs of a family, as bits."""
    if family == BEANSTALK:
        return _BEANSTALK
    if family == BUNQUEUE:
        return _BUNQUEUE
    if family == GLIDE:
        return _GLIDE
    return _TOPICS


def counts_attempts(family: u8) -> bool:
    """Return whether jobs of a family have limited attempts, and stay with their result."""
    return traits(family) & COUNTS_ATTEMPTS != 0
