"""What columns of a write mean: keys and tags, headers of both kinds, and what a log has not."""

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
)

from jobyard.client import JobyardError
from jobyard.spark.read.columns import (
    HEADERS_KIND,
    KAFKA_COLUMNS,
    KAFKA_HEADERS_KIND,
    TOPIC_COLUMNS,
    schema_of,
)
from jobyard.spark.source import JobyardSource
from jobyard.spark.write.bad_rows import BadRows
from jobyard.spark.write.committing import commit_tasks
from jobyard.spark.write.options import DRAWN, check_columns, write_options
from jobyard.spark.write.probe import check_writable
from jobyard.spark.write.records import BadRow, Record, RecordReader
from tests.support.clients.spark import read_batch
from tests.support.clients.spark_writes import batch_of, options_of, run_task
from tests.support.servers.http import HttpYard, Topics

URL = "http://127.0.0.1:1"
PLAIN = write_options({"url": URL, "topic": "t"}, None)


def refusal(schema: StructType, **given: str) -> JobyardError:
    with pytest.raises(JobyardError) as caught:
        check_columns(schema, write_options({"url": URL, "topic": "t", **given}, None))
    assert len(str(caught.value).splitlines()) == 3
    return caught.value


def schema_with(name: str, kind: DataType) -> StructType:
    return StructType([StructField("value", StringType()), StructField(name, kind)])


@pytest.mark.parametrize("columns", [TOPIC_COLUMNS, KAFKA_COLUMNS])
@pytest.mark.parametrize("left", [{"key", "value", "seq", "offset"}, None])
def test_the_tag_of_a_read_is_no_key_unless_that_is_said(
    columns: tuple[object, ...], left: set[str] | None
) -> None:
    whole = schema_of(columns)  # type: ignore[arg-type]
    schema = StructType([each for each in whole if left is None or each.name in left])
    error = refusal(schema)
    assert error.option == "keyAs"
    assert "keyAs=tag" in error.remedy
    assert "keyAs=key" in error.remedy
    for said in ("tag", "key"):
        check_columns(schema, write_options({"url": URL, "topic": "t", "keyAs": said}, None))


def test_a_key_of_ones_own_is_a_key() -> None:
    check_columns(schema_with("key", StringType()), PLAIN)


def test_a_misspelt_column_names_the_nearest() -> None:
    error = refusal(schema_with("prioritee", IntegerType()))
    assert (error.option, "did you mean priority?" in error.message) == ("prioritee", True)


def pairs(name: DataType, value: DataType) -> ArrayType:
    return ArrayType(StructType([StructField("key", name), StructField("value", value)]))


def test_headers_of_both_kinds_are_known_and_of_no_other() -> None:
    text, octets = StringType(), BinaryType()
    for kind in (MapType(text, text), pairs(text, octets), pairs(text, text), NullType()):
        check_columns(schema_with("headers", kind), PLAIN)
    wrong: list[tuple[DataType, str]] = [
        (MapType(text, IntegerType()), "CAST(headers AS MAP<STRING,STRING>)"),
        (text, "map('name', text)"),
        (pairs(octets, text), "map_from_entries"),
        (ArrayType(text), "map_from_entries"),
    ]
    for bad, remedy in wrong:
        assert remedy in refusal(schema_with("headers", bad)).remedy


def written(headers: object, kind: pa.DataType) -> Record | BadRow:
    columns = [pa.array(["1"]), pa.array([headers], kind)]
    batch = pa.RecordBatch.from_arrays(columns, names=["value", "headers"])
    (found,) = RecordReader(PLAIN).read(batch)
    return found


def test_headers_of_kafka_are_the_meta_of_a_record() -> None:
    kind = KAFKA_HEADERS_KIND.arrow
    given = [{"key": "a", "value": b"\xc3\xa4"}, {"key": "n", "value": None}]
    assert written(given, kind) == Record("t", '{"data":1,"meta":{"a":"\u00e4","n":null}}')
    for bad, reason in (
        ([*given, {"key": "a", "value": b"x"}], "headers have a name twice, or one that is null"),
        ([{"key": None, "value": b"x"}], "headers have a name twice, or one that is null"),
        ([None], "headers have an entry that is null"),
        ([{"key": "a", "value": b"\xff"}], "headers are not UTF-8"),
    ):
        found = written(bad, kind)
        assert isinstance(found, BadRow)
        assert found.reason == reason
    assert written([("a", None)], HEADERS_KIND.arrow) == Record("t", '{"data":1,"meta":{"a":null}}')


def test_headers_come_back_as_they_were(yard: HttpYard, topics: Topics) -> None:
    meta = {"a": "x", "n": None, "five": 5}
    topics.ask("POST", "/v0/topics/meta", {"records": [{"data": 1, "meta": meta}]})
    (row,) = read_batch(yard.url, "headers", topic="meta")
    assert dict(row["headers"]) == {"a": "x", "n": None, "five": "5"}
    (row,) = read_batch(yard.url, "headers", subscribe="meta", includeHeaders="true")
    found = {each["key"]: each["value"] for each in row["headers"]}
    assert found == {"a": b"x", "n": None, "five": b"5"}


