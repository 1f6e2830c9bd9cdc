"""Commands for groups within a queue and for deduplication keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from jobyard.engine.jobs.queues import drop_if_idle, open_queue, set_group
from jobyard.engine.state.names import rules_of
from jobyard.engine.state.timers import Alarm
from jobyard.errors import Refused
from jobyard.model.details_codec import FieldWriter as ChangedFields
from jobyard.model.details_codec import Tag
from jobyard.model.job import Job
from jobyard.model.throttle.settings import NO_LIMIT
from jobyard.protocols.bunqueue.commands import push_options
from jobyard.protocols.bunqueue.commands.push_options import SAFE_INTEGER_MAX
from jobyard.protocols.bunqueue.ids import find_job, id_text
from jobyard.wire.msgpack.forms import KIND_ABSENT, KIND_NIL

if TYPE_CHECKING:
    from mypy_extensions import i64

    from jobyard.engine.state.yard import Yard
    from jobyard.model.queue import Queue
    from jobyard.model.throttle.settings import Group
    from jobyard.protocols.bunqueue.command import Command
    from jobyard.protocols.bunqueue.door import Answer
    from jobyard.protocols.bunqueue.request import Request
    from jobyard.protocols.bunqueue.session import BunqueueSession
    from jobyard.wire.msgpack.read import MapFields

# A bucket counts in job-milliseconds, which must stay within 64 bits.
BUCKET_MAX: Final = 1 << 62

# The TTL of a rate limit that holds back no job, and of a missing rate limit.
_TTL_OPEN: Final = 0
_TTL_NONE: Final = -2


@final
class GroupReopening(Alarm):
    """Timer that ends the time for which a group was held back. `sort_key` is that time."""

    def __init__(self, yard: Yard, queue: Queue, group: Group, at_ms: i64) -> None:
        super().__init__(0, at_ms, yard.new_number())
        self._yard = yard
        self._queue = queue
        self._group = group

    def ring(self, now_ms: i64) -> None:
        """Reopen the group, and drop it if it has no jobs or settings."""
        rules = rules_of(self._queue)
        group = self._group
        if group.closed_until_ms > now_ms or rules.groups.get(group.name) is not group:
            return
        group.closed_until_ms = 0
        rules.forget_idle(group)
        if self._yard.queues.get(self._queue.name) is self._queue:
            drop_if_idle(self._yard, self._queue)


# -- reading requests --------------------------------------------------------------------------


def _group_name(fields: MapFields) -> str:
    if fields.kind(b"groupId") in (KIND_ABSENT, KIND_NIL):
        raise Refused("groupId is required")
    name = fields.text(b"groupId")
    if name is None:
        raise Refused("groupId must be a string")
    if not name:
        raise Refused("groupId must be a non-empty string")
    if len(name) > push_options.NAME_MAX:
        raise Refused("groupId must be at most 256 characters")
    if "\0" in name:
        raise Refused("groupId must not contain NUL characters")
    return name


def _find(session: BunqueueSession, request: Request) -> Group | None:
    """Return the group that a command reads, or None if it does not exist."""
    queue_name = push_options.queue_name(request.fields)
    group_name = _group_name(request.fields)
    queue = session.yard.queues.get(queue_name)
    if queue is None or queue.rules is None:
        return None
    return queue.rules.groups.get(group_name)


def _open(session: BunqueueSession, request: Request) -> tuple[Queue, Group]:
    """Return the group that a command changes; create it if necessary."""
    queue_name = push_options.queue_name(request.fields)
    group_name = _group_name(request.fields)
    queue = open_queue(session.yard, queue_name)
    return queue, rules_of(queue).group(group_name)


def _set(session: BunqueueSession, request: Request, queue: Queue, group: Group) -> None:
    set_group(session.yard, queue, group, request.now_ms)
    drop_if_idle(session.yard, queue)


def _positive(fields: MapFields, key: bytes) -> int:
    number = fields.number(key, 0.0)
    if not 1 <= number <= SAFE_INTEGER_MAX or number != int(number):
        raise Refused(f"{key.decode()} must be a positive safe integer")
    return int(number)


# -- counts ------------------------------------------------------------------------------------


def _delayed_count(queue: Queue, group: Group | None) -> int:
    """Count the delayed jobs of a group, or of all groups."""
    count = 0
    for job in queue.delayed.items:
        assert isinstance(job, Job)
        details = job.details
        if details is None or details.group is None:
            continue
        if group is None or details.group is group:
            count += 1
    return count


def count_group(session: BunqueueSession, request: Request) -> Answer:
    """GetGroupJobsCount: waiting and delayed jobs of a group."""
    group = _find(session, request)
    if group is None:
        return {"data": {"count": 0}}
    queue = session.yard.queues[push_options.queue_name(request.fields)]
    return {"data": {"count": len(group.ready.items) + _delayed_count(queue, group)}}


def count_groups(session: BunqueueSession, request: Request) -> Answer:
    """GetGroupsJobsCount: waiting and delayed jobs of all groups."""
    queue = session.yard.queues.get(push_options.queue_name(request.fields))
    if queue is None:
        return {"data": {"count": 0}}
    ring = [] if queue.rules is None else queue.rules.ring
    ready_count = sum(len(group.ready.items) for group in ring)
    return {"data": {"count": ready_count + _delayed_count(queue, None)}}


def count_active(session: BunqueueSession, request: Request) -> Answer:
    """GetGroupActiveCount: running jobs of a group."""
    group = _find(session, request)
    return {"data": {"count": 0 if group is None else int(group.leased_count)}}


# -- limits ------------------------------------------------------------------------------------


def set_rate(session: BunqueueSession, request: Request) -> Answer:
    """SetGroupRateLimit: limit the jobs of a group per duration."""
    most = _positive(request.fields, b"max")
    per_ms = _positive(request.fields, b"duration")
    if most * per_ms >= BUCKET_MAX:
        raise Refused("max and duration are too large together")
    queue, group = _open(session, request)
    group.set_rate(most, per_ms)
    bucket = group.bucket
    assert bucket is not None
    bucket.fill(request.now_ms)
    _set(session, request, queue, group)
    return {}


def get_rate(session: BunqueueSession, request: Request) -> Answer:
    """GetGroupRateLimit: show the rate limit that was set."""
    group = _find(session, request)
    limit: dict[str, object] | None = None
    if group is not None and group.rate_most >= 0:
        limit = {"max": int(group.rate_most), "duration": int(group.rate_ms)}
    return {"data": {"limit": limit}}


def remove_rate(session: BunqueueSession, request: Request) -> Answer:
    """RemoveGroupRateLimit: remove the limit; the defaults given by pulls apply again."""
    group = _find(session, request)
    if group is None or group.rate_most < 0:
        return {"data": {"removed": 0}}
    queue, group = _open(session, request)
    group.set_rate(NO_LIMIT, 0)
    _set(session, request, queue, group)
    return {"data": {"removed": 1}}


def rate_ttl(session: BunqueueSession, request: Request) -> Answer:
    """GetGroupRateLimitTtl: show how long the next job is held back."""
    group = _find(session, request)
    now_ms = request.now_ms
    ttl_ms = _TTL_NONE
    if group is not None and group.closed_until_ms > now_ms:
        ttl_ms = int(group.closed_until_ms - now_ms)
    elif group is not None:
        bucket = group.rate()
        if bucket is not None:
            is_open = bucket.has_one(now_ms)
            ttl_ms = _TTL_OPEN if is_open else int(bucket.next_ms(now_ms) - now_ms)
    return {"data": {"ttl": ttl_ms}}


def hold_back(session: BunqueueSession, request: Request) -> Answer:
    """RateLimitGroup: hold back the jobs of a group for a time; a restart ends it."""
    duration_ms = min(_positive(request.fields, b"duration"), push_options.YEAR_MS)
    queue, group = _open(session, request)
    until_ms = request.now_ms + duration_ms
    group.closed_until_ms = until_ms
    session.yard.timers.push(GroupReopening(session.yard, queue, group, until_ms))
    return {}


def set_concurrency(session: BunqueueSession, request: Request) -> Answer:
    """SetGroupConcurrency: limit how many jobs of a group run at once."""
    most = _positive(request.fields, b"concurrency")
    queue, group = _open(session, request)
    group.concurrency = most
    _set(session, request, queue, group)
    return {}


def get_concurrency(session: BunqueueSession, request: Request) -> Answer:
    """GetGroupConcurrency: show the concurrency limit that was set."""
    group = _find(session, request)
    most = None if group is None or group.concurrency < 0 else int(group.concurrency)
    return {"data": {"concurrency": most}}


def remove_concurrency(session: BunqueueSession, request: Request) -> Answer:
    """RemoveGroupConcurrency: remove the limit; the defaults given by pulls apply again."""
    group = _find(session, request)
    if group is None or group.concurrency < 0:
        return {"data": {"removed": 0}}
    queue, group = _open(session, request)
    group.concurrency = NO_LIMIT
    _set(session, request, queue, group)
    return {"data": {"removed": 1}}


def pause_group(session: BunqueueSession, request: Request) -> Answer:
    """PauseGroup: hold back the jobs of a group until it is resumed."""
    queue, group = _open(session, request)
    is_changed = not group.is_paused
    group.is_paused = True
    if is_changed:
        _set(session, request, queue, group)
    return {"data": {"changed": is_changed}}


def resume_group(session: BunqueueSession, request: Request) -> Answer:
    """ResumeGroup: end the pause of a group."""
    group = _find(session, request)
    if group is None or not group.is_paused:
        return {"data": {"changed": False}}
    queue, group = _open(session, request)
    group.is_paused = False
    _set(session, request, queue, group)
    return {"data": {"changed": True}}


def is_group_paused(session: BunqueueSession, request: Request) -> Answer:
    """IsGroupPaused: show whether a group is paused."""
    group = _find(session, request)
    return {"data": {"paused": group is not None and group.is_paused}}


# -- keys --------------------------------------------------------------------------------------


def _owner(session: BunqueueSession, request: Request) -> Job | None:
    """Return the job that currently owns a deduplication key, or None."""
    queue = session.yard.queues.get(push_options.queue_name(request.fields))
    key = push_options.text(request.fields, b"deduplicationId")
    if queue is None or queue.keys is None:
        return None
    owner = queue.keys.get(key)
    if owner is None or owner.details is None:
        return None
    return None if 0 < owner.details.key_until_ms <= request.now_ms else owner


def _drop_key(yard: Yard, job: Job) -> None:
    details = job.details
    keys = job.queue.keys
    assert details is not None
    assert keys is not None
    keys.remove(details.unique_key)
    changes = ChangedFields()
    changes.text(Tag.KEY_DROPPED, "")
    yard.note(job, changes.done())


def key_owner(session: BunqueueSession, request: Request) -> Answer:
    """GetDeduplicationJobId: show which job owns a key."""
    owner = _owner(session, request)
    return {"data": {"jobId": None if owner is None else id_text(owner)}}


def remove_key(session: BunqueueSession, request: Request) -> Answer:
    """RemoveDeduplicationKey: release a key, whichever job owns it."""
    owner = _owner(session, request)
    if owner is None:
        return {"data": {"count": 0}}
    _drop_key(session.yard, owner)
    return {"data": {"count": 1}}


def remove_job_key(session: BunqueueSession, request: Request) -> Answer:
    """RemoveJobDeduplicationKey: release the key of a job if the job still owns it."""
    name = request.fields.content(b"id")
    job = None if name is None else find_job(session.yard, name)
    if job is None or job.details is None or job.queue.keys is None:
        return {"data": {"removed": False}}
    is_owner = job.queue.keys.get(job.details.unique_key) is job
    if is_owner:
        _drop_key(session.yard, job)
    return {"data": {"removed": is_owner}}


GROUP_COMMANDS: Final[dict[bytes, Command]] = {
    b"GetGroupJobsCount": count_group,
    b"GetGroupsJobsCount": count_groups,
    b"GetGroupActiveCount": count_active,
    b"SetGroupRateLimit": set_rate,
    b"GetGroupRateLimit": get_rate,
    b"RemoveGroupRateLimit": remove_rate,
    b"GetGroupRateLimitTtl": rate_ttl,
    b"RateLimitGroup": hold_back,
    b"SetGroupConcurrency": set_concurrency,
    b"GetGroupConcurrency": get_concurrency,
    b"RemoveGroupConcurrency": remove_concurrency,
    b"PauseGroup": pause_group,
    b"ResumeGroup": resume_group,
    b"IsGroupPaused": is_group_paused,
    b"GetDeduplicationJobId": key_owner,
    b"RemoveDeduplicationKey": remove_key,
    b"RemoveJobDeduplicationKey": remove_job_key,
}
