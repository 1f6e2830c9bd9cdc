"""The loop of a worker: due jobs, lists, activation, ends, and workers that fall silent."""

import pytest

from tests.support.clients.library import Library
from tests.support.doors.glidemq import BareGlidemq
from tests.support.site.storage import MemoryStorage


@pytest.fixture
def library() -> Library:
    return Library(BareGlidemq())


def flat(answer: list[bytes]) -> dict[str, str]:
    words = [value.decode() for value in answer]
    return dict(zip(words[::2], words[1::2], strict=True))


# -- from the stream to the end -----------------------------------------------------------------


def test_a_job_is_taken_run_and_completed(library: Library) -> None:
    library.add()
    [(job_id, entry)] = library.read()
    assert library.counts() == {
        "waiting": 0, "active": 1, "lists": 0, "scheduled": 0, "completed": 0, "failed": 0,
    }  # fmt: skip
    fields = flat(library.activate(job_id, entry))
    assert fields["state"] == "active"
    assert fields["processedOn"] == str(library.ts())
    assert library.complete(job_id, entry, '{"sent":true}') == 1
    job = library.job(job_id)
    assert (job["state"], job["returnvalue"]) == ("completed", '{"sent":true}')
    assert job["finishedOn"] == str(library.ts())
    assert library.client.ask("ZRANGE", library.key("completed"), 0, -1) == [b"1"]
    score = library.client.ask("ZSCORE", library.key("completed"), "1")
    assert score == str(library.ts()).encode()
    assert ("completed", "1") in library.events()
    assert library.counts()["completed"] == 1


def test_the_next_job_comes_with_the_end_of_the_last(library: Library) -> None:
    library.add()
    library.add(name="second")
    [(job_id, entry)] = library.read()
    answer = library.next(job_id, entry)
    assert answer[:3] == [b"NEXT_HASH", b"1", b"2"]
    fields = flat(answer[4:])
    assert (fields["name"], fields["state"]) == ("second", "active")
    assert library.next("2", answer[3].decode()) == [b"NEXT_NONE", b"2"]
    assert library.counts()["completed"] == 2


def test_the_next_job_is_promoted_before_it_is_last_before_it_is_first(library: Library) -> None:
    library.add()
    library.add(name="first")
    library.add(name="last", lifo=1)
    library.add(name="promoted", priority=1)
    library.promote()
    job_id, entry = library.read()[0]
    names = []
    while True:
        answer = library.next(job_id, entry)
        if answer[0] == b"NEXT_NONE":
            break
        job_id, entry = answer[2].decode(), answer[3].decode()
        names.append(flat(answer[4:])["name"])
    assert names == ["promoted", "last", "first"]


def test_what_is_told_twice_counts_once(library: Library) -> None:
    library.add()
    [(job_id, entry)] = library.read()
    library.complete(job_id, entry)
    assert library.complete(job_id, entry, '"again"') == 1
    assert library.job(job_id)["returnvalue"] == '"ok"'
    assert library.complete("99", "1-1") == 1
    assert library.state("99") is None
    assert library.counts()["completed"] == 1


def test_a_job_that_is_not_there_is_not_activated(library: Library) -> None:
    assert library.activate("99", "1-1") == b""


def test_a_failed_job_comes_back_until_it_may_not(library: Library) -> None:
    library.add(attempts=2)
    [(job_id, entry)] = library.read()
    assert library.fail(job_id, entry, "boom", attempts=2, backoff=500) == b"retrying"
    job = library.job(job_id)
    assert (job["state"], job["attemptsMade"]) == ("delayed", "1")
    score = library.client.ask("ZSCORE", library.key("scheduled"), job_id)
    assert score == str(library.ts() + 500).encode()
    assert library.promote() == 0
    library.site.tick(500)
    assert library.promote() == 1
    [(job_id, entry)] = library.read()
    assert library.fail(job_id, entry, "boom again", attempts=2, backoff=500) == b"failed"
    job = library.job(job_id)
    assert (job["state"], job["failedReason"]) == ("failed", "boom again")
    assert job["attemptsMade"] == "2"
    assert [kind for kind, _ in library.events()] == ["added", "retrying", "promoted", "failed"]


