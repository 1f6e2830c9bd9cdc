"""The verbs by which jobs enter a queue: one, or many of which all enter or none.

A session describes what it wants as a `Wish`; here is decided whether the job may enter, or which
job already stands for it.
"""

from typing import final

from mypy_extensions import i64, mypyc_attr, u8

from jobyard.engine.bus import DUPLICATED, PUSHED, Event
from jobyard.engine.take import offer
from jobyard.engine.yard import POLICIES_MAX, Yard
from jobyard.errors import YardFull
from jobyard.journal.ledger import queue_bytes
from jobyard.journal.record import ENTRY_SIZE, LONG_BODY_SIZE, PUT_SIZE
from jobyard.model.entry import POLICY
from jobyard.model.extra import Extra, size_of
from jobyard.model.job import BLOCKED, DELAYED, READY, Job
from jobyard.model.policy import LIFO, PLAIN, Policy
from jobyard.model.queue import Queue


@final
@mypyc_attr(free_list_len=1)
class Wish:
    """What a client asked for beyond queue, body and place in line."""

    def __init__(self, family: u8, codec: u8, body: bytes) -> None:
        self.family: u8 = family
        self.codec: u8 = codec
        self.body: bytes = body
        self.rank: i64 = 0
        self.delay_ms: i64 = 0
        self.own_ms: i64 = 0
        self.policy: Policy = PLAIN
        self.extra: Extra | None = None


def put(  # noqa: PLR0913, PLR0917  the fields of a put are the protocol's
    yard: Yard,
    queue: Queue,
    family: u8,
    codec: u8,
    rank: i64,
    delay_ms: i64,
    own_ms: i64,
    body: bytes,
    now_ms: i64,
) -> Job:
    """Add a plain job, and hand it to the first who waits there; YardFull changes nothing."""
    journal = yard.journal
    size: i64 = len(body)
    if not yard.bodies.admits(size):
        raise YardFull
    if journal.is_on and not journal.admit(size + _name_room(queue), now_ms):
        raise YardFull
    job = _enter(yard, queue, family, codec, rank, delay_ms, own_ms, body, PLAIN, None, now_ms)
    if queue.first_link is not None:
        offer(yard, queue, now_ms)
    return job


def room_for(queue: Queue, wish: Wish) -> i64:
    """Return the most bytes of the journal that the job of a wish takes."""
    extra = wish.extra
    size: i64 = PUT_SIZE + LONG_BODY_SIZE + len(wish.body)
    size += 0 if extra is None else size_of(extra)
    if wish.policy.number == 0 and wish.policy is not PLAIN:
        size += ENTRY_SIZE + 16 + len(wish.policy.text)
    return size + _name_room(queue)


def make_room(yard: Yard, size: i64, now_ms: i64) -> None:
    """See that `size` bytes of jobs can be taken in, all in one batch; YardFull if not."""
    if not yard.bodies.admits(size):
        raise YardFull
    if yard.journal.is_on and not yard.journal.admit(size, now_ms):
        raise YardFull


def enter(yard: Yard, queue: Queue, wish: Wish, now_ms: i64) -> Job:
    """Add the job of a wish; room was made, and no key or name stands against it.

    Who waits is not served yet: the records of several jobs may have to lie in one batch.
    """
    policy = wish.policy
    if policy.number == 0 and policy is not PLAIN:
        _remember(yard, policy)
    return _enter(
        yard,
        queue,
        wish.family,
        wish.codec,
        wish.rank,
        wish.delay_ms,
        wish.own_ms,
        wish.body,
        policy,
        wish.extra,
        now_ms,
    )


def _enter(  # noqa: PLR0913, PLR0917  everything a job is born with
    yard: Yard,
    queue: Queue,
    family: u8,
    codec: u8,
    rank: i64,
    delay_ms: i64,
    own_ms: i64,
    body: bytes,
    policy: Policy,
    extra: Extra | None,
    now_ms: i64,
) -> Job:
    journal = yard.journal
    job_id = journal.next_id
    journal.next_id = job_id + 1
    seq = queue.next_seq
    queue.next_seq = seq + 1
    stamp = yard.stamp(now_ms)
    if policy.flags & LIFO:
        stamp = -stamp
    job = Job(
        job_id,
        queue,
        seq,
        stamp,
        rank,
        now_ms,
        delay_ms,
        own_ms,
        policy,
        body,
        len(body),
        family,
        codec,
    )
    state: i64 = DELAYED if delay_ms > 0 else READY
    if extra is not None:
        job.extra = extra
        if extra.open_count() > 0:
            state = BLOCKED
    if journal.is_on:
        if queue.number == 0:
            journal.append_queue(queue, queue.name.encode())
        journal.append_put(job, body)
    yard.bodies.keep(job)
    yard.apply_put(job, state)
    queue.total_count += 1
    yard.puts_count += 1
    if yard.bus.is_on:
        yard.bus.tell(Event(PUSHED, queue, job, now_ms))
    return job


def _name_room(queue: Queue) -> i64:
    # A name is at most four bytes a character.
    return 0 if queue.number != 0 else 4 * queue_bytes(queue)


# -- policies ----------------------------------------------------------------------------------


def intern(yard: Yard, policy: Policy) -> Policy:
    """Return the one policy of the yard that wishes the same."""
    text = policy.encode()
    known = yard.policies.get(text)
    if known is not None:
        return known
    policy.text = text
    if len(yard.policies) >= yard.policies_max:
        _forget_unused(yard)
        # Those in use stay; to look through them again pays only once there are twice as many.
        yard.policies_max = max(POLICIES_MAX, 2 * len(yard.policies))
    yard.policies[text] = policy
    return policy


def _remember(yard: Yard, policy: Policy) -> None:
    """Give a policy its number, and write it down ahead of the first job that has it."""
    number = yard.next_policy
    if yard.journal.is_on:
        yard.journal.set_entry(POLICY, policy_key(number), policy.text)
    policy.number = number
    yard.next_policy = number + 1


def policy_key(number: i64) -> bytes:
    """Return the key of a policy in the journal."""
    return int(number).to_bytes(8, "little")


def _forget_unused(yard: Yard) -> None:
    journal = yard.journal
    for text, policy in list(yard.policies.items()):
        if policy.jobs_count == 0:
            del yard.policies[text]
            # Who is about to put a job with it must write it down again.
            number, policy.number = policy.number, 0
            entry = journal.entries.get((POLICY, policy_key(number)))
            if entry is not None:
                journal.forget_entry(entry)


def tell_duplicate(yard: Yard, owner: Job, now_ms: i64) -> None:
    """Tell that a put found its job already there."""
    if yard.bus.is_on:
        yard.bus.tell(Event(DUPLICATED, owner.queue, owner, now_ms))
