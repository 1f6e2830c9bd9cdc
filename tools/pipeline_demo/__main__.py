"""The tour: from jobs of four protocols to tables, a fleet, an archive and a report.

Leaves its files in one folder, and nothing running. Says what each step did and how long it took.
"""

import argparse
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from jobyard.client import YardClient
from jobyard.lake import open_lake
from jobyard.lake.archive import archive, verify
from jobyard.lake.report import report, summary
from jobyard.spark import Job, pipeline, session, work
from jobyard.spark.letters import dlq, redrive
from tools.pipeline_demo.producers import (
    Address,
    Beanstalk,
    Bunqueue,
    GlideMq,
    Producer,
    Topics,
)

JOBS: Final = 50_000
FLEET_QUEUE: Final = "exports"
FLEET_JOBS: Final = 2_000
_DOORS: Final = ("beanstalk", "bunqueue", "glidemq", "http")
_START_S: Final = 60
# A folder with this file may be removed by the next tour.
_MARK: Final = ".jobyard-tour"
_FLEET_S: Final = 90
_CONF: Final = {
    "spark.master": "local[*]",
    "spark.ui.enabled": False,
    "spark.ui.showConsoleProgress": False,
    "spark.log.level": "ERROR",
}


def say(text: str) -> None:
    """Print a line at once."""
    print(text, flush=True)


@contextmanager
def step(name: str) -> Iterator[None]:
    """Say what is done, and how long it took."""
    begun_s = time.monotonic()
    say(f"- {name} ...")
    yield
    say(f"  {time.monotonic() - begun_s:.1f} s")


@contextmanager
def served(folder: Path) -> Iterator[dict[str, Address]]:
    """Run a server on free ports, and end it."""
    flags = [flag for door in _DOORS for flag in (f"--{door}", "127.0.0.1:0")]
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "jobyard", "serve", "--data", str(folder / "data"), *flags],
            stdout=subprocess.PIPE, stderr=log, text=True,
        )  # fmt: skip
    try:
        assert process.stdout is not None
        ready = process.stdout.readline()
        if not ready.startswith("ready "):
            raise SystemExit(f"the server did not start: see {folder / 'server.log'}")
        places = dict(word.split("=", 1) for word in ready.split()[1:])
        found = {}
        for door in _DOORS:
            host, _, port = places[door].rpartition(":")
            found[door] = (host, int(port))
        yield found
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_START_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def produce(doors: dict[str, Address], count: int, seed: int) -> int:
    """Put jobs through four protocols at once, and work them off; return how many runs ended."""
    topics = Topics(doors["http"], seed + 3)
    topics.make("orders")
    crew: list[tuple[str, Producer]] = [
        ("mails", Beanstalk(doors["beanstalk"], seed)),
        ("images", Bunqueue(doors["http"], seed + 1)),
        ("invoices", GlideMq(doors["glidemq"], seed + 2)),
        ("orders", topics),
    ]
    ended = [0] * len(crew)
    errors: list[BaseException] = []

    def one(place: int, queue: str, producer: Producer) -> None:
        try:
            producer.put(queue, count // len(crew))
            until_s = time.monotonic() + 3
            # Delayed jobs and those that are tried again come later.
            while time.monotonic() < until_s:
                if done := producer.work_off(queue):
                    ended[place] += done
                    until_s = time.monotonic() + 3
                time.sleep(0.2)
        except (OSError, RuntimeError, LookupError, ValueError, HTTPException) as error:
            errors.append(error)

    threads = [threading.Thread(target=one, args=(place, *each)) for place, each in enumerate(crew)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return sum(ended)


def export(job: Job) -> object:
    """Work on a job of the fleet; every fiftieth fails."""
    data: Any = job.json()
    if data["order"] % 50 == 0:
        raise ValueError(f"order {data['order']} is empty")
    return {"exported": data["order"]}


def run_fleet(spark: SparkSession, url: str, doors: dict[str, Address], folder: Path) -> None:
    """Let Spark work on a queue for a moment."""
    topics = Topics(doors["http"], 99)
    topics.make(FLEET_QUEUE)
    topics.put(FLEET_QUEUE, FLEET_JOBS)
    query = work(
        spark, FLEET_QUEUE, "exporter", export, url=url, batch=1000,
        checkpoint=str(folder / "checkpoint"),
    )  # fmt: skip
    until_s = time.monotonic() + _FLEET_S
    try:
        with YardClient(url) as client:
            while time.monotonic() < until_s:
                counts: Any = client.get(f"/v0/topics/{FLEET_QUEUE}").fields["queue"]
                if counts["ready"] + counts["in_flight"] == 0:
                    return
                time.sleep(0.2)
        raise SystemExit(f"the fleet was not done after {_FLEET_S} s")
    finally:
        query.stop()


def tour(folder: Path, jobs: int) -> None:
    """Do everything once."""
    lake, files = folder / "lake", folder / "archive"
    begun_s = time.monotonic()
    with served(folder) as doors:
        url = f"http://{doors['http'][0]}:{doors['http'][1]}"
        with step(f"{jobs // 2:,} jobs through four protocols"):
            say(f"  {produce(doors, jobs // 2, 1):,} runs ended")
        with step("Spark starts"):
            spark = session("jobyard-tour", **_CONF)
        try:
            with step("the pipeline, first run"):
                say(f"  {pipeline.run(spark, url=url, lake=lake).rows:,} events")
            with step(f"{jobs // 2:,} more jobs"):
                say(f"  {produce(doors, jobs // 2, 5):,} runs ended")
            with step(f"a fleet works on {FLEET_JOBS:,} jobs"):
                run_fleet(spark, url, doors, folder)
            with step("dead letters go back"):
                letters = dlq(spark, "orders", url=url).cache()
                done = redrive(letters, where="error_class = 'TimeoutError'", url=url)
                say(f"  {done.moved} of {letters.count()} dead letters were moved")
            with step("the pipeline, second run"):
                say(f"  {pipeline.run(spark, url=url, lake=lake).rows:,} events")
        finally:
            spark.stop()
        with step("the history is archived and read back"), YardClient(url) as client:
            archived = archive(client, "_events", files)
            verify(files)
            say(f"  {archived.rows:,} events in {archived.files} files")
    with step("the report"):
        opened = open_lake(lake)
        path = report(opened, out=folder / "report.html")
        say(summary(opened))
    say(f"\nall of it took {time.monotonic() - begun_s:.0f} s")
    say(f"report:  {path}\ntables:  {lake}\narchive: {files}")


def main() -> None:
    """Parse the command line and begin."""
    parser = argparse.ArgumentParser(prog="pipeline", description=__doc__)
    parser.add_argument(
        "--folder", type=Path, default=Path("build/pipeline"), help="where its files lie afterwards"
    )
    parser.add_argument("--jobs", type=int, default=JOBS, help="how many jobs are put")
    asked = parser.parse_args()
    folder: Path = asked.folder.absolute()
    if folder.exists() and any(folder.iterdir()):
        if not (folder / _MARK).exists():
            raise SystemExit(f"{folder} is not empty, and not of an earlier tour: name another one")
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _MARK).touch()
    tour(folder, asked.jobs)


if __name__ == "__main__":
    main()
