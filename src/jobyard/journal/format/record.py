"""The bytes of each record. All integers are little-endian; lengths include everything.

Every record begins with eight bytes: kind u8, three small fields a b c u8, length i32. Then:

    PUT      a family, b codec, c list   8 id, 16 queue i32, 20 size i32, 24 rank, 32 created
                                         40 due, 48 stamp, 56 own, 64 seq, 72 policy i32
                                         76 size of the details i32, 80 body, details
    MOVED    a family, b codec, c state  as PUT up to 80, then the state block, 152 body, details
    LEASE    a door, b family            8 id, 16 number, 24 at, 32 ttl
                                         40 holder, 32 bits of it, 44 queue i32, 48 seq
                                         56 deliveries i32, 60 worker i32
    END      a why, b next state, c list  8 id, 16 queue i32, 20 base segment i32, 24 rank, 32 due
                                         40 stamp*, 48 attempts i16, 50 door u8, 51 family u8
                                         52 deliveries i32, 56 created, 64 available, 72 claimed
                                         80 finished, 88 holder, 32 bits of it, 92 worker i32
                                         96 number of the lease, 104 seq, 112 policy i32
                                         116 custom id as a field, changes
    WORKER   -                           8 checksum of the name i32, 12 name size i32, 16 name
    MOVE     a why, b state, c list      8 id, 16 rank, 24 due, 32 stamp*, 40 at
                                         48 attempts i32, 52 queue i32, 56 changes
    GONE     a why, b 1 if of an old body  8 id, 16 queue i32, 20 base segment i32, 24 at
    STATE    c state                     8 id, 16 state block, 88 stamp, 96 details
    NOTE     -                           8 id, 16 changes
    QUEUE    -                           8 number i32, 12 name size i32, 16 next seq, 24 name
    ENTRY    a kind, b 1 if it is gone   8 key size i32, 12 value size i32, 16 up to, 24 key, value
    ALIVE    -                           8 numbers of all other segments, i32 each
    DROPPED  -                           8 segment number
    CLEAN    -                           nothing: the server stopped cleanly

    state block, 72 bytes: 0 rank, 8 due, 16 delay, 24 deliveries i32, 28 attempts i32
                           32 timeouts, 36 releases, 40 buries, 44 kicks i32, 48 ending, 56 ended
                           64 stalls i32, 68 0 i32

Bits 4 and 5 of c are the ready list, also where c is a state.

(*) if the job ends (done or dead): its number among the ended jobs of the queue.

The worker of a run is the offset of a WORKER in the same file, 0 if it is unknown; a segment has
the name of a worker before the first record that refers to it. Up to format 4 a LEASE ends after
48 bytes, and the changes of an END begin at 96; the family of such an END is 0.

Details and changes are fields as `model.details` writes them: all of the rare parts of a job, or
those that changed.

A body over INLINE_BODY_MAX is stored in part 2 of its batch; in its place the record has the offset
in part 2 and the checksum of the body, 8 bytes each. An inline body needs no checksum on disk: the
batch's covers it, and when the body leaves memory the job keeps one in memory (150 ns a put).

A PUT or MOVED is the *base* of its job: for each live job, only the newest counts. Every other
record changes a job that has a base.
"""

from typing import Final, final
from zlib import crc32

from librt.strings import BytesWriter, read_i32_le, write_i32_le, write_i64_le
from mypy_extensions import i32, i64

from jobyard.model.ahead import EncodedAhead
from jobyard.model.details_codec import FieldWriter, Tag, encode_details
from jobyard.model.entry import Entry
from jobyard.model.job import DEAD, DONE, LEASED, READY, Job
from jobyard.model.lease import Lease
from jobyard.model.limits import INLINE_BODY_MAX, WORKER_NAME_MAX
from jobyard.model.transition import Transition

