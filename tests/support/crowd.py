"""Clients of all four doors that send random commands, drawn from a seed.

After every verb each index is compared with the jobs, and waiting clients must have nothing to
take; now and then the doors must count the same, and a restart must bring back what was there. The
answers are not checked: most are refusals, and none may end a session.
"""

import random
from collections.abc import Callable
from typing import Any

from jobyard.engine.glidemq.add import entry_of, id_of
from jobyard.engine.jobs.take import head_of
from jobyard.engine.state.admission import stream_head
from jobyard.engine.state.placement import reopen
from jobyard.model.job import Job
from jobyard.model.queue import Queue
from jobyard.model.waiter import Waiter
from tests.support.crossing import QUEUE, WAITS, Crossing, Waiting
from tests.support.memory_storage import MemoryStorage
from tests.support.yards import snapshot

Verb = Callable[[], object]

# Options of a job, each with one of its values or none.
BUNQUEUE: list[tuple[str, list[object]]] = [
    ("priority", [-2, 2]), ("delay", [2000]), ("maxAttempts", [1, 2, 5]), ("backoff", [0, 500]),
    ("lifo", [True]), ("uniqueKey", ["k"]), ("jobId", ["j0", "j1"]), ("groupId", ["g0", "g1"]),
    ("ttl", [3000]), ("timeout", [1500]), ("removeOnComplete", [True]),
]  # fmt: skip
GLIDE: list[tuple[str, list[object]]] = [
    ("priority", [2]), ("delay", [2000]), ("attempts", [3]), ("lifo", [1]), ("custom", ["a", "9"]),
    ("key", ["l", "m"]), ("concurrency", [2]), ("ttl", [3000]), ("rate_max", [1]),
    ("rate_ms", [1000]), ("capacity", [2000]), ("refill", [1000]), ("cost", [1500]),
]  # fmt: skip


