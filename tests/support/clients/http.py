"""HTTP clients without a socket: requests in, answers out, as they are on the wire.

`HttpClient` sends whole requests and reads whole answers, or the events of a stream; what a
request means is known to its subclasses, one for each API. JSON bodies are parsed.
"""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from jobyard.protocols.session import Entrance
from tests.support.clients.http_text import dechunked, handshake, head_of, ws_frame, ws_frames
from tests.support.site.connection import FullyRead

if TYPE_CHECKING:
    from tests.support.doors.http import BareHttp
    from tests.support.site.site import Site

NO_BODY_STATUSES: Final = (101, 204)
JSON_BODY: Final = {"Content-Type": "application/json"}
NOTHING: Final[dict[str, str]] = {}


class Reply(NamedTuple):
    """One answer: status, head, and body in all its chunks."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """Return the body as a value."""
        return json.loads(self.body)

    @property
    def error(self) -> str:
        """Return the reason of a refusal, which must have the form of bunqueue's API."""
        said = self.json
        assert said["ok"] is False
        assert set(said) == {"ok", "error"}
        return str(said["error"])

    @property
    def code(self) -> str:
        """Return the code of a refusal, which must have the form of the API of topics."""
        said = self.json
        assert set(said) == {"error"}, said
        assert {"code", "message"} <= set(said["error"]) <= {"code", "message", "detail"}
        assert said["error"]["message"]
        return str(said["error"]["code"])

    @property
    def refusal(self) -> tuple[int, str]:
        """Return status and code of a refusal."""
        return self.status, self.code


class HttpClient(FullyRead):
    """One connection to the port."""

    host = "yard"
    # Whether a body is called JSON, and methods with a length even if there is no body.
    names_type = True
    sized: tuple[str, ...] = ("POST", "PUT")

    def __init__(self, site: "Site", entrance: Entrance, key: str = "") -> None:
        super().__init__(site, entrance)
        self._key = key

    def send(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: Mapping[str, str] = NOTHING,
        /,
        **more: str,
    ) -> None:
        """Send a request; a body other than bytes is sent as JSON, an empty header not at all."""
        lines = {"Host": self.host, **headers}
        lines.update((name.replace("_", "-"), value) for name, value in more.items())
        if self._key:
            lines.setdefault("Authorization", f"Bearer {self._key}")
        data = b"" if body is None else as_json(body)
        if body is not None and self.names_type:
            lines.setdefault("Content-Type", "application/json")
        if data or method in self.sized:
            lines["Content-Length"] = str(len(data))
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items() if value)
        self.feed(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + data)

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

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: Mapping[str, str] = NOTHING,
        /,
        **more: str,
    ) -> Reply:
        """Send a request that is answered at once; return the answer."""
        self.send(method, path, body, headers, **more)
        reply = self.hear(is_head=method == "HEAD")
        assert reply is not None, f"no answer to {method} {path}: {self.unread!r}"
        return reply

    def take_head(self) -> tuple[int, dict[str, str]]:
        """Take the head of an answer whose body is a stream; return status and headers."""
        head, end, self.unread = self.unread.partition(b"\r\n\r\n")
        assert end, f"no head: {head!r}"
        return head_of(head)

    def take_blocks(self) -> tuple[list[str], bool]:
        """Return the blocks of the event stream since the last call, and whether it has ended."""
        text, is_over = dechunked(self.take_unread())
        blocks = text.decode().split("\n\n")
        assert blocks.pop() == ""
        return blocks, is_over


def as_json(value: object) -> bytes:
    """Return a value as JSON; bytes are JSON already."""
    return value if isinstance(value, bytes) else json.dumps(value).encode()


class BunqueueHttpClient(HttpClient):
    """A client of bunqueue's API, which takes any body for JSON."""

    names_type = False
    sized = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE")

    def ok(self, method: str, path: str, body: object = None, **headers: str) -> Any:
        """Send a request that must succeed; return the answer without `ok`."""
        reply = self.ask(method, path, body, **headers)
        said = reply.json
        assert reply.status == 200, f"{method} {path}: {reply.status} {said}"
        assert said.pop("ok") is True, f"{method} {path}: {said}"
        return said


class EventSource(BunqueueHttpClient):
    """A caller of an event stream."""

    def __init__(self, site: "BareHttp", path: str = "/events", **headers: str) -> None:
        super().__init__(site, site.http_entrance)
        self.send("GET", path, **headers)
        status, self.headers = self.take_head()
        assert status == 200, self.unread

    def text(self) -> str:
        """Return the text received since the last call, without the chunk framing."""
        text, _is_over = dechunked(self.take_unread())
        return text.decode()

    def blocks(self) -> list[dict[str, str]]:
        """Return the fields of the blocks received; a comment has none."""
        blocks, _is_over = self.take_blocks()
        return [fields_of(block) for block in blocks]

    def told(self, *names: str) -> list[Any]:
        """Return the data of the events received, only of these names if any are given."""
        return [
            json.loads(block["data"])
            for block in self.blocks()
            if not names or block.get("event") in names
        ]


def fields_of(block: str) -> dict[str, str]:
    """Return the fields of a block of an event stream; a comment has none."""
    pairs = (line.partition(": ") for line in block.split("\n") if not line.startswith(":"))
    return {name: value for name, _, value in pairs}


class WebSocket(BunqueueHttpClient):
    """The client side of a WebSocket."""

    def __init__(self, site: "BareHttp", path: str = "/ws", **headers: str) -> None:
        super().__init__(site, site.http_entrance)
        # The key and its answer are the example of RFC 6455.
        self.send("GET", path, **handshake(), **headers)
        reply = self.hear()
        assert reply is not None
        assert reply.status == 101, reply.body
        assert reply.headers["upgrade"] == "websocket"
        assert reply.headers["sec-websocket-accept"] == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="

    def say(self, value: object) -> None:
        """Send a message."""
        self.feed(ws_frame(1, as_json(value)))

    def frames(self) -> list[tuple[int, bytes]]:
        """Return the opcodes and contents of the frames received since the last call."""
        return ws_frames(self.take_unread())

    def messages(self) -> list[Any]:
        """Return the received texts as values."""
        return [json.loads(content) for opcode, content in self.frames() if opcode == 1]

    def answer(self, cmd: str, **fields: object) -> Any:
        """Send a command; return the answer, which is the last that comes."""
        self.say({"cmd": cmd, **fields})
        return [one for one in self.messages() if "ok" in one][-1]
