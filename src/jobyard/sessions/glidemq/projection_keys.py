"""Keys that show the jobs of a queue, as commands see them.

A read is answered from the yard as it is now. A change is translated into a verb where it means
something, and refused where it does not. `find` makes one of these for each command; they hold no
state of their own.
"""

from typing import final

from mypy_extensions import i64

from jobyard.engine import glide, side
from jobyard.engine.queues import stop_counting
from jobyard.engine.yard import Yard
from jobyard.model.job import DEAD, DONE, Job
from jobyard.model.queue import Queue
from jobyard.model.side import (
    HASH,
    LIST,
    NO_KIND,
    SET,
    STRING,
    ZSET,
)
from jobyard.sessions.glidemq import places
from jobyard.sessions.glidemq.keyed import Keyed, Scored
from jobyard.sessions.glidemq.places import Place, text_of
from jobyard.sessions.glidemq.projection_fields import (
    ORDER_DONE,
    group_fields,
    lane_named,
    meta_fields,
    metrics_fields,
    order_done,
    ordering_fields,
)
from jobyard.sessions.glidemq.projection_job import field_of, job_fields, number
from jobyard.sessions.glidemq.projection_sets import (
    Hidden,
    list_active,
    list_count,
    list_items,
    list_jobs,
    log_lines,
    members_of,
    parents_of,
    resting_jobs,
    scheduled_jobs,
    score_of,
    shelves_of,
    sorted_count,
    sorted_members,
)
from jobyard.sessions.glidemq.projection_writes import (
    SETTINGS,
    add_log,
    drop_job_fields,
    drop_meta_fields,
    link_members,
    remove_job,
    remove_jobs,
    schedule,
    set_job_fields,
    set_meta_fields,
    settle_members,
)


@final
class NumberKey(Keyed):
    """The last id of a queue, or how many jobs run that came from its lists."""

    def __init__(self, yard: Yard, queue: Queue | None, place: Place) -> None:
        self._yard = yard
        self._queue = queue
        self._place = place

    def kind(self) -> i64:
        """Return that it is a number, while there is one to tell."""
        return NO_KIND if self.text() is None else STRING

    def text(self) -> bytes | None:
        """Return the number."""
        queue = self._queue
        if queue is None:
            return None
        if self._place.part == places.ID:
            return number(queue.next_seq - 1) if queue.next_seq > 1 else None
        active = list_active(queue)
        return number(active) if active > 0 else None

    def set_text(self, value: bytes, expires_ms: i64) -> None:
        """Take no notice of a client that counts what was counted when the jobs were taken."""
        if self._place.part != places.LIST_ACTIVE:
            super().set_text(value, expires_ms)

    def delete(self) -> bool:
        """Let ids begin anew once the queue is empty; counts are what they are."""
        is_there = self.text() is not None
        if self._queue is not None and self._place.part == places.ID:
            stop_counting(self._yard, self._queue)
        return is_there


@final
class JobKey(Keyed):
    """One job."""

    def __init__(self, yard: Yard, job: Job, now_ms: i64) -> None:
        self._yard = yard
        self._job = job
        self._now_ms: i64 = now_ms

    def kind(self) -> i64:
        """Return that it is a hash."""
        return HASH

    def field(self, name: bytes) -> bytes | None:
        """Return one field."""
        return field_of(self._yard, self._job, name)

    def fields(self) -> dict[bytes, bytes]:
        """Return all fields."""
        flat = job_fields(self._yard, self._job)
        return {flat[at]: flat[at + 1] for at in range(0, len(flat), 2)}

    def set_fields(self, fields: dict[bytes, bytes]) -> i64:
        """Set what of the job can be set; anything else is remembered as it is."""
        known = self.fields()
        set_job_fields(self._yard, self._job, fields, self._now_ms)
        return len([name for name in fields if name not in known])

    def drop_fields(self, names: list[bytes]) -> i64:
        """Forget fields that a client had set."""
        return drop_job_fields(self._yard, self._job, names)

    def delete(self) -> bool:
        """Remove the job."""
        remove_job(self._yard, self._job, self._now_ms)
        return True


