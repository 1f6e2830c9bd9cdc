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
from jobyard.spark.read.losses import OF_BATCH, OF_JOBS, OF_STREAM, LossRule
from jobyard.spark.read.positions import Position, duration_ms, parse_offsets, parse_time
from jobyard.spark.write.bad_files import local_folder

EVENTS_TOPIC: Final = "_events"
URL_VARIABLE: Final = "JOBYARD_URL"
TOKEN_VARIABLE: Final = "JOBYARD_TOKEN"  # noqa: S105  the name of a variable
# For the target of a copy, to which the token of its source must not be sent.
TARGET_TOKEN_VARIABLE: Final = "JOBYARD_TARGET_TOKEN"  # noqa: S105  the name of a variable
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
    *("compress", "archivePath", "archiveOnly"),
)
NOT_COMPRESSED: Final = "none"
ZSTD: Final = "zstd"
# Spark adds it by itself to the options of `load(path)`.
_PATH: Final = "path"
# What other sources call what we have by another name.
_ELSEWHERE: Final = {
    "kafka.bootstrap.servers": "url",
    "bootstrap.servers": "url",
    "assign": "topics",
    "startingoffsetsbytimestamp": "startingTimestamp",
    "endingoffsetsbytimestamp": "endingTimestamp",
}
# What a server accepts as the name of a topic.
TOPIC_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,254}")
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
    # A task takes about 25 ms besides its rows.
    records_per_partition: int = 500_000
    exports_max: int = 8
    # Whether the number of partitions was asked for, which then counts more than `exports_max`.
    is_split_asked: bool = False


@dataclass(frozen=True)
class ReadOptions:
    """Everything that a reader needs to know, checked."""

    connecting: Connecting
    is_stream: bool = False
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
    # The folder of an archive that is read before, or instead of, the yard; empty for none.
    archive_path: str = ""
    is_archive_only: bool = False

    def export_query(self) -> dict[str, str]:
        """Return the parameters that every export of this read has."""
        return {"compress": self.codec} if self.codec else {}

    @property
    def loss_rule(self) -> LossRule:
        """Return what becomes of records that are gone."""
        of_batch = OF_JOBS if self.jobs else OF_BATCH
        remedy = OF_STREAM if self.is_stream else of_batch
        return LossRule(self.is_loss_fatal, bool(self.pattern), remedy)

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
            raise bad_option(
                name,
                f"{text!r} is not a whole number of at least {least}",
                f"Write digits only, such as {otherwise or 1000}.",
            )
        return int(text)

    def choice(self, name: str, words: tuple[str, ...]) -> str:
        """Return an option that is one of some words, the first one by default."""
        text = self._values.get(name, words[0]).lower()
        if text not in words:
            raise _not_one_of(name, text, words)
        return text

    def flag(self, name: str, *, otherwise: bool) -> bool:
        """Return an option that is true or false."""
        text = self._values.get(name, str(otherwise)).lower()
        if text not in ("true", "false"):
            raise bad_option(
                name, f"{text!r} is neither true nor false", "Write true or false in full."
            )
        return text == "true"

    def parsed(self, name: str, parse: Callable[[str], _T]) -> _T:
        """Return what a function makes of an option; its ValueError becomes ours."""
        try:
            return parse(self._values[name])
        except ValueError as fault:
            raise bad_option(name, str(fault), _remedy_of(name)) from None


def read_options(
    options: Mapping[str, str], *, is_stream: bool | None, token: Token | None = None
) -> ReadOptions:
    """Return the checked options of a read; of either kind if `is_stream` is None."""
    given = Given({key: value for key, value in options.items() if key.lower() != _PATH})
    subject = _one_subject(given, options)
    is_kafka = subject.startswith("subscribe")
    topics, pattern = _subject(given, subject)
    if is_stream:
        _refuse(given, ("jobs", "states"), "a stream cannot read jobs",
                "Read them with spark.read, or set topic to _events, their history.")  # fmt: skip
        _refuse(given, ("endingOffsets", "endingTimestamp"), "a stream has no end",
                "Leave it out, or read this part with spark.read.")  # fmt: skip
    elif is_stream is not None:
        _refuse(given, ("consumer", "hold"), "a batch read moves no cursor",
                "Leave it out, or read with spark.readStream.")  # fmt: skip
    if subject == "jobs":
        _refuse(given, ("kafkaNames",), "jobs have columns of their own", "Leave it out.")
        _refuse(given, ("startingOffsets", "endingOffsets", "startingTimestamp",
                        "endingTimestamp", "archivePath"),
                "a snapshot of jobs has no offsets and no archive",
                "Leave it out, and filter the rows.")  # fmt: skip
    elif given.has("states"):
        raise bad_option(
            "states", "only jobs have states", "Set jobs to the queue instead of a topic."
        )
    is_archive_only = given.flag("archiveOnly", otherwise=False)
    if is_archive_only and not given.has("archivePath"):
        raise bad_option(
            "archiveOnly", "no archive is named", "Set archivePath to the folder to read."
        )
    if is_archive_only and is_stream:
        raise bad_option(
            "archiveOnly", "a stream reads the server behind its archive", "Leave it out."
        )
    return ReadOptions(
        connecting=Connecting("", None) if is_archive_only else connecting(given, token),
        is_stream=bool(is_stream),
        topics=topics,
        pattern=pattern,
        jobs=given.text("jobs").strip(),
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
        archive_path=_archive(given),
        is_archive_only=is_archive_only,
    )


