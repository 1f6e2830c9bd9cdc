"""Commands whose work or answer is long: others are served meanwhile, and order is kept."""

from typing import TYPE_CHECKING, Any

import pytest

from jobyard.engine.glidemq.add import entry_of, find
from tests.support.clients.library import Library
from tests.support.clients.slow_turns import answer, slow
from tests.support.doors.glidemq import BareGlidemq
from tests.support.site.recount import recount
from tests.support.site.storage import MemoryStorage

if TYPE_CHECKING:
    from tests.support.clients.glidemq import GlideClient

JOBS = 600


def filled(count: int = JOBS, **given: object) -> Library:
    """A queue with jobs, of which a turn can read few."""
    library = Library(BareGlidemq(MemoryStorage()))
    for at in range(count):
        library.add(
            **{name: value(at) if callable(value) else value for name, value in given.items()}
        )
    return slow(library)


def finish(site: BareGlidemq) -> int:
    """Run long work to its end; return the number of turns."""
    turns = 1
    while site.slice():
        turns += 1
    return turns


def texts(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(1, count + 1)]


# -- reading -----------------------------------------------------------------------------------


def test_a_whole_stream_is_shown_in_pieces() -> None:
    library = filled()
    entries, turns = answer(library, "XRANGE", library.key("stream"), "-", "+")
    assert [fields[1] for _, fields in entries] == texts(JOBS)
    assert turns > 5
    entries, _ = answer(library, "XREVRANGE", library.key("stream"), "+", "-")
    assert [fields[1] for _, fields in entries] == texts(JOBS)[::-1]


def test_a_page_of_a_long_stream_is_shown_at_once() -> None:
    library = filled()
    entries, turns = answer(library, "XRANGE", library.key("stream"), "-", "+", "COUNT", 3)
    assert [fields[1] for _, fields in entries] == texts(3)
    assert turns == 0


def test_a_stream_whose_jobs_came_back_is_put_in_order_in_pieces() -> None:
    library = Library(BareGlidemq(MemoryStorage()))
    for _ in range(JOBS):
        library.add()
    [(job_id, entry)] = library.read()
    library.call("deferActive", ["stream", "job:1", "list-active"], job_id, entry, "workers")
    slow(library)
    entries, turns = answer(library, "XRANGE", library.key("stream"), "-", "+", "COUNT", 2)
    assert [fields[1] for _, fields in entries] == [b"2", b"3"]
    assert turns > 5
    entries, turns = answer(library, "XREVRANGE", library.key("stream"), "+", "-", "COUNT", 1)
    assert [fields[1] for _, fields in entries] == [b"1"]
    assert turns <= 1


def test_a_schedule_is_put_in_order_in_pieces_and_then_paged() -> None:
    library = filled(delay=lambda at: 10_000 + (at * 7919) % 5000)
    key = library.key("scheduled")
    page, turns = answer(library, "ZRANGE", key, 0, 10, "WITHSCORES")
    assert turns > 5
    scores = [int(score) for score in page[1::2]]
    assert scores == sorted(scores)
    assert len(scores) == 11
    again, turns = answer(library, "ZRANGE", key, 0, 10, "WITHSCORES")
    assert again == page
    assert turns <= 1
    whole, turns = answer(library, "ZRANGE", key, 0, -1, "WITHSCORES")
    assert whole[:22] == page
    assert len(whole) == 2 * JOBS
    assert turns > 3
    least = int(whole[1])
    counted, _ = answer(library, "ZCOUNT", key, least, least + 1000)
    assert counted == len([score for score in whole[1::2] if int(score) <= least + 1000])
    some, _ = answer(library, "ZRANGEBYSCORE", key, f"({least}", "+inf", "LIMIT", 2, 3)
    assert some == whole[6:12:2]
    back, _ = answer(library, "ZREVRANGEBYSCORE", key, "+inf", "-inf", "LIMIT", 1, 2)
    assert back == [whole[-4], whole[-6]]


def test_jobs_at_rest_are_counted_and_told_in_pieces() -> None:
    library = Library(BareGlidemq(MemoryStorage()))
    for _ in range(JOBS):
        library.add()
    for job_id, entry in library.read(count=JOBS):
        library.site.now_ms += 1
        library.complete(job_id, entry)
    slow(library)
    key = library.key("completed")
    told, turns = answer(library, "ZRANGE", key, 0, -1)
    assert told == texts(JOBS)
    assert turns > 3
    end = int(answer(library, "ZSCORE", key, JOBS)[0])
    assert answer(library, "ZCOUNT", key, f"({end - 10}", "+inf")[0] == 10
    assert answer(library, "ZREVRANGE", key, 0, 1)[0] == texts(JOBS)[:-3:-1]
    assert answer(library, "ZSCAN", key, 0, "MATCH", "11*")[0][1][::2] == [b"11", *(
        b"%d" % number for number in range(110, 120)
    )]  # fmt: skip


