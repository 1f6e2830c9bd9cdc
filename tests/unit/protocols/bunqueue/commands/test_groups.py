"""Groups within a queue and keys of jobs, without a socket."""

import pytest

from tests.support.clients.bunqueue import Answer, BunqueueClient
from tests.support.doors.bunqueue import BareBunqueue
from tests.support.site.storage import MemoryStorage

GROUP_COMMANDS = (
    "GetGroupJobsCount",
    "GetGroupActiveCount",
    "SetGroupRateLimit",
    "GetGroupRateLimit",
    "RemoveGroupRateLimit",
    "GetGroupRateLimitTtl",
    "SetGroupConcurrency",
    "GetGroupConcurrency",
    "RemoveGroupConcurrency",
    "PauseGroup",
    "ResumeGroup",
    "IsGroupPaused",
    "RateLimitGroup",
)
NUMBERS = {"max": 1, "duration": 1, "concurrency": 1}


def data(client: BunqueueClient, cmd: str, **fields: object) -> Answer:
    answer = client.ok(cmd, **{"queue": "q", "groupId": "g", **fields})
    assert set(answer) == {"data"}
    found: Answer = answer["data"]
    return found


def is_empty(client: BunqueueClient) -> bool:
    return client.ok("PULL", queue="q")["job"] is None


@pytest.mark.parametrize("cmd", GROUP_COMMANDS)
@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({}, "groupId is required"),
        ({"groupId": None}, "groupId is required"),
        ({"groupId": 5}, "groupId must be a string"),
        ({"groupId": ""}, "groupId must be a non-empty string"),
        ({"groupId": "x" * 257}, "groupId must be at most 256 characters"),
        ({"groupId": "a\0b"}, "groupId must not contain NUL characters"),
        ({"groupId": "g", "queue": "a b"}, "Queue name contains invalid characters"),
    ],
)
def test_a_command_names_its_group(cmd: str, fields: Answer, error: str) -> None:
    site = BareBunqueue()
    assert site.connect().refused(cmd, **{"queue": "q", **NUMBERS, **fields}) == error
    assert "q" not in site.yard.queues


@pytest.mark.parametrize("bad", [0, -1, 1.5, 2**53, "x", None, True, float("nan")])
@pytest.mark.parametrize(
    ("cmd", "key"),
    [
        ("SetGroupRateLimit", "max"),
        ("SetGroupRateLimit", "duration"),
        ("SetGroupConcurrency", "concurrency"),
        ("RateLimitGroup", "duration"),
    ],
)
def test_a_limit_is_a_positive_safe_integer(cmd: str, key: str, bad: object) -> None:
    client = BareBunqueue().connect()
    fields = {"queue": "q", "groupId": "g", **NUMBERS, key: bad}
    assert client.refused(cmd, **fields) == f"{key} must be a positive safe integer"


def test_what_does_not_fit_into_a_bucket_is_refused() -> None:
    client = BareBunqueue().connect()
    fields = {"queue": "q", "groupId": "g", "max": 2**40, "duration": 2**30}
    assert "too large" in client.refused("SetGroupRateLimit", **fields)


def test_jobs_are_counted_by_group() -> None:
    site = BareBunqueue()
    client = site.connect()
    assert data(client, "GetGroupsJobsCount") == {"count": 0}
    assert data(client, "GetGroupJobsCount") == {"count": 0}
    client.finish(groupId="g")
    client.bury(groupId="g")
    for _ in range(2):
        client.push(groupId="g")
    client.push(groupId="g", delay=1000)
    client.push(groupId="h", delay=1000)
    client.push(delay=1000)
    client.pull()
    assert data(client, "GetGroupJobsCount") == {"count": 2}
    assert data(client, "GetGroupActiveCount") == {"count": 1}
    assert data(client, "GetGroupsJobsCount") == {"count": 3}
    assert data(client, "GetGroupJobsCount", groupId="h") == {"count": 1}
    client.push()
    assert data(client, "GetGroupsJobsCount") == {"count": 3}


