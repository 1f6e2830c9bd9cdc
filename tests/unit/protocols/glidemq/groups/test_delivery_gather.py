"""Very many entries delivered to a group other than `workers`: read in slices."""

from typing import Any

import pytest

from jobyard.engine.glidemq.add import find
from jobyard.protocols.glidemq.keyspace.views.stream import entry_text
from tests.support.clients.library import Library
from tests.support.clients.slow_turns import answer, session_of, slow
from tests.support.clients.subscriber import Subscriber
from tests.support.doors.glidemq import BareGlidemq
from tests.support.site.storage import MemoryStorage

GIVEN = 600


class Giving(Library):
    """A queue whose entries were delivered to a group."""

    def __init__(self, site: BareGlidemq) -> None:
        super().__init__(site)
        self.entries: list[bytes] = []
        self.mails = Subscriber(self, "mails").create()
        self.group = (self.key("stream"), "mails")

    def slowly(self, *words: object) -> Any:
        """Ask for what takes several turns."""
        told, turns = answer(self, *words)
        assert turns >= 2
        assert self.site.yard.tasks.count() == 0
        return told

    def at_once(self, *words: object) -> Any:
        """Ask for what takes no work to speak of, however much was given."""
        told, turns = answer(self, *words)
        assert turns == 0
        return told

    def held(self) -> list[list[bytes]]:
        found: list[list[bytes]] = self.at_once("XPENDING", *self.group)[3]
        return found