def test_a_pop_that_is_refused_looks_at_nothing() -> None:
    library = filled(delay=5000)
    before = int(library.site.yard.tasks.units_done)
    assert "cannot be changed this way" in library.client.refused(
        "ZPOPMIN", library.key("scheduled"), JOBS
    )
    assert int(library.site.yard.tasks.units_done) == before
    assert answer(library, "ZCARD", library.key("scheduled"))[0] == JOBS


def test_all_keys_are_found_in_pieces_and_counted_alike() -> None:
    library = filled(200)
    for number in range(40):
        library.client.ask("HSET", f"glide:{{q{number}}}:meta", "note", "x")
        library.client.ask("SET", library.key(f"w:{number}"), "x")
    found, turns = answer(library, "KEYS", "*")
    assert turns > 5
    assert len(set(found)) == len(found)
    assert answer(library, "DBSIZE")[0] == len(found)
    told: set[bytes] = set()
    cursor = b"0"
    while True:
        (cursor, names), _ = answer(library, "SCAN", cursor, "COUNT", 50)
        told |= set(names)
        if cursor == b"0":
            break
    assert told == set(found)


def test_a_hash_of_many_fields_is_shown_in_pieces() -> None:
    library = filled(1)
    fields = [f"f{number}" for number in range(1000)]
    flat = [word for field in fields for word in (field, "x")]
    library.client.ask("HSET", library.key("schedulers"), *flat)
    told, turns = answer(library, "HGETALL", library.key("schedulers"))
    assert told == [word.encode() for word in flat]
    assert turns > 3
    assert answer(library, "HKEYS", library.key("schedulers"))[0] == told[::2]


def test_who_comes_and_goes_meanwhile_leaves_the_answer_whole() -> None:
    library = filled()
    other = Library(library.site)
    library.client.send("XRANGE", library.key("stream"), "-", "+")
    for _ in range(20):
        other.add()
        other.complete(*other.read()[0])
        library.site.slice()
    finish(library.site)
    [entries] = library.client.hear()
    told = [fields[1] for _, fields in entries]
    assert len(set(told)) == len(told)
    assert set(texts(JOBS)[20:]) <= set(told)


# -- changing ----------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["stream", "scheduled", "trim", "drain", "completed"])
def test_many_jobs_are_removed_in_pieces(how: str) -> None:
    library = Library(BareGlidemq(MemoryStorage()))
    for _ in range(JOBS):
        library.add(delay=5000 if how == "scheduled" else 0)
    if how == "completed":
        for job_id, entry in library.read(count=JOBS):
            library.complete(job_id, entry)
    slow(library)
    other = library.site.connect()
    keys = {"trim": "stream", "drain": "stream"}
    key = library.key(keys.get(how, how))
    if how == "trim":
        told, turns = answer(library, "XTRIM", key, "MAXLEN", 5)
        assert (told, other.ask("XLEN", key)) == (JOBS - 5, 5)
    elif how == "drain":
        parts = library.keys("stream", "scheduled", "events", "id")
        words = ("FCALL", "glidemq_drain", 4, *parts, "0", "workers")
        told, turns = answer(library, *words)
        assert (told, other.ask("XLEN", key)) == (JOBS, 0)
        [(_, fields)], _ = answer(library, "XREVRANGE", library.key("events"), "+", "-", "COUNT", 1)
        assert fields == [b"event", b"drained", b"jobId", b"%d" % JOBS]
    else:
        told, turns = answer(library, "DEL", key)
        assert (told, other.ask("EXISTS", key)) == (1, 0)
    assert turns > 10
    recount(library.site.yard)


