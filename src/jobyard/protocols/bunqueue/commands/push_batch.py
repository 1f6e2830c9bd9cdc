"""PUSHB: many jobs, read and checked as a whole before the first of them enters.

A short batch is done at once. A long one is a task: its jobs are read, tied to each other and
checked in slices, and a refusal up to there has changed nothing. Then they enter, as many at one
moment as others can be kept waiting for; up to that many are all there or none is, also after a
kill. Between slices others change the yard, so what was found of other jobs is looked at again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64

from jobyard.engine.jobs.put import Wish
from jobyard.engine.jobs.put_transaction import commit, reserve, reserve_in_parts, room_of
from jobyard.engine.jobs.queues import drop_if_idle, open_queue
from jobyard.engine.jobs.take import offer
from jobyard.engine.state.tasks import Task
from jobyard.errors import Refused, StorageFull, YardFull
from jobyard.model.family import BUNQUEUE
from jobyard.model.job import MSGPACK
from jobyard.protocols.bunqueue.commands import flow_links, push_options
from jobyard.protocols.bunqueue.commands.jobs import refuse_if_draining, write_id
from jobyard.protocols.bunqueue.commands.push_links import PushLinks, links_for
from jobyard.protocols.bunqueue.long_answers import PIECE_SIZE
from jobyard.wire.msgpack.write import LongRaw, Raw, write_array, write_ascii

if TYPE_CHECKING:
    from jobyard.model.job import Job
    from jobyard.model.queue import Queue
    from jobyard.protocols.bunqueue.door import Answer
    from jobyard.protocols.bunqueue.request import Request
    from jobyard.protocols.bunqueue.session import BunqueueSession

# Of one PUSHB.
BATCH_MAX: Final = 100_000
# What is done in its turn, whatever else is to be done there.
AT_ONCE: Final = 1000
BYTES_AT_ONCE: Final = 4 << 20
# What enters at one moment, in units: about two milliseconds, or four with a journal.
ENTER_UNITS: Final = 2500

# Units of work, about a microsecond each.
_READ_UNITS: Final = 1
_OPTIONS_UNITS: Final = 3
_TIE_UNITS: Final = 3
_ENTER_EXTRA_UNITS: Final = 4
_ENTER_TIE_UNITS: Final = 2
_BYTES_PER_UNIT: Final = 1024

# In place of what has entered.
_SPENT: Final = Wish(BUNQUEUE, MSGPACK, b"")

_TOO_MANY: Final = f"jobs must have at most {BATCH_MAX} entries"

# What is done next.
_READ: Final = 0
_TIE: Final = 1
_SORT: Final = 2
_CHECK: Final = 3
_ENTER: Final = 4
_DONE: Final = 5


def push_batch(session: BunqueueSession, request: Request) -> None:
    """Add many jobs."""
    name = session.queue_name(request.fields)
    entries = push_options.Entries(request.fields, "jobs", BATCH_MAX, _TOO_MANY, ": ")
    refuse_if_draining(session)
    batch = Batch(session, name, entries)
    if entries.count > AT_ONCE or entries.size() > BYTES_AT_ONCE:
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
class Batch(Task):
    """The jobs of one PUSHB on their way."""

    def __init__(self, session: BunqueueSession, name: str, entries: push_options.Entries) -> None:
        super().__init__()
        self._door = session.door
        self._yard = session.yard
        self._name: str = name
        self._entries = entries
        self._phase: i64 = _READ
        # All enter together, however much work that is.
        self._is_whole: bool = False
        # How many places the phase is through with.
        self._at: i64 = 0
        self._wishes: list[Wish] = []
        self._links: list[PushLinks | None] = []
        # Of all bodies, and what all records take in the journal.
        self._size: i64 = 0
        self._room: i64 = 0
        # Places by the ids that clients give.
        self._named: dict[str, int] = {}
        self._is_knit: bool = False
        self._order: flow_links.Order | None = None
        self._ties = flow_links.Ties(name)
        self._inserted: i64 = 0
        # The ids in the order of the jobs, or by place where these enter in another.
        self._ids = BytesWriter()
        # Of a long batch, and by place where jobs enter in another order than they stand there.
        self._ids_before: list[bytes] = []
        self._ids_by_place: list[bytes] = []
        # Not told before this batch of the journal is safe.
        self.newest: i64 = 0

    def run(self, now_ms: i64) -> None:
        """Do all of it at one moment."""
        self._is_whole = True
        while self._phase != _DONE:
            self._go_on(1 << 40, now_ms)

    def step(self, most: i64, now_ms: i64) -> i64:
        """Do the next of it; what enters, enters at one moment even if that is too much."""
        done: i64 = 0
        while done < most and self._phase != _DONE:
            done += self._go_on(most - done, now_ms)
        return done

    def _go_on(self, most: i64, now_ms: i64) -> i64:
        if self._phase == _READ:
            return self._read(most, now_ms)
        if self._phase == _TIE:
            return self._tie(most)
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
            place = len(self._wishes)
            fields = self._entries.next()
            try:
                wish = push_options.read_wish(self._door, fields, now_ms)
                links = links_for(self._yard, wish, fields)
                if links is not None:
                    links.ties = self._ties
                    if queue is not None:
                        links.check_group(queue)
                    if links.extra.custom_id:
                        self._named.setdefault(links.extra.custom_id, place)
            except Refused as refusal:
                raise Refused(f"jobs[{place}]: {refusal}") from None
            self._wishes.append(wish)
            self._links.append(links)
            size: i64 = len(wish.body)
            self._size += size
            done += _READ_UNITS + size // _BYTES_PER_UNIT
            if fields.others_count > 0:
                done += _OPTIONS_UNITS
        if not self._entries.has_more():
            self._next_phase(_TIE)
        return done

    def _tie(self, most: i64) -> i64:
        """Find those that the jobs wait for, among themselves and elsewhere."""
        done: i64 = 0
        while done < most and self._at < len(self._wishes):
            place = int(self._at)
            self._at += 1
            done += 1
            links = self._links[place]
            if links is None or not links.extra.marks:
                continue
            try:
                links.tie(self._named, self._name)
            except Refused as refusal:
                raise Refused(f"jobs[{place}]: {refusal}") from None
            members = links.extra.members
            done += _TIE_UNITS
            if members is not None:
                done += len(members)
                self._is_knit = self._is_knit or any(one.child_id == 0 for one in members)
        if self._at == len(self._wishes):
            self._next_phase(_SORT)
        return done

    def _sort(self, most: i64) -> i64:
        """Find the order in which each job finds those that it waits for."""
        done: i64 = 0
        if self._is_knit:
            if self._order is None:
                self._order = flow_links.Order(self._wishes, self._named, self._name)
            done = self._order.find(most)
            if not self._order.is_found():
                return done
            self._order.forget()
            self._ids_by_place = [b""] * len(self._wishes)
        self._named.clear()
        self._next_phase(_CHECK)
        return done

    def _check(self, most: i64, now_ms: i64) -> i64:
        """Refuse a job that could not enter, and count what all of them take."""
        done: i64 = 0
        queue = open_queue(self._yard, self._name)
        while done < most and self._at < len(self._wishes):
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
                self._room += room_of(queue, self._wishes[place], links, now_ms)
        if self._at == len(self._wishes):
            self._next_phase(_ENTER)
        return done

    # -- entering ------------------------------------------------------------------------------

    def _enter_slice(self, now_ms: i64) -> i64:
        """Let as many enter as may at one moment."""
        first = self._at
        if first == len(self._wishes):
            self._end()
            return 0
        yard = self._yard
        queue = open_queue(yard, self._name)
        units = self._choose()
        try:
            if first == 0 and not self._is_whole:
                count: i64 = len(self._wishes)
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
            # Freed bit by bit: all of them together would take long.
            self._wishes[place] = _SPENT
            self._links[place] = None
            self.newest = max(self.newest, job.batch)
            first += 1
        if queue.first_link is not None:
            offer(yard, queue, now_ms)
        if self._at == len(self._wishes):
            self._end()
        return units

    def _choose(self) -> i64:
        """Take the next jobs that can enter together; return the units of work that they are."""
        units: i64 = 0
        count: i64 = len(self._wishes)
        while self._at < count and (units < ENTER_UNITS or self._is_whole):
            wish = self._wishes[self._place(self._at)]
            units += 1 + len(wish.body) // _BYTES_PER_UNIT
            if wish.extra is not None:
                units += _ENTER_EXTRA_UNITS
                if wish.extra.members is not None:
                    units += _ENTER_TIE_UNITS * len(wish.extra.members)
            self._at += 1
        return units

    def _place(self, at: i64) -> int:
        order = self._order
        return int(at) if order is None else order.places[at]

    def _reserve(self, queue: Queue, first: i64, now_ms: i64) -> None:
        """Reserve for the jobs that enter now."""
        size: i64 = 0
        room: i64 = 0
        at = first
        while at < self._at:
            place = self._place(at)
            wish = self._wishes[place]
            links = self._links[place]
            size += len(wish.body)
            if links is not None:
                links.resolve()
            room += room_of(queue, wish, links, now_ms)
            at += 1
        reserve(self._yard, queue, self._at - first, size, room, now_ms)

    def _break_off(self, refusal: Exception, entered: i64) -> None:
        """Tell how far a batch came that others left no room for in the middle."""
        reason = str(refusal) or "Storage full"
        raise Refused(f"{reason} ({entered} of {len(self._wishes)} jobs were added)")

    def _enter(self, queue: Queue, place: int, now_ms: i64) -> Job:
        wish = self._wishes[place]
        links = self._links[place]
        if links is not None and self._order is not None:
            links.resolve()
        job = commit(self._yard, queue, wish, links, now_ms)
        if job.extra is wish.extra:
            self._inserted += 1
        if links is not None and self._order is not None:
            self._ties.entered(links.extra.custom_id, job)
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
        onlooker = self._door.onlooker
        total = len(self._wishes)
        if onlooker is not None and total > 1:
            told: dict[str, object] = {"queue": self._name, "total": total}
            told["inserted"] = int(self._inserted)
            told["duplicates"] = total - int(self._inserted)
            onlooker.tell("batch:pushed", told)

    def ids(self) -> list[bytes]:
        """Return the ids of all jobs as they were asked for, as an array in pieces."""
        out = BytesWriter()
        write_array(out, len(self._wishes))
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
        """Return what is answered to a long batch."""
        pieces = self.ids()
        return {"ids": Raw(b"".join(pieces)) if len(pieces) == 2 else LongRaw(pieces)}
