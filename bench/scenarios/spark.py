"""Spark: topics read and written by Spark, compared with files, with plain programs, with itself.

One session measures everything; the first round warms up Java's compiler and counts for nothing.
Spark has all cores: two of its tasks need two, and where there are only two the server shares its
own with them. All rows are different bodies of 100 bytes.
"""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench.clients.topics import Topic
from bench.load import BenchError, Shape
from bench.run import Run, say
from bench.servers import Kind, Running
from bench.spark_worker import SparkWorker

__all__ = [
    "BESIDE",
    "DRAINED",
    "ENQUEUES",
    "PUTS",
    "READS",
    "SERVERS",
    "TRIGGERS",
    "YARD",
    "measure_spark",
]

YARD: Final = "jobyard-spark"
BESIDE: Final = "jobyard-all-durable"
SERVERS: Final = (YARD, BESIDE)
DRAINED: Final = "log-stream"
READS: Final = (
    *("log", "log-saved", "log-parquet", "log-pushed", DRAINED),
    *("events", "events-saved", "events-parquet", "events-three", "events-pushed"),
)
ENQUEUES: Final = ("enqueue-plain", "enqueue-direct", "enqueue-staged")
TRIGGERS: Final = ("trigger-rate", "trigger")
PUTS: Final = ("put", "put-beside-exports")
LOG: Final = "log"
HISTORY: Final = "_events"
QUEUES: Final = 100
ROWS_OF_A_JOB: Final = 3
TRIGGER_ROWS: Final = 10
EXPORTS_BESIDE: Final = 4
# A percentile needs more than the usual window.
PUT_SECONDS_FACTOR: Final = 3


def measure_spark(run: Run) -> None:
    """Measure reads, writes, micro-batches, and a client beside exports."""
    if run.spark is None:
        run.note("NO SPARK: build/spark is not there (make build/spark/ready), nothing measured")
        return
    folder = run.stable.new_folder()
    try:
        with run.spark.working(folder) as worker:
            for kind in run.kinds((YARD,)):
                bodies = folder / "bodies"
                worker.ask("make_bodies", path=str(bodies), rows=run.settings.jobs)
                bench = SparkBench(run, kind, worker, folder, bodies)
                bench.measure_reads()
                bench.measure_writes()
                bench.measure_triggers()
    finally:
        shutil.rmtree(folder)
    for kind in run.kinds((BESIDE,)):
        _measure_beside(run, kind)


@dataclass(frozen=True)
class Table:
    """A table as Spark is asked for it, and how many rows it must have."""

    format: str
    options: dict[str, str]
    rows: int
    schema: str = ""
    where: str = ""

    def asked(self) -> dict[str, object]:
        """Return it as an argument of the jobs that read."""
        return {
            "format": self.format, "options": self.options,
            "schema": self.schema, "where": self.where,
        }  # fmt: skip


