"""The table of keys against a dict, and what it takes in memory."""

import random
import tracemalloc

import pytest

from jobyard.model.topic.key_table import BUCKET_KEYS, PAGE_KEYS, KeyTable, digest_of


def digests(start: int, count: int) -> list[bytes]:
    return [digest_of(f"k{number}") for number in range(start, start + count)]


def test_a_digest_has_128_bits_and_differs_for_different_keys() -> None:
    assert len(digest_of("a")) == 16
    assert digest_of("a") == digest_of("a")
    assert len({digest_of(str(number)) for number in range(1000)}) == 1000
    assert digest_of("ä") != digest_of("a")


def test_a_key_is_found_with_its_seq_until_it_is_too_old() -> None:
    table = KeyTable("t", 1000)
    (one, two) = digests(0, 2)
    table.put_all([one], [7], 5000, 3)
    assert table.seq_if_valid(one, table.valid_after(5999)) == 7
    assert table.seq_if_valid(one, table.valid_after(6000)) == -1
    assert table.seq_if_valid(two, table.valid_after(5999)) == 0
    number = table.find(one)
    assert (table.seq_of(number), table.at_of(number), table.segment_of(number)) == (7, 5000, 3)
    assert table.digest_at(number) == one
    table.set_segment(number, 9)
    assert table.segment_of(number) == 9
    table.floor_ms = 5000
    assert table.seq_if_valid(one, table.valid_after(5001)) == -1


def test_the_oldest_keys_go_first_page_by_page() -> None:
    table = KeyTable("t", 1000)
    count = 3 * PAGE_KEYS + 5
    for at in range(count):
        table.put_all(digests(at, 1), [at + 1], at, at % 7)
    assert table.count == count
    for at in range(count):
        assert table.has_any()
        assert table.oldest_ms() == at
        assert table.remove_oldest() == at % 7
        assert table.find(digest_of(f"k{at}")) == -1
        assert at == count - 1 or table.find(digest_of(f"k{at + 1}")) >= 0
    assert not table.has_any()
    assert table.count == 0
    table.put_all(digests(1, 2), [1, 2], count, 1)
    assert [table.seq_of(number) for number in table.numbers()] == [1, 2]


def test_a_key_that_is_taken_out_is_not_removed_again() -> None:
    table = KeyTable("t", 1000)
    some = digests(0, 3)
    table.put_all(some, [1, 2, 3], 0, 4)
    assert table.take_out(some[1]) == 4
    assert table.take_out(some[1]) == -1
    table.put_all(some[1:2], [9], 2000, 5)
    assert table.count == 3
    assert [table.remove_oldest() for _ in range(4)] == [4, -1, 4, 5]


def test_valid_keys_are_counted_without_those_that_are_only_not_forgotten_yet() -> None:
    table = KeyTable("t", 1000)
    for at in range(3000):
        table.put_all(digests(at, 1), [at], at, 0)
    assert table.valid_count(2999) == 1000
    assert table.valid_count(3500) == 499
    assert table.valid_count(999) == 3000
    assert table.valid_count(9999) == 0


@pytest.mark.parametrize("seed", range(4))
def test_any_changes_leave_the_same_as_in_a_dict(seed: int) -> None:
    rng = random.Random(seed)
    table = KeyTable("t", 1 << 40)
    wanted: dict[bytes, int] = {}
    order: list[bytes | None] = []
    now = 0
    for step in range(300):
        now += rng.randrange(3)
        if rng.random() < (0.6 if step < 150 else 0.3):
            fresh = [digest_of(f"{step}-{each}") for each in range(rng.randrange(1, 200))]
            seqs = [rng.randrange(1 << 40) for _ in fresh]
            table.put_all(fresh, seqs, now, 1)
            wanted.update(zip(fresh, seqs, strict=True))
            order += fresh
        elif wanted and rng.random() < 0.1:
            digest = rng.choice(list(wanted))
            assert table.take_out(digest) == 1
            order[order.index(digest)] = None
            del wanted[digest]
        else:
            for _ in range(min(rng.randrange(250), len(order))):
                oldest = order.pop(0)
                assert table.remove_oldest() == (-1 if oldest is None else 1)
                if oldest is not None:
                    del wanted[oldest]
        assert table.count == len(wanted)
        assert table.has_any() == bool(order)
    found = {table.digest_at(number): int(table.seq_of(number)) for number in table.numbers()}
    assert found == wanted
    assert all(table.find(digest) >= 0 for digest in wanted)


def test_the_index_shrinks_with_the_keys() -> None:
    table = KeyTable("t", 1000)
    table.put_all(digests(0, 5000), list(range(5000)), 0, 0)
    for _ in range(4990):
        table.remove_oldest()
    left = digests(4990, 10)
    assert all(table.find(digest) >= 0 for digest in left)
    # Private, but what counts here.
    assert len(table._buckets) < BUCKET_KEYS


def test_a_key_takes_less_than_64_bytes() -> None:
    count = 50_000
    some = digests(0, count)
    seqs = list(range(count))
    tracemalloc.start()
    try:
        table = KeyTable("t", 1000)
        for at in range(0, count, 10):
            table.put_all(some[at : at + 10], seqs[at : at + 10], at, 1)
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert table.count == count
    assert size / count < 64


def test_keys_that_are_put_back_in_any_order_replace_each_other() -> None:
    table = KeyTable("t", 1000)
    (one, two) = digests(0, 2)
    table.put_back(one, 5, 500, 2)
    table.put_back(two, 6, 100, 1)
    table.put_back(one, 5, 500, 3)
    assert table.count == 2
    assert table.segment_of(table.find(one)) == 3
    assert [int(table.at_of(number)) for number in table.numbers()] == [100, 500]
