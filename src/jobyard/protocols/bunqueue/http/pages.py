"""Answers of bunqueue's HTTP API that no single command gives: health, sums, plain text.

They are put together from the answers of commands, so that nothing is counted here.
"""

from collections.abc import Callable
from typing import Final, final

from jobyard.engine.state.health import problems
from jobyard.protocols.bunqueue.commands.monitor import storage_value
from jobyard.protocols.bunqueue.commands.prometheus import VERSION
from jobyard.protocols.bunqueue.http.routes import data_of, whole
from jobyard.protocols.bunqueue.http.runner import Clerks, json_of, refusal_status
from jobyard.protocols.http.call import TEXT, Call, HttpRefused
from jobyard.wire.http.request import parse_query
from jobyard.wire.msgpack.read import Fields

# Asks for no token and is not counted.
OPEN: Final = "open"
# Asks for no token.
SCRAPE: Final = "scrape"
ASK: Final = "ask"

EXPOSITION: Final = "text/plain; version=0.0.4; charset=utf-8"

ServePage = Callable[[Clerks, Call], None]


@final
class Page:
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
        # The types of an answer that is no JSON.
        self.texts = texts


def ask(clerks: Clerks, call: Call, command: str, **fields: object) -> Fields:
    """Return what a command answers; what it refuses is refused."""
    answer, number = clerks.ask({"cmd": command, **fields}, call.now_ms)
    call.await_batch(number)
    if not answer.is_true(b"ok"):
        error = answer.text(b"error") or ""
        raise HttpRefused(int(refusal_status(error, 400)), "refused", error)
    return answer


def part(answer: Fields, key: bytes) -> dict[str, object]:
    """Return one part of an answer that is a map."""
    value = answer.value(key)
    assert isinstance(value, dict)
    return value


def memory_of(clerks: Clerks) -> dict[str, object]:
    """Return the memory of the process in MB; all of it is in use, and none is set apart."""
    used = round(clerks.door.surroundings.memory_mb())
    return {"heapUsed": used, "heapTotal": used, "rss": used}


def trouble_of(clerks: Clerks, call: Call) -> dict[str, object] | None:
    """Return what is wrong with the disk, if anything is."""
    storage = data_of(ask(clerks, call, "StorageStatus"))
    return storage if storage["diskFull"] or storage["error"] else None


# -- for those who watch over the server -------------------------------------------------------


