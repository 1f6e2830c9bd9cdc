from collections.abc import Callable
from random import Random

import pytest

from jobyard.model.index.sharded_dict import PART_SIZE, ShardedDict


def test_it_does_what_a_dict_does() -> None:
    rng = Random(7)
    table: ShardedDict[str, int] = ShardedDict()
    known: dict[str, int] = {}
    # It grows beyond one part, becomes empty, and grows again.
    for puts in (0.9, 0.2, 0.8):
        for step in range(12 * PART_SIZE):
            name = f"n{rng.randrange(8 * PART_SIZE)}"
            if rng.random() < puts:
                known[name] = step
                table.put(name, step)
            else:
                known.pop(name, None)
                table.discard(name)
            assert table.get(name) == known.get(name)
            assert table.has(name) == (name in known)
        assert table.count == len(known)
        assert dict(table.items()) == known
        assert sorted(table.values()) == sorted(known.values())
        keys = [key for part in range(table.parts_count()) for key in table.keys_in(part)]
        assert sorted(keys) == sorted(known)
        if puts < 0.5:
            for name in list(known):
                table.remove(name)
            known.clear()
            assert table.parts_count() == 1
    assert len(table.items()) == len(known)


@pytest.mark.parametrize("key_of", [lambda at: f"n{at}", int, lambda at: at << 20])
def test_no_part_of_it_becomes_long(key_of: Callable[[int], object]) -> None:
    table: ShardedDict[object, int] = ShardedDict()
    count = 80 * PART_SIZE
    for at in range(count):
        table.put(key_of(at), at)
    assert table.count == count
    longest = max(len(table.keys_in(part)) for part in range(table.parts_count()))
    assert longest <= 3 * PART_SIZE
    assert table.keys_in(table.parts_count()) == []
    assert all(table.get(key_of(at)) == at for at in range(count))


def test_its_parts_are_split_one_at_a_time() -> None:
    table: ShardedDict[str, int] = ShardedDict()
    parts = 1
    for at in range(20 * PART_SIZE):
        table.put(f"n{at}", at)
        assert table.parts_count() <= parts + 1
        parts = table.parts_count()
    assert parts == 20


def test_a_walk_over_parts_meets_every_key_that_stays_while_it_grows() -> None:
    table: ShardedDict[int, int] = ShardedDict()
    for at in range(5 * PART_SIZE):
        table.put(at, at)
    met: set[int] = set()
    part = 0
    while part < table.parts_count():
        met.update(table.keys_in(part))
        part += 1
        if part < 20:
            for more in range(PART_SIZE):
                table.put(-1 - more - part * PART_SIZE, 0)
    assert met >= set(range(5 * PART_SIZE))
