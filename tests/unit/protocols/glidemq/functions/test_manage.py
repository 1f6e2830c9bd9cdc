"""The functions that manage jobs, ordering groups, flows, signals, locks and budgets."""

import json

import pytest

from tests.support.clients.library import Library
from tests.support.doors.glidemq import BareGlidemq
from tests.support.site.storage import MemoryStorage


@pytest.fixture
def library() -> Library:
    return Library(BareGlidemq())


def fail_one(library: Library) -> str:
    library.add()
    [(job_id, entry)] = library.read()
    library.fail(job_id, entry)
    return job_id


# -- one job ------------------------------------------------------------------------------------


def test_a_removed_job_is_gone_everywhere(library: Library) -> None:
    library.add()
    parts = ["job:1", "stream", "scheduled", "completed", "failed", "events", "log:1"]
    assert library.call("removeJob", parts, "1") == 1
    assert library.call("removeJob", parts, "1") == 0
    assert library.client.ask("XLEN", library.key("stream")) == 0
    assert library.read() == []
    assert ("removed", "1") in library.events()


def revoke(library: Library, job_id: str) -> bytes:
    parts = [f"job:{job_id}", "stream", "scheduled", "failed", "events"]
    answer = library.call("revoke", parts, job_id, library.ts(), "workers")
    assert isinstance(answer, bytes)
    return answer


def test_what_was_kept_beside_removed_jobs_goes_with_them(library: Library) -> None:
    ask = library.client.ask
    for at in ("1", "2", "3", "4"):
        library.add()
        ask("RPUSH", library.key(f"signals:{at}"), "{}")
        ask("XADD", library.key(f"jstream:{at}"), "*", "a", "b")
    parts = ["job:1", "stream", "scheduled", "completed", "failed", "events", "log:1"]
    library.call("removeJob", parts, "1")
    library.complete(*library.read()[0])
    library.call("clean", ["completed", "events", "id"], library.ts(), 10)
    library.read()
    library.call("drain", ["stream", "scheduled", "events", "id"], 0, "workers")
    left = [at for at in "1234" if ask("EXISTS", library.key(f"signals:{at}"))]
    assert left == ["3"]
    assert [at for at in "1234" if ask("EXISTS", library.key(f"jstream:{at}"))] == ["3"]


def test_a_revoked_job_does_not_run(library: Library) -> None:
    library.add()
    library.add()
    assert revoke(library, "9") == b"not_found"
    assert revoke(library, "1") == b"revoked"
    job = library.job("1")
    assert (job["state"], job["failedReason"], job["revoked"]) == ("failed", "revoked", "1")
    [(job_id, entry)] = library.read()
    assert revoke(library, job_id) == b"flagged"
    assert library.activate(job_id, entry) == b"REVOKED"


def test_a_priority_is_changed_while_a_job_waits(library: Library) -> None:
    parts = ["job:1", "stream", "scheduled", "events"]
    assert library.call("changePriority", parts, "1", 2, "workers") == b"error:not_found"
    library.add()
    assert library.call("changePriority", parts, "1", 9999, "workers") == b"error:invalid_priority"
    assert library.call("changePriority", parts, "1", 0, "workers") == b"no_op"
    assert library.call("changePriority", parts, "1", 2, "workers") == b"ok"
    assert library.state("1") == "prioritized"
    assert library.client.ask("ZSCORE", library.key("scheduled"), "1") == str(2 << 42).encode()
    assert library.call("changePriority", parts, "1", 0, "workers") == b"ok"
    [(job_id, entry)] = library.read()
    assert library.call("changePriority", parts, "1", 2, "workers") == b"error:invalid_state"
    library.complete(job_id, entry)
    assert ("priority-changed", "1") in library.events()


