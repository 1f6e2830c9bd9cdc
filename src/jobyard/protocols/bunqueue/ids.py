"""Job ids and lock tokens as bunqueue clients see them: UUIDs that need no table.

A job's UUIDv7 holds the wall time of its put, its number and ten check bits, so that our own ids
are resolved by arithmetic and foreign ids are recognized. A token holds the boot and the number of
the lease; a restart invalidates it.
"""

from typing import Final

from librt.strings import BytesWriter, read_i32_be, read_i64_be, write_i32_be, write_i64_be
from mypy_extensions import i32, i64, u8

from jobyard.engine.state.yard import STAMP_SHIFT, Yard, abs_stamp
from jobyard.model.family import BUNQUEUE, GLIDE
from jobyard.model.job import Job

UUID_SIZE: Final = 36
# The time in an id has 48 bits.
_TIME_BITS: Final = (1 << 48) - 1

_DASH: Final[u8] = 45


# One value in every byte of a word.
_ONES: Final = 0x0101010101010101
_SIXES: Final = 0x0606060606060606
_NIBBLES: Final = 0x0F0F0F0F0F0F0F0F
_ZEROS: Final = 0x3030303030303030  # the character


def _hex8(number: i64) -> i64:
    """Return the eight hex digits of the low 32 bits as the word of their characters.

    All eight at once: the nibbles are spread over the bytes, then every byte becomes its character.
    """
    word = (number & 0xFFFF0000) << 16 | (number & 0xFFFF)
    word = (word & 0x0000FF000000FF00) << 8 | (word & 0x000000FF000000FF)
    word = (word & 0x00F000F000F000F0) << 4 | (word & 0x000F000F000F000F)
    # A nibble of ten or more carries when six is added; its letter comes 39 after the digits.
    letters = (word + _SIXES) >> 4 & _ONES
    return word + _ZEROS + letters * 39


def _write8(out: BytesWriter, number: i64) -> None:
    write_i64_be(out, _hex8(number))


def _write4(out: BytesWriter, number: i64) -> None:
    write_i32_be(out, i32(_hex8(number) & 0x7FFFFFFF))


def _number8(data: bytes, at: i64) -> i64:
    """Return the number in the eight hex digits at `at`, or -1 if they are not digits."""
    word = read_i64_be(data, at)
    # Any bytes give a number; they were hex digits if encoding that number yields them again.
    nibbles = (word & _NIBBLES) + 9 * (word >> 6 & _ONES) & _NIBBLES
    number = (nibbles >> 4 & 0x00F000F000F000F0) | (nibbles & 0x000F000F000F000F)
    number = (number >> 8 & 0x0000FF000000FF00) | (number & 0x000000FF000000FF)
    number = (number >> 16 & 0xFFFF0000) | (number & 0xFFFF)
    if _hex8(number) != word:
        return -1
    return number


def _number4(data: bytes, at: i64) -> i64:
    """Return the number in the four hex digits at `at`, or -1 if they are not digits."""
    word = i64(read_i32_be(data, at))
    nibbles = (word & 0x0F0F0F0F) + 9 * (word >> 6 & 0x01010101) & 0x0F0F0F0F
    number = (nibbles >> 4 & 0x00F000F0) | (nibbles & 0x000F000F)
    number = (number >> 8 & 0xFF00) | (number & 0x00FF)
    if _hex8(number) & 0x7FFFFFFF != word:
        return -1
    return number


def _check_bits(job_id: i64) -> i64:
    return ((job_id * 40503) >> 7) & 0x3FF


def _time_of(job: Job) -> i64:
    if job.family == BUNQUEUE:
        return job.own_ms
    if job.family == GLIDE:
        # The time its client gave: the stamp of a glide-mq job changes whenever it returns.
        return job.own_ms & _TIME_BITS
    # In other families the stamp never changes and begins with the time of the put.
    return abs_stamp(job.stamp) >> STAMP_SHIFT


