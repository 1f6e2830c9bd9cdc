"""Small bronze files of closed days become one, whoever reads and whenever it is killed."""

import shutil
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from jobyard.client.errors import Code, JobyardError
from jobyard.lake import open_lake, opening
from jobyard.lake.checking import check
from jobyard.lake.compaction import compact, expire
from jobyard.lake.locks import COMPACTING, held
from jobyard.lake.opening import Lake
from jobyard.lake.schemas import ATTEMPTS, EVENTS
from jobyard.lake.tables import Batch, Partition
from tests.lake.faulty import FaultyDisk, Killed
from tests.lake.readers import READERS
from tests.lake.rows import OTHER_YARD, YARD, attempt, event, read, send, stage

DAYS: list[Partition] = [("2026-11-16",), ("2026-11-17",)]
HOUR: Partition = ("2026-11-16", "0")
LATER = datetime(2026, 11, 18, 12, tzinfo=UTC)
FORMATS = ("parquet", "delta", "iceberg")


def filled(folder: Path, table_format: str, first: int = 0) -> Lake:
    """Make a lake with six small files of the first day, or fewer, and two of the second."""
    lake = open_lake(folder, table_format)
    with lake.lock():
        for number in range(first, 5):
            rows = {DAYS[0]: [event(number * 10 + 1)]}
            send(lake.tables, Batch(YARD, number * 10, number * 10 + 10), rows)
        rows = {DAYS[0]: [event(51)], DAYS[1]: [event(52, minutes=1441)]}
        send(lake.tables, Batch(YARD, 50, 60), rows)
        send(lake.tables, Batch(YARD, 60, 70), {DAYS[1]: [event(61, minutes=1442)]})
    return lake


SEQS = [1, 11, 21, 31, 41, 51, 52, 61]


def seqs(lake: Lake) -> list[object]:
    found = [row["seq"] for row in read(lake.tables, EVENTS)]
    for reader in READERS[lake.table_format]:
        assert [row["seq"] for row in reader(lake.folder, EVENTS)] == found
    return found


@pytest.mark.parametrize("table_format", FORMATS)
def test_files_of_a_closed_day_become_one(memory: Path, table_format: str) -> None:
    lake = filled(memory / "lake", table_format)
    done = compact(lake, LATER)
    assert (done.days, done.files_before, done.files_after, done.rows) == (1, 6, 1, 6)
    assert seqs(lake) == SEQS
    assert [path.name for _, path in lake.tables.files(EVENTS, DAYS[:1])] == [
        "a1b2c3d4-0-60.parquet"
    ]
    # The newest file stays, and so does its only neighbour.
    assert len(lake.tables.files(EVENTS, DAYS[1:])) == 2
    assert compact(lake, LATER).days == 0
    assert check(lake) == []
    with lake.lock():
        send(lake.tables, Batch(YARD, 70, 80), {DAYS[0]: [event(71)], DAYS[1]: [event(72)]})
    assert compact(lake, LATER).files_before == 2
    assert seqs(lake) == [*SEQS, 71, 72]
    assert lake.tables.position(YARD) == 80


def test_today_is_left_alone(memory: Path) -> None:
    lake = filled(memory / "lake", "parquet")
    assert compact(lake, datetime(2026, 11, 16, 23, 59, tzinfo=UTC)).days == 0
    assert len(lake.tables.files(EVENTS)) == 8


def test_yards_are_merged_apart(memory: Path) -> None:
    lake = filled(memory / "lake", "parquet")
    with lake.lock():
        for number in range(3):
            rows = {DAYS[0]: [event(number + 1, yard=OTHER_YARD)]}
            send(lake.tables, Batch(OTHER_YARD, number, number + 1), rows)
    assert compact(lake, LATER).files_after == 2
    assert [path.name for _, path in lake.tables.files(EVENTS, DAYS[:1])] == [
        "a1b2c3d4-0-60.parquet",
        "ffeeddcc-0-2.parquet",
        "ffeeddcc-2-3.parquet",
    ]
    assert check(lake) == []


@pytest.mark.parametrize("table_format", FORMATS)
def test_a_compaction_is_killed_at_every_call(memory: Path, table_format: str) -> None:
    filled(memory / "made", table_format, 4)
    calls = 0
    while True:
        folder = memory / f"at-{calls}"
        if table_format == "iceberg":
            filled(folder, table_format, 4)
        else:
            shutil.copytree(memory / "made", folder)
        try:
            compact(opening.open_lake(folder, disk=FaultyDisk(calls)), LATER)
        except Killed:
            # Before anything is mended.
            assert seqs(open_lake(folder)) == SEQS[4:]
        else:
            break
        lake = open_lake(folder)
        if calls % 2:
            with lake.lock():
                send(lake.tables, Batch(YARD, 70, 80), {})
        compact(lake, LATER)
        assert seqs(lake) == SEQS[4:]
        assert check(lake) == []
        assert len(lake.tables.files(EVENTS, DAYS[:1])) == 1
        calls += {"parquet": 1, "delta": 3, "iceberg": 5}[table_format]
    assert calls > 10


def test_a_reader_by_path_that_listed_before_finds_an_error_and_never_other_rows(
    memory: Path,
) -> None:
    lake = filled(memory / "lake", "parquet")
    listed = ds.dataset(lake.folder / "events", format="parquet", partitioning="hive")
    fragments = listed.get_fragments()
    first = next(fragments).to_table().num_rows
    compact(lake, LATER)
    assert first == 1
    with pytest.raises(FileNotFoundError):
        listed.to_table()
    assert seqs(lake) == SEQS


def test_a_swap_waits_for_readers_and_for_a_run_in_a_batch(memory: Path) -> None:
    lake = filled(memory / "lake", "parquet")
    ended = threading.Event()

    def other() -> None:
        compact(open_lake(lake.folder), LATER)
        ended.set()

    thread = threading.Thread(target=other)
    with lake.lock():
        batch = Batch(YARD, 70, 80)
        staging = lake.tables.staging(batch)
        files = lake.tables.files(EVENTS)
        thread.start()
        # Wherever the other is: these files stay until the commit.
        assert not ended.wait(0.3)
        assert all(path.exists() for _, path in files)
        with lake.reading():
            change = stage(staging, EVENTS, {DAYS[0]: [event(71)]})
            lake.tables.commit(batch, [change])
            assert not ended.wait(0.3)
            assert all(path.exists() for _, path in files)
        thread.join(60)
        assert ended.is_set()
    assert seqs(lake) == [*SEQS, 71]


def test_two_compactions_exclude_each_other(memory: Path) -> None:
    lake = filled(memory / "lake", "parquet")
    with held(lake.tables.manifest / COMPACTING, "a compaction"):
        with pytest.raises(JobyardError, match="a compaction") as fault:
            compact(lake, LATER)
        assert fault.value.code == Code.LAKE_BUSY


@pytest.mark.parametrize("table_format", FORMATS)
def test_old_snapshots_are_forgotten(memory: Path, table_format: str) -> None:
    lake = filled(memory / "lake", table_format)
    with lake.lock():
        for number in range(3):
            rows = {HOUR: [attempt(1, run_ms=number)]}
            send(lake.tables, Batch(YARD, 70 + number, 71 + number), {}, rows)
    compact(lake, LATER)
    now = datetime.now(UTC)
    with pytest.raises(JobyardError, match="younger"):
        expire(lake, now, now)
    # As if it were tomorrow.
    removed = expire(lake, now - timedelta(hours=2), now)
    assert removed == 0
    assert seqs(lake) == SEQS
    assert len(read(lake.tables, ATTEMPTS)) == 1
