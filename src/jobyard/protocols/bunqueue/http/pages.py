"""Pages of bunqueue's HTTP API that no single command provides: health, totals, plain text.

Pages combine the answers of commands; nothing is counted here.
"""

from collections.abc import Callable
from typing import Final, final

from jobyard.engine.state.health import problems
from jobyard.protocols.bunqueue.commands.monitor import storage_value
from jobyard.protocols.bunqueue.commands.prometheus import BUNQUEUE_VERSION
from jobyard.protocols.bunqueue.http.routes import data_of, whole
from jobyard.protocols.bunqueue.http.runner import CommandRunners, json_of, refusal_status
from jobyard.protocols.http.call import TEXT_TYPE, HttpCall, HttpRefused
from jobyard.protocols.http.routes import OPEN
from jobyard.wire.http.request import parse_query
from jobyard.wire.msgpack.read import MapFields

# Needs a token only if metrics are protected (`guards_metrics`).
SCRAPE: Final = "scrape"
ASK: Final = "ask"

EXPOSITION: Final = "text/plain; version=0.0.4; charset=utf-8"

ServePage = Callable[[CommandRunners, HttpCall], None]


@final
class RoutedPage:
    """One route and the function that serves it."""

    def __init__(
        self,
        method: str,
        pattern: str,
        serve: ServePage,
        summary: str,
        action: str = ASK,
        *,
        query: tuple[str, ...] = (),
        texts: tuple[str, ...] = (),
    ) -> None:
        self.method = method
        self.pattern = pattern
        self.serve: ServePage = serve
        self.summary = summary
        self.action = action
        self.query = query
        # The content types of an answer that is not JSON.
        self.texts = texts


def ask(runners: CommandRunners, call: HttpCall, command: str, **fields: object) -> MapFields:
    """Run a command and return its answer; its refusal becomes an HTTP refusal."""
    answer, number = runners.ask({"cmd": command, **fields}, call.now_ms)
    call.await_batch(number)
    if not answer.is_true(b"ok"):
        error = answer.text(b"error") or ""
        raise HttpRefused(int(refusal_status(error, 400)), "refused", error)
    return answer


def part(answer: MapFields, key: bytes) -> dict[str, object]:
    """Return a part of an answer that must be a map."""
    value = answer.value(key)
    assert isinstance(value, dict)
    return value


def memory_of(runners: CommandRunners) -> dict[str, object]:
    """Return the process memory in MB: resident memory, there is no separate heap to report."""
    used = round(runners.door.environment.memory_mb())
    return {"heapUsed": used, "heapTotal": used, "rss": used}


def trouble_of(runners: CommandRunners, call: HttpCall) -> dict[str, object] | None:
    """Return the storage status if the disk is full or failing, else None."""
    storage = data_of(ask(runners, call, "StorageStatus"))
    return storage if storage["diskFull"] or storage["error"] else None


# -- monitoring --------------------------------------------------------------------------------


