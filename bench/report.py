"""The report: figures and verdicts as aligned text, and the same as one JSON document.

Turns numbers into text and decides nothing. A line of the report can be recomputed from the JSON.
"""

import json
from collections.abc import Sequence
from pathlib import Path

from bench.figures import Figures
from bench.goals import Verdict
from bench.heavy.commands import HEAVY
from bench.load import Shape
from bench.machine import machine_slug
from bench.scenarios import (
    bunqueue,
    exports,
    floor,
    glidemq,
    growth,
    http,
    memory,
    recovery,
    spark,
    stalls,
    throughput,
)

__all__ = ["document", "render", "table", "write_document"]

# From here on a core counts as fully used; the scheduler takes the rest.
FULL_CORE_SHARE = 0.97

# The unit occurs twice: an operation, or a job from its first to its last command.
LOAD_TITLES = (
    "server", "shape", "{0}s/s", "least-most", "CPU us/{0}", "server core", "load core", "p50 us",
    "p99 us", "max us", "limit",
)  # fmt: skip


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Align `rows` under `titles`: the first column to the left, the others to the right."""
    widths = [max(len(row[i]) for row in (titles, *rows)) for i in range(len(titles))]
    lines = [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in (titles, ["-" * width for width in widths], *rows)
    ]
    return "\n".join(lines)


def render(
    facts: dict[str, object], figures: Figures, verdicts: list[Verdict], notes: list[str]
) -> str:
    """Return the whole report as text for a terminal."""
    parts = ["machine: " + ", ".join(f"{name} {value}" for name, value in facts.items())]
    parts += [_throughput(figures), _bunqueue(figures), _bunqueue_bundles(figures)]
    parts += [_glidemq_adds(figures), _glidemq_cycles(figures)]
    parts += [_http_loads(figures), _http_floor(figures), _http_streams(figures)]
    parts += [_http_exports(figures), _http_logs(figures)]
    parts += [_floor(figures), _memory(figures), _recovery(figures)]
    parts += [_growth(figures), _stalls(figures)]
    parts += [_spark(figures), _spark_triggers(figures), _spark_puts(figures)]
    parts += [_verdicts(verdicts)]
    parts += [f"note: {note}" for note in notes]
    return "\n\n".join(part for part in parts if part) + "\n"


def document(
    facts: dict[str, object],
    settings: dict[str, object],
    figures: Figures,
    verdicts: list[Verdict],
    notes: list[str],
) -> dict[str, object]:
    """Return all results of the run as plain values."""
    return {
        "machine": facts,
        "settings": settings,
        "figures": {
            name: {"median": figures.median(name), "rounds": figures.rounds(name)}
            for name in figures.names()
        },
        "goals": [
            {
                "goal": verdict.goal.title,
                "bound": verdict.goal.bound(),
                "measured": verdict.measured,
                "rounds": verdict.span,
                "by_cpu": verdict.by_cpu,
                "verdict": verdict.word,
            }
            for verdict in verdicts
        ],
        "notes": notes,
    }


def write_document(
    found: dict[str, object], facts: dict[str, object], folder: Path, date: str
) -> Path:
    """Write the document as `<date>-<commit>-<machine>.json`; return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{date}-{facts['commit']}-{machine_slug(facts)}.json"
    path.write_text(json.dumps(found, indent=1) + "\n")
    return path


def _load_row(
    figures: Figures, prefix: str, server: str, shape: Shape | str, counted: str = "op"
) -> list[str] | None:
    """Return one row of LOAD_TITLES, None if it was not measured."""
    speed, cost = f"{counted}s_per_s", f"server_us_per_{counted}"
    speeds = figures.rounds(f"{prefix}.{speed}")
    if not speeds:
        return None
    seen = {name: figures.median(f"{prefix}.{name}") for name in (
        speed, cost, "server_core_share", "load_core_share", "p50_us", "p99_us", "max_us",
    )}  # fmt: skip
    return [
        server,
        str(shape),
        _number(seen[speed]),
        f"{min(speeds):,.0f}-{max(speeds):,.0f}",
        _number(seen[cost], 2),
        _percent(seen["server_core_share"]),
        _percent(seen["load_core_share"]),
        _number(seen["p50_us"]),
        _number(seen["p99_us"]),
        _number(seen["max_us"]),
        limit_of(seen["server_core_share"], seen["load_core_share"]),
    ]


def limit_of(server_share: float | None, load_share: float | None) -> str:
    """Name what limited the rate: a figure limited by the load is not the server's."""
    if server_share is not None and server_share >= FULL_CORE_SHARE:
        return "server"
    if load_share is not None and load_share >= FULL_CORE_SHARE:
        return "LOAD"
    return "waiting"


def _load_table(title: str, rows: Sequence[list[str] | None], counted: str = "op") -> str:
    measured = [row for row in rows if row is not None]
    titles = [word.format(counted) for word in LOAD_TITLES]
    return f"{title}\n{table(titles, measured)}" if measured else ""


def _throughput(figures: Figures) -> str:
    return _load_table(
        "throughput: put, reserve, delete of 100-byte jobs, connections x pipelined requests",
        [
            _load_row(figures, f"throughput.{server}.{shape}", server, shape)
            for shape in throughput.SHAPES
            for server in throughput.SERVERS
        ],
    )