def take_token(options: Mapping[str, str]) -> tuple[dict[str, str], Token | None]:
    """Return the options without a token, and the token that they or the environment name."""
    ways = {"token": "token", "tokenenv": "tokenEnv", "tokenfile": "tokenFile"}
    # Names stay as they were written: messages show them.
    rest = {key: value for key, value in options.items() if key.lower() not in ways}
    found: dict[str, str | None] = dict.fromkeys(ways.values())
    found |= {ways[key.lower()]: options[key] for key in options if key.lower() in ways}
    kept = [name for name, value in found.items() if value is not None]
    if len(kept) > 1:
        raise bad_option(
            " and ".join(kept), "a token can be given in one way only", "Set one of them."
        )
    if found["token"] is not None:
        return rest, Token(found["token"])
    if found["tokenEnv"] == TARGET_TOKEN_VARIABLE:
        # A copy sets it for its target, which may need none.
        text = os.environ.get(TARGET_TOKEN_VARIABLE, "")
        return rest, Token(text) if text else None
    if found["tokenEnv"] is not None:
        return rest, Token(variable=found["tokenEnv"])
    if found["tokenFile"] is not None:
        return rest, Token(file=found["tokenFile"])
    text = os.environ.get(TOKEN_VARIABLE, "")
    return rest, Token(text) if text else None


def _unknown(key: str, canonical: dict[str, str]) -> JobyardError:
    there_is_none = f"there is no option {key}"
    known = _ELSEWHERE.get(key.lower(), "")
    if known.lower() in canonical:
        return bad_option(key, f"{there_is_none}; here it is {known}", f"Set {known} instead.")
    if key.lower().startswith("kafka."):
        return bad_option(
            key, f"{there_is_none}: settings of a Kafka client mean nothing here", "Leave it out."
        )
    near = difflib.get_close_matches(key.lower(), list(canonical), n=1, cutoff=0.5)
    if near:
        name = canonical[near[0]]
        return bad_option(key, f"{there_is_none}; did you mean {name}?", f"Set {name} instead.")
    return bad_option(key, there_is_none, f"Options are {', '.join(canonical.values())}.")


def _not_one_of(name: str, text: str, words: Sequence[str]) -> JobyardError:
    near = difflib.get_close_matches(text.lower(), words, n=1)
    return bad_option(
        name,
        f"{text!r} is not one of {', '.join(words)}",
        f"Did you mean {near[0]}?" if near else f"Write one of them, such as {words[0]}.",
    )


def _remedy_of(name: str) -> str:
    """Return what to write in an option whose value means nothing."""
    if name.endswith("Offsets"):
        return f'Set {name} to earliest, latest, -1000, or {{"clicks":{{"0":123}}}}.'
    if name.endswith("Timestamp"):
        return f"Set {name} to milliseconds, 2026-11-19T08:00:00Z, or -10m."
    return f"Set {name} to a number and a unit, such as 15m."


def _one_subject(given: Given, options: Mapping[str, str]) -> str:
    """Return the one option that says what is read."""
    kept = [name for name in SUBJECTS if given.has(name)]
    if len(kept) == 1:
        return kept[0]
    several = ", ".join(SUBJECTS)
    if kept:
        raise bad_option(
            " and ".join(kept), f"only one of {several} can be set", "Leave out all but one."
        )
    path = next((value for key, value in options.items() if key.lower() == _PATH), "")
    raise bad_option(
        "topic",
        f"no option says what to read: one of {several} must be set",
        f'Write .option("topic", "{_shown(path)}").load(): a topic is not a path.'
        if path
        else 'Write .option("topic", "NAME").',
    )


def _shown(path: str) -> str:
    """Return a path as the name of a topic, if it may be one."""
    return path if TOPIC_NAME.fullmatch(path) else "NAME"


