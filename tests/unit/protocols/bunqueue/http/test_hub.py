"""Streams of events: what is sent, to which client, in which order, and what is sent again."""

import json

import pytest

from jobyard.model.secrets import digest_of
from jobyard.protocols.bunqueue.http.hub import (
    BEAT_MS,
    COUNTS_MAX,
    COUNTS_MS,
    EVENT_STREAMS_MAX,
    QUEUES_PER_MS,
    RING_SIZE,
    STREAM_LINGER_MS,
)
from jobyard.protocols.session import OUTPUT_MAX
from tests.support.clients.bunqueue import BunqueueClient
from tests.support.clients.http import EventSource
from tests.support.doors.http import BareHttp
from tests.support.site.storage import MemoryStorage


@pytest.fixture
def site() -> BareHttp:
    return BareHttp()


@pytest.fixture
def tcp(site: BareHttp) -> BunqueueClient:
    return site.connect()


def names_of(source: EventSource) -> list[str]:
    return [block["event"] for block in source.blocks() if "event" in block]


# -- the stream --------------------------------------------------------------------------------


def test_a_stream_begins_with_how_to_come_back_and_who_you_are(site: BareHttp) -> None:
    source = EventSource(site)
    assert source.headers["content-type"] == "text/event-stream"
    assert source.headers["cache-control"] == "no-cache"
    assert source.headers["access-control-allow-origin"] == "*"
    first, second, *rest = source.text().split("\n")
    assert first == "retry: 3000"
    hello = json.loads(second.removeprefix("data: "))
    assert hello["connected"] is True
    assert len(hello["clientId"]) == 36
    assert rest == ["", ""]


def test_the_life_of_a_job_is_reported_step_by_step(site: BareHttp, tcp: BunqueueClient) -> None:
    source = EventSource(site)
    source.blocks()
    job_id = tcp.push("q", maxAttempts=2)
    tcp.pull("q")
    tcp.ok("Progress", id=job_id, progress=30)
    tcp.ok("FAIL", id=job_id, error="boom")
    blocks = source.blocks()
    assert [block["event"] for block in blocks] == [
        *("queue:created", "job:pushed", "job:active", "job:progress", "job:failed"),
        "job:retried",
    ]
    created, *data = [json.loads(block["data"]) for block in blocks]
    assert created == {"queue": "q"}
    assert {(one["queue"], one["jobId"]) for one in data} == {("q", job_id)}
    assert all(one["timestamp"] == site.door.wall_ms(site.now_ms) for one in data)
    assert data[2]["progress"] == 30
    assert (data[3]["error"], data[3]["terminal"]) == ("boom", False)
    assert data[4]["prev"] == "failed"
    numbers = [int(block["id"]) for block in blocks]
    assert numbers == list(range(numbers[0], numbers[0] + 6))


def test_a_result_is_not_part_of_an_event(site: BareHttp, tcp: BunqueueClient) -> None:
    source = EventSource(site)
    tcp.finish("q", result={"long": "x" * 1000})
    (done,) = source.told("job:completed")
    assert set(done) == {"queue", "jobId", "timestamp"}


def test_a_dead_job_is_reported_once_more_as_such(site: BareHttp, tcp: BunqueueClient) -> None:
    source = EventSource(site)
    job_id = tcp.bury("q")
    assert source.told("dlq:added") == [
        {"queue": "q", "jobId": job_id, "reason": "explicit_fail", "error": "no"}
    ]


def test_a_job_that_is_removed_when_it_fails_is_not_among_the_dead(
    site: BareHttp, tcp: BunqueueClient
) -> None:
    source = EventSource(site)
    tcp.bury("q", removeOnFail=True)
    assert names_of(source)[-1] == "job:failed"


def test_pauses_concern_a_queue_and_no_job(site: BareHttp, tcp: BunqueueClient) -> None:
    source = EventSource(site)
    tcp.ok("Pause", queue="q")
    tcp.ok("Resume", queue="q")
    told = source.told("queue:paused", "queue:resumed")
    assert [set(one) for one in told] == [{"queue", "timestamp"}] * 2


def test_a_subscriber_of_one_queue_gets_only_its_events(
    site: BareHttp, tcp: BunqueueClient
) -> None:
    source = EventSource(site, "/events/queues/a")
    source.blocks()
    tcp.push("b")
    tcp.push("a")
    site.tick(10)
    told = source.told("job:pushed", "queue:counts")
    assert [one["queue"] for one in told] == ["a", "a"]