KIND_PUT: Final = 1
KIND_LEASE: Final = 2
KIND_END: Final = 3
KIND_MOVE: Final = 4
KIND_GONE: Final = 5
KIND_QUEUE: Final = 6
KIND_DROPPED: Final = 7
KIND_MOVED: Final = 8
KIND_STATE: Final = 9
KIND_ALIVE: Final = 10
KIND_CLEAN: Final = 11
KIND_NOTE: Final = 12
KIND_ENTRY: Final = 13
KIND_WORKER: Final = 20


@final
class Cause:
    """Why a run ended (END), a job moved (MOVE) or left (GONE)."""

    FINISHED: Final = 1
    RELEASED: Final = 2
    BURIED: Final = 3
    EXPIRED: Final = 4
    HOLDER_LEFT: Final = 5
    KICKED: Final = 6
    REMOVED: Final = 7
    CORRUPT: Final = 8
    FAILED: Final = 9
    STALLED: Final = 10
    REVIVED: Final = 11
    PROMOTED: Final = 12
    RANKED: Final = 13
    DUE_SET: Final = 14
    UNBLOCKED: Final = 15
    PARKED: Final = 16
    # Released; for a job that counts its attempts, this is a failed one.
    HANDED_BACK: Final = 17
    # It became a dead letter, at the end of a run or when it would have been taken once more.
    DEAD_LETTERED: Final = 18
    # Of END: its boot ended first. Found by the next start, and only for history: the job is as it
    # is without this record.
    ABANDONED: Final = 19


# In the state of a MOVED: it has a new body, and the previous base stays on disk.
NEW_BODY: Final = 0x80
STATE_BITS: Final = 0x0F
# Above the state bits, and in the same place if there is no state.
READY_LIST_SHIFT: Final = 4
READY_LIST_BITS: Final = 3
# The bits of the holder's number that a LEASE stores.
HOLDER_BITS: Final = 0xFFFFFFFF
# Those of the failed attempts in an END, below the door and the family.
ATTEMPTS_BITS: Final = 0xFFFF

PUT_SIZE: Final = 80
MOVED_SIZE: Final = 152
# The size of the reference to a body in part 2.
LONG_BODY_SIZE: Final = 16
LEASE_SIZE: Final = 64
END_SIZE: Final = 116
# Without what format 5 added.
LEASE_SIZE_4: Final = 48
END_SIZE_4: Final = 96
WORKER_SIZE: Final = 16
# The most that the name of a worker takes before the record that refers to it.
WORKER_ROOM: Final = WORKER_SIZE + WORKER_NAME_MAX
LEASE_ROOM: Final = LEASE_SIZE + WORKER_ROOM
END_ROOM: Final = END_SIZE + WORKER_ROOM
MOVE_SIZE: Final = 56
GONE_SIZE: Final = 32
STATE_SIZE: Final = 96
QUEUE_SIZE: Final = 24
DROPPED_SIZE: Final = 16
NOTE_SIZE: Final = 16
ENTRY_SIZE: Final = 24


def _begin(out: BytesWriter, kind: i64, a: i64, b: i64, c: i64, length: i64) -> None:
    # One write of eight bytes costs as much as one of a single byte.
    write_i64_le(out, kind | a << 8 | b << 16 | c << 24 | length << 32)


def base_length(fixed: i64, size: i64) -> i64:
    """Return the length of a PUT or MOVED in part 1 without its details."""
    return fixed + (size if size <= INLINE_BODY_MAX else LONG_BODY_SIZE)


def write_put(out: BytesWriter, job: Job, body: bytes, details: bytes, part2_offset: i64) -> None:
    """Encode the put of a job; `part2_offset` is used only when the body is too long to inline."""
    _begin_put(out, job, len(details))
    _write_body(out, job, body, part2_offset)
    if details:
        out.write(details)


def write_put_ahead(
    out: BytesWriter, job: Job, ahead: EncodedAhead, first_id: i64, offset: i64
) -> i64:
    """Encode the put of the next job that was encoded ahead; return the size of its details."""
    weight = ahead.next_weight()
    _begin_put(out, job, weight)
    if job.size > INLINE_BODY_MAX:
        _write_body(out, job, b"", offset)
    ahead.write(out, first_id)
    return weight


