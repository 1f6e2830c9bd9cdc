"""Everything that Spark sends to executors arrives there, and works there as it did here."""

import json
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql.datasource import DataSource, DataSourceReader, GreaterThan, InputPartition
from pyspark.sql.datasource import DataSourceStreamReader as StreamReader

from jobyard.client import Token
from jobyard.spark.archive.batch import ArchiveBatchReader, PushingArchiveReader
from jobyard.spark.archive.stream import ArchiveStreamReader
from jobyard.spark.fleet.source import ClaimStreamReader, SetPartition
from jobyard.spark.options import ReadOptions, read_options
from jobyard.spark.read.batch import BatchReader, PushingBatchReader
from jobyard.spark.read.columns import Table, schema_of, table_of
from jobyard.spark.read.losses import LossRule
from jobyard.spark.read.positions import Position
from jobyard.spark.read.ranges import SeqPartition, SeqRange
from jobyard.spark.read.reading import Reading
from jobyard.spark.read.stream import RefusedStreamReader, TopicStreamReader
from jobyard.spark.source import JobyardSource
from tests.support.values.pickled import packed, sent

SECRET = "tok-51ab-very-secret"
URL = {"url": "http://127.0.0.1:1"}
OPTIONS: list[dict[str, str]] = [
    {"topic": "a"},
    {"topics": "a,b", "startingOffsets": '{"a":{"0":7},"b":{"0":-1}}', "endingOffsets": "latest"},
    {"topicsPattern": "a.*", "startingTimestamp": "-10m", "failOnDataLoss": "false"},
    {"subscribe": "a", "includeHeaders": "true"},
    {"topic": "_events", "pushdown": "true"},
    {"jobs": "q", "states": "ready,dead"},
    {"topic": "a", "archivePath": "/mnt/archive"},
]


def options_of(given: dict[str, str]) -> ReadOptions:
    return read_options({**URL, **given}, is_stream=False, token=Token(SECRET))


def table(options: ReadOptions) -> Table:
    return Table(options, schema_of(table_of(options)))


def both(value: Any) -> list[Any]:
    """Return what arrives by the pickle of Python and by the one that Spark uses."""
    data = cloudpickle.dumps(value)  # type: ignore[no-untyped-call]
    assert SECRET.encode() not in data
    assert SECRET.encode() not in packed(value)
    return [sent(value), cloudpickle.loads(data)]


def fields(value: Any) -> dict[str, Any]:
    """Return what an object consists of; of a table what it shows."""
    found = dict(vars(value))
    return {name: vars(part) if isinstance(part, Table) else part for name, part in found.items()}


@pytest.mark.parametrize("given", OPTIONS, ids=json.dumps)
def test_options_and_readers_arrive_as_they_were(given: dict[str, str]) -> None:
    options = options_of(given)
    batch = BatchReader(options, table(options))
    pushing = PushingBatchReader(options, table(options))
    seq = "queue_seq" if options.jobs else "offset" if options.kafka_names else "seq"
    pushing.pushFilters([GreaterThan((seq,), 5)])
    assert pushing.bounds.seq_min == 6
    stream = TopicStreamReader(options, table(options))
    reading = Reading(options.connecting, table(options), {"jobs": "ready"}, options.loss_rule)
    joined = ArchiveBatchReader(options, table(options))
    narrowed = PushingArchiveReader(options, table(options))
    joined_stream = ArchiveStreamReader(options, table(options))
    beside = joined.reading({"columns": "seq"})
    readers = (joined, narrowed, joined_stream, beside)
    for each in (batch, pushing, stream, reading, *readers):
        for copy in both(each):
            assert type(copy) is type(each)
            assert fields(copy) == fields(each)
    for value in (options, options.connecting, options.limits, options.loss_rule, Position(1)):
        assert both(value) == [value, value]


def test_the_source_arrives_with_its_token() -> None:
    source = JobyardSource({**URL, "topic": "a", "token": SECRET})
    for copy in both(source):
        assert copy.options == source.options
        assert copy.schema() == source.schema()
        token = copy.reader(copy.schema()).options.connecting.token
        assert token.bearer() == f"Bearer {SECRET}"


def test_partitions_arrive_as_they_were() -> None:
    ranges = (SeqRange("a", "7", 0, 10), SeqRange("b", "", 1 << 40, (1 << 63) - 1))
    for copy in both(SeqPartition(ranges)):
        assert copy.ranges == ranges
        assert copy.value is None
    rule = LossRule(is_fatal=False, may_end=True)
    assert both(rule) == [rule, rule]


def test_no_class_that_spark_sends_is_missing_here() -> None:
    def ours(base: type[Any]) -> set[type[Any]]:
        found: set[type[Any]] = set()
        for below in base.__subclasses__():
            found |= {below} | ours(below)
        return {each for each in found if each.__module__.startswith("jobyard.")}

    partitions: set[type[Any]] = {SeqPartition, SetPartition}
    assert ours(InputPartition) == partitions
    archives = {ArchiveBatchReader, PushingArchiveReader}
    assert ours(DataSourceReader) == {BatchReader, PushingBatchReader, *archives}
    topics = {TopicStreamReader, ArchiveStreamReader, RefusedStreamReader}
    assert ours(StreamReader) == {*topics, ClaimStreamReader}
    assert ours(DataSource) == {JobyardSource}
