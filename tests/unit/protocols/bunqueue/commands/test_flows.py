from collections.abc import Callable
from typing import Any

import pytest

from jobyard.protocols.bunqueue.commands.flow_push import FLOW_JOBS_MAX
from tests.support.clients.bunqueue import Answer, BunqueueClient
from tests.support.clients.flows import again, end_child, failures, family, late, stage, values
from tests.support.doors.bunqueue import BareBunqueue
from tests.support.site.storage import MemoryStorage

POLICIES = (
    "failParentOnFailure",
    "ignoreDependencyOnFailure",
    "removeDependencyOnFailure",
    "continueParentOnFailure",
)


# -- PUSHF -------------------------------------------------------------------------------------


def test_a_flow_survives_a_kill_at_every_step() -> None:
    site, client = stage("a", "b", removeOnComplete=True)
    for value in (7, 8):
        site, client = again(site)
        assert client.state("p") == "waiting-children"
        end_child(client, value)
    site, client = again(site)
    assert values(client) == {"c:a": 7, "c:b": 8}
    assert client.pull("q")["id"] == "p"
    client.ok("ACK", id="p")
    site, client = again(site)
    assert client.state("p") == "completed"
    assert values(client) == {"c:a": 7, "c:b": 8}
    assert client.state("a") == "unknown"


def test_the_answer_shows_the_jobs_as_they_were_put() -> None:
    site = BareBunqueue()
    worker, client = site.connect(), site.connect()
    pull = worker.send("PULL", queue="c", timeout=1000)
    jobs = client.ok("PUSHF", jobs=family("a"))["data"]["jobs"]
    assert [(job["id"], job["state"]) for job in jobs] == [
        ("a", "waiting"),
        ("p", "waiting-children"),
    ]
    answer = worker.hear(pull)
    assert answer is not None
    assert answer["job"]["id"] == "a"


def test_listeners_hear_of_all_jobs_before_any_is_said_to_wait() -> None:
    client = BareBunqueue().connect()
    client.ok("SubscribeEvents", queue="q")
    jobs = family("a", queue="q")
    jobs[0]["queue"] = "q"
    client.ok("PUSHF", jobs=jobs)
    client.pull("q")
    client.ok("ACK", id="a")
    told = [(event["eventType"], event["jobId"]) for event in client.events]
    assert told == [
        ("pushed", "a"),
        ("pushed", "p"),
        ("waiting-children", "p"),
        ("pulled", "a"),
        ("completed", "a"),
        ("waiting", "p"),
    ]


Fault = Callable[[list[Any]], object]