def _bunqueue(figures: Figures) -> str:
    return _load_table(
        "bunqueue: PUSH, PULL, ACK of 100-byte jobs; owned: with owner and token",
        [
            _load_row(figures, f"bunqueue.{server}.{shape}", server, shape)
            for shape in bunqueue.SHAPES
            for server in bunqueue.SERVERS
        ],
    )


def _bunqueue_bundles(figures: Figures) -> str:
    return _load_table(
        "bunqueue: PUSHB, PULLB, ACKB, connections x pipelined requests x jobs per request",
        [
            _load_row(figures, f"bunqueue.{server}.{shape}", server, shape, counted="job")
            for shape in bunqueue.BUNDLES
            for server in bunqueue.SERVERS
        ],
        counted="job",
    )


def _glidemq_adds(figures: Figures) -> str:
    return _load_table(
        "glidemq: FCALL glidemq_addJob of 100-byte jobs, sent by redis-benchmark",
        [
            _load_row(figures, f"glidemq.{server}.add-{shape}", server, shape)
            for shape in glidemq.SHAPES
            for server in glidemq.SERVERS
        ],
    )


def _glidemq_cycles(figures: Figures) -> str:
    return _load_table(
        "glidemq: addJob, XREADGROUP, completeAndFetchNext of 100-byte jobs",
        [
            _load_row(figures, f"glidemq.{server}.cycle-{shape}", server, shape)
            for shape in glidemq.SHAPES
            for server in glidemq.SERVERS
        ],
    )


def _http_loads(figures: Figures) -> str:
    return _load_table(
        "http: 100-byte records over 16 connections; latencies are per request",
        [
            _load_row(figures, f"http.{server}.{load}", server, load, counted="record")
            for load in http.LOADS
            for server in http.SERVERS
        ],
        counted="record",
    )


def _http_floor(figures: Figures) -> str:
    floor_write = f"http.{http.FLOOR}.{http.FLOOR_LOAD}"
    rows = []
    for server in http.YARDS:
        own = f"http.{server}.{http.FLOOR_LOAD}"
        speed, cost = (
            figures.ratio(f"{own}.{measure}", f"{floor_write}.{measure}")
            for measure in ("records_per_s", "server_us_per_record")
        )
        if speed is not None:
            rows.append([server, _percent(speed), _number(cost, 2)])
    titles = ("server", "records/s, share of floor", "CPU, times the floor")
    title = "http: writes of one record, compared with a bare httptools answer on the same loop"
    return f"{title}\n{table(titles, rows)}" if rows else ""


def _http_streams(figures: Figures) -> str:
    rows = []
    for server in http.YARDS:
        prefix = f"http.{server}.streams"
        seen = {name: figures.median(f"{prefix}.{name}") for name in (
            "records_per_s", "p50_us", "p99_us", "max_us", "late_max_us", "server_us_per_record",
            "server_core_share", "load_core_share",
        )}  # fmt: skip
        if seen["records_per_s"] is not None:
            numbers = [_number(value) for name, value in seen.items() if "share" not in name]
            shares = [_percent(value) for name, value in seen.items() if "share" in name]
            rows.append([server, *numbers, *shares])
    titles = (
        "server", "records/s", "p50 us", "p99 us", "max us", "load late, max us", "CPU us/record",
        "server core", "load core",
    )  # fmt: skip
    title = "http: from the time a record is due to its arrival on a worker's stream"
    return f"{title}\n{table(titles, rows)}" if rows else ""


def _http_exports(figures: Figures) -> str:
    rows = []
    for load in exports.EXPORTS:
        for server in http.YARDS:
            prefix = f"http.{server}.{load}"
            if figures.rounds(f"{prefix}.records_per_s"):
                measures = ("records_per_s", "bytes_per_record", "server_us_per_record")
                numbers = [figures.median(f"{prefix}.{measure}") for measure in measures]
                shares = [
                    figures.median(f"{prefix}.{who}_core_share") for who in ("server", "load")
                ]
                rows.append(
                    [
                        server,
                        load,
                        _number(numbers[0]),
                        _number(numbers[1]),
                        _number(numbers[2], 2),
                        *[_percent(share) for share in shares],
                    ]
                )
    titles = ("server", "what", "rows/s", "bytes/row", "CPU us/row", "server core", "load core")
    title = "http: exports as Arrow streams, to one reader that only counts"
    return f"{title}\n{table(titles, rows)}" if rows else ""


def _http_logs(figures: Figures) -> str:
    rows = [
        [
            server,
            _number(figures.median(f"http.{server}.log.bytes_per_record")),
            _number(figures.median(f"http.{server}.log.ready_seconds"), 3),
            _number(figures.median(f"http.{server}.log.cold_ready_seconds"), 3),
            _number(figures.median(f"http.{server}.log.seconds_per_million"), 3),
        ]
        for server in http.YARDS
        if figures.rounds(f"http.{server}.log.bytes_per_record")
    ]
    titles = ("server", "bytes per record", "exec to ready, s", "cold, s", "s per million records")
    title = "http: a log of 100-byte records, and its recovery after kill -9"
    return f"{title}\n{table(titles, rows)}" if rows else ""


