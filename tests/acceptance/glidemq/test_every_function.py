"""Every function of the library, called by redis-py over a socket, and every documented key read.

What each does in all its cases is tested without sockets; here each is called as clients call it,
in both versions of the protocol, and what it did is read back with the methods redis-py has.
"""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from jobyard.protocols.glidemq.functions.table import FUNCTIONS

ADD = ("id", "stream", "scheduled", "events")
JOB = ("stream", "scheduled", "events")
ENDS = ("stream", "completed", "events")


class Caller:
    """One client, in one queue; answers are text."""

    def __init__(self, client: Any, queue: str) -> None:
        self.client = client
        self.queue = queue
        self.ts = int(time.time() * 1000)

    def key(self, part: str) -> str:
        return self.queue + part

    def call(self, name: str, parts: tuple[str, ...], *arguments: object) -> Any:
        keys = [self.key(part) for part in parts]
        words = [str(argument) for argument in arguments]
        return text_of(self.client.fcall(f"glidemq_{name}", len(keys), *keys, *words))

    def add(self, **given: object) -> str:
        known: dict[str, object] = {
            "name": "mail", "data": '{"to":"me"}', "opts": "{}", "ts": self.ts, "delay": 0,
            "priority": 0, "parent": "", "attempts": 0, "key": "", "concurrency": 0, "rate_max": 0,
            "rate_ms": 0, "capacity": 0, "refill": 0, "cost": 0, "ttl": 0, "custom": "",
        }  # fmt: skip
        return str(self.call("addJob", ADD, *{**known, **given}.values()))

    def take(self) -> tuple[str, str]:
        """Take the next job of the stream; return its id and its entry."""
        streams = {self.key("stream"): ">"}
        answer = text_of(self.client.xreadgroup("workers", "w1", streams, count=1))
        found = answer[self.key("stream")][0] if isinstance(answer, dict) else answer[0][1]
        entry, fields = found[0]
        return fields["jobId"], entry

    def run(self, **given: object) -> tuple[str, str]:
        """Add a job and take it."""
        self.add(**given)
        return self.take()

    def fail(self, job: str, entry: str) -> Any:
        parts = ("stream", "failed", "scheduled", "events", f"job:{job}", "metrics:failed")
        return self.call("fail", parts, job, entry, "no", self.ts, 0, 0, "workers", 0, 0, 0)

    def state(self, job: str) -> Any:
        return text_of(self.client.hget(self.key(f"job:{job}"), "state"))


def text_of(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, list | tuple):
        return [text_of(one) for one in value]
    if isinstance(value, dict):
        return {text_of(key): text_of(one) for key, one in value.items()}
    return value


# -- one scenario for each -------------------------------------------------------------------------


def version(site: Caller) -> None:
    assert site.call("version", ()) == "93"


def add_job(site: Caller) -> None:
    assert [site.add(), site.add(custom="mine"), site.add(custom="mine")] == [
        "1", "mine", "duplicate",
    ]  # fmt: skip
    assert text_of(site.client.hget(site.key("job:mine"), "data")) == '{"to":"me"}'


def dedup(site: Caller) -> None:
    new_job = ["mail", "{}", "{}", site.ts, 0, 0, "", 0, "", *[0] * 7, ""]
    given = ("d", 0, "simple", *new_job)
    assert [site.call("dedup", ("dedup", *ADD), *given) for _ in range(2)] == ["1", "skipped"]


def add_flow(site: Caller) -> None:
    parent = ("top", "{}", "{}", site.ts, 0, 0, 0, 1, "")
    child = ("low", "{}", "{}", 0, 0, 0, site.queue[:-1], "q", "")
    assert json.loads(site.call("addFlow", ADD + ADD, *parent, *child)) == ["1", "2"]
    members = text_of(list(site.client.smembers(site.key("deps:1"))))
    assert members == [f"{site.queue}2"]


def pause(site: Caller) -> None:
    assert site.call("pause", ("meta", "events")) == 1
    assert site.client.hget(site.key("meta"), "paused") == b"1"


def resume(site: Caller) -> None:
    pause(site)
    assert site.call("resume", ("meta", "events")) == 1
    assert site.client.hget(site.key("meta"), "paused") in (None, b"0")


def promote(site: Caller) -> None:
    site.add(priority=2)
    assert site.call("promote", ("scheduled", "stream", "events"), site.ts + 1000) == 1
    assert text_of(site.client.lrange(site.key("priority"), 0, -1)) == ["1"]


def next_due(site: Caller) -> None:
    site.add(delay=60_000)
    assert site.call("nextDue", ("scheduled", "ratelimited")) >= site.ts


def pop_lists(site: Caller) -> None:
    promote(site)
    assert site.call("popLists", ("priority", "lifo"), 5) == ["1"]