def test_a_delay_is_changed_and_cut_short(library: Library) -> None:
    parts = ["job:1", "stream", "scheduled", "events"]
    library.add()
    assert library.call("changeDelay", parts, "1", 5000, library.ts(), "workers") == b"ok"
    score = library.client.ask("ZSCORE", library.key("scheduled"), "1")
    assert score == str(library.ts() + 5000).encode()
    assert library.state("1") == "delayed"
    assert library.call("promoteJob", parts, "1") == b"ok"
    assert library.call("promoteJob", parts, "1") == b"error:not_delayed"
    assert library.call("promoteJob", ["job:9", *parts[1:]], "9") == b"error:not_found"
    assert len(library.read()) == 1
    assert ("delay-changed", "1") in library.events()


# -- many jobs ----------------------------------------------------------------------------------


def test_old_jobs_are_cleaned_away(library: Library) -> None:
    first = fail_one(library)
    library.site.tick(1000)
    second = fail_one(library)
    cutoff = library.ts() - 500
    parts = ["failed", "events", "id"]
    assert library.call("clean", parts, cutoff, 100) == [first.encode()]
    assert library.state(first) is None
    assert library.state(second) == "failed"
    assert ("cleaned", "1") in library.events()


def test_what_waits_is_drained(library: Library) -> None:
    library.add()
    library.read()
    library.add()
    library.add(lifo=1)
    library.add(delay=5000)
    parts = ["stream", "scheduled", "events", "id", "lifo", "priority"]
    assert library.call("drain", parts, 0, "workers") == 2
    assert library.counts()["active"] == 1
    assert library.counts()["scheduled"] == 1
    assert library.call("drain", parts, 1, "workers") == 1
    assert library.counts()["scheduled"] == 0
    assert ("drained", "2") in library.events()


@pytest.mark.parametrize("is_long", [False, True])
def test_nobody_who_waits_gets_a_job_that_is_being_drained(
    library: Library, *, is_long: bool
) -> None:
    library.add(key="k", concurrency=2, delay=1000)
    library.add(key="k", concurrency=2, lifo=1)
    library.site.tick(1000)
    library.promote()
    other = library.site.connect()
    asked = ("XREADGROUP", "GROUP", "workers", "w2", "BLOCK", 0, "STREAMS", library.key("stream"))
    other.send(*asked, ">")
    if is_long:
        library.site.yard.tasks.first_units = library.site.yard.tasks.units_per_turn = 3
    parts = ["stream", "scheduled", "events", "id", "lifo", "priority"]
    assert library.call("drain", parts, 0, "workers") == 2
    library.site.tick(0)
    assert other.hear() == []


def test_failed_jobs_are_retried(library: Library) -> None:
    first, second = fail_one(library), fail_one(library)
    parts = ["failed", "scheduled", "events", "id"]
    assert library.call("retryJobs", parts, 1, library.ts()) == 1
    assert library.client.ask("ZRANGE", library.key("failed"), 0, -1) == [second.encode()]
    assert library.job(first)["attemptsMade"] == "0"
    assert library.call("retryJobs", parts, 0, library.ts()) == 1
    assert library.promote() == 2
    assert len(library.read(count=5)) == 2


def test_a_client_retries_one_job_by_itself(library: Library) -> None:
    job_id = fail_one(library)
    assert library.client.ask("ZREM", library.key("failed"), job_id) == 1
    assert library.client.ask("ZADD", library.key("scheduled"), library.ts(), job_id) == 1
    library.client.ask("HSET", library.key(f"job:{job_id}"), "state", "delayed", "attemptsMade", 0)
    assert library.counts()["failed"] == 0
    assert library.promote() == 1
    assert [one for one, _ in library.read()] == [job_id]


def test_jobs_are_found_by_name(library: Library) -> None:
    library.add(name="a")
    library.add(name="b")
    library.add(name="a", delay=500)
    find = "searchByName"
    assert library.call(find, ["stream"], "stream", "a", 10, library.p) == [b"1"]
    assert library.call(find, ["scheduled"], "zset", "a", 10, library.p) == [b"3"]
    assert library.call(find, ["failed"], "zset", "a", 10, library.p) == []


# -- ordering groups ----------------------------------------------------------------------------


