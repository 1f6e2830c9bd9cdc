"""The timer of a session, or of a door: calls one method when its time has come."""

from collections.abc import Callable
from typing import final

from mypy_extensions import i64

from jobyard.engine.state.timers import Alarm
from jobyard.model.limits import NEVER_MS

__all__ = ["Timeout"]


@final
class Timeout(Alarm):
    """Armed and disarmed with the yard."""

    def __init__(self, call: Callable[[i64], None]) -> None:
        super().__init__(0, NEVER_MS, 0)
        self._call: Callable[[i64], None] = call

    def ring(self, now_ms: i64) -> None:
        """Call."""
        self._call(now_ms)