def pop_lists_reserve(site: Caller) -> None:
    promote(site)
    assert site.call("popListsReserve", ("priority", "lifo", "list-active"), 5) == ["1"]


def rpop_and_reserve(site: Caller) -> None:
    promote(site)
    parts = ("meta", "stream", "list-active", "priority")
    assert site.call("rpopAndReserve", parts, "workers", 1) == ["1"]
    assert site.client.get(site.key("list-active")) == b"1"


def check_concurrency(site: Caller) -> None:
    site.client.hset(site.key("meta"), "globalConcurrency", 3)
    site.run()
    assert site.call("checkConcurrency", ("meta", "stream", "list-active"), "workers") == 2


def move_to_active(site: Caller) -> None:
    job, entry = site.run()
    flat = site.call("moveToActive", (f"job:{job}", "stream"), site.ts, entry, "workers", job)
    assert dict(zip(flat[::2], flat[1::2], strict=True))["state"] == "active"


def complete(site: Caller) -> None:
    job, entry = site.run()
    parts = (*ENDS, f"job:{job}", "metrics:completed")
    given = (job, entry, '"ok"', site.ts, "workers", 0, 0, 0, "", "")
    assert site.call("complete", parts, *given) == 1
    assert site.state(job) == "completed"


def complete_and_fetch_next(site: Caller) -> None:
    site.add()
    job, entry = site.run()
    parts = (*ENDS, f"job:{job}", "metrics:completed")
    given = (job, entry, "1", site.ts, "workers", "w1", 0, 0, 0, "", "", "__", "", "__", 0)
    answer = site.call("completeAndFetchNext", parts, *given)
    assert answer[:3] == ["NEXT_HASH", "1", "2"]


def fail(site: Caller) -> None:
    assert site.fail(*site.run()) == "failed"
    assert site.client.zcard(site.key("failed")) == 1


def defer_active(site: Caller) -> None:
    job, entry = site.run()
    parts = ("stream", f"job:{job}", "list-active")
    assert site.call("deferActive", parts, job, entry, "workers") == 1
    assert site.state(job) == "waiting"


def reclaim_stalled(site: Caller) -> None:
    job, _ = site.run()
    given = ("workers", "w2", 0, 1, site.ts, site.key("failed"))
    assert site.call("reclaimStalled", ("stream", "events"), *given) == 1
    assert site.state(job) == "waiting"


def reclaim_stalled_list_jobs(site: Caller) -> None:
    pop_lists(site)
    given = (0, 1, site.ts, site.key("failed"))
    assert site.call("reclaimStalledListJobs", ("stream", "events"), *given) == 1


def heal_list_active(site: Caller) -> None:
    assert site.call("healListActive", ("id",)) == 0


def get_active_list_job_ids(site: Caller) -> None:
    pop_lists(site)
    assert site.call("getActiveListJobIds", ("id",), 0, -1) == ["1"]


LOCK = ("schedulers:lock:__tick__",)


def try_lock(site: Caller) -> None:
    assert [site.call("tryLock", LOCK, who, 60_000) for who in "ab"] == [1, 0]


def unlock(site: Caller) -> None:
    try_lock(site)
    assert [site.call("unlock", LOCK, who) for who in "ba"] == [0, 1]


def renew_lock(site: Caller) -> None:
    try_lock(site)
    assert [site.call("renewLock", LOCK, who, 60_000) for who in "ba"] == [0, 1]


def rate_limit(site: Caller) -> None:
    waits = [site.call("rateLimit", ("rate", "meta"), 1, 1000, site.ts) for _ in range(2)]
    assert waits[0] == 0 < waits[1] <= 1000


def promote_rate_limited(site: Caller) -> None:
    assert site.call("promoteRateLimited", ("ratelimited", "stream"), site.ts) == 0


def remove_job(site: Caller) -> None:
    site.add()
    parts = ("job:1", "stream", "scheduled", "completed", "failed", "events", "log:1")
    assert [site.call("removeJob", parts, "1") for _ in range(2)] == [1, 0]
    assert site.client.exists(site.key("job:1")) == 0


def clean(site: Caller) -> None:
    fail(site)
    assert site.call("clean", ("failed", "events", "id"), site.ts + 60_000, 10) == ["1"]


def drain(site: Caller) -> None:
    site.add()
    site.add(delay=60_000)
    parts = ("stream", "scheduled", "events", "id", "lifo", "priority")
    assert site.call("drain", parts, 1, "workers") == 2


def retry_jobs(site: Caller) -> None:
    fail(site)
    assert site.call("retryJobs", ("failed", "scheduled", "events", "id"), 0, site.ts) == 1
    assert site.state("1") == "delayed"


def retry_job(site: Caller) -> None:
    fail(site)
    assert site.call("retryJob", ("job:1", "failed", "scheduled"), "1", site.ts) == "ok"


