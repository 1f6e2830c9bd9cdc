"""Which job already stands for one that is pushed, by its id or its key, and which makes way.

Knows nothing of batches and answers. Nothing goes unless the wish becomes a job.
"""

from typing import Final

from mypy_extensions import i64

from jobyard.engine import flows
from jobyard.engine.move import erase
from jobyard.engine.put import Wish, tell_duplicate
from jobyard.engine.yard import Yard
from jobyard.errors import Refused
from jobyard.model.extra import KEY_DROPPED, KEY_EXTENDS, KEY_REPLACES, KEY_UNTIL, Extra, Fields
from jobyard.model.job import DEAD, DONE, LEASED, Job
from jobyard.model.queue import Queue
from jobyard.sessions.bunqueue.ids import find_job

# Records that the removal of a job with the same id or key takes.
_REPLACED_ROOM: Final = 256


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
    owner = _owner(queue, extra, now_ms)
    if owner is not None:
        if extra.key_mode != KEY_REPLACES or _is_needed(yard, owner, extra):
            if extra.key_mode == KEY_EXTENDS and extra.key_ttl_ms > 0:
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
    if same is not None:
        erase(yard, same, now_ms)
    return None


def _namesake(yard: Yard, extra: Extra) -> Job | None:
    """Return the job that has the id a client wants for another."""
    if not extra.custom_id:
        return None
    same = yard.names.custom.get(extra.custom_id)
    return same if same is not None else find_job(yard, extra.custom_id.encode())


def _owner(queue: Queue, extra: Extra, now_ms: i64) -> Job | None:
    """Return the job that keeps others with this key out."""
    if not extra.unique_key or queue.keys is None:
        return None
    owner = queue.keys.get(extra.unique_key)
    if owner is None:
        return None
    theirs = owner.extra
    assert theirs is not None
    return None if 0 < theirs.key_until_ms <= now_ms else owner


def _is_needed(yard: Yard, owner: Job, extra: Extra) -> bool:
    """Tell whether others wait for a job that is to be replaced, its successor among them."""
    if owner.state == LEASED:
        return False
    if int(owner.id) in yard.names.dependents:
        return True
    return any(member.child_id == owner.id for member in extra.members or ())


def refuse_taken(yard: Yard, queue: Queue, wish: Wish, now_ms: i64) -> None:
    """Refuse a job whose key belongs to one that can be neither replaced nor extended."""
    extra = wish.extra
    assert extra is not None
    owner = _owner(queue, extra, now_ms)
    if owner is None:
        return
    same = _namesake(yard, extra)
    if same is not None and same.state not in (DEAD, DONE):
        return
    if extra.key_mode == KEY_REPLACES and _is_needed(yard, owner, extra):
        raise Refused("Cannot replace a job that other jobs depend on")
    if extra.key_mode == KEY_EXTENDS and extra.key_ttl_ms > 0 and owner.state == LEASED:
        raise Refused("Duplicate unique_key (extended TTL)")


def room_to_stand_in(queue: Queue, wish: Wish, now_ms: i64) -> i64:
    """Return what the records take by which another job makes way for a wish."""
    extra = wish.extra
    assert extra is not None
    owner = _owner(queue, extra, now_ms)
    return _REPLACED_ROOM + (0 if owner is None else flows.parent_room(owner, 64))
