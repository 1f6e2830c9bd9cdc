import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jobyard.engine.glidemq import stored_values
from jobyard.engine.state.yard import Yard
from jobyard.errors import StorageFull, YardFull
from jobyard.model.entry import EntryKind
from jobyard.model.glidemq.stored_values import StoredValue, StreamReader, ValueKind
from jobyard.model.limits import NEVER_MS
from tests.support.site.site import NOW_MS
from tests.support.site.storage import MemoryStorage
from tests.support.site.yard import OpenYard

TEN_MINUTES = stored_values.VOLATILE_MS
Shown = dict[bytes, tuple[int, object, int]]


def shown(yard: Yard) -> Shown:
    """Return what every key holds, and when it expires."""
    return {
        name: (int(key.kind), value_of(key), int(key.expires_ms))
        for name, key in sorted(yard.stored_values.keys.items())
    }


def value_of(key: StoredValue) -> object:
    if key.kind == ValueKind.STRING:
        return key.text
    if key.kind in (ValueKind.HASH, ValueKind.SET):
        return dict(sorted(key.table.items()))
    if key.kind == ValueKind.ZSET:
        return key.scored()
    if key.kind == ValueKind.LIST:
        return [key.items[number] for number in range(key.first, key.after)]
    return [(entry.id, entry.fields) for entry in key.entries], key.last_id


def fill(yard: Yard, now_ms: int = NOW_MS) -> None:
    stored_values.set_text(yard, b"s", b"text", NEVER_MS, now_ms)
    stored_values.set_fields(yard, b"h", {b"a": b"1", b"b": b"2"}, now_ms)
    stored_values.add_members(yard, b"m", [b"x", b"y"], now_ms)
    stored_values.set_scores(yard, b"z", {b"x": 1.5, b"y": -1.0}, now_ms)
    stored_values.push(yard, b"l", [b"1", b"2", b"3"], now_ms, is_left=False)
    stored_values.push(yard, b"l", [b"0", b"-1"], now_ms, is_left=True)
    stored_values.add_entry(yard, b"x", (5, 0), [b"f", b"v"], now_ms)
    stored_values.add_entry(yard, b"x", (5, 1), [b"f", b"\0" * 300], now_ms)


def reboot(site: OpenYard, now_ms: int | None = None) -> OpenYard:
    site.commit()
    assert isinstance(site.storage, MemoryStorage)
    return OpenYard(site.storage.killed(), site.now_ms if now_ms is None else now_ms)


def find(yard: Yard, name: bytes) -> StoredValue:
    key = stored_values.find(yard, name, NOW_MS)
    assert key is not None
    return key


def test_everything_is_there_after_a_restart() -> None:
    site = OpenYard(MemoryStorage())
    fill(site.yard)
    before = shown(site.yard)
    assert len(before) == 6
    again = reboot(site)
    assert shown(again.yard) == before
    assert again.bodies.pinned == site.bodies.pinned > 0


def test_what_was_taken_away_stays_away() -> None:
    site = OpenYard(MemoryStorage())
    yard = site.yard
    fill(yard)
    stored_values.drop(yard, find(yard, b"s"))
    assert stored_values.drop_fields(yard, find(yard, b"h"), [b"a", b"c"]) == 1
    assert stored_values.drop_fields(yard, find(yard, b"m"), [b"x", b"y"]) == 2
    assert stored_values.drop_scored(yard, find(yard, b"z"), [b"x"]) == 1
    assert stored_values.pop(yard, find(yard, b"l"), 2, is_left=True) == [b"-1", b"0"]
    assert stored_values.pop(yard, find(yard, b"l"), 1, is_left=False) == [b"3"]
    assert stored_values.drop_entries(yard, find(yard, b"x"), [(5, 1), (9, 9)]) == 1
    before = shown(yard)
    assert b"m" not in before
    assert value_of(find(yard, b"x")) == ([((5, 0), [b"f", b"v"])], (5, 1))
    assert shown(reboot(site).yard) == before


def test_an_emptied_stream_stays_with_its_greatest_id() -> None:
    site = OpenYard(MemoryStorage())
    fill(site.yard)
    stored_values.trim_entries(site.yard, find(site.yard, b"x"), 2)
    again = reboot(site)
    assert value_of(find(again.yard, b"x")) == ([], (5, 1))