def revoke(site: Caller) -> None:
    site.add()
    parts = ("job:1", "stream", "scheduled", "failed", "events")
    assert site.call("revoke", parts, "1", site.ts, "workers") == "revoked"


def change_priority(site: Caller) -> None:
    site.add()
    assert site.call("changePriority", ("job:1", *JOB), "1", 5, "workers") == "ok"
    assert site.client.zscore(site.key("scheduled"), "1") == 5 * 2**42


def change_delay(site: Caller) -> None:
    site.add()
    assert site.call("changeDelay", ("job:1", *JOB), "1", 60_000, site.ts, "workers") == "ok"
    assert site.state("1") == "delayed"


def promote_job(site: Caller) -> None:
    site.add(delay=60_000)
    assert site.call("promoteJob", ("job:1", *JOB), "1") == "ok"
    assert site.take()[0] == "1"


def search_by_name(site: Caller) -> None:
    site.add()
    site.add(name="call")
    given = ("stream", "call", 5, site.queue[:-1])
    assert site.call("searchByName", ("stream",), *given) == ["2"]


def move_active_to_delayed(site: Caller) -> None:
    job, entry = site.run()
    given = (job, entry, site.ts, site.ts + 60_000, "workers", '{"step":2}')
    assert site.call("moveActiveToDelayed", (f"job:{job}", *JOB), *given) == "ok"
    assert text_of(site.client.hget(site.key("job:1"), "data")) == '{"step":2}'


def move_to_waiting_children(site: Caller) -> None:
    job, entry = site.run()
    site.client.sadd(site.key(f"deps:{job}"), f"{site.queue}7")
    parts = (f"job:{job}", "stream", "events")
    assert site.call("moveToWaitingChildren", parts, job, entry, "workers", site.ts) == "ok"
    assert site.state(job) == "waiting-children"


def complete_child(site: Caller) -> None:
    move_to_waiting_children(site)
    parts = ("deps:1", "job:1", "stream", "events")
    assert site.call("completeChild", parts, f"{site.queue}7", "1") == 0
    assert site.state("1") == "waiting"


def register_parent(site: Caller) -> None:
    site.add(custom="child")
    parent = ("top", "{}", "{}", site.ts, 0, 0, 0, 0, "top")
    site.call("addFlow", ADD, *parent)
    parts = ("job:child", "parents:child", "deps:top", "job:top", "stream", "events")
    given = ("child", "top", site.queue[:-1], f"{site.queue}child")
    assert site.call("registerParent", parts, *given) == "ok"
    assert site.client.scard(site.key("deps:top")) == 1


def rate_limit_group(site: Caller) -> None:
    job, entry = site.run(key="k")
    given = (job, entry, "workers", 60_000, site.ts)
    until = site.call("rateLimitGroup", (f"job:{job}", "stream"), *given)
    assert int(until) >= site.ts + 60_000


def rate_limit_group_external(site: Caller) -> None:
    site.add(key="k")
    parts = ("ratelimited", "events")
    until = site.call("rateLimitGroupExternal", parts, "k", 60_000, site.ts)
    assert until >= site.ts + 60_000
    assert site.client.zscore(site.key("ratelimited"), "k") == until


def suspend(site: Caller) -> None:
    job, entry = site.run()
    parts = (f"job:{job}", "stream", "events", "suspended")
    assert site.call("suspend", parts, job, entry, "workers", site.ts, "why", 0) == "ok"
    assert site.state(job) == "suspended"


def signal(site: Caller) -> None:
    suspend(site)
    parts = ("job:1", "stream", "events", "suspended", "signals:1")
    assert site.call("signal", parts, "1", "go", "{}", site.ts) == "ok"
    assert site.state("1") == "waiting"


def sweep_suspended(site: Caller) -> None:
    parts = ("suspended", "events", "failed", "metrics:failed")
    assert site.call("sweepSuspended", parts, site.ts, site.queue) == 0


def check_budget(site: Caller) -> None:
    assert site.call("checkBudget", ("budget:f",)) == "no_budget"


def record_usage_and_check_budget(site: Caller) -> None:
    site.client.hset(site.key("budget:f"), mapping={"maxTotalTokens": 5, "usedTokens": 0})
    given = ('{"input":10}', "{}", 10, 0, "{}", "{}")
    call = site.call("recordUsageAndCheckBudget", ("budget:f",), *given)
    assert call == site.call("checkBudget", ("budget:f",)) == "exceeded"


def update_job_fields(site: Caller) -> None:
    site.add()
    given = ("1", "", "", "data", '{"n":2}')
    assert site.call("updateJobFields", ("job:1", "events"), *given) == 1
    assert text_of(site.client.hget(site.key("job:1"), "data")) == '{"n":2}'


