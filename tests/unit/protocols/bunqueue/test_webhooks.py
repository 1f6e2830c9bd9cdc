"""Webhooks from event to post: which hook gets what, and not before it is safe."""

import json

import pytest

from jobyard.errors import Refused
from jobyard.protocols.bunqueue.webhooks import (
    LOOK_MS,
    WEBHOOKS_MAX,
    WRITE_MS,
    Webhook,
    Webhooks,
    decode_webhook,
)
from tests.support.clients.bunqueue import BunqueueClient
from tests.support.doors.bunqueue import BareBunqueue
from tests.support.site.facts import StillLife
from tests.support.site.site import NOW_MS
from tests.support.site.storage import MemoryStorage
from tests.support.site.yard import OpenYard

URL = "https://hooks.example.com/x"
EVENTS = ["job.pushed", "job.started", "job.completed", "job.failed", "job.progress"]


def add(client: BunqueueClient, **fields: object) -> str:
    options = {"url": URL, "events": EVENTS, **fields}
    return str(client.ok("AddWebhook", **options)["data"]["webhookId"])


def bodies(site: BareBunqueue) -> list[dict[str, object]]:
    """Take what was posted so far."""
    posts, site.life.posts = site.life.posts, []
    found: list[dict[str, object]] = []
    for webhook_id, url, secret, event, body in posts:
        told = json.loads(body)
        assert (url, told["event"]) == (URL, event)
        assert secret in ("", "s3cret")
        assert webhook_id in site.door.webhooks.by_id
        found.append(told)
    return found


def test_the_life_of_a_job_is_reported() -> None:
    site = BareBunqueue()
    client = site.connect()
    add(client, secret="s3cret")
    job_id = client.push()
    client.pull()
    client.ok("Progress", id=job_id, progress=12.5)
    client.ok("ACK", id=job_id, result={"a": [1, None]})
    assert site.life.posts == []
    site.tick(LOOK_MS)
    common = {"timestamp": NOW_MS, "jobId": job_id, "queue": "q"}
    assert bodies(site) == [
        {"event": "job.pushed", **common},
        {"event": "job.started", **common},
        {"event": "job.progress", **common, "progress": 12.5},
        {"event": "job.completed", **common, "data": {"a": [1, None]}},
    ]


def test_every_failure_is_reported() -> None:
    site = BareBunqueue()
    client = site.connect()
    add(client, events=["job.failed"])
    job_id = client.push(maxAttempts=2, backoff=1)
    for error in ("one", 'two "quoted"'):
        client.pull()
        client.ok("FAIL", id=job_id, error=error)
        site.tick(100)
    assert [told["error"] for told in bodies(site)] == ["one", 'two "quoted"']


def test_a_webhook_hears_of_its_queue_only() -> None:
    site = BareBunqueue()
    client = site.connect()
    add(client, queue="q", events=["job.pushed"])
    everything = add(client, events=["job.pushed"])
    client.push("q")
    client.push("p")
    site.tick(LOOK_MS)
    heard = [(post[0] == everything, json.loads(post[4])["queue"]) for post in site.life.posts]
    assert sorted(heard) == [(False, "q"), (True, "p"), (True, "q")]


def test_nothing_is_posted_before_it_is_durable() -> None:
    site = BareBunqueue(MemoryStorage())
    client = site.connect()
    add(client)
    site.commit()
    client.finish()
    site.tick(100)
    assert site.life.posts == []
    site.commit()
    client.push()
    site.tick(LOOK_MS)
    assert [told["event"] for told in bodies(site)] == EVENTS[:3]
    site.commit()
    site.tick(LOOK_MS)
    assert [told["event"] for told in bodies(site)] == ["job.pushed"]
    site.tick(1000)
    assert site.life.posts == []


def test_a_slow_disk_holds_back_only_so_much() -> None:
    site = BareBunqueue(MemoryStorage())
    client = site.connect()
    add(client, events=["job.completed"])
    site.commit()
    result = "x" * (9 << 20)
    for _ in range(8):
        client.finish(result=result, removeOnComplete=True)
        site.tick(LOOK_MS)
    assert site.door.webhooks.dropped_count == 1
    site.commit()
    site.tick(LOOK_MS)
    assert len(bodies(site)) == 7
    client.finish(result=result, removeOnComplete=True)
    assert site.door.webhooks.dropped_count == 1


def is_heard(site: BareBunqueue) -> bool:
    return site.yard.bus.is_on


def test_the_yard_is_listened_to_only_while_a_webhook_is_on() -> None:
    site = BareBunqueue()
    client = site.connect()
    assert not is_heard(site)
    first = add(client)
    second = add(client)
    client.ok("SetWebhookEnabled", id=first, enabled=False)
    assert is_heard(site)
    client.ok("RemoveWebhook", webhookId=second)
    assert not is_heard(site)
    client.ok("SetWebhookEnabled", id=first, enabled=True)
    assert is_heard(site)
    assert site.life.forgotten == [first, second]


