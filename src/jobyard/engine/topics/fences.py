"""Fences: a worker that calls with a greater epoch shuts out all calls with a smaller one.

So of two drivers that believe to be the same worker, only the newer can claim, extend and commit.
The newest epoch of each worker is an entry of the journal. Callers that may not reach everything
have name spaces of their own, so that none of them can shut out a worker of others, or use up the
room for theirs.
"""

from typing import Final, final

from mypy_extensions import i64

from jobyard.engine.state.yard import Yard
from jobyard.engine.topics.stages import TooManyTxns, count_memory, forget_stored
from jobyard.errors import Refused, YardFull
from jobyard.journal.format.record import ENTRY_SIZE
from jobyard.model.entry import Entry, EntryKind
from jobyard.model.topic.claim_set import CLAIM_SET_SIZE, Fence, decode_fence

# Workers that are remembered: of callers without a name space of their own, and of each other one.
FENCES_MAX: Final = 100_000
SPACE_FENCES_MAX: Final = 10_000
# No name of a worker contains it.
SPACE_END: Final = "\0"
# A stored fence is written again when this share of its time is over.
_RENEWED_AFTER: Final = 8
# Fences that one call forgets.
_FORGOTTEN: Final = 16


@final
class Fenced(Refused):
    """A call with a greater epoch was made under the same worker."""

    def __init__(self, worker: str, epoch: i64) -> None:
        called = worker.rpartition(SPACE_END)[2]
        super().__init__(f"worker {called} has called with epoch {int(epoch)}")
        self.epoch: i64 = epoch


def fence_name(space: str, worker: str) -> str:
    """Return the name under which a worker of a name space is remembered."""
    return f"{space}{SPACE_END}{worker}" if space else worker


def _space_of(name: str) -> str:
    return name[: name.index(SPACE_END)] if SPACE_END in name else ""


def check_fence(yard: Yard, worker: str, epoch: i64) -> None:
    """Refuse a call with a smaller epoch than the greatest so far; changes nothing."""
    if not worker:
        return
    fence = yard.txns.fences.get(worker)
    if fence is not None and epoch < fence.epoch:
        yard.txns.fenced_count += 1
        raise Fenced(worker, fence.epoch)


def raise_fence(yard: Yard, worker: str, epoch: i64, now_ms: i64) -> None:
    """Shut out smaller epochs from now on; a refusal changes nothing."""
    if not worker:
        return
    check_fence(yard, worker, epoch)
    txns = yard.txns
    _forget_old(yard, now_ms)
    fence = txns.fences.get(worker)
    until_ms: i64 = now_ms + txns.remembered_ms
    if fence is not None and fence.epoch == epoch:
        fresh_ms = until_ms - txns.remembered_ms // _RENEWED_AFTER
        if fence.until_ms > fresh_ms:
            return
    if fence is None:
        space = _space_of(worker)
        most = SPACE_FENCES_MAX if space else FENCES_MAX
        if txns.fence_counts.get(space, 0) >= most:
            raise TooManyTxns(f"{most} workers are remembered")
    renewed = Fence(epoch, until_ms)
    journal = yard.journal
    if journal.is_on:
        if not journal.admit_change(ENTRY_SIZE + 64 + 4 * len(worker), now_ms):
            raise YardFull
        value = renewed.encode(journal.wall_offset_ms)
        journal.set_entry(EntryKind.FENCE, worker.encode(), value)
    txns.fences.put(worker, renewed)
    if fence is None:
        _count(yard, worker, 1)


def _forget_old(yard: Yard, now_ms: i64) -> None:
    fences = yard.txns.fences
    for _ in range(_FORGOTTEN):
        oldest = fences.oldest()
        if oldest is None or oldest[1].until_ms > now_ms:
            return
        fences.remove_oldest()
        _count(yard, oldest[0], -1)
        forget_stored(yard, EntryKind.FENCE, oldest[0])


def load_fences(yard: Yard, now_ms: i64) -> None:
    """Restore the fences after a start."""
    journal = yard.journal
    found: list[tuple[int, str, Fence, Entry]] = []
    for entry in journal.entries.values():
        if entry.kind == EntryKind.FENCE and not entry.is_gone:
            fence = decode_fence(entry.value, journal.wall_offset_ms)
            fence.until_ms = min(fence.until_ms, now_ms + yard.txns.remembered_ms)
            found.append((int(fence.until_ms), entry.key.decode(), fence, entry))
    found.sort(key=_until_of)
    for until_ms, worker, fence, entry in found:
        if until_ms <= now_ms:
            journal.forget_entry(entry)
        else:
            yard.txns.fences.put(worker, fence)
            _count(yard, worker, 1)


def _count(yard: Yard, name: str, sign: i64) -> None:
    """Count one fence more, or less, and its memory."""
    counts = yard.txns.fence_counts
    space = _space_of(name)
    count = counts.pop(space, 0) + int(sign)
    if count > 0:
        counts[space] = count
    count_memory(yard, sign * CLAIM_SET_SIZE)


def _until_of(item: tuple[int, str, Fence, Entry]) -> int:
    return item[0]
