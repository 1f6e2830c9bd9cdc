"""The Prometheus text: the original's metric names for everything that this server can count.

There are no backups, so they are reported as disabled; the heap is the resident memory.
"""

from itertools import islice
from typing import Final, final

from mypy_extensions import i64

from jobyard import __version__
from jobyard.engine.jobs.listing import count_of
from jobyard.engine.jobs.schedule import crons_of
from jobyard.model.job import DEAD, DELAYED, LEASED, READY
from jobyard.protocols.bunqueue.commands.registry import worker_stats
from jobyard.protocols.bunqueue.door import BunqueueDoor
from jobyard.protocols.bunqueue.metrics.latency import BUCKETS_US, Histogram
from jobyard.protocols.shared_limits import SharedLimits

# The version of the original that this server is compatible with.
BUNQUEUE_VERSION: Final = "2.9.5"

_BACKUP_GAUGES: Final = (
    *("enabled", "in_progress", "scheduler_running", "interval_seconds", "retention"),
    *("consecutive_failures", "last_duration_seconds", "last_size_bytes"),
    *("last_success_timestamp_seconds", "last_failure_timestamp_seconds"),
)
_BACKUP_COUNTERS: Final = ("attempts", "successes", "failures", "overlap_rejections")

# Queues with their own lines: a scraper stores a series for each.
QUEUES_SHOWN: Final = 100

_STATES: Final = (
    ("waiting", READY),
    ("delayed", DELAYED),
    ("active", LEASED),
    ("dlq", DEAD),
)


@final
class _Text:
    """Lines in the Prometheus text format."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def begin(self, name: str, kind: str, help_text: str) -> None:
        self.lines.append(f"# HELP {name} {help_text}")
        self.lines.append(f"# TYPE {name} {kind}")

    def gauge(self, name: str, help_text: str, value: float) -> None:
        self.begin(name, "gauge", help_text)
        self.lines.append(f"{name} {_number(value)}")

    def counter(self, name: str, help_text: str, value: float) -> None:
        self.begin(name, "counter", help_text)
        self.lines.append(f"{name} {_number(value)}")

    def done(self) -> str:
        return "\n".join(self.lines) + "\n"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def label_text(value: str) -> str:
    """Escape the value of a label."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def prometheus_text(door: BunqueueDoor, journal_size: i64, now_ms: i64) -> str:
    """Return all metrics in the Prometheus text format."""
    text = _Text()
    _write_jobs(text, door)
    text.gauge(
        "bunqueue_uptime_seconds",
        "Seconds since the server started.",
        round(float(now_ms - door.started_ms) / 1000.0, 3),
    )
    text.gauge(
        "bunqueue_cron_jobs_registered", "Registered schedules.", len(crons_of(door.yard).by_name)
    )
    _write_workers(text, door, now_ms)
    text.gauge("bunqueue_webhooks_registered", "Registered webhooks.", len(door.webhooks.by_id))
    text.gauge(
        "bunqueue_webhooks_enabled", "Enabled webhooks.", float(door.webhooks.enabled_count())
    )
    _write_process(text, door, journal_size)
    _write_shared_limits(text, door.shared_limits)
    _write_queues(text, door)
    for name in _BACKUP_GAUGES:
        text.gauge(f"bunqueue_backup_{name}", "Always 0: backups are not supported.", 0)
    for name in _BACKUP_COUNTERS:
        text.counter(f"bunqueue_backup_{name}_total", "Always 0: backups are not supported.", 0)
    door.durations.look()
    for name, histogram in (
        ("push", door.durations.push),
        ("pull", door.durations.pull),
        ("ack", door.durations.ack),
    ):
        _write_histogram(text, f"bunqueue_{name}_duration_seconds", name, histogram)
    return text.done()


def _write_jobs(text: _Text, door: BunqueueDoor) -> None:
    yard = door.yard
    text.gauge("bunqueue_jobs_waiting", "Waiting jobs.", float(yard.ready_count))
    ahead = float(yard.ahead_count)
    text.gauge("bunqueue_jobs_prioritized", "Waiting jobs with a priority.", ahead)
    text.gauge("bunqueue_jobs_delayed", "Delayed jobs.", float(yard.delayed_count))
    text.gauge("bunqueue_jobs_active", "Running jobs.", float(yard.leased_count))
    text.gauge("bunqueue_jobs_dlq", "Jobs in the dead-letter queues.", float(yard.dead_count))
    text.gauge("bunqueue_jobs_completed", "Completed jobs that are kept.", float(yard.done_count))
    since = "since the server started."
    counters = yard.counters
    for name, word, total in (
        ("pushed", "pushed", counters.put_total()),
        ("pulled", "pulled", counters.taken_total()),
        ("completed", "completed", counters.finished_total()),
        ("failed", "failed for good", counters.dead_total()),
    ):
        text.counter(f"bunqueue_jobs_{name}_total", f"Jobs {word} {since}", float(total))
    text.begin("jobyard_jobs_total", "counter", f"Job events {since}")
    for event, family, at_door, number in counters.rows():
        labels = f'event="{event}",family="{family}",door="{at_door}"'
        text.lines.append(f"jobyard_jobs_total{{{labels}}} {number}")


def _write_workers(text: _Text, door: BunqueueDoor, now_ms: i64) -> None:
    door.workers.drop_lost(now_ms)
    counts = worker_stats(door, now_ms)
    for key, name, help_text in (
        ("total", "workers_registered", "Registered workers."),
        ("active", "workers_active", "Workers with a recent heartbeat."),
        ("activeJobs", "worker_active_jobs", "Running jobs as reported by workers."),
        ("concurrencySlots", "worker_concurrency_slots", "Total concurrency of active workers."),
    ):
        text.gauge(f"bunqueue_{name}", help_text, _count(counts[key]))
    for key, name, help_text in (
        ("totalProcessed", "workers_processed_total", "Processed jobs as reported by workers."),
        ("totalFailed", "workers_failed_total", "Failed jobs as reported by workers."),
    ):
        text.counter(f"bunqueue_{name}", help_text, _count(counts[key]))


