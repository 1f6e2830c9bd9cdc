"""Consumer groups other than `workers`: each gets every message, and what it does is its own."""

import pytest

from tests.support.clients.library import Library
from tests.support.clients.subscriber import Subscriber
from tests.support.doors.glidemq import BareGlidemq
from tests.support.site.storage import MemoryStorage


@pytest.fixture
def library() -> Library:
    return Library(BareGlidemq())


@pytest.fixture
def durable() -> Library:
    return Library(BareGlidemq(MemoryStorage()))


def test_every_group_gets_every_message(library: Library) -> None:
    mails = Subscriber(library, "mails").create()
    stock = Subscriber(library, "stock").create()
    for _ in range(3):
        library.add()
    assert mails.ids(2) == ["1", "2"]
    assert mails.fellow("c2").ids() == ["3"]
    assert stock.ids() == ["1", "2", "3"]
    assert mails.ids() == []


def test_a_group_begins_where_it_was_told_to(library: Library) -> None:
    library.add()
    late = Subscriber(library, "late").create("$")
    early = Subscriber(library, "early").create("0")
    [(_, first)] = early.read()
    library.add()
    exact = Subscriber(library, "exact").create(first)
    assert late.ids() == ["2"]
    assert exact.ids() == ["2"]
    assert early.ids() == ["2"]
    assert late.client.ask("XGROUP", "SETID", late.stream, "late", "0") == b"OK"
    assert late.ids() == ["1", "2"]


def test_a_group_is_made_once_and_ends_with_its_end(library: Library) -> None:
    client = library.client
    stream = library.key("stream")
    refused = client.refused("XGROUP", "CREATE", stream, "mails", "$")
    assert "requires the key to exist" in refused
    mails = Subscriber(library, "mails").create()
    assert client.ask("TYPE", stream) == b"stream"
    assert client.refused("XGROUP", "CREATE", stream, "mails", "$").startswith("BUSYGROUP")
    assert client.ask("XGROUP", "DESTROY", stream, "mails") == 1
    assert client.ask("XGROUP", "DESTROY", stream, "mails") == 0
    assert client.refused(*mails.command(1)).startswith("NOGROUP")
    assert client.ask("TYPE", stream) == b"none"
    assert library.name not in library.site.yard.queues


def test_names_and_numbers_of_groups_are_bounded(library: Library) -> None:
    stream = library.key("stream")
    assert library.client.refused("XGROUP", "CREATE", stream, "", "$", "MKSTREAM")
    assert library.client.refused("XGROUP", "CREATE", stream, "g" * 1025, "$", "MKSTREAM")
    for each in range(1000):
        library.client.ask("XGROUP", "CREATE", stream, f"g{each}", "$", "MKSTREAM")
    assert library.client.refused("XGROUP", "CREATE", stream, "one-more", "$")


def test_one_who_waits_is_given_what_comes(library: Library) -> None:
    mails = Subscriber(library, "mails").create()
    stock = Subscriber(library, "stock").create()
    mails.block()
    stock.block(1000)
    library.add()
    assert mails.heard() == ["1"]
    assert stock.heard() == ["1"]
    stock.block(1000)
    library.site.tick(1000)
    assert stock.client.hear() == [None]


def test_one_who_signs_off_leaves_what_comes_to_others(library: Library) -> None:
    mails = Subscriber(library, "mails").create()
    fellow = mails.fellow("c2")
    mails.block(1000)
    fellow.block(1000)
    library.client.ask("DEL", library.key("w:c1"))
    library.add()
    assert fellow.heard() == ["1"]
    library.add()
    assert fellow.ids() == ["2"]
    library.site.tick(1000)
    assert mails.client.hear() == [None]


def test_a_waiting_reader_is_notified_of_the_end_of_its_group(library: Library) -> None:
    mails = Subscriber(library, "mails").create()
    mails.block()
    library.client.ask("XGROUP", "DESTROY", mails.stream, "mails")
    assert mails.client.take_unread().startswith(b"-NOGROUP")


def test_a_delayed_message_comes_when_it_is_due(library: Library) -> None:
    mails = Subscriber(library, "mails").create()
    library.add(delay=1000)
    library.add(priority=5)
    assert mails.ids() == []
    assert library.promote() == 1
    assert mails.ids() == ["2"]
    mails.block()
    library.site.tick(1000)
    library.promote()
    assert mails.heard() == ["1"]


