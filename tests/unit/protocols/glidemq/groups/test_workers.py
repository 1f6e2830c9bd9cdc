"""The one consumer group of a queue: which clients wait, what each holds, and handing over."""

import pytest

from tests.support.clients.glidemq import GlideClient
from tests.support.clients.library import Library
from tests.support.doors.glidemq import BareGlidemq


@pytest.fixture
def library() -> Library:
    return Library(BareGlidemq())


def block(library: Library, client: GlideClient, ms: int, *names: str, count: int = 1) -> None:
    keys = names or (library.key("stream"),)
    client.send(
        "XREADGROUP", "GROUP", "workers", "w1", "COUNT", count, "BLOCK", ms,
        "STREAMS", *keys, *([">"] * len(keys)),
    )  # fmt: skip


def test_a_group_is_made_once(library: Library) -> None:
    stream = library.key("stream")
    refused = library.client.refused("XGROUP", "CREATE", stream, "workers", "$")
    assert "requires the key to exist" in refused
    assert library.client.ask("XGROUP", "CREATE", stream, "workers", "$", "MKSTREAM") == b"OK"
    assert library.client.ask("TYPE", stream) == b"stream"
    refused = library.client.refused("XGROUP", "CREATE", stream, "workers", "0", "MKSTREAM")
    assert refused.startswith("BUSYGROUP")
    refused = library.client.refused("XGROUP", "CREATE", stream, "workers", "0")
    assert refused.startswith("BUSYGROUP")
    assert library.client.refused("XGROUP", "CREATE", "glide:{q}:log:1", "workers", "0")


def test_jobs_from_before_the_group_are_for_it(library: Library) -> None:
    library.add()
    library.client.ask("XGROUP", "CREATE", library.key("stream"), "workers", "$", "MKSTREAM")
    assert [job_id for job_id, _ in library.read()] == ["1"]


def test_a_worker_waits_for_a_job(library: Library) -> None:
    worker = library.site.connect()
    block(library, worker, 5000)
    assert worker.hear() == []
    library.add()
    [answer] = worker.hear()
    assert answer[0][0] == library.key("stream").encode()
    assert answer[0][1][0][1][:2] == [b"jobId", b"1"]
    assert library.counts()["active"] == 1
    assert library.client.ask("XPENDING", library.key("stream"), "workers")[3] == [[b"w1", b"1"]]


def test_a_worker_that_waited_enough_is_told_so(library: Library) -> None:
    worker = library.site.connect()
    block(library, worker, 1000)
    library.site.tick(999)
    assert worker.hear() == []
    library.site.tick(1)
    assert worker.hear() == [None]
    library.add()
    assert library.counts()["waiting"] == 1


def test_a_worker_that_leaves_takes_nothing_with_it(library: Library) -> None:
    worker = library.site.connect()
    block(library, worker, 0)
    worker.close()
    library.add()
    assert library.counts() == {
        "waiting": 1, "active": 0, "lists": 0, "scheduled": 0, "completed": 0, "failed": 0,
    }  # fmt: skip


def test_a_worker_that_signs_off_is_given_nothing_more(library: Library) -> None:
    reader = library.site.connect()
    block(library, reader, 5000)
    library.client.ask("SET", library.key("w:w2"), "{}")
    assert library.client.ask("DEL", library.key("w:w2")) == 1
    library.add()
    assert library.state("1") == "active", "it is not the one who went"
    reader.hear()
    block(library, reader, 5000)
    library.client.ask("SET", library.key("w:w1"), "{}")
    assert library.client.ask("UNLINK", library.key("w:w1"), library.key("w:w9")) == 1
    library.add()
    assert library.state("2") == "waiting"
    library.site.tick(4999)
    assert reader.hear() == []
    library.site.tick(1)
    assert reader.hear() == [None]
    block(library, reader, 5000)
    assert len(reader.hear()) == 1, "who comes back is served"


