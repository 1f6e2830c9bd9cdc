"""Rate and concurrency limits of a queue."""

import time

import pytest

from tests.support.servers.bunqueue import Answer, Client, ours
from tests.support.servers.patience import PATIENCE_S


def limits(client: Client, queue: str) -> Answer:
    data = client.ok("GetQueueLimits", queue=queue)["data"]
    assert set(data) == {"limits"}
    found: Answer = data["limits"]
    return found


def fill(client: Client, queue: str, count: int) -> None:
    client.ok("PUSHB", queue=queue, jobs=[{"data": n} for n in range(count)])


def test_a_queue_has_no_limits_at_first(client: Client, queue: str) -> None:
    assert limits(client, queue) == {
        "rateLimit": None,
        "rateLimitTtl": -2,
        "concurrencyLimit": None,
        "maxed": False,
    }


def test_a_rate_limit_stops_after_a_full_bucket(client: Client, queue: str) -> None:
    assert client.ok("RateLimit", queue=queue, limit=2, duration=600_000) == {}
    assert limits(client, queue)["rateLimit"] == {"max": 2, "duration": 600_000}
    fill(client, queue, 4)
    assert len(client.ok("PULLB", queue=queue, count=10)["jobs"]) == 2
    assert client.is_empty(queue)
    assert limits(client, queue)["rateLimitTtl"] > 0
    assert client.ok("RateLimitClear", queue=queue) == {}
    assert limits(client, queue)["rateLimit"] is None
    assert len(client.ok("PULLB", queue=queue, count=10)["jobs"]) == 2


def test_a_rate_is_by_the_second_when_nothing_else_is_said(client: Client, queue: str) -> None:
    client.ok("RateLimit", queue=queue, limit=50)
    assert limits(client, queue)["rateLimit"] == {"max": 50, "duration": 1000}


def test_a_bucket_fills_with_time(client: Client, queue: str) -> None:
    client.ok("RateLimit", queue=queue, limit=1, duration=150)
    fill(client, queue, 3)
    started = time.monotonic()
    client.pull(queue)
    while client.is_empty(queue):
        assert time.monotonic() < started + PATIENCE_S, "the bucket never filled"
    assert time.monotonic() - started > 0.14


@ours("a long poll sleeps through the refill")
def test_a_long_poll_wakes_at_the_next_token(client: Client, queue: str) -> None:
    client.ok("RateLimit", queue=queue, limit=1, duration=200)
    fill(client, queue, 3)
    started = time.monotonic()
    client.pull(queue)
    client.pull(queue, timeout=60_000)
    client.pull(queue, timeout=60_000)
    assert 0.39 < time.monotonic() - started < PATIENCE_S


def test_a_cleared_limit_wakes_a_long_poll_or_the_next_pull(client: Client, queue: str) -> None:
    client.ok("RateLimit", queue=queue, limit=1, duration=600_000)
    fill(client, queue, 2)
    client.pull(queue)
    assert client.is_empty(queue)
    client.ok("RateLimitClear", queue=queue)
    assert client.pull(queue)["data"] == 1


def test_a_limit_of_nothing_blocks(client: Client, queue: str) -> None:
    client.ok("RateLimit", queue=queue, limit=0)
    fill(client, queue, 1)
    assert client.is_empty(queue)
    client.ok("RateLimit", queue=queue, limit=-1)
    assert client.is_empty(queue)
    client.ok("RateLimitClear", queue=queue)
    assert client.pull(queue)


def test_a_rate_limit_may_end_by_itself(client: Client, queue: str) -> None:
    client.ok("RateLimit", queue=queue, limit=1, duration=600_000, ttl=80)
    assert 0 < limits(client, queue)["rateLimitTtl"] <= 80
    fill(client, queue, 3)
    client.pull(queue)
    assert client.is_empty(queue)
    deadline = time.monotonic() + 5
    while client.is_empty(queue):
        assert time.monotonic() < deadline, "the limit never ended"
    assert limits(client, queue)["rateLimit"] is None


def test_a_rate_limit_spends_nothing_on_an_empty_queue(client: Client, queue: str) -> None:
    client.ok("RateLimit", queue=queue, limit=1, duration=600_000)
    for _ in range(3):
        assert client.is_empty(queue)
    fill(client, queue, 1)
    assert client.pull(queue)


def test_concurrency_is_counted_over_all_clients(client: Client, other: Client, queue: str) -> None:
    assert client.ok("SetConcurrency", queue=queue, limit=2) == {}
    fill(client, queue, 4)
    first = client.pull(queue)["id"]
    other.pull(queue)
    for each in (client, other):
        assert each.is_empty(queue)
    found = limits(client, queue)
    assert (found["concurrencyLimit"], found["maxed"]) == (2, True)
    client.ok("ACK", id=first)
    assert limits(client, queue)["maxed"] is False
    assert other.pull(queue)
    assert client.ok("ClearConcurrency", queue=queue) == {}
    assert client.pull(queue)
    assert limits(client, queue)["concurrencyLimit"] is None


@pytest.mark.parametrize("end", ["ACK", "FAIL", "MoveToDelayed", "Discard"])
def test_a_long_poll_wakes_when_a_slot_is_free(
    client: Client, other: Client, queue: str, end: str
) -> None:
    client.ok("SetConcurrency", queue=queue, limit=1)
    fill(client, queue, 2)
    job_id = client.pull(queue)["id"]
    pull = other.send("PULL", queue=queue, timeout=20_000)
    assert other.is_silent()
    client.ok(end, id=job_id, delay=600_000)
    assert other.receive(pull)["job"]["data"] == 1


@ours("it counts only jobs taken after the limit was set")
def test_jobs_already_active_count(client: Client, queue: str) -> None:
    fill(client, queue, 3)
    client.pull(queue)
    client.ok("SetConcurrency", queue=queue, limit=1)
    assert client.is_empty(queue)


def test_a_batch_pull_stays_below_the_limit(client: Client, queue: str) -> None:
    client.ok("SetConcurrency", queue=queue, limit=3)
    fill(client, queue, 10)
    assert len(client.ok("PULLB", queue=queue, count=10)["jobs"]) == 3


def test_a_disconnect_frees_its_slots(client: Client, address: tuple[str, int], queue: str) -> None:
    client.ok("SetConcurrency", queue=queue, limit=1)
    fill(client, queue, 1)
    with Client(address) as gone:
        job_id = gone.pull(queue)["id"]
    assert client.pull(queue)["id"] == job_id
