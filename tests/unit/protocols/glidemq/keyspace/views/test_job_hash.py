"""The hash of a job, field by field, after each possible change."""

import pytest

from jobyard.engine.jobs import finish, move
from jobyard.engine.jobs.put import put
from jobyard.engine.jobs.queues import open_queue
from jobyard.model.family import BEANSTALK
from jobyard.model.job import JSON, RAW
from tests.support.clients.library import Library
from tests.support.doors.glidemq import BareGlidemq
from tests.support.site.storage import MemoryStorage

# Fields that show the state of a job.
STANDING = (
    "state", "attemptsMade", "delay", "processedOn", "finishedOn", "failedReason", "returnvalue",
    "stalledCount", "lastActive",
)  # fmt: skip


@pytest.fixture
def library() -> Library:
    return Library(BareGlidemq())


def standing(library: Library, job_id: str) -> dict[str, str]:
    fields = library.job(job_id)
    return {name: fields[name] for name in STANDING if name in fields}


def take(library: Library) -> tuple[str, str]:
    [(job_id, entry)] = library.read()
    assert isinstance(library.activate(job_id, entry), list)
    return job_id, entry


def test_a_new_job_has_what_was_given_and_nothing_else(library: Library) -> None:
    library.add()
    assert library.job("1") == {
        "id": "1", "name": "send-email", "data": '{"to":"me"}', "opts": "{}",
        "timestamp": str(library.ts()), "attemptsMade": "0", "delay": "0", "priority": "0",
        "maxAttempts": "0", "state": "waiting",
    }  # fmt: skip
    library.add(delay=5000, priority=3, attempts=4, ttl=9000, custom="mine")
    ts = str(library.ts() + 9000)
    asked = {"delay": "5000", "priority": "3", "maxAttempts": "4", "expireAt": ts, "id": "mine"}
    shown = library.job("mine")
    assert {name: shown[name] for name in asked} == asked
    assert shown["state"] == "delayed"
    library.add(priority=3)
    assert library.state("3") == "prioritized"


def test_a_job_of_the_stack_says_so(library: Library) -> None:
    library.add(lifo=1)
    assert library.job("1")["lifo"] == "1"
    assert "lifo" not in library.job(library.add().decode())


def test_a_run_that_goes_well(library: Library) -> None:
    library.add()
    began = str(library.ts())
    job_id, entry = take(library)
    assert standing(library, "1") == {
        "state": "active", "attemptsMade": "0", "delay": "0", "processedOn": began,
        "lastActive": began,
    }  # fmt: skip
    library.site.tick(30)
    library.complete(job_id, entry, '{"n":1}')
    assert standing(library, "1") == {
        "state": "completed", "attemptsMade": "0", "delay": "0", "processedOn": began,
        "finishedOn": str(library.ts()), "returnvalue": '{"n":1}', "lastActive": began,
    }  # fmt: skip


def test_a_retry_keeps_the_delay_as_asked_and_tells_of_the_last_run(library: Library) -> None:
    library.add(delay=5000, attempts=3)
    library.site.tick(5000)
    assert library.promote() == 1
    assert standing(library, "1") == {"state": "waiting", "attemptsMade": "0", "delay": "5000"}
    began = str(library.ts())
    job_id, entry = take(library)
    library.site.tick(10)
    assert library.fail(job_id, entry, "boom", attempts=3, backoff=700) == b"retrying"
    assert standing(library, "1") == {
        "state": "delayed", "attemptsMade": "1", "delay": "5000", "processedOn": began,
        "failedReason": "boom", "lastActive": began,
    }  # fmt: skip
    library.site.tick(700)
    library.promote()
    assert standing(library, "1")["state"] == "waiting"
    job_id, entry = take(library)
    assert standing(library, "1")["failedReason"] == "boom"
    library.complete(job_id, entry, "1")
    shown = standing(library, "1")
    assert (shown["state"], shown["attemptsMade"], shown["delay"]) == ("completed", "1", "5000")
    assert shown["failedReason"] == "boom"


