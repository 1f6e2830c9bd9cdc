"""Puts that are refused change nothing: a full topic evicts only for jobs that enter."""

import pytest

from jobyard.engine.glidemq.add import add, id_of
from jobyard.engine.glidemq.flows import Child, add_flow
from jobyard.engine.jobs.put import NewJob
from jobyard.engine.jobs.put_transaction import Links, put_new_job
from jobyard.engine.topics.topic_queue import open_topic_queue
from jobyard.errors import YardFull
from jobyard.model.details import JobDetails
from jobyard.model.family import BUNQUEUE
from jobyard.model.job import GONE, MSGPACK, Job
from jobyard.model.queue import Queue
from jobyard.model.topic.log import TopicFull
from tests.support.clients.bunqueue import BunqueueClient
from tests.support.clients.flows import family
from tests.support.doors.bunqueue import BareBunqueue
from tests.support.engine.glides import GlideYard
from tests.support.engine.topics import config
from tests.support.site.recount import recount
from tests.support.site.snapshot import snapshot
from tests.support.site.storage import MemoryStorage
from tests.support.site.yard import OpenYard


@pytest.fixture
def site() -> BareBunqueue:
    return BareBunqueue(MemoryStorage())


@pytest.fixture
def client(site: BareBunqueue) -> BunqueueClient:
    """Return a client of a topic `t` that holds two jobs at most, and evicts the oldest."""
    open_topic_queue(site.yard, "t", config(cap_records=2), site.now_ms)
    return site.connect()


def refused_unchanged(
    site: BareBunqueue, client: BunqueueClient, cmd: str, **fields: object
) -> str:
    """Send a command that is refused and changes nothing; return why."""
    before = snapshot(site.yard)
    appended = site.yard.journal.appended
    reason = client.refused(cmd, **fields)
    assert snapshot(site.yard) == before
    assert site.yard.journal.appended == appended
    site.check()
    return reason


# -- PUSH --------------------------------------------------------------------------------------


def test_a_full_group_evicts_nothing(site: BareBunqueue, client: BunqueueClient) -> None:
    client.push("t")
    client.push("t", groupId="g")
    given = {"groupId": "g", "groupMaxSize": 1}
    reason = refused_unchanged(site, client, "PUSH", queue="t", data=1, **given)
    assert reason == "Group g has reached its maximum size of 1"


def test_a_dependency_that_is_not_found_evicts_nothing(
    site: BareBunqueue, client: BunqueueClient
) -> None:
    client.push("t")
    client.push("t")
    refused_unchanged(site, client, "PUSH", queue="t", data=1, dependsOn=["no"])


def test_a_key_that_cannot_be_replaced_evicts_nothing(
    site: BareBunqueue, client: BunqueueClient
) -> None:
    client.push("t")
    needed = client.push("t", uniqueKey="k")
    client.push("q", dependsOn=[needed])
    given = {"uniqueKey": "k", "dedup": {"replace": True}}
    refused_unchanged(site, client, "PUSH", queue="t", data=1, **given)


def test_a_job_may_depend_on_the_one_that_is_evicted_for_it(
    site: BareBunqueue, client: BunqueueClient
) -> None:
    client.push("t", jobId="old")
    client.push("t")
    job_id = client.push("t", dependsOn=["old"])
    assert client.state("old") == "unknown"
    assert client.state(job_id) == "waiting"
    site.check()


def test_a_parent_that_is_evicted_for_its_child_is_not_linked(
    site: BareBunqueue, client: BunqueueClient
) -> None:
    client.push("t", jobId="p")
    client.push("t")
    data = {"__parentId": "p", "__parentQueue": "t"}
    job_id = client.push("t", data, parentId="p")
    assert client.state("p") == "unknown"
    assert client.state(job_id) == "waiting"
    assert site.job(job_id).ensure_details().parent_id == 0
    site.check()


class LongLinks(Links):
    """Links that take more room than there is."""

    def room(self) -> int:
        return 1 << 20


