"""Job ids and lock tokens as bunqueue clients see them: UUIDs that need no table.

A job's UUIDv7 holds the wall time of its put, its number, and ten check bits, so any of our own ids
is found by arithmetic and any other is told apart. A token holds the boot and the number of the
lease; it dies with the boot.
"""

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64, u8

from jobyard.engine.yard import STAMP_SHIFT, Yard
from jobyard.model.job import BUNQUEUE, Job

UUID_SIZE: Final = 36

_DASH: Final[u8] = 45


def _digit(value: i64) -> u8:
    return u8(48 + value) if value < 10 else u8(87 + value)


def _write_hex(out: BytesWriter, number: i64, digits: i64) -> None:
    shift: i64 = (digits - 1) * 4
    while shift >= 0:
        out.append(_digit((number >> shift) & 15))
        shift -= 4


def _check_bits(job_id: i64) -> i64:
    return ((job_id * 40503) >> 7) & 0x3FF


def _time_of(job: Job) -> i64:
    # The stamp of a job of another family never changes, and begins with the time of its put.
    return job.own_ms if job.family == BUNQUEUE else job.stamp >> STAMP_SHIFT


def write_uuid(out: BytesWriter, job: Job) -> None:
    """Append the 36 characters of a job's own id."""
    time_ms = _time_of(job)
    job_id = job.id
    # 62 bits after the variant: the low 52 of the number, then the check bits.
    low: i64 = (job_id & ((1 << 52) - 1)) << 10 | _check_bits(job_id)
    _write_hex(out, time_ms >> 16, 8)
    out.append(_DASH)
    _write_hex(out, time_ms & 0xFFFF, 4)
    out.append(_DASH)
    _write_hex(out, 0x7000 | (job_id >> 52), 4)
    out.append(_DASH)
    _write_hex(out, 0x8000 | (low >> 48), 4)
    out.append(_DASH)
    _write_hex(out, low & 0xFFFFFFFFFFFF, 12)


def id_bytes(job: Job) -> bytes:
    """Return the id by which clients know a job."""
    extra = job.extra
    if extra is not None and extra.custom_id:
        return extra.custom_id.encode()
    out = BytesWriter()
    write_uuid(out, job)
    return out.getvalue()


def id_text(job: Job) -> str:
    """Return the id by which clients know a job, as text."""
    return id_bytes(job).decode()


def _hex(data: bytes, at: i64, digits: i64) -> i64:
    """Return the number in so many hex digits, or -1."""
    number: i64 = 0
    end = at + digits
    while at < end:
        byte: i64 = data[at]
        if 48 <= byte <= 57:
            value: i64 = byte - 48
        elif 97 <= byte <= 102:
            value = byte - 87
        else:
            return -1
        number = number << 4 | value
        at += 1
    return number


def find_job(yard: Yard, name: bytes) -> Job | None:
    """Return the job that clients know by this id."""
    if len(name) == UUID_SIZE and name[14] == 55:
        high = _hex(name, 15, 3)
        middle = _hex(name, 19, 4)
        low = _hex(name, 24, 12)
        time_high = _hex(name, 0, 8)
        time_low = _hex(name, 9, 4)
        if high >= 0 and middle >= 0x8000 and low >= 0 and time_high >= 0 and time_low >= 0:
            rest: i64 = (middle & 0x3FFF) << 48 | low
            job_id: i64 = high << 52 | rest >> 10
            job = yard.jobs.get(job_id)
            if (
                job is not None
                and rest & 0x3FF == _check_bits(job_id)
                and _time_of(job) == (time_high << 16 | time_low)
                and (job.extra is None or not job.extra.custom_id)
            ):
                return job
    custom = yard.names.custom
    return custom.get(name.decode("utf-8", "replace")) if custom else None


def token_bytes(yard: Yard, number: i64) -> bytes:
    """Return the token of a lease."""
    out = BytesWriter()
    _write_hex(out, yard.journal.epoch, 8)
    out.append(_DASH)
    _write_hex(out, (number >> 48) & 0xFFFF, 4)
    out.append(_DASH)
    _write_hex(out, 0x4000 | _check_bits(number), 4)
    out.append(_DASH)
    _write_hex(out, 0x8000, 4)
    out.append(_DASH)
    _write_hex(out, number & 0xFFFFFFFFFFFF, 12)
    return out.getvalue()


def token_number(yard: Yard, token: bytes) -> i64:
    """Return the number of the lease a token belongs to, or -1."""
    if len(token) != UUID_SIZE or _hex(token, 0, 8) != yard.journal.epoch:
        return -1
    high = _hex(token, 9, 4)
    low = _hex(token, 24, 12)
    if high < 0 or low < 0:
        return -1
    number: i64 = high << 48 | low
    return number if token == token_bytes(yard, number) else -1


def was_issued(yard: Yard, name: bytes) -> bool:
    """Tell whether an id is one that a job was given here, be it there still or not."""
    if len(name) != UUID_SIZE or name[14] != 55:
        return False
    high = _hex(name, 15, 3)
    middle = _hex(name, 19, 4)
    low = _hex(name, 24, 12)
    if high < 0 or middle < 0x8000 or low < 0:
        return False
    rest: i64 = (middle & 0x3FFF) << 48 | low
    job_id: i64 = high << 52 | rest >> 10
    return 0 < job_id < yard.journal.next_id and rest & 0x3FF == _check_bits(job_id)
