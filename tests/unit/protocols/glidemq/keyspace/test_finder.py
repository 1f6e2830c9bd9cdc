"""Keys that show queues: reads from the current jobs, and writes that have a meaning."""

import pytest

from jobyard.engine.jobs.put import put
from jobyard.engine.jobs.queues import open_queue
from jobyard.model.family import BEANSTALK
from jobyard.model.job import GZIP, JSON, RAW
from tests.support.clients.library import Library
from tests.support.doors.glidemq import BareGlidemq
from tests.support.site.storage import MemoryStorage


@pytest.fixture
def library() -> Library:
    return Library(BareGlidemq())


def test_a_queue_nobody_used_has_no_keys(library: Library) -> None:
    ask = library.client.ask
    parts = (
        "id", "stream", "scheduled", "completed", "failed", "events", "meta", "dedup", "ordering",
        "ratelimited", "lifo", "priority", "list-active", "suspended", "job:1", "log:1", "deps:1",
        "parents:1", "group:k", "groupq:k", "schedulers",
    )  # fmt: skip
    for part in parts:
        assert ask("TYPE", library.key(part)) == b"none", part
        assert ask("EXISTS", library.key(part)) == 0, part
    assert ask("HGETALL", library.key("job:1")) == []
    assert ask("XLEN", library.key("stream")) == 0
    assert ask("ZCARD", library.key("completed")) == 0
    assert ask("ZRANGE", library.key("failed"), 0, -1) == []
    assert ask("SMEMBERS", library.key("deps:1")) == []
    assert ask("LRANGE", library.key("log:1"), 0, -1) == []
    assert ask("GET", library.key("id")) is None
    assert "tasks" not in library.site.yard.queues


def test_kinds_are_as_documented(library: Library) -> None:
    library.add()
    library.add(priority=1)
    library.add(key="k")
    for job_id, entry in library.read():
        library.complete(job_id, entry)
    kinds = {
        "id": "string", "stream": "stream", "scheduled": "zset", "completed": "zset",
        "events": "stream", "job:1": "hash", "ordering": "hash", "group:k": "hash",
    }  # fmt: skip
    for part, kind in kinds.items():
        assert library.client.ask("TYPE", library.key(part)) == kind.encode(), part
    assert library.client.refused("GET", library.key("stream")).startswith("WRONGTYPE")
    assert library.client.refused("XLEN", library.key("job:1")).startswith("WRONGTYPE")


def test_hashes_are_read_in_every_way(library: Library) -> None:
    library.add()
    job = library.key("job:1")
    ask = library.client.ask
    assert ask("HMGET", job, "id", "nothing", "name") == [b"1", None, b"send-email"]
    assert ask("HEXISTS", job, "data") == 1
    assert ask("HLEN", job) == len(ask("HKEYS", job)) == 10
    library.client.speak(3)
    assert ask("HGETALL", job)[b"state"] == b"waiting"


def test_the_stream_is_read_both_ways(library: Library) -> None:
    for _ in range(3):
        library.add()
    library.read()
    stream = library.key("stream")
    ask = library.client.ask
    entries = [entry for entry, _ in ask("XRANGE", stream, "-", "+")]
    assert len(entries) == 3
    assert [entry for entry, _ in ask("XREVRANGE", stream, "+", "-", "COUNT", 2)] == [
        entries[2], entries[1],
    ]  # fmt: skip
    after = b"(" + entries[0]
    assert [entry for entry, _ in ask("XRANGE", stream, after, "+")] == entries[1:]
    assert ask("XINFO", "STREAM", stream)[:2] == [b"length", 3]


def test_progress_data_and_fields_of_their_own_are_set_by_clients() -> None:
    library = Library(BareGlidemq(MemoryStorage()))
    library.add()
    job = library.key("job:1")
    ask = library.client.ask
    assert ask("HSET", job, "progress", "50", "data", '{"b":2}', "fallbackIndex", "1") == 2
    assert ask("HINCRBY", job, "fallbackIndex", 1) == 2
    assert ask("HSET", job, "parentId", "7", "parentQueue", "up") == 2
    # Not a move: what follows from the state is up to the yard.
    ask("HSET", job, "state", "completed", "attemptsMade", "9")
    assert library.read() != []
    library = Library(library.site.reboot())
    shown = library.job("1")
    assert (shown["progress"], shown["data"]) == ("50", '{"b":2}')
    assert (shown["fallbackIndex"], shown["parentId"]) == ("2", "7")
    assert (shown["state"], shown["attemptsMade"]) == ("waiting", "0")
    assert library.client.ask("HDEL", library.key("job:1"), "fallbackIndex", "name") == 1
    assert "fallbackIndex" not in library.job("1")


def test_a_hash_without_a_job_takes_its_id(library: Library) -> None:
    assert library.client.ask("HSET", library.key("job:orphan"), "a", "b") == 1
    assert library.client.ask("HGETALL", library.key("job:orphan")) == [b"a", b"b"]