def health(runners: CommandRunners, call: HttpCall) -> None:
    """Report the server's health: 503 if the disk fails or is full, 200 if data is damaged."""
    door = runners.door
    stats = part(ask(runners, call, "Stats"), b"stats")
    trouble = trouble_of(runners, call)
    storage = storage_value(door)
    found = problems(door.yard)
    is_well = trouble is None and not found
    body: dict[str, object] = {
        "ok": trouble is None,
        "status": "healthy" if is_well else "degraded",
        "uptime": int((call.now_ms - door.started_ms) // 1000),
        "version": BUNQUEUE_VERSION,
        "queues": {key: stats[key] for key in ("waiting", "active", "delayed", "completed", "dlq")},
        "connections": {
            "tcp": int(door.sessions_count),
            "ws": int(door.sockets_count),
            "sse": int(door.streams_count),
        },
        "memory": memory_of(runners),
    }
    if not is_well:
        body["problems"] = found
        body["storage"] = storage
    call.answer(200 if trouble is None else 503, json_of(body))


def live(_runners: CommandRunners, call: HttpCall) -> None:
    """Report that the process runs."""
    # True whatever the state of the disk.
    call.await_batch(0)
    call.answer(200, b"OK", TEXT_TYPE)


def ready(runners: CommandRunners, call: HttpCall) -> None:
    """Report whether the server accepts new jobs."""
    trouble = trouble_of(runners, call)
    is_ready = trouble is None and not runners.door.is_draining
    body: dict[str, object] = {"ok": is_ready, "ready": is_ready}
    if trouble is not None:
        body["storage"] = trouble
    call.answer(200 if is_ready else 503, json_of(body))


def prometheus(runners: CommandRunners, call: HttpCall) -> None:
    """Return all metrics in the Prometheus text format."""
    text = data_of(ask(runners, call, "Prometheus"))["metrics"]
    assert isinstance(text, str)
    call.answer(200, text.encode(), EXPOSITION)


def stats(runners: CommandRunners, call: HttpCall) -> None:
    """Return current counts, totals, rates and memory use."""
    now = part(ask(runners, call, "Stats"), b"stats")
    totals = part(ask(runners, call, "Metrics"), b"metrics")
    for key in ("totalPushed", "totalPulled", "totalCompleted", "totalFailed"):
        now[key] = totals[key]
    overview = data_of(ask(runners, call, "DashboardOverview"))
    rates = overview["throughput"]
    crons = overview["crons"]
    assert isinstance(rates, dict)
    assert isinstance(crons, list)
    now.update(rates)
    now["prioritized"] = int(runners.door.yard.ahead_count)
    now["cronJobs"] = len(crons)
    now["cronPending"] = sum(1 for cron in crons if cron["nextRun"] is not None)
    # Also under the original's name.
    now["waiting-children"] = now["waitingChildren"]
    body = {
        "ok": True,
        "stats": now,
        "memory": {**memory_of(runners), "external": 0, "arrayBuffers": 0},
        "collections": overview["collections"],
    }
    call.answer(200, json_of(body))


def collect(runners: CommandRunners, call: HttpCall) -> None:
    """Drop caches and report the memory before and after."""
    before = memory_of(runners)
    ask(runners, call, "CompactMemory")
    call.answer(200, json_of({"ok": True, "before": before, "after": memory_of(runners)}))


def heap_stats(runners: CommandRunners, call: HttpCall) -> None:
    """Report what uses memory: the jobs, as there is no JavaScript heap to describe."""
    overview = ask(runners, call, "DashboardOverview")
    collections = data_of(overview)["collections"]
    assert isinstance(collections, dict)
    body = {
        "ok": True,
        "memory": memory_of(runners),
        "heap": {"objectCount": collections["jobs"], "protectedCount": 0, "globalCount": 0},
        "collections": collections,
        "topObjectTypes": [{"type": key, "count": value} for key, value in collections.items()],
    }
    call.answer(200, json_of(body))


# -- queues ------------------------------------------------------------------------------------


def dead_letters(runners: CommandRunners, call: HttpCall) -> None:
    """List dead jobs and their failures, page by page."""
    queue = call.params[0]
    query = parse_query(call.request.query)
    offset = whole(query, "offset")
    limit = whole(query, "limit")
    asked: dict[str, object] = {"queue": queue, "offset": max(0, offset or 0), "jobs": False}
    if limit is not None:
        asked["limit"] = max(0, limit)
    # It may take longer than a turn.
    runners.serve(call, {"cmd": "Dlq", **asked}, 400, None)


def queue_workers(runners: CommandRunners, call: HttpCall) -> None:
    """List the active workers of a queue."""
    rows = data_of(ask(runners, call, "ListWorkers"))["workers"]
    assert isinstance(rows, list)
    there = [row for row in rows if row["status"] == "active" and call.params[0] in row["queues"]]
    call.answer(200, json_of({"ok": True, "workers": there}))


PAGES: Final[tuple[RoutedPage, ...]] = (
    RoutedPage("GET", "/health", health, "Report the health of the server.", OPEN),
    RoutedPage("GET", "/healthz", live, "Liveness probe.", OPEN, texts=("text/plain",)),
    RoutedPage("GET", "/live", live, "Liveness probe.", OPEN, texts=("text/plain",)),
    RoutedPage("GET", "/ready", ready, "Readiness probe: new jobs are accepted.", OPEN),
    RoutedPage(
        "GET",
        "/prometheus",
        prometheus,
        "Return metrics in the Prometheus text format.",
        SCRAPE,
        texts=("text/plain",),
    ),
    RoutedPage("GET", "/stats", stats, "Show current counts, totals and memory use."),
    RoutedPage("POST", "/gc", collect, "Drop caches to free memory."),
    RoutedPage("GET", "/heapstats", heap_stats, "Show memory use by kind of object."),
    RoutedPage(
        "GET",
        "/queues/{queue}/dlq",
        dead_letters,
        "List the jobs in the DLQ and why they failed.",
        query=("limit", "offset"),
    ),
    RoutedPage("GET", "/queues/{queue}/workers", queue_workers, "List the workers of a queue."),
)
