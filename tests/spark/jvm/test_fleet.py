"""`work`, and the stream and sink below it, in a Spark session."""

import os
import signal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import SparkSession

from jobyard.client import JobyardError
from jobyard.spark import Bury, Job, Retry, work
from tests.support.clients.spark import read_batch
from tests.support.clients.spark_fleet import all_done_once, counts, ledger, make_queue, put
from tests.support.servers.http import HttpYard, Topics

NOW = {"availableNow": True}


@pytest.fixture
def topics(yard: HttpYard) -> Any:
    found = Topics(yard.address)
    yield found
    found.close()


def last_batch(query: Any) -> int:
    return int(query.lastProgress["batchId"])


def last_report(query: Any) -> str:
    return str(query.lastProgress["sources"][0]["latestOffset"])


def test_a_function_works_on_all_jobs(
    spark: SparkSession, yard: HttpYard, topics: Topics, tmp_path: Path
) -> None:
    make_queue(topics, "j-work", 60, dead_letter="j-work.dead")
    topics.ask("PUT", "/v0/topics/j-work.out", {})

    def call(job: Job) -> object:
        number = job.json()
        if number == 10:
            raise ValueError("ten")
        if number == 20:
            os._exit(3)
        if number == 30:
            return Retry(600_000)
        return Bury("forty") if number == 40 else {"n": number}

    query = work(
        spark, "j-work", "mailer", call, url=yard.url, batch=25, results="j-work.out",
        trigger=NOW, checkpoint=str(tmp_path), on_error=Bury(),
    )  # fmt: skip
    query.awaitTermination()
    found = ledger(yard, "j-work")
    dead = {seq for seq, ends in found.items() if "dead_lettered" in ends}
    done = {seq for seq, ends in found.items() if ends.count("completed") == 1}
    assert dead == {11, 21, 41}
    assert done == set(range(1, 61)) - dead - {31}
    results = read_batch(yard.url, "value", topic="j-work.out")
    out = sorted(int(row["value"][6:-1]) for row in results)
    assert out == [each for each in range(60) if each not in (10, 20, 30, 40)]
    rows = read_batch(yard.url, "queue queue_seq error event", topic="_events")
    errors = {
        row["queue_seq"]: row["error"]
        for row in rows
        if row["queue"] == "j-work" and row["event"] == "dead_lettered"
    }
    assert errors[11] == "ValueError: ten"
    assert errors[21].startswith("ProcessCrashed: the process that ran the job ended with exit")
    assert errors[41] == "forty"
    assert counts(topics, "j-work") == (0, 0, 1)
    # Spark asks before a batch runs: what became of the batches before it.
    assert '"claimed": 60' in last_report(query)
    assert '"nacked": 1' in last_report(query)
    assert '"lease_left_ms": ' in last_report(query)
    # The same query again: nothing is left, and nothing is done again.
    put(topics, "j-work", 1)
    again = work(
        spark, "j-work", "mailer", call, url=yard.url, batch=25, results="j-work.out",
        trigger=NOW, checkpoint=str(tmp_path),
    )  # fmt: skip
    again.awaitTermination()
    assert again.id == query.id
    assert [each["numInputRows"] for each in again.recentProgress] == [1]


def test_a_function_of_batches(spark: SparkSession, yard: HttpYard, topics: Topics) -> None:
    make_queue(topics, "j-batch", 500)

    def call(batch: pa.RecordBatch) -> object:
        if 77 in batch.column("seq").to_pylist():
            os._exit(1)
        return None

    work(
        spark, "j-batch", "b", call, url=yard.url, vectorized=True, trigger=NOW, max_claim_replays=1
    ).awaitTermination()
    found = ledger(yard, "j-batch")
    assert {seq for seq, ends in found.items() if "completed" not in ends} == {77}
    assert counts(topics, "j-batch") == (0, 0, 0)


