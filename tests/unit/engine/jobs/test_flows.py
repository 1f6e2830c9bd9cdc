import random
from typing import TYPE_CHECKING

import pytest

from jobyard.engine.jobs import flows
from jobyard.engine.jobs.finish import KEEP_AS_ASKED, KEEP_NOT, complete, fail, park
from jobyard.engine.jobs.move import erase, make_dead, revive
from jobyard.engine.jobs.take import take
from jobyard.errors import YardFull
from jobyard.model.details_codec import FieldWriter, Tag
from jobyard.model.job import (
    BLOCKED,
    DEAD,
    DELAYED,
    DONE,
    GONE,
    LEASED,
    MSGPACK,
    READY,
)
from jobyard.model.members import MemberState
from jobyard.model.policy import (
    CHILD_BLOCKS,
    CHILD_CONTINUES_PARENT,
    CHILD_FAILS_PARENT,
    CHILD_IGNORED,
    CHILD_REMOVED,
    LIFO,
    REMOVE_DEAD,
    REMOVE_DONE,
)
from tests.support.engine.flows import TERMS, FlowSite, states, values
from tests.support.site.recount import recount
from tests.support.site.storage import MemoryStorage

if TYPE_CHECKING:
    from jobyard.engine.jobs.flow_put import Planned

POLICIES = (
    CHILD_BLOCKS,
    CHILD_FAILS_PARENT,
    CHILD_IGNORED,
    CHILD_REMOVED,
    CHILD_CONTINUES_PARENT,
)


# -- entering ----------------------------------------------------------------------------------


def test_a_flow_enters_in_one_batch_in_any_order() -> None:
    site = FlowSite(MemoryStorage())
    parent, first, second = site.plan("parent"), site.plan("child1"), site.plan("child2")
    first.parent = second.parent = 0
    parent.depends = [2, 1]
    jobs = site.put_all([parent, first, second])
    assert [int(job.state) for job in jobs] == [BLOCKED, READY, READY]
    assert len({int(job.batch) for job in jobs}) == 1
    assert [job.ensure_details().parent_id for job in jobs] == [0, jobs[0].id, jobs[0].id]
    labels = [member.label for member in jobs[0].ensure_details().members or ()]
    assert labels == ["c:child2", "c:child1"]
    site.again()


def test_a_flow_longer_than_a_segment_still_is_one_batch() -> None:
    site = FlowSite(MemoryStorage(), 8192)
    for length in (10, 100, 400):
        plan = [site.plan(f"c{length}.{n}") for n in range(length)]
        jobs = site.family(*plan, parent=site.plan(f"p{length}"))
        assert len({int(job.batch) for job in jobs}) == 1
        site = site.again()


def test_a_flow_without_room_leaves_nothing() -> None:
    site = FlowSite(MemoryStorage(), 8192)
    assert isinstance(site.storage, MemoryStorage)
    site.commit()
    site.storage.capacity = 0
    before = (site.journal.next_id, site.yard.jobs.count, site.yard.last_stamp)
    with pytest.raises(YardFull):
        site.family(*(site.plan(f"c{n}") for n in range(1000)))
    assert (site.journal.next_id, site.yard.jobs.count, site.yard.last_stamp) == before
    assert dict(site.yard.names.custom.items()) == {}


def test_waiting_clients_are_served_once_the_flow_is_in() -> None:
    site = FlowSite()
    client = site.connect()
    assert client.say(b"watch c\r\nreserve\r\n") == b"WATCHING 2\r\n"
    site.family(site.plan("child"))
    assert client.hear() == b""
    flows.serve(site.yard, [site.queue("c")], site.now_ms)
    assert client.hear().startswith(b"RESERVED 1 ")


# -- children that are done --------------------------------------------------------------------


