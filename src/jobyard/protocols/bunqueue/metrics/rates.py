"""Pushes, pulls and finished jobs per second, as moving averages without a timer.

The averages are updated when they are read, at most once a second.
"""

from typing import Final, final

from mypy_extensions import i64

LEAST_MS: Final = 1000
# The last update replaces the averages if it covers at least this time.
SPAN_MS: Final = 10_000


@final
class Rates:
    """The averages, and the totals at their last update."""

    def __init__(self, now_ms: i64) -> None:
        self._since_ms: i64 = now_ms
        self._pushed: i64 = 0
        self._pulled: i64 = 0
        self._completed: i64 = 0
        self._failed: i64 = 0
        self.push_rate: float = 0.0
        self.pull_rate: float = 0.0
        self.complete_rate: float = 0.0
        self.fail_rate: float = 0.0

    def look(
        self, pushed: i64, pulled: i64, now_ms: i64, completed: i64 = 0, failed: i64 = 0
    ) -> None:
        """Update the averages from the totals so far."""
        passed_ms = now_ms - self._since_ms
        if passed_ms < LEAST_MS:
            return
        weight = min(1.0, float(passed_ms) / SPAN_MS)
        if self._pushed == 0 and self._pulled == 0:
            weight = 1.0
        seconds = float(passed_ms) / 1000.0
        self.push_rate += weight * (float(pushed - self._pushed) / seconds - self.push_rate)
        self.pull_rate += weight * (float(pulled - self._pulled) / seconds - self.pull_rate)
        done = float(completed - self._completed) / seconds
        self.complete_rate += weight * (done - self.complete_rate)
        self.fail_rate += weight * (float(failed - self._failed) / seconds - self.fail_rate)
        self._since_ms = now_ms
        self._pushed = pushed
        self._pulled = pulled
        self._completed = completed
        self._failed = failed
