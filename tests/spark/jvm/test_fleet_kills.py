"""A fleet whose processes are killed at named points: run again, every job was acked exactly once.

Programs of their own. A file names the victim and the point; the first process of the program that
gets there kills the victim: itself, the driver's Java, or the server.
"""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.support.clients.spark import read_batch
from tests.support.clients.spark_fleet import all_done_once, counts, make_queue
from tests.support.servers.http import HttpYard, Topics

# The start of a JVM on a machine with other things to do.
RUN_S = 600
JOBS = 300
# Loaded by every Python that the program starts, and by those that Spark starts for it.
HOOK = """
import os, signal
from jobyard.client.calls import YardClient

ORDER = os.environ["KILL_ORDER"]


def reach(point):
    try:
        with open(ORDER) as file:
            kind, victim, wanted = file.read().split(" ", 2)
        if wanted != point:
            return
        os.rename(ORDER, ORDER + ".done")
    except FileNotFoundError:
        return
    if kind == "driver":
        os.kill(int(os.environ["PROGRAM_PID"]), signal.SIGKILL)
    if kind != "itself":
        os.kill(int(victim), signal.SIGKILL)
    if kind != "server":
        # Whatever comes of it: nothing is done after the point.
        os.kill(os.getpid(), signal.SIGKILL)


def watched(call):
    def watching(self, method, path, *more, **named):
        verb = path.rpartition("/")[2]
        is_batch = "/txns/" in path and "begin%3A" not in path and "probe%3A" not in path
        name = "commit" if is_batch and verb == "commit" else verb if verb == "claim" else ""
        reach(f"before {name}")
        answer = call(self, method, path, *more, **named)
        reach(f"after {name}")
        return answer
    return watching


YardClient.send = watched(YardClient.send)
YardClient.ask = watched(YardClient.ask)
"""
PROGRAM = """
import os, sys
os.environ["PROGRAM_PID"] = str(os.getpid())
import jobyard.spark

url, order, folder, kind, victim, point = sys.argv[1:]
spark = jobyard.spark.session(**{
    "spark.master": "local[2,4]", "spark.ui.enabled": False, "spark.log.level": "ERROR",
})
if kind != "none":
    if kind == "driver":
        victim = spark._jvm.java.lang.ProcessHandle.current().pid()
    with open(order, "w") as file:
        file.write(f"{kind} {victim} {point}")


def call(job):
    if job.deliveries != 1:
        raise AssertionError("another delivery")
    with open(f"{folder}/worked", "a") as file:
        file.write(f"{job.seq}\\n")
    return job.seq


query = jobyard.spark.work(
    spark, "kills", "killed", call, url=url, batch=100, lease_ms=600_000, results="kills.out",
    trigger={"availableNow": True}, checkpoint=f"{folder}/checkpoint",
)
query.awaitTermination()
print("finished")
"""


def begin(
    url: str, folder: Path, kind: str = "none", victim: int = 0, point: str = ""
) -> "subprocess.Popen[str]":
    (folder / "hook").mkdir(exist_ok=True)
    (folder / "hook" / "sitecustomize.py").write_text(HOOK)
    path = os.pathsep.join([str(folder / "hook"), os.environ.get("PYTHONPATH", "")])
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}
    order = str(folder / "order")
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, url, order, str(folder), kind, str(victim), point],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**kept, "PYTHONPATH": path, "KILL_ORDER": order},
    )  # fmt: skip


def end(program: "subprocess.Popen[str]") -> tuple[str, str]:
    """Wait for the end of a program; return what it printed."""
    try:
        return program.communicate(timeout=RUN_S)
    finally:
        program.kill()


@pytest.mark.parametrize(
    ("points", "again"),
    [
        # The driver before the commit of the server, then between that and Spark's own note of it.
        ((("driver", "before commit"), ("driver", "after commit")), 100),
        # The driver after its claim, before Spark has noted the batch.
        ((("driver", "after claim"),), 0),
        # The process that commits; Spark then ends the query, which did or did not commit.
        ((("itself", "before commit"), ("itself", "after commit")), 100),
    ],
    ids=["driver", "claim", "committer"],
)
def test_a_fleet_that_was_killed_has_done_each_job_once(
    tmp_path: Path, points: tuple[tuple[str, str], ...], again: int
) -> None:
    yard = HttpYard("--data", str(tmp_path / "data"))
    topics = Topics(yard.address)
    make_queue(topics, "kills", JOBS)
    topics.ask("PUT", "/v0/topics/kills.out", {})
    topics.close()
    for kind, point in points:
        program = begin(yard.url, tmp_path, kind, 0, point)
        _, told = end(program)
        assert program.returncode != 0
        (tmp_path / "order.done").unlink()
    printed, told = end(begin(yard.url, tmp_path))
    assert printed.split() == ["finished"], told[-4000:]
    # The server has closed a connection that was quiet for so long.
    topics = Topics(yard.address)
    assert counts(topics, "kills") == (0, 0, 0)
    all_done_once(yard, "kills", JOBS)
    found = [int(row["value"]) for row in read_batch(yard.url, "value", topic="kills.out")]
    assert sorted(found) == list(range(1, JOBS + 1))
    worked = Counter((tmp_path / "worked").read_text().split())
    assert len(worked) == JOBS
    assert sum(worked.values()) == JOBS + again
    topics.close()
    yard.close()


def test_a_server_that_is_killed_and_comes_back_is_waited_for(tmp_path: Path) -> None:
    flags = ("--data", str(tmp_path / "data"))
    yard = HttpYard(*flags)
    topics = Topics(yard.address)
    make_queue(topics, "kills", JOBS)
    topics.ask("PUT", "/v0/topics/kills.out", {})
    topics.close()
    program = begin(yard.url, tmp_path, "server", yard.process.pid, "before commit")
    # The process that commits ends it.
    yard.process.child.wait(RUN_S)
    port = yard.address[1]
    yard.close()
    yard = HttpYard(*flags, "--http", f"127.0.0.1:{port}")
    printed, told = end(program)
    assert printed.split() == ["finished"], told[-4000:]
    all_done_once(yard, "kills", JOBS)
    assert len((tmp_path / "worked").read_text().split()) == JOBS, "no function ran again"
    yard.close()