def test_nobody_promotes_and_still_it_comes(library: Library) -> None:
    mails = Subscriber(library, "mails").create()
    library.add(delay=1000)
    mails.block()
    library.site.tick(8000)
    assert mails.heard() == ["1"]


def test_pause_holds_for_groups_too(library: Library) -> None:
    mails = Subscriber(library, "mails").create()
    library.call("pause", ["meta", "events"])
    library.add()
    assert mails.ids() == []
    mails.block()
    library.call("resume", ["meta", "events"])
    assert mails.heard() == ["1"]


def test_a_message_is_acknowledged_once(library: Library) -> None:
    mails = Subscriber(library, "mails").create()
    library.add()
    [(_, entry)] = mails.read()
    assert mails.pending()[0] == 1
    assert mails.ack(entry, "1-1") == 1
    assert mails.ack(entry) == 0
    assert mails.pending() == [0, None, None, None]
    assert library.client.ask("XLEN", mails.stream) == 1
    assert library.client.ask("XACK", mails.stream, "nobody", entry) == 0


def test_noack_leaves_nothing_to_acknowledge(library: Library) -> None:
    mails = Subscriber(library, "mails").create()
    library.add()
    assert [job_id for job_id, _ in mails.read(1, "NOACK")] == ["1"]
    assert mails.pending()[0] == 0


def test_a_consumer_is_told_again_what_it_has(library: Library) -> None:
    mails = Subscriber(library, "mails").create()
    library.add()
    library.add()
    [first] = mails.read(1)
    [second] = mails.fellow("c2").read()
    assert mails.read(start="0") == [first]
    assert mails.fellow("c2").read(start="0") == [second]
    library.call(
        "removeJob",
        ["job:1", "stream", "scheduled", "completed", "failed", "events", "log:1"],
        "1",
    )
    assert mails.entries(start="0") == [[first[1].encode(), None]]


def test_what_others_hold_is_listed_and_claimed(library: Library) -> None:
    mails = Subscriber(library, "mails").create()
    other = mails.fellow("c2")
    for _ in range(3):
        library.add()
    entries = [entry for _, entry in mails.read()]
    library.site.tick(500)
    ask = library.client.ask
    summary = [3, entries[0].encode(), entries[2].encode(), [[b"c1", b"3"]]]
    assert mails.pending() == summary
    rows = ask("XPENDING", mails.stream, "mails", "-", "+", 2)
    assert rows == [[entry.encode(), b"c1", 500, 1] for entry in entries[:2]]
    assert ask("XPENDING", mails.stream, "mails", "IDLE", 501, "-", "+", 9) == []
    assert ask("XPENDING", mails.stream, "mails", "-", "+", 9, "c2") == []
    claimed = ask("XCLAIM", mails.stream, "mails", "c2", 500, entries[1], "1-1", "JUSTID")
    assert claimed == [entries[1].encode()]
    assert [job_id for job_id, _ in other.read(start="0")] == ["2"]
    left = ask("XAUTOCLAIM", mails.stream, "mails", "c2", 500, "0", "COUNT", 1)
    assert left[0] == entries[2].encode()
    assert left[1][0][1][:2] == [b"jobId", b"1"]
    assert ask("XPENDING", mails.stream, "mails", "-", "+", 1)[0][1:] == [b"c2", 0, 2]
    asked = ["XCLAIM", mails.stream, "mails", "c3", 0, entries[2]]
    ask(*asked, "IDLE", 700, "RETRYCOUNT", 9)
    assert ask("XPENDING", mails.stream, "mails", "-", "+", 9, "c3")[0][2:] == [700, 9]
    assert library.client.refused(*asked, "HURRY")


def test_what_is_gone_is_claimed_no_more(library: Library) -> None:
    mails = Subscriber(library, "mails").create()
    library.add()
    library.add()
    entries = [entry for _, entry in mails.read()]
    assert library.client.ask("XDEL", mails.stream, entries[0]) == 1
    assert library.client.ask("XTRIM", mails.stream, "MAXLEN", 0) == 1
    ask = library.client.ask
    assert ask("XCLAIM", mails.stream, "mails", "c2", 0, entries[0]) == []
    left = ask("XAUTOCLAIM", mails.stream, "mails", "c2", 0, "0")
    assert left == [b"0-0", [], [entries[1].encode()]]
    assert mails.pending()[0] == 0