def test_changes_survive_compaction() -> None:
    site = OpenYard(MemoryStorage(), segment_size=64 << 10)
    yard = site.yard
    fill(yard)
    for number in range(300):
        stored_values.set_fields(
            yard, b"h", {b"counter": b"%d" % number, b"pad": b"x" * 1000}, NOW_MS
        )
        stored_values.push(yard, b"l", [b"%d" % number], NOW_MS, is_left=False)
        stored_values.pop(yard, find(yard, b"l"), 1, is_left=True)
        site.commit()
        if number % 50 == 0:
            site.compact()
    site.compact()
    before = shown(yard)
    segments = len(yard.journal.segments)
    assert segments < 6
    assert shown(reboot(site).yard) == before


def test_what_goes_soon_is_not_in_the_journal() -> None:
    site = OpenYard(MemoryStorage())
    yard = site.yard
    stored_values.set_text(yard, b"lock", b"me", NOW_MS + TEN_MINUTES, NOW_MS)
    assert yard.journal.entries.count == 0
    stored_values.set_text(yard, b"lock", b"me", NEVER_MS, NOW_MS)
    assert yard.journal.entries.has((EntryKind.STORED_VALUE, b"lock\0s"))
    stored_values.set_text(yard, b"lock", b"you", NOW_MS + 1000, NOW_MS)
    assert shown(reboot(site).yard) == {}


def test_what_goes_late_is_remembered_with_its_time() -> None:
    site = OpenYard(MemoryStorage())
    yard = site.yard
    stored_values.set_fields(yard, b"h", {b"a": b"1"}, NOW_MS)
    stored_values.expire(yard, find(yard, b"h"), NOW_MS + 3_600_000, NOW_MS)
    again = reboot(site, NOW_MS + 60_000)
    assert find(again.yard, b"h").expires_ms == NOW_MS + 3_600_000
    again.jump(3_540_000)
    assert shown(again.yard) == {}
    last = reboot(again)
    assert shown(last.yard) == {}
    late = reboot(site, NOW_MS + 3_600_001)
    late.jump()
    assert shown(late.yard) == {}


def test_a_time_can_be_taken_back() -> None:
    site = OpenYard(MemoryStorage())
    yard = site.yard
    fill(yard)
    before = shown(yard)
    for name in (b"s", b"h", b"m", b"z", b"l", b"x"):
        stored_values.expire(yard, find(yard, name), NOW_MS + 1000, NOW_MS)
    assert shown(reboot(site).yard) == {}
    for name in (b"s", b"h", b"m", b"z", b"l", b"x"):
        stored_values.expire(yard, find(yard, name), NEVER_MS, NOW_MS)
    site.jump(5000)
    assert shown(yard) == before
    assert shown(reboot(site).yard) == before


def test_a_key_goes_when_its_time_is_over() -> None:
    site = OpenYard()
    stored_values.set_text(site.yard, b"s", b"x", NOW_MS + 100, NOW_MS)
    assert stored_values.find(site.yard, b"s", NOW_MS + 99) is not None
    site.jump(100)
    assert site.yard.stored_values.keys.count == 0
    assert site.bodies.pinned == 0
    stored_values.set_text(site.yard, b"s", b"x", NOW_MS + 200, site.now_ms)
    assert stored_values.find(site.yard, b"s", NOW_MS + 200) is None
    stored_values.set_text(site.yard, b"s", b"x", NOW_MS, site.now_ms)
    assert site.yard.stored_values.keys.count == 0


def test_an_earlier_time_rings_earlier() -> None:
    site = OpenYard()
    stored_values.set_text(site.yard, b"s", b"x", NOW_MS + 1000, NOW_MS)
    stored_values.expire(site.yard, find(site.yard, b"s"), NOW_MS + 10, NOW_MS)
    site.jump(10)
    assert site.yard.stored_values.keys.count == 0


