"""One bunqueue client's connection: frames on their way to a session, answers on their way back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobyard.journal.gate import Outbox
from jobyard.wire.msgpack import decode
from jobyard.wire.msgpack_write import encode
from sim.network import Ear, Mouth
from sim.state import Violation

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.bunqueue.boot import BunBoot
    from sim.bunqueue.nouns import Ask, BunClient, Told


class BunConnection:
    """A session, the client the model sees in it, and the bytes in between."""

    def __init__(self, boot: BunBoot, client: BunClient, delivered: Callable[[int], None]) -> None:
        self.client = client
        self.ear = Ear(boot.stirred)
        self.session = boot.entrance.enter(self.ear)
        self._outbox = Outbox(boot.gate, Mouth(self._deliver))
        self._delivered = delivered
        self._held = bytearray()
        self._received_size = 0
        self._said_size = 0
        # (size of all answers up to this one, the batch it rests on).
        self._promises: list[tuple[int, int]] = []

    def frame(self, ask: Ask) -> bytes:
        """Return the bytes of a command, and remember that it was asked."""
        client = self.client
        client.asks_count += 1
        ask.req_id = str(client.asks_count)
        client.asked[ask.req_id] = ask
        data = encode({"cmd": ask.cmd, **ask.fields, "reqId": ask.req_id})
        return len(data).to_bytes(4, "big") + data

    def collect(self) -> list[tuple[Told, bytes]]:
        """Take what the session wrote, answer by answer."""
        data = self.session.take_output()
        answers: list[tuple[Told, bytes]] = []
        at = 0
        while at < len(data):
            size = int.from_bytes(data[at : at + 4], "big")
            value = decode(data, at + 4, at + 4 + size)
            if not isinstance(value, dict) or size == 0:
                raise Violation("reply", f"client {self.client.number}: {value!r}")
            answers.append((value, data[at : at + 4 + size]))
            at += 4 + size
        return answers

    def hand(self, data: bytes, batch: int) -> None:
        """Give a checked answer to the gate; it rests on a batch."""
        self._held += data
        self._said_size += len(data)
        self._promises.append((self._said_size, batch))
        self._outbox.hand(data, self.session.awaits)

    def _deliver(self, data: bytes) -> None:
        if not self._held.startswith(data):
            raise Violation("answers in order", f"client {self.client.number}: {data[:80]!r}")
        del self._held[: len(data)]
        self._received_size += len(data)
        while self._promises and self._promises[0][0] <= self._received_size:
            self._delivered(self._promises.pop(0)[1])

    def close(self, now_ms: int) -> None:
        """End the connection; answers not delivered are lost."""
        self._outbox.discard()
        self._held.clear()
        self.session.closed(now_ms)
