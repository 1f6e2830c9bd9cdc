"""Splits long pipelines: a session that has done its share continues in the next turn."""

from typing import final

from mypy_extensions import i64

from jobyard.engine.state.tasks import Task, TaskOwner, Tasks
from jobyard.protocols.session import Peer

__all__ = ["NextTurn"]


@final
class NextTurn(TaskOwner):
    """Wakes a session in the next turn; other connections go first."""

    def __init__(self, tasks: Tasks, peer: Peer) -> None:
        self.has_come: bool = False
        self._peer = peer
        self._task = tasks.rest(self)

    def task_ended(self, task: Task, refusal: Exception | None, now_ms: i64) -> None:  # noqa: ARG002
        """Wake the session: the next turn has come."""
        self.has_come = True
        self._peer.wake()

    def leave(self) -> None:
        """Stop waiting."""
        self._task.task_owner = None