@pytest.mark.parametrize("keep", [KEEP_AS_ASKED, KEEP_NOT])
def test_the_last_child_that_is_done_lets_the_parent_go_on(keep: int) -> None:
    site = FlowSite(MemoryStorage())
    first, second, parent = site.family(site.plan("c1"), site.plan("c2"))
    site.done(first, b"\x07", keep)
    assert (parent.state, states(parent)) == (BLOCKED, [MemberState.SETTLED, MemberState.OPEN])
    site.again()
    site.done(second, b"\x08", keep)
    assert (parent.state, states(parent)) == (READY, [MemberState.SETTLED, MemberState.SETTLED])
    assert values(parent) == [b"\x07", b"\x08"]
    again = site.again()
    again.done(again.find("parent"))
    assert again.yard.names.dependents.count == 0


def test_an_unblocked_parent_comes_behind_jobs_that_were_ready_before() -> None:
    site = FlowSite()
    child, parent = site.family(site.plan("c1"), parent=site.plan("p1"))
    [other] = site.put_all([site.plan("p2")])
    site.done(child)
    site.begin(other)
    site.begin(parent)


def test_a_parent_of_the_last_in_first_out_kind_goes_ahead_of_older_ones() -> None:
    site = FlowSite()
    site.put_all([site.plan("p0", flags=LIFO)])
    child, parent = site.family(site.plan("c1"), parent=site.plan("p1", flags=LIFO))
    (younger,) = site.put_all([site.plan("p2", flags=LIFO)])
    site.put_all([site.plan("p3")])
    site.done(child)
    site.begin(younger)
    site.begin(parent)


def test_a_delayed_parent_waits_for_both() -> None:
    site = FlowSite(MemoryStorage())
    child, parent = site.family(site.plan("c1"), parent=site.plan("p1", delay_ms=1000))
    site.done(child)
    assert parent.state == DELAYED
    site.again()
    site.jump(1000)
    assert parent.state == READY


def test_a_diamond_opens_from_the_bottom() -> None:
    site = FlowSite(MemoryStorage())
    plan = [site.plan(f"q{n}") for n in range(4)]
    plan[1].depends = plan[2].depends = [0]
    plan[3].depends = [1, 2]
    bottom, left, right, top = site.put_all(plan)
    site.done(bottom)
    assert (left.state, right.state, top.state) == (READY, READY, BLOCKED)
    site.again()
    site.done(left)
    assert top.state == BLOCKED
    site.done(right)
    assert top.state == READY
    site.again()


def test_one_that_many_wait_for_frees_them_all_in_one_batch() -> None:
    site = FlowSite(MemoryStorage(), 8192)
    plan = [site.plan(f"q{n}") for n in range(30)]
    for one in plan[1:]:
        one.depends = [0]
    jobs = site.put_all(plan)
    site.begin(jobs[0])
    site.commit()
    complete(site.yard, jobs[0], b"\xd9\xff" + 255 * b"x", MSGPACK, KEEP_NOT, site.now_ms)
    assert {int(job.state) for job in jobs[1:]} == {READY}
    assert len({int(job.batch) for job in jobs}) == 1
    site.again()


@pytest.mark.parametrize("how", ["done", "gone", "failed", "erased"])
def test_an_end_and_what_follows_lie_in_one_batch_wherever_the_segment_ends(how: str) -> None:
    for left in range(100, 2200, 61):
        site = FlowSite(MemoryStorage(), 8192)
        plan = site.plan("child", CHILD_FAILS_PARENT, REMOVE_DONE if how == "gone" else 0)
        child, parent = site.family(plan)
        site.begin(child)
        site.commit()
        journal = site.journal
        filler = int(journal.hot.size - journal.hot.end) - left - 300
        if filler > 0:
            site.put(b"x" * min(filler, 4000), "filler")
            site.commit()
        if how == "failed":
            fail(site.yard, child, "e" * 200, site.now_ms)
        elif how == "erased":
            erase(site.yard, child, site.now_ms)
        else:
            complete(site.yard, child, b"\xd9\xc8" + 200 * b"x", MSGPACK, -1, site.now_ms)
        assert parent.state == (READY if how in {"done", "gone"} else DEAD)
        assert child.batch == parent.batch
        site.again()