def test_jobs_of_a_key_run_one_by_one_in_order(library: Library) -> None:
    for _ in range(3):
        library.add(key="k")
    library.add()
    taken = library.read(count=10)
    assert [job_id for job_id, _ in taken] == ["1", "4"]
    assert library.counts() == {
        "waiting": 2, "active": 2, "lists": 0, "scheduled": 0, "completed": 0, "failed": 0,
    }  # fmt: skip
    # A worker asks whether it is the turn of the job it holds.
    assert library.client.ask("HGET", library.key("meta"), "orderdone:k") == b"0"
    library.complete(*taken[0])
    [(job_id, _)] = library.read(count=10)
    assert job_id == "2"
    assert library.client.ask("HGET", library.key("meta"), "orderdone:k") == b"1"


def test_a_group_runs_so_many_at_once(library: Library) -> None:
    for _ in range(3):
        library.add(key="k", concurrency=2)
    assert len(library.read(count=10)) == 2
    group = library.client.ask("HMGET", library.key("group:k"), "maxConcurrency", "active")
    assert group == [b"2", b"2"]


def test_an_ordering_group_is_rate_limited_from_outside(library: Library) -> None:
    library.add(key="k", concurrency=2)
    until = library.call(
        "rateLimitGroupExternal", ["ratelimited", "events"], "k", 1000, library.ts(), "max"
    )
    assert until == library.ts() + 1000
    assert library.read() == []
    scored = library.client.ask("ZRANGE", library.key("ratelimited"), 0, -1, "WITHSCORES")
    assert scored == [b"k", str(until).encode()]
    assert library.call("promoteRateLimited", ["ratelimited", "stream"], library.ts()) == 0
    library.site.tick(1000)
    assert len(library.read()) == 1


def test_a_worker_rate_limits_the_ordering_group_of_its_job(library: Library) -> None:
    library.add(key="k", concurrency=2)
    library.add(key="k", concurrency=2)
    [(job_id, entry)] = library.read()
    given = (job_id, entry, "workers", 1000, library.ts(), 0, "requeue", "front", "max")
    until = library.call("rateLimitGroup", [f"job:{job_id}", "stream"], *given)
    assert until == str(library.ts() + 1000).encode()
    assert library.read() == []
    library.site.tick(1000)
    assert [one for one, _ in library.read(count=5)] == ["1", "2"]
    assert ("group-rate-limited", "1") in library.events()


def test_one_that_is_back_from_the_dead_waits_while_another_of_its_key_runs(
    library: Library,
) -> None:
    library.add(key="k")
    library.add(key="k")
    [first] = library.read()
    assert library.fail(*first) == b"failed"
    [second] = library.read()
    assert library.call("retryJobs", ["failed", "scheduled", "events", "id"], 0, library.ts()) == 1
    library.promote()
    assert library.read(count=5) == []
    library.complete(*second)
    assert [job_id for job_id, _ in library.read(count=5)] == ["1"]


def test_of_two_of_a_key_that_are_back_from_the_dead_one_runs_though_both_are_known(
    library: Library,
) -> None:
    library.add(key="k")
    library.add(key="k")
    for _ in range(2):
        assert library.fail(*library.read()[0]) == b"failed"
    assert library.call("retryJobs", ["failed", "scheduled", "events", "id"], 0, library.ts()) == 2
    library.promote()
    assert library.activate("2", "") == b"GROUP_FULL"
    [first] = library.read(count=5)
    assert (first[0], library.activate("2", "")) == ("1", b"GROUP_FULL")
    library.complete(*first)
    assert b"2" in library.activate("2", "")
    assert library.read(count=5) == []


def test_one_that_a_restart_gave_back_keeps_its_turn_while_it_is_renamed() -> None:
    library = Library(BareGlidemq(MemoryStorage()))
    library.add(key="k")
    library.add(key="k")
    library.fail(*library.read()[0])
    library.read()
    library = Library(library.site.reboot())
    assert library.call("retryJobs", ["failed", "scheduled", "events", "id"], 0, library.ts()) == 1
    library.promote()
    assert [job_id for job_id, _ in library.read(count=5)] == ["2"]


