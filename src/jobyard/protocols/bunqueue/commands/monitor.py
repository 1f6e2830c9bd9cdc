"""Commands about the connection and the server: Hello, Auth, Ping, statistics, dashboards.

All values describe this server. Fields of the original for things that do not exist here (caches,
backups, a garbage-collected heap) are omitted where clients do not need them, and otherwise hold
the nearest equivalent: the database is the journal.
"""

import heapq
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64

from jobyard.engine.jobs.listing import JobSelection, count_of, page
from jobyard.engine.jobs.schedule import crons_of
from jobyard.engine.state.tasks import Task
from jobyard.engine.state.yard import Yard
from jobyard.errors import Refused
from jobyard.model.details import Outcome
from jobyard.model.index.minute_counter import MinuteCounter
from jobyard.model.job import BLOCKED, DEAD, DELAYED, DONE, LEASED, READY, Job
from jobyard.model.queue import Queue
from jobyard.model.secrets import is_one_of
from jobyard.protocols.bunqueue.command import Command
from jobyard.protocols.bunqueue.commands import push_options
from jobyard.protocols.bunqueue.commands.control import is_listed
from jobyard.protocols.bunqueue.commands.prometheus import BUNQUEUE_VERSION, prometheus_text
from jobyard.protocols.bunqueue.commands.query import PriorityCount, get_job_counts, is_paused
from jobyard.protocols.bunqueue.commands.registry import worker_stats, worker_value
from jobyard.protocols.bunqueue.commands.schedules import cron_value
from jobyard.protocols.bunqueue.door import Answer, BunqueueDoor
from jobyard.protocols.bunqueue.ids import id_text
from jobyard.protocols.bunqueue.job_fields import created_ms, job_value, shown_priority
from jobyard.protocols.bunqueue.progress import progress_number
from jobyard.protocols.bunqueue.request import Request
from jobyard.protocols.bunqueue.session import BunqueueSession
from jobyard.wire.msgpack.read import MapFields
from jobyard.wire.msgpack.write import Raw, encode, write_array

PROTOCOL_VERSION: Final = 3

QUEUES_LISTED_MAX: Final = 1_000_000_000
# Averages cover the newest SAMPLE_JOBS done jobs of each of SAMPLE_QUEUES queues.
SAMPLE_QUEUES: Final = 100
SAMPLE_JOBS: Final = 20
DASHBOARD_QUEUES: Final = 1000
DASHBOARD_JOBS: Final = 50
PREVIEW_JOBS: Final = 10
# Names sorted at once; the cost of one name in units of work.
_NAMES_PER_SORT: Final = 100
NAME_UNITS: Final = 4
# Names copied per unit of work; the cost of one row.
NAMES_PER_UNIT: Final = 32
ROW_UNITS: Final = 8


def hello(_session: BunqueueSession, request: Request) -> Answer:
    """Hello: agree on the lower of the two protocol versions."""
    asked = request.fields.integer(b"protocolVersion", PROTOCOL_VERSION)
    version = max(1, min(asked, PROTOCOL_VERSION))
    capabilities = (
        ["pipelining"] if version < PROTOCOL_VERSION else ["pipelining", "separate-job-name"]
    )
    return {
        "protocolVersion": version,
        "capabilities": capabilities,
        "server": "bunqueue",
        "version": BUNQUEUE_VERSION,
    }


def auth(session: BunqueueSession, request: Request) -> Answer | None:
    """Auth: authenticate a connection by its token."""
    if not session.door.shared_limits.attempts.may_try(session.peer.host(), request.now_ms):
        raise Refused("Too many failed attempts, try again later")
    token = request.fields.content(b"token") or b""
    if not is_one_of(token, session.door.tokens):
        if session.door.observer is not None:
            session.door.observer.publish("auth:failed", {"transport": "tcp"})
        session.deny(request.req_id, request.now_ms)
        return None
    session.authenticated()
    return {}


def ping(session: BunqueueSession, request: Request) -> Answer:
    """Ping: return the server's time."""
    return {"data": {"pong": True, "time": float(session.door.wall_ms(request.now_ms))}}


