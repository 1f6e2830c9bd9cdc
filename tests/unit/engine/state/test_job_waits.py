from jobyard.engine.jobs.finish import KEEP_AS_ASKED, complete, fail
from jobyard.engine.state.job_waits import JobWait, OpenJobWaiter
from jobyard.model.job import MSGPACK, Job
from tests.support.site.site import NOW_MS
from tests.support.site.yard import OpenYard


class Friend(OpenJobWaiter):
    """A job waiter that remembers its notifications."""

    def __init__(self) -> None:
        self.heard: list[bytes | None] = []

    def job_done(self, wait: JobWait, result: bytes | None) -> None:
        """Remember it."""
        assert wait.job_waiter is self
        self.heard.append(result)


def waiting(site: OpenYard, job: Job, friend: Friend, ms: int = 1000) -> JobWait:
    wait = JobWait(site.yard.new_number(), job, friend, site.now_ms + ms)
    site.yard.waits.add(wait)
    site.yard.arm(wait, wait.sort_key)
    return wait


def test_all_who_wait_for_a_job_hear_what_it_came_to() -> None:
    site = OpenYard()
    job, other = site.enter(), site.enter()
    friends = [Friend(), Friend(), Friend()]
    for friend, each in zip(friends, (job, job, other), strict=True):
        waiting(site, each, friend)
    complete(site.yard, site.run(job), b"result", MSGPACK, KEEP_AS_ASKED, site.now_ms)
    assert [friend.heard for friend in friends] == [[b"result"], [b"result"], []]


def test_who_waited_enough_hears_nothing_came() -> None:
    site = OpenYard()
    job, friend = site.enter(), Friend()
    waiting(site, job, friend)
    assert site.jump(999) == NOW_MS + 1000
    assert friend.heard == []
    site.jump(1)
    assert friend.heard == [None]
    complete(site.yard, site.run(job), b"late", MSGPACK, KEEP_AS_ASKED, site.now_ms)
    assert friend.heard == [None]


def test_a_failed_attempt_ends_no_wait() -> None:
    site = OpenYard()
    job, friend = site.enter(), Friend()
    waiting(site, job, friend)
    fail(site.yard, site.run(job), "no", site.now_ms, delay_ms=0)
    assert friend.heard == []
    complete(site.yard, site.run(job), b"r", MSGPACK, KEEP_AS_ASKED, site.now_ms)
    assert friend.heard == [b"r"]


def test_who_waits_no_more_hears_nothing() -> None:
    site = OpenYard()
    job, friend = site.enter(), Friend()
    wait = waiting(site, job, friend)
    site.yard.waits.remove(wait)
    site.yard.waits.remove(wait)
    complete(site.yard, site.run(job), b"r", MSGPACK, KEEP_AS_ASKED, site.now_ms)
    assert friend.heard == []
