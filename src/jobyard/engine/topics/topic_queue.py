"""The verbs of a queue that is a topic: produce, claim, ack, nack, extend, redrive.

Its jobs are ordinary jobs and its leases ordinary leases, held by a node: a name that outlives any
connection. A seq that is not leased to the node that names it is skipped, never an error. Knows no
protocol; bodies of jobs from other doors are converted elsewhere.

Invariant: all records of one call of `produce` or `ack` are in one batch.
"""

from typing import Final, final

from mypy_extensions import i64

from jobyard.engine.jobs.dead_letters import (
    DEAD_LETTER_ROOM,
    DeadLetter,
    dead_letters_for,
    read_dead_letter,
)
from jobyard.engine.jobs.durable_leases import (
    durable_lease_of,
    ensure_room,
    keep_lease,
    lease_name,
    resume,
)
from jobyard.engine.jobs.finish import bury, fail, finish, release, touch
from jobyard.engine.jobs.lease_events import defer_lease_events, send_lease_events
from jobyard.engine.jobs.listing import jobs_by_seq_of
from jobyard.engine.jobs.move import kick, remove
from jobyard.engine.jobs.put import evict_excess, free_seqs, make_job, room_for_all
from jobyard.engine.jobs.put_transaction import enter_all, reserve
from jobyard.engine.jobs.take import offer, take_one
from jobyard.engine.logs.erase import erase_seqs
from jobyard.engine.state.record_keys import keys_room, owner_seq_of
from jobyard.engine.state.yard import Yard
from jobyard.engine.topics.job_batch import JobBatch, NewRecord, new_record_of
from jobyard.engine.topics.topic_setup import (
    config_of,
    drop_topic_queue,
    known_write,
    open_topic_queue,
    remember_job_keys,
    remember_write,
    set_queue_config,
    topic_state_of,
)
from jobyard.errors import StorageFull, YardFull
from jobyard.journal.format.record import END_ROOM, ENTRY_SIZE, LEASE_ROOM, STATE_SIZE, Cause
from jobyard.model.details import Origin, Outcome, RecordMeta
from jobyard.model.details_codec import size_of
from jobyard.model.family import TOPICS, counts_attempts
from jobyard.model.job import READY, Job
from jobyard.model.lease import Holder, Lease, LeaseSet, Proof, Terms
from jobyard.model.members import TAG_SIZE
from jobyard.model.queue import Queue
from jobyard.model.topic.config import clamp_lease_ms
from jobyard.model.topic.log import LogTopic, WriteTooLarge
from jobyard.model.topic.new_keys import NewKeys

__all__ = [
    "Ended",
    "JobBatch",
    "NewRecord",
    "NodeHolder",
    "Produced",
    "QueueCounts",
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
    "new_record_of",
    "node_leases",
    "open_topic_queue",
    "peek",
    "produce",
    "produce_batch",
    "purge",
    "ready_count",
    "record_meta_of",
    "record_of_letter",
    "redrive",
    "resume_leases",
    "set_queue_config",
    "terms_of",
    "write_again",
]

# A claim takes no more jobs once the size of their bodies reaches this.
CLAIM_SIZE_MAX: Final = 64 << 20

# A write of more jobs than this is charged to the turn.
_MANY: Final = 1000

# How runs end.
_DONE: Final = 0
_BACK: Final = 1
_UP: Final = 2


@final
class Produced:
    """The result of a write."""

    def __init__(self, first_seq: i64, last_seq: i64, batch: i64, *, is_deduped: bool) -> None:
        self.first_seq: i64 = first_seq
        self.last_seq: i64 = last_seq
        self.is_deduped: bool = is_deduped
        # The batch that the reply waits for.
        self.batch: i64 = batch


@final
class Ended:
    """How many leases were ended or renewed, and which seqs were skipped."""

    def __init__(self) -> None:
        self.done: i64 = 0
        self.skipped: list[int] = []
        self.batch: i64 = 0
        # The new deadlines of renewed leases, by seq.
        self.deadlines: dict[int, int] = {}


@final
class QueueCounts:
    """The numbers of jobs of a queue; done jobs are not counted."""

    def __init__(self, queue: Queue) -> None:
        self.ready: i64 = ready_count(queue)
        self.in_flight: i64 = len(queue.leased.items)
        self.delayed: i64 = len(queue.delayed.items)
        self.count: i64 = queue.jobs_count() - queue.done.live_count
        self.bytes: i64 = jobs_by_seq_of(queue).bytes
        topic_state = queue.topic_state
        self.dead_lettered: i64 = 0 if topic_state is None else topic_state.dead_lettered