# -- statistics --------------------------------------------------------------------------------


def stats(session: BunqueueSession, request: Request) -> Answer:
    """Stats: current counts, under the names of the protocol and of the original."""
    yard = session.yard
    door = session.door
    rates = throughput(door, request.now_ms)
    waiting = int(yard.ready_count)
    active = int(yard.leased_count)
    return {
        "stats": {
            "queued": waiting,
            "waiting": waiting,
            "processing": active,
            "active": active,
            "delayed": int(yard.delayed_count),
            "waitingChildren": int(yard.blocked_count),
            "dlq": int(yard.dead_count),
            "completed": int(yard.done_count),
            "failed": int(door.yard.counters.dead_total()),
            "uptime": int(request.now_ms - door.started_ms),
            "pushPerSec": rates["pushPerSec"],
            "pullPerSec": rates["pullPerSec"],
        }
    }


def throughput(door: BunqueueDoor, now_ms: i64) -> dict[str, object]:
    """Return the current rates per second."""
    rates = door.rates
    counters = door.yard.counters
    rates.look(
        counters.put_total(),
        counters.taken_total(),
        now_ms,
        counters.finished_total(),
        counters.dead_total(),
    )
    return {
        "pushPerSec": rates.push_rate,
        "pullPerSec": rates.pull_rate,
        "completePerSec": rates.complete_rate,
        "failPerSec": rates.fail_rate,
    }


def metrics(session: BunqueueSession, request: Request) -> Answer:
    """Metrics: totals since the start, or the counts of one queue minute by minute."""
    if request.fields.has(b"queue"):
        return _queue_metrics(session, request.fields)
    door = session.door
    wait_ms, run_ms = recent_averages(door)
    return {
        "metrics": {
            "totalPushed": int(door.yard.counters.put_total()),
            "totalPulled": int(door.yard.counters.taken_total()),
            "totalCompleted": int(door.yard.counters.finished_total()),
            "totalFailed": int(door.yard.counters.dead_total()),
            "avgLatencyMs": wait_ms,
            "avgProcessingMs": run_ms,
            "memoryUsageMb": door.environment.memory_mb(),
            "sqliteSizeMb": round(journal_bytes(door) / (1 << 20), 2),
            "activeConnections": int(door.sessions_count),
            "unexpectedErrors": int(door.yard.errors.survived_count),
        }
    }


def _queue_metrics(session: BunqueueSession, fields: MapFields) -> Answer:
    name = push_options.queue_name(fields)
    kind = push_options.text(fields, b"type")
    if kind not in ("completed", "failed"):
        raise Refused("Metrics type must be 'completed' or 'failed'")
    minute_counters = session.yard.minute_counters.get(name)
    minute_counter = (
        MinuteCounter()
        if minute_counters is None
        else minute_counters.done
        if kind == "completed"
        else minute_counters.failed
    )
    counts = minute_counter.by_minute()
    total = len(counts)
    start = push_options.number(fields, b"start", 0, -QUEUES_LISTED_MAX, QUEUES_LISTED_MAX)
    end = push_options.number(fields, b"end", -1, -QUEUES_LISTED_MAX, QUEUES_LISTED_MAX)
    first = int(max(0, start + total) if start < 0 else start)
    after = int(max(0, (end + total if end < 0 else end) + 1))
    last_ms = float(session.door.wall_ms(minute_counter.last_ms)) if minute_counter.total > 0 else 0
    return {
        "data": {
            "meta": {
                "count": int(minute_counter.total),
                "prevTS": last_ms,
                "prevCount": int(minute_counter.last_count),
            },
            "data": counts[first:after],
            "count": total,
        }
    }


