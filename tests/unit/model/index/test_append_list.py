import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobyard.model.index.append_list import HEAD_MAX, LIVE, STALE, AppendList
from jobyard.model.index.item import Item


@given(st.lists(st.one_of(st.just(-1), st.integers(0, 1 << 20)), max_size=400))
def test_a_line_keeps_order_whatever_leaves_it(steps: list[int]) -> None:
    """A step appends (-1) or removes one of the members."""
    line = AppendList()
    members: list[Item] = []
    for key, step in enumerate(steps):
        if step < 0:
            item = Item(key, 0, 0)
            line.append(item)
            members.append(item)
            assert item.pos == LIVE
        elif members:
            item = members.pop(step % len(members))
            line.remove(item)
            assert item.pos == STALE
        assert line.first() is (members[0] if members else None)
        assert line.live_count == len(members)
    assert line.live() == members


def test_removed_items_are_swept_away() -> None:
    line = AppendList()
    items = [Item(key, 0, 0) for key in range(1000)]
    for item in items:
        line.append(item)
    for item in items[:-1]:
        line.remove(item)
        assert len(line.items) - line.live_count <= line.live_count // 4 + 64
    assert line.first() is items[-1]
    assert line.live() == [items[-1]]


def test_the_first_item_is_found_again_after_a_sweep() -> None:
    line = AppendList()
    items = [Item(key, 0, 0) for key in range(300)]
    for item in items:
        line.append(item)
    for item in items[:150]:
        assert line.first() is item
        line.remove(item)
    assert line.first() is items[150]


def test_a_key_that_does_not_rise_is_refused() -> None:
    line = AppendList()
    line.append(Item(5, 0, 0))
    with pytest.raises(AssertionError):
        line.append(Item(5, 0, 0))


def test_an_item_leaves_a_line_only_once() -> None:
    line = AppendList()
    item = Item(1, 0, 0)
    line.append(item)
    line.remove(item)
    with pytest.raises(AssertionError):
        line.remove(item)


def test_a_long_line_that_is_used_up_from_its_begin_is_cut_and_not_swept() -> None:
    line = AppendList()
    items = [Item(key, 0, 0) for key in range(12 * HEAD_MAX)]
    for item in items:
        line.append(item)
    held = line.items
    for at in range(6 * HEAD_MAX):
        assert line.first() is items[at]
        line.remove(items[at])
        assert len(line.items) - line.live_count <= HEAD_MAX + 1
    assert line.items is held
    assert line.page(0, 2, is_reversed=False) == items[6 * HEAD_MAX :][:2]
    assert line.after(items[-3].key, 9, is_reversed=False) == items[-2:]
