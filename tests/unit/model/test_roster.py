from jobyard.model.job import BUNQUEUE, DEAD, DELAYED, GONE, MSGPACK, READY, Job
from jobyard.model.policy import PLAIN
from jobyard.model.queue import Queue
from jobyard.model.roster import Roster

QUEUE = Queue("q")


def job_of(seq: int, state: int = READY) -> Job:
    job = Job(seq, QUEUE, seq, seq, 0, 0, 0, 0, PLAIN, b"", 0, BUNQUEUE, MSGPACK)
    job.state = state
    return job


def page(roster: Roster, offset: int, limit: int, *states: int, oldest_first: bool) -> list[int]:
    wanted = frozenset(states or (READY, DELAYED, DEAD))
    return [int(job.id) for job in roster.page(wanted, offset, limit, oldest_first=oldest_first)]


def test_jobs_are_listed_from_either_end() -> None:
    roster = Roster([job_of(1), job_of(2)])
    for seq in (3, 4, 5):
        roster.add(job_of(seq))
    assert page(roster, 0, 3, oldest_first=True) == [1, 2, 3]
    assert page(roster, 3, 3, oldest_first=True) == [4, 5]
    assert page(roster, 0, 2, oldest_first=False) == [5, 4]
    assert page(roster, 4, 9, oldest_first=False) == [1]
    assert page(roster, 5, 9, oldest_first=True) == []
    assert page(roster, 0, 0, oldest_first=True) == []


def test_only_the_asked_states_count_and_are_skipped() -> None:
    roster = Roster([job_of(seq, DEAD if seq % 2 else DELAYED) for seq in range(1, 9)])
    assert page(roster, 1, 2, DEAD, oldest_first=True) == [3, 5]
    assert page(roster, 1, 2, DELAYED, oldest_first=False) == [6, 4]
    assert page(roster, 0, 9, READY, oldest_first=True) == []


def test_jobs_that_are_gone_are_never_listed_and_in_the_end_forgotten() -> None:
    jobs = [job_of(seq) for seq in range(1, 1001)]
    roster = Roster(list(jobs))
    for job in jobs[:990]:
        job.state = GONE
        roster.note_gone(job)
        living = [int(one.id) for one in jobs if one.state != GONE][:3]
        assert page(roster, 0, 3, oldest_first=True) == living
    assert len(roster._jobs) < 200