def test_a_python_worker_that_is_killed_is_replaced(
    spark: SparkSession, yard: HttpYard, topics: Topics, tmp_path: Path
) -> None:
    make_queue(topics, "j-worker", 40)
    topics.ask("PUT", "/v0/topics/j-worker.out", {})

    def call(job: Job) -> object:
        once = tmp_path / "once"
        if job.seq == 7 and not once.exists():
            once.touch()
            os.kill(os.getppid(), signal.SIGKILL)
            signal.pause()
        return job.seq

    query = work(
        spark, "j-worker", "killed", call, url=yard.url, results="j-worker.out", trigger=NOW
    )
    query.awaitTermination()
    assert (tmp_path / "once").exists()
    all_done_once(yard, "j-worker", 40)
    out = [int(row["value"]) for row in read_batch(yard.url, "value", topic="j-worker.out")]
    assert sorted(out) == list(range(1, 41))


def test_a_stream_and_a_sink_of_ones_own(
    spark: SparkSession, yard: HttpYard, topics: Topics, tmp_path: Path
) -> None:
    make_queue(topics, "j-own", 10)
    topics.ask("PUT", "/v0/topics/j-own.out", {})
    jobs = spark.readStream.format("jobyard").options(url=yard.url, queue="j-own", worker="own")
    ended = jobs.load().selectExpr(
        "queue", "worker", "epoch", "claim", "seq", "lease_id",
        "IF(seq % 2 = 0, 'ack', 'nack') AS _status", "600000L AS _delay_ms",
        "IF(seq % 2 = 0, CAST(value AS STRING), NULL) AS _result",
    )  # fmt: skip
    query = (
        ended.writeStream.format("jobyard").options(url=yard.url, results="j-own.out")
        .option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    assert counts(topics, "j-own") == (0, 0, 5)
    out = sorted(int(row["value"]) for row in read_batch(yard.url, "value", topic="j-own.out"))
    assert out == [1, 3, 5, 7, 9]


def test_an_idle_query_has_no_batches_and_stops(
    spark: SparkSession, yard: HttpYard, topics: Topics
) -> None:
    make_queue(topics, "j-idle", 1)
    query = work(spark, "j-idle", "idle", lambda _: None, url=yard.url)
    while len([each for each in query.recentProgress if each["numInputRows"]]) < 1:
        assert query.exception() is None
        query.processAllAvailable()
    batches = last_batch(query)
    query.processAllAvailable()
    assert last_batch(query) <= batches + 1
    query.stop()
    all_done_once(yard, "j-idle", 1)


def test_of_two_queries_of_one_worker_the_later_works(
    spark: SparkSession, yard: HttpYard, topics: Topics
) -> None:
    make_queue(topics, "j-two", 5)
    first = work(spark, "j-two", "same", lambda _: None, url=yard.url)
    first.processAllAvailable()
    second = work(spark, "j-two", "same", lambda _: None, url=yard.url)
    with pytest.raises(StreamingQueryException, match="fenced"):
        first.awaitTermination(300)
    put(topics, "j-two", 5)
    second.processAllAvailable()
    second.stop()
    all_done_once(yard, "j-two", 10)


def test_what_cannot_work_is_refused_before_spark_begins(
    spark: SparkSession, yard: HttpYard, topics: Topics
) -> None:
    make_queue(topics, "j-bad", 0)

    def call(_: Job) -> None:
        return None

    for given, option in (
        ({"queue": "j-nowhere"}, "queue"),
        ({"worker": "with space"}, "worker"),
        ({"batch": 20_000}, "batch"),
        ({"batch": 5001}, "batch"),
        ({"lease_ms": 10}, "leaseMs"),
        ({"results": "j-no.results"}, "results"),
        ({"max_claim_replays": -1}, "max_claim_replays"),
        ({"quue": "x"}, "quue"),
    ):
        named: dict[str, Any] = {"queue": "j-bad", "worker": "w", **given}
        with pytest.raises(JobyardError) as refused:
            work(spark, named.pop("queue"), named.pop("worker"), call, url=yard.url, **named)
        assert refused.value.option == option, str(refused.value)
        assert len(str(refused.value).splitlines()) <= 3
    with pytest.raises(AnalysisException, match="claims are a stream"):
        spark.read.format("jobyard").options(url=yard.url, queue="j-bad", worker="w").load().count()
