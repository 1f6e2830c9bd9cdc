"""The nouns of the bunqueue model: jobs, locks, connections and their pending commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jobyard.model.job import DELAYED, READY
from jobyard.wire.msgpack.write import encode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jobyard.model.job import Job

Reply = dict[str, object]
NEVER: Final = 1 << 61
BACKOFF_CAP_MS: Final = 3_600_000


class Ask:
    """One command in progress: its fields, and until when it waits, if it does."""

    def __init__(self, cmd: str, fields: Reply) -> None:
        self.cmd = cmd
        self.fields = fields
        self.req_id = ""
        self.until = NEVER
        # The batch that was open when it ran.
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

    def maps(self, key: str) -> list[Reply]:
        """Return a field that is a list of maps."""
        value = self.fields[key]
        assert isinstance(value, list)
        return value


class Lock:
    """The worker that runs a job, and its terms; `client` is None once the connection is gone."""

    def __init__(self, client: BunClient, token: str | None, ttl: int, since: int) -> None:
        self.client: BunClient | None = client
        self.token = token
        self.ttl = ttl
        self.since = since
        self.until = since + ttl
        self.stop_at = NEVER
        self.is_renewed = False


class BunJob:
    """One job as its clients see it."""

    def __init__(self, number: int, name: str, queue: str, new_job: Reply, now: int) -> None:
        self.number = number
        self.id = name
        self.queue = queue
        self.data = encode(new_job["data"])
        self.priority = _number(new_job, "priority", 0)
        self.max_attempts = _number(new_job, "maxAttempts", 3)
        self.timeout_ms = _number(new_job, "timeout", 0)
        self.ttl_ms = _number(new_job, "ttl", 0)
        self.created = now
        self.ended = NEVER
        self.due = now + _number(new_job, "delay", 0)
        self.state = DELAYED if self.due > now else READY
        self.removes_done = bool(new_job.get("removeOnComplete"))
        self.removes_dead = bool(new_job.get("removeOnFail"))
        self.key = str(new_job.get("uniqueKey", ""))
        self.key_until = 0
        dedup = new_job.get("dedup")
        if isinstance(dedup, dict) and dedup.get("ttl"):
            self.key_until = now + int(dedup["ttl"])
        self.group = str(new_job.get("groupId", ""))
        self._backoff = new_job.get("backoff", 1000)
        self.waits: set[int] = set()
        self.attempts = 0
        self.stalls = 0
        self.lock: Lock | None = None
        self.last_token: str | None = None
        self.result: object = None
        # The batch that must be safe before any client sees it.
        self.batch = 0
        # First come, first served among jobs that have only waited.
        self.is_plain = self.state == READY and not new_job.get("lifo")

    def rank(self) -> int:
        """Return its rank: in a group the lowest priority goes first, else the highest."""
        return self.priority if self.group else -self.priority

    def __repr__(self) -> str:
        story = f"job {self.number} ({self.id}) of {self.queue}, state {self.state}"
        return (
            f"{story}, {self.attempts}/{self.max_attempts}, {self.stalls} stalls, {self.priority}"
        )

    def backoff(self) -> tuple[int, int]:
        """Return the shortest and longest wait after the attempts it has used."""
        if isinstance(self._backoff, dict) and self._backoff["type"] == "fixed":
            base = int(self._backoff["delay"])
            return base * 8 // 10, base * 12 // 10
        told = self._backoff["delay"] if isinstance(self._backoff, dict) else self._backoff
        assert isinstance(told, int)
        base = told
        base <<= min(self.attempts, 24)
        return min(base // 2, BACKOFF_CAP_MS), min(base * 3 // 2, BACKOFF_CAP_MS)

    def recall(self, found: Job) -> None:
        """Continue from what a restart brought back, which was compared before."""
        self.state = int(found.state)
        self.attempts = int(found.attempts)
        self.stalls = int(found.stalls())
        self.due = int(found.due_ms)
        self.created = int(found.created_ms)
        self.priority = int(found.rank) if self.group else -int(found.rank)
        self.lock = None
        self.last_token = None
        self.result = None
        details = found.details
        if details is None:
            return
        outcome = details.outcome
        if outcome is not None:
            self.ended = int(outcome.ended_ms)
        self.key = details.unique_key
        self.key_until = int(details.key_until_ms)
        self.waits = {int(one.child_id) for one in details.members or () if one.state == 0}


class BunClient:
    """One connection: its unanswered commands, and the tokens it was given."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.is_gone = False
        self.asked: dict[str, Ask] = {}
        self.asks_count = 0
        # The last token of each job; some are no longer valid.
        self.tokens: dict[str, str] = {}


def _number(new_job: Mapping[str, object], key: str, otherwise: int) -> int:
    value = new_job.get(key, otherwise)
    assert isinstance(value, int)
    return value
