"""Keys that show parts of a queue, as commands see them.

A read is answered from the current state of the yard. A change is translated into a verb where it
has a meaning, and refused where it has none. `find` creates one of these objects for each command;
they hold no state of their own.
"""

from collections.abc import Callable
from typing import final

from mypy_extensions import i64

from jobyard.engine.glidemq import add as glide_add
from jobyard.engine.glidemq import stored_values
from jobyard.engine.jobs.queues import stop_counting
from jobyard.engine.state.yard import Yard
from jobyard.engine.subscriptions.subscriptions import drop_redeliveries
from jobyard.model.glidemq.stored_values import ValueKind
from jobyard.model.index.append_list import AppendList
from jobyard.model.index.item import Item
from jobyard.model.index.sorted_view import HIGHEST, LOWEST
from jobyard.model.job import DEAD, DONE, READY, Job
from jobyard.model.queue import Queue
from jobyard.protocols.glidemq.errors import Wrong
from jobyard.protocols.glidemq.events import EventRing, QueueEvents
from jobyard.protocols.glidemq.keyspace import key_parts
from jobyard.protocols.glidemq.keyspace.gather import (
    AppendListGather,
    FoundTask,
    Gather,
    JobsBySeqGather,
)
from jobyard.protocols.glidemq.keyspace.key import RedisKey, Scored, ScoreRange
from jobyard.protocols.glidemq.keyspace.key_parts import KeyPlace, text_of
from jobyard.protocols.glidemq.keyspace.sorted_ids import ListedIds
from jobyard.protocols.glidemq.keyspace.views.fields import (
    ORDER_DONE,
    group_fields,
    meta_fields,
    metrics_fields,
    order_done,
    ordering_fields,
    ordering_named,
)
from jobyard.protocols.glidemq.keyspace.views.job import number
from jobyard.protocols.glidemq.keyspace.views.sets import (
    HIDDEN_MAX,
    HiddenMembers,
    ScheduledGather,
    ended_at,
    few_members,
    find_ids,
    is_scheduled,
    list_active,
    list_count,
    list_items,
    parked_count,
    parked_jobs,
    rank_of,
    ready_list_of,
    ready_lists_of,
    repeats,
    resting_member,
    scheduled_count,
    scheduled_jobs,
    scheduled_member,
    scheduled_page,
    scheduled_within,
)
from jobyard.protocols.glidemq.keyspace.views.writes import (
    SETTING_FIELDS,
    drop_meta_fields,
    remove_if_may,
    schedule,
    set_meta_fields,
)


class QueuePart(RedisKey):
    """A part of a queue: it has one kind, and exists while it holds anything.

    Parts that only show something return with the next job: a delete just reports success.
    """

    def __init__(
        self, kind: i64, yard: Yard, queue: Queue, place: KeyPlace, now_ms: i64, events: QueueEvents
    ) -> None:
        self._kind: i64 = kind
        self._yard = yard
        self._events = events
        self._queue = queue
        self._place = place
        self._now_ms: i64 = now_ms

    def is_there(self) -> bool:
        """Return whether it holds anything."""
        raise NotImplementedError

    def kind(self) -> i64:
        """Return its kind, if it exists."""
        return self._kind if self.is_there() else ValueKind.NONE

    def delete(self) -> bool:
        """Report it as deleted."""
        return self.is_there()

    def _removal(self, has: Callable[[Job], bool]) -> FoundTask:
        """Return a task that removes the jobs of the queue that match."""
        yard = self._yard
        return FoundTask(
            self._events,
            JobsBySeqGather(self._queue, has),
            lambda job, now_ms: has(job) and remove_if_may(yard, job, now_ms),
        )


@final
class NoPart(RedisKey):
    """A part of a queue that does not exist."""

    def kind(self) -> i64:
        """Return that it has no kind."""
        return ValueKind.NONE


