"""Stalls: how long a client at another door has to wait while one heavy command runs.

A pinger (`bench/clients/pinger.py`) sends trivial requests to the beanstalk door while each command
of `bench/heavy/commands.py` runs at another door, on a server that holds as much as we promise to
support. It reports the longest wait, and the most processor time of the server's loop that any ping
waited through: the turns that delayed it. The goal is on the second; the first includes the
machine.

A command above the goal is measured twice more, and the median counts: a virtual machine
pauses now and then, while the cost of a command is the same every time.
"""

import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.heavy.commands import HEAVY, Doors, Heavy
from bench.load import BenchError
from bench.run import Run, say
from bench.servers import Kind, Running

__all__ = ["SERVERS", "measure_stalls"]

SERVERS = ("jobyard-all-memory", "jobyard-all-durable")
ROUTERS = 1000
# Above this a command is measured again, this many times.
LONG_MS = 10.0
AGAIN = 2
ROOT = Path(__file__).parent.parent.parent


@contextmanager
def _pinger(server: Running) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.clients.pinger", str(server.port), str(server.pid)],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _tell(process: "subprocess.Popen[str]", word: str) -> dict[str, float]:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{word}\n")
    process.stdin.flush()
    line = process.stdout.readline()
    if not line:
        raise BenchError("the pinger ended")
    said: dict[str, float] = json.loads(line)
    return said


def measure_stalls(run: Run) -> None:
    """Run each heavy command on a fresh server."""
    for kind in run.kinds(SERVERS):
        found: list[float] = []
        for heavy in HEAVY:
            say(f"stalls {kind.name}, {heavy.name}")
            took = [_measure_one(run, kind, heavy)]
            if took[0] > LONG_MS:
                took += [_measure_one(run, kind, heavy) for _ in range(AGAIN)]
            found.append(statistics.median(took))
        run.figures.add(f"stalls.{kind.name}.most.cpu_ms", max(found))


def _measure_one(run: Run, kind: Kind, heavy: Heavy) -> float:
    settings = run.settings
    routers = ROUTERS if settings.jobs > ROUTERS * 100 else 20
    with run.stable.serving(kind) as server:
        doors = Doors(server.ports, settings.jobs, settings.tubes, routers)
        heavy.prepare(doors)
        with _pinger(server) as pinger:
            _tell(pinger, "begin")
            heavy.act(doors)
            found = _tell(pinger, "end")
    for name in ("cpu_ms", "wall_ms"):
        run.figures.add(f"stalls.{kind.name}.{heavy.name}.{name}", found[name])
    return found["cpu_ms"]