def ready_count(queue: Queue) -> i64:
    """Count the jobs that wait to be claimed."""
    return len(queue.ready.items) + queue.held_count


def counts(queue: Queue) -> QueueCounts:
    """Count the jobs of a queue."""
    return QueueCounts(queue)


# -- writing -----------------------------------------------------------------------------------


def produce(yard: Yard, queue: Queue, records: list[NewRecord], key: str, now_ms: i64) -> Produced:
    """Put jobs, all or none, with contiguous seqs; a repeated write with a key has no effect.

    TopicFull and YardFull change nothing.
    """
    batch = JobBatch(yard)
    for record in records:
        batch.add(record)
    return produce_batch(yard, queue, batch, key, now_ms)


def produce_batch(
    yard: Yard, queue: Queue, batch: JobBatch, key: str, now_ms: i64, *, may_exceed: bool = True
) -> Produced:
    """Put prepared jobs, like `produce`; WriteTooLarge if they exceed the caps, unless they may."""
    if key:
        known = known_write(yard, queue, key, now_ms)
        if known is not None:
            last_seq = known.first_seq + known.count - 1
            # The reply includes the current state of the queue, so it waits for all appended.
            return Produced(known.first_seq, last_seq, yard.journal.appended, is_deduped=True)
    new_jobs = batch.new_jobs
    keys = batch.record_keys
    if keys is not None and keys.fresh and queue.config is None:
        # It must outlive its jobs, as their keys do.
        set_queue_config(yard, queue, config_of(queue), now_ms)
    room = _room_of(queue, batch, key)
    reserve(yard, queue, len(new_jobs), batch.size, room, now_ms, may_exceed=may_exceed)
    first_seq = free_seqs(queue, len(new_jobs))
    queue.next_seq = first_seq
    if key:
        remember_write(yard, queue, key, first_seq, len(new_jobs), now_ms)
    if keys is not None:
        remember_job_keys(yard, queue, keys, first_seq, now_ms)
    jobs = [make_job(queue, new_job) for new_job in new_jobs]
    enter_all(yard, queue, jobs, None, now_ms)
    appended = yard.journal.appended
    if queue.topic_state is not None:
        evict_excess(yard, queue, len(new_jobs), batch.size, now_ms)
    if queue.first_link is not None:
        offer(yard, queue, now_ms)
    if len(new_jobs) > _MANY:
        yard.tasks.leave_less(len(new_jobs))
    return Produced(first_seq, queue.next_seq - 1, appended, is_deduped=False)


def _room_of(queue: Queue, batch: JobBatch, key: str) -> i64:
    """Return the most journal bytes that a write takes."""
    room = room_for_all(queue, batch.new_jobs, batch.whole_room())
    if key:
        room += ENTRY_SIZE + 48 + 4 * len(key)
    if batch.record_keys is not None:
        room += keys_room(queue.name, topic_state_of(queue).record_keys, batch.record_keys)
    return room


def record_of_letter(letter: DeadLetter) -> NewRecord:
    """Return a dead letter as the record to write again."""
    record = new_record_of(letter.record)
    record.origin = Origin(letter.origin_id, letter.origin_queue)
    record.name = letter.name
    record.job_id = letter.job_id
    record.max_attempts = letter.max_attempts
    return record


# -- claiming ----------------------------------------------------------------------------------


@final
class NodeHolder(Holder):
    """A node that claims under a name. It never waits, and is dropped with its last lease."""

    def __init__(self, yard: Yard, name: str) -> None:
        self._yard = yard
        self._name = name

    def lease_ended(self, lease: Lease, now_ms: i64) -> None:  # noqa: ARG002  set by Holder
        """Drop a node that holds nothing."""
        forget_idle(self._yard, self._name)


def node_leases(yard: Yard, node: str) -> LeaseSet:
    """Return the lease set of a node, for immediate use: an empty one may be dropped."""
    lease_set = yard.nodes.get(node)
    if lease_set is None:
        lease_set = yard.new_lease_set(NodeHolder(yard, node))
        lease_set.is_watched = True
        yard.nodes[node] = lease_set
    return lease_set


def forget_idle(yard: Yard, node: str) -> None:
    """Drop the lease set of a node that holds nothing."""
    lease_set = yard.nodes.get(node)
    if lease_set is not None and not lease_set.leases.items:
        yard.disarm(lease_set)
        del yard.nodes[node]


