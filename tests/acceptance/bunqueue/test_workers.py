"""Workers: registered, alive, listed, and gone with their connection."""

import time

from tests.support.servers.bunqueue import Answer, Client


def workers(client: Client) -> dict[str, Answer]:
    data = client.ok("ListWorkers")["data"]
    assert set(data) == {"workers", "stats"}
    return {each["id"]: each for each in data["workers"]}


def register(client: Client, queue: str, **fields: object) -> str:
    data = client.ok("RegisterWorker", name=f"{queue}-w", queues=[queue], **fields)["data"]
    worker_id: str = data["workerId"]
    return worker_id


def test_a_worker_is_registered_and_listed(client: Client, queue: str) -> None:
    data = client.ok("RegisterWorker", name="resizer", queues=[queue, "b"])["data"]
    assert (data["name"], data["queues"]) == ("resizer", [queue, "b"])
    assert abs(data["registeredAt"] - time.time() * 1000) < 10_000
    row = workers(client)[data["workerId"]]
    assert (row["name"], row["queues"]) == ("resizer", [queue, "b"])
    assert row["lastSeen"] >= row["registeredAt"] == data["registeredAt"]
    assert (row["activeJobs"], row["processedJobs"], row["failedJobs"]) == (0, 0, 0)


def test_what_a_worker_tells_of_itself_is_listed(client: Client, queue: str) -> None:
    worker_id = register(
        client,
        queue,
        workerId=f"{queue}-me",
        concurrency=7,
        hostname="host-1",
        pid=4711,
        startedAt=time.time() * 1000,
    )
    assert worker_id == f"{queue}-me"
    row = workers(client)[worker_id]
    assert (row["concurrency"], row["hostname"], row["pid"]) == (7, "host-1", 4711)
    assert row["status"] == "active"


def test_a_worker_that_registers_again_is_the_same(client: Client, queue: str) -> None:
    for _ in range(2):
        register(client, queue, workerId=f"{queue}-me")
    mine = [each for each in workers(client).values() if each["name"] == f"{queue}-w"]
    assert len(mine) == 1


def test_a_heartbeat_updates_the_counters(client: Client, queue: str) -> None:
    worker_id = register(client, queue)
    assert client.ok("Heartbeat", id=worker_id) == {"data": {"ok": True}}
    client.ok("Heartbeat", id=worker_id, activeJobs=2, processed=5, failed=1)
    row = workers(client)[worker_id]
    assert (row["activeJobs"], row["processedJobs"], row["failedJobs"]) == (2, 5, 1)


def test_a_worker_can_be_unregistered(client: Client, queue: str) -> None:
    worker_id = register(client, queue)
    assert client.ok("UnregisterWorker", workerId=worker_id) == {"data": {"removed": True}}
    assert worker_id not in workers(client)
    assert client.refused("UnregisterWorker", workerId=worker_id) == "Worker not found"
    assert client.refused("Heartbeat", id=worker_id) == "Worker not found"


def test_workers_leave_with_their_connection(
    client: Client, address: tuple[str, int], queue: str
) -> None:
    with Client(address) as gone:
        worker_id = register(gone, queue)
        assert worker_id in workers(client)
    deadline = time.monotonic() + 5
    while worker_id in workers(client):
        assert time.monotonic() < deadline, "the worker outlived its connection"


def test_workers_are_summed_up(client: Client, queue: str) -> None:
    before = client.ok("ListWorkers")["data"]["stats"]
    register(client, queue, concurrency=3)
    register(client, queue, concurrency=4)
    after = client.ok("ListWorkers")["data"]["stats"]
    grown = {name: after[name] - before[name] for name in ("total", "active", "concurrencySlots")}
    assert grown == {"total": 2, "active": 2, "concurrencySlots": 7}
    assert {"totalProcessed", "totalFailed", "activeJobs"} <= set(after)