@final
class NumberKey(RedisKey):
    """The last id of a queue, or the number of running jobs that came from its lists."""

    def __init__(self, yard: Yard, queue: Queue | None, place: KeyPlace) -> None:
        self._yard = yard
        self._queue = queue
        self._place = place

    def kind(self) -> i64:
        """Return that it is a string, if there is a number."""
        return ValueKind.NONE if self.text() is None else ValueKind.STRING

    def text(self) -> bytes | None:
        """Return the number."""
        queue = self._queue
        if queue is None:
            return None
        if self._place.part == key_parts.KeyPart.ID:
            return number(queue.next_seq - 1) if queue.next_seq > 1 else None
        active = list_active(queue)
        return number(active) if active > 0 else None

    def set_text(self, value: bytes, expires_ms: i64) -> None:
        """Ignore clients that count jobs taken from lists: the yard counts them itself."""
        if self._place.part != key_parts.KeyPart.LIST_ACTIVE:
            super().set_text(value, expires_ms)

    def delete(self) -> bool:
        """Restart ids once the queue is empty; counters stay as they are."""
        is_there = self.text() is not None
        if self._queue is not None and self._place.part == key_parts.KeyPart.ID:
            stop_counting(self._yard, self._queue)
        return is_there


@final
class MetaKey(RedisKey):
    """The settings of a queue: those that the yard enforces, and those that only clients use."""

    def __init__(self, yard: Yard, queue: Queue | None, place: KeyPlace, now_ms: i64) -> None:
        self._yard = yard
        self._queue = queue
        self._place = place
        self._now_ms: i64 = now_ms

    def kind(self) -> i64:
        """Return that it is a hash, if it has a field or an ordering group."""
        ready_lists = None if self._queue is None else ready_lists_of(self._queue)
        is_there = bool(self.fields()) or (ready_lists is not None and bool(ready_lists.orderings))
        return ValueKind.HASH if is_there else ValueKind.NONE

    def _notes(self) -> dict[bytes, bytes]:
        key = stored_values.find(self._yard, self._place.key(), self._now_ms)
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
        """Set limits and pause of the queue, and store the rest."""
        known = self.fields()
        set_meta_fields(self._yard, self._place.queue_name, fields, self._now_ms)
        notes = {name: value for name, value in fields.items() if _is_note(name, value)}
        if notes:
            stored_values.set_fields(self._yard, self._place.key(), notes, self._now_ms)
        return len([name for name in fields if name not in known])

    def drop_fields(self, names: list[bytes]) -> i64:
        """Remove limits and pause, and stored fields."""
        fields = self.fields()
        known = [name for name in dict.fromkeys(names) if name in fields]
        settings = [name for name in known if name in SETTING_FIELDS]
        if settings:
            drop_meta_fields(self._yard, self._place.queue_name, settings, self._now_ms)
        key = stored_values.find(self._yard, self._place.key(), self._now_ms)
        if key is not None:
            stored_values.drop_fields(self._yard, key, known)
        return len(known)

    def delete(self) -> bool:
        """Remove all limits and stored fields."""
        return self.drop_fields(list(self.fields())) > 0


def _is_note(name: bytes, value: bytes) -> bool:
    """Return whether a field is stored as it is; a limit of zero means none and is only shown."""
    return name not in SETTING_FIELDS or not value.strip(b"0")


@final
class MetricsKey(RedisKey):
    """How many jobs ended, per minute; the counters outlive the queue."""

    def __init__(self, yard: Yard, place: KeyPlace, ring: EventRing | None) -> None:
        self._yard = yard
        self._place = place
        self._ring = ring

    def kind(self) -> i64:
        """Return that it is a hash, if any job ended."""
        return ValueKind.HASH if self.fields() else ValueKind.NONE

    def field(self, name: bytes) -> bytes | None:
        """Return one field."""
        return self.fields().get(name)

    def fields(self) -> dict[bytes, bytes]:
        """Return all fields."""
        minute_counters = self._yard.minute_counters.get(self._place.queue_name)
        if minute_counters is None:
            return {}
        ring = self._ring
        if self._place.part == key_parts.KeyPart.METRICS_COMPLETED:
            return metrics_fields(
                self._yard, minute_counters.done, None if ring is None else ring.done_ms
            )
        return metrics_fields(
            self._yard, minute_counters.failed, None if ring is None else ring.failed_ms
        )

    def delete(self) -> bool:
        """Report it as deleted."""
        return self.kind() != ValueKind.NONE


@final
class OrderingGroupKey(QueuePart):
    """State of ordering groups, which change only with their jobs."""

    def is_there(self) -> bool:
        """Return whether there is anything in it."""
        return bool(self.fields())

    def field(self, name: bytes) -> bytes | None:
        """Return one field."""
        return self.fields().get(name)

    def fields(self) -> dict[bytes, bytes]:
        """Return all fields."""
        queue = self._queue
        part = self._place.part
        if part == key_parts.KeyPart.ORDERING:
            return ordering_fields(queue)
        if part == key_parts.KeyPart.GROUP:
            ordering = ordering_named(queue, self._place.rest)
            return {} if ordering is None else group_fields(self._yard, ordering, self._now_ms)
        return {}


