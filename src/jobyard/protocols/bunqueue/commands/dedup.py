"""Which job already stands for one that is pushed, by its id or its key, and which makes way.

Knows nothing of batches and answers. Nothing goes unless the wish becomes a job.
"""

from mypy_extensions import i64

from jobyard.engine.jobs.move import erase
from jobyard.engine.jobs.put import Wish, tell_duplicate
from jobyard.engine.jobs.unique_keys import claim, is_needed, owner_of, room_to_claim
from jobyard.engine.state.yard import Yard
from jobyard.errors import Refused
from jobyard.model.details import KEY_EXTENDS, KEY_REPLACES, Extra
from jobyard.model.job import DEAD, DONE, LEASED, Job
from jobyard.model.queue import Queue
from jobyard.protocols.bunqueue.ids import find_job


def stand_in(yard: Yard, queue: Queue, wish: Wish, now_ms: i64) -> Job | None:
    """Return the job that already stands for a wish; what must go to make way for it goes.

    Nothing goes unless the wish becomes a job: a name is not given up for a key that is taken.
    """
    extra = wish.extra
    assert extra is not None
    same = _namesake(yard, extra)
    if same is not None and same.state not in (DEAD, DONE):
        tell_duplicate(yard, same, now_ms)
        return same
    owner = claim(yard, queue, extra, now_ms)
    if owner is not None:
        return owner
    if same is not None:
        erase(yard, same, now_ms)
    return None


def _namesake(yard: Yard, extra: Extra) -> Job | None:
    """Return the job that has the id a client wants for another."""
    if not extra.custom_id:
        return None
    same = yard.names.named(extra.custom_id)
    return same if same is not None else find_job(yard, extra.custom_id.encode())


def refuse_taken(yard: Yard, queue: Queue, wish: Wish, now_ms: i64) -> None:
    """Refuse a job whose key belongs to one that can be neither replaced nor extended."""
    extra = wish.extra
    assert extra is not None
    owner = owner_of(queue, extra, now_ms)
    if owner is None:
        return
    same = _namesake(yard, extra)
    if same is not None and same.state not in (DEAD, DONE):
        return
    if extra.key_mode == KEY_REPLACES and is_needed(yard, owner, extra):
        raise Refused("Cannot replace a job that other jobs depend on")
    if extra.key_mode == KEY_EXTENDS and extra.key_ttl_ms > 0 and owner.state == LEASED:
        raise Refused("Duplicate unique_key (extended TTL)")


def room_to_stand_in(queue: Queue, wish: Wish, now_ms: i64) -> i64:
    """Return what the records take by which another job makes way for a wish."""
    return room_to_claim(queue, wish.extra, now_ms)
