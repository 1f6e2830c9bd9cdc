"""Events on subscribed connections: which are sent, in what order, with what fields."""

import time

from tests.support.servers.bunqueue import Answer, Client, ours


def kinds(events: list[Answer]) -> list[str]:
    return [event["eventType"] for event in events]


def collect(client: Client, count: int) -> list[Answer]:
    return [client.next_event() for _ in range(count)]


def subscribe(client: Client, queue: str) -> None:
    assert client.ok("SubscribeEvents", queue=queue) == {}


def test_the_life_of_a_job_is_reported(client: Client, other: Client, queue: str) -> None:
    subscribe(other, queue)
    job_id = client.push(queue, {"x": 1})
    client.pull(queue)
    client.ok("Progress", id=job_id, progress=50)
    client.ok("ACK", id=job_id, result={"y": 2})
    events = collect(other, 4)
    assert kinds(events) == ["pushed", "pulled", "progress", "completed"]
    for event in events:
        assert (event["queue"], event["jobId"]) == (queue, job_id)
        assert isinstance(event["timestamp"], float)
        assert abs(event["timestamp"] - time.time() * 1000) < 10_000
    assert events[2]["progress"] == 50
    assert events[3]["data"] == {"y": 2}


def test_a_retry_and_a_death_are_told(client: Client, other: Client, queue: str) -> None:
    subscribe(other, queue)
    job_id = client.push(queue, 1, maxAttempts=2, backoff=1)
    for error in ("first", "last"):
        client.pull(queue)
        client.ok("FAIL", id=job_id, error=error)
    first = other.next_event("failed")
    assert (first["jobId"], first["error"], first["data"]) == (job_id, "first", 1)
    assert not first.get("terminal")
    assert other.next_event("retried")["prev"] == "failed"
    last = other.next_event("failed")
    assert last["error"] == "last"
    assert last["terminal"] is True


def test_events_come_only_for_the_subscribed_queue(
    client: Client, other: Client, queue: str
) -> None:
    subscribe(other, queue)
    client.push(queue + "-2", 1)
    job_id = client.push(queue, 1)
    assert other.next_event()["jobId"] == job_id


def test_a_second_subscription_replaces_the_first(
    client: Client, other: Client, queue: str
) -> None:
    subscribe(other, queue)
    subscribe(other, queue + "-2")
    client.push(queue, 1)
    client.push(queue + "-2", 2)
    assert other.next_event()["queue"] == queue + "-2"
    assert other.is_silent()


def test_a_subscription_can_end(client: Client, other: Client, queue: str) -> None:
    subscribe(other, queue)
    assert other.ok("UnsubscribeEvents") == {}
    client.push(queue, 1)
    assert other.is_silent()


def test_many_connections_hear_the_same(
    client: Client, address: tuple[str, int], queue: str
) -> None:
    listeners = [Client(address) for _ in range(5)]
    for each in listeners:
        subscribe(each, queue)
    job_id = client.push(queue, 1)
    for each in listeners:
        assert each.next_event("pushed")["jobId"] == job_id
        each.close()


def test_a_subscriber_may_also_work(client: Client, queue: str) -> None:
    subscribe(client, queue)
    job_id = client.finish(queue, 1)
    assert kinds(collect(client, 3)) == ["pushed", "pulled", "completed"]
    assert client.state(job_id) == "completed"


def test_a_batch_is_told_job_by_job(client: Client, other: Client, queue: str) -> None:
    subscribe(other, queue)
    ids = client.ok("PUSHB", queue=queue, jobs=[{"data": n} for n in range(3)])["ids"]
    assert [event["jobId"] for event in collect(other, 3)] == ids
    client.ok("PULLB", queue=queue, count=3)
    assert kinds(collect(other, 3)) == ["pulled"] * 3
    client.ok("ACKB", ids=ids, results=[1, 2, 3])
    events = collect(other, 3)
    assert kinds(events) == ["completed"] * 3
    assert {event["jobId"]: event["data"] for event in events} == dict(
        zip(ids, (1, 2, 3), strict=True)
    )


def test_a_pause_is_told(client: Client, other: Client, queue: str) -> None:
    subscribe(other, queue)
    client.ok("Pause", queue=queue)
    client.ok("Resume", queue=queue)
    events = collect(other, 2)
    assert kinds(events) == ["paused", "resumed"]
    assert [event["jobId"] for event in events] == ["", ""]


def test_a_duplicate_is_told(client: Client, other: Client, queue: str) -> None:
    subscribe(other, queue)
    job_id = client.push(queue, 1, uniqueKey="k")
    client.push(queue, 2, uniqueKey="k")
    assert other.next_event("duplicated")["jobId"] == job_id


def test_a_removal_is_told(client: Client, other: Client, queue: str) -> None:
    subscribe(other, queue)
    job_id = client.push(queue, 1)
    client.ok("Cancel", id=job_id)
    event = other.next_event("removed")
    assert (event["jobId"], event["prev"]) == (job_id, "waiting")


def test_a_delay_is_told(client: Client, other: Client, queue: str) -> None:
    subscribe(other, queue)
    job_id = client.push(queue, 1)
    client.pull(queue)
    client.ok("MoveToDelayed", id=job_id, delay=5000)
    event = other.next_event("delayed")
    assert (event["jobId"], event["delay"]) == (job_id, 5000)


def test_waiting_again_is_told(client: Client, other: Client, queue: str) -> None:
    subscribe(other, queue)
    job_id = client.push(queue, 1)
    client.pull(queue)
    client.ok("MoveToWait", id=job_id)
    event = other.next_event("waiting")
    assert (event["jobId"], event["prev"]) == (job_id, "active")


def test_a_failed_parent_is_told(client: Client, other: Client, queue: str) -> None:
    subscribe(other, queue)
    parent = client.push(queue, "p")
    data = {"__parentId": parent, "__parentQueue": queue}
    child = client.push(
        f"{queue}-c", data, parentId=parent, failParentOnFailure=True, maxAttempts=1
    )
    client.pull(f"{queue}-c")
    client.ok("FAIL", id=child, error="boom")
    event = other.next_event("failed")
    assert event["jobId"] == parent
    assert event["error"] == f"Child job {child} failed: boom"


def test_a_subscriber_that_is_gone_disturbs_nobody(
    client: Client, address: tuple[str, int], queue: str
) -> None:
    with Client(address) as gone:
        subscribe(gone, queue)
    job_id = client.finish(queue, 1)
    assert client.state(job_id) == "completed"


@ours("a deaf subscriber is only cut off at 64 MiB")
def test_a_subscriber_that_never_reads_disturbs_nobody(
    client: Client, address: tuple[str, int], queue: str
) -> None:
    with Client(address) as deaf:
        subscribe(deaf, queue)
        text = "x" * 500_000
        for _ in range(20):
            client.finish(queue, 1, result=text, removeOnComplete=True)
        assert client.ok("Ping")
