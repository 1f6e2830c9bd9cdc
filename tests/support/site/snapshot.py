"""What clients could see of a yard, as plain values, so that two yards can be compared."""

from jobyard.engine.jobs.queues import is_ruled
from jobyard.engine.logs.text import texts_between
from jobyard.engine.state.yard import Yard
from jobyard.model.details import JobCounters, JobDetails, Outcome
from jobyard.model.index.append_list import AppendList
from jobyard.model.job import DELAYED, DONE, LEASED, READY, Job
from jobyard.model.queue import Queue
from jobyard.model.throttle.settings import Rules
from jobyard.model.topic.config import BARRED
from jobyard.model.topic.log import LogTopic
from tests.support.engine.record_keys import key_facts

# Everything a client could see of one job, and of a yard.
Facts = tuple[object, ...]
Snapshot = dict[object, Facts]


def snapshot(yard: Yard) -> Snapshot:
    """Return what clients could see after a restart, which ends most leases."""
    found: Snapshot = {}
    for job in yard.jobs.all():
        found[int(job.id)] = _facts(yard, job)
    for name, queue in yard.queues.items():
        found.update(_queue_facts(name, queue))
    found.update((f"custom {one}", (int(job.id),)) for one, job in yard.names.custom.items())
    found.update((f"glide {one}", (int(job.id),)) for one, job in yard.names.glide.items())
    for child_id, parents in yard.names.dependents.items():
        found[f"dependents {child_id}"] = tuple(sorted(int(job.id) for job in parents))
    for name, log in yard.logs.items():
        found[f"log {name}"] = log_facts(yard, log)
    found.update(key_facts(yard))
    for entry in yard.journal.entries.values():
        if not entry.is_gone:
            found[f"entry {entry.kind} {entry.key!r}"] = (entry.value,)
    return found


def log_facts(yard: Yard, log: LogTopic) -> Facts:
    """Return what a reader or writer could see of a log."""
    rows = [
        (
            int(chunk.base) + slot,
            texts_between(yard.journal, chunk, slot, slot + 1),
            chunk.label_at(slot),
            chunk.at[slot],
        )
        for chunk in log.chunks
        for slot in range(chunk.used())
        if chunk.is_alive(slot)
    ]
    keys = [(name, key.first_seq, key.last_seq, key.at_ms) for name, key in log.keys.items()]
    floors = (int(log.cap_floor), int(log.ttl_floor), int(log.earliest_seq))
    counts = (int(log.count), int(log.bytes), int(log.next_seq), int(log.last_write_ms))
    return (log.config.encode(), int(log.incarnation), floors, counts, rows, sorted(keys))


def _queue_facts(name: str, queue: Queue) -> Snapshot:
    found: Snapshot = {}
    if queue.dead.live_count > 0:
        found[f"buried {name}"] = tuple(buried(queue))
    if queue.done.live_count > 0:
        found[f"done {name}"] = tuple(resting(queue.done))
    if queue.keys is not None and queue.keys.count > 0:
        owners = sorted(queue.keys.items())
        found[f"keys {name}"] = tuple((key, int(job.id)) for key, job in owners)
    if queue.rules is not None and is_ruled(queue.rules):
        found[f"rules {name}"] = _rules_facts(queue.rules)
    if queue.config is not None and queue.config is not BARRED:
        found[f"topic {name}"] = _topic_facts(queue)
    return found


def _topic_facts(queue: Queue) -> Facts:
    assert queue.config is not None
    assert queue.jobs_by_seq is not None
    topic_state = queue.topic_state
    assert topic_state is not None
    return (
        queue.config.encode(),
        int(queue.next_seq),
        int(queue.jobs_by_seq.bytes),
        topic_state.encode_floors(),
    )


def _rules_facts(rules: Rules) -> Facts:
    groups = sorted(rules.groups.items())
    return (
        rules.settings.encode(),
        tuple((name, group.encode(), int(group.jobs_count)) for name, group in groups),
    )


def _facts(yard: Yard, job: Job) -> Facts:
    details = job.details if job.details is not None else JobDetails()
    state = READY if job.state == LEASED and details.durable_lease is None else int(job.state)
    counts = details.counters if details.counters is not None else JobCounters()
    counters = (counts.timeouts, counts.releases, counts.buries, counts.kicks)
    return (
        job.queue.name,
        state,
        int(job.rank),
        int(job.key),
        int(job.stamp),
        int(job.created_ms),
        int(job.due_ms) if state == DELAYED else 0,
        int(job.delay_ms),
        int(job.own_ms),
        yard.bodies.fetch(job),
        yard.bodies.fetch_result(job) if state == DONE else b"",
        int(job.deliveries),
        counters,
        int(counts.stalls),
        int(job.attempts),
        (int(job.family), int(job.codec), job.policy.text),
        # A job taken from another ready list comes back to the stream.
        int(job.ready_list),
        *extra_facts(details),
    )


def extra_facts(details: JobDetails) -> Facts:
    """Return the details of a job."""
    key: Facts = ()
    if details.unique_key:
        key = (details.unique_key, details.key_mode, details.key_ttl_ms, details.key_until_ms)
    ended: Facts = ()
    outcome = details.outcome
    if outcome is not None:
        ended = (outcome.ended_ms, outcome.started_ms, outcome.reason, outcome.error)
        ended += (outcome.codec, outcome.result_size)
    record_meta: Facts = ()
    if details.record_meta is not None:
        record_meta = (details.record_meta.tag, details.record_meta.node, details.record_meta.meta)
    glide: Facts = ()
    if details.glide is not None:
        glide = (details.glide.encode(), sorted((details.glide.overlay or {}).items()))
    kept: Facts = ()
    if details.durable_lease is not None:
        one = details.durable_lease
        kept = (one.name, one.node, int(one.started_ms), int(one.until_ms), int(one.ttl_ms))
    return (
        (
            details.custom_id,
            key,
            details.group_id,
            details.protocol_fields,
            details.parent_id,
            record_meta,
        ),
        [(one.child_id, one.label, one.state, one.value) for one in details.members or ()],
        (details.progress, details.message),
        [(line.at_ms, line.level, line.text) for line in details.logs or ()],
        [
            (one.attempt, one.started_ms, one.failed_ms, one.reason, one.error)
            for one in details.failures or ()
        ],
        (details.stack, details.retries, details.retried_ms),
        ended,
        kept,
        glide,
    )


def buried(queue: Queue) -> list[int]:
    """Return the ids of a queue's dead jobs, oldest burial first."""
    return resting(queue.dead)


def resting(line: AppendList) -> list[int]:
    """Return the ids of ended jobs, the first to end first."""
    return [int(outcome.job.id) for outcome in line.live() if isinstance(outcome, Outcome)]
