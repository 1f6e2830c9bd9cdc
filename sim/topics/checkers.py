"""Recounts of topics: the yard against the model, and its accounting against itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobyard.engine.state.record_keys import keys_of
from jobyard.model.job import DEAD, DELAYED, LEASED, READY
from sim.checkers import kept_bytes
from sim.state import Violation
from sim.topics.keys import keys_found
from sim.topics.memory import jobs_of

if TYPE_CHECKING:
    from jobyard.engine.state.yard import Yard
    from sim.topics.model import TopicsModel
    from sim.topics.nouns import Job


def check_topics(yard: Yard, model: TopicsModel) -> None:
    """Check that every topic holds what the model has; cheap where no internals are needed."""
    queues = {name for name, queue in yard.queues.items() if queue.config is not None}
    if (set(yard.logs), queues) != (set(model.logs), set(model.queues)):
        raise Violation("topics", f"{set(yard.logs)} {queues}, not {list(model.logs)}")
    for name, log in model.logs.items():
        found = yard.logs[name]
        told = (int(found.count), int(found.bytes), int(found.next_seq), int(found.earliest_seq))
        wanted = (len(log.rows), log.bytes, log.next_seq, log.earliest)
        if told != wanted:
            raise Violation("state", f"{name}: count, bytes, next, earliest {told}, not {wanted}")
        floors = (int(found.cap_floor), int(found.ttl_floor))
        if floors != (log.cap_floor, log.ttl_floor):
            raise Violation("state", f"{name}: floors {floors}, not {log.cap_floor, log.ttl_floor}")
    for name, queue in model.queues.items():
        _check_jobs(yard, name, queue.jobs)
    for name, topic in (model.logs | model.queues).items():
        keys = keys_found(keys_of(yard, name), model.now)
        valid = topic.record_keys.valid(topic.config, model.now)
        wanted_keys = {key: (one.seq, one.at) for key, one in valid.items()}
        if keys != wanted_keys:
            raise Violation("state", f"{name}: keys {keys}, not {wanted_keys}"[:1500])
    routers = {n: (int(r.cursor), r.is_behind) for n, r in yard.routers.by_name.items()}
    known = {name: (router.cursor, router.is_behind) for name, router in model.routers.items()}
    if routers != known:
        raise Violation("routers", f"cursors {routers}, not {known}")


def _check_jobs(yard: Yard, name: str, jobs: dict[int, Job]) -> None:
    found = {int(job.key): (int(job.state), int(job.deliveries)) for job in jobs_of(yard, name)}
    wanted = {job.seq: (_state_of(job), job.deliveries) for job in jobs.values()}
    if found != wanted:
        raise Violation("state", f"{name}: {found}, not {wanted}"[:1500])


def _state_of(job: Job) -> int:
    if job.buried:
        return DEAD
    return LEASED if job.holder else DELAYED if job.is_delayed else READY


def check_books(yard: Yard) -> None:
    """Check that the text in memory is counted correctly."""
    kept = kept_bytes(yard)
    texts = sum(int(log.memory) for log in yard.logs.values()) + int(yard.txns.memory)
    texts += 0 if yard.txns.log is None else int(yard.txns.log.memory)
    if kept + texts != int(yard.bodies.in_memory):
        story = f"{yard.bodies.in_memory} bytes counted, {kept} of bodies and {texts} of logs"
        raise Violation("counters", story)