def test_a_parent_longer_than_a_segment_is_not_written_whole_with_every_child() -> None:
    site = FlowSite(MemoryStorage(), 8192)
    *children, parent = site.family(*(site.plan(f"c{n}") for n in range(100)))
    site.commit()
    before = int(site.journal.next_segment)
    for child in children:
        site.done(child, b"\xd9\xc8" + 200 * b"x", KEEP_NOT)
        site.commit()
    assert parent.state == READY
    # All it remembers is four segments long; whole copies would take hundreds.
    assert site.journal.next_segment - before < 30
    site.again()


def fill(site: FlowSite) -> int:
    """Put families of ten until there is no room; return how many there are."""
    count = 0
    while True:
        plan = [site.plan(f"c{count}.{n}") for n in range(10)]
        try:
            site.family(*plan, parent=site.plan(f"p{count}"))
        except YardFull:
            return count
        site.commit()
        count += 1


def test_on_a_full_disk_a_child_with_much_to_remember_ends_later_and_others_at_once() -> None:
    storage = MemoryStorage()
    site = FlowSite(storage, 8192)
    storage.capacity = 30 * 8192
    count = fill(site)
    first = site.find("c0.0")
    site.begin(first)
    for _ in range(3):
        with pytest.raises(YardFull):
            complete(site.yard, first, b"\xda\x0b\xb8" + 3000 * b"x", MSGPACK, -1, site.now_ms)
        assert first.state == LEASED
    complete(site.yard, first, b"\x01", MSGPACK, -1, site.now_ms)
    for each in range(count):
        for n in range(1 if each == 0 else 0, 10):
            site.done(site.find(f"c{each}.{n}"))
        site.done(site.find(f"p{each}"), keep=KEEP_NOT)
        site.commit()
        site.compactor.step()
    site.again()


# -- children that fail ------------------------------------------------------------------------


def test_without_a_policy_a_failed_child_keeps_its_parent_waiting_until_it_is_done() -> None:
    site = FlowSite(MemoryStorage())
    child, parent = site.family(site.plan("child"))
    site.failed(child)
    assert (parent.state, states(parent)) == (BLOCKED, [MemberState.OPEN])
    again = site.again()
    child, parent = again.find("child"), again.find("parent")
    revive(again.yard, child, again.now_ms)
    again.done(child, b"\x05")
    assert (parent.state, values(parent)) == (READY, [b"\x05"])
    again.again()


ENDS = {
    CHILD_BLOCKS: (BLOCKED, [MemberState.OPEN, MemberState.OPEN], [b"", b""]),
    CHILD_FAILS_PARENT: (DEAD, [MemberState.FAILED, MemberState.OPEN], [b"boom", b""]),
    CHILD_IGNORED: (BLOCKED, [MemberState.IGNORED, MemberState.OPEN], [b"boom", b""]),
    CHILD_REMOVED: (BLOCKED, [MemberState.DROPPED, MemberState.OPEN], [b"", b""]),
    CHILD_CONTINUES_PARENT: (READY, [MemberState.FAILED, MemberState.OPEN], [b"boom", b""]),
}


@pytest.mark.parametrize("failure", POLICIES)
@pytest.mark.parametrize("how", ["fail", "lay aside", "stall"])
def test_a_child_does_to_its_parent_what_it_was_put_to_do(failure: int, how: str) -> None:
    site = FlowSite(MemoryStorage())
    child, _, parent = site.family(site.plan("c1", failure), site.plan("c2"))
    error = "boom"
    if how == "fail":
        site.failed(child)
    elif how == "lay aside":
        make_dead(site.yard, child, "boom", site.now_ms)
    else:
        error = "Job stalled"
        site.begin(child)
        site.jump(31_000)
    assert child.state == DEAD
    state, members, told = ENDS[failure]
    assert (parent.state, states(parent)) == (state, members)
    assert values(parent) == [error.encode() if value else b"" for value in told]
    if parent.state == DEAD:
        assert parent.outcome().error == f"Child job c1 failed: {error}"
        assert site.yard.names.dependents.count == 0
    site.again()


@pytest.mark.parametrize("failure", POLICIES)
def test_a_removed_child_counts_as_failed(failure: int) -> None:
    site = FlowSite(MemoryStorage())
    child, _, parent = site.family(site.plan("c1", failure), site.plan("c2"))
    erase(site.yard, child, site.now_ms)
    state, members, told = ENDS[failure]
    assert (parent.state, states(parent)) == (state, members)
    assert values(parent) == [b"removed" if value else b"" for value in told]
    site.again()