def test_logs_are_lists(library: Library) -> None:
    library.add()
    log = library.key("log:1")
    assert library.client.ask("RPUSH", log, "one", "two") == 2
    assert library.client.ask("RPUSH", log, "three") == 3
    assert library.client.ask("LRANGE", log, 0, -1) == [b"one", b"two", b"three"]
    assert library.client.ask("LRANGE", log, -1, -1) == [b"three"]
    assert library.client.ask("LLEN", log) == 3


def test_a_deleted_job_is_gone_with_its_entry(library: Library) -> None:
    library.add()
    assert library.client.ask("DEL", library.key("job:1"), library.key("log:1")) == 1
    assert library.client.ask("XLEN", library.key("stream")) == 0


def test_settings_are_a_hash(library: Library) -> None:
    meta = library.key("meta")
    ask = library.client.ask
    assert ask("HSET", meta, "globalConcurrency", 3, "deadLetterQueueName", "dead") == 2
    assert ask("HMGET", meta, "globalConcurrency", "deadLetterQueueName") == [b"3", b"dead"]
    assert ask("HSET", meta, "rateLimitMax", 10, "rateLimitDuration", 1000) == 2
    assert ask("HGET", meta, "rateLimitDuration") == b"1000"
    assert ask("HDEL", meta, "globalConcurrency", "rateLimitMax", "deadLetterQueueName") == 3
    assert ask("HGETALL", meta) == []
    assert library.client.refused("HSET", meta, "globalConcurrency", "many")


def test_scores_are_read_by_range(library: Library) -> None:
    ts = library.ts()
    for delay in (1000, 2000, 3000):
        library.add(delay=delay)
    key = library.key("scheduled")
    ask = library.client.ask
    assert ask("ZRANGEBYSCORE", key, ts + 1000, ts + 2000) == [b"1", b"2"]
    assert ask("ZRANGEBYSCORE", key, f"({ts + 1000}", "+inf") == [b"2", b"3"]
    assert ask("ZRANGE", key, ts, ts + 2500, "BYSCORE", "LIMIT", 0, 1) == [b"1"]
    assert ask("ZRANGE", key, 0, 1, "REV") == [b"3", b"2"]
    assert ask("ZSCORE", key, "9") is None
    library.client.speak(3)
    assert ask("ZRANGE", key, 0, 0, "WITHSCORES") == [[b"1", float(ts + 1000)]]


def test_jobs_at_rest_are_read_by_when_they_ended(library: Library) -> None:
    ts = library.ts()
    for _ in range(3):
        library.add()
        library.complete(*library.read()[0])
        library.site.tick(10)
    ask = library.client.ask
    key = library.key("completed")
    assert ask("ZRANGE", key, 0, -1) == [b"1", b"2", b"3"]
    assert ask("ZREVRANGE", key, 0, 0) == [b"3"]
    assert ask("ZRANGEBYSCORE", key, ts, f"({ts + 20}") == [b"1", b"2"]
    assert ask("ZREVRANGEBYSCORE", key, "+inf", ts + 10) == [b"3", b"2"]
    assert ask("ZCOUNT", key, "-inf", ts + 10) == 2
    assert ask("ZREM", key, "2") == 1
    assert ask("ZRANGE", key, 0, -1) == [b"1", b"3"]
    assert ask("ZRANGE", key, 1, 1) == [b"3"]
    assert ask("ZRANGEBYSCORE", key, "-inf", "+inf") == [b"1", b"3"]


@pytest.mark.parametrize(
    ("low", "high", "found"),
    [
        ("-inf", "+inf", 3),
        ("(0", "+inf", 3),
        ("-5", "1e300", 3),
        ("+inf", "-inf", 0),
        ("1e300", "inf", 0),
        ("-inf", "-1e300", 0),
    ],
)
def test_any_bounds_are_taken_for_scores(library: Library, low: str, high: str, found: int) -> None:
    for _ in range(3):
        library.add(delay=1000)
    assert len(library.client.ask("ZRANGEBYSCORE", library.key("scheduled"), low, high)) == found
    half = library.ts() + 1000
    bounds = (f"{half - 1}.5", f"{half}.5")
    assert library.client.ask("ZCOUNT", library.key("scheduled"), *bounds) == 3
    assert library.client.ask("ZCOUNT", library.key("scheduled"), f"{half}.5", "+inf") == 0


def test_events_are_followed(library: Library) -> None:
    library.add()
    reader = library.site.connect()
    events = library.key("events")
    reader.send("XREAD", "BLOCK", 5000, "COUNT", 100, "STREAMS", events, "$")
    assert reader.hear() == []
    library.add(name="second")
    [answer] = reader.hear()
    assert answer[0][1][0][1] == [b"event", b"added", b"jobId", b"2", b"name", b"second"]
    assert library.client.ask("XADD", events, "*", "event", "progress", "jobId", "2", "data", "1")
    assert library.events()[-1] == ("progress", "2")


def test_events_are_the_newest_thousand(library: Library) -> None:
    for _ in range(1150):
        library.add()
    count = library.client.ask("XLEN", library.key("events"))
    assert 1000 <= count <= 1100
    assert library.events()[-1] == ("added", "1150")


