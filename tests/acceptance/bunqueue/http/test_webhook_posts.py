"""Webhooks as their receivers see them: posted, signed, counted, and there after a restart."""

import hmac
import json
import signal
import time
from pathlib import Path

import pytest

from tests.support.servers.bunqueue import ORIGINAL, Client, durable
from tests.support.servers.patience import PATIENCE_S
from tests.unit.server.test_webhooks import Receiver, receiving

pytestmark = pytest.mark.skipif(bool(ORIGINAL), reason="it posts to no private address")


def wait_for(client: Client, receiver: Receiver, count: int) -> None:
    """Wait until this many posts have come; the server must answer meanwhile."""
    deadline = time.monotonic() + PATIENCE_S
    while len(receiver.requests) < count:
        assert time.monotonic() < deadline, receiver.requests
        client.ok("Ping")


def wait_for_counts(client: Client, successes: int, failures: int) -> None:
    """Wait until the server has the outcomes of its posts."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        [row] = client.ok("ListWebhooks")["data"]["webhooks"]
        if (row["successCount"], row["failureCount"]) == (successes, failures):
            assert abs(row["lastTriggered"] - time.time() * 1000) < 60_000
            return
        assert time.monotonic() < deadline, row


def test_a_post_is_signed_and_counted_and_survives_a_restart(tmp_path: Path) -> None:
    flags = ("--allow-private-webhooks", "--webhook-retries", "1")
    with receiving(200, 500) as receiver, durable(tmp_path / "data", *flags) as yard:
        client = yard.connect()
        events = ["job.completed", "job.failed"]
        client.ok("AddWebhook", url=receiver.url(), events=events, queue="q", secret="s3cret")
        job_id = client.finish("q", 1, result={"r": [1, "ä"]})
        client.finish("other", 1)
        wait_for(client, receiver, 1)
        client.bury("q", 2)
        wait_for(client, receiver, 2)
        wait_for_counts(client, 1, 1)
        path, headers, body = receiver.requests[0]
        assert path == "/hook"
        told = json.loads(body)
        assert abs(told.pop("timestamp") - time.time() * 1000) < 60_000
        assert told == {
            "event": "job.completed",
            "jobId": job_id,
            "queue": "q",
            "data": {"r": [1, "ä"]},
        }
        assert headers["X-Webhook-Event"] == "job.completed"
        signature = hmac.new(b"s3cret", body, "sha256").hexdigest()
        assert headers["X-Webhook-Signature"] == signature
        client = yard.restart(signal.SIGKILL)
        client.finish("q", 3)
        wait_for(client, receiver, 3)
        assert json.loads(receiver.requests[2][2])["event"] == "job.completed"


@pytest.mark.parametrize("loop", ["epoll", "asyncio"])
def test_a_stop_sends_what_is_on_its_way(tmp_path: Path, loop: str) -> None:
    flags = ("--allow-private-webhooks", "--loop", loop)
    with receiving() as receiver, durable(tmp_path / "data", *flags) as yard:
        client = yard.connect()
        client.ok("AddWebhook", url=receiver.url(), events=["job.pushed"])
        client.push("q", 1)
        client = yard.restart(signal.SIGTERM)
        wait_for(client, receiver, 1)


def test_private_addresses_are_refused_unless_allowed(tmp_path: Path) -> None:
    with receiving() as receiver, durable(tmp_path / "data") as yard:
        client = yard.connect()
        client.refused("AddWebhook", url=receiver.url(), events=["job.pushed"])