@pytest.mark.parametrize("name", ["delay_ms", "priority", "job_id", "name", "max_attempts"])
def test_what_only_jobs_have_is_not_written_to_a_log(
    yard: HttpYard, topics: Topics, name: str
) -> None:
    topics.ask("PUT", "/v0/topics/no.jobs", {})
    topics.ask("PUT", "/v0/topics/jobs", {"type": "queue"})
    with pytest.raises(JobyardError) as caught:
        check_writable(options_of(yard.url, topic="no.jobs"), ["value", name])
    error = caught.value
    assert (error.code, error.option, error.topic) == ("not_a_queue", name, "no.jobs")
    assert len(str(error).splitlines()) == 3
    check_writable(options_of(yard.url, topic="jobs"), ["value", name])
    check_writable(options_of(yard.url, topic="no.jobs"), ["value", "tag"])


def test_what_is_given_as_a_queue_must_be_one(yard: HttpYard, topics: Topics) -> None:
    topics.ask("PUT", "/v0/topics/a.log", {})
    with pytest.raises(JobyardError) as caught:
        check_writable(options_of(yard.url, queue="a.log"))
    assert (caught.value.code, caught.value.option) == ("not_a_queue", "queue")
    assert len(str(caught.value).splitlines()) == 3


def test_the_message_about_bad_rows_has_room_for_all_examples() -> None:
    bad = BadRows()
    for at in range(8):
        reason = f"value {at} is longer than {'x' * 60} bytes"
        bad.add(0, BadRow(at, reason, "\x00" * 60, 100 + at))
    text = str(bad.error(None))
    assert len(text.splitlines()) == 3
    assert all(f"row {at} (seq {100 + at}): '" in text for at in range(3))
    assert "8 rows cannot" in text
    assert "and 5 more reasons" in text
    one = BadRows()
    one.add(0, BadRow(0, "value is null", "null"))
    assert "1 row cannot be written" in str(one.error(None))


def test_a_row_that_was_read_is_named_by_its_seq() -> None:
    for name in ("seq", "offset"):
        batch = batch_of(value=["1", None], **{name: [7, 8]})
        found = list(RecordReader(PLAIN).read(batch))
        assert found == [Record("t", '{"data":1}'), BadRow(1, "value is null", "null", 8)]


def test_no_note_of_a_write_with_a_drawn_name_stays(
    yard: HttpYard, topics: Topics, tmp_path: Path
) -> None:
    topics.ask("PUT", "/v0/topics/noted", {})
    for txn, notes in ((f"{DRAWN}1", 0), ("run:1", 1), ("2f1c:7", 1)):
        folder = tmp_path / txn.replace(":", "-")
        options = options_of(yard.url, topic="noted", badRowsPath=str(folder))
        task = run_task(options, [batch_of(value=["1", None])], txn)
        assert commit_tasks(options, [task], txn, is_named=True).rejected == 1
        assert len(list(folder.glob("*.parquet"))) == 1
        assert len(list(folder.glob("_*"))) == notes
    # The user gave this name, so it may be committed again.
    given = replace(options, txn=f"{DRAWN}2")
    task = run_task(given, [batch_of(value=["1", None])], given.txn)
    commit_tasks(given, [task], given.txn, is_named=True)
    assert len(list(folder.glob("_*"))) == 2


def test_a_folder_that_cannot_be_written_is_known_before_tasks(
    yard: HttpYard, topics: Topics, tmp_path: Path
) -> None:
    topics.ask("PUT", "/v0/topics/aside", {})
    (tmp_path / "file").write_text("")
    schema = StructType([StructField("value", StringType())])
    for folder in ("/proc/x", str(tmp_path / "file"), str(tmp_path / "file" / "below")):
        source = JobyardSource({"url": yard.url, "topic": "aside", "badRowsPath": folder})
        with pytest.raises(JobyardError) as caught:
            source.writer(schema, overwrite=False)
        assert caught.value.option == "badRowsPath"
        assert len(str(caught.value).splitlines()) == 3
        # On another machine, where only a task finds out.
        options = options_of(yard.url, topic="aside", badRowsPath=folder)
        with pytest.raises(JobyardError, match="cannot be written"):
            run_task(options, [batch_of(value=[None])], "aside:1")
    made = tmp_path / "made"
    source = JobyardSource({"url": yard.url, "topic": "aside", "badRowsPath": str(made)})
    source.writer(schema, overwrite=False)
    assert list(made.iterdir()) == []


def test_void_columns_are_those_that_no_row_has() -> None:
    for name in ("tag", "key", "node", "priority", "headers"):
        check_columns(schema_with(name, NullType()), PLAIN)
        columns = [pa.array(["1"]), pa.nulls(1)]
        batch = pa.RecordBatch.from_arrays(columns, names=["value", name])
        (found,) = RecordReader(PLAIN).read(batch)
        assert isinstance(found, Record)
        assert json.loads(found.body) == {"data": 1}
