"""Commands of consumer groups; for the group `workers`, taking and holding jobs.

That group exists as soon as a client names it, and every job is for it, whenever the job came: a
start id is accepted and ignored. Commands for other groups are passed to `subscriptions`.
"""

from typing import Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64

from jobyard.engine.glidemq import add as glide_add
from jobyard.engine.glidemq.finish import Keep, complete
from jobyard.engine.glidemq.take import hand_to
from jobyard.engine.jobs.finish import give_back
from jobyard.engine.state.tasks import Task
from jobyard.engine.subscriptions.lags import LagTask
from jobyard.engine.subscriptions.subscriptions import is_subscribed
from jobyard.errors import NotHeld
from jobyard.model.job import Job
from jobyard.model.lease import Lease
from jobyard.model.queue import Queue
from jobyard.protocols.glidemq.call import Call
from jobyard.protocols.glidemq.errors import Wrong, unknown_subcommand, wrong_count
from jobyard.protocols.glidemq.groups import subscriptions
from jobyard.protocols.glidemq.groups.args import (
    AutoClaimArgs,
    ClaimArgs,
    PendingArgs,
    entry_id,
    read_consumer,
    stream_place,
)
from jobyard.protocols.glidemq.groups.pending_entries import Gathers, HeldCount, HeldGather
from jobyard.protocols.glidemq.keyspace import key_parts
from jobyard.protocols.glidemq.keyspace.gather import CHANGE_UNITS, FoundTask, job_of
from jobyard.protocols.glidemq.keyspace.key_names import parse_key
from jobyard.protocols.glidemq.keyspace.key_parts import KeyPlace, find_place
from jobyard.protocols.glidemq.keyspace.views.stream import (
    ENTRY_MAX,
    GROUP,
    consumer_of,
    entry_fields,
    entry_stamp,
    entry_text,
    find_pending,
    idle_ms,
    last_taken,
    pending_count,
    stream_length,
    write_entry_id,
)
from jobyard.protocols.glidemq.long_commands import Pieces, begin
from jobyard.protocols.glidemq.many_arguments import answer_count, check_claims, for_each
from jobyard.wire.resp.write import (
    write_array,
    write_bulk,
    write_integer,
    write_map,
    write_nil,
    write_nil_array,
    write_ok,
)

_ONLY_WORKERS: Final = "ERR only the group 'workers' can do this: other groups take no jobs"
_BUSY_GROUP: Final = "BUSYGROUP Consumer Group name already exists"
_NO_KEY: Final = (
    "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use"
    " the MKSTREAM option to create an empty stream automatically."
)


def check_group(name: bytes) -> None:
    """Check that a group is the one that takes jobs."""
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
    """Create or change a group."""
    if call.count() < 4:
        raise wrong_count("xgroup")
    place = stream_place(call.arg(2))
    if call.is_word(1, b"CREATE"):
        if call.arg(3) == GROUP:
            _create(call, place)
        else:
            subscriptions.when_filled(call, place.queue_name, lambda: _create(call, place))
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
        if queue is None:
            write_integer(call.out, 0)
        else:
            _drop_consumer(call, queue)
    else:
        raise unknown_subcommand("XGROUP", call.command.text(1))


def _create(call: Call, place: KeyPlace) -> None:
    if call.count() not in (5, 6, 7, 8):
        raise wrong_count("xgroup|create")
    start = call.arg(4)
    if start not in (b"$", b"0"):
        entry_id(start)
    makes = call.is_word(5, b"MKSTREAM") or call.is_word(7, b"MKSTREAM")
    # A stream that was created empty exists, though its queue does not.
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


def _drop_consumer(call: Call, queue: Queue) -> None:
    """Release what a consumer holds; answer how much that was."""
    found = HeldGather(call, queue, 0, ENTRY_MAX)
    found.consumer = call.arg(4)
    found.is_any_door = False
    # Leave alone what it takes from now on.
    last = call.yard.leases_issued

    def drop(job: Job, now_ms: i64) -> bool:
        lease = job.lease
        if lease is None or lease.key > last or not is_of(job, found.consumer):
            return False
        give_back(call.yard, job, now_ms)
        return True

    dropping = FoundTask(call.door.events, found, drop)
    dropping.oldest_first = True
    dropping.is_quiet = False
    units = pending_count(queue) * CHANGE_UNITS
    begin(call, dropping, lambda: answer_count(call, int(dropping.count)), units)


def is_of(job: Job, name: bytes) -> bool:
    """Return whether a consumer holds a job; holders at other doors may have the same name."""
    lease = job.lease
    return lease is not None and lease.terms.is_entry() and consumer_of(lease) == name


# -- XACK --------------------------------------------------------------------------------------