FAULTS: dict[str, tuple[Fault, str]] = {
    "no id": (lambda jobs: jobs[0].pop("id"), "id must be a string"),
    "an empty id": (lambda jobs: jobs[0].update(id=""), "id is invalid"),
    "a long id": (lambda jobs: jobs[0].update(id="x" * 1025), "id is invalid"),
    "a colon": (lambda jobs: jobs[0].update(id="a:a"), "cannot contain a colon"),
    "an id twice": (lambda jobs: jobs.insert(0, jobs[0]), "duplicate flow job id: a"),
    "no queue": (lambda jobs: jobs[0].pop("queue"), "Queue name is required"),
    "no input": (lambda jobs: jobs[0].pop("input"), "input is invalid: a"),
    "a list for input": (lambda jobs: jobs[0].update(input=[]), "input is invalid: a"),
    "another custom id": (lambda jobs: jobs[0]["input"].update(customId="x"), "custom id"),
    "an empty parent": (lambda jobs: jobs[0]["input"].update(parentId=""), "parent id is invalid"),
    "an unknown parent": (lambda jobs: jobs[0]["input"].update(parentId="x"), "parent not found"),
    "another parent": (
        lambda jobs: jobs.insert(0, {**jobs.pop(), "x": jobs[0]["input"].update(parentId="b")}),
        "flow child a does not point back to parent p",
    ),
    "a child too few": (
        lambda jobs: jobs[2]["input"].update(childrenIds=["b"], data={"__childrenIds": ["b"]}),
        "flow parent p does not own child a",
    ),
    "an unknown child": (
        lambda jobs: jobs[2]["input"].update(childrenIds=["a", "b", "x"]),
        "flow child not found: x",
    ),
    "a child nobody waits for": (
        lambda jobs: jobs[2]["input"].update(dependsOn=["b"]),
        "flow child is missing from dependencies: a",
    ),
    "a child twice": (
        lambda jobs: jobs[2]["input"].update(childrenIds=["a", "a", "b"]),
        "duplicate child",
    ),
    "a dependency twice": (
        lambda jobs: jobs[2]["input"].update(dependsOn=["a", "a", "b"]),
        "duplicate dependency",
    ),
    "an unknown dependency": (
        lambda jobs: jobs[2]["input"].update(dependsOn=["a", "b", "x"]),
        "flow dependency not found: x",
    ),
    "itself for a dependency": (
        lambda jobs: jobs[2]["input"].update(dependsOn=["a", "b", "p"]),
        "flow job cannot depend on itself: p",
    ),
    "a number for a dependency": (
        lambda jobs: jobs[2]["input"].update(dependsOn=[1]),
        "dependsOn must be an array of valid string job ids",
    ),
    "a circle": (lambda jobs: jobs[0]["input"].update(dependsOn=["p"]), "dependency cycle"),
    "another parent in the data": (
        lambda jobs: jobs[0]["input"]["data"].update(__parentQueue="x"),
        "flow child a metadata does not match parent p",
    ),
    "other children in the data": (
        lambda jobs: jobs[2]["input"]["data"].update(__childrenIds=["b", "a"]),
        "flow parent p children does not match",
    ),
    "data that are no map": (lambda jobs: jobs[0]["input"].update(data=[]), "must be an object"),
    "a repetition": (lambda jobs: jobs[0]["input"].update(repeat={}), "repeat is not supported"),
    "a key": (lambda jobs: jobs[0]["input"].update(uniqueKey="k"), "deduplication is not"),
    "a debounce": (lambda jobs: jobs[0]["input"].update(debounceTtl=1), "debounce is not"),
    "a switch that is none": (
        lambda jobs: jobs[0]["input"].update(lifo=1),
        "lifo must be a boolean",
    ),
    "two policies": (
        lambda jobs: jobs[0]["input"].update({POLICIES[0]: True, POLICIES[1]: True}),
        "mutually exclusive",
    ),
    "a policy of nobody's child": (
        lambda jobs: jobs[2]["input"].update({POLICIES[0]: True}),
        "requires a parent",
    ),
    "a bad option": (lambda jobs: jobs[1]["input"].update(delay=-1), "delay must be at least 0"),
    "too small a group": (
        lambda jobs: [job["input"].update(groupId="g", groupMaxSize=1) for job in jobs[:2]],
        "Group g has reached its maximum size of 1",
    ),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_bad_flow_is_refused_before_its_first_effect(fault: tuple[Fault, str]) -> None:
    site = BareBunqueue(MemoryStorage())
    before = (site.yard.journal.next_id, site.yard.journal.records_count, site.yard.last_stamp)
    jobs = family("a", "b")
    fault[0](jobs)
    assert fault[1] in site.connect().refused("PUSHF", jobs=jobs)
    journal = site.yard.journal
    assert (journal.next_id, journal.records_count, site.yard.last_stamp) == before
    assert list(site.yard.queues) == ["default"]


def test_what_is_no_list_of_jobs_is_refused() -> None:
    client = BareBunqueue().connect()
    assert client.refused("PUSHF") == "flow jobs must be an array"
    assert client.refused("PUSHF", jobs={}) == "flow jobs must be an array"
    assert client.refused("PUSHF", jobs=[1]) == "flow jobs[0] must be an object"
    jobs: list[Answer] = [{}] * (FLOW_JOBS_MAX + 1)
    assert client.refused("PUSHF", jobs=jobs) == "flow exceeds the 10000 job limit"


def test_a_flow_whose_answer_would_be_too_long_is_refused() -> None:
    site = BareBunqueue()
    given = {"data": {"x": "x" * (9 << 20)}}
    jobs = [{"id": str(n), "queue": "q", "input": given} for n in range(7)]
    client = site.connect()
    assert len(client.ok("PUSHF", jobs=jobs)["data"]["jobs"]) == 7
    many = [{"id": f"{n}x", "queue": "q", "input": {"data": {}}} for n in range(999)]
    reason = client.refused("PUSHF", jobs=[{**job, "id": f"y{job['id']}"} for job in jobs] + many)
    assert reason == "flow data is too large (max 64MB per atomic batch)"


@pytest.mark.parametrize("name", ["a", "p"])
def test_a_flow_does_not_take_a_name_that_is_taken(name: str) -> None:
    client = BareBunqueue().connect()
    client.finish("x", jobId=name)
    assert client.refused("PUSHF", jobs=family("a")) == f"Flow job {name} already exists"


def test_a_stopping_server_takes_no_flow() -> None:
    site = BareBunqueue()
    site.door.is_draining = True
    assert site.connect().refused("PUSHF", jobs=family("a")) == "Server is shutting down"
    assert list(site.yard.queues) == ["default"]


def test_a_flow_job_without_links_may_have_very_many_keys() -> None:
    client = BareBunqueue().connect()
    data = {str(n): n for n in range(2000)}
    client.ok("PUSHF", jobs=[{"id": "a", "queue": "q", "input": {"data": data}}])
    assert client.pull("q")["data"] == data


# -- parking -----------------------------------------------------------------------------------


def test_only_the_holder_of_a_job_can_move_it_to_waiting_children() -> None:
    client = BareBunqueue().connect()
    client.push("q")
    name, token = client.lock("q")
    assert client.refused("MoveToWaitingChildren", id=name) == "Job is not active"
    assert client.refused("MoveToWaitingChildren", id=name, token="x") == "Job is not active"
    assert client.ok("MoveToWaitingChildren", id=name, token=token) == {"data": {"moved": True}}
    assert client.state(name) == "waiting-children"
    assert client.refused("MoveToWaitingChildren", id=name, token=token) == "Job is not active"
    assert client.refused("MoveToWaitingChildren") == "Job is not active"


def test_a_parked_parent_is_found_by_a_late_child_after_a_kill() -> None:
    site = BareBunqueue(MemoryStorage())
    client = site.connect()
    parent = client.push("q")
    client.pull("q")
    client.ok("MoveToWaitingChildren", id=parent)
    site, client = again(site)
    client.ok("PUSH", **late(parent))
    site, client = again(site)
    end_child(client, "v")
    assert client.pull("q")["id"] == parent
    site.check()


def test_a_parent_whose_children_are_all_done_does_not_stay_parked() -> None:
    site, client = stage("a")
    end_child(client, 1)
    client.pull("q")
    client.ok("MoveToWaitingChildren", id="p")
    assert client.state("p") == "waiting"
    again(site)


# -- results of children -----------------------------------------------------------------------


def test_a_removed_child_is_seen_to_be_missing() -> None:
    site, client = stage("a", "b")
    client.ok("Cancel", id="a")
    end_child(client, 1)
    site, client = again(site)
    assert client.state("p") == "waiting-children"
    assert failures(client) == {"c:a": "Job was removed"}
    client.ok("Cancel", id="p")
    assert client.state("p") == "unknown"
    site.check()


@pytest.mark.parametrize("how", ["FAIL", "Discard", "timeout", "stall"])
def test_however_a_child_fails_its_parent_fails_with_it(how: str) -> None:
    site = BareBunqueue(MemoryStorage())
    client = site.connect()
    jobs = family("a", failParentOnFailure=True, timeout=1000 if how == "timeout" else 0)
    client.ok("PUSHF", jobs=jobs)
    if how == "Discard":
        client.ok("Discard", id="a")
    else:
        client.pull("c")
    if how == "FAIL":
        client.ok("FAIL", id="a", error="no")
    site.tick(60_000)
    assert [client.state(name) for name in "ap"] == ["failed", "failed"]
    reason = str(client.ok("GetJob", id="p")["job"]["failedReason"])
    assert reason.startswith("Child job a failed: ")
    again(site)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_removed_child_acts_by_its_policy(policy: str) -> None:
    site, client = stage("a", **{policy: True})
    client.ok("Cancel", id="a")
    assert client.state("p") == ("failed" if policy == POLICIES[0] else "waiting")
    again(site)


def test_a_revived_child_of_a_failed_parent_shows_its_value() -> None:
    site, client = stage("a", failParentOnFailure=True)
    end_child(client, error="no")
    assert failures(client) == {"c:a": "no"}
    client.ok("RetryDlq", queue="c")
    end_child(client, 4)
    assert client.state("p") == "failed"
    client.ok("RetryDlq", queue="q")
    site, client = again(site)
    assert client.pull("q")["id"] == "p"
    assert values(client) == {"c:a": 4}
    client.ok("ACK", id="p")
    site.check()


def test_only_children_are_asked_for_their_values() -> None:
    client = BareBunqueue().connect()
    first = client.finish("q", result=1)
    second = client.push("q", dependsOn=[first])
    assert values(client, second) == {}


def test_ids_of_no_job_have_no_values() -> None:
    client = BareBunqueue().connect()
    assert values(client, "nobody") == {}
    assert client.ok("GetChildrenValues") == {"data": {"values": {}}}
    assert failures(client, "nobody") == {}
    assert client.ok("GetIgnoredChildrenFailures", id=5) == {"values": {}}


# -- results and the memory budget -------------------------------------------------------------


def crowded(**options: bool) -> tuple[BareBunqueue, BunqueueClient]:
    """Return a site whose memory budget holds one long result, with a flow of three children."""
    site = BareBunqueue(MemoryStorage(), budget=2500)
    client = site.connect()
    client.ok("PUSHF", jobs=family("a", "b", "c", queue="q", parent="p", **options))
    site.commit()
    return site, client


def test_results_stored_with_a_parent_count_towards_the_memory_budget() -> None:
    site, client = crowded()
    for letter in "xyz":
        end_child(client, 2000 * letter)
        site.commit()
        site.check()
        assert 2000 <= site.yard.bodies.pinned <= 2500
    site, client = again(site)
    assert 2000 <= site.yard.bodies.pinned <= 2500
    assert values(client) == {f"c:{c}": 2000 * r for c, r in zip("abc", "xyz", strict=True)}
    assert client.pull("q")["id"] == "p"
    client.ok("ACK", id="p")
    client.ok("Obliterate", queue="q")
    site.check()
    assert site.yard.bodies.pinned == 0


def test_a_result_that_only_the_parent_could_store_is_refused_until_there_is_memory() -> None:
    site, client = crowded(removeOnComplete=True)
    end_child(client, 2000 * "x")
    held = str(client.pull("c")["id"])
    assert client.refused("ACK", id=held, result=2000 * "y") == "Storage full"
    assert client.state(held) == "active"
    client.ok("ACK", id=held, result="short")
    site, client = again(site)
    assert values(client) == {"c:a": 2000 * "x", "c:b": "short"}


def test_a_job_linked_to_children_that_are_done_stores_one_megabyte_of_results_at_most() -> None:
    site = BareBunqueue(MemoryStorage())
    client = site.connect()
    done = [client.finish("c", result=300_000 * "x") for _ in range(5)]
    parent = client.push("q", dependsOn=done, childrenIds=done)
    assert 900_000 < site.yard.bodies.pinned < 1 << 20
    assert [len(value) for value in values(client, parent).values()] == 5 * [300_000]
    site.check()


def test_results_too_large_for_one_frame_are_asked_for_one_by_one() -> None:
    site = BareBunqueue(MemoryStorage())
    client = site.connect()
    done = [client.finish("c", result=9_000_000 * "x") for _ in range(6)]
    parent = client.push("q", dependsOn=done, childrenIds=done)
    assert "too large for one answer" in client.refused("GetChildrenValues", id=parent)
    assert len(client.ok("GetResult", id=done[5])["result"]) == 9_000_000
    short = client.push("q", dependsOn=done[:2], childrenIds=done[:2])
    assert [len(value) for value in values(client, short).values()] == [9_000_000, 9_000_000]


# -- links added by commands -------------------------------------------------------------------


def test_a_flow_in_three_steps_acts_by_its_policy_even_if_the_child_was_faster() -> None:
    site = BareBunqueue(MemoryStorage())
    client = site.connect()
    for n in range(2):
        child = client.push("c", parentId="pending", maxAttempts=1, failParentOnFailure=True)
        if n == 0:
            end_child(client, error="no")
        parent = client.push("q", dependsOn=[child], childrenIds=[child])
        if n == 1:
            end_child(client, error="no")
        client.ok("UpdateParent", childId=child, parentId=parent)
        site, client = again(site)
        assert client.state(parent) == "failed"
        assert client.ok("GetJob", id=child)["job"]["parentId"] == parent


def test_a_child_can_be_tied_to_a_parent_that_did_not_name_it() -> None:
    site = BareBunqueue(MemoryStorage())
    client = site.connect()
    parent, child = client.push("q"), client.push("c")
    client.ok("UpdateParent", childId=child, parentId=parent)
    client.ok("UpdateParent", childId=child, parentId=parent)
    site, client = again(site)
    assert client.state(parent) == "waiting-children"
    assert client.ok("GetJob", id=parent)["job"]["childrenIds"] == [child]
    end_child(client, 1)
    assert client.state(parent) == "waiting"
    done = client.finish("c", result=2)
    client.ok("UpdateParent", childId=done, parentId=parent)
    assert client.state(parent) == "waiting"
    assert values(client, parent) == {f"c:{child}": 1, f"c:{done}": 2}
    again(site)


def test_the_data_of_a_child_tell_whose_it_is() -> None:
    site = BareBunqueue(MemoryStorage())
    client = site.connect()
    parent = client.push("q")
    for data, told in (
        ({}, {"__parentId": parent, "__parentQueue": "q"}),
        (
            {"__parentId": "pending", "a": 1.0},
            {"a": 1.0, "__parentId": parent, "__parentQueue": "q"},
        ),
        ([1], [1]),
    ):
        child = client.push("c", data)
        client.ok("UpdateParent", childId=child, parentId=parent)
        site, client = again(site)
        assert client.ok("GetJob", id=child)["job"]["data"] == told


def test_a_child_that_is_waited_for_already_is_waited_for_once() -> None:
    site = BareBunqueue()
    client = site.connect()
    child = client.push("c")
    parent = client.push("p", dependsOn=[child])
    client.ok("UpdateParent", childId=child, parentId=parent)
    site.check()
    client.pull("c")
    client.ok("ACK", id=child)
    assert client.state(parent) == "waiting"
    assert site.yard.names.dependents.count == 0


def test_ties_that_make_no_sense_are_refused() -> None:
    client = BareBunqueue().connect()
    first, second, third = client.push("q"), client.push("q"), client.push("q")
    for child, parent, reason in (
        ("nobody", first, "Child job not found: nobody"),
        (first, "nobody", "Parent job not found: nobody"),
        (first, first, "A flow job cannot be its own parent"),
    ):
        assert client.refused("UpdateParent", childId=child, parentId=parent) == reason
    client.ok("UpdateParent", childId=first, parentId=second)
    reason = client.refused("UpdateParent", childId=first, parentId=third)
    assert reason == f"Child job {first} already belongs to parent {second}"
    reason = client.refused("UpdateParent", childId=second, parentId=first)
    assert reason == "flow contains a dependency cycle"
    assert client.pull("q")["id"] == first
    assert client.pull("q")["id"] == third
    reason = client.refused("UpdateParent", childId=second, parentId=third)
    assert reason == f"Parent job {third} is not linkable"


def test_a_child_cut_loose_is_forgotten_by_both_sides() -> None:
    site, client = stage("a", failParentOnFailure=True)
    assert client.ok("RemoveChildDependency", id="a") == {"removed": True}
    site, client = again(site)
    assert client.state("p") == "waiting"
    assert client.ok("GetJob", id="p")["job"]["childrenIds"] == []
    assert client.ok("GetJob", id="a")["job"]["parentId"] is None
    end_child(client, error="no")
    assert client.state("p") == "waiting"
    assert client.refused("RemoveChildDependency", id="a") == "Job a has no parent"
    assert client.refused("RemoveChildDependency", id="x") == "Job not found: x"
    site.check()


def test_a_parent_that_does_not_wait_any_more_has_no_tie_to_cut() -> None:
    site, client = stage("a")
    end_child(client)
    assert client.ok("RemoveChildDependency", id="a") == {"removed": False}
    site.check()


@pytest.mark.parametrize("policy", ["", *POLICIES])
def test_a_parent_whose_unbegun_children_were_removed_goes_on(policy: str) -> None:
    site, client = stage("a", "b", "c", **({policy: True} if policy else {}))
    client.pull("c")
    client.ok("RemoveUnprocessedChildren", id="p")
    assert [client.state(name) for name in "abc"] == ["active", "unknown", "unknown"]
    assert client.state("p") == "waiting-children"
    client.ok("ACK", id="a", result=1)
    assert client.state("p") == "waiting"
    assert failures(client) == {}
    client.ok("RemoveUnprocessedChildren", id="nobody")
    again(site)


def test_an_emptied_queue_of_children_does_to_parents_what_they_were_put_to_do() -> None:
    site, client = stage("a", "b", ignoreDependencyOnFailure=True)
    client.ok("Obliterate", queue="c")
    assert client.state("p") == "waiting"
    assert client.ok("GetIgnoredChildrenFailures", id="p") == {
        "values": {"c:a": "removed", "c:b": "removed"}
    }
    again(site)


# -- time to live ------------------------------------------------------------------------------


def test_a_pull_skips_an_expired_child_and_its_parent_is_notified() -> None:
    site = BareBunqueue(MemoryStorage())
    client = site.connect()
    client.ok("PUSHF", jobs=family("a", ttl=1000, failParentOnFailure=True))
    other = client.push("c")
    # The pull comes before the alarm of the child has rung.
    site.now_ms += 1000
    assert client.pull("c")["id"] == other
    assert client.ok("PULL", queue="c")["job"] is None
    site.check()
    site.tick(0)
    assert client.state("a") == "unknown"
    assert client.state("p") == "failed"
    site, client = again(site)
    assert client.state("p") == "failed"
    assert client.ok("GetJob", id="p")["job"]["failedReason"] == "Child job a failed: removed"


def test_who_waits_is_given_a_parent_once_that_its_last_child_expired() -> None:
    site = BareBunqueue()
    client, worker = site.connect(), site.connect()
    jobs = family("a", queue="c", ttl=1000, ignoreDependencyOnFailure=True)
    client.ok("PUSHF", jobs=jobs)
    site.now_ms += 1000
    pull = worker.send("PULL", queue="c", timeout=5000)
    assert worker.hear(pull) is None
    site.tick(0)
    answer = worker.hear(pull)
    assert answer is not None
    assert answer["job"]["id"] == "p"
    assert client.ok("PULL", queue="c")["job"] is None
    site.check()


# -- the other door ----------------------------------------------------------------------------


def test_a_dead_parent_is_not_reserved_by_its_id_before_its_children_are_done() -> None:
    site, client = stage("a", "b", failParentOnFailure=True)
    end_child(client, error="no")
    assert client.state("p") == "failed"
    number = site.job("p").id
    other = site.beanstalk()
    other.session.receive(b"reserve-job %d\r\n" % number, site.now_ms)
    assert other.hear() == b"NOT_FOUND\r\n"
    assert client.state("p") == "failed"
    other.session.receive(b"kick-job %d\r\n" % number, site.now_ms)
    assert other.hear() == b"KICKED\r\n"
    assert client.state("p") == "waiting-children"
    end_child(client, 1)
    assert client.state("p") == "waiting"
    other.session.receive(b"reserve-job %d\r\n" % number, site.now_ms)
    assert other.hear().startswith(b"RESERVED %d " % number)
    site.check()