def _floor(figures: Figures) -> str:
    return _load_table(
        "floor: the same work, compared with a server that only receives and answers",
        [
            _load_row(figures, f"floor.{server}.{floor.SHAPE}", server, floor.SHAPE)
            for server in floor.SERVERS
        ],
    )


def _growth(figures: Figures) -> str:
    arms = ("few", "other", "same", "tubes-few", "tubes-many")
    return _load_table(
        "growth: few jobs, many of another priority, many of the same; few tubes, many tubes",
        [
            _load_row(figures, f"growth.{server}.{arm}.{shape}", f"{server} {arm}", shape)
            for server in growth.SERVERS
            for shape in growth.SHAPES
            for arm in arms
        ],
    )


def _stalls(figures: Figures) -> str:
    rows = [
        [
            server,
            one.name,
            _number(figures.median(f"stalls.{server}.{one.name}.cpu_ms"), 1),
            _number(figures.median(f"stalls.{server}.{one.name}.wall_ms"), 1),
        ]
        for server in stalls.SERVERS
        for one in HEAVY
        if figures.rounds(f"stalls.{server}.{one.name}.cpu_ms")
    ]
    titles = ("server", "command", "processor ms a ping waited", "longest wait, ms")
    return (
        "stalls: a client at another door during one heavy command\n" + table(titles, rows)
        if rows
        else ""
    )


def _spark(figures: Figures) -> str:
    rows = []
    for name in (*spark.READS, *spark.ENQUEUES):
        prefix = f"spark.{spark.YARD}.{name}"
        speeds = figures.rounds(f"{prefix}.rows_per_s")
        if speeds:
            rows.append(
                [
                    name,
                    _number(figures.median(f"{prefix}.rows_per_s")),
                    f"{min(speeds):,.0f}-{max(speeds):,.0f}",
                    _number(figures.median(f"{prefix}.seconds"), 2),
                ]
            )
    titles = ("what", "rows/s", "least-most", "seconds")
    title = "spark: 100-byte rows at local[2], from the plan to the last row"
    return f"{title}\n{table(titles, rows)}" if rows else ""


def _spark_triggers(figures: Figures) -> str:
    rows = [
        [name, _number(figures.median(f"spark.{spark.YARD}.{name}.ms"))]
        for name in spark.TRIGGERS
        if figures.rounds(f"spark.{spark.YARD}.{name}.ms")
    ]
    title = "spark: micro-batches of 10 rows; rate: Spark's own rows to no sink"
    return f"{title}\n{table(('what', 'ms'), rows)}" if rows else ""


def _spark_puts(figures: Figures) -> str:
    return _load_table(
        "spark: durable puts of one beanstalk client, without exports and beside four",
        [_load_row(figures, f"spark.{spark.BESIDE}.{name}", name, "1x1") for name in spark.PUTS],
    )


def _memory(figures: Figures) -> str:
    rows = [
        [
            server,
            _number(figures.median(f"memory.{server}.bytes_per_job")),
            _number((figures.median(f"memory.{server}.empty_bytes") or 0) / 2**20, 1),
            _number(figures.median(f"memory.{server}.fill_ops_per_s")),
        ]
        for server in memory.SERVERS
        if figures.rounds(f"memory.{server}.bytes_per_job")
    ]
    titles = ("server", "bytes per waiting job", "empty, MiB", "fill, puts/s")
    return (
        f"memory: growth of resident memory per 100-byte job\n{table(titles, rows)}" if rows else ""
    )


def _recovery(figures: Figures) -> str:
    rows = [
        [
            server,
            _number(figures.median(f"recovery.{server}.ready_seconds"), 3),
            _number(figures.median(f"recovery.{server}.cold_ready_seconds"), 3),
            _number(figures.median(f"recovery.{server}.empty_start_seconds"), 3),
            _number(figures.median(f"recovery.{server}.seconds_per_million"), 3),
        ]
        for server in recovery.SERVERS
        if figures.rounds(f"recovery.{server}.ready_seconds")
    ]
    titles = ("server", "exec to ready, s", "cold, s", "without jobs, s", "s per million jobs")
    return f"recovery: after kill -9\n{table(titles, rows)}" if rows else ""


def _verdicts(verdicts: list[Verdict]) -> str:
    rows = [
        [
            verdict.goal.title,
            verdict.goal.bound(),
            _number(verdict.measured, 2),
            "-".join(_number(value, 2) for value in verdict.span) if verdict.span else "-",
            _number(verdict.by_cpu, 2),
            verdict.word,
        ]
        for verdict in verdicts
    ]
    counts = ", ".join(
        f"{sum(verdict.word == word for verdict in verdicts)} {word}"
        for word in ("met", "short", "not measured")
    )
    titles = ("goal (a : b, ratio in this run)", "bound", "measured", "rounds", "by CPU", "verdict")
    return f"goals: {counts}\n{table(titles, rows)}"


def _number(value: float | None, digits: int = 0) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share * 100:.0f} %"
