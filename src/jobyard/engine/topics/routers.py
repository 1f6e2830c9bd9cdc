"""Routers at work: what is written to a topic is appended to others too, in the same turn.

Copies are records like all others and lie in the batch of what they are copies of: whoever sees the
one finds the other, and a crash takes both or none. So nothing is written down about how far a
router has come, unless it falls behind: then the cursor is written down with every copy until it
has caught up. It does where its destination takes no more, and is tried again; where there is more
to copy than a turn has room for, and is late: it goes on in slices, in order, as the yard has time;
and for a moment with records that are appended in the midst of a verb: copies may become jobs, and
nobody can be served from within serving. What its source lets go of meanwhile is not passed on, but
for jobs that are ended before late routers have come to them.

Invariant: a router that is not behind has passed on all there is in its source.
"""

from bisect import bisect_left
from typing import Final, final

from mypy_extensions import i64

from jobyard.engine.jobs.listing import roster_of
from jobyard.engine.logs.read import Rows, SharedRows, rows_after
from jobyard.engine.state.tasks import Task
from jobyard.engine.state.timers import Alarm
from jobyard.engine.state.yard import Yard
from jobyard.engine.topics import topic_queue
from jobyard.engine.topics.router_delivery import copy_of, deliver
from jobyard.engine.topics.topic_setup import stock_of
from jobyard.errors import Refused, StorageFull, YardFull
from jobyard.model.entry import ROUTER
from jobyard.model.job import JSON
from jobyard.model.limits import NEVER_MS
from jobyard.model.queue import Queue
from jobyard.model.topic.log import LogTopic, Onward, Row
from jobyard.model.topic.router import EXACTLY_ONCE, HOPS_MAX, IN_STEP, Router, decode_router

# How soon a router that is behind tries again.
RETRY_MS: Final = 1000
# Records that are copied at once.
SLICE: Final = 10_000
JOBS_SLICE: Final = 1000
# What a copy takes, in the units of tasks.
COPY_UNITS: Final = 3
# How many jobs of a queue are kept for routers that are late, and how much of them.
KEPT_MAX: Final = 100_000
KEPT_SIZE_MAX: Final = 64 << 20
# The most that things weigh in the journal beside the text of the records: a copy in a log, a copy
# that is a job and is handed over at once, and what comes with them all (a new topic, its head,
# the router).
ROW_WEIGHT: Final = 128
JOB_WEIGHT: Final = 640
ROUTER_WEIGHT: Final = 2048


class RouterCycle(Refused):
    """A router would close a circle, and does not say that it may."""

    def __init__(self, circle: list[str]) -> None:
        super().__init__(f"it would close a circle: {' > '.join(circle)}")
        self.circle = circle


class RouterFanIn(Refused):
    """Another router leads to the same destination."""


class RouterElsewhere(Refused):
    """There is a router of that name between other topics."""


@final
class Source:
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

    def rows_after(self, yard: Yard, cursor: i64, most: i64) -> Rows:
        """Return some of the records there still are past a seq."""
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

    def copies(self) -> "Copies | None":
        """Return the routers that lead away, if there are any."""
        onward: Onward | None = None
        if self._log is not None:
            onward = self._log.onward
        elif self.queue is not None:
            onward = stock_of(self.queue).onward
        return onward if isinstance(onward, Copies) else None

    def lead(self, onward: Onward | None) -> None:
        """Tell of what comes, or tell no more."""
        if self._log is not None:
            self._log.onward = onward
        elif self.queue is not None:
            stock_of(self.queue).onward = onward


def find_source(yard: Yard, name: str) -> Source | None:
    """Return the topic of that name, if there is one to copy from."""
    log = yard.logs.get(name)
    if log is not None:
        return Source(log, None)
    queue = yard.queues.get(name)
    return None if queue is None or queue.config is None else Source(None, queue)


def jobs_after(yard: Yard, queue: Queue, cursor: i64, most: i64) -> Rows:
    """Return the jobs past a seq that are there, as records."""
    found = Rows()
    jobs = roster_of(queue).after(cursor, most)
    for job in jobs:
        found.last_seq = job.key
        body = yard.bodies.fetch(job)
        if body is None:
            # As good as gone.
            continue
        data = body if job.codec == JSON else yard.routers.printer.json_of(i64(job.codec), body)
        remark = topic_queue.remark_of(job)
        found.seqs.append(int(job.key))
        if remark is None:
            found.rows.append(Row(data, b""))
        else:
            found.rows.append(Row(data, remark.meta, remark.tag, remark.node))
    if len(jobs) < most:
        found.last_seq = queue.next_seq - 1
    return found


