"""What a user did wrong is said so that it can be put right: by option, cause and remedy."""

from pathlib import Path
from typing import Any

import pytest

from jobyard.client import JobyardError
from jobyard.client.address import parse_url
from jobyard.spark.options import read_options, take_token
from jobyard.spark.session import session
from jobyard.spark.write.bad_files import local_folder
from jobyard.spark.write.options import write_options
from tests.support.clients.spark import read_batch, schema, source_of
from tests.support.servers.http import HttpYard, Topics

URL = {"url": "http://127.0.0.1:1"}


def refusal(call: Any, *given: Any, **named: Any) -> JobyardError:
    """Return an error, which has all three lines."""
    with pytest.raises(JobyardError) as caught:
        call(*given, **named)
    error = caught.value
    assert len(str(error).splitlines()) == 3, str(error)
    assert error.remedy.endswith((".", "?")) or error.remedy[-1] in "~-*"
    return error


READS: list[tuple[dict[str, str], str, str]] = [
    ({}, "no option says what to read", '.option("topic", "NAME")'),
    ({"path": "clicks"}, "no option says what to read", '.option("topic", "clicks").load()'),
    ({"topic": "a", "jobs": "b"}, "only one of topic,", "all but one"),
    ({"topic": "a b"}, "'a b' is not the name of a topic", "GET /v0/topics"),
    ({"jobs": "cl\u00edck/\u00f6"}, "is not the name of a topic", "GET /v0/topics"),
    ({"topic": "a", "kafka.bootstrap.servers": "h:1"}, "here it is url", "Set url"),
    ({"assign": '{"clicks":[0]}'}, "here it is topics", "Set topics"),
    ({"topic": "a", "kafka.group.id": "g"}, "mean nothing here", "Leave it out."),
    ({"topic": "a", "Zzzz": "1"}, "there is no option Zzzz", "pushdown, compress"),
    ({"topic": "a", "failOnDataLoss": "yes"}, "neither true nor false", "in full"),
    ({"topic": "a", "minPartitions": "0"}, "not a whole number", "digits only"),
    ({"jobs": "q", "states": "readi"}, "'readi' is not one of", "Did you mean ready?"),
    ({"topic": "a", "states": "ready"}, "only jobs have states", "jobs"),
    ({"jobs": "a", "startingOffsets": "latest"}, "has no offsets", "filter"),
    ({"topic": "a", "startingOffsets": "first"}, "is none of earliest", "earliest, latest"),
    ({"topic": "a", "startingOffsets": '{"v":1,"t":{}}'}, "names no topic", "earliest"),
    ({"topic": "a", "startingOffsets": '{"v":1,"t":5}'}, "names no topic", "earliest"),
    ({"topic": "a", "startingOffsets": '{"v":2,"t":{"a":{"0":1}}}'}, "have version 2", "earliest"),
    ({"topic": "a", "startingOffsets": '{"a":{"0":5,"1":2}}'}, "no partition 1", "earliest"),
    ({"topic": "a", "startingOffsets": '{"a":{"0":"5"}}'}, "must be a whole number", "earliest"),
    (
        {"topic": "a", "startingOffsets": "latest", "startingTimestamp": "1"},
        "startingOffsets and startingTimestamp exclude each other",
        "one of them",
    ),
    ({"topic": "a", "consumer": "c"}, "moves no cursor", "readStream"),
]


@pytest.mark.parametrize(("given", "cause", "remedy"), READS)
def test_options_of_a_read(given: dict[str, str], cause: str, remedy: str) -> None:
    error = refusal(read_options, {**URL, **given}, is_stream=False)
    assert cause in error.message
    assert remedy in error.remedy


WRITES: list[tuple[dict[str, str], str, str]] = [
    ({"topic": "a", "queue": "b"}, "the options topic and queue mean the same", "Leave out one"),
    (
        {"topic": "a", "Kommit": "direct"},
        "there is no option Kommit; did you mean commit?",
        "commit",
    ),
    ({"topic": "a", "kafka.bootstrap.servers": "h:1"}, "here it is url", "Set url"),
    ({"topic": "a", "qqqqq": "h:1"}, "there is no option qqqqq", "badRowsPath, txn."),
    ({"topic": "a", "keyAs": "tags"}, "'tags' is not one of key, tag", "Did you mean tag?"),
    ({"topic": "_events"}, "only the server writes _events", "of your own"),
    ({"topic": "a", "path": "w"}, "a write has no path", '.option("topic", "w").save()'),
    ({"topic": "a", "path": "/x/y"}, "a write has no path", '.option("topic", "NAME").save()'),
    ({"topic": "a", "txn": "a b"}, "not the name of a transaction", "1 to 256"),
]