def test_links_without_room_evict_nothing() -> None:
    site = OpenYard(budget=1 << 16)
    queue = open_topic_queue(site.yard, "t", config(cap_records=1), site.now_ms)
    site.put(queue="t")
    before = snapshot(site.yard)
    new_job = NewJob(BUNQUEUE, MSGPACK, b"\x01")
    new_job.details = JobDetails()
    with pytest.raises(YardFull):
        put_new_job(site.yard, queue, new_job, LongLinks(), site.now_ms)
    assert snapshot(site.yard) == before
    recount(site.yard)


# -- PUSHB and PUSHF ---------------------------------------------------------------------------


def test_a_batch_with_a_refused_job_evicts_nothing(
    site: BareBunqueue, client: BunqueueClient
) -> None:
    client.push("t")
    client.push("t", groupId="g")
    jobs = [{"data": 1}, {"data": 2, "groupId": "g", "groupMaxSize": 1}]
    refused_unchanged(site, client, "PUSHB", queue="t", jobs=jobs)
    refused_unchanged(site, client, "PUSHB", queue="t", jobs=[{"data": 1}] * 3)


@pytest.mark.parametrize("evicting", ["c", "q"])
def test_a_flow_evicts_from_no_queue_if_another_is_full(site: BareBunqueue, evicting: str) -> None:
    client = site.connect()
    for name in ("c", "q"):
        discard = "old" if name == evicting else "reject"
        given = config(cap_records=1, discard=discard)
        open_topic_queue(site.yard, name, given, site.now_ms)
        client.push(name)
    refused_unchanged(site, client, "PUSHF", jobs=family("a"))


def test_a_flow_evicts_from_each_of_its_queues(site: BareBunqueue) -> None:
    client = site.connect()
    for name in ("c", "q"):
        open_topic_queue(site.yard, name, config(cap_records=1), site.now_ms)
        client.push(name)
    client.ok("PUSHF", jobs=family("a"))
    assert site.yard.jobs.count == 2
    assert [client.state(name) for name in ("a", "p")] == ["waiting", "waiting-children"]
    site.check()
    site = site.reboot()
    assert site.yard.jobs.count == 2
    site.check()


# -- glide-mq ----------------------------------------------------------------------------------


def glide_topics(place: GlideYard, **discards: str) -> list[Queue]:
    """Return queues that are topics of one job each, and are full."""
    yard = place.site.yard
    queues = []
    for name, discard in discards.items():
        given = config(cap_records=1, discard=discard)
        queue = open_topic_queue(yard, name, given, place.now_ms)
        add(yard, queue, place.spec(), place.now_ms)
        queues.append(queue)
    return queues


def add_family(place: GlideYard, above: Queue, below: Queue) -> list[Job]:
    children = [Child(below, place.spec(), "glide:{b}")]
    return add_flow(place.site.yard, above, place.spec(), children, [], place.now_ms)


@pytest.mark.parametrize("is_parent_evicting", [False, True])
def test_a_flow_of_glide_mq_evicts_from_no_queue_if_another_is_full(
    *, is_parent_evicting: bool
) -> None:
    place = GlideYard()
    first, second = glide_topics(place, a="old", b="reject")
    above, below = (first, second) if is_parent_evicting else (second, first)
    before = snapshot(place.site.yard)
    with pytest.raises(TopicFull):
        add_family(place, above, below)
    assert snapshot(place.site.yard) == before
    recount(place.site.yard)


def test_a_parent_of_glide_mq_that_is_evicted_for_its_child_is_not_linked() -> None:
    place = GlideYard()
    [queue] = glide_topics(place, a="old")
    yard = place.site.yard
    [parent] = list(yard.jobs.all())
    spec = place.spec(parent=parent, label_head="glide:{a}", parent_id=id_of(parent))
    child = add(yard, queue, spec, place.now_ms)
    assert parent.state == GONE
    assert not yard.names.dependents.has(int(child.id))
    recount(yard)
    place.restart()
