"""Long flows: read, checked and shown in slices, while others go on."""

from typing import Any

from jobyard.sessions.bunqueue.flow_push import AT_ONCE
from tests.support.bare_bunqueue import Answer, BareBunqueue, BareClient
from tests.support.bare_flows import family
from tests.support.memory_storage import MemoryStorage

NAMES = [f"k{at}" for at in range(AT_ONCE + 100)]


class Slow:
    """A site on which long work goes on slice by slice."""

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
        """Let long work come to its end; return how many turns it took."""
        turns = 1
        while self.site.slice():
            turns += 1
        return turns

    def until_entered(self) -> None:
        """Let a flow go on until its jobs are there."""
        while self.site.yard.jobs.count == 0:
            assert self.site.slice()


def answer_of(client: BareClient, number: str) -> Answer:
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
