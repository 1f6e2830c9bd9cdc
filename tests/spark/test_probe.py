"""What can be known about the server before a task runs is known then, in three lines."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from jobyard.client import JobyardError
from jobyard.spark.source import JobyardSource
from jobyard.spark.write.probe import check_writable
from tests.support.clients.spark_writes import options_of
from tests.support.servers.http import HttpYard, Topics
from tests.support.servers.scripted import Reply, ScriptedHttp, refused, said

SCHEMA = StructType([StructField("value", StringType())])
KEYS = "tok-all-1,tok-read-1:r,tok-write-1:w,tok-other-1:rw:other."


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpYard]:
    """A server that asks for keys, with a topic."""
    found = HttpYard("--data", str(tmp_path_factory.mktemp("locked")), "--topics-key", KEYS)
    topics = Topics(found.address, "tok-all-1")
    assert topics.ask("PUT", "/v0/topics/there", {})[0] == 201
    topics.close()
    yield found
    found.close()


def failure(url: str, **options: str) -> JobyardError:
    """Return why a batch is not begun; a stream is not begun for the same reason."""
    source = JobyardSource({"url": url, "maxRetries": "0", **options})
    with pytest.raises(JobyardError) as caught:
        source.writer(SCHEMA, overwrite=False)
    with pytest.raises(JobyardError, match=f"{caught.value.code}"):
        source.streamWriter(SCHEMA, overwrite=False)
    lines = str(caught.value).splitlines()
    assert len(lines) == 3, lines
    assert lines[1].startswith(f"at option {caught.value.option}")
    assert "tok-" not in str(caught.value)
    return caught.value


def test_there_must_be_a_server(unused_url: str) -> None:
    error = failure(unused_url, topic="there")
    assert (error.code, error.option) == ("unreachable", "url")


@pytest.mark.parametrize(
    ("token", "code"),
    [("", "unauthorized"), ("tok-wrong", "unauthorized"), ("tok-read-1", "forbidden"),
     ("tok-other-1", "forbidden")],
)  # fmt: skip
def test_the_token_must_allow_writing_to_the_topic(locked: HttpYard, token: str, code: str) -> None:
    given = {"token": token} if token else {}
    error = failure(locked.url, topic="there", **given)
    assert (error.code, error.option) == (code, "token")


def test_a_token_that_may_only_write_is_enough(locked: HttpYard) -> None:
    for token in ("tok-write-1", "tok-all-1"):
        source = JobyardSource({"url": locked.url, "topic": "there", "token": token})
        source.writer(SCHEMA, overwrite=False)
        source.streamWriter(SCHEMA, overwrite=False)


def test_the_topic_must_be_there(locked: HttpYard) -> None:
    error = failure(locked.url, topic="missing", token="tok-all-1")
    assert (error.code, error.option, error.topic) == ("topic_not_found", "topic", "missing")


def test_topics_of_rows_are_not_known_before(locked: HttpYard) -> None:
    schema = StructType([*SCHEMA.fields, StructField("topic", StringType())])
    source = JobyardSource({"url": locked.url, "token": "tok-all-1"})
    source.writer(schema, overwrite=False)


@pytest.mark.parametrize(
    "reply",
    [
        said(b"<h1>It works!</h1>", kind="text/html"),
        said(b"<h1>Not Found</h1>", "404 Not Found", kind="text/html"),
        said(b'{"detail":"Method Not Allowed"}', "405 Method Not Allowed"),
        said(b'{"ok":true}'),
        refused("404 Not Found", "no_such_route"),
        b"-ERR unknown command\r\n\r\n",
    ],
)
def test_another_program_is_no_yard(reply: Reply) -> None:
    with ScriptedHttp([reply, reply]) as other:
        error = failure(other.url, topic="there")
    assert (error.code, error.option) == ("not_jobyard", "url")


def test_nothing_is_changed(yard: HttpYard, topics: Topics, tmp_path: Path) -> None:
    assert topics.ask("PUT", "/v0/topics/same", {"type": "queue"})[0] == 201
    before = [topics.ask("GET", path)[1] for path in ("/v0/topics/same", "/v0/topics")]
    check_writable(options_of(yard.url, topic="same", badrowspath=str(tmp_path / "bad")))
    after = [topics.ask("GET", path)[1] for path in ("/v0/topics/same", "/v0/topics")]
    for answer in (*before, *after):
        answer.pop("performance")
        answer.pop("last_read_ts", None)
    assert after == before
    metrics = topics.ask("GET", "/v0/metrics")[1].decode()
    for what in ("open", "remembered", "committed", "aborted"):
        assert f"topics_txns_{what} 0\n" in metrics
    assert not (tmp_path / "bad").exists()
