"""Writes whose processes are killed at named points: run again, everything is there once.

Programs of their own. Where one is to be killed, a file names the victim and the point, which is
before or after a call that stages or commits; the first process that gets there kills the victim.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.clients.spark import read_batch
from tests.support.servers.http import HttpYard, Topics

RUN_S = 300
ROWS = 12_000
# Loaded by every Python that a program starts, and by those that Spark starts for it.
HOOK = """
import os, signal
from jobyard.client.calls import YardClient

ORDER = os.environ["KILL_ORDER"]


def ancestors():
    "Return the processes from this one up to the program."
    found, each = [], os.getpid()
    while each != int(os.environ["PROGRAM_PID"]):
        found.append(each)
        with open(f"/proc/{each}/stat") as stat:
            each = int(stat.read().rpartition(")")[2].split()[1])
    return [*found, each]


def reach(point):
    try:
        with open(ORDER) as file:
            victim, wanted = file.read().split(" ", 1)
        if wanted != point:
            return
        # Only one process can rename it.
        os.rename(ORDER, ORDER + ".done")
    except FileNotFoundError:
        return
    victims = [os.getpid()] if victim == "itself" else reversed(ancestors())
    for each in victims:
        os.kill(each, signal.SIGKILL)


def watched(call):
    def watching(self, method, path, *more, **named):
        verb = path.rpartition("/")[2] if "/probe:" not in path and "/probe%3A" not in path else ""
        reach(f"before {verb}")
        answer = call(self, method, path, *more, **named)
        reach(f"after {verb}")
        return answer
    return watching


YardClient.send = watched(YardClient.send)
YardClient.ask = watched(YardClient.ask)
"""
BEGIN = """
import os, sys
os.environ["PROGRAM_PID"] = str(os.getpid())
import jobyard.spark

url, order, folder, *more = sys.argv[1:]
spark = jobyard.spark.session(**{
    "spark.master": "local[2,4]", "spark.ui.enabled": False, "spark.log.level": "ERROR",
})


def kill(text):
    with open(order, "w") as file:
        file.write(text)


def rows(first, count):
    return spark.range(first, first + count, 1, 2).selectExpr("CAST(id AS STRING) AS value")
"""
WORKERS = """
for at, point in enumerate(more):
    kill(point)
    write = rows(at * 12_000, 12_000).write.format("jobyard").mode("append")
    write = write.options(url=url, topic="kills.batch", txn=f"kills:{at}")
    try:
        write.save()
    except Exception as error:
        assert point.endswith("commit"), error
        write.save()
    assert os.path.exists(order + ".done"), point
    os.remove(order + ".done")
print("all done")
"""
STREAM = """
if more[0] != "none":
    kill(more[0])
read = spark.readStream.format("jobyard").options(url=url, topic="kills.from")
query = (
    read.option("startingOffsets", "earliest").load().select("value").writeStream.format("jobyard")
    .options(url=url, topic="kills.to").option("checkpointLocation", folder + "/checkpoint")
    .trigger(availableNow=True).start()
)
query.awaitTermination()
"""
ENQUEUE = """
if more[0] != "none":
    kill(more[0])
done = jobyard.spark.enqueue(rows(0, 12_000), "kills.jobs", run_id="kills", url=url)
print("enqueued", done.enqueued, done.duplicate, done.rejected)
"""


class Programs:
    """Runs programs in which something may be killed."""

    def __init__(self, yard: HttpYard, folder: Path) -> None:
        self._url = yard.url
        self._folder = folder
        (folder / "hook").mkdir()
        (folder / "hook" / "sitecustomize.py").write_text(HOOK)
        self.order = folder / "order"

    def run(self, body: str, *more: str) -> subprocess.CompletedProcess[str]:
        """Run a program to its end, whatever that is."""
        file = self._folder / "program.py"
        file.write_text(BEGIN + body)
        path = os.pathsep.join([str(self._folder / "hook"), os.environ.get("PYTHONPATH", "")])
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}
        return subprocess.run(
            [sys.executable, str(file), self._url, str(self.order), str(self._folder), *more],
            capture_output=True, text=True, timeout=RUN_S, check=False,
            env={**kept, "PYTHONPATH": path, "KILL_ORDER": str(self.order)},
        )  # fmt: skip

    def killed(self, body: str, point: str) -> None:
        """Run a program that is killed at a point."""
        done = self.run(body, f"program {point}")
        assert done.returncode == -signal.SIGKILL, done.stderr[-4000:]
        self.order.with_suffix(".done").unlink()

    def completed(self, body: str, *more: str) -> str:
        """Run a program to its proper end; return what it prints."""
        done = self.run(body, *more)
        assert done.returncode == 0, done.stderr[-4000:]
        return done.stdout


@pytest.fixture
def programs(yard: HttpYard, tmp_path: Path) -> Programs:
    return Programs(yard, tmp_path)


def ask(yard: HttpYard, method: str, path: str, body: object = None) -> Any:
    """Return an answer; a connection that waited for a program would have been closed."""
    topics = Topics(yard.address)
    status, answer = topics.ask(method, path, body)
    topics.close()
    assert status in (200, 201), answer
    return answer


def values(yard: HttpYard, topic: str) -> list[int]:
    return [int(row["value"]) for row in read_batch(yard.url, "value", topic=topic)]


def test_killed_python_workers_write_everything_once(programs: Programs, yard: HttpYard) -> None:
    ask(yard, "PUT", "/v0/topics/kills.batch", {})
    points = ["before stage", "after stage", "before commit", "after commit"]
    out = programs.completed(WORKERS, *(f"itself {point}" for point in points))
    assert "all done" in out
    assert sorted(values(yard, "kills.batch")) == list(range(ROWS * len(points)))


def test_a_stream_whose_driver_is_killed_writes_everything_once(
    programs: Programs, yard: HttpYard
) -> None:
    for name in ("kills.from", "kills.to"):
        ask(yard, "PUT", f"/v0/topics/{name}", {})
    count = 0
    for point in ("after stage", "before commit", "after commit", ""):
        records = [{"data": count + n} for n in range(6000)]
        ask(yard, "POST", "/v0/topics/kills.from", {"records": records})
        count += len(records)
        if point:
            programs.killed(STREAM, point)
        else:
            programs.completed(STREAM, "none")
    assert values(yard, "kills.to") == list(range(count))


def test_a_run_whose_driver_is_killed_is_enqueued_once(programs: Programs, yard: HttpYard) -> None:
    ask(yard, "PUT", "/v0/topics/kills.jobs", {"type": "queue"})
    programs.killed(ENQUEUE, "after commit")
    assert f"enqueued {ROWS} 0 0" in programs.completed(ENQUEUE, "none")
    assert ask(yard, "GET", "/v0/topics/kills.jobs")["count"] == ROWS
