"""Commands with very many arguments: no turn does more than it has room for."""

import json
from typing import Any

import pytest

from jobyard.engine.jobs.obliterate import condemn
from jobyard.protocols.glidemq.functions.add import FLOW_MAX
from jobyard.protocols.glidemq.many_arguments import (
    ARGUMENTS_WHOLE_MAX,
    CLAIMS_MAX,
    STREAMS_READ_MAX,
)
from tests.support.clients import slow_turns
from tests.support.clients.library import Library
from tests.support.clients.slow_turns import slow
from tests.support.doors.glidemq import BareGlidemq
from tests.support.site.recount import recount
from tests.support.site.storage import MemoryStorage

MANY = 1500
UNITS = 200


@pytest.fixture
def library() -> Library:
    return Library(BareGlidemq(MemoryStorage()))


def answer(library: Library, *words: object) -> Any:
    """Ask for what takes several turns."""
    told, turns = slow_turns.answer(library, *words)
    assert turns > 3
    return told


def names(count: int = MANY) -> list[str]:
    return [f"f{at}" for at in range(count)]


def test_many_keys_are_counted_told_and_deleted(library: Library) -> None:
    keys = [library.key(f"w:{name}") for name in names()]
    for key in keys[::3]:
        library.client.ask("SET", key, "x")
    slow(library, UNITS)
    assert answer(library, "EXISTS", *keys) == 500
    assert answer(library, "MGET", *keys) == [b"x", None, None] * 500
    assert answer(library, "DEL", *keys) == 500
    assert library.client.ask("EXISTS", *keys[:100]) == 0


def test_a_wrong_name_far_behind_keeps_all_keys(library: Library) -> None:
    keys = [library.key(f"w:{name}") for name in names()]
    library.client.ask("SET", keys[0], "x")
    slow(library, UNITS)
    told = answer(library, "DEL", *keys, "not-a-key")
    assert "is not a key of a queue" in str(told)
    assert library.client.ask("GET", keys[0]) == b"x"


def test_many_fields_are_shown_and_dropped(library: Library) -> None:
    key = library.key("rate")
    flat = [word for name in names() for word in (name, name.upper())]
    library.client.ask("HSET", key, *flat)
    slow(library, UNITS)
    assert answer(library, "HMGET", key, *names(), "none") == [
        *(name.upper().encode() for name in names()),
        None,
    ]
    assert answer(library, "HDEL", key, *names(), *names()) == MANY
    assert library.client.ask("EXISTS", key) == 0


def test_many_members_are_dropped(library: Library) -> None:
    key = library.key("xq-pending")
    library.client.ask("SADD", key, *names(), "left")
    slow(library, UNITS)
    assert answer(library, "SREM", key, *names(), "none") == MANY
    assert library.client.ask("SMEMBERS", key) == [b"left"]


def test_many_items_are_taken_and_trimmed(library: Library) -> None:
    key = library.key("signals:1")
    for _ in range(2):
        library.client.ask("RPUSH", key, *names())
    slow(library, UNITS)
    assert answer(library, "LPOP", key, MANY) == [name.encode() for name in names()]
    library.site.is_slow = False
    library.client.ask("LPUSH", key, *names())
    library.site.is_slow = True
    assert answer(library, "LTRIM", key, MANY - 1, MANY) == b"OK"
    assert library.client.ask("LRANGE", key, 0, -1) == [b"f0", b"f0"]


def test_many_entries_are_acknowledged_and_deleted(library: Library) -> None:
    for _ in range(600):
        library.add()
    held = [entry for _, entry in library.read(count=300)]
    slow(library, UNITS)
    stream = library.key("stream")
    assert answer(library, "XACK", stream, "workers", *held, "1-1") == 300
    assert library.counts()["active"] == 0
    left = [
        entry.decode() for entry, _ in library.client.ask("XRANGE", stream, "-", "+", "COUNT", 100)
    ]
    rest = [f"{at}-1" for at in range(1, 500)]
    assert answer(library, "XDEL", stream, *left, *rest) == 100
    recount(library.site.yard)


