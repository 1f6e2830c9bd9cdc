"""The HTTP port without a socket: requests in, answers out, over a yard in memory.

`BareHttp` is the bunqueue door of one boot together with the HTTP port. A client sends whole
requests and reads answers as they are on the wire; a later one is fetched with `hear`.
JSON bodies are parsed.
"""

import json
from typing import Any, Final

from jobyard.journal.storage import Storage
from jobyard.protocols.bunqueue.http.api import BunqueueArea, install
from jobyard.protocols.http.door import HttpDoor, Stopwatch
from jobyard.protocols.http.entrance import HttpEntrance
from jobyard.protocols.http.routes import Routes
from tests.support.bare_bunqueue import BareBunqueue, Ears
from tests.support.http_text import dechunked, handshake, head_of, ws_frame, ws_frames

NO_BODY_STATUSES: Final = (101, 204)


class Reply:
    """One answer: status, head, and body in all its chunks."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self) -> Any:
        """Return the body as a value."""
        return json.loads(self.body)

    @property
    def error(self) -> str:
        """Return the reason of a refusal."""
        said = self.json
        assert said["ok"] is False
        assert set(said) == {"ok", "error"}
        return str(said["error"])


class HttpClient:
    """One connection to the port."""

    def __init__(self, site: "BareHttp") -> None:
        self._site = site
        self.session = site.http_entrance.enter(Ears(site.woken, self))
        self.unread = b""
        self._is_open = True

    def send(self, data: bytes) -> None:
        """Send bytes."""
        self.session.receive(data, self._site.now_ms)
        self.collect()
        self._site.settle()

    def collect(self) -> None:
        """Take the session's output."""
        self.unread += self.session.take_output()

    def resume(self) -> None:
        """Resume the session, as a connection does once it was woken."""
        if self._is_open:
            self.session.resume(self._site.now_ms)
            self.collect()

    def request(self, method: str, path: str, body: object = None, **headers: str) -> None:
        """Send a request; a body other than bytes is sent as JSON."""
        content = b"" if body is None else body if isinstance(body, bytes) else _json(body)
        lines = [f"{method} {path} HTTP/1.1", "Host: yard", f"Content-Length: {len(content)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.send("\r\n".join([*lines, "", ""]).encode() + content)

    def hear(self, *, is_head: bool = False) -> Reply | None:
        """Return the next answer, if it is complete."""
        head, end, rest = self.unread.partition(b"\r\n\r\n")
        if not end:
            return None
        status, headers = head_of(head)
        size = 0 if is_head or status in NO_BODY_STATUSES else int(headers["content-length"])
        if len(rest) < size:
            return None
        self.unread = rest[size:]
        return Reply(status, headers, rest[:size])

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> Reply:
        """Send a request that is answered at once; return the answer."""
        self.request(method, path, body, **headers)
        reply = self.hear(is_head=method == "HEAD")
        assert reply is not None, f"no answer to {method} {path}: {self.unread!r}"
        return reply

    def ok(self, method: str, path: str, body: object = None, **headers: str) -> Any:
        """Send a request that must succeed; return the answer without `ok`."""
        reply = self.ask(method, path, body, **headers)
        said = reply.json
        assert reply.status == 200, f"{method} {path}: {reply.status} {said}"
        assert said.pop("ok") is True, f"{method} {path}: {said}"
        return said

    def close(self) -> None:
        """Close the connection."""
        self._is_open = False
        self.session.closed(self._site.now_ms)
        self._site.settle()


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


class EventSource(HttpClient):
    """A caller of an event stream."""

    def __init__(self, site: "BareHttp", path: str = "/events", **headers: str) -> None:
        super().__init__(site)
        self.request("GET", path, **headers)
        head, _, self.unread = self.unread.partition(b"\r\n\r\n")
        status, self.headers = head_of(head)
        assert status == 200, head

    def text(self) -> str:
        """Return the text received since the last call, without the chunk framing."""
        self.collect()
        text, _is_over = dechunked(self.unread)
        self.unread = b""
        return text.decode()

    def blocks(self) -> list[dict[str, str]]:
        """Return the fields of the blocks received; a comment has none."""
        blocks = self.text().split("\n\n")
        assert blocks.pop() == ""
        return [_block(block) for block in blocks]

    def told(self, *names: str) -> list[Any]:
        """Return the data of the events received, only of these names if any are given."""
        return [
            json.loads(block["data"])
            for block in self.blocks()
            if not names or block.get("event") in names
        ]


def _block(block: str) -> dict[str, str]:
    pairs = (line.partition(": ") for line in block.split("\n") if not line.startswith(":"))
    return {name: value for name, _, value in pairs}


class WebSocket(HttpClient):
    """The client side of a WebSocket."""

    def __init__(self, site: "BareHttp", path: str = "/ws", **headers: str) -> None:
        super().__init__(site)
        # The key and its answer are the example of RFC 6455.
        self.request("GET", path, **handshake(), **headers)
        reply = self.hear()
        assert reply is not None
        assert reply.status == 101, reply.body
        assert reply.headers["upgrade"] == "websocket"
        assert reply.headers["sec-websocket-accept"] == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="

    def say(self, value: object) -> None:
        """Send a message."""
        self.send(ws_frame(1, value if isinstance(value, bytes) else _json(value)))

    def frames(self) -> list[tuple[int, bytes]]:
        """Return the opcodes and contents of the frames received since the last call."""
        self.collect()
        frames = ws_frames(self.unread)
        self.unread = b""
        return frames

    def messages(self) -> list[Any]:
        """Return the received texts as values."""
        return [json.loads(content) for opcode, content in self.frames() if opcode == 1]

    def answer(self, cmd: str, **fields: object) -> Any:
        """Send a command; return the answer, which is the last that comes."""
        self.say({"cmd": cmd, **fields})
        return [one for one in self.messages() if "ok" in one][-1]


class BareHttp(BareBunqueue):
    """Yard, door and port of one boot."""

    def __init__(
        self, storage: Storage | None = None, origin: str = "*", *, ids_ahead: bool = False
    ) -> None:
        super().__init__(storage, ids_ahead=ids_ahead)
        self.area = BunqueueArea(self.door)
        self.routes = Routes(self.area)
        install(self.routes, self.area)
        self.http = HttpDoor(self.yard, self.routes, Stopwatch())
        self.http.pages.name_origins(origin)
        self.http_entrance = HttpEntrance(self.http)

    def call(self) -> HttpClient:
        """Open a connection to the port."""
        return HttpClient(self)
