"""Clients of all four doors that act at random on the same few jobs, drawn from a seed.

After every act each index is compared with the jobs, and waiting clients must have nothing to
take; now and then the doors must count the same, and a restart must bring back what was there. What
an answer says is not checked, as most are refusals, but its protocol must be able to parse it, and
none may end a session.
"""

import gzip
import json
from base64 import b64encode
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any, Final

from jobyard.engine.glidemq.add import entry_of, id_of
from jobyard.engine.jobs.take import head_of
from jobyard.engine.state.admission import stream_head
from jobyard.engine.state.placement import reopen
from jobyard.model.job import Job
from jobyard.model.queue import Queue
from jobyard.model.waiter import Waiter
from tests.support.doors.crossing import QUEUE, WAITS, Crossing, Waiting
from tests.support.site.snapshot import snapshot
from tests.support.site.storage import MemoryStorage

if TYPE_CHECKING:
    from tests.support.clients.beanstalk import BeanstalkClient
    from tests.support.clients.bunqueue import BunqueueClient
    from tests.support.clients.library import GlideCalls

Act = Callable[[], object]
# Names of options, each with the values it may have.
Options = dict[str, tuple[object, ...]]

BODIES: Final = (
    b'{"a":1}', b"[1,{}]", b"5", b"null", b"words", b"", b"\xff\x00", b"9" * 30, b"gz:AAAA",
    b"gz:" + b64encode(gzip.compress(b'{"z":1}', mtime=0)),
)  # fmt: skip
VALUES: Final = ({"a": 1}, "words", b"\xff", "", 5, None, [1, {}], {"b": b"\0"}, 1e300, 2**40)
WORKERS: Final = "workers"
BUNQUEUE: Final[Options] = {
    "priority": (-2, 0, 1, 2, 5), "delay": (1, 2000, 9000), "maxAttempts": (1, 2, 5),
    "backoff": (0, 500, 1000), "lifo": (True,), "uniqueKey": ("k", "l"), "groupId": ("g", "h"),
    "jobId": ("1", "mine"), "ttl": (1, 3000, 20_000), "timeout": (1, 1500, 20_000),
    "removeOnComplete": (True,), "removeOnFail": (True,),
}  # fmt: skip
GLIDE: Final[Options] = {
    "priority": (1, 2, 5), "delay": (1, 2000, 9000), "attempts": (1, 3), "lifo": (1,),
    "custom": ("1", "12", "a", "mine"), "key": ("l", "m"), "concurrency": (1, 2),
    "ttl": (1, 3000, 20_000), "rate_max": (1,), "rate_ms": (1000,), "capacity": (2000,),
    "refill": (1000,), "cost": (1500,),
}  # fmt: skip
RECORD: Final[Options] = {"delay_ms": (1, 2000, 9000), "priority": (-5, 5), "tag": ("t",)}
CONFIG: Final[Options] = {
    "max_deliveries": (2,), "dead_letter": ("dead",), "leases_durable": (True,),
    "cap_records": (5, 20), "discard": ("old", "reject"),
}  # fmt: skip
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
    "delete {}", "delete {}", "release {} 3 0", "release {} 4 1", "bury {} 3", "touch {}",
    "release {} 3 2", "kick-job {}", "reserve-job {}", "stats-job {}", "peek {}", "kick 3",
    "peek-ready", "peek-buried", "stats-tube {queue}", "pause-tube {queue} 1",
)  # fmt: skip
PATHS: Final = ("jobs/list", "counts", "dlq", "dlq/stats")