@pytest.mark.parametrize(("given", "cause", "remedy"), WRITES)
def test_options_of_a_write(given: dict[str, str], cause: str, remedy: str) -> None:
    error = refusal(write_options, {**URL, **given}, None)
    assert cause in error.message
    assert remedy in error.remedy


def test_where_spark_would_keep_a_table_is_no_path_of_a_user() -> None:
    given = {**URL, "topic": "a", "path": "file:/x/spark-warehouse/ww"}
    assert write_options(given, None).topic == "a"


def test_a_url_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JOBYARD_URL", raising=False)
    error = refusal(read_options, {"topic": "a"}, is_stream=False)
    assert (error.option, "JOBYARD_URL" in error.message) == ("url", True)


@pytest.mark.parametrize(
    "url", ["admin:s3cretpw@yard:6790", "http:/admin:s3cretpw@yard", "ftp://a:s3cretpw@h",
            "http://a:s3cretpw@h", "//a:s3cretpw@h:1"],
)  # fmt: skip
def test_a_password_is_never_repeated(url: str) -> None:
    error = refusal(parse_url, url)
    assert "s3cretpw" not in str(error)
    assert "set the option token" in error.message
    assert "s3cretpw" not in str(refusal(local_folder, f"s3://{url.rpartition('/')[2]}/x"))


def test_a_bad_token_names_its_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "blank").write_text("a b")
    monkeypatch.setenv("BLANK_TOKEN", "a b")
    monkeypatch.delenv("NO_TOKEN", raising=False)
    for given, option in (
        ({"token": "a b"}, "token"),
        ({"tokenEnv": "BLANK_TOKEN"}, "tokenEnv"),
        ({"tokenEnv": "NO_TOKEN"}, "tokenEnv"),
        ({"tokenFile": str(tmp_path / "blank")}, "tokenFile"),
        ({"tokenFile": str(tmp_path / "none")}, "tokenFile"),
    ):

        def bearer(given: dict[str, str] = given) -> None:
            token = take_token(given)[1]
            assert token is not None
            token.bearer()

        error = refusal(bearer)
        assert (error.code, error.option) == ("bad_token", option)


@pytest.mark.parametrize(
    ("name", "full"),
    [("master", "spark.master"), ("spark_master", "spark.master"),
     ("sql_shuffle_partitions", "spark.sql.shuffle.partitions")],
)  # fmt: skip
def test_a_setting_that_spark_would_pass_over_is_refused(name: str, full: str) -> None:
    error = refusal(session, **{name: "1"})
    assert error.option == name
    assert f'"{full}"' in error.remedy


@pytest.mark.parametrize("given", [{"jobs": "q"}, {"topic": "a", "endingOffsets": "latest"}])
def test_a_stream_that_cannot_be_says_so_at_its_first_call(given: dict[str, str]) -> None:
    source = source_of(URL["url"], **given)
    reader = source.streamReader(schema(source))
    error = refusal(reader.initialOffset)
    assert error.message.startswith("a stream ")
    assert refusal(reader.latestOffset, {}, None) is error
    assert refusal(reader.partitions, {}, {}) is error
    reader.stop()


def test_offsets_of_another_topic_name_the_nearest(yard: HttpYard, topics: Topics) -> None:
    topics.ask("PUT", "/v0/topics/clicks", {})
    given = {"topic": "clicks", "startingOffsets": '{"clikcs":{"0":5}}'}
    error = refusal(read_batch, yard.url, "seq", **given)
    assert error.message == "startingOffsets has an offset of clikcs, which is not read"
    assert error.remedy == "Did you mean clicks?"


def test_a_topic_that_is_missing_is_awaited_by_streams_alone(yard: HttpYard) -> None:
    error = refusal(read_batch, yard.url, "seq", topic="not-here")
    assert "topicsPattern" not in error.remedy
    source = source_of(yard.url, topic="not-here")
    reader = source.streamReader(schema(source, "seq"))
    assert "topicsPattern" in refusal(reader.initialOffset).remedy
    reader.stop()


def test_a_loss_of_a_batch_speaks_of_no_checkpoint(yard: HttpYard, topics: Topics) -> None:
    topics.ask("PUT", "/v0/topics/lossy", {"cap_records": 5})
    topics.ask("POST", "/v0/topics/lossy", {"records": [{"data": 1}] * 20})
    for offset in ('{"lossy":{"0":1}}', '{"v":1,"t":{"lossy":{"id":"7","0":1}}}'):
        error = refusal(read_batch, yard.url, "seq", topic="lossy", startingOffsets=offset)
        assert error.code == "data_loss"
        assert "checkpoint" not in error.remedy
        assert "startingOffsets" in error.remedy