def test_groups_and_consumers_are_told_of(library: Library) -> None:
    mails = Subscriber(library, "mails").create()
    Subscriber(library, "stock").create()
    library.add()
    mails.ids()
    ask = library.client.ask
    [first, second] = ask("XINFO", "GROUPS", mails.stream)
    assert first[1::2][:3] == [b"mails", 1, 1]
    assert first[-1] == 0
    assert second[1::2][:3] == [b"stock", 0, 0]
    assert second[-1] == 1
    assert ask("XINFO", "STREAM", mails.stream)[5] == 2
    assert ask("XGROUP", "CREATECONSUMER", mails.stream, "mails", "c2") == 1
    assert ask("XGROUP", "CREATECONSUMER", mails.stream, "mails", "c2") == 0
    library.site.tick(30)
    told = ask("XINFO", "CONSUMERS", mails.stream, "mails")
    assert [one[1::2] for one in told] == [[b"c1", 1, 30, 30], [b"c2", 0, 30, 30]]
    library.read()
    assert len(ask("XINFO", "GROUPS", mails.stream)) == 3


def test_a_consumer_is_known_by_whatever_it_asks_for(library: Library) -> None:
    mails = Subscriber(library, "mails").create()
    ask = library.client.ask
    mails.fellow("c2").read(start="0")
    ask("XCLAIM", mails.stream, "mails", "c3", 0, "1-1")
    ask("XAUTOCLAIM", mails.stream, "mails", "c4", 0, "0")
    told = ask("XINFO", "CONSUMERS", mails.stream, "mails")
    assert [one[1] for one in told] == [b"c2", b"c3", b"c4"]


def test_a_consumer_with_too_long_a_name_is_refused(library: Library) -> None:
    mails = Subscriber(library, "mails").create()
    long = "c" * 1025
    assert library.client.refused("XCLAIM", mails.stream, "mails", long, 0, "1-1")
    assert library.client.refused(*mails.fellow(long).command(1))
    assert library.client.ask("XINFO", "CONSUMERS", mails.stream, "mails") == []


def test_what_is_told_again_counts_as_given_again(library: Library) -> None:
    mails = Subscriber(library, "mails").create()
    library.add()
    mails.read()
    library.site.tick(40)
    mails.read(start="0")
    [row] = library.client.ask("XPENDING", mails.stream, "mails", "-", "+", 9)
    assert row[2:] == [0, 2]


def test_a_group_that_goes_back_reads_what_it_had_acknowledged(library: Library) -> None:
    mails = Subscriber(library, "mails").create()
    library.add()
    library.add()
    [(_, first), (_, second)] = mails.read()
    mails.ack(first)
    library.client.ask("XGROUP", "SETID", mails.stream, "mails", "0")
    # It was given before, and is still to be read again.
    assert mails.ack(second) == 1
    assert mails.ids() == ["1", "2"]
    assert mails.pending()[0] == 2


def test_what_a_forgotten_consumer_had_is_given_to_others(library: Library) -> None:
    mails = Subscriber(library, "mails").create()
    library.add()
    mails.ids()
    other = mails.fellow("c2")
    other.block()
    assert library.client.ask("XGROUP", "DELCONSUMER", mails.stream, "mails", "c1") == 1
    assert other.heard() == ["1"]


def test_a_deleted_stream_takes_its_groups_along(library: Library) -> None:
    mails = Subscriber(library, "mails").create()
    assert library.client.ask("DEL", mails.stream) == 1
    assert library.client.refused(*mails.command(1)).startswith("NOGROUP")


# -- the functions ------------------------------------------------------------------------------


