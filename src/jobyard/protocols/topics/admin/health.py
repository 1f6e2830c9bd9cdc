"""Health, readiness and metrics endpoints."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from jobyard import __version__
from jobyard.engine.logs.cursors import cursor_head
from jobyard.engine.state.counters import COUNTED_EVENTS
from jobyard.engine.state.health import DAMAGED, problems
from jobyard.engine.topics.topic_queue import ready_count
from jobyard.engine.topics.topic_setup import config_of
from jobyard.model.queue import is_topic
from jobyard.model.topic.config import DURABILITIES, is_topic_name
from jobyard.protocols.topics.admin.cursors import cursor_state
from jobyard.protocols.topics.api import check_open, may_see
from jobyard.protocols.topics.records.jobs import earliest_seq

if TYPE_CHECKING:
    from mypy_extensions import i64

    from jobyard.model.queue import Queue
    from jobyard.model.topic.log import LogTopic
    from jobyard.model.topic.txn import Txns
    from jobyard.protocols.http.call import HttpCall
    from jobyard.protocols.topics.door import TopicsDoor

# Most topics that get metrics of their own.
SERIES_MAX = 1000
# Metrics of type counter; all others are gauges.
_COUNTERS = (
    *("topics_wal_records", "topics_wal_batches"),
    *[f"topics_txns_{what}" for what in ("committed", "aborted", "expired", "repeated", "fenced")],
    *[f"topics_jobs_{event}" for event in COUNTED_EVENTS],
)


def health(door: TopicsDoor, call: HttpCall) -> None:
    """GET /v0/health."""
    uptime_ms = int(call.now_ms - door.started_ms)
    answer: dict[str, object] = {"status": "ok", "version": __version__, "uptime_ms": uptime_ms}
    found = problems(door.yard)
    if found:
        answer["status"] = "degraded"
        answer["problems"] = found
    if DAMAGED in found:
        answer["damage"] = door.yard.journal.damages.summary()
    call.answer(200, json.dumps(answer).encode())


def ready(door: TopicsDoor, call: HttpCall) -> None:
    """GET /v0/ready; the server listens only after recovery, so an answer means ready."""
    check_open(call)
    topics = len(door.yard.logs) + len(_queues(door))
    answer = {"status": "ready", "wal_replay_complete": True, "topics": topics}
    call.answer(200, json.dumps(answer).encode())


def metrics(door: TopicsDoor, call: HttpCall) -> None:
    """GET /v0/metrics."""
    totals = _totals(door, call)
    if "application/json" in call.header("accept"):
        call.answer(200, json.dumps(totals).encode())
        return
    # The text format wants all samples of a name together.
    families = {name: [f"{name} {value}"] for name, value in totals.items()}
    families.update(_classes(door))
    families.update(_series(door, call))
    families.update(_cursor_series(door, call))
    lines: list[str] = []
    for name, samples in families.items():
        kind = "counter" if name in _COUNTERS else "gauge"
        lines += [f"# TYPE {name} {kind}", *samples]
    call.answer(200, ("\n".join(lines) + "\n").encode(), "text/plain; version=0.0.4")


def _totals(door: TopicsDoor, call: HttpCall) -> dict[str, int]:
    yard = door.yard
    journal = yard.journal
    queues = _queues(door)
    return {
        "topics_topics": len(yard.logs) + len(queues),
        "topics_queue_topics": len(queues),
        "topics_records_live": sum(int(log.count) for log in yard.logs.values())
        + int(yard.jobs.count),
        "topics_bytes_live": sum(int(log.bytes) for log in yard.logs.values())
        + sum(int(queue.jobs_by_seq.bytes) for queue in queues if queue.jobs_by_seq is not None),
        "topics_queue_leases_in_flight": int(yard.leased_count),
        "topics_routers": len(yard.routers.by_name),
        "topics_watch_sessions": len(door.watches),
        "topics_sse_connections": int(door.limits.streams_count),
        "topics_ready": 0 if call.session.door.is_draining else 1,
        "topics_recovery_progress": 1,
        "topics_uptime_ms": int(call.now_ms - door.started_ms),
        "topics_wal_records": int(journal.records_count),
        "topics_wal_batches": int(journal.open_number - 1),
        "topics_wal_segments": len(journal.segments),
        "topics_wal_fsync_mean_us": int(call.session.door.stopwatch.sync_us()),
        "topics_unexpected_errors": int(yard.errors.survived_count),
        "topics_connection_memory_bytes": int(door.shared_limits.held),
        "topics_failed_authentications": int(door.shared_limits.attempts.failed_count),
        "topics_inputs_refused": int(door.shared_limits.inputs_refused),
        "topics_outputs_cut": int(door.shared_limits.outputs_cut),
        "topics_connections_refused": int(door.shared_limits.connections_refused),
        "topics_corrupt_reads": int(journal.damages.reads_count),
        "topics_disk_full": 1 if journal.is_full else 0,
        **_txn_totals(yard.txns),
        **{f"topics_jobs_{event}": count for event, count in yard.counters.totals().items()},
    }


def _txn_totals(txns: Txns) -> dict[str, int]:
    return {
        "topics_txns_open": len(txns.open),
        "topics_txns_remembered": int(txns.decided.count()),
        "topics_txns_staged_records": int(txns.staged_rows),
        "topics_txns_staged_bytes": int(txns.staged_bytes),
        "topics_txns_memory_bytes": int(txns.memory),
        "topics_txns_committed": int(txns.committed_count),
        "topics_txns_aborted": int(txns.aborted_count),
        "topics_txns_expired": int(txns.expired_count),
        "topics_txns_repeated": int(txns.repeated_count),
        "topics_txns_fenced": int(txns.fenced_count),
        "topics_claim_sets": int(txns.claim_sets.count()),
    }


def _queues(door: TopicsDoor) -> list[Queue]:
    """Return the queues that are topics."""
    return [queue for queue in door.yard.queues.values() if is_topic(queue)]


def _classes(door: TopicsDoor) -> dict[str, list[str]]:
    counted = dict.fromkeys(DURABILITIES, 0)
    for log in door.yard.logs.values():
        counted[log.config.durability] += 1
    for queue in _queues(door):
        counted[config_of(queue).durability] += 1
    name = "topics_topics_by_class"
    return {name: [f'{name}{{class="{word}"}} {count}' for word, count in counted.items()]}


def _series(door: TopicsDoor, call: HttpCall) -> dict[str, list[str]]:
    """Return the metrics of single topics."""
    shown: list[tuple[str, dict[str, i64]]] = []
    for name, log in door.yard.logs.items():
        if len(shown) < SERIES_MAX and may_see(call, name):
            shown.append((name, _log_numbers(log)))
    for queue in _queues(door):
        if len(shown) < SERIES_MAX and is_topic_name(queue.name) and may_see(call, queue.name):
            shown.append((queue.name, _queue_numbers(queue)))
    families: dict[str, list[str]] = {}
    for topic, numbers in shown:
        for suffix, number in numbers.items():
            name = f"topics_topic_{suffix}"
            families.setdefault(name, []).append(f'{name}{{topic="{topic}"}} {int(number)}')
    return families


def _cursor_series(door: TopicsDoor, call: HttpCall) -> dict[str, list[str]]:
    """Return how far the readers behind cursors are behind."""
    families: dict[str, list[str]] = {"topics_cursor_lag": [], "topics_cursor_lag_ms": []}
    for cursor in door.yard.cursors.all()[:SERIES_MAX]:
        if cursor_head(door.yard, cursor.topic) >= 0 and may_see(call, cursor.topic):
            state = cursor_state(door, cursor)
            labels = f'{{topic="{cursor.topic}",cursor="{cursor.name}"}}'
            for suffix in ("lag", "lag_ms"):
                families[f"topics_cursor_{suffix}"].append(
                    f"topics_cursor_{suffix}{labels} {state[suffix]}"
                )
    return {name: samples for name, samples in families.items() if samples}


def _log_numbers(log: LogTopic) -> dict[str, i64]:
    return {
        "head_seq": log.next_seq - 1,
        "earliest_seq": log.earliest_seq,
        "records": log.count,
        "bytes": log.bytes,
    }


def _queue_numbers(queue: Queue) -> dict[str, i64]:
    numbers: dict[str, i64] = {"head_seq": queue.next_seq - 1}
    # Reading metrics must not build the jobs by seq of a queue.
    if queue.jobs_by_seq is not None:
        numbers["earliest_seq"] = earliest_seq(queue)
        numbers["bytes"] = queue.jobs_by_seq.bytes
    numbers["records"] = queue.jobs_count() - queue.done.live_count
    numbers["queue_ready"] = ready_count(queue)
    numbers["queue_in_flight"] = len(queue.leased.items)
    numbers["queue_delayed"] = len(queue.delayed.items)
    topic_state = queue.topic_state
    numbers["queue_dead_lettered"] = 0 if topic_state is None else topic_state.dead_lettered
    return numbers
