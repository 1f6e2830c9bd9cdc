"""Claim sets: a claim with an id takes jobs once, and the same id shows the same jobs again.

The leases of a claim set are durable, whatever the queue is configured to: they outlive the server
as the set does. A large claim is made in slices; the set is stored with its last job, so a crash in
the middle leaves leases that expire, and no set. A set without any job is not stored.
"""

from typing import Final, final

from mypy_extensions import i64

from jobyard.engine.jobs.durable_leases import ensure_room, keep_lease, lease_name
from jobyard.engine.jobs.finish import touch, untake
from jobyard.engine.jobs.listing import jobs_by_seq_of
from jobyard.engine.jobs.take import take_one
from jobyard.engine.state.tasks import Task
from jobyard.engine.state.timers import Alarm
from jobyard.engine.state.yard import Yard
from jobyard.engine.topics.stages import TooManyTxns, count_memory, forget_stored
from jobyard.engine.topics.topic_queue import (
    CLAIM_SIZE_MAX,
    by_seq,
    forget_idle,
    node_leases,
    terms_of,
)
from jobyard.errors import Refused, YardFull
from jobyard.journal.format.record import ENTRY_SIZE
from jobyard.model.entry import Entry, EntryKind
from jobyard.model.lease import Lease
from jobyard.model.limits import NEVER_MS
from jobyard.model.queue import Queue
from jobyard.model.topic.claim_set import ClaimSet, claim_key, decode_claim_set
from jobyard.model.topic.config import clamp_lease_ms

# Units of work to lease a job, and to renew a lease.
_LEASE_UNITS: Final = 4
# Jobs of a set that one ring of its alarm looks at, and sets that one claim forgets.
_CHECKED: Final = 1000
_FORGOTTEN: Final = 16


class ClaimInProgress(Refused):
    """A claim with the same id is being made."""


class ClaimDiffers(Refused):
    """The id was used by another node."""


def find_claim_set(yard: Yard, queue: Queue, claim_id: str) -> ClaimSet | None:
    """Return the claim set with an id."""
    return yard.txns.claim_sets.get(claim_key(queue.name, claim_id))


def live_lease(yard: Yard, claim_set: ClaimSet, each: i64, now_ms: i64) -> Lease | None:
    """Return one lease of a set; None if it has ended."""
    queue = yard.queues.get(claim_set.queue)
    job = None if queue is None else jobs_by_seq_of(queue).find(i64(claim_set.seqs[each]))
    lease = None if job is None else job.lease
    if lease is None or not lease.terms.is_node(claim_set.node):
        return None
    if lease.sort_key <= now_ms or lease_name(yard, lease) != claim_set.names[each]:
        return None
    return lease


@final
class SetClaiming(Task):
    """Claims the jobs of a set, or finds the set that was claimed before."""

    def __init__(
        self, yard: Yard, queue: Queue, claim_id: str, node: str, most: i64, lease_ms: i64
    ) -> None:
        super().__init__()
        self._yard = yard
        self._queue = queue
        self._claim_id: str = claim_id
        self._node: str = node
        self._most: i64 = most
        self._terms = terms_of(queue, node, lease_ms)
        self._terms.is_durable = True
        self._leases: list[Lease] = []
        self._size: i64 = 0
        self._key: str = ""
        # The result; None if there is no job.
        self.claim_set: ClaimSet | None = None
        self.is_duplicate: bool = False

    def step(self, most: i64, now_ms: i64) -> i64:
        """Lease some jobs; store the set when there are enough."""
        if not self._key and self._is_known(now_ms):
            return 0
        done: i64 = 0
        while done < most and self._takes_one(now_ms):
            done += _LEASE_UNITS
        if done >= most:
            return done
        self._yard.txns.claiming.discard(self._key)
        if self._leases:
            self._store(now_ms)
        return done

    def _is_known(self, now_ms: i64) -> bool:
        """Return whether the set was claimed before; if not, begin to claim it."""
        yard = self._yard
        txns = yard.txns
        known = find_claim_set(yard, self._queue, self._claim_id)
        if known is not None:
            if known.node != self._node:
                raise ClaimDiffers(f"claim {self._claim_id} was made by node {known.node}")
            self.claim_set = known
            self.is_duplicate = True
            txns.repeated_count += 1
            return True
        key = claim_key(self._queue.name, self._claim_id)
        if key in txns.claiming:
            raise ClaimInProgress(f"claim {self._claim_id} is being made")
        _forget_old(yard, now_ms)
        if txns.claim_sets.count() >= txns.txns_max:
            raise TooManyTxns(f"{int(txns.txns_max)} claim sets are remembered")
        self._key = key
        txns.claiming.add(key)
        return False

    def _takes_one(self, now_ms: i64) -> bool:
        """Lease one more job; False if there are enough, or no more."""
        if len(self._leases) >= self._most or self._size >= CLAIM_SIZE_MAX:
            return False
        yard = self._yard
        queue = self._queue
        if yard.queues.get(queue.name) is not queue:
            # It was removed between two slices.
            return False
        lease_set = node_leases(yard, self._node)
        try:
            lease = take_one(yard, queue, lease_set, self._terms, now_ms)
        except YardFull:
            forget_idle(yard, self._node)
            if self._leases:
                return False
            yard.txns.claiming.discard(self._key)
            raise
        if lease is None:
            forget_idle(yard, self._node)
            return False
        self._leases.append(lease)
        self._size += len(lease.body)
        return True

    def _store(self, now_ms: i64) -> None:
        """Store the set with the jobs that are still leased; without room, give them back."""
        yard = self._yard
        leases = by_seq([one for one in self._leases if one.job.lease is one])
        seqs = [int(one.job.key) for one in leases]
        names = [lease_name(yard, one) for one in leases]
        claim_set = ClaimSet(self._queue.name, self._claim_id, self._node, seqs, names)
        claim_set.count = len(self._leases)
        claim_set.until_ms = now_ms + yard.txns.remembered_ms
        try:
            _write(yard, claim_set, now_ms)
        except YardFull:
            untake(yard, leases, now_ms)
            raise
        yard.txns.claim_sets.put(self._key, claim_set)
        count_memory(yard, claim_set.size())
        yard.arm(_SetAlarm(yard, claim_set), now_ms + self._terms.ttl_ms + 1)
        self.claim_set = claim_set


