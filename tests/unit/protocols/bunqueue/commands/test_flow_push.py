"""Long flows: read, checked and shown in slices, while other clients are served."""

from typing import Any

from jobyard.engine.jobs.flow_put import prepared, put_flow
from jobyard.engine.jobs.put import base_room
from jobyard.protocols.bunqueue.commands.flow_push import FLOW_JOBS_AT_ONCE
from tests.support.clients.bunqueue import Answer, BunqueueClient
from tests.support.clients.flows import family
from tests.support.doors.bunqueue import BareBunqueue
from tests.support.engine.flows import FlowSite
from tests.support.site.storage import MemoryStorage

NAMES = [f"k{at}" for at in range(FLOW_JOBS_AT_ONCE + 100)]


class Slow:
    """A site on which long work continues slice by slice."""

    def __init__(self, storage: MemoryStorage | None = None) -> None:
        self.site = BareBunqueue(storage)
        self.site.is_slow = True
        self.site.yard.tasks.units_per_turn = 200
        self.site.slice()
        self.client = self.site.connect()
        self.other = self.site.connect()

    def push(self, jobs: list[Any]) -> str:
        """Begin to push a flow, which takes some turns."""
        number = self.client.send("PUSHF", jobs=jobs)
        assert self.client.hear(number) is None
        return number

    def finish(self) -> int:
        """Run long work to its end; return the number of turns."""
        turns = 1
        while self.site.slice():
            turns += 1
        return turns

    def until_entered(self) -> None:
        """Continue a flow until its jobs exist."""
        while self.site.yard.jobs.count == 0:
            assert self.site.slice()


def answer_of(client: BunqueueClient, number: str) -> Answer:
    """Return an answer that must have come."""
    answer = client.hear(number)
    assert answer is not None
    return answer


def test_a_long_flow_is_spread_over_turns() -> None:
    slow = Slow(MemoryStorage())
    number = slow.push(family(*NAMES))
    assert slow.finish() > 10
    shown = answer_of(slow.client, number)["data"]["jobs"]
    assert [job["id"] for job in shown] == [*NAMES, "p"]
    for job in (shown[0], shown[-2], shown[-1]):
        assert slow.other.ok("GetJob", id=job["id"])["job"] == job
    slow.site.check()
    site = slow.site.reboot()
    site.check()
    client = site.connect()
    assert client.state("p") == "waiting-children"
    assert {client.state(name) for name in NAMES} == {"waiting"}


def test_others_are_served_while_a_flow_is_read() -> None:
    slow = Slow()
    number = slow.push(family(*NAMES))
    assert slow.other.push("q", 1)
    assert slow.other.pull("q")["data"] == 1
    assert slow.client.hear(number) is None
    slow.finish()
    assert answer_of(slow.client, number)["ok"] is True


def test_a_name_that_another_took_meanwhile_refuses_all_of_it() -> None:
    slow = Slow()
    number = slow.push(family(*NAMES))
    slow.other.push("else", 1, jobId=NAMES[7])
    slow.finish()
    assert answer_of(slow.client, number)["error"] == f"Flow job {NAMES[7]} already exists"
    assert slow.site.yard.jobs.count == 1
    assert not {"c", "q"} & set(slow.site.yard.queues)
    slow.site.check()


def test_a_circle_in_a_long_flow_refuses_all_of_it() -> None:
    slow = Slow()
    jobs: list[Any] = [
        {"id": name, "queue": "q", "input": {"data": {}, "dependsOn": [NAMES[at - 1]]}}
        for at, name in enumerate(NAMES)
    ]
    number = slow.push(jobs)
    slow.finish()
    assert answer_of(slow.client, number)["error"] == "flow contains a dependency cycle"
    assert slow.site.yard.jobs.count == 0
    assert "q" not in slow.site.yard.queues


def test_jobs_are_shown_as_they_were_put_whatever_became_of_them() -> None:
    slow = Slow()
    number = slow.push(family(*NAMES, removeOnComplete=True, priority=3))
    slow.until_entered()
    assert slow.client.hear(number) is None
    taken = slow.other.ok("PULLB", queue="c", count=len(NAMES))["jobs"]
    assert len(taken) == len(NAMES)
    slow.other.ok("ACK", id=taken[0]["id"])
    slow.other.ok("Update", id=taken[-1]["id"], data={"other": True})
    slow.finish()
    shown = answer_of(slow.client, number)["data"]["jobs"]
    assert {job["state"] for job in shown[:-1]} == {"waiting"}
    assert shown[-1]["state"] == "waiting-children"
    assert {job["startedAt"] for job in shown} == {None}
    told = {"__parentId": "p", "__parentQueue": "q"}
    assert [job["data"] for job in shown[:-1]] == [told] * len(NAMES)
    slow.site.check()


def test_a_flow_enters_though_its_client_has_gone() -> None:
    slow = Slow()
    slow.push(family(*NAMES))
    slow.client.close()
    slow.finish()
    assert slow.site.yard.jobs.count == len(NAMES) + 1
    slow.site.check()


def chain(queue: str = "q", size: int = 1) -> list[Any]:
    """Plan a chain of jobs, each waiting for the one before it."""
    return [
        {
            "id": name,
            "queue": queue,
            "input": {"data": {"x": "x" * size}, "dependsOn": NAMES[max(at - 1, 0) : at]},
        }
        for at, name in enumerate(NAMES)
    ]


def until_claimed(slow: Slow) -> None:
    """Continue a flow until it has claimed its last name, and entered no job."""
    names = slow.site.yard.names.custom
    while names._claims_count < len(NAMES):
        assert slow.site.slice()
    assert slow.site.yard.jobs.count == 0