def trim_broadcast(site: Caller) -> None:
    site.add()
    parts = ("stream", "completed", "failed", "scheduled")
    assert site.call("trimBroadcast", parts, 1, site.ts) == 0


def cas_scheduler_entry(site: Caller) -> None:
    changed = [site.call("casSchedulerEntry", ("schedulers",), "s", "", "{}") for _ in range(2)]
    assert changed == [1, 0]


def update_flow_budget(site: Caller) -> None:
    given = ("maxTotalTokens", 5)
    assert site.call("updateFlowBudget", ("budget:f",), *given) == "no_budget"


SCENARIOS: dict[str, Callable[[Caller], None]] = {
    scenario.__name__: scenario
    for scenario in (
        version, add_job, dedup, add_flow, pause, resume, promote, next_due, pop_lists,
        pop_lists_reserve, rpop_and_reserve, check_concurrency, move_to_active, complete,
        complete_and_fetch_next, fail, defer_active, reclaim_stalled, reclaim_stalled_list_jobs,
        heal_list_active, get_active_list_job_ids, try_lock, unlock, renew_lock, rate_limit,
        promote_rate_limited, remove_job, clean, drain, retry_jobs, retry_job, revoke,
        change_priority, change_delay, promote_job, search_by_name, move_active_to_delayed,
        move_to_waiting_children, complete_child, register_parent, rate_limit_group,
        rate_limit_group_external, suspend, signal, sweep_suspended, check_budget,
        record_usage_and_check_budget, update_job_fields, trim_broadcast, cas_scheduler_entry,
        update_flow_budget,
    )
}  # fmt: skip


def _snake(name: bytes) -> str:
    text = name.decode().removeprefix("glidemq_")
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in text)


@pytest.mark.parametrize("name", [_snake(name) for name in FUNCTIONS])
def test_a_function_is_called(client: Any, queue: str, name: str) -> None:
    SCENARIOS[name](Caller(client, queue))


# -- every key of the document ---------------------------------------------------------------------


def test_every_documented_key_is_read(client: Any, queue: str) -> None:
    site = Caller(client, queue)
    complete(site)
    site.add(priority=3)
    site.add(key="k", concurrency=2)
    site.add(key="o")
    site.add(delay=60_000)
    site.fail(*site.run())
    site.take()
    client.rpush(site.key("log:1"), "line")
    client.hset(site.key("schedulers"), "s", "{}")
    pause(site)
    kinds = {
        part: text_of(client.type(site.key(part)))
        for part in (
            "id", "stream", "scheduled", "completed", "failed", "events", "meta", "job:1", "log:1",
            "ordering", "group:k", "schedulers",
        )
    }  # fmt: skip
    assert kinds == {
        "id": "string", "stream": "stream", "scheduled": "zset", "completed": "zset",
        "failed": "zset", "events": "stream", "meta": "hash", "job:1": "hash", "log:1": "list",
        "ordering": "hash", "group:k": "hash", "schedulers": "hash",
    }  # fmt: skip
    assert client.get(site.key("id")) == b"6"
    assert client.xlen(site.key("stream")) == 2
    assert len(client.xrange(site.key("stream"))) == len(client.xrevrange(site.key("stream"))) == 2
    assert client.xpending(site.key("stream"), "workers")["pending"] == 1
    [held] = client.xpending_range(site.key("stream"), "workers", "-", "+", 10)
    assert held["consumer"] == b"w1"
    assert client.zcard(site.key("scheduled")) == 2
    scores = client.zrange(site.key("scheduled"), 0, -1, withscores=True)
    assert [text_of(member) for member, _ in scores] == ["5", "2"]
    assert scores[1][1] == 3 * 2**42
    assert client.zscore(site.key("completed"), "1") >= site.ts - 60_000
    assert client.hget(site.key("job:1"), "returnvalue") == b'"ok"'
    assert client.hmget(site.key("job:1"), "name", "nothing") == [b"mail", None]
    assert text_of(client.hgetall(site.key("job:1")))["state"] == "completed"
    assert client.lrange(site.key("log:1"), 0, -1) == [b"line"]
    assert client.hget(site.key("ordering"), "o") == b"1"
    assert client.hget(site.key("group:k"), "maxConcurrency") == b"2"
    assert client.hget(site.key("meta"), "paused") == b"1"
    assert client.exists(site.key("job:1"), site.key("job:99")) == 1
    found = {text_of(key) for key in client.scan_iter(match=f"{queue}*", count=100)}
    assert {site.key(part) for part in kinds if part != "group:k"} <= found
    assert client.xinfo_stream(site.key("stream"))["length"] == 2
    assert [text_of(one["name"]) for one in client.xinfo_groups(site.key("stream"))] == ["workers"]
