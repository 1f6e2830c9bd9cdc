"""Webhooks as commands: what is accepted, refused, listed, switched off and removed."""

import time

import pytest

from tests.support.servers.bunqueue import Answer, Client

EVENTS = ["job.pushed", "job.started", "job.completed", "job.failed", "job.progress"]


def webhooks(client: Client) -> dict[str, Answer]:
    data = client.ok("ListWebhooks")["data"]
    assert set(data) == {"webhooks", "stats"}
    return {each["id"]: each for each in data["webhooks"]}


def add(client: Client, queue: str, **fields: object) -> str:
    options = {"url": "https://hooks.example.com/x", "events": EVENTS, "queue": queue, **fields}
    data = client.ok("AddWebhook", **options)["data"]
    webhook_id: str = data["webhookId"]
    return webhook_id


def test_a_webhook_is_added_and_listed(client: Client, queue: str) -> None:
    url = "https://hooks.example.com/path?x=1"
    answer = client.ok("AddWebhook", url=url, events=EVENTS[:2], queue=queue, secret="s3cret")
    data = answer["data"]
    assert (data["url"], data["events"], data["queue"]) == (url, EVENTS[:2], queue)
    assert abs(data["createdAt"] - time.time() * 1000) < 10_000
    row = webhooks(client)[data["webhookId"]]
    assert (row["url"], row["events"], row["queue"]) == (url, EVENTS[:2], queue)
    assert (row["lastTriggered"], row["successCount"], row["failureCount"]) == (None, 0, 0)
    assert row["enabled"] is True
    assert "s3cret" not in str(client.ok("ListWebhooks"))
    client.ok("RemoveWebhook", webhookId=data["webhookId"])


def test_a_webhook_may_be_for_every_queue(client: Client) -> None:
    answer = client.ok("AddWebhook", url="https://hooks.example.com/", events=["job.progress"])
    assert answer["data"].get("queue") is None
    client.ok("RemoveWebhook", webhookId=answer["data"]["webhookId"])


def test_a_webhook_can_be_removed(client: Client, queue: str) -> None:
    webhook_id = add(client, queue)
    assert client.ok("RemoveWebhook", webhookId=webhook_id) == {"data": {"removed": True}}
    assert webhook_id not in webhooks(client)
    assert client.refused("RemoveWebhook", webhookId=webhook_id) == "Webhook not found"


def test_a_webhook_can_be_switched_off_and_on(client: Client, queue: str) -> None:
    webhook_id = add(client, queue)
    before = client.ok("ListWebhooks")["data"]["stats"]
    assert client.ok("SetWebhookEnabled", id=webhook_id, enabled=False) == {}
    assert webhooks(client)[webhook_id]["enabled"] is False
    after = client.ok("ListWebhooks")["data"]["stats"]
    assert (after["total"], after["enabled"]) == (before["total"], before["enabled"] - 1)
    client.ok("SetWebhookEnabled", id=webhook_id, enabled=True)
    assert webhooks(client)[webhook_id]["enabled"] is True
    client.ok("RemoveWebhook", webhookId=webhook_id)


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST",
        "app.localhost",
        "127.0.0.1",
        "127.1.2.3",
        "127.1",
        "2130706433",
        "0x7f000001",
        "017700000001",
        "0.0.0.0",
        "0",
        "10.0.0.1",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.1.1",
        "169.254.169.254",
        "metadata.google.internal",
        "anything.internal",
        "[::1]",
        "[::]",
        "[fc00::1]",
        "[fd12:3456::1]",
        "[fe80::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:10.0.0.1]",
        "[::127.0.0.1]",
        "user:pass@127.0.0.1",
        "127.0.0.1:8080",
    ],
)
def test_an_inner_address_is_refused(client: Client, queue: str, host: str) -> None:
    client.refused("AddWebhook", url=f"http://{host}/x", events=EVENTS, queue=queue)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "nonsense",
        "ftp://hooks.example.com/",
        "file:///etc/passwd",
        "https://",
        "https://hooks.example.com/" + "x" * 2048,
    ],
)
def test_a_bad_url_is_refused(client: Client, queue: str, url: str) -> None:
    client.refused("AddWebhook", url=url, events=EVENTS, queue=queue)


def test_an_unknown_event_is_refused_with_the_list(client: Client, queue: str) -> None:
    error = client.refused(
        "AddWebhook", url="https://hooks.example.com/", events=["job.pushed", "odd"], queue=queue
    )
    assert "odd" in error
    for event in EVENTS:
        assert event in error


@pytest.mark.parametrize("host", ["8.8.8.8", "172.32.0.1", "192.169.1.1", "[2606:4700::1111]"])
def test_an_outer_address_is_taken(client: Client, queue: str, host: str) -> None:
    webhook_id = add(client, queue, url=f"https://{host}/x")
    client.ok("RemoveWebhook", webhookId=webhook_id)
