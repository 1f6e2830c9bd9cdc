import json
from collections.abc import Callable, Iterator

import pytest

from jobyard.engine.jobs.dead_letters import dead_letters_for, read_dead_letter
from jobyard.engine.jobs.finish import fail
from jobyard.engine.jobs.move import make_dead, remove
from jobyard.engine.jobs.take import take, take_job
from jobyard.engine.logs.logs import append, open_log, read
from jobyard.engine.state.history import read_history
from jobyard.engine.topics import topic_queue
from jobyard.errors import NotFound
from jobyard.journal.bodies import ERROR_SIZE_SHORT
from jobyard.model.job import DEAD, DELAYED, GONE, READY
from jobyard.model.topic.config import read_config
from jobyard.model.topic.history_row import CLAIMED, DEAD_LETTERED, ENQUEUED, HistoryRow
from jobyard.model.topic.log import LogQuery, LogRecord, TopicFull, WriteTooLarge
from tests.support.engine.topics import Topic, config, record
from tests.support.site.recount import recount
from tests.support.site.site import ALL_HISTORY, TOKEN_TERMS
from tests.support.site.storage import MemoryStorage

POISON = config(max_deliveries=2, dead_letter="t.dlq", lease_ms=100)


def letters(site: Topic) -> list[dict[str, object]]:
    """Return the records of the log of dead letters."""
    log = site.yard.logs.get("t.dlq")
    if log is None:
        return []
    page = read(site.yard, log, LogQuery(0, 100, 1 << 20, include_tags=True), site.now_ms)
    found: list[dict[str, object]] = json.loads(b"[" + b"".join(page.records) + b"]")
    return found


def wear_out(site: Topic, times: int = 2) -> None:
    """Deliver the first job this many times, and let every lease expire."""
    for _ in range(times):
        assert site.claimed(lease_ms=100) == [1]
        site.jump(100)


def test_a_job_that_was_delivered_too_often_becomes_a_letter_within_the_next_claim() -> None:
    site = Topic(MemoryStorage(), given=POISON)
    site.produce(topic_queue.NewRecord(b'{"a":1}', b'{"m": 2}', "tag", "node"), record(b"2"))
    wear_out(site)
    assert site.counts() == (2, 0, 0, 2)
    assert site.claimed(most=9) == [2]
    assert site.seqs() == [2]
    (letter,) = letters(site)
    assert letter["data"] == {"a": 1}
    assert (letter["$tag"], letter["$node"]) == ("tag", "node")
    assert letter["meta"] == {
        "m": 2,
        "$dead_letter_from": "t",
        "$dead_letter_deliveries": "2",
        "$dead_letter_src_seq": "1",
        "$dead_letter_job_id": "1",
        "$dead_letter_reason": "max_deliveries",
    }
    assert topic_queue.counts(site.t).dead_lettered == 1
    recount(site.yard)


def test_without_a_log_for_them_or_a_limit_jobs_are_delivered_for_ever() -> None:
    for given in (config(max_deliveries=2), config(dead_letter="t.dlq")):
        site = Topic(given=given)
        site.write(b"1")
        wear_out(site, 5)


def test_a_queue_that_has_the_name_of_the_letters_keeps_them_out() -> None:
    site = Topic(given=POISON)
    site.queue("t.dlq").is_pinned = True
    site.write(b"1")
    wear_out(site, 5)


def test_a_waiting_stream_gets_the_next_job_instead() -> None:
    site = Topic(given=POISON)
    site.write(b"1")
    wear_out(site)
    _, inbox = site.stream()
    assert inbox.seqs() == []
    assert len(letters(site)) == 1
    site.write(b"2")
    assert inbox.seqs() == [2]


def test_a_full_log_keeps_the_job_delayed_until_there_is_room() -> None:
    site = Topic(given=POISON)
    full = read_config({"cap_records": 1, "discard": "reject"})
    log = open_log(site.yard, "t.dlq", full, site.now_ms)
    site.write(b"1", b"2")
    wear_out(site)
    assert site.claimed(lease_ms=100) == [2]
    assert len(letters(site)) == 1
    site.jump(100)
    assert site.claimed(lease_ms=100) == [2]
    site.jump(100)
    assert site.claim() == []
    job = site.peek()[0]
    assert (job.key, job.state, job.due_ms) == (2, DELAYED, site.now_ms + 1000)
    site.jump(1000)
    assert site.claim() == []
    log.config = read_config({})
    site.jump(1000)
    assert site.claim() == []
    assert len(letters(site)) == 2
    assert site.seqs() == []


