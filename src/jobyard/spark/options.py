"""The options of `format("jobyard")` for reading: names, defaults, and checks.

Names are Kafka's where Kafka has one, in any case of letters. An option that nobody knows is an
error that names the nearest, since one that was ignored would silently read something else. Makes
no call to a server: what is wrong with options alone is known before Spark plans anything.
"""

import difflib
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from jobyard.client import Token, YardClient
from jobyard.client.errors import JobyardError, bad_option
from jobyard.spark.read.losses import LossRule
from jobyard.spark.read.positions import Position, duration_ms, parse_offsets, parse_time

EVENTS_TOPIC: Final = "_events"
URL_VARIABLE: Final = "JOBYARD_URL"
TOKEN_VARIABLE: Final = "JOBYARD_TOKEN"  # noqa: S105  the name of a variable
STATES: Final = ("ready", "delayed", "leased", "dead", "done", "blocked")

# What to read: exactly one of these.
SUBJECTS: Final = ("topic", "topics", "topicsPattern", "subscribe", "subscribePattern", "jobs")
NAMES: Final = (
    *("url", "token", "tokenEnv", "tokenFile"),
    *SUBJECTS,
    *("states", "startingOffsets", "endingOffsets", "startingTimestamp", "endingTimestamp"),
    *("maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"),
    *("minPartitions", "maxRecordsPerPartition", "maxConcurrentExports"),
    *("failOnDataLoss", "includeHeaders", "includePayload", "kafkaNames"),
    *("consumer", "hold", "pollIntervalMs", "timeoutMs", "maxRetries", "pushdown"),
    "compress",
)
NOT_COMPRESSED: Final = "none"
ZSTD: Final = "zstd"
# Spark adds it by itself to the options of `load(path)`.
_PATH: Final = "path"
_T = TypeVar("_T")
# What a server accepts as the name of a cursor.
CURSOR_NAME_MAX: Final = 128
_CURSOR_NAME: Final = re.compile(rf"[A-Za-z0-9._:~-]{{1,{CURSOR_NAME_MAX}}}")


@dataclass(frozen=True)
class Connecting:
    """How a yard is reached. Can be sent to executors."""

    url: str
    token: Token | None
    timeout_ms: int = 30_000
    retries_max: int = 5

    def client(self, pause: Callable[[float], object] = time.sleep) -> YardClient:
        """Return a client that is not connected yet; it waits between attempts with `pause`."""
        return YardClient(
            self.url,
            self.token,
            timeout_ms=self.timeout_ms,
            retries_max=self.retries_max,
            pause=pause,
        )


@dataclass(frozen=True)
class Limits:
    """How much a batch and a partition hold; 0 for no limit."""

    offsets_max: int = 0
    bytes_max: int = 0
    offsets_min: int = 0
    delay_max_ms: int = 15 * 60_000
    partitions_min: int = 0
    records_per_partition: int = 100_000
    exports_max: int = 8
    # Whether the number of partitions was asked for, which then counts more than `exports_max`.
    is_split_asked: bool = False


@dataclass(frozen=True)
class ReadOptions:
    """Everything that a reader needs to know, checked."""

    connecting: Connecting
    topics: tuple[str, ...] = ()
    pattern: str = ""
    jobs: str = ""
    states: tuple[str, ...] = ()
    starting: Position | None = None
    ending: Position | None = None
    limits: Limits = field(default_factory=Limits)
    is_loss_fatal: bool = True
    has_headers: bool = True
    has_payload: bool = True
    kafka_names: bool = False
    consumer: str = ""
    is_held: bool = False
    poll_interval_ms: int = 200
    # Off, because Spark 4.3 keeps the filters of one query for the next one on the same table.
    pushdown: bool = False
    # How the server compresses exports; empty for not at all.
    codec: str = ""

    def export_query(self) -> dict[str, str]:
        """Return the parameters that every export of this read has."""
        return {"compress": self.codec} if self.codec else {}

    @property
    def loss_rule(self) -> LossRule:
        """Return what becomes of records that are gone."""
        return LossRule(self.is_loss_fatal, bool(self.pattern))

    @property
    def is_events(self) -> bool:
        """Return whether the history of jobs is read."""
        return self.topics == (EVENTS_TOPIC,)


