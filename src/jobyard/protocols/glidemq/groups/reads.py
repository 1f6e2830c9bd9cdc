"""XREADGROUP of workers: takes jobs from the streams of queues, now or when one comes.

A job that comes while a worker waits is leased to it at once, and sent when its connection resumes.
If the connection is gone by then, the job is released as if it had not been taken.
"""

from typing import final

from librt.strings import BytesWriter
from mypy_extensions import i64

from jobyard.engine.glidemq.take import take_stream, wait_stream
from jobyard.engine.jobs.finish import give_back
from jobyard.engine.jobs.queues import drop_watch, hold_watch, open_queue
from jobyard.engine.jobs.take import cancel_wait
from jobyard.model.job import Job
from jobyard.model.lease import Holder, Lease
from jobyard.model.limits import NEVER_MS
from jobyard.model.queue import Queue
from jobyard.model.waiter import Waiter
from jobyard.protocols.glidemq.call import LEASE_NS, Call
from jobyard.protocols.glidemq.client import Blocked
from jobyard.protocols.glidemq.groups import subscription_reads
from jobyard.protocols.glidemq.groups.args import NEW, READ_MAX, GroupReadArgs, entry_id
from jobyard.protocols.glidemq.groups.pending_entries import Gathers, HeldGather
from jobyard.protocols.glidemq.groups.subscription_reads import BLOCK_MAX_MS
from jobyard.protocols.glidemq.groups.workers import write_entry
from jobyard.protocols.glidemq.keyspace.gather import job_of
from jobyard.protocols.glidemq.keyspace.key_parts import bytes_of
from jobyard.protocols.glidemq.keyspace.views.stream import ENTRY_MAX, GROUP
from jobyard.protocols.glidemq.long_commands import begin
from jobyard.protocols.glidemq.many_arguments import check_streams
from jobyard.wire.resp.write import write_array, write_bulk, write_map, write_nil_array


def xreadgroup(call: Call) -> None:
    """Take jobs from streams, or answer again with the jobs that a consumer holds."""
    check_streams(call)
    reading = GroupReadArgs(call)
    if reading.group != GROUP:
        subscription_reads.xreadgroup(call, reading)
        return
    for name in reading.names:
        call.door.promoter.note_reader(name, reading.consumer, int(call.session.id))
    if reading.only_new():
        _read(call, reading, [])
        return
    own = [_own(call, reading, each) for each in range(len(reading.keys))]
    begin(call, Gathers([one for one in own if one is not None]), lambda: _read(call, reading, own))


def _own(call: Call, reading: GroupReadArgs, each: i64) -> HeldGather | None:
    """Return the search for what a consumer holds of a stream, if that is requested."""
    queue = call.yard.queues.get(reading.names[each])
    text = reading.ids[each]
    if text == NEW or queue is None:
        return None
    found = HeldGather(call, queue, entry_id(text) + 1, ENTRY_MAX)
    found.consumer = bytes_of(reading.consumer)
    found.is_any_door = False
    found.limit(0, reading.count)
    return found


def _read(call: Call, reading: GroupReadArgs, own: list[HeldGather | None]) -> None:
    """Take new jobs and answer with them, and with those that the consumer holds."""
    found: list[tuple[bytes, list[Job]]] = []
    left: i64 = max(reading.count, READ_MAX)
    for each in range(len(reading.keys)):
        if reading.ids[each] != NEW:
            jobs = _still_held(own[each], left)
            found.append((reading.keys[each], jobs))
            left -= len(jobs)
            continue
        queue = call.yard.queues.get(reading.names[each])
        leases: list[Lease] = []
        if queue is not None and left > 0:
            most = min(reading.count, left)
            leases = take_stream(call.yard, queue, reading.consumer, most, call.now_ms)
            call.session.handed += leases
            call.session.work_ns += LEASE_NS * len(leases)
        if leases:
            left -= len(leases)
            found.append((reading.keys[each], [lease.job for lease in leases]))
    if found:
        write_found(call.out, call.proto, found)
    elif reading.block_ms < 0 or not call.may_wait or not reading.only_new():
        write_nil_array(call.out, call.proto)
    else:
        _wait(call, reading)


