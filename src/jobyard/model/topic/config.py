"""The configuration of a topic, whether it is a log of records or a queue of jobs.

Replaced as a whole, never field by field: a field that is left out goes back to its default. Knows
the names, defaults and bounds of the fields, and how they are encoded; knows no topic.
"""

import json
from typing import Final, final

from jobyard.errors import Refused

LOG: Final = "log"
QUEUE: Final = "queue"

DISCARD_OLD: Final = "old"
DISCARD_REJECT: Final = "reject"

# From no promise at all to surviving any crash.
EPHEMERAL: Final = "ephemeral"
MEMORY: Final = "memory"
DISK: Final = "disk"
FSYNC: Final = "fsync"
DURABILITIES: Final = (EPHEMERAL, MEMORY, DISK, FSYNC)

LEASE_MS_MIN: Final = 100
LEASE_MS_MAX: Final = 86_400_000
LEASE_MS_DEFAULT: Final = 30_000
JITTER_MS_MAX: Final = 5000
TOPIC_PRIORITY_MAX: Final = 1000
WINDOW_MS_DEFAULT: Final = 120_000
CONFIG_NUMBER_MAX: Final = (1 << 63) - 1
KEY_WINDOW_MS_DEFAULT: Final = 7 * 86_400_000
KEY_WINDOW_MS_MAX: Final = 90 * 86_400_000
KEY_COUNT_DEFAULT: Final = 10_000_000
KEY_COUNT_MAX: Final = 1_000_000_000

TOPIC_NAME_MAX: Final = 255
_MARKS_IN_NAME: Final = "._:-"


class BadConfig(Refused):
    """A configuration with a value that is not allowed."""


@final
class TopicConfig:
    """The configuration of one topic."""

    def __init__(self) -> None:
        self.type: str = LOG
        self.ttl_ms: int = 0
        self.cap_records: int = 0
        self.cap_bytes: int = 0
        self.discard: str = DISCARD_OLD
        self.durability: str = DISK
        # Whether the durability was named, not derived: a named one applies at every door.
        self.is_named: bool = False
        self.priority: int | None = None
        self.auto_priority: bool = True
        self.auto_create: bool = True
        self.idempotency_window_ms: int = WINDOW_MS_DEFAULT
        # How long the key of a record is valid, and how many valid keys there may be.
        self.key_window_ms: int = KEY_WINDOW_MS_DEFAULT
        self.key_max: int = KEY_COUNT_DEFAULT
        self.dedupe_node: bool = True
        self.lease_ms: int = LEASE_MS_DEFAULT
        self.claim_jitter_ms: int = 0
        self.max_deliveries: int = 0
        self.dead_letter: str | None = None
        self.leases_durable: bool = False

    def is_exceeded_by(self, count: int, size: int) -> bool:
        """Return whether a write of this many records and bytes exceeds what the topic may hold."""
        return 0 < self.cap_records < count or 0 < self.cap_bytes < size

    def fields(self) -> dict[str, object]:
        """Return every field as shown to clients."""
        return {
            "type": self.type,
            "ttl_ms": self.ttl_ms,
            "cap_records": self.cap_records,
            "cap_bytes": self.cap_bytes,
            "discard": self.discard,
            "durable": self.durability == FSYNC,
            "durability": self.durability,
            "priority": self.priority,
            "auto_priority": self.auto_priority,
            "auto_create": self.auto_create,
            "idempotency_window_ms": self.idempotency_window_ms,
            "key_window_ms": self.key_window_ms,
            "key_max": self.key_max,
            "dedupe_node": self.dedupe_node,
            "lease_ms": self.lease_ms,
            "claim_jitter_ms": self.claim_jitter_ms,
            "max_deliveries": self.max_deliveries,
            "dead_letter": self.dead_letter,
            "leases_durable": self.leases_durable,
        }

    def encode(self) -> bytes:
        """Return its stored form."""
        return json.dumps([self.is_named, self.fields()], separators=(",", ":")).encode()


def decode_config(data: bytes) -> TopicConfig:
    """Decode what `encode` wrote."""
    is_named, fields = json.loads(data)
    config = read_config(fields)
    config.is_named = is_named
    return config


# The log of job history, which clients cannot write to.
EVENTS_TOPIC: Final = "_events"

