"""Somebody who wants to know what is done beside the life of jobs, as those who do it see them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import trait

if TYPE_CHECKING:
    from jobyard.protocols.bunqueue.request import Request


@trait
class Onlooker:
    """Somebody who wants to know."""

    def did(self, request: Request, answer: dict[str, object]) -> None:
        """Take note of a command that was granted."""

    def tell(self, name: str, fields: dict[str, object]) -> None:
        """Take note of something that no command did."""
