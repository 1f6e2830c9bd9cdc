"""Exports: a log of a million records, and as many rows of job history, as Arrow streams.

A part of the HTTP scenario. One reader that only counts; the trailer must count every row that was
written. The history is that of jobs that were written, claimed and acked: three rows each.
Where no history is kept, as in memory, only the log is measured.
"""

from typing import Final

from bench.clients.exports import ExportResult
from bench.clients.topics import Topic
from bench.load import BenchError
from bench.run import Run, say
from bench.servers import Running

__all__ = ["EVENTS", "EXPORTS", "LOG", "measure_exports"]

LOG: Final = "export"
EVENTS: Final = "export-events"
EXPORTS: Final = (LOG, EVENTS)
HISTORY: Final = "/v0/topics/_events/export"
ROWS_OF_A_JOB: Final = 3


def measure_exports(run: Run, yards: tuple[str, ...]) -> None:
    """Measure exports for data tools; each server is filled once and read in every round."""
    rows = run.settings.jobs
    for kind in run.kinds(yards):
        say(f"http {kind.name}, export of {rows:,} rows")
        with run.stable.serving(kind) as server:
            _measure_log(run, server, rows)
        if kind.is_durable:
            with run.stable.serving(kind) as server:
                _measure_events(run, server, rows // ROWS_OF_A_JOB)


def _measure_log(run: Run, server: Running, rows: int) -> None:
    topic = Topic(server.port, "bench")
    topic.make(is_durable=server.kind.is_durable)
    topic.fill(rows)
    for _ in range(run.settings.rounds):
        seen = run.exports.run(server.port, server.pid, f"{topic.path}/export")
        _note(run, f"http.{server.kind.name}.{LOG}", rows, seen)


def _measure_events(run: Run, server: Running, jobs: int) -> None:
    topic = Topic(server.port, "bench")
    topic.make(is_queue=True, is_durable=True)
    topic.fill(jobs)
    topic.work_off(jobs)
    if not topic.has_history():
        run.note("NO HISTORY: the export of _events is not measured")
        return
    for _ in range(run.settings.rounds):
        seen = run.exports.run(server.port, server.pid, HISTORY)
        _note(run, f"http.{server.kind.name}.{EVENTS}", ROWS_OF_A_JOB * jobs, seen)


def _note(run: Run, prefix: str, rows: int, seen: ExportResult) -> None:
    if seen.rows != rows:
        raise BenchError(f"{prefix}: {rows} rows were written, {seen.rows} were exported")
    figures = run.figures
    figures.add(f"{prefix}.records_per_s", rows / seen.seconds)
    figures.add(f"{prefix}.bytes_per_record", seen.size / rows)
    figures.add(f"{prefix}.server_us_per_record", seen.server_cpu_s / rows * 1e6)
    figures.add(f"{prefix}.server_core_share", seen.server_cpu_s / seen.seconds)
    figures.add(f"{prefix}.load_core_share", seen.load_cpu_s / seen.seconds)