def test_an_invalid_entry_far_behind_keeps_all(library: Library) -> None:
    for _ in range(300):
        library.add()
    held = [entry for _, entry in library.read(count=300)]
    slow(library, UNITS)
    stream = library.key("stream")
    assert "Invalid stream ID" in str(answer(library, "XACK", stream, "workers", *held * 4, "x"))
    assert library.counts()["active"] == 300


def test_what_is_done_as_a_whole_is_bounded(library: Library) -> None:
    many = [*names(ARGUMENTS_WHOLE_MAX), "x"]
    ask = library.client.refused
    for words in (
        ("HSET", library.key("rate")),
        ("SADD", library.key("xq-pending")),
        ("RPUSH", library.key("signals:1")),
        ("LPUSH", library.key("signals:1")),
        ("ZADD", library.key("scheduled")),
        ("XADD", library.key("jstream:1"), "*"),
        ("COMMAND", "INFO"),
    ):
        assert f"at most {ARGUMENTS_WHOLE_MAX} arguments" in ask(*words, *many)
    assert library.client.ask("HSET", library.key("rate"), *many[: ARGUMENTS_WHOLE_MAX - 2]) > 0


def test_streams_and_claims_are_bounded(library: Library) -> None:
    ask = library.client.refused
    keys = [library.key(f"jstream:{at}") for at in range(STREAMS_READ_MAX + 10)]
    told = f"at most {STREAMS_READ_MAX} streams"
    assert told in ask("XREAD", "STREAMS", *keys, *["0"] * len(keys))
    assert told in ask("XREADGROUP", "GROUP", "workers", "c", "STREAMS", *keys, *[">"] * len(keys))
    ids = [f"{at}-1" for at in range(1, CLAIMS_MAX + 20)]
    assert f"at most {CLAIMS_MAX} entries" in ask(
        "XCLAIM", library.key("stream"), "workers", "c", 0, *ids
    )


def test_many_streams_give_no_more_entries_than_one(library: Library) -> None:
    other = Library(library.site, "others")
    for _ in range(700):
        library.add()
        other.add()
    streams = [library.key("stream"), other.key("stream")]
    read = library.client.ask("XREAD", "STREAMS", *streams, "0", "0")
    assert [len(entries) for _, entries in read] == [700, 300]
    taken = library.client.ask(
        "XREADGROUP", "GROUP", "workers", "c", "STREAMS", *streams, ">", ">"
    )  # fmt: skip
    assert [len(entries) for _, entries in taken] == [700, 300]
    held = library.client.ask(
        "XREADGROUP", "GROUP", "workers", "c", "STREAMS", *streams, "0", "0"
    )  # fmt: skip
    assert [len(entries) for _, entries in held] == [700, 300]


def test_a_queue_that_others_empty_while_keys_are_deleted_stays_whole(library: Library) -> None:
    ids = [library.add().decode() for _ in range(400)]
    slow(library, UNITS)
    yard = library.site.yard
    client = library.client
    client.send("DEL", *[library.key(f"job:{job_id}") for job_id in ids])
    while yard.ready_count == 400:
        library.site.slice()
    assert yard.ready_count > 0
    condemn(yard, yard.queues["tasks"])
    while library.site.slice():
        pass
    [count] = client.hear()
    assert 0 < count < 400
    assert yard.jobs.count == 0
    recount(yard)


def test_a_stream_that_others_empty_while_it_is_deleted_stays_whole(library: Library) -> None:
    for _ in range(2000):
        library.add()
    slow(library, UNITS)
    yard = library.site.yard
    library.client.send("DEL", library.key("stream"))
    while yard.ready_count == 2000:
        library.site.slice()
    condemn(yard, yard.queues["tasks"])
    while library.site.slice():
        pass
    assert library.client.hear() == [1]
    assert yard.jobs.count == 0
    recount(yard)


