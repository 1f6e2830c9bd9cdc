"""The verbs of a queue that is a topic: written to, claimed from, acked.

Its jobs are ordinary jobs and its leases ordinary leases, held by a node: a text that outlives any
connection. A seq that is not leased to the node that names it is skipped, never an error. Knows no
protocol; what the jobs of other doors hold is converted elsewhere.

Invariant: what one call of `produce` or `ack` does lies in one batch.
"""

from typing import Final, final

from mypy_extensions import i64

from jobyard.engine.jobs.dead_letters import LETTER_ROOM, letters_for, read_letter
from jobyard.engine.jobs.durable_leases import keep_lease, kept_of, lease_name, resume, see_to_room
from jobyard.engine.jobs.finish import bury, fail, finish, release, touch
from jobyard.engine.jobs.lease_events import hold_tidings, send_tidings
from jobyard.engine.jobs.listing import roster_of
from jobyard.engine.jobs.move import kick, remove
from jobyard.engine.jobs.put import Wish, enter, free_seqs, job_room, room_for_all, shed
from jobyard.engine.jobs.put_transaction import reserve
from jobyard.engine.jobs.take import offer, take_one
from jobyard.engine.logs.erase import erase_seqs
from jobyard.engine.state.yard import Yard
from jobyard.engine.topics.topic_setup import (
    config_of,
    drop_topic_queue,
    known_write,
    open_topic_queue,
    remember_write,
    set_queue_config,
)
from jobyard.errors import StorageFull, YardFull
from jobyard.journal.format.record import END_SIZE, ENTRY_SIZE, HANDED_BACK, LEASE_SIZE, STATE_SIZE
from jobyard.model.details import Extra, Outcome, Remark, encode_extra, size_of
from jobyard.model.family import TOPICS, counts_attempts
from jobyard.model.job import JSON, READY, Job
from jobyard.model.queue import NODE, Book, Holder, Lease, Queue, Terms
from jobyard.model.topic.config import clamp_lease_ms
from jobyard.model.topic.log import LogTopic, WriteTooLarge

__all__ = [
    "Batch",
    "Ended",
    "Node",
    "Produced",
    "QueueCounts",
    "Record",
    "ack",
    "by_seq",
    "claim",
    "config_of",
    "counts",
    "drop_topic_queue",
    "extend",
    "forget_idle",
    "give_up",
    "lease_name",
    "nack",
    "node_book",
    "open_topic_queue",
    "peek",
    "produce",
    "produce_batch",
    "purge",
    "ready_count",
    "redrive",
    "remark_of",
    "resume_leases",
    "set_queue_config",
    "terms_of",
]

# A claim takes no more jobs once the bodies of those it has come to this.
CLAIM_SIZE_MAX: Final = 64 << 20

# Jobs of a write that are no small part of a turn.
_MANY: Final = 1000

# How runs end.
_DONE: Final = 0
_BACK: Final = 1
_UP: Final = 2


@final
class Record:
    """One job as it is written; what is empty was not given."""

    def __init__(self, data: bytes, meta: bytes = b"", tag: str = "", node: str = "") -> None:
        self.data: bytes = data
        self.meta: bytes = meta
        self.tag: str = tag
        self.node: str = node
        self.delay_ms: i64 = 0
        self.priority: i64 = 0


@final
class Produced:
    """What a write came to."""

    def __init__(self, first_seq: i64, last_seq: i64, batch: i64, *, is_deduped: bool) -> None:
        self.first_seq: i64 = first_seq
        self.last_seq: i64 = last_seq
        self.is_deduped: bool = is_deduped
        # The batch an answer waits for.
        self.batch: i64 = batch


@final
class Ended:
    """How many of some leases were ended or renewed, and which seqs name none."""

    def __init__(self) -> None:
        self.done: i64 = 0
        self.skipped: list[int] = []
        self.batch: i64 = 0
        # Of leases that were renewed: until when, by seq.
        self.deadlines: dict[int, int] = {}


@final
class QueueCounts:
    """How many jobs of a queue there are; those that are done count nowhere."""

    def __init__(self, queue: Queue) -> None:
        self.ready: i64 = ready_count(queue)
        self.in_flight: i64 = len(queue.leased.items)
        self.delayed: i64 = len(queue.delayed.items)
        self.count: i64 = queue.jobs_count() - queue.done.live_count
        self.bytes: i64 = roster_of(queue).bytes
        stock = queue.stock
        self.dead_lettered: i64 = 0 if stock is None else stock.dead_lettered


def ready_count(queue: Queue) -> i64:
    """Count the jobs that wait to be claimed."""
    return len(queue.ready.items) + queue.held_count


