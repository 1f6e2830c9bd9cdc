from jobyard.model.family import BUNQUEUE
from jobyard.model.index.name_table import NameTable
from jobyard.model.job import MSGPACK, Job
from jobyard.model.policy import PLAIN
from jobyard.model.queue import Queue

QUEUE = Queue("q")


def job_of(number: int) -> Job:
    return Job(number, QUEUE, number, number, 0, 0, 0, 0, PLAIN, b"", 0, BUNQUEUE, MSGPACK)


def test_a_claim_is_seen_by_nobody() -> None:
    table = NameTable()
    coming = job_of(0)
    table.claim("n", coming)
    assert table.get("n") is None
    assert table.items() == []
    assert table.count() == 0
    assert table.holds("n", coming)
    coming.id = 7
    table.redeem(1)
    assert table.get("n") is coming
    assert table.count() == 1
    table.give_up("n", coming)
    assert table.get("n") is coming


def test_a_claim_keeps_nobody_out() -> None:
    table = NameTable()
    coming, other = job_of(0), job_of(1)
    table.claim("n", coming)
    table.put("n", other)
    assert table.get("n") is other
    assert (table.count(), table.claims_lost) == (1, 1)
    assert not table.holds("n", coming)
    table.give_up("n", coming)
    assert table.get("n") is other
    table.remove("n")
    assert (table.count(), table.items()) == (0, [])


def test_a_name_that_is_taken_cannot_be_claimed() -> None:
    table = NameTable()
    owner, coming = job_of(1), job_of(0)
    table.put("n", owner)
    table.claim("n", coming)
    assert table.get("n") is owner
    assert (table.count(), table.claims_lost) == (1, 1)
    assert not table.holds("n", coming)


def test_of_two_claims_the_later_stands() -> None:
    table = NameTable()
    first, second = job_of(0), job_of(0)
    table.claim("n", first)
    table.claim("n", second)
    assert table.claims_lost == 1
    table.give_up("n", first)
    assert table.holds("n", second)
    table.give_up("n", second)
    assert not table.holds("n", second)


def test_many_claims_come_and_go() -> None:
    table = NameTable()
    jobs = {f"n{at}": job_of(0) for at in range(5000)}
    table.put("mine", job_of(1))
    for name, job in jobs.items():
        table.claim(name, job)
    table.remove("mine")
    assert all(table.holds(name, job) for name, job in jobs.items())
    for name, job in jobs.items():
        table.give_up(name, job)
    assert table.items() == []
    table.put("mine", job_of(1))
    assert table.count() == 1