def test_who_signs_off_from_one_queue_is_served_at_another(library: Library) -> None:
    reader, both = library.site.connect(), library.site.connect()
    other = Library(library.site, "other")
    block(library, reader, 5000, other.key("stream"))
    block(library, both, 5000, library.key("stream"), other.key("stream"))
    library.client.ask("DEL", library.key("w:w1"))
    other.add()
    library.add()
    assert len(reader.hear()) == 1
    assert len(both.hear()) == 1


def test_what_a_worker_never_began_goes_back_when_it_signs_off(library: Library) -> None:
    reader = library.site.connect()
    for _ in range(3):
        library.add()
    block(library, reader, 5000, count=3)
    [[[_, taken]]] = reader.hear()
    (begun, _), (done, _), _ = taken
    library.activate("1", begun.decode())
    library.complete("2", done.decode())
    library.client.ask("DEL", library.key("w:w1"))
    assert [library.state(name) for name in "123"] == ["active", "completed", "waiting"]
    assert "stalledCount" not in library.job("3")
    assert [name for name, _ in library.read("w2", 5)] == ["3"]


def test_workers_are_served_in_turn_and_at_many_streams(library: Library) -> None:
    other = Library(library.site, "other")
    first, second = library.site.connect(), library.site.connect()
    block(library, first, 0)
    block(library, second, 0, library.key("stream"), other.key("stream"))
    other.add()
    [answer] = second.hear()
    assert answer[0][0] == other.key("stream").encode()
    library.add()
    assert len(first.hear()) == 1
    assert library.counts()["active"] == 1


def test_promoted_jobs_wake_those_at_the_stream(library: Library) -> None:
    worker = library.site.connect()
    block(library, worker, 0)
    library.add(delay=100)
    library.site.tick(100)
    library.promote()
    assert len(worker.hear()) == 1


def test_who_promotes_nothing_gets_staged_jobs_after_a_while(library: Library) -> None:
    library.add(priority=3)
    library.add(delay=1000)
    worker = library.site.connect()
    block(library, worker, 0)
    library.site.tick(4000)
    assert worker.hear() == []
    library.site.tick(2000)
    assert worker.hear()[0][0][1][0][1][1] == b"1"
    library.site.tick(2000)
    assert [job_id for job_id, _ in library.read()] == ["2"]


def test_jobs_of_the_last_worker_that_is_gone_are_given_back(library: Library) -> None:
    library.add()
    library.add(lifo=1)
    library.call("popLists", ["priority", "lifo"], 1)
    worker = library.site.connect()
    block(library, worker, 0)
    library.site.tick(120_000)
    assert library.counts()["active"] == 2
    worker.close()
    library.site.tick(2000)
    assert library.counts()["active"] == 0
    assert library.job("1")["stalledCount"] == "1"


def test_in_version_3_streams_are_a_map(library: Library) -> None:
    library.add()
    library.client.speak(3)
    answer = library.client.ask(
        "XREADGROUP", "GROUP", "workers", "w1", "STREAMS", library.key("stream"), ">"
    )
    assert list(answer) == [library.key("stream").encode()]


def test_a_transaction_does_not_wait(library: Library) -> None:
    library.client.ask("MULTI")
    block(library, library.client, 0)
    assert library.client.hear() == [b"QUEUED"]
    assert library.client.ask("EXEC") == [None]


def test_a_consumer_is_told_again_what_it_holds(library: Library) -> None:
    library.add()
    [(_, entry)] = library.read()
    stream = library.key("stream")
    own = ("XREADGROUP", "GROUP", "workers", "w1", "STREAMS", stream, "0")
    assert library.client.ask(*own)[0][1][0][0] == entry.encode()
    others = ("XREADGROUP", "GROUP", "workers", "w2", "STREAMS", stream, "0")
    assert library.client.ask(*others)[0][1] == []