def test_a_run_is_of_one_group_alone(library: Library) -> None:
    mails = Subscriber(library, "mails").create()
    stock = Subscriber(library, "stock").create()
    library.add()
    [(job_id, entry)] = mails.read()
    flat = [value.decode() for value in mails.activate(job_id, entry)]
    fields = dict(zip(flat[::2], flat[1::2], strict=True))
    assert fields["state"] == "active"
    assert fields["data"] == '{"to":"me"}'
    assert fields["processedOn"] == str(library.ts())
    assert mails.complete(job_id, entry) == [b"NEXT_NONE", job_id.encode()]
    assert mails.pending()[0] == 0
    assert library.state(job_id) == "waiting"
    assert stock.ids() == [job_id]
    assert library.events()[-1] == ("completed", job_id)


def test_a_failure_comes_again_to_its_group_alone(library: Library) -> None:
    mails = Subscriber(library, "mails").create()
    stock = Subscriber(library, "stock").create()
    library.add()
    [(job_id, entry)] = mails.read()
    stock.ids()
    assert mails.fail(job_id, entry, attempts=2, backoff=1000) == b"retrying"
    assert mails.attempts(job_id) == b"1"
    assert stock.attempts(job_id) is None
    scheduled = library.key("scheduled")
    due = library.ts() + 1000
    member = b"1||mails"
    assert library.client.ask("ZRANGE", scheduled, 0, -1) == [member]
    assert float(library.client.ask("ZSCORE", scheduled, "1||mails")) == due
    assert library.client.ask("ZSCORE", scheduled, "1||stock") is None
    assert library.client.ask("ZCARD", scheduled) == 1
    assert library.call("nextDue", ["scheduled", "ratelimited"]) == due
    mails.block()
    stock.block(2000)
    library.site.tick(1000)
    [[[_, [[again, fields]]]]] = mails.client.hear()
    assert fields == [b"jobId", b"1", b"name", b"send-email", b"retryGroup", b"mails"]
    assert stock.client.hear() == []
    assert library.client.ask("XLEN", mails.stream) == 1
    assert mails.fail(job_id, again.decode(), attempts=2, backoff=1000) == b"failed"
    assert mails.pending()[0] == 0
    assert library.client.ask("ZCARD", scheduled) == 0
    assert library.state(job_id) == "waiting"
    assert [kind for kind, _ in library.events()][-2:] == ["retrying", "failed"]


def test_promote_goes_by_the_clock_of_the_caller(library: Library) -> None:
    mails = Subscriber(library, "mails").create()
    library.add()
    [(job_id, entry)] = mails.read()
    mails.fail(job_id, entry, attempts=2, backoff=1000)
    assert library.promote(ahead_ms=999) == 0
    assert library.promote(ahead_ms=1000) == 1
    assert mails.ids() == [job_id]


def test_what_consumers_fell_silent_about_is_given_again(library: Library) -> None:
    mails = Subscriber(library, "mails").create()
    library.add()
    [(job_id, _)] = mails.read()
    library.site.tick(600)
    library.client.ask("HSET", library.key("job:1"), "lastActive", library.ts())
    library.site.tick(600)
    assert mails.reclaim(1000) == 0
    library.site.tick(400)
    assert mails.reclaim(1000) == 1
    assert mails.fellow("c2").ids() == [job_id]
    library.site.tick(1000)
    assert mails.reclaim(1000) == 1
    assert mails.ids() == []
    assert [kind for kind, _ in library.events()][-2:] == ["stalled", "failed"]


def test_a_message_is_put_off_within_its_group(library: Library) -> None:
    mails = Subscriber(library, "mails").create()
    library.add()
    [(job_id, entry)] = mails.read()
    parts = ["stream", "job:1"]
    assert library.call("deferActive", parts, job_id, entry, "mails", "1") == 1
    assert library.call("deferActive", parts, job_id, entry, "mails", "1") == 0
    [(job_id, entry)] = mails.read()
    parts = ["job:1", "stream", "scheduled", "events"]
    now = library.ts()
    given = [job_id, entry, now, now + 50, "mails", '{"step":2}', "1"]
    assert library.call("moveActiveToDelayed", parts, *given) == b"ok"
    assert library.call("moveActiveToDelayed", parts, *given) == b"error:not_active"
    mails.block()
    library.site.tick(50)
    assert mails.heard() == [job_id]
    assert library.job("1")["data"] == '{"step":2}'