def health(clerks: Clerks, call: Call) -> None:
    """Tell how the server is; 503 if the disk is not well. What is damaged on it stops nobody."""
    door = clerks.door
    stats = part(ask(clerks, call, "Stats"), b"stats")
    trouble = trouble_of(clerks, call)
    storage = storage_value(door)
    found = problems(door.yard)
    is_well = trouble is None and not found
    told: dict[str, object] = {
        "ok": trouble is None,
        "status": "healthy" if is_well else "degraded",
        "uptime": int((call.now_ms - door.started_ms) // 1000),
        "version": VERSION,
        "queues": {key: stats[key] for key in ("waiting", "active", "delayed", "completed", "dlq")},
        "connections": {
            "tcp": int(door.sessions_count),
            "ws": int(door.sockets_count),
            "sse": int(door.streams_count),
        },
        "memory": memory_of(clerks),
    }
    if not is_well:
        told["problems"] = found
        told["storage"] = storage
    call.answer(200 if trouble is None else 503, json_of(told))


def live(_clerks: Clerks, call: Call) -> None:
    """Tell that the process runs."""
    # That is so whatever the disk does.
    call.await_batch(0)
    call.answer(200, b"OK", TEXT)


def ready(clerks: Clerks, call: Call) -> None:
    """Tell whether new work is welcome."""
    trouble = trouble_of(clerks, call)
    is_ready = trouble is None and not clerks.door.is_draining
    told: dict[str, object] = {"ok": is_ready, "ready": is_ready}
    if trouble is not None:
        told["storage"] = trouble
    call.answer(200 if is_ready else 503, json_of(told))


def prometheus(clerks: Clerks, call: Call) -> None:
    """Tell a scraper everything that is counted."""
    text = data_of(ask(clerks, call, "Prometheus"))["metrics"]
    assert isinstance(text, str)
    call.answer(200, text.encode(), EXPOSITION)


def stats(clerks: Clerks, call: Call) -> None:
    """Tell what there is, what there was, and how much memory it takes."""
    now = part(ask(clerks, call, "Stats"), b"stats")
    totals = part(ask(clerks, call, "Metrics"), b"metrics")
    for key in ("totalPushed", "totalPulled", "totalCompleted", "totalFailed"):
        now[key] = totals[key]
    overview = data_of(ask(clerks, call, "DashboardOverview"))
    rates = overview["throughput"]
    crons = overview["crons"]
    assert isinstance(rates, dict)
    assert isinstance(crons, list)
    now.update(rates)
    now["prioritized"] = int(clerks.door.yard.ahead_count)
    now["cronJobs"] = len(crons)
    now["cronPending"] = sum(1 for cron in crons if cron["nextRun"] is not None)
    # Under the name of the original too.
    now["waiting-children"] = now["waitingChildren"]
    told = {
        "ok": True,
        "stats": now,
        "memory": {**memory_of(clerks), "external": 0, "arrayBuffers": 0},
        "collections": overview["collections"],
    }
    call.answer(200, json_of(told))


def collect(clerks: Clerks, call: Call) -> None:
    """Forget what is only kept to be quick."""
    before = memory_of(clerks)
    ask(clerks, call, "CompactMemory")
    call.answer(200, json_of({"ok": True, "before": before, "after": memory_of(clerks)}))


def heap_stats(clerks: Clerks, call: Call) -> None:
    """Tell what takes memory: jobs do, and there is no heap to be told of beside them."""
    overview = ask(clerks, call, "DashboardOverview")
    collections = data_of(overview)["collections"]
    assert isinstance(collections, dict)
    told = {
        "ok": True,
        "memory": memory_of(clerks),
        "heap": {"objectCount": collections["jobs"], "protectedCount": 0, "globalCount": 0},
        "collections": collections,
        "topObjectTypes": [{"type": key, "count": value} for key, value in collections.items()],
    }
    call.answer(200, json_of(told))


# -- queues ------------------------------------------------------------------------------------


def dead_letters(clerks: Clerks, call: Call) -> None:
    """List dead jobs with all that is known of their end, page by page."""
    queue = call.params[0]
    query = parse_query(call.request.query)
    offset = whole(query, "offset")
    limit = whole(query, "limit")
    asked: dict[str, object] = {"queue": queue, "offset": max(0, offset or 0), "jobs": False}
    if limit is not None:
        asked["limit"] = max(0, limit)
    # It may take longer than a turn.
    clerks.serve(call, {"cmd": "Dlq", **asked}, 400, None)


def queue_workers(clerks: Clerks, call: Call) -> None:
    """List the workers that are there for a queue."""
    rows = data_of(ask(clerks, call, "ListWorkers"))["workers"]
    assert isinstance(rows, list)
    there = [row for row in rows if row["status"] == "active" and call.params[0] in row["queues"]]
    call.answer(200, json_of({"ok": True, "workers": there}))


PAGES: Final[tuple[Page, ...]] = (
    Page("GET", "/health", health, "Tell how the server is.", OPEN),
    Page("GET", "/healthz", live, "Tell that the server runs.", OPEN, texts=("text/plain",)),
    Page("GET", "/live", live, "Tell that the server runs.", OPEN, texts=("text/plain",)),
    Page("GET", "/ready", ready, "Tell whether new work is welcome.", OPEN),
    Page(
        "GET",
        "/prometheus",
        prometheus,
        "Tell a scraper what is counted.",
        SCRAPE,
        texts=("text/plain",),
    ),
    Page("GET", "/stats", stats, "Tell what there is and was."),
    Page("POST", "/gc", collect, "Forget what is only kept to be quick."),
    Page("GET", "/heapstats", heap_stats, "Tell what takes memory."),
    Page(
        "GET",
        "/queues/{queue}/dlq",
        dead_letters,
        "List dead jobs and why they are.",
        query=("limit", "offset"),
    ),
    Page("GET", "/queues/{queue}/workers", queue_workers, "List the workers of a queue."),
)