def test_what_is_pending_is_told_in_two_ways(library: Library) -> None:
    library.add()
    library.add()
    taken = library.read(count=2)
    library.site.tick(300)
    stream = library.key("stream")
    first, last = (entry.encode() for _, entry in taken)
    summary = library.client.ask("XPENDING", stream, "workers")
    assert summary == [2, first, last, [[b"w1", b"2"]]]
    rows = library.client.ask("XPENDING", stream, "workers", "-", "+", 10)
    assert rows == [[first, b"w1", 300, 1], [last, b"w1", 300, 1]]
    rows = library.client.ask("XPENDING", stream, "workers", "IDLE", 301, "-", "+", 10)
    assert rows == []
    rows = library.client.ask("XPENDING", stream, "workers", "-", "+", 10, "w2")
    assert rows == []
    assert library.client.ask("XPENDING", "glide:{no}:stream", "workers") == [0, None, None, None]


def test_an_acknowledged_job_is_done(library: Library) -> None:
    library.add()
    [(_, entry)] = library.read()
    stream = library.key("stream")
    assert library.client.ask("XACK", stream, "workers", entry, "1-1") == 1
    assert library.client.ask("XACK", stream, "workers", entry) == 0
    assert library.job("1")["returnvalue"] == "null"
    assert library.client.ask("XLEN", stream) == 0


def test_a_ready_entry_is_deleted_with_its_job(library: Library) -> None:
    library.add()
    library.add()
    stream = library.key("stream")
    entries = [entry for entry, _ in library.client.ask("XRANGE", stream, "-", "+")]
    assert library.client.ask("XDEL", stream, entries[0]) == 1
    assert library.state("1") is None
    assert [job_id for job_id, _ in library.read(count=2)] == ["2"]


def test_silent_entries_are_handed_over(library: Library) -> None:
    library.add()
    [(_, entry)] = library.read()
    library.site.tick(500)
    stream = library.key("stream")
    assert library.client.ask("XAUTOCLAIM", stream, "workers", "w2", 501, "0-0") == [b"0-0", [], []]
    answer = library.client.ask("XAUTOCLAIM", stream, "workers", "w2", 500, "0-0", "JUSTID")
    assert answer == [b"0-0", [entry.encode()], []]
    assert library.client.ask("XPENDING", stream, "workers")[3] == [[b"w2", b"1"]]
    answer = library.client.ask("XCLAIM", stream, "workers", "w3", 0, entry)
    assert answer[0][0] == entry.encode()
    assert library.client.ask("XINFO", "CONSUMERS", stream, "workers")[0][1] == b"w3"
    library.complete("1", entry)
    assert library.state("1") == "completed"


def test_a_consumer_that_is_deleted_gives_back_its_jobs(library: Library) -> None:
    library.add()
    library.read()
    stream = library.key("stream")
    assert library.client.ask("XGROUP", "DELCONSUMER", stream, "workers", "w1") == 1
    assert library.counts()["waiting"] == 1
    assert library.client.ask("XGROUP", "DESTROY", stream, "workers") == 1
    assert library.client.ask("XGROUP", "DESTROY", stream, "workers") == 0


@pytest.mark.parametrize(
    "words",
    [
        ["XREADGROUP", "GROUP", "others", "w", "STREAMS", "glide:{q}:stream", ">"],
        ["XREADGROUP", "GROUP", "workers", "w", "COUNT", "x", "STREAMS", "glide:{q}:stream", ">"],
        ["XREADGROUP", "GROUP", "workers", "w", "BLOCK", "-1", "STREAMS", "glide:{q}:stream", ">"],
        ["XREADGROUP", "GROUP", "workers", "w", "STREAMS", "glide:{q}:stream", "glide:{r}:stream",
         ">"],
        ["XREADGROUP", "GROUP", "workers", "w", "STREAMS", "glide:{q}:stream", "x-1"],
        ["XREADGROUP", "GROUP", "workers", "w", "STREAMS", "glide:{q}:events", ">"],
        ["XREADGROUP", "GROUP", "workers", "w", "COUNT", "1", "NOACK", "BLOCK"],
        ["XACK", "glide:{q}:stream", "workers", "one"],
        ["XPENDING", "glide:{q}:stream", "workers", "-", "+"],
        ["XPENDING", "glide:{q}:stream", "others"],
        ["XAUTOCLAIM", "glide:{q}:stream", "workers", "w", "x", "0"],
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused(library: Library, words: list[str]) -> None:
    assert library.client.refused(*words)
