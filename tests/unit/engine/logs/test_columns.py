"""A log column by column is the log."""

import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobyard.engine.logs.columns import LogColumns, columns_between, count_between
from jobyard.model.topic.columns import Column
from jobyard.model.topic.config import FSYNC
from jobyard.model.topic.log import LogTopic
from jobyard.model.topic.log_chunk import LOG_CHUNK_ROWS
from tests.support.engine.logs import (
    MANY,
    Record,
    contents,
    delete_below,
    delete_tagged,
    new_log,
    row,
    write,
)
from tests.support.site.storage import MemoryStorage
from tests.support.site.yard import OpenYard


def numbers(column: Column) -> list[int]:
    validity, values = column.buffers()
    assert validity == b""
    return [
        int.from_bytes(values[at : at + 8], "little", signed=True)
        for at in range(0, len(values), 8)
    ]


def texts(column: Column) -> list[str]:
    """Return the texts of a column, empty where there is none."""
    validity, places, values = column.buffers()
    ends = [int.from_bytes(places[at : at + 4], "little") for at in range(0, len(places), 4)]
    found = [values[start:end].decode() for start, end in pairwise(ends)]
    for i, text in enumerate(found):
        is_there = not validity or bool(validity[i // 8] >> i % 8 & 1)
        assert is_there == bool(text)
    return found


def records(page: LogColumns) -> list[Record]:
    seqs, times, tags, nodes, metas, data, _ = page.columns()
    found = list(
        zip(
            numbers(seqs),
            [time // 1000 for time in numbers(times)],
            texts(tags),
            texts(nodes),
            [json.loads(text) for text in texts(data)],
            [json.loads(text) if text else None for text in texts(metas)],
            strict=True,
        )
    )
    assert len(found) == page.count
    if found:
        assert (page.first_seq, page.last_seq) == (found[0][0], found[-1][0])
    return found


def read_all(
    site: OpenYard, log: LogTopic, after: int, to: int, rows: int = MANY, size: int = MANY
) -> list[Record]:
    """Read page by page, and hold each against the bounds."""
    found: list[Record] = []
    while after < to:
        page = columns_between(site.journal, log, after, to, rows, size)
        assert page.reached_seq > after
        assert page.count <= rows
        assert page.data.size() <= size or page.count == 1
        # Only the last page can be empty.
        assert page.count > 0 or page.reached_seq == to
        found += records(page)
        after = int(page.reached_seq)
    return found


def filled(budget: int) -> tuple[OpenYard, LogTopic]:
    """A log whose chunks are of every kind: bare, with labels, long, and one that still fills."""
    site = OpenYard(MemoryStorage(), segment_size=1 << 18, budget=budget)
    log = new_log(site, durability=FSYNC)
    for first in range(0, 3 * LOG_CHUNK_ROWS, 100):
        write(site, log, *[row(i) for i in range(first, first + 100)])
        site.commit()
    for first in range(0, 2 * LOG_CHUNK_ROWS, 100):
        write(
            site,
            log,
            *[
                row(
                    {"é": "x" * (i % 40)},
                    tag=("", "t", 'a"b\\', "ü\n", '"$node":')[i % 5],
                    node=("", "n1", 'n"2')[i % 3],
                    meta={"i": i} if i % 4 else None,
                )
                for i in range(first, first + 100)
            ],
        )
        site.commit()
    write(site, log, *[row("y" * 3000) for _ in range(LOG_CHUNK_ROWS)])
    site.commit()
    return site, log


@pytest.mark.parametrize("budget", [0, 1 << 40])
def test_the_columns_hold_what_the_log_holds(budget: int) -> None:
    site, log = filled(budget)
    assert any(chunk.is_cold for chunk in log.chunks) == (budget == 0)
    delete_tagged(site, log, "t")
    delete_below(site, log, 700)
    whole = contents(site, log)
    head = int(log.next_seq) - 1
    assert read_all(site, log, 0, head) == whole
    for after, to, rows, size in (
        (0, head, 1000, MANY),
        (1500, 5000, 333, 4000),
        (3000, 3600, 7, MANY),
        (head - 300, head, MANY, 10_000),
    ):
        wanted = [record for record in whole if after < record[0] <= to]
        assert read_all(site, log, after, to, rows, size) == wanted
        assert count_between(log, after, to) == len(wanted)


def test_a_page_holds_one_row_however_long_it_is() -> None:
    site = OpenYard()
    log = new_log(site)
    write(site, log, row("x" * 500), row("y"), row("z" * 500))
    page = columns_between(site.journal, log, 0, 3, 10, 1)
    assert [record[0] for record in records(page)] == [1]
    assert page.last_seq == 1


def test_a_page_of_a_range_without_records_reaches_its_end() -> None:
    site = OpenYard()
    log = new_log(site)
    write(site, log, row(1, tag="t"), row(2, tag="t"), row(3))
    delete_tagged(site, log, "t")
    page = columns_between(site.journal, log, 0, 2, 10, MANY)
    assert (page.count, page.reached_seq) == (0, 2)
    assert count_between(log, 0, 2) == 0
    assert count_between(log, 0, 3) == 1


@settings(max_examples=25)
@given(
    st.lists(st.integers(1, 3000), max_size=60),
    st.lists(st.tuples(st.integers(0, 2600), st.integers(0, 2600)), min_size=1, max_size=5),
)
def test_any_range_counts_what_it_holds(dead: list[int], ranges: list[tuple[int, int]]) -> None:
    site = OpenYard()
    log = new_log(site)
    write(site, log, *[row(i, tag=f"t{i}") for i in range(1, 2501)])
    for i in dead:
        delete_tagged(site, log, f"t{i}")
    alive = set(range(1, 2501)) - set(dead)
    for after, to in ranges:
        assert count_between(log, after, to) == len([i for i in alive if after < i <= to])


OPS = st.one_of(
    st.tuples(st.just("write"), st.integers(1, 1500)),
    st.tuples(st.just("long"), st.integers(1, 3)),
    st.tuples(st.just("tag"), st.integers(0, 4)),
    st.tuples(st.just("below"), st.integers(0, 3000)),
)


@settings(max_examples=30)
@given(
    st.lists(OPS, min_size=1, max_size=8),
    st.lists(st.integers(0, 6000), max_size=6),
    st.integers(1, 2000),
    st.sampled_from([200, 5000, MANY]),
    st.sampled_from([0, 1 << 40]),
)
def test_a_log_that_is_cut_anywhere_is_the_same_log(
    ops: list[tuple[str, int]], cuts: list[int], rows: int, size: int, budget: int
) -> None:
    site = OpenYard(MemoryStorage(), segment_size=1 << 18, budget=budget)
    log = new_log(site, durability=FSYNC, cap_records=4000)
    for kind, number in ops:
        if kind == "write":
            made = [row(i, tag=("", f"t{i % 5}")[i % 2], meta=None) for i in range(number)]
            write(site, log, *made)
        elif kind == "long":
            write(site, log, *[row("x" * 3000, node="n", meta={"a": 1})] * number)
        elif kind == "tag":
            delete_tagged(site, log, f"t{number}")
        else:
            delete_below(site, log, number)
        site.commit()
    head = int(log.next_seq) - 1
    places = [0, *sorted(min(cut, head) for cut in cuts), head]
    found: list[Record] = []
    for after, to in pairwise(places):
        part = read_all(site, log, after, to, rows, size)
        assert len(part) == count_between(log, after, to)
        found += part
    assert found == contents(site, log)
