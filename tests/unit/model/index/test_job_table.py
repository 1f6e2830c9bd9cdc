from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from jobyard.model.family import BEANSTALK
from jobyard.model.index.job_table import IDS_PER_PAGE, SPARSE, JobTable
from jobyard.model.job import RAW, Job
from jobyard.model.limits import ID_MAX
from jobyard.model.policy import PLAIN
from jobyard.model.queue import Queue

QUEUE = Queue("default")


def job_of(number: int) -> Job:
    return Job(number, QUEUE, number, number, 0, 0, 0, 0, PLAIN, b"", 0, BEANSTALK, RAW)


# Ids near the edges of a few pages, and far ones, in any order: as recovery may meet them.
IDS = st.one_of(
    st.integers(0, 3).flatmap(
        lambda page: st.integers(page * IDS_PER_PAGE - 3, page * IDS_PER_PAGE + 3).filter(
            lambda number: number > 0
        )
    ),
    st.integers(1, ID_MAX),
)


@given(st.lists(st.tuples(st.booleans(), IDS), max_size=150))
def test_pages_hold_what_a_dict_would_hold(steps: list[tuple[bool, int]]) -> None:
    pages = JobTable()
    reference: dict[int, Job] = {}
    for is_added, number in steps:
        if is_added and number not in reference:
            reference[number] = job_of(number)
            pages.add(reference[number])
        elif not is_added and reference:
            gone = sorted(reference)[number % len(reference)]
            del reference[gone]
            pages.remove(gone)
        assert pages.get(number) is reference.get(number)
        assert pages.count == len(reference)
    assert pages.all() == [reference[number] for number in sorted(reference)]
    assert all(pages.get(number) is job for number, job in reference.items())


def filled(count: int, keeps: Callable[[int], bool]) -> tuple[JobTable, list[Job]]:
    """Add jobs with ids from 1 on, and remove those that are not kept."""
    pages = JobTable()
    jobs = [job_of(number) for number in range(1, count + 1)]
    for job in jobs:
        pages.add(job)
    for job in jobs:
        if not keeps(int(job.id)):
            pages.remove(job.id)
    return pages, [job for job in jobs if keeps(int(job.id))]


def test_few_survivors_do_not_keep_their_page() -> None:
    pages, kept = filled(2 * IDS_PER_PAGE, lambda number: number % 100 == 0)
    assert len(kept) < SPARSE
    newest = job_of(5 * IDS_PER_PAGE)
    pages.add(newest)
    assert len(pages._pages) == 1
    assert pages.all() == [*kept, newest]
    for job in kept:
        assert pages.get(job.id) is job
        pages.remove(job.id)
    assert pages.all() == [newest]
    assert pages._sparse == {}


def test_many_survivors_keep_their_page() -> None:
    pages, kept = filled(IDS_PER_PAGE - 1, lambda number: number % 2 == 0)
    newest = job_of(5 * IDS_PER_PAGE)
    pages.add(newest)
    assert pages._sparse == {}
    assert pages.all() == [*kept, newest]


def test_an_emptied_page_is_freed() -> None:
    pages, _ = filled(3 * IDS_PER_PAGE, lambda _: False)
    assert pages.count == 0
    assert len(pages._pages) <= 1
    assert pages.get(1) is None


def test_an_old_id_that_comes_late_does_not_hide_the_survivors_of_its_page() -> None:
    pages, kept = filled(IDS_PER_PAGE - 1, lambda number: number == 7)
    pages.add(job_of(9 * IDS_PER_PAGE))
    late = job_of(8)
    pages.add(late)
    assert pages.get(7) is kept[0]
    assert pages.get(8) is late
    assert pages.get(9) is None
    pages.remove(7)
    pages.remove(8)
    assert pages.get(7) is None
    assert pages.get(8) is None
    assert pages.count == 1


def test_the_page_in_use_can_be_thinned_out_too() -> None:
    pages, kept = filled(100, lambda number: number == 50)
    assert pages.get(50) is kept[0]  # the page in use is now the old one
    pages.add(job_of(IDS_PER_PAGE * 4))
    assert pages.get(50) is kept[0]
    assert pages.get(51) is None
