"""The options of a stream of claims (`queue` and `worker`), and of the sink that ends their runs.

The same rules as for all reads and writes: names in any case of letters, and an option that nobody
knows is an error. Makes no call to a server.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql.types import StructType

from jobyard.client import Token
from jobyard.client.errors import bad_option
from jobyard.spark.options import TOPIC_NAME, Connecting, Given, connecting

# Jobs of a claim set, which the server bounds.
BATCH_MAX: Final = 10_000
BATCH: Final = 5000
LEASE_MS: Final = 60_000
# Extended at a third of it, each time over the network.
LEASE_MS_MIN: Final = 1000
LEASE_MS_MAX: Final = 86_400_000
# A worker is the node of its leases, and the beginning of the ids of its claims.
WORKER_MAX: Final = 128
WORKER_NAME: Final = re.compile(rf"[A-Za-z0-9._:~-]{{1,{WORKER_MAX}}}")
TASKS_MAX: Final = 10_000
# With growing pauses about half a minute, so that a server may start again meanwhile.
RETRIES_MAX: Final = 10

_SHARED: Final = ("url", "token", "tokenEnv", "tokenFile", "timeoutMs", "maxRetries")
CLAIM_NAMES: Final = (*_SHARED, "queue", "worker", "batch", "leaseMs", "minPartitions")
END_NAMES: Final = (*_SHARED, "results")
# What marks a write as one that ends runs.
STATUS: Final = "_status"
# Options that Spark passes on with ours.
_OF_SPARK: Final = frozenset({"path", "checkpointlocation", "queryname"})


@dataclass(frozen=True)
class ClaimOptions:
    """Everything that a stream of claims needs to know, checked."""

    connecting: Connecting
    queue: str
    worker: str
    # Most jobs of a micro-batch.
    batch: int = BATCH
    lease_ms: int = LEASE_MS
    # Most tasks of a micro-batch.
    partitions: int = 2


@dataclass(frozen=True)
class EndOptions:
    """Everything that the sink needs to know, checked."""

    connecting: Connecting
    # The topic of results; empty for none.
    results: str = ""


def is_claims(options: Mapping[str, str]) -> bool:
    """Return whether the options of a read are those of a stream of claims."""
    names = {name.lower() for name in options}
    return bool(names & {"queue", "worker"})


def is_ends(schema: StructType) -> bool:
    """Return whether the rows of a write end runs."""
    return STATUS in schema.fieldNames()


def claim_options(
    options: Mapping[str, str], token: Token | None, cores: int
) -> ClaimOptions:  # fmt: skip
    """Return the checked options of a stream of claims."""
    given = Given(_own(options), CLAIM_NAMES)
    for name in ("queue", "worker"):
        if not given.has(name):
            raise bad_option(name, f"a stream of claims has no {name}; it needs queue and worker")
    check_topic("queue", given.text("queue"))
    check_worker(given.text("worker"))
    return ClaimOptions(
        connecting=_connecting(given, token),
        queue=given.text("queue"),
        worker=given.text("worker"),
        batch=_bounded(given, "batch", BATCH, 1, BATCH_MAX),
        lease_ms=_bounded(given, "leaseMs", LEASE_MS, LEASE_MS_MIN, LEASE_MS_MAX),
        partitions=_bounded(given, "minPartitions", cores, 1, TASKS_MAX),
    )


def end_options(options: Mapping[str, str], token: Token | None) -> EndOptions:
    """Return the checked options of the sink."""
    given = Given(_own(options), END_NAMES)
    if given.has("results"):
        check_topic("results", given.text("results"))
    return EndOptions(_connecting(given, token), given.text("results"))


def check_worker(name: str) -> None:
    """Refuse a name that no worker can have."""
    if not WORKER_NAME.fullmatch(name):
        raise bad_option(
            "worker",
            f"{name[:40]!r} cannot be the name of a worker",
            f"A name has 1 to {WORKER_MAX} letters, digits and . _ : ~ -",
        )


def check_topic(option: str, name: str) -> None:
    """Refuse a name that no topic or queue can have."""
    if not TOPIC_NAME.fullmatch(name):
        raise bad_option(
            option,
            f"{name[:40]!r} is not the name of a topic: 1 to 255 letters, digits and . _ : -, "
            "the first a letter or digit",
        )


def _own(options: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in options.items() if name.lower() not in _OF_SPARK}


def _connecting(given: Given, token: Token | None) -> Connecting:
    found = connecting(given, token)
    retries_max = given.number("maxRetries", RETRIES_MAX, least=0)
    return Connecting(found.url, found.token, found.timeout_ms, retries_max)


def _bounded(given: Given, name: str, otherwise: int, least: int, most: int) -> int:
    number = given.number(name, otherwise, least=least)
    if number > most:
        raise bad_option(name, f"{number} is more than {most}, the most that there can be")
    return number
