"""Writes what an archive has into a topic or queue again: in order, each record once, with origin.

A replay is a row of transactions, one after the other. The key of each record is made of its
incarnation and seq, so a replay that is run again, or was cut off, writes what is missing and
nothing twice, as long as the target knows the keys (`key_window_ms`). No server but the target's is
asked.
"""

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f

from jobyard.client.errors import bad_option
from jobyard.client.txns import Transactions
from jobyard.lake.archive.names import EVENTS_TOPIC
from jobyard.spark.archive.batch import between
from jobyard.spark.archive.lives import TopicLives
from jobyard.spark.mirror import copies
from jobyard.spark.options import ReadOptions, read_options, take_token
from jobyard.spark.read.batch import FIRST, LAST
from jobyard.spark.read.losses import Losses
from jobyard.spark.read.positions import Position, parse_time
from jobyard.spark.read.ranges import SeqRange
from jobyard.spark.read.states import no_topic
from jobyard.spark.write.committing import totals
from jobyard.spark.write.options import write_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# A commit holds 100,000 records by default, and one with a key counts as two.
REPLAY_SEQS: Final = 40_000
# A seq, a time, or None for the edge of the archive.
Place = int | str | datetime | None


@dataclass(frozen=True)
class ReplayResult:
    """What a replay has done."""

    written: int
    # Records that the target had already, by their keys.
    duplicate: int


def replay(  # noqa: PLR0913  a replay has two ends and two bounds
    spark: "SparkSession",
    archive: str,
    topic: str,
    from_: Place,
    to: Place,
    into: str,
    *,
    incarnation: str = "",
    batch_seqs: int = REPLAY_SEQS,
    **options: object,
) -> ReplayResult:
    """Write the records of an archived topic into another topic or queue, and count them.

    `from_` is the first seq, or a time (ISO 8601, `-10m`, or a datetime with a zone), and `to` the
    first one that is left out; None for all. A seq is one of the newest life of the topic, unless
    `incarnation` names another. `options` are those of a write: `url`, `token` and so on.
    """
    if topic == EVENTS_TOPIC:
        raise bad_option("topic", "the history of jobs tells of jobs, and is not replayed")
    if batch_seqs < 1:
        raise bad_option("batch_seqs", "a transaction has at least one record")
    rest, token = take_token({name: str(value) for name, value in options.items()})
    target = write_options({**rest, "topic": into}, token)
    source = {"topic": topic, "archivePath": archive, "archiveOnly": "true"}
    run = f"replay:{uuid.uuid4()}"
    written = duplicate = 0
    for at, wanted in enumerate(
        _ranges(read_options(source, is_stream=False), from_, to, incarnation, batch_seqs)
    ):
        rows = spark.read.format("jobyard").options(**source, **_bounds(wanted)).load()
        given = {name: str(value) for name, value in options.items()}
        txn = f"{run}:{at}"
        writer = _keyed(rows, wanted.incarnation).write.format("jobyard").mode("append")
        # The key is ours, and no tag.
        writer.options(keyAs="key", **given, topic=into, txn=txn).save()
        with target.connecting.client() as client:
            counts = totals(Transactions(client).look(txn))
        written, duplicate = written + counts[0], duplicate + counts[1]
    return ReplayResult(written, duplicate)


def _keyed(rows: "DataFrame", incarnation: str) -> "DataFrame":
    key = f.concat(f.lit(f"{incarnation}:"), f.col("seq").cast("string"))
    return copies(rows, key.alias("key"))


def _ranges(
    options: ReadOptions, from_: Place, to: Place, incarnation: str, size: int
) -> Iterator[SeqRange]:
    """Yield what is replayed, a transaction each."""
    (topic,) = options.topics
    lives = TopicLives(options, Losses(options.loss_rule), None)
    if topic not in lives.ask():
        raise no_topic(topic, options.archive_path, is_stream=False)
    start = lives.place(topic, _position(topic, from_, incarnation, FIRST), "startingOffsets")
    end = lives.place(topic, _position(topic, to, incarnation, LAST), "endingOffsets")
    for wanted in between(topic, lives.of(topic), start, end):
        for after in range(wanted.after_seq, wanted.to_seq, size):
            yield wanted._replace(after_seq=after, to_seq=min(after + size, wanted.to_seq))


def _position(topic: str, given: Place, incarnation: str, otherwise: Position) -> Position:
    if given is None:
        return otherwise
    if isinstance(given, int):
        return Position(by_topic=((topic, given, incarnation),))
    if isinstance(given, datetime):
        if given.tzinfo is None:
            raise bad_option("from_ and to", "a datetime needs a time zone")
        return Position(at_ms=int(given.timestamp() * 1000))
    try:
        return parse_time(given)
    except ValueError as fault:
        raise bad_option("from_ and to", str(fault)) from None


def _bounds(wanted: SeqRange) -> dict[str, str]:
    """Return a range as options."""
    return {
        name: json.dumps({"v": 1, "t": {wanted.topic: {"id": wanted.incarnation, "0": seq + 1}}})
        for name, seq in (("startingOffsets", wanted.after_seq), ("endingOffsets", wanted.to_seq))
    }
