"""A consumer group that subscribed to the stream of a queue, as the library's workers use it."""

from typing import Any

from tests.support.clients.library import GlideCalls


class Subscriber:
    """One consumer of one group."""

    def __init__(self, library: GlideCalls, group: str, consumer: str = "c1") -> None:
        self.library = library
        self.client = library.client.another()
        self.group = group
        self.consumer = consumer
        self.stream = library.key("stream")

    def create(self, start: str = "$") -> "Subscriber":
        """Create the group."""
        made = self.client.ask("XGROUP", "CREATE", self.stream, self.group, start, "MKSTREAM")
        assert made == b"OK"
        return self

    def fellow(self, consumer: str) -> "Subscriber":
        """Return another consumer of the group."""
        return Subscriber(self.library, self.group, consumer)

    def command(self, count: int, *options: object, start: str = ">") -> list[object]:
        return [
            "XREADGROUP", "GROUP", self.group, self.consumer, "COUNT", count, *options,
            "STREAMS", self.stream, start,
        ]  # fmt: skip

    def entries(self, count: int = 100, *options: object, start: str = ">") -> list[Any]:
        """Read entries as they come."""
        answer = self.client.ask(*self.command(count, *options, start=start))
        return [] if answer is None else answer[0][1]

    def read(self, count: int = 100, *options: object, start: str = ">") -> list[tuple[str, str]]:
        """Read; return job and entry of each."""
        found = self.entries(count, *options, start=start)
        return [(fields[1].decode(), entry.decode()) for entry, fields in found]

    def ids(self, count: int = 100) -> list[str]:
        """Read; return the jobs."""
        return [job_id for job_id, _ in self.read(count)]

    def block(self, ms: int = 0) -> None:
        """Wait for entries."""
        self.client.send(*self.command(100, "BLOCK", ms))

    def heard(self) -> list[str]:
        """Return the jobs that a waiting consumer received."""
        return [fields[1].decode() for answer in self.client.hear() for _, fields in answer[0][1]]

    def ack(self, *entries: str) -> Any:
        return self.client.ask("XACK", self.stream, self.group, *entries)

    def pending(self) -> Any:
        return self.client.ask("XPENDING", self.stream, self.group)

    # -- functions -----------------------------------------------------------------------------

    def activate(self, job_id: str, entry: str) -> Any:
        parts = [f"job:{job_id}", "stream"]
        ts = self.library.ts()
        return self.library.call("moveToActive", parts, ts, entry, self.group, job_id, "1")

    def complete(self, job_id: str, entry: str, value: str = '"ok"') -> Any:
        parts = ["stream", "completed", "events", f"job:{job_id}", "metrics:completed"]
        ts = self.library.ts()
        return self.library.call(
            "completeAndFetchNext", parts, job_id, entry, value, ts, self.group, self.consumer,
            "true", 0, 0, "", "", "__", "", "__", "1", "", 0, 0, 0,
        )  # fmt: skip

    def fail(self, job_id: str, entry: str, attempts: int = 0, backoff: int = 0) -> Any:
        parts = ["stream", "failed", "scheduled", "events", f"job:{job_id}", "metrics:failed"]
        ts = self.library.ts()
        return self.library.call(
            "fail", parts, job_id, entry, "boom", ts, attempts, backoff, self.group, 0, 0, 0, "1"
        )

    def reclaim(self, idle_ms: int, most: int = 1) -> Any:
        ts = self.library.ts()
        failed = self.library.key("failed")
        return self.library.call(
            "reclaimStalled", ["stream", "events"],
            self.group, self.consumer, idle_ms, most, ts, failed, "1",
        )  # fmt: skip

    def attempts(self, job_id: str) -> Any:
        """Return how often a message failed in this group."""
        return self.client.ask("HGET", self.library.key(f"job:{job_id}:sub:{self.group}"), "a")
