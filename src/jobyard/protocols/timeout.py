"""A timer of a session or a door that calls a method when it rings."""

from collections.abc import Callable
from typing import final

from mypy_extensions import i64

from jobyard.engine.state.timers import Alarm
from jobyard.model.limits import NEVER_MS

__all__ = ["Timeout"]


@final
class Timeout(Alarm):
    """An alarm with a callback; armed and disarmed by the yard."""

    def __init__(self, call: Callable[[i64], None]) -> None:
        super().__init__(0, NEVER_MS, 0)
        self._call: Callable[[i64], None] = call

    def ring(self, now_ms: i64) -> None:
        """Call the callback."""
        self._call(now_ms)
