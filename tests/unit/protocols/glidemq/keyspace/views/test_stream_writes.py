"""The stream of a queue: additions, deletions after an acknowledgement, waiting readers."""

import pytest

from tests.support.clients.library import Library
from tests.support.clients.subscriber import Subscriber
from tests.support.doors.glidemq import BareGlidemq
from tests.support.site.storage import MemoryStorage


@pytest.fixture
def library() -> Library:
    return Library(BareGlidemq(MemoryStorage()))


def xadd(library: Library, job_id: str, *more: str) -> str:
    entry = library.client.ask("XADD", library.key("stream"), "*", "jobId", job_id, *more)
    assert isinstance(entry, bytes)
    return entry.decode()


@pytest.mark.parametrize("given", [{"delay": 5000}, {"priority": 3}, {}])
def test_an_added_entry_brings_its_job_to_the_stream(
    library: Library, given: dict[str, int]
) -> None:
    library.add(**given)
    entry = xadd(library, "1", "name", "send-email")
    assert library.state("1") == "waiting"
    assert library.client.ask("ZCARD", library.key("scheduled")) == 0
    assert Library(library.site.reboot()).read() == [("1", entry)]
    assert library.read() == [("1", entry)]


def test_a_job_of_a_list_comes_to_the_stream(library: Library) -> None:
    library.add(priority=3)
    library.promote()
    assert library.counts()["lists"] == 1
    entry = xadd(library, "1")
    assert library.read() == [("1", entry)]


@pytest.mark.parametrize("is_failed", [True, False])
def test_an_added_entry_brings_a_job_back(library: Library, *, is_failed: bool) -> None:
    library.add()
    [(job_id, old)] = library.read()
    if is_failed:
        library.fail(job_id, old)
    else:
        library.complete(job_id, old)
    entry = xadd(library, job_id)
    assert entry != old
    assert library.read() == [(job_id, entry)]


def test_one_who_waits_is_given_the_job_of_an_added_entry(library: Library) -> None:
    library.add(delay=5000)
    worker = library.site.connect()
    worker.send(
        "XREADGROUP", "GROUP", "workers", "w1", "BLOCK", 0, "STREAMS", library.key("stream"), ">"
    )
    xadd(library, "1")
    [[[_, [[_, fields]]]]] = worker.hear()
    assert fields[1] == b"1"


def test_an_entry_that_can_be_no_job_is_refused(library: Library) -> None:
    library.add()
    library.add()
    library.read()
    refused = library.client.refused
    stream = library.key("stream")
    assert "add it first" in refused("XADD", stream, "*", "jobId", "9")
    assert "use *" in refused("XADD", stream, "77-1", "jobId", "2")
    assert "waits for its children" in refused("XADD", stream, "*", "jobId", "1")
    assert refused("XADD", stream, "*", "name", "mail")
    assert refused("XADD", stream, "*", "jobId", "2", "color", "red")
    assert refused("XADD", stream, "*", "jobId", "2", "retryGroup", "none").startswith("NOGROUP")
    assert refused("XADD", "glide:{none}:stream", "*", "jobId", "2")
    assert library.client.ask("XADD", "glide:{none}:stream", "NOMKSTREAM", "*", "a", "b") is None
    assert "none" not in library.site.yard.queues


def test_an_entry_for_one_group_is_for_it_alone(library: Library) -> None:
    mails = Subscriber(library, "mails").create()
    stock = Subscriber(library, "stock").create()
    library.add()
    library.add(delay=5000)
    mails.ids()
    stock.ids()
    entry = xadd(library, "1", "retryGroup", "mails")
    assert mails.read() == [("1", entry)]
    assert stock.ids() == []
    # What is not in the stream comes there, and to all.
    xadd(library, "2", "retryGroup", "mails")
    assert stock.ids() == ["2"]


def test_a_new_entry_of_a_job_replaces_the_one_before(library: Library) -> None:
    mails = Subscriber(library, "mails").create()
    library.add()
    mails.ack(*[entry for _, entry in mails.read()])
    first = xadd(library, "1", "retryGroup", "mails")
    second = xadd(library, "1", "retryGroup", "mails")
    assert mails.read() == [("1", second)]
    third = xadd(library, "1", "retryGroup", "mails")
    assert mails.pending()[0] == 0
    assert mails.ack(first, second) == 0
    assert mails.read() == [("1", third)]


def test_what_was_acknowledged_can_be_deleted_once(library: Library) -> None:
    library.add()
    library.add()
    [(_, first), (_, second)] = library.read(count=2)
    stream = library.key("stream")
    ask = library.client.ask
    assert ask("XACK", stream, "workers", first, second) == 2
    assert ask("XLEN", stream) == 0
    assert ask("XDEL", stream, first, second, "1-1") == 2
    assert ask("XDEL", stream, first) == 0


def test_only_so_many_acknowledged_entries_are_remembered(library: Library) -> None:
    recently_acked = library.site.door.recently_acked
    for stamp in range(1, 10_002):
        recently_acked.add(stamp)
    assert not recently_acked.take(1)
    assert recently_acked.take(2)
    assert recently_acked.take(10_001)


# -- XREAD ---------------------------------------------------------------------------------------


def test_one_who_only_looks_is_told_of_what_comes(library: Library) -> None:
    stream = library.key("stream")
    observer = library.site.connect()
    observer.send("XREAD", "BLOCK", 0, "STREAMS", stream, "$")
    assert library.client.ask("TYPE", stream) == b"none"
    library.add(delay=1000)
    assert observer.hear() == []
    library.site.tick(1000)
    library.promote()
    [[[_, [[_, fields]]]]] = observer.hear()
    assert fields[:2] == [b"jobId", b"1"]
    # It has not been taken.
    assert library.state("1") == "waiting"
    assert library.site.yard.queues[library.name].subscriptions is None


def test_a_queue_nobody_looks_at_any_more_goes(library: Library) -> None:
    observer = library.site.connect()
    observer.send("XREAD", "BLOCK", 50, "STREAMS", library.key("stream"), "$")
    assert library.name in library.site.yard.queues
    library.site.tick(50)
    assert observer.hear() == [None]
    assert library.name not in library.site.yard.queues


def test_an_onlooker_stays_when_the_last_group_goes(library: Library) -> None:
    mails = Subscriber(library, "mails").create()
    mails.block()
    observer = library.site.connect()
    observer.send("XREAD", "BLOCK", 0, "STREAMS", mails.stream, "$")
    library.client.ask("XGROUP", "DESTROY", mails.stream, "mails")
    assert mails.client.take_unread().startswith(b"-NOGROUP")
    library.add(priority=4)
    library.promote()
    # Without a group it goes to the list, as before.
    assert library.counts()["lists"] == 1
    library.add()
    [[[_, [[_, fields]]]]] = observer.hear()
    assert fields[1] == b"2"