@final
class Copies(Onward):
    """All routers that lead away from one topic."""

    def __init__(self, yard: Yard, name: str, source: Source) -> None:
        self._yard = yard
        self._name = name
        self._source = source
        # Those that are not behind, as of a version of all routers.
        self._in_step: list[Router] = []
        self._are_all_in_step: bool = True
        self._has_late: bool = False
        self._version: i64 = -1
        # How often records were passed on before they came here, while a router is behind: up to
        # which seq, and how often.
        self._hop_seqs: list[int] = []
        self._hop_counts: list[int] = []
        # Jobs that late routers have not copied yet, by seq; they may be gone meanwhile.
        self._kept = Rows()
        self._kept_size: i64 = 0
        # Of a log; made for late routers, which all need the same.
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
                self._kept = Rows()
                self._kept_size = 0
                self.shared = SharedRows()
        return self._in_step

    def room(self, count: i64, size: i64) -> i64:
        """Return the most bytes in the journal that so many records of so many bytes take there."""
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
        """Return how many of so many records would be passed on in this turn, one by one."""
        in_step = self._routers()
        if not in_step:
            return count
        return min(count, self._yard.tasks.units_at_once() // (len(in_step) * COPY_UNITS))

    def copy(self, now_ms: i64) -> None:
        """Pass on what was appended, now or as the yard has time."""
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
        """Remember how often the newest records were passed on before."""
        head = int(self._source.head_seq())
        hops = int(self._yard.routers.hops)
        if self._hop_counts and self._hop_counts[-1] == hops:
            self._hop_seqs[-1] = head
        else:
            self._hop_seqs.append(head)
            self._hop_counts.append(hops)

    def hops_after(self, cursor: i64) -> tuple[i64, i64]:
        """Return how often the record after a seq was passed on, and up to which seq all others."""
        at = bisect_left(self._hop_seqs, int(cursor) + 1)
        if at == len(self._hop_seqs):
            return 0, self._source.head_seq()
        return self._hop_counts[at], self._hop_seqs[at]

    def _keep(self, queue: Queue) -> None:
        """Hold on to the newest job for routers that are late: it may be gone when they come."""
        if self._kept_size > KEPT_SIZE_MAX or len(self._kept.rows) >= KEPT_MAX:
            return
        newest = jobs_after(self._yard, queue, queue.next_seq - 2, 1)
        if newest.rows:
            self._kept.seqs.append(newest.seqs[0])
            self._kept.rows.append(newest.rows[0])
            self._kept_size += len(newest.rows[0].data) + len(newest.rows[0].meta)

    def has_late(self) -> bool:
        """Tell whether a router goes on as the yard has time."""
        self._routers()
        return self._has_late

    def has_kept(self, cursor: i64) -> bool:
        """Tell whether what follows a seq is kept."""
        seqs = self._kept.seqs
        return len(seqs) > 0 and seqs[0] <= cursor + 1 <= seqs[len(seqs) - 1]

    def kept_after(self, cursor: i64, most: i64) -> Rows:
        """Return some of what is kept."""
        kept = self._kept
        first = bisect_left(kept.seqs, int(cursor) + 1)
        found = Rows()
        found.seqs = kept.seqs[first : first + most]
        found.rows = kept.rows[first : first + most]
        found.last_seq = found.seqs[-1]
        return found


@final
class CatchUp(Task):
    """Lets routers that are late go on, in turn."""

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
                # Still late, so that what its source lets go of is kept for it.
                router.is_retrying = True
                self._yard.arm(RetryAlarm(self._yard, router), now_ms + RETRY_MS)
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
        """Try again; who cannot go on is tried again later."""
        router = self._router
        yard = self._yard
        if yard.routers.by_name.get(router.name) is not router or not router.is_behind:
            return
        _join_late(yard, router)
        if not yard.routers.is_catching_up:
            yard.routers.is_catching_up = True
            yard.tasks.begin(CatchUp(yard), None, now_ms)


# -- making and removing ---------------------------------------------------------------------------


def check_router(yard: Yard, router: Router) -> None:
    """Refuse a router that cannot be set beside those there are."""
    routers = yard.routers
    known = routers.by_name.get(router.name)
    if known is not None:
        if (known.source, known.dest) != (router.source, router.dest):
            raise RouterElsewhere(f"{router.name} leads from {known.source} to {known.dest}")
    else:
        other = routers.by_dest.get(router.dest)
        if other is not None:
            raise RouterFanIn(f"{other.name} leads to {router.dest} already")
    if not router.allow_cycle:
        circle = routers.circle(router.source, router.dest)
        if circle:
            raise RouterCycle(circle)


def set_router(yard: Yard, router: Router, now_ms: i64) -> bool:
    """Begin to pass records on, or do so differently; tell whether the router is new.

    Both topics must be there, configured if they are queues. A refusal changes nothing.
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


def _add(yard: Yard, source: Source, router: Router, now_ms: i64) -> None:
    yard.routers.add(router)
    if source.copies() is None:
        source.lead(Copies(yard, router.source, source))
    if router.is_behind:
        yard.arm(RetryAlarm(yard, router), now_ms + RETRY_MS)


def drop_router(yard: Yard, router: Router) -> None:
    """Pass nothing on any more; what was copied stays."""
    if yard.journal.is_on:
        yard.journal.drop_entry(ROUTER, router.name.encode())
    yard.routers.remove(router)
    source = find_source(yard, router.source)
    if source is not None and router.source not in yard.routers.by_source:
        source.lead(None)


def drop_routers_of(yard: Yard, topic: str) -> list[str]:
    """Remove the routers from and to a topic that goes; return their names."""
    routers = yard.routers
    found = list(routers.by_source.get(topic, []))
    before = routers.by_dest.get(topic)
    if before is not None and before not in found:
        found.append(before)
    for router in found:
        drop_router(yard, router)
    return sorted(router.name for router in found)


def load_routers(yard: Yard, now_ms: i64) -> None:
    """Take up the routers of the last boot, each where it was."""
    for entry in yard.journal.entries.values():
        if entry.kind != ROUTER or entry.is_gone:
            continue
        router = decode_router(entry.value)
        source = find_source(yard, router.source)
        if source is None:
            # A repair could not save it. The router stays in the journal, and leads nowhere.
            continue
        if router.cursor == IN_STEP:
            router.cursor = source.head_seq()
        _add(yard, source, router, now_ms)


def _remember(yard: Yard, router: Router) -> None:
    if yard.journal.is_on:
        yard.journal.set_entry(ROUTER, router.name.encode(), router.encode())


def _is_remembered(yard: Yard, router: Router) -> bool:
    """Write down how far a router has come. Copies made the room; to refuse them is too late."""
    try:
        _remember(yard, router)
    except (YardFull, StorageFull):
        return False
    return True


# -- copying ---------------------------------------------------------------------------------------


def forward(yard: Yard, source: Source, router: Router, now_ms: i64) -> None:
    """Pass on what a router has not passed on yet, as far as its destination takes it."""
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


def catch_up(yard: Yard, source: Source, router: Router, most: i64, now_ms: i64) -> bool:
    """Pass on some of what a router is behind with; False if its destination takes no more."""
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


def _catch_up_done(yard: Yard, source: Source, router: Router) -> bool:
    """See whether a router is behind no more; True in any case."""
    if router.cursor >= source.head_seq():
        router.is_behind = False
        # As long as the journal says that it is behind, it is.
        router.is_behind = not _is_remembered(yard, router)
        yard.routers.version += 1
    return True


def _forward_slice(yard: Yard, source: Source, router: Router, most: i64, now_ms: i64) -> bool:
    """Copy some records; False if the destination does not take all of them."""
    found = source.rows_after(yard, router.cursor, most)
    seqs: list[int] = []
    rows: list[Row] = []
    size: i64 = 0
    for i in range(len(found.rows)):
        row = found.rows[i]
        if router.takes(row.tag):
            seqs.append(found.seqs[i])
            rows.append(copy_of(router, row, found.seqs[i]))
            size += len(row.data) + len(row.meta)
    if router.is_behind and not _admit(yard, router, len(rows), size, now_ms):
        return False
    # First, because what is appended now may come back here.
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
        _fall_behind(yard, router, now_ms + RETRY_MS)
    return False


def _fall_behind(yard: Yard, router: Router, retry_ms: i64) -> None:
    """Go on later from where a router is."""
    _note_behind(yard, router)
    yard.arm(RetryAlarm(yard, router), retry_ms)


def _be_late(yard: Yard, router: Router) -> None:
    """Go on from where a router is as the yard has time."""
    _note_behind(yard, router)
    _join_late(yard, router)
    if not yard.routers.is_catching_up:
        yard.routers.is_catching_up = True
        yard.tasks.follow(CatchUp(yard))


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
    """Return the most bytes in the journal that it takes to say that a router is behind."""
    return ROUTER_WEIGHT + 8 * (len(router.name) + len(router.source) + len(router.dest))


def _admit(yard: Yard, router: Router, count: i64, size: i64, now_ms: i64) -> bool:
    """Make room for copies and for how far they lead, which belong into one batch."""
    journal = yard.journal
    return not journal.is_on or journal.admit(room_for(yard, router, count, size), now_ms)


def room_for(yard: Yard, router: Router, count: i64, size: i64) -> i64:
    """Return the most bytes in the journal that so many records take behind a router."""
    names: i64 = len(router.name) + len(router.source) + len(router.dest)
    weight: i64 = JOB_WEIGHT if router.dest in yard.queues else ROW_WEIGHT
    if router.guarantee == EXACTLY_ONCE:
        weight += ROW_WEIGHT + names
    room = size + weight * count + ROUTER_WEIGHT + 8 * names
    dest = yard.logs.get(router.dest)
    if dest is not None and dest.onward is not None:
        room += dest.onward.room(count, size)
    queue = yard.queues.get(router.dest)
    stock = None if queue is None or dest is not None else queue.stock
    if stock is not None and stock.onward is not None:
        room += stock.onward.room(count, size)
    return room
