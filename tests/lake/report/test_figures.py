"""The figures agree with sums and percentiles made in plain Python from the same rows."""

import datetime as dt
import math
import os
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from jobyard.client.errors import JobyardError
from jobyard.lake import open_lake
from jobyard.lake.opening import Lake
from jobyard.lake.report.facts import Emptiness, Facts, gather
from jobyard.lake.report.queues import COUNTS, ENDS
from jobyard.lake.schemas import QUEUE_MINUTE, TableSchema
from jobyard.lake.tables import Partition
from tests.lake.report.synthetic import (
    MINUTE_US,
    START,
    YARD,
    Columns,
    Gold,
    Staging,
    make_gold,
    make_lake,
    queue_rows,
    sketch,
)

NAMES = ("mails", "invoices", "thumbnails", "search")
MINUTES = 2000
NOW = START + dt.timedelta(minutes=MINUTES + 5)
FIRST = int(START.timestamp()) // 60


@pytest.fixture(scope="module")
def gold() -> Gold:
    return make_gold(NAMES, MINUTES, workers=5)


@pytest.fixture(scope="module")
def lake(gold: Gold, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return Staging(tmp_path_factory.mktemp("lake") / "lake").commit(gold)


def facts_of(lake: Lake, **options: Any) -> Facts:
    facts = gather(lake, now=NOW, **options)
    assert isinstance(facts, Facts)
    return facts


def rows_of(columns: Columns) -> list[dict[str, Any]]:
    names = list(columns)
    return [dict(zip(names, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def unpacked(content: bytes | None) -> list[int]:
    """Return the values of a sketch of one level, read here a second time."""
    if content is None:
        return []
    words = [int.from_bytes(content[at : at + 8], "little") for at in range(8, len(content), 8)]
    return words if len(content) == 16 else words[4:]


def test_counts_are_the_sums_of_the_minutes(gold: Gold, lake: Lake) -> None:
    facts = facts_of(lake)
    sums: Counter[tuple[str, str, int]] = Counter()
    for row in rows_of(gold["queue_minute"]):
        step = (int(row["minute"]) // MINUTE_US - facts.period.start) // facts.period.step
        for name in COUNTS:
            sums[name, str(row["queue"]), step] += int(row[name])
    for name in COUNTS:
        for at, queue in enumerate(facts.queues.names):
            found = facts.queues.counts[name][at].tolist()
            assert found == [sums[name, queue, step] for step in range(facts.period.steps)]


def test_queues_are_in_order_of_volume(gold: Gold, lake: Lake) -> None:
    volume: Counter[str] = Counter()
    for row in rows_of(gold["queue_minute"]):
        volume[str(row["queue"])] += int(row["enqueued"]) + int(row["claimed"])
    assert facts_of(lake).queues.names == [name for name, _ in volume.most_common()]


@pytest.mark.parametrize("kind", ["wait", "run"])
def test_percentiles_are_those_of_all_values_together(gold: Gold, lake: Lake, kind: str) -> None:
    facts = facts_of(lake)
    latency = getattr(facts.queues, kind)
    groups: dict[object, list[int]] = defaultdict(list)
    for row in rows_of(gold["queue_minute"]):
        step = (int(row["minute"]) // MINUTE_US - facts.period.start) // facts.period.step
        for value in unpacked(row[f"{kind}_kll"]):
            groups[step].append(value)
            groups[str(row["queue"])].append(value)
            groups[None].append(value)
    measured: dict[object, Any] = {None: latency.all}
    measured |= {step: latency.steps[step] for step in range(facts.period.steps)}
    measured |= {name: latency.queues[at] for at, name in enumerate(facts.queues.names)}
    for group, found in measured.items():
        values = sorted(groups[group])
        for share, percentile in zip((0.5, 0.95, 0.99), found, strict=True):
            exact = values[math.ceil(round(share * len(values), 6)) - 1]
            assert abs(percentile - exact) <= max(0.004 * exact, 0 if exact < 256 else 1)
            assert percentile <= values[-1]


def test_levels_go_on_from_what_was_before(gold: Gold, lake: Lake) -> None:
    whole = facts_of(lake)
    begin = START + dt.timedelta(minutes=1200)
    part = facts_of(lake, since=begin)
    assert part.period.first == FIRST + 1200
    for at, name in enumerate(part.queues.names):
        other = whole.queues.names.index(name)
        ends = part.queues.backlog[at, -1], whole.queues.backlog[other, -1]
        assert ends[0] - part_lift(gold, name, 1200) == ends[1] - part_lift(gold, name, 0)
    assert part.queues.total("enqueued") == sum(
        int(row["enqueued"])
        for row in rows_of(gold["queue_minute"])
        if int(row["minute"]) // MINUTE_US >= part.period.first
    )


def part_lift(gold: Gold, queue: str, since: int) -> int:
    """Return by how much the level of a queue is raised, so that it is never below zero."""
    facts_step = 10 if since else 15
    level, least, rows = 0, 0, rows_of(gold["queue_minute"])
    changes: Counter[int] = Counter()
    for row in rows:
        if str(row["queue"]) == queue:
            changes[int(row["minute"]) // MINUTE_US] += int(row["backlog_change"])
    for minute in range(FIRST, FIRST + MINUTES):
        level += changes[minute]
        is_end = (minute + 1) % facts_step == 0 or minute == FIRST + MINUTES - 1
        if is_end and minute >= FIRST + since:
            least = min(least, level)
    return -least


def test_running_is_what_was_claimed_and_has_not_ended(tmp_path: Path) -> None:
    rows = {
        "yard": [YARD] * 3,
        "queue": ["mails"] * 3,
        "minute": [(FIRST + at) * MINUTE_US for at in range(3)],
        "claimed": [5, 2, 0],
        **{name: [0, 1, 0] for name in ENDS},
        "enqueued": [9, 0, 0],
        "backlog_change": [9, -2, 0],
    }
    lake = Staging(tmp_path / "lake").commit({"queue_minute": rows})
    queues = facts_of(lake).queues
    assert queues.running.tolist() == [5, 2, 2]
    assert queues.backlog.tolist() == [[9, 7, 7]]
    since = START + dt.timedelta(minutes=1)
    assert facts_of(lake, since=since).queues.running.tolist() == [2, 2]


def test_jobs_from_before_the_lake_are_counted_at_least(tmp_path: Path) -> None:
    rows = {
        "yard": [YARD] * 2,
        "queue": ["mails"] * 2,
        "minute": [FIRST * MINUTE_US, (FIRST + 1) * MINUTE_US],
        "completed": [4, 0],
        "backlog_change": [-4, 3],
    }
    queues = facts_of(Staging(tmp_path / "lake").commit({"queue_minute": rows})).queues
    assert queues.backlog_before == 4
    assert queues.backlog.tolist() == [[0, 3]]


def test_one_queue_alone(gold: Gold, lake: Lake) -> None:
    facts = facts_of(lake, queue="invoices")
    assert facts.queues.names == ["invoices"]
    wanted = [row for row in rows_of(gold["queue_minute"]) if row["queue"] == "invoices"]
    assert facts.queues.total("completed") == sum(int(row["completed"]) for row in wanted)
    assert {each.queue for each in facts.objectives} == {"invoices"}
    assert {kind.queue for kind in facts.letters.kinds} == {"invoices"}
    fleet = [row for row in rows_of(gold["worker_minute"]) if row["queue"] == "invoices"]
    assert set(facts.workers.names) == {str(row["worker"]) for row in fleet}


def test_a_queue_that_is_not_there_is_an_error_with_the_nearest(lake: Lake) -> None:
    with pytest.raises(JobyardError) as error:
        gather(lake, queue="mail", now=NOW)
    assert (error.value.code, error.value.option) == ("bad_option", "queue")
    assert "'mails'" in str(error.value)
    assert str(error.value).count("\n") == 2


def test_workers_are_busy_for_the_time_of_their_runs(gold: Gold, lake: Lake) -> None:
    facts = facts_of(lake)
    busy: Counter[str] = Counter()
    active: dict[int, set[str]] = defaultdict(set)
    for row in rows_of(gold["worker_minute"]):
        busy[str(row["worker"])] += int(row["busy_ms"])
        step = (int(row["minute"]) // MINUTE_US - facts.period.start) // facts.period.step
        active[step].add(str(row["worker"]))
    assert facts.workers.names == [name for name, _ in busy.most_common()]
    shares = facts.workers.utilisation()
    for at, name in enumerate(facts.workers.names):
        assert shares[at] == pytest.approx(busy[name] / (MINUTES * 60_000))
    steps = range(facts.period.steps)
    assert facts.workers.active.tolist() == [len(active[step]) for step in steps]


def test_dead_letters_are_grouped_by_queue_reason_and_fingerprint(gold: Gold, lake: Lake) -> None:
    letters = facts_of(lake).letters
    sums: Counter[tuple[str, ...]] = Counter()
    ids: dict[tuple[str, ...], list[int]] = defaultdict(list)
    seen: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for row in rows_of(gold["dlq_reason_minute"]):
        key = (row["queue"], row["reason"], row["error_fingerprint"])
        sums[key] += row["count"]
        ids[key] += row["sample_job_ids"]
        seen[key] += [row["first_seen"], row["last_seen"]]
    found = {(each.queue, each.reason, each.fingerprint): each for each in letters.kinds}
    assert {key: each.letters for key, each in found.items()} == dict(sums)
    assert letters.kinds_count == len(sums)
    assert letters.total() == sum(sums.values())
    assert [each.letters for each in letters.kinds] == sorted(sums.values(), reverse=True)
    for key, each in found.items():
        assert each.first_seen is not None
        assert each.last_seen is not None
        assert each.first_seen.timestamp() * 1e6 == pytest.approx(min(seen[key]))
        assert each.last_seen.timestamp() * 1e6 == pytest.approx(max(seen[key]))
        assert each.job_ids == tuple(ids[key][:5])


def test_objectives_are_summed_and_the_poorest_is_first(gold: Gold, lake: Lake) -> None:
    found = facts_of(lake).objectives
    sums: Counter[tuple[str, str]] = Counter()
    last = {}
    for row in rows_of(gold["slo"]):
        key = (row["queue"], row["objective"])
        sums[key] += row["bad"]
        last[key] = row["budget_left"]
    assert {(each.queue, each.name): each.bad for each in found} == dict(sums)
    assert [each.budget_left for each in found] == sorted(last.values())


def test_since_may_be_a_time_without_a_zone_or_a_length(lake: Lake) -> None:
    naive = (NOW - dt.timedelta(hours=6)).replace(tzinfo=None)
    by_time, by_length = (facts_of(lake, since=each) for each in (naive, dt.timedelta(hours=6)))
    assert by_time.period == by_length.period
    assert by_time.period.first == FIRST + MINUTES + 5 - 360


def test_nothing_to_tell(lake: Lake, tmp_path: Path) -> None:
    empty = gather(open_lake(tmp_path / "none"), now=NOW)
    assert empty == Emptiness(NOW, None, None)
    late = gather(lake, since=dt.timedelta(minutes=1), now=NOW)
    assert isinstance(late, Emptiness)
    assert late.newest == START + dt.timedelta(minutes=MINUTES - 1)


def test_two_yards_are_summed(tmp_path: Path) -> None:
    one = queue_rows(["mails"], 3)
    two = {**one, "yard": ["another-yard"] * 3}
    both = {name: [*list(one[name]), *list(two[name])] for name in one}
    both["minute"] = [int(each) for each in both["minute"]]
    facts = facts_of(Staging(tmp_path / "lake").commit({"queue_minute": both}))
    assert facts.queues.yards == sorted([YARD, "another-yard"])
    assert facts.queues.total("enqueued") == 2 * sum(int(each) for each in one["enqueued"])


def test_a_file_that_changes_while_it_is_read_is_read_again(tmp_path: Path) -> None:
    lake = make_lake(tmp_path / "lake", ["mails"], 90)
    files = lake.tables.files
    calls: list[str] = []

    def vanishing(
        table: TableSchema, partitions: Iterable[Partition] | None = None
    ) -> list[tuple[Partition, Path]]:
        found = files(table, partitions)
        calls.append(table.name)
        if len(calls) == 1:
            return [(partition, path.with_name("gone.parquet")) for partition, path in found]
        return list(found)

    lake.tables.files = vanishing  # type: ignore[method-assign]
    assert facts_of(lake).queues.names == ["mails"]
    assert calls.count("queue_minute") > 1


def test_a_damaged_sketch_is_named(tmp_path: Path) -> None:
    rows = queue_rows(["mails"], 3)
    rows["wait_kll"] = [sketch([1, 2]), b"no sketch at all", None]
    lake = Staging(tmp_path / "lake").commit({"queue_minute": rows})
    with pytest.raises(JobyardError, match="queue_minute") as error:
        gather(lake, now=NOW)
    assert error.value.code == "lake_damaged"


def test_a_file_that_is_no_parquet_is_named(tmp_path: Path) -> None:
    lake = make_lake(tmp_path / "lake", ["mails"], 3)
    ((_, path),) = lake.tables.files(QUEUE_MINUTE)
    times = path.stat()
    path.write_bytes(b"x" * times.st_size)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    with pytest.raises(JobyardError) as error:
        gather(lake, now=NOW)
    assert error.value.code == "lake_damaged"