def test_jobs_of_beanstalk_become_letters_and_those_of_bunqueue_do_not() -> None:
    site = Topic(given=config(max_deliveries=1, dead_letter="t.dlq", lease_ms=100))
    site.put(b"text", "t")
    site.put(b"\xff", "t")
    site.put(b'{"a" : 1}', "t")
    site.enter(b"\xc0", "t")
    for _ in range(2):
        site.claim(most=9, lease_ms=100)
        site.jump(100)
    assert site.seqs() == [4]
    assert [letter["data"] for letter in letters(site)] == ["text", {"$base64": "/w=="}, {"a": 1}]


def test_a_job_that_another_door_gives_up_becomes_a_letter() -> None:
    site = Topic(MemoryStorage(), given=POISON)
    site.write(b"1", b"2", b"3")
    client = site.connect()
    client.say(b"watch t\r\n")
    client.say(b"reserve\r\n")
    assert client.say(b"bury 1 0\r\n") == b"BURIED\r\n"
    lease = take(site.yard, [site.t], site.lease_set, TOKEN_TERMS, site.now_ms)
    assert lease is not None
    fail(site.yard, lease.job, "no", site.now_ms, is_final=True)
    make_dead(site.yard, site.peek()[0], "no", site.now_ms)
    assert [letter["data"] for letter in letters(site)] == [1, 2, 3]
    assert site.seqs() == []
    recount(site.yard)


def test_a_node_whose_last_job_became_a_letter_is_dropped() -> None:
    site = Topic(given=POISON)
    site.write(b"1", b"2")
    site.claim(most=2)
    topic_queue.give_up(site.yard, site.t, "w", [1], None, site.now_ms)
    assert list(site.yard.nodes) == ["w"]
    topic_queue.give_up(site.yard, site.t, "w", [2], None, site.now_ms)
    assert len(letters(site)) == 2
    assert site.yard.nodes == {}


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b"NaN", "NaN"),
        (b'{"a":-Infinity}', '{"a":-Infinity}'),
        (b"\xef\xbb\xbf1", "\ufeff1"),
        (b'"\xed\xa0\x80"', {"$base64": "Iu2ggCI="}),
        ('{"a":1}'.encode("utf-16"), {"$base64": "//57ACIAYQAiADoAMQB9AA=="}),
        ("[1]".encode("utf-16-le"), "[\x001\x00]\x00"),
        ("1".encode("utf-32-le"), "1\x00\x00\x00"),
        (b"[" * 100_000, "[" * 100_000),
        (b"[" * 100_000 + b"]" * 100_000, "[" * 100_000 + "]" * 100_000),
    ],
)
def test_what_only_resembles_json_becomes_a_string_in_a_letter(body: bytes, shown: object) -> None:
    site = Topic(given=config(max_deliveries=1, dead_letter="t.dlq", lease_ms=100))
    site.put(body, "t")
    wear_out(site, 1)
    assert site.claim() == []
    assert [letter["data"] for letter in letters(site)] == [shown]


def test_a_job_that_was_taken_too_often_cannot_be_taken_by_name() -> None:
    site = Topic(given=POISON)
    site.write(b"1")
    wear_out(site)
    with pytest.raises(NotFound):
        take_job(site.yard, 1, site.lease_set, TOKEN_TERMS, site.now_ms)
    assert len(letters(site)) == 1


def test_a_letter_stays_dead_where_the_log_cannot_be_written_to() -> None:
    site = Topic(given=POISON)
    open_log(site.yard, "t.dlq", read_config({"cap_bytes": 1, "discard": "reject"}), site.now_ms)
    site.write(b"111")
    client = site.connect()
    client.say(b"watch t\r\n")
    client.say(b"reserve\r\n")
    job = site.peek()[0]
    client.say(b"bury 1 0\r\n")
    assert job.state == DEAD


