"""The load generator: compiled from C if its source is newer, run, and its one line parsed.

Knows the generator's flags and its JSON, not which server answers. A result with errors
is rejected: servers that refuse work are fast. How a generator is compiled and run is the same for
all of them, and is here.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "HERE",
    "BenchError",
    "Load",
    "LoadResult",
    "Shape",
    "compile_load",
    "compile_program",
    "parse_result",
    "run_generator",
]

HERE = Path(__file__).parent
# Files that all generators share, and those of this one.
SHARED = tuple(HERE / name for name in ("generator.c", "generator.h", "latency.h"))
FILES = tuple(
    HERE / name for name in ("load.c", "load.h", "beanstalk.c", "bunqueue.c", "glidemq.c")
)
# The generator itself detects a server that stalls; this limit is for a generator that stalls.
LOAD_SECONDS_MAX = 300


class BenchError(Exception):
    """The run cannot continue, or its figures would be worthless."""


@dataclass(frozen=True)
class Shape:
    """How many connections, and how many requests each keeps on the wire.

    A bundle is the number of jobs in one request; owned jobs are taken under a lock and finished
    with its token. Beanstalk has neither.
    """

    connections: int
    depth: int
    bundle: int = 1
    is_owned: bool = False

    def __str__(self) -> str:
        bundle = f"x{self.bundle}" if self.bundle > 1 else ""
        return f"{self.connections}x{self.depth}{bundle}{'-owned' if self.is_owned else ''}"


@dataclass(frozen=True)
class LoadResult:
    """What the generator measured in its window; jobs are counted from its start."""

    seconds: float
    operations: int
    errors: int
    jobs_finished: int
    ops_per_s: float
    p50_us: float
    p99_us: float
    max_us: float
    server_cpu_s: float | None
    load_cpu_s: float

    @property
    def server_us_per_op(self) -> float | None:
        """Return the server's processor time per operation, all its threads together."""
        if self.server_cpu_s is None or self.operations == 0:
            return None
        return self.server_cpu_s / self.operations * 1e6

    @property
    def server_core_share(self) -> float | None:
        """Return the part of one core the server used; above 1 with several threads."""
        return None if self.server_cpu_s is None else self.server_cpu_s / self.seconds

    @property
    def load_core_share(self) -> float:
        """Return the part of one core the generator used; near 1 means it was the limit."""
        return self.load_cpu_s / self.seconds


def parse_result(line: str) -> LoadResult:
    """Parse the generator's JSON line; BenchError if it is invalid."""
    try:
        seen = json.loads(line)
        return LoadResult(
            seconds=float(seen["seconds"]),
            operations=int(seen["operations"]),
            errors=int(seen["errors"]),
            jobs_finished=int(seen["jobs_finished"]),
            ops_per_s=float(seen["ops_per_s"]),
            p50_us=float(seen["p50_us"]),
            p99_us=float(seen["p99_us"]),
            max_us=float(seen["max_us"]),
            server_cpu_s=None if seen["server_cpu_s"] is None else float(seen["server_cpu_s"]),
            load_cpu_s=float(seen["load_cpu_s"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise BenchError(f"unexpected output of load: {line!r}: {error!r}") from error


def compile_load(folder: Path) -> Path:
    """Return the generator's program in `folder`, recompiled if its source changed."""
    return compile_program(folder / "load", FILES)


def compile_program(program: Path, files: Sequence[Path]) -> Path:
    """Return `program`, recompiled if one of its files, or of the shared ones, is newer."""
    newest = max(file.stat().st_mtime for file in (*files, *SHARED))
    if program.exists() and program.stat().st_mtime >= newest:
        return program
    compiler = shutil.which("cc")
    if compiler is None:
        raise BenchError("no C compiler (cc): the load generator cannot be built")
    program.parent.mkdir(parents=True, exist_ok=True)
    fresh = program.with_name(f"{program.name}.{os.getpid()}")  # two runs may compile at once
    sources = [str(file) for file in (*files, *SHARED) if file.suffix == ".c"]
    command = [compiler, "-O2", "-Wall", "-Wextra", "-o", str(fresh), *sources]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(f"the load generator does not compile:\n{done.stderr}")
    fresh.replace(program)
    return program


def run_generator(command: list[str], cores: Collection[int] | None) -> str:
    """Run a generator on cores of its own; return its output."""
    name = Path(command[0]).name
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        if cores:
            os.sched_setaffinity(process.pid, cores)
        output, complaint = process.communicate(timeout=LOAD_SECONDS_MAX)
    finally:
        process.kill()
        process.wait()
    if process.returncode != 0:
        raise BenchError(f"{name} failed: {complaint.strip() or output.strip()}")
    return output


@dataclass(frozen=True)
class Load:
    """The generator, ready to run against a server."""

    program: Path
    cores: Collection[int] | None = None

    def cycle(
        self,
        port: int,
        pid: int,
        shape: Shape,
        seconds: float,
        warm_seconds: float,
        protocol: str = "beanstalk",
    ) -> LoadResult:
        """Put, reserve, delete in one tube; in other protocols the equivalent commands."""
        flags = ["--protocol", protocol, *self._window(seconds, warm_seconds)]
        return self._run(port, pid, shape, flags)

    def hop(
        self, port: int, pid: int, shape: Shape, seconds: float, warm_seconds: float, tubes: int
    ) -> LoadResult:
        """Put, reserve, delete, each job in the next of `tubes` tubes."""
        flags = ["--work", "hop", "--tubes", str(tubes)]
        return self._run(port, pid, shape, flags + self._window(seconds, warm_seconds))

    def put(
        self, port: int, pid: int, shape: Shape, seconds: float, warm_seconds: float
    ) -> LoadResult:
        """Put jobs for a time, and leave them there."""
        flags = ["--work", "put", *self._window(seconds, warm_seconds)]
        return self._run(port, pid, shape, flags)

    def fill(self, port: int, pid: int, jobs: int, priority: int, tubes: int = 0) -> LoadResult:
        """Put `jobs` jobs and leave them there, in one tube or distributed over `tubes`."""
        flags = ["--work", "put", "--warm", "0", "--jobs", str(jobs)]
        flags += ["--priority", str(priority), "--tubes", str(tubes)]
        return self._run(port, pid, Shape(4, 64), flags)

    @staticmethod
    def _window(seconds: float, warm_seconds: float) -> list[str]:
        return ["--seconds", str(seconds), "--warm", str(warm_seconds)]

    def _run(self, port: int, pid: int, shape: Shape, flags: list[str]) -> LoadResult:
        command = [str(self.program), "--port", str(port), "--server-pid", str(pid)]
        command += ["--connections", str(shape.connections), "--depth", str(shape.depth)]
        command += ["--bundle", str(shape.bundle), *(["--owner"] if shape.is_owned else []), *flags]
        return parse_result(run_generator(command, self.cores))