def test_nobody_sees_a_flow_before_it_enters() -> None:
    slow = Slow()
    number = slow.push(chain())
    until_claimed(slow)
    assert "not found" in slow.other.refused("GetJob", id=NAMES[0])
    assert slow.other.ok("GetJobs", queue="q")["jobs"] == []
    assert not slow.site.yard.queues.get("q")
    assert dict(slow.site.yard.names.custom.items()) == {}
    slow.finish()
    assert answer_of(slow.client, number)["ok"] is True
    assert slow.site.yard.names.custom.count() == len(NAMES)
    slow.site.check()


def test_a_name_that_another_takes_at_last_refuses_all_of_it() -> None:
    slow = Slow(MemoryStorage())
    number = slow.push(chain())
    until_claimed(slow)
    other = slow.other.push("else", 1, jobId=NAMES[-1])
    slow.finish()
    assert answer_of(slow.client, number)["error"] == f"Flow job {NAMES[-1]} already exists"
    assert list(dict(slow.site.yard.names.custom.items())) == [other] == [NAMES[-1]]
    assert slow.site.yard.names.custom._claims_count == 0
    assert slow.site.yard.jobs.count == 1
    slow.site.check()
    slow.site.reboot().check()


def test_a_name_that_another_had_for_a_while_is_free() -> None:
    slow = Slow(MemoryStorage())
    number = slow.push(chain())
    until_claimed(slow)
    slow.other.push("else", 1, jobId=NAMES[3])
    slow.other.ok("Cancel", id=NAMES[3])
    slow.finish()
    assert answer_of(slow.client, number)["ok"] is True
    assert slow.other.state(NAMES[3]) == "waiting-children"
    assert slow.site.yard.names.custom.count() == len(NAMES)
    slow.site.check()
    slow.site.reboot().check()


def test_of_two_flows_with_one_name_the_first_to_enter_does() -> None:
    slow = Slow()
    first = slow.push(chain())
    second = slow.other.send(
        "PUSHF", jobs=family(*[f"m{at}" for at in range(FLOW_JOBS_AT_ONCE)], NAMES[5])
    )
    slow.finish()
    answers = (answer_of(slow.client, first), answer_of(slow.other, second))
    assert sorted(answer["ok"] for answer in answers) == [False, True]
    assert f"Flow job {NAMES[5]} already exists" in {one.get("error") for one in answers}
    assert slow.site.yard.names.custom._claims_count == 0
    assert slow.site.yard.names.custom.count() == slow.site.yard.jobs.count
    slow.site.check()


def test_a_flow_that_finds_no_room_leaves_nothing() -> None:
    slow = Slow()
    slow.site.yard.bodies._budget = 1000
    number = slow.push(chain())
    slow.finish()
    assert answer_of(slow.client, number)["ok"] is False
    assert slow.site.yard.jobs.count == 0
    assert "q" not in slow.site.yard.queues
    assert slow.site.yard.names.custom._claims_count == 0
    slow.site.yard.bodies._budget = 1 << 30
    number = slow.push(chain())
    slow.finish()
    assert answer_of(slow.client, number)["ok"] is True
    slow.site.check()


def test_a_full_group_refuses_a_long_flow() -> None:
    slow = Slow()
    jobs = [
        {"id": name, "queue": "q", "input": {"data": {}, "groupId": "g", "groupMaxSize": 250}}
        for name in NAMES
    ]
    number = slow.push(jobs)
    slow.finish()
    assert answer_of(slow.client, number)["error"].startswith("Group g has reached")
    assert slow.site.yard.jobs.count == 0
    assert slow.site.yard.names.custom._claims_count == 0
    slow.site.check()


def test_a_long_flow_comes_back_whole_whatever_its_bodies_are() -> None:
    for size in (1, 5000, 70_000):
        slow = Slow(MemoryStorage())
        number = slow.push(chain(size=size))
        slow.finish()
        assert answer_of(slow.client, number)["ok"] is True
        slow.site.check()
        site = slow.site.reboot()
        site.check()
        client = site.connect()
        assert client.state(NAMES[0]) == "waiting"
        assert client.state(NAMES[-1]) == "waiting-children"
        for name in NAMES[:3]:
            assert client.pull("q")["id"] == name
            assert client.ok("GetJob", id=name)["job"]["data"] == {"x": "x" * size}
            client.ok("ACK", id=name)
        site.check()


def test_an_obliterated_queue_takes_no_flow_with_it_that_enters_later() -> None:
    slow = Slow(MemoryStorage())
    slow.other.push("q", 1)
    number = slow.push(chain())
    while slow.site.yard.names.custom._claims_count < len(NAMES):
        assert slow.site.slice()
    slow.other.send("Obliterate", queue="q")
    slow.finish()
    assert answer_of(slow.client, number)["ok"] is True
    assert slow.other.state(NAMES[0]) == "waiting"
    assert slow.site.yard.jobs.count == len(NAMES)
    slow.site.check()
    slow.site.reboot().check()


def test_no_more_is_written_of_a_flow_than_room_was_made_for() -> None:
    for size in (1, 70_000):
        site = FlowSite(MemoryStorage())
        plan = [site.plan(f"q{n}") for n in range(20)]
        for one in plan:
            one.new_job.body = b"x" * size
        for n in range(19):
            plan[n].parent = n + 1
            plan[n + 1].depends.append(n)
        flow = prepared(site.yard, plan)
        queues = [site.queue(one.queue) for one in plan]
        room = flow.room_in(queues, list(dict.fromkeys(queues)))
        before = site.yard.journal.open_bytes()
        put_flow(site.yard, flow, queues, site.now_ms)
        assert site.yard.journal.open_bytes() - before <= room
        told = sum(base_room(one.new_job) for one in plan)
        assert flow.room == told
