from pathlib import Path

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from jobyard.client import JobyardError
from jobyard.client.errors import Code
from jobyard.spark.options import NAMES, ReadOptions, read_options, take_token
from jobyard.spark.read.positions import Position, duration_ms, parse_offsets, parse_time
from jobyard.spark.source import JobyardSource
from tests.support.values.pickled import packed, sent

SECRET = "tok-51ab-very-secret"
URL = {"url": "http://127.0.0.1:1"}


# What a reader is for; a schema may be of either.
KINDS = {"batch": False, "stream": True, "schema": None}


def read(kind: str = "batch", /, **given: str) -> ReadOptions:
    return read_options({**URL, **given}, is_stream=KINDS[kind])


def refused(kind: str = "batch", /, **given: str) -> JobyardError:
    with pytest.raises(JobyardError) as caught:
        read(kind, **given)
    assert caught.value.code == Code.BAD_OPTION
    assert len(str(caught.value).splitlines()) <= 3
    return caught.value


def test_defaults() -> None:
    found = read(topic="clicks")
    assert found.topics == ("clicks",)
    assert (found.is_loss_fatal, found.has_headers, found.has_payload) == (True, True, True)
    assert (found.limits.records_per_partition, found.limits.exports_max) == (500_000, 8)
    assert (found.poll_interval_ms, found.connecting.timeout_ms) == (200, 30_000)
    assert found.connecting.retries_max == 5
    assert not found.pushdown
    assert sent(found) == found


def test_names_are_read_in_any_case() -> None:
    found = read(TOPIC="a", FailOnDataLoss="FALSE", maxoffsetspertrigger="7")
    assert (found.topics, found.is_loss_fatal, found.limits.offsets_max) == (("a",), False, 7)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("topci", "topic"),
        ("startingOfsets", "startingOffsets"),
        ("failOnDataLos", "failOnDataLoss"),
        ("maxOffsetPerTrigger", "maxOffsetsPerTrigger"),
    ],
)
def test_an_unknown_option_names_the_nearest(name: str, near: str) -> None:
    assert f"did you mean {near}?" in str(refused(topic="a", **{name: "1"}))


def test_exports_are_compressed_only_where_that_is_wanted() -> None:
    assert read(topic="a").export_query() == {}
    for text, query in (
        ("zstd", {"compress": "zstd"}),
        ("ZSTD", {"compress": "zstd"}),
        ("none", {}),
    ):
        assert read("stream", topic="a", compress=text).export_query() == query
    assert "neither none nor zstd" in str(refused(topic="a", compress="lz4"))


def test_an_option_like_no_other_lists_all() -> None:
    assert "startingTimestamp" in str(refused(topic="a", zzzzqqq="1"))


