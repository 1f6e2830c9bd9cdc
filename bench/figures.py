"""Figures: every number that one run measured, by name, one value per round.

A name is a path of words joined by dots: scenario, server, circumstances, measure
(`throughput.jobyard-memory.64x1.ops_per_s`). Knows nothing of servers or goals. The value of a
figure is the median of its rounds: one disturbed round must not move it.
"""

from collections.abc import Iterator
from statistics import median

__all__ = ["Figures"]


class Figures:
    """The values of one run."""

    def __init__(self) -> None:
        self._rounds: dict[str, list[float]] = {}

    def add(self, name: str, value: float) -> None:
        """Record the value of one more round."""
        self._rounds.setdefault(name, []).append(value)

    def rounds(self, name: str) -> list[float]:
        """Return the value of each round, oldest first; empty if never measured."""
        return list(self._rounds.get(name, []))

    def median(self, name: str) -> float | None:
        """Return the median over the rounds, None if never measured."""
        values = self._rounds.get(name)
        return median(values) if values else None

    def ratio(self, name: str, against: str) -> float | None:
        """Return the ratio of two medians, None unless both were measured."""
        above, below = self.median(name), self.median(against)
        if above is None or below is None or below == 0:
            return None
        return above / below

    def ratio_span(self, name: str, against: str) -> tuple[float, float] | None:
        """Return the smallest and the largest ratio of values from the same round."""
        pairs = zip(self.rounds(name), self.rounds(against), strict=False)
        ratios = [above / below for above, below in pairs if below]
        return (min(ratios), max(ratios)) if ratios else None

    def names(self) -> Iterator[str]:
        """Yield the name of every figure, in the order of its first round."""
        return iter(self._rounds)
