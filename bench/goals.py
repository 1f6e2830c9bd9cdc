"""Goals: the bounds the yard must keep, all in one table, and the verdict on each.

A goal is a bound on one figure, or on the ratio of two figures of the same run. A goal whose
figures were not measured (scenario not run, rival not installed) is neither met nor short.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from bench.figures import Figures

__all__ = ["GOALS", "Goal", "Verdict", "judge"]

MEMORY = "jobyard-memory"
DURABLE = "jobyard-durable"
RIVAL = "beanstalkd"
RIVAL_SYNCED = "beanstalkd-f0"
# The same yard at its bunqueue door, and the original server of that protocol.
BUNQUEUE_DOORS = {
    "memory": ("jobyard-bunqueue-memory", "bunqueue"),
    "durable": ("jobyard-bunqueue-durable", "bunqueue-sqlite"),
}
# The glide-mq door, compared with a Valkey whose functions do the same work.
GLIDEMQ_DOORS = {
    "memory": ("jobyard-glidemq-memory", "valkey"),
    "durable": ("jobyard-glidemq-durable", "valkey-always"),
}
# The HTTP door, which has no rival.
HTTP_MEMORY = "jobyard-http-memory"
HTTP_DURABLE = "jobyard-http-durable"
# The same door, with Spark at it.
SPARK = "spark.jobyard-spark"
SPARK_BESIDE = "spark.jobyard-all-durable"
SPEED = ".ops_per_s"
CPU_TIME = ".server_us_per_op"


@dataclass(frozen=True)
class Goal:
    """A bound on `figure`, or on its ratio to `against`."""

    title: str
    figure: str
    against: str | None = None
    at_least: float | None = None
    at_most: float | None = None
    unit: str = "x"

    def measured(self, figures: Figures) -> float | None:
        """Return the number that the bound applies to."""
        if self.against is None:
            return figures.median(self.figure)
        return figures.ratio(self.figure, self.against)

    def span(self, figures: Figures) -> tuple[float, float] | None:
        """Return the smallest and the largest number of any round."""
        if self.against is not None:
            return figures.ratio_span(self.figure, self.against)
        values = figures.rounds(self.figure)
        return (min(values), max(values)) if values else None

    def measured_by_cpu(self, figures: Figures) -> float | None:
        """Return the ratio by processor time per operation alone, for speed goals."""
        if self.against is None or not self.figure.endswith(SPEED):
            return None
        own, other = (name.removesuffix(SPEED) + CPU_TIME for name in (self.figure, self.against))
        return figures.ratio(other, own)

    def is_met_by(self, value: float) -> bool:
        """Return whether `value` keeps the bound; a value on the bound does."""
        if self.at_least is not None and value < self.at_least:
            return False
        return self.at_most is None or value <= self.at_most

    def bound(self) -> str:
        """Return the bound as text."""
        if self.at_least is not None:
            return f">= {self.at_least:,.10g} {self.unit}"
        return f"<= {self.at_most:,.10g} {self.unit}"


@dataclass(frozen=True)
class Verdict:
    """The result for one goal."""

    goal: Goal
    measured: float | None
    span: tuple[float, float] | None
    by_cpu: float | None

    @property
    def word(self) -> str:
        """Return met, short or not measured."""
        if self.measured is None:
            return "not measured"
        return "met" if self.goal.is_met_by(self.measured) else "short"


def _speed(server: str, shape: str, rival: str, at_least: float) -> Goal:
    mode = server.removeprefix("jobyard-")
    rival_mode = "-b -f0" if rival == RIVAL_SYNCED else "memory"
    return Goal(
        title=f"{mode} {shape} : beanstalkd {rival_mode}",
        figure=f"throughput.{server}.{shape}{SPEED}",
        against=f"throughput.{rival}.{shape}{SPEED}",
        at_least=at_least,
    )


def _bunqueue(mode: str, bounds: dict[str, float]) -> Iterator[Goal]:
    server, rival = BUNQUEUE_DOORS[mode]
    rival_mode = "SQLite" if mode == "durable" else "memory"
    for shape, at_least in bounds.items():
        yield Goal(
            title=f"bunqueue door, {mode} {shape} : bunqueue {rival_mode}",
            figure=f"bunqueue.{server}.{shape}{SPEED}",
            against=f"bunqueue.{rival}.{shape}{SPEED}",
            at_least=at_least,
        )


def _glidemq(mode: str, bounds: dict[str, float]) -> Iterator[Goal]:
    server, rival = GLIDEMQ_DOORS[mode]
    rival_mode = "appendfsync always" if mode == "durable" else "memory"
    for shape, at_least in bounds.items():
        yield Goal(
            title=f"glide-mq door, {mode}, addJob {shape} : Valkey {rival_mode}",
            figure=f"glidemq.{server}.add-{shape}{SPEED}",
            against=f"glidemq.{rival}.add-{shape}{SPEED}",
            at_least=at_least,
        )


def _http(what: str, server: str, load: str, at_least: float) -> Goal:
    return Goal(
        title=f"HTTP door, {server.removeprefix('jobyard-http-')}, {what}",
        figure=f"http.{server}.{load}.records_per_s",
        at_least=at_least,
        unit="records/s",
    )


def _streams(server: str) -> Goal:
    return Goal(
        title=f"HTTP door, {server.removeprefix('jobyard-http-')}, p99 to one of 1,000 streams",
        figure=f"http.{server}.streams.p99_us",
        at_most=20_000,
        unit="us",
    )


def _spark(title: str, own: str, other: str, at_least: float) -> Goal:
    return Goal(
        title=f"Spark, {title}",
        figure=f"{SPARK}.{own}.rows_per_s",
        against=f"{SPARK}.{other}.rows_per_s",
        at_least=at_least,
    )


def _spark_time(title: str, own: str, other: str, at_most: float) -> Goal:
    return Goal(
        title=f"Spark, {title}",
        figure=f"{SPARK}.{own}",
        against=f"{SPARK}.{other}",
        at_most=at_most,
    )


def _growth(title: str, few: str, many: str, bounds: dict[str, float]) -> Iterator[Goal]:
    for server in (MEMORY, DURABLE):
        for shape, at_least in bounds.items():
            yield Goal(
                title=f"{server.removeprefix('jobyard-')} {shape}, {title}",
                figure=f"growth.{server}.{many}.{shape}{SPEED}",
                against=f"growth.{server}.{few}.{shape}{SPEED}",
                at_least=at_least,
            )


GOALS: tuple[Goal, ...] = (
    _speed(MEMORY, "1x1", RIVAL, 0.9),
    _speed(MEMORY, "16x1", RIVAL, 1.1),
    _speed(MEMORY, "64x1", RIVAL, 1.15),
    _speed(MEMORY, "256x1", RIVAL, 1.15),
    _speed(MEMORY, "4x64", RIVAL, 10),
    _speed(DURABLE, "1x1", RIVAL_SYNCED, 0.8),
    _speed(DURABLE, "16x1", RIVAL_SYNCED, 3.5),
    _speed(DURABLE, "64x1", RIVAL_SYNCED, 6),
    _speed(DURABLE, "4x64", RIVAL_SYNCED, 40),
    _speed(DURABLE, "256x1", RIVAL, 1.0),
    _speed(DURABLE, "4x64", RIVAL, 4),
    *_bunqueue("memory", {"1x1": 1.1, "16x1": 3.5, "64x1": 3, "4x50": 15}),
    *_bunqueue("durable", {"1x1": 2, "16x1": 7, "64x1": 12, "4x50": 50}),
    *_glidemq("memory", {"16x1": 1.5, "16x32": 2.5}),
    *_glidemq("durable", {"16x1": 1.5, "16x32": 2.5}),
    _http("writes of one record", HTTP_MEMORY, "write", 60_000),
    _http("writes of one record", HTTP_DURABLE, "write", 15_000),
    _http("writes of 100 records", HTTP_DURABLE, "write100", 300_000),
    _http("diff of 1,000 records", HTTP_MEMORY, "diff1000", 1_000_000),
    _http("diff of 1,000 records", HTTP_DURABLE, "diff1000", 1_000_000),
    _http("export of a log", HTTP_MEMORY, "export", 1_000_000),
    _http("export of a log", HTTP_DURABLE, "export", 1_000_000),
    _http("export of _events", HTTP_DURABLE, "export-events", 1_000_000),
    _streams(HTTP_MEMORY),
    _streams(HTTP_DURABLE),
    Goal(
        title="server CPU per operation, memory 64x1 : bare echo",
        figure=f"floor.{MEMORY}.64x1{CPU_TIME}",
        against=f"floor.echo.64x1{CPU_TIME}",
        at_most=1.25,
    ),
    *(
        Goal(
            title=f"{server.removeprefix('jobyard-all-')}, most processor time others wait through",
            figure=f"stalls.{server}.most.cpu_ms",
            at_most=10,
            unit="ms",
        )
        for server in ("jobyard-all-memory", "jobyard-all-durable")
    ),
    Goal(
        title="RSS per waiting 100-byte job, memory",
        figure=f"memory.{MEMORY}.bytes_per_job",
        at_most=450,
        unit="B",
    ),
    Goal(
        title="RSS per waiting 100-byte job, durable",
        figure=f"memory.{DURABLE}.bytes_per_job",
        at_most=450,
        unit="B",
    ),
    Goal(
        title="recovery of a million jobs, exec to ready",
        figure=f"recovery.{DURABLE}.seconds_per_million",
        at_most=1.0,
        unit="s",
    ),
    *_growth("waiting jobs of another priority", "few", "other", {"64x1": 0.8, "4x64": 0.7}),
    *_growth("waiting jobs of the same priority", "few", "same", {"64x1": 0.8, "4x64": 0.7}),
    *_growth("many tubes", "tubes-few", "tubes-many", {"64x1": 0.8, "4x64": 0.4}),
    _spark("log : the same export from files", "log", "log-saved", 0.85),
    _spark("log : Parquet", "log", "log-parquet", 0.5),
    _spark("_events : Parquet", "events", "events-parquet", 0.6),
    _spark("three columns of _events : all", "events-three", "events", 1.3),
    _spark_time("time for 1 % of the seqs : all", "log-pushed.seconds", "log.seconds", 0.25),
    _spark_time("time for one queue of 100 : all", "events-pushed.seconds", "events.seconds", 0.25),
    _spark("stream in four batches : batch", "log-stream", "log", 0.5),
    _spark("direct enqueue : two plain programs", "enqueue-direct", "enqueue-plain", 0.6),
    _spark("staged enqueue : direct", "enqueue-staged", "enqueue-direct", 0.6),
    _spark_time("micro-batch of 10 rows : Spark's own rows", "trigger.ms", "trigger-rate.ms", 4),
    Goal(
        title="p99 of a durable put while four exports run : without",
        figure=f"{SPARK_BESIDE}.put-beside-exports.p99_us",
        against=f"{SPARK_BESIDE}.put.p99_us",
        at_most=3,
    ),
)


def judge(figures: Figures, goals: Iterable[Goal] = GOALS) -> list[Verdict]:
    """Compare every goal with the measured figures."""
    return [
        Verdict(goal, goal.measured(figures), goal.span(figures), goal.measured_by_cpu(figures))
        for goal in goals
    ]
