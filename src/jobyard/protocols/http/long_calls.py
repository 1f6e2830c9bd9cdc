"""Calls whose work goes on over turns, and that are answered at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from jobyard.engine.state.tasks import Starter
from jobyard.errors import Refused, StorageFull, YardFull
from jobyard.protocols.http.call import HttpRefused, Pending

if TYPE_CHECKING:
    from collections.abc import Callable

    from mypy_extensions import i64

    from jobyard.engine.state.tasks import Task, Tasks
    from jobyard.protocols.http.call import Call


@final
class LongCall(Pending, Starter):
    """One of them."""

    def __init__(self, tasks: Tasks, call: Call, task: Task, finish: Callable[[], None]) -> None:
        self._tasks = tasks
        self._call = call
        self._task = task
        # Answers the call.
        self._finish: Callable[[], None] = finish

    def begin(self) -> None:
        """Do the work, or begin it."""
        if self._tasks.begin(self._task, self, self._call.now_ms):
            self._finish()
        else:
            self._call.wait(self)

    def task_ended(self, task: Task, refusal: Exception | None, now_ms: i64) -> None:
        """Answer: the work is done, or was refused."""
        call = self._call
        call.now_ms = now_ms
        call.session.await_synced(task.raised)
        if refusal is None:
            try:
                self._finish()
            except (Refused, StorageFull) as refused:
                call.answer_refusal(in_http(refused))
        else:
            call.answer_refusal(in_http(refusal))

    def hurry(self, now_ms: i64) -> None:
        """Nothing is waited for but the work."""

    def gone(self, now_ms: i64) -> None:  # noqa: ARG002  there is nothing to give back
        """Tell nobody of the end."""
        self._tasks.leave(self._task)

    def drained(self, now_ms: i64) -> None:
        """There is nothing to go on with."""


def in_http(refusal: Exception) -> HttpRefused:
    """Return a refusal as it is answered to a call that is served at once."""
    if isinstance(refusal, HttpRefused):
        return refusal
    if isinstance(refusal, Refused) and not isinstance(refusal, YardFull):
        return HttpRefused(400, "invalid_request", str(refusal))
    return HttpRefused(507, "storage_full", "the disk is full")