def test_letters_are_written_again_as_jobs_that_were_never_delivered() -> None:
    site = Topic(MemoryStorage(), given=POISON)
    data = b'{"n":1.50,"t":"\\u00e9"}'
    site.produce(
        topic_queue.NewRecord(data, b'{"m":2}', 't"ag', "nöde"), record(b"2"), record(b"3")
    )
    for _ in range(3):
        site.claim(most=3, lease_ms=100)
        site.jump(100)
    log = site.yard.logs["t.dlq"]
    assert dead_letters_for(site.yard, log, "t", 9) == [1, 2, 3]
    assert dead_letters_for(site.yard, log, "other", 9) == []
    assert topic_queue.redrive(site.yard, site.t, 2, site.now_ms) == 2
    assert [letter["data"] for letter in letters(site)] == [3]
    one, two = site.peek()
    assert (one.key, one.body, one.deliveries, one.state) == (4, data, 0, READY)
    record_meta = topic_queue.record_meta_of(one)
    assert record_meta is not None
    assert (record_meta.tag, record_meta.node, record_meta.meta) == ('t"ag', "nöde", b'{"m":2}')
    assert (two.body, topic_queue.record_meta_of(two)) == (b"2", None)
    assert topic_queue.redrive(site.yard, site.t, 9, site.now_ms) == 1
    assert topic_queue.redrive(site.yard, site.t, 9, site.now_ms) == 0
    for _ in range(3):
        site.claim(most=3, lease_ms=100)
        site.jump(100)
    assert len(letters(site)) == 3
    recount(site.yard)


def test_a_letter_larger_than_its_queue_holds_up_no_other() -> None:
    site = Topic(given=POISON)
    site.write(b'"' + b"x" * 300 + b'"', b"2")
    for _ in range(3):
        site.claim(most=3, lease_ms=100)
        site.jump(100)
    tight = config(dead_letter="t.dlq", cap_bytes=200)
    topic_queue.set_queue_config(site.yard, site.t, tight, site.now_ms)
    assert topic_queue.redrive(site.yard, site.t, 9, site.now_ms) == 1
    with pytest.raises(WriteTooLarge):
        topic_queue.redrive(site.yard, site.t, 9, site.now_ms)
    assert len(letters(site)) == 1
    recount(site.yard)


def test_letters_stay_where_a_queue_has_no_room_for_them() -> None:
    site = Topic(given=POISON)
    site.write(b"1", b"2")
    for _ in range(3):
        site.claim(most=3, lease_ms=100)
        site.jump(100)
    tight = config(dead_letter="t.dlq", cap_records=1, discard="reject")
    topic_queue.set_queue_config(site.yard, site.t, tight, site.now_ms)
    assert topic_queue.redrive(site.yard, site.t, 9, site.now_ms) == 1
    with pytest.raises(TopicFull):
        topic_queue.redrive(site.yard, site.t, 9, site.now_ms)
    assert len(letters(site)) == 1


def test_a_letter_of_a_letter_tells_where_it_came_from_last() -> None:
    site = Topic(given=POISON)
    site.produce(topic_queue.NewRecord(b"1", b'{"$dead_letter_from":"x","k":"\\u00e9"}'))
    wear_out(site)
    assert site.claim() == []
    (letter,) = letters(site)
    assert letter["meta"] == {
        "$dead_letter_from": "t",
        "k": "é",
        "$dead_letter_deliveries": "2",
        "$dead_letter_src_seq": "1",
        "$dead_letter_job_id": "1",
        "$dead_letter_reason": "max_deliveries",
    }
    letter_read = read_dead_letter(site.yard, site.yard.logs["t.dlq"], 1)
    assert letter_read.record.meta == b'{"k":"\\u00e9"}'


def test_an_empty_meta_is_no_less_an_object() -> None:
    site = Topic(given=POISON)
    site.produce(topic_queue.NewRecord(b"1", b" { } "))
    job = site.peek()[0]
    wear_out(site)
    assert site.claim() == []
    assert job.state == GONE
    (letter,) = letters(site)
    meta = letter["meta"]
    assert isinstance(meta, dict)
    assert len(meta) == 5


def test_after_a_crash_there_is_the_job_or_the_letter_never_both() -> None:
    for filler in range(0, 3000, 101):
        site = Topic(MemoryStorage(), given=POISON, segment_size=1 << 13)
        site.write(b'"' + b"x" * 200 + b'"')
        site.write(b'"' + b"y" * filler + b'"')
        wear_out(site)
        site.commit()
        assert site.memory is not None
        before = site.memory.cut_off()
        assert site.claimed() == [2]
        for storage in cuts(site, before):
            after = Topic(storage, site.now_ms, segment_size=1 << 13)
            recount(after.yard)
            assert (1 in after.seqs()) == (letters(after) == [])
        again = site.after_a_crash()
        assert again.seqs() == [2]
        assert len(letters(again)) == 1


