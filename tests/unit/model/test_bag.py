from hypothesis import given
from hypothesis import strategies as st

from jobyard.model.bag import Bag
from jobyard.model.item import Item


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 100)), max_size=80))
def test_a_bag_holds_what_a_set_would_hold(steps: list[tuple[bool, int]]) -> None:
    bag = Bag()
    wanted: list[Item] = []
    for number, (is_added, pick) in enumerate(steps):
        if is_added or not wanted:
            item = Item(number, 0, 0)
            bag.add(item)
            wanted.append(item)
        else:
            item = wanted.pop(pick % len(wanted))
            bag.remove(item)
            assert item.pos < 0
        assert sorted(int(one.key) for one in bag.items) == sorted(int(one.key) for one in wanted)
        assert [int(one.pos) for one in bag.items] == list(range(len(wanted)))
