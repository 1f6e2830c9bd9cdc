"""What becomes of a job that enters with a key another job has: kept out, or let in for it.

A key belongs to one job of a queue until that job comes to its end or the time of the key is over.
Nothing here refuses; who may refuse asks `owner_of` and `is_needed` first.
"""

from typing import Final

from mypy_extensions import i64

from jobyard.engine.jobs import flows
from jobyard.engine.jobs.move import erase
from jobyard.engine.jobs.put import tell_duplicate
from jobyard.engine.state.yard import Yard
from jobyard.model.details import (
    KEY_DROPPED,
    KEY_EXTENDS,
    KEY_REPLACES,
    KEY_UNTIL,
    Extra,
    Fields,
)
from jobyard.model.job import LEASED, Job
from jobyard.model.queue import Queue

# The record by which a job goes, or gives up its key.
_RECORD_ROOM: Final = 256


def owner_of(queue: Queue, extra: Extra, now_ms: i64) -> Job | None:
    """Return the job that has the key of another."""
    if not extra.unique_key or queue.keys is None:
        return None
    owner = queue.keys.get(extra.unique_key)
    if owner is None:
        return None
    theirs = owner.extra
    assert theirs is not None
    return None if 0 < theirs.key_until_ms <= now_ms else owner


def is_needed(yard: Yard, owner: Job, extra: Extra) -> bool:
    """Tell whether others wait for a job that is to be replaced, its successor among them."""
    if owner.state == LEASED:
        return False
    if yard.names.dependents.has(int(owner.id)):
        return True
    return any(member.child_id == owner.id for member in extra.members or ())


def claim(yard: Yard, queue: Queue, extra: Extra, now_ms: i64) -> Job | None:
    """Free the key of a job that is about to enter; or return the job that keeps it out."""
    owner = owner_of(queue, extra, now_ms)
    if owner is None:
        return None
    if extra.key_mode != KEY_REPLACES or is_needed(yard, owner, extra):
        if extra.key_mode == KEY_EXTENDS and extra.key_ttl_ms > 0 and owner.state != LEASED:
            news = Fields()
            news.numbers(KEY_UNTIL, (now_ms + extra.key_ttl_ms,), b"")
            yard.note(owner, news.done(), is_needed=True)
        tell_duplicate(yard, owner, now_ms)
        return owner
    if owner.state == LEASED:
        # It runs on without the key: else a restart would give it back to it.
        news = Fields()
        news.begin(KEY_DROPPED, 0)
        yard.note(owner, news.done(), is_needed=True)
    else:
        erase(yard, owner, now_ms)
    return None


def room_to_claim(queue: Queue, extra: Extra | None, now_ms: i64) -> i64:
    """Return what the records of `claim` take, and of the removal of one more job."""
    owner = None if extra is None else owner_of(queue, extra, now_ms)
    return _RECORD_ROOM + (0 if owner is None else flows.parent_room(owner, 64))