class Crowd:
    """All clients of one run, over as many boots as it has."""

    def __init__(self, seed: int, *queues: str) -> None:
        """Without queues all clients use one, which is a topic from the start."""
        self._dice = Random(seed)
        self._queues = queues or (QUEUE,)
        self._is_one = not queues
        self.doors = Crossing(MemoryStorage())
        if self._is_one:
            self.doors.make()
        self._waiting: list[Waiting] = []
        self._count = 0
        self.told: list[str] = []
        self._enter()
        self._acts: list[Act] = [
            *[self._put, self._push, self._push, self._add, self._add, self._dedup, self._write],
            *[self._reserve, self._pull, self._read, self._read, self._claim],
            *[self._line, self._line, self._command, self._command, self._command],
            *[self._glide_act, self._glide_act, self._glide_act, self._glide_act],
            *[self._end_claims, self._end_claims],
            *[self._ask_queue, self._look_at_glide, self._ask_topic, self._limit],
            *[self._pass_time, self._pass_time, self._wait, self._vanish, self._leave],
            *[self._count_all, self._crash],
        ]

    def _enter(self) -> None:
        doors = self.doors
        self._beans: list[BeanstalkClient] = [self._bean(), self._bean()]
        self._buns: list[BunqueueClient] = [doors.bunqueue(), doors.bunqueue()]
        self._buns[0].ok("SubscribeEvents", queue=self._queues[-1])
        self._glides: dict[str, GlideCalls] = {name: doors.library(name) for name in self._queues}
        # Client, job and token; queue, job and entry.
        self._pulled: list[tuple[BunqueueClient, str, str]] = []
        self._read_entries: list[tuple[str, str, str]] = []

    def _bean(self) -> "BeanstalkClient":
        client = self.doors.beanstalk()
        watch = "".join(f"watch {name}\r\n" for name in self._queues)
        client.say(f"{watch}ignore default\r\n".encode())
        return client

    def step(self) -> None:
        """Let a random client act, and check the result."""
        self._count += 1
        act = self._dice.choice(self._acts)
        self.told.append(act.__name__)
        act()
        self.doors.settle()
        self.doors.check()
        for queue in list(self.doors.yard.queues.values()):
            self._see_all_served(queue)

    # -- random choices ------------------------------------------------------------------------

    def _queue(self) -> str:
        return self._dice.choice(self._queues)

    def _some(self, options: Options) -> dict[str, Any]:
        count = min(self._dice.choice((0, 1, 2, 3)), len(options))
        names = self._dice.sample(sorted(options), count)
        return {name: self._dice.choice(options[name]) for name in names}

    def _job(self) -> Job | None:
        jobs = [job for job in self.doors.yard.jobs.all() if job.queue.name in self._queues]
        return self._dice.choice(jobs) if jobs else None

    def _uuid(self) -> str:
        jobs = self._buns[0].ok("GetJobs", queue=self._queue(), limit=1000)["jobs"]
        return str(self._dice.choice(jobs)["id"]) if jobs else "none"

    def _seqs(self) -> list[int]:
        return [self._dice.randrange(1, self._count + 2) for _ in range(5)]

    # -- beanstalk -----------------------------------------------------------------------------

    def _put(self) -> None:
        dice = self._dice
        body = dice.choice(BODIES)
        rank, delay, ttr = (
            dice.choice((0, 3, 65536)),
            dice.choice((0, 0, 2, 5)),
            dice.choice((2, 10)),
        )
        head = b"use %b\r\nput %d %d %d %d\r\n" % (
            self._queue().encode(), rank, delay, ttr, len(body),
        )  # fmt: skip
        dice.choice(self._beans).say(head + body + b"\r\n")

    def _reserve(self) -> None:
        seconds = self._dice.choice((0, 0, 2))
        self._dice.choice(self._beans).say(b"reserve-with-timeout %d\r\n" % seconds)

    def _line(self) -> None:
        number = self._dice.randint(1, int(self.doors.yard.journal.next_id))
        line = self._dice.choice(LINES).format(number, queue=self._queue())
        self._dice.choice(self._beans).say(line.encode() + b"\r\n")

    # -- bunqueue ------------------------------------------------------------------------------

    def _push(self) -> None:
        options = self._some(BUNQUEUE)
        if self._dice.random() < 0.2:
            options["dependsOn"] = [self._uuid()]
        data = self._dice.choice(VALUES)
        self._dice.choice(self._buns).ask("PUSH", queue=self._queue(), data=data, **options)

    def _pull(self) -> None:
        client = self._dice.choice(self._buns)
        options = self._some({"owner": ("me", "o"), "timeout": (2000,), "lockTtl": (2000,)})
        answer = client.hear(client.send("PULL", queue=self._queue(), **options))
        if answer is not None and answer.get("job") is not None:
            self._pulled.append((client, answer["job"]["id"], answer.get("token") or ""))

    def _command(self) -> None:
        dice = self._dice
        if self._pulled and dice.random() < 0.7:
            client, job_id, token = dice.choice(self._pulled)
        else:
            client, job_id, token = dice.choice(self._buns), self._uuid(), ""
        options: dict[str, object] = {"token": token} if token else {}
        value = dice.choice(VALUES)
        options |= {"result": value, "data": value, "error": "e", "delay": 1000, "priority": 1}
        options |= {"duration": 1000, "progress": 5, "message": "m", "lifo": True}
        client.ask(dice.choice(COMMANDS), id=job_id, **options)

    def _ask_queue(self) -> None:
        dice = self._dice
        queue = self._queue()
        dice.choice(self._buns).ask(dice.choice(QUEUE_COMMANDS), queue=queue)
        self._buns[0].ask("UpdateParent", childId=self._uuid(), parentId=self._uuid())
        self._http("GET", f"/queues/{queue}/{dice.choice(PATHS)}")

    def _limit(self) -> None:
        client, queue = self._buns[0], self._queue()
        self._dice.choice((
            lambda: client.ask("SetConcurrency", queue=queue, limit=3),
            lambda: client.ask("ClearConcurrency", queue=queue),
        ))()  # fmt: skip

    # -- glide-mq ------------------------------------------------------------------------------

    def _add(self) -> None:
        glide = self._glides[self._queue()]
        glide.add(data=self._dice.choice(BODIES), **self._some(GLIDE))

    def _dedup(self) -> None:
        mode = self._dice.choice(("simple", "debounce"))
        self._glides[self._queue()].dedup("d", mode, delay=900)

    def _read(self) -> None:
        dice = self._dice
        queue = self._queue()
        glide = self._glides[queue]
        if dice.random() < 0.4:
            glide.promote(dice.choice((0, 3000)))
            ids = glide.call("popLists", ["priority", "lifo"], 1)
            self._read_entries += [(queue, job_id.decode(), "") for job_id in ids]
        found = glide.read("w1", dice.choice((1, 2)))
        self._read_entries += [(queue, job_id, entry) for job_id, entry in found]

    def _glide_act(self) -> None:
        dice = self._dice
        queue, job_id, entry = self._queue(), "1", "1-1"
        job = self._job()
        if self._read_entries and dice.random() < 0.6:
            queue, job_id, entry = dice.choice(self._read_entries)
        elif job is not None:
            queue, job_id, entry = job.queue.name, id_of(job), entry_of(job)
        acts = glide_acts(self._glides[queue], dice, job_id, entry)
        dice.choice(acts)()

    def _look_at_glide(self) -> None:
        glide = self._glides[self._queue()]
        ask = glide.client.ask
        glide.counts()
        glide.events()
        ask("XRANGE", glide.key("stream"), "-", "+")
        ask("ZRANGE", glide.key("scheduled"), 0, -1, "WITHSCORES")
        self._dice.choice((
            lambda: glide.call("pause", ["meta", "events"]),
            lambda: glide.call("resume", ["meta", "events"]),
            lambda: glide.call("resume", ["meta", "events"]),
            lambda: glide.call("nextDue", ["scheduled", "ratelimited"]),
            lambda: ask("HSET", glide.key("meta"), "concurrency", 2),
            lambda: ask("HDEL", glide.key("meta"), "concurrency"),
            lambda: ask("SCAN", 0),
        ))()  # fmt: skip

    # -- topics --------------------------------------------------------------------------------

    def _http(self, method: str, path: str, body: object = None) -> None:
        answer = self.doors.api.ask(method, path, body)
        assert answer.status < 500, answer
        json.loads(answer.body or b"0")

    def _write(self) -> None:
        path = f"/v0/topics/{self._queue()}"
        if not self._is_one:
            self._http("PUT", path, {"type": "queue", **self._some(CONFIG)})
        self._http("POST", path, {"records": [{"data": self._count, **self._some(RECORD)}]})

    def _claim(self) -> None:
        body = {"node": "w", "max": 2, "lease_ms": self._dice.choice((1000, 30_000))}
        self._http("POST", f"/v0/topics/{self._queue()}/claim", body)

    def _end_claims(self) -> None:
        given = self._some({"delay_ms": (0, 1000)})
        body = {"node": "w", "seqs": self._seqs(), "lease_ms": 5000, **given}
        verb = self._dice.choice(("ack", "ack", "nack", "nack", "dead-letter", "extend"))
        self._http("POST", f"/v0/topics/{self._queue()}/{verb}", body)

    def _ask_topic(self) -> None:
        one = f"/v0/topics/{self._queue()}"
        verb, body = self._dice.choice((
            ("redrive", {}), ("purge", {"max": 1}), ("diff", {"from_seq": 0}),
            ("delete", {"match": "t"}),
        ))  # fmt: skip
        self._http("POST", f"{one}/{verb}", body)
        self._http("GET", one)

    # -- all of them ---------------------------------------------------------------------------

    def _pass_time(self) -> None:
        self.doors.tick(self._dice.choice((1, 500, 1000, 3000, 7000, 31_000)))

    def _wait(self) -> None:
        if self._is_one and len(self._waiting) < 3:
            self._waiting.append(self.doors.wait(self._dice.choice(WAITS)))

    def _vanish(self) -> None:
        if self._waiting:
            self._waiting.pop().vanish()

    def _leave(self) -> None:
        at = self._dice.randrange(2)
        self._beans[at].leave()
        self._beans[at] = self._bean()
        gone = self._buns[1]
        gone.close()
        self._buns[1] = self.doors.bunqueue()
        self._pulled = [one for one in self._pulled if one[0] is not gone]

    def _crash(self) -> None:
        if self._dice.random() < 0.5:
            before = snapshot(self.doors.yard)
            self._waiting = []
            self.doors = self.doors.after_a_crash()
            assert snapshot(self.doors.yard) == before
            self._enter()

    # -- checks --------------------------------------------------------------------------------

    def _count_all(self) -> None:
        """Check that all doors count the same, which only one queue that is a topic allows."""
        if not self._is_one:
            return
        doors = self.doors
        doors.bun.ok("Resume", queue=QUEUE)
        told = doors.bun.ok("GetJobCounts", queue=QUEUE)["counts"]
        topic = doors.api.state(QUEUE)["queue"]
        glide = doors.glide.counts()
        tube = {
            state: int(doors.bean.of_tube(f"current-jobs-{state}"))
            for state in ("ready", "reserved", "delayed", "buried")
        }
        assert tube["ready"] == told["waiting"] == topic["ready"]
        assert tube["reserved"] == told["active"] == topic["in_flight"] == glide["active"]
        assert tube["delayed"] == told["delayed"] + told["waiting-children"]
        assert tube["buried"] == told["failed"] == glide["failed"]
        assert told["completed"] == glide["completed"]
        staged = glide["scheduled"] - told["delayed"]
        assert glide["waiting"] + glide["lists"] + staged == told["waiting"]

    def _see_all_served(self, queue: Queue) -> None:
        """Check that no client waits while a job may be taken."""
        now_ms = self.doors.now_ms
        if queue.rules is not None:
            reopen(self.doors.yard, queue, now_ms)
        link = queue.first_link
        while link is not None:
            assert _head_for(queue, link.waiter, now_ms) is None, self.told[-5:]
            link = link.after


