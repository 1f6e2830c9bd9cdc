"""The connection of one bunqueue client: frames in transit to a session, answers back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobyard.wire.msgpack.forms import decode
from jobyard.wire.msgpack.write import encode
from sim.network import Line
from sim.state import Violation

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.bunqueue.boot import BunBoot
    from sim.bunqueue.nouns import Ask, BunClient, Reply


class BunConnection(Line[int]):
    """A session, and the client the model sees in it; an answer depends on a batch."""

    def __init__(self, boot: BunBoot, client: BunClient, delivered: Callable[[int], None]) -> None:
        super().__init__(boot, boot.entrance, client.number, delivered)
        self.client = client

    def frame(self, ask: Ask) -> bytes:
        """Return the bytes of a command, and remember it as pending."""
        client = self.client
        client.asks_count += 1
        ask.req_id = str(client.asks_count)
        client.asked[ask.req_id] = ask
        data = encode({"cmd": ask.cmd, **ask.fields, "reqId": ask.req_id})
        return len(data).to_bytes(4, "big") + data

    def collect(self) -> list[tuple[Reply, bytes]]:
        """Take what the session wrote, answer by answer."""
        data = self.session.take_output()
        answers: list[tuple[Reply, bytes]] = []
        at = 0
        while at < len(data):
            size = int.from_bytes(data[at : at + 4], "big")
            value = decode(data, at + 4, at + 4 + size)
            if not isinstance(value, dict) or size == 0:
                raise Violation("reply", f"client {self.client.number}: {value!r}")
            answers.append((value, data[at : at + 4 + size]))
            at += 4 + size
        return answers