def test_how_many_more_may_run_is_counted_by_group(library: Library) -> None:
    mails = Subscriber(library, "mails").create()
    library.client.ask("HSET", library.key("meta"), "globalConcurrency", 2)
    library.add()
    mails.ids()
    parts = ["meta", "stream", "list-active"]
    assert library.call("checkConcurrency", parts, "mails") == 1
    assert library.call("checkConcurrency", parts, "workers") == 2


def test_a_message_whose_time_is_over_is_over_for_all(library: Library) -> None:
    mails = Subscriber(library, "mails").create()
    library.add(ttl=1000)
    [(job_id, entry)] = mails.read()
    library.site.now_ms += 1000
    assert mails.activate(job_id, entry) == b"EXPIRED"
    assert library.state(job_id) == "failed"
    assert mails.activate("77", entry) == b""


# -- other doors and workers --------------------------------------------------------------------


def test_a_group_keeps_nobody_from_taking_a_message(library: Library) -> None:
    mails = Subscriber(library, "mails").create()
    stock = Subscriber(library, "stock").create()
    library.add()
    assert mails.ids() == ["1"]
    [(job_id, entry)] = library.read()
    assert stock.ids() == ["1"]
    library.complete(job_id, entry)
    assert library.state("1") == "completed"
    assert Subscriber(library, "more").create("0").ids() == []
    assert mails.entries(start="0")[0][1] is None


# -- restarts -----------------------------------------------------------------------------------


def test_groups_outlive_a_restart(durable: Library) -> None:
    mails = Subscriber(durable, "mails").create()
    Subscriber(durable, "stock").create()
    for _ in range(4):
        durable.add()
    entries = [entry for _, entry in mails.read(3)]
    mails.ack(entries[0])
    mails.ack(entries[2])
    again = Library(durable.site.reboot())
    mails = Subscriber(again, "mails")
    assert mails.ids() == ["2", "4"]
    assert Subscriber(again, "stock").ids() == ["1", "2", "3", "4"]
    mails.ack(*[entry for _, entry in mails.read(start="0")])
    last = Library(again.site.reboot())
    assert Subscriber(last, "mails").ids() == []
    last.add()
    assert Subscriber(last, "mails").ids() == ["5"]


def test_a_late_acknowledgement_counts_after_a_restart(durable: Library) -> None:
    mails = Subscriber(durable, "mails").create()
    durable.add()
    durable.add()
    [(first, entry), (second, other)] = mails.read()
    again = Library(durable.site.reboot())
    mails = Subscriber(again, "mails")
    assert mails.fail(first, entry, attempts=3) == b"retrying"
    assert mails.complete(second, other) == [b"NEXT_NONE", second.encode()]
    assert mails.ids() == [first]
    assert mails.ack(other) == 0


def test_what_is_to_come_again_comes_after_a_restart(durable: Library) -> None:
    mails = Subscriber(durable, "mails").create()
    stock = Subscriber(durable, "stock").create()
    durable.add()
    durable.add()
    for job_id, entry in mails.read():
        mails.fail(job_id, entry, attempts=2, backoff=1000)
    for _, entry in stock.read():
        stock.ack(entry)
    durable.client.ask(
        "XDEL", mails.stream, durable.client.ask("XRANGE", mails.stream, "-", "+")[1][0]
    )
    again = Library(durable.site.reboot(600))
    mails = Subscriber(again, "mails")
    assert mails.attempts("1") == b"1"
    assert mails.ids() == []
    mails.block()
    again.site.tick(400)
    assert mails.heard() == ["1"]
    assert Subscriber(again, "stock").ids() == []
    [(job_id, entry)] = mails.read(start="0")
    mails.complete(job_id, entry)
    last = Library(again.site.reboot(2000))
    assert Subscriber(last, "mails").ids() == []


def test_a_group_that_ended_is_not_there_after_a_restart(durable: Library) -> None:
    mails = Subscriber(durable, "mails").create()
    durable.add()
    durable.add()
    [(job_id, entry), (_, other)] = mails.read()
    mails.ack(other)
    mails.fail(job_id, entry, attempts=2, backoff=10)
    durable.client.ask("XGROUP", "DESTROY", mails.stream, "mails")
    again = Library(durable.site.reboot())
    assert again.client.refused(*mails.command(1)).startswith("NOGROUP")
    assert again.site.yard.queues[again.name].subscriptions is None
