"""What a change to a key that shows jobs means: a verb where there is one, else a stored field.

Clients write some fields of a job themselves: progress, new data, labels of parents, what their own
code needs. Fields that follow from the state of a job belong to the yard: what a client writes into
them is shown until something happens to the job, and never moves it.
"""

from typing import Final

from mypy_extensions import i64

from jobyard.engine.glidemq import add as glide_add
from jobyard.engine.glidemq.flows import is_member, link_parent
from jobyard.engine.glidemq.move import copy_part, remove, set_delay
from jobyard.engine.glidemq.take import beat
from jobyard.engine.jobs import flows
from jobyard.engine.jobs.move import promote, revive, set_body
from jobyard.engine.jobs.queues import copy_settings, end_pause, open_queue, set_settings
from jobyard.engine.state import bus
from jobyard.engine.state.yard import Yard, abs_stamp
from jobyard.engine.subscriptions import subscriptions
from jobyard.errors import NotFound
from jobyard.model.details import LogLine
from jobyard.model.details_codec import FieldWriter, Tag, glide_field, log_field, overlay_field
from jobyard.model.family import GLIDE
from jobyard.model.glidemq.fields import GlidePart
from jobyard.model.glidemq.subscriptions import has_entry
from jobyard.model.job import BLOCKED, DEAD, DELAYED, DONE, LEASED, READY, Job
from jobyard.model.members import Member, MemberState
from jobyard.model.queue import Queue
from jobyard.model.throttle.ready_lists import ReadyList
from jobyard.model.throttle.settings import NO_LIMIT
from jobyard.protocols.glidemq.errors import NOT_CHANGED_SO, Wrong
from jobyard.protocols.glidemq.keyspace.key_names import parse_key
from jobyard.protocols.glidemq.keyspace.key_parts import bytes_of, text_of
from jobyard.protocols.glidemq.keyspace.views.job import NOTE_MARK, standing
from jobyard.protocols.glidemq.keyspace.views.sets import PRIORITY_SHIFT, is_scheduled
from jobyard.protocols.glidemq.keyspace.views.stream import GROUP
from jobyard.protocols.glidemq.number_text import NUMBER_MAX, whole
from jobyard.wire.payload import codec_of

_SCORE_MAX: Final = float(1 << 54)

# Fields that reflect the state of a job.
_TOLD: Final = frozenset(
    (
        b"state",
        b"attemptsMade",
        b"failedReason",
        b"returnvalue",
        b"finishedOn",
        b"processedOn",
        b"stalledCount",
        b"depsCompleted",
        b"delay",
        b"priority",
        b"timestamp",
    )
)
_NOT_NOTED: Final = (b"id", b"data", b"lastActive")
_LABELS: Final = (b"parentId", b"parentQueue", b"parentIds", b"parentQueues", b"schedulerName")
SETTING_FIELDS: Final = frozenset(
    (b"paused", b"globalConcurrency", b"rateLimitMax", b"rateLimitDuration")
)


# -- a job -------------------------------------------------------------------------------------


def set_job_fields(yard: Yard, job: Job, fields: dict[bytes, bytes], now_ms: i64) -> None:
    """Set fields of a job that a client may set: all of them or, without room, none."""
    changes = FieldWriter()
    part: GlidePart | None = None
    is_noted = False
    for name, value in fields.items():
        if name in _LABELS:
            if part is None:
                part = copy_part(job)
            _set_label(part, name, value)
        elif name not in _NOT_NOTED:
            _note_field(changes, job, name, value)
            is_noted = True
    if part is not None:
        glide_field(changes, part)
    if b"data" in fields:
        set_data(yard, job, fields[b"data"], now_ms)
    if is_noted or part is not None:
        yard.note(job, changes.done())
    if b"lastActive" in fields:
        beat(job, now_ms)
        subscriptions.beat(job.queue, job, now_ms)
    if b"progress" in fields and yard.bus.is_on:
        yard.bus.publish(bus.Event(bus.EventName.PROGRESS, job.queue, job, now_ms))


