from jobyard.model.index.item import NO_SLOT, Item


def test_an_item_begins_outside_every_index() -> None:
    item = Item(3, 2, 1)
    assert (item.key, item.sort_key, item.stamp) == (3, 2, 1)
    assert item.pos == NO_SLOT
