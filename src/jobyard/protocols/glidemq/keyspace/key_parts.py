"""Which part of a queue a key shows, and of which job or ordering group.

A key that shows none is a stored key; nothing else is known of it here.
"""

from typing import Final, final

from mypy_extensions import i64

from jobyard.protocols.glidemq.keyspace.key_names import KEY_SIZE_MAX, KeyName

JOB_ID_MAX: Final = 256


@final
class KeyPart:
    """Parts of a queue that keys show; STORED is a value that a client set."""

    STORED: Final = 0
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
    b"id": KeyPart.ID,
    b"stream": KeyPart.STREAM,
    b"scheduled": KeyPart.SCHEDULED,
    b"completed": KeyPart.COMPLETED,
    b"failed": KeyPart.FAILED,
    b"events": KeyPart.EVENTS,
    b"meta": KeyPart.META,
    b"dedup": KeyPart.DEDUP,
    b"ordering": KeyPart.ORDERING,
    b"ratelimited": KeyPart.RATELIMITED,
    b"lifo": KeyPart.LIFO,
    b"priority": KeyPart.PRIORITY,
    b"list-active": KeyPart.LIST_ACTIVE,
    b"suspended": KeyPart.SUSPENDED,
}
_METRICS: Final[dict[bytes, int]] = {
    b"completed": KeyPart.METRICS_COMPLETED,
    b"failed": KeyPart.METRICS_FAILED,
}

# Parts that exist once per job or per ordering key.
_OF_JOBS: Final[dict[bytes, int]] = {
    b"job": KeyPart.JOB,
    b"log": KeyPart.LOG,
    b"deps": KeyPart.DEPS,
    b"parents": KeyPart.PARENTS,
}
_OF_ORDERINGS: Final[dict[bytes, int]] = {b"group": KeyPart.GROUP, b"groupq": KeyPart.GROUPQ}

_COLON: Final = 58

# What follows the name of the queue; for parts of jobs and ordering groups, its prefix.
TEXTS: Final[dict[int, bytes]] = {
    **{part: text for text, part in _WHOLE.items()},
    **{part: b"metrics:" + text for text, part in _METRICS.items()},
    **{part: text + b":" for text, part in _OF_JOBS.items()},
    **{part: text + b":" for text, part in _OF_ORDERINGS.items()},
}


@final
class KeyPlace:
    """One parsed key."""

    def __init__(self, name: KeyName, part: i64) -> None:
        # The name of the queue in the yard.
        self.queue_name: str = name.queue
        self.part: i64 = part
        # The id of a job, or an ordering key; empty for a part of the whole queue.
        self.rest: str = text_of(name.rest)
        # The start of all keys of the queue.
        self.base: bytes = name.key[: name.key.find(b"}") + 2]

    def key(self) -> bytes:
        """Return the key of a part of the whole queue."""
        return self.base + TEXTS[int(self.part)]

    def job_head(self) -> bytes:
        """Return the start of all job keys of the queue, up to the colon before the id."""
        return self.base + b"job"

    def tag(self) -> str:
        """Return the start of all keys of the queue, as labels of flow members contain it."""
        return text_of(self.base[:-1])

    def is_sibling(self, key: bytes, part: i64) -> bool:
        """Return whether a key shows the given part of the same queue."""
        text = TEXTS[int(part)]
        if text[-1] == _COLON:
            # What follows is not checked again: it must be valid in a key.
            is_fit = len(key) <= KEY_SIZE_MAX and b"\0" not in key
            return is_fit and key.startswith(self.base + text)
        return key == self.base + text


def text_of(data: bytes) -> str:
    """Decode bytes as text; bytes that are not UTF-8 survive the way back."""
    return data.decode("utf-8", "surrogateescape")


def bytes_of(text: str) -> bytes:
    """Encode text that `text_of` made."""
    return text.encode("utf-8", "surrogateescape")


def find_place(name: KeyName) -> KeyPlace:
    """Return which part of a queue a key names."""
    part: i64 = KeyPart.STORED
    if not name.queue:
        return KeyPlace(name, KeyPart.STORED)
    if not name.rest:
        part = _WHOLE.get(name.family, KeyPart.STORED)
    elif name.family == b"metrics":
        part = _METRICS.get(name.rest, KeyPart.STORED)
    elif name.family in _OF_ORDERINGS:
        part = _OF_ORDERINGS[name.family]
    elif b":" not in name.rest:
        # Ids have no colon: with one, this is a stored key of the job.
        part = _OF_JOBS.get(name.family, KeyPart.STORED)
    return KeyPlace(name, part)


def is_job_id(text: str) -> bool:
    """Return whether a client may choose this id."""
    if not text or len(text) > JOB_ID_MAX:
        return False
    for char in text:
        code = ord(char)
        if code < 32 or code == 127 or char in "{}:" or 0xD800 <= code <= 0xDFFF:
            return False
    return True
