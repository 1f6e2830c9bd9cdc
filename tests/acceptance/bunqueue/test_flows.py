"""Dependencies and flows: which job waits for which, and what a child's end does to its parent."""

from collections.abc import Callable

import pytest

from tests.support.servers.bunqueue import Answer, Client, ours


def flow(queue: str, count: int = 2, **child_options: object) -> list[Answer]:
    """A parent behind its children, as the official client would plan it."""
    parent_id = f"{queue}.parent"
    children = [f"{queue}.child{n}" for n in range(count)]
    jobs: list[Answer] = [
        {
            "id": child_id,
            "queue": f"{queue}-c",
            "input": {
                "name": "child",
                "data": {"n": n, "__parentId": parent_id, "__parentQueue": queue},
                "parentId": parent_id,
                "maxAttempts": 1,
                **child_options,
            },
        }
        for n, child_id in enumerate(children)
    ]
    parent = {
        "name": "parent",
        "data": {"p": 1, "__childrenIds": children},
        "childrenIds": children,
        "dependsOn": children,
    }
    return [*jobs, {"id": parent_id, "queue": queue, "input": parent}]


def push_flow(client: Client, queue: str, count: int = 2, **options: object) -> str:
    """Push a flow and return the id of the parent."""
    client.ok("PUSHF", jobs=flow(queue, count, **options))
    return f"{queue}.parent"


def end_child(client: Client, queue: str, **fail: object) -> str:
    """Take one child and finish it, or fail it; return its id."""
    job = client.pull(f"{queue}-c")
    if fail:
        client.ok("FAIL", id=job["id"], **fail)
    else:
        client.ok("ACK", id=job["id"], result={"v": job["data"]["n"]})
    job_id: str = job["id"]
    return job_id


def values(client: Client, job_id: str) -> Answer:
    answer = client.ok("GetChildrenValues", id=job_id)
    assert set(answer) == {"data"}
    found: Answer = answer["data"]["values"]
    return found


def test_a_job_waits_for_what_it_depends_on(client: Client, queue: str) -> None:
    first, second = client.push(queue, 1), client.push(queue, 2)
    third = client.push(queue, 3, dependsOn=[first, second])
    assert client.state(third) == "waiting-children"
    assert client.job(third)["dependsOn"] == [first, second]
    jobs = client.ok("PULLB", queue=queue, count=10)["jobs"]
    assert [job["id"] for job in jobs] == [first, second]
    client.ok("ACK", id=first)
    assert client.is_empty(queue)
    pull = client.send("PULL", queue=queue, timeout=20_000)
    client.ok("ACK", id=second)
    assert client.receive(pull)["job"]["id"] == third


def test_a_finished_dependency_holds_nobody(client: Client, queue: str) -> None:
    done = client.finish(queue, 1)
    client.push(queue, 2, dependsOn=[done])
    assert client.pull(queue)["data"] == 2


def test_a_removed_but_completed_dependency_holds_nobody(client: Client, queue: str) -> None:
    done = client.finish(queue, 1, removeOnComplete=True)
    client.push(queue, 2, dependsOn=[done])
    assert client.pull(queue)["data"] == 2


def test_a_batch_may_depend_on_itself_in_any_order(client: Client, queue: str) -> None:
    jobs = [
        {"data": "last", "dependsOn": [f"{queue}.first"]},
        {"data": "first", "customId": f"{queue}.first"},
    ]
    ids = client.ok("PUSHB", queue=queue, jobs=jobs)["ids"]
    assert client.pull(queue)["data"] == "first"
    assert client.is_empty(queue)
    client.ok("ACK", id=ids[1])
    assert client.pull(queue)["data"] == "last"


def test_a_dependency_may_live_in_another_queue(client: Client, queue: str) -> None:
    first = client.push(queue + "-x", 1)
    client.push(queue, 2, dependsOn=[first])
    client.pull(queue + "-x")
    client.ok("ACK", id=first)
    assert client.pull(queue)["data"] == 2