def glide_acts(glide: "GlideCalls", dice: Random, job_id: str, entry: str) -> list[Act]:
    """Return what a client of glide-mq may do to a job."""
    job, ts, ask = f"job:{job_id}", glide.ts(), glide.client.ask
    stand = [job, "stream", "scheduled", "events"]
    return [
        lambda: glide.activate(job_id, entry),
        lambda: glide.complete(job_id, entry, dice.choice(('"ok"', "plain", "[1]"))),
        lambda: glide.complete(job_id, entry, "", ("true", 0, 0)),
        lambda: glide.next(job_id, entry),
        lambda: glide.fail(job_id, entry, "boom", dice.choice((0, 3)), dice.choice((10, 700))),
        lambda: ask("XACK", glide.key("stream"), WORKERS, entry or "1-1"),
        lambda: glide.call(
            "reclaimStalled", ["stream", "events"], WORKERS, "w3", 0, 1, ts, "failed"
        ),
        lambda: glide.call("revoke", [*stand[:3], "failed", "events"], job_id, ts, WORKERS),
        lambda: glide.call("retryJobs", ["failed", "scheduled", "events", "id"], 0, ts),
        lambda: glide.call("changePriority", stand, job_id, dice.choice((2, 3)), WORKERS),
        lambda: glide.call("changeDelay", stand, job_id, dice.choice((0, 1000)), ts, WORKERS),
        lambda: glide.call("promoteJob", stand, job_id),
        lambda: glide.call("deferActive", ["stream", job], job_id, entry, WORKERS),
        lambda: glide.call("moveActiveToDelayed", stand, job_id, entry, ts, ts + 1000, WORKERS),
        lambda: glide.call(
            "suspend", [job, "stream", "events", "suspended"],
            job_id, entry, WORKERS, ts, "why", 1000,
        ),
        lambda: ask("HSET", glide.key(job), "progress", '{"x":1}'),
        lambda: ask("HSET", glide.key(job), "data", "gz:AA"),
        lambda: ask("HGETALL", glide.key(job)),
        lambda: ask("DEL", glide.key(job)),
    ]  # fmt: skip


def _head_for(queue: Queue, waiter: Waiter, now_ms: int) -> object:
    if not waiter.is_stream_only or queue.rules is None:
        return head_of(queue, now_ms)
    return None if queue.pause_until_ms > now_ms else stream_head(queue, queue.rules, now_ms)
