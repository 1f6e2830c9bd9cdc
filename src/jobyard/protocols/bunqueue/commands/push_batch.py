"""PUSHB: add many jobs, all of which are read and checked before the first one enters.

A short batch is added at once. A long one is a task: its jobs are read, linked and checked in
slices, and a refusal up to there has changed nothing. Then the jobs enter in parts of at most
`ENTER_UNITS`, so that other clients do not wait too long; each part is atomic, even if the process
is killed. Other commands change the yard between slices, so links to other jobs are checked again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64

from jobyard.engine.jobs.put import NewJob
from jobyard.engine.jobs.put_transaction import commit, reserve, reserve_in_parts, room_of
from jobyard.engine.jobs.queues import drop_if_idle, open_queue
from jobyard.engine.jobs.take import offer
from jobyard.engine.state.tasks import Task
from jobyard.errors import Refused, StorageFull, YardFull
from jobyard.model.family import BUNQUEUE
from jobyard.model.job import MSGPACK
from jobyard.protocols.bunqueue.commands import flow_links, push_options
from jobyard.protocols.bunqueue.commands.jobs import refuse_if_draining, write_id
from jobyard.protocols.bunqueue.commands.push_links import PushLinks
from jobyard.protocols.session import PIECE_SIZE
from jobyard.wire.msgpack.write import LongRaw, Raw, write_array, write_ascii

if TYPE_CHECKING:
    from jobyard.model.job import Job
    from jobyard.model.queue import Queue
    from jobyard.protocols.bunqueue.door import Answer
    from jobyard.protocols.bunqueue.request import Request
    from jobyard.protocols.bunqueue.session import BunqueueSession

# Jobs of one PUSHB.
BATCH_MAX: Final = 100_000
# A batch up to this size is added in its turn, whatever the turn's load.
PUSHED_AT_ONCE: Final = 1000
PUSH_BYTES_AT_ONCE: Final = 4 << 20
# Units of work that enter at one moment: about two milliseconds, or four with a journal.
ENTER_UNITS: Final = 2500

# Units of work, about a microsecond each.
_READ_UNITS: Final = 1
_OPTIONS_UNITS: Final = 3
_LINK_UNITS: Final = 3
_ENTER_DETAILS_UNITS: Final = 4
_ENTER_LINK_UNITS: Final = 2
_BYTES_PER_UNIT: Final = 1024

# Replaces a job that has entered, so that its memory is freed.
_SPENT: Final = NewJob(BUNQUEUE, MSGPACK, b"")

_TOO_MANY: Final = f"jobs must have at most {BATCH_MAX} entries"

# Phases of the task.
_READ: Final = 0
_LINK: Final = 1
_SORT: Final = 2
_CHECK: Final = 3
_ENTER: Final = 4
_DONE: Final = 5


def push_batch(session: BunqueueSession, request: Request) -> None:
    """Add many jobs."""
    name = session.queue_name(request.fields)
    entries = push_options.PushEntries(request.fields, "jobs", BATCH_MAX, _TOO_MANY, ": ")
    refuse_if_draining(session)
    batch = PushBatch(session, name, entries)
    if entries.count > PUSHED_AT_ONCE or entries.size() > PUSH_BYTES_AT_ONCE:
        answer = session.begin(request, batch, batch.answer)
        if answer is not None:
            session.answer(request.req_id, answer)
        return
    batch.run(request.now_ms)
    out = session.out
    frame = session.begin_ok(request.req_id, 1)
    write_ascii(out, b"ids")
    for piece in batch.ids():
        out.write(piece)
    session.end_ok(frame, request.req_id)
    session.narrow(frame, batch.newest)


@final
class PushBatch(Task):
    """Reads, links, checks and adds the jobs of one PUSHB."""

    def __init__(
        self, session: BunqueueSession, name: str, entries: push_options.PushEntries
    ) -> None:
        super().__init__()
        self._door = session.door
        self._yard = session.yard
        self._name: str = name
        self._entries = entries
        self._phase: i64 = _READ
        # All jobs enter at one moment, however much work that is.
        self._is_whole: bool = False
        # How many jobs the current phase has processed.
        self._at: i64 = 0
        self._new_jobs: list[NewJob] = []
        self._links: list[PushLinks | None] = []
        # The size of all bodies, and of all records in the journal.
        self._size: i64 = 0
        self._room: i64 = 0
        # Indexes by custom id.
        self._named: dict[str, int] = {}
        self._is_knit: bool = False
        self._order: flow_links.BatchOrder | None = None
        self._names = flow_links.BatchNames(name)
        self._inserted: i64 = 0
        # The last piece of encoded ids, if jobs enter in the order of the batch.
        self._ids = BytesWriter()
        # The pieces before it; and ids by index, if jobs enter in another order.
        self._ids_before: list[bytes] = []
        self._ids_by_place: list[bytes] = []
        # The answer waits until this journal batch is durable.
        self.newest: i64 = 0

    def run(self, now_ms: i64) -> None:
        """Run all phases at once."""
        self._is_whole = True
        while self._phase != _DONE:
            self._proceed(1 << 40, now_ms)

    def step(self, most: i64, now_ms: i64) -> i64:
        """Run the next slice; a part enters at one moment even if that exceeds `most`."""
        done: i64 = 0
        while done < most and self._phase != _DONE:
            done += self._proceed(most - done, now_ms)
        return done

    def _proceed(self, most: i64, now_ms: i64) -> i64:
        if self._phase == _READ:
            return self._read(most, now_ms)
        if self._phase == _LINK:
            return self._link(most)
        if self._phase == _SORT:
            return self._sort(most)
        if self._phase == _CHECK:
            return self._check(most, now_ms)
        return self._enter_slice(now_ms)

    def _next_phase(self, phase: i64) -> None:
        self._phase = phase
        self._at = 0

    # -- reading and checking ------------------------------------------------------------------

    def _read(self, most: i64, now_ms: i64) -> i64:
        done: i64 = 0
        queue = self._yard.queues.get(self._name)
        while done < most and self._entries.has_more():
            place = len(self._new_jobs)
            fields = self._entries.next()
            try:
                new_job = push_options.read_new_job(self._door, fields, now_ms)
                links: PushLinks | None = None
                if new_job.details is not None:
                    links = PushLinks(self._yard, new_job, new_job.details, fields)
                    links.batch_names = self._names
                    if queue is not None:
                        links.check_group(queue)
                    if links.details.custom_id:
                        self._named.setdefault(links.details.custom_id, place)
            except Refused as refusal:
                raise Refused(f"jobs[{place}]: {refusal}") from None
            self._new_jobs.append(new_job)
            self._links.append(links)
            size: i64 = len(new_job.body)
            self._size += size
            done += _READ_UNITS + size // _BYTES_PER_UNIT
            if fields.others_count > 0:
                done += _OPTIONS_UNITS
        if not self._entries.has_more():
            self._next_phase(_LINK)
        return done

    def _link(self, most: i64) -> i64:
        """Resolve the dependencies of the jobs, inside and outside the batch."""
        done: i64 = 0
        while done < most and self._at < len(self._new_jobs):
            place = int(self._at)
            self._at += 1
            done += 1
            links = self._links[place]
            if links is None or not links.details.protocol_fields:
                continue
            try:
                links.tie(self._named, self._name)
            except Refused as refusal:
                raise Refused(f"jobs[{place}]: {refusal}") from None
            members = links.details.members
            done += _LINK_UNITS
            if members is not None:
                done += len(members)
                self._is_knit = self._is_knit or any(one.child_id == 0 for one in members)
        if self._at == len(self._new_jobs):
            self._next_phase(_SORT)
        return done

    def _sort(self, most: i64) -> i64:
        """Find the order in which each job enters after its dependencies."""
        done: i64 = 0
        if self._is_knit:
            if self._order is None:
                self._order = flow_links.BatchOrder(self._new_jobs, self._named, self._name)
            done = self._order.find(most)
            if not self._order.is_found():
                return done
            self._order.forget()
            self._ids_by_place = [b""] * len(self._new_jobs)
        self._named.clear()
        self._next_phase(_CHECK)
        return done

    def _check(self, most: i64, now_ms: i64) -> i64:
        """Refuse a job that cannot enter, and sum up the journal space of all jobs."""
        done: i64 = 0
        queue = open_queue(self._yard, self._name)
        while done < most and self._at < len(self._new_jobs):
            place = int(self._at)
            self._at += 1
            done += 1
            links = self._links[place]
            if links is not None:
                done += 1
                try:
                    links.refuse_taken(queue, now_ms)
                except Refused as refusal:
                    raise Refused(f"jobs[{place}]: {refusal}") from None
            if not self._is_whole:
                self._room += room_of(queue, self._new_jobs[place], links, now_ms)
        if self._at == len(self._new_jobs):
            self._next_phase(_ENTER)
        return done

    # -- entering ------------------------------------------------------------------------------

    def _enter_slice(self, now_ms: i64) -> i64:
        """Add the next part of the jobs at one moment."""
        first = self._at
        if first == len(self._new_jobs):
            self._end()
            return 0
        yard = self._yard
        queue = open_queue(yard, self._name)
        units = self._choose()
        try:
            if first == 0 and not self._is_whole:
                count: i64 = len(self._new_jobs)
                reserve_in_parts(yard, queue, count, self._size, self._room, now_ms)
            self._reserve(queue, first, now_ms)
        except (YardFull, StorageFull) as refusal:
            drop_if_idle(yard, queue)
            if first == 0:
                raise
            self._break_off(refusal, first)
        while first < self._at:
            place = self._place(first)
            job = self._enter(queue, place, now_ms)
            self._note_id(place, job)
            # Freed one by one: freeing all at once would take too long.
            self._new_jobs[place] = _SPENT
            self._links[place] = None
            self.newest = max(self.newest, job.batch)
            first += 1
        if queue.first_link is not None:
            offer(yard, queue, now_ms)
        if self._at == len(self._new_jobs):
            self._end()
        return units

    def _choose(self) -> i64:
        """Advance over the jobs of the next part; return their units of work."""
        units: i64 = 0
        count: i64 = len(self._new_jobs)
        while self._at < count and (units < ENTER_UNITS or self._is_whole):
            new_job = self._new_jobs[self._place(self._at)]
            units += 1 + len(new_job.body) // _BYTES_PER_UNIT
            if new_job.details is not None:
                units += _ENTER_DETAILS_UNITS
                if new_job.details.members is not None:
                    units += _ENTER_LINK_UNITS * len(new_job.details.members)
            self._at += 1
        return units

    def _place(self, at: i64) -> int:
        order = self._order
        return int(at) if order is None else order.places[at]

    def _reserve(self, queue: Queue, first: i64, now_ms: i64) -> None:
        """Reserve memory and journal space for the jobs that enter now."""
        size: i64 = 0
        room: i64 = 0
        at = first
        while at < self._at:
            place = self._place(at)
            new_job = self._new_jobs[place]
            links = self._links[place]
            size += len(new_job.body)
            if links is not None:
                links.resolve()
            room += room_of(queue, new_job, links, now_ms)
            at += 1
        reserve(self._yard, queue, self._at - first, size, room, now_ms)

    def _break_off(self, refusal: Exception, entered: i64) -> None:
        """Refuse the rest of a batch that ran out of space, and report how many jobs were added."""
        reason = str(refusal) or "Storage full"
        raise Refused(f"{reason} ({entered} of {len(self._new_jobs)} jobs were added)")

    def _enter(self, queue: Queue, place: int, now_ms: i64) -> Job:
        new_job = self._new_jobs[place]
        links = self._links[place]
        if links is not None and self._order is not None:
            links.resolve()
        job = commit(self._yard, queue, new_job, links, now_ms)
        if job.details is new_job.details:
            self._inserted += 1
        if links is not None and self._order is not None:
            self._names.entered(links.details.custom_id, job)
        return job

    def _note_id(self, place: int, job: Job) -> None:
        if self._order is None:
            write_id(self._ids, job)
            if len(self._ids) >= PIECE_SIZE:
                self._ids_before.append(self._ids.getvalue())
                self._ids = BytesWriter()
            return
        out = BytesWriter()
        write_id(out, job)
        self._ids_by_place[place] = out.getvalue()

    # -- the end -------------------------------------------------------------------------------

    def _end(self) -> None:
        self._phase = _DONE
        observer = self._door.observer
        total = len(self._new_jobs)
        if observer is not None and total > 1:
            counts: dict[str, object] = {"queue": self._name, "total": total}
            counts["inserted"] = int(self._inserted)
            counts["duplicates"] = total - int(self._inserted)
            observer.publish("batch:pushed", counts)

    def ids(self) -> list[bytes]:
        """Return the ids of all jobs, in the order of the request, as an array in pieces."""
        out = BytesWriter()
        write_array(out, len(self._new_jobs))
        pieces = [out.getvalue()]
        if self._order is None:
            pieces += self._ids_before
            pieces.append(self._ids.getvalue())
            return pieces
        out.truncate(0)
        for one in self._ids_by_place:
            out.write(one)
            if len(out) >= PIECE_SIZE:
                pieces.append(out.getvalue())
                out = BytesWriter()
        pieces.append(out.getvalue())
        return pieces

    def answer(self) -> Answer:
        """Return the answer to a long batch."""
        pieces = self.ids()
        return {"ids": Raw(b"".join(pieces)) if len(pieces) == 2 else LongRaw(pieces)}
