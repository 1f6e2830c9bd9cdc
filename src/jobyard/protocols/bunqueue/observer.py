"""Observer of events that are not job transitions: commands, connections, rate limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import trait

if TYPE_CHECKING:
    from jobyard.protocols.bunqueue.request import Request


@trait
class CommandObserver:
    """Receives commands and other events of a door."""

    def did(self, request: Request, answer: dict[str, object]) -> None:
        """Record a command that succeeded."""

    def publish(self, name: str, fields: dict[str, object]) -> None:
        """Record an event that no command caused."""