def test_a_paused_group_is_passed_over_until_it_is_resumed() -> None:
    site = BareBunqueue()
    client = site.connect()
    client.push(groupId="g")
    assert data(client, "ResumeGroup") == {"changed": False}
    assert data(client, "IsGroupPaused") == {"paused": False}
    assert data(client, "PauseGroup") == {"changed": True}
    assert data(client, "PauseGroup") == {"changed": False}
    assert data(client, "IsGroupPaused") == {"paused": True}
    waiting = client.send("PULL", queue="q", timeout=1000)
    assert client.hear(waiting) is None
    assert data(client, "ResumeGroup") == {"changed": True}
    answer = client.hear(waiting)
    assert answer is not None
    assert answer["job"]["groupId"] == "g"
    site.check()


def test_a_group_has_a_concurrency_of_its_own() -> None:
    site = BareBunqueue()
    client = site.connect()
    assert data(client, "GetGroupConcurrency") == {"concurrency": None}
    assert client.ok("SetGroupConcurrency", queue="q", groupId="g", concurrency=1) == {}
    assert data(client, "GetGroupConcurrency") == {"concurrency": 1}
    for _ in range(2):
        client.push(groupId="g")
    client.pull()
    assert is_empty(client)
    assert data(client, "RemoveGroupConcurrency") == {"removed": 1}
    assert data(client, "RemoveGroupConcurrency") == {"removed": 0}
    client.pull()


def test_a_group_has_a_rate_of_its_own() -> None:
    site = BareBunqueue()
    client = site.connect()
    assert data(client, "GetGroupRateLimit") == {"limit": None}
    assert data(client, "GetGroupRateLimitTtl") == {"ttl": -2}
    assert client.ok("SetGroupRateLimit", queue="q", groupId="g", max=2, duration=1000) == {}
    assert data(client, "GetGroupRateLimit") == {"limit": {"max": 2, "duration": 1000}}
    assert data(client, "GetGroupRateLimitTtl") == {"ttl": 0}
    for _ in range(4):
        client.push(groupId="g")
    client.pull()
    client.pull()
    assert is_empty(client)
    assert data(client, "GetGroupRateLimitTtl") == {"ttl": 500}
    site.tick(500)
    client.pull()
    assert is_empty(client)
    assert data(client, "RemoveGroupRateLimit") == {"removed": 1}
    assert data(client, "RemoveGroupRateLimit") == {"removed": 0}
    client.pull()


def test_a_group_is_held_back_for_a_time() -> None:
    site = BareBunqueue()
    client = site.connect()
    client.push(groupId="g")
    assert client.ok("RateLimitGroup", queue="q", groupId="g", duration=300) == {}
    assert data(client, "GetGroupRateLimitTtl") == {"ttl": 300}
    waiting = client.send("PULL", queue="q", timeout=1000)
    site.tick(299)
    assert client.hear(waiting) is None
    assert data(client, "GetGroupRateLimitTtl") == {"ttl": 1}
    site.tick(1)
    assert client.hear(waiting) is not None
    assert data(client, "GetGroupRateLimitTtl") == {"ttl": -2}
    site.check()


def test_a_group_is_held_back_even_after_its_last_job_left() -> None:
    site = BareBunqueue()
    client = site.connect()
    job_id = client.push(groupId="g", removeOnComplete=True)
    client.pull()
    client.ok("RateLimitGroup", queue="q", groupId="g", duration=300)
    client.ok("ACK", id=job_id)
    client.push(groupId="g")
    assert is_empty(client)
    site.tick(300)
    client.pull()
    site.check()


def test_holding_back_again_counts_from_then() -> None:
    site = BareBunqueue()
    client = site.connect()
    client.ok("RateLimitGroup", queue="q", groupId="g", duration=300)
    site.tick(200)
    client.ok("RateLimitGroup", queue="q", groupId="g", duration=300)
    site.tick(200)
    assert data(client, "GetGroupRateLimitTtl") == {"ttl": 100}


