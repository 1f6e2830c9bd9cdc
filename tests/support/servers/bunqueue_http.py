"""Clients of bunqueue's HTTP API over real sockets: calls, event streams, WebSockets.

Calls go through `http.client`, which is strict in parsing. The WebSocket is implemented
here, frame by frame, and uses none of the server's own code.
"""

import base64
import hashlib
import http.client
import json
import os
import socket
from typing import Any, Final

from tests.support.servers.bunqueue import REPLY_S

_SUFFIX: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
TEXT: Final = 1
CLOSE: Final = 8
PING: Final = 9


class Http:
    """One persistent connection; every call on it waits for its answer."""

    def __init__(self, address: tuple[str, int], token: str = "") -> None:
        self._connection = http.client.HTTPConnection(*address, timeout=REPLY_S)
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    def send(self, method: str, path: str, body: object = None) -> None:
        """Send a request."""
        content = None if body is None else json.dumps(body).encode()
        self._connection.request(method, path, content, self._headers)

    def receive(self) -> tuple[int, bytes]:
        """Return status and body of the answer."""
        response = self._connection.getresponse()
        return response.status, response.read()

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Send a request; return the status and the value of the body."""
        self.send(method, path, body)
        status, content = self.receive()
        return status, json.loads(content)

    def ok(self, method: str, path: str, body: object = None) -> Any:
        """Send a request that must succeed; return the answer without `ok`."""
        status, said = self.ask(method, path, body)
        assert status == 200, said
        assert said.pop("ok") is True, said
        return said

    def open_events(self, path: str = "/events", last: str = "") -> "Events":
        """Begin a stream of events on this connection."""
        headers = {**self._headers, **({"Last-Event-ID": last} if last else {})}
        self._connection.request("GET", path, headers=headers)
        response = self._connection.getresponse()
        assert response.status == 200
        assert response.headers["Content-Type"] == "text/event-stream"
        return Events(response)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class Events:
    """Blocks of an event stream as they arrive."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self._response = response

    def next_block(self) -> dict[str, str] | None:
        """Return the fields of the next block; None at the end of the stream."""
        fields: dict[str, str] = {}
        while line := self._response.readline().decode().rstrip("\n"):
            name, _, value = line.partition(": ")
            fields[name] = value
        return fields or None

    def until(self, name: str) -> tuple[str, Any]:
        """Return the id and the data of the next event of a name."""
        while (block := self.next_block()) is not None:
            if block.get("event") == name:
                return block.get("id", ""), json.loads(block["data"])
        raise AssertionError(f"the stream ended without {name}")


class Socket:
    """A WebSocket client."""

    def __init__(self, address: tuple[str, int], path: str = "/ws") -> None:
        self._sock = socket.create_connection(address, timeout=REPLY_S)
        key = base64.b64encode(os.urandom(16))
        lines = (
            f"GET {path} HTTP/1.1\r\nHost: localhost\r\n"
            f"Upgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key.decode()}\r\n\r\n"
        )
        self._sock.sendall(lines.encode())
        self._stream = self._sock.makefile("rb")
        status = self._stream.readline()
        head = b"".join(iter(self._stream.readline, b"\r\n"))
        assert status == b"HTTP/1.1 101 Switching Protocols\r\n", (status, head)
        proof = base64.b64encode(hashlib.sha1(key + _SUFFIX, usedforsecurity=False).digest())
        assert b"Sec-WebSocket-Accept: " + proof + b"\r\n" in head

    def send(self, value: object) -> None:
        """Send a message."""
        self.send_frame(TEXT, json.dumps(value).encode())

    def send_frame(self, opcode: int, content: bytes) -> None:
        """Send a frame with a mask."""
        mask = os.urandom(4)
        size = len(content)
        if size < 126:
            head = bytes([0x80 | opcode, 0x80 | size])
        elif size < 1 << 16:
            head = bytes([0x80 | opcode, 0x80 | 126]) + size.to_bytes(2, "big")
        else:
            head = bytes([0x80 | opcode, 0x80 | 127]) + size.to_bytes(8, "big")
        masked = bytes(byte ^ mask[at % 4] for at, byte in enumerate(content))
        self._sock.sendall(head + mask + masked)

    def receive_frame(self) -> tuple[int, bytes]:
        """Return opcode and content of the next frame."""
        head = self._stream.read(2)
        assert len(head) == 2, "the connection ended"
        assert head[0] & 0xF0 == 0x80
        size = head[1]
        if size == 126:
            size = int.from_bytes(self._stream.read(2), "big")
        elif size == 127:
            size = int.from_bytes(self._stream.read(8), "big")
        return head[0] & 0x0F, self._stream.read(size)

    def receive(self) -> Any:
        """Return the next message as a value."""
        opcode, content = self.receive_frame()
        assert opcode == TEXT, (opcode, content)
        return json.loads(content)

    def answer(self, cmd: str, **fields: object) -> Any:
        """Send a command; return its answer, and drop events that come before it."""
        self.send({"cmd": cmd, **fields, "reqId": "mine"})
        while (said := self.receive()).get("reqId") != "mine":
            pass
        del said["reqId"]
        return said

    def has_ended(self) -> bool:
        """Wait for the end of the connection."""
        return self._stream.read(1) == b""

    def close(self) -> None:
        """Close the connection."""
        self._stream.close()
        self._sock.close()
