"""Answers of keys and functions on whose exact form clients of the library rely."""

import pytest

from tests.support.clients.library import Library
from tests.support.doors.glidemq import BareGlidemq
from tests.support.site.storage import MemoryStorage


@pytest.fixture
def library() -> Library:
    return Library(BareGlidemq(MemoryStorage()))


def meta(library: Library) -> dict[str, str]:
    flat = [value.decode() for value in library.client.ask("HGETALL", library.key("meta"))]
    return dict(zip(flat[::2], flat[1::2], strict=True))


# -- what is set for a queue -------------------------------------------------------------------


def test_zeros_of_limits_are_reported(library: Library) -> None:
    limits = ("globalConcurrency", 0, "rateLimitMax", 0)
    assert library.client.ask("HSET", library.key("meta"), *limits) == 2
    assert meta(library) == {"globalConcurrency": "0", "rateLimitMax": "0"}
    library.client.ask("HSET", library.key("meta"), "globalConcurrency", 3)
    assert meta(library)["globalConcurrency"] == "3"
    library.client.ask("HSET", library.key("meta"), "globalConcurrency", 0)
    library = Library(library.site.reboot())
    assert meta(library)["globalConcurrency"] == "0"
    assert library.client.ask("HDEL", library.key("meta"), "globalConcurrency") == 1
    assert meta(library) == {"rateLimitMax": "0"}
    assert library.client.ask("DEL", library.key("meta")) == 1
    assert library.client.ask("EXISTS", library.key("meta")) == 0


def test_a_resumed_queue_says_so(library: Library) -> None:
    library.call("pause", ["meta", "events"])
    assert meta(library) == {"paused": "1"}
    library.call("resume", ["meta", "events"])
    assert meta(library) == {"paused": "0"}
    library = Library(library.site.reboot())
    assert library.client.ask("HGET", library.key("meta"), "paused") == b"0"
    library.call("pause", ["meta", "events"])
    assert meta(library) == {"paused": "1"}


def test_a_worker_without_a_rate_asks_for_that_of_the_queue(library: Library) -> None:
    ts = library.ts()
    ask = ("rateLimit", ["rate", "meta"], 0, 0)
    assert library.call(*ask, ts) == 0
    limits = ("rateLimitMax", 2, "rateLimitDuration", 1000)
    library.client.ask("HSET", library.key("meta"), *limits)
    assert [library.call(*ask, ts + each) for each in (0, 10, 20)] == [0, 0, 980]
    assert library.call(*ask, ts + 1000) == 0


# -- ordering groups ---------------------------------------------------------------------------


def test_every_ordering_key_has_its_last_number(library: Library) -> None:
    library.add(key="one")
    library.add(key="many", concurrency=3)
    library.add(key="many", concurrency=3)
    flat = library.client.ask("HGETALL", library.key("ordering"))
    assert dict(zip(flat[::2], flat[1::2], strict=True)) == {b"one": b"1", b"many": b"2"}


def waiting_in(library: Library, key: str) -> list[bytes]:
    found: list[bytes] = library.client.ask("LRANGE", library.key(f"groupq:{key}"), 0, -1)
    assert library.client.ask("LLEN", library.key(f"groupq:{key}")) == len(found)
    return found


def test_a_job_behind_a_full_group_says_so_and_stands_in_its_list(library: Library) -> None:
    for _ in range(5):
        library.add(key="k", concurrency=2)
    assert library.client.ask("EXISTS", library.key("groupq:k")) == 0
    assert [library.state(each) for each in "12345"] == ["waiting"] * 5
    taken = library.read(count=5)
    assert [job_id for job_id, _ in taken] == ["1", "2"]
    states = [library.state(each) for each in "12345"]
    assert states == ["active", "active", "group-waiting", "group-waiting", "group-waiting"]
    assert waiting_in(library, "k") == [b"3", b"4", b"5"]
    assert library.client.ask("TYPE", library.key("groupq:k")) == b"list"
    assert library.client.ask("LINDEX", library.key("groupq:k"), 1) == b"4"
    library.complete(*taken[0])
    assert library.state("3") == "waiting"
    assert waiting_in(library, "k") == []
    assert library.read()[0][0] == "3"
    assert waiting_in(library, "k") == [b"4", b"5"]