def _begin_put(out: BytesWriter, job: Job, details_size: i64) -> None:
    length = base_length(PUT_SIZE, i64(job.size)) + details_size
    ready_list = i64(job.ready_list) << READY_LIST_SHIFT
    _begin(out, KIND_PUT, i64(job.family), i64(job.codec), ready_list, length)
    _write_identity(out, job, details_size)


def write_moved(
    out: BytesWriter, job: Job, body: bytes, part2_offset: i64, *, is_new_body: bool = False
) -> i64:
    """Encode everything about a live job, as it is now; return the size of its details."""
    details = details_bytes(job)
    length = base_length(MOVED_SIZE, i64(job.size)) + len(details)
    state = resting_state(job) | (NEW_BODY if is_new_body else 0)
    _begin(out, KIND_MOVED, i64(job.family), i64(job.codec), state, length)
    _write_identity(out, job, len(details))
    _write_state(out, job)
    _write_body(out, job, body, part2_offset)
    if details:
        out.write(details)
    return len(details)


def details_bytes(job: Job) -> bytes:
    """Return the rare parts of a job as fields."""
    details = job.details
    return b"" if details is None else encode_details(details)


def entering_bytes(job: Job) -> bytes:
    """Return the details of a new job as fields; frees them if they were encoded ahead."""
    details = job.details
    if details is None:
        return b""
    ahead = details.ahead
    if not ahead:
        return encode_details(details)
    details.ahead = b""
    return ahead


def resting_state(job: Job) -> i64:
    """Return state and ready list of a job after a restart: leases end with the boot."""
    return (
        READY if job.state == LEASED else i64(job.state) | i64(job.ready_list) << READY_LIST_SHIFT
    )


def _write_identity(out: BytesWriter, job: Job, details_size: i64) -> None:
    write_i64_le(out, job.id)
    write_i32_le(out, i32(job.queue.number))
    write_i32_le(out, job.size)
    write_i64_le(out, job.rank)
    write_i64_le(out, job.created_ms)
    write_i64_le(out, job.due_ms)
    write_i64_le(out, job.stamp)
    write_i64_le(out, job.own_ms)
    write_i64_le(out, job.key)
    write_i64_le(out, job.policy.number | details_size << 32)


def _write_body(out: BytesWriter, job: Job, body: bytes, part2_offset: i64) -> None:
    if job.size <= INLINE_BODY_MAX:
        out.write(body)
    else:
        write_i64_le(out, part2_offset)
        write_i64_le(out, job.crc)


def _write_state(out: BytesWriter, job: Job) -> None:
    write_i64_le(out, job.rank)
    write_i64_le(out, job.due_ms)
    write_i64_le(out, job.delay_ms)
    write_i32_le(out, job.deliveries)
    write_i32_le(out, i32(job.attempts))
    details = job.details
    if details is None:
        for _ in range(5):
            write_i64_le(out, 0)
        return
    counters = details.counters
    if counters is None:
        write_i64_le(out, 0)
        write_i64_le(out, 0)
    else:
        write_i32_le(out, counters.timeouts)
        write_i32_le(out, counters.releases)
        write_i32_le(out, counters.buries)
        write_i32_le(out, counters.kicks)
    outcome = details.outcome
    if outcome is None:
        write_i64_le(out, 0)
        write_i64_le(out, 0)
    else:
        write_i64_le(out, outcome.key)
        write_i64_le(out, outcome.ended_ms)
    write_i64_le(out, 0 if counters is None else i64(counters.stalls))


def write_state(out: BytesWriter, job: Job) -> None:
    """Encode everything that can change of a job whose base is elsewhere."""
    details = details_bytes(job)
    _begin(out, KIND_STATE, 0, 0, resting_state(job), STATE_SIZE + len(details))
    write_i64_le(out, job.id)
    _write_state(out, job)
    write_i64_le(out, job.stamp)
    if details:
        out.write(details)