def test_a_wait_after_a_failure_is_no_delay(library: Library) -> None:
    library.add(attempts=3)
    library.fail(*take(library), "boom", attempts=3, backoff=700)
    assert library.job("1")["delay"] == "0"
    scores = library.client.ask("ZRANGE", library.key("scheduled"), 0, -1, "WITHSCORES")
    assert scores == [b"1", str(library.ts() + 700).encode()]


def test_the_last_failure_and_being_brought_back(library: Library) -> None:
    library.add(priority=2)
    library.promote()
    [job_id] = library.call("popLists", ["priority", "lifo"], 1)
    began = str(library.ts())
    assert isinstance(library.activate(job_id.decode(), ""), list)
    library.site.tick(5)
    assert library.fail("1", "", "boom") == b"failed"
    assert standing(library, "1") == {
        "state": "failed", "attemptsMade": "1", "delay": "0", "processedOn": began,
        "finishedOn": str(library.ts()), "failedReason": "boom", "lastActive": began,
    }  # fmt: skip
    library.site.tick(5)
    library.call("retryJobs", ["failed", "scheduled", "events", "id"], 0, library.ts())
    assert standing(library, "1") == {
        "state": "delayed", "attemptsMade": "0", "delay": "0", "processedOn": began,
        "lastActive": began,
    }  # fmt: skip
    score = int(library.client.ask("ZSCORE", library.key("scheduled"), "1"))
    assert score == (2 << 42) + library.ts()


def test_delays_that_are_changed_are_reported_as_changed(library: Library) -> None:
    keys = ["job:1", "stream", "scheduled", "events"]
    library.add(attempts=5)
    library.call("changeDelay", keys, "1", 900, library.ts(), "workers")
    assert (library.job("1")["delay"], library.state("1")) == ("900", "delayed")
    assert library.call("promoteJob", keys, "1") == b"ok"
    assert (library.job("1")["delay"], library.state("1")) == ("0", "waiting")
    job_id, entry = take(library)
    until = library.ts() + 400
    library.call("moveActiveToDelayed", keys, job_id, entry, library.ts(), until, "workers", "")
    assert (library.job("1")["delay"], library.state("1")) == ("400", "delayed")
    library.call("promoteJob", keys, "1")
    library.fail(*take(library), "boom", attempts=5, backoff=50)
    assert (library.job("1")["delay"], library.state("1")) == ("0", "delayed")
    library.call("changeDelay", keys, "1", 70, library.ts(), "workers")
    assert library.job("1")["delay"] == "70"


def test_a_job_put_off_to_the_end_keeps_the_delay_it_had(library: Library) -> None:
    library.add(delay=100)
    library.site.tick(100)
    library.promote()
    job_id, entry = take(library)
    assert library.call("deferActive", ["stream", f"job:{job_id}"], job_id, entry, "workers") == 1
    assert standing(library, "1") == {"state": "waiting", "attemptsMade": "0", "delay": "100"}


def test_a_stall_is_counted_and_then_fails(library: Library) -> None:
    library.add()
    for _ in range(2):
        take(library)
        library.site.tick(1000)
        parts = ["stream", "events"]
        failed = library.key("failed")
        arguments = ("workers", "w2", 1000, 1, library.ts(), failed)
        assert library.call("reclaimStalled", parts, *arguments) == 1
    shown = library.job("1")
    assert (shown["state"], shown["stalledCount"]) == ("failed", "2")
    assert shown["failedReason"] == "job stalled more than maxStalledCount"


def test_fallbacks_are_counted_by_retries(library: Library) -> None:
    library.add(opts='{"fallbacks":[{"model":"a"},{"model":"b"}]}', attempts=3)
    assert "fallbackIndex" not in library.job("1")
    for index in ("1", "2"):
        library.fail(*take(library), attempts=3, backoff=1)
        assert library.job("1")["fallbackIndex"] == index
        library.site.tick(1)
        library.promote()
    library.fail(*take(library), attempts=3, backoff=1)
    assert library.job("1")["fallbackIndex"] == "2"


