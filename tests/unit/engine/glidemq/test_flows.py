import pytest

from jobyard.engine.glidemq.add import entry_of, find, id_of, state_of
from jobyard.engine.glidemq.flows import (
    Child,
    FlowLink,
    add_flow,
    complete_child,
    link_parent,
    park,
    signal,
    suspend,
    sweep,
)
from jobyard.errors import CostExceeds, Duplicate, NotFound, NotHeld
from jobyard.model.job import Job
from tests.support.engine.glides import GlideYard
from tests.support.site.recount import recount


def flow(
    place: GlideYard, *names: str, queue: str = "default", links: list[FlowLink] | None = None
) -> list[Job]:
    site = place.site
    children = [
        Child(site.queue(queue), place.spec(custom_id=name), f"glide:{{{queue}}}") for name in names
    ]
    parent = place.spec("up", priority=2, delay_ms=500)
    jobs = add_flow(site.yard, site.queue(), parent, children, links or [], site.now_ms)
    recount(site.yard)
    return jobs


def job_of(place: GlideYard, job: Job) -> Job:
    found = place.site.yard.jobs.get(job.id)
    assert found is not None
    return found


def labels(job: Job) -> list[str]:
    assert job.details is not None
    return [member.label for member in job.details.members or ()]


def test_a_parent_is_ready_when_its_children_are_done() -> None:
    place = GlideYard()
    parent, *children = flow(place, "", "b")
    assert [id_of(job) for job in (parent, *children)] == ["1", "2", "b"]
    assert labels(parent) == ["glide:{default}:2", "glide:{default}:b"]
    assert state_of(parent) == "waiting-children"
    assert children[0].details is not None
    assert children[0].details.glide is not None
    assert children[0].details.glide.parent_id == "1"
    place.restart()
    assert place.taken() == ["2", "b"]
    place.complete(job_of(place, children[0]), b"7")
    place.restart()
    parent = job_of(place, parent)
    assert state_of(parent) == "waiting-children"
    place.take()
    place.complete(job_of(place, children[1]), b"8")
    assert state_of(parent) == "waiting"
    assert parent.details is not None
    assert [member.value for member in parent.details.members or ()] == [b"7", b"8"]
    place.restart()
    assert place.taken() == ["1"]


def test_children_may_be_in_other_queues() -> None:
    place = GlideYard()
    parent, child = flow(place, "", queue="other")
    assert (id_of(parent), id_of(child), child.queue.name) == ("1", "1", "other")
    assert labels(parent) == ["glide:{other}:1"]
    place.restart()
    site = place.site
    assert find(site.yard, site.queue("other"), "1") is job_of(place, child)


def test_a_failed_child_never_lets_its_parent_go_on() -> None:
    place = GlideYard()
    parent, child = flow(place, "")
    place.take()
    place.fail(child)
    assert state_of(parent) == "waiting-children"
    place.restart()
    assert state_of(job_of(place, parent)) == "waiting-children"


def test_a_flow_that_is_refused_leaves_nothing_behind() -> None:
    place = GlideYard()
    site = place.site
    place.add(custom_id="taken")
    for names in (("", "taken"), ("x", "x")):
        with pytest.raises(Duplicate):
            flow(place, *names)
    costly = place.spec(ordering="a", tb_capacity=500)
    children = [Child(site.queue(), place.spec(), "p"), Child(site.queue(), costly, "p")]
    with pytest.raises(CostExceeds):
        add_flow(site.yard, site.queue(), place.spec(), children, [], site.now_ms)
    assert (site.yard.jobs.count, site.queue().next_seq) == (1, 2)
    recount(site.yard)


def test_ids_chosen_in_a_flow_are_not_given_twice_within_it() -> None:
    place = GlideYard()
    jobs = flow(place, "2", "", "5")
    assert [id_of(job) for job in jobs] == ["1", "2", "3", "5"]
    assert id_of(place.add()) == "6"
    assert labels(jobs[0]) == ["glide:{default}:2", "glide:{default}:3", "glide:{default}:5"]


def test_a_parent_of_none_waits_for_children_to_come() -> None:
    place = GlideYard()
    (parent,) = flow(place)
    assert state_of(parent) == "waiting-children"
    place.restart()
    parent = job_of(place, parent)
    assert state_of(parent) == "waiting-children"
    child = place.add()
    assert link_parent(place.site.yard, parent, child, "p:2", place.now_ms)
    assert link_parent(place.site.yard, parent, child, "p:2", place.now_ms)
    assert labels(parent) == ["p:2"]
    recount(place.site.yard)
    place.restart()
    place.take()
    place.complete(job_of(place, child))
    assert state_of(job_of(place, parent)) == "waiting"
    place.restart()
    assert state_of(job_of(place, parent)) == "waiting"


