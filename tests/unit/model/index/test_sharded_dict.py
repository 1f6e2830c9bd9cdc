from random import Random

from jobyard.model.index.sharded_dict import FIRST, PARTS, ShardedDict


def test_it_does_what_a_dict_does() -> None:
    rng = Random(7)
    table: ShardedDict[str, int] = ShardedDict()
    known: dict[str, int] = {}
    # It grows beyond the first dict, becomes empty, and grows again.
    for puts in (0.9, 0.2, 0.8):
        for step in range(3 * FIRST):
            name = f"n{rng.randrange(2 * FIRST)}"
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


def test_no_part_of_it_becomes_long() -> None:
    table: ShardedDict[str, int] = ShardedDict()
    count = 20 * FIRST
    for at in range(count):
        table.put(f"n{at}", at)
    assert table.count == count
    longest = max(len(table.keys_in(part)) for part in range(table.parts_count()))
    assert longest <= max(FIRST, 2 * count // PARTS)
    assert table.keys_in(table.parts_count()) == []
