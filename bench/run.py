"""One run: its settings, and the measurements every scenario is made of.

Holds the settings, the available servers and the figures so far. A scenario decides what is
compared with what; how one server is measured is decided here, so all are measured alike.
"""

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field

from bench.clients.exports import Exports
from bench.figures import Figures
from bench.load import BenchError, Load, LoadResult, Shape
from bench.redis_benchmark import RedisBenchmark
from bench.servers import KINDS, Kind, Running, Stable
from bench.spark_worker import Spark
from bench.streams import Streams
from bench.wrk import Wrk

__all__ = ["Run", "Settings", "say"]

# Less urgent than the 1024 that cycles use: a reserve never takes one of these.
STANDING_PRIORITY = 100_000


@dataclass(frozen=True)
class Settings:
    """Durations and sizes."""

    rounds: int = 3
    seconds: float = 1.2
    warm_seconds: float = 0.3
    # Start-up costs: a new log still reserves and fills its space, new JavaScript is still
    # being compiled.
    warm_slow_seconds: float = 1.5
    jobs: int = 1_000_000
    jobs_few: int = 1_000
    tubes: int = 100_000
    tubes_few: int = 10
    topic_records: int = 100_000
    streams: int = 1_000
    stream_rate: int = 1_000
    # A percentile needs this long at so few jobs a second.
    stream_seconds: float = 5.0
    # Micro-batches in a row, some of which only warm up.
    triggers: int = 30
    # Rounds with Spark that do not count, while Java compiles what it runs.
    warm_rounds: int = 1


@dataclass
class Run:
    """Everything a scenario needs."""

    settings: Settings
    stable: Stable
    load: Load
    available: frozenset[str]
    wrk: Wrk | None = None
    streams: Streams | None = None
    redis_benchmark: RedisBenchmark | None = None
    spark: Spark | None = None
    exports: Exports = field(default_factory=Exports)
    figures: Figures = field(default_factory=Figures)
    notes: list[str] = field(default_factory=list)

    def kinds(self, names: Iterable[str]) -> list[Kind]:
        """Return those of the named servers that can run here, in the order given."""
        return [KINDS[name] for name in names if name in self.available]

    def note(self, text: str) -> None:
        """Add a note to the report, once."""
        if text not in self.notes:
            self.notes.append(text)
            say(text)

    def cycle(self, server: Running, shape: Shape, prefix: str) -> LoadResult:
        """Measure put, reserve, delete once and record it under `prefix`."""
        seconds, warm = self.settings.seconds, self.warm_seconds(server)
        result = self.load.cycle(
            server.port, server.pid, shape, seconds, warm, protocol=server.kind.door
        )
        self.note_result(prefix, result)
        return result

    def hop(self, server: Running, shape: Shape, tubes: int, prefix: str) -> LoadResult:
        """Measure the same over many tubes."""
        seconds, warm = self.settings.seconds, self.warm_seconds(server)
        result = self.load.hop(server.port, server.pid, shape, seconds, warm, tubes)
        self.note_result(prefix, result)
        return result

    def warm_seconds(self, server: Running) -> float:
        """Return how long a server runs before it is measured."""
        if server.kind.is_slow_to_warm:
            return self.settings.warm_slow_seconds
        return self.settings.warm_seconds

    def fill(
        self, server: Running, jobs: int, priority: int = STANDING_PRIORITY, tubes: int = 0
    ) -> LoadResult:
        """Leave `jobs` waiting jobs behind, and check that they are there."""
        before = server.ready_jobs()
        result = self.load.fill(server.port, server.pid, jobs, priority, tubes)
        found = server.ready_jobs() - before
        if found != jobs:
            raise BenchError(f"{found} jobs are waiting after {jobs} puts were answered")
        return result

    def note_result(self, prefix: str, result: LoadResult) -> None:
        """Record everything that one load measured."""
        if result.errors or not result.operations:
            raise BenchError(
                f"{prefix}: {result.errors} errors, {result.operations} operations: not recorded"
            )
        measures = {
            "ops_per_s": result.ops_per_s,
            "p50_us": result.p50_us,
            "p99_us": result.p99_us,
            "max_us": result.max_us,
            "load_core_share": result.load_core_share,
            "server_core_share": result.server_core_share,
            "server_us_per_op": result.server_us_per_op,
        }
        for measure, value in measures.items():
            if value is not None:
                self.figures.add(f"{prefix}.{measure}", value)


def say(text: str) -> None:
    """Print progress to stderr; the report itself goes to stdout."""
    print(text, file=sys.stderr, flush=True)
