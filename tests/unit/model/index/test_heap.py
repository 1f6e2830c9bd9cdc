from hypothesis import given
from hypothesis import strategies as st

from jobyard.model.index.heap import Heap
from jobyard.model.index.item import NO_SLOT, Item

# Small keys, so that ties and re-ranking to equal keys happen often.
KEYS = st.integers(-3, 3)
STEPS = st.lists(
    st.tuples(st.sampled_from(["push", "pop", "remove", "moved"]), KEYS, st.integers(0, 1 << 20)),
    max_size=120,
)


def order(item: Item) -> tuple[int, int]:
    return int(item.sort_key), int(item.stamp)


def check(heap: Heap, members: list[Item]) -> None:
    assert sorted(map(id, heap.items)) == sorted(map(id, members))
    for slot, item in enumerate(heap.items):
        assert item.pos == slot
    if members:
        assert heap.items[0] is min(members, key=order)


@given(STEPS)
def test_any_sequence_of_changes_leaves_the_least_item_on_top(
    steps: list[tuple[str, int, int]],
) -> None:
    heap = Heap()
    members: list[Item] = []
    for number, (verb, key, pick) in enumerate(steps):
        if verb == "push":
            item = Item(0, key, number)
            heap.push(item)
            members.append(item)
        elif members and verb == "pop":
            least = min(members, key=order)
            assert heap.pop() is least
            assert least.pos == NO_SLOT
            members.remove(least)
        elif members and verb == "remove":
            item = members.pop(pick % len(members))
            heap.remove(item)
            assert item.pos == NO_SLOT
        elif members:
            item = members[pick % len(members)]
            item.sort_key = key
            heap.moved(item)
        check(heap, members)


@given(st.lists(KEYS, max_size=80))
def test_heapify_orders_items_appended_in_any_order(keys: list[int]) -> None:
    heap = Heap()
    items = [Item(0, key, stamp) for stamp, key in enumerate(keys)]
    heap.items.extend(items)
    heap.heapify()
    check(heap, items)
    assert [heap.pop() for _ in items] == sorted(items, key=order)


def test_an_earlier_stamp_comes_first_within_a_key() -> None:
    heap = Heap()
    late, early = Item(0, 5, 2), Item(0, 5, 1)
    heap.push(late)
    heap.push(early)
    assert heap.pop() is early
    assert heap.pop() is late
    assert heap.items == []