def _note_field(changes: FieldWriter, job: Job, name: bytes, value: bytes) -> None:
    if name.startswith(NOTE_MARK):
        raise Wrong(NOT_CHANGED_SO)
    if name == b"progress":
        changes.text(Tag.PROGRESS, f"{_text(value)}\0")
    elif name in _TOLD:
        overlay_field(changes, NOTE_MARK + name, standing(job) + value)
    else:
        overlay_field(changes, name, value)


def set_data(yard: Yard, job: Job, data: bytes, now_ms: i64) -> None:
    """Replace the data of a job, and its codec, which other doors need."""
    set_body(yard, job, data, codec_of(data), now_ms)


def _set_label(part: GlidePart, name: bytes, value: bytes) -> None:
    text = _text(value)
    if name == b"parentId":
        part.parent_id = text
    elif name == b"parentQueue":
        part.parent_queue = text
    elif name == b"parentIds":
        part.parent_ids = text
    elif name == b"parentQueues":
        part.parent_queues = text
    else:
        part.scheduler = text


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace").replace("\0", "")


def drop_job_fields(yard: Yard, job: Job, names: list[bytes]) -> i64:
    """Remove fields that a client had set; return how many existed."""
    details = job.details
    part = None if details is None else details.glide
    overlay = None if part is None else part.overlay
    if overlay is None:
        return 0
    known: set[bytes] = set()
    changes = FieldWriter()
    for name in dict.fromkeys(names):
        for written in (name, NOTE_MARK + name):
            if written in overlay:
                overlay_field(changes, written, None)
                known.add(name)
    if known:
        yard.note(job, changes.done())
    return len(known)


def remove_job(yard: Yard, job: Job, now_ms: i64) -> None:
    """Remove a job, unless it runs at another door."""
    try:
        remove(yard, job, now_ms)
    except NotFound:
        raise Wrong("ERR the job is running at another door") from None


def remove_if_may(yard: Yard, job: Job, now_ms: i64) -> bool:
    """Remove a job, unless it runs at another door; return whether it was removed."""
    try:
        remove(yard, job, now_ms)
    except NotFound:
        return False
    return True


def add_log(yard: Yard, job: Job, lines: list[bytes], now_ms: i64) -> None:
    """Add lines to the log of a job."""
    changes = FieldWriter()
    for line in lines:
        log_field(changes, LogLine(now_ms, "", _text(line)))
    yard.note(job, changes.done())


# -- schedule of a job -------------------------------------------------------------------------


def schedule(yard: Yard, queue: Queue, scores: dict[bytes, float], now_ms: i64) -> i64:
    """Reschedule jobs by their scores; a dead one is revived. Return how many are new."""
    found: list[tuple[Job, i64]] = []
    for member, score in scores.items():
        job = glide_add.find(yard, queue, text_of(member))
        if job is None or job.state not in (READY, DELAYED, DEAD) or not 0 <= score < _SCORE_MAX:
            raise Wrong(NOT_CHANGED_SO)
        found.append((job, i64(int(score) % (1 << PRIORITY_SHIFT))))
    new: i64 = 0
    for job, label in found:
        if not is_scheduled(job):
            new += 1
        if job.state == DEAD:
            revive(yard, job, now_ms, ReadyList.STAGED if job.family == GLIDE else ReadyList.STREAM)
        wait_ms = label - yard.journal.wall_offset_ms - now_ms
        if label > 0 and wait_ms > 0:
            set_delay(yard, job, wait_ms, now_ms)
    return new


def readmit(yard: Yard, job: Job, group: bytes, now_ms: i64) -> i64:
    """Move a job into the stream, or redeliver it to one subscription; return its entry.

    A job that is delayed, staged or in another ready list is promoted; one that ended is revived.
    """
    if group != GROUP and has_entry(job):
        subscription = subscriptions.find(job.queue, group)
        if subscription is None:
            raise Wrong("NOGROUP No such consumer group for this entry")
        return subscriptions.repeat_at(yard, job.queue, subscription, job, now_ms, now_ms).stamp
    if job.state in (LEASED, BLOCKED):
        raise Wrong("ERR the job is running, or waits for its children")
    yard.now_ms = max(yard.now_ms, now_ms)
    if job.state in (DEAD, DONE):
        revive(yard, job, now_ms)
    elif not has_entry(job):
        promote(yard, job, now_ms)
    return abs_stamp(job.stamp)


