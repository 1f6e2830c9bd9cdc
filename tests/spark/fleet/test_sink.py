"""The sink by itself: rows it refuses, errors that are cut, and calls whose answers are lost."""

import random
from typing import Any

import pyarrow as pa
import pytest

from jobyard.client import JobyardError
from jobyard.spark.fleet.ends import (
    Ends,
    EndsWritten,
    cut_error,
    plain_acks,
    read_ends,
)
from jobyard.spark.fleet.options import end_options
from jobyard.spark.fleet.sink import commit_ends, write_ends
from tests.support.clients.spark import read_batch
from tests.support.clients.spark_fleet import (
    POINTS,
    Checkpoint,
    DriverDied,
    FleetQuery,
    all_done_once,
    counts,
    make_queue,
)
from tests.support.servers.cutting import CUT_ANSWER, CUT_BEFORE, CUT_INSIDE, REPEAT, CuttingProxy
from tests.support.servers.http import HttpYard, Topics


def rows(count: int, **other: Any) -> pa.RecordBatch:
    """Return rows that ack jobs, some columns replaced."""
    columns: dict[str, Any] = {
        "queue": ["q"] * count,
        "worker": ["w"] * count,
        "epoch": [1] * count,
        "claim": ["c"] * count,
        "seq": list(range(count)),
        "lease_id": [f"l{at}" for at in range(count)],
        "_status": ["ack"] * count,
        **other,
    }
    return pa.RecordBatch.from_pydict({name: pa.array(column) for name, column in columns.items()})


def test_plain_acks_are_read_as_any_rows_are() -> None:
    batch = rows(5)
    found = plain_acks(batch)
    assert found is not None
    queue, driver, claim, pairs = found
    each = list(read_ends(batch))
    assert pairs == [(end.seq, end.lease_id) for *_, end in each]
    assert {one[:3] for one in each} == {(queue, driver, claim)}
    for other in (
        {"_status": ["ack"] * 4 + ["nack"]},
        {"claim": ["c"] * 4 + ["d"]},
        {"epoch": [1, 1, 1, 1, 2]},
        {"_result": [None] * 4 + ["1"]},
        {"lease_id": ["l"] * 4 + [None]},
    ):
        assert plain_acks(rows(5, **other)) is None
    assert plain_acks(rows(5, _result=pa.nulls(5, pa.string()))) is not None
    assert plain_acks(rows(5).slice(0, 0)) is None


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({"_status": ["done"]}, "_status is 'done' for job 0 of q"),
        ({"_status": pa.nulls(1, pa.string())}, "_status is None"),
        ({"seq": pa.nulls(1, pa.int64())}, "for job None of q"),
        ({"_status": ["nack"], "_delay_ms": [-1]}, "_delay_ms is -1"),
    ],
)
def test_a_row_that_ends_no_run_is_refused(other: dict[str, Any], told: str) -> None:
    with pytest.raises(JobyardError) as refused:
        list(read_ends(rows(1, **other)))
    assert refused.value.code == "bad_rows"
    assert told in refused.value.message


def test_a_batch_of_two_drivers_is_refused() -> None:
    options = end_options({"url": "http://127.0.0.1:1"}, None)
    for other in ({"worker": ["w", "v"]}, {"epoch": [1, 2]}):
        with pytest.raises(JobyardError, match="one commit is of one worker"):
            write_ends(options, "t:1", 0, iter([rows(2, **other)]))
    first, second = (
        write_ends(options, "t:1", part, iter([rows(1, worker=[name])]))
        for part, name in enumerate("wv")
    )
    with pytest.raises(JobyardError, match="one commit is of one worker"):
        commit_ends(options, [first, second])
    assert commit_ends(options, []) is None
    assert commit_ends(options, [EndsWritten(txn="t:1")]) is None


def test_errors_are_cut_between_characters() -> None:
    assert cut_error("é" * 5000) == "é" * 2048
    assert cut_error("x" * 70, 63) == "x" * 63
    assert cut_error("a\ud800b") == "a?b"
    ends = Ends(nacks=[(1, "l", 5, "x" * 100)], buries=[(2, "m", "")])
    assert ends.lists(63) == {
        "acks": [], "nacks": [[1, "l", 5, "x" * 63]], "dead_letters": [[2, "m", None]]
    }  # fmt: skip


def test_a_text_that_is_not_utf_8_ends_a_run_all_the_same() -> None:
    bad = pa.array([b"\xff!"]).cast(pa.binary()).view(pa.string())
    batch = rows(1, _status=["nack"])
    batch = batch.append_column("_error", bad)
    ((*_, end),) = list(read_ends(batch))
    assert end.error == "\ufffd!"


def test_a_result_that_cannot_be_written_buries_its_job(yard: HttpYard, topics: Topics) -> None:
    make_queue(topics, "s-large", 3)
    topics.ask("PUT", "/v0/topics/s-large.out", {})
    query = FleetQuery(yard.url, "s-large", results="s-large.out")
    assert query.step()
    start = query.checkpoint.offsets[-1]
    end = query.reader.latestOffset(start, query.reader.getDefaultReadLimit())
    written = []
    for part, partition in enumerate(query.reader.partitions(start, end)):
        (jobs,) = list(query.reader.read(partition))
        sizes = [1 << 21 if seq == 2 else 3 for seq in jobs.column("seq").to_pylist()]
        made = pa.RecordBatch.from_pydict(
            {
                **{name: jobs.column(name) for name in jobs.schema.names[:6]},
                "_status": pa.array(["ack"] * len(sizes)),
                "_result": pa.array([b"\xff" * size for size in sizes]),
            }
        )
        written.append(write_ends(query.ends, "s:1", part, iter([made])))
    answer = commit_ends(query.ends, written)
    assert answer is not None
    assert (answer.number("acked"), answer.number("dead_lettered")) == (2, 1)
    # The same commit again, as by a driver that did not hear of it.
    again = commit_ends(query.ends, written)
    assert again is not None
    assert again.is_set("duplicate")
    query.stop()
    assert topics.ask("GET", "/v0/topics/s-large.out")[1]["count"] == 2


@pytest.mark.parametrize("seed", range(4))
def test_whatever_is_cut_and_whoever_dies_each_job_is_done_once(
    yard: HttpYard, topics: Topics, seed: int
) -> None:
    name = f"s-any-{seed}"
    make_queue(topics, name, 120)
    topics.ask("PUT", f"/v0/topics/{name}.out", {})
    drawn = random.Random(seed)
    checkpoint = Checkpoint()
    faults = (CUT_BEFORE, CUT_INSIDE, CUT_ANSWER, REPEAT)
    with CuttingProxy(yard.address, seed, share=0.2, faults=faults) as proxy:
        for _ in range(200):
            point = drawn.choice([*POINTS, "", "", ""])
            query = FleetQuery(
                proxy.url, name, lambda job: job.seq, checkpoint,
                results=f"{name}.out", lease_ms=600_000, batch="20", maxretries="20",
            )  # fmt: skip
            try:
                query.run(point)
                break
            except DriverDied:
                continue
            finally:
                query.stop()
        assert proxy.seen.total() > 0
    assert counts(topics, name) == (0, 0, 0)
    all_done_once(yard, name, 120)
    found = [int(row["value"]) for row in read_batch(yard.url, "value", topic=f"{name}.out")]
    assert sorted(found) == list(range(1, 121))