def test_a_child_that_is_done_holds_nobody_up() -> None:
    place = GlideYard()
    child = place.add()
    place.take()
    place.complete(child, b"5")
    (parent,) = flow(place, links=[FlowLink("p:1", child)])
    assert state_of(parent) == "waiting"
    (other,) = flow(place)
    assert not link_parent(place.site.yard, other, child, "p:1", place.now_ms)
    assert state_of(other) == "waiting"
    recount(place.site.yard)
    place.restart()


def test_a_child_known_by_name_alone_is_told_of_by_name() -> None:
    place = GlideYard()
    (parent,) = flow(place, links=[FlowLink("p:{far}:1", None), FlowLink("p:{far}:2", None)])
    place.restart()
    parent = job_of(place, parent)
    yard = place.site.yard
    assert complete_child(yard, parent, "p:{far}:2", b"", place.now_ms) == 1
    assert complete_child(yard, parent, "p:{far}:2", b"", place.now_ms) == 1
    recount(yard)
    place.restart()
    parent = job_of(place, parent)
    assert complete_child(place.site.yard, parent, "p:{far}:1", b"", place.now_ms) == 0
    assert state_of(parent) == "waiting"
    recount(place.site.yard)
    place.restart()


def test_a_running_job_waits_for_children_it_added() -> None:
    place = GlideYard()
    parent = place.add()
    place.take()
    entry = entry_of(parent)
    assert not park(place.site.yard, parent, entry, place.now_ms)
    # It had nothing to wait for: it is the next to run.
    place.take()
    entry = entry_of(parent)
    child = place.add(parent=parent, label_head="glide:{default}", parent_id="1")
    assert labels(parent) == ["glide:{default}:2"]
    with pytest.raises(NotHeld):
        park(place.site.yard, parent, "1-1", place.now_ms)
    assert park(place.site.yard, parent, entry, place.now_ms)
    recount(place.site.yard)
    assert state_of(parent) == "waiting-children"
    place.restart()
    place.take()
    place.complete(job_of(place, child))
    assert place.taken() == ["1"]


def test_a_blocked_job_keeps_its_turn_in_its_ordering_group() -> None:
    place = GlideYard()
    parent = place.add(ordering="a")
    place.add(ordering="a")
    place.take()
    place.add(parent=parent, label_head="p")
    assert park(place.site.yard, parent, entry_of(parent), place.now_ms)
    recount(place.site.yard)
    place.restart()
    assert place.taken() == ["3"]


def test_a_signal_resumes_a_suspended_job() -> None:
    place = GlideYard()
    job = place.add()
    place.take()
    with pytest.raises(NotFound):
        signal(place.site.yard, job, place.now_ms)
    suspend(place.site.yard, job, entry_of(job), 0, place.now_ms)
    recount(place.site.yard)
    assert state_of(job) == "suspended"
    place.restart()
    job = job_of(place, job)
    assert (state_of(job), sweep(place.site.yard, place.site.queue(), 1 << 50)) == ("suspended", [])
    signal(place.site.yard, job, place.now_ms)
    assert state_of(job) == "waiting"
    with pytest.raises(NotFound):
        signal(place.site.yard, job, place.now_ms)
    place.restart()
    assert place.taken() == ["1"]


def test_a_suspended_job_fails_when_the_signal_is_late() -> None:
    place = GlideYard()
    job = place.add()
    place.take()
    suspend(place.site.yard, job, entry_of(job), place.now_ms + 50, place.now_ms)
    place.restart()
    job = job_of(place, job)
    queue = place.site.queue()
    assert sweep(place.site.yard, queue, place.now_ms + 49) == []
    assert sweep(place.site.yard, queue, place.now_ms + 50) == [job]
    recount(place.site.yard)
    assert job.outcome().error == "Suspend timeout exceeded"
    assert state_of(job) == "failed"
    place.restart()


def test_a_suspended_parent_waits_for_its_signal_and_for_its_children() -> None:
    place = GlideYard()
    parent = place.add()
    place.take()
    child = place.add(parent=parent, label_head="p")
    suspend(place.site.yard, parent, entry_of(parent), 0, place.now_ms)
    place.take()
    place.complete(child)
    assert state_of(parent) == "suspended"
    place.restart()
    parent = job_of(place, parent)
    signal(place.site.yard, parent, place.now_ms)
    assert state_of(parent) == "waiting"
    place.take()
    other = place.add(parent=parent, label_head="p")
    suspend(place.site.yard, parent, entry_of(parent), 0, place.now_ms)
    signal(place.site.yard, parent, place.now_ms)
    assert state_of(parent) == "waiting-children"
    place.take()
    place.complete(other)
    assert state_of(parent) == "waiting"
    place.restart()
