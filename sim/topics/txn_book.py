"""What the model knows of transactions, claim sets and fences: plain values by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.topics.nouns import Content, Reply

STAGE_MS: Final = 20_000

Place = tuple[str, int, int, int]


class StagedRow(NamedTuple):
    """A staged record, the job whose end it belongs to, and its key."""

    content: Content
    link: tuple[str, int] | None
    key: str


class Decided:
    """The outcome of a transaction."""

    def __init__(self, state: str, digest: str, outcome: Reply, batch: int) -> None:
        self.state = state
        self.digest = digest
        self.outcome = outcome
        self.batch = batch


class OpenTxn:
    """What is staged under a name."""

    def __init__(self) -> None:
        self.chunks: dict[Place, list[StagedRow]] = {}
        self.until = 0


class ClaimSet(NamedTuple):
    """The jobs that a claim with an id took, by the names of their leases."""

    node: str
    names: dict[int, str]


class TxnBook:
    """All transactions, claim sets and fences."""

    def __init__(self) -> None:
        self.open: dict[str, OpenTxn] = {}
        self.decided: dict[str, Decided] = {}
        self.fences: dict[str, int] = {}
        self.sets: dict[tuple[str, str], ClaimSet] = {}

    def expire(self, now: int, batch: int, reach: Callable[[str], None]) -> None:
        """Drop stages whose time is over."""
        for name, txn in list(self.open.items()):
            if txn.until <= now:
                reach("stages expired")
                del self.open[name]
                self.decided[name] = Decided("expired", "", {}, batch)
