"""redis-benchmark, the load generator of Redis: found, run with one command, and its table parsed.

Knows its flags and its CSV, not the commands it sends. It sends a number of requests, not for a
time, so the length of a run is the caller's estimate. It does not distinguish errors from other
answers: the caller must check the server for the jobs that were acknowledged.
"""

import shutil
import subprocess
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from bench.load import BenchError, LoadResult, Shape, run_generator
from bench.wrk import children_cpu_s, server_cpu_s

__all__ = ["RedisBenchmark", "find_redis_benchmark", "parse_table", "redis_benchmark_version"]

US_PER_MS: Final = 1000
MS_PER_S: Final = 1000.0


def parse_table(output: str, requests: int) -> LoadResult:
    """Parse the one row, which has no processor times; BenchError if there is none."""
    lines = [line for line in output.splitlines() if line.startswith('"')]
    try:
        titles, values = (line.strip('"').split('","') for line in lines)
        # The first cell is the command, unescaped, and may contain quotes.
        row = dict(zip(titles[1:], values[1 - len(titles) :], strict=True))
        # It measures whole milliseconds: the speed of a shorter run is "inf".
        speed = min(float(row["rps"]), requests * MS_PER_S)
        return LoadResult(
            seconds=requests / speed,
            operations=requests,
            errors=0,
            jobs_finished=0,
            ops_per_s=speed,
            p50_us=float(row["p50_latency_ms"]) * US_PER_MS,
            p99_us=float(row["p99_latency_ms"]) * US_PER_MS,
            max_us=float(row["max_latency_ms"]) * US_PER_MS,
            server_cpu_s=None,
            load_cpu_s=0.0,
        )
    except (ValueError, KeyError, ZeroDivisionError) as error:
        raise BenchError(f"unexpected output of redis-benchmark: {output!r}: {error!r}") from error


def find_redis_benchmark() -> Path | None:
    """Return a redis-benchmark that runs here, or None."""
    program = shutil.which("redis-benchmark")
    if program is None or redis_benchmark_version(Path(program)) is None:
        return None
    return Path(program)


def redis_benchmark_version(program: Path) -> str | None:
    """Return the version of redis-benchmark, or None if it does not run."""
    done = subprocess.run(
        [program, "--version"], capture_output=True, text=True, check=False, timeout=30
    )
    name, _, version = done.stdout.strip().partition(" ")
    return version if name == "redis-benchmark" else None


@dataclass(frozen=True)
class RedisBenchmark:
    """redis-benchmark, ready to run against a server."""

    program: Path
    cores: Collection[int] | None = None

    def run(
        self, port: int, pid: int, shape: Shape, requests: int, words: Sequence[str]
    ) -> LoadResult:
        """Send the same command this many times, over all connections together."""
        command = [str(self.program), "-h", "127.0.0.1", "-p", str(port), "--csv"]
        command += ["-c", str(shape.connections), "-P", str(shape.depth), "-n", str(requests)]
        server_before, load_before = server_cpu_s(pid), children_cpu_s()
        seen = parse_table(run_generator([*command, *words], self.cores), requests)
        server_s, load_s = server_cpu_s(pid) - server_before, children_cpu_s() - load_before
        return replace(seen, server_cpu_s=server_s, load_cpu_s=load_s)
