"""The options of a job, shared by all jobs with the same options.

A policy never changes. Jobs refer to one; the journal writes it once, under a number, before the
first job that has it. So a plain job of any family is as small as a beanstalk one. Policy 0 is that
of a job without options: retried forever, and kept until it is finished, not longer.
"""

from typing import Final, final

from librt.strings import BytesWriter, read_i64_le, write_i64_le
from mypy_extensions import i64

# How the wait before the next attempt grows.
BACKOFF_PLAIN: Final = 0
BACKOFF_EXPONENTIAL: Final = 1
BACKOFF_FIXED: Final = 2

# What a child that failed for good does to its parent.
CHILD_BLOCKS: Final = 0
CHILD_FAILS_PARENT: Final = 1
CHILD_IGNORED: Final = 2
CHILD_REMOVED: Final = 3
CHILD_CONTINUES_PARENT: Final = 4

LIFO: Final = 1
REMOVE_DONE: Final = 2
REMOVE_DEAD: Final = 4
DURABLE: Final = 8

# Of jobs that were put without a name.
NAME_DEFAULT: Final = "default"

_NUMBERS: Final = 12
# Between the name and the options in an encoding: this byte occurs in no UTF-8 text.
_BREAK: Final = b"\xff"


@final
class Policy:
    """One set of options. `text` is its unique encoding, empty until it is known."""

    def __init__(self, number: i64) -> None:
        # Its number in the journal; 0 for the policy that needs no record.
        self.number: i64 = number
        self.text: bytes = b""
        # Jobs that have it and are not gone.
        self.jobs_count: i64 = 0
        self.name: str = NAME_DEFAULT
        # 0: no limit.
        self.max_attempts: i64 = 0
        self.backoff_kind: i64 = BACKOFF_PLAIN
        self.backoff_ms: i64 = 1000
        self.backoff_max_ms: i64 = 60_000
        self.timeout_ms: i64 = 0
        self.ttl_ms: i64 = 0
        self.stall_ms: i64 = 0
        self.flags: i64 = 0
        self.child_failure: i64 = CHILD_BLOCKS
        # Shown to clients, and limits on kept lines of a stack or log; -1 for not set.
        self.stack_limit: i64 = 10
        self.logs_kept: i64 = -1
        self.size_limit: i64 = -1
        # Options as a glide-mq client sent them; empty for none.
        self.opts: bytes = b""

    def encode(self) -> bytes:
        """Return the unique encoding of these options."""
        out = BytesWriter()
        for number in (
            self.max_attempts,
            self.backoff_kind,
            self.backoff_ms,
            self.backoff_max_ms,
            self.timeout_ms,
            self.ttl_ms,
            self.stall_ms,
            self.flags,
            self.child_failure,
            self.stack_limit,
            self.logs_kept,
            self.size_limit,
        ):
            write_i64_le(out, i64(number))
        out.write(self.name.encode())
        if self.opts:
            out.write(_BREAK)
            out.write(self.opts)
        return out.getvalue()

    def fill(self, text: bytes) -> None:
        """Set all options from an encoding."""
        self.text = text
        self.max_attempts = read_i64_le(text, 0)
        self.backoff_kind = read_i64_le(text, 8)
        self.backoff_ms = read_i64_le(text, 16)
        self.backoff_max_ms = read_i64_le(text, 24)
        self.timeout_ms = read_i64_le(text, 32)
        self.ttl_ms = read_i64_le(text, 40)
        self.stall_ms = read_i64_le(text, 48)
        self.flags = read_i64_le(text, 56)
        self.child_failure = read_i64_le(text, 64)
        self.stack_limit = read_i64_le(text, 72)
        self.logs_kept = read_i64_le(text, 80)
        self.size_limit = read_i64_le(text, 88)
        name, _, self.opts = text[8 * _NUMBERS :].partition(_BREAK)
        self.name = name.decode()


PLAIN: Final = Policy(0)


def policy_key(number: i64) -> bytes:
    """Return the key of a policy in the journal."""
    return int(number).to_bytes(8, "little")


def name_in(text: bytes) -> str:
    """Return the name in the encoding of a policy."""
    return text[8 * _NUMBERS :].partition(_BREAK)[0].decode()


def backoff_ms(policy: Policy, job_id: i64, attempts: i64) -> i64:
    """Return the wait after the given number of failed attempts.

    Jittered by a hash of job and attempt, so that jobs that failed together do not come back
    together, and a replay computes the same: 0.5 to 1.5 times the doubled base, or 0.8 to 1.2
    times a fixed one.
    """
    spread = _spread(job_id, attempts)
    if policy.backoff_kind == BACKOFF_FIXED:
        wait: i64 = policy.backoff_ms * (800 + spread * 400 // 1000) // 1000
    else:
        # A day doubled 24 times, and half as much again, is far within 64 bits.
        doubled: i64 = policy.backoff_ms << min(attempts, 24)
        wait = doubled * (500 + spread) // 1000
    return min(wait, policy.backoff_max_ms)


def exact_backoff_ms(policy: Policy, attempts: i64) -> i64:
    """Return the wait after that number of failed attempts, without jitter; 0 without backoff."""
    if policy.backoff_kind == BACKOFF_PLAIN:
        return 0
    if policy.backoff_kind == BACKOFF_FIXED:
        return policy.backoff_ms
    return policy.backoff_ms << min(max(attempts - 1, 0), 24)


def _spread(job_id: i64, attempts: i64) -> i64:
    """Return a pseudo-random number from 0 to 999 for a job and an attempt."""
    mixed: i64 = (job_id * 31 + attempts) & 0x7FFFFFFF
    mixed = (mixed * 1103515245 + 12345) & 0x7FFFFFFF
    mixed ^= mixed >> 15
    mixed = (mixed * 69069 + 1) & 0x7FFFFFFF
    return (mixed >> 8) % 1000