def test_all_keys_are_scanned(library: Library) -> None:
    for _ in range(25):
        library.add()
    library.client.ask("SET", library.key("w:me"), "{}", "PX", 5000)
    found: list[bytes] = []
    cursor = b"0"
    while True:
        pattern = f"{library.p}:*"
        cursor, page = library.client.ask("SCAN", cursor, "MATCH", pattern, "COUNT", 7)
        found += page
        if cursor == b"0":
            break
    assert len(found) == len(set(found))
    jobs = {library.key(f"job:{number}").encode() for number in range(1, 26)}
    assert jobs <= set(found)
    assert library.key("w:me").encode() in found
    assert library.key("stream").encode() in found
    answer = library.client.ask("SCAN", 0, "MATCH", "glide:{other}:*", "COUNT", 100)
    assert answer[1] == []


def test_what_would_mean_nothing_is_refused(library: Library) -> None:
    library.add()
    library.add(delay=1000)
    refused = library.client.refused
    assert refused("SET", library.key("id"), "5")
    assert refused("ZADD", library.key("completed"), 1, "1")
    assert refused("ZREM", library.key("scheduled"), "2")
    assert refused("LPUSH", library.key("priority"), "1")
    assert refused("SADD", library.key("parents:1"), "x")
    assert refused("XADD", library.key("stream"), "*", "jobId", "9")
    assert library.counts()["waiting"] == 1


def test_jobs_of_other_doors_are_shown_too(library: Library) -> None:
    yard = library.site.yard
    queue = open_queue(yard, "tasks")
    put(yard, queue, BEANSTALK, RAW, 1000, 0, 60_000, b"plain", library.site.now_ms)
    shown = library.job("1")
    assert (shown["data"], shown["priority"], shown["state"]) == ('"plain"', "1000", "waiting")
    [(job_id, entry)] = library.read()
    library.complete(job_id, entry)
    assert library.state("1") is None


def test_the_key_of_no_queue_is_kept(library: Library) -> None:
    assert library.client.ask("SADD", "glide:usage:queues", "tasks") == 1
    assert library.client.ask("SMEMBERS", "glide:usage:queues") == [b"tasks"]
    assert library.client.refused("FCALL", "glidemq_healListActive", 1, "glide:usage:queues")


def test_a_job_at_rest_is_taken_out_of_its_list_until_it_ends_again(library: Library) -> None:
    library.add()
    for job_id, entry in library.read():
        library.complete(job_id, entry)
    completed = library.key("completed")
    assert library.client.ask("ZREM", completed, "1", "1", "9") == 1
    assert library.client.ask("ZREM", completed, "1") == 0
    assert library.client.ask("ZCARD", completed) == 0
    assert library.client.ask("ZRANGE", completed, 0, -1) == []
    assert library.client.ask("ZSCORE", completed, "1") is None
    assert library.state("1") == "completed"


def test_a_queue_is_wiped_by_its_keys(library: Library) -> None:
    for given in ({}, {}, {"delay": 1000}, {"priority": 1}, {"lifo": 1}, {"key": "k"}):
        library.add(**given)
    (done, entry), *_ = library.read(count=2)
    library.complete(done, entry)
    library.client.ask("HSET", library.key("meta"), "globalConcurrency", 3)
    parts = (
        "id", "stream", "scheduled", "completed", "failed", "events", "meta", "dedup", "ordering",
        "ratelimited", "lifo", "priority", "list-active", "schedulers", "rate", "xq-pending",
    )  # fmt: skip
    library.client.ask("UNLINK", *library.keys(*parts))
    assert library.client.ask("SCAN", 0, "MATCH", f"{library.p}:*", "COUNT", 1000) == [b"0", []]
    assert "tasks" not in library.site.yard.queues


def test_a_stream_is_trimmed_of_its_oldest(library: Library) -> None:
    for _ in range(3):
        library.add()
    assert library.client.ask("XTRIM", library.key("stream"), "MAXLEN", 1) == 2
    assert [job_id for job_id, _ in library.read(count=3)] == ["3"]


def test_new_data_is_told_to_other_doors_as_what_it_is() -> None:
    library = Library(BareGlidemq(MemoryStorage()))
    library.add(data='{"a":1}')
    job = library.site.yard.jobs.get(1)
    assert job is not None
    library.client.ask("HSET", library.key("job:1"), "data", "gz:AAAA")
    assert (job.codec, job.body) == (GZIP, b"gz:AAAA")
    library = Library(library.site.reboot())
    job = library.site.yard.jobs.get(1)
    assert job is not None
    assert job.codec == GZIP
    library.client.ask("HSET", library.key("job:1"), "data", "[1]")
    assert job.codec == JSON


def test_a_job_of_a_list_that_is_taken_up_again_after_a_restart_is_not_in_the_stream() -> None:
    library = Library(BareGlidemq(MemoryStorage()))
    library.add(lifo=1)
    assert library.call("popLists", ["priority", "lifo"], 1) == [b"1"]
    library = Library(library.site.reboot())
    library.activate("1", "")
    assert library.client.ask("XLEN", library.key("stream")) == 0
    assert library.client.ask("GET", library.key("list-active")) == b"1"
    assert library.client.ask("XRANGE", library.key("stream"), "-", "+") == []
