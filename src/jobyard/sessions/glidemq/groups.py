"""Commands of consumer groups; of the group `workers`, who takes jobs, and who holds them.

That group is there as soon as somebody speaks of it, and every job is for it, whenever it came: an
id to begin with is accepted and has no meaning. What is said of other groups is for subscriptions.
"""

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from jobyard.engine import glide
from jobyard.engine.end import give_back
from jobyard.engine.glide_end import Keep, complete
from jobyard.engine.glide_take import hand_to
from jobyard.errors import NotHeld
from jobyard.model.job import GLIDE, Job
from jobyard.model.queue import Queue
from jobyard.sessions.glidemq import places, subscriptions
from jobyard.sessions.glidemq.call import Call
from jobyard.sessions.glidemq.gather import CHANGE_UNITS
from jobyard.sessions.glidemq.group_args import (
    AutoClaim,
    Claim,
    Pending,
    entry_id,
    read_consumer,
    stream_place,
)
from jobyard.sessions.glidemq.keys import parse_key
from jobyard.sessions.glidemq.many import check_claims, for_each, tell_count
from jobyard.sessions.glidemq.places import Place, find_place
from jobyard.sessions.glidemq.projection_stream import (
    ENTRY_MAX,
    GROUP,
    consumer_of,
    consumers,
    entry_fields,
    entry_stamp,
    entry_text,
    find_pending,
    idle_ms,
    pending_bounds,
    pending_count,
    pending_jobs,
    pending_range,
    stream_length,
    write_entry_id,
)
from jobyard.sessions.glidemq.words import Wrong, unknown_subcommand, wrong_count
from jobyard.wire.resp_write import (
    write_array,
    write_bulk,
    write_integer,
    write_map,
    write_nil,
    write_nil_array,
    write_ok,
)

_ONLY_WORKERS: Final = "ERR only the group 'workers' can do this: no other takes jobs"
_BUSY_GROUP: Final = "BUSYGROUP Consumer Group name already exists"
_NO_KEY: Final = (
    "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use"
    " the MKSTREAM option to create an empty stream automatically."
)


def check_group(name: bytes) -> None:
    """See that a group is the one that takes jobs."""
    if name != GROUP:
        raise Wrong(_ONLY_WORKERS)


def _queue(call: Call, at: i64) -> Queue | None:
    return call.yard.queues.get(stream_place(call.arg(at)).queue_name)


# -- entries -----------------------------------------------------------------------------------


def write_entry(out: BytesWriter, job: Job) -> None:
    """Write the entry of a job."""
    write_array(out, 2)
    write_entry_id(out, job)
    fields = entry_fields(job)
    write_array(out, len(fields))
    for value in fields:
        write_bulk(out, value)


# -- XGROUP ------------------------------------------------------------------------------------


def xgroup(call: Call) -> None:
    """Make or change a group."""
    if call.count() < 4:
        raise wrong_count("xgroup")
    place = stream_place(call.arg(2))
    if call.is_word(1, b"CREATE"):
        _create(call, place)
        return
    queue = call.yard.queues.get(place.queue_name)
    if call.arg(3) != GROUP:
        subscriptions.xgroup(call, queue)
        return
    if call.is_word(1, b"SETID") and call.count() in (5, 7):
        write_ok(call.out)
    elif call.is_word(1, b"DESTROY") and call.count() == 4:
        write_integer(call.out, 1 if call.door.promoter.remove(place.queue_name) else 0)
    elif call.is_word(1, b"CREATECONSUMER") and call.count() == 5:
        write_integer(call.out, 1)
    elif call.is_word(1, b"DELCONSUMER") and call.count() == 5:
        write_integer(call.out, 0 if queue is None else _drop_consumer(call, queue))
    else:
        raise unknown_subcommand("XGROUP", call.command.text(1))


def _create(call: Call, place: Place) -> None:
    if call.count() not in (5, 6, 7, 8):
        raise wrong_count("xgroup|create")
    start = call.arg(4)
    if start not in (b"$", b"0"):
        entry_id(start)
    makes = call.is_word(5, b"MKSTREAM") or call.is_word(7, b"MKSTREAM")
    # A stream that was made empty is there, though no queue is.
    is_subscription = call.arg(3) != GROUP
    if is_subscription:
        is_busy = subscriptions.is_known(call, place.queue_name)
    else:
        is_busy = place.queue_name in call.door.promoter.groups
    if is_busy:
        raise Wrong(_BUSY_GROUP)
    if place.queue_name not in call.yard.queues and not makes:
        raise Wrong(_NO_KEY)
    if is_subscription:
        subscriptions.create(call, place.queue_name)
    else:
        call.door.promoter.add(place.queue_name)
    call.door.events.ring_of(place.queue_name)
    write_ok(call.out)


