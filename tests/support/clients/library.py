"""Calls of the functions of glide-mq as its clients make them, over a bare connection."""

from typing import Any

from tests.support.clients.glidemq import GlideClient
from tests.support.doors.glidemq import BareGlidemq
from tests.support.site.site import Site


class GlideCalls:
    """The functions, for one queue, on a connection to any site's door."""

    site: Site

    def __init__(self, client: GlideClient, name: str = "tasks", prefix: str = "glide") -> None:
        self.client = client
        self.site = client.site
        self.name = name
        self.p = f"{prefix}:{{{name}}}"

    def key(self, part: str) -> str:
        return f"{self.p}:{part}"

    def keys(self, *parts: str) -> list[str]:
        return [self.key(part) for part in parts]

    def ts(self) -> int:
        """Return the wall time of a client with a correct clock."""
        return self.site.now_ms + int(self.site.yard.journal.wall_offset_ms)

    def call(self, name: str, parts: list[str], *arguments: object) -> Any:
        keys = self.keys(*parts)
        return self.client.ask("FCALL", f"glidemq_{name}", len(keys), *keys, *arguments)

    def refused(self, name: str, parts: list[str], *arguments: object) -> str:
        keys = self.keys(*parts)
        return self.client.refused("FCALL", f"glidemq_{name}", len(keys), *keys, *arguments)

    # -- producers -----------------------------------------------------------------------------

    def arguments(self, **given: object) -> list[object]:
        """Return the seventeen arguments of an add, and optional ones that are given."""
        known: dict[str, object] = {
            "name": "send-email", "data": '{"to":"me"}', "opts": "{}", "ts": self.ts(),
            "delay": 0, "priority": 0, "parent": "", "attempts": 0, "key": "", "concurrency": 0,
            "rate_max": 0, "rate_ms": 0, "capacity": 0, "refill": 0, "cost": 0, "ttl": 0,
            "custom": "",
        }  # fmt: skip
        known.update(given)
        return list(known.values())

    def add(self, **given: object) -> Any:
        parts = ["id", "stream", "scheduled", "events"]
        return self.call("addJob", parts, *self.arguments(**given))

    def dedup(self, dedup_id: str, mode: str, ttl: int = 0, **given: object) -> Any:
        parts = ["dedup", "id", "stream", "scheduled", "events"]
        return self.call("dedup", parts, dedup_id, ttl, mode, *self.arguments(**given))

    # -- workers -------------------------------------------------------------------------------

    def read(self, consumer: str = "w1", count: int = 1) -> list[tuple[str, str]]:
        """Take jobs from the stream; return id and entry of each."""
        answer = self.client.ask(
            "XREADGROUP", "GROUP", "workers", consumer, "COUNT", count,
            "STREAMS", self.key("stream"), ">",
        )  # fmt: skip
        if answer is None:
            return []
        entries = answer[self.key("stream").encode()] if isinstance(answer, dict) else answer[0][1]
        return [(fields[1].decode(), entry.decode()) for entry, fields in entries]

    def activate(self, job_id: str, entry: str) -> Any:
        if not entry:
            return self.call("moveToActive", [f"job:{job_id}"], self.ts())
        parts = [f"job:{job_id}", "stream"]
        return self.call("moveToActive", parts, self.ts(), entry, "workers", job_id)

    def complete(
        self, job_id: str, entry: str, value: str = '"ok"', keep: tuple[object, ...] = (0, 0, 0)
    ) -> Any:
        parts = ["stream", "completed", "events", f"job:{job_id}", "metrics:completed"]
        return self.call(
            "complete", parts, job_id, entry, value, self.ts(), "workers", *keep, "", ""
        )

    def next(self, job_id: str, entry: str, value: str = '"ok"', consumer: str = "w1") -> Any:
        parts = ["stream", "completed", "events", f"job:{job_id}", "metrics:completed"]
        return self.call(
            "completeAndFetchNext", parts, job_id, entry, value, self.ts(), "workers", consumer,
            0, 0, 0, "", "", "__", "", "__", 0, "", 0, 0, 0,
        )  # fmt: skip

    def fail(
        self, job_id: str, entry: str, reason: str = "boom", attempts: int = 0, backoff: int = 0
    ) -> Any:
        parts = ["stream", "failed", "scheduled", "events", f"job:{job_id}", "metrics:failed"]
        return self.call(
            "fail", parts, job_id, entry, reason, self.ts(), attempts, backoff, "workers", 0, 0, 0
        )

    def promote(self, ahead_ms: int = 0) -> Any:
        return self.call("promote", ["scheduled", "stream", "events"], self.ts() + ahead_ms)

    # -- state ---------------------------------------------------------------------------------

    def job(self, job_id: str) -> dict[str, str]:
        flat = self.client.ask("HGETALL", self.key(f"job:{job_id}"))
        words = [value.decode() for value in flat]
        return dict(zip(words[::2], words[1::2], strict=True))

    def state(self, job_id: str) -> str | None:
        value = self.client.ask("HGET", self.key(f"job:{job_id}"), "state")
        return None if value is None else str(value.decode())

    def counts(self) -> dict[str, int]:
        """Return how many jobs there are, as clients count them."""
        ask = self.client.ask
        pending = ask("XPENDING", self.key("stream"), "workers")[0]
        return {
            "waiting": ask("XLEN", self.key("stream")) - pending,
            "active": pending + int(ask("GET", self.key("list-active")) or 0),
            "lists": ask("LLEN", self.key("priority")) + ask("LLEN", self.key("lifo")),
            "scheduled": ask("ZCARD", self.key("scheduled")),
            "completed": ask("ZCARD", self.key("completed")),
            "failed": ask("ZCARD", self.key("failed")),
        }

    def events(self) -> list[tuple[str, str]]:
        """Return all events, each with the job it is about."""
        entries = self.client.ask("XRANGE", self.key("events"), "-", "+")
        return [(fields[1].decode(), fields[3].decode()) for _, fields in entries]


class Library(GlideCalls):
    """The functions on an own connection to a site that has only this door."""

    site: BareGlidemq

    def __init__(self, site: BareGlidemq, name: str = "tasks", prefix: str = "glide") -> None:
        super().__init__(site.connect(), name, prefix)
        self.site = site
