"""Very many pending entries: listed, counted, claimed and given back in slices."""

from typing import Any

import pytest

from tests.support.clients.library import Library
from tests.support.clients.slow_turns import UNITS, session_of, slow
from tests.support.doors.glidemq import BareGlidemq
from tests.support.site.recount import recount
from tests.support.site.storage import MemoryStorage

HELD = 600


class Holding(Library):
    """A queue with pending entries."""

    def __init__(self, site: BareGlidemq) -> None:
        super().__init__(site)
        self.entries: list[bytes] = []


@pytest.fixture
def library() -> Holding:
    """A queue whose entries two consumers hold in turn, with some left."""
    library = Holding(BareGlidemq(MemoryStorage()))
    for _ in range(HELD + 5):
        library.add()
    for at in range(HELD // 10):
        taken = library.read(consumer=f"w{at % 2}", count=10)
        library.entries += [entry.encode() for _, entry in taken]
    slow(library)
    return library


def answer(library: Library, *words: object) -> Any:
    """Send a command that takes several turns, none of which exceeds its limit."""
    tasks = library.site.yard.tasks
    before = int(tasks.units_done)
    library.client.send(*words)
    turns = 0
    while session_of(library).is_at_work():
        done = int(tasks.units_done)
        assert done - before <= 5 * UNITS
        before = done
        library.site.slice()
        library.client.resume()
        turns += 1
    assert turns >= 2
    assert library.site.yard.tasks.count() == 0
    [told] = library.client.hear()
    return told


def stream(library: Library) -> tuple[str, str]:
    return library.key("stream"), "workers"


def test_a_range_is_shown_in_order(library: Holding) -> None:
    held = library.entries
    told = answer(library, "XPENDING", *stream(library), "-", "+", 10_000)
    assert [one[0] for one in told] == held
    assert [one[1] for one in told[:20]] == [b"w0"] * 10 + [b"w1"] * 10
    told = answer(library, "XPENDING", *stream(library), held[15], held[400], 7)
    assert [one[0] for one in told] == held[15:22]
    told = answer(library, "XPENDING", *stream(library), "-", "+", 30, "w1")
    assert [one[0] for one in told] == held[10:20] + held[30:40] + held[50:60]
    assert answer(library, "XPENDING", *stream(library), "IDLE", 1000, "-", "+", 10) == []


def test_all_are_counted(library: Holding) -> None:
    held = library.entries
    counts = [[b"w0", b"300"], [b"w1", b"300"]]
    assert answer(library, "XPENDING", *stream(library)) == [HELD, held[0], held[-1], counts]
    told = answer(library, "XINFO", "CONSUMERS", *stream(library))
    assert [(one[1], one[3], one[5]) for one in told] == [(b"w0", 300, 0), (b"w1", 300, 0)]
    [told] = answer(library, "XINFO", "GROUPS", library.key("stream"))
    assert told[3] == 2
    assert told[5:8] == [HELD, b"last-delivered-id", held[-1]]
    assert told[11] == 5


def test_what_ends_meanwhile_is_not_told_and_what_stays_is_told_once(library: Holding) -> None:
    held = library.entries
    other = Library(library.site)
    library.client.send("XPENDING", *stream(library), "-", "+", 10_000)
    gone: set[bytes] = set()
    at = 0
    while session_of(library).is_at_work():
        if at < HELD:
            # The first came first, and so its place in the yard is taken by one of the last.
            entry = held[at]
            other.complete(str(at + 1), entry.decode())
            gone.add(entry)
            at += 40
        library.site.slice()
        library.client.resume()
    [told] = library.client.hear()
    names = [one[0] for one in told]
    assert len(gone) > 5
    assert len(names) == len(set(names))
    assert set(held) - gone <= set(names) <= set(held)


def test_a_consumer_is_told_again_what_it_holds(library: Holding) -> None:
    held = library.entries
    words = ["XREADGROUP", "GROUP", "workers", "w1", "COUNT", 25, "STREAMS", library.key("stream")]
    [[_, told]] = answer(library, *words, "0")
    assert [one[0] for one in told] == held[10:20] + held[30:40] + held[50:55]
    [[_, told]] = answer(library, *words, held[39])
    assert [one[0] for one in told][:10] == held[50:60]


def test_entries_are_handed_over_page_by_page(library: Holding) -> None:
    held = library.entries
    cursor, claimed = b"0-0", []
    for _ in range(3):
        words = (*stream(library), "w2", 0, cursor, "COUNT", 200, "JUSTID")
        cursor, some, gone = answer(library, "XAUTOCLAIM", *words)
        assert gone == []
        claimed += some
    assert (claimed, cursor) == (held, b"0-0")
    assert answer(library, "XPENDING", *stream(library))[3] == [[b"w2", b"600"]]
    told = answer(library, "XAUTOCLAIM", *stream(library), "w3", 1, "0-0")
    assert told == [b"0-0", [], []]


def test_a_consumer_gives_back_all_in_order(library: Holding) -> None:
    assert answer(library, "XGROUP", "DELCONSUMER", *stream(library), "w1") == 300
    recount(library.site.yard)
    library.site.is_slow = False
    assert library.counts() == {**library.counts(), "waiting": 305, "active": 300}
    ids = [job_id for job_id, _ in library.read(consumer="w4", count=400)]
    wanted = [str(at + 1) for at in range(HELD) if at // 10 % 2 == 1]
    assert [one for one in ids if int(one) <= HELD] == wanted


def test_what_a_consumer_takes_meanwhile_stays_with_it(library: Holding) -> None:
    library.client.send("XGROUP", "DELCONSUMER", *stream(library), "w1")
    assert session_of(library).is_at_work()
    other = Library(library.site)
    taken = other.read(consumer="w1", count=5)
    while session_of(library).is_at_work():
        library.site.slice()
        library.client.resume()
    assert library.client.hear() == [300]
    told = answer(library, "XPENDING", *stream(library), "-", "+", 10, "w1")
    assert [one[0].decode() for one in told] == [entry for _, entry in taken]


def test_who_leaves_in_the_middle_leaves_nothing_behind(library: Holding) -> None:
    item_set = library.site.yard.queues["tasks"].leased
    library.client.send("XINFO", "CONSUMERS", *stream(library))
    walks = [list(item_set.walks or [])]
    library.client.close()
    walks.append(list(item_set.walks or []))
    assert [len(some) for some in walks] == [1, 0]
    assert library.site.yard.tasks.count() == 0


def test_the_last_entry_that_was_given_is_told_though_all_are_done() -> None:
    library = Library(BareGlidemq(MemoryStorage()))

    def last() -> bytes:
        [told] = library.client.ask("XINFO", "GROUPS", library.key("stream"))
        return bytes(told[7])

    library.add()
    library.add()
    assert last() == b"0-0"
    [(job_id, entry)] = library.read()
    assert last() == entry.encode()
    library.complete(job_id, entry)
    assert last() == entry.encode()