@pytest.mark.parametrize(
    ("given", "option"),
    [
        ({}, "topic"),
        ({"topic": "a", "jobs": "b"}, "topic and jobs"),
        ({"topics": "a,a"}, "topics"),
        ({"topics": "a,,b"}, "topics"),
        ({"topics": "a,_events"}, "topics"),
        ({"topic": " "}, "topic"),
        ({"topicsPattern": "("}, "topicsPattern"),
        ({"topic": "a", "states": "ready"}, "states"),
        ({"jobs": "q", "states": "ready,lost"}, "states"),
        ({"jobs": "q", "startingOffsets": "earliest"}, "startingOffsets"),
        ({"topic": "a", "startingOffsets": "first"}, "startingOffsets"),
        ({"topic": "a", "startingOffsets": "[1]"}, "startingOffsets"),
        ({"topic": "a", "startingOffsets": '{"a":{"1":5}}'}, "startingOffsets"),
        ({"topic": "a", "startingOffsets": '{"a":{"0":-3}}'}, "startingOffsets"),
        ({"topic": "a", "startingOffsets": '{"a":{"0":true}}'}, "startingOffsets"),
        ({"topic": "a", "startingTimestamp": "soon"}, "startingTimestamp"),
        (
            {"topic": "a", "startingOffsets": "latest", "startingTimestamp": "1"},
            "startingOffsets and startingTimestamp",
        ),
        ({"topic": "a", "maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger"),
        ({"topic": "a", "maxOffsetsPerTrigger": "many"}, "maxOffsetsPerTrigger"),
        (
            {"topic": "a", "maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "6"},
            "minOffsetsPerTrigger",
        ),
        ({"topic": "a", "maxTriggerDelay": "5m"}, "maxTriggerDelay"),
        (
            {"topic": "a", "minOffsetsPerTrigger": "6", "maxTriggerDelay": "soon"},
            "maxTriggerDelay",
        ),
        ({"topic": "a", "failOnDataLoss": "yes"}, "failOnDataLoss"),
        ({"topic": "a", "consumer": "c"}, "consumer"),
    ],
)
def test_what_cannot_be_right_names_its_option(given: dict[str, str], option: str) -> None:
    assert refused(**given).option == option


@pytest.mark.parametrize(
    "given", [{"endingOffsets": "latest"}, {"endingTimestamp": "1"}, {"hold": "true"}]
)
def test_a_stream_has_options_of_its_own(given: dict[str, str]) -> None:
    assert refused("stream", topic="a", **given).option == next(iter(given))


def test_a_schema_is_made_for_options_of_either_kind() -> None:
    for given in ({"endingOffsets": "latest"}, {"consumer": "c", "hold": "true"}):
        read("schema", topic="a", **given)


def test_a_cursor_name_is_checked() -> None:
    assert refused("stream", topic="a", consumer="a b").option == "consumer"
    assert read("stream", topic="a", consumer="etl-1", hold="true").is_held


@pytest.mark.parametrize("name", ["a", "-.~:_", "x" * 128])
def test_names_of_cursors(name: str) -> None:
    assert read("stream", topic="a", consumer=name).consumer == name


@pytest.mark.parametrize("name", ["", "a b", "ä", "a/b", "x" * 129])
def test_what_a_server_would_refuse_as_the_name_of_a_cursor_is_said_early(name: str) -> None:
    error = refused("stream", topic="a", consumer=name)
    assert error.option == "consumer"
    assert "128" in str(error)


def test_options_of_a_kafka_job_are_understood() -> None:
    found = read(subscribe="a,b")
    assert (found.topics, found.kafka_names, found.has_headers) == (("a", "b"), True, False)
    assert not read(subscribe="a", kafkaNames="false").kafka_names
    assert read(subscribePattern="a.*").pattern == "a.*"


def test_the_url_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JOBYARD_URL", raising=False)
    with pytest.raises(JobyardError, match="JOBYARD_URL"):
        read_options({"topic": "a"}, is_stream=False)
    monkeypatch.setenv("JOBYARD_URL", "http://h:1")
    assert read_options({"topic": "a"}, is_stream=False).connecting.url == "http://h:1"


def test_a_token_is_taken_out_of_the_options(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("JOBYARD_TOKEN", raising=False)
    rest, token = take_token({"Token": SECRET, "topic": "a"})
    assert rest == {"topic": "a"}
    assert token is not None
    assert token.bearer() == f"Bearer {SECRET}"
    monkeypatch.setenv("OTHER", SECRET)
    assert take_token({"tokenEnv": "OTHER"})[1] is not None
    assert take_token({"tokenFile": str(tmp_path)})[1] is not None
    assert take_token({}) == ({}, None)
    monkeypatch.setenv("JOBYARD_TOKEN", SECRET)
    assert take_token({})[1] == token
    with pytest.raises(JobyardError, match="token and tokenEnv"):
        take_token({"token": SECRET, "tokenenv": "OTHER"})


def test_nothing_that_spark_carries_shows_the_token() -> None:
    source = JobyardSource({**URL, "topic": "a", "token": SECRET})
    reader = source.reader(schema_of(source))
    stream = source.streamReader(schema_of(source))
    for each in (source, reader, stream, reader.options):
        assert SECRET.encode() not in packed(each)
        assert SECRET not in repr(each)
    assert SECRET not in str(source.options)
    copy = sent(reader)
    assert copy.options.connecting.token is not None
    assert copy.options.connecting.token.bearer() == f"Bearer {SECRET}"


def schema_of(source: JobyardSource) -> StructType:
    assert "seq" in source.schema().fieldNames()
    return StructType([StructField("seq", LongType())])


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("Earliest", Position(edge=-2)),
        ("latest", Position(edge=-1)),
        ("-1000", Position(newest_count=1000)),
        ('{"a":{"0":5},"b":{"0":-1}}', Position(by_topic=(("a", 5, ""), ("b", -1, "")))),
        ('{"v":1,"t":{"a":{"id":"7","0":5}}}', Position(by_topic=(("a", 5, "7"),))),
    ],
)
def test_offsets_as_kafka_writes_them(text: str, position: Position) -> None:
    assert parse_offsets(text) == position


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("1700000000000", Position(at_ms=1_700_000_000_000)),
        ("2023-11-14T22:13:20Z", Position(at_ms=1_700_000_000_000)),
        ("2023-11-14T22:13:20", Position(at_ms=1_700_000_000_000)),
        ("2023-11-15T00:13:20+02:00", Position(at_ms=1_700_000_000_000)),
        ("-10m", Position(before_now_ms=600_000)),
        ("-500ms", Position(before_now_ms=500)),
    ],
)
def test_times(text: str, position: Position) -> None:
    assert parse_time(text) == position


def test_durations() -> None:
    assert [duration_ms(text) for text in ("5ms", "2s", "3m", "1h", "1d")] == [
        5, 2000, 180_000, 3_600_000, 86_400_000,
    ]  # fmt: skip


def test_every_option_is_documented() -> None:
    text = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
    assert [name for name in NAMES if f"`{name}`" not in text] == []