def recent_averages(door: BunqueueDoor) -> tuple[float, float]:
    """Return the average wait and run time of the last run of recently done jobs, in ms.

    Computed from the newest done jobs that are kept, so it needs no counters of its own.
    """
    waited: i64 = 0
    ran: i64 = 0
    count: i64 = 0
    for queue in islice(door.yard.queues.values(), SAMPLE_QUEUES):
        for item in reversed(queue.done.items[-SAMPLE_JOBS:]):
            assert isinstance(item, Outcome)
            if item.pos == 0 and item.started_ms > 0:
                count += 1
                waited += max(0, item.started_ms - item.job.due_ms)
                ran += max(0, item.ended_ms - item.started_ms)
    if count == 0:
        return 0.0, 0.0
    return round(float(waited) / float(count), 2), round(float(ran) / float(count), 2)


def journal_bytes(door: BunqueueDoor) -> i64:
    """Return the size of the journal's files."""
    size: i64 = 0
    for segment in door.yard.journal.segments.values():
        size += segment.size
    return size


def prometheus(session: BunqueueSession, request: Request) -> Answer:
    """Prometheus: all metrics in the Prometheus text format."""
    text = prometheus_text(session.door, journal_bytes(session.door), request.now_ms)
    return {"data": {"metrics": text}}


def storage_value(door: BunqueueDoor) -> dict[str, object]:
    """Return the storage status."""
    error = door.environment.disk_error()
    since: object = None
    since_ms = door.environment.disk_error_since_ms()
    # The time is recorded once a second, so it may still be 0.
    if error and since_ms > 0:
        since = float(door.wall_ms(since_ms))
    journal = door.yard.journal
    damages = journal.damages
    status: dict[str, object] = {
        "diskFull": journal.is_full,
        "error": error or None,
        "since": since,
    }
    if damages.count() > 0:
        status["damage"] = {
            "jobs": len(damages.jobs),
            "records": int(damages.texts_count),
            "segments": len(damages.segments),
        }
    return status


def storage_status(session: BunqueueSession, _request: Request) -> Answer:
    """StorageStatus: show the storage status."""
    return {"data": storage_value(session.door)}


def compact_memory(session: BunqueueSession, _request: Request) -> Answer:
    """CompactMemory: drop the caches of encoded fields and policies; jobs stay as they are."""
    door = session.door
    door.shapes.clear()
    door.plain_shapes.clear()
    door.plain_policies.clear()
    return {}


# -- dashboards --------------------------------------------------------------------------------


def _collections(yard: Yard) -> dict[str, object]:
    """Return the sizes of collections, under the original's names where it has them."""
    return {
        "jobs": int(yard.jobs.count),
        "queues": len(yard.queues),
        "customIds": int(yard.names.custom.count()),
        "jobIndex": int(yard.jobs.count),
        "customIdMap": int(yard.names.custom.count()),
        "completedJobs": int(yard.done_count),
        "jobLocks": int(yard.leased_count),
        "processingTotal": int(yard.leased_count),
        "queuedTotal": int(yard.ready_count),
        "delayedHeapTotal": int(yard.delayed_count),
        "waitingDepsTotal": int(yard.blocked_count),
    }


def dashboard_overview(session: BunqueueSession, request: Request) -> Answer:
    """DashboardOverview: counts, rates, latency, workers, schedules and storage."""
    door = session.door
    yard = session.yard
    now_ms = request.now_ms
    door.workers.drop_lost(now_ms)
    wait_ms, run_ms = recent_averages(door)
    durations = door.durations
    durations.look()
    workers = worker_stats(door, now_ms)
    rows: list[object] = [worker_value(door, one, now_ms) for one in door.workers.by_id.values()]
    memory_mb = round(door.environment.memory_mb())
    data: dict[str, object] = {
        "stats": {
            "waiting": int(yard.ready_count),
            "active": int(yard.leased_count),
            "delayed": int(yard.delayed_count),
            "completed": int(yard.done_count),
            "dlq": int(yard.dead_count),
            "totalPushed": int(door.yard.counters.put_total()),
            "totalPulled": int(door.yard.counters.taken_total()),
            "totalCompleted": int(door.yard.counters.finished_total()),
            "totalFailed": int(door.yard.counters.dead_total()),
            "uptime": int(now_ms - door.started_ms),
        },
        "throughput": throughput(door, now_ms),
        "latency": {
            "averages": {"waitMs": wait_ms, "processingMs": run_ms, **durations.averages()},
            "percentiles": durations.percentiles(),
        },
        "memory": {"heapUsed": memory_mb, "heapTotal": memory_mb, "rss": memory_mb},
        "collections": _collections(yard),
        "workers": {"total": workers["total"], "active": workers["active"], "list": rows},
        "crons": [cron_value(cron) for cron in crons_of(yard).by_name.values()],
        "storage": storage_value(door),
        "timestamp": float(door.wall_ms(now_ms)),
    }
    return {"data": data}