def test_memory_is_limited_and_a_refusal_changes_nothing() -> None:
    site = OpenYard(MemoryStorage(), budget=6000)
    yard = site.yard
    fill(yard)
    before = shown(yard)
    big = b"x" * 5000
    with pytest.raises(YardFull):
        stored_values.set_text(yard, b"s", big, NEVER_MS, NOW_MS)
    with pytest.raises(YardFull):
        stored_values.set_fields(yard, b"h", {b"new": big}, NOW_MS)
    with pytest.raises(YardFull):
        stored_values.push(yard, b"other", [big], NOW_MS, is_left=True)
    with pytest.raises(YardFull):
        stored_values.add_entry(yard, b"x", (6, 0), [b"f", big], NOW_MS)
    with pytest.raises(YardFull):
        stored_values.set_scores(yard, b"z", {big: 1.0}, NOW_MS)
    assert shown(yard) == before


def test_a_full_disk_changes_nothing_by_half() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage, segment_size=64 << 10)
    yard = site.yard
    fill(yard)
    site.commit()
    storage.capacity = storage.used()
    refused = 0
    for number in range(400):
        before = shown(yard)
        fields = {b"%d" % field: b"%d" % number * 50 for field in range(20)}
        try:
            stored_values.set_fields(yard, b"big", fields, NOW_MS)
        except (YardFull, StorageFull):
            refused += 1
            assert shown(yard) == before
        site.commit()
    assert refused > 0
    before = shown(yard)
    storage.capacity = None
    assert shown(reboot(site).yard) == before


class Counter(StreamReader):
    """Counts its calls."""

    def __init__(self) -> None:
        self.count = 0

    def stream_grew(self) -> None:
        self.count += 1


def test_readers_are_notified_of_new_entries() -> None:
    site = OpenYard()
    reader = Counter()
    stored_values.watch(site.yard, b"x", reader)
    stored_values.add_entry(site.yard, b"x", (1, 0), [b"a", b"b"], NOW_MS)
    stored_values.add_entry(site.yard, b"y", (1, 0), [b"a", b"b"], NOW_MS)
    assert reader.count == 1
    stored_values.unwatch(site.yard, b"x", reader)
    stored_values.add_entry(site.yard, b"x", (2, 0), [b"a", b"b"], NOW_MS)
    assert reader.count == 1
    assert site.yard.stored_values.readers == {}


NAMES = st.sampled_from([b"a", b"b"])
STEPS = st.lists(
    st.tuples(st.sampled_from("tfdplrxe"), NAMES, st.binary(max_size=3), st.integers(0, 3)),
    max_size=30,
)


@example([("t", b"a", b"", 1), ("e", b"a", b"", 2)], set())
@settings(max_examples=100, deadline=None)
@given(STEPS, st.sets(st.integers(0, 30)))
def test_any_run_reads_back(steps: list[tuple[str, bytes, bytes, int]], commits: set[int]) -> None:
    site = OpenYard(MemoryStorage())
    yard = site.yard
    for at, (what, name, value, number) in enumerate(steps):
        step(yard, what, name, value, number)
        if at in commits:
            site.commit()
    weights = sum(int(key.weight) for key in yard.stored_values.keys.values())
    assert site.bodies.pinned == site.bodies.in_memory == weights
    durable = {name: one for name, one in shown(yard).items() if one[2] - NOW_MS > TEN_MINUTES}
    again = reboot(site)
    assert shown(again.yard) == durable
    again.compact()
    assert shown(reboot(again).yard) == durable


def step(yard: Yard, what: str, name: bytes, value: bytes, number: int) -> None:
    if what == "t":
        ends = (NEVER_MS, NOW_MS + 5, NOW_MS + 10 * TEN_MINUTES, NOW_MS)
        stored_values.set_text(yard, b"t" + name, value, ends[number], NOW_MS)
    elif what == "f":
        stored_values.set_fields(yard, b"f" + name, {value: value}, NOW_MS)
    elif what == "p":
        stored_values.push(yard, b"l" + name, [value], NOW_MS, is_left=number < 2)
    elif what == "x":
        key = stored_values.find(yard, b"x" + name, NOW_MS)
        last = (0, 0) if key is None else key.last_id
        stored_values.add_entry(
            yard, b"x" + name, (last[0] + number, last[1] + 1), [value, b""], NOW_MS
        )
    elif what == "e":
        ends = (NEVER_MS, NOW_MS + 5, NOW_MS + 10 * TEN_MINUTES, NOW_MS)
        for kind in b"tflx":
            key = stored_values.find(yard, bytes([kind]) + name, NOW_MS)
            if key is not None:
                stored_values.expire(yard, key, ends[number], NOW_MS)
    else:
        take(yard, what, name, value, number)


