"""Routers: records that are written to a topic are copied to others, in the same turn.

Copies are ordinary records and are in the same batch as the originals: a client that sees one finds
the other, and a crash takes both or none. So the cursor of a router is not stored, unless the
router falls behind: then it is written with every copy until the router has caught up. A router
falls behind

    if its destination takes no more: it is retried;
    if there is more to copy than a turn has room for: it is late, and continues in slices, in
    order, as a task;
    for a moment, with records that are appended in the middle of a verb: copies may become jobs,
    and waiters cannot be served from within serving.

Records that the source drops meanwhile are not copied, except jobs that end before late routers
reach them.

Invariant: a router that is not behind has copied everything in its source.
"""

from bisect import bisect_left
from typing import Final, final

from mypy_extensions import i64

from jobyard.engine.jobs.listing import jobs_by_seq_of
from jobyard.engine.logs.read import SharedRows, WrittenRows, rows_after
from jobyard.engine.state.tasks import Task
from jobyard.engine.state.timers import Alarm
from jobyard.engine.state.yard import Yard
from jobyard.engine.topics import topic_queue
from jobyard.engine.topics.router_delivery import copy_of, deliver
from jobyard.engine.topics.topic_setup import topic_state_of
from jobyard.errors import Refused, StorageFull, YardFull
from jobyard.model.entry import EntryKind
from jobyard.model.job import BYTES, JSON, Job
from jobyard.model.limits import NEVER_MS
from jobyard.model.queue import Queue
from jobyard.model.topic.log import LogRecord, LogTopic, RecordForwarder
from jobyard.model.topic.router import EXACTLY_ONCE, HOPS_MAX, IN_STEP, Router, decode_router

# The delay before a router that is behind tries again.
ROUTER_RETRY_MS: Final = 1000
# Records that are copied at once.
SLICE: Final = 10_000
JOBS_SLICE: Final = 1000
# Cost of a copy, in units of work.
COPY_UNITS: Final = 3
# How many jobs of a queue are kept for late routers, and how many bytes of them.
KEPT_MAX: Final = 100_000
KEPT_SIZE_MAX: Final = 64 << 20
# The most journal bytes besides the text of the records: for a copy in a log, for a copy that is a
# job and is leased at once, and once for all (a new topic, its head, the router).
COPY_WEIGHT: Final = 128
JOB_WEIGHT: Final = 640
ROUTER_WEIGHT: Final = 2048


class RouterCycle(Refused):
    """A router would close a cycle, and `allow_cycle` is not set."""

    def __init__(self, circle: list[str]) -> None:
        super().__init__(f"the router would close a cycle: {' > '.join(circle)}")
        self.circle = circle


class RouterFanIn(Refused):
    """Another router already leads to the same destination."""


class RouterElsewhere(Refused):
    """A router of that name exists between other topics."""


@final
class RouterSource:
    """Where a router copies from: a log, or a queue whose jobs are copied as they are put."""

    def __init__(self, log: LogTopic | None, queue: Queue | None) -> None:
        self._log = log
        self.queue = queue

    def head_seq(self) -> i64:
        """Return the newest seq."""
        if self._log is not None:
            return self._log.next_seq - 1
        assert self.queue is not None
        return self.queue.next_seq - 1

    def rows_after(self, yard: Yard, cursor: i64, most: i64) -> WrittenRows:
        """Return some of the remaining records after a seq."""
        copies = self.copies()
        if self._log is not None:
            most = min(most, SLICE)
            if copies is None or not copies.has_late():
                return rows_after(yard.journal, self._log, cursor, most)
            return copies.shared.after(yard.journal, self._log, cursor, most)
        assert self.queue is not None
        most = min(most, JOBS_SLICE)
        if copies is not None and copies.has_kept(cursor):
            return copies.kept_after(cursor, most)
        return jobs_after(yard, self.queue, cursor, most)

    def copies(self) -> "RouterCopies | None":
        """Return the routers that copy from here, if any."""
        onward: RecordForwarder | None = None
        if self._log is not None:
            onward = self._log.onward
        elif self.queue is not None:
            onward = topic_state_of(self.queue).onward
        return onward if isinstance(onward, RouterCopies) else None

    def lead(self, onward: RecordForwarder | None) -> None:
        """Set the forwarder that is notified of new records, or None."""
        if self._log is not None:
            self._log.onward = onward
        elif self.queue is not None:
            topic_state_of(self.queue).onward = onward


