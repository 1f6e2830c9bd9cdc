"""A run that is killed at any call of the file system, or has no room: nothing is half there.

After every kill, before anything is mended, readers find each partition as it was or as it shall
be; and the next run finds all of the batch in the tables, or nothing of it.
"""

import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from jobyard.client.errors import Code, JobyardError
from jobyard.lake import open_lake, opening
from jobyard.lake.opening import Lake
from jobyard.lake.schemas import ATTEMPTS, EVENTS
from jobyard.lake.tables import Batch, Partition
from tests.lake.faulty import FaultyDisk, FullDisk, Killed
from tests.lake.readers import READERS
from tests.lake.rows import YARD, Row, attempt, event, read, send, stage

DAYS: list[Partition] = [("2026-11-16",), ("2026-11-17",)]
HOURS: list[Partition] = [("2026-11-16", str(number)) for number in range(5)]
FIRST = Batch(YARD, 0, 10)
SECOND = Batch(YARD, 10, 20)
# Calls between two that are tried; slower formats have fewer kinds of calls.
STRIDES = {"parquet": 1, "delta": 2, "iceberg": 4}


def make(folder: Path, table_format: str) -> None:
    lake = open_lake(folder, table_format)
    lake.tables.part_bytes_max = 1
    with lake.lock():
        rows = {each: [attempt(1, run_ms=1)] for each in HOURS[:4]}
        send(lake.tables, FIRST, {DAYS[0]: [event(1)]}, rows)


def copy(memory: Path, table_format: str, number: int) -> Path:
    """Return a lake with the first batch."""
    folder, made = memory / f"at-{number}", memory / "made"
    if table_format == "iceberg":
        # It has whole paths in it.
        make(folder, table_format)
        return folder
    if not made.exists():
        make(made, table_format)
    shutil.copytree(made, folder)
    return folder


def second(lake: Lake) -> None:
    """Commit a batch that adds, replaces one file and several, empties, and begins partitions."""
    tables = lake.tables
    # A byte is enough for a second file, so that the paths of large partitions are taken.
    tables.part_bytes_max = 1
    with lake.lock():
        if tables.position(YARD) == SECOND.to_seq:
            return
        staging = tables.staging(SECOND)
        events = {DAYS[0]: [event(11)], DAYS[1]: [event(12, minutes=1441)]}
        one = {each: [attempt(1, run_ms=2)] for each in (HOURS[0], HOURS[4])}
        several = {HOURS[1]: [attempt(job, run_ms=2) for job in range(2)]}
        added = stage(staging, EVENTS, events, files=2)
        stage(staging, ATTEMPTS, one, HOURS)
        replaced = stage(staging, ATTEMPTS, several, HOURS, files=2)
        tables.commit(SECOND, [added, replaced])


BEFORE = dict.fromkeys(HOURS[:4], (1,))
AFTER = {HOURS[0]: (2,), HOURS[1]: (2, 2), HOURS[4]: (2,)}


def by_partition(rows: list[Row]) -> dict[object, tuple[object, ...]]:
    found: dict[object, tuple[object, ...]] = {}
    for row in rows:
        found[row["in"]] = (*found.get(row["in"], ()), row["run_ms"])
    return found


def check_whole(found: dict[object, tuple[object, ...]]) -> None:
    for each in HOURS:
        assert found.get(each) in (BEFORE.get(each), AFTER.get(each)), each


def check_readers(folder: Path, table_format: str) -> None:
    """Every reader finds partitions that are whole, and no event twice or missing."""
    lake = open_lake(folder)
    found = [[read(lake.tables, table) for table in (ATTEMPTS, EVENTS)]]
    found += [[one(folder, table) for table in (ATTEMPTS, EVENTS)] for one in READERS[table_format]]
    for attempts, events in found:
        check_whole(by_partition(attempts))
        seqs = [row["seq"] for row in events]
        assert seqs in ([1], [1, 11], [1, 12], [1, 11, 12])


def check_after(folder: Path, table_format: str) -> None:
    """The lake has all of both batches."""
    lake = open_lake(folder)
    for reader in READERS[table_format]:
        assert by_partition(reader(folder, ATTEMPTS)) == AFTER
        assert [row["seq"] for row in reader(folder, EVENTS)] == [1, 11, 12]
    assert by_partition(read(lake.tables, ATTEMPTS)) == AFTER
    assert lake.tables.position(YARD) == SECOND.to_seq
    assert not any((folder / "_manifest" / "staging").glob("*"))
    assert not (folder / "_manifest" / "intent.json").exists()


@pytest.mark.parametrize("table_format", STRIDES)
def test_a_run_is_killed_at_every_call(memory: Path, table_format: str) -> None:
    calls, outcomes = 0, set()
    while True:
        folder = copy(memory, table_format, calls)
        disk = FaultyDisk(calls)
        try:
            second(opening.open_lake(folder, disk=disk))
        except Killed:
            check_readers(folder, table_format)
        else:
            break
        # The next run is killed too, now and then, while it recovers.
        if calls % 3 == 0:
            with suppress(Killed):
                second(opening.open_lake(folder, disk=FaultyDisk(calls % 7)))
            check_readers(folder, table_format)
        lake = open_lake(folder)
        with lake.lock():
            position = lake.tables.position(YARD)
        outcomes.add(position)
        expected = AFTER if position == SECOND.to_seq else BEFORE
        assert by_partition(read(lake.tables, ATTEMPTS)) == expected
        assert len(read(lake.tables, EVENTS)) == (3 if expected == AFTER else 1)
        second(lake)
        check_after(folder, table_format)
        calls += STRIDES[table_format]
    check_after(folder, table_format)
    assert outcomes == {FIRST.to_seq, SECOND.to_seq}
    assert calls > 30


@pytest.mark.parametrize("table_format", STRIDES)
def test_a_disk_is_full_from_every_call_on(memory: Path, table_format: str) -> None:
    calls = 0
    while True:
        folder = copy(memory, table_format, calls)
        disk = FullDisk(calls)
        lake = opening.open_lake(folder, disk=disk)
        try:
            second(lake)
        except JobyardError as fault:
            assert fault.code == Code.LAKE_FULL  # noqa: PT017  the last turn has no fault
            assert disk.refused
        else:
            break
        check_readers(folder, table_format)
        # In the same process, once there is room.
        disk.calls_max = 10**9
        second(lake)
        check_after(folder, table_format)
        calls += STRIDES[table_format]
    assert calls > 10
