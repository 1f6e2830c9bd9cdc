"""redis-benchmark, the load generator of Redis: found, run with one command, and its table read.

Knows its flags and its CSV, not what is asked for. It sends a number of requests, not for a time,
so a run is as long as its caller guesses. It does not tell answers that are errors from others:
what was answered for has to be looked for in the server.
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


def parse_table(output: str, requests: int) -> LoadResult:
    """Read the one row, which tells no processor times; BenchError when there is none."""
    lines = [line for line in output.splitlines() if line.startswith('"')]
    try:
        titles, values = (line.strip('"').split('","') for line in lines)
        # The command stands in the first cell as it is, and may hold quotes of its own.
        row = dict(zip(titles[1:], values[1 - len(titles) :], strict=True))
        speed = float(row["rps"])
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
        raise BenchError(f"redis-benchmark said {output!r}: {error!r}") from error


def find_redis_benchmark() -> Path | None:
    """Return a redis-benchmark that runs here, or None."""
    program = shutil.which("redis-benchmark")
    if program is None or redis_benchmark_version(Path(program)) is None:
        return None
    return Path(program)


def redis_benchmark_version(program: Path) -> str | None:
    """Return which redis-benchmark this is, or None when it does not run."""
    done = subprocess.run(
        [program, "--version"], capture_output=True, text=True, check=False, timeout=30
    )
    name, _, version = done.stdout.strip().partition(" ")
    return version if name == "redis-benchmark" else None


@dataclass(frozen=True)
class RedisBenchmark:
    """redis-benchmark, ready to be pointed at a server."""

    program: Path
    cores: Collection[int] | None = None

    def run(
        self, port: int, pid: int, shape: Shape, requests: int, words: Sequence[str]
    ) -> LoadResult:
        """Send the same command so many times, over all connections together."""
        command = [str(self.program), "-h", "127.0.0.1", "-p", str(port), "--csv"]
        command += ["-c", str(shape.connections), "-P", str(shape.depth), "-n", str(requests)]
        server_before, load_before = server_cpu_s(pid), children_cpu_s()
        seen = parse_table(run_generator([*command, *words], self.cores), requests)
        server_s, load_s = server_cpu_s(pid) - server_before, children_cpu_s() - load_before
        return replace(seen, server_cpu_s=server_s, load_cpu_s=load_s)
