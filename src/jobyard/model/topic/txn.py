"""Transactions: the chunks staged under a name, and what became of the transactions decided so far.

A transaction is a name that a client chose. Until it is decided it has chunks, each a run of
records in the log of stages; afterwards only its outcome is remembered. Knows what is stored of it
and how that is encoded; stages and commits nothing.

Invariants: `rows` and `bytes` are the sums over all chunks, and a name that is committed has none.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from jobyard.model.index.recent_keys import RecentKeys

if TYPE_CHECKING:
    from jobyard.model.index.item import Item
    from jobyard.model.queue import Queue
    from jobyard.model.topic.claim_set import ClaimSet, Fence
    from jobyard.model.topic.log import LogTopic

# No client can name a topic so.
STAGE_LOG: Final = "_stages"

TXN_ROWS_MAX: Final = 100_000
TXN_BYTES_MAX: Final = 64 << 20
TXNS_MAX: Final = 1_000_000
STAGED_BYTES_MAX: Final = 8 << 30
TXN_DAYS: Final = 7
STAGE_MINUTES: Final = 60
_MINUTE_MS: Final = 60_000
_DAY_MS: Final = 86_400_000

# What one remembered outcome, or one chunk, takes in memory besides its texts.
REMEMBERED_SIZE: Final = 600
CHUNK_SIZE: Final = 740

_SEPARATOR: Final = "\0"


@final
class TxnState:
    """The states of a transaction; UNKNOWN for a name that was never used or is forgotten."""

    OPEN: Final = "open"
    COMMITTED: Final = "committed"
    ABORTED: Final = "aborted"
    EXPIRED: Final = "expired"
    UNKNOWN: Final = "unknown"


@final
class ChunkPlace:
    """Where a chunk belongs: topic, part, attempt at that part, and its number within them."""

    def __init__(self, topic: str, part: i64, attempt: i64, chunk: i64) -> None:
        self.topic: str = topic
        self.part: i64 = part
        self.attempt: i64 = attempt
        self.chunk: i64 = chunk

    def key(self) -> tuple[str, int, int, int]:
        """Return it as a key."""
        return self.topic, int(self.part), int(self.attempt), int(self.chunk)

    def write_key(self, txn: str, digest: str) -> str:
        """Return the key under which the log of stages remembers the chunk and its content."""
        numbers = (str(int(self.part)), str(int(self.attempt)), str(int(self.chunk)))
        return _SEPARATOR.join((txn, self.topic, *numbers, digest))


def place_in(write_key: str) -> tuple[str, ChunkPlace]:
    """Return the transaction and the place that `write_key` names."""
    txn, topic, part, attempt, chunk, _ = write_key.split(_SEPARATOR)
    return txn, ChunkPlace(topic, int(part), int(attempt), int(chunk))


@final
class StagedChunk:
    """The records of one chunk: a run of seqs in the log of stages."""

    def __init__(self, write_key: str, first_seq: i64, rows: i64, size: i64) -> None:
        self.write_key: str = write_key
        self.first_seq: i64 = first_seq
        self.rows: i64 = rows
        # Of data and metas.
        self.size: i64 = size


@final
class OpenTxn:
    """A transaction that is not decided."""

    def __init__(self, name: str) -> None:
        self.name: str = name
        self.chunks: dict[tuple[str, int, int, int], StagedChunk] = {}
        # Of its chunks.
        self.topics: set[str] = set()
        self.rows: i64 = 0
        self.bytes: i64 = 0
        # When its stages expire, unless a call names it before, and the timer for that.
        self.until_ms: i64 = 0
        self.alarm: Item | None = None


@final
class DecidedTxn:
    """The outcome of a transaction.

    Chunks with seqs below `floor` are no longer part of it: an aborted transaction may be begun
    again under the same name, before all records of the first try are erased.
    """

    def __init__(self, state: str, digest: str, answer: str, floor: i64, until_ms: i64) -> None:
        self.state: str = state
        # Of the request that was committed.
        self.digest: str = digest
        # As its committer was answered.
        self.answer: str = answer
        self.floor: i64 = floor
        # Until when it is remembered, on the clock of this boot.
        self.until_ms: i64 = until_ms
        # The batch that an answer about it waits for; 0 for one of an earlier boot.
        self.batch: i64 = 0

    def size(self) -> i64:
        """Return about how much memory it takes."""
        return REMEMBERED_SIZE + len(self.digest) + 2 * len(self.answer)

    def encode(self, wall_offset_ms: i64) -> bytes:
        """Return its stored form."""
        until_ms = int(self.until_ms + wall_offset_ms)
        head = [self.state, self.digest, int(self.floor), until_ms]
        return json.dumps([*head, self.answer], separators=(",", ":")).encode()


def decode_decided(data: bytes, wall_offset_ms: i64) -> DecidedTxn:
    """Decode what `encode` wrote."""
    state, digest, floor, until_ms, answer = json.loads(data)
    return DecidedTxn(state, digest, answer, floor, i64(until_ms) - wall_offset_ms)


@final
class Txns:
    """All transactions of a yard, their limits, and what belongs to them."""

    def __init__(self) -> None:
        # The log of stages, from the first of them on.
        self.log: LogTopic | None = None
        self.open: dict[str, OpenTxn] = {}
        # In the order in which they are forgotten.
        self.decided: RecentKeys[DecidedTxn] = RecentKeys()
        # Chunks whose records are still to be erased.
        self.leaving: list[StagedChunk] = []
        self.is_erasing: bool = False
        self.staged_rows: i64 = 0
        self.staged_bytes: i64 = 0
        # What all of this takes in memory, staged records aside.
        self.memory: i64 = 0
        # By worker within its name space; how many of each; and by queue name and claim id.
        self.fences: RecentKeys[Fence] = RecentKeys()
        self.fence_counts: dict[str, int] = {}
        self.claim_sets: RecentKeys[ClaimSet] = RecentKeys()
        # Keys of claim sets that are being claimed.
        self.claiming: set[str] = set()
        # Fires when the oldest outcome is to be forgotten.
        self.alarm: Item | None = None
        # Queues that have jobs to offer while a commit is entered; None at all other times.
        self.held_offers: list[Queue] | None = None
        # Limits.
        self.rows_max: i64 = TXN_ROWS_MAX
        self.bytes_max: i64 = TXN_BYTES_MAX
        self.txns_max: i64 = TXNS_MAX
        self.staged_max: i64 = STAGED_BYTES_MAX
        self.remembered_ms: i64 = TXN_DAYS * _DAY_MS
        self.stage_ms: i64 = STAGE_MINUTES * _MINUTE_MS
        # Since this process started.
        self.committed_count: i64 = 0
        self.aborted_count: i64 = 0
        self.expired_count: i64 = 0
        self.repeated_count: i64 = 0
        self.fenced_count: i64 = 0

    def set_days(self, days: i64, stage_minutes: i64) -> None:
        """Set how long outcomes are remembered, and how long stages live without a call."""
        self.remembered_ms = days * _DAY_MS
        self.stage_ms = stage_minutes * _MINUTE_MS