@pytest.fixture
def library() -> Giving:
    """A queue whose entries were delivered to two consumers of a group in turn."""
    library = Giving(BareGlidemq(MemoryStorage()))
    for _ in range(GIVEN):
        library.add()
    for at in range(GIVEN // 10):
        given = library.mails.fellow(f"w{at % 2}").read(10)
        library.entries += [entry.encode() for _, entry in given]
    slow(library)
    return library


def finish(library: Library) -> Any:
    while session_of(library).is_at_work():
        library.site.slice()
        library.client.resume()
    [told] = library.client.hear()
    return told


def test_a_range_is_shown_in_order(library: Giving) -> None:
    given = library.entries
    told = library.slowly("XPENDING", *library.group, "-", "+", 10_000)
    assert [one[0] for one in told] == given
    assert [one[1] for one in told[:20]] == [b"w0"] * 10 + [b"w1"] * 10
    told = library.at_once("XPENDING", *library.group, given[315], given[590], 7)
    assert [one[0] for one in told] == given[315:322]
    told, _ = answer(library, "XPENDING", *library.group, "-", "+", 30, "w1")
    assert [one[0] for one in told] == given[10:20] + given[30:40] + given[50:60]
    assert library.at_once("XPENDING", *library.group, "-", "+", 30, "w2") == []
    assert library.at_once("XPENDING", *library.group, "-", "+", 0) == []
    assert library.slowly("XPENDING", *library.group, "IDLE", 1000, "-", "+", 10) == []


def test_all_are_counted_at_once(library: Giving) -> None:
    given = library.entries
    counts = [[b"w0", b"300"], [b"w1", b"300"]]
    told = library.at_once("XPENDING", *library.group)
    assert told == [GIVEN, given[0], given[-1], counts]
    told = library.at_once("XINFO", "CONSUMERS", *library.group)
    assert [(one[1], one[3]) for one in told] == [(b"w0", 300), (b"w1", 300)]
    library.mails.ack(*[entry.decode() for entry in given[5:15]])
    assert library.held() == [[b"w0", b"295"], [b"w1", b"295"]]


def test_entries_are_handed_over_page_by_page(library: Giving) -> None:
    given = library.entries
    cursor, claimed = b"0-0", []
    for _ in range(3):
        words = (*library.group, "w2", 0, cursor, "COUNT", 200, "JUSTID")
        (cursor, some, gone), _ = answer(library, "XAUTOCLAIM", *words)
        assert gone == []
        claimed += some
    assert (claimed, cursor) == (given, b"0-0")
    assert library.held() == [[b"w2", b"600"]]
    assert library.slowly("XAUTOCLAIM", *library.group, "w3", 1, "0-0") == [b"0-0", [], []]


def test_what_is_over_meanwhile_is_not_handed_over(library: Giving) -> None:
    given = library.entries
    library.client.send("XAUTOCLAIM", *library.group, "w2", 0, "0-0", "COUNT", 1000, "JUSTID")
    assert session_of(library).is_at_work()
    library.mails.ack(given[0].decode())
    cursor, claimed, gone = finish(library)
    assert (cursor, claimed, gone) == (b"0-0", given[1:], [])


def test_a_consumer_is_told_again_what_it_was_given(library: Giving) -> None:
    given = library.entries
    words = ["XREADGROUP", "GROUP", "mails", "w1", "COUNT", 25, "STREAMS", library.key("stream")]
    [[_, told]] = library.at_once(*words, "0")
    assert [one[0] for one in told] == given[10:20] + given[30:40] + given[50:55]
    words[5] = 1000
    [[_, told]] = library.slowly(*words, given[39])
    assert [one[0] for one in told] == [
        one for at, one in enumerate(given) if at >= 50 and at // 10 % 2
    ]


def test_what_a_consumer_had_is_given_to_others_in_order(library: Giving) -> None:
    assert library.slowly("XGROUP", "DELCONSUMER", *library.group, "w1") == 300
    assert library.held() == [[b"w0", b"300"]]
    assert [one[1] for one in library.at_once("XINFO", "CONSUMERS", *library.group)] == [b"w0"]
    wanted = [str(at + 1) for at in range(GIVEN) if at // 10 % 2]
    library.site.is_slow = False
    assert library.mails.ids(1000) == wanted
    assert library.held() == [[b"c1", b"300"], [b"w0", b"300"]]
    slow(library)
    # A redelivered entry is among the others by its new id.
    told, _ = answer(library, "XPENDING", *library.group, "-", "+", 10_000)
    stamps = [tuple(int(part) for part in one[0].split(b"-")) for one in told]
    assert len(stamps) == GIVEN
    assert stamps == sorted(stamps)


def test_what_a_consumer_is_given_meanwhile_stays_with_it(library: Giving) -> None:
    library.client.send("XGROUP", "DELCONSUMER", *library.group, "w1")
    assert session_of(library).is_at_work()
    # One of them was its own, one was given to the other.
    claimed = [library.entries[-2], library.entries[-12]]
    words = ("XCLAIM", *library.group, "w1", 0, *claimed, "JUSTID")
    assert library.mails.client.ask(*words) == claimed
    assert finish(library) == 299
    assert library.held() == [[b"w0", b"299"], [b"w1", b"2"]]


def test_what_nothing_was_heard_of_is_given_to_others(library: Giving) -> None:
    library.site.tick(1000)
    heard = [library.entries[at].decode() for at in (3, 400)]
    for entry in heard:
        job_id = str(library.entries.index(entry.encode()) + 1)
        library.mails.activate(job_id, entry)
    ts = library.ts()
    told = library.slowly(
        "FCALL", "glidemq_reclaimStalled", 2, library.key("stream"), library.key("events"),
        "mails", "c1", 500, 1, ts, library.key("failed"), "1",
    )  # fmt: skip
    assert told == GIVEN - 2
    assert sorted(library.held()) == [[b"w0", b"2"]]


def test_a_transaction_refuses_what_is_too_much_before_it_changes_anything() -> None:
    library = Giving(BareGlidemq(MemoryStorage()))
    for _ in range(1000):
        library.add()
    library.mails.read(1000)
    client = library.client
    client.send("MULTI")
    client.send("XGROUP", "DELCONSUMER", *library.group, "c1")
    client.send("XPENDING", *library.group, "-", "+", 2)
    client.take_unread()
    client.send("EXEC")
    heard = client.take_unread()
    assert heard.startswith(b"*2\r\n-ERR")
    assert heard.count(b"c1") == 2
    assert library.mails.pending()[3] == [[b"c1", b"1000"]]


def test_a_group_that_ends_meanwhile_ends_what_is_under_way(library: Giving) -> None:
    library.client.send("XGROUP", "DELCONSUMER", *library.group, "w1")
    other = Library(library.site)
    third = Library(library.site)
    other.client.send("XAUTOCLAIM", *library.group, "w2", 0, "0-0", "COUNT", 1000)
    third.client.send("XPENDING", *library.group, "IDLE", 1000, "-", "+", 10)
    assert all(session_of(one).is_at_work() for one in (library, other, third))
    assert library.mails.client.ask("XGROUP", "DESTROY", *library.group) == 1
    while library.site.slice():
        pass
    for one in (library, other, third):
        one.client.resume()
    [count] = library.client.hear()
    assert 0 < count < 300
    assert other.client.take_unread().startswith(b"-NOGROUP")
    assert third.client.hear() == [[]]
    assert library.site.yard.tasks.count() == 0
    assert queue_is_free(library)


def queue_is_free(library: Library) -> bool:
    return library.site.yard.queues["tasks"].subscriptions is None


def test_who_leaves_in_the_middle_leaves_nothing_behind(library: Giving) -> None:
    library.client.send("XPENDING", *library.group, "IDLE", 1000, "-", "+", 10)
    assert session_of(library).is_at_work()
    library.client.close()
    assert library.site.yard.tasks.count() == 0


def test_a_group_that_ends_is_freed_in_slices(library: Giving) -> None:
    tasks = library.site.yard.tasks
    assert library.mails.client.ask("XGROUP", "DESTROY", *library.group) == 1
    assert queue_is_free(library)
    turns = 0
    while library.site.slice():
        turns += 1
    assert turns > 0
    assert tasks.count() == 0


def lags(told: list[Any]) -> dict[bytes, int]:
    return {one[1]: one[11] for one in told}


def test_how_far_each_group_is_behind_is_counted_in_slices(library: Giving) -> None:
    late = Subscriber(library, "late").create("0")
    some = Subscriber(library, "some").create("0")
    same = Subscriber(library, "same").create("0")
    for group in (some, same):
        assert len(group.read(100)) == 100
    words = ("XINFO", "GROUPS", library.key("stream"))
    wanted = {b"mails": 0, b"late": 600, b"some": 500, b"same": 500}
    assert lags(library.slowly(*words)) == wanted
    # An entry that is gone from the stream is not delivered.
    library.client.ask("XDEL", library.key("stream"), library.entries[50], library.entries[150])
    wanted = {b"mails": 0, b"late": 598, b"some": 499, b"same": 499}
    assert lags(library.slowly(*words)) == wanted
    # What is to come again is still to be given.
    late.read(1)
    assert late.client.ask("XGROUP", "DELCONSUMER", late.stream, "late", "c1") == 1
    assert lags(library.slowly(*words)) == wanted


def test_groups_that_come_and_go_meanwhile_are_not_told_of(library: Giving) -> None:
    for name in ("late", "gone"):
        Subscriber(library, name).create("0")
    library.client.send("XINFO", "GROUPS", library.key("stream"))
    assert session_of(library).is_at_work()
    other = library.mails.client
    assert other.ask("XGROUP", "DESTROY", library.key("stream"), "gone") == 1
    assert other.ask("XGROUP", "CREATE", library.key("stream"), "new", "0") == b"OK"
    assert lags(finish(library)) == {b"mails": 0, b"late": 600}


# -- the first group of a long stream -----------------------------------------------------------


def long_stream() -> Library:
    library = Library(BareGlidemq(MemoryStorage()))
    for _ in range(600):
        library.add()
    return slow(library)


def test_the_entries_of_a_long_stream_are_put_in_order_in_slices() -> None:
    library = long_stream()
    told, turns = answer(library, "XGROUP", "CREATE", library.key("stream"), "late", 0)
    assert (told, turns > 3) == (b"OK", True)
    assert read_ids(library) == [b"%d" % number for number in range(1, 601)]


def test_what_comes_while_entries_are_put_in_order_is_read_once() -> None:
    library = long_stream()
    asking = library.client
    asking.send("XGROUP", "CREATE", library.key("stream"), "late", 0)
    library.site.slice()
    library.client = library.site.connect()
    library.add()
    library.client.ask("XDEL", library.key("stream"), entry_of(library, 3), entry_of(library, 599))
    while library.site.slice():
        pass
    assert asking.hear() == [b"OK"]
    gone = {3, 599}
    assert read_ids(library) == [b"%d" % number for number in range(1, 602) if number not in gone]


def test_a_connection_that_goes_leaves_no_order_behind() -> None:
    library = long_stream()
    library.client.send("XGROUP", "CREATE", library.key("stream"), "late", 0)
    library.site.slice()
    assert library.site.yard.queues[library.name].subscriptions is not None
    library.client.close()
    while library.site.slice():
        pass
    assert library.site.yard.queues[library.name].subscriptions is None
    assert library.site.yard.tasks.count() == 0


def entry_of(library: Library, number: int) -> bytes:
    queue = library.site.yard.queues[library.name]
    job = find(library.site.yard, queue, str(number))
    assert job is not None
    return entry_text(abs(int(job.stamp)))


def read_ids(library: Library) -> list[bytes]:
    ids: list[bytes] = []
    client = library.site.connect()
    stream = library.key("stream")
    words = ("XREADGROUP", "GROUP", "late", "c", "COUNT", 100, "STREAMS", stream, ">")
    while told := client.ask(*words):
        ids += [fields[1] for _, fields in told[0][1]]
    return ids