class Given:
    """The options as they were given, each taken by its canonical name."""

    def __init__(self, options: Mapping[str, str], names: Sequence[str] = NAMES) -> None:
        canonical = {name.lower(): name for name in names}
        self._values: dict[str, str] = {}
        for key, value in options.items():
            name = canonical.get(key.lower())
            if name is None:
                raise _unknown(key, canonical)
            self._values[name] = value

    def has(self, name: str) -> bool:
        """Return whether an option was given."""
        return name in self._values

    def text(self, name: str, otherwise: str = "") -> str:
        """Return an option as it was given."""
        return self._values.get(name, otherwise)

    def number(self, name: str, otherwise: int, *, least: int = 1) -> int:
        """Return an option that is a whole number."""
        text = self._values.get(name)
        if text is None:
            return otherwise
        if not text.isdecimal() or len(text) > 18 or int(text) < least:
            raise bad_option(name, f"{text!r} is not a whole number of at least {least}")
        return int(text)

    def choice(self, name: str, words: tuple[str, ...]) -> str:
        """Return an option that is one of some words, the first one by default."""
        text = self._values.get(name, words[0]).lower()
        if text not in words:
            raise bad_option(name, f"{text!r} is not one of {', '.join(words)}")
        return text

    def flag(self, name: str, *, otherwise: bool) -> bool:
        """Return an option that is true or false."""
        text = self._values.get(name, str(otherwise)).lower()
        if text not in ("true", "false"):
            raise bad_option(name, f"{text!r} is neither true nor false")
        return text == "true"

    def parsed(self, name: str, parse: Callable[[str], _T]) -> _T:
        """Return what a function makes of an option; its ValueError becomes ours."""
        try:
            return parse(self._values[name])
        except ValueError as fault:
            raise bad_option(name, str(fault)) from None


def read_options(
    options: Mapping[str, str], *, is_stream: bool | None, token: Token | None = None
) -> ReadOptions:
    """Return the checked options of a read; of either kind if `is_stream` is None."""
    given = Given({key: value for key, value in options.items() if key.lower() != _PATH})
    kept = [name for name in SUBJECTS if given.has(name)]
    if len(kept) != 1:
        raise bad_option(
            " and ".join(kept) or "topic",
            f"exactly one of {', '.join(SUBJECTS)} must be set, not {len(kept)}",
        )
    subject = kept[0]
    is_kafka = subject.startswith("subscribe")
    topics, pattern = _subject(given, subject)
    if is_stream:
        _refuse(given, ("endingOffsets", "endingTimestamp", "jobs", "states"), "a stream")
    elif is_stream is not None:
        _refuse(given, ("consumer", "hold"), "a batch read")
    if subject == "jobs":
        _refuse(given, ("startingOffsets", "endingOffsets", "startingTimestamp",
                        "endingTimestamp", "kafkaNames"), "a snapshot of jobs")  # fmt: skip
    elif given.has("states"):
        raise bad_option("states", "states belong to the option jobs")
    return ReadOptions(
        connecting=connecting(given, token),
        topics=topics,
        pattern=pattern,
        jobs=given.text("jobs"),
        states=_states(given),
        starting=_position(given, "starting"),
        ending=_position(given, "ending"),
        limits=_limits(given),
        is_loss_fatal=given.flag("failOnDataLoss", otherwise=True),
        has_headers=given.flag("includeHeaders", otherwise=not is_kafka),
        has_payload=given.flag("includePayload", otherwise=True),
        kafka_names=given.flag("kafkaNames", otherwise=is_kafka),
        consumer=_consumer(given),
        is_held=given.flag("hold", otherwise=False),
        poll_interval_ms=given.number("pollIntervalMs", 200),
        pushdown=given.flag("pushdown", otherwise=False),
        codec=_codec(given),
    )


def take_token(options: Mapping[str, str]) -> tuple[dict[str, str], Token | None]:
    """Return the options without a token, and the token that they or the environment name."""
    rest = {key.lower(): value for key, value in options.items()}
    found = {name: rest.pop(name.lower(), None)
             for name in ("token", "tokenEnv", "tokenFile")}  # fmt: skip
    kept = [name for name, value in found.items() if value is not None]
    if len(kept) > 1:
        raise bad_option(" and ".join(kept), "a token can be given in one way only")
    if found["token"] is not None:
        return rest, Token(found["token"])
    if found["tokenEnv"] is not None:
        return rest, Token(variable=found["tokenEnv"])
    if found["tokenFile"] is not None:
        return rest, Token(file=found["tokenFile"])
    text = os.environ.get(TOKEN_VARIABLE, "")
    return rest, Token(text) if text else None


def _unknown(key: str, canonical: dict[str, str]) -> JobyardError:
    near = difflib.get_close_matches(key.lower(), list(canonical), n=1, cutoff=0.5)
    names = ", ".join(canonical.values())
    hint = f"did you mean {canonical[near[0]]}?" if near else f"options are {names}"
    return bad_option(key, f"there is no option {key}; {hint}")


