"""The nouns of the topics model: records, jobs, logs, queues, routers, and requests.

Plain values in plain containers. A record never changes, so the memory of a topic at some
batch may share it with the current topic.
"""

from __future__ import annotations

import json
from base64 import b64decode
from typing import Final, NamedTuple

Reply = dict[str, object]

DEFAULTS: Final[Reply] = {
    "type": "log",
    "ttl_ms": 0,
    "cap_records": 0,
    "cap_bytes": 0,
    "discard": "old",
    "durable": False,
    "durability": "disk",
    "priority": None,
    "auto_priority": True,
    "auto_create": True,
    "idempotency_window_ms": 120_000,
    "key_window_ms": 604_800_000,
    "key_max": 10_000_000,
    "dedupe_node": True,
    "lease_ms": 30_000,
    "claim_jitter_ms": 0,
    "max_deliveries": 0,
    "dead_letter": None,
    "leases_durable": False,
}


def compact(value: object) -> str:
    """Return JSON without spaces."""
    return json.dumps(value, separators=(",", ":"))


class Refusal(Exception):
    """A refusal by the model."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(code)
        self.status = status
        self.code = code


class Config:
    """The configuration of a topic."""

    def __init__(self, given: Reply) -> None:
        self.fields: Reply = {**DEFAULTS, **given}
        if "durability" not in given:
            self.fields["durability"] = "fsync" if given.get("durable") else "disk"
        self.fields["durable"] = self.fields["durability"] == "fsync"
        self.type = str(self.fields["type"])
        self.ttl = self._number("ttl_ms")
        self.cap_records = self._number("cap_records")
        self.cap_bytes = self._number("cap_bytes")
        self.is_rejecting = self.fields["discard"] == "reject"
        self.is_written = self.fields["durability"] != "ephemeral"
        self.window = self._number("idempotency_window_ms")
        self.key_window = self._number("key_window_ms")
        self.key_max = self._number("key_max")
        self.dedupes = bool(self.fields["dedupe_node"])
        self.lease = self._number("lease_ms")
        self.most_deliveries = self._number("max_deliveries")
        letters = self.fields["dead_letter"]
        self.letters = "" if letters is None else str(letters)

    def _number(self, key: str) -> int:
        value = self.fields[key]
        assert isinstance(value, int)
        return value

    def is_too_large(self, count: int, size: int) -> bool:
        """Return whether a write exceeds the caps by itself, where nothing of it may be dropped."""
        return self.is_rejecting and self.is_exceeded_by(count, size)

    def is_exceeded_by(self, count: int, size: int) -> bool:
        """Return whether a write is larger than the caps."""
        return 0 < self.cap_records < count or 0 < self.cap_bytes < size


# Begins data that are bytes, before their base64; no JSON begins so.
BYTES: Final = "bytes:"


class Content(NamedTuple):
    """What a writer sends: data as JSON text or bytes, meta as an object or empty."""

    data: str
    meta: Reply
    tag: str
    node: str
    delay: int = 0
    priority: int = 0

    def size(self, *, is_job: bool) -> int:
        """Return how much of a cap it takes: in a log, bytes take what their text takes."""
        size = len(self.data)
        if self.data.startswith(BYTES):
            encoded = self.data.removeprefix(BYTES)
            size = len(b64decode(encoded)) if is_job else len(encoded) + len('_b64""')
        return size + (len(compact(self.meta)) if self.meta else 0)

    def field(self) -> Reply:
        """Return its data as records name them."""
        if self.data.startswith(BYTES):
            return {"data_b64": self.data.removeprefix(BYTES)}
        return {"data": json.loads(self.data)}

    def shown(self, *, tags: bool, node: bool, meta: bool) -> Reply:
        """Return how a reader sees it."""
        told = self.field()
        if tags and self.tag:
            told["$tag"] = self.tag
        if node and self.node:
            told["$node"] = self.node
        if meta and self.meta:
            told["meta"] = self.meta
        return told


def data_of(record: Reply) -> str:
    """Return the data of a record as a content holds them."""
    if "data_b64" in record:
        return BYTES + str(record["data_b64"])
    return compact(record["data"])


class Row:
    """A record of a log; `batch` is the one it was written in, 0 if no crash can lose it."""

    __slots__ = ("at", "batch", "content", "is_written", "seq", "size", "ts")

    def __init__(self, seq: int, ts: int, at: int, content: Content, batch: int) -> None:
        self.seq = seq
        self.ts = ts
        self.at = at
        self.content = content
        self.size = content.size(is_job=False)
        self.batch = batch
        self.is_written = True


class Write(NamedTuple):
    """The result of a write with a key; `time` is when it was made, or until when it is valid."""

    first: int
    last: int
    time: int
    batch: int


class Query:
    """The query of a reader."""

    def __init__(self, fields: Reply) -> None:
        def number(key: str, otherwise: int) -> int:
            value = fields.get(key, otherwise)
            assert isinstance(value, int)
            return value

        self.after = number("from_seq", 0)
        self.limit = number("limit", 256)
        self.most_bytes = number("max_batch_bytes", 1 << 20)
        self.node = str(fields.get("node", ""))
        self.tags = bool(fields.get("include_tags", False))
        self.meta = bool(fields.get("include_meta", True))


class Page(NamedTuple):
    """What a reader should see: all its records past the cursor, whether or not they fit."""

    wanted: list[tuple[int, Reply, int]]
    after: int
    head: int
    earliest: int
    tombstone: Reply | None


class Job:
    """A job of a queue."""

    def __init__(self, seq: int, content: Content, created: int, batch: int) -> None:
        self.seq = seq
        self.content = content
        self.size = content.size(is_job=True)
        self.created = created
        self.due = created + content.delay
        # Set until a tick finds that it is due.
        self.is_delayed = content.delay > 0
        self.batch = batch
        self.deliveries = 0
        self.holder = ""
        self.deadline = 0
        self.lease_id = ""
        # When a holder last gave it back, and the last error that one gave.
        self.freed = 0
        self.error = ""
        # The number that the yard gave it; 0 until it was claimed.
        self.number = 0
        # Its place among the dead jobs of its queue; 0 if it is not dead.
        self.buried = 0

    def __repr__(self) -> str:
        if self.buried:
            return f"job {self.seq}, dead, {self.deliveries} deliveries"
        where = f"held by {self.holder} until {self.deadline}" if self.holder else f"due {self.due}"
        return f"job {self.seq}, {where}, {self.deliveries} deliveries"


class Router:
    """A router and its cursor."""

    def __init__(self, name: str, fields: Reply) -> None:
        self.name = name
        self.source = str(fields["source"])
        self.dest = str(fields["dest"])
        self.match = fields.get("filter")
        self.is_exact = fields.get("guarantee") == "exactly_once"
        self.keeps_tag = bool(fields.get("preserve_tag", True))
        self.keeps_node = bool(fields.get("preserve_node", True))
        self.cursor = 0
        self.is_behind = False
        self.retry = 0

    def takes(self, tag: str) -> bool:
        """Return whether a record with this tag is forwarded."""
        return self.match is None or has_tag(tag, str(self.match))

    def copy_of(self, row: Row) -> Content:
        """Return what is written to the destination."""
        content = row.content
        meta = content.meta
        if self.is_exact:
            stamp = {"router": self.name, "source": self.source, "seq": row.seq}
            meta = {**meta, "_topics_router": stamp}
        tag = content.tag if self.keeps_tag else ""
        return Content(content.data, meta, tag, content.node if self.keeps_node else "")


def has_tag(tag: str, match: str) -> bool:
    """Return whether a tag equals the pattern, or begins as requested."""
    if match.endswith("*"):
        return tag != "" and tag.startswith(match[:-1])
    return tag != "" and tag == match


class Ask:
    """One request to a topic or router."""

    def __init__(self, verb: str, name: str, fields: Reply) -> None:
        self.verb = verb
        self.name = name
        self.fields = fields
        # For a waiting request: until when, and its expected answer once that is known.
        self.until = 0
        # The lease time for what it claims, as configured when it came.
        self.lease = 0
        self.query = Query(fields) if verb == "diff" else None
        self.page: Page | None = None
        self.is_over = False

    def __repr__(self) -> str:
        return f"{self.verb} {self.name} {compact(self.fields)}"[:300]

    def is_quick(self) -> bool:
        """Return whether another may be sent before its answer is checked."""
        return "wait_ms" not in self.fields and not self.verb.startswith("drop")

    def number(self, key: str, otherwise: int) -> int:
        """Return a field that is a number."""
        value = self.fields.get(key, otherwise)
        assert isinstance(value, int)
        return value

    def text(self, key: str) -> str:
        """Return a field that is text."""
        return str(self.fields.get(key) or "")

    def numbers(self, key: str) -> list[int]:
        """Return a field that is a list of numbers."""
        value = self.fields[key]
        assert isinstance(value, list)
        return value

    def contents(self) -> list[Content]:
        """Return the records of a write."""
        records = self.fields["records"]
        assert isinstance(records, list)
        whole = self.text("node")
        return [
            Content(
                data_of(one),
                one.get("meta", {}),
                one.get("tag", ""),
                one.get("node", "") or whole,
                one.get("delay_ms", 0),
                one.get("priority", 0),
            )
            for one in records
        ]

    def keys(self) -> list[str]:
        """Return the keys of the records of a write; empty for a record without one."""
        records = self.fields["records"]
        assert isinstance(records, list)
        return [one.get("key", "") for one in records]

    def request(self) -> bytes:
        """Return its bytes."""
        method, path = _PATHS[self.verb]
        body = b""
        if method in {"POST", "PUT"}:
            body = compact(self.fields).encode()
        head = (
            f"{method} {path.format(self.name, self.text('claim_id'))} HTTP/1.1\r\nHost: yard\r\n"
        )
        if body:
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        return head.encode() + b"\r\n" + body


_PATHS: Final = {
    "put": ("PUT", "/v0/topics/{}"),
    "get": ("GET", "/v0/topics/{}"),
    "drop": ("DELETE", "/v0/topics/{}"),
    "drop-empty": ("DELETE", "/v0/topics/{}?if_empty=true"),
    "list": ("GET", "/v0/topics?prefix={}"),
    "write": ("POST", "/v0/topics/{}"),
    "diff": ("POST", "/v0/topics/{}/diff"),
    "delete": ("POST", "/v0/topics/{}/delete"),
    "claim": ("POST", "/v0/topics/{}/claim"),
    "ack": ("POST", "/v0/topics/{}/ack"),
    "nack": ("POST", "/v0/topics/{}/nack"),
    "extend": ("POST", "/v0/topics/{}/extend"),
    "redrive": ("POST", "/v0/topics/{}/redrive"),
    "purge": ("POST", "/v0/topics/{}/purge"),
    "cursor": ("PUT", "/v0/topics/{}/cursors/c"),
    "cursors": ("GET", "/v0/topics/{}/cursors"),
    "stage": ("POST", "/v0/txns/{}/stage"),
    "commit": ("POST", "/v0/txns/{}/commit"),
    "txn-look": ("GET", "/v0/txns/{}"),
    "txn-abort": ("DELETE", "/v0/txns/{}"),
    "claim-set": ("POST", "/v0/topics/{}/claim"),
    "show-set": ("GET", "/v0/topics/{}/claims/{}"),
    "extend-set": ("POST", "/v0/topics/{}/claims/{}/extend"),
    "route": ("PUT", "/v0/routers/{}"),
    "router": ("GET", "/v0/routers/{}"),
    "unroute": ("DELETE", "/v0/routers/{}"),
}