def cuts(site: Topic, before: MemoryStorage) -> Iterator[MemoryStorage]:
    """Return what a crash leaves at every step of the next commit."""
    assert site.memory is not None
    yield before
    site.journal.seal_batch()
    for _ in range(len(site.journal.pending)):
        one = site.journal.pending.pop(0)
        site.memory.write(one.segment.name, one.offset, b"".join(one.pieces))
        site.memory.sync(one.segment.name)
        yield site.memory.cut_off()


def test_letters_survive_a_restart_with_all_that_is_said_of_them() -> None:
    site = Topic(MemoryStorage(), given=POISON)
    site.produce(topic_queue.NewRecord(b'{"a":1}', b'{"m": 2}', "tag", "node"))
    wear_out(site)
    site.claim()
    found = letters(site)
    site = site.after_a_crash()
    assert letters(site) == found
    assert topic_queue.counts(site.t).dead_lettered == 1
    assert topic_queue.redrive(site.yard, site.t, 9, site.now_ms) == 1
    site = site.after_a_crash()
    assert letters(site) == []
    assert site.seqs() == [2]


def events_of(site: Topic, name: str) -> list[HistoryRow]:
    site.commit()
    return [row for row in read_history(site.yard, 0, 100).rows if row.event == name]


def test_the_error_of_a_nack_is_kept_with_the_job_and_goes_into_its_letter() -> None:
    storage = MemoryStorage()
    site = Topic(storage, given=POISON, window=ALL_HISTORY)
    site.write(b"1")
    for error in ("first", "no \N{SNOWMAN}"):
        assert site.claimed() == [1]
        topic_queue.nack(site.yard, site.t, "w", [1], None, -1, site.now_ms, error=error)
        recount(site.yard)
    assert [row.error for row in events_of(site, "released")] == ["first", "no \N{SNOWMAN}"]
    site = Topic(storage.cut_off(), given=POISON, window=ALL_HISTORY)
    job = site.peek()[0]
    assert job.details is not None
    assert job.details.last_error == "no \N{SNOWMAN}"
    recount(site.yard)
    assert site.claim() == []
    (letter,) = letters(site)
    meta = letter["meta"]
    assert isinstance(meta, dict)
    assert meta["$dead_letter_error"] == "no \N{SNOWMAN}"
    (row,) = events_of(site, DEAD_LETTERED)
    assert (row.state, row.deliveries, row.lease, row.reason) == ("gone", 2, 0, "max_deliveries")
    assert (row.error, row.letter_topic, row.letter_seq) == ("no \N{SNOWMAN}", "t.dlq", 1)
    assert (row.job_id, row.queue_seq, row.enqueued_ms > 0) == (job.id, 1, True)
    recount(site.yard)


def test_a_job_that_is_given_up_ends_its_run_as_a_letter() -> None:
    site = Topic(MemoryStorage(), given=POISON, window=ALL_HISTORY)
    site.write(b"1", b"2")
    assert site.claimed(most=2) == [1, 2]
    topic_queue.give_up(site.yard, site.t, "w", [1], None, site.now_ms, error="poison")
    topic_queue.give_up(site.yard, site.t, "w", [2], None, site.now_ms)
    rows = events_of(site, DEAD_LETTERED)
    claims = events_of(site, CLAIMED)
    assert [(row.lease, row.holder, row.worker) for row in rows] == [
        (row.lease, row.holder, row.worker) for row in claims
    ]
    assert [(row.reason, row.error, row.letter_seq) for row in rows] == [
        *[("given_up", "poison", 1), ("given_up", "", 2)],
    ]
    metas = [letter["meta"] for letter in letters(site)]
    assert [isinstance(meta, dict) and meta.get("$dead_letter_error") for meta in metas] == [
        *["poison", None],
    ]