def find_source(yard: Yard, name: str) -> RouterSource | None:
    """Return the topic of that name, if there is one to copy from."""
    log = yard.logs.get(name)
    if log is not None:
        return RouterSource(log, None)
    queue = yard.queues.get(name)
    return None if queue is None or queue.config is None else RouterSource(None, queue)


def jobs_after(yard: Yard, queue: Queue, cursor: i64, most: i64) -> WrittenRows:
    """Return the existing jobs after a seq, as records."""
    found = WrittenRows()
    jobs = jobs_by_seq_of(queue).after(cursor, most)
    for job in jobs:
        found.last_seq = job.key
        body = yard.bodies.fetch(job)
        if body is None:
            # Its body is damaged: treated as gone.
            continue
        found.seqs.append(int(job.key))
        found.rows.append(_record_of(yard, job, body))
    if len(jobs) < most:
        found.last_seq = queue.next_seq - 1
    return found


def _record_of(yard: Yard, job: Job, body: bytes) -> LogRecord:
    """Return a job with this body as a record."""
    is_binary = job.codec == BYTES
    if not is_binary and job.codec != JSON:
        body = yard.routers.printer.json_of(i64(job.codec), body)
    found = topic_queue.record_meta_of(job)
    if found is None:
        return LogRecord(body, is_binary=is_binary)
    return LogRecord(body, found.meta, found.tag, found.node, is_binary=is_binary)


