"""Commands whose work is long: others are served meanwhile, and order is kept."""

import pytest

from jobyard.engine.jobs.listing import SORTED_AT_ONCE
from tests.support.clients.bunqueue import Answer, BunqueueClient
from tests.support.doors.bunqueue import BareBunqueue
from tests.support.site.storage import MemoryStorage

JOBS = 400


def slow_site(count: int = JOBS, **fields: object) -> tuple[BareBunqueue, BunqueueClient]:
    """A yard where a turn has little room, with jobs in a queue."""
    site = BareBunqueue(MemoryStorage())
    client = site.connect()
    jobs = [{"data": at, **fields} for at in range(count)]
    client.ok("PUSHB", queue="q", jobs=jobs)
    site.yard.tasks.units_per_turn = 100
    site.is_slow = True
    site.slice()
    return site, client


def finish(site: BareBunqueue) -> int:
    """Run long work to its end; return the number of turns."""
    turns = 1
    while site.slice():
        turns += 1
    return turns


def test_others_are_answered_between_two_slices() -> None:
    site, client = slow_site()
    other = site.connect()
    number = client.send("Drain", queue="q")
    assert client.hear(number) is None
    waiting = JOBS
    while client.hear(number) is None:
        now = other.ok("GetJobCounts", queue="q")["counts"]["waiting"]
        assert waiting - now <= 100
        waiting = now
        if not site.slice():
            break
    assert other.ok("GetJobCounts", queue="q")["counts"]["waiting"] == 0
    site.check()


def test_the_answer_comes_at_the_end_and_counts_all() -> None:
    site, client = slow_site()
    number = client.send("Drain", queue="q")
    assert finish(site) > 10
    assert client.hear(number) == {"ok": True, "count": JOBS}


def test_commands_behind_it_wait_for_its_end() -> None:
    site, client = slow_site()
    drain = client.send("Drain", queue="q")
    push = client.send("PUSH", queue="q", data="later")
    count = client.send("Count", queue="q")
    site.slice()
    assert [client.hear(number) for number in (drain, push, count)] == [None] * 3
    finish(site)
    assert client.hear(drain) == {"ok": True, "count": JOBS}
    pushed = client.hear(push)
    assert pushed is not None
    assert pushed["ok"]
    assert client.hear(count) == {"ok": True, "count": 1}


def test_what_is_pushed_elsewhere_meanwhile_stays() -> None:
    site, client = slow_site()
    number = client.send("Drain", queue="q")
    new = [site.connect().push() for _ in range(5)]
    finish(site)
    assert client.hear(number) == {"ok": True, "count": JOBS}
    assert [client.state(job_id) for job_id in new] == ["waiting"] * 5
    site.check()


def test_who_asked_and_left_has_still_asked() -> None:
    site, client = slow_site()
    client.send("Drain", queue="q")
    client.close()
    finish(site)
    assert site.yard.ready_count == 0
    site.check()


def test_who_has_sent_its_last_is_answered_before_the_end() -> None:
    site, client = slow_site()
    number = client.send("Drain", queue="q")
    client.session.end_input(site.now_ms)
    assert not client.session.is_finished
    finish(site)
    assert client.hear(number) == {"ok": True, "count": JOBS}
    assert client.session.is_finished


def through(site: BareBunqueue, client: BunqueueClient, cmd: str, **fields: object) -> Answer:
    """Ask for something long; return its answer, after some turns."""
    number = client.send(cmd, queue="q", **fields)
    assert client.hear(number) is None, "it is not long"
    assert finish(site) >= 4
    answer = client.hear(number)
    assert answer is not None
    assert answer.pop("ok") is True
    site.check()
    return answer


@pytest.mark.parametrize("count", [JOBS, SORTED_AT_ONCE + 600])
def test_a_long_page_is_made_in_slices(count: int) -> None:
    site, client = slow_site(count)
    shown = [job["data"] for job in through(site, client, "GetJobs", limit=10**6)["jobs"]]
    assert shown == list(range(count))
    last = through(site, client, "GetJobs", offset=count - 90, limit=60, asc=False)["jobs"]
    assert [job["data"] for job in last] == list(range(89, 29, -1))