def test_commands_that_change_no_job_are_reported_too(site: BareHttp, tcp: BunqueueClient) -> None:
    source = EventSource(site)
    source.blocks()
    tcp.ok("RateLimit", queue="q", limit=5, duration=2000)
    tcp.ok("SetConcurrency", queue="q", limit=3)
    tcp.ok("Cron", name="n", queue="q", data=1, repeatEvery=60000)
    tcp.ok("Cron", name="n", queue="q", data=1, repeatEvery=30000)
    tcp.ok("CronDelete", name="n")
    tcp.ok("RegisterWorker", name="w", queues=["q"], workerId="w1")
    tcp.ok("Drain", queue="q")
    tcp.close()
    blocks = [block for block in source.blocks() if not block["event"].startswith("job:")]
    assert [block["event"] for block in blocks] == [
        *("ratelimit:set", "concurrency:set", "cron:created", "cron:updated", "cron:deleted"),
        *("worker:connected", "worker:disconnected", "client:disconnected"),
    ]
    data = [json.loads(block["data"]) for block in blocks]
    assert data[0] == {"queue": "q", "max": 5, "duration": 2000}
    assert data[1] == {"queue": "q", "concurrency": 3}
    assert data[2].pop("nextRun") == site.door.wall_ms(site.now_ms) + 60000
    assert data[2] == {"name": "n", "queue": "q", "every": 60000}
    assert data[6] == {"workerId": "w1"}


@pytest.mark.parametrize(("is_named", "name"), [(True, "dlq:retried"), (False, "dlq:retry-all")])
def test_dead_jobs_that_are_retried_are_reported(
    site: BareHttp, tcp: BunqueueClient, name: str, *, is_named: bool
) -> None:
    job_id = tcp.bury("q")
    source = EventSource(site)
    named: dict[str, object] = {"jobId": job_id} if is_named else {}
    tcp.ok("RetryDlq", queue="q", **named)
    assert source.told(name) == [{"queue": "q", **named, "count": 1}]


@pytest.mark.parametrize("is_on", [True, False])
def test_a_webhook_that_is_switched_is_reported(
    site: BareHttp, tcp: BunqueueClient, *, is_on: bool
) -> None:
    hook = tcp.ok("AddWebhook", url="https://example.com/", events=["job.pushed"])["data"]
    source = EventSource(site)
    tcp.ok("SetWebhookEnabled", id=hook["webhookId"], enabled=is_on)
    name = "webhook:enabled" if is_on else "webhook:disabled"
    assert source.told(name) == [{"webhookId": hook["webhookId"]}]


# -- from time to time -------------------------------------------------------------------------


