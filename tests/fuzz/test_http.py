"""Every route of the HTTP port with hostile paths, queries, headers and bodies; both WebSockets.

What there is to attack is read from the port's own description of itself; fields of bodies that it
does not describe, those of bunqueue's commands, are the ones of their templates.
"""

import base64
from collections.abc import Iterator
from functools import cache
from typing import Any, Final
from urllib.parse import quote

import pytest

from jobyard.protocols.bunqueue.http.routes import ROWS
from tests.support.clients.topics import TopicsClient
from tests.support.doors.doors import BareDoors
from tests.support.site.storage import MemoryStorage
from tests.support.values.bunqueue_commands import TEMPLATES
from tests.support.values.hostile import (
    FLOATS,
    NO_NUMBERS,
    OTHERS,
    WHOLE,
    WORDS,
    as_json,
    filled,
    places,
    put,
)

ALL: Final = (*WHOLE, *FLOATS, *NO_NUMBERS, *OTHERS)
COMMANDS: Final = {(row.method.lower(), row.pattern): row.command for row in ROWS}
# Of numbers that only JSON has.
LONG: Final = (b"9" * 400, b"-" + b"9" * 5000, b"1e999", b"0." + b"9" * 5000, b"1e-999")
SPOKEN: Final[tuple[object, ...]] = (1 << 63, 1 << 64, -(1 << 64), 1e308, None, [[]], "x")
MARK: Final = "put-a-long-number-here"


@cache
def description() -> Any:
    """Return what the port says of itself."""
    return BareDoors(MemoryStorage()).api.ask("GET", "/openapi.json").json


def operations() -> list[tuple[str, str]]:
    """Return method and path of every route."""
    return [
        (method, path)
        for path, item in sorted(description()["paths"].items())
        for method in item
        if method != "parameters"
    ]


def example(schema: dict[str, Any]) -> Any:
    """Return something that a schema allows, with all there may be."""
    if "$ref" in schema:
        return example(description()["components"]["schemas"][schema["$ref"].rpartition("/")[2]])
    if "oneOf" in schema or "anyOf" in schema:
        return example((schema.get("oneOf") or schema["anyOf"])[0])
    if "allOf" in schema:
        return {key: one for part in schema["allOf"] for key, one in example(part).items()}
    kind = schema.get("type", "object")
    if isinstance(kind, list):
        kind = kind[0]
    if kind == "object":
        told = {key: example(one) for key, one in schema.get("properties", {}).items()}
        more = schema.get("additionalProperties")
        return {**told, "log": example(more)} if isinstance(more, dict) else told
    if kind == "array":
        return [example(schema.get("items", {"type": "integer"}))]
    words = {"integer": 1, "number": 1, "boolean": True, "string": "x", "null": None}
    return schema.get("enum", [words[kind]])[0]


class Assault:
    """A yard with topics and jobs, and a client who means no good."""

    def __init__(self) -> None:
        self.site = BareDoors(MemoryStorage())
        self.friend = self.site.api
        self.count = 0
        self.client = self.site.connect()
        self.friend.put("log")
        self.friend.write("log", 1, 2)
        self.friend.put("queue", type="queue")
        self.friend.write("queue", 1, 2)
        tcp = self.site.bunqueue()
        tcp.push("run")
        active, token = tcp.lock("run")
        self.cast: dict[str, object] = {
            "$waiting": tcp.push("q"),
            "$delayed": tcp.push("q", delay=60_000),
            "$active": active,
            "$token": token,
            "$dead": tcp.bury("dead"),
            "$worker": "w",
        }

    def fire(self, data: bytes) -> None:
        """Send bytes, whatever the result, and check that another client is served."""
        self.count += 1
        client = self.client
        client.session.receive(data, self.site.now_ms)
        client.session.take_output()
        self.site.settle()
        client.session.take_output()
        if self.count % 50 == 0:
            assert self.friend.ask("GET", "/ping").status == 200
        # Whatever answers late or never, or became another protocol, is left behind.
        if client.session.is_finished or client.session.unread_size() > 0 or self.count % 20 == 0:
            self.reopen()

    def reopen(self) -> None:
        """Leave, and come again."""
        self.client.session.closed(self.site.now_ms)
        self.client = self.site.connect()

    def finish(self) -> None:
        """Check that the yard is consistent, also after a restart."""
        self.reopen()
        self.site.tick(2000)
        for path in ("/v0/topics", "/dashboard", "/prometheus", "/v0/metrics", "/queues"):
            assert self.friend.ask("GET", path).status == 200
        self.site.check()
        self.site.after_a_crash()


def request(
    method: str, path: str, body: bytes | None = None, headers: tuple[tuple[str, str], ...] = ()
) -> bytes:
    """Return a request."""
    lines = [f"{method.upper()} {path} HTTP/1.1", "Host: localhost"]
    lines += [f"{name}: {value}" for name, value in headers]
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + (body or b"")


def paths_of(path: str) -> list[str]:
    """Return a path with names that there are in the place of its parameters."""
    if "{topic}" in path:
        return [path.replace("{topic}", name) for name in ("log", "queue", "none", "_events")]
    return [path.replace("{queue}", "q").replace("{router}", "r")]