@final
class RouterCopies(RecordForwarder):
    """All routers that copy from one topic."""

    def __init__(self, yard: Yard, name: str, source: RouterSource) -> None:
        self._yard = yard
        self._name = name
        self._source = source
        # Routers that are not behind, as of a version of all routers.
        self._in_step: list[Router] = []
        self._are_all_in_step: bool = True
        self._has_late: bool = False
        self._version: i64 = -1
        # While a router is behind, the number of hops that records made before they came here:
        # the last seq of each run of records, and its number of hops.
        self._hop_seqs: list[int] = []
        self._hop_counts: list[int] = []
        # Jobs that late routers have not copied yet, by seq; they may be gone by now.
        self._kept = WrittenRows()
        self._kept_size: i64 = 0
        # Rows of a log, read once for all late routers.
        self.shared = SharedRows()

    def _routers(self) -> list[Router]:
        routers = self._yard.routers
        if self._version != routers.version:
            self._version = routers.version
            beside = routers.by_source.get(self._name, [])
            self._in_step = [router for router in beside if not router.is_behind]
            self._are_all_in_step = len(self._in_step) == len(beside)
            if self._are_all_in_step:
                self._hop_seqs = []
                self._hop_counts = []
            self._has_late = any(router.is_late for router in beside)
            if not self._has_late:
                self._kept = WrittenRows()
                self._kept_size = 0
                self.shared = SharedRows()
        return self._in_step

    def room(self, count: i64, size: i64) -> i64:
        """Return the most journal bytes that the copies of `count` records of `size` bytes take."""
        yard = self._yard
        if yard.routers.hops >= HOPS_MAX:
            return 0
        yard.routers.hops += 1
        room: i64 = 0
        in_step = self._routers()
        is_at_once = yard.tasks.has_units(count * len(in_step) * COPY_UNITS)
        for router in in_step:
            room += room_for(yard, router, count, size) if is_at_once else _lag_room(router)
        yard.routers.hops -= 1
        return room

    def at_once(self, count: i64) -> i64:
        """Return how many of `count` records, put one by one, would be copied in this turn."""
        in_step = self._routers()
        if not in_step:
            return count
        return min(count, self._yard.tasks.units_at_once() // (len(in_step) * COPY_UNITS))

    def copy(self, now_ms: i64) -> None:
        """Copy what was appended, now or in a task."""
        yard = self._yard
        in_step = self._routers()
        if in_step:
            count = self._source.head_seq() - in_step[0].cursor
            if yard.routers.is_held:
                for router in in_step:
                    _fall_behind(yard, router, now_ms)
            elif yard.tasks.may_do(count * len(in_step) * COPY_UNITS):
                for router in in_step:
                    forward(yard, self._source, router, now_ms)
            else:
                for router in in_step:
                    _be_late(yard, router)
        self._routers()
        if not self._are_all_in_step:
            self._note_hops()
            if self._has_late and self._source.queue is not None:
                self._keep(self._source.queue)

    def _note_hops(self) -> None:
        """Store how many hops the newest records made."""
        head = int(self._source.head_seq())
        hops = int(self._yard.routers.hops)
        if self._hop_counts and self._hop_counts[-1] == hops:
            self._hop_seqs[-1] = head
        else:
            self._hop_seqs.append(head)
            self._hop_counts.append(hops)

    def hops_after(self, cursor: i64) -> tuple[i64, i64]:
        """Return the hops of the record after a seq, and the last seq with the same hops."""
        at = bisect_left(self._hop_seqs, int(cursor) + 1)
        if at == len(self._hop_seqs):
            return 0, self._source.head_seq()
        return self._hop_counts[at], self._hop_seqs[at]

    def _keep(self, queue: Queue) -> None:
        """Keep the newest job for late routers: it may be gone when they reach it."""
        if self._kept_size > KEPT_SIZE_MAX or len(self._kept.rows) >= KEPT_MAX:
            return
        newest = jobs_after(self._yard, queue, queue.next_seq - 2, 1)
        if newest.rows:
            self._kept.seqs.append(newest.seqs[0])
            self._kept.rows.append(newest.rows[0])
            self._kept_size += len(newest.rows[0].data) + len(newest.rows[0].meta)

    def has_late(self) -> bool:
        """Return whether a router is late and continues in a task."""
        self._routers()
        return self._has_late

    def has_kept(self, cursor: i64) -> bool:
        """Return whether the job after a seq is kept."""
        seqs = self._kept.seqs
        return len(seqs) > 0 and seqs[0] <= cursor + 1 <= seqs[len(seqs) - 1]

    def kept_after(self, cursor: i64, most: i64) -> WrittenRows:
        """Return some of the kept jobs after a seq."""
        kept = self._kept
        first = bisect_left(kept.seqs, int(cursor) + 1)
        found = WrittenRows()
        found.seqs = kept.seqs[first : first + most]
        found.rows = kept.rows[first : first + most]
        found.last_seq = found.seqs[-1]
        return found


@final
class RouterCatchUp(Task):
    """Continues late routers, in turn."""

    def __init__(self, yard: Yard) -> None:
        super().__init__()
        self._yard = yard

    def step(self, most: i64, now_ms: i64) -> i64:
        """Copy some records for some routers."""
        routers = self._yard.routers
        late = routers.late
        done: i64 = 0
        while late and done < most:
            router = late.pop(0)
            source = find_source(self._yard, router.source)
            if source is None or not self._is_late(router):
                _end_lateness(self._yard, router)
                continue
            before = router.cursor
            rows: i64 = max(1, (most - done) // COPY_UNITS)
            is_taken = catch_up(self._yard, source, router, rows, now_ms)
            done += 1 + COPY_UNITS * min(rows, router.cursor - before)
            if not is_taken:
                # It stays late, so that jobs that its source drops are kept for it.
                router.is_retrying = True
                self._yard.arm(RetryAlarm(self._yard, router), now_ms + ROUTER_RETRY_MS)
            elif router.is_behind:
                late.append(router)
            else:
                _end_lateness(self._yard, router)
        if not late:
            routers.is_catching_up = done >= most
        return done

    def _is_late(self, router: Router) -> bool:
        return router.is_behind and self._yard.routers.by_name.get(router.name) is router


@final
class RetryAlarm(Alarm):
    """Rings when a router that is behind should try again."""

    def __init__(self, yard: Yard, router: Router) -> None:
        super().__init__(0, NEVER_MS, 0)
        self._yard = yard
        self._router = router

    def ring(self, now_ms: i64) -> None:
        """Try again; a router that is refused again gets another alarm."""
        router = self._router
        yard = self._yard
        if yard.routers.by_name.get(router.name) is not router or not router.is_behind:
            return
        _join_late(yard, router)
        if not yard.routers.is_catching_up:
            yard.routers.is_catching_up = True
            yard.tasks.begin(RouterCatchUp(yard), None, now_ms)


# -- making and removing ---------------------------------------------------------------------------


def check_router(yard: Yard, router: Router) -> None:
    """Refuse a router that conflicts with the existing ones."""
    routers = yard.routers
    known = routers.by_name.get(router.name)
    if known is not None:
        if (known.source, known.dest) != (router.source, router.dest):
            raise RouterElsewhere(
                f"router {router.name} already leads from {known.source} to {known.dest}"
            )
    else:
        other = routers.by_dest.get(router.dest)
        if other is not None:
            raise RouterFanIn(f"router {other.name} already leads to {router.dest}")
    if not router.allow_cycle:
        circle = routers.circle(router.source, router.dest)
        if circle:
            raise RouterCycle(circle)


def set_router(yard: Yard, router: Router, now_ms: i64) -> bool:
    """Create a router, or replace the one of that name; return whether it is new.

    Both topics must exist, and be configured if they are queues. A refusal changes nothing.
    """
    check_router(yard, router)
    routers = yard.routers
    source = find_source(yard, router.source)
    assert source is not None
    known = routers.by_name.get(router.name)
    if known is not None:
        router.cursor = known.cursor
        router.is_behind = known.is_behind
        router.forwarded_total = known.forwarded_total
    else:
        router.cursor = source.head_seq()
        router.is_behind = False
    _remember(yard, router)
    if known is not None:
        routers.remove(known)
    _add(yard, source, router, now_ms)
    return known is None


def _add(yard: Yard, source: RouterSource, router: Router, now_ms: i64) -> None:
    yard.routers.add(router)
    if source.copies() is None:
        source.lead(RouterCopies(yard, router.source, source))
    if router.is_behind:
        yard.arm(RetryAlarm(yard, router), now_ms + ROUTER_RETRY_MS)


def drop_router(yard: Yard, router: Router) -> None:
    """Remove a router; what it has copied stays."""
    if yard.journal.is_on:
        yard.journal.drop_entry(EntryKind.ROUTER, router.name.encode())
    yard.routers.remove(router)
    source = find_source(yard, router.source)
    if source is not None and router.source not in yard.routers.by_source:
        source.lead(None)


def drop_routers_of(yard: Yard, topic: str) -> list[str]:
    """Remove the routers from and to a topic that is removed; return their names."""
    routers = yard.routers
    found = list(routers.by_source.get(topic, []))
    before = routers.by_dest.get(topic)
    if before is not None and before not in found:
        found.append(before)
    for router in found:
        drop_router(yard, router)
    return sorted(router.name for router in found)


def load_routers(yard: Yard, now_ms: i64) -> None:
    """Load the routers of the last boot, each with its cursor."""
    for entry in yard.journal.entries.values():
        if entry.kind != EntryKind.ROUTER or entry.is_gone:
            continue
        router = decode_router(entry.value)
        source = find_source(yard, router.source)
        if source is None:
            # A repair could not recover the topic. The router stays in the journal, inactive.
            continue
        if router.cursor == IN_STEP:
            router.cursor = source.head_seq()
        _add(yard, source, router, now_ms)


def _remember(yard: Yard, router: Router) -> None:
    if yard.journal.is_on:
        yard.journal.set_entry(EntryKind.ROUTER, router.name.encode(), router.encode())


def _is_remembered(yard: Yard, router: Router) -> bool:
    """Store the cursor of a router; False if it cannot be, as it is too late to refuse copies."""
    try:
        _remember(yard, router)
    except (YardFull, StorageFull):
        return False
    return True


# -- copying ---------------------------------------------------------------------------------------


def forward(yard: Yard, source: RouterSource, router: Router, now_ms: i64) -> None:
    """Copy what a router has not copied yet, as far as its destination takes it."""
    routers = yard.routers
    if routers.hops >= HOPS_MAX:
        if not router.is_behind:
            router.cursor = source.head_seq()
        return
    routers.hops += 1
    try:
        while router.cursor < source.head_seq():
            if not _forward_slice(yard, source, router, SLICE, now_ms):
                return
    finally:
        routers.hops -= 1


def catch_up(yard: Yard, source: RouterSource, router: Router, most: i64, now_ms: i64) -> bool:
    """Copy some records that a router is behind with; False if its destination takes no more."""
    routers = yard.routers
    if router.cursor < source.head_seq():
        copies = source.copies()
        assert copies is not None
        hops, upto = copies.hops_after(router.cursor)
        if hops >= HOPS_MAX:
            router.cursor = upto
            return _catch_up_done(yard, source, router)
        before = routers.hops
        routers.hops = hops + 1
        try:
            if not _forward_slice(yard, source, router, min(most, upto - router.cursor), now_ms):
                return False
        finally:
            routers.hops = before
    return _catch_up_done(yard, source, router)


def _catch_up_done(yard: Yard, source: RouterSource, router: Router) -> bool:
    """Check whether a router is no longer behind; always return True."""
    if router.cursor >= source.head_seq():
        router.is_behind = False
        # It stays behind as long as the journal says so.
        router.is_behind = not _is_remembered(yard, router)
        yard.routers.version += 1
    return True


def _forward_slice(
    yard: Yard, source: RouterSource, router: Router, most: i64, now_ms: i64
) -> bool:
    """Copy some records; False if the destination does not take all of them."""
    found = source.rows_after(yard, router.cursor, most)
    seqs: list[int] = []
    rows: list[LogRecord] = []
    size: i64 = 0
    for i in range(len(found.rows)):
        row = found.rows[i]
        if router.takes(row.tag):
            seqs.append(found.seqs[i])
            rows.append(copy_of(router, row, found.seqs[i]))
            size += row.size()
    if router.is_behind and not _admit(yard, router, len(rows), size, now_ms):
        return False
    # First, because the copies may be routed back here.
    router.cursor = found.last_seq
    taken = deliver(yard, router, rows, now_ms) if rows else 0
    router.forwarded_total += taken
    if taken == len(rows):
        if router.is_behind:
            _is_remembered(yard, router)
        return True
    router.cursor = i64(seqs[taken]) - 1
    if router.is_behind:
        _is_remembered(yard, router)
    else:
        _fall_behind(yard, router, now_ms + ROUTER_RETRY_MS)
    return False


def _fall_behind(yard: Yard, router: Router, retry_ms: i64) -> None:
    """Continue a router from its cursor at `retry_ms`."""
    _note_behind(yard, router)
    yard.arm(RetryAlarm(yard, router), retry_ms)


def _be_late(yard: Yard, router: Router) -> None:
    """Continue a router from its cursor in a task."""
    _note_behind(yard, router)
    _join_late(yard, router)
    if not yard.routers.is_catching_up:
        yard.routers.is_catching_up = True
        yard.tasks.follow(RouterCatchUp(yard))


def _join_late(yard: Yard, router: Router) -> None:
    if router.is_retrying:
        router.is_retrying = False
        yard.routers.late.append(router)
    elif not router.is_late:
        router.is_late = True
        yard.routers.late.append(router)
        yard.routers.version += 1


def _end_lateness(yard: Yard, router: Router) -> None:
    router.is_late = False
    yard.routers.version += 1


def _note_behind(yard: Yard, router: Router) -> None:
    yard.routers.version += 1
    router.is_behind = True
    _is_remembered(yard, router)


def _lag_room(router: Router) -> i64:
    """Return the most journal bytes that the cursor of a router takes."""
    return ROUTER_WEIGHT + 8 * (len(router.name) + len(router.source) + len(router.dest))


def _admit(yard: Yard, router: Router, count: i64, size: i64, now_ms: i64) -> bool:
    """Reserve room for copies and the cursor after them, which must be in one batch."""
    journal = yard.journal
    return not journal.is_on or journal.admit(room_for(yard, router, count, size), now_ms)


def room_for(yard: Yard, router: Router, count: i64, size: i64) -> i64:
    """Return the most journal bytes that the copies of `count` records by a router take."""
    names: i64 = len(router.name) + len(router.source) + len(router.dest)
    weight: i64 = JOB_WEIGHT if router.dest in yard.queues else COPY_WEIGHT
    if router.guarantee == EXACTLY_ONCE:
        weight += COPY_WEIGHT + names
    room = size + weight * count + ROUTER_WEIGHT + 8 * names
    dest = yard.logs.get(router.dest)
    if dest is not None and dest.onward is not None:
        room += dest.onward.room(count, size)
    queue = yard.queues.get(router.dest)
    topic_state = None if queue is None or dest is not None else queue.topic_state
    if topic_state is not None and topic_state.onward is not None:
        room += topic_state.onward.room(count, size)
    return room
