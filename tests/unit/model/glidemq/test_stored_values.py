from jobyard.model.glidemq.stored_values import FIRST_ID, StoredValues, StreamEntry, ValueKind


def test_keys_are_paged_in_the_order_they_were_made() -> None:
    table = StoredValues()
    keys = [table.make(b"k%d" % number, ValueKind.STRING) for number in range(200)]
    for key in keys[::2]:
        table.remove(key)
    seen: list[bytes] = []
    page = table.page(0, 7)
    while page:
        seen += [key.name for key in page]
        page = table.page(page[-1].key, 7)
    assert seen == [key.name for key in keys[1::2]]


def test_members_are_sorted_by_score_and_name() -> None:
    key = StoredValues().make(b"k", ValueKind.ZSET)
    for member, score in ((b"b", 1.0), (b"a", 1.0), (b"c", 0.5)):
        key.set_score(member, score)
    assert key.scored() == [(b"c", 0.5), (b"a", 1.0), (b"b", 1.0)]
    key.drop_score(b"a")
    assert key.scored() == [(b"c", 0.5), (b"b", 1.0)]


def test_entries_are_found_by_id() -> None:
    key = StoredValues().make(b"k", ValueKind.STREAM)
    key.entries = [StreamEntry((ms, 0), []) for ms in (1, 3, 5)]
    assert [key.place_of((ms, 0)) for ms in range(7)] == [0, 0, 1, 1, 2, 2, 3]
    assert key.last_id == FIRST_ID


def test_only_a_string_and_a_stream_may_hold_nothing() -> None:
    table = StoredValues()
    kinds = (ValueKind.STRING, ValueKind.STREAM, ValueKind.HASH, ValueKind.LIST)
    assert [table.make(b"%d" % kind, kind).is_empty() for kind in kinds] == [
        False, False, True, True,
    ]  # fmt: skip
