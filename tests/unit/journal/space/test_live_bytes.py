from jobyard.engine.jobs.finish import release
from jobyard.engine.jobs.move import remove
from jobyard.journal.format.record import GONE_SIZE, MOVED_SIZE, STATE_SIZE
from jobyard.journal.format.segment import HOT, Segment
from jobyard.journal.space.live_bytes import LiveBytes, queue_bytes
from jobyard.model.family import BEANSTALK
from jobyard.model.job import RAW, Job
from jobyard.model.policy import PLAIN
from jobyard.model.queue import Queue
from tests.support.site.recount import recount_live_bytes
from tests.support.site.storage import MemoryStorage
from tests.support.site.yard import OpenYard


def books(*numbers: int) -> tuple[LiveBytes, list[Segment]]:
    live_bytes = LiveBytes()
    segments = [Segment(number, HOT, 1 << 16) for number in numbers]
    for segment in segments:
        live_bytes.segments[segment.number] = segment
    return live_bytes, segments


def job_in(live_bytes: LiveBytes, segment: Segment, size: int = 10) -> Job:
    job = Job(1, Queue("q"), 1, 1, 0, 0, 0, 0, PLAIN, b"", size, BEANSTALK, RAW)
    job.place = segment.number << 32 | 100
    segment.live += MOVED_SIZE + size
    live_bytes.jobs_count += 1
    return job


def test_the_news_of_a_job_weigh_once_where_they_are_newest() -> None:
    live_bytes, (first, second) = books(1, 2)
    job = job_in(live_bytes, first)
    base = first.live
    live_bytes.trail(job, first)
    live_bytes.trail(job, first)
    assert (job.trail, first.live) == (1, base + STATE_SIZE)
    live_bytes.trail(job, second)
    assert (job.trail, first.live, second.live) == (2, base, STATE_SIZE)


def test_a_death_weighs_in_another_segment_until_the_base_is_gone() -> None:
    live_bytes, (first, second) = books(1, 2)
    job = job_in(live_bytes, first)
    live_bytes.trail(job, first)
    live_bytes.bury_base(job, second, 1)
    assert (first.live, second.live) == (0, GONE_SIZE)
    assert second.kills == {1: GONE_SIZE}
    assert (job.trail, live_bytes.jobs_count) == (0, 0)
    live_bytes.forget_segment(1)
    assert (second.live, second.kills) == (0, {})


def test_a_death_in_the_segment_of_the_base_or_without_one_weighs_nothing() -> None:
    live_bytes, (first,) = books(1)
    live_bytes.bury_base(job_in(live_bytes, first), first, 1)
    live_bytes.count_kill(first, 77)
    assert (first.live, first.kills) == (0, {})


def test_a_job_that_moves_takes_its_weight_and_its_news_along() -> None:
    live_bytes, (first, second, third) = books(1, 2, 3)
    job = job_in(live_bytes, first, 500)
    live_bytes.trail(job, second)
    live_bytes.leave_base(job)
    assert [segment.live for segment in (first, second)] == [0, 0]
    live_bytes.take_base(job, third, 777, 0)
    assert [segment.live for segment in (first, second, third)] == [0, 0, MOVED_SIZE + 500]
    assert (job.place, job.trail) == (3 << 32 | 777, 0)


def test_a_name_weighs_in_one_segment_only() -> None:
    live_bytes, (first, second) = books(1, 2)
    queue = Queue("some name")
    live_bytes.hold_queue(queue, first)
    assert first.live == queue_bytes(queue)
    live_bytes.hold_queue(queue, second)
    assert (first.live, second.live) == (0, queue_bytes(queue))
    live_bytes.forget_queue(queue)
    live_bytes.forget_queue(queue)
    assert (second.live, queue.segment) == (0, 0)


def test_a_yard_with_nothing_alive_has_nothing_to_save() -> None:
    site = OpenYard(MemoryStorage(), segment_size=8192)
    lease_set = site.connect().lease_set
    for number in range(60):
        site.put(b"x" * 400, f"q{number % 5}", rank=number)
    for number in range(40):
        lease = site.take(lease_set, f"q{number % 5}")
        release(site.yard, lease.job, 1000, 0, site.now_ms)
    for job in site.yard.jobs.all():
        remove(site.yard, job, site.now_ms)
        recount_live_bytes(site.yard)
    left = {int(number): int(segment.live) for number, segment in site.journal.segments.items()}
    kills = {
        int(number): sum(segment.kills.values())
        for number, segment in site.journal.segments.items()
    }
    assert left == kills
