"""Workers and webhooks as commands, without a socket."""

import re

import pytest

from jobyard.protocols.bunqueue.commands.registry import WORKERS_MAX
from jobyard.protocols.bunqueue.workers import LOST_MS, STALE_MS
from tests.support.clients.bunqueue import Answer, BunqueueClient
from tests.support.doors.bunqueue import BareBunqueue
from tests.support.site.storage import MemoryStorage

UUID = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
URL = "https://hooks.example.com/x"


def register(client: BunqueueClient, **fields: object) -> str:
    data = client.ok("RegisterWorker", name="w", queues=["q"], **fields)["data"]
    return str(data["workerId"])


def rows(client: BunqueueClient) -> dict[str, Answer]:
    return {one["id"]: one for one in client.ok("ListWorkers")["data"]["workers"]}


def test_ids_are_uuids_that_no_boot_repeats() -> None:
    site = BareBunqueue(MemoryStorage())
    client = site.connect()
    ids = [register(client) for _ in range(3)]
    ids.append(str(client.ok("AddWebhook", url=URL, events=["job.failed"])["data"]["webhookId"]))
    client = site.reboot().connect()
    ids += [register(client) for _ in range(3)]
    assert len(set(ids)) == len(ids)
    assert all(UUID.fullmatch(one) for one in ids)


def test_a_worker_that_reconnects_keeps_its_counts() -> None:
    site = BareBunqueue()
    old, new, third = site.connect(), site.connect(), site.connect()
    register(old, workerId="me")
    old.ok("Heartbeat", id="me", activeJobs=1, processed=9, failed=2)
    register(new, workerId="me", concurrency=4)
    old.close()
    row = rows(third)["me"]
    assert (row["processedJobs"], row["failedJobs"], row["concurrency"]) == (9, 2, 4)
    new.close()
    assert rows(third) == {}
    register(third, workerId="me")
    assert rows(third)["me"]["processedJobs"] == 9


def test_several_workers_leave_with_one_connection() -> None:
    site = BareBunqueue()
    gone, client = site.connect(), site.connect()
    for n in range(4):
        register(gone, workerId=f"w{n}")
    gone.ok("UnregisterWorker", workerId="w1")
    gone.close()
    assert rows(client) == {}


def test_silence_is_shown_and_then_ends_the_registration() -> None:
    site = BareBunqueue()
    client = site.connect()
    worker_id = register(client)
    site.now_ms += STALE_MS
    assert rows(client)[worker_id]["status"] == "stale"
    stats = client.ok("ListWorkers")["data"]["stats"]
    assert (stats["total"], stats["active"], stats["concurrencySlots"]) == (1, 0, 0)
    client.ok("Heartbeat", id=worker_id)
    assert rows(client)[worker_id]["status"] == "active"
    site.now_ms += LOST_MS
    assert rows(client) == {}
    assert client.refused("Heartbeat", id=worker_id) == "Worker not found"


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"queues": ["q"]}, "name is required"),
        ({"name": 5, "queues": ["q"]}, "name must be a string"),
        ({"name": "x" * 257, "queues": ["q"]}, "name must be at most 256 characters"),
        ({"name": "w"}, "queues must be an array of strings"),
        ({"name": "w", "queues": [5]}, "queues must be an array of strings"),
        ({"name": "w", "queues": ["q"] * 1001}, "queues must have at most 1000 entries"),
        ({"name": "w", "queues": [], "concurrency": -1}, "concurrency must be at least 0"),
    ],
)
def test_a_bad_registration_is_refused(fields: dict[str, object], error: str) -> None:
    client = BareBunqueue().connect()
    assert client.refused("RegisterWorker", **fields) == error
    assert rows(client) == {}


def test_there_is_an_end_to_the_workers_of_a_connection() -> None:
    client = BareBunqueue().connect()
    for n in range(WORKERS_MAX):
        register(client, workerId=f"w{n}")
    error = client.refused("RegisterWorker", name="w", queues=[])
    assert error.startswith("Too many workers")
    register(client, workerId="w0")


def test_a_bad_heartbeat_is_refused() -> None:
    client = BareBunqueue().connect()
    worker_id = register(client)
    assert client.refused("Heartbeat") == "Worker not found"
    error = client.refused("Heartbeat", id=worker_id, processed="x")
    assert error == "processed must be a number"


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"events": ["job.failed"]}, "Webhook URL is required"),
        ({"url": 5, "events": ["job.failed"]}, "url must be a string"),
        ({"url": URL}, "events must be an array of strings"),
        ({"url": URL, "events": [5]}, "events must be an array of strings"),
        ({"url": URL, "events": ["job.failed"], "secret": 5}, "secret must be a string"),
        (
            {"url": URL, "events": ["job.failed"], "secret": "x" * 4097},
            "secret must be at most 4096 characters",
        ),
        (
            {"url": URL, "events": ["job.failed"], "queue": "a b"},
            "Queue name contains invalid characters",
        ),
    ],
)
def test_a_bad_webhook_is_refused(fields: dict[str, object], error: str) -> None:
    client = BareBunqueue().connect()
    assert client.refused("AddWebhook", **fields) == error
    assert client.ok("ListWebhooks")["data"]["webhooks"] == []


def test_a_webhook_without_events_is_refused_with_the_list() -> None:
    client = BareBunqueue().connect()
    error = client.refused("AddWebhook", url=URL, events=[])
    assert "job.progress" in error


def test_events_are_kept_once_each() -> None:
    client = BareBunqueue().connect()
    events = ["job.failed", "job.pushed", "job.failed"]
    data = client.ok("AddWebhook", url=URL, events=events)["data"]
    assert data["events"] == ["job.failed", "job.pushed"]


def test_private_addresses_may_be_allowed() -> None:
    site = BareBunqueue()
    client = site.connect()
    fields = {"url": "http://127.0.0.1:8080/x", "events": ["job.failed"]}
    client.refused("AddWebhook", **fields)
    site.door.webhooks.allows_private = True
    client.ok("AddWebhook", **fields)


def test_a_switch_must_be_one() -> None:
    client = BareBunqueue().connect()
    assert client.refused("SetWebhookEnabled", id="x", enabled=True) == "Webhook not found"
    webhook_id = client.ok("AddWebhook", url=URL, events=["job.failed"])["data"]["webhookId"]
    assert client.refused("SetWebhookEnabled", id=webhook_id) == "enabled must be a boolean"