def write_note(out: BytesWriter, job: Job, changed_fields: bytes) -> None:
    """Encode changes of a job that affect neither its state nor its position."""
    _begin(out, KIND_NOTE, 0, 0, 0, NOTE_SIZE + len(changed_fields))
    write_i64_le(out, job.id)
    out.write(changed_fields)


def write_lease(out: BytesWriter, lease: Lease, worker_at: i64) -> None:
    """Encode the start of a lease, which is about to be counted as a delivery."""
    job = lease.job
    _begin(out, KIND_LEASE, lease.terms.door, i64(job.family), 0, LEASE_SIZE)
    write_i64_le(out, job.id)
    write_i64_le(out, lease.row_number)
    write_i64_le(out, lease.started_ms)
    write_i64_le(out, lease.ttl_ms)
    write_i64_le(out, (lease.row_holder & HOLDER_BITS) | job.queue.number << 32)
    write_i64_le(out, job.key)
    write_i64_le(out, i64(job.deliveries) + 1 | worker_at << 32)


def write_worker(out: BytesWriter, name: bytes) -> None:
    """Encode the name of a worker, to which the records of its runs refer."""
    _begin(out, KIND_WORKER, 0, 0, 0, WORKER_SIZE + len(name))
    write_i64_le(out, i64(crc32(name)) | len(name) << 32)
    out.write(name)


def worker_named(data: bytes, at: i64) -> bytes | None:
    """Return the name in a WORKER record, or None if there is no such record."""
    if len(data) < at + WORKER_SIZE or data[at] != KIND_WORKER:
        return None
    end = at + WORKER_SIZE + i64(read_i32_le(data, at + 12))
    if not at + WORKER_SIZE <= end <= len(data):
        return None
    name = data[at + WORKER_SIZE : end]
    is_whole = i64(read_i32_le(data, at + 8)) & HOLDER_BITS == i64(crc32(name))
    return name if is_whole else None


def is_row_of_gone(data: bytes, pos: i64) -> bool:
    """Return whether a GONE is the end of a job, not a copy or the end of an old body."""
    return read_i32_le(data, pos + 16) != 0 and data[pos + 2] == 0


def is_row(data: bytes, pos: i64) -> bool:
    """Return whether a record is a row of history."""
    kind: i64 = data[pos]
    return kind < KIND_GONE or (kind == KIND_GONE and is_row_of_gone(data, pos))


def changes_at(data: bytes, pos: i64) -> i64:
    """Return where the changes in an END begin."""
    return pos + (END_SIZE if data[pos + 51] != 0 else END_SIZE_4)


def end_identity(job: Job) -> bytes:
    """Return what the end of a run repeats of a job's identity, as fields."""
    details = job.details
    if details is None or not details.custom_id:
        return b""
    fields = FieldWriter()
    fields.text(Tag.CUSTOM_ID, details.custom_id)
    return fields.done()


def write_end(
    out: BytesWriter,
    job: Job,
    lease: Lease | None,
    end: Transition,
    now_ms: i64,
    worker_at: i64,
    identity: bytes,
) -> None:
    """Encode the end of a run, with all that history shows of the attempt."""
    changed_fields = end.changed_fields
    ready_list = end.ready_list << READY_LIST_SHIFT
    size: i64 = END_SIZE + len(identity) + len(changed_fields)
    _begin(out, KIND_END, end.why, end.state, ready_list, size)
    write_i64_le(out, job.id)
    write_i32_le(out, i32(job.queue.number))
    write_i32_le(out, i32(job.place >> 32))
    write_i64_le(out, end.rank)
    write_i64_le(out, end.due_ms)
    write_i64_le(out, _stamp_or_ending(job, end.state, end.stamp))
    door: i64 = 0
    started_ms: i64 = 0
    holder: i64 = 0
    number: i64 = 0
    if lease is not None:
        door = lease.terms.door
        started_ms = lease.started_ms
        holder = lease.row_holder & HOLDER_BITS
        number = lease.row_number
    who = end.attempts | door << 16 | i64(job.family) << 24
    write_i64_le(out, who | i64(job.deliveries) << 32)
    write_i64_le(out, job.created_ms)
    write_i64_le(out, job.due_ms)
    write_i64_le(out, started_ms)
    write_i64_le(out, now_ms)
    write_i64_le(out, holder | worker_at << 32)
    write_i64_le(out, number)
    write_i64_le(out, job.key)
    write_i32_le(out, i32(job.policy.number))
    if identity:
        out.write(identity)
    if changed_fields:
        out.write(changed_fields)