@dataclass
class SparkBench:
    """What the measurements with Spark share."""

    run: Run
    kind: Kind
    worker: SparkWorker
    folder: Path
    # As Parquet.
    bodies: Path
    _checkpoints: int = field(default=0)

    def measure_reads(self) -> None:
        """Read one log and one history, in every way, round by round."""
        with self.run.stable.serving(self.kind) as server:
            say(f"spark {self.kind.name}, filling")
            events = _make_history(server, self.run.settings.jobs)
            self._make_log(server)
            tables = self._tables(server, events)
            self._keep(server, tables)
            for name, table in tables.items():
                self._check(name, table)
            for is_counted in self._rounds("reads"):
                for name, table in tables.items():
                    seconds = self.worker.ask("read", **table.asked())["seconds"]
                    if is_counted:
                        self._note(name, table.rows, seconds)
                self._drain(server, is_counted=is_counted)

    def measure_writes(self) -> None:
        """Write all bodies into a queue of a new server, by each way in turn."""
        path = str(self.bodies)
        for is_counted in self._rounds("writes"):
            for name in ENQUEUES:
                with self.run.stable.serving(self.kind) as server:
                    topic = _queue(server, "jobs")
                    if name == "enqueue-plain":
                        url = _url(server)
                        seen = self.worker.ask("plain_send", path=path, url=url, topic="jobs")
                    else:
                        commit = name.removeprefix("enqueue-")
                        options = _options(server, queue="jobs", commit=commit)
                        seen = self.worker.ask("write", path=path, options=options)
                    rows = self.run.settings.jobs
                    if topic.state().count != rows:
                        raise BenchError(f"{topic.state()} after {rows} rows were written")
                if is_counted:
                    self._note(name, rows, seen["seconds"])

    def measure_triggers(self) -> None:
        """Measure the time that a micro-batch of a few rows takes."""
        batches = self.run.settings.triggers
        with self.run.stable.serving(self.kind) as server:
            source, target = Topic(server.port, "source"), Topic(server.port, "target")
            for topic in (source, target):
                topic.make(is_durable=True)
            source.fill(batches * TRIGGER_ROWS)
            options = _options(
                server, topic="source", startingOffsets="earliest",
                maxOffsetsPerTrigger=str(TRIGGER_ROWS),
            )  # fmt: skip
            for is_counted in self._rounds("micro-batches"):
                before = target.state().count
                rate = self.worker.ask(
                    "rate_batches", rows=TRIGGER_ROWS, batches=batches,
                    checkpoint=self._checkpoint(),
                )  # fmt: skip
                own = self.worker.ask(
                    "micro_batches", options=options, target=_options(server, topic="target"),
                    checkpoint=self._checkpoint(),
                )  # fmt: skip
                moved = target.state().count - before
                if moved != batches * TRIGGER_ROWS or own["rows"] != TRIGGER_ROWS:
                    raise BenchError(f"{moved} rows came in batches of {own['rows']}")
                if is_counted:
                    for name, seen in zip(TRIGGERS, (rate, own), strict=True):
                        self.run.figures.add(f"spark.{self.kind.name}.{name}.ms", seen["ms"])

    def _rounds(self, what: str) -> Iterator[bool]:
        """Yield for each round whether it counts."""
        settings = self.run.settings
        for number in range(1 - settings.warm_rounds, settings.rounds + 1):
            say(f"spark {self.kind.name}, {what}, {f'round {number}' if number > 0 else 'warm-up'}")
            yield number > 0

    def _note(self, name: str, rows: int, seconds: float) -> None:
        prefix = f"spark.{self.kind.name}.{name}"
        self.run.figures.add(f"{prefix}.rows_per_s", rows / seconds)
        self.run.figures.add(f"{prefix}.seconds", seconds)

    def _make_log(self, server: Running) -> None:
        topic = Topic(server.port, LOG)
        topic.make(is_durable=True)
        options = _options(server, topic=LOG, commit="direct")
        self.worker.ask("write", path=str(self.bodies), options=options)

    def _tables(self, server: Running, events: int) -> dict[str, Table]:
        rows = self.run.settings.jobs
        log, history = _options(server, topic=LOG), _options(server, topic=HISTORY)
        pushing = {"pushdown": "true"}
        one = rows // 100
        middle = f"seq > {rows // 2} AND seq <= {rows // 2 + one}"
        three = "seq long, queue string, event string"
        return {
            "log": Table("jobyard", log, rows),
            "log-saved": Table("saved", {"folder": str(self.folder / "saved-log")}, rows),
            "log-parquet": Table("parquet", {"path": str(self.folder / "log")}, rows),
            "log-pushed": Table("jobyard", log | pushing, one, where=middle),
            "events": Table("jobyard", history, events),
            "events-saved": Table("saved", {"folder": str(self.folder / "saved-events")}, events),
            "events-parquet": Table("parquet", {"path": str(self.folder / "events")}, events),
            "events-three": Table("jobyard", history, events, schema=three),
            "events-pushed": Table(
                "jobyard", history | pushing, events // QUEUES, where="queue = 'q7'"
            ),
        }

    def _keep(self, server: Running, tables: dict[str, Table]) -> None:
        """Make files of the same rows: Parquet, and the bytes of the exports."""
        for name, topic in (("log", LOG), ("events", HISTORY)):
            path = tables[f"{name}-parquet"].options["path"]
            self.worker.ask("keep", path=path, **tables[name].asked())
            folder = tables[f"{name}-saved"].options["folder"]
            self.worker.ask("save_exports", url=_url(server), topic=topic, folder=folder)

    def _check(self, name: str, table: Table) -> None:
        seen = self.worker.ask("count", **table.asked())
        if (seen["rows"], seen["distinct"]) != (table.rows, table.rows):
            raise BenchError(f"{name}: {table.rows} rows were written, {seen} were read")

    def _drain(self, server: Running, *, is_counted: bool) -> None:
        rows = self.run.settings.jobs
        options = _options(
            server, topic=LOG, startingOffsets="earliest", maxOffsetsPerTrigger=str(rows // 4)
        )
        seen = self.worker.ask("drain", options=options, checkpoint=self._checkpoint())
        if seen["rows"] != rows or seen["batches"] != 4:
            raise BenchError(f"{DRAINED}: {rows} rows were written, {seen} were read")
        if is_counted:
            self._note(DRAINED, rows, seen["seconds"])
            around = f"spark.{self.kind.name}.{DRAINED}.around_seconds"
            self.run.figures.add(around, seen["around_seconds"])

    def _checkpoint(self) -> str:
        self._checkpoints += 1
        return str(self.folder / f"checkpoint-{self._checkpoints}")


def _url(server: Running) -> str:
    return f"http://127.0.0.1:{server.port}"


def _options(server: Running, **options: str) -> dict[str, str]:
    return {"url": _url(server), **options}


def _queue(server: Running, name: str) -> Topic:
    topic = Topic(server.port, name)
    topic.make(is_queue=True, is_durable=True)
    return topic


def _make_history(server: Running, rows: int) -> int:
    """Work off jobs of many queues; return how many rows of history they have."""
    jobs = rows // QUEUES // ROWS_OF_A_JOB
    for number in range(QUEUES):
        topic = _queue(server, f"q{number}")
        topic.fill(jobs)
        topic.work_off(jobs)
    return jobs * QUEUES * ROWS_OF_A_JOB


def _measure_beside(run: Run, kind: Kind) -> None:
    """Measure puts of one client without exports and beside four."""
    settings = run.settings
    with run.stable.serving(kind) as server:
        topic = Topic(server.ports["http"], LOG)
        topic.make()
        topic.fill(settings.jobs)
        seconds, warm = settings.seconds * PUT_SECONDS_FACTOR, settings.warm_slow_seconds
        for number in range(settings.rounds):
            say(f"spark {kind.name}, puts beside exports, round {number + 1}")
            for name in PUTS:
                beside = EXPORTS_BESIDE if name == "put-beside-exports" else 0
                with run.exports.reading(server.ports["http"], f"{topic.path}/export", beside):
                    result = run.load.put(server.port, server.pid, Shape(1, 1), seconds, warm)
                run.note_result(f"spark.{kind.name}.{name}", result)