def has_own_name(job: Job) -> bool:
    """Return whether a job has a custom id; custom ids of glide-mq are not shown at this door."""
    details = job.details
    return details is not None and details.custom_id != "" and job.family != GLIDE


def write_uuid(out: BytesWriter, job: Job) -> None:
    """Append the 36 characters of a job's own id."""
    time_ms = _time_of(job)
    job_id = job.id
    # 62 bits after the variant: the low 52 of the number, then the check bits.
    low: i64 = (job_id & ((1 << 52) - 1)) << 10 | _check_bits(job_id)
    _write8(out, time_ms >> 16)
    out.append(_DASH)
    _write4(out, time_ms)
    out.append(_DASH)
    _write4(out, 0x7000 | (job_id >> 52))
    out.append(_DASH)
    _write4(out, 0x8000 | (low >> 48))
    out.append(_DASH)
    _write4(out, low >> 32)
    _write8(out, low)


def id_bytes(job: Job) -> bytes:
    """Return the id of a job as clients see it."""
    details = job.details
    if details is not None and has_own_name(job):
        return details.custom_id.encode()
    out = BytesWriter()
    write_uuid(out, job)
    return out.getvalue()


def id_text(job: Job) -> str:
    """Return the id of a job as clients see it, as text."""
    return id_bytes(job).decode()


def _number_of(name: bytes) -> i64:
    """Return the job number in one of our ids, or -1; the job need not exist."""
    if len(name) != UUID_SIZE or name[14] != 55:
        return -1
    if name[8] != _DASH or name[13] != _DASH or name[18] != _DASH or name[23] != _DASH:
        return -1
    high = _number4(name, 14)
    middle = _number4(name, 19)
    low_high = _number4(name, 24)
    low = _number8(name, 28)
    if high < 0 or middle < 0x8000 or low_high < 0 or low < 0:
        return -1
    rest: i64 = (middle & 0x3FFF) << 48 | low_high << 32 | low
    number: i64 = (high & 0xFFF) << 52 | rest >> 10
    if rest & 0x3FF != _check_bits(number):
        return -1
    return number


def find_job(yard: Yard, name: bytes) -> Job | None:
    """Return the job with this id, or None."""
    number = _number_of(name)
    if number >= 0:
        job = yard.jobs.get(number)
        if (
            job is not None
            and _number8(name, 0) == _time_of(job) >> 16
            and _number4(name, 9) == _time_of(job) & 0xFFFF
            and not has_own_name(job)
        ):
            return job
    names = yard.names
    return names.named(name.decode("utf-8", "replace")) if names.custom.count() > 0 else None


def token_bytes(yard: Yard, number: i64) -> bytes:
    """Return the token of a lease."""
    out = BytesWriter()
    _write8(out, yard.journal.epoch)
    out.append(_DASH)
    _write4(out, number >> 48)
    out.append(_DASH)
    _write4(out, 0x4000 | _check_bits(number))
    out.append(_DASH)
    _write4(out, 0x8000)
    out.append(_DASH)
    _write4(out, number >> 32)
    _write8(out, number)
    return out.getvalue()


def token_number(yard: Yard, token: bytes) -> i64:
    """Return the number of the lease a token belongs to, or -1."""
    if len(token) != UUID_SIZE or _number8(token, 0) != yard.journal.epoch & 0xFFFFFFFF:
        return -1
    high = _number4(token, 9)
    middle = _number4(token, 24)
    low = _number8(token, 28)
    if high < 0 or middle < 0 or low < 0:
        return -1
    number: i64 = high << 48 | middle << 32 | low
    return number if token == token_bytes(yard, number) else -1


def may_be_id(name: bytes) -> bool:
    """Return whether this is an id that a present or future job may have."""
    return _number_of(name) > 0


def was_issued(yard: Yard, name: bytes) -> bool:
    """Return whether this id was assigned to a job here, whether or not the job still exists."""
    return 0 < _number_of(name) < yard.journal.next_id
