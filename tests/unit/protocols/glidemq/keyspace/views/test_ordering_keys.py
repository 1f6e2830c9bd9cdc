"""Keys that show ordering groups, lists and flows, read after each change."""

import json
from typing import Any

import pytest

from tests.support.clients.library import Library
from tests.support.doors.glidemq import BareGlidemq


@pytest.fixture
def library() -> Library:
    return Library(BareGlidemq())


def table(library: Library, part: str) -> dict[str, str]:
    flat = [value.decode() for value in library.client.ask("HGETALL", library.key(part))]
    return dict(zip(flat[::2], flat[1::2], strict=True))


def scores(library: Library, part: str) -> dict[str, int]:
    flat = library.client.ask("ZRANGE", library.key(part), 0, -1, "WITHSCORES")
    return {flat[at].decode(): int(flat[at + 1]) for at in range(0, len(flat), 2)}


def test_a_sequence_is_numbered_and_run_one_by_one(library: Library) -> None:
    for _ in range(2):
        library.add(key="s")
    assert table(library, "ordering") == {"s": "2"}
    assert table(library, "group:s") == {"maxConcurrency": "1", "active": "0", "nextSeq": "1"}
    assert library.job("2")["orderingSeq"] == "2"
    [first] = library.read(count=5)
    assert table(library, "group:s") == {"maxConcurrency": "1", "active": "1", "nextSeq": "2"}
    assert library.client.ask("HGET", library.key("meta"), "orderdone:s") == b"0"
    assert library.client.ask("LLEN", library.key("groupq:s")) == 1
    library.complete(*first)
    assert library.client.ask("HGET", library.key("meta"), "orderdone:s") == b"1"
    assert [job_id for job_id, _ in library.read(count=5)] == ["2"]


def test_a_bucket_tells_how_full_it_is(library: Library) -> None:
    for _ in range(2):
        library.add(key="b", concurrency=2, capacity=2000, refill=1000, cost=1500)
    assert library.job("1")["groupKey"] == "b"
    library.read(count=5)
    full = str(library.ts())
    assert table(library, "group:b") == {
        "maxConcurrency": "2", "active": "1", "tbCapacity": "2000", "tbRefillRate": "1000",
        "tbTokens": "500", "tbLastRefill": full, "tbRefillRemainder": "0", "nextSeq": "2",
    }  # fmt: skip
    assert library.state("2") == "group-waiting"
    assert scores(library, "ratelimited") == {"b": library.ts() + 1000}
    due = ["scheduled", "ratelimited"]
    assert library.call("nextDue", due) == library.ts() + 1000
    library.site.tick(1000)
    assert library.call("promoteRateLimited", ["ratelimited", "stream"], library.ts()) == 1
    assert scores(library, "ratelimited") == {}
    assert library.call("nextDue", due) == -1
    assert library.state("2") == "waiting"
    assert library.call("promoteRateLimited", ["ratelimited", "stream"], library.ts()) == 0


def test_a_window_tells_when_it_began(library: Library) -> None:
    for _ in range(3):
        library.add(key="w", concurrency=9, rate_max=2, rate_ms=1000)
    began = library.ts()
    assert len(library.read(count=5)) == 2
    fields = table(library, "group:w")
    assert (fields["rateWindowStart"], fields["rateCount"]) == (str(began), "2")
    assert (fields["rateMax"], fields["rateDuration"]) == ("2", "1000")
    assert scores(library, "ratelimited") == {"w": began + 1000}


def told(library: Library, kind: str) -> list[list[str]]:
    entries = library.client.ask("XRANGE", library.key("events"), "-", "+")
    fields = [[value.decode() for value in one[1:]] for _, one in entries]
    return [one for one in fields if one[0] == kind]


def test_keys_and_events_show_an_ordering_group_that_a_worker_rate_limits(library: Library) -> None:
    library.add(key="k", concurrency=2)
    library.add(key="k", concurrency=2)
    job_id, entry = library.read()[0]
    until = str(library.ts() + 5000)
    arguments = (job_id, entry, "workers", 5000, library.ts())
    assert library.call("rateLimitGroup", ["job:1", "stream"], *arguments) == until.encode()
    more = ["groupKey", "k", "duration", "5000", "resumeAt", until]
    assert told(library, "group-rate-limited") == [["group-rate-limited", "jobId", "1", *more]]
    assert scores(library, "ratelimited") == {"k": int(until)}
    assert (library.state("1"), library.state("2")) == ("group-waiting", "group-waiting")
    assert library.read() == []
    keys = ["ratelimited", "events"]
    later = library.ts() + 9000
    assert library.call("rateLimitGroupExternal", keys, "k", 9000, library.ts()) == later
    assert told(library, "group-rate-limited")[1][:3] == ["group-rate-limited", "jobId", ""]
    library.site.tick(9000)
    assert [one for one, _ in library.read(count=5)] == ["1", "2"]


def test_a_worker_may_fail_its_job_as_it_rate_limits_the_ordering_group(library: Library) -> None:
    library.add(key="k", concurrency=2)
    job_id, entry = library.read()[0]
    arguments = (job_id, entry, "workers", 50, library.ts(), 0, "fail")
    library.call("rateLimitGroup", ["job:1", "stream"], *arguments)
    assert library.job("1")["failedReason"] == "group rate limited"