def test_dead_jobs_are_retried_and_cleaned_in_pieces() -> None:
    library = Library(BareGlidemq(MemoryStorage()))
    for _ in range(JOBS):
        library.add()
    for job_id, entry in library.read(count=JOBS):
        library.site.now_ms += 1
        library.fail(job_id, entry)
    slow(library)
    keys = library.keys("failed", "events", "id")
    cutoff = library.ts() - 100
    gone, turns = answer(library, "FCALL", "glidemq_clean", 3, *keys, cutoff, 9999)
    assert gone == texts(JOBS - 100)
    assert turns > 10
    keys = library.keys("failed", "scheduled", "events", "id")
    assert answer(library, "FCALL", "glidemq_retryJobs", 4, *keys, 30, library.ts())[0] == 30
    assert answer(library, "FCALL", "glidemq_retryJobs", 4, *keys, 0, library.ts())[0] == 70
    assert library.counts()["scheduled"] == 100
    recount(library.site.yard)


def test_a_name_is_searched_for_in_pieces() -> None:
    library = filled(name=lambda at: "rare" if at == JOBS - 1 else "send-email")
    words = ("FCALL", "glidemq_searchByName", 1, library.key("stream"), "stream", "rare", 5, "")
    found, turns = answer(library, *words)
    assert found == [b"%d" % JOBS]
    assert turns > 0


def test_commands_behind_it_wait_for_its_end() -> None:
    library = filled()
    client = library.client
    client.send("DEL", library.key("stream"))
    client.send("XLEN", library.key("stream"))
    client.send("PING")
    assert client.take_unread() == b""
    finish(library.site)
    assert client.hear() == [1, 0, b"PONG"]


def test_a_long_answer_before_one_that_waits_leaves_both_whole() -> None:
    library = filled()
    client = library.client
    raw = b"*2\r\n$4\r\nECHO\r\n$100000\r\n" + b"x" * 100_000 + b"\r\n"
    key = library.key("stream").encode()
    client.feed(raw + b"*2\r\n$3\r\nDEL\r\n$%d\r\n%b\r\n" % (len(key), key))
    assert client.hear() == [b"x" * 100_000]
    finish(library.site)
    assert client.hear() == [1]
    out = client.session.out
    assert client.ask("ECHO", "x" * 100_000) == b"x" * 100_000
    assert client.session.out is not out, "its room was kept"


def test_a_connection_that_goes_lets_changes_be_made() -> None:
    library = filled()
    library.client.send("DEL", library.key("stream"))
    library.client.close()
    finish(library.site)
    assert library.site.yard.tasks.count() == 0
    assert library.site.connect().ask("EXISTS", library.key("stream")) == 0


def test_the_event_of_a_drain_is_told_though_its_connection_goes() -> None:
    library = filled()
    parts = library.keys("stream", "scheduled", "events", "id")
    library.client.send("FCALL", "glidemq_drain", 4, *parts, "0", "workers")
    library.client.close()
    finish(library.site)
    other = library.site.connect()
    [(_, fields)] = other.ask("XREVRANGE", library.key("events"), "+", "-", "COUNT", 1)
    assert fields == [b"event", b"drained", b"jobId", b"%d" % JOBS]


def test_a_connection_that_goes_takes_its_reading_along() -> None:
    library = filled()
    library.client.send("XRANGE", library.key("stream"), "-", "+")
    assert library.site.yard.tasks.count() == 1
    library.client.close()
    assert library.site.yard.tasks.count() == 0


def test_what_was_found_for_a_connection_that_goes_is_freed_over_turns() -> None:
    library = filled(3000)
    tasks = library.site.yard.tasks
    library.client.send("XRANGE", library.key("stream"), "-", "+")
    for _ in range(5):
        library.site.slice()
    library.client.close()
    assert tasks.count() == 1
    assert finish(library.site) > 1
    assert tasks.count() == 0


@pytest.mark.parametrize(
    ("name", "part", "rest"),
    [("XRANGE", "stream", ("-", "+")), ("ZRANGE", "scheduled", ("0", "-1")), ("KEYS", "*", ())],
)
def test_what_was_not_told_of_an_answer_is_freed_over_turns(
    name: str, part: str, rest: tuple[str, ...]
) -> None:
    library = filled(3000, delay=9000 if name == "ZRANGE" else 0)
    tasks = library.site.yard.tasks
    library.client.send(name, library.key(part), *rest)
    while not library.client.take_unread():
        library.site.slice()
    library.client.close()
    assert tasks.count() == 1
    assert finish(library.site) > 1
    assert tasks.count() == 0


def test_who_wants_no_answer_gets_none() -> None:
    library = filled()
    client = library.client
    client.send("CLIENT", "REPLY", "SKIP")
    client.send("XRANGE", library.key("stream"), "-", "+")
    client.send("PING")
    finish(library.site)
    assert client.hear() == [b"PONG"]


