"""What is wrong with the files of a lake is found, by name; and what is in it is told."""

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from jobyard.client.errors import Code, JobyardError
from jobyard.lake import open_lake
from jobyard.lake.checking import FindingKind, check
from jobyard.lake.opening import Lake
from jobyard.lake.schemas import ATTEMPTS, EVENTS
from jobyard.lake.status import status
from jobyard.lake.tables import Batch, Partition
from tests.lake.rows import YARD, arrow, attempt, event, send

DAY: Partition = ("2026-11-16",)
HOUR: Partition = ("2026-11-16", "3")
FORMATS = ("parquet", "delta", "iceberg")


def filled(folder: Path, table_format: str = "parquet") -> Lake:
    lake = open_lake(folder, table_format)
    with lake.lock():
        rows = {HOUR: [attempt(1, hour=3), attempt(2, hour=3)]}
        send(lake.tables, Batch(YARD, 0, 10), {DAY: [event(1), event(2)]}, rows)
        send(lake.tables, Batch(YARD, 10, 20), {DAY: [event(11, minutes=5)]})
    return lake


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def flip(path: Path) -> None:
    """Damage a page, and leave footer, size and time."""
    status = path.stat()
    content = bytearray(path.read_bytes())
    for at in range(4, 4 + 40):
        content[at] ^= 0xFF
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def replace(path: Path) -> None:
    pq.write_table(arrow(EVENTS, [event(5)]), path)


@pytest.mark.parametrize("table_format", FORMATS)
def test_a_whole_lake_has_no_findings(memory: Path, table_format: str) -> None:
    assert check(open_lake(memory / "none", table_format)) == []
    assert check(filled(memory / "lake", table_format)) == []


@pytest.mark.parametrize("table_format", FORMATS)
@pytest.mark.parametrize("damage", [Path.unlink, cut, flip, replace])
def test_a_damaged_file_is_named(
    memory: Path, table_format: str, damage: Callable[[Path], None]
) -> None:
    lake = filled(memory / "lake", table_format)
    (_, path), _ = lake.tables.files(EVENTS)
    damage(path)
    (found,) = check(lake)
    assert found.kind == FindingKind.DAMAGED
    assert found.table == "events"
    assert found.path == str(path)
    assert found.message


@pytest.mark.parametrize("damage", [Path.unlink, cut, replace])
def test_a_damaged_file_is_an_error_of_those_who_read(
    memory: Path, damage: Callable[[Path], None]
) -> None:
    lake = filled(memory / "lake")
    (_, path), _ = lake.tables.files(EVENTS)
    damage(path)
    for read in (lake.tables.files, lake.tables.partitions):
        with pytest.raises(JobyardError) as fault:
            read(EVENTS)
        assert fault.value.code == Code.LAKE_DAMAGED
        assert str(path) in fault.value.message
    assert len(lake.tables.files(ATTEMPTS)) == 1


@pytest.mark.parametrize("content", [None, b"", b"{}", b'{"date=2026-11-16/x.parquet":[1]}'])
def test_a_damaged_page_is_named(memory: Path, content: bytes | None) -> None:
    lake = filled(memory / "lake")
    path = lake.folder / "_manifest" / "files" / "events" / "2026-11-16.json"
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    with pytest.raises(JobyardError) as fault:
        lake.tables.files(EVENTS)
    assert fault.value.code == Code.LAKE_DAMAGED
    found = [each for each in check(lake) if each.kind == FindingKind.DAMAGED]
    assert {each.path for each in found} == {str(path)}


def test_a_copy_of_a_lake_is_whole(memory: Path) -> None:
    lake = filled(memory / "lake")
    for path in lake.folder.rglob("*.parquet"):
        path.touch()
    assert check(lake) == []
    assert lake.tables.partitions(EVENTS)[DAY].rows == 3


def test_a_file_that_belongs_to_no_table_is_found(memory: Path) -> None:
    lake = filled(memory / "lake")
    stray = lake.folder / "events" / "date=2026-11-16" / "a1b2c3d4-90-95.parquet"
    pq.write_table(arrow(EVENTS, [event(91)]), stray)
    (found,) = check(lake)
    assert (found.kind, found.path) == (FindingKind.STRAY, str(stray))
    # It is no part of the table for us.
    assert len(lake.tables.files(EVENTS)) == 2


def test_ranges_that_overlap_and_keys_that_are_twice_are_found(memory: Path) -> None:
    lake = open_lake(memory / "lake")
    with lake.lock():
        rows = {HOUR: [attempt(1), attempt(1), attempt(2) | {"job_id": None}]}
        send(lake.tables, Batch(YARD, 0, 10), {DAY: [event(1)]}, rows)
        path = lake.folder / "_manifest" / "state.json"
        content = json.loads(path.read_text())
        content["yards"][YARD]["seq"] = 0
        path.write_text(json.dumps(content))
        send(lake.tables, Batch(YARD, 0, 20), {DAY: [event(1)]})
    found = check(lake)
    assert [each.kind for each in found] == [
        FindingKind.KEY,
        FindingKind.OVERLAP,
        FindingKind.KEY,
        FindingKind.KEY,
    ]
    assert "a1b2c3d4-0-10.parquet" in found[1].message
    assert "no job_id" in found[2].message
    assert "1 keys" in found[3].message


@pytest.mark.parametrize("table_format", FORMATS)
def test_the_status_tells_what_is_there(memory: Path, table_format: str) -> None:
    lake = filled(memory / "lake", table_format)
    told = status(lake)
    events, attempts, *others = told.tables
    assert told.positions == {YARD: 20}
    assert (events.name, events.rows, events.partitions, events.files) == ("events", 3, 1, 2)
    assert events.newest == datetime(2026, 11, 16, 0, 5, tzinfo=UTC)
    assert events.bytes == sum(path.stat().st_size for _, path in lake.tables.files(EVENTS))
    assert (attempts.rows, attempts.newest) == (2, datetime(2026, 11, 16, 3, 0, 1, tzinfo=UTC))
    assert all(each.rows == 0 and each.newest is None for each in others)
    assert not told.is_in_commit
    text = told.as_text(datetime(2026, 11, 16, 0, 7, tzinfo=UTC))
    assert f"yard {YARD}: up to 20" in text
    (line,) = (each for each in text.splitlines() if each.startswith("events"))
    assert line.split()[-2:] == ["2", "min"]
    assert json.loads(told.as_json())["tables"][0]["newest"] == "2026-11-16T00:05:00+00:00"


def test_the_status_of_no_lake(tmp_path: Path) -> None:
    told = status(open_lake(tmp_path / "none"))
    assert sum(each.rows for each in told.tables) == 0
    assert told.as_text(datetime.now(UTC))
    assert not (tmp_path / "none").exists()
