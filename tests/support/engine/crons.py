"""Crons over a yard in memory: how tests create them, let time pass, and check the result."""

from jobyard.engine.jobs.put import NewJob, intern
from jobyard.engine.jobs.schedule import Cron, ScheduleHooks, find_cron, set_cron
from jobyard.model.details import JobDetails
from jobyard.model.family import BUNQUEUE
from jobyard.model.job import MSGPACK, Job
from jobyard.model.policy import Policy
from tests.support.site.yard import OpenYard


class Advice(ScheduleHooks):
    """Has the workers a test sets, and one successor."""

    def __init__(self) -> None:
        self.queues: set[str] = set()
        self.next: NewJob | None = None

    def has_worker(self, queue: str) -> bool:
        return queue in self.queues

    def successor(self, job: Job, body: bytes, now_ms: int) -> NewJob | None:
        del job, now_ms
        assert body == b"\x01"
        return self.next


def wish_of(site: OpenYard, body: bytes = b"\x01", key: str = "") -> NewJob:
    new_job = NewJob(BUNQUEUE, MSGPACK, body)
    policy = Policy(0)
    policy.name = "tick"
    policy.max_attempts = 5
    new_job.policy = intern(site.yard, policy)
    if key:
        new_job.details = JobDetails()
        new_job.details.unique_key = key
    return new_job


def make(site: OpenYard, name: str = "c", *, schedule: str = "", every_ms: int = 0) -> Cron:
    cron = Cron(site.yard, name, "q")
    cron.set_job(wish_of(site))
    if schedule:
        cron.set_schedule(schedule, "")
    cron.every_ms = every_ms
    return cron


def start(site: OpenYard, cron: Cron, *, is_immediate: bool = False) -> Cron:
    set_cron(site.yard, cron, site.now_ms, is_immediate=is_immediate)
    return cron


def jobs(site: OpenYard) -> list[Job]:
    return sorted(site.yard.jobs.all(), key=lambda job: int(job.id))


def times(site: OpenYard) -> list[int]:
    """Return the wall times of all runs."""
    return [int(job.own_ms) for job in jobs(site)]


def kept(site: OpenYard, name: str = "c") -> Cron:
    cron = find_cron(site.yard, name)
    assert cron is not None
    return cron


def kept_executions(site: OpenYard) -> int:
    cron = find_cron(site.yard, "c")
    return 0 if cron is None else int(cron.executions)
