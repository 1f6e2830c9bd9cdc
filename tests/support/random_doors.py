"""Clients of all four doors that act at random on the same few jobs, drawn from a seed.

Nothing here knows the expected result. Every answer is parsed by its protocol, so malformed ones
are found; after every action the yard is recounted.
"""

import gzip
import json
from base64 import b64encode
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any, Final

from tests.support.bare_doors import BareDoors
from tests.support.memory_storage import MemoryStorage
from tests.support.yards import Client

if TYPE_CHECKING:
    from tests.support.bare_bunqueue import BareClient
    from tests.support.glidemq_calls import Library

QUEUES: Final = ("p", "q")
WORKERS: Final = "workers"
BODIES: Final = (
    b'{"a":1}', b"[1,{}]", b"5", b"null", b"words", b"", b"\xff\x00", b"9" * 30, b"gz:AAAA",
    b"gz:" + b64encode(gzip.compress(b'{"z":1}', mtime=0)),
)  # fmt: skip
VALUES: Final = ({"a": 1}, "words", b"\xff", "", 5, None, [1, {}], {"b": b"\0"}, 1e300, 2**40)
# Bunqueue commands on a running job, or on any.
COMMANDS: Final = (
    "ACK", "ACK", "FAIL", "Discard", "MoveToDelayed", "MoveToWait", "ExtendLock", "JobHeartbeat",
    "Progress", "AddLog", "Update", "GetJob", "GetResult", "GetProgress", "GetLogs", "Cancel",
    "ChangePriority", "ChangeDelay", "Promote", "MoveToWaitingChildren", "GetChildrenValues",
)  # fmt: skip
# Bunqueue commands on a queue.
QUEUE_COMMANDS: Final = (
    "Dlq", "RetryDlq", "GetJobs", "GetJobCounts", "Pause", "Resume", "Resume", "ClearConcurrency",
    "PromoteJobs", "GetDlqStats", "GetCountsPerPriority", "RetryCompleted",
)  # fmt: skip
LINES: Final = (
    "delete {}", "delete {}", "release {} 3 0", "release {} 3 2", "bury {} 3", "touch {}",
    "kick-job {}", "reserve-job {}", "stats-job {}", "peek {}", "kick 3", "peek-ready",
    "peek-buried", "stats-tube q", "pause-tube q 1",
)  # fmt: skip
PATHS: Final = ("jobs/list", "counts", "dlq", "dlq/stats")


