"""Pipelines in parts: a session that did enough of what was sent ahead goes on in the next turn."""

from typing import final

from mypy_extensions import i64

from jobyard.engine.state.tasks import Starter, Task, Tasks
from jobyard.protocols.session import Peer

__all__ = ["NextTurn"]


@final
class NextTurn(Starter):
    """Stirs a session when the next turn has come; other connections go first."""

    def __init__(self, tasks: Tasks, peer: Peer) -> None:
        self.has_come: bool = False
        self._peer = peer
        self._task = tasks.rest(self)

    def task_ended(self, task: Task, refusal: Exception | None, now_ms: i64) -> None:  # noqa: ARG002
        """Take note that it has come."""
        self.has_come = True
        self._peer.stirred()

    def leave(self) -> None:
        """Wait no more."""
        self._task.starter = None
