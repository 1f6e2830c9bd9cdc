"""The driver's part of a write: what it commits, finds committed, refuses, and leaves behind."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobyard.client import JobyardError
from jobyard.client.txns import Transactions
from jobyard.spark.write.bad_files import hidden_file
from jobyard.spark.write.committing import (
    Committed,
    abort_tasks,
    commit_tasks,
    find_committed,
)
from jobyard.spark.write.options import WriteOptions
from jobyard.spark.write.sending import CHUNK_ROWS
from jobyard.spark.write.sink import BatchWriter, StreamWriter
from jobyard.spark.write.tasks import TaskWriter
from tests.support.clients.spark import read_batch
from tests.support.clients.spark_writes import TaskKilled, batch_of, options_of, run_task
from tests.support.servers.cutting import CUT_ANSWER, CUT_BEFORE, CuttingProxy
from tests.support.servers.http import HttpYard, Topics

AT_ONCE = {"maxretries": "0", "timeoutms": "5000"}


def create(topics: Topics, name: str, kind: str = "log") -> None:
    assert topics.ask("PUT", f"/v0/topics/{name}", {"type": kind})[0] == 201


def values(yard: HttpYard, topic: str) -> list[bytes]:
    return [row["value"] for row in read_batch(yard.url, "value", topic=topic)]


def state(topics: Topics, txn: str) -> str:
    return str(topics.ask("GET", f"/v0/txns/{txn}")[1]["state"])


def refusal(call: Any, *given: Any, **named: Any) -> JobyardError:
    with pytest.raises(JobyardError) as refused:
        call(*given, **named)
    assert len(str(refused.value).splitlines()) == 3
    return refused.value


def staged_by_a_killed_task(options: WriteOptions, txn: str) -> None:
    rows = batch_of(value=["1"] * (CHUNK_ROWS + 1))
    with pytest.raises(TaskKilled):
        run_task(options, [rows, rows], txn, dies_after=1)


def test_a_batch_of_which_no_task_ended_leaves_nothing(yard: HttpYard, topics: Topics) -> None:
    create(topics, "none.batch")
    writer = BatchWriter(options_of(yard.url, topic="none.batch"))
    staged_by_a_killed_task(writer.options, writer.txn)
    assert state(topics, writer.txn) == "open"
    writer.abort([None, None])
    assert state(topics, writer.txn) == "aborted"


def test_a_batch_of_a_stream_of_which_no_task_ended_leaves_nothing(
    yard: HttpYard, topics: Topics, tmp_path: Path
) -> None:
    create(topics, "none.stream")
    (tmp_path / "metadata").write_text('{"id":"2f1c-query"}')
    given = {"topic": "none.stream", "checkpointLocation": f"file://{tmp_path}"}
    writer = StreamWriter(options_of(yard.url, **given))
    staged_by_a_killed_task(writer.options, "2f1c-query:7")
    writer.abort([None], 6)
    assert state(topics, "2f1c-query:7") == "open"
    writer.abort([None], 7)
    assert state(topics, "2f1c-query:7") == "aborted"
    # Where the checkpoint is out of reach, stages expire.
    for checkpoint in ("", "s3://lake/checkpoint", str(tmp_path / "missing")):
        StreamWriter(replace(writer.options, checkpoint=checkpoint)).abort([], 8)


def test_a_batch_without_tasks_is_committed(yard: HttpYard, topics: Topics) -> None:
    create(topics, "no.tasks", "queue")
    options = options_of(yard.url, topic="no.tasks")
    BatchWriter(options).commit([])
    StreamWriter(options).commit([], 3)
    first = commit_tasks(options, [], "run:empty", is_named=True)
    assert first == Committed("run:empty", 0, 0, 0)
    again = commit_tasks(options, [], "run:empty", is_named=True)
    assert again == replace(first, is_repeated=True)
    # Remembered for good: rows that come later belong to another run.
    late = run_task(options, [batch_of(value=["1"])], "run:empty")
    assert commit_tasks(options, [late], is_named=True) == again
    assert topics.ask("GET", "/v0/topics/no.tasks")[1]["count"] == 0


@pytest.mark.parametrize("is_empty", [False, True])
def test_a_name_belongs_to_its_topic(yard: HttpYard, topics: Topics, *, is_empty: bool) -> None:
    name = f"bound.{is_empty}"
    for each in (name, f"{name}.other"):
        create(topics, each, "queue")
    options = options_of(yard.url, topic=name)
    other = options_of(yard.url, topic=f"{name}.other")
    txn = f"run:{name}"
    rows = [] if is_empty else [batch_of(value=["1"])]
    commit_tasks(options, [run_task(options, rows, txn)], txn, is_named=True)
    with options.connecting.client() as client:
        error = refusal(find_committed, other, Transactions(client), txn, is_named=True)
    assert (error.code, error.option) == ("txn_differs", "run_id")
    assert f"was committed for {name}, and now is for {name}.other" in error.message
    late = run_task(other, rows, txn)
    assert refusal(commit_tasks, other, [late], txn, is_named=True).code == "txn_differs"
    assert topics.ask("GET", f"/v0/topics/{name}.other")[1]["count"] == 0


def test_of_two_drivers_the_later_gets_the_first_result(
    yard: HttpYard, topics: Topics, tmp_path: Path
) -> None:
    create(topics, "two")
    options = options_of(yard.url, topic="two", badrowspath=str(tmp_path))
    rows = [batch_of(value=["1", None, "2"])]
    first, second = (run_task(options, rows, "run:two") for _ in range(2))
    done = commit_tasks(options, [first], "run:two", is_named=True)
    assert (done.written, done.rejected, done.is_repeated) == (2, 1, False)
    late = commit_tasks(options, [second], "run:two", is_named=True)
    assert late == replace(done, is_repeated=True)
    third = run_task(options, rows, "run:two")
    assert third.was_committed
    assert commit_tasks(options, [third], "run:two", is_named=True) == late
    assert values(yard, "two") == [b"1", b"2"]
    (file,) = tmp_path.glob("*.parquet")
    assert pq.read_table(file).num_rows == 1
    assert not list(tmp_path.glob("_*.new"))


@pytest.mark.parametrize("is_aborted", [True, False])
def test_rejected_rows_of_a_commit_that_was_not_heard_of_are_kept(
    yard: HttpYard, topics: Topics, tmp_path: Path, *, is_aborted: bool
) -> None:
    name = f"unheard.{is_aborted}"
    create(topics, name)
    options = options_of(yard.url, topic=name, badrowspath=str(tmp_path), **AT_ONCE)
    rows = [batch_of(value=["1", None])]
    written = run_task(options, rows, f"u:{name}")
    with CuttingProxy(yard.address, 1, share=1.0, faults=(CUT_ANSWER,)) as proxy:
        far = replace(options, connecting=replace(options.connecting, url=proxy.url))
        with pytest.raises(JobyardError):
            commit_tasks(far, [written])
        assert state(topics, f"u:{name}") == "committed"
        assert not list(tmp_path.glob("*.parquet"))
    if is_aborted:
        abort_tasks(options, [written])
    else:
        # Out of reach: nothing is decided, and a later run finds out.
        abort_tasks(far, [written])
        assert list(tmp_path.glob("_*.new"))
        done = commit_tasks(options, [run_task(options, rows, f"u:{name}")])
        assert (done.written, done.rejected, done.is_repeated) == (1, 1, True)
    assert values(yard, name) == [b"1"]
    (file,) = tmp_path.glob("*.parquet")
    assert pq.read_table(file).num_rows == 1
    assert not list(tmp_path.glob("_*.new"))


def test_what_a_driver_wrote_down_that_did_not_commit_does_not_count(
    yard: HttpYard, topics: Topics, tmp_path: Path
) -> None:
    create(topics, "dead")
    options = options_of(yard.url, topic="dead", badrowspath=str(tmp_path), **AT_ONCE)
    with CuttingProxy(yard.address, 1, share=1.0, faults=(CUT_BEFORE,)) as proxy:
        far = replace(options, connecting=replace(options.connecting, url=proxy.url))
        with pytest.raises(JobyardError):
            commit_tasks(far, [run_task(options, [batch_of(value=[None, None])], "dead:1")])
    assert len(list(tmp_path.glob("_*.commit.json"))) == 1
    rows = [batch_of(value=["1", None])]
    assert commit_tasks(options, [run_task(options, rows, "dead:1")]).rejected == 1
    again = commit_tasks(options, [run_task(options, rows, "dead:1")])
    assert (again.rejected, again.is_repeated) == (1, True)
    assert len(list(tmp_path.glob("_*.commit.json"))) == 1
    assert len(list(tmp_path.glob("*.parquet"))) == 1


def test_files_of_killed_tasks_are_removed(yard: HttpYard, topics: Topics, tmp_path: Path) -> None:
    create(topics, "killed")
    options = options_of(yard.url, topic="killed", badrowspath=str(tmp_path))
    rows = [batch_of(value=["1", None])]
    run_task(options, rows, "k:1")
    kept = run_task(options, rows, "k:1")
    # Of other transactions with similar names.
    others = [hidden_file(str(tmp_path), txn, 0, 1) for txn in ("k:1-0", "k:11", "k-1", "k:1.")]
    for each in others:
        each.touch()
    commit_tasks(options, [kept])
    assert sorted(tmp_path.glob("_*.new")) == sorted(others)
    assert len(list(tmp_path.glob("*.parquet"))) == 1
    dropped = run_task(options, rows, "k:2")
    run_task(options, rows, "k:2")
    abort_tasks(options, [dropped, None])
    assert sorted(tmp_path.glob("_*.new")) == sorted(others)


def test_files_of_a_long_name_have_short_ones(tmp_path: Path) -> None:
    names = {hidden_file(str(tmp_path), "x" * 255 + each, 0, 1 << 62) for each in "ab"}
    assert len(names) == 2
    for each in names:
        each.touch()


def test_bad_rows_of_a_direct_write_say_what_was_written(yard: HttpYard, topics: Topics) -> None:
    create(topics, "told")
    rows = [batch_of(value=["1", None, "2"])]
    direct = options_of(yard.url, topic="told", commit="direct")
    error = refusal(commit_tasks, direct, [run_task(direct, rows, "")])
    assert error.remedy.startswith("The other rows were written before (2 records)")
    assert values(yard, "told") == [b"1", b"2"]
    staged = options_of(yard.url, topic="told")
    error = refusal(commit_tasks, staged, [run_task(staged, rows, "told:1")])
    assert error.remedy.startswith("Nothing was written.")
    assert values(yard, "told") == [b"1", b"2"]


def test_a_direct_write_creates_no_topic(yard: HttpYard, topics: Topics) -> None:
    options = options_of(yard.url, commit="direct")
    error = refusal(run_task, options, [batch_of(value=["1"], topic=["misspelt"])], "")
    assert (error.code, error.topic) == ("topic_not_found", "misspelt")
    assert topics.ask("GET", "/v0/topics/misspelt")[0] == 404


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpYard]:
    """A server whose commits hold little."""
    found = HttpYard(
        *("--data", str(tmp_path_factory.mktemp("narrow"))),
        *("--txn-rows-max", str(CHUNK_ROWS), "--txn-bytes-max", "2MiB"),
    )
    yield found
    found.close()


def test_a_task_that_is_too_large_for_a_commit_stops(narrow: HttpYard) -> None:
    topics = Topics(narrow.address)
    create(topics, "large")
    options = options_of(narrow.url, topic="large")
    taken = 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal taken
        for _ in range(20):
            taken += 1
            yield batch_of(value=["1"] * CHUNK_ROWS)

    written = TaskWriter(options, "large:1", 0).write(batches())
    assert taken == 2
    error = refusal(commit_tasks, options, [written])
    assert (error.code, error.option) == ("txn_too_large", "commit")
    assert f"at most {CHUNK_ROWS} at once" in error.message
    assert "--txn-rows-max" in error.remedy
    abort_tasks(options, [written])
    assert state(topics, "large:1") == "aborted"
    topics.close()


def test_a_task_with_too_many_bytes_for_a_commit_stops(narrow: HttpYard) -> None:
    topics = Topics(narrow.address)
    create(topics, "bytes")
    options = options_of(narrow.url, topic="bytes")
    taken = 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal taken
        for _ in range(20):
            taken += 1
            yield batch_of(value=[f'"{"x" * 1_000_000}"'] * 2)

    written = TaskWriter(options, "bytes:1", 0).write(batches())
    # The first chunk, of four megabytes, shows it.
    assert taken == 3
    error = refusal(commit_tasks, options, [written])
    assert (error.code, error.option) == ("txn_too_large", "commit")
    assert f"at most {2 << 20} bytes at once" in error.message
    assert "--txn-bytes-max" in error.remedy
    # Of two tasks that each fit, the driver knows it before the commit.
    rows = [batch_of(value=[f'"{"x" * 1_000_000}"'])]
    tasks = [run_task(options, rows, "bytes:2", part) for part in range(3)]
    assert f"at least {3 * 1_000_002} bytes" in refusal(commit_tasks, options, tasks).message
    assert commit_tasks(options, [run_task(options, rows, "bytes:3", 0)]).written == 1
    topics.close()


def test_the_size_of_a_commit_is_known_before_it(narrow: HttpYard) -> None:
    topics = Topics(narrow.address)
    create(topics, "sum")
    options = options_of(narrow.url, topic="sum")
    half = CHUNK_ROWS // 2
    rows = [batch_of(value=["1"] * half)]
    keyed = [batch_of(value=["1"] * half, key=[f"k{n}" for n in range(half)])]
    fits = [run_task(options, rows, "sum:1", part) for part in range(2)]
    assert commit_tasks(options, fits).written == CHUNK_ROWS
    fits = [run_task(options, keyed, "sum:2")]
    assert commit_tasks(options, fits).written == half
    for txn, parts in (("sum:3", [rows, rows, [batch_of(value=["1"])]]), ("sum:4", [keyed, rows])):
        tasks = [run_task(options, each, txn, part) for part, each in enumerate(parts)]
        error = refusal(commit_tasks, options, tasks)
        assert error.code == "txn_too_large"
        # No call was made for that: the server itself says the same.
        with options.connecting.client() as client:
            parts_of = [part.fields() for task in tasks for part in task.parts]
            with pytest.raises(JobyardError) as refused:
                Transactions(client).commit(txn, {"parts": parts_of})
        assert refused.value.code == "txn_too_large"
    topics.close()


def test_what_is_written_down_is_json_of_ours_alone(tmp_path: Path) -> None:
    (tmp_path / "_other.0f.commit.json").write_text("{")
    options = options_of("http://127.0.0.1:1", topic="t", badrowspath=str(tmp_path), **AT_ONCE)
    abort_tasks(options, [], "t:1")
    assert json.dumps([path.name for path in tmp_path.iterdir()]) == '["_other.0f.commit.json"]'
