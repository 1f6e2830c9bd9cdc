"""Whether the server is up, and what it counts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from jobyard import __version__
from jobyard.engine.claims import counts as counts_of
from jobyard.model.topic import is_topic_name
from jobyard.sessions.topics.area import check_open, may_see
from jobyard.sessions.topics.find import is_topic

if TYPE_CHECKING:
    from jobyard.model.queue import Queue
    from jobyard.sessions.http.call import Call
    from jobyard.sessions.topics.door import TopicsDoor

# Topics with series of their own.
SERIES_MAX = 1000


def health(door: TopicsDoor, call: Call) -> None:
    """GET /v0/health."""
    uptime_ms = int(call.now_ms - door.started_ms)
    answer = {"status": "ok", "version": __version__, "uptime_ms": uptime_ms}
    call.answer(200, json.dumps(answer).encode())


def ready(door: TopicsDoor, call: Call) -> None:
    """GET /v0/ready; whoever can ask is answered by a yard that was recovered."""
    check_open(call)
    topics = len(door.yard.logs) + len(_queues(door))
    answer = {"status": "ready", "wal_replay_complete": True, "topics": topics}
    call.answer(200, json.dumps(answer).encode())


def metrics(door: TopicsDoor, call: Call) -> None:
    """GET /v0/metrics."""
    if "application/json" in call.header("accept"):
        call.answer(200, json.dumps(_totals(door, call)).encode())
        return
    lines: list[str] = []
    for name, value in _totals(door, call).items():
        lines += [f"# TYPE {name} gauge", f"{name} {value}"]
    lines += _series(door, call)
    call.answer(200, ("\n".join(lines) + "\n").encode(), "text/plain; version=0.0.4")


def _totals(door: TopicsDoor, call: Call) -> dict[str, int]:
    yard = door.yard
    journal = yard.journal
    queues = _queues(door)
    return {
        "topics_topics": len(yard.logs) + len(queues),
        "topics_queue_topics": len(queues),
        "topics_records_live": sum(int(log.count) for log in yard.logs.values())
        + int(yard.jobs.count),
        "topics_bytes_live": sum(int(log.bytes) for log in yard.logs.values()),
        "topics_queue_leases_in_flight": int(yard.leased_count),
        "topics_routers": len(yard.routers.by_name),
        "topics_watch_sessions": len(door.watches),
        "topics_ready": 1,
        "topics_uptime_ms": int(call.now_ms - door.started_ms),
        "topics_wal_records": int(journal.records_count),
        "topics_wal_batches": int(journal.open_number - 1),
        "topics_wal_segments": len(journal.segments),
    }


def _queues(door: TopicsDoor) -> list[Queue]:
    """Return the queues that are topics."""
    return [queue for queue in door.yard.queues.values() if is_topic(queue)]


def _series(door: TopicsDoor, call: Call) -> list[str]:
    lines: list[str] = []
    left = SERIES_MAX
    for name, log in door.yard.logs.items():
        if left > 0 and may_see(call, name):
            left -= 1
            label = f'{{topic="{name}"}}'
            lines += [
                f"topics_topic_head_seq{label} {int(log.next_seq - 1)}",
                f"topics_topic_records{label} {int(log.count)}",
                f"topics_topic_bytes{label} {int(log.bytes)}",
            ]
    for queue in _queues(door):
        if left > 0 and is_topic_name(queue.name) and may_see(call, queue.name):
            left -= 1
            counts = counts_of(queue)
            label = f'{{topic="{queue.name}"}}'
            lines += [
                f"topics_topic_queue_ready{label} {int(counts.ready)}",
                f"topics_topic_queue_in_flight{label} {int(counts.in_flight)}",
            ]
    return lines