def test_what_has_not_left_does_not_leave_any_more() -> None:
    site = BareBunqueue()
    client = site.connect()
    removed = add(client)
    paused = add(client)
    client.push()
    client.ok("RemoveWebhook", webhookId=removed)
    client.ok("SetWebhookEnabled", id=paused, enabled=False)
    site.tick(100)
    assert site.life.posts == []


def test_webhooks_and_their_counts_survive_a_restart() -> None:
    site = BareBunqueue(MemoryStorage())
    client = site.connect()
    webhook_id = add(client, queue="q", secret="s3cret")
    gone = add(client)
    client.ok("RemoveWebhook", webhookId=gone)
    site.now_ms += WRITE_MS
    site.life.outcomes = [
        (webhook_id, True, 7000),
        (webhook_id, False, 6000),
        (webhook_id, True, 5000),
        (gone, True, 1),
    ]
    [before] = client.ok("ListWebhooks")["data"]["webhooks"]
    assert (before["successCount"], before["failureCount"]) == (2, 1)
    assert before["lastTriggered"] == 7000
    again = site.reboot()
    client = again.connect()
    data = client.ok("ListWebhooks")["data"]
    assert data == {"webhooks": [before], "stats": {"total": 1, "enabled": 1}}
    client.push()
    again.commit()
    again.tick(LOOK_MS)
    [(posted, _url, secret, event, _body)] = again.life.posts
    assert (posted, secret, event) == (webhook_id, "s3cret", "job.pushed")


def test_counts_are_written_once_a_minute() -> None:
    site = BareBunqueue(MemoryStorage())
    client = site.connect()
    webhook_id = add(client)
    before = site.yard.journal.records_count
    for _ in range(5):
        site.life.outcomes = [(webhook_id, True, 1)]
        site.door.webhooks.collect(site.now_ms)
    assert site.yard.journal.records_count == before
    site.door.webhooks.collect(site.now_ms + WRITE_MS)
    site.door.webhooks.collect(site.now_ms + 3 * WRITE_MS)
    assert site.yard.journal.records_count == before + 1


def test_there_is_an_end_to_webhooks() -> None:
    webhooks = Webhooks(OpenYard().yard, StillLife())
    for n in range(WEBHOOKS_MAX):
        webhooks.add(Webhook(f"w{n}", URL, EVENTS, NOW_MS), NOW_MS)
    with pytest.raises(Refused, match="Too many webhooks"):
        webhooks.add(Webhook("more", URL, EVENTS, NOW_MS), NOW_MS)


def test_a_damaged_value_is_no_webhook() -> None:
    assert decode_webhook("w", b"\xc1") is None


def test_a_full_disk_changes_nothing() -> None:
    storage = MemoryStorage()
    site = BareBunqueue(storage)
    client = site.connect()
    webhook_id = add(client)
    site.commit()
    storage.capacity = storage.used()
    site.yard.journal.spares.clear()
    while site.yard.journal.admit(4000, site.now_ms):
        client.push("fill", "x" * 3000)
    more = {"url": URL, "events": EVENTS, "secret": "s" * 4000}
    assert client.refused("AddWebhook", **more) == "Storage full"
    while site.yard.journal.admit(0, site.now_ms):
        client.push("fill")
    error = client.refused("SetWebhookEnabled", id=webhook_id, enabled=False)
    assert error == "Storage full"
    assert client.refused("RemoveWebhook", webhookId=webhook_id) == "Storage full"
    [row] = client.ok("ListWebhooks")["data"]["webhooks"]
    assert (row["id"], row["enabled"]) == (webhook_id, True)


def test_many_events_for_many_webhooks_are_reported_in_slices() -> None:
    site = BareBunqueue()
    client = site.connect()
    ids = [add(client, events=["job.pushed"]) for _ in range(40)]
    elsewhere = add(client, events=["job.pushed"], queue="other")
    site.yard.tasks.units_per_turn = 100
    site.is_slow = True
    site.slice()
    pushed = client.ok("PUSHB", queue="q", jobs=[{"data": at} for at in range(30)])["ids"]
    site.tick(LOOK_MS)
    told = len(site.life.posts)
    assert told <= 100
    turns = 1
    while site.slice():
        turns += 1
        assert len(site.life.posts) - told <= 100
        told = len(site.life.posts)
    assert turns > 20
    found = [(post[0], json.loads(post[4])["jobId"]) for post in site.life.posts]
    assert found == [(hook, job) for job in pushed for hook in ids]
    assert elsewhere not in {hook for hook, _ in found}