# Stands for the configuration of a queue whose name belongs to a log, so that it takes no jobs.
BARRED: Final = TopicConfig()


def read_config(given: dict[str, object]) -> TopicConfig:
    """Return the configuration that a client sent; fields it leaves out have their defaults."""
    config = TopicConfig()
    config.type = _choice(given, "type", (LOG, QUEUE), LOG)
    config.ttl_ms = _whole(given, "ttl_ms", 0, CONFIG_NUMBER_MAX)
    config.cap_records = _whole(given, "cap_records", 0, CONFIG_NUMBER_MAX)
    config.cap_bytes = _whole(given, "cap_bytes", 0, CONFIG_NUMBER_MAX)
    config.discard = _choice(given, "discard", (DISCARD_OLD, DISCARD_REJECT), DISCARD_OLD)
    is_durable = _flag(given, "durable", otherwise=False)
    config.durability = _choice(given, "durability", DURABILITIES, FSYNC if is_durable else DISK)
    config.is_named = given.get("durability") is not None
    if given.get("priority") is not None:
        config.priority = _signed(given, "priority", TOPIC_PRIORITY_MAX)
    config.auto_priority = _flag(given, "auto_priority", otherwise=True)
    config.auto_create = _flag(given, "auto_create", otherwise=True)
    window_ms = _whole(given, "idempotency_window_ms", WINDOW_MS_DEFAULT, CONFIG_NUMBER_MAX)
    config.idempotency_window_ms = window_ms
    window_ms = _whole(given, "key_window_ms", KEY_WINDOW_MS_DEFAULT, KEY_WINDOW_MS_MAX)
    if window_ms == 0:
        raise BadConfig(f"key_window_ms must be a whole number from 1 to {KEY_WINDOW_MS_MAX}")
    config.key_window_ms = window_ms
    config.key_max = _whole(given, "key_max", KEY_COUNT_DEFAULT, KEY_COUNT_MAX)
    config.dedupe_node = _flag(given, "dedupe_node", otherwise=True)
    lease_ms = _whole(given, "lease_ms", LEASE_MS_DEFAULT, CONFIG_NUMBER_MAX)
    config.lease_ms = clamp_lease_ms(lease_ms)
    config.claim_jitter_ms = min(
        _whole(given, "claim_jitter_ms", 0, CONFIG_NUMBER_MAX), JITTER_MS_MAX
    )
    config.max_deliveries = _whole(given, "max_deliveries", 0, CONFIG_NUMBER_MAX)
    config.dead_letter = _topic(given, "dead_letter")
    config.leases_durable = _flag(given, "leases_durable", otherwise=False)
    return config


def clamp_lease_ms(lease_ms: int) -> int:
    """Return the lease duration that is granted for a requested one."""
    return max(LEASE_MS_MIN, min(lease_ms, LEASE_MS_MAX))


def is_topic_name(name: str) -> bool:
    """Return whether this is a valid topic name."""
    if not 1 <= len(name) <= TOPIC_NAME_MAX or not name.isascii() or not name[0].isalnum():
        return False
    return all(letter.isalnum() or letter in _MARKS_IN_NAME for letter in name)


def _whole(given: dict[str, object], key: str, otherwise: int, most: int) -> int:
    value = given.get(key)
    if value is None:
        return otherwise
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise BadConfig(f"{key} must be a whole number from 0 to {most}")
    return value


def _signed(given: dict[str, object], key: str, most: int) -> int:
    value = given.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not -most <= value <= most:
        raise BadConfig(f"{key} must be a whole number from {-most} to {most}")
    return value


def _flag(given: dict[str, object], key: str, *, otherwise: bool) -> bool:
    value = given.get(key)
    if value is None:
        return otherwise
    if not isinstance(value, bool):
        raise BadConfig(f"{key} must be true or false")
    return value


def _choice(given: dict[str, object], key: str, words: tuple[str, ...], otherwise: str) -> str:
    value = given.get(key)
    if value is None:
        return otherwise
    if not isinstance(value, str) or value not in words:
        raise BadConfig(f"{key} must be one of {', '.join(words)}")
    return value


def _topic(given: dict[str, object], key: str) -> str | None:
    value = given.get(key)
    if value is None:
        return None
    if not isinstance(value, str) or not is_topic_name(value):
        raise BadConfig(f"{key} must be the name of a topic")
    return value
