"""The stream of events: each event once, with all its fields."""

from collections.abc import Callable

import pytest

from jobyard.engine.jobs import finish, move
from jobyard.engine.jobs.queues import open_queue
from jobyard.engine.jobs.retention import watch
from jobyard.model.job import MSGPACK
from tests.support.clients.library import Library
from tests.support.doors.glidemq import BareGlidemq
from tests.support.site.storage import MemoryStorage

DashboardEvent = list[tuple[str, ...]]


@pytest.fixture
def library() -> Library:
    return Library(BareGlidemq())


def told(library: Library, part: str = "events") -> DashboardEvent:
    """Return all events, each with its fields, and forget them."""
    key = library.key(part)
    entries = library.client.ask("XRANGE", key, "-", "+")
    library.client.ask("DEL", key)
    return [tuple(value.decode() for value in fields[1:]) for _, fields in entries]


def begun(library: Library, **given: object) -> tuple[str, str]:
    """Add a job and take it, and skip the events of that."""
    library.add(**given)
    [(job_id, entry)] = library.read()
    told(library)
    return job_id, entry


def test_a_job_that_is_added_and_done(library: Library) -> None:
    library.add()
    assert told(library) == [("added", "jobId", "1", "name", "send-email")]
    [(job_id, entry)] = library.read()
    library.activate(job_id, entry)
    assert told(library) == []
    library.complete(job_id, entry, '"so"')
    assert told(library) == [("completed", "jobId", "1", "returnvalue", '"so"')]


def test_a_job_that_fails_and_is_promoted(library: Library) -> None:
    library.fail(*begun(library), "boom", attempts=2, backoff=50)
    assert told(library) == [
        ("retrying", "jobId", "1", "failedReason", "boom", "attemptsMade", "1", "delay", "50")
    ]
    library.site.tick(50)
    assert told(library) == []
    library.promote()
    assert told(library) == [("promoted", "jobId", "1")]
    library.fail(*library.read()[0], "boom", attempts=2, backoff=50)
    assert told(library) == [("failed", "jobId", "1", "failedReason", "boom")]


def test_a_job_that_stalls(library: Library) -> None:
    begun(library)
    arguments = ("workers", "w2", 1000, 1, library.ts() + 9, library.key("failed"))
    library.site.tick(1000)
    library.call("reclaimStalled", ["stream", "events"], *arguments)
    assert told(library) == [("stalled", "jobId", "1")]
    library.read()
    library.site.tick(1000)
    library.call("reclaimStalled", ["stream", "events"], *arguments)
    reason = "job stalled more than maxStalledCount"
    assert told(library) == [("failed", "jobId", "1", "failedReason", reason)]


def revoke(library: Library, job_id: str) -> None:
    keys = [f"job:{job_id}", "stream", "scheduled", "failed", "events"]
    library.call("revoke", keys, job_id, library.ts(), "workers")


def test_what_is_done_to_jobs_from_outside(library: Library) -> None:
    keys = ["job:1", "stream", "scheduled", "events"]
    library.add()
    told(library)

    def check(deed: Callable[[], object], *event: str) -> None:
        deed()
        assert told(library) == [event]

    check(
        lambda: library.call("changePriority", keys, "1", 5, "workers"),
        "priority-changed", "jobId", "1", "priority", "5",
    )  # fmt: skip
    check(
        lambda: library.call("changeDelay", keys, "1", 70, library.ts(), "workers"),
        "delay-changed", "jobId", "1", "delay", "70",
    )  # fmt: skip
    check(lambda: library.call("promoteJob", keys, "1"), "promoted", "jobId", "1")
    check(lambda: revoke(library, "1"), "revoked", "jobId", "1")
    check(
        lambda: library.call("retryJobs", ["failed", "scheduled", "events", "id"], 0, library.ts()),
        "retried", "jobId", "1",
    )  # fmt: skip
    remove = ["job:1", "stream", "scheduled", "completed", "failed", "events", "log:1"]
    check(lambda: library.call("removeJob", remove, "1"), "removed", "jobId", "1")
    check(lambda: library.call("pause", ["meta", "events"]), "paused", "jobId", "0")
    check(lambda: library.call("resume", ["meta", "events"]), "resumed", "jobId", "0")