def test_jobs_that_run_one_by_one_wait_in_a_list_too(library: Library) -> None:
    library.add(key="k")
    library.add(key="k", priority=1)
    library.add(key="k")
    [(job_id, entry)] = library.read(count=3)
    assert [library.state(each) for each in "123"] == ["active", "prioritized", "group-waiting"]
    assert waiting_in(library, "k") == [b"3"]
    library.complete(job_id, entry)
    # The second is to be promoted, and the third is not its turn.
    assert library.state("3") == "waiting"


def test_a_job_that_time_holds_back_waits_in_the_list(library: Library) -> None:
    for _ in range(2):
        library.add(key="k", concurrency=9, rate_max=1, rate_ms=1000)
    library.read(count=2)
    assert library.state("2") == "group-waiting"
    assert waiting_in(library, "k") == [b"2"]


# -- runs --------------------------------------------------------------------------------------


def test_a_run_may_begin_for_a_group_that_nobody_made(library: Library) -> None:
    library.add()
    entry = library.client.ask("XRANGE", library.key("stream"), "-", "+")[0][0]
    parts = ["job:1", "stream"]
    flat = library.call("moveToActive", parts, library.ts(), entry, "nobody", "1")
    assert flat[flat.index(b"state") + 1] == b"active"
    assert library.call("moveToActive", ["job:9", "stream"], library.ts(), "1-1", "x", "9") == b""


# -- scripts -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["EVAL", "EVALSHA", "EVAL_RO", "EVALSHA_RO"])
def test_a_script_is_refused_with_what_works(library: Library, name: str) -> None:
    told = library.client.refused(name, "return 1", 0)
    assert told.startswith("ERR this server does not run Lua scripts")
    assert "BullMQ" in told
    assert "glide-mq" in told


def test_no_script_is_loaded_or_known(library: Library) -> None:
    assert "does not run Lua scripts" in library.client.refused("SCRIPT", "LOAD", "return 1")
    assert library.client.ask("SCRIPT", "EXISTS", "a" * 40) == [0]


# -- what is left when all keys are deleted ----------------------------------------------------


def test_nothing_is_there_after_all_keys_are_deleted(library: Library) -> None:
    library.client.ask("XGROUP", "CREATE", library.key("stream"), "workers", "0", "MKSTREAM")
    library.add()
    library.add(delay=1000)
    library.read()
    parts = ["events", "id", "stream", "scheduled", "completed", "failed", "meta", "ordering"]
    assert library.client.ask("UNLINK", *library.keys(*parts)) == 4
    for part in parts:
        assert library.client.ask("EXISTS", library.key(part)) == 0, part
        assert library.client.ask("TYPE", library.key(part)) == b"none"
    assert library.client.ask("KEYS", "*") == []


def test_events_that_were_deleted_begin_again(library: Library) -> None:
    library.add()
    [(first, _)] = library.client.ask("XRANGE", library.key("events"), "-", "+")
    library.client.ask("DEL", library.key("events"))
    assert library.client.ask("EXISTS", library.key("events")) == 0
    library.add()
    [(second, _)] = library.client.ask("XRANGE", library.key("events"), "-", "+")
    # A reader that follows them misses none.
    assert second > first


# -- jobs that ended ---------------------------------------------------------------------------


def test_when_a_job_was_active_is_told_of_one_that_ended(library: Library) -> None:
    library.add()
    [(job_id, entry)] = library.read()
    library.activate(job_id, entry)
    began = str(library.ts())
    assert library.job("1")["lastActive"] == began
    library.site.tick(50)
    library.complete(job_id, entry)
    assert library.job("1")["lastActive"] == began
    assert Library(library.site.reboot()).job("1")["lastActive"] == began