def _count(value: object) -> float:
    assert isinstance(value, int)
    return float(value)


def _write_process(text: _Text, door: BunqueueDoor, journal_size: i64) -> None:
    journal = door.yard.journal
    damages = journal.damages
    is_degraded = door.environment.disk_error() != "" or damages.count() > 0
    is_full = journal.is_full
    memory = float(int(door.environment.memory_mb() * (1 << 20)))
    text.gauge(
        "bunqueue_storage_degraded", "Whether the disk has a problem.", 1 if is_degraded else 0
    )
    text.gauge("bunqueue_storage_disk_full", "Whether the disk is full.", 1 if is_full else 0)
    text.counter(
        "jobyard_unexpected_errors_total",
        "Internal errors that closed one connection.",
        float(door.yard.errors.survived_count),
    )
    for what, help_text, count in (
        ("jobs", "Jobs with a damaged body.", len(damages.jobs)),
        ("records", "Damaged records of logs.", int(damages.texts_count)),
        ("segments", "Damaged journal segments, which are not compacted.", len(damages.segments)),
    ):
        text.gauge(f"jobyard_damaged_{what}", help_text, count)
    for what, help_text, total in (
        ("corrupt_reads", "Reads that found damaged data.", damages.reads_count),
        ("results_lost", "Results lost because the disk was full.", journal.results_lost),
        ("done_jobs_lost", "Completed jobs lost because the disk was full.", journal.done_lost),
    ):
        text.counter(f"jobyard_{what}_total", help_text, float(total))
    for name in (
        *("bunqueue_process_resident_memory_bytes", "process_resident_memory_bytes"),
        *("bunqueue_process_heap_used_bytes", "bunqueue_process_heap_total_bytes"),
        "process_heap_bytes",
    ):
        text.gauge(name, "Resident memory.", memory)
    text.gauge("bunqueue_sqlite_database_size_bytes", "Journal file size.", float(journal_size))
    text.counter("process_cpu_seconds_total", "Total CPU time.", round(door.environment.cpu_s(), 3))
    text.gauge(
        "process_start_time_seconds",
        "Start time of the process since the Unix epoch.",
        round(float(door.wall_ms(door.started_ms)) / 1000.0, 3),
    )
    text.begin("bunqueue_build_info", "gauge", "Compatible bunqueue version and Jobyard version.")
    labels = f'version="{BUNQUEUE_VERSION}",jobyard_version="{__version__}"'
    text.lines.append(f"bunqueue_build_info{{{labels}}} 1")
    text.begin("bunqueue_connections", "gauge", "Open connections by transport.")
    for transport, count in (
        ("tcp", door.sessions_count),
        ("websocket", door.sockets_count),
        ("sse", door.streams_count),
    ):
        text.lines.append(f'bunqueue_connections{{transport="{transport}"}} {int(count)}')


def _write_shared_limits(text: _Text, shared_limits: SharedLimits) -> None:
    """Write the memory of all connections, and the refusals by shared limits."""
    text.gauge(
        "jobyard_connection_memory_bytes",
        "Incomplete input and unsent output of all connections, beyond 64 KiB each.",
        float(shared_limits.held),
    )
    for name, help_text, count in (
        (
            "failed_authentications",
            "Login attempts with a wrong token, key or password.",
            shared_limits.attempts.failed_count,
        ),
        (
            "inputs_refused",
            "Incomplete commands refused because connection memory was full.",
            shared_limits.inputs_refused,
        ),
        ("outputs_cut", "Connections closed: answers not read.", shared_limits.outputs_cut),
        (
            "connections_refused",
            "Connections refused by the limit per address.",
            shared_limits.connections_refused,
        ),
    ):
        text.counter(f"jobyard_{name}_total", help_text, float(count))


def _write_queues(text: _Text, door: BunqueueDoor) -> None:
    queues = door.yard.queues
    shown = list(islice(queues.values(), QUEUES_SHOWN))
    for word, state in _STATES:
        name = f"bunqueue_queue_jobs_{word}"
        text.begin(name, "gauge", f"Jobs by queue: {word}.")
        for queue in shown:
            label = label_text(queue.name)
            text.lines.append(f'{name}{{queue="{label}"}} {int(count_of(queue, state))}')
    name = "bunqueue_queue_jobs_prioritized"
    text.begin(name, "gauge", "Jobs by queue: waiting with a priority.")
    for queue in shown:
        label = label_text(queue.name)
        text.lines.append(f'{name}{{queue="{label}"}} {int(queue.ahead_count)}')
    text.gauge("bunqueue_queue_metrics_exported", "Queues exported here.", len(shown))
    text.gauge("bunqueue_queue_metrics_omitted", "Queues left out here.", len(queues) - len(shown))


def _write_histogram(text: _Text, name: str, what: str, histogram: Histogram) -> None:
    text.begin(name, "histogram", f"Time each {what} waited for the disk.")
    reached = 0
    for place, end_us in enumerate(BUCKETS_US):
        reached += histogram.counts[place]
        end_s = f"{end_us / 1e6:g}"
        text.lines.append(f'{name}_bucket{{le="{end_s}"}} {reached}')
    text.lines.append(f'{name}_bucket{{le="+Inf"}} {histogram.count}')
    text.lines.append(f"{name}_sum {_number(histogram.sum_us / 1e6)}")
    text.lines.append(f"{name}_count {histogram.count}")