def test_a_long_side_stream_is_trimmed_over_turns(library: Library) -> None:
    key = library.key("jstream:1")
    for at in range(1, 1201):
        library.client.ask("XADD", key, f"{at}-0", "f", "v")
    slow(library, UNITS)
    assert answer(library, "XTRIM", key, "MAXLEN", 100) == 1100
    assert library.client.ask("XLEN", key) == 100
    assert library.client.ask("XADD", key, "MAXLEN", 50, "1300-0", "f", "v") == b"1300-0"
    assert library.client.ask("XLEN", key) == 50


def test_a_parent_of_many_waits_for_each_of_them_once(library: Library) -> None:
    keys = library.keys("id", "stream", "scheduled", "events") * 301
    parent = ["parent", "{}", "{}", library.ts(), 0, 0, 0, 300, ""]
    child = ["child", "{}", "{}", 0, 0, 0, library.p, library.name, ""]
    told = library.client.ask("FCALL", "glidemq_addFlow", len(keys), *keys, *parent, *child * 300)
    parent_id, *children = json.loads(told)
    deps = library.key(f"deps:{parent_id}")
    members = [f"{library.p}:{child_id}" for child_id in children]
    assert library.client.ask("SCARD", deps) == 300
    slow(library, UNITS)
    assert answer(library, "SREM", deps, *members[:-1], *members[:-1]) == 299
    assert library.client.ask("SMEMBERS", deps) == [members[-1].encode()]
    assert library.state(parent_id) == "waiting-children"
    assert library.client.ask("SREM", deps, members[-1]) == 1
    assert library.client.ask("EXISTS", deps) == 0
    assert library.state(parent_id) == "waiting"
    recount(library.site.yard)


def flow(library: Library, count: int) -> list[object]:
    keys = library.keys("id", "stream", "scheduled", "events") * (count + 1)
    parent = ["parent", "{}", "{}", library.ts(), 0, 0, 0, count, ""]
    child = ["child", "{}", "{}", 0, 0, 0, library.p, library.name, ""]
    return ["FCALL", "glidemq_addFlow", len(keys), *keys, *parent, *child * count]


def test_a_long_flow_is_read_over_turns_and_enters_at_once(library: Library) -> None:
    slow(library, UNITS)
    library.client.send(*flow(library, 400))
    seen = set()
    while library.site.slice():
        seen.add(int(library.site.yard.jobs.count))
        library.client.resume()
    library.client.resume()
    [told] = library.client.hear()
    assert len(json.loads(told)) == 401
    assert seen <= {0, 401}
    assert library.counts()["waiting"] == 400
    recount(library.site.yard)


def test_a_long_flow_that_is_wrong_at_its_end_adds_nothing(library: Library) -> None:
    slow(library, UNITS)
    words = flow(library, 400)
    words[-6] = "later"
    told = answer(library, *words)
    assert "delay is not an integer" in str(told)
    assert library.site.yard.jobs.count == 0
    assert library.name not in library.site.yard.queues


def test_a_flow_has_so_many_children(library: Library) -> None:
    told = library.client.refused(*flow(library, FLOW_MAX + 1))
    assert told.startswith(f"ERR a flow can have at most {FLOW_MAX} children")
    assert library.site.yard.jobs.count == 0
    assert len(json.loads(library.client.ask(*flow(library, FLOW_MAX)))) == FLOW_MAX + 1


def test_no_flow_enters_a_server_that_drains_meanwhile(library: Library) -> None:
    slow(library, UNITS)
    library.client.send(*flow(library, 400))
    library.site.door.is_draining = True
    while library.site.slice():
        library.client.resume()
    library.client.resume()
    [told] = library.client.hear()
    assert "draining" in str(told)
    assert library.site.yard.jobs.count == 0