def test_a_job_that_runs_and_is_revoked_or_put_off(library: Library) -> None:
    job_id, entry = begun(library)
    revoke(library, job_id)
    assert told(library) == [("revoked", "jobId", "1")]
    keys = ["job:1", "stream", "scheduled", "events"]
    until = library.ts() + 400
    library.call("moveActiveToDelayed", keys, job_id, entry, library.ts(), until, "workers", "")
    assert told(library) == [("delay-changed", "jobId", "1", "delay", "400")]


def test_many_jobs_are_reported_by_their_count(library: Library) -> None:
    for _ in range(3):
        library.add()
    library.complete(*library.read()[0])
    told(library)
    library.call("drain", ["stream", "scheduled", "events", "id"], 0, "workers")
    assert told(library) == [("drained", "jobId", "2")]
    library.call("clean", ["completed", "events", "id"], library.ts(), 10)
    assert told(library) == [("cleaned", "jobId", "1")]


def test_a_job_that_expires(library: Library) -> None:
    library.add(ttl=100)
    told(library)
    library.site.tick(200)
    assert library.read() == []
    assert told(library) == [("expired", "jobId", "1")]


def test_jobs_that_wait_for_signals(library: Library) -> None:
    job_id, entry = begun(library)
    keys = ["job:1", "stream", "events", "suspended"]
    arguments = (job_id, entry, "workers", library.ts(), "why", 50)
    assert library.call("suspend", keys, *arguments) == b"ok"
    assert told(library) == [("suspended", "jobId", "1")]
    assert library.call("signal", [*keys, "signals:1"], "1", "go", "{}", library.ts()) == b"ok"
    assert told(library) == [("resumed", "jobId", "1", "signal", "go")]
    job_id, entry = library.read()[0]
    library.call("suspend", keys, job_id, entry, "workers", library.ts(), "", 50)
    told(library)
    library.site.tick(60)
    sweep = ["suspended", "events", "failed", "metrics:failed"]
    library.call("sweepSuspended", sweep, library.ts(), library.p + ":")
    reason = "Suspend timeout exceeded"
    assert told(library) == [("failed", "jobId", "1", "failedReason", reason)]


def test_parents_and_children(library: Library) -> None:
    job_id, entry = begun(library)
    keys = ["job:1", "stream", "events"]
    arguments = (job_id, entry, "workers", library.ts())
    # There is nothing to wait for.
    assert library.call("moveToWaitingChildren", keys, *arguments) == b"completed"
    assert told(library) == [("active", "jobId", "1")]
    assert library.state("1") == "waiting"
    job_id, entry = library.read()[0]
    library.call(
        "addJob", ["id", "stream", "scheduled", "events", "deps:1"],
        *library.arguments(parent="1"),
    )  # fmt: skip
    told(library)
    arguments = (job_id, entry, "workers", library.ts())
    assert library.call("moveToWaitingChildren", keys, *arguments) == b"ok"
    assert told(library) == [("waiting-children", "jobId", "1")]
    library.complete(*library.read()[0], "1")
    assert sorted(told(library)) == [
        ("active", "jobId", "1"), ("completed", "jobId", "2", "returnvalue", "1"),
    ]  # fmt: skip


def test_twins_that_are_replaced(library: Library) -> None:
    library.dedup("x", "debounce", delay=500)
    told(library)
    library.dedup("x", "debounce", delay=500)
    assert told(library) == [
        ("removed", "jobId", "1"), ("added", "jobId", "2", "name", "send-email"),
    ]  # fmt: skip


# -- other doors -------------------------------------------------------------------------------