@final
class MetaKey(Keyed):
    """What is set for a queue: what the yard acts by, and what clients note for themselves."""

    def __init__(self, yard: Yard, queue: Queue | None, place: Place, now_ms: i64) -> None:
        self._yard = yard
        self._queue = queue
        self._place = place
        self._now_ms: i64 = now_ms

    def kind(self) -> i64:
        """Return that it is a hash, if anything is set or numbered."""
        shelves = None if self._queue is None else shelves_of(self._queue)
        is_there = bool(self.fields()) or (shelves is not None and bool(shelves.lanes))
        return HASH if is_there else NO_KIND

    def _notes(self) -> dict[bytes, bytes]:
        key = side.find(self._yard, self._place.key(), self._now_ms)
        return {} if key is None else key.table

    def field(self, name: bytes) -> bytes | None:
        """Return one field."""
        if self._queue is not None and name.startswith(ORDER_DONE):
            return order_done(self._queue, text_of(name[len(ORDER_DONE) :]))
        return self.fields().get(name)

    def fields(self) -> dict[bytes, bytes]:
        """Return all fields."""
        known = {} if self._queue is None else meta_fields(self._queue, self._now_ms)
        return {**self._notes(), **known}

    def set_fields(self, fields: dict[bytes, bytes]) -> i64:
        """Set limits and pause of the queue, and note the rest."""
        known = self.fields()
        set_meta_fields(self._yard, self._place.queue_name, fields, self._now_ms)
        notes = {name: value for name, value in fields.items() if name not in SETTINGS}
        if notes:
            side.set_fields(self._yard, self._place.key(), notes, self._now_ms)
        return len([name for name in fields if name not in known])

    def drop_fields(self, names: list[bytes]) -> i64:
        """Lift limits and pause, and forget notes."""
        fields = self.fields()
        known = [name for name in dict.fromkeys(names) if name in fields]
        settings = [name for name in known if name in SETTINGS]
        if settings:
            drop_meta_fields(self._yard, self._place.queue_name, settings, self._now_ms)
        key = side.find(self._yard, self._place.key(), self._now_ms)
        if key is not None:
            side.drop_fields(self._yard, key, [name for name in known if name not in SETTINGS])
        return len(known)

    def delete(self) -> bool:
        """Lift all limits, and forget all notes."""
        return self.drop_fields(list(self.fields())) > 0


@final
class LaneKey(Keyed):
    """Counters of a queue that nobody writes but the yard: lanes, and endings by the minute."""

    def __init__(self, yard: Yard, queue: Queue | None, place: Place, now_ms: i64) -> None:
        self._yard = yard
        self._queue = queue
        self._place = place
        self._now_ms: i64 = now_ms

    def kind(self) -> i64:
        """Return that it is a hash, if there is anything in it."""
        return HASH if self.fields() else NO_KIND

    def field(self, name: bytes) -> bytes | None:
        """Return one field."""
        return self.fields().get(name)

    def fields(self) -> dict[bytes, bytes]:
        """Return all fields."""
        queue = self._queue
        part = self._place.part
        if queue is None:
            return {}
        if part == places.ORDERING:
            return ordering_fields(queue)
        if part == places.GROUP:
            lane = lane_named(queue, self._place.rest)
            return {} if lane is None else group_fields(self._yard, lane, self._now_ms)
        meters = queue.meters
        if meters is None:
            return {}
        meter = meters.done if part == places.METRICS_COMPLETED else meters.failed
        return metrics_fields(self._yard, meter)

    def delete(self) -> bool:
        """Say that it is gone: what it shows comes back with the next job."""
        return self.kind() != NO_KIND


@final
class LogKey(Keyed):
    """What workers wrote about a job."""

    def __init__(self, yard: Yard, job: Job | None, now_ms: i64) -> None:
        self._yard = yard
        self._job = job
        self._now_ms: i64 = now_ms

    def _lines(self) -> list[bytes]:
        return [] if self._job is None else log_lines(self._job)

    def kind(self) -> i64:
        """Return that it is a list, if there is a line."""
        return LIST if self._lines() else NO_KIND

    def items_count(self) -> i64:
        """Return how many lines there are."""
        return len(self._lines())

    def items(self, start: i64, end: i64) -> list[bytes]:
        """Return some of the lines."""
        return self._lines()[start:end]

    def push(self, values: list[bytes], *, is_left: bool) -> i64:
        """Add lines at the end."""
        if is_left or self._job is None:
            return super().push(values, is_left=is_left)
        add_log(self._yard, self._job, values, self._now_ms)
        return self.items_count()

    def delete(self) -> bool:
        """Say that it is gone; it goes with its job."""
        return bool(self._lines())


@final
class ListKey(Keyed):
    """Jobs that workers take from a list: promoted ones, or the last that came."""

    def __init__(self, yard: Yard, queue: Queue | None, place: Place, now_ms: i64) -> None:
        self._yard = yard
        self._queue = queue
        self._place = place
        self._now_ms: i64 = now_ms

    def kind(self) -> i64:
        """Return that it is a list, if a job stands there."""
        return LIST if self.items_count() > 0 else NO_KIND

    def items_count(self) -> i64:
        """Return how many jobs stand there."""
        return 0 if self._queue is None else list_count(self._queue, self._place)

    def items(self, start: i64, end: i64) -> list[bytes]:
        """Return the ids of some of them."""
        return [] if self._queue is None else list_items(self._queue, self._place)[start:end]

    def delete(self) -> bool:
        """Remove all jobs that stand there."""
        queue = self._queue
        if queue is None:
            return False
        return remove_jobs(self._yard, list_jobs(queue, self._place), self._now_ms) > 0


