"""Groups: fair turns, pauses and limits within one queue."""

import time

import pytest

from tests.support.servers.bunqueue import Answer, Client


def data(client: Client, cmd: str, queue: str, **fields: object) -> Answer:
    answer = client.ok(cmd, queue=queue, **fields)
    assert set(answer) == {"data"}
    found: Answer = answer["data"]
    return found


def fill(client: Client, queue: str, groups: str = "ab", count: int = 3) -> None:
    for n in range(count):
        for group in groups:
            client.push(queue, f"{group}{n}", groupId=group)


def taken(client: Client, queue: str, count: int) -> list[object]:
    return [client.pull(queue)["data"] for _ in range(count)]


def test_ungrouped_jobs_leave_first_then_groups_in_turn(client: Client, queue: str) -> None:
    fill(client, queue)
    client.push(queue, "free")
    assert taken(client, queue, 7) == ["free", "a0", "b0", "a1", "b1", "a2", "b2"]


def test_a_batch_takes_turns_too(client: Client, queue: str) -> None:
    for n in range(3):
        client.push(queue, f"a{n}", groupId="a")
    client.push(queue, "b0", groupId="b")
    jobs = client.ok("PULLB", queue=queue, count=4)["jobs"]
    assert [job["data"] for job in jobs] == ["a0", "b0", "a1", "a2"]


def test_within_a_group_the_lower_number_is_sooner(client: Client, queue: str) -> None:
    for name, priority in (("late", 5), ("soon", 1), ("first", 0), ("soon2", 1)):
        client.push(queue, name, groupId="g", priority=priority)
    assert taken(client, queue, 4) == ["first", "soon", "soon2", "late"]


@pytest.mark.parametrize("priority", [-1, 2_097_152, 1.5, "x"])
def test_the_priority_within_a_group_has_its_own_range(
    client: Client, queue: str, priority: object
) -> None:
    error = client.refused("PUSH", queue=queue, data=1, groupId="g", priority=priority)
    assert "priority" in error
    client.push(queue, 1, groupId="g", priority=2_097_151)


def test_groups_are_counted(client: Client, queue: str) -> None:
    fill(client, queue)
    client.push(queue, "free")
    assert data(client, "GetGroupsJobsCount", queue) == {"count": 6}
    assert data(client, "GetGroupJobsCount", queue, groupId="a") == {"count": 3}
    assert data(client, "GetGroupJobsCount", queue, groupId="none") == {"count": 0}
    assert data(client, "GetGroupActiveCount", queue, groupId="a") == {"count": 0}
    assert taken(client, queue, 2) == ["free", "a0"]
    assert data(client, "GetGroupActiveCount", queue, groupId="a") == {"count": 1}
    assert data(client, "GetGroupJobsCount", queue, groupId="a") == {"count": 2}


def test_a_paused_group_is_passed_over(client: Client, queue: str) -> None:
    fill(client, queue, count=1)
    assert data(client, "IsGroupPaused", queue, groupId="a") == {"paused": False}
    assert data(client, "PauseGroup", queue, groupId="a") == {"changed": True}
    assert data(client, "PauseGroup", queue, groupId="a") == {"changed": False}
    assert data(client, "IsGroupPaused", queue, groupId="a") == {"paused": True}
    assert taken(client, queue, 1) == ["b0"]
    assert client.is_empty(queue)
    assert data(client, "ResumeGroup", queue, groupId="a") == {"changed": True}
    assert data(client, "ResumeGroup", queue, groupId="a") == {"changed": False}
    assert taken(client, queue, 1) == ["a0"]


def test_a_long_poll_wakes_when_a_group_resumes(client: Client, other: Client, queue: str) -> None:
    client.ok("PauseGroup", queue=queue, groupId="a")
    client.push(queue, 1, groupId="a")
    pull = other.send("PULL", queue=queue, timeout=20_000)
    assert other.is_silent()
    client.ok("ResumeGroup", queue=queue, groupId="a")
    assert other.receive(pull)["job"]["data"] == 1


def test_a_pull_may_limit_the_concurrency_of_each_group(client: Client, queue: str) -> None:
    fill(client, queue)
    group = {"concurrency": 1}
    jobs = client.ok("PULLB", queue=queue, count=10, group=group)["jobs"]
    assert [job["data"] for job in jobs] == ["a0", "b0"]
    assert client.ok("PULL", queue=queue, group=group)["job"] is None
    client.ok("ACK", id=jobs[0]["id"])
    assert client.ok("PULL", queue=queue, group=group)["job"]["data"] == "a1"


