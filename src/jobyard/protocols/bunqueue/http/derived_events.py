"""What a step in the life of a job means beside it: for its flow, for the dead, for the queue.

Dashboards of the original hear of these under names of their own. Nothing is remembered here.
"""

from typing import Final

from jobyard.engine.state import bus
from jobyard.engine.state.bus import Event
from jobyard.model.details import SETTLED, TIMED_OUT
from jobyard.model.job import Job
from jobyard.model.queue import TOKEN
from jobyard.protocols.bunqueue.commands.dlq import BURIED, REASONS
from jobyard.protocols.bunqueue.commands.flow_links import marked_names, parent_name
from jobyard.protocols.bunqueue.ids import id_text

Told = tuple[str, dict[str, object]]

WAITED_FOR_OTHERS: Final = "waiting-children"


def asides_of(event: Event) -> list[Told]:
    """Return what else is to be told of an event, in this order."""
    job = event.job
    kind = event.kind
    told: list[Told] = []
    if job is None:
        return told
    if kind == bus.FAILED:
        told = _failed(event, job)
    elif kind == bus.WAITING and event.before == WAITED_FOR_OTHERS:
        told = _unblocked(job)
    elif kind == bus.DUPLICATED:
        told.append(("job:deduplicated", {**_named(job), "strategy": "default"}))
    elif kind == bus.REMOVED and 0 < job.policy.ttl_ms <= event.at_ms - job.created_ms:
        age_ms = int(event.at_ms - job.created_ms)
        fields = {**_named(job), "ttl": int(job.policy.ttl_ms), "age": age_ms}
        told.append(("job:expired", fields))
    elif kind == bus.STALLED and job.lease is not None and job.lease.terms.proof == TOKEN:
        told.append(("job:lock-expired", _named(job)))
    return told


def _named(job: Job) -> dict[str, object]:
    return {"queue": job.queue.name, "jobId": id_text(job)}


def _failed(event: Event, job: Job) -> list[Told]:
    told: list[Told] = []
    if event.is_dead:
        reason = REASONS.get(event.reason, BURIED)
        told.append(("dlq:added", {**_named(job), "reason": reason, "error": event.error}))
    parent = parent_name(job) if event.is_final else ""
    if parent:
        fields: dict[str, object] = {"parentJobId": parent, "failedChildId": id_text(job)}
        told.append(("flow:failed", {**fields, "queue": job.queue.name, "error": event.error}))
    if event.reason == TIMED_OUT:
        told.append(("job:timeout", {**_named(job), "timeout": int(job.policy.timeout_ms)}))
    return told


def _unblocked(job: Job) -> list[Told]:
    told: list[Told] = [("job:dependencies-resolved", _named(job))]
    children = marked_names(job, b"childrenIds")
    members = None if job.extra is None else job.extra.members
    if children and members and all(member.state == SETTLED for member in members):
        fields: dict[str, object] = {"parentJobId": id_text(job), "queue": job.queue.name}
        told.append(("flow:completed", {**fields, "childrenCount": len(children)}))
    return told