def test_every_retry_tries_the_next_fallback(library: Library) -> None:
    library.add(opts='{"attempts":3,"fallbacks":[{"model":"b"},{"model":"c"}]}')
    library.add(opts='{"attempts":3}')
    seen: list[str | None] = []
    for _ in range(3):
        for job_id, entry in library.read(count=5):
            if job_id == "1":
                seen.append(library.job("1").get("fallbackIndex"))
            library.fail(job_id, entry, attempts=3)
            library.promote()
    assert seen == [None, "1", "2"]
    assert library.job("1")["fallbackIndex"] == "2", "the last failure was followed by no retry"
    assert "fallbackIndex" not in library.job("2")


def test_a_parent_that_knows_a_child_by_name_is_told_of_its_end(library: Library) -> None:
    other = Library(library.site, "other")
    other.add(custom="top")
    [(job_id, entry)] = other.read()
    label = f"{library.p}:1"
    other.client.ask("SADD", other.key("deps:top"), label)
    park = ["job:top", "stream", "events"]
    other.call("moveToWaitingChildren", park, job_id, entry, "workers", other.ts())
    library.add(parent="top", lifo=0, parent_queue="other")
    [(job_id, entry)] = library.read()
    keys = library.keys("stream", "completed", "events", "job:1", "metrics:completed")
    keys += other.keys("deps:top", "job:top", "stream", "events")
    given = (job_id, entry, '"v"', library.ts(), "workers", 0, 0, 0, label, "top")
    assert library.client.ask("FCALL", "glidemq_complete", 9, *keys, *given) == 1
    assert other.state("top") == "waiting"


def test_events_of_an_end_may_be_left_out(library: Library) -> None:
    library.add()
    [(job_id, entry)] = library.read()
    parts = ["stream", "completed", "events", "job:1", "metrics:completed"]
    given = (job_id, entry, '"v"', library.ts(), "workers", 0, 0, 0, "", "", 0, 1, 1)
    library.call("complete", parts, *given)
    assert library.events() == [("added", "1")]


def test_retention_removes_what_is_done(library: Library) -> None:
    for _ in range(4):
        library.add()
    for job_id, entry in library.read(count=3):
        library.complete(job_id, entry, keep=("count", 2, 0))
    assert library.client.ask("ZRANGE", library.key("completed"), 0, -1) == [b"2", b"3"]
    [(job_id, entry)] = library.read()
    library.complete(job_id, entry, keep=("true", 0, 0))
    assert library.state(job_id) is None


def test_a_deferred_job_goes_to_the_end(library: Library) -> None:
    library.add()
    library.add()
    [(job_id, entry)] = library.read()
    parts = ["stream", "job:1", "list-active"]
    assert library.call("deferActive", parts, job_id, entry, "workers") == 1
    assert library.call("deferActive", parts, job_id, entry, "workers") == 0
    assert [job_id for job_id, _ in library.read(count=2)] == ["2", "1"]


def test_an_active_job_is_put_off_with_new_data(library: Library) -> None:
    library.add()
    [(job_id, entry)] = library.read()
    parts = ["job:1", "stream", "scheduled", "events"]
    until = library.ts() + 2000
    given = (job_id, entry, library.ts(), until, "workers", '{"step":2}')
    assert library.call("moveActiveToDelayed", parts, *given) == b"ok"
    assert library.job("1")["data"] == '{"step":2}'
    assert library.state("1") == "delayed"
    score = library.client.ask("ZSCORE", library.key("scheduled"), "1")
    assert score == str(until).encode()
    assert library.call("moveActiveToDelayed", parts, *given) == b"error:not_active"