def _still_held(own: HeldGather | None, left: i64) -> list[Job]:
    """Return what a consumer holds; at least one if it holds any, as an empty list means none."""
    if own is None:
        return []
    jobs = [job_of(lease) for lease in own.items if job_of(lease).lease is lease]
    return jobs[: int(max(left, 1))]


def write_found(out: BytesWriter, proto: i64, found: list[tuple[bytes, list[Job]]]) -> None:
    """Write which jobs were found in which streams."""
    is_map = proto >= 3
    if is_map:
        write_map(out, len(found), proto)
    else:
        write_array(out, len(found))
    for key, jobs in found:
        if not is_map:
            write_array(out, 2)
        write_bulk(out, key)
        write_array(out, len(jobs))
        for job in jobs:
            write_entry(out, job)


def _wait(call: Call, reading: GroupReadArgs) -> None:
    queues = [open_queue(call.yard, name) for name in dict.fromkeys(reading.names)]
    for queue in queues:
        hold_watch(queue)
    waiting = GroupWait(call, reading, queues)
    until_ms: i64 = NEVER_MS
    if reading.block_ms > 0:
        until_ms = min(call.now_ms + min(reading.block_ms, BLOCK_MAX_MS), NEVER_MS - 1)
    call.session.block(waiting, until_ms)
    waiting.begin(call.now_ms)


@final
class GroupWait(Blocked, Holder):
    """A worker that waits at streams."""

    def __init__(self, call: Call, reading: GroupReadArgs, queues: list[Queue]) -> None:
        self._call = call
        self._reading = reading
        self._queues = queues
        self._waiter: Waiter | None = None
        self._lease: Lease | None = None

    def begin(self, now_ms: i64) -> None:
        """Join the queue of waiters at all streams."""
        yard = self._call.yard
        lease_set = yard.new_lease_set(self)
        consumer = self._reading.consumer
        self._waiter = wait_stream(yard, self._queues, consumer, lease_set, NEVER_MS - 1, now_ms)

    def given(self, waiter: Waiter, lease: Lease) -> None:  # noqa: ARG002  there is only one
        """Keep the job until the connection resumes and sends it."""
        self._waiter = None
        self._lease = lease
        self._call.session.peer.wake()

    def waited_enough(
        self,
        waiter: Waiter,  # noqa: ARG002  there is only one
        *,
        is_deadline_soon: bool,  # noqa: ARG002  it holds nothing
    ) -> None:
        """Forget the waiter: the engine has removed it."""
        self._waiter = None

    def try_again(self, now_ms: i64) -> bool:
        """Answer with the job that came, and more of its queue if requested."""
        lease = self._lease
        if lease is None:
            return False
        self._lease = None
        job = lease.job
        jobs: list[Job] = []
        if job.lease is lease:
            jobs.append(job)
            self._call.session.handed.append(lease)
        reading = self._reading
        more: i64 = reading.count - len(jobs)
        if more > 0:
            leases = take_stream(self._call.yard, job.queue, reading.consumer, more, now_ms)
            self._call.session.handed += leases
            jobs += [one.job for one in leases]
        if not jobs:
            self.begin(now_ms)
            return False
        key = reading.keys[reading.names.index(job.queue.name)]
        write_found(self._call.out, self._call.proto, [(key, jobs)])
        return True

    def stand_aside(self, queue_name: str, consumer: str) -> None:
        """Take no more jobs if this worker waits here, and at this queue alone."""
        if self._reading.is_by(queue_name, consumer):
            self._leave_line()

    def give_up(self) -> None:
        """Answer that no job came."""
        write_nil_array(self._call.out, self._call.proto)

    def leave(self) -> None:
        """Stop waiting, and release a job that was not sent."""
        self._leave_line()
        for queue in self._queues:
            drop_watch(self._call.yard, queue)
        self._queues = []

    def _leave_line(self) -> None:
        yard = self._call.yard
        if self._waiter is not None:
            cancel_wait(yard, self._waiter)
            self._waiter = None
        lease = self._lease
        self._lease = None
        if lease is not None and lease.job.lease is lease:
            give_back(yard, lease.job, yard.now_ms)
