from jobyard.engine.jobs.finish import KEEP_AS_ASKED, complete, fail
from jobyard.engine.jobs.move import erase, kick_job, revive
from jobyard.engine.state.names import rules_of
from jobyard.model.details import JobDetails
from jobyard.model.job import BLOCKED, DEAD, MSGPACK, Job
from jobyard.model.members import Member
from jobyard.model.policy import CHILD_FAILS_PARENT, Policy
from tests.support.site.recount import recount
from tests.support.site.snapshot import snapshot
from tests.support.site.storage import MemoryStorage
from tests.support.site.yard import OpenYard


def keyed(key: str) -> JobDetails:
    details = JobDetails()
    details.unique_key = key
    return details


def owner(site: OpenYard, key: str, queue: str = "default") -> Job | None:
    keys = site.queue(queue).keys
    return None if keys is None else keys.get(key)


def killed(site: OpenYard, job: Job) -> None:
    fail(site.yard, site.run(job), "no", site.now_ms, is_final=True)


def reopened(site: OpenYard, storage: MemoryStorage) -> OpenYard:
    site.commit()
    recount(site.yard)
    again = OpenYard(storage.cut_off(), site.now_ms)
    assert snapshot(again.yard) == snapshot(site.yard)
    recount(again.yard)
    return again


def test_a_key_belongs_to_its_job_until_that_is_final() -> None:
    site = OpenYard(MemoryStorage())
    job = site.enter(details=keyed("k"))
    assert owner(site, "k") is job
    assert owner(site, "k", "other") is None
    fail(site.yard, site.run(job), "once", site.now_ms)
    assert owner(site, "k") is job
    site.jump(60_000)
    complete(site.yard, site.run(job), b"", MSGPACK, KEEP_AS_ASKED, site.now_ms)
    assert owner(site, "k") is None
    recount(site.yard)


def test_a_job_brought_back_takes_up_its_key() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage)
    job = site.enter(details=keyed("k"))
    killed(site, job)
    revive(site.yard, job, site.now_ms)
    assert owner(site, "k") is job
    reopened(site, storage)


def test_a_job_brought_back_loses_a_key_that_is_anothers_by_now() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage)
    first = site.enter(details=keyed("k"))
    killed(site, first)
    second = site.enter(details=keyed("k"))
    killed(site, second)
    revive(site.yard, first, site.now_ms)
    revive(site.yard, second, site.now_ms)
    assert owner(site, "k") is first
    assert second.ensure_details().unique_key == ""
    again = reopened(site, storage)
    kept = owner(again, "k")
    assert kept is not None
    assert kept.id == first.id


def test_a_key_whose_time_is_over_is_not_given_back_by_a_restart() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage)
    older = site.enter(details=keyed("k"))
    killed(site, older)
    passing = keyed("k")
    passing.key_until_ms = site.now_ms + 500
    site.enter(details=passing)
    site.jump(500)
    killed(site, site.enter(details=keyed("k")))
    revive(site.yard, older, site.now_ms)
    assert owner(site, "k") is older
    reopened(site, storage)


def test_a_kick_brings_back_what_a_retry_would() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage)
    policy = Policy(0)
    policy.ttl_ms = 5000
    job = site.enter(policy=policy, details=keyed("k"))
    killed(site, job)
    kick_job(site.yard, job.id, site.now_ms)
    assert owner(site, "k") is job
    again = reopened(site, storage)
    for each in (site, again):
        each.jump(5000)
        assert each.yard.jobs.count == 0
        assert owner(each, "k") is None


def test_a_key_that_is_dropped_leaves_the_alarm_of_its_job_alone() -> None:
    site = OpenYard(MemoryStorage())
    policy = Policy(0)
    policy.ttl_ms = 5000
    job = site.enter(policy=policy, details=keyed("k"))
    site.yard.names.free_key(job)
    site.jump(5000)
    assert site.yard.jobs.count == 0


def test_a_custom_id_is_known_in_all_queues_until_its_job_is_gone() -> None:
    site = OpenYard(MemoryStorage())
    details = JobDetails()
    details.custom_id = "mine"
    job = site.enter(queue="q", details=details)
    killed(site, job)
    assert dict(site.yard.names.custom.items()) == {"mine": job}
    erase(site.yard, job, site.now_ms)
    assert dict(site.yard.names.custom.items()) == {}


def test_a_job_waits_for_others_only_while_it_may_run() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage)
    policy = Policy(0)
    policy.child_failure = CHILD_FAILS_PARENT
    children = []
    for _ in range(2):
        of_parent = JobDetails()
        of_parent.parent_id = 3
        children.append(site.enter(policy=policy, details=of_parent))
    details = JobDetails()
    details.members = [Member(child.id, f"default:{child.id}") for child in children]
    parent = site.enter(details=details)
    assert parent.state == BLOCKED
    killed(site, children[0])
    assert parent.state == DEAD
    assert site.yard.names.dependents.count == 0
    reopened(site, storage)
    revive(site.yard, parent, site.now_ms)
    assert site.yard.names.dependents.get(int(children[1].id)) == [parent]
    reopened(site, storage)
    erase(site.yard, parent, site.now_ms)
    assert site.yard.names.dependents.count == 0
    recount(site.yard)


def test_a_group_is_made_by_its_first_job_and_goes_with_its_last() -> None:
    site = OpenYard(MemoryStorage())
    details = JobDetails()
    details.group_id = "g"
    job = site.enter(details=details)
    rules = rules_of(site.queue())
    assert rules.groups["g"].jobs_count == 1
    erase(site.yard, job, site.now_ms)
    assert rules.groups == {}
    recount(site.yard)