def write_move(out: BytesWriter, job: Job, move: Transition, now_ms: i64) -> None:
    """Encode a change of state that ends no run."""
    changed_fields = move.changed_fields
    ready_list = move.ready_list << READY_LIST_SHIFT
    _begin(out, KIND_MOVE, move.why, move.state, ready_list, MOVE_SIZE + len(changed_fields))
    write_i64_le(out, job.id)
    write_i64_le(out, move.rank)
    write_i64_le(out, move.due_ms)
    write_i64_le(out, _stamp_or_ending(job, move.state, move.stamp))
    write_i64_le(out, now_ms)
    write_i64_le(out, move.attempts | job.queue.number << 32)
    if changed_fields:
        out.write(changed_fields)


def _stamp_or_ending(job: Job, state: i64, stamp: i64) -> i64:
    return job.queue.endings + 1 if state in (DEAD, DONE) else stamp


def write_gone(
    out: BytesWriter,
    why: i64,
    job_id: i64,
    queue: i64,
    base: i64,
    now_ms: i64,
    *,
    is_old: bool = False,
) -> None:
    """Encode the removal of a job; the record is kept as long as segment `base` exists.

    With `is_old` it removes an older base of the job; another record removes the newest.
    """
    _begin(out, KIND_GONE, why, 1 if is_old else 0, 0, GONE_SIZE)
    write_i64_le(out, job_id)
    write_i32_le(out, i32(queue))
    write_i32_le(out, i32(base))
    write_i64_le(out, now_ms)


def write_queue(out: BytesWriter, number: i64, next_seq: i64, name: bytes) -> None:
    """Encode the number by which later records refer to a queue."""
    _begin(out, KIND_QUEUE, 0, 0, 0, QUEUE_SIZE + len(name))
    write_i32_le(out, i32(number))
    write_i32_le(out, i32(len(name)))
    write_i64_le(out, next_seq)
    out.write(name)


def write_entry(out: BytesWriter, entry: Entry) -> None:
    """Encode a value that is set for the whole yard or one queue, or its removal."""
    length: i64 = ENTRY_SIZE + len(entry.key) + len(entry.value)
    _begin(out, KIND_ENTRY, entry.kind, i64(entry.is_gone), 0, length)
    write_i32_le(out, i32(len(entry.key)))
    write_i32_le(out, i32(len(entry.value)))
    write_i64_le(out, entry.up_to)
    out.write(entry.key)
    out.write(entry.value)


def write_dropped(out: BytesWriter, segment: i64) -> None:
    """Encode that a segment is about to be removed, so that recovery does not require it."""
    _begin(out, KIND_DROPPED, 0, 0, 0, DROPPED_SIZE)
    write_i64_le(out, segment)


def write_alive(out: BytesWriter, segments: list[int]) -> None:
    """Encode which other segments must exist when this record is read back."""
    _begin(out, KIND_ALIVE, 0, 0, 0, 8 + 4 * len(segments))
    for number in segments:
        write_i32_le(out, i32(number))


def write_clean(out: BytesWriter) -> None:
    """Encode a clean stop."""
    _begin(out, KIND_CLEAN, 0, 0, 0, 8)