def test_a_group_may_have_a_concurrency_of_its_own(client: Client, queue: str) -> None:
    assert data(client, "GetGroupConcurrency", queue, groupId="a") == {"concurrency": None}
    assert client.ok("SetGroupConcurrency", queue=queue, groupId="a", concurrency=2) == {}
    assert data(client, "GetGroupConcurrency", queue, groupId="a") == {"concurrency": 2}
    fill(client, queue)
    jobs = client.ok("PULLB", queue=queue, count=10, group={"concurrency": 1})["jobs"]
    assert [job["data"] for job in jobs] == ["a0", "b0", "a1"]
    assert data(client, "RemoveGroupConcurrency", queue, groupId="a") == {"removed": 1}
    assert data(client, "RemoveGroupConcurrency", queue, groupId="a") == {"removed": 0}


def test_a_pull_may_limit_the_rate_of_each_group(client: Client, queue: str) -> None:
    fill(client, queue)
    group = {"limit": {"max": 1, "duration": 600_000}}
    jobs = client.ok("PULLB", queue=queue, count=10, group=group)["jobs"]
    assert [job["data"] for job in jobs] == ["a0", "b0"]
    assert client.ok("PULL", queue=queue, group=group)["job"] is None


def test_a_group_may_have_a_rate_of_its_own(client: Client, queue: str) -> None:
    assert data(client, "GetGroupRateLimit", queue, groupId="a") == {"limit": None}
    fields = {"groupId": "a", "max": 2, "duration": 600_000}
    assert client.ok("SetGroupRateLimit", queue=queue, **fields) == {}
    limit = {"max": 2, "duration": 600_000}
    assert data(client, "GetGroupRateLimit", queue, groupId="a") == {"limit": limit}
    fill(client, queue)
    group = {"limit": {"max": 1, "duration": 600_000}}
    jobs = client.ok("PULLB", queue=queue, count=10, group=group)["jobs"]
    assert [job["data"] for job in jobs] == ["a0", "b0", "a1"]
    assert data(client, "GetGroupRateLimitTtl", queue, groupId="a")["ttl"] > 0
    assert data(client, "RemoveGroupRateLimit", queue, groupId="a") == {"removed": 1}
    assert data(client, "RemoveGroupRateLimit", queue, groupId="a") == {"removed": 0}


def test_a_group_can_be_held_back_for_a_time(client: Client, queue: str) -> None:
    fill(client, queue, count=1)
    assert data(client, "GetGroupRateLimitTtl", queue, groupId="a")["ttl"] < 0
    assert client.ok("RateLimitGroup", queue=queue, groupId="a", duration=150) == {}
    assert 0 < data(client, "GetGroupRateLimitTtl", queue, groupId="a")["ttl"] <= 150
    assert taken(client, queue, 1) == ["b0"]
    assert client.is_empty(queue)
    deadline = time.monotonic() + 5
    while (job := client.ok("PULL", queue=queue)["job"]) is None:
        assert time.monotonic() < deadline, "the group was never let go"
    assert job["data"] == "a0"


def test_a_group_may_be_full(client: Client, queue: str) -> None:
    options = {"groupId": "a", "groupMaxSize": 2}
    for n in range(2):
        client.push(queue, n, **options)
    error = client.refused("PUSH", queue=queue, data=3, **options)
    assert error == "Group a has reached its maximum size of 2"
    client.push(queue, 4, groupId="b", groupMaxSize=2)
    assert data(client, "GetGroupJobsCount", queue, groupId="a") == {"count": 2}


@pytest.mark.parametrize(
    ("cmd", "fields"),
    [
        ("SetGroupConcurrency", {"concurrency": 0}),
        ("SetGroupConcurrency", {"concurrency": "x"}),
        ("SetGroupConcurrency", {}),
        ("SetGroupRateLimit", {"max": 0, "duration": 1}),
        ("SetGroupRateLimit", {"max": 1, "duration": 1.5}),
        ("RateLimitGroup", {"duration": -1}),
    ],
)
def test_a_bad_group_limit_is_refused(client: Client, queue: str, cmd: str, fields: Answer) -> None:
    error = client.refused(cmd, queue=queue, groupId="a", **fields)
    assert error.endswith("must be a positive safe integer")


@pytest.mark.parametrize(
    "group",
    [5, [], {"concurrency": 0}, {"limit": 5}, {"limit": {"max": 1}}, {"affinity": 5}],
)
def test_bad_group_defaults_of_a_pull_are_refused(
    client: Client, queue: str, group: object
) -> None:
    assert client.refused("PULL", queue=queue, group=group).startswith("group")
