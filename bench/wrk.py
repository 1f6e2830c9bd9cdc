"""wrk, the load generator for HTTP: found, run with one of our scripts, and its one line parsed.

Knows wrk's flags and the JSON line that bench/wrk/report.lua prints, not the requests. wrk
closes its connections with requests on the wire, so a server may have done a little more than is
counted here: at most one request of each connection.
"""

import json
import math
import resource
import shutil
import subprocess
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.load import HERE, BenchError, LoadResult, run_generator

__all__ = [
    "CONNECTIONS",
    "SCRIPTS",
    "Wrk",
    "WrkResult",
    "children_cpu_s",
    "find_wrk",
    "parse_wrk",
    "server_cpu_s",
    "wrk_version",
]

SCRIPTS: Final = HERE / "wrk"
CONNECTIONS: Final = 16
ANSWER_SECONDS_MAX: Final = 30


@dataclass(frozen=True)
class WrkResult:
    """The result of wrk; `records`, `refills` and wrong answers are counted by the script."""

    requests: int
    seconds: float
    errors: int
    records: int
    refills: int
    first_wrong: str
    p50_us: float
    p99_us: float
    max_us: float

    def load_result(self, server_cpu_s: float | None, load_cpu_s: float) -> LoadResult:
        """Return the same result in the form of other generators; an operation is a request."""
        return LoadResult(
            seconds=self.seconds,
            operations=self.requests,
            errors=self.errors,
            jobs_finished=self.records,
            ops_per_s=self.requests / self.seconds,
            p50_us=self.p50_us,
            p99_us=self.p99_us,
            max_us=self.max_us,
            server_cpu_s=server_cpu_s,
            load_cpu_s=load_cpu_s,
        )


def parse_wrk(output: str) -> WrkResult:
    """Parse the line below wrk's own table; BenchError if there is none."""
    lines = [line for line in output.splitlines() if line.startswith("{")]
    try:
        seen = json.loads(lines[-1])
        errors = ("status_errors", "socket_errors", "timeouts", "wrong")
        result = WrkResult(
            requests=int(seen["requests"]),
            seconds=float(seen["seconds"]),
            errors=sum(int(seen[name]) for name in errors),
            records=int(seen["records"]),
            refills=int(seen["refills"]),
            first_wrong=str(seen["first_wrong"]),
            p50_us=float(seen["p50_us"]),
            p99_us=float(seen["p99_us"]),
            max_us=float(seen["max_us"]),
        )
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise BenchError(f"unexpected output of wrk: {output!r}: {error!r}") from error
    if result.seconds <= 0:
        raise BenchError(f"wrk reported a duration of zero: {output!r}")
    return result


def find_wrk() -> Path | None:
    """Return a wrk that runs here, or None."""
    program = shutil.which("wrk")
    if program is None or wrk_version(Path(program)) is None:
        return None
    return Path(program)


def wrk_version(program: Path) -> str | None:
    """Return the version of wrk, or None if it does not run."""
    # With --version it also prints its usage, and exits with an error.
    done = subprocess.run([program, "-v"], capture_output=True, text=True, check=False, timeout=30)
    name, _, rest = done.stdout.partition(" ")
    return rest.split(" ", 1)[0] if name == "wrk" else None


@dataclass(frozen=True)
class Wrk:
    """wrk, ready to run against a server."""

    program: Path
    cores: Collection[int] | None = None

    def run(
        self, port: int, pid: int, script: str, words: list[str], seconds: float
    ) -> tuple[WrkResult, LoadResult]:
        """Run 16 connections for this many whole seconds; any error ends the run."""
        command = [str(self.program), "--threads", "1", "--connections", str(CONNECTIONS)]
        command += ["--duration", f"{max(1, math.ceil(seconds))}s"]
        command += ["--timeout", f"{ANSWER_SECONDS_MAX}s", "--script", str(SCRIPTS / script)]
        command += [f"http://127.0.0.1:{port}", "--", *words]
        server_before, load_before = server_cpu_s(pid), children_cpu_s()
        seen = parse_wrk(run_generator(command, self.cores))
        if seen.errors:
            raise BenchError(f"{script}: {seen.errors} answers were wrong: {seen.first_wrong}")
        load_s = children_cpu_s() - load_before
        return seen, seen.load_result(server_cpu_s(pid) - server_before, load_s)


def server_cpu_s(pid: int) -> float:
    """Return the processor time of a process, all its threads together."""
    # The clock id that clock_getcpuclockid returns, which Python does not offer.
    return time.clock_gettime((~pid << 3) | 2)


def children_cpu_s() -> float:
    """Return the processor time of all programs this one has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
