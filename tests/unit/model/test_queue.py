from hypothesis import given
from hypothesis import strategies as st

from jobyard.model.details import Outcome
from jobyard.model.family import BEANSTALK
from jobyard.model.job import RAW, Job
from jobyard.model.limits import NEVER_MS
from jobyard.model.policy import PLAIN
from jobyard.model.queue import Queue
from jobyard.model.waiter import Waiter
from jobyard.protocols.beanstalk.door import TERMS
from tests.support.site.yard import OpenYard


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans(), st.integers(0, 100)), max_size=60))
def test_waiters_stand_in_every_line_in_order_of_arrival(
    steps: list[tuple[int, bool, int]],
) -> None:
    lease_set = OpenYard().connect().lease_set
    queues = [Queue(name) for name in "abc"]
    lines: list[list[Waiter]] = [[], [], []]
    for number, (at, is_arrival, pick) in enumerate(steps):
        line = lines[at]
        if is_arrival:
            waiter = Waiter(number, lease_set, TERMS, NEVER_MS, NEVER_MS)
            for queue, others in zip(queues[at:], lines[at:], strict=True):
                queue.link(waiter)
                others.append(waiter)
        elif line:
            waiter = line[pick % len(line)]
            for link in waiter.links:
                link.queue.unlink(link)
            lines = [[other for other in others if other is not waiter] for others in lines]
        for queue, others in zip(queues, lines, strict=True):
            assert standing(queue) == others
            assert queue.waiting_count == len(others)


def standing(queue: Queue) -> list[Waiter]:
    found: list[Waiter] = []
    before = None
    link = queue.first_link
    while link is not None:
        assert link.before is before
        found.append(link.waiter)
        before, link = link, link.after
    assert queue.last_link is before
    return found


def test_a_waiter_rings_at_the_earlier_of_its_two_alarms() -> None:
    lease_set = OpenYard().connect().lease_set
    assert Waiter(1, lease_set, TERMS, 10, 20).sort_key == 10
    assert Waiter(1, lease_set, TERMS, 20, 10).sort_key == 10


def test_an_empty_book_has_no_deadline() -> None:
    assert OpenYard().connect().lease_set.soonest_ms() == NEVER_MS


def test_a_queue_counts_jobs_in_every_state() -> None:
    queue = Queue("q")
    assert queue.jobs_count() == 0
    queue.ready.push(Job(1, queue, 1, 1, 0, 0, 0, 0, PLAIN, b"", 0, BEANSTALK, RAW))
    queue.delayed.push(Job(2, queue, 2, 2, 0, 0, 0, 0, PLAIN, b"", 0, BEANSTALK, RAW))
    queue.leased.add(Job(3, queue, 3, 3, 0, 0, 0, 0, PLAIN, b"", 0, BEANSTALK, RAW))
    assert queue.jobs_count() == 3
    queue.blocked.add(Job(4, queue, 4, 4, 0, 0, 0, 0, PLAIN, b"", 0, BEANSTALK, RAW))
    queue.held_count += 1
    for number, line in ((1, queue.dead), (2, queue.done)):
        job = Job(4 + number, queue, 4 + number, 4, 0, 0, 0, 0, PLAIN, b"", 0, BEANSTALK, RAW)
        line.append(Outcome(number, job, 0))
    assert queue.jobs_count() == 7