@final
class MembersKey(Keyed):
    """Those a job waits for, or those who wait for it."""

    def __init__(self, yard: Yard, job: Job | None, place: Place, now_ms: i64) -> None:
        self._yard = yard
        self._job = job
        self._place = place
        self._now_ms: i64 = now_ms

    def kind(self) -> i64:
        """Return that it is a set, if it has a member."""
        return SET if self.members() else NO_KIND

    def members(self) -> list[bytes]:
        """Return all members."""
        job = self._job
        if job is None:
            return []
        return members_of(job) if self._place.part == places.DEPS else parents_of(self._yard, job)

    def add_members(self, members: list[bytes]) -> i64:
        """Let the job wait for others too."""
        job = self._job
        if job is None or self._place.part != places.DEPS:
            return super().add_members(members)
        return link_members(self._yard, job, members, self._now_ms)

    def drop_members(self, members: list[bytes]) -> i64:
        """Let the job wait for some no longer."""
        job = self._job
        if job is None or self._place.part != places.DEPS:
            return super().drop_members(members)
        return settle_members(self._yard, job, members, self._now_ms)

    def delete(self) -> bool:
        """Say that it is gone; it goes with its job."""
        return self.kind() != NO_KIND


@final
class SortedKey(Keyed):
    """Jobs that wait to be promoted, or for a signal; lanes that time holds up."""

    def __init__(self, yard: Yard, queue: Queue | None, place: Place, now_ms: i64) -> None:
        self._yard = yard
        self._queue = queue
        self._place = place
        self._now_ms: i64 = now_ms

    def kind(self) -> i64:
        """Return that it is a sorted set, if it has a member."""
        return ZSET if self.scored_count() > 0 else NO_KIND

    def scored_count(self) -> i64:
        """Return how many members there are."""
        queue = self._queue
        return 0 if queue is None else sorted_count(self._yard, queue, self._place)

    def score(self, member: bytes) -> float | None:
        """Return the score of a member."""
        queue = self._queue
        return None if queue is None else score_of(self._yard, queue, self._place, member)

    def scored(self) -> list[Scored]:
        """Return all members, the least score first."""
        queue = self._queue
        return [] if queue is None else sorted_members(self._yard, queue, self._place)

    def set_scores(self, scores: dict[bytes, float]) -> i64:
        """Let jobs come when their scores say, those at rest included."""
        queue = self._queue
        if queue is None or self._place.part != places.SCHEDULED:
            return super().set_scores(scores)
        return schedule(self._yard, queue, scores, self._now_ms)

    def delete(self) -> bool:
        """Remove all jobs that wait to be promoted; what else it shows comes and goes by itself."""
        is_there = self.scored_count() > 0
        if self._queue is not None and self._place.part == places.SCHEDULED:
            remove_jobs(self._yard, scheduled_jobs(self._queue), self._now_ms)
        return is_there


@final
class RestKey(Keyed):
    """Jobs that are done, or dead."""

    def __init__(
        self, yard: Yard, queue: Queue | None, place: Place, hidden: Hidden, now_ms: i64
    ) -> None:
        self._yard = yard
        self._queue = queue
        self._place = place
        self._hidden = hidden
        self._now_ms: i64 = now_ms

    def _left_out(self) -> list[bytes]:
        queue = self._queue
        if queue is None:
            return []
        state = DONE if self._place.part == places.COMPLETED else DEAD
        return self._hidden.ids(self._yard, queue, state)

    def kind(self) -> i64:
        """Return that it is a sorted set, if it has a member."""
        return ZSET if self.scored_count() > 0 else NO_KIND

    def scored_count(self) -> i64:
        """Return how many jobs there are."""
        queue = self._queue
        if queue is None:
            return 0
        return sorted_count(self._yard, queue, self._place) - len(self._left_out())

    def score(self, member: bytes) -> float | None:
        """Return when a job ended."""
        queue = self._queue
        if queue is None or member in self._left_out():
            return None
        return score_of(self._yard, queue, self._place, member)

    def scored(self) -> list[Scored]:
        """Return all jobs, the first to end first."""
        queue = self._queue
        if queue is None:
            return []
        found = sorted_members(self._yard, queue, self._place)
        left_out = self._left_out()
        return [one for one in found if one[0] not in left_out] if left_out else found

    def drop_scored(self, members: list[bytes]) -> i64:
        """Show some no more until they end again: whoever does so is about to bring them back."""
        queue = self._queue
        gone: i64 = 0
        for member in dict.fromkeys(members):
            if queue is not None and self.score(member) is not None:
                job = glide.find(self._yard, queue, text_of(member))
                assert job is not None
                self._hidden.add(job)
                gone += 1
        return gone

    def delete(self) -> bool:
        """Remove all of them."""
        queue = self._queue
        is_there = self.scored_count() > 0
        if queue is not None:
            line = queue.done if self._place.part == places.COMPLETED else queue.dead
            remove_jobs(self._yard, resting_jobs(line), self._now_ms)
        return is_there