def take(yard: Yard, what: str, name: bytes, value: bytes, number: int) -> None:
    if what == "d" and (key := stored_values.find(yard, b"f" + name, NOW_MS)) is not None:
        stored_values.drop_fields(yard, key, [value])
    elif what == "l" and (key := stored_values.find(yard, b"l" + name, NOW_MS)) is not None:
        stored_values.pop(yard, key, number, is_left=number % 2 == 0)
    elif what == "r" and (key := stored_values.find(yard, b"x" + name, NOW_MS)) is not None:
        stored_values.trim_entries(yard, key, number)


# -- large keys --------------------------------------------------------------------------------

LARGE = stored_values.FEW_ELEMENTS * 3


def fill_large(yard: Yard) -> None:
    names = [b"%d" % at for at in range(LARGE)]
    stored_values.set_fields(yard, b"h", dict.fromkeys(names, b"v"), NOW_MS)
    stored_values.add_members(yard, b"m", names, NOW_MS)
    stored_values.set_scores(yard, b"z", dict.fromkeys(names, 1.0), NOW_MS)
    stored_values.push(yard, b"l", names, NOW_MS, is_left=False)
    for at in range(1, LARGE + 1):
        stored_values.add_entry(yard, b"x", (at, 0), [b"f", b"v"], NOW_MS)


def finish(site: OpenYard) -> int:
    tasks = site.yard.tasks
    turns = 0
    while tasks.count() > 0:
        before = int(tasks.units_done)
        tasks.proceed(site.now_ms)
        assert tasks.units_done - before <= 2 * tasks.units_per_turn
        turns += 1
    return turns


def test_a_large_key_is_gone_at_once_and_freed_over_turns() -> None:
    site = OpenYard(MemoryStorage(), segment_size=1 << 24)
    yard = site.yard
    yard.now_ms = NOW_MS
    before = int(yard.bodies.in_memory)
    fill_large(yard)
    for name in (b"h", b"m", b"z", b"l", b"x"):
        stored_values.drop(yard, find(yard, name))
        assert stored_values.find(yard, name, NOW_MS) is None
    yard.tasks.proceed(site.now_ms)
    again = reboot(site, NOW_MS + 10)
    again.jump(10)
    assert all(
        stored_values.find(again.yard, name, NOW_MS + 10) is None for name in (b"h", b"l", b"x")
    )
    finish(again)
    assert again.yard.stored_values.keys.count == 0
    assert finish(site) > 5
    assert yard.stored_values.keys.count == 0
    assert yard.bodies.in_memory == before
    assert [entry for entry in yard.journal.entries.values() if not entry.is_gone] == []


def test_a_key_created_while_an_old_one_is_freed_has_none_of_its_values() -> None:
    site = OpenYard(MemoryStorage(), segment_size=1 << 24)
    site.yard.now_ms = NOW_MS
    fill_large(site.yard)
    stored_values.drop(site.yard, find(site.yard, b"h"))
    site.yard.tasks.proceed(site.now_ms)
    stored_values.set_fields(site.yard, b"h", {b"7": b"new"}, NOW_MS)
    finish(site)
    assert find(site.yard, b"h").table == {b"7": b"new"}
    again = reboot(site)
    assert shown(again.yard) == shown(site.yard)


def test_a_large_key_whose_time_is_over_is_freed_over_turns() -> None:
    site = OpenYard(MemoryStorage(), segment_size=1 << 24)
    fill_large(site.yard)
    stored_values.expire(site.yard, find(site.yard, b"x"), NOW_MS + 3_600_000, NOW_MS)
    site.jump(3_600_000)
    assert stored_values.find(site.yard, b"x", site.now_ms) is None
    assert finish(site) > 1
    assert site.yard.stored_values.keys.get(b"x") is None