def test_counts_of_many_queues_are_told_some_at_a_time(site: BareHttp, tcp: BunqueueClient) -> None:
    source = EventSource(site)
    for at in range(COUNTS_MAX + 20):
        tcp.push(f"q{at}")
    site.tick(COUNTS_MS)
    assert len(source.told("queue:counts")) == COUNTS_MAX
    site.tick(COUNTS_MAX // QUEUES_PER_MS)
    assert len(source.told("queue:counts")) == 20
    tcp.push("q")
    site.tick(COUNTS_MS)
    assert len(source.told("queue:counts")) == 1


def test_a_beat_looks_at_few_queues_in_a_turn(site: BareHttp, tcp: BunqueueClient) -> None:
    source = EventSource(site)
    for at in range(300):
        tcp.push(f"q{at:03}")
    site.tick(BEAT_MS - 1)
    source.told("stats:snapshot")
    site.yard.tasks.units_per_turn = 100
    site.is_slow = True
    site.slice()
    site.tick(1)
    assert source.told("stats:snapshot") == []
    turns = 1
    while site.slice():
        turns += 1
    assert turns > 10
    (told,) = source.told("stats:snapshot")
    assert list(told["queues"]) == [f"q{at:03}" for at in range(300)]


def test_counts_are_reported_once_for_many_changes(site: BareHttp, tcp: BunqueueClient) -> None:
    source = EventSource(site)
    tcp.ok("PUSHB", queue="q", jobs=[{"data": n} for n in range(50)])
    assert source.told("queue:counts") == []
    site.tick(10)
    zeros = {"prioritized": 0, "active": 0, "completed": 0, "failed": 0, "delayed": 0}
    assert source.told() == [{"queue": "q", "waiting": 50, **zeros}]
    site.tick(1000)
    assert source.told("queue:counts") == []


def test_a_stream_hears_of_the_server_and_that_it_lives(
    site: BareHttp, tcp: BunqueueClient
) -> None:
    tcp.push("q")
    source = EventSource(site)
    source.blocks()
    site.tick(BEAT_MS)
    (stats,) = source.told("stats:snapshot")
    assert (stats["waiting"], stats["totalPushed"], stats["cronJobs"]) == (1, 1, 0)
    assert stats["queues"]["q"] == {
        "waiting": 1, "active": 0, "delayed": 0, "dlq": 0, "paused": False,
    }  # fmt: skip
    assert stats["workers"] == {"total": 0, "active": 0}
    site.tick(BEAT_MS)
    (health,) = source.told("health:status")
    assert (health["ok"], health["uptime"]) == (True, 10)
    assert health["connections"] == {"ws": 0, "sse": 1}
    site.tick(4 * BEAT_MS)
    text = source.text()
    assert text.count(":heartbeat\n\n") == 1
    assert text.count("event: storage:status\n") == 1
    assert text.count("event: stats:snapshot\n") == 4


# -- clients that reconnect --------------------------------------------------------------------


def test_who_comes_back_hears_what_was_missed(site: BareHttp, tcp: BunqueueClient) -> None:
    source = EventSource(site)
    tcp.push("a")
    last = source.blocks()[-1]["id"]
    source.close()
    missed = [tcp.push("a"), tcp.push("b")]
    again = EventSource(site, Last_Event_ID=last)
    assert [one["jobId"] for one in again.told("job:pushed")] == missed
    of_one = EventSource(site, "/events/queues/b", Last_Event_ID=last)
    assert [one["jobId"] for one in of_one.told("job:pushed")] == missed[1:]
    new = EventSource(site)
    assert new.told("job:pushed") == []


def test_what_was_missed_long_ago_is_lost(site: BareHttp, tcp: BunqueueClient) -> None:
    source = EventSource(site)
    tcp.push("q")
    first = source.blocks()[-1]["id"]
    for _ in range(RING_SIZE * 2 + 100):
        tcp.push("q")
    again = EventSource(site, Last_Event_ID=first)
    numbers = [int(block["id"]) for block in again.blocks() if "id" in block]
    assert len(numbers) == RING_SIZE
    assert numbers[-1] - int(first) == RING_SIZE * 2 + 100


@pytest.mark.parametrize("last", ["999999999999999999", "nonsense", "-1", "", "9" * 40])
def test_a_number_that_was_never_given_keeps_nobody_from_the_next(
    site: BareHttp, tcp: BunqueueClient, last: str
) -> None:
    EventSource(site)
    tcp.push("q")
    source = EventSource(site, Last_Event_ID=last)
    source.blocks()
    job_id = tcp.push("q")
    assert [one["jobId"] for one in source.told("job:pushed")] == [job_id]


def test_nobody_is_listened_for_who_does_not_come_back(site: BareHttp, tcp: BunqueueClient) -> None:
    heard = [site.yard.bus.is_on]
    source = EventSource(site)
    heard.append(site.yard.bus.is_on)
    source.close()
    site.tick(STREAM_LINGER_MS - 1)
    heard.append(site.yard.bus.is_on)
    site.tick(1)
    heard.append(site.yard.bus.is_on)
    assert heard == [False, True, True, False]
    assert site.door.observer is None
    tcp.push("q")
    again = EventSource(site, Last_Event_ID="1")
    assert again.told("job:pushed") == []


# -- safety ------------------------------------------------------------------------------------


def test_events_wait_for_the_disk() -> None:
    site = BareHttp(MemoryStorage())
    source = EventSource(site)
    source.text()
    assert source.session.awaits <= site.yard.journal.durable
    tcp = site.connect()
    tcp.push("q")
    assert "job:pushed" in source.text()
    assert source.session.awaits == site.yard.journal.newest()
    assert source.session.awaits > 0


def test_a_stream_without_room_goes_on_once_there_is(site: BareHttp, tcp: BunqueueClient) -> None:
    source = EventSource(site)
    source.text()
    source.session.out.write(b"x" * (OUTPUT_MAX + 1))
    ids = [tcp.push("q") for _ in range(3)]
    site.tick(50)
    assert source.session.is_stalled
    source.session.take_output()
    source.resume()
    assert [one["jobId"] for one in source.told("job:pushed")] == ids
    last = tcp.push("q")
    assert [one["jobId"] for one in source.told("job:pushed")] == [last]


def test_no_more_than_so_many_streams_are_served(site: BareHttp) -> None:
    sources = [EventSource(site) for _ in range(EVENT_STREAMS_MAX)]
    caller = site.call()
    reply = caller.ask("GET", "/events")
    assert (reply.status, reply.error) == (503, "Too many SSE connections")
    sources.pop().close()
    EventSource(site)


def test_a_stream_counts_while_it_lasts(site: BareHttp) -> None:
    caller = site.call()
    source = EventSource(site)
    assert caller.ok("GET", "/health")["connections"]["sse"] == 1
    assert b'transport="sse"} 1' in caller.ask("GET", "/prometheus").body
    source.session.end_input(site.now_ms)
    assert source.session.take_output() == b"0\r\n\r\n"
    assert source.session.is_finished
    source.close()
    assert caller.ok("GET", "/health")["connections"]["sse"] == 0


def test_who_asks_for_the_head_alone_listens_to_nothing(site: BareHttp) -> None:
    caller = site.call()
    caller.send("HEAD", "/events")
    assert caller.unread.startswith(b"HTTP/1.1 200 OK\r\n")
    assert caller.unread.endswith(b"\r\n\r\n")
    assert not caller.session.is_finished
    assert site.door.streams_count == 0


def test_a_browser_shows_its_token_in_the_address(site: BareHttp) -> None:
    site.door.tokens = [digest_of(b"right")]
    assert site.call().ask("GET", "/events?token=wrong").status == 401
    EventSource(site, "/events?token=right")
    EventSource(site, Authorization="Bearer right")
    assert site.call().ask("GET", "/stats?token=right").status == 401


def test_refused_callers_are_told_to_those_who_watch(site: BareHttp) -> None:
    site.door.tokens = [digest_of(b"right")]
    source = EventSource(site, "/events?token=right")
    site.call().ask("GET", "/stats")
    assert source.told("auth:failed") == [{"transport": "http"}]
