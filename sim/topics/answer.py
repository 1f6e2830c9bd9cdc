"""One parsed answer of the HTTP port, with checks of the fields that are read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.state import Violation

if TYPE_CHECKING:
    from sim.topics.nouns import Reply


class Answer:
    """One parsed answer."""

    def __init__(self, status: int, body: Reply) -> None:
        self.status = status
        self.body = body

    def code(self) -> str:
        """Return the error code of a refusal, or nothing."""
        error = self.body.get("error")
        return str(error.get("code")) if isinstance(error, dict) else ""

    def list(self, key: str) -> list[Reply]:
        """Return a field that is a list of objects."""
        value = self.body.get(key)
        if not isinstance(value, list):
            raise Violation("reply", f"no {key} in {self.status} {self.body}")
        return value

    def number(self, key: str) -> int:
        """Return a field that is a number."""
        value = self.body.get(key)
        if not isinstance(value, int):
            raise Violation("reply", f"no {key} in {self.status} {self.body}")
        return value