def test_a_job_without_a_log_for_letters_keeps_the_error_it_was_given_up_with() -> None:
    storage = MemoryStorage()
    site = Topic(storage, window=ALL_HISTORY)
    site.write(b"1")
    site.claim()
    topic_queue.give_up(site.yard, site.t, "w", [1], None, site.now_ms, error="poison")
    assert [(row.state, row.error) for row in events_of(site, "buried")] == [("dead", "poison")]
    site = Topic(storage.cut_off(), window=ALL_HISTORY)
    job = site.yard.jobs.get(1)
    assert job is not None
    assert job.details is not None
    assert (job.state, job.details.last_error) == (DEAD, "poison")


def test_a_redriven_job_says_which_job_it_was() -> None:
    storage = MemoryStorage()
    site = Topic(storage, given=POISON, window=ALL_HISTORY)
    site.write(b"1", b"2")
    job = site.peek()[1]
    site.claimed(most=2)
    topic_queue.give_up(site.yard, site.t, "w", [2], None, site.now_ms, error="poison")
    assert topic_queue.redrive(site.yard, site.t, 9, site.now_ms) == 1
    first, second, again = events_of(site, ENQUEUED)
    assert (first.origin_id, second.origin_queue) == (0, "")
    assert (again.origin_id, again.origin_queue) == (job.id, "t")
    site = Topic(storage.cut_off(), given=POISON, window=ALL_HISTORY)
    back = site.yard.jobs.get(again.job_id)
    assert back is not None
    assert back.details is not None
    assert back.details.origin is not None
    assert (back.details.origin.job_id, back.details.origin.queue) == (job.id, "t")
    recount(site.yard)


def test_the_origin_of_a_letter_that_a_client_wrote_is_not_trusted() -> None:
    site = Topic(MemoryStorage(), given=POISON, window=ALL_HISTORY)
    log = open_log(site.yard, "t.dlq", read_config({}), site.now_ms)
    for number in ('"7"', '"-7"', "8", '"' + "9" * 40 + '"', "[]", '"\u0661"'):
        meta = b'{"$dead_letter_from":"t","$dead_letter_job_id":%b}' % number.encode()
        append(site.yard, log, [LogRecord(b"1", meta)], "", site.now_ms)
    assert topic_queue.redrive(site.yard, site.t, 9, site.now_ms) == 6
    assert [row.origin_id for row in events_of(site, ENQUEUED)] == [7, 0, 8, 0, 0, 0]


def test_labels_in_a_letter_that_a_client_wrote_are_checked() -> None:
    site = Topic(MemoryStorage(), given=POISON)
    log = open_log(site.yard, "t.dlq", read_config({}), site.now_ms)
    labels = ('"a\\ud800"', "7", '"' + "x" * 257 + '"', '"b"')
    for label in labels:
        meta = (
            f'{{"$dead_letter_from":"t","$dead_letter_name":{label},'
            f'"$dead_letter_client_id":{label},"$dead_letter_max_attempts":"-1"}}'
        )
        append(site.yard, log, [LogRecord(b"1", meta.encode())], "", site.now_ms)
    assert topic_queue.redrive(site.yard, site.t, 9, site.now_ms) == 4
    jobs = site.peek()
    ids = ["" if job.details is None else job.details.custom_id for job in jobs]
    assert ids == ["a?", "", "", "b"]
    assert [job.policy.name for job in jobs] == ["a?", "default", "default", "b"]
    assert {int(job.policy.max_attempts) for job in jobs} == {0}


@pytest.mark.parametrize("end", [topic_queue.nack, topic_queue.give_up])
def test_many_long_errors_do_not_fill_the_memory(end: Callable[..., object]) -> None:
    site = Topic(MemoryStorage(), budget=5000)
    site.write(*[b"1"] * 20)
    assert len(site.claimed(most=20)) == 20
    error = "x" * 1000
    delay = () if end is topic_queue.give_up else (-1,)
    seqs = list(range(1, 21))
    end(site.yard, site.t, "w", seqs, None, *delay, site.now_ms, error=error)
    assert site.yard.bodies.pinned <= 5000 + 20 * ERROR_SIZE_SHORT
    kept = {len(job.details.last_error) for job in site.peek() if job.details is not None}
    assert kept == {1000, ERROR_SIZE_SHORT}
    recount(site.yard)
    for job in site.peek():
        remove(site.yard, job, site.now_ms)
    assert site.yard.bodies.pinned == 0