def flow(library: Library, count: int) -> list[str]:
    keys = library.keys("id", "stream", "scheduled", "events") * (1 + count)
    given: list[object] = ["parent", "{}", "{}", library.ts(), 0, 0, 0, count, ""]
    for _ in range(count):
        given += ["child", '"c"', "{}", 0, 0, 0, library.p, library.name, ""]
    answer: Any = library.client.ask("FCALL", "glidemq_addFlow", len(keys), *keys, *given, 0)
    ids: list[str] = json.loads(answer)
    return ids


def members(library: Library, part: str) -> list[str]:
    return sorted(one.decode() for one in library.client.ask("SMEMBERS", library.key(part)))


def test_a_flow_tells_who_waits_for_whom_and_who_is_done(library: Library) -> None:
    assert flow(library, 2) == ["1", "2", "3"]
    assert members(library, "deps:1") == [f"{library.p}:2", f"{library.p}:3"]
    assert members(library, "parents:2") == ["tasks:1"]
    assert "depsCompleted" not in library.job("1")
    first, second = library.read(count=2)
    library.complete(*first, "5")
    fields = library.job("1")
    assert (fields["depsCompleted"], fields[f"depdone:{library.p}:2"]) == ("1", "1")
    library.fail(*second)
    assert library.state("1") == "waiting-children"
    assert library.client.ask("SREM", library.key("deps:1"), f"{library.p}:3") == 1
    assert library.state("1") == "waiting"
    assert members(library, "deps:1") == [f"{library.p}:2"]
    assert library.job("1")["depsCompleted"] == "1"


def test_lists_and_what_runs_of_them(library: Library) -> None:
    for _ in range(2):
        library.add(lifo=1)
    library.add(priority=4)
    library.promote()
    ask = library.client.ask
    assert ask("LRANGE", library.key("lifo"), 0, -1) == [b"1", b"2"]
    assert ask("LRANGE", library.key("priority"), 0, -1) == [b"3"]
    assert ask("GET", library.key("list-active")) is None
    assert library.call("popLists", ["priority", "lifo"], 5) == [b"3"]
    assert library.call("popLists", ["priority", "lifo"], 1) == [b"2"]
    assert ask("GET", library.key("list-active")) == b"2"
    # The client counts too, in vain.
    ask("INCRBY", library.key("list-active"), 2)
    assert ask("GET", library.key("list-active")) == b"2"
    assert library.counts()["active"] == 2
    library.complete("3", "")
    library.fail("2", "", attempts=3, backoff=10)
    assert ask("GET", library.key("list-active")) is None
    assert library.state("2") == "delayed"
    library.site.tick(10)
    library.promote()
    assert ask("LRANGE", library.key("lifo"), 0, -1) == [b"1", b"2"]


def test_jobs_of_an_ordering_group_count_in_the_list_they_wait_for(library: Library) -> None:
    for _ in range(3):
        library.add(key="s", priority=2)
    library.promote()
    ask = library.client.ask
    assert ask("LLEN", library.key("priority")) == 3
    assert ask("LRANGE", library.key("priority"), 0, -1) == [b"3", b"2", b"1"]
    assert ask("XLEN", library.key("stream")) == 0
    assert library.call("popLists", ["priority", "lifo"], 5) == [b"1"]


def test_twins_are_remembered_by_the_job_that_stands_for_them(library: Library) -> None:
    library.dedup("x", "simple")
    entry = f"1:{library.ts()}"
    assert table(library, "dedup") == {"x": entry}
    assert library.client.ask("HDEL", library.key("dedup"), "x") == 1
    assert library.dedup("x", "simple") == b"2"


def test_suspended_jobs_are_scored_by_when_it_is_too_late(library: Library) -> None:
    keys = ["stream", "events", "suspended"]
    for at, timeout in (("1", 70), ("2", 0)):
        library.add()
        job_id, entry = library.read()[0]
        arguments = (job_id, entry, "workers", library.ts(), "why", timeout)
        assert library.call("suspend", [f"job:{at}", *keys], *arguments) == b"ok"
    assert scores(library, "suspended") == {"1": library.ts() + 70, "2": 9_999_999_999_999}
    shown = library.job("1")
    assert (shown["state"], shown["suspendReason"]) == ("suspended", "why")
    assert (shown["suspendedAt"], shown["suspendTimeout"]) == (str(library.ts()), "70")
    signal = [f"job:{2}", *keys, "signals:2"]
    assert library.call("signal", signal, "2", "go", '{"a":1}', library.ts()) == b"ok"
    assert scores(library, "suspended") == {"1": library.ts() + 70}
    signals = json.loads(library.job("2")["signals"])
    assert signals == [{"name": "go", "data": '{"a":1}', "receivedAt": library.ts()}]


def test_parents_are_not_looked_through_for_who_waits_for_a_signal(library: Library) -> None:
    flow(library, 1)
    jobs_by_seq = library.site.yard.queues["tasks"].jobs_by_seq
    assert jobs_by_seq is not None
    sweep = ["suspended", "events", "failed", "metrics:failed"]
    assert library.call("sweepSuspended", sweep, library.ts(), library.p + ":") == 0
    assert not jobs_by_seq.may_wait_for_signals
    job_id, entry = library.read()[0]
    keys = [f"job:{job_id}", "stream", "events", "suspended"]
    library.call("suspend", keys, job_id, entry, "workers", library.ts(), "", 50)
    assert scores(library, "suspended") == {job_id: library.ts() + 50}
    library.site.tick(60)
    assert library.call("sweepSuspended", sweep, library.ts(), library.p + ":") == 1
    assert scores(library, "suspended") == {}
    assert not jobs_by_seq.may_wait_for_signals
