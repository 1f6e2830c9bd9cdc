"""The alarms of an HTTP connection: for a request that comes too slowly, and for none at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from jobyard.engine.state.timers import Alarm
from jobyard.model.limits import NEVER_MS

if TYPE_CHECKING:
    from mypy_extensions import i64

    from jobyard.protocols.http.session import HttpSession


@final
class Hurry(Alarm):
    """Gives up on a request of which too little comes."""

    def __init__(self, session: HttpSession) -> None:
        super().__init__(0, NEVER_MS, 0)
        self._session = session

    def ring(self, now_ms: i64) -> None:
        """Look whether the request has come meanwhile."""
        self._session.look_at_request(now_ms)


@final
class Idleness(Alarm):
    """Ends a connection on which nothing happens."""

    def __init__(self, session: HttpSession) -> None:
        super().__init__(0, NEVER_MS, 0)
        self._session = session

    def ring(self, now_ms: i64) -> None:
        """Look whether something has come meanwhile."""
        self._session.look_at_idleness(now_ms)
