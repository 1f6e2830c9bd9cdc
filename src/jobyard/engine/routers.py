"""Routers at work: what is written to a topic is appended to others too, in the same turn.

Copies are records like all others and lie in the batch of what they are copies of: whoever sees the
one finds the other, and a crash takes both or none. So nothing is written down about how far a
router has come, unless its destination takes no more: then it is behind, the cursor is written down
with every copy, and it is tried again until it has caught up. What its source lets go of meanwhile
is not passed on. So it is, for a moment, with records that are appended in the midst of a verb:
copies may become jobs, and nobody can be served from within serving.

Invariant: a router that is not behind has passed on all there is in its source.
"""

import json
from typing import Final, final

from mypy_extensions import i64

from jobyard.engine import claims, logs
from jobyard.engine.alarm import Alarm
from jobyard.engine.claim_setup import roster_of, stock_of
from jobyard.engine.log_read import Rows, rows_after
from jobyard.engine.yard import Yard
from jobyard.errors import Refused, StorageFull, YardFull
from jobyard.model.entry import ROUTER
from jobyard.model.job import JSON
from jobyard.model.limits import NEVER_MS
from jobyard.model.log import LogTopic, Onward, Row, TopicFull, WriteTooLarge
from jobyard.model.queue import Queue
from jobyard.model.router import EXACTLY_ONCE, HOPS_MAX, IN_STEP, Router, decode_router
from jobyard.model.topic import TopicConfig

# How soon a router that is behind tries again.
RETRY_MS: Final = 1000
# Records that are copied at once.
SLICE: Final = 10_000
JOBS_SLICE: Final = 1000
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
        self._queue = queue

    def head_seq(self) -> i64:
        """Return the newest seq."""
        if self._log is not None:
            return self._log.next_seq - 1
        assert self._queue is not None
        return self._queue.next_seq - 1

    def rows_after(self, yard: Yard, cursor: i64) -> Rows:
        """Return some of the records there still are past a seq."""
        if self._log is not None:
            return rows_after(yard.journal, self._log, cursor, SLICE)
        assert self._queue is not None
        return _jobs_after(yard, self._queue, cursor)

    def lead(self, onward: Onward | None) -> None:
        """Tell of what comes, or tell no more."""
        if self._log is not None:
            self._log.onward = onward
        elif self._queue is not None:
            stock_of(self._queue).onward = onward


def find_source(yard: Yard, name: str) -> Source | None:
    """Return the topic of that name, if there is one to copy from."""
    log = yard.logs.get(name)
    if log is not None:
        return Source(log, None)
    queue = yard.queues.get(name)
    return None if queue is None or queue.config is None else Source(None, queue)


def _jobs_after(yard: Yard, queue: Queue, cursor: i64) -> Rows:
    found = Rows()
    jobs = roster_of(queue).after(cursor, JOBS_SLICE)
    for job in jobs:
        found.last_seq = job.key
        body = yard.bodies.fetch(job)
        if body is None:
            # As good as gone.
            continue
        data = body if job.codec == JSON else yard.routers.printer.json_of(i64(job.codec), body)
        remark = claims.remark_of(job)
        found.seqs.append(int(job.key))
        if remark is None:
            found.rows.append(Row(data, b""))
        else:
            found.rows.append(Row(data, remark.meta, remark.tag, remark.node))
    if len(jobs) < JOBS_SLICE:
        found.last_seq = queue.next_seq - 1
    return found


@final
class Copies(Onward):
    """All routers that lead away from one topic."""

    def __init__(self, yard: Yard, name: str, source: Source) -> None:
        self._yard = yard
        self._name = name
        self._source = source

    def _routers(self) -> list[Router]:
        return self._yard.routers.by_source.get(self._name, [])

    def room(self, count: i64, size: i64) -> i64:
        """Return the most bytes in the journal that so many records of so many bytes take there."""
        yard = self._yard
        if yard.routers.hops >= HOPS_MAX:
            return 0
        yard.routers.hops += 1
        room: i64 = 0
        for router in self._routers():
            room += room_for(yard, router, count, size)
        yard.routers.hops -= 1
        return room

    def copy(self, now_ms: i64) -> None:
        """Pass on what was appended."""
        yard = self._yard
        for router in list(self._routers()):
            if router.is_behind:
                continue
            if yard.routers.is_held:
                _fall_behind(yard, router, now_ms)
            else:
                forward(yard, self._source, router, now_ms)


@final
class RetryAlarm(Alarm):
    """Rings when a router that is behind should try again."""

    def __init__(self, yard: Yard, router: Router) -> None:
        super().__init__(0, NEVER_MS, 0)
        self._yard = yard
        self._router = router

    def ring(self, now_ms: i64) -> None:
        """Try again, and see to it that it is tried again if need be."""
        router = self._router
        yard = self._yard
        if yard.routers.by_name.get(router.name) is not router or not router.is_behind:
            return
        source = find_source(yard, router.source)
        if source is not None:
            forward(yard, source, router, now_ms)
        if router.is_behind:
            yard.arm(self, now_ms + RETRY_MS)