# -- what is due --------------------------------------------------------------------------------


def test_jobs_of_one_priority_are_promoted_in_the_order_they_came(library: Library) -> None:
    for _ in range(12):
        library.add(priority=1)
    assert library.promote() == 12
    popped = library.call("popLists", ["priority", "lifo"], 100)
    assert popped == [str(number).encode() for number in range(1, 13)]
    assert library.client.ask("GET", library.key("list-active")) == b"12"


def test_a_caller_whose_clock_is_ahead_promotes_by_it(library: Library) -> None:
    library.add(delay=60000)
    assert library.promote(ahead_ms=59999) == 0
    assert library.promote(ahead_ms=60000) == 1
    assert library.state("1") == "waiting"
    assert len(library.read()) == 1


def test_when_something_is_due_next(library: Library) -> None:
    parts = ["scheduled", "ratelimited"]
    assert library.call("nextDue", parts) == -1
    library.add(delay=5000)
    assert library.call("nextDue", parts) == library.ts() + 5000


def test_an_expired_job_fails_when_it_is_to_run(library: Library) -> None:
    library.add(ttl=1000)
    library.add(ttl=1000, delay=2000)
    library.site.tick(1500)
    assert library.read() == []
    assert library.job("1")["failedReason"] == "expired"
    library.site.tick(1000)
    library.promote()
    assert library.job("2")["failedReason"] == "expired"
    assert {("expired", "1"), ("expired", "2")} <= set(library.events())


# -- lists --------------------------------------------------------------------------------------


def test_jobs_of_lists_have_no_entry(library: Library) -> None:
    library.add(lifo=1)
    library.add(lifo=1)
    parts = ["meta", "stream", "list-active", "lifo"]
    assert library.call("rpopAndReserve", parts, "workers", 1) == [b"2"]
    assert flat(library.activate("2", ""))["state"] == "active"
    assert library.call("getActiveListJobIds", ["id"], 0, -1) == [b"2"]
    assert library.call("healListActive", ["id"]) == 0
    # A client's own increment has no effect: the job was counted when it was taken.
    library.client.ask("INCRBY", library.key("list-active"), 1)
    assert library.client.ask("GET", library.key("list-active")) == b"1"
    assert library.complete("2", "") == 1
    assert library.client.ask("GET", library.key("list-active")) is None
    assert library.counts()["completed"] == 1


def test_a_limit_of_the_whole_queue_holds_for_streams_and_lists(library: Library) -> None:
    parts = ["meta", "stream", "list-active"]
    assert library.call("checkConcurrency", parts, "workers") == -1
    library.client.ask("HSET", library.key("meta"), "globalConcurrency", 2)
    for number in range(4):
        library.add(lifo=number % 2)
    assert library.call("checkConcurrency", parts, "workers") == 2
    assert len(library.read()) == 1
    listed = [*parts, "lifo"]
    assert len(library.call("rpopAndReserve", listed, "workers", 5)) == 1
    assert library.call("checkConcurrency", parts, "workers") == 0
    assert library.read() == []


# -- silent workers -----------------------------------------------------------------------------


def reclaim(library: Library, idle: int, most: int = 1, lock: int = 0) -> int:
    failed = library.key("failed")
    given = ("workers", "w2", idle, most, library.ts(), failed, 0, lock)
    count = library.call("reclaimStalled", ["stream", "events"], *given)
    assert isinstance(count, int)
    return count


def test_a_silent_job_is_given_to_others_and_fails_in_the_end(library: Library) -> None:
    library.add()
    library.read()
    library.site.tick(1000)
    assert reclaim(library, 2000) == 0
    assert reclaim(library, 1000) == 1
    assert library.state("1") == "waiting"
    assert library.job("1")["stalledCount"] == "1"
    library.read()
    library.site.tick(1000)
    assert reclaim(library, 1000) == 1
    assert library.state("1") == "failed"
    assert ("stalled", "1") in library.events()


