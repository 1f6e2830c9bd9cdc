"""One HTTP client's connection: requests on their way to a session, answers on their way back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from jobyard.journal.gate import Outbox
from sim.network import Ear, Mouth
from sim.state import Violation
from sim.topics.model import Answer

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.topics.boot import TopicsBoot
    from sim.topics.nouns import Ask

# A log by its name and incarnation, and the newest of its seqs that an answer tells.
Disclosed = tuple[str, int, int]


class Promise(NamedTuple):
    """What an answer rests on, and what it tells.

    If `is_synced`, its batch must be on the disk, whatever the class of the server is.
    """

    batch: int
    is_synced: bool
    told: Disclosed | None


class HttpLine:
    """A session, what was asked on it, and the bytes in between."""

    def __init__(self, boot: TopicsBoot, number: int, delivered: Callable[[Promise], None]) -> None:
        self.number = number
        self.ear = Ear(boot.stirred)
        self.session = boot.http.enter(self.ear)
        self.asked: list[Ask] = []
        self._outbox = Outbox(boot.gate, Mouth(self._deliver))
        self._delivered = delivered
        self._held = bytearray()
        self._received_size = 0
        self._said_size = 0
        # (size of all answers up to this one, what it rests on).
        self._promises: list[tuple[int, Promise]] = []

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

    def hand(self, data: bytes, promise: Promise) -> None:
        """Give a checked answer to the gate."""
        session = self.session
        self._held += data
        self._said_size += len(data)
        self._promises.append((self._said_size, promise))
        if session.awaits_synced > 0:
            self._outbox.hand_synced(data, session.awaits, session.awaits_synced)
        else:
            self._outbox.hand(data, session.awaits)

    def handed(self) -> None:
        """Note that all answers there are were given to the gate."""
        self.session.awaits_synced = 0

    def _deliver(self, data: bytes) -> None:
        if not self._held.startswith(data):
            raise Violation("answers in order", f"client {self.number}: {data[:80]!r}")
        del self._held[: len(data)]
        self._received_size += len(data)
        while self._promises and self._promises[0][0] <= self._received_size:
            self._delivered(self._promises.pop(0)[1])

    def close(self, now_ms: int) -> None:
        """End the connection; answers not delivered are lost."""
        self._outbox.discard()
        self._held.clear()
        self.session.closed(now_ms)