def counts(queue: Queue) -> QueueCounts:
    """Count the jobs of a queue."""
    return QueueCounts(queue)


# -- writing -----------------------------------------------------------------------------------


@final
class Batch:
    """Jobs of one write, made ready as far as that can be done before they enter a queue."""

    def __init__(self, yard: Yard) -> None:
        self._is_written: bool = yard.journal.is_on
        self.wishes: list[Wish] = []
        # Of data and meta, and the most bytes that the jobs take in the journal.
        self.size: i64 = 0
        self.room: i64 = 0

    def add(self, record: Record) -> None:
        """Add a job."""
        wish = _wish(record)
        if self._is_written and wish.extra is not None:
            wish.extra.ahead = encode_extra(wish.extra)
        self.wishes.append(wish)
        self.size += len(record.data) + len(record.meta)
        self.room += job_room(wish)


def produce(yard: Yard, queue: Queue, records: list[Record], key: str, now_ms: i64) -> Produced:
    """Put jobs, all of them or none, with contiguous seqs; once for all writes with one key.

    TopicFull and YardFull change nothing.
    """
    batch = Batch(yard)
    for record in records:
        batch.add(record)
    return produce_batch(yard, queue, batch, key, now_ms)


def produce_batch(
    yard: Yard, queue: Queue, batch: Batch, key: str, now_ms: i64, *, may_exceed: bool = True
) -> Produced:
    """Put jobs that were made ready, as `produce` does; WriteTooLarge unless they `may_exceed`."""
    if key:
        known = known_write(yard, queue, key, now_ms)
        if known is not None:
            last_seq = known.first_seq + known.count - 1
            # Who writes is told how far the queue has come since.
            return Produced(known.first_seq, last_seq, yard.journal.appended, is_deduped=True)
    wishes = batch.wishes
    room = room_for_all(queue, wishes, batch.room)
    if key:
        room += ENTRY_SIZE + 48 + 4 * len(key)
    reserve(yard, queue, len(wishes), batch.size, room, now_ms, may_exceed=may_exceed)
    first_seq = free_seqs(queue, len(wishes))
    queue.next_seq = first_seq
    if key:
        remember_write(yard, queue, key, first_seq, len(wishes), now_ms)
    for wish in wishes:
        enter(yard, queue, wish, now_ms)
    appended = yard.journal.appended
    if queue.stock is not None:
        queue.stock.last_write_ms = now_ms
        shed(yard, queue, len(wishes), batch.size, now_ms)
    if queue.first_link is not None:
        offer(yard, queue, now_ms)
    if len(wishes) > _MANY:
        yard.tasks.leave_less(len(wishes))
    return Produced(first_seq, queue.next_seq - 1, appended, is_deduped=False)


def _wish(record: Record) -> Wish:
    wish = Wish(TOPICS, JSON, record.data)
    wish.rank = -record.priority
    wish.delay_ms = record.delay_ms
    if record.tag or record.node or record.meta:
        wish.extra = Extra()
        wish.extra.remark = Remark(record.tag, record.node, record.meta)
    return wish


# -- claiming ----------------------------------------------------------------------------------


@final
class Node(Holder):
    """Whoever claims under a name. It waits for nothing, and is forgotten with its last lease."""

    def __init__(self, yard: Yard, name: str) -> None:
        self._yard = yard
        self._name = name

    def lease_ended(self, lease: Lease, now_ms: i64) -> None:  # noqa: ARG002  the seam's
        """Forget a node that holds nothing."""
        forget_idle(self._yard, self._name)


def node_book(yard: Yard, node: str) -> Book:
    """Return where the claims of a node are booked; to be used at once, for it may be dropped."""
    book = yard.nodes.get(node)
    if book is None:
        book = yard.new_book(Node(yard, node))
        book.is_watched = True
        yard.nodes[node] = book
    return book


def forget_idle(yard: Yard, node: str) -> None:
    """Drop the book of a node that holds nothing."""
    book = yard.nodes.get(node)
    if book is not None and not book.leases.items:
        yard.disarm(book)
        del yard.nodes[node]


def terms_of(queue: Queue, node: str, lease_ms: i64) -> Terms:
    """Return on what terms a node takes jobs; 0 ms is what the queue is configured for."""
    ttl_ms = clamp_lease_ms(lease_ms if lease_ms > 0 else config_of(queue).lease_ms)
    terms = Terms(TOPICS, NODE, ttl_ms, node)
    terms.is_kept = config_of(queue).leases_durable
    return terms


