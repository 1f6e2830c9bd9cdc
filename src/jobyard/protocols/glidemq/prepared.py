"""Requests that a connection repeats: add a job, take jobs, finish one and fetch the next.

A prepared call is made from a request that was run and holds what was found out about it: its queue
and its options. The next request that fits its template is run without being parsed. Where
something has changed meanwhile, the call returns before it changes anything, and the request is run
the usual way. Both ways give the same replies.
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
from jobyard.protocols.glidemq.functions.add import read_spec
from jobyard.protocols.glidemq.functions.work import read_keep, write_next
from jobyard.protocols.glidemq.groups.args import GroupReadArgs
from jobyard.protocols.glidemq.groups.reads import write_found
from jobyard.protocols.glidemq.keyspace import key_parts
from jobyard.protocols.glidemq.keyspace.views.stream import GROUP
from jobyard.wire.resp.template import RequestTemplate, is_array
from jobyard.wire.resp.write import write_decimal

if TYPE_CHECKING:
    from jobyard.engine.jobs.put import NewJob
    from jobyard.model.job import Job
    from jobyard.model.queue import Queue
    from jobyard.protocols.glidemq.call import Call
    from jobyard.protocols.glidemq.client import Client
    from jobyard.protocols.glidemq.keyspace.key_parts import KeyPlace
    from jobyard.wire.resp.read import Command

_ADD: Final = b"glidemq_addJob"
_FINISH: Final = b"glidemq_completeAndFetchNext"
_ADD_KEYS: Final = 4
_FINISH_KEYS: Final = 5
# Positions of the keys and arguments that differ from job to job.
_ADD_FREE: Final = (8, 10)
_FINISH_FREE: Final = (6, 8, 9, 10, 11)
_PROCESSED_ON: Final = 23
_ENTRY_SIZE_MAX: Final = 24
_SEQ_DIGITS_MAX: Final = 18


class PreparedCall:
    """A request that a connection repeats."""

    def __init__(self, template: RequestTemplate, command: bytes) -> None:
        self.template = template
        self.command = command

    def run(self, session: Client, now_ms: i64) -> bool:
        """Run the request that fitted last; False, with nothing changed, if it must be parsed."""
        raise NotImplementedError


@final
class PreparedAdd(PreparedCall):
    """`addJob` of jobs that differ only in their data."""

    def __init__(
        self, template: RequestTemplate, place: KeyPlace, new_job: NewJob, *, is_quiet: bool
    ) -> None:
        super().__init__(template, b"FCALL")
        self._name = place.queue_name
        self._job_head = place.job_head()
        self._new_job = new_job
        self._is_quiet = is_quiet

    def run(self, session: Client, now_ms: i64) -> bool:
        """Add a job."""
        given = self.template.given
        new_job = self._new_job
        ts = number_of(given[1], 0, len(given[1]))
        if ts < 0 or ts + new_job.delay_ms > TIME_MAX or new_job.policy.number == 0:
            return False
        door = session.door
        queue = door.yard.queues.get(self._name)
        if queue is None or door.is_draining or self._job_head in door.yard.stored_values.numbered:
            return False
        new_job.body = given[0]
        new_job.codec = glide_add.codec_of(new_job.body)
        new_job.own_ms = ts
        events = door.events
        events.ring_of(self._name)
        events.is_quiet = self._is_quiet
        try:
            job = glide_add.add_alike(door.yard, queue, new_job, now_ms)
        except Refused:
            return False
        finally:
            events.is_quiet = False
        write_decimal(session.out, job.key)
        return True


@final
class PreparedRead(PreparedCall):
    """`XREADGROUP` of new entries of one stream."""

    def __init__(self, template: RequestTemplate, reading: GroupReadArgs) -> None:
        super().__init__(template, b"XREADGROUP")
        self._reading = reading

    def run(self, session: Client, now_ms: i64) -> bool:
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
class PreparedFinish(PreparedCall):
    """`completeAndFetchNext` of jobs of one stream that have no parent."""

    def __init__(self, template: RequestTemplate, call: Fcall) -> None:
        super().__init__(template, b"FCALL")
        place = call.place(0, key_parts.KeyPart.STREAM)
        self._name = place.queue_name
        self._job_head = place.base + key_parts.TEXTS[key_parts.KeyPart.JOB]
        self._keep = read_keep(call, 6)
        self._consumer = call.text(5)
        self._is_quiet = call.is_set(17)

    def run(self, session: Client, now_ms: i64) -> bool:
        """Finish a job and start the next."""
        given = self.template.given
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
        # The queue may have been removed with its last job.
        queue = yard.queues.get(self._name)
        lease = None
        if queue is not None:
            lease = glide_take.take_next(yard, queue, self._consumer, now_ms)
            if lease is not None:
                session.handed.append(lease)
        write_next(yard, session.out, job_id, lease)
        return True


def _find(yard: Yard, queue: Queue, job_id: bytes) -> Job | None:
    """Return a job by a numeric id."""
    size: i64 = len(job_id)
    if size == 0 or size > _SEQ_DIGITS_MAX or job_id[0] == 48:
        return None
    seq = number_of(job_id, 0, size)
    if seq < 0 or queue.jobs_by_seq is None:
        return None
    job = queue.jobs_by_seq.find(seq)
    if (
        job is None
        or job.details is not None
        or (queue.chosen is not None and queue.chosen.count > 0)
    ):
        return glide_add.find(yard, queue, str(int(seq)))
    return job


def number_of(data: bytes, start: i64, end: i64) -> i64:
    """Parse 1 to 18 ASCII digits; -1 if the input is anything else."""
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
    """Return the stamp that a stream entry id stands for; -1 for anything else."""
    size: i64 = len(text)
    dash: i64 = text.find(b"-")
    if dash < 0 or size > _ENTRY_SIZE_MAX:
        return -1
    high = number_of(text, 0, dash)
    low = number_of(text, dash + 1, size)
    if high < 0 or low < 0 or high >> (63 - STAMP_SHIFT) != 0 or low >> STAMP_SHIFT != 0:
        return -1
    return high << STAMP_SHIFT | low


# -- making them ------------------------------------------------------------------------------


def may_recur(command: Command) -> bool:
    """Return whether prepared calls are made of this kind of request."""
    if command.is_word(0, b"XREADGROUP"):
        return True
    return command.arg(1) in (_ADD, _FINISH)


def prepare_call(call: Call) -> PreparedCall | None:
    """Return a prepared call for requests like this one; None where they differ too much."""
    command = call.command
    if not is_array(command):
        return None
    if command.is_word(0, b"XREADGROUP"):
        return _prepare_read(call)
    function = command.arg(1)
    if function == _ADD:
        return _prepare_add(call)
    if function == _FINISH:
        return _prepare_finish(call)
    return None


def _prepare_add(call: Call) -> PreparedCall | None:
    if call.integer(2) != _ADD_KEYS:
        return None
    fcall = Fcall(call, _ADD_KEYS)
    spec = read_spec(fcall, 0)
    if spec.custom_id or spec.ordering or spec.parent_id or fcall.arg(19):
        return None
    new_job = glide_add.new_job_for(call.yard, spec)
    if new_job.details is not None or new_job.policy.number == 0:
        return None
    template = RequestTemplate(call.command, list(_ADD_FREE))
    place = fcall.place(0, key_parts.KeyPart.ID)
    return PreparedAdd(template, place, new_job, is_quiet=fcall.is_set(20))


def _prepare_read(call: Call) -> PreparedCall | None:
    reading = GroupReadArgs(call)
    if reading.group != GROUP or len(reading.keys) != 1 or not reading.only_new():
        return None
    return PreparedRead(RequestTemplate(call.command, []), reading)


def _prepare_finish(call: Call) -> PreparedCall | None:
    fcall = Fcall(call, _FINISH_KEYS)
    # Jobs with a parent, and groups other than the workers, are handled the usual way.
    if call.integer(2) != _FINISH_KEYS or fcall.arg(9) or fcall.arg(4) != GROUP:
        return None
    free = list(_FINISH_FREE)
    if call.count() > _PROCESSED_ON:
        free.append(_PROCESSED_ON)
    return PreparedFinish(RequestTemplate(call.command, free), fcall)
