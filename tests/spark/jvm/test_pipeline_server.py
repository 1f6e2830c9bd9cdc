"""From real doors through a server into a lake, and back: what was produced is what is counted."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from jobyard.client import JobyardError
from jobyard.spark.pipeline import check, run
from tests.support.lake.memory import everything
from tests.support.servers.http import HttpYard, Topics

JOBS = 40
# The start of a JVM on a machine with other things to do.
RUN_S = 400
CONNECTED = """
import sys

from pyspark.sql import SparkSession

from jobyard.spark import register
from jobyard.spark.pipeline import backfill, check, run


def made():
    return register(SparkSession.builder.remote("local[2]").getOrCreate())


print(run(made, url=sys.argv[1], lake=sys.argv[2]).rows, check(sys.argv[2], sys.argv[1]))
print(backfill(made(), sys.argv[2]).events, check(sys.argv[2]))
"""


def produce(yard: HttpYard, queue: str) -> None:
    """Put jobs, complete most of them, give one up, hand one back, and leave one running."""
    # A server closes a connection that is quiet while Spark works.
    topics = Topics(yard.address)
    topics.ask("PUT", f"/v0/topics/{queue}", {"type": "queue", "dead_letter": f"{queue}.dead"})
    records = [{"data": {"n": at}} for at in range(JOBS)]
    assert topics.ask("POST", f"/v0/topics/{queue}", {"records": records})[0] == 200
    taken = topics.ask(
        "POST", f"/v0/topics/{queue}/claim", {"node": "w1", "max": JOBS, "lease_ms": 600_000}
    )[1]
    first, second, third, *rest = [each["$seq"] for each in taken["claimed"]]
    error = {"node": "w1", "seqs": [first], "error": "ValueError: no user 12"}
    assert topics.ask("POST", f"/v0/topics/{queue}/dead-letter", error)[0] == 200
    back = {"node": "w1", "seqs": [second], "delay_ms": 3_600_000}
    assert topics.ask("POST", f"/v0/topics/{queue}/nack", back)[0] == 200
    assert third
    assert topics.ask("POST", f"/v0/topics/{queue}/ack", {"node": "w1", "seqs": rest})[0] == 200
    topics.close()


def test_a_server_fills_a_lake(spark: SparkSession, tmp_path: Path) -> None:
    yard = HttpYard("--data", str(tmp_path / "yard"))
    lake = tmp_path / "lake"
    try:
        produce(yard, "p-a")
        run(spark, url=yard.url, lake=lake, batch=50)
        produce(yard, "p-b")
        result = run(spark, url=yard.url, lake=lake)
        assert result.rows == JOBS + JOBS + JOBS - 1
        assert check(lake, yard.url) == []
        tables = everything(lake)
        totals = [
            (row["queue"], row["enqueued"], row["claimed"], row["completed"], row["failed"],
             row["released"], row["dead_lettered"], row["backlog_change"])
            for row in tables["queue_minute"]
        ]  # fmt: skip
        # Put, claimed and ended within a minute or two.
        for queue in ("p-a", "p-b"):
            sums = [
                sum(column)
                for column in zip(*(r[1:] for r in totals if r[0] == queue), strict=True)
            ]
            assert sums == [JOBS, JOBS, JOBS - 3, 1, 1, 1, 2]
        assert {row["worker"] for row in tables["worker_minute"]} == {"w1"}
        (letter, _) = tables["dlq_reason_minute"]
        assert (letter["reason"], letter["error_class"]) == ("given_up", "ValueError")
        assert sum(row["finished_at"] is None for row in tables["attempts"]) == 2
        with pytest.raises(JobyardError, match="bad_option"):
            run(spark, url=yard.url, lake=lake, table_format="csv")
    finally:
        yard.close()


def test_four_doors_fill_a_lake(spark: SparkSession, tmp_path: Path) -> None:
    pytest.importorskip("redis", reason="clients of all doors need it")
    pytest.importorskip("msgspec", reason="clients of all doors need it")
    from tests.support.servers.doors import FourDoors  # noqa: PLC0415  needs both

    doors = FourDoors("--data", str(tmp_path / "yard"))
    host, port = doors.addresses["http"]
    lake = tmp_path / "lake"
    try:
        for letter in "BNGT":
            door, queue = doors.door(letter), f"of-{letter}"
            for at in range(3):
                # Two doors have a job fail for good unless it may be tried again.
                door.put(queue, at, attempts=3, backoff_ms=1)
                taken = door.must_take(queue)
                if at == 0:
                    door.fail(taken)
                    taken = door.must_take(queue)
                door.finish(taken)
        run(spark, url=f"http://{host}:{port}", lake=lake)
        assert check(lake, f"http://{host}:{port}") == []
        tables = everything(lake)
        for letter in "BNGT":
            runs = [row for row in tables["attempts"] if row["queue"] == f"of-{letter}"]
            outcomes = sorted(row["outcome"] for row in runs)
            assert outcomes[:3] == ["completed"] * 3, letter
            assert outcomes[3] in ("failed", "released"), letter
            assert all(row["worker"] for row in runs), letter
        assert sum(row["backlog_change"] for row in tables["queue_minute"]) == 0
        assert {row["family"] for row in tables["attempts"]} == {
            "beanstalk", "bunqueue", "glidemq", "topics"
        }  # fmt: skip
    finally:
        doors.close()


def test_a_session_of_spark_connect_will_do(tmp_path: Path) -> None:
    if find_spec("grpc") is None:
        pytest.skip("the packages of Spark Connect are not installed")
    yard = HttpYard("--data", str(tmp_path / "yard"))
    env = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}
    try:
        produce(yard, "p-c")
        done = subprocess.run(
            [sys.executable, "-c", CONNECTED, yard.url, str(tmp_path / "lake")],
            capture_output=True, text=True, timeout=RUN_S, check=False,
            env=env | {"PYSPARK_PYTHON": sys.executable},
        )  # fmt: skip
    finally:
        yard.close()
    assert done.returncode == 0, done.stderr[-4000:]
    count = JOBS + JOBS + JOBS - 1
    assert done.stdout.split() == [str(count), "[]", str(count), "[]"]