@pytest.mark.parametrize("failure", [CHILD_IGNORED, CHILD_REMOVED, CHILD_CONTINUES_PARENT])
def test_a_parent_continues_after_children_that_failed(failure: int) -> None:
    site = FlowSite(MemoryStorage())
    first, second, parent = site.family(site.plan("c1", failure), site.plan("c2", failure))
    site.failed(first)
    site.failed(second)
    assert parent.state == READY
    assert MemberState.OPEN not in states(parent)
    again = site.again()
    again.done(again.find("parent"))


def test_a_failure_is_the_business_of_the_parent_alone() -> None:
    site = FlowSite(MemoryStorage())
    plan = [site.plan(name) for name in ("child", "parent", "other")]
    plan[0] = site.plan("child", CHILD_FAILS_PARENT)
    plan[0].parent = 1
    plan[1].depends = plan[2].depends = [0]
    child, parent, other = site.put_all(plan)
    site.failed(child)
    assert (parent.state, other.state) == (DEAD, BLOCKED)
    again = site.again()
    child, other = again.find("child"), again.find("other")
    revive(again.yard, child, again.now_ms)
    again.done(child)
    assert other.state == READY


def test_a_failure_climbs_a_thousand_parents_in_one_batch() -> None:
    site = FlowSite(MemoryStorage())
    jobs = site.chain(1000, CHILD_FAILS_PARENT)
    site.failed(jobs[0])
    assert {int(job.state) for job in jobs} == {DEAD}
    assert len({int(job.batch) for job in jobs}) == 1
    assert jobs[1].outcome().error == "Child job q0 failed: boom"
    assert jobs[2].outcome().error == "Child job q1 failed: Child job q0 failed: boom"
    assert len(jobs[-1].outcome().error) == flows.CHILD_ERROR_MAX
    assert site.yard.names.dependents.count == 0
    site.again()


def test_a_chain_of_a_thousand_is_done_from_below() -> None:
    site = FlowSite(MemoryStorage())
    jobs = site.chain(1000, CHILD_FAILS_PARENT)
    for job in jobs:
        site.done(job, b"\x01", KEEP_NOT)
    assert site.yard.jobs.count == 0
    assert site.yard.names.dependents.count == 0
    site.again()


def test_a_parent_that_is_not_to_be_kept_dead_is_gone_with_its_own_parents_told() -> None:
    site = FlowSite(MemoryStorage())
    plan = [site.plan("child", CHILD_FAILS_PARENT)]
    plan.append(site.plan("middle", CHILD_FAILS_PARENT, REMOVE_DEAD))
    plan.append(site.plan("top"))
    plan[0].parent, plan[1].parent = 1, 2
    plan[1].depends, plan[2].depends = [0], [1]
    child, middle, top = site.put_all(plan)
    site.failed(child)
    assert (middle.state, top.state) == (GONE, DEAD)
    assert top.outcome().error == "Child job middle failed: Child job child failed: boom"
    assert "m" not in site.yard.queues
    site.again()


def test_parent_and_child_of_one_queue_may_go_together() -> None:
    site = FlowSite(MemoryStorage())
    plan = [site.plan("q1", CHILD_FAILS_PARENT, REMOVE_DEAD), site.plan("q2", 0, REMOVE_DEAD)]
    plan[0].parent = 1
    plan[1].depends = [0]
    child, parent = site.put_all(plan)
    make_dead(site.yard, child, "boom", site.now_ms)
    assert (child.state, parent.state) == (GONE, GONE)
    site.again()


def test_a_running_parent_is_notified_but_not_ended() -> None:
    site = FlowSite(MemoryStorage())
    plan = [site.plan("c1", CHILD_CONTINUES_PARENT), site.plan("c2", CHILD_FAILS_PARENT)]
    first, second, parent = site.family(*plan)
    site.failed(first)
    site.begin(parent)
    site.failed(second, "bang")
    assert (parent.state, states(parent)) == (LEASED, [MemberState.FAILED, MemberState.FAILED])
    assert values(parent) == [b"boom", b"bang"]
    park(site.yard, parent, site.now_ms)
    flows.look_again(site.yard, parent, site.now_ms)
    assert parent.state == READY
    site.again()