def queue_row(queue: Queue, now_ms: i64) -> dict[str, object]:
    """Return one row of a list of queues."""
    return {
        "name": queue.name,
        "waiting": int(count_of(queue, READY)),
        "prioritized": int(queue.ahead_count),
        "delayed": int(count_of(queue, DELAYED)),
        "active": int(count_of(queue, LEASED)),
        "waitingChildren": int(count_of(queue, BLOCKED)),
        "completed": int(count_of(queue, DONE)),
        "dlq": int(count_of(queue, DEAD)),
        "paused": is_paused(queue, now_ms),
    }


@final
class QueueNames(Task):
    """Sorts the names of all queues that clients can see, in slices."""

    def __init__(self, yard: Yard) -> None:
        super().__init__()
        self.is_reading = True
        self._yard = yard
        # None before the names were copied, which takes time if there are very many.
        self._left: list[str] | None = None
        self._runs: list[list[str]] = []
        self._merged: Iterator[str] | None = None
        self.names: list[str] = []

    def step(self, most: i64, now_ms: i64) -> i64:  # noqa: ARG002  it only reads
        """Check and sort some names, or merge some."""
        done: i64 = 0
        left = self._left
        if left is None:
            left = list(self._yard.queues)
            self._left = left
            done = len(left) // NAMES_PER_UNIT
        while done < most:
            if left:
                run = left[-_NAMES_PER_SORT:]
                del left[-_NAMES_PER_SORT:]
                done += NAME_UNITS * len(run)
                queues = self._yard.queues
                self._runs.append(
                    sorted(name for name in run if name in queues and is_listed(queues[name]))
                )
            elif self._merged is None:
                self._merged = heapq.merge(*self._runs)
            else:
                name = next(self._merged, "")
                if not name:
                    break
                done += NAME_UNITS
                self.names.append(name)
        return done


# Encodes a queue as of a given time.
ShowQueue = Callable[[Queue, int], bytes]


@final
class QueueRows(Task):
    """Encodes all queues, or a page of them, sorted by name, in slices."""

    def __init__(self, yard: Yard, offset: int, limit: int, show: ShowQueue) -> None:
        super().__init__()
        self.is_reading = True
        self._yard = yard
        self._offset = offset
        self._limit = limit
        self._show: ShowQueue = show
        self._names: QueueNames | None = QueueNames(yard)
        # The remaining names, the next one last.
        self._left: list[str] = []
        # The number of all queues, and the encoded rows of the page.
        self.total: i64 = 0
        self.rows: list[bytes] = []

    def step(self, most: i64, now_ms: i64) -> i64:
        """Sort some names, or encode some queues."""
        done: i64 = 0
        names = self._names
        if names is not None:
            done = names.step(most, now_ms)
            if done >= most:
                return done
            self._names = None
            self.total = len(names.names)
            self._left = names.names[self._offset : self._offset + self._limit]
            self._left.reverse()
        while self._left and done < most:
            queue = self._yard.queues.get(self._left.pop())
            if queue is not None:
                self.rows.append(self._show(queue, int(now_ms)))
            done += ROW_UNITS
        return done


def _packed_row(queue: Queue, now_ms: int) -> bytes:
    return encode(queue_row(queue, now_ms))