def test_a_heartbeat_keeps_a_job(library: Library) -> None:
    library.add()
    library.read()
    library.site.tick(900)
    library.client.ask("HSET", library.key("job:1"), "lastActive", library.ts())
    library.site.tick(900)
    assert reclaim(library, 1000) == 0
    assert library.job("1")["lastActive"] == str(library.ts() - 900)


def test_silent_jobs_of_lists_are_given_back_too(library: Library) -> None:
    library.add(lifo=1)
    library.call("popLists", ["priority", "lifo"], 1)
    library.site.tick(1000)
    given = (1000, 1, library.ts(), library.key("failed"))
    assert library.call("reclaimStalledListJobs", ["stream", "events"], *given) == 1
    assert library.state("1") == "waiting"


# -- restarts -----------------------------------------------------------------------------------


def test_a_late_end_counts_after_a_restart() -> None:
    library = Library(BareGlidemq(MemoryStorage()))
    library.add()
    [(job_id, entry)] = library.read()
    again = Library(library.site.reboot())
    assert again.state(job_id) == "waiting"
    again.complete(job_id, entry)
    assert again.state(job_id) == "completed"
    assert Library(again.site.reboot()).job(job_id)["returnvalue"] == '"ok"'


@pytest.mark.parametrize("is_read_before", [False, True])
def test_a_job_taken_again_after_a_restart_stands_where_its_new_entry_is(
    *, is_read_before: bool
) -> None:
    library = Library(BareGlidemq(MemoryStorage()))
    for _ in range(3):
        library.add()
    library.add(delay=1)
    library.read()
    again = Library(library.site.reboot())
    if is_read_before:
        assert again.client.ask("XLEN", again.key("stream")) == 3
        assert len(again.client.ask("XRANGE", again.key("stream"), "-", "+")) == 3
    [(job_id, entry)] = again.read()
    assert job_id == "1"
    shown = again.client.ask("XRANGE", again.key("stream"), "-", "+")
    assert [fields[1] for _, fields in shown] == [b"2", b"3", b"1"]
    assert shown[-1][0].decode() == entry
    assert again.client.ask("XRANGE", again.key("stream"), entry, entry) == [shown[-1]]


# -- bad calls ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "parts", "given"),
    [
        ("promote", ["scheduled", "stream", "events"], ["now"]),
        ("promote", ["stream", "scheduled", "events"], [1]),
        ("popLists", ["priority", "lifo"], ["many"]),
        ("fail", ["stream", "failed", "scheduled", "events", "job:1"], ["1"] * 3),
        ("rateLimit", ["rate", "meta"], ["a", "b", "c"]),
        ("reclaimStalled", ["stream", "events"], ["workers", "w", "x", 1, 1, "f"]),
    ],
)
def test_what_cannot_be_meant_is_refused(
    library: Library, name: str, parts: list[str], given: list[object]
) -> None:
    assert library.refused(name, parts, *given)


def test_a_worker_gets_the_next_of_a_key_whose_first_is_found_too_old(library: Library) -> None:
    library.add(key="k", ttl=100)
    [(job_id, entry)] = library.read()
    library.call("deferActive", ["stream", f"job:{job_id}"], job_id, entry, "workers")
    library.add(key="k", lifo=1)
    library.site.now_ms += 200
    assert library.next("none", "1-1")[:4] == [b"NEXT_HASH", b"none", b"2", b""]
    assert library.state("1") == "failed"


def test_the_lists_give_the_next_of_a_key_whose_first_is_found_too_old(library: Library) -> None:
    library.add(key="k", ttl=100, lifo=1)
    library.add(key="k", priority=1)
    library.promote()
    library.site.now_ms += 200
    assert library.call("popLists", ["priority", "lifo"], 3) == [b"2"]
    assert library.state("1") == "failed"