def terms_of(queue: Queue, node: str, lease_ms: i64) -> Terms:
    """Return the terms on which a node takes jobs; 0 ms means the configured lease time."""
    ttl_ms = clamp_lease_ms(lease_ms if lease_ms > 0 else config_of(queue).lease_ms)
    terms = Terms(TOPICS, Proof.NODE, ttl_ms, node)
    terms.is_durable = config_of(queue).leases_durable
    return terms


def claim(
    yard: Yard, queue: Queue, node: str, most: i64, lease_ms: i64, lease_set: LeaseSet, now_ms: i64
) -> list[Lease]:
    """Lease up to `most` jobs to a node; returned jobs come before those never delivered.

    Fewer if their bodies are too large for one reply, or if a full disk has no room for more
    durable leases; YardFull if it has none at all.
    """
    terms = terms_of(queue, node, lease_ms)
    leases: list[Lease] = []
    size: i64 = 0
    while len(leases) < most and size < CLAIM_SIZE_MAX:
        try:
            lease = take_one(yard, queue, lease_set, terms, now_ms)
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
    """Return leases in the order of their seqs."""
    return sorted(leases, key=_leased_seq)


def _leased_seq(lease: Lease) -> int:
    return lease.job.key


def resume_leases(yard: Yard, now_ms: i64) -> None:
    """Resume durable leases after a restart; expired ones too, which ring at the next tick."""
    for job in yard.durably_leased:
        details = job.details
        stored = None if details is None else details.durable_lease
        assert details is not None
        assert stored is not None
        if job.state == READY:
            resume(yard, job, node_leases(yard, stored.node), now_ms)
        else:
            # A full disk had no room for the record of the lease, and the clock went back.
            details.durable_lease = None
    yard.durably_leased = []


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
    _end_runs(yard, leases, ended, _DONE, 0, "", now_ms)
    return ended


def nack(  # noqa: PLR0913  what a nack says
    yard: Yard,
    queue: Queue,
    node: str,
    seqs: list[int],
    lease_ids: list[str] | None,
    delay_ms: i64,
    now_ms: i64,
    *,
    error: str = "",
) -> Ended:
    """Give back jobs that are leased to a node, now or after a delay; -1 if none was given.

    If the family of a job counts attempts, this counts as one, maybe the last; without a delay its
    own backoff applies.
    """
    ended = Ended()
    leases = _held(yard, queue, node, seqs, lease_ids, ended, now_ms)
    _end_runs(yard, leases, ended, _BACK, delay_ms, error, now_ms)
    return ended


def give_up(
    yard: Yard,
    queue: Queue,
    node: str,
    seqs: list[int],
    lease_ids: list[str] | None,
    now_ms: i64,
    *,
    error: str = "",
) -> Ended:
    """Give up jobs leased to a node: they become dead letters if the queue has these, else dead."""
    ended = Ended()
    leases = _held(yard, queue, node, seqs, lease_ids, ended, now_ms)
    _end_runs(yard, leases, ended, _UP, 0, error, now_ms)
    return ended


def _end_runs(
    yard: Yard,
    leases: list[Lease],
    ended: Ended,
    how: int,
    delay_ms: i64,
    error: str,
    now_ms: i64,
) -> None:
    """End many runs in one batch: their jobs are done, given back, or given up."""
    _begin_many(yard, leases, len(error.encode()))
    try:
        for lease in leases:
            try:
                if how == _DONE:
                    finish(yard, lease.job, now_ms)
                elif how == _UP:
                    bury(yard, lease.job, lease.job.rank, now_ms, error=error)
                else:
                    return_job(yard, lease.job, delay_ms, error, now_ms)
            except (YardFull, StorageFull):
                if ended.done == 0:
                    raise
                # Those before it have ended already.
                ended.skipped.append(int(lease.job.key))
            else:
                ended.done += 1
    finally:
        _finish_many(yard, ended, now_ms)


def return_job(yard: Yard, job: Job, delay_ms: i64, error: str, now_ms: i64) -> None:
    """End the run of a leased job as a nack does; its error is kept, -1 is no delay given."""
    if counts_attempts(job.family):
        fail(yard, job, error or "nacked", now_ms, delay_ms=delay_ms, why=Cause.HANDED_BACK)
    else:
        release(yard, job, job.rank, max(delay_ms, 0), now_ms, error=error)


