"""Requests that come over and over: a job added, jobs taken, one finished and the next begun.

A routine is made of a request that was run, and holds what was found out about it: which queue, on
which terms. The next request of its mould is run without being read. What is not as it was is left
to be run the long way: then nothing has changed yet. The answers are those of the long way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from jobyard.engine.glidemq import add as glide_add
from jobyard.engine.glidemq import finish as glide_finish
from jobyard.engine.glidemq import take as glide_take
from jobyard.engine.state.yard import STAMP_SHIFT, Yard
from jobyard.errors import Refused
from jobyard.model.family import GLIDE
from jobyard.protocols.glidemq.call import LEASE_NS
from jobyard.protocols.glidemq.function_call import TIME_MAX, Fcall
from jobyard.protocols.glidemq.functions.add import read_adding
from jobyard.protocols.glidemq.functions.work import read_keep, write_next
from jobyard.protocols.glidemq.groups.args import Reading
from jobyard.protocols.glidemq.groups.reads import write_found
from jobyard.protocols.glidemq.keyspace import key_parts
from jobyard.protocols.glidemq.keyspace.views.stream import GROUP
from jobyard.wire.resp.template import Mould, is_array
from jobyard.wire.resp.write import write_decimal

if TYPE_CHECKING:
    from jobyard.engine.jobs.put import Wish
    from jobyard.model.job import Job
    from jobyard.model.queue import Queue
    from jobyard.protocols.glidemq.call import Call
    from jobyard.protocols.glidemq.keyspace.key_parts import Place
    from jobyard.protocols.glidemq.session import GlidemqSession
    from jobyard.wire.resp.read import Command

_ADD: Final = b"glidemq_addJob"
_FINISH: Final = b"glidemq_completeAndFetchNext"
_ADD_KEYS: Final = 4
_FINISH_KEYS: Final = 5
# Where keys and arguments of functions stand that differ from job to job.
_ADD_FREE: Final = (8, 10)
_FINISH_FREE: Final = (6, 8, 9, 10, 11)
_PROCESSED_ON: Final = 23
_ENTRY_SIZE_MAX: Final = 24
_SEQ_DIGITS_MAX: Final = 18


class Routine:
    """A request that comes over and over."""

    def __init__(self, mould: Mould, command: bytes) -> None:
        self.mould = mould
        self.command = command

    def run(self, session: GlidemqSession, now_ms: i64) -> bool:
        """Run the request that fitted last; False, with nothing changed, if it must be read."""
        raise NotImplementedError


@final
class AddRoutine(Routine):
    """`addJob` of jobs that differ in their data alone."""

    def __init__(self, mould: Mould, place: Place, wish: Wish, *, is_quiet: bool) -> None:
        super().__init__(mould, b"FCALL")
        self._name = place.queue_name
        self._job_head = place.job_head()
        self._wish = wish
        self._is_quiet = is_quiet

    def run(self, session: GlidemqSession, now_ms: i64) -> bool:
        """Add a job."""
        given = self.mould.given
        wish = self._wish
        ts = number_of(given[1], 0, len(given[1]))
        if ts < 0 or ts + wish.delay_ms > TIME_MAX or wish.policy.number == 0:
            return False
        door = session.door
        queue = door.yard.queues.get(self._name)
        if queue is None or door.is_draining or self._job_head in door.yard.side.numbered:
            return False
        wish.body = given[0]
        wish.codec = glide_add.codec_of(wish.body)
        wish.own_ms = ts
        events = door.events
        events.ring_of(self._name)
        events.is_quiet = self._is_quiet
        try:
            job = glide_add.add_alike(door.yard, queue, wish, now_ms)
        except Refused:
            return False
        finally:
            events.is_quiet = False
        write_decimal(session.out, job.key)
        return True


@final
class ReadRoutine(Routine):
    """`XREADGROUP` of what is new in one stream."""

    def __init__(self, mould: Mould, reading: Reading) -> None:
        super().__init__(mould, b"XREADGROUP")
        self._reading = reading

    def run(self, session: GlidemqSession, now_ms: i64) -> bool:
        """Take jobs, if there are any."""
        reading = self._reading
        name = reading.names[0]
        door = session.door
        queue = door.yard.queues.get(name)
        if queue is None:
            return False
        leases = glide_take.take_stream(door.yard, queue, reading.consumer, reading.count, now_ms)
        if not leases:
            return False
        session.handed += leases
        session.work_ns += LEASE_NS * len(leases)
        door.promoter.note_reader(name, reading.consumer, int(session.id))
        jobs = [lease.job for lease in leases]
        write_found(session.out, session.proto, [(reading.keys[0], jobs)])
        return True


@final
class FinishRoutine(Routine):
    """`completeAndFetchNext` of jobs of one stream that are nobody's children."""

    def __init__(self, mould: Mould, call: Fcall) -> None:
        super().__init__(mould, b"FCALL")
        place = call.place(0, key_parts.STREAM)
        self._name = place.queue_name
        self._job_head = place.base + key_parts.TEXTS[key_parts.JOB]
        self._keep = read_keep(call, 6)
        self._consumer = call.text(5)
        self._is_quiet = call.is_set(17)

    def run(self, session: GlidemqSession, now_ms: i64) -> bool:
        """Finish a job, and begin the next."""
        given = self.mould.given
        job_id = given[1]
        door = session.door
        yard = door.yard
        queue = yard.queues.get(self._name)
        ts = number_of(given[4], 0, len(given[4]))
        if queue is None or ts < 0 or ts > TIME_MAX or given[0] != self._job_head + job_id:
            return False
        job = _find(yard, queue, job_id)
        if job is None or job.family != GLIDE:
            return False
        if not glide_finish.is_held_by(job, entry_of(given[2])):
            return False
        door.events.is_quiet = self._is_quiet
        try:
            glide_finish.complete_held(yard, job, given[3], self._keep, now_ms)
        finally:
            door.events.is_quiet = False
        # It may have gone with its last job.
        queue = yard.queues.get(self._name)
        lease = None
        if queue is not None:
            lease = glide_take.take_next(yard, queue, self._consumer, now_ms)
            if lease is not None:
                session.handed.append(lease)
        write_next(yard, session.out, job_id, lease)
        return True