def _refuse(given: Given, names: tuple[str, ...], reader: str) -> None:
    for name in names:
        if given.has(name):
            raise bad_option(name, f"{reader} has no option {name}")


def _subject(given: Given, subject: str) -> tuple[tuple[str, ...], str]:
    text = given.text(subject).strip()
    if not text:
        raise bad_option(subject, f"the option {subject} is empty")
    if subject == "jobs":
        return (), ""
    if subject.endswith("Pattern"):
        try:
            re.compile(text)
        except re.error as fault:
            raise bad_option(subject, f"{text!r} is not a regular expression: {fault}") from None
        return (), text
    topics = (text,) if subject == "topic" else tuple(part.strip() for part in text.split(","))
    if len(set(topics)) < len(topics) or "" in topics:
        raise bad_option(subject, "each topic must be named once, separated by commas")
    if EVENTS_TOPIC in topics and len(topics) > 1:
        raise bad_option(subject, f"{EVENTS_TOPIC} has other columns and is read alone")
    return topics, ""


def connecting(given: Given, token: Token | None) -> Connecting:
    """Return how the yard is reached."""
    url = given.text("url") or os.environ.get(URL_VARIABLE, "")
    if not url:
        raise bad_option("url", f"no url is set, neither here nor in {URL_VARIABLE}")
    return Connecting(
        url=url,
        token=token,
        timeout_ms=given.number("timeoutMs", 30_000),
        retries_max=given.number("maxRetries", 5, least=0),
    )


def _codec(given: Given) -> str:
    codec = given.text("compress", NOT_COMPRESSED).lower()
    if codec not in (NOT_COMPRESSED, ZSTD):
        raise bad_option("compress", f"{codec!r} is neither {NOT_COMPRESSED} nor {ZSTD}")
    return "" if codec == NOT_COMPRESSED else codec


def _states(given: Given) -> tuple[str, ...]:
    if not given.has("states"):
        return STATES
    states = tuple(part.strip() for part in given.text("states").split(","))
    for state in states:
        if state not in STATES:
            raise bad_option("states", f"{state!r} is not one of {', '.join(STATES)}")
    return states


def _position(given: Given, side: str) -> Position | None:
    """Return where to start or to end; None for the default."""
    offsets, time = f"{side}Offsets", f"{side}Timestamp"
    if given.has(offsets) and given.has(time):
        raise bad_option(f"{offsets} and {time}", "only one of them can be set")
    if given.has(offsets):
        return given.parsed(offsets, parse_offsets)
    return given.parsed(time, parse_time) if given.has(time) else None


def _limits(given: Given) -> Limits:
    if given.has("maxTriggerDelay") and not given.has("minOffsetsPerTrigger"):
        raise bad_option("maxTriggerDelay", "maxTriggerDelay needs minOffsetsPerTrigger")
    default = Limits()
    offsets_max = given.number("maxOffsetsPerTrigger", 0)
    offsets_min = given.number("minOffsetsPerTrigger", 0)
    if offsets_max and offsets_min > offsets_max:
        raise bad_option(
            "minOffsetsPerTrigger", f"it must not be more than maxOffsetsPerTrigger, {offsets_max}"
        )
    delay_ms = default.delay_max_ms
    if given.has("maxTriggerDelay"):
        delay_ms = given.parsed("maxTriggerDelay", duration_ms)
    is_split_asked = given.has("minPartitions") or given.has("maxRecordsPerPartition")
    return Limits(
        offsets_max=offsets_max,
        bytes_max=given.number("maxBytesPerTrigger", 0),
        offsets_min=offsets_min,
        delay_max_ms=delay_ms,
        partitions_min=given.number("minPartitions", cores()),
        records_per_partition=given.number("maxRecordsPerPartition", default.records_per_partition),
        exports_max=given.number("maxConcurrentExports", default.exports_max),
        is_split_asked=is_split_asked and not given.has("maxConcurrentExports"),
    )


def _consumer(given: Given) -> str:
    name = given.text("consumer")
    if given.has("consumer") and not _CURSOR_NAME.fullmatch(name):
        raise bad_option(
            "consumer",
            f"{name[:40]!r} cannot be the name of a cursor",
            f"A name has 1 to {CURSOR_NAME_MAX} letters, digits and . _ : ~ -",
        )
    if given.has("hold") and not name:
        raise bad_option("hold", "hold needs the option consumer, the cursor that holds")
    return name


def cores() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