def test_a_failed_dependency_leaves_the_dependent_parked(client: Client, queue: str) -> None:
    first = client.push(queue, 1, maxAttempts=1)
    second = client.push(queue, 2, dependsOn=[first])
    client.pull(queue)
    client.ok("FAIL", id=first, error="x")
    assert client.state(second) == "waiting-children"
    assert client.ok("Cancel", id=second) == {}
    assert client.state(second) == "unknown"


def test_a_retried_dependency_still_releases_its_dependent(client: Client, queue: str) -> None:
    first = client.bury(queue, 1)
    second = client.push(queue, 2, dependsOn=[first])
    assert client.state(second) == "waiting-children"
    client.ok("RetryDlq", queue=queue)
    client.pull(queue)
    client.ok("ACK", id=first)
    assert client.pull(queue)["id"] == second


def test_a_delayed_dependent_waits_for_both(client: Client, queue: str) -> None:
    first = client.push(queue, 1)
    client.push(queue, 2, dependsOn=[first], delay=1)
    client.pull(queue)
    assert client.ok("PULL", queue=queue, timeout=60)["job"] is None
    client.ok("ACK", id=first)
    assert client.pull(queue)["data"] == 2


def test_a_flow_is_answered_with_its_jobs(client: Client, queue: str) -> None:
    jobs = flow(queue)
    answer = client.ok("PUSHF", jobs=jobs)
    assert set(answer) == {"data"}
    found = {job["id"]: job for job in answer["data"]["jobs"]}
    assert set(found) == {job["id"] for job in jobs}
    parent, child = found[f"{queue}.parent"], found[f"{queue}.child0"]
    assert (parent["name"], child["name"]) == ("parent", "child")
    assert parent["childrenIds"] == [f"{queue}.child0", f"{queue}.child1"]
    assert child["parentId"] == f"{queue}.parent"
    assert child["data"]["n"] == 0
    assert client.state(parent["id"]) == "waiting-children"
    assert client.state(child["id"]) == "waiting"


def test_a_parent_runs_after_its_children_and_sees_their_values(client: Client, queue: str) -> None:
    parent = push_flow(client, queue, 3)
    for _ in range(3):
        assert client.is_empty(queue)
        end_child(client, queue)
    assert client.pull(queue)["id"] == parent
    assert values(client, parent) == {f"{queue}-c:{queue}.child{n}": {"v": n} for n in range(3)}
    client.ok("ACK", id=parent)
    assert client.state(parent) == "completed"


@ours("it forgets the queue of a removed child")
def test_values_outlive_children_that_are_removed(client: Client, queue: str) -> None:
    parent = push_flow(client, queue, 1, removeOnComplete=True)
    end_child(client, queue)
    assert client.pull(queue)["id"] == parent
    assert values(client, parent) == {f"{queue}-c:{queue}.child0": {"v": 0}}


def test_a_flow_may_have_three_floors(client: Client, queue: str) -> None:
    ids = [f"{queue}.{n}" for n in range(3)]
    jobs = []
    for n, job_id in enumerate(ids):
        data: Answer = {"n": n}
        given: Answer = {"data": data}
        if n > 0:
            data["__childrenIds"] = given["childrenIds"] = given["dependsOn"] = [ids[n - 1]]
        if n < 2:
            data.update(__parentId=ids[n + 1], __parentQueue=queue)
            given["parentId"] = ids[n + 1]
        jobs.append({"id": job_id, "queue": queue, "input": given})
    client.ok("PUSHF", jobs=jobs)
    for job_id in ids:
        assert client.pull(queue)["id"] == job_id
        assert client.is_empty(queue)
        client.ok("ACK", id=job_id)


Fault = Callable[[list[Answer]], object]

