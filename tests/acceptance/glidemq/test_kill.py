"""kill -9 with jobs in every state, over redis-py: everything acknowledged is there afterwards."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

from examples.glidemq_producer import Options, add
from tests.support.servers.valkey import NO_DOOR, has_door, serving

pytestmark = pytest.mark.skipif(not has_door(), reason=NO_DOOR)

GROUP = "workers"
KEEP = ("0", "0", "0")


def now_ms() -> int:
    return int(time.time() * 1000)


class Queue:
    """One queue through one client, with the calls of a worker."""

    def __init__(self, client: redis.Redis, name: str) -> None:
        self.client = client
        self.name = name
        self.prefix = f"glide:{{{name}}}"

    def key(self, name: str) -> str:
        return f"{self.prefix}:{name}"

    def call(self, function: str, names: list[str], *words: str | int) -> Any:
        keys = [self.key(name) for name in names]
        return self.client.fcall(f"glidemq_{function}", len(keys), *keys, *words)

    def add(self, name: str, **options: Any) -> str:
        return add(self.client, self.name, name, {"of": name}, Options(**options))

    def add_ordered(self, ordering: str) -> str:
        keys = ["id", "stream", "scheduled", "events"]
        words: list[str | int] = ["ordered", "{}", "{}", now_ms(), 0, 0, "", 0, ordering]
        words += [0] * 7
        return str(self.call("addJob", keys, *words, ""))

    def add_flow(self, parent: str, *children: str) -> list[str]:
        names = ["id", "stream", "scheduled", "events"] * (1 + len(children))
        words: list[str | int] = [parent, "{}", "{}", now_ms(), 0, 0, 0, len(children), ""]
        for child in children:
            words += [child, "{}", "{}", 0, 0, 0, self.prefix, self.name, ""]
        ids: list[str] = json.loads(self.call("addFlow", names, *words, 0))
        return ids

    def open_group(self) -> None:
        try:
            self.client.xgroup_create(self.key("stream"), GROUP, id="0", mkstream=True)
        except redis.ResponseError as error:
            if not str(error).startswith("BUSYGROUP"):
                raise

    def take(self) -> tuple[str, str] | None:
        """Take and activate the next job of the stream, or one with a priority."""
        self.call("promote", ["scheduled", "stream", "events"], now_ms())
        reserve = ["meta", "stream", "list-active"]
        for ready_list in ("priority", "lifo"):
            if ids := self.call("rpopAndReserve", [*reserve, ready_list], GROUP, 1):
                return self._activate(ids[0], "")
        found: Any = self.client.xreadgroup(GROUP, "w", {self.key("stream"): ">"}, count=1)
        for _, entries in found:
            for entry, fields in entries:
                return self._activate(fields["jobId"], entry)
        return None

    def _activate(self, job: str, entry: str) -> tuple[str, str]:
        words = (now_ms(), entry, GROUP, job)
        assert isinstance(self.call("moveToActive", [f"job:{job}", "stream"], *words), list)
        return job, entry

    def complete(self, job: str, entry: str, value: object = None) -> None:
        keys = ["stream", "completed", "events", f"job:{job}", "metrics:completed"]
        parent = self.field(job, "parentId")
        if parent:
            keys += [f"deps:{parent}", f"job:{parent}", "stream", "events"]
        tied = (f"{self.prefix}:{job}", parent) if parent else ("", "")
        words = (job, entry, json.dumps(value), now_ms(), GROUP, *KEEP, *tied)
        self.call("complete", keys, *words)

    def fail(self, job: str, entry: str, attempts: int = 0) -> str:
        keys = ["stream", "failed", "scheduled", "events", f"job:{job}", "metrics:failed"]
        words = (job, entry, "broken", now_ms(), attempts, 60_000, GROUP, *KEEP)
        return str(self.call("fail", keys, *words))

    def job(self, job: str) -> dict[str, str]:
        found: Any = self.client.hgetall(self.key(f"job:{job}"))
        return dict(found)

    def field(self, job: str, name: str) -> str:
        return self.job(job).get(name, "")

    def work_off(self) -> list[str]:
        """Complete everything that can be taken now; return the jobs in order."""
        done = []
        while (taken := self.take()) is not None:
            self.complete(*taken)
            done.append(taken[0])
        return done


@contextmanager
def opened(folder: Path) -> Iterator[redis.Redis]:
    """Run a server on the data in `folder`; at the end it is killed."""
    with serving("--data", str(folder)) as (host, port):
        client = redis.Redis(host=host, port=port, decode_responses=True)
        yield client
        client.close()


def test_jobs_that_wait_are_the_same_afterwards(tmp_path: Path) -> None:
    with opened(tmp_path) as client:
        queue = Queue(client, "q")
        ids = [
            queue.add("plain", attempts=3),
            queue.add("later", delay_ms=60_000),
            queue.add("urgent", priority=7),
            queue.add("both", delay_ms=60_000, priority=2),
            queue.add("named", job_id="mine"),
            queue.add_ordered("user"),
        ]
        jobs = {job: queue.job(job) for job in ids}
        scores = client.zrange(queue.key("scheduled"), 0, -1, withscores=True)
        entries = client.xrange(queue.key("stream"))
    with opened(tmp_path) as client:
        queue = Queue(client, "q")
        assert {job: queue.job(job) for job in ids} == jobs
        assert client.xrange(queue.key("stream")) == entries
        after: Any = client.zrange(queue.key("scheduled"), 0, -1, withscores=True)
        before: Any = scores
        assert [job for job, _ in after] == [job for job, _ in before]
        for (_, old), (_, new) in zip(before, after, strict=True):
            assert abs(old - new) <= 2_000, "wall time stood still for the journal"
        assert queue.add("named", job_id="mine") == "duplicate"
        newest = queue.add("new")
        assert int(newest) > max(int(job) for job in ids if job.isdigit())


def test_a_job_that_was_out_comes_back_and_one_that_ended_stays_so(tmp_path: Path) -> None:
    with opened(tmp_path) as client:
        queue = Queue(client, "q")
        queue.open_group()
        done, broken, retried, active = (
            queue.add(name) for name in ("done", "broken", "retried", "active")
        )
        for job in (done, broken, retried, active):
            taken = queue.take()
            assert taken is not None
            assert taken[0] == job
            if job == done:
                queue.complete(*taken, value={"sent": True})
            elif job == broken:
                assert queue.fail(*taken) == "failed"
            elif job == retried:
                assert queue.fail(*taken, attempts=3) == "retrying"
        assert queue.field(active, "state") == "active"
    with opened(tmp_path) as client:
        queue = Queue(client, "q")
        queue.open_group()
        assert queue.job(done)["returnvalue"] == '{"sent": true}'
        assert queue.field(done, "state") == "completed"
        assert (queue.field(broken, "state"), queue.field(broken, "failedReason")) == (
            "failed",
            "broken",
        )
        assert (queue.field(retried, "state"), queue.field(retried, "attemptsMade")) == (
            "delayed",
            "1",
        )
        assert client.zrange(queue.key("completed"), 0, -1) == [done]
        assert client.zrange(queue.key("failed"), 0, -1) == [broken]
        assert queue.field(active, "state") == "waiting"
        assert queue.work_off() == [active]


def test_order_and_slots_of_a_key_are_kept(tmp_path: Path) -> None:
    with opened(tmp_path) as client:
        queue = Queue(client, "q")
        queue.open_group()
        ordered = [queue.add_ordered("user") for _ in range(4)]
        first = queue.take()
        assert first is not None
        assert first[0] == ordered[0]
        assert queue.take() is None
    with opened(tmp_path) as client:
        queue = Queue(client, "q")
        queue.open_group()
        assert queue.work_off() == ordered


def test_a_flow_goes_on_where_it_was(tmp_path: Path) -> None:
    with opened(tmp_path) as client:
        queue = Queue(client, "q")
        queue.open_group()
        parent, one, two = queue.add_flow("parent", "one", "two")
        taken = queue.take()
        assert taken is not None
        assert taken[0] == one
        queue.complete(*taken, value=1)
        assert queue.field(parent, "state") == "waiting-children"
    with opened(tmp_path) as client:
        queue = Queue(client, "q")
        queue.open_group()
        assert queue.field(parent, "state") == "waiting-children"
        members: Any = client.smembers(queue.key(f"deps:{parent}"))
        assert members == {f"{queue.prefix}:{job}" for job in (one, two)}
        assert queue.work_off() == [two, parent]
        assert queue.field(one, "returnvalue") == "1"


def test_what_clients_set_for_themselves_is_kept(tmp_path: Path) -> None:
    with opened(tmp_path) as client:
        queue = Queue(client, "q")
        queue.add("a")
        queue.call("pause", ["meta", "events"])
        client.hset(queue.key("schedulers"), "tick", '{"every":1000}')
        client.hset(queue.key("meta"), "globalConcurrency", "4")
        client.rpush(queue.key("log:1"), "one", "two")
        client.set(queue.key("w:gone"), "x", px=60_000)
    with opened(tmp_path) as client:
        queue = Queue(client, "q")
        assert client.hget(queue.key("meta"), "paused") == "1"
        assert client.hget(queue.key("meta"), "globalConcurrency") == "4"
        assert client.hget(queue.key("schedulers"), "tick") == '{"every":1000}'
        assert client.lrange(queue.key("log:1"), 0, -1) == ["one", "two"]