def claim(
    yard: Yard, queue: Queue, node: str, most: i64, lease_ms: i64, book: Book, now_ms: i64
) -> list[Lease]:
    """Lease up to `most` jobs to a node; what came back goes before what was never delivered.

    Fewer if their bodies are so large that one answer should not hold them all, or if a full disk
    has no room to note more; YardFull if it has none at all.
    """
    terms = terms_of(queue, node, lease_ms)
    leases: list[Lease] = []
    size: i64 = 0
    while len(leases) < most and size < CLAIM_SIZE_MAX:
        try:
            lease = take_one(yard, queue, book, terms, now_ms)
        except YardFull:
            if leases:
                break
            forget_idle(yard, node)
            raise
        if lease is None:
            break
        leases.append(lease)
        size += len(lease.body)
    if not leases:
        forget_idle(yard, node)
    return by_seq(leases)


def by_seq(leases: list[Lease]) -> list[Lease]:
    """Return leases in the order of their jobs."""
    return sorted(leases, key=_leased_seq)


def _leased_seq(lease: Lease) -> int:
    return lease.job.key


def resume_leases(yard: Yard, now_ms: i64) -> None:
    """Take up the leases that outlive a restart, those whose time is over too: they ring next."""
    for job in yard.kept:
        extra = job.extra
        kept = None if extra is None else extra.kept
        assert extra is not None
        assert kept is not None
        if job.state == READY:
            resume(yard, job, node_book(yard, kept.node), now_ms)
        else:
            # A full disk had no room for the record of the hand-over, and the clock went back.
            extra.kept = None
    yard.kept = []


def ack(
    yard: Yard,
    queue: Queue,
    node: str,
    seqs: list[int],
    lease_ids: list[str] | None,
    now_ms: i64,
) -> Ended:
    """Finish jobs that are leased to a node, all in one batch."""
    ended = Ended()
    leases = _held(yard, queue, node, seqs, lease_ids, ended, now_ms)
    _end_runs(yard, leases, ended, _DONE, 0, now_ms)
    return ended


def nack(
    yard: Yard,
    queue: Queue,
    node: str,
    seqs: list[int],
    lease_ids: list[str] | None,
    delay_ms: i64,
    now_ms: i64,
) -> Ended:
    """Give back jobs that are leased to a node, now or after a delay, -1 where none was named.

    To a job whose family counts attempts this is one, and it may be the last; it waits as it was
    put to where no delay is named.
    """
    ended = Ended()
    leases = _held(yard, queue, node, seqs, lease_ids, ended, now_ms)
    _end_runs(yard, leases, ended, _BACK, delay_ms, now_ms)
    return ended


def give_up(
    yard: Yard,
    queue: Queue,
    node: str,
    seqs: list[int],
    lease_ids: list[str] | None,
    now_ms: i64,
) -> Ended:
    """Lay jobs aside that are leased to a node: dead letters where the queue has any, else dead."""
    ended = Ended()
    leases = _held(yard, queue, node, seqs, lease_ids, ended, now_ms)
    _end_runs(yard, leases, ended, _UP, 0, now_ms)
    return ended


def _end_runs(
    yard: Yard, leases: list[Lease], ended: Ended, how: int, delay_ms: i64, now_ms: i64
) -> None:
    """End many runs in one batch: their jobs are done, given back, or given up."""
    _begin_many(yard, leases)
    try:
        for lease in leases:
            try:
                if how == _DONE:
                    finish(yard, lease.job, now_ms)
                elif how == _UP:
                    bury(yard, lease.job, lease.job.rank, now_ms)
                else:
                    _give_back(yard, lease.job, delay_ms, now_ms)
            except (YardFull, StorageFull):
                if ended.done == 0:
                    raise
                # Those before it count already.
                ended.skipped.append(int(lease.job.key))
            else:
                ended.done += 1
    finally:
        _finish_many(yard, ended, now_ms)


def _give_back(yard: Yard, job: Job, delay_ms: i64, now_ms: i64) -> None:
    if counts_attempts(job.family):
        fail(yard, job, "nacked", now_ms, delay_ms=delay_ms, why=HANDED_BACK)
    else:
        release(yard, job, job.rank, max(delay_ms, 0), now_ms)


def extend(
    yard: Yard,
    queue: Queue,
    node: str,
    seqs: list[int],
    lease_ids: list[str] | None,
    lease_ms: i64,
    now_ms: i64,
) -> Ended:
    """Let leases of a node last `lease_ms` from now on."""
    ended = Ended()
    ttl_ms = clamp_lease_ms(lease_ms)
    for lease in _held(yard, queue, node, seqs, lease_ids, ended, now_ms):
        is_kept = kept_of(lease.job) is not None
        if is_kept:
            try:
                see_to_room(yard, lease.job, node)
            except YardFull:
                if ended.done == 0:
                    raise
                ended.skipped.append(int(lease.job.key))
                continue
        touch(yard, lease, ttl_ms, now_ms)
        if is_kept:
            keep_lease(yard, lease)
            ended.batch = max(ended.batch, lease.job.batch)
        ended.done += 1
        ended.deadlines[int(lease.job.key)] = int(lease.sort_key)
    return ended