def test_who_waits_gets_the_next_of_a_key_when_one_is_taken_from_a_list(library: Library) -> None:
    library.add(key="k", concurrency=2, priority=1)
    library.promote()
    library.add(key="k", concurrency=2)
    other = library.site.connect()
    asked = ("XREADGROUP", "GROUP", "workers", "w2", "BLOCK", 0, "STREAMS", library.key("stream"))
    other.send(*asked, ">")
    assert other.hear() == []
    assert library.call("popLists", ["priority", "lifo"], 1) == [b"1"]
    library.site.tick(0)
    [[[_, [[_, fields]]]]] = other.hear()
    assert fields[1] == b"2"


# -- flows and signals --------------------------------------------------------------------------


def test_a_running_job_waits_for_children_it_added(library: Library) -> None:
    library.add()
    [(job_id, entry)] = library.read()
    parts = ["id", "stream", "scheduled", "events", "deps:1"]
    given = library.arguments(parent="1", lifo=0, parent_queue="tasks")
    assert library.call("addJob", parts, *given) == b"2"
    park = ["job:1", "stream", "events"]
    ask = "moveToWaitingChildren"
    assert library.call(ask, park, job_id, entry, "workers", library.ts()) == b"ok"
    assert library.state("1") == "waiting-children"
    assert library.call(ask, park, job_id, entry, "workers", library.ts()) == b"error:not_active"
    [(child_id, child_entry)] = library.read()
    assert child_id == "2"
    library.complete(child_id, child_entry)
    [(job_id, entry)] = library.read()
    assert job_id == "1"
    assert library.call(ask, park, job_id, entry, "workers", library.ts()) == b"completed"
    # Its worker has finished it, and nothing is left to wake it: the server brings it back.
    assert library.state("1") == "waiting"
    assert [one for one, _ in library.read()] == ["1"]


def test_a_job_that_waits_for_no_child_comes_again(library: Library) -> None:
    library.add(key="k")
    library.add(key="k")
    [(job_id, entry)] = library.read()
    park = ["job:1", "stream", "events"]
    answer = library.call("moveToWaitingChildren", park, job_id, entry, "workers", library.ts())
    assert answer == b"completed"
    assert library.job("1")["attemptsMade"] == "0"
    [(job_id, entry)] = library.read(count=5)
    assert job_id == "1", "it keeps its turn"


def test_a_child_gets_another_parent(library: Library) -> None:
    library.add()
    keys = library.keys("id", "stream", "scheduled", "events")
    given: list[object] = ["parent", "{}", "{}", library.ts(), 0, 0, 0, 0, "top", 0]
    ids = json.loads(library.client.ask("FCALL", "glidemq_addFlow", 4, *keys, *given))
    assert ids == ["top"]
    parts = ["job:1", "parents:1", "deps:top", "job:top", "stream", "events"]
    member = f"{library.p}:1"
    assert library.call("registerParent", parts, "1", "top", library.p, member) == b"ok"
    missing = ["job:9", "parents:9", *parts[2:]]
    answer = library.call("registerParent", missing, "9", "top", library.p, "x")
    assert answer == b"error:child_not_found"
    [(job_id, entry)] = library.read()
    library.complete(job_id, entry)
    assert library.state("top") == "waiting"


def test_a_child_elsewhere_is_completed_by_name(library: Library) -> None:
    library.add(custom="top")
    library.client.ask("SADD", library.key("deps:top"), "else:{where}:1")
    [(job_id, entry)] = library.read()
    park = ["job:top", "stream", "events"]
    library.call("moveToWaitingChildren", park, job_id, entry, "workers", library.ts())
    parts = ["deps:top", "job:top", "stream", "events"]
    assert library.call("completeChild", parts, "else:{where}:1", "top") == 0
    assert library.state("top") == "waiting"


def suspend(library: Library, timeout: int) -> None:
    [(job_id, entry)] = library.read()
    parts = [f"job:{job_id}", "stream", "events", "suspended"]
    given = (job_id, entry, "workers", library.ts(), "approval", timeout)
    assert library.call("suspend", parts, *given) == b"ok"
    assert library.call("suspend", parts, *given) == b"error:not_active"


