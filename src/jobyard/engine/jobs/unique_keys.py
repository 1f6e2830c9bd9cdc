"""Unique keys: a new job whose key another job has is a duplicate of that job, or replaces it.

A key belongs to one job of a queue until that job ends or the time of the key is over. Nothing here
refuses; a caller that may refuse checks `owner_of` and `is_needed` first.
"""

from typing import Final

from mypy_extensions import i64

from jobyard.engine.jobs import flows
from jobyard.engine.jobs.move import erase
from jobyard.engine.jobs.put import publish_duplicate
from jobyard.engine.state.yard import Yard
from jobyard.model.details import KEY_EXTENDS, KEY_REPLACES, JobDetails
from jobyard.model.details_codec import FieldWriter, Tag
from jobyard.model.job import LEASED, Job
from jobyard.model.queue import Queue

# The size of a record that removes a job or drops its key.
_RECORD_ROOM: Final = 256


def owner_of(queue: Queue, details: JobDetails, now_ms: i64) -> Job | None:
    """Return the job that owns the key of a new one."""
    if not details.unique_key or queue.keys is None:
        return None
    owner = queue.keys.get(details.unique_key)
    if owner is None:
        return None
    theirs = owner.details
    assert theirs is not None
    return None if 0 < theirs.key_until_ms <= now_ms else owner


def is_needed(yard: Yard, owner: Job, details: JobDetails) -> bool:
    """Return whether other jobs, or its replacement itself, wait for a job to be replaced."""
    if owner.state == LEASED:
        return False
    if yard.names.dependents.has(int(owner.id)):
        return True
    return any(member.child_id == owner.id for member in details.members or ())


def claim(yard: Yard, queue: Queue, details: JobDetails, now_ms: i64) -> Job | None:
    """Free the key for a job that is about to enter, or return the job that it duplicates."""
    owner = owner_of(queue, details, now_ms)
    if owner is None:
        return None
    if details.key_mode != KEY_REPLACES or is_needed(yard, owner, details):
        if details.key_mode == KEY_EXTENDS and details.key_ttl_ms > 0 and owner.state != LEASED:
            changes = FieldWriter()
            changes.numbers(Tag.KEY_UNTIL, (now_ms + details.key_ttl_ms,), b"")
            yard.note(owner, changes.done(), is_needed=True)
        publish_duplicate(yard, owner, now_ms)
        return owner
    if owner.state == LEASED:
        # It keeps running without the key. Recorded, or a restart would give the key back to it.
        changes = FieldWriter()
        changes.begin(Tag.KEY_DROPPED, 0)
        yard.note(owner, changes.done(), is_needed=True)
    else:
        erase(yard, owner, now_ms)
    return None


def room_to_claim(queue: Queue, details: JobDetails | None, now_ms: i64) -> i64:
    """Return the size of the records of `claim`, and of the removal of one more job."""
    owner = None if details is None else owner_of(queue, details, now_ms)
    return _RECORD_ROOM + (0 if owner is None else flows.parent_room(owner, 64))