def xack(call: Call) -> None:
    """Complete the runs of jobs, without a result."""
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

    for_each(call, len(stamps), end_runs, lambda count: answer_count(call, count), CHANGE_UNITS)


def _complete(call: Call, queue: Queue, stamps: list[i64]) -> int:
    """Complete the runs of some entries; return how many were held."""
    done = 0
    for job in find_pending(queue, stamps):
        stamp = entry_stamp(job)
        try:
            complete(call.yard, job, glide_add.entry_of(job), b"", Keep(), call.now_ms)
        except NotHeld:
            continue
        call.door.recently_acked.add(stamp)
        done += 1
    return done


# -- XPENDING ----------------------------------------------------------------------------------


def xpending(call: Call) -> None:
    """Answer with the held entries, or with their number by consumer."""
    if call.count() < 3:
        raise wrong_count("xpending")
    queue = _queue(call, 1)
    if call.arg(2) != GROUP:
        subscriptions.xpending(call, queue)
        return
    if call.count() == 3:
        _pending_summary(call, queue)
        return
    asked = PendingArgs(call)
    if queue is None or asked.count == 0:
        write_array(call.out, 0)
        return
    found = HeldGather(call, queue, asked.low, asked.high)
    found.consumer = asked.consumer
    found.least_ms = asked.least_ms
    found.limit(0, asked.count)
    begin(call, found, lambda: HeldEntries(found, call.now_ms))


@final
class HeldEntries(Pieces):
    """Held entries, each with its consumer, idle time and delivery count."""

    def __init__(self, found: HeldGather, now_ms: i64) -> None:
        super().__init__(len(found.items))
        self._found = found
        found.items.reverse()
        self._now_ms: i64 = now_ms

    def write_head(self, out: BytesWriter) -> None:
        """Write the header with the number of entries."""
        write_array(out, self.count)

    def write_part(self, out: BytesWriter, at: i64) -> None:
        """Write one entry."""
        lease = self._found.items.pop()
        assert isinstance(lease, Lease)
        write_array(out, 4)
        write_bulk(out, entry_text(self._found.places[at]))
        write_bulk(out, consumer_of(lease))
        write_integer(out, idle_ms(lease, self._now_ms))
        write_integer(out, i64(lease.job.deliveries))

    def forget(self) -> Task | None:
        """Return a task that frees the rest, if there is much of it."""
        return self._found.abandon()


def _pending_summary(call: Call, queue: Queue | None) -> None:
    if queue is None or pending_count(queue) == 0:
        _answer_none_pending(call)
        return
    held = HeldCount(call, queue)
    begin(call, held, lambda: _answer_pending(call, held))


def _answer_none_pending(call: Call) -> None:
    write_array(call.out, 4)
    write_integer(call.out, 0)
    write_nil(call.out, call.proto)
    write_nil(call.out, call.proto)
    write_nil_array(call.out, call.proto)


def _answer_pending(call: Call, held: HeldCount) -> None:
    if held.count == 0:
        _answer_none_pending(call)
        return
    write_array(call.out, 4)
    write_integer(call.out, held.count)
    write_bulk(call.out, entry_text(held.least))
    write_bulk(call.out, entry_text(held.greatest))
    counts = held.by_name()
    write_array(call.out, len(counts))
    for name in sorted(counts):
        write_array(call.out, 2)
        write_bulk(call.out, name)
        write_bulk(call.out, str(counts[name]).encode())


# -- XCLAIM and XAUTOCLAIM ---------------------------------------------------------------------


def _hand_over(call: Call, job: Job, consumer: str) -> bool:
    """Hand a job of this door over to another consumer."""
    try:
        hand_to(call.yard, job, consumer, call.now_ms)
    except NotHeld:
        return False
    return True


def xautoclaim(call: Call) -> None:
    """Claim entries that have been idle for long."""
    if call.count() < 6:
        raise wrong_count("xautoclaim")
    queue = _queue(call, 1)
    if call.arg(2) != GROUP:
        subscriptions.xautoclaim(call, queue)
        return
    asked = AutoClaimArgs(call)
    consumer = read_consumer(call)
    if queue is None:
        _answer_claimed(call, [], b"0-0", is_short=asked.is_short)
        return
    found = HeldGather(call, queue, asked.low, ENTRY_MAX)
    found.is_any_door = False
    found.least_ms = asked.least_ms
    # One more gives the next cursor.
    found.limit(0, asked.count + 1)
    begin(call, found, lambda: _claim_found(call, asked, found, consumer))


def _claim_found(call: Call, asked: AutoClaimArgs, found: HeldGather, consumer: str) -> None:
    """Claim the entries found, if their leases are still the same."""
    cursor = b"0-0"
    if found.count > asked.count:
        cursor = entry_text(found.places.pop())
        found.items.pop()
    claimed: list[Job] = []
    for lease in found.items:
        job = job_of(lease)
        if job.lease is lease and _hand_over(call, job, consumer):
            claimed.append(job)
    _answer_claimed(call, claimed, cursor, is_short=asked.is_short)