def test_groups_and_queues_of_which_nothing_is_left_are_forgotten() -> None:
    site = BareBunqueue()
    client = site.connect()
    data(client, "PauseGroup")
    data(client, "ResumeGroup")
    assert "q" not in site.yard.queues
    client.ok("SetGroupConcurrency", queue="q", groupId="g", concurrency=1)
    data(client, "RemoveGroupConcurrency")
    assert "q" not in site.yard.queues
    client.ok("RateLimitGroup", queue="q", groupId="g", duration=100)
    assert "q" in site.yard.queues
    site.tick(100)
    assert "q" not in site.yard.queues


def test_what_was_set_for_groups_survives_a_restart() -> None:
    site = BareBunqueue(MemoryStorage())
    client = site.connect()
    data(client, "PauseGroup")
    client.ok("SetGroupConcurrency", queue="q", groupId="g", concurrency=3)
    client.ok("SetGroupRateLimit", queue="q", groupId="h", max=2, duration=1000)
    data(client, "PauseGroup", groupId="i")
    data(client, "ResumeGroup", groupId="i")
    late = site.reboot()
    client = late.connect()
    assert data(client, "IsGroupPaused") == {"paused": True}
    assert data(client, "GetGroupConcurrency") == {"concurrency": 3}
    limit = {"max": 2, "duration": 1000}
    assert data(client, "GetGroupRateLimit", groupId="h") == {"limit": limit}
    assert data(client, "IsGroupPaused", groupId="i") == {"paused": False}


# -- keys --------------------------------------------------------------------------------------


def owner(client: BunqueueClient, key: str = "k") -> object:
    return data(client, "GetDeduplicationJobId", deduplicationId=key)["jobId"]


def test_the_owner_of_a_key_is_found_while_it_keeps_others_out() -> None:
    site = BareBunqueue()
    client = site.connect()
    assert owner(client) is None
    job_id = client.push(uniqueKey="k", dedup={"ttl": 100})
    assert owner(client) == job_id
    assert owner(client, "other") is None
    site.tick(100)
    assert owner(client) is None
    assert data(client, "RemoveDeduplicationKey", deduplicationId="k") == {"count": 0}
    other = client.push(uniqueKey="k", jobId="mine")
    assert owner(client) == other == "mine"


def test_a_key_is_taken_away_for_good() -> None:
    site = BareBunqueue(MemoryStorage())
    client = site.connect()
    first = client.push(uniqueKey="k", ttl=60_000)
    assert data(client, "RemoveDeduplicationKey", deduplicationId="k") == {"count": 1}
    assert data(client, "RemoveDeduplicationKey", deduplicationId="k") == {"count": 0}
    site.check()
    late = site.reboot()
    client = late.connect()
    assert owner(client) is None
    second = client.push(uniqueKey="k")
    assert second != first
    late.check()
    late.tick(60_000)
    assert client.state(first) == "unknown", "it lives as long as before"
    assert client.state(second) == "waiting"


def test_a_key_is_taken_from_the_job_that_owns_it_only() -> None:
    site = BareBunqueue()
    client = site.connect()
    options: Answer = {"uniqueKey": "k", "dedup": {"replace": True}}
    first = client.push(**options)
    client.pull()
    second = client.push(**options)
    assert client.ok("RemoveJobDeduplicationKey", id=first) == {"data": {"removed": False}}
    assert client.ok("RemoveJobDeduplicationKey", id=second) == {"data": {"removed": True}}
    assert client.ok("RemoveJobDeduplicationKey", id=second) == {"data": {"removed": False}}
    assert client.ok("RemoveJobDeduplicationKey", id="nobody") == {"data": {"removed": False}}
    assert client.ok("RemoveJobDeduplicationKey") == {"data": {"removed": False}}
    assert owner(client) is None