def _refuse(given: Given, names: tuple[str, ...], why: str, remedy: str) -> None:
    for name in names:
        if given.has(name):
            raise bad_option(name, why, remedy)


def _subject(given: Given, subject: str) -> tuple[tuple[str, ...], str]:
    text = given.text(subject).strip()
    if not text:
        raise bad_option(subject, f"the option {subject} is empty", f"Set {subject} to a name.")
    if subject == "jobs":
        if text != EVENTS_TOPIC:
            check_topic_name(subject, text)
        return (), ""
    if subject.endswith("Pattern"):
        try:
            re.compile(text)
        except re.error as fault:
            raise bad_option(
                subject,
                f"{text!r} is not a regular expression: {fault}",
                "Write one of Python that matches whole names, such as click.*",
            ) from None
        return (), text
    topics = (text,) if subject == "topic" else tuple(part.strip() for part in text.split(","))
    if len(set(topics)) < len(topics) or "" in topics:
        raise bad_option(
            subject, "a topic is named twice, or a name is empty", "Write a,b: each topic once."
        )
    if EVENTS_TOPIC in topics and len(topics) > 1:
        raise bad_option(
            subject,
            f"{EVENTS_TOPIC} has other columns and is read alone",
            f"Set topic to {EVENTS_TOPIC} in a read of its own.",
        )
    for topic in topics:
        if topic != EVENTS_TOPIC:
            check_topic_name(subject, topic)
    return topics, ""


def check_topic_name(option: str, name: str) -> None:
    """Refuse what the server would not take as the name of a topic."""
    if TOPIC_NAME.fullmatch(name):
        return
    raise bad_option(
        option,
        f"{name[:300]!r} is not the name of a topic: 1 to 255 letters, digits and . _ : -, "
        "the first a letter or digit",
        "Set the name as the server lists it (GET /v0/topics).",
    )


def connecting(given: Given, token: Token | None) -> Connecting:
    """Return how the yard is reached."""
    url = given.text("url") or os.environ.get(URL_VARIABLE, "")
    if not url:
        raise bad_option(
            "url",
            f"there is no url: neither the option nor {URL_VARIABLE} is set",
            'Write .option("url", "http://127.0.0.1:6790"), the HTTP port of `jobyard serve`.',
        )
    return Connecting(
        url=url,
        token=token,
        timeout_ms=given.number("timeoutMs", 30_000),
        retries_max=given.number("maxRetries", 5, least=0),
    )


def _codec(given: Given) -> str:
    codec = given.text("compress", NOT_COMPRESSED).lower()
    if codec not in (NOT_COMPRESSED, ZSTD):
        raise bad_option(
            "compress",
            f"{codec!r} is neither {NOT_COMPRESSED} nor {ZSTD}",
            f"Set compress to {ZSTD} for slow links, or leave it out.",
        )
    return "" if codec == NOT_COMPRESSED else codec


def _archive(given: Given) -> str:
    if not given.has("archivePath"):
        return ""
    return local_folder(given.text("archivePath"), "archivePath")


def _states(given: Given) -> tuple[str, ...]:
    if not given.has("states"):
        return STATES
    states = tuple(part.strip() for part in given.text("states").split(","))
    for state in states:
        if state not in STATES:
            raise _not_one_of("states", state, STATES)
    return states


def _position(given: Given, side: str) -> Position | None:
    """Return where to start or to end; None for the default."""
    offsets, time = f"{side}Offsets", f"{side}Timestamp"
    if given.has(offsets) and given.has(time):
        raise bad_option(
            f"{offsets} and {time}",
            f"{offsets} and {time} exclude each other",
            "Leave out one of them.",
        )
    if given.has(offsets):
        return given.parsed(offsets, parse_offsets)
    return given.parsed(time, parse_time) if given.has(time) else None


def _limits(given: Given) -> Limits:
    if given.has("maxTriggerDelay") and not given.has("minOffsetsPerTrigger"):
        raise bad_option(
            "maxTriggerDelay",
            "maxTriggerDelay needs minOffsetsPerTrigger",
            "Set minOffsetsPerTrigger, or leave out both.",
        )
    default = Limits()
    offsets_max = given.number("maxOffsetsPerTrigger", 0)
    offsets_min = given.number("minOffsetsPerTrigger", 0)
    if offsets_max and offsets_min > offsets_max:
        raise bad_option(
            "minOffsetsPerTrigger",
            f"minOffsetsPerTrigger is more than maxOffsetsPerTrigger, {offsets_max}",
            f"Set it to {offsets_max} at most.",
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
        raise bad_option(
            "hold",
            "hold needs the option consumer, the cursor that holds",
            "Set consumer to the name of a cursor.",
        )
    return name


def cores() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