def _answer_claimed(call: Call, claimed: list[Job], cursor: bytes, *, is_short: bool) -> None:
    write_array(call.out, 3)
    write_bulk(call.out, cursor)
    _write_claimed(call, claimed, is_short=is_short)
    # None of them are gone: a held entry always has its job.
    write_array(call.out, 0)


def _write_claimed(call: Call, jobs: list[Job], *, is_short: bool) -> None:
    write_array(call.out, len(jobs))
    for job in jobs:
        if is_short:
            write_bulk(call.out, entry_text(entry_stamp(job)))
        else:
            write_entry(call.out, job)


def xclaim(call: Call) -> None:
    """Claim some entries."""
    if call.count() < 6:
        raise wrong_count("xclaim")
    check_claims(call)
    queue = _queue(call, 1)
    if call.arg(2) != GROUP:
        subscriptions.xclaim(call, queue)
        return
    asked = ClaimArgs(call)
    consumer = read_consumer(call)
    claimed: list[Job] = []
    for job in [] if queue is None else find_pending(queue, asked.stamps):
        lease = job.lease
        if lease is None or idle_ms(lease, call.now_ms) < asked.least_ms:
            continue
        if _hand_over(call, job, consumer):
            claimed.append(job)
    _write_claimed(call, claimed, is_short=asked.is_short)


# -- XINFO -------------------------------------------------------------------------------------


def _has_workers(call: Call) -> bool:
    return stream_place(call.arg(2)).queue_name in call.door.promoter.groups


def groups_count(call: Call) -> i64:
    """Return how many groups a stream has; a stored stream has none."""
    place = find_place(parse_key(call.arg(2)))
    if place.part != key_parts.KeyPart.STREAM:
        return 0
    return len(subscriptions.names(_queue(call, 2))) + (1 if _has_workers(call) else 0)


def info_groups(call: Call) -> None:
    """Describe all groups."""
    queue = _queue(call, 2)
    held: HeldCount | None = None
    lags: LagTask | None = None
    work: list[Task] = []
    if queue is not None and pending_count(queue) > 0:
        held = HeldCount(call, queue)
        work.append(held)
    if queue is not None and is_subscribed(queue):
        lags = LagTask(queue)
        work.append(lags)
    begin(call, Gathers(work), lambda: _answer_groups(call, queue, held, lags))


def _answer_groups(
    call: Call, queue: Queue | None, held: HeldCount | None, lags: LagTask | None
) -> None:
    pending: i64 = 0 if held is None else held.count
    others = [] if lags is None else lags.by_subscription()
    has_workers = not others or pending > 0 or _has_workers(call)
    write_array(call.out, len(others) + (1 if has_workers else 0))
    subscriptions.info_groups(call, others)
    if not has_workers:
        return
    write_map(call.out, 6, call.proto)
    write_bulk(call.out, b"name")
    write_bulk(call.out, GROUP)
    write_bulk(call.out, b"consumers")
    write_integer(call.out, 0 if held is None else len(held.by_name()))
    write_bulk(call.out, b"pending")
    write_integer(call.out, pending)
    write_bulk(call.out, b"last-delivered-id")
    last: i64 = 0 if queue is None else last_taken(queue)
    write_bulk(call.out, entry_text(last if held is None else max(last, held.greatest)))
    write_bulk(call.out, b"entries-read")
    write_nil(call.out, call.proto)
    write_bulk(call.out, b"lag")
    write_integer(call.out, 0 if queue is None else stream_length(queue) - pending_count(queue))


def info_consumers(call: Call) -> None:
    """Describe the consumers that hold entries."""
    queue = _queue(call, 2)
    if call.arg(3) != GROUP:
        subscriptions.info_consumers(call, queue)
        return
    if queue is None:
        write_array(call.out, 0)
        return
    held = HeldCount(call, queue)
    begin(call, held, lambda: _answer_consumers(call, held))


def _answer_consumers(call: Call, held: HeldCount) -> None:
    counts = held.by_name()
    heard = held.heard_ms()
    write_array(call.out, len(counts))
    for name in sorted(counts):
        idle = max(int(call.now_ms) - heard[name], 0)
        write_map(call.out, 4, call.proto)
        write_bulk(call.out, b"name")
        write_bulk(call.out, name)
        write_bulk(call.out, b"pending")
        write_integer(call.out, counts[name])
        write_bulk(call.out, b"idle")
        write_integer(call.out, idle)
        write_bulk(call.out, b"inactive")
        write_integer(call.out, idle)