def _write(yard: Yard, claim_set: ClaimSet, now_ms: i64) -> None:
    """Store a set; YardFull changes nothing."""
    journal = yard.journal
    if not journal.is_on:
        return
    key = claim_set.key().encode()
    value = claim_set.encode(journal.wall_offset_ms)
    if not journal.admit_change(ENTRY_SIZE + len(key) + len(value), now_ms):
        raise YardFull
    journal.set_entry(EntryKind.CLAIM_SET, key, value)


@final
class _SetAlarm(Alarm):
    """Rings when the leases of a set may all have ended, which frees its memory."""

    def __init__(self, yard: Yard, claim_set: ClaimSet) -> None:
        super().__init__(yard.new_number(), NEVER_MS, 0)
        self._yard = yard
        self._claim_set = claim_set

    def ring(self, now_ms: i64) -> None:
        """Drop jobs that have ended from the end of the set; store that none is left."""
        yard = self._yard
        claim_set = self._claim_set
        if yard.txns.claim_sets.get(claim_set.key()) is not claim_set:
            return
        before = claim_set.size()
        left: i64 = _CHECKED
        until_ms: i64 = now_ms + 1
        while claim_set.seqs and left > 0:
            lease = live_lease(yard, claim_set, len(claim_set.seqs) - 1, now_ms)
            if lease is not None:
                until_ms = max(lease.until_ms + 1, until_ms)
                break
            claim_set.seqs.pop()
            claim_set.names.pop()
            left -= 1
        count_memory(yard, claim_set.size() - before)
        if claim_set.seqs:
            yard.arm(self, until_ms)
        else:
            _write(yard, claim_set, now_ms)


@final
class SetExtension(Task):
    """Makes all leases of a set end `lease_ms` after the call."""

    def __init__(self, yard: Yard, claim_set: ClaimSet, lease_ms: i64, now_ms: i64) -> None:
        super().__init__()
        self._yard = yard
        self._claim_set = claim_set
        self._ttl_ms: i64 = clamp_lease_ms(lease_ms)
        self._next: i64 = 0
        # The time that all leases get, though it takes several turns.
        self.until_ms: i64 = now_ms + self._ttl_ms
        self.count: i64 = 0

    def step(self, most: i64, now_ms: i64) -> i64:
        """Renew some leases."""
        yard = self._yard
        claim_set = self._claim_set
        done: i64 = 0
        while done < most and self._next < len(claim_set.seqs):
            lease = live_lease(yard, claim_set, self._next, now_ms)
            self._next += 1
            done += 1
            if lease is None:
                continue
            ensure_room(yard, lease.job, claim_set.node)
            touch(yard, lease, max(self.until_ms - now_ms, 1), now_ms)
            keep_lease(yard, lease)
            self.count += 1
            done += _LEASE_UNITS
        return max(done, most) if self._next < len(claim_set.seqs) else min(done, most - 1)


# -- forgetting, and a start -------------------------------------------------------------------


def _forget_old(yard: Yard, now_ms: i64) -> None:
    """Forget some sets whose time is over; no record is written, as for outcomes."""
    claim_sets = yard.txns.claim_sets
    for _ in range(_FORGOTTEN):
        oldest = claim_sets.oldest()
        if oldest is None or oldest[1].until_ms > now_ms:
            return
        claim_sets.remove_oldest()
        count_memory(yard, -oldest[1].size())
        forget_stored(yard, EntryKind.CLAIM_SET, oldest[0])


def load_claim_sets(yard: Yard, now_ms: i64) -> None:
    """Restore the claim sets after a start, when durable leases have been resumed."""
    journal = yard.journal
    found: list[tuple[int, str, ClaimSet, Entry]] = []
    for entry in journal.entries.values():
        if entry.kind != EntryKind.CLAIM_SET or entry.is_gone:
            continue
        key = entry.key.decode()
        claim_set = decode_claim_set(key, entry.value, journal.wall_offset_ms)
        claim_set.until_ms = min(claim_set.until_ms, now_ms + yard.txns.remembered_ms)
        found.append((int(claim_set.until_ms), key, claim_set, entry))
    found.sort(key=_until_of)
    for until_ms, key, claim_set, entry in found:
        if until_ms <= now_ms:
            journal.forget_entry(entry)
            continue
        yard.txns.claim_sets.put(key, claim_set)
        count_memory(yard, claim_set.size())
        if claim_set.seqs:
            yard.arm(_SetAlarm(yard, claim_set), now_ms + 1)


def _until_of(item: tuple[int, str, ClaimSet, Entry]) -> int:
    return item[0]