class Crowd:
    """All clients of one run, over as many boots as it has."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self.doors = Crossing(MemoryStorage())
        self.doors.make()
        self._waiting: list[Waiting] = []
        self._count = 0
        self.told: list[str] = []

    def step(self) -> None:
        """Let a random client act, and check the result."""
        self._count += 1
        verbs = {**self._puts(), **self._runs(), **self._ends(), **self._moves(), **self._rest()}
        name = self._dice.choice(sorted(verbs))
        self.told.append(name)
        verbs[name]()
        self.doors.check()
        for queue in list(self.doors.yard.queues.values()):
            self._see_all_served(queue)

    # -- random choices ------------------------------------------------------------------------

    def _job(self) -> Job | None:
        jobs = [job for job in self.doors.yard.jobs.all() if job.queue.name == QUEUE]
        return self._dice.choice(jobs) if jobs else None

    def _number(self) -> int:
        job = self._job()
        return 1 if job is None else int(job.id)

    def _uuid(self) -> str:
        jobs = self.doors.bun.ok("GetJobs", queue=QUEUE, limit=1000)["jobs"]
        return str(self._dice.choice(jobs)["id"]) if jobs else "none"

    def _glide(self) -> tuple[str, str]:
        """Return a job id and its entry id, in the form of glide-mq."""
        job = self._job()
        return ("1", "1-1") if job is None else (id_of(job), entry_of(job))

    def _seqs(self) -> list[int]:
        return [self._dice.randrange(1, self._count + 2) for _ in range(3)]

    def _some(self, options: list[tuple[str, list[object]]]) -> dict[str, Any]:
        chosen = self._dice.sample(options, self._dice.choice([0, 1, 2, 3]))
        return {name: self._dice.choice(values) for name, values in chosen}

    # -- actions -------------------------------------------------------------------------------

    def _puts(self) -> dict[str, Verb]:
        doors, dice = self.doors, self._dice
        record = {"data": self._count, "delay_ms": dice.choice([0, 2000])}
        return {
            "put": lambda: doors.bean.put("7", dice.choice([0, 3]), dice.choice([0, 2]), 2),
            "PUSH": lambda: doors.bun.ask("PUSH", queue=QUEUE, data=1, **self._some(BUNQUEUE)),
            "PUSH child": lambda: doors.bun.ask("PUSH", queue=QUEUE, dependsOn=[self._uuid()]),
            "addJob": lambda: doors.glide.add(data="7", **self._some(GLIDE)),
            "dedup": lambda: doors.glide.dedup("d", dice.choice(["simple", "debounce"]), delay=900),
            "write": lambda: doors.api.post(QUEUE, {"records": [record]}),
        }

    def _runs(self) -> dict[str, Verb]:
        doors, dice = self.doors, self._dice
        ask = doors.bun.ask
        return {
            "reserve": lambda: doors.bean.ask("reserve-with-timeout 0"),
            "reserve-job": lambda: doors.bean.ask(f"reserve-job {self._number()}"),
            "PULL": lambda: ask("PULL", queue=QUEUE),
            "PULL owner": lambda: ask("PULL", queue=QUEUE, owner="o", lockTtl=2000),
            "XREADGROUP": lambda: doors.glide.read("w1", dice.choice([1, 2])),
            "popLists": lambda: doors.glide.call("popLists", ["priority", "lifo"], 1),
            "moveToActive": lambda: doors.glide.activate(*self._glide()),
            "claim": lambda: doors.api.claim(QUEUE, max=2, lease_ms=1000),
        }

    def _ends(self) -> dict[str, Verb]:
        doors, glide, ask = self.doors, self.doors.glide, self.doors.bun.ask
        return {
            "delete": lambda: doors.bean.ask(f"delete {self._number()}"),
            "release": lambda: doors.bean.ask(f"release {self._number()} 4 1"),
            "bury": lambda: doors.bean.ask(f"bury {self._number()} 5"),
            "ACK": lambda: ask("ACK", id=self._uuid(), result={"a": 1}),
            "FAIL": lambda: ask("FAIL", id=self._uuid(), error="no"),
            "Discard": lambda: ask("Discard", id=self._uuid()),
            "complete": lambda: glide.complete(*self._glide()),
            "next": lambda: glide.next(*self._glide()),
            "fail": lambda: glide.fail(*self._glide(), attempts=3, backoff=700),
            "XACK": lambda: glide.client.ask(
                "XACK", glide.key("stream"), "workers", self._glide()[1]
            ),
            "reclaim": lambda: glide.call(
                "reclaimStalled", ["stream", "events"], "workers", "w3", 0, 1, glide.ts(), "failed"
            ),
            "ack": lambda: doors.api.post(f"{QUEUE}/ack", {"node": "w", "seqs": self._seqs()}),
            "nack": lambda: doors.api.post(f"{QUEUE}/nack", {"node": "w", "seqs": self._seqs()}),
        }

    def _moves(self) -> dict[str, Verb]:
        doors, glide, ask = self.doors, self.doors.glide, self.doors.bun.ask
        return {
            "kick": lambda: doors.bean.ask("kick 2"),
            "Promote": lambda: ask("Promote", id=self._uuid()),
            "MoveToWait": lambda: ask("MoveToWait", id=self._uuid()),
            "ChangeDelay": lambda: ask("ChangeDelay", id=self._uuid(), delay=1500),
            "ChangePriority": lambda: ask("ChangePriority", id=self._uuid(), priority=2, lifo=True),
            "UpdateParent": lambda: ask(
                "UpdateParent", childId=self._uuid(), parentId=self._uuid()
            ),
            "RetryDlq": lambda: ask("RetryDlq", queue=QUEUE),
            "Cancel": lambda: ask("Cancel", id=self._uuid()),
            "promote": lambda: glide.promote(3000),
            "promoteJob": lambda: self._change("promoteJob"),
            "changePriority": lambda: self._change("changePriority", 2),
            "changeDelay": lambda: self._change("changeDelay", 0, glide.ts()),
            "revoke": self._revoke,
            "DEL": lambda: glide.client.ask("DEL", glide.key(f"job:{self._glide()[0]}")),
            "redrive": lambda: doors.api.post(f"{QUEUE}/redrive", {}),
        }

    def _change(self, name: str, *given: object) -> object:
        job_id, _ = self._glide()
        parts = [f"job:{job_id}", "stream", "scheduled", "events"]
        return self.doors.glide.call(name, parts, job_id, *given)

    def _revoke(self) -> object:
        job_id, _ = self._glide()
        parts = [f"job:{job_id}", "stream", "scheduled", "failed", "events"]
        return self.doors.glide.call("revoke", parts, job_id, self.doors.glide.ts(), "workers")

    def _rest(self) -> dict[str, Verb]:
        doors, dice, ask = self.doors, self._dice, self.doors.bun.ask
        return {
            "pause": lambda: ask(dice.choice(["Pause", "Resume", "Resume"]), queue=QUEUE),
            "pause-tube": lambda: doors.bean.ask(f"pause-tube {QUEUE} 1"),
            "limit": lambda: ask("SetConcurrency", queue=QUEUE, limit=3),
            "no limit": lambda: ask("ClearConcurrency", queue=QUEUE),
            "time": lambda: doors.tick(dice.choice([1, 500, 3000])),
            "more time": lambda: doors.tick(dice.choice([1, 500, 7000])),
            "wait": self._wait,
            "vanish": self._vanish,
            "count": self._see_counts,
            "restart": self._restart,
        }

    def _wait(self) -> None:
        if len(self._waiting) < 3:
            self._waiting.append(self.doors.wait(self._dice.choice(WAITS)))

    def _vanish(self) -> None:
        if self._waiting:
            self._waiting.pop().vanish()

    def _restart(self) -> None:
        before = snapshot(self.doors.yard)
        self._waiting = []
        self.doors = self.doors.reboot()
        assert snapshot(self.doors.yard) == before

    # -- checks --------------------------------------------------------------------------------

    def _see_counts(self) -> None:
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


def _head_for(queue: Queue, waiter: Waiter, now_ms: int) -> object:
    if not waiter.is_stream_only or queue.rules is None:
        return head_of(queue, now_ms)
    return None if queue.pause_until_ms > now_ms else stream_head(queue, queue.rules, now_ms)
