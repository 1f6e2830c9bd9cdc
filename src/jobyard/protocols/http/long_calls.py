"""Calls whose work may take several turns, and that are answered when it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from jobyard.engine.state.tasks import TaskOwner
from jobyard.errors import Refused, StorageFull, YardFull
from jobyard.protocols.http.call import HttpRefused, PendingCall

if TYPE_CHECKING:
    from collections.abc import Callable

    from mypy_extensions import i64

    from jobyard.engine.state.tasks import Task, Tasks
    from jobyard.protocols.http.call import HttpCall


@final
class LongCall(PendingCall, TaskOwner):
    """One such call: owns the task and answers at its end."""

    def __init__(
        self, tasks: Tasks, call: HttpCall, task: Task, finish: Callable[[], None]
    ) -> None:
        self._tasks = tasks
        self._call = call
        self._task = task
        # Answers the call.
        self._finish: Callable[[], None] = finish

    def begin(self) -> None:
        """Start the work, and answer at once if it is short."""
        if self._tasks.begin(self._task, self, self._call.now_ms):
            self._finish()
        else:
            self._call.wait(self)

    def task_ended(self, task: Task, refusal: Exception | None, now_ms: i64) -> None:
        """Answer: the work is done, or was refused."""
        call = self._call
        call.now_ms = now_ms
        call.session.await_synced(task.reply_sync_batch)
        if refusal is None:
            try:
                self._finish()
            except (Refused, StorageFull) as refused:
                call.answer_refusal(in_http(refused))
        else:
            call.answer_refusal(in_http(refusal))
        # Of a command that was run by `_finish`.
        call.session.await_synced(call.session.journal.take_command_sync_batch())

    def stop_waiting(self, now_ms: i64) -> None:
        """Continue: the call waits only for its work."""

    def gone(self, now_ms: i64) -> None:  # noqa: ARG002  there is nothing to give back
        """Detach from the task: the connection is gone."""
        self._tasks.leave(self._task)

    def drained(self, now_ms: i64) -> None:
        """Ignore it: nothing is sent before the answer."""


def in_http(refusal: Exception) -> HttpRefused:
    """Convert a refusal to the one that a call served at once would get."""
    if isinstance(refusal, HttpRefused):
        return refusal
    if isinstance(refusal, Refused) and not isinstance(refusal, YardFull):
        return HttpRefused(400, "invalid_request", str(refusal))
    return HttpRefused(507, "storage_full", "the disk is full")