@final
class ListKey(QueuePart):
    """Jobs that workers take from a list: promoted ones, or LIFO jobs."""

    def is_there(self) -> bool:
        """Return whether the list has a job."""
        return self.items_count() > 0

    def items_count(self) -> i64:
        """Return the number of jobs in the list."""
        return list_count(self._queue, self._place)

    def items(self, start: i64, end: i64) -> list[bytes]:
        """Return the ids of some of them."""
        return list_items(self._queue, self._place)[start:end]

    def find_items(self) -> ListedIds | None:
        """Return a task that lists all ids, if there are many."""
        return find_ids(self._queue, self._place)

    def clear(self) -> FoundTask | None:
        """Return a task that removes all jobs of the list."""
        return self._removal(self._has)

    def held_count(self) -> i64:
        """Return the number of jobs in the list."""
        return self.items_count()

    def _has(self, job: Job) -> bool:
        return job.state == READY and job.ready_list == ready_list_of(self._place)


@final
class ParkedKey(QueuePart):
    """Jobs that wait for others of their ordering key."""

    def is_there(self) -> bool:
        """Return whether there are any."""
        return self.items_count() > 0

    def items_count(self) -> i64:
        """Return how many there are."""
        return parked_count(self._queue, self._place.rest)

    def items(self, start: i64, end: i64) -> list[bytes]:
        """Return the ids of some of them, the next to start first."""
        jobs = parked_jobs(self._queue, self._place.rest)[start:end]
        return [glide_add.id_bytes(job) for job in jobs]


class SortedPart(QueuePart):
    """A part of a queue that is a sorted set."""

    def is_there(self) -> bool:
        """Return whether it has a member."""
        return self.scored_count() > 0

    def held_count(self) -> i64:
        """Return the number of members."""
        return self.scored_count()


@final
class ScheduledKey(SortedPart):
    """Jobs that wait to be promoted."""

    def scored_count(self) -> i64:
        """Return the number of jobs."""
        return scheduled_count(self._queue) + len(self._repeats())

    def _repeats(self) -> list[Scored]:
        """Return the pending redeliveries of subscriptions; few queues have any."""
        return [] if self._queue.subscriptions is None else repeats(self._yard, self._queue)

    def score(self, member: bytes) -> float | None:
        """Return priority and due time of a job."""
        for one in self._repeats():
            if one[0] == member:
                return one[1]
        job = glide_add.find(self._yard, self._queue, text_of(member))
        if job is None or not is_scheduled(job):
            return None
        return scheduled_member(self._yard, job)[1]

    def scored(self) -> list[Scored]:
        """Return all jobs, the first to be promoted first."""
        return self.scored_page(0, self.scored_count(), is_reversed=False)

    def scored_page(self, start: i64, end: i64, *, is_reversed: bool) -> list[Scored]:
        """Return the jobs from rank `start` up to, not including, `end`."""
        more = self._repeats()
        if more:
            more += [scheduled_member(self._yard, job) for job in scheduled_jobs(self._queue)]
            more.sort(key=rank_of, reverse=is_reversed)
            return more[start:end]
        jobs = scheduled_page(self._yard, self._queue, start, end, is_reversed=is_reversed)
        return [scheduled_member(self._yard, job) for job in jobs]

    def scored_within(self, within: ScoreRange, *, is_reversed: bool) -> list[Scored]:
        """Return the jobs whose scores are in a range."""
        jobs = scheduled_within(self._yard, self._queue, within, is_reversed=is_reversed)
        found = [scheduled_member(self._yard, job) for job in jobs]
        more = [one for one in self._repeats() if within.holds(one[1])]
        if more:
            found += more
            found.sort(key=rank_of, reverse=is_reversed)
        return found

    def find_scored(self, within: ScoreRange | None, *, is_reversed: bool) -> Gather | None:
        """Return a task that finds jobs; None if there are redeliveries."""
        if self._repeats():
            return None
        low, high = (LOWEST, HIGHEST) if within is None else (within.least(), within.most())
        return ScheduledGather(self._yard, self._queue, low, high, is_reversed=is_reversed)

    def set_scores(self, scores: dict[bytes, float]) -> i64:
        """Reschedule jobs by their scores; dead jobs are revived."""
        return schedule(self._yard, self._queue, scores, self._now_ms)

    def delete(self) -> bool:
        """Drop the redeliveries of subscriptions."""
        return drop_redeliveries(self._yard, self._queue) > 0

    def clear(self) -> FoundTask | None:
        """Return a task that removes all jobs."""
        if scheduled_count(self._queue) == 0:
            return None
        drop_redeliveries(self._yard, self._queue)
        return self._removal(is_scheduled)