# -- making and removing ---------------------------------------------------------------------------


def set_router(yard: Yard, router: Router, now_ms: i64) -> bool:
    """Begin to pass records on, or do so differently; tell whether the router is new.

    Both topics must be there, configured if they are queues. A refusal changes nothing.
    """
    routers = yard.routers
    source = find_source(yard, router.source)
    assert source is not None
    known = routers.by_name.get(router.name)
    if known is not None:
        if (known.source, known.dest) != (router.source, router.dest):
            raise RouterElsewhere(f"{router.name} leads from {known.source} to {known.dest}")
        router.cursor = known.cursor
        router.is_behind = known.is_behind
        router.forwarded_total = known.forwarded_total
    else:
        other = routers.by_dest.get(router.dest)
        if other is not None:
            raise RouterFanIn(f"{other.name} leads to {router.dest} already")
        router.cursor = source.head_seq()
        router.is_behind = False
    if not router.allow_cycle:
        circle = routers.circle(router.source, router.dest)
        if circle:
            raise RouterCycle(circle)
    _remember(yard, router)
    if known is not None:
        routers.remove(known)
    _add(yard, source, router, now_ms)
    return known is None


def _add(yard: Yard, source: Source, router: Router, now_ms: i64) -> None:
    yard.routers.add(router)
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
            if not _forward_slice(yard, source, router, now_ms):
                return
    finally:
        routers.hops -= 1
    if router.is_behind:
        router.is_behind = False
        # As long as the journal says that it is behind, it is.
        router.is_behind = not _is_remembered(yard, router)


def _forward_slice(yard: Yard, source: Source, router: Router, now_ms: i64) -> bool:
    """Copy some records; False if the destination does not take all of them."""
    found = source.rows_after(yard, router.cursor)
    seqs: list[int] = []
    rows: list[Row] = []
    size: i64 = 0
    for i in range(len(found.rows)):
        row = found.rows[i]
        if router.takes(row.tag):
            seqs.append(found.seqs[i])
            rows.append(_copy_of(router, row, found.seqs[i]))
            size += len(row.data) + len(row.meta)
    if router.is_behind and not _admit(yard, router, len(rows), size, now_ms):
        return False
    # First, because what is appended now may come back here.
    router.cursor = found.last_seq
    taken = _deliver(yard, router, rows, now_ms) if rows else 0
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
    router.is_behind = True
    _is_remembered(yard, router)
    yard.arm(RetryAlarm(yard, router), retry_ms)


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


def _copy_of(router: Router, row: Row, seq: i64) -> Row:
    meta = row.meta
    if router.guarantee == EXACTLY_ONCE:
        meta = _stamped(router, meta, seq)
    tag = row.tag if router.preserve_tag else ""
    node = row.node if router.preserve_node else ""
    return Row(row.data, meta, tag, node)


def _stamped(router: Router, meta: bytes, seq: i64) -> bytes:
    """Return meta with a note on where the record came from."""
    stamp = {"router": router.name, "source": router.source, "seq": int(seq)}
    fields = json.loads(meta) if meta else {}
    fields["_topics_router"] = stamp
    return json.dumps(fields, separators=(",", ":")).encode()


def _deliver(yard: Yard, router: Router, rows: list[Row], now_ms: i64) -> i64:
    """Append to the destination; return how many records it took, or will never take."""
    if len(rows) > 1:
        try:
            _append(yard, router, rows, now_ms)
        except TopicFull:
            # Not all of it at once; some of it may fit.
            pass
        except (YardFull, StorageFull):
            return 0
        else:
            return len(rows)
    taken: i64 = 0
    for row in rows:
        if not _is_taken(yard, router, row, now_ms):
            break
        taken += 1
    return taken


def _is_taken(yard: Yard, router: Router, row: Row, now_ms: i64) -> bool:
    try:
        _append(yard, router, [row], now_ms)
    except WriteTooLarge:
        # It never will be taken; what comes after it should be.
        return True
    except (YardFull, StorageFull):
        return False
    return True


def _append(yard: Yard, router: Router, rows: list[Row], now_ms: i64) -> None:
    name = router.dest
    log = yard.logs.get(name)
    queue = yard.queues.get(name)
    if log is None and queue is not None and queue.config is not None:
        records = [claims.Record(row.data, row.meta, row.tag, row.node) for row in rows]
        claims.produce(yard, queue, records, "", now_ms)
        return
    if log is None:
        if not router.create_dest:
            raise YardFull
        log = logs.open_log(yard, name, TopicConfig(), now_ms)
    logs.append(yard, log, rows, "", now_ms)
