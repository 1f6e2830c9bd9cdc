"""Values by number, in order, however they come and go."""

import random

from jobyard.model.index.sorted_blocks import BLOCK_MAX, SortedBlocks


def check(table: SortedBlocks, wanted: dict[int, object]) -> None:
    order = sorted(wanted)
    assert table.count == len(order)
    assert table.values_from(-1, len(order) + 1) == [wanted[key] for key in order]
    if order:
        assert (table.first(), table.last()) == (order[0], order[-1])


def test_rising_numbers_fill_their_blocks() -> None:
    table = SortedBlocks()
    wanted: dict[int, object] = {key: -key for key in range(3 * BLOCK_MAX)}
    for key, value in wanted.items():
        table.put(key, value)
    check(table, wanted)
    unloaded = [int(table.unload()) for _ in range(4)]
    assert unloaded == [BLOCK_MAX, BLOCK_MAX, BLOCK_MAX, 0]
    check(table, {})


def test_it_is_as_a_dict_in_order() -> None:
    rng = random.Random(1)
    table = SortedBlocks()
    wanted: dict[int, object] = {}
    for turn in range(30_000):
        key = rng.randrange(4 * BLOCK_MAX)
        # It grows for a while, then it shrinks, and so on.
        if rng.random() < (0.7 if turn // 5000 % 2 == 0 else 0.3):
            table.put(key, turn)
            wanted[key] = turn
        else:
            assert table.pop(key) == wanted.pop(key, None)
        assert table.get(key) == wanted.get(key)
        if turn % 1000 == 0:
            check(table, wanted)
            start = rng.randrange(4 * BLOCK_MAX)
            some = [wanted[one] for one in sorted(wanted) if one >= start][:700]
            assert table.values_from(start, 700) == some
    check(table, wanted)
    for key in list(wanted):
        table.pop(key)
    check(table, {})
    assert table.get(1) is None
    assert table.pop(1) is None
    assert table.values_from(0, 1) == []