def bodies(method: str, path: str, cast: dict[str, object]) -> Iterator[bytes]:
    """Return bodies for a route, each with something hostile in one place."""
    item = description()["paths"][path][method]
    content = item.get("requestBody", {}).get("content", {}).get("application/json")
    if content is None:
        return
    command = COMMANDS.get((method, path))
    template = filled(TEMPLATES[command], cast) if command else example(content["schema"])
    yield as_json(template)
    for way in places(template):
        for value in ALL:
            yield as_json(put(template, way, value))
        marked = as_json(put(template, way, MARK))
        for number in LONG:
            yield marked.replace(b'"%s"' % MARK.encode(), number)
    for value in ALL:
        yield as_json(value)


def test_every_route_is_described() -> None:
    assert {(row.method.lower(), row.pattern) for row in ROWS} <= set(operations())


def requests(method: str, path: str, cast: dict[str, object]) -> Iterator[bytes]:
    """Return requests to a route, each with something hostile in one place."""
    parameters = description()["paths"][path][method].get("parameters", [])
    for one in paths_of(path):
        plain = one.replace("{id}", str(cast["$active"])).replace("{", "").replace("}", "")
        for body in bodies(method, path, cast):
            yield request(method, plain, body)
        for parameter in parameters:
            for word in WORDS:
                if parameter["in"] == "query":
                    yield request(method, f"{plain}?{parameter['name']}={quote(word)}")
                elif parameter["in"] == "header" and word.isprintable():
                    yield request(method, plain, b"{}", ((parameter["name"], word),))
    for parameter in parameters:
        if parameter["in"] == "path":
            for word in WORDS:
                place = "{" + parameter["name"] + "}"
                yield request(method, path.replace(place, quote(word[:4000], safe="")), b"{}")


@pytest.mark.parametrize(("method", "path"), operations())
def test_no_request_ends_the_session(method: str, path: str) -> None:
    assault = Assault()
    for data in requests(method, path, assault.cast):
        assault.fire(data)
    assault.finish()


@pytest.mark.parametrize("name", ["Content-Length", "Last-Event-ID", "Idempotency-Key", "Host"])
def test_no_header_ends_the_session(name: str) -> None:
    assault = Assault()
    for path in ("/ping", "/events", "/v0/topics/log", "/queues/q/jobs", "/v0/watch/1"):
        for method in ("GET", "POST"):
            for word in WORDS:
                if "\0" not in word:
                    assault.fire(request(method, path, None, ((name, word),)))
                    assault.reopen()
    assault.finish()


# -- WebSockets --------------------------------------------------------------------------------


def open_socket(assault: Assault, path: str) -> TopicsClient:
    """Turn the hostile client's connection into a WebSocket."""
    key = base64.b64encode(bytes(16)).decode()
    lines = (
        ("Connection", "Upgrade"),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", key),
    )
    caller = assault.site.connect()
    caller.session.receive(request("GET", path, None, lines), assault.site.now_ms)
    assert b" 101 " in caller.session.take_output()
    return caller


def text_frame(content: bytes) -> bytes:
    """Return a text as a client sends it, masked with zeros."""
    size = len(content)
    if size < 126:
        return bytes((0x81, 0x80 | size)) + bytes(4) + content
    if size < 1 << 16:
        return b"\x81\xfe" + size.to_bytes(2, "big") + bytes(4) + content
    return b"\x81\xff" + size.to_bytes(8, "big") + bytes(4) + content


def say(assault: Assault, path: str, messages: Iterator[bytes]) -> None:
    """Send every message over a WebSocket."""
    caller = open_socket(assault, path)
    for count, message in enumerate(messages):
        caller.session.receive(text_frame(message), assault.site.now_ms)
        caller.session.take_output()
        assault.site.settle()
        if caller.session.is_finished or count % 30 == 29:
            caller.session.closed(assault.site.now_ms)
            caller = open_socket(assault, path)
    caller.session.closed(assault.site.now_ms)


def hostile(template: object) -> Iterator[bytes]:
    """Return a message with something hostile in each place."""
    for way in places(template):
        for value in SPOKEN:
            yield as_json(put(template, way, value))


@pytest.mark.parametrize("name", sorted(TEMPLATES))
def test_no_message_to_bunqueue_ends_the_session(name: str) -> None:
    assault = Assault()
    template = filled({"cmd": name, **TEMPLATES[name], "reqId": 1}, assault.cast)
    say(assault, "/ws", hostile(template))
    assault.finish()


def test_no_message_to_topics_ends_the_session() -> None:
    assault = Assault()
    query = {"from_seq": 0, "limit": 1, "include_tags": True, "tag": "t", "node": "n"}
    for template in (
        {"id": 1, "type": "subscribe", "op": "subscribe", "topics": {"log": query}},
        {"id": 1, "type": "unsubscribe", "op": "unsubscribe", "topics": ["log"]},
        {"id": 1, "type": "write", "op": "write", "topic": "log", "return_seqs": True,
         "records": [{"data": 1, "tag": "t", "node": "n", "meta": {}}]},
        {"id": 1, "type": "ping", "op": "ping"},
    ):  # fmt: skip
        say(assault, "/v0/ws", hostile(template))
    assault.finish()


def test_no_frame_ends_the_session() -> None:
    assault = Assault()
    sizes = (
        b"\x81\xfe\xff\xff",
        b"\x81\xff" + b"\xff" * 8,
        b"\x81\xff\x7f" + b"\xff" * 7,
        b"\x81\xff",
    )
    for path in ("/ws", "/v0/ws"):
        for start in (*sizes, b"\x88\x82\0\0\0\0\xff\xff", b"\x89\xff", b"\x01\x80", b"\xff\xff"):
            caller = open_socket(assault, path)
            caller.session.receive(start + bytes(16), assault.site.now_ms)
            caller.session.closed(assault.site.now_ms)
    assault.finish()