FAULTS: dict[str, Fault] = {
    "twice the same id": lambda jobs: jobs.append(jobs[0]),
    "a colon in an id": lambda jobs: jobs[0].update(id="a:b"),
    "a parent that is not there": lambda jobs: jobs.pop(),
    "a parent that does not know its child": lambda jobs: jobs[2]["input"].update(
        childrenIds=[jobs[1]["id"]], dependsOn=[jobs[1]["id"]]
    ),
    "a cycle": lambda jobs: jobs[0]["input"].update(dependsOn=[jobs[2]["id"]]),
    "a bad queue": lambda jobs: jobs[0].update(queue="a b"),
    "two policies": lambda jobs: jobs[0]["input"].update(
        failParentOnFailure=True, ignoreDependencyOnFailure=True
    ),
    "a policy without a parent": lambda jobs: jobs[2]["input"].update(failParentOnFailure=True),
    "a unique key": lambda jobs: jobs[0]["input"].update(uniqueKey="k"),
    "a repetition": lambda jobs: jobs[0]["input"].update(repeat={"every": 1000}),
    "a debounce": lambda jobs: jobs[0]["input"].update(debounceId="d"),
    "a wrong parent in the data": lambda jobs: jobs[0]["input"]["data"].update(__parentId="x"),
    "wrong children in the data": lambda jobs: jobs[2]["input"]["data"].update(__childrenIds=[]),
    "data that are no map": lambda jobs: jobs[0]["input"].update(data=5),
    "a bad option": lambda jobs: jobs[0]["input"].update(priority="x"),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_bad_flow_leaves_nothing(client: Client, queue: str, fault: Fault) -> None:
    jobs = flow(queue)
    fault(jobs)
    client.refused("PUSHF", jobs=jobs)
    assert client.is_empty(f"{queue}-c")
    for name in ("child0", "child1", "parent"):
        assert client.state(f"{queue}.{name}") == "unknown"


def test_a_flow_with_an_id_that_exists_is_refused(client: Client, queue: str) -> None:
    client.push(queue, 1, jobId=f"{queue}.child1")
    client.refused("PUSHF", jobs=flow(queue))
    assert client.state(f"{queue}.child0") == "unknown"
    assert client.state(f"{queue}.parent") == "unknown"


def test_an_empty_flow_is_fine(client: Client) -> None:
    assert client.ok("PUSHF", jobs=[]) == {"data": {"jobs": []}}


def test_a_child_may_fail_its_parent(client: Client, queue: str) -> None:
    parent = push_flow(client, queue, failParentOnFailure=True)
    child = end_child(client, queue, error="boom")
    assert client.state(parent) == "failed"
    [entry] = client.ok("Dlq", queue=queue)["entries"]
    assert entry["error"] == f"Child job {child} failed: boom"
    assert entry["job"]["id"] == parent


def test_only_the_last_failure_counts(client: Client, queue: str) -> None:
    parent = push_flow(client, queue, 1, failParentOnFailure=True, maxAttempts=2, backoff=1)
    end_child(client, queue, error="first")
    assert client.state(parent) == "waiting-children"
    end_child(client, queue, error="last")
    assert client.state(parent) == "failed"


def test_a_failed_child_may_be_ignored(client: Client, queue: str) -> None:
    parent = push_flow(client, queue, ignoreDependencyOnFailure=True)
    failed = end_child(client, queue, error="boom")
    assert client.is_empty(queue)
    done = end_child(client, queue)
    assert client.pull(queue)["id"] == parent
    assert set(values(client, parent)) == {f"{queue}-c:{done}"}
    answer = client.ok("GetIgnoredChildrenFailures", id=parent)
    assert answer == {"values": {f"{queue}-c:{failed}": "boom"}}
    assert client.ok("GetFailedChildrenValues", id=parent) == {"values": {}}


def test_a_failed_child_may_be_dropped(client: Client, queue: str) -> None:
    parent = push_flow(client, queue, removeDependencyOnFailure=True)
    end_child(client, queue, error="boom")
    assert client.is_empty(queue)
    end_child(client, queue)
    assert client.pull(queue)["id"] == parent
    assert client.ok("GetIgnoredChildrenFailures", id=parent) == {"values": {}}
    assert client.ok("GetFailedChildrenValues", id=parent) == {"values": {}}


def test_a_failed_child_may_release_its_parent_at_once(client: Client, queue: str) -> None:
    parent = push_flow(client, queue, continueParentOnFailure=True)
    failed = end_child(client, queue, error="boom")
    assert client.pull(queue)["id"] == parent
    answer = client.ok("GetFailedChildrenValues", id=parent)
    assert answer == {"values": {f"{queue}-c:{failed}": "boom"}}
    assert client.ok("GetIgnoredChildrenFailures", id=parent) == {"values": {}}


def test_without_a_policy_the_parent_stays_parked(client: Client, queue: str) -> None:
    parent = push_flow(client, queue)
    end_child(client, queue, error="boom")
    end_child(client, queue)
    assert client.state(parent) == "waiting-children"
    assert client.ok("Cancel", id=parent) == {}


def test_an_active_parent_may_wait_for_the_children_left(client: Client, queue: str) -> None:
    parent = push_flow(client, queue, continueParentOnFailure=True)
    end_child(client, queue, error="boom")
    client.pull(queue)
    answer = client.ok("MoveToWaitingChildren", id=parent)
    assert answer == {"data": {"moved": True}}
    assert client.state(parent) == "waiting-children"


@ours("it never wakes a parent that parked itself")
def test_a_parked_parent_comes_back_when_they_are_done(client: Client, queue: str) -> None:
    parent = push_flow(client, queue, continueParentOnFailure=True)
    end_child(client, queue, error="boom")
    client.pull(queue)
    client.ok("MoveToWaitingChildren", id=parent)
    end_child(client, queue)
    assert client.pull(queue)["id"] == parent


def test_only_an_active_job_can_park_itself(client: Client, queue: str) -> None:
    client.refused("MoveToWaitingChildren", id="nobody")
    client.refused("MoveToWaitingChildren", id=client.push(queue, 1))


def test_a_child_can_be_cut_loose(client: Client, queue: str) -> None:
    parent = push_flow(client, queue)
    assert client.ok("RemoveChildDependency", id=f"{queue}.child0") == {"removed": True}
    assert client.state(parent) == "waiting-children"
    client.ok("Cancel", id=f"{queue}.child0")
    end_child(client, queue)
    assert client.pull(queue)["id"] == parent
    client.refused("RemoveChildDependency", id="nobody")
    client.refused("RemoveChildDependency", id=client.push(queue, 1))


def test_children_that_have_not_begun_can_be_removed(client: Client, queue: str) -> None:
    parent = push_flow(client, queue, 3)
    active = client.pull(f"{queue}-c")["id"]
    assert client.ok("RemoveUnprocessedChildren", id=parent) == {}
    states = [client.state(f"{queue}.child{n}") for n in range(3)]
    assert states.count("unknown") == 2
    assert client.state(active) == "active"


def test_a_flow_may_be_built_in_three_steps(client: Client, queue: str) -> None:
    children = [client.push(f"{queue}-c", {"n": n}) for n in range(2)]
    parent = client.push(queue, "p", dependsOn=children, childrenIds=children)
    for child in children:
        assert client.ok("UpdateParent", childId=child, parentId=parent) == {}
    assert [client.job(child)["parentId"] for child in children] == [parent, parent]
    end_child(client, queue)
    end_child(client, queue)
    assert client.pull(queue)["id"] == parent
    found = values(client, parent)
    assert found == {f"{queue}-c:{child}": {"v": n} for n, child in enumerate(children)}
    client.refused("UpdateParent", childId="nobody", parentId=parent)


def test_a_late_child_holds_a_queued_parent(client: Client, queue: str) -> None:
    parent = client.push(queue, "p")
    data = {"n": 0, "__parentId": parent, "__parentQueue": queue}
    child = client.push(f"{queue}-c", data, parentId=parent)
    assert client.state(parent) == "waiting-children"
    assert client.job(parent)["childrenIds"] == [child]
    assert client.is_empty(queue)
    end_child(client, queue)
    assert client.pull(queue)["id"] == parent
    assert values(client, parent) == {f"{queue}-c:{child}": {"v": 0}}