def _held(
    yard: Yard,
    queue: Queue,
    node: str,
    seqs: list[int],
    lease_ids: list[str] | None,
    ended: Ended,
    now_ms: i64,
) -> list[Lease]:
    """Return the leases that some seqs name; a lease whose time is over is one no more."""
    leases: list[Lease] = []
    seen: set[int] = set()
    roster = roster_of(queue)
    # A seq from outside may be longer than any there is.
    end = int(queue.next_seq)
    for each, seq in enumerate(seqs):
        job = roster.find(seq) if 0 < seq < end else None
        lease = None if job is None or seq in seen else job.lease
        if (
            lease is None
            or lease.terms.proof != NODE
            or lease.terms.label != node
            or lease.sort_key <= now_ms
        ):
            ended.skipped.append(seq)
            continue
        if lease_ids is not None and lease_ids[each] not in ("", lease_name(yard, lease)):
            ended.skipped.append(seq)
            continue
        seen.add(seq)
        leases.append(lease)
    return leases


def _begin_many(yard: Yard, leases: list[Lease]) -> None:
    """Make room for the ends of many runs in one batch, and tell nobody of them before the last."""
    journal = yard.journal
    if journal.is_on and leases:
        room: i64 = 0
        for lease in leases:
            extra = lease.job.extra
            room += STATE_SIZE + END_SIZE + LEASE_SIZE + (0 if extra is None else size_of(extra))
        try:
            journal.make_room(min(room, journal.segment_size // 2))
        except StorageFull:
            # Every end finds what is kept for it.
            journal.note_full()
    hold_tidings(yard)


def _finish_many(yard: Yard, ended: Ended, now_ms: i64) -> None:
    ended.batch = yard.journal.appended
    send_tidings(yard, now_ms)


# -- looking and letting go --------------------------------------------------------------------


def peek(yard: Yard, queue: Queue, from_seq: i64, limit: i64) -> list[Job]:
    """Return jobs past a seq, in order, in whatever state but done."""
    assert yard.queues.get(queue.name) is queue
    return roster_of(queue).after(from_seq, limit)


def remark_of(job: Job) -> Remark | None:
    """Return what was said of a job when it was written."""
    extra = job.extra
    return None if extra is None else extra.remark


def purge(yard: Yard, queue: Queue, most: i64, now_ms: i64) -> i64:
    """Remove dead jobs, oldest first, and then dead letters of the queue."""
    purged: i64 = 0
    for item in queue.dead.live():
        if purged >= most:
            return purged
        assert isinstance(item, Outcome)
        remove(yard, item.job, now_ms)
        purged += 1
    log = yard.logs.get(config_of(queue).dead_letter or "")
    if log is None:
        return purged
    seqs = letters_for(yard, log, queue.name, most - purged)
    if seqs:
        erase_seqs(yard, log, seqs)
    return purged + len(seqs)


def redrive(yard: Yard, queue: Queue, most: i64, now_ms: i64) -> i64:
    """Bring dead jobs back, oldest first; then write dead letters again, as jobs never delivered.

    A letter that is larger than the queue may ever be stays one, and does not hold up others.
    TopicFull and YardFull where no letter finds room.
    """
    bound = min(most, queue.dead.live_count)
    driven: i64 = kick(yard, queue, bound, now_ms) if bound > 0 else 0
    log = yard.logs.get(config_of(queue).dead_letter or "")
    if log is None or driven >= most:
        return driven
    too_large: WriteTooLarge | None = None
    for seq in letters_for(yard, log, queue.name, most - driven):
        try:
            _write_again(yard, queue, log, seq, now_ms)
        except WriteTooLarge as error:
            too_large = error
            continue
        except YardFull:
            if driven == 0:
                raise
            break
        driven += 1
    if driven == 0 and too_large is not None:
        raise too_large
    return driven


def _write_again(yard: Yard, queue: Queue, log: LogTopic, seq: i64, now_ms: i64) -> None:
    """Make a job of a letter, which is gone then, in one batch."""
    letter = read_letter(yard, log, seq)
    one = Record(letter.data, letter.meta, letter.tag, letter.node)
    batch = Batch(yard)
    batch.add(one)
    batch.room += LETTER_ROOM
    produce_batch(yard, queue, batch, "", now_ms, may_exceed=False)
    erase_seqs(yard, log, [int(seq)])
