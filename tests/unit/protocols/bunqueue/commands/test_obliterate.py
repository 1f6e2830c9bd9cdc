"""A queue of many jobs obliterated: gone at once for all clients, freed in slices."""

import pytest

from jobyard.engine.jobs.listing import ALL_STATES, SORTED_AT_ONCE, jobs_in
from tests.support.clients.bunqueue import BunqueueClient
from tests.support.doors.bunqueue import BareBunqueue
from tests.support.site.recount import recount, recount_live_bytes
from tests.support.site.snapshot import snapshot
from tests.support.site.storage import MemoryStorage

JOBS = 300


def mixed_site() -> tuple[BareBunqueue, BunqueueClient, list[str]]:
    """A yard where a turn has little room, with jobs in all states, and the ids of all."""
    site = BareBunqueue(MemoryStorage())
    client = site.connect()
    ids: list[str] = []
    for kind in (
        {"priority": 3},
        {"delay": 5000},
        {"groupId": "a"},
        {"groupId": "b", "ttl": 60_000},
        {"maxAttempts": 1},
    ):
        jobs = [{"data": at, **kind} for at in range(JOBS // 6)]
        ids += client.ok("PUSHB", queue="q", jobs=jobs)["ids"]
    ids += [client.push(jobId=f"mine-{at}", uniqueKey=f"k{at}") for at in range(JOBS // 6)]
    for at in range(40):
        job = client.pull()
        if at % 2:
            client.ok("ACK", id=job["id"], result=at)
        else:
            client.ok("FAIL", id=job["id"], error="no")
    client.pull()
    site.connect().push("other")
    site.yard.tasks.units_per_turn = 100
    site.is_slow = True
    site.slice()
    return site, client, ids


def check_gone(client: BunqueueClient, ids: list[str]) -> None:
    """Check that nothing of a queue is found, by any command."""
    counts = client.ok("GetJobCounts", queue="q")["counts"]
    assert set(counts.values()) == {0}
    assert client.ok("Count", queue="q")["count"] == 0
    assert client.ok("GetJobs", queue="q")["jobs"] == []
    assert client.ok("PULLB", queue="q", count=10)["jobs"] == []
    assert {client.state(job_id) for job_id in ids} == {"unknown"}
    names = [row["name"] for row in client.ok("ListQueues")["queues"]]
    assert names == ["other"]


def unfreed(site: BareBunqueue) -> int:
    return sum(int(grave.jobs_count()) for grave in site.yard.condemned.values())


def finish(site: BareBunqueue) -> int:
    turns = 1
    while site.slice():
        turns += 1
    return turns


def test_all_are_gone_for_everybody_at_once_and_freed_in_slices() -> None:
    site, client, ids = mixed_site()
    other = site.connect()
    assert client.ok("Obliterate", queue="q") == {}
    assert site.yard.jobs.count == 1
    before = unfreed(site)
    assert before > JOBS // 2
    check_gone(other, ids)
    turns = 0
    while site.slice():
        turns += 1
        check_gone(other, ids)
        assert before - unfreed(site) <= 100
        before = unfreed(site)
    assert turns > 5
    assert site.yard.jobs.count == 1
    assert not site.yard.condemned
    site.check()


def test_the_queue_goes_on_meanwhile_with_new_jobs() -> None:
    site, client, _ids = mixed_site()
    client.ok("Obliterate", queue="q")
    new = [client.push(jobId="mine-1", uniqueKey="k1"), client.push(groupId="a", delay=10)]
    site.slice()
    assert client.state("mine-1") == "waiting"
    client.ok("Obliterate", queue="q")
    assert client.state(new[0]) == "unknown"
    last = client.push(jobId="mine-1")
    finish(site)
    assert client.pull()["id"] == last
    site.check()


@pytest.mark.parametrize("turns", range(0, 16, 2))
def test_a_restart_in_the_middle_finds_none_of_them(turns: int) -> None:
    site, client, ids = mixed_site()
    client.ok("Obliterate", queue="q")
    new = client.push(jobId="mine-2")
    for _ in range(turns):
        site.commit()
        site.slice()
        if turns % 4 == 2:
            site.compact()
    site.commit()
    again = site.reboot()
    fresh = again.connect()
    assert fresh.state(new) == "waiting"
    assert {fresh.state(job_id) for job_id in ids if job_id != "mine-2"} == {"unknown"}
    assert again.yard.jobs.count == 2
    recount(again.yard)
    recount_live_bytes(again.yard)
    third = again.reboot()
    assert snapshot(third.yard) == snapshot(again.yard)


def test_jobs_that_are_freed_do_not_live_on_through_time() -> None:
    site, client, ids = mixed_site()
    client.ok("Obliterate", queue="q")
    site.tick(120_000)
    check_gone(site.connect(), ids)
    finish(site)
    assert jobs_in(site.yard.queues["other"], ALL_STATES)
    assert site.yard.jobs.count == 1
    site.check()


def test_parents_elsewhere_hear_of_it() -> None:
    site, client, _ids = mixed_site()
    child = client.push("q", failParentOnFailure=True)
    parent = client.push("p", dependsOn=[child])
    client.ok("Obliterate", queue="q")
    assert client.state(parent) != "waiting-children" or child
    finish(site)
    site.check()


def test_the_settings_go_too_if_the_client_disconnects_meanwhile() -> None:
    site = BareBunqueue(MemoryStorage())
    client, other = site.connect(), site.connect()
    # Active jobs are removed one by one: more of them than fit into a turn.
    for start in range(0, SORTED_AT_ONCE + 1, 1000):
        other.ok("PUSHB", queue="q", jobs=[{"data": start}] * 1000)
        assert len(other.ok("PULLB", queue="q", count=1000)["jobs"]) == 1000
    other.ok("Pause", queue="q")
    other.ok("SetConcurrency", queue="q", limit=1)
    site.yard.tasks.units_per_turn = 100
    site.is_slow = True
    site.slice()
    number = client.send("Obliterate", queue="q")
    assert client.hear(number) is None
    client.close()
    finish(site)
    assert site.yard.jobs.count == 0
    assert "q" not in site.yard.queues
    assert other.ok("IsPaused", queue="q")["paused"] is False
    site.check()