def test_a_parent_that_is_ready_already_can_still_be_failed() -> None:
    site = FlowSite(MemoryStorage())
    plan = [site.plan("c1", CHILD_CONTINUES_PARENT), site.plan("c2", CHILD_FAILS_PARENT)]
    first, second, parent = site.family(*plan)
    site.failed(first)
    assert parent.state == READY
    site.failed(second)
    assert parent.state == DEAD
    site.again()


def test_children_that_are_done_after_their_parent_failed_are_found_when_it_comes_back() -> None:
    site = FlowSite(MemoryStorage())
    bad, good, parent = site.family(site.plan("c1", CHILD_FAILS_PARENT), site.plan("c2"))
    site.failed(bad)
    site.done(good, b"\x09")
    again = site.again()
    parent = again.find("parent")
    revive(again.yard, parent, again.now_ms)
    assert (parent.state, states(parent)) == (READY, [MemberState.FAILED, MemberState.SETTLED])
    assert values(parent)[1] == b"\x09"
    again.again()


def test_a_parent_that_parks_is_told_of_children_it_was_not_told_of() -> None:
    site = FlowSite(MemoryStorage())
    first, second, parent = site.family(site.plan("c1", CHILD_CONTINUES_PARENT), site.plan("c2"))
    site.failed(first)
    site.begin(parent)
    site.yard.names.stop_waiting(parent, second.id)
    site.done(second, b"\x09")
    assert states(parent) == [MemberState.FAILED, MemberState.OPEN]
    flows.room_to_change(site.yard, parent, flows.room_to_look(site.yard, parent))
    park(site.yard, parent, site.now_ms)
    flows.look_again(site.yard, parent, site.now_ms)
    assert (parent.state, states(parent)) == (READY, [MemberState.FAILED, MemberState.SETTLED])
    site.again()


# -- links added and removed later -------------------------------------------------------------


def test_a_job_that_parks_without_children_waits_for_one_to_come() -> None:
    site = FlowSite(MemoryStorage())
    [parent] = site.put_all([site.plan("parent")])
    site.begin(parent)
    park(site.yard, parent, site.now_ms)
    flows.look_again(site.yard, parent, site.now_ms)
    assert parent.state == BLOCKED
    site = site.again()
    parent = site.find("parent")
    [child] = site.put_all([site.plan("child")])
    flows.link(site.yard, parent, child, "c:child", b"", site.now_ms)
    site = site.again()
    site.done(site.find("child"))
    assert site.find("parent").state == READY
    site.again()


@pytest.mark.parametrize("delay_ms", [0, 1000])
def test_a_queued_job_can_be_made_to_wait(delay_ms: int) -> None:
    site = FlowSite(MemoryStorage())
    [parent] = site.put_all([site.plan("parent", delay_ms=delay_ms)])
    [child] = site.put_all([site.plan("child")])
    flows.link(site.yard, parent, child, "c:child", b"", site.now_ms)
    assert parent.state == BLOCKED
    site = site.again()
    site.done(site.find("child"))
    assert site.find("parent").state == (DELAYED if delay_ms else READY)
    site.again()


def test_a_child_that_is_done_holds_nobody_up() -> None:
    site = FlowSite(MemoryStorage())
    parent, child = site.put_all([site.plan("parent"), site.plan("child")])
    site.done(child, b"\x03")
    flows.link(site.yard, parent, child, "c:child", b"", site.now_ms)
    assert (parent.state, states(parent), values(parent)) == (
        READY,
        [MemberState.SETTLED],
        [b"\x03"],
    )
    site.again()


def test_a_successor_takes_the_place_of_one_that_failed() -> None:
    site = FlowSite(MemoryStorage())
    old, parent = site.family(site.plan("child"))
    site.failed(old)
    erase(site.yard, old, site.now_ms)
    [new] = site.put_all([site.plan("child")])
    flows.inherit(site.yard, old.id, new)
    assert states(parent) == [MemberState.DROPPED, MemberState.OPEN]
    site = site.again()
    site.done(site.find("child"))
    assert site.find("parent").state == READY
    site.again()