# -- children of a job -------------------------------------------------------------------------


def link_members(yard: Yard, job: Job, members: list[bytes], now_ms: i64) -> i64:
    """Make a job wait for more children; return how many of them are new."""
    try:
        labels = dict.fromkeys([one.decode() for one in members])
    except UnicodeDecodeError:
        # They are stored as text.
        raise Wrong("ERR the job name is not UTF-8") from None
    new = [label for label in labels if not is_member(job, label)]
    for label in new:
        link_parent(yard, job, job_of_member(yard, label), label, now_ms)
    return len(new)


def settle_members(yard: Yard, job: Job, members: list[bytes], now_ms: i64) -> i64:
    """Stop a job from waiting for some children; return how many it had."""
    wanted = {text_of(one) for one in members}
    found: list[Member] = []
    # One pass over the children, however many are named.
    for member in _members(job):
        if member.label in wanted and member.state != MemberState.DROPPED:
            wanted.discard(member.label)
            found.append(member)
    freed: list[Queue] = []
    for member in found:
        flows.change(yard, job, member, MemberState.DROPPED, b"", freed, now_ms)
    flows.serve(yard, freed, now_ms)
    return len(found)


def _members(job: Job) -> list[Member]:
    details = job.details
    return [] if details is None or details.members is None else details.members


def job_of_member(yard: Yard, label: str) -> Job | None:
    """Return the job that a flow member names, as `<prefix>:{<queue>}:<id>`."""
    head, _, job_id = label.rpartition(":")
    try:
        name = parse_key(bytes_of(head + ":id"))
    except Wrong:
        return None
    queue = yard.queues.get(name.queue)
    return None if queue is None else glide_add.find(yard, queue, job_id)


# -- settings of a queue -----------------------------------------------------------------------


def set_meta_fields(yard: Yard, name: str, fields: dict[bytes, bytes], now_ms: i64) -> None:
    """Set limits and pause of a queue."""
    known = {field: value for field, value in fields.items() if field in SETTING_FIELDS}
    if not known:
        return
    numbers: dict[bytes, i64] = {}
    for field, value in known.items():
        number = whole(value)
        if number is None or not 0 <= number <= NUMBER_MAX:
            raise Wrong(f"ERR {field.decode()} is not an integer or out of range")
        numbers[field] = number
    queue = open_queue(yard, name)
    settings = copy_settings(queue)
    if b"paused" in numbers:
        settings.is_paused = numbers[b"paused"] == 1
        if not settings.is_paused:
            end_pause(yard, queue, now_ms)
    if b"globalConcurrency" in numbers:
        settings.concurrency = _limit(numbers[b"globalConcurrency"])
    if b"rateLimitMax" in numbers:
        settings.rate_most = _limit(numbers[b"rateLimitMax"])
        settings.rate_ms = max(settings.rate_ms, 1)
    if b"rateLimitDuration" in numbers:
        settings.rate_ms = max(numbers[b"rateLimitDuration"], 1)
    set_settings(yard, queue, settings, now_ms)


def _limit(number: i64) -> i64:
    return number if number > 0 else NO_LIMIT


def drop_meta_fields(yard: Yard, name: str, fields: list[bytes], now_ms: i64) -> None:
    """Remove limits and pause of a queue."""
    queue = yard.queues.get(name)
    if queue is None:
        return
    settings = copy_settings(queue)
    if b"paused" in fields:
        settings.is_paused = False
        end_pause(yard, queue, now_ms)
    if b"globalConcurrency" in fields:
        settings.concurrency = NO_LIMIT
    if b"rateLimitMax" in fields or b"rateLimitDuration" in fields:
        settings.rate_most = NO_LIMIT
        settings.rate_ms = 0
    set_settings(yard, queue, settings, now_ms)
