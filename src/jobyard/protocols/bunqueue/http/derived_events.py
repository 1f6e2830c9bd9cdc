"""Dashboard events derived from a job transition: for its flow, the DLQ, its locks and limits.

The original's dashboards receive these as separate events. This module holds no state.
"""

from typing import Final

from jobyard.engine.state import bus
from jobyard.engine.state.bus import Event
from jobyard.model.details import FailureReason
from jobyard.model.job import Job
from jobyard.model.lease import Proof
from jobyard.model.members import MemberState
from jobyard.protocols.bunqueue.commands.dlq import BURIED_REASON, REASONS
from jobyard.protocols.bunqueue.commands.flow_links import marked_names, parent_name
from jobyard.protocols.bunqueue.ids import id_text

DashboardEvent = tuple[str, dict[str, object]]

WAITED_FOR_OTHERS: Final = "waiting-children"


def derived_events_of(event: Event) -> list[DashboardEvent]:
    """Return the additional events of an engine event, in the order to send them."""
    job = event.job
    kind = event.kind
    events: list[DashboardEvent] = []
    if job is None:
        return events
    if kind == bus.EventName.FAILED:
        events = _failed(event, job)
    elif kind == bus.EventName.WAITING and event.before == WAITED_FOR_OTHERS:
        events = _unblocked(job)
    elif kind == bus.EventName.DUPLICATED:
        events.append(("job:deduplicated", {**_named(job), "strategy": "default"}))
    elif kind == bus.EventName.REMOVED and 0 < job.policy.ttl_ms <= event.at_ms - job.created_ms:
        age_ms = int(event.at_ms - job.created_ms)
        fields = {**_named(job), "ttl": int(job.policy.ttl_ms), "age": age_ms}
        events.append(("job:expired", fields))
    elif (
        kind == bus.EventName.STALLED
        and job.lease is not None
        and job.lease.terms.proof == Proof.TOKEN
    ):
        events.append(("job:lock-expired", _named(job)))
    return events


def _named(job: Job) -> dict[str, object]:
    return {"queue": job.queue.name, "jobId": id_text(job)}


def _failed(event: Event, job: Job) -> list[DashboardEvent]:
    events: list[DashboardEvent] = []
    if event.is_dead:
        reason = REASONS.get(event.reason, BURIED_REASON)
        events.append(("dlq:added", {**_named(job), "reason": reason, "error": event.error}))
    parent = parent_name(job) if event.is_final else ""
    if parent:
        fields: dict[str, object] = {"parentJobId": parent, "failedChildId": id_text(job)}
        events.append(("flow:failed", {**fields, "queue": job.queue.name, "error": event.error}))
    if event.reason == FailureReason.TIMED_OUT:
        events.append(("job:timeout", {**_named(job), "timeout": int(job.policy.timeout_ms)}))
    return events


def _unblocked(job: Job) -> list[DashboardEvent]:
    events: list[DashboardEvent] = [("job:dependencies-resolved", _named(job))]
    children = marked_names(job, b"childrenIds")
    members = None if job.details is None else job.details.members
    if children and members and all(member.state == MemberState.SETTLED for member in members):
        fields: dict[str, object] = {"parentJobId": id_text(job), "queue": job.queue.name}
        events.append(("flow:completed", {**fields, "childrenCount": len(children)}))
    return events
