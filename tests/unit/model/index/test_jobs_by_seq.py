from random import Random

from jobyard.model.family import BUNQUEUE
from jobyard.model.index.jobs_by_seq import CHUNK, JobsBySeq
from jobyard.model.index.sorted_view import SortedView
from jobyard.model.job import DEAD, DELAYED, DONE, GONE, MSGPACK, READY, Job
from jobyard.model.policy import PLAIN
from jobyard.model.queue import Queue

QUEUE = Queue("q")


def job_of(seq: int, state: int = READY) -> Job:
    job = Job(seq, QUEUE, seq, seq, 0, 0, 0, 0, PLAIN, b"", 0, BUNQUEUE, MSGPACK)
    job.state = state
    return job


def page(
    jobs_by_seq: JobsBySeq, offset: int, limit: int, *states: int, oldest_first: bool
) -> list[int]:
    wanted = frozenset(states or (READY, DELAYED, DEAD))
    return [
        int(job.id) for job in jobs_by_seq.page(wanted, offset, limit, oldest_first=oldest_first)
    ]


def test_jobs_are_listed_from_either_end() -> None:
    jobs_by_seq = JobsBySeq([job_of(1), job_of(2)])
    for seq in (3, 4, 5):
        jobs_by_seq.add(job_of(seq))
    assert page(jobs_by_seq, 0, 3, oldest_first=True) == [1, 2, 3]
    assert page(jobs_by_seq, 3, 3, oldest_first=True) == [4, 5]
    assert page(jobs_by_seq, 0, 2, oldest_first=False) == [5, 4]
    assert page(jobs_by_seq, 4, 9, oldest_first=False) == [1]
    assert page(jobs_by_seq, 5, 9, oldest_first=True) == []
    assert page(jobs_by_seq, 0, 0, oldest_first=True) == []


def test_only_the_asked_states_count_and_are_skipped() -> None:
    jobs_by_seq = JobsBySeq([job_of(seq, DEAD if seq % 2 else DELAYED) for seq in range(1, 9)])
    assert page(jobs_by_seq, 1, 2, DEAD, oldest_first=True) == [3, 5]
    assert page(jobs_by_seq, 1, 2, DELAYED, oldest_first=False) == [6, 4]
    assert page(jobs_by_seq, 0, 9, READY, oldest_first=True) == []


def test_jobs_that_are_gone_are_never_listed_and_in_the_end_forgotten() -> None:
    jobs = [job_of(seq) for seq in range(1, 1001)]
    jobs_by_seq = JobsBySeq(list(jobs))
    for job in jobs[:990]:
        job.state = GONE
        jobs_by_seq.note_gone(job)
        living = [int(one.id) for one in jobs if one.state != GONE][:3]
        assert page(jobs_by_seq, 0, 3, oldest_first=True) == living
    assert sum(len(chunk.jobs) for chunk in jobs_by_seq._chunks) < 200


class Odd(SortedView):
    """The jobs with odd seqs."""

    def has(self, job: Job) -> bool:
        return job.state != GONE and bool(job.key % 2)

    def place_of(self, job: Job) -> int:
        return int(job.stamp)


def test_jobs_by_seq_in_many_chunks_equal_a_plain_list() -> None:
    draw = Random(7)
    jobs_by_seq = JobsBySeq([])
    plain: list[Job] = []
    odd = Odd()
    for seq in range(1, 12 * CHUNK):
        plain.append(job_of(seq, draw.choice((READY, DELAYED, DONE))))
        jobs_by_seq.add(plain[-1])
        if seq > 3 * CHUNK and draw.random() < 0.8:
            # The oldest as a rule, as workers do.
            at = 0 if draw.random() < 0.7 else draw.randrange(len(plain))
            gone = plain.pop(at)
            gone.state = GONE
            jobs_by_seq.note_gone(gone)
        if seq % 97:
            continue
        low = draw.randrange(seq + 2)
        high = draw.randrange(low, seq + 3)
        count = draw.choice((1, 5, 700, 5000))
        later = [job for job in plain if job.key > low]
        assert jobs_by_seq.walk(low, count) == later[:count]
        assert jobs_by_seq.after(low, count) == [job for job in later if job.state != DONE][:count]
        assert (
            jobs_by_seq.back(low, count)
            == [job for job in reversed(plain) if job.key < low][:count]
        )
        assert jobs_by_seq.find(low) is next((job for job in plain if job.key == low), None)
        waiting = [job for job in plain if job.state != DONE]
        assert jobs_by_seq.oldest() is waiting[0]
        first = int(waiting[0].key)
        for is_reversed in (False, True):
            between = [job for job in plain if max(low, first) <= job.stamp <= high and job.key % 2]
            found = jobs_by_seq.between(low, high, count, odd, is_reversed=is_reversed)
            assert found == (between[::-1] if is_reversed else between)[:count]
        states = frozenset((READY, DONE))
        chosen = [job for job in plain if job.state in states]
        assert jobs_by_seq.page(states, low, count, oldest_first=True) == chosen[low : low + count]
        chosen.reverse()
        assert jobs_by_seq.page(states, low, count, oldest_first=False) == chosen[low : low + count]
        assert jobs_by_seq.length() >= len([job for job in plain if job.key >= first])


def test_what_happens_to_one_job_touches_one_chunk() -> None:
    jobs = [job_of(seq) for seq in range(1, 20 * CHUNK + 1)]
    jobs_by_seq = JobsBySeq(list(jobs))
    before = [chunk.jobs for chunk in jobs_by_seq._chunks]
    for job in jobs[5 * CHUNK : 6 * CHUNK]:
        job.state = GONE
        jobs_by_seq.note_gone(job)
    after = [chunk.jobs for chunk in jobs_by_seq._chunks]
    assert len(after) == 19
    assert all(any(one is other for other in before) for one in after)


def test_the_head_stays_where_the_last_chunk_goes() -> None:
    jobs = [job_of(seq, DONE) for seq in range(1, CHUNK + 1)]
    jobs_by_seq = JobsBySeq(list(jobs))
    last = job_of(CHUNK + 1)
    jobs_by_seq.add(last)
    assert jobs_by_seq.oldest() is last
    last.state = GONE
    jobs_by_seq.note_gone(last)
    assert jobs_by_seq.oldest() is None
    jobs[7].state = GONE
    jobs_by_seq.note_gone(jobs[7])
    new = job_of(CHUNK + 2)
    jobs_by_seq.add(new)
    assert jobs_by_seq.oldest() is new
    assert jobs_by_seq.length() >= 1
