"""What keys and functions tell, where clients of the library rely on how the original tells it."""

import pytest

from tests.support.bare_glidemq import BareGlidemq
from tests.support.glidemq_calls import Library
from tests.support.memory_storage import MemoryStorage


@pytest.fixture
def library() -> Library:
    return Library(BareGlidemq(MemoryStorage()))


def meta(library: Library) -> dict[str, str]:
    flat = [value.decode() for value in library.client.ask("HGETALL", library.key("meta"))]
    return dict(zip(flat[::2], flat[1::2], strict=True))


# -- what is set for a queue -------------------------------------------------------------------


def test_zeros_of_limits_are_told(library: Library) -> None:
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


# -- lanes -------------------------------------------------------------------------------------


def test_every_ordering_key_has_its_last_number(library: Library) -> None:
    library.add(key="one")
    library.add(key="many", concurrency=3)
    library.add(key="many", concurrency=3)
    flat = library.client.ask("HGETALL", library.key("ordering"))
    assert dict(zip(flat[::2], flat[1::2], strict=True)) == {b"one": b"1", b"many": b"2"}


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
    assert told.startswith("ERR this server runs no Lua scripts")
    assert "BullMQ" in told
    assert "glide-mq" in told


def test_no_script_is_loaded_or_known(library: Library) -> None:
    assert "no Lua scripts" in library.client.refused("SCRIPT", "LOAD", "return 1")
    assert library.client.ask("SCRIPT", "EXISTS", "a" * 40) == [0]
