"""The connection of one HTTP client: requests in transit to a session, answers in transit back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from sim.network import Line
from sim.topics.answer import Answer

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.topics.boot import TopicsBoot
    from sim.topics.nouns import Ask

# A log by its name and incarnation, and the newest of its seqs that an answer discloses.
Disclosed = tuple[str, int, int]


class Promise(NamedTuple):
    """What an answer depends on, and what it discloses.

    If `is_synced`, its batch must be on the disk, whatever the class of the server is.
    """

    batch: int
    is_synced: bool
    told: Disclosed | None


class HttpLine(Line[Promise]):
    """A session, and its pending requests."""

    def __init__(self, boot: TopicsBoot, number: int, delivered: Callable[[Promise], None]) -> None:
        super().__init__(boot, boot.http, number, delivered)
        self.asked: list[Ask] = []

    def collect(self) -> list[tuple[Answer, bytes]]:
        """Take what the session wrote, answer by answer."""
        data = self.session.take_output()
        answers: list[tuple[Answer, bytes]] = []
        at = 0
        while at < len(data):
            end = data.index(b"\r\n\r\n", at) + 4
            first, *lines = data[at : end - 4].decode("latin-1").split("\r\n")
            heads = dict(line.lower().split(": ", 1) for line in lines)
            body = data[end : end + int(heads["content-length"])]
            answer = Answer(int(first.split()[1]), json.loads(body))
            stop = end + len(body)
            answers.append((answer, data[at:stop]))
            at = stop
        return answers

    def _pass(self, data: bytes) -> None:
        session = self.session
        if session.awaits_synced > 0:
            self.outbox.hand_synced(data, session.awaits, session.awaits_synced)
        else:
            super()._pass(data)

    def handed(self) -> None:
        """Note that all answers so far were passed to the gate."""
        self.session.awaits_synced = 0
