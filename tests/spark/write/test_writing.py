"""Writing through the parts of the writer, as Spark does: by tasks, committed by the driver."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from jobyard.client import JobyardError
from jobyard.client.txns import Transactions
from jobyard.spark.write.committing import abort_tasks, commit_tasks
from jobyard.spark.write.options import WriteOptions, check_columns, write_options
from jobyard.spark.write.records import DEPTH_MAX, KEY_MAX, NODE_MAX, TAG_MAX, VALUE_MAX
from jobyard.spark.write.tasks import TaskWriter, TaskWritten, decode_written, encode_written
from tests.support.clients.spark import read_batch
from tests.support.servers.http import HttpYard, Topics
from tests.support.values.pickled import sent


def options(yard: HttpYard, **more: str) -> WriteOptions:
    made: WriteOptions = sent(write_options({"url": yard.url, **more}, None))
    return made


def batch(**columns: list[Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({name: pa.array(values) for name, values in columns.items()})


def task(
    wanted: WriteOptions, *batches: pa.RecordBatch, txn: str = "t:1", part: int = 0
) -> TaskWritten:
    made: TaskWritten = sent(TaskWriter(wanted, txn, part).write(iter(batches)))
    copy = decode_written(encode_written(made))
    assert encode_written(copy) == encode_written(made)
    return copy


def create(topics: Topics, name: str, kind: str = "log") -> None:
    assert topics.ask("PUT", f"/v0/topics/{name}", {"type": kind})[0] == 201


def values(yard: HttpYard, topic: str) -> list[bytes]:
    return [row["value"] for row in read_batch(yard.url, "value", topic=topic)]


def test_nothing_is_seen_before_the_commit_and_parts_are_in_order(
    yard: HttpYard, topics: Topics
) -> None:
    create(topics, "clicks")
    wanted = options(yard, topic="clicks")
    second = task(wanted, batch(value=["3", '{"n": 4}']), part=1)
    first = task(wanted, batch(value=["1"]), batch(value=["2"]))
    assert values(yard, "clicks") == []
    done = commit_tasks(wanted, [first, second])
    assert (done.written, done.rejected, done.is_repeated) == (4, 0, False)
    assert values(yard, "clicks") == [b"1", b"2", b"3", b'{"n": 4}']


def test_what_losing_attempts_have_staged_is_dropped(yard: HttpYard, topics: Topics) -> None:
    create(topics, "attempts")
    wanted = options(yard, topic="attempts")
    task(wanted, batch(value=['"lost"']), txn="a:1")
    won = task(wanted, batch(value=['"won"']), txn="a:1")
    task(wanted, batch(value=['"late"']), txn="a:1")
    commit_tasks(wanted, [won])
    assert values(yard, "attempts") == [b'"won"']


def test_a_repeated_batch_writes_nothing(yard: HttpYard, topics: Topics) -> None:
    create(topics, "again")
    wanted = options(yard, topic="again")
    first = task(wanted, batch(value=["1", "2"]), txn="q:7")
    before = commit_tasks(wanted, [first])
    # The driver died before Spark noted the commit: the same messages, then the same batch.
    assert commit_tasks(wanted, [first]).written == 2
    repeated = task(wanted, batch(value=["1", "2"]), txn="q:7")
    assert repeated.was_committed
    after = commit_tasks(wanted, [repeated])
    assert (after.written, after.is_repeated) == (before.written, True)
    assert values(yard, "again") == [b"1", b"2"]


def test_an_empty_batch_can_be_committed_and_repeated(yard: HttpYard, topics: Topics) -> None:
    create(topics, "empty")
    wanted = options(yard, topic="empty")
    for _ in range(2):
        assert commit_tasks(wanted, [task(wanted, txn="e:1")]).written == 0
    assert values(yard, "empty") == []


def test_an_abort_leaves_nothing_and_undoes_nothing(yard: HttpYard, topics: Topics) -> None:
    create(topics, "aborted")
    wanted = options(yard, topic="aborted")
    dropped = task(wanted, batch(value=["1"]), txn="x:1")
    abort_tasks(wanted, [dropped, None])
    with wanted.connecting.client() as client:
        assert Transactions(client).look("x:1").text("state") == "aborted"
    kept = task(wanted, batch(value=["2"]), txn="x:2")
    commit_tasks(wanted, [kept])
    abort_tasks(wanted, [kept])
    assert values(yard, "aborted") == [b"2"]


def test_rows_name_their_topics_tags_headers_and_nodes(yard: HttpYard, topics: Topics) -> None:
    create(topics, "one")
    create(topics, "two", "queue")
    wanted = options(yard, keyas="tag")
    rows = batch(
        value=[{"n": 1}, {"n": 2}],
        topic=["one", "two"],
        key=[b"k", b"k"],
        node=["a", None],
        priority=[0, 5],
        delay_ms=[0, 0],
    )
    heads = pa.array([[("h", "1")], None], pa.map_(pa.string(), pa.string()))
    commit_tasks(wanted, [task(wanted, rows.append_column("headers", heads), txn="m:1")])
    (row,) = read_batch(yard.url, "", topic="one")
    assert (row["key"], row["node"], row["value"]) == (b"k", "a", b'{"n":1}')
    assert row["headers"] == [("h", "1")]
    status, claimed = topics.ask("POST", "/v0/topics/two/claim", {"node": "w"})
    assert status == 200
    assert (claimed["claimed"][0]["data"], claimed["claimed"][0]["$tag"]) == ({"n": 2}, "k")


def test_a_text_that_looks_like_json_adds_no_fields(yard: HttpYard, topics: Topics) -> None:
    create(topics, "sly")
    wanted = options(yard, topic="sly")
    sly = ['1,"tag":"x"', '1},{"data":2', "NaN", "", "plain"]
    commit_tasks(wanted, [task(wanted, batch(value=sly), txn="s:1")])
    assert values(yard, "sly") == [text.encode() for text in sly]


def test_bytes_are_written_as_they_are(yard: HttpYard, topics: Topics) -> None:
    create(topics, "raw")
    wanted = options(yard, topic="raw")
    raw = [bytes(range(256)), b"", b"\xff", b'{"a": 1}']
    commit_tasks(wanted, [task(wanted, batch(value=raw), txn="b:1")])
    assert values(yard, "raw") == raw


def test_bad_rows_stop_everything_and_are_told(yard: HttpYard, topics: Topics) -> None:
    create(topics, "strict")
    wanted = options(yard, topic="strict", valueformat="json")
    rows = batch(value=["1", None, "x", "y" * ((1 << 20) + 1)])
    written = task(wanted, rows, txn="bad:1")
    with pytest.raises(JobyardError) as refused:
        commit_tasks(wanted, [written])
    text = str(refused.value)
    assert text.startswith("[bad_rows] 3 rows cannot be written (")
    assert "value is null" in text
    assert "partition 0 row 1" in text
    assert text.count("\n") <= 2
    assert values(yard, "strict") == []


def test_bad_rows_are_kept_aside(yard: HttpYard, topics: Topics, tmp_path: Path) -> None:
    create(topics, "aside")
    wanted = options(yard, topic="aside", badrowspath=str(tmp_path / "bad"))
    rows = batch(value=["1", None], node=["a", "b"])
    written = task(wanted, rows, txn="aside:1")
    assert not list((tmp_path / "bad").glob("*.parquet"))
    done = commit_tasks(wanted, [written])
    assert (done.written, done.rejected) == (1, 1)
    (file,) = (tmp_path / "bad").glob("*.parquet")
    (row,) = pq.read_table(file).to_pylist()
    assert row == {"value": None, "node": "b", "_reason": "value is null", "_row": 1}


def test_direct_writes_are_seen_at_once_and_keys_count_once(yard: HttpYard, topics: Topics) -> None:
    create(topics, "direct")
    wanted = options(yard, topic="direct", commit="direct")
    rows = batch(value=["1", "2", "3"], key=["a", "b", "a"])
    first = task(wanted, rows)
    assert len(values(yard, "direct")) == 2
    done = commit_tasks(wanted, [first, task(wanted, rows)])
    assert (done.written, done.duplicates) == (2, 4)


def test_staged_rows_with_known_keys_are_duplicates(yard: HttpYard, topics: Topics) -> None:
    create(topics, "keyed", "queue")
    wanted = options(yard, topic="keyed")
    schema = StructType([StructField(name, StringType()) for name in ("value", "key")])
    check_columns(schema, wanted)
    rows = batch(value=["1", "2", "3", "4"], key=["a", "b", "a", None])
    first, second = (task(wanted, rows, txn="k:1", part=part) for part in (0, 1))
    done = commit_tasks(wanted, [first, second])
    assert (done.written, done.duplicates) == (4, 4)
    again = commit_tasks(wanted, [task(wanted, rows, txn="k:2")])
    assert (again.written, again.duplicates) == (1, 3)
    repeated = commit_tasks(wanted, [task(wanted, rows, txn="k:2")])
    assert (repeated.written, repeated.duplicates, repeated.is_repeated) == (1, 3, True)


def test_many_rows_are_sent_in_chunks(yard: HttpYard, topics: Topics) -> None:
    create(topics, "many")
    wanted = options(yard, topic="many")
    written = task(wanted, batch(value=[json.dumps({"n": n}) for n in range(12_001)]), txn="n:1")
    assert (written.parts[0].chunks, written.parts[0].rows) == (3, 12_001)
    assert commit_tasks(wanted, [written]).written == 12_001
    assert len(values(yard, "many")) == 12_001


@pytest.mark.parametrize("kind", ["log", "queue"])
def test_the_server_takes_the_largest_rows(yard: HttpYard, topics: Topics, kind: str) -> None:
    name = f"largest.{kind}"
    create(topics, name, kind)
    wanted = options(yard, topic=name)
    wide = "\u00e4"
    deep = "[" * DEPTH_MAX + "]" * DEPTH_MAX
    rows = batch(
        value=['"' + wide * (VALUE_MAX // 2 - 1) + '"', "\xff" * (VALUE_MAX // 2), deep],
        key=[wide * (KEY_MAX // 2)] * 2 + [None],
        tag=[wide * (TAG_MAX // 2)] * 3,
        node=[wide * (NODE_MAX // 2)] * 3,
    )
    done = commit_tasks(wanted, [task(wanted, rows, txn=f"largest:{kind}")])
    assert (done.written, done.duplicates, done.rejected) == (2, 1, 0)


@pytest.mark.parametrize(
    ("names", "more", "word"),
    [
        ("data", {"topic": "t"}, "no column value"),
        ("value", {}, "says where rows go"),
        ("value prio", {"topic": "t"}, "no column prio"),
        ("value delay_ms", {"topic": "t"}, "must be"),
        ("value topic queue", {}, "mean the same"),
        ("value headers", {"topic": "t"}, "must be map<string,string>"),
        ("value max_attempts", {"topic": "t"}, "Write CAST(max_attempts AS INTEGER)"),
    ],
)
def test_wrong_columns_are_refused_with_a_remedy(
    yard: HttpYard, names: str, more: dict[str, str], word: str
) -> None:
    schema = StructType([StructField(name, StringType()) for name in names.split()])
    with pytest.raises(JobyardError) as refused:
        check_columns(schema, options(yard, **more))
    assert word in str(refused.value)


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"topik": "t"}, "did you mean topic?"),
        ({"topic": "t", "queue": "q"}, "topic and queue mean the same"),
        ({"topic": "t", "commit": "maybe"}, "is not one of staged, direct"),
        ({"topic": "t", "commit": "direct", "txn": "x"}, "has no transaction"),
        ({"topic": "t", "txn": "a b"}, "'a b' is not the name of a transaction"),
        ({"topic": "t", "txn": "x" * 257}, "Write 1 to 256 letters"),
        ({"topic": "t", "txn": ""}, "is not the name"),
        ({"topic": ""}, "is not the name of a topic"),
        ({"topic": '"'}, "is not the name of a topic"),
        ({"queue": "_events"}, "only the server writes _events"),
    ],
)
def test_wrong_options_are_refused(yard: HttpYard, given: dict[str, str], word: str) -> None:
    with pytest.raises(JobyardError) as refused:
        options(yard, **given)
    assert word in str(refused.value)


@pytest.mark.parametrize(
    ("given", "folder"),
    [
        ("/mnt/bad", "/mnt/bad"),
        ("file:/mnt/bad%20rows", "/mnt/bad rows"),
        ("file:///mnt/bad", "/mnt/bad"),
        ("FILE://localhost/mnt/bad", "/mnt/bad"),
        ("bad", str(Path.cwd() / "bad")),
    ],
)
def test_bad_rows_go_to_a_folder(yard: HttpYard, given: str, folder: str) -> None:
    assert options(yard, topic="t", badrowspath=given).bad_rows_path == folder


@pytest.mark.parametrize(
    "given", ["s3://lake/bad", "hdfs:/bad", "dbfs:/bad", "file://host/bad", "", "file:"]
)
def test_bad_rows_go_nowhere_else(yard: HttpYard, given: str) -> None:
    with pytest.raises(JobyardError) as refused:
        options(yard, topic="t", badrowspath=given)
    assert refused.value.option == "badRowsPath"
