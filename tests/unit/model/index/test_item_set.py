from hypothesis import given
from hypothesis import strategies as st

from jobyard.model.index.item import Item
from jobyard.model.index.item_set import ItemSet, ItemSetWalk


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 100)), max_size=80))
def test_a_bag_holds_what_a_set_would_hold(steps: list[tuple[bool, int]]) -> None:
    item_set = ItemSet()
    wanted: list[Item] = []
    for number, (is_added, pick) in enumerate(steps):
        if is_added or not wanted:
            item = Item(number, 0, 0)
            item_set.add(item)
            wanted.append(item)
        else:
            item = wanted.pop(pick % len(wanted))
            item_set.remove(item)
            assert item.pos < 0
        assert sorted(int(one.key) for one in item_set.items) == sorted(
            int(one.key) for one in wanted
        )
        assert [int(one.pos) for one in item_set.items] == list(range(len(wanted)))


@given(
    st.integers(0, 40),
    st.integers(1, 7),
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 99))),
)
def test_a_walk_meets_all_that_stay_once(
    count: int, most: int, steps: list[tuple[int, int]]
) -> None:
    item_set = ItemSet()
    members = [Item(number, 0, 0) for number in range(count)]
    for item in members:
        item_set.add(item)
    staying = set(members)
    walks = [ItemSetWalk(item_set), ItemSetWalk(item_set)]
    met: list[list[Item]] = [[], []]
    for what, pick in steps:
        if what == 0:
            met[pick % 2] += walks[pick % 2].some(most)
        elif what == 1 and members:
            item = members.pop(pick % len(members))
            staying.discard(item)
            item_set.remove(item)
        else:
            item = Item(1000, 0, 0)
            item_set.add(item)
            members.append(item)
    for walk, found in zip(walks, met, strict=True):
        while some := walk.some(most):
            found.extend(some)
        assert len(found) == len(set(found))
        assert staying <= set(found)
    assert item_set.walks is None


def test_who_leaves_a_walk_is_told_nothing_more() -> None:
    item_set = ItemSet()
    for number in range(10):
        item_set.add(Item(number, 0, 0))
    walk, other = ItemSetWalk(item_set), ItemSetWalk(item_set)
    walk.some(2)
    other.some(2)
    walk.leave()
    assert item_set.walks == [other]
    other.leave()
    assert item_set.walks is None
