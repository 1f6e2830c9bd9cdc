import pytest

from tests.support.clients.flows import again, end_child, failures, late, stage, values
from tests.support.doors.bunqueue import BareBunqueue
from tests.support.site.storage import MemoryStorage

# -- PUSH and PUSHB ----------------------------------------------------------------------------


def test_a_batch_may_be_tied_in_any_order_and_is_answered_in_its_own() -> None:
    site = BareBunqueue(MemoryStorage())
    client = site.connect()
    jobs = [
        {"data": 3, "customId": "c", "dependsOn": ["b", "a", "b"]},
        {"data": 2, "customId": "b", "dependsOn": ["a"]},
        {"data": 1, "customId": "a"},
        {"data": 0},
    ]
    ids = client.ok("PUSHB", queue="q", jobs=jobs)["ids"]
    assert ids[:3] == ["c", "b", "a"]
    site, client = again(site)
    for data in (1, 0, 2, 3):
        job = client.pull("q")
        assert job["data"] == data
        client.ok("ACK", id=job["id"])
    site.check()


@pytest.mark.parametrize(
    "ties", [{"a": ["b"], "b": ["a"]}, {"a": ["c"], "b": ["a"], "c": ["b"]}, {"a": ["a"]}]
)
def test_a_batch_that_waits_for_itself_is_refused(ties: dict[str, list[str]]) -> None:
    site = BareBunqueue()
    jobs = [{"data": 1, "customId": name, "dependsOn": on} for name, on in ties.items()]
    assert "cannot depend on itself" in site.connect().refused("PUSHB", queue="q", jobs=jobs)
    assert site.yard.jobs.count == 0


def test_a_batch_may_wait_for_a_job_that_stands_for_one_of_it() -> None:
    site = BareBunqueue(MemoryStorage())
    client = site.connect()
    client.push("other", 1, jobId="a")
    jobs = [{"data": 2, "dependsOn": ["a"]}, {"data": 1, "customId": "a"}]
    client.ok("PUSHB", queue="q", jobs=jobs)
    assert client.ok("PULL", queue="q")["job"] is None
    client.pull("other")
    client.ok("ACK", id="a")
    assert client.pull("q")["data"] == 2
    site.check()


def test_a_batch_may_wait_for_a_job_that_has_the_key_of_one_of_it() -> None:
    site = BareBunqueue(MemoryStorage())
    client = site.connect()
    owner = client.push("q", 1, uniqueKey="k")
    jobs = [{"data": 2, "dependsOn": ["a"]}, {"data": 1, "customId": "a", "uniqueKey": "k"}]
    assert client.ok("PUSHB", queue="q", jobs=jobs)["ids"][1] == owner
    assert client.pull("q")["id"] == owner
    assert client.ok("PULL", queue="q")["job"] is None
    client.ok("ACK", id=owner)
    assert client.pull("q")["data"] == 2
    site.check()


def test_what_was_done_and_removed_holds_nobody() -> None:
    client = BareBunqueue().connect()
    done = client.finish("q", removeOnComplete=True)
    assert client.state(client.push("q", dependsOn=[done])) == "waiting"
    unknown = done[:-1] + ("0" if done[-1] != "0" else "1")
    reason = client.refused("PUSH", queue="q", data=1, dependsOn=[unknown])
    assert reason == f"Dependency job not found: {unknown}"


def test_a_second_job_of_the_same_name_unblocks_the_waiting_parent() -> None:
    site, client = stage("a")
    end_child(client, error="no")
    client.push("c", {}, jobId="a")
    site, client = again(site)
    assert client.state("p") == "waiting-children"
    end_child(client, 5)
    assert client.state("p") == "waiting"
    assert values(client) == {"c:a": 5}
    site.check()


def test_a_second_try_that_waits_for_its_parent_does_not_close_a_circle() -> None:
    site, client = stage("a")
    end_child(client, error="no")
    client.push("c", {}, jobId="a", dependsOn=["p"])
    assert failures(client) == {"c:a": "Job was removed"}
    again(site)


# -- late children -----------------------------------------------------------------------------