@pytest.mark.parametrize("failure", POLICIES)
def test_a_child_that_failed_before_it_was_tied_acts_then(failure: int) -> None:
    site = FlowSite(MemoryStorage())
    plan = [site.plan("parent"), site.plan("child", failure), site.plan("other")]
    plan[0].depends = [1, 2]
    parent, child, _ = site.put_all(plan)
    site.failed(child)
    assert states(parent) == [MemberState.OPEN, MemberState.OPEN]
    changes = FieldWriter()
    changes.numbers(Tag.PARENT, (parent.id,), b"")
    site.yard.note(child, changes.done())
    flows.catch_up(site.yard, parent, child, site.now_ms)
    assert (parent.state, states(parent)) == ENDS[failure][:2]
    site.again()


# -- all of it together ------------------------------------------------------------------------


def check_no_one_waits_in_vain(site: FlowSite) -> None:
    """A job that waits has someone to wait for, or has lost one, or never had one."""
    for job in site.yard.jobs.all():
        if job.state != BLOCKED:
            continue
        members = job.ensure_details().members
        assert members is None or MemberState.OPEN in states(job)
        for member in members or ():
            child = site.yard.jobs.get(member.child_id)
            if member.state == MemberState.OPEN and child is not None:
                assert child.state != DONE
                assert job in (site.yard.names.dependents.get(int(child.id)) or ())


def random_flow(site: FlowSite, luck: random.Random, number: int) -> None:
    plan: list[Planned] = []
    for each in range(luck.randint(1, 6)):
        flags = luck.choice([0, 0, REMOVE_DONE, REMOVE_DEAD])
        delay_ms = luck.choice([0, 0, 50])
        one = site.plan(
            f"{luck.choice('qrs')}{number}.{each}", luck.choice(POLICIES), flags, delay_ms
        )
        one.depends = [other for other in range(each) if luck.random() < 0.4]
        for other in one.depends:
            if plan[other].parent < 0:
                plan[other].parent = each
        plan.append(one)
    site.put_all(plan)


def random_step(site: FlowSite, luck: random.Random, number: int) -> None:
    yard = site.yard
    jobs = list(yard.jobs.all())
    leased = [job for job in jobs if job.state == LEASED]
    resting = [job for job in jobs if job.state in {DEAD, DONE}]
    act = luck.randrange(9)
    if act == 0 or not jobs:
        random_flow(site, luck, number)
    elif act in {1, 2}:
        take(yard, list(yard.queues.values()), site.lessee, TERMS, site.now_ms)
    elif act in {3, 4} and leased:
        keep = luck.choice([KEEP_AS_ASKED, KEEP_NOT])
        complete(
            yard, luck.choice(leased), b"\x01" * luck.randint(0, 9), MSGPACK, keep, site.now_ms
        )
    elif act == 5 and leased:
        fail(yard, luck.choice(leased), "e" * luck.randint(1, 40), site.now_ms)
    elif act == 6 and leased:
        job = luck.choice(leased)
        flows.room_to_change(yard, job, flows.room_to_look(yard, job))
        park(yard, job, site.now_ms)
        flows.look_again(yard, job, site.now_ms)
    elif act == 7 and resting:
        revive(yard, luck.choice(resting), site.now_ms)
    elif act == 8 and luck.random() < 0.3:
        erase(yard, luck.choice(jobs), site.now_ms)
    site.jump(luck.choice([0, 0, 20]))


@pytest.mark.parametrize("seed", range(8))
def test_whatever_happens_no_one_waits_in_vain_and_a_kill_changes_nothing(seed: int) -> None:
    luck = random.Random(seed)
    site = FlowSite(MemoryStorage(), 8192)
    for number in range(300):
        random_step(site, luck, number)
        check_no_one_waits_in_vain(site)
        recount(site.yard)
        if number % 10 == 0:
            site.commit()
        if number % 60 == 59:
            if luck.random() < 0.5:
                site.compact()
            site = site.again()