def test_a_suspended_job_resumes_with_its_signal() -> None:
    library = Library(BareGlidemq(MemoryStorage()))
    library.add()
    suspend(library, 0)
    job = library.job("1")
    assert (job["state"], job["suspendReason"]) == ("suspended", "approval")
    scored = library.client.ask("ZRANGE", library.key("suspended"), 0, -1, "WITHSCORES")
    assert scored == [b"1", b"9999999999999"]
    library = Library(library.site.reboot())
    parts = ["job:1", "stream", "events", "suspended", "signals:1"]
    given = ("1", "approve", '{"by":"me"}', library.ts())
    assert library.call("signal", parts, *given) == b"ok"
    assert library.call("signal", parts, *given) == b"not_suspended"
    signals = json.loads(library.job("1")["signals"])
    assert signals == [
        {"name": "approve", "data": '{"by":"me"}', "receivedAt": library.ts()},
    ]
    assert len(library.read()) == 1


def test_a_signal_that_does_not_come_in_time_fails_the_job(library: Library) -> None:
    library.add()
    suspend(library, 1000)
    parts = ["suspended", "events", "failed", "metrics:failed"]
    assert library.call("sweepSuspended", parts, library.ts(), library.p) == 0
    library.site.tick(1000)
    assert library.call("sweepSuspended", parts, library.ts(), library.p) == 1
    assert library.job("1")["failedReason"] == "Suspend timeout exceeded"


# -- stored values ------------------------------------------------------------------------------


def test_a_lock_has_one_holder(library: Library) -> None:
    lock = ["schedulers:lock:__tick__"]
    assert library.call("tryLock", lock, "a", 1000) == 1
    assert library.call("tryLock", lock, "b", 1000) == 0
    assert library.call("renewLock", lock, "b", 1000) == 0
    assert library.call("renewLock", lock, "a", 2000) == 1
    assert library.call("unlock", lock, "b") == 0
    library.site.tick(1500)
    assert library.call("tryLock", lock, "b", 1000) == 0
    assert library.call("unlock", lock, "a") == 1
    assert library.call("tryLock", lock, "b", 1000) == 1
    library.site.tick(1000)
    assert library.call("tryLock", lock, "c", 1000) == 1


def test_a_worker_limits_its_own_rate(library: Library) -> None:
    parts = ["rate", "meta"]
    ts = library.ts()
    assert [library.call("rateLimit", parts, 2, 1000, ts + ms) for ms in (0, 100, 200)] == [
        0, 0, 800,
    ]  # fmt: skip
    assert library.call("rateLimit", parts, 2, 1000, ts + 1000) == 0
    assert library.call("rateLimit", parts, 0, 0, ts) == 0


def test_a_budget_is_used_up(library: Library) -> None:
    budget = ["budget:f1"]
    record = "recordUsageAndCheckBudget"
    assert library.call("checkBudget", budget) == b"no_budget"
    assert library.call(record, budget, "{}", "{}", 1, 1, "{}", "{}") == b"no_budget"
    library.client.ask("HSET", library.key("budget:f1"), "maxTotalTokens", 100)
    used = ('{"input":40}', '{"input":0.5}', 60, 0.5, '{"input":90}', "{}")
    assert library.call(record, budget, *used) == b"ok"
    fields = ("usedTokens", "usedTokens:input", "usedCost")
    found = library.client.ask("HMGET", library.key("budget:f1"), *fields)
    assert found == [b"60", b"40", b"0.5"]
    assert library.call("checkBudget", budget) == b"ok"
    assert library.call(record, budget, *used) == b"exceeded"
    assert library.call("checkBudget", budget) == b"exceeded"


def test_locks_and_budgets_are_of_their_kind(library: Library) -> None:
    assert library.refused("tryLock", ["budget:f1"], "a", 1).startswith("WRONGTYPE")
    assert library.refused("tryLock", ["stream"], "a", 1).startswith("ERR")
    assert library.refused("checkBudget", ["job:1"]).startswith(("ERR", "WRONGTYPE"))
