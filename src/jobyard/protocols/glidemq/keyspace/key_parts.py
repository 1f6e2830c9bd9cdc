"""Which part of a queue a key shows, and of which job or lane.

What shows none is a side key, of which nothing is known here.
"""

from typing import Final, final

from mypy_extensions import i64

from jobyard.protocols.glidemq.keyspace.key_names import KEY_SIZE_MAX, KeyName

JOB_ID_MAX: Final = 256

# Parts of a queue that are shown from its jobs.
SIDE: Final = 0
ID: Final = 1
STREAM: Final = 2
SCHEDULED: Final = 3
COMPLETED: Final = 4
FAILED: Final = 5
EVENTS: Final = 6
META: Final = 7
DEDUP: Final = 8
ORDERING: Final = 9
RATELIMITED: Final = 10
LIFO: Final = 11
PRIORITY: Final = 12
LIST_ACTIVE: Final = 13
SUSPENDED: Final = 14
METRICS_COMPLETED: Final = 15
METRICS_FAILED: Final = 16
JOB: Final = 17
LOG: Final = 18
DEPS: Final = 19
PARENTS: Final = 20
GROUP: Final = 21
GROUPQ: Final = 22

_WHOLE: Final[dict[bytes, int]] = {
    b"id": ID,
    b"stream": STREAM,
    b"scheduled": SCHEDULED,
    b"completed": COMPLETED,
    b"failed": FAILED,
    b"events": EVENTS,
    b"meta": META,
    b"dedup": DEDUP,
    b"ordering": ORDERING,
    b"ratelimited": RATELIMITED,
    b"lifo": LIFO,
    b"priority": PRIORITY,
    b"list-active": LIST_ACTIVE,
    b"suspended": SUSPENDED,
}
_METRICS: Final[dict[bytes, int]] = {b"completed": METRICS_COMPLETED, b"failed": METRICS_FAILED}

# Parts with one of their kind for each job or each ordering key.
_OF_JOBS: Final[dict[bytes, int]] = {b"job": JOB, b"log": LOG, b"deps": DEPS, b"parents": PARENTS}
_OF_LANES: Final[dict[bytes, int]] = {b"group": GROUP, b"groupq": GROUPQ}

_COLON: Final = 58

# What stands behind the name of the queue; of parts of jobs and lanes, what it begins with.
TEXTS: Final[dict[int, bytes]] = {
    **{part: text for text, part in _WHOLE.items()},
    **{part: b"metrics:" + text for text, part in _METRICS.items()},
    **{part: text + b":" for text, part in _OF_JOBS.items()},
    **{part: text + b":" for text, part in _OF_LANES.items()},
}


@final
class Place:
    """One key, taken apart."""

    def __init__(self, name: KeyName, part: i64) -> None:
        # What the yard calls the queue.
        self.queue_name: str = name.queue
        self.part: i64 = part
        # The id of a job, or an ordering key; empty for a part of the whole queue.
        self.rest: str = text_of(name.rest)
        # What all keys of the queue begin with.
        self.base: bytes = name.key[: name.key.find(b"}") + 2]

    def key(self) -> bytes:
        """Return the key of a part of the whole queue."""
        return self.base + TEXTS[int(self.part)]

    def job_head(self) -> bytes:
        """Return what keys of jobs of the queue begin with, up to the colon before the id."""
        return self.base + b"job"

    def tag(self) -> str:
        """Return what all keys of the queue begin with, as members of flows name it."""
        return text_of(self.base[:-1])

    def is_sibling(self, key: bytes, part: i64) -> bool:
        """Tell whether a key shows another part of the same queue."""
        text = TEXTS[int(part)]
        if text[-1] == _COLON:
            # Of what comes behind that nobody looks again: it must be fit for a key.
            is_fit = len(key) <= KEY_SIZE_MAX and b"\0" not in key
            return is_fit and key.startswith(self.base + text)
        return key == self.base + text


def text_of(data: bytes) -> str:
    """Return bytes as text; what is no UTF-8 can be turned back into the same bytes."""
    return data.decode("utf-8", "surrogateescape")


def bytes_of(text: str) -> bytes:
    """Return the bytes of what `text_of` made."""
    return text.encode("utf-8", "surrogateescape")


def find_place(name: KeyName) -> Place:
    """Return which part of a queue a key names."""
    part: i64 = SIDE
    if not name.queue:
        return Place(name, SIDE)
    if not name.rest:
        part = _WHOLE.get(name.family, SIDE)
    elif name.family == b"metrics":
        part = _METRICS.get(name.rest, SIDE)
    elif name.family in _OF_LANES:
        part = _OF_LANES[name.family]
    elif b":" not in name.rest:
        # An id has no colon: what has one is something kept beside the job.
        part = _OF_JOBS.get(name.family, SIDE)
    return Place(name, part)


def is_job_id(text: str) -> bool:
    """Tell whether a client may choose this id."""
    if not text or len(text) > JOB_ID_MAX:
        return False
    for char in text:
        code = ord(char)
        if code < 32 or code == 127 or char in "{}:" or 0xD800 <= code <= 0xDFFF:
            return False
    return True
