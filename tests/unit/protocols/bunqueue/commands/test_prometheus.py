"""The text for Prometheus."""

import re

from jobyard import __version__
from jobyard.protocols.bunqueue.commands.prometheus import QUEUES_SHOWN, label_text
from tests.support.clients.bunqueue import BunqueueClient
from tests.support.doors.bunqueue import BareBunqueue

HISTOGRAM_ENDS = ("_bucket", "_sum", "_count")
# The metrics of version 2.9.5 of the original.
ORIGINAL = """
ack_duration_seconds backup_attempts_total backup_consecutive_failures backup_enabled
backup_failures_total backup_in_progress backup_interval_seconds
backup_last_duration_seconds backup_last_failure_timestamp_seconds backup_last_size_bytes
backup_last_success_timestamp_seconds backup_overlap_rejections_total backup_retention
backup_scheduler_running backup_successes_total build_info connections cron_jobs_registered
jobs_active jobs_completed jobs_completed_total jobs_delayed jobs_dlq jobs_failed_total
jobs_prioritized jobs_pulled_total jobs_pushed_total jobs_waiting process_heap_total_bytes
process_heap_used_bytes process_resident_memory_bytes pull_duration_seconds
push_duration_seconds queue_jobs_active queue_jobs_delayed queue_jobs_dlq
queue_jobs_prioritized queue_jobs_waiting queue_metrics_exported queue_metrics_omitted
sqlite_database_size_bytes storage_degraded storage_disk_full uptime_seconds
webhooks_enabled webhooks_registered worker_active_jobs worker_concurrency_slots
workers_active workers_failed_total workers_processed_total workers_registered
"""
PROCESS = "cpu_seconds_total heap_bytes resident_memory_bytes start_time_seconds"

LABEL = r'[a-z_]+="[^"]*"'
LINE = re.compile(rf"[a-z_]+(\{{{LABEL}(,{LABEL})*\}})? [0-9.e+-]+")


def values(client: BunqueueClient) -> dict[str, float]:
    text = client.ok("Prometheus")["data"]["metrics"]
    assert text.endswith("\n")
    found: dict[str, float] = {}
    told: set[str] = set()
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            name, kind = line.split()[2:]
            told |= {name + end for end in HISTOGRAM_ENDS} if kind == "histogram" else {name}
        elif not line.startswith("#"):
            assert LINE.fullmatch(line), line
            name, _, value = line.rpartition(" ")
            assert name.partition("{")[0] in told
            assert name not in found
            found[name] = float(value)
    return found


def test_the_counts_are_those_of_the_yard() -> None:
    site = BareBunqueue()
    client = site.connect()
    client.finish()
    client.bury()
    client.push()
    client.push(priority=2)
    client.push("p", groupId="g", priority=1)
    client.push(delay=1000)
    worker = client.ok("RegisterWorker", name="w", queues=["q"], concurrency=3)["data"]
    client.ok("Heartbeat", id=worker["workerId"], activeJobs=1, processed=7, failed=2)
    client.ok("AddWebhook", url="https://hooks.example.com/", events=["job.failed"])
    site.now_ms += 1500
    found = values(client)
    expected = {
        "bunqueue_jobs_waiting": 3,
        "bunqueue_jobs_prioritized": 2,
        "bunqueue_jobs_delayed": 1,
        "bunqueue_jobs_active": 0,
        "bunqueue_jobs_dlq": 1,
        "bunqueue_jobs_completed": 1,
        "bunqueue_jobs_pushed_total": 6,
        "bunqueue_jobs_pulled_total": 2,
        "bunqueue_jobs_completed_total": 1,
        "bunqueue_jobs_failed_total": 1,
        "bunqueue_uptime_seconds": 1.5,
        "bunqueue_workers_registered": 1,
        "bunqueue_worker_concurrency_slots": 3,
        "bunqueue_worker_active_jobs": 1,
        "bunqueue_workers_processed_total": 7,
        "bunqueue_workers_failed_total": 2,
        "bunqueue_webhooks_enabled": 1,
        "bunqueue_storage_disk_full": 0,
        'bunqueue_connections{transport="tcp"}': 1,
        'bunqueue_connections{transport="websocket"}': 0,
        'bunqueue_connections{transport="sse"}': 0,
        'bunqueue_queue_jobs_waiting{queue="q"}': 2,
        'bunqueue_queue_jobs_prioritized{queue="q"}': 1,
        'bunqueue_queue_jobs_dlq{queue="q"}': 1,
        "process_cpu_seconds_total": 1.5,
    }
    assert {name: found[name] for name in expected} == expected


def test_queues_beyond_the_hundredth_are_left_out() -> None:
    site = BareBunqueue()
    client = site.connect()
    for n in range(QUEUES_SHOWN + 5):
        client.push(f"q{n}")
    found = values(client)
    shown = [name for name in found if name.startswith("bunqueue_queue_jobs_waiting{")]
    assert len(shown) == found["bunqueue_queue_metrics_exported"] == QUEUES_SHOWN
    assert found["bunqueue_queue_metrics_omitted"] == len(site.yard.queues) - QUEUES_SHOWN


def test_the_version_is_that_which_clients_are_told_beside_our_own() -> None:
    client = BareBunqueue().connect()
    version = client.ok("Hello")["version"]
    name = f'bunqueue_build_info{{version="{version}",jobyard_version="{__version__}"}}'
    assert values(client)[name] == 1


def test_labels_are_quoted() -> None:
    assert label_text('a"b\\c\nd') == 'a\\"b\\\\c\\nd'


def test_every_name_of_the_original_is_reported() -> None:
    text = BareBunqueue().connect().ok("Prometheus")["data"]["metrics"]
    told = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE ")}
    # This server's own metrics follow them.
    assert {name for name in told if not name.startswith("jobyard_")} == {
        *(f"bunqueue_{name}" for name in ORIGINAL.split()),
        *(f"process_{name}" for name in PROCESS.split()),
    }
    assert {"jobyard_unexpected_errors_total", "jobyard_connection_memory_bytes"} <= told