class RandomDoors:
    """Two clients of most doors, and the jobs they hold."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.site = BareDoors(MemoryStorage())
        self._enter()
        self._acts: list[Callable[[], None]] = [
            *[self._put_b, self._put_n, self._put_n, self._put_g, self._put_g, self._put_t],
            *[self._take_b, self._take_n, self._take_g, self._take_g, self._take_t],
            *[self._end_b, self._end_b, self._end_n, self._end_n, self._end_n],
            *[self._end_g, self._end_g, self._end_g, self._end_g, self._end_t, self._end_t],
            *[self._see_n, self._see_g, self._see_t, self._pass_time, self._leave, self._crash],
        ]

    def _enter(self) -> None:
        self._beans: list[Client] = [self._bean(), self._bean()]
        self._buns: list[BareClient] = [self.site.bunqueue(), self.site.bunqueue()]
        self._buns[0].ok("SubscribeEvents", queue="q")
        self._glides: dict[str, Library] = {name: self.site.library(name) for name in QUEUES}
        self._held_n: list[tuple[BareClient, str, str]] = []
        self._held_g: list[tuple[str, str, str]] = []

    def _bean(self) -> Client:
        client = self.site.beanstalk()
        client.say(b"watch p\r\nwatch q\r\nignore default\r\n")
        return client

    def step(self) -> None:
        """Perform a random action, and recount all jobs."""
        self.random.choice(self._acts)()
        self.site.settle()
        self.site.check()

    def _some(self, **choices: object) -> dict[str, Any]:
        """Return some of the options; a tuple is a choice of values."""
        chosen = {key: value for key, value in choices.items() if self.random.random() < 0.2}
        return {
            key: self.random.choice(value) if isinstance(value, tuple) else value
            for key, value in chosen.items()
        }

    # -- beanstalk -----------------------------------------------------------------------------

    def _put_b(self) -> None:
        body = self.random.choice(BODIES)
        queue = self.random.choice(QUEUES).encode()
        rank, delay = self.random.choice((0, 5, 65536)), self.random.choice((0, 0, 5))
        head = b"use %b\r\nput %d %d 10 %d\r\n" % (queue, rank, delay, len(body))
        self.random.choice(self._beans).say(head + body + b"\r\n")

    def _take_b(self) -> None:
        seconds = self.random.choice((0, 0, 2))
        self.random.choice(self._beans).say(b"reserve-with-timeout %d\r\n" % seconds)

    def _end_b(self) -> None:
        number = self.random.randint(1, int(self.site.yard.journal.next_id))
        line = self.random.choice(LINES).format(number)
        self.random.choice(self._beans).say(line.encode() + b"\r\n")

    # -- bunqueue ------------------------------------------------------------------------------

    def _put_n(self) -> None:
        options = self._some(
            priority=(0, 1, 5), delay=(1, 9000), maxAttempts=(1, 2), backoff=(0, 1000),
            removeOnComplete=True, removeOnFail=True, groupId=("g", "h"), lifo=True,
            ttl=(1, 20_000), timeout=(1, 20_000), uniqueKey=("k", "l"), jobId=("1", "mine"),
            dependsOn=tuple([one] for one in self._ids()) or ([],),
        )  # fmt: skip
        queue = self.random.choice(QUEUES)
        self.random.choice(self._buns).ask(
            "PUSH", queue=queue, data=self.random.choice(VALUES), **options
        )

    def _ids(self) -> list[str]:
        answer = self._buns[0].ok("GetJobs", queue=self.random.choice(QUEUES), limit=50)
        return [job["id"] for job in answer["jobs"]]

    def _take_n(self) -> None:
        client = self.random.choice(self._buns)
        options = self._some(owner="me", timeout=2000)
        answer = client.hear(client.send("PULL", queue=self.random.choice(QUEUES), **options))
        if answer is not None and answer["job"] is not None:
            self._held_n.append((client, answer["job"]["id"], answer.get("token") or ""))

    def _end_n(self) -> None:
        client, job_id, token = self.random.choice(self._buns), "", ""
        if self._held_n and self.random.random() < 0.8:
            client, job_id, token = self.random.choice(self._held_n)
        else:
            job_id = self.random.choice(self._ids() or ["none"])
        options: dict[str, object] = {"token": token} if token else {}
        value = self.random.choice(VALUES)
        options |= {"result": value, "data": value, "error": "e", "delay": 1000, "priority": 1}
        options |= {"duration": 1000, "progress": 5, "message": "m"}
        client.ask(self.random.choice(COMMANDS), id=job_id, **options)

    def _see_n(self) -> None:
        queue = self.random.choice(QUEUES)
        self.random.choice(self._buns).ask(self.random.choice(QUEUE_COMMANDS), queue=queue)
        ids = self._ids()
        if len(ids) > 1:
            child, parent = self.random.sample(ids, 2)
            self._buns[0].ask("UpdateParent", childId=child, parentId=parent)
        self._http("GET", f"/queues/{queue}/{self.random.choice(PATHS)}")

    # -- glide-mq ------------------------------------------------------------------------------

    def _put_g(self) -> None:
        options = self._some(
            priority=(1, 5), delay=(1, 9000), attempts=(1, 3), key=("a", "b"), concurrency=(1, 2),
            ttl=(1, 20_000), custom=("1", "12", "mine"),
        )  # fmt: skip
        library = self._glides[self.random.choice(QUEUES)]
        library.add(data=self.random.choice(BODIES), **options)

    def _take_g(self) -> None:
        queue = self.random.choice(QUEUES)
        library = self._glides[queue]
        if self.random.random() < 0.3:
            library.promote()
            ids = library.call("popLists", ["priority", "lifo"], 1)
            self._held_g += [(queue, job_id.decode(), "") for job_id in ids]
        self._held_g += [(queue, job_id, entry) for job_id, entry in library.read()]

    def _end_g(self) -> None:
        queue, job_id, entry = self.random.choice(QUEUES), str(self.random.randint(1, 20)), ""
        if self._held_g and self.random.random() < 0.8:
            queue, job_id, entry = self.random.choice(self._held_g)
        library = self._glides[queue]
        job, ts = f"job:{job_id}", library.ts()
        stand = [job, "stream", "scheduled", "events"]
        acts: list[Callable[[], object]] = [
            lambda: library.activate(job_id, entry),
            lambda: library.complete(job_id, entry, self.random.choice(('"ok"', "plain", "[1]"))),
            lambda: library.complete(job_id, entry, "", ("true", 0, 0)),
            lambda: library.fail(job_id, entry, "boom", self.random.choice((0, 3)), 10),
            lambda: library.call("revoke", [*stand[:3], "failed", "events"], job_id, ts, WORKERS),
            lambda: library.call("retryJobs", ["failed", "scheduled", "events", "id"], 0, ts),
            lambda: library.call("changePriority", stand, job_id, 3, WORKERS),
            lambda: library.call("changeDelay", stand, job_id, 1000, ts, WORKERS),
            lambda: library.call("promoteJob", stand, job_id),
            lambda: library.call("deferActive", ["stream", job], job_id, entry, WORKERS),
            lambda: library.call(
                "moveActiveToDelayed", stand, job_id, entry, ts, ts + 1000, WORKERS
            ),
            lambda: library.call(
                "suspend", [job, "stream", "events", "suspended"],
                job_id, entry, WORKERS, ts, "why", 1000,
            ),
            lambda: library.client.ask("HSET", library.key(job), "progress", '{"x":1}'),
            lambda: library.client.ask("HSET", library.key(job), "data", "gz:AA"),
            lambda: library.client.ask("HGETALL", library.key(job)),
            lambda: library.client.ask("DEL", library.key(job)),
        ]  # fmt: skip
        self.random.choice(acts)()

    def _see_g(self) -> None:
        library = self._glides[self.random.choice(QUEUES)]
        library.counts()
        library.events()
        library.client.ask("XRANGE", library.key("stream"), "-", "+")
        library.client.ask("ZRANGE", library.key("scheduled"), 0, -1, "WITHSCORES")
        self.random.choice((
            lambda: library.call("pause", ["meta", "events"]),
            lambda: library.call("resume", ["meta", "events"]),
            lambda: library.call("nextDue", ["scheduled", "ratelimited"]),
            lambda: library.client.ask("HSET", library.key("meta"), "concurrency", 2),
            lambda: library.client.ask("HDEL", library.key("meta"), "concurrency"),
            lambda: library.client.ask("SCAN", 0),
        ))()  # fmt: skip

    # -- topics --------------------------------------------------------------------------------

    def _http(self, method: str, path: str, body: object = None) -> None:
        answer = self.site.api.ask(method, path, body)
        assert answer.status < 500, answer
        json.loads(answer.body or b"0")

    def _put_t(self) -> None:
        queue = self.random.choice(QUEUES)
        config = self._some(
            max_deliveries=2, dead_letter="dead", leases_durable=True, cap_records=(5, 20),
            discard=("old", "reject"),
        )  # fmt: skip
        self._http("PUT", f"/v0/topics/{queue}", {"type": "queue", **config})
        record = {"data": [1], **self._some(delay_ms=(1, 9000), priority=(-5, 5), tag="t")}
        self._http("POST", f"/v0/topics/{queue}", {"records": [record]})

    def _take_t(self) -> None:
        body = {"node": "w", "max": 2, "lease_ms": self.random.choice((1000, 30_000))}
        self._http("POST", f"/v0/topics/{self.random.choice(QUEUES)}/claim", body)

    def _end_t(self) -> None:
        seqs = [self.random.randint(1, 20) for _ in range(5)]
        body = {"node": "w", "seqs": seqs, "lease_ms": 5000, **self._some(delay_ms=(0, 1000))}
        verb = self.random.choice(("ack", "nack", "nack", "dead-letter", "extend"))
        self._http("POST", f"/v0/topics/{self.random.choice(QUEUES)}/{verb}", body)

    def _see_t(self) -> None:
        one = f"/v0/topics/{self.random.choice(QUEUES)}"
        verb, body = self.random.choice((
            ("redrive", {}), ("purge", {"max": 1}), ("diff", {"from_seq": 0}),
            ("delete", {"match": "t"}),
        ))  # fmt: skip
        self._http("POST", f"{one}/{verb}", body)
        self._http("GET", one)

    # -- all of them ---------------------------------------------------------------------------

    def _pass_time(self) -> None:
        self.site.tick(self.random.choice((1, 500, 1000, 5000, 31_000)))

    def _leave(self) -> None:
        at = self.random.randrange(2)
        self._beans[at].leave()
        self._beans[at] = self._bean()
        gone = self._buns[1]
        gone.close()
        self._buns[1] = self.site.bunqueue()
        self._held_n = [held for held in self._held_n if held[0] is not gone]

    def _crash(self) -> None:
        if self.random.random() < 0.3:
            self.site = self.site.after_a_crash()
            self._enter()
