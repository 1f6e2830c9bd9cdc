from random import Random

from jobyard.model.job import BUNQUEUE, MSGPACK, Job
from jobyard.model.name_table import FIRST, PARTS, NameTable
from jobyard.model.policy import PLAIN
from jobyard.model.queue import Queue

QUEUE = Queue("q")


def job_of(number: int) -> Job:
    return Job(number, QUEUE, number, number, 0, 0, 0, 0, PLAIN, b"", 0, BUNQUEUE, MSGPACK)


def test_it_does_what_a_dict_does() -> None:
    rng = Random(7)
    table = NameTable()
    known: dict[str, Job] = {}
    # It grows beyond the first dict, becomes empty, and grows again.
    for puts in (0.9, 0.2, 0.8):
        for step in range(3 * FIRST):
            name = f"n{rng.randrange(2 * FIRST)}"
            if rng.random() < puts:
                known[name] = job_of(step)
                table.put(name, known[name])
            elif name in known:
                del known[name]
                table.remove(name)
            assert table.get(name) is known.get(name)
        assert table.count == len(known)
        assert dict(table.items()) == known
        if puts < 0.5:
            for name in list(known):
                table.remove(name)
            known.clear()
    assert len(table.items()) == len(known)


def test_no_part_of_it_becomes_long() -> None:
    table = NameTable()
    job = job_of(1)
    count = 20 * FIRST
    for at in range(count):
        table.put(f"n{at}", job)
    assert table.count == count
    longest = max(len(part) for part in (table._first, *table._parts))
    assert longest <= max(FIRST, 2 * count // PARTS)
