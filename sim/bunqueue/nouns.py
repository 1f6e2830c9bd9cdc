"""The nouns of the bunqueue model: jobs, locks, connections, and what was asked on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jobyard.model.job import DELAYED, READY
from jobyard.wire.msgpack.write import encode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jobyard.model.job import Job

Told = dict[str, object]
NEVER: Final = 1 << 61
BACKOFF_CAP_MS: Final = 3_600_000


class Ask:
    """One command on its way: what it asks, and until when it waits, if it does."""

    def __init__(self, cmd: str, fields: Told) -> None:
        self.cmd = cmd
        self.fields = fields
        self.req_id = ""
        self.until = NEVER
        # The batch that was open when it was run.
        self.opened = 0

    def __repr__(self) -> str:
        return f"{self.cmd} {self.fields}"[:300]

    def text(self, key: str) -> str:
        """Return a field that is text."""
        return str(self.fields[key])

    def number(self, key: str, otherwise: int) -> int:
        """Return a field that is a number."""
        value = self.fields.get(key, otherwise)
        assert isinstance(value, int)
        return value

    def maps(self, key: str) -> list[Told]:
        """Return a field that is a list of maps."""
        value = self.fields[key]
        assert isinstance(value, list)
        return value


class Lock:
    """Who runs a job, on what terms; `client` is None once the connection is gone."""

    def __init__(self, client: BunClient, token: str | None, ttl: int, since: int) -> None:
        self.client: BunClient | None = client
        self.token = token
        self.ttl = ttl
        self.since = since
        self.until = since + ttl
        self.stop_at = NEVER
        self.is_renewed = False


class BunJob:
    """One job as its clients understand it."""

    def __init__(self, number: int, name: str, queue: str, wish: Told, now: int) -> None:
        self.number = number
        self.id = name
        self.queue = queue
        self.data = encode(wish["data"])
        self.priority = _number(wish, "priority", 0)
        self.max_attempts = _number(wish, "maxAttempts", 3)
        self.timeout_ms = _number(wish, "timeout", 0)
        self.ttl_ms = _number(wish, "ttl", 0)
        self.created = now
        self.ended = NEVER
        self.due = now + _number(wish, "delay", 0)
        self.state = DELAYED if self.due > now else READY
        self.removes_done = bool(wish.get("removeOnComplete"))
        self.removes_dead = bool(wish.get("removeOnFail"))
        self.key = str(wish.get("uniqueKey", ""))
        self.key_until = 0
        dedup = wish.get("dedup")
        if isinstance(dedup, dict) and dedup.get("ttl"):
            self.key_until = now + int(dedup["ttl"])
        self.group = str(wish.get("groupId", ""))
        self._backoff = wish.get("backoff", 1000)
        self.waits: set[int] = set()
        self.attempts = 0
        self.stalls = 0
        self.lock: Lock | None = None
        self.last_token: str | None = None
        self.result: object = None
        # The batch that must be safe before anybody hears of it.
        self.batch = 0
        # First come first served among those that never did anything but wait.
        self.is_plain = self.state == READY and not wish.get("lifo")

    def rank(self) -> int:
        """Return its place in line: in a group the least priority goes first, else the greatest."""
        return self.priority if self.group else -self.priority

    def __repr__(self) -> str:
        story = f"job {self.number} ({self.id}) of {self.queue}, state {self.state}"
        return (
            f"{story}, {self.attempts}/{self.max_attempts}, {self.stalls} stalls, {self.priority}"
        )

    def backoff(self) -> tuple[int, int]:
        """Return how long at least and at most a job waits after the attempts it has used."""
        if isinstance(self._backoff, dict) and self._backoff["type"] == "fixed":
            base = int(self._backoff["delay"])
            return base * 8 // 10, base * 12 // 10
        told = self._backoff["delay"] if isinstance(self._backoff, dict) else self._backoff
        assert isinstance(told, int)
        base = told
        base <<= min(self.attempts, 24)
        return min(base // 2, BACKOFF_CAP_MS), min(base * 3 // 2, BACKOFF_CAP_MS)

    def recall(self, found: Job) -> None:
        """Go on from what a restart brought back, which was compared before."""
        self.state = int(found.state)
        self.attempts = int(found.attempts)
        self.stalls = int(found.stalls())
        self.due = int(found.due_ms)
        self.created = int(found.created_ms)
        self.priority = int(found.rank) if self.group else -int(found.rank)
        self.lock = None
        self.last_token = None
        self.result = None
        extra = found.extra
        if extra is None:
            return
        outcome = extra.outcome
        if outcome is not None:
            self.ended = int(outcome.ended_ms)
        self.key = extra.unique_key
        self.key_until = int(extra.key_until_ms)
        self.waits = {int(one.child_id) for one in extra.members or () if one.state == 0}


class BunClient:
    """One connection: what it asked and was not told yet, and the tokens it was given."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.is_gone = False
        self.asked: dict[str, Ask] = {}
        self.asks_count = 0
        # The last token of each job; some are of no use any more.
        self.tokens: dict[str, str] = {}


def _number(wish: Mapping[str, object], key: str, otherwise: int) -> int:
    value = wish.get(key, otherwise)
    assert isinstance(value, int)
    return value
