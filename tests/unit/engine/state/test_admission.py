import pytest

from jobyard.engine.jobs.finish import KEEP_AS_ASKED, complete
from jobyard.engine.jobs.move import set_rank
from jobyard.engine.jobs.queues import copy_settings, set_group, set_settings
from jobyard.engine.state.admission import next_open_ms
from jobyard.engine.state.names import rules_of
from jobyard.model.details import JobDetails
from jobyard.model.job import MSGPACK, Job
from jobyard.model.limits import NEVER_MS
from jobyard.model.throttle.settings import Group
from tests.support.site.recount import recount
from tests.support.site.site import NOW_MS
from tests.support.site.storage import MemoryStorage
from tests.support.site.yard import OpenYard


def grouped(site: OpenYard, name: str, rank: int = 0) -> Job:
    details = JobDetails()
    details.group_id = name
    return site.enter(name.encode(), rank=rank, details=details)


def group_of(site: OpenYard, name: str) -> Group:
    return rules_of(site.queue()).groups[name]


def pulled(site: OpenYard, most: int = 99) -> list[str]:
    found: list[str] = []
    while len(found) < most and (lease := site.pull()) is not None:
        found.append(lease.body.decode())
    recount(site.yard)
    return found


def limited(site: OpenYard, **limits: int) -> None:
    settings = copy_settings(site.queue())
    for name, number in limits.items():
        setattr(settings, name, number)
    set_settings(site.yard, site.queue(), settings, site.now_ms)


def finish_one(site: OpenYard) -> None:
    lease = site.lease_set.leases.items[0]
    complete(site.yard, lease.job, b"", MSGPACK, KEEP_AS_ASKED, site.now_ms)  # type: ignore[attr-defined]


def test_jobs_without_a_group_go_first_then_the_groups_take_turns() -> None:
    site = OpenYard()
    for name in ("a", "a", "a", "b", "c", "b"):
        grouped(site, name)
    site.enter(b"plain")
    assert pulled(site) == ["plain", "a", "b", "c", "a", "b", "a"]


def test_within_a_group_the_least_rank_goes_first() -> None:
    site = OpenYard()
    jobs = [grouped(site, "a", rank) for rank in (3, 1, 2)]
    served = [lease.job for _ in jobs if (lease := site.pull()) is not None]
    assert served == [jobs[1], jobs[2], jobs[0]]


def test_a_new_rank_counts_within_a_group() -> None:
    site = OpenYard()
    jobs = [grouped(site, "a", rank) for rank in (1, 2)]
    set_rank(site.yard, jobs[1], 0, site.now_ms)
    recount(site.yard)
    lease = site.pull()
    assert lease is not None
    assert lease.job is jobs[1]


def test_no_more_jobs_of_a_queue_run_than_may() -> None:
    site = OpenYard(MemoryStorage())
    limited(site, concurrency=2)
    for _ in range(4):
        site.enter(b"x")
    assert pulled(site) == ["x", "x"]
    finish_one(site)
    assert pulled(site) == ["x"]
    limited(site, concurrency=0)
    assert pulled(site) == []
    limited(site, concurrency=-1)
    assert pulled(site) == ["x"]


def test_no_more_jobs_of_a_group_run_than_may() -> None:
    site = OpenYard(MemoryStorage())
    for name in ("a", "a", "b"):
        grouped(site, name)
    group = group_of(site, "a")
    group.concurrency = 1
    set_group(site.yard, site.queue(), group, site.now_ms)
    assert pulled(site) == ["a", "b"]
    finish_one(site)
    assert pulled(site) == ["a"]


@pytest.mark.parametrize("is_group", [True, False])
def test_a_pause_without_end_holds_jobs_back_until_it_is_lifted(*, is_group: bool) -> None:
    site = OpenYard(MemoryStorage())
    job = grouped(site, "a")
    group = group_of(site, "a")
    client = site.connect()
    for is_paused in (True, False):
        if is_group:
            group.is_paused = is_paused
            set_group(site.yard, site.queue(), group, site.now_ms)
        else:
            limited(site, is_paused=is_paused)
        if is_paused:
            assert pulled(site) == []
            assert client.say(b"reserve\r\n") == b""
    assert client.hear().startswith(b"RESERVED %d " % job.id)


def test_a_rate_lets_the_first_pass_at_once_and_the_others_in_time() -> None:
    site = OpenYard(MemoryStorage())
    limited(site, rate_most=2, rate_ms=1000)
    for _ in range(5):
        site.enter(b"x")
    assert pulled(site) == ["x", "x"]
    rules = rules_of(site.queue())
    assert next_open_ms(site.queue(), rules, site.now_ms) == NOW_MS + 500
    site.jump(499)
    assert pulled(site) == []
    site.jump(1)
    assert pulled(site) == ["x"]


def test_who_waits_is_served_when_the_rate_allows_it() -> None:
    site = OpenYard()
    limited(site, rate_most=1, rate_ms=1000)
    clients = [site.connect() for _ in range(3)]
    for client in clients:
        site.enter(b"x")
        client.say(b"reserve-with-timeout 5\r\n")
    served = []
    for _ in range(3):
        served.append([len(client.lease_set.leases.items) for client in clients])
        site.jump(999)
        assert [len(client.lease_set.leases.items) for client in clients] == served[-1]
        site.jump(1)
    assert served == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    recount(site.yard)


def test_a_group_whose_rate_is_used_up_lets_the_others_pass() -> None:
    site = OpenYard()
    for name in ("a", "a", "b", "b"):
        grouped(site, name)
    group = group_of(site, "a")
    group.set_rate(1, 1000)
    assert group.bucket is not None
    group.bucket.fill(site.now_ms)
    set_group(site.yard, site.queue(), group, site.now_ms)
    assert pulled(site) == ["a", "b", "b"]
    assert next_open_ms(site.queue(), rules_of(site.queue()), site.now_ms) == NOW_MS + 1000
    site.jump(1000)
    assert pulled(site) == ["a"]


def test_a_group_closed_for_a_time_is_passed_over_until_then() -> None:
    site = OpenYard()
    grouped(site, "a")
    group_of(site, "a").closed_until_ms = NOW_MS + 300
    assert pulled(site) == []
    assert next_open_ms(site.queue(), rules_of(site.queue()), site.now_ms) == NOW_MS + 300
    site.jump(300)
    assert pulled(site) == ["a"]


def test_a_gate_that_time_alone_does_not_open_is_never_looked_at_again() -> None:
    site = OpenYard()
    rules = rules_of(site.queue())
    assert next_open_ms(site.queue(), rules, site.now_ms) == NEVER_MS
    site.enter()
    limited(site, is_paused=True)
    assert next_open_ms(site.queue(), rules, site.now_ms) == NEVER_MS