def _drop_consumer(call: Call, queue: Queue) -> i64:
    """Give back what a consumer holds; return how much that was."""
    name = call.arg(4)
    held = [job for job in pending_range(queue, 0, ENTRY_MAX) if is_of(job, name)]
    for job in held:
        give_back(call.yard, job, call.now_ms)
    return len(held)


def is_of(job: Job, name: bytes) -> bool:
    """Tell whether a consumer holds a job; holders at other doors may have the same name."""
    lease = job.lease
    return lease is not None and lease.terms.door == GLIDE and consumer_of(lease) == name


# -- XACK --------------------------------------------------------------------------------------


def xack(call: Call) -> None:
    """End the runs of jobs well, without a result."""
    if call.count() < 4:
        raise wrong_count("xack")
    stream_place(call.arg(1))
    stamps: list[i64] = []

    def read(start: int, end: int) -> int:
        stamps.extend(entry_id(text) for text in call.args_between(3 + start, 3 + end))
        return 0

    for_each(call, call.count() - 3, read, lambda _: _acknowledge(call, stamps), is_reading=True)


def _acknowledge(call: Call, stamps: list[i64]) -> None:
    def end_runs(start: int, end: int) -> int:
        some = stamps[start:end]
        queue = _queue(call, 1)
        if call.arg(2) != GROUP:
            return subscriptions.acknowledged(call, queue, some)
        return 0 if queue is None else _complete(call, queue, some)

    for_each(call, len(stamps), end_runs, lambda count: tell_count(call, count), CHANGE_UNITS)


def _complete(call: Call, queue: Queue, stamps: list[i64]) -> int:
    """End the runs of some entries; return how many were held."""
    done = 0
    for stamp in stamps:
        job = find_pending(queue, stamp)
        if job is None:
            continue
        try:
            complete(call.yard, job, glide.entry_of(job), b"", Keep(), call.now_ms)
        except NotHeld:
            continue
        call.door.husks.add(stamp)
        done += 1
    return done


# -- XPENDING ----------------------------------------------------------------------------------


def xpending(call: Call) -> None:
    """Tell who holds how many entries, or which entries they hold."""
    if call.count() < 3:
        raise wrong_count("xpending")
    queue = _queue(call, 1)
    if call.arg(2) != GROUP:
        subscriptions.xpending(call, queue)
        return
    if call.count() == 3:
        _pending_summary(call, queue)
        return
    asked = Pending(call)
    found: list[Job] = []
    if queue is not None:
        for job in pending_range(queue, asked.low, asked.high):
            lease = job.lease
            assert lease is not None
            is_idle = idle_ms(lease, call.now_ms) >= asked.least_ms
            if is_idle and asked.consumer in (b"", consumer_of(lease)):
                found.append(job)
    _write_pending(call, found[: int(asked.count)])


def _write_pending(call: Call, jobs: list[Job]) -> None:
    write_array(call.out, len(jobs))
    for job in jobs:
        lease = job.lease
        assert lease is not None
        write_array(call.out, 4)
        write_bulk(call.out, entry_text(entry_stamp(job)))
        write_bulk(call.out, consumer_of(lease))
        write_integer(call.out, idle_ms(lease, call.now_ms))
        write_integer(call.out, i64(job.deliveries))


def _pending_summary(call: Call, queue: Queue | None) -> None:
    count: i64 = 0 if queue is None else pending_count(queue)
    write_array(call.out, 4)
    write_integer(call.out, count)
    if queue is None or count == 0:
        write_nil(call.out, call.proto)
        write_nil(call.out, call.proto)
        write_nil_array(call.out, call.proto)
        return
    least, most = pending_bounds(queue)
    write_bulk(call.out, entry_text(least))
    write_bulk(call.out, entry_text(most))
    held = consumers(queue)
    write_array(call.out, len(held))
    for name in sorted(held):
        write_array(call.out, 2)
        write_bulk(call.out, name)
        write_bulk(call.out, str(held[name]).encode())


# -- XCLAIM and XAUTOCLAIM ---------------------------------------------------------------------


def _hand_over(call: Call, job: Job, consumer: str) -> bool:
    """Let another consumer hold a job of this door."""
    try:
        hand_to(call.yard, job, consumer, call.now_ms)
    except NotHeld:
        return False
    return True