def test_what_other_doors_do_is_told_too(library: Library) -> None:
    library.add(attempts=2)
    told(library)
    site = library.site
    job = site.yard.jobs.get(1)
    assert job is not None
    site.pull("tasks")
    finish.hand_back(site.yard, job, 0, 500, site.now_ms)
    assert told(library) == [
        ("retrying", "jobId", "1", "failedReason", "released", "attemptsMade", "1", "delay", "500")
    ]
    move.promote(site.yard, job, site.now_ms)
    assert told(library) == [("promoted", "jobId", "1")]
    site.pull("tasks")
    finish.complete(site.yard, job, b"\x93\x01\x02\x03", MSGPACK, 1, site.now_ms)
    assert told(library) == [("completed", "jobId", "1", "returnvalue", "[1,2,3]")]


def test_queues_nobody_looks_at_from_here_cost_nothing(library: Library) -> None:
    library.add()
    bus = library.site.yard.bus
    other = open_queue(library.site.yard, "other")
    assert (bus.is_on, bus.is_wide) == (True, False)
    assert bus.hears(open_queue(library.site.yard, "tasks"))
    assert not bus.hears(other)
    library.site.put(b"x", queue="other")
    assert told(library) == [("added", "jobId", "1", "name", "send-email")]


# -- metrics -----------------------------------------------------------------------------------


def test_endings_are_counted_and_timed_by_the_minute(library: Library) -> None:
    watch(library.site.yard, library.site.now_ms)
    for took in (30, 50):
        job_id, entry = begun(library)
        library.site.tick(took)
        library.complete(job_id, entry)
    job_id, entry = begun(library)
    library.site.tick(7)
    library.fail(job_id, entry)
    done = library.client.ask("HGETALL", library.key("metrics:completed"))
    minute = library.ts() // 60_000 * 60_000
    assert done == [f"m:{minute}:c".encode(), b"2", f"m:{minute}:d".encode(), b"80"]
    failed = library.client.ask("HGETALL", library.key("metrics:failed"))
    assert failed == [f"m:{minute}:c".encode(), b"1", f"m:{minute}:d".encode(), b"7"]


# -- after a restart ---------------------------------------------------------------------------

DAY = (86_400_000, 1 << 30)


def kept(library: Library) -> list[tuple[bytes, list[bytes]]]:
    return [(entry, fields) for entry, fields in library.client.ask(
        "XRANGE", library.key("events"), "-", "+"
    )]  # fmt: skip


def test_a_restart_tells_again_what_happened_to_jobs_that_are_there() -> None:
    library = Library(BareGlidemq(MemoryStorage(), window=DAY))
    library.add(attempts=2)
    library.site.tick(5)
    library.add(custom="mine", data="x" * 100)
    library.site.tick(5)
    library.complete(*library.read()[0], '"so"')
    library.site.tick(5)
    library.fail(*library.read()[0], "boom", attempts=2, backoff=50)
    library.site.tick(60)
    library.promote()
    library.site.tick(5)
    library.fail(*library.read()[0], "again", attempts=2)
    library.site.tick(5)
    library.add()
    library.call("removeJob", ["job:3", "stream", "scheduled", "completed", "failed", "events",
                               "log:3"], "3")  # fmt: skip
    before = [(entry, fields) for entry, fields in kept(library) if fields[3] != b"3"]
    assert [fields[1] for _, fields in before] == [
        b"added", b"added", b"completed", b"retrying", b"promoted", b"failed",
    ]  # fmt: skip
    library = Library(library.site.reboot(1000))
    assert kept(library) == before
    library.add()
    assert kept(library)[:-1] == before
    assert kept(library)[-1][0] > before[-1][0]


def test_a_restart_tells_no_more_than_so_many() -> None:
    library = Library(BareGlidemq(MemoryStorage(), window=DAY))
    for _ in range(1300):
        library.add()
    library = Library(library.site.reboot())
    assert 1000 <= len(kept(library)) <= 1100
    assert kept(library)[-1][1][3] == b"1300"


def test_without_history_there_are_none() -> None:
    library = Library(BareGlidemq(MemoryStorage()))
    library.add()
    assert kept(Library(library.site.reboot())) == []
