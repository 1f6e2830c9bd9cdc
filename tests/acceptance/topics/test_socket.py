"""The WebSocket of the topics API over real sockets."""

import json
import socket
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.servers.http import HttpYard, Topics

COMMANDS = 300


class Talk:
    """One socket; commands are short."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address, timeout=60)
        self._file = self._socket.makefile("rb")
        key = b64encode(b"0123456789abcdef").decode()
        lines = [
            "GET /v0/ws HTTP/1.1",
            "Host: localhost",
            "Connection: Upgrade",
            "Upgrade: websocket",
            "Sec-WebSocket-Version: 13",
            f"Sec-WebSocket-Key: {key}",
        ]
        # Together with the first command: a client need not wait for the answer.
        hello = "\r\n".join([*lines, "", ""]).encode()
        self._socket.sendall(hello + self._frame({"op": "ping", "pad": "x" * 126}))
        assert self._file.readline() == b"HTTP/1.1 101 Switching Protocols\r\n"
        while self._file.readline() != b"\r\n":
            pass
        assert self.hear()["op"] == "pong"

    def _frame(self, command: dict[str, object]) -> bytes:
        content = json.dumps(command).encode()
        mask = b"\x01\x02\x03\x04"
        masked = bytes(byte ^ mask[i % 4] for i, byte in enumerate(content))
        return b"\x81" + bytes((0x80 | 126,)) + len(content).to_bytes(2, "big") + mask + masked

    def say(self, op: str, **fields: object) -> None:
        """Send a command, at least as long as its length needs two bytes."""
        self._socket.sendall(self._frame({"op": op, **fields, "pad": "x" * 126}))

    def hear(self) -> Any:
        """Return the next message."""
        while True:
            first, size = self._file.read(2)
            if size == 126:
                size = int.from_bytes(self._file.read(2), "big")
            elif size == 127:
                size = int.from_bytes(self._file.read(8), "big")
            content = self._file.read(size)
            if first == 0x81:
                return json.loads(content)

    def close(self) -> None:
        """Vanish."""
        self._file.close()
        self._socket.close()


@pytest.fixture
def yard() -> Iterator[HttpYard]:
    """A server without a disk."""
    found = HttpYard("--memory")
    yield found
    found.close()


def test_what_one_socket_publishes_others_see(yard: HttpYard) -> None:
    writer, reader = Talk(yard.address), Talk(yard.address)
    writer.say("publish", topic="a", records=[{"data": -1}])
    assert writer.hear()["created"]
    reader.say("subscribe", topic="a", tail=True, request_id=1)
    assert reader.hear()["op"] == "subscribed"
    # Sent ahead, answered in order.
    for i in range(COMMANDS):
        writer.say("publish", topic="a", records=[{"data": i}], request_id=i)
    assert [writer.hear()["request_id"] for _ in range(COMMANDS)] == list(range(COMMANDS))
    found: list[object] = []
    while len(found) < COMMANDS:
        message = reader.hear()
        if message["op"] == "record":
            found += [record["data"] for record in message["records"]]
    assert found == list(range(COMMANDS))
    reader.close()
    writer.say("publish", topic="a", records=[{"data": "after"}])
    assert writer.hear()["op"] == "ack"
    writer.close()
    topics = Topics(yard.address)
    status, answer = topics.ask("POST", "/v0/topics/a/diff", {"from_seq": COMMANDS})
    assert (status, answer["records"][-1]["data"]) == (200, "after")
    topics.close()
