from jobyard.model.family import BEANSTALK
from jobyard.model.job import GONE, RAW, Job
from jobyard.model.policy import PLAIN
from jobyard.model.queue import Queue


def test_a_job_is_born_outside_every_index_with_its_due_time_set() -> None:
    job = Job(7, Queue("q"), 3, 5, 9, 1000, 250, 60, PLAIN, b"abc", 3, BEANSTALK, RAW)
    assert (job.id, job.key, job.stamp, job.rank) == (7, 3, 5, 9)
    assert (job.created_ms, job.due_ms, job.delay_ms, job.own_ms) == (1000, 1250, 250, 60)
    assert (job.body, job.size) == (b"abc", 3)
    assert job.state == GONE
    assert job.pos < 0


def test_rare_counters_cost_nothing_before_their_first_event() -> None:
    job = Job(7, Queue("q"), 3, 5, 9, 1000, 0, 60, PLAIN, b"", 0, BEANSTALK, RAW)
    before = job.details
    assert before is None
    job.counters().kicks += 2
    assert job.details is not None
    assert job.counters().kicks == 2
