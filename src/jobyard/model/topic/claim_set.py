"""Claim sets and fences: which jobs a claim with an id took, and the newest epoch of each worker.

A claim set names jobs by seq and leases by name, so it can be compared with the leases that exist.
Once none of them is left it is only remembered as used: the same id claims nothing again. Knows
how both are encoded; takes no jobs and knows no journal.
"""

from __future__ import annotations

import json
from typing import Final, final

from mypy_extensions import i64

# What a remembered claim set or fence takes in memory besides its jobs.
CLAIM_SET_SIZE: Final = 500
_SIZE_PER_JOB: Final = 100


@final
class Fence:
    """The newest epoch under which a worker has called."""

    def __init__(self, epoch: i64, until_ms: i64) -> None:
        self.epoch: i64 = epoch
        # Until when it is remembered, on the clock of this boot.
        self.until_ms: i64 = until_ms

    def encode(self, wall_offset_ms: i64) -> bytes:
        """Return its stored form."""
        return json.dumps([int(self.epoch), int(self.until_ms + wall_offset_ms)]).encode()


def decode_fence(data: bytes, wall_offset_ms: i64) -> Fence:
    """Decode what `encode` wrote."""
    epoch, until_ms = json.loads(data)
    return Fence(epoch, i64(until_ms) - wall_offset_ms)


def claim_key(queue: str, claim_id: str) -> str:
    """Return the key of a claim set: it stays used even if its queue is removed."""
    return f"{queue}\0{claim_id}"


@final
class ClaimSet:
    """The jobs that one claim with an id took from a queue."""

    def __init__(
        self, queue: str, claim_id: str, node: str, seqs: list[int], names: list[str]
    ) -> None:
        self.queue: str = queue
        self.claim_id: str = claim_id
        self.node: str = node
        # Of the jobs that may still be leased, in order, with the names of their leases.
        self.seqs: list[int] = seqs
        self.names: list[str] = names
        # How many jobs were claimed.
        self.count: i64 = len(seqs)
        # Until when it is remembered, on the clock of this boot.
        self.until_ms: i64 = 0

    def key(self) -> str:
        """Return its key among all claim sets."""
        return claim_key(self.queue, self.claim_id)

    def size(self) -> i64:
        """Return about how much memory it takes."""
        return CLAIM_SET_SIZE + _SIZE_PER_JOB * len(self.seqs)

    def encode(self, wall_offset_ms: i64) -> bytes:
        """Return its stored form."""
        until_ms = int(self.until_ms + wall_offset_ms)
        fields = [self.node, int(self.count), until_ms, self.seqs, self.names]
        return json.dumps(fields, separators=(",", ":")).encode()


def decode_claim_set(key: str, data: bytes, wall_offset_ms: i64) -> ClaimSet:
    """Decode what `encode` wrote."""
    queue, _, claim_id = key.partition("\0")
    node, count, until_ms, seqs, names = json.loads(data)
    claim_set = ClaimSet(queue, claim_id, node, seqs, names)
    claim_set.count = count
    claim_set.until_ms = i64(until_ms) - wall_offset_ms
    return claim_set
