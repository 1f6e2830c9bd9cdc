"""Recovery: how long a killed server needs until it serves again, with a million jobs waiting.

The clock runs from the start of the process to its `ready` line (beanstalkd: to its first
answer), so it includes Python's own start, which is also measured alone, on empty data. After
every start all jobs must be there. Before a "cold" start the kernel is asked to drop the
files from its cache; the host of a virtual machine may still have them cached.
"""

import os
import shutil
from pathlib import Path

from bench.load import BenchError
from bench.run import Run, say
from bench.servers import Kind, Running

__all__ = ["SERVERS", "measure_recovery"]

SERVERS = ("jobyard-durable", "beanstalkd-unsynced")


def measure_recovery(run: Run) -> None:
    """Fill once, then kill and restart, warm and cold, round by round."""
    for kind in run.kinds(SERVERS):
        say(f"recovery {kind.name}, {run.settings.jobs:,} jobs")
        folder = run.stable.new_folder()
        try:
            _measure_starts(run, kind, folder)
        finally:
            shutil.rmtree(folder)


def _measure_starts(run: Run, kind: Kind, folder: Path) -> None:
    jobs = run.settings.jobs
    name = f"recovery.{kind.name}"
    run.figures.add(f"{name}.empty_start_seconds", _start_empty(run, kind))
    server = run.stable.start(kind, folder)
    try:
        run.fill(server, jobs)
        for _ in range(run.settings.rounds):
            server = _start_again(run, server, folder)
            seconds = server.ready_seconds
            run.figures.add(f"{name}.ready_seconds", seconds)
            run.figures.add(f"{name}.seconds_per_million", seconds * 1_000_000 / jobs)
            server.kill()
            forget_files(folder)
            server = _start_again(run, server, folder)
            run.figures.add(f"{name}.cold_ready_seconds", server.ready_seconds)
        line = server.log_line("recover")
        if line is not None:
            run.note(f"{kind.name} logs: {line}")
    finally:
        server.kill()


def _start_empty(run: Run, kind: Kind) -> float:
    with run.stable.serving(kind) as server:
        return server.ready_seconds


def _start_again(run: Run, server: Running, folder: Path) -> Running:
    server.kill()
    again = run.stable.start(server.kind, folder)
    found = again.ready_jobs()
    if found != run.settings.jobs:
        again.kill()
        raise BenchError(
            f"{server.kind.name}: {found} of {run.settings.jobs} jobs after kill and restart"
            f"{again.log_tail()}"
        )
    return again


def forget_files(folder: Path) -> None:
    """Ask the kernel to drop every file below `folder` from its page cache."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())  # only clean pages can be dropped
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