# -- notes -------------------------------------------------------------------------------------


def test_a_note_of_how_a_job_stands_is_shown_until_something_happens_to_it(
    library: Library,
) -> None:
    library.add()
    ask = library.client.ask
    job = library.key("job:1")
    assert ask("HSET", job, "state", "odd", "attemptsMade", 7, "failedReason", "so") == 1
    shown = library.job("1")
    assert (shown["state"], shown["attemptsMade"], shown["failedReason"]) == ("odd", "7", "so")
    assert ask("HGET", job, "state") == b"odd"
    assert library.counts()["waiting"] == 1
    job_id, entry = take(library)
    assert standing(library, "1")["state"] == "active"
    assert "failedReason" not in library.job("1")
    ask("HSET", job, "state", "odd")
    assert ask("HDEL", job, "state") == 1
    assert library.state("1") == "active"
    library.complete(job_id, entry)
    assert library.state("1") == "completed"


def test_notes_outlive_a_restart() -> None:
    library = Library(BareGlidemq(MemoryStorage()))
    library.add()
    library.client.ask("HSET", library.key("job:1"), "state", "odd")
    library.add(delay=5000, attempts=3, custom="late")
    library.call("promoteJob", ["job:late", "stream", "scheduled", "events"], "late")
    again = Library(library.site.reboot())
    assert again.state("1") == "odd"
    assert again.job("late")["delay"] == "0"
    take(again)
    assert again.state("1") == "active"


def test_a_job_whose_id_is_kept_from_twins_counts_by_the_state_that_is_shown(
    library: Library,
) -> None:
    assert library.dedup("x", "simple") == b"1"
    assert library.dedup("x", "simple") == b"skipped"
    library.client.ask("HSET", library.key("job:1"), "state", "completed")
    assert library.dedup("x", "simple") == b"2"


def test_one_job_is_retried_as_the_library_does_it(library: Library) -> None:
    library.add(priority=0)
    library.fail(*take(library), "boom")
    library.site.tick(5)
    ask = library.client.ask
    assert ask("ZREM", library.key("failed"), "1") == 1
    assert ask("ZADD", library.key("scheduled"), library.ts(), "1") == 1
    job = library.key("job:1")
    ask("HSET", job, "state", "delayed", "attemptsMade", "0", "failedReason", "")
    assert library.state("1") == "delayed"
    assert library.promote() == 1
    shown = standing(library, "1")
    assert (shown["state"], shown["attemptsMade"]) == ("waiting", "0")
    assert "failedReason" not in shown


def test_the_marks_of_notes_are_no_fields(library: Library) -> None:
    library.add()
    assert library.client.refused("HSET", library.key("job:1"), b"\1state", "x")


# -- other doors -------------------------------------------------------------------------------


def test_what_other_doors_do_to_a_job_is_shown(library: Library) -> None:
    library.add(attempts=2)
    site = library.site
    job = site.yard.jobs.get(1)
    assert job is not None
    assert site.pull("tasks") is not None
    assert standing(library, "1")["state"] == "active"
    finish.hand_back(site.yard, job, 0, 500, site.now_ms)
    shown = standing(library, "1")
    assert (shown["state"], shown["attemptsMade"]) == ("delayed", "1")
    assert (shown["failedReason"], shown["delay"]) == ("released", "0")
    move.kick_job(site.yard, 1, site.now_ms)
    assert library.state("1") == "waiting"


def test_a_job_of_another_family_is_shown_as_it_is(library: Library) -> None:
    site = library.site
    library.add()
    queue = open_queue(site.yard, "tasks")
    put(site.yard, queue, BEANSTALK, RAW, 7, 2000, 60_000, b"raw", site.now_ms)
    shown = library.job("2")
    assert (shown["state"], shown["delay"], shown["priority"]) == ("delayed", "2000", "7")
    assert (shown["data"], shown["name"]) == ('"raw"', "default")
    put(site.yard, queue, BEANSTALK, JSON, 7, 0, 60_000, b"[1]", site.now_ms)
    assert library.job("3")["data"] == "[1]"