@pytest.mark.parametrize("is_batch", [False, True])
def test_a_late_child_holds_its_parent_up(*, is_batch: bool) -> None:
    site = BareBunqueue(MemoryStorage())
    client = site.connect()
    parent = client.push("q", delay=1000)
    for n in range(2):
        fields = late(parent)
        if is_batch:
            del fields["queue"]
            client.ok("PUSHB", queue="c", jobs=[fields])
        else:
            client.ok("PUSH", **fields)
        site, client = again(site)
        job = client.ok("GetJob", id=parent)["job"]
        assert (job["state"], len(job["childrenIds"])) == ("waiting-children", n + 1)
        assert job["dependsOn"] == job["childrenIds"]
    names = [end_child(client, n) for n in range(2)]
    assert client.state(parent) == "delayed"
    assert values(client, parent) == {f"c:{name}": n for n, name in enumerate(names)}
    again(site)


def test_a_late_child_acts_by_its_policy() -> None:
    site = BareBunqueue(MemoryStorage())
    client = site.connect()
    parent = client.push("q")
    client.ok("PUSH", **late(parent, failParentOnFailure=True, maxAttempts=1))
    site, client = again(site)
    child = end_child(client, error="no")
    assert client.ok("GetJob", id=parent)["job"]["failedReason"] == f"Child job {child} failed: no"
    site.check()


def test_a_parent_that_cannot_wait_takes_no_late_child() -> None:
    site = BareBunqueue()
    client = site.connect()
    parent = client.push("q")
    for fields, reason in (
        (late("nobody"), "Parent job not found: nobody"),
        (late(parent, "x"), f"Parent job {parent} belongs to queue q, not x"),
        (late("me", jobId="me"), "A job cannot be its own parent"),
        (late(parent, dependsOn=[parent]), "flow contains a dependency cycle"),
    ):
        assert client.refused("PUSH", **fields) == reason
        queue = fields.pop("queue")
        fields["customId"] = fields.pop("jobId", "")
        assert client.refused("PUSHB", queue=queue, jobs=[fields]) == f"jobs[0]: {reason}"
    client.pull("q")
    assert client.refused("PUSH", **late(parent)) == f"Parent job {parent} is not linkable"
    client.ok("ACK", id=parent)
    assert client.refused("PUSH", **late(parent)) == f"Parent job {parent} is not linkable"
    assert site.yard.jobs.count == 1


def test_a_parent_named_in_passing_is_not_held_up() -> None:
    client = BareBunqueue().connect()
    parent = client.push("q")
    child = client.push("c", {}, parentId=parent)
    assert client.state(parent) == "waiting"
    assert client.ok("GetJob", id=child)["job"]["parentId"] == parent


# -- data --------------------------------------------------------------------------------------


def test_new_data_keeps_the_links_to_parent_and_children() -> None:
    site, client = stage("a")
    client.ok("Update", id="a", data={"n": 1, 2: 3})
    client.ok("Update", id="a", data={"n": 2})
    client.ok("Update", id="p", data={})
    site, client = again(site)
    assert client.ok("GetJob", id="a")["job"]["data"] == {
        "n": 2,
        "__parentId": "p",
        "__parentQueue": "q",
    }
    assert client.ok("GetJob", id="p")["job"]["data"] == {"__childrenIds": ["a"]}


def test_new_data_of_a_flow_job_is_an_object_without_reserved_keys() -> None:
    _, client = stage("a")
    before = client.ok("GetJob", id="a")["job"]["data"]
    assert client.refused("Update", id="a", data=5) == "flow job data must be an object"
    for key in ("__parentId", "__other"):
        error = client.refused("Update", id="a", data={"n": 1, key: "x"})
        assert error == f"flow job data key is reserved: {key}"
    assert client.ok("GetJob", id="a")["job"]["data"] == before


@pytest.mark.parametrize("old", [{"__own": 1}, {"n": 1}, [1], "x"])
@pytest.mark.parametrize("new", [{"__parentId": "x"}, {"__own": 2}, "text"])
def test_new_data_of_a_job_without_links_may_be_anything(old: object, new: object) -> None:
    client = BareBunqueue().connect()
    job_id = client.push(data=old)
    client.ok("Update", id=job_id, data=new)
    assert client.ok("GetJob", id=job_id)["job"]["data"] == new
