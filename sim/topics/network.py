"""One HTTP client's connection: requests on their way to a session, answers on their way back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from jobyard.journal.gate import Outbox
from sim.network import Ear, Mouth
from sim.state import Violation
from sim.topics.model import Answer

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.topics.boot import TopicsBoot
    from sim.topics.nouns import Ask

# A log or queue by its name and incarnation, and the newest of its seqs that an answer tells.
Disclosed = tuple[str, int, int]


class HttpLine:
    """A session, what was asked on it, and the bytes in between."""

    def __init__(
        self, boot: TopicsBoot, number: int, delivered: Callable[[int, Disclosed | None], None]
    ) -> None:
        self.number = number
        self.ear = Ear(boot.stirred)
        self.session = boot.http.enter(self.ear)
        self.asked: list[Ask] = []
        self._outbox = Outbox(boot.gate, Mouth(self._deliver))
        self._delivered = delivered
        self._held = bytearray()
        self._received_size = 0
        self._said_size = 0
        # (size of all answers up to this one, the batch it rests on, what it tells).
        self._promises: list[tuple[int, int, Disclosed | None]] = []

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

    def hand(self, data: bytes, batch: int, told: Disclosed | None) -> None:
        """Give a checked answer to the gate; it rests on a batch."""
        self._held += data
        self._said_size += len(data)
        self._promises.append((self._said_size, batch, told))
        self._outbox.hand(data, self.session.awaits)

    def _deliver(self, data: bytes) -> None:
        if not self._held.startswith(data):
            raise Violation("answers in order", f"client {self.number}: {data[:80]!r}")
        del self._held[: len(data)]
        self._received_size += len(data)
        while self._promises and self._promises[0][0] <= self._received_size:
            _, batch, told = self._promises.pop(0)
            self._delivered(batch, told)

    def close(self, now_ms: int) -> None:
        """End the connection; answers not delivered are lost."""
        self._outbox.discard()
        self._held.clear()
        self.session.closed(now_ms)