def xautoclaim(call: Call) -> None:
    """Hand over entries that have been held for long."""
    if call.count() < 6:
        raise wrong_count("xautoclaim")
    queue = _queue(call, 1)
    if call.arg(2) != GROUP:
        subscriptions.xautoclaim(call, queue)
        return
    asked = AutoClaim(call)
    consumer = read_consumer(call)
    jobs: list[Job] = []
    if queue is not None:
        jobs = pending_range(queue, asked.low, ENTRY_MAX)
    claimed: list[Job] = []
    cursor = b"0-0"
    for job in jobs:
        lease = job.lease
        assert lease is not None
        if len(claimed) == asked.count:
            cursor = entry_text(entry_stamp(job))
            break
        if idle_ms(lease, call.now_ms) >= asked.least_ms and _hand_over(call, job, consumer):
            claimed.append(job)
    write_array(call.out, 3)
    write_bulk(call.out, cursor)
    _write_claimed(call, claimed, is_short=asked.is_short)
    write_array(call.out, 0)


def _write_claimed(call: Call, jobs: list[Job], *, is_short: bool) -> None:
    write_array(call.out, len(jobs))
    for job in jobs:
        if is_short:
            write_bulk(call.out, entry_text(entry_stamp(job)))
        else:
            write_entry(call.out, job)


def xclaim(call: Call) -> None:
    """Hand over some entries."""
    if call.count() < 6:
        raise wrong_count("xclaim")
    check_claims(call)
    queue = _queue(call, 1)
    if call.arg(2) != GROUP:
        subscriptions.xclaim(call, queue)
        return
    asked = Claim(call)
    consumer = read_consumer(call)
    claimed: list[Job] = []
    for stamp in asked.stamps:
        job = None if queue is None else find_pending(queue, stamp)
        lease = None if job is None else job.lease
        if job is None or lease is None or idle_ms(lease, call.now_ms) < asked.least_ms:
            continue
        if _hand_over(call, job, consumer):
            claimed.append(job)
    _write_claimed(call, claimed, is_short=asked.is_short)


# -- XINFO -------------------------------------------------------------------------------------


def _has_workers(call: Call) -> bool:
    return stream_place(call.arg(2)).queue_name in call.door.promoter.groups


def groups_count(call: Call) -> i64:
    """Return how many groups a stream has; one that is kept as it was set has none."""
    place = find_place(parse_key(call.arg(2)))
    if place.part != places.STREAM:
        return 0
    return len(subscriptions.names(_queue(call, 2))) + (1 if _has_workers(call) else 0)


def info_groups(call: Call) -> None:
    """Tell of all groups."""
    queue = _queue(call, 2)
    pending: i64 = 0 if queue is None else pending_count(queue)
    others = subscriptions.names(queue)
    has_workers = not others or pending > 0 or _has_workers(call)
    write_array(call.out, len(others) + (1 if has_workers else 0))
    if queue is not None:
        subscriptions.info_groups(call, queue)
    if not has_workers:
        return
    write_map(call.out, 6, call.proto)
    write_bulk(call.out, b"name")
    write_bulk(call.out, GROUP)
    write_bulk(call.out, b"consumers")
    write_integer(call.out, 0 if queue is None else len(consumers(queue)))
    write_bulk(call.out, b"pending")
    write_integer(call.out, pending)
    write_bulk(call.out, b"last-delivered-id")
    write_bulk(call.out, b"0-0")
    write_bulk(call.out, b"entries-read")
    write_nil(call.out, call.proto)
    write_bulk(call.out, b"lag")
    write_integer(call.out, 0 if queue is None else stream_length(queue) - pending)


def info_consumers(call: Call) -> None:
    """Tell of those who hold entries."""
    queue = _queue(call, 2)
    if call.arg(3) != GROUP:
        subscriptions.info_consumers(call, queue)
        return
    held: dict[bytes, int] = {}
    idle: dict[bytes, int] = {}
    if queue is not None:
        held = consumers(queue)
        for job in pending_jobs(queue):
            assert job.lease is not None
            name = consumer_of(job.lease)
            ms = int(idle_ms(job.lease, call.now_ms))
            idle[name] = min(idle.get(name, ms), ms)
    write_array(call.out, len(held))
    for name in sorted(held):
        write_map(call.out, 4, call.proto)
        write_bulk(call.out, b"name")
        write_bulk(call.out, name)
        write_bulk(call.out, b"pending")
        write_integer(call.out, held[name])
        write_bulk(call.out, b"idle")
        write_integer(call.out, idle[name])
        write_bulk(call.out, b"inactive")
        write_integer(call.out, idle[name])