def test_a_peer_that_has_sent_its_last_is_answered() -> None:
    library = filled()
    client: GlideClient = library.client
    client.send("XLEN", library.key("stream"))
    client.hear()
    client.send("DEL", library.key("stream"))
    client.session.end_input(library.site.now_ms)
    assert not client.session.is_finished
    finish(library.site)
    assert client.hear() == [1]
    assert client.session.is_finished


# -- transactions ------------------------------------------------------------------------------


def exec_of(library: Library, *commands: tuple[object, ...]) -> list[Any]:
    client = library.client
    client.send("MULTI")
    for command in commands:
        client.send(*command)
    client.take_unread()
    client.send("EXEC")
    [answers] = client.hear()
    return list(answers)


def test_a_transaction_is_run_in_one_piece_or_refused() -> None:
    library = filled(3000)
    stream = library.key("stream")
    answers = exec_of(
        library,
        ("XRANGE", stream, "-", "+", "COUNT", 2),
        ("DEL", stream),
        ("XLEN", stream),
        ("XTRIM", stream, "MAXLEN", 2990),
        ("XLEN", stream),
    )
    assert [fields[1] for _, fields in answers[0]] == texts(2)
    assert "too much work for a transaction" in str(answers[1])
    assert answers[2:] == [3000, 10, 2990]
    assert library.site.yard.tasks.count() == 0
    for _ in range(3):
        answers = exec_of(library, ("XRANGE", stream, "-", "+"), ("XRANGE", stream, "-", "+"))
        assert len(answers[0]) == 2990
        assert "too much work for a transaction" in str(answers[1])


def test_the_answers_of_a_transaction_are_bounded() -> None:
    library = filled(1)
    library.client.ask("SET", library.key("w:1"), "x" * (6 << 20))
    answers = exec_of(library, *[("GET", library.key("w:1"))] * 4)
    assert [len(answer) for answer in answers[:2]] == [6 << 20] * 2
    assert all("at most" in str(answer) for answer in answers[2:])


# -- what needs an order -----------------------------------------------------------------------


def out_of_order() -> Library:
    """A long stream with a job that came back to its end."""
    library = Library(BareGlidemq(MemoryStorage()))
    for _ in range(2500):
        library.add()
    [(job_id, entry)] = library.read()
    library.call("deferActive", ["stream", "job:1", "list-active"], job_id, entry, "workers")
    return slow(library)


def test_entries_are_deleted_once_they_are_in_order() -> None:
    library = out_of_order()
    job = find(library.site.yard, library.site.yard.queues["tasks"], "1")
    assert job is not None
    last = entry_of(job)
    told, turns = answer(library, "XDEL", library.key("stream"), last)
    assert (told, library.state("1")) == (1, None)
    assert turns > 20


def test_a_stream_is_read_some_at_a_time_once_it_is_in_order() -> None:
    library = out_of_order()
    [[_, entries]], turns = answer(library, "XREAD", "STREAMS", library.key("stream"), "0")
    assert [fields[1] for _, fields in entries] == texts(1001)[1:]
    assert turns > 20
    last = library.client.ask("XREVRANGE", library.key("stream"), "+", "-", "COUNT", 1)[0][0]
    library.client.send("XREAD", "BLOCK", 5000, "STREAMS", library.key("stream"), last)
    assert library.client.hear() == []
    Library(library.site).add()
    library.site.settle()
    [[[_, entries]]] = library.client.hear()
    assert [fields[1] for _, fields in entries] == [b"2501"]


def test_a_long_list_is_put_in_order_over_turns() -> None:
    library = filled(lifo=1)
    key = library.key("lifo")
    ids = [b"%d" % at for at in range(1, JOBS + 1)]
    found, turns = answer(library, "LRANGE", key, 0, -1)
    assert (found, turns > 10) == (ids, True)
    assert answer(library, "LRANGE", key, -3, 10**6)[0] == ids[-3:]
    assert answer(library, "LRANGE", key, 5, 4)[0] == []
    assert answer(library, "LINDEX", key, -1)[0] == ids[-1]
    assert answer(library, "LINDEX", key, JOBS)[0] is None


def test_a_long_list_shows_no_jobs_that_were_taken_meanwhile() -> None:
    library = filled(lifo=1)
    client = library.client
    client.send("LINDEX", library.key("lifo"), -1)
    other = Library(library.site)
    assert other.call("popLists", ["priority", "lifo"], 1) == [b"%d" % JOBS]
    finish(library.site)
    assert client.hear() == [None]