def _find(yard: Yard, queue: Queue, job_id: bytes) -> Job | None:
    """Return a job by an id that is a number."""
    size: i64 = len(job_id)
    if size == 0 or size > _SEQ_DIGITS_MAX or job_id[0] == 48:
        return None
    seq = number_of(job_id, 0, size)
    if seq < 0 or queue.roster is None:
        return None
    job = queue.roster.find(seq)
    if (
        job is None
        or job.extra is not None
        or (queue.chosen is not None and queue.chosen.count > 0)
    ):
        return glide_add.find(yard, queue, str(int(seq)))
    return job


def number_of(data: bytes, start: i64, end: i64) -> i64:
    """Return the number that digits make up, of which there are not too many; -1 if they do not."""
    if start == end or end - start > _SEQ_DIGITS_MAX:
        return -1
    value: i64 = 0
    for at in range(start, end):
        digit: i64 = data[at] - 48
        if digit < 0 or digit > 9:
            return -1
        value = value * 10 + digit
    return value


def entry_of(text: bytes) -> i64:
    """Return the place in line that an entry is called by; -1 for anything else."""
    size: i64 = len(text)
    dash: i64 = text.find(b"-")
    if dash < 0 or size > _ENTRY_SIZE_MAX:
        return -1
    high = number_of(text, 0, dash)
    low = number_of(text, dash + 1, size)
    if high < 0 or low < 0 or high >> (63 - STAMP_SHIFT) != 0 or low >> STAMP_SHIFT != 0:
        return -1
    return high << STAMP_SHIFT | low


# -- how they are made -------------------------------------------------------------------------


def may_recur(command: Command) -> bool:
    """Tell whether a request is of a kind of which routines are made."""
    if command.is_word(0, b"XREADGROUP"):
        return True
    return command.arg(1) in (_ADD, _FINISH)


def routine_of(call: Call) -> Routine | None:
    """Return the routine of requests like one that was run; None where they are all different."""
    command = call.command
    if not is_array(command):
        return None
    if command.is_word(0, b"XREADGROUP"):
        return _read_routine(call)
    function = command.arg(1)
    if function == _ADD:
        return _add_routine(call)
    if function == _FINISH:
        return _finish_routine(call)
    return None


def _add_routine(call: Call) -> Routine | None:
    if call.integer(2) != _ADD_KEYS:
        return None
    fcall = Fcall(call, _ADD_KEYS)
    adding = read_adding(fcall, 0)
    if adding.custom_id or adding.lane or adding.parent_id or fcall.arg(19):
        return None
    wish = glide_add.wish_for(call.yard, adding)
    if wish.extra is not None or wish.policy.number == 0:
        return None
    mould = Mould(call.command, list(_ADD_FREE))
    place = fcall.place(0, key_parts.ID)
    return AddRoutine(mould, place, wish, is_quiet=fcall.is_set(20))


def _read_routine(call: Call) -> Routine | None:
    reading = Reading(call)
    if reading.group != GROUP or len(reading.keys) != 1 or not reading.only_new():
        return None
    return ReadRoutine(Mould(call.command, []), reading)


def _finish_routine(call: Call) -> Routine | None:
    fcall = Fcall(call, _FINISH_KEYS)
    # Whose parent is to be told is run the long way, and so is who takes no jobs.
    if call.integer(2) != _FINISH_KEYS or fcall.arg(9) or fcall.arg(4) != GROUP:
        return None
    free = list(_FINISH_FREE)
    if call.count() > _PROCESSED_ON:
        free.append(_PROCESSED_ON)
    return FinishRoutine(Mould(call.command, free), fcall)