@final
class FewKey(SortedPart):
    """Jobs that wait for a signal, or ordering groups that are rate limited."""

    def scored_count(self) -> i64:
        """Return the number of members."""
        return len(self.scored())

    def score(self, member: bytes) -> float | None:
        """Return the score of a member."""
        for one in self.scored():
            if one[0] == member:
                return one[1]
        return None

    def scored(self) -> list[Scored]:
        """Return all members, the least score first."""
        return few_members(self._yard, self._queue, self._place)


@final
class RestKey(SortedPart):
    """Jobs that are done, or dead."""

    def __init__(
        self,
        kind: i64,
        yard: Yard,
        queue: Queue,
        place: KeyPlace,
        now_ms: i64,
        events: QueueEvents,
        hidden: HiddenMembers,
    ) -> None:
        super().__init__(kind, yard, queue, place, now_ms, events)
        self._hidden = hidden

    def _state(self) -> i64:
        return DONE if self._place.part == key_parts.KeyPart.COMPLETED else DEAD

    def _line(self) -> AppendList:
        queue = self._queue
        return queue.done if self._place.part == key_parts.KeyPart.COMPLETED else queue.dead

    def _left_out(self) -> set[Item]:
        return self._hidden.endings(self._yard, self._queue, self._state())

    def scored_count(self) -> i64:
        """Return the number of jobs."""
        return self._line().live_count - len(self._left_out())

    def score(self, member: bytes) -> float | None:
        """Return when a job ended."""
        job = glide_add.find(self._yard, self._queue, text_of(member))
        if job is None or job.state != self._state() or job.outcome() in self._left_out():
            return None
        return resting_member(self._yard, job.outcome())[1]

    def scored(self) -> list[Scored]:
        """Return all jobs, the first to end first."""
        return self.scored_page(0, self._line().live_count, is_reversed=False)

    def scored_page(self, start: i64, end: i64, *, is_reversed: bool) -> list[Scored]:
        """Return the jobs from rank `start` up to, not including, `end`."""
        left_out = self._left_out()
        page = self._line().page(start, end - start, is_reversed=is_reversed, without=left_out)
        return [resting_member(self._yard, item) for item in page]

    def scored_within(self, within: ScoreRange, *, is_reversed: bool) -> list[Scored]:
        """Return the jobs that ended in a range; ids are looked up only for those."""
        line = self._line()
        all_of_them = line.page(
            0, line.live_count, is_reversed=is_reversed, without=self._left_out()
        )
        return [
            resting_member(self._yard, item)
            for item in all_of_them
            if within.holds(ended_at(self._yard, item))
        ]

    def drop_scored(self, members: list[bytes]) -> i64:
        """Hide some jobs until they end again: the client is about to revive them."""
        gone: i64 = 0
        left_out = self._left_out()
        for member in dict.fromkeys(members):
            job = glide_add.find(self._yard, self._queue, text_of(member))
            if job is not None and job.state == self._state() and job.outcome() not in left_out:
                self._hidden.add(job)
                gone += 1
        return gone

    def clear(self) -> FoundTask | None:
        """Return a task that removes all of them."""
        found = AppendListGather(self._line(), set(), 0, is_reversed=False)
        return FoundTask(self._events, found, self._remove)

    def _remove(self, job: Job, now_ms: i64) -> bool:
        return job.state == self._state() and remove_if_may(self._yard, job, now_ms)

    def find_scored(self, within: ScoreRange | None, *, is_reversed: bool) -> Gather | None:
        """Return a task that finds jobs by when they ended."""
        offset_ms = self._yard.journal.wall_offset_ms
        left_out = self._left_out()
        found = AppendListGather(self._line(), left_out, offset_ms, is_reversed=is_reversed)
        if within is not None:
            found.within(within)
        return found

    def check_popped(self, count: i64) -> None:
        """Refuse to hide more jobs than can be remembered."""
        if min(count, self.scored_count()) > HIDDEN_MAX:
            raise Wrong(f"ERR at most {HIDDEN_MAX} jobs can be removed at once")