def test_a_page_continues_while_jobs_come_and_go() -> None:
    site, client = slow_site(SORTED_AT_ONCE + 600)
    other = site.connect()
    number = client.send("GetJobs", queue="q", limit=10**6)
    taken = []
    while site.slice():
        taken.append(other.pull()["data"])
        other.push("q", data="new")
    answer = client.hear(number)
    assert answer is not None
    shown = [job["data"] for job in answer["jobs"]]
    old = [one for one in shown if one != "new"]
    assert old == sorted(set(old))
    assert set(range(SORTED_AT_ONCE + 600)) - set(taken) <= set(old)


def test_priorities_are_counted_in_slices() -> None:
    for count in (JOBS, SORTED_AT_ONCE + 600):
        site, client = slow_site(count)
        client.push(priority=7)
        assert through(site, client, "GetCountsPerPriority")["counts"] == {"0": count, "7": 1}


def test_who_leaves_takes_a_reading_along() -> None:
    site, client = slow_site()
    client.send("GetJobs", queue="q", limit=10**6)
    assert site.yard.tasks.count() == 1
    client.close()
    assert site.yard.tasks.count() == 0


def buried(count: int = JOBS) -> tuple[BareBunqueue, BunqueueClient]:
    """A yard like the other, with jobs that are dead."""
    site, client = slow_site(count, maxAttempts=1)
    for _ in range(count):
        client.ok("FAIL", id=client.pull()["id"], error="no")
    return site, client


def test_clean_removes_the_oldest_and_tells_which() -> None:
    site, client = slow_site()
    site.now_ms += 10
    ids = [job["id"] for job in through(site, client, "GetJobs", limit=JOBS)["jobs"]]
    number = client.send("Clean", queue="q", grace=5, limit=300)
    new = site.connect().push()
    finish(site)
    assert client.hear(number) == {"ok": True, "count": 300, "ids": ids[:300]}
    assert client.state(new) == "waiting"
    site.check()


def test_promote_jobs_takes_those_first_that_are_due_first() -> None:
    site, client = slow_site(delay=1000)
    assert through(site, client, "PromoteJobs", count=300) == {"count": 300}
    assert client.ok("GetJobCounts", queue="q")["counts"]["delayed"] == JOBS - 300
    assert client.pull()["data"] == 0


def test_the_dead_come_back_or_go_in_slices() -> None:
    site, client = buried()
    assert through(site, client, "GetDlqStats")["data"]["stats"]["total"] == JOBS
    listed = through(site, client, "Dlq", offset=10, limit=200)
    assert [job["data"] for job in listed["jobs"]] == list(range(10, 210))
    assert len(listed["entries"]) == 200
    assert through(site, client, "RetryDlq", limit=150) == {"count": 150}
    assert through(site, client, "PurgeDlq") == {"count": JOBS - 150}
    counts = client.ok("GetJobCounts", queue="q")["counts"]
    assert (counts["waiting"], counts["failed"]) == (150, 0)


def test_what_dies_after_the_command_is_not_meant_by_it() -> None:
    site, client = buried()
    other = site.connect()
    job_id = other.push("q", maxAttempts=1)
    number = client.send("PurgeDlq", queue="q")
    other.pull()
    other.ok("FAIL", id=job_id, error="late")
    finish(site)
    assert client.hear(number) == {"ok": True, "count": JOBS}
    assert other.state(job_id) == "failed"
    site.check()


def test_done_jobs_run_again_in_slices() -> None:
    site, client = slow_site()
    for _ in range(JOBS):
        client.ok("ACK", id=client.pull()["id"])
    assert through(site, client, "RetryCompleted") == {"count": JOBS}
    assert client.ok("GetJobCounts", queue="q")["counts"]["waiting"] == JOBS