def extend(
    yard: Yard,
    queue: Queue,
    node: str,
    seqs: list[int],
    lease_ids: list[str] | None,
    lease_ms: i64,
    now_ms: i64,
) -> Ended:
    """Make leases of a node end `lease_ms` from now."""
    ended = Ended()
    ttl_ms = clamp_lease_ms(lease_ms)
    for lease in _held(yard, queue, node, seqs, lease_ids, ended, now_ms):
        is_kept = durable_lease_of(lease.job) is not None
        if is_kept:
            try:
                ensure_room(yard, lease.job, node)
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
    """Return the leases that some seqs name; expired leases do not count."""
    leases: list[Lease] = []
    seen: set[int] = set()
    jobs_by_seq = jobs_by_seq_of(queue)
    # A seq from a client may exceed 64 bits.
    end = int(queue.next_seq)
    for each, seq in enumerate(seqs):
        job = jobs_by_seq.find(seq) if 0 < seq < end else None
        lease = None if job is None or seq in seen else job.lease
        if lease is None or not lease.terms.is_node(node) or lease.sort_key <= now_ms:
            ended.skipped.append(seq)
            continue
        if lease_ids is not None and lease_ids[each] not in ("", lease_name(yard, lease)):
            ended.skipped.append(seq)
            continue
        seen.add(seq)
        leases.append(lease)
    return leases


def _begin_many(yard: Yard, leases: list[Lease], error_size: i64) -> None:
    """Reserve room for the ends of many runs in one batch, and defer their lease events."""
    journal = yard.journal
    if journal.is_on and leases:
        room: i64 = 0
        for lease in leases:
            details = lease.job.details
            weight: i64 = 0 if details is None else size_of(details)
            room += STATE_SIZE + END_ROOM + LEASE_ROOM + 2 * weight + TAG_SIZE + error_size
        try:
            journal.make_room(min(room, journal.segment_size // 2))
        except StorageFull:
            # Each end uses the room that is reserved for ends.
            journal.note_full()
    defer_lease_events(yard)


def _finish_many(yard: Yard, ended: Ended, now_ms: i64) -> None:
    ended.batch = yard.journal.appended
    send_lease_events(yard, now_ms)


# -- reading and removing ----------------------------------------------------------------------


def peek(yard: Yard, queue: Queue, from_seq: i64, limit: i64) -> list[Job]:
    """Return jobs after a seq, in order, in any state but done."""
    assert yard.queues.get(queue.name) is queue
    return jobs_by_seq_of(queue).after(from_seq, limit)


def record_meta_of(job: Job) -> RecordMeta | None:
    """Return the record metadata of a job: tag, node and meta."""
    details = job.details
    return None if details is None else details.record_meta


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
    seqs = dead_letters_for(yard, log, queue.name, most - purged)
    if seqs:
        erase_seqs(yard, log, seqs)
    return purged + len(seqs)


def redrive(yard: Yard, queue: Queue, most: i64, now_ms: i64) -> i64:
    """Bring dead jobs back, oldest first; then put dead letters again as new jobs.

    A dead letter that is larger than the queue may ever be stays, and does not hold up others.
    TopicFull and YardFull if there is no room for any of them.
    """
    bound = min(most, queue.dead.live_count)
    driven: i64 = kick(yard, queue, bound, now_ms) if bound > 0 else 0
    log = yard.logs.get(config_of(queue).dead_letter or "")
    if log is None or driven >= most:
        return driven
    too_large: WriteTooLarge | None = None
    for seq in dead_letters_for(yard, log, queue.name, most - driven):
        try:
            record = record_of_letter(read_dead_letter(yard, log, seq))
            write_again(yard, queue, log, seq, record, None, now_ms)
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


def write_again(
    yard: Yard,
    queue: Queue,
    log: LogTopic,
    seq: i64,
    record: NewRecord,
    keys: NewKeys | None,
    now_ms: i64,
) -> i64:
    """Turn a dead letter into a job, in one batch with the new key of that; return its seq.

    The job has the id that its client chose for it, unless another job has that by now.
    """
    if owner_seq_of(yard, record.job_id) > 0:
        record.job_id = ""
    batch = JobBatch(yard)
    batch.add(record)
    batch.record_keys = keys
    batch.room += DEAD_LETTER_ROOM
    produced = produce_batch(yard, queue, batch, "", now_ms, may_exceed=False)
    erase_seqs(yard, log, [int(seq)])
    return produced.first_seq