def dashboard_queues(session: BunqueueSession, request: Request) -> Answer | None:
    """DashboardQueues: all queues sorted by name, or a page of them."""
    fields = request.fields
    limit = int(push_options.number(fields, b"limit", DASHBOARD_QUEUES, 0, DASHBOARD_QUEUES))
    offset = int(push_options.number(fields, b"offset", 0, 0, QUEUES_LISTED_MAX))
    rows = QueueRows(session.yard, offset, limit, _packed_row)

    def make_answer() -> Answer:
        out = BytesWriter()
        write_array(out, len(rows.rows))
        out.write(b"".join(rows.rows))
        return {
            "data": {
                "queues": Raw(out.getvalue()),
                "total": int(rows.total),
                "limit": limit,
                "offset": offset,
                "timestamp": float(session.door.wall_ms(request.now_ms)),
            }
        }

    return session.begin(request, rows, make_answer)


def dashboard_queue(session: BunqueueSession, request: Request) -> Answer | None:
    """DashboardQueue: one queue with its first dead jobs and, on request, jobs of other states."""
    queue = session.yard.queues.get(push_options.queue_name(request.fields))
    if queue is None:
        return _dashboard_queue(session, request, {})
    task = PriorityCount(queue)
    return session.begin(request, task, lambda: _dashboard_queue(session, request, task.counts()))


def _dashboard_queue(
    session: BunqueueSession, request: Request, priorities: dict[str, object]
) -> Answer:
    fields = request.fields
    door = session.door
    name = push_options.queue_name(fields)
    queue = session.yard.queues.get(name)
    is_held = queue is not None and is_paused(queue, request.now_ms)
    counts = get_job_counts(session, request)["counts"]
    assert isinstance(counts, dict)
    minute_counters = session.yard.minute_counters.get(name)
    counts["totalCompleted"] = 0 if minute_counters is None else int(minute_counters.done.total)
    counts["totalFailed"] = 0 if minute_counters is None else int(minute_counters.failed.total)
    data: dict[str, object] = {
        "name": name,
        "counts": counts,
        "paused": is_held,
        "priorityCounts": priorities,
        "dlqPreview": [] if queue is None else _dead_preview(door, queue),
        "timestamp": float(door.wall_ms(request.now_ms)),
    }
    if fields.is_true(b"includeJobs"):
        limit = push_options.number(fields, b"jobsLimit", PREVIEW_JOBS, 0, DASHBOARD_JOBS)
        ready = _summaries(door, queue, READY, limit)
        data["jobs"] = {
            "waiting": ready,
            "active": _summaries(door, queue, LEASED, limit),
            "delayed": _summaries(door, queue, DELAYED, limit),
            "paused": ready if is_held else [],
        }
    return {"data": data}


def _dead_preview(door: BunqueueDoor, queue: Queue) -> list[object]:
    shown: list[object] = []
    for item in queue.dead.items:
        if len(shown) == PREVIEW_JOBS:
            break
        assert isinstance(item, Outcome)
        if item.pos == 0:
            shown.append(job_value(door, item.job))
    return shown


def _summaries(door: BunqueueDoor, queue: Queue | None, state: i64, limit: i64) -> list[object]:
    if queue is None:
        return []
    choice = JobSelection(frozenset((int(state),)))
    jobs = page(queue, choice, 0, limit, oldest_first=True)
    return [_summary(door, job) for job in jobs]


def _summary(door: BunqueueDoor, job: Job) -> dict[str, object]:
    return {
        "id": id_text(job),
        "priority": int(shown_priority(job)),
        "createdAt": float(created_ms(door, job)),
        "runAt": float(door.wall_ms(job.due_ms)),
        "attempts": int(job.attempts),
        "progress": 0 if job.details is None else progress_number(job.details),
    }


MONITOR_COMMANDS: Final[dict[bytes, Command]] = {
    b"Hello": hello,
    b"Auth": auth,
    b"Ping": ping,
    b"Stats": stats,
    b"Metrics": metrics,
    b"Prometheus": prometheus,
    b"StorageStatus": storage_status,
    b"CompactMemory": compact_memory,
    b"DashboardOverview": dashboard_overview,
    b"DashboardQueues": dashboard_queues,
    b"DashboardQueue": dashboard_queue,
}
