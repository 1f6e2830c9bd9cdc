"""The expected values of `stats`, `stats-tube` and `stats-job`, key by key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sim.beanstalk.memory import DELAYED, LEASED
from sim.state import UNKNOWN, ModelJob, Tube

if TYPE_CHECKING:
    from sim.beanstalk.model import Model

PID: Final = 4711
INSTANCE: Final = "0123456789abcdef"
URGENT: Final = 1024
_STATES: Final = ("ready", "delayed", "reserved", "buried")
_BINLOG: Final = ("oldest-index", "current-index", "records-migrated", "records-written")


def _seconds(span_ms: int) -> str:
    return str(max(0, span_ms) // 1000)


def standing(tubes: list[Tube]) -> dict[str, int]:
    """Count the jobs of some tubes by state."""
    return {
        "urgent": sum(1 for tube in tubes for rank, _ in tube.ready if rank < URGENT),
        "ready": sum(len(tube.ready) for tube in tubes),
        "reserved": sum(tube.leased_count for tube in tubes),
        "delayed": sum(len(tube.delayed) for tube in tubes),
        "buried": sum(len(tube.buried) for tube in tubes),
    }


def of_server(model: Model) -> dict[str, str]:
    """Return the keys of `stats`."""
    facts = {f"current-jobs-{k}": str(n) for k, n in standing(list(model.tubes.values())).items()}
    facts |= {f"cmd-{word}": str(count) for word, count in model.counts.items()}
    clients = model.clients
    facts |= {
        "job-timeouts": str(model.timeouts_count),
        "total-jobs": str(model.puts_count),
        "max-job-size": UNKNOWN,
        "current-tubes": str(len(model.tubes)),
        "current-connections": str(len(clients)),
        "current-producers": str(sum(client.is_producer for client in clients)),
        "current-workers": str(sum(client.is_worker for client in clients)),
        "current-waiting": str(sum(client.is_waiting for client in clients)),
        "total-connections": str(model.connections_total),
        "pid": str(PID),
        "version": '"1.13"',
        "rusage-utime": "1.000000",
        "rusage-stime": "0.500000",
        "uptime": _seconds(model.now - model.started),
        "draining": "false",
        "id": INSTANCE,
        "hostname": '"yard"',
        "os": '"#1"',
        "platform": '"virtual"',
    }
    facts |= {f"binlog-{key}": UNKNOWN for key in (*_BINLOG, "max-size")}
    # Present only while it is true.
    facts |= dict.fromkeys(("disk-full", "damaged"), UNKNOWN)
    return facts


def of_tube(tube: Tube, now: int) -> dict[str, str]:
    """Return the keys of `stats-tube`."""
    facts = {f"current-jobs-{k}": str(n) for k, n in standing([tube]).items()}
    return facts | {
        "name": f'"{tube.name}"',
        "total-jobs": str(tube.total_count),
        "current-using": str(tube.users_count),
        "current-watching": str(tube.watchers_count),
        "current-waiting": str(len(tube.waiters)),
        "cmd-delete": str(tube.deleted_count),
        "cmd-pause-tube": str(tube.pauses_count),
        "pause": _seconds(tube.pause_ms),
        "pause-time-left": _seconds(tube.pause_until - now) if tube.pause_ms else "0",
    }


def of_job(job: ModelJob, now: int) -> dict[str, str]:
    """Return the keys of `stats-job`."""
    left = 0
    if job.state == LEASED:
        left = job.deadline - now
    elif job.state == DELAYED:
        left = job.due - now
    return {
        "id": str(job.id),
        "tube": f'"{job.tube.name}"',
        "state": _STATES[job.state],
        "pri": str(job.rank),
        "age": _seconds(now - job.created),
        "delay": _seconds(job.delay_ms),
        "ttr": _seconds(job.ttr_ms),
        "time-left": _seconds(left),
        "file": UNKNOWN,
        "reserves": str(job.reserves),
        "timeouts": str(job.timeouts),
        "releases": str(job.releases),
        "buries": str(job.buries),
        "kicks": str(job.kicks),
    }
