"""What every format of tables does in the same way, seen by ourselves and by other readers."""

from pathlib import Path

import pytest

from jobyard.client.errors import Code, JobyardError
from jobyard.lake import open_lake, schemas
from jobyard.lake.opening import Lake
from jobyard.lake.schemas import ATTEMPTS, EVENTS, TABLES, TableSchema
from jobyard.lake.tables import Batch, Partition
from tests.lake.readers import READERS
from tests.lake.rows import (
    OTHER_YARD,
    START,
    YARD,
    Row,
    attempt,
    event,
    read,
    send,
    stage,
)

DAY: Partition = ("2026-11-16",)
NEXT_DAY: Partition = ("2026-11-17",)


def hour(number: int) -> Partition:
    return ("2026-11-16", str(number))


@pytest.fixture(params=["parquet", "delta", "iceberg"])
def lake(request: pytest.FixtureRequest, memory: Path) -> Lake:
    return open_lake(memory / "lake", request.param)


def found(lake: Lake, table: TableSchema) -> list[Row]:
    """Return the rows of a table; all who read it have to agree."""
    rows = read(lake.tables, table)
    for reader in READERS[lake.table_format]:
        assert reader(lake.folder, table) == rows
    return rows


def seqs(lake: Lake) -> list[object]:
    return [row["seq"] for row in found(lake, EVENTS)]


def runs(lake: Lake) -> dict[object, object]:
    return {row["job_id"]: row["run_ms"] for row in found(lake, ATTEMPTS)}


def test_a_new_lake_is_empty_and_nothing_is_made_before_the_lock(lake: Lake) -> None:
    assert found(lake, EVENTS) == []
    assert lake.tables.partitions(ATTEMPTS) == {}
    assert lake.tables.position(YARD) == 0
    assert not lake.folder.exists()
    with lake.lock():
        pass
    assert open_lake(lake.folder).table_format == lake.table_format


def test_a_batch_enters_all_tables(lake: Lake) -> None:
    with lake.lock():
        events = {DAY: [event(1), event(3)], NEXT_DAY: [event(4, minutes=1441)]}
        send(
            lake.tables, Batch(YARD, 0, 10), events, {hour(0): [attempt(1)], hour(23): [attempt(2)]}
        )
    assert seqs(lake) == [1, 3, 4]
    assert runs(lake) == {1: 1, 2: 1}
    assert lake.tables.position(YARD) == 10
    again = open_lake(lake.folder)
    assert seqs(again) == [1, 3, 4]
    assert again.tables.position(YARD) == 10


def test_rows_are_added_and_partitions_replaced(lake: Lake) -> None:
    with lake.lock():
        first = {hour(0): [attempt(1), attempt(2)], hour(1): [attempt(3)]}
        send(lake.tables, Batch(YARD, 0, 10), {DAY: [event(1)]}, first)
        second = {hour(0): [attempt(2, run_ms=7)], hour(5): [attempt(9)]}
        send(lake.tables, Batch(YARD, 10, 20), {DAY: [event(11)]}, second)
    assert seqs(lake) == [1, 11]
    assert runs(lake) == {2: 7, 3: 1, 9: 1}
    assert set(lake.tables.partitions(ATTEMPTS)) == {hour(0), hour(1), hour(5)}
    assert [p for p, _ in lake.tables.files(ATTEMPTS, [hour(1), hour(2)])] == [hour(1)]


def test_a_replaced_partition_without_rows_is_empty(lake: Lake) -> None:
    with lake.lock():
        send(lake.tables, Batch(YARD, 0, 10), {}, {hour(0): [attempt(1)], hour(1): [attempt(2)]})
        send(lake.tables, Batch(YARD, 10, 20), {}, {}, [hour(0), hour(7)])
    assert runs(lake) == {2: 1}
    assert set(lake.tables.partitions(ATTEMPTS)) == {hour(1)}
    with lake.lock():
        send(lake.tables, Batch(YARD, 20, 30), {}, {hour(0): [attempt(4)]}, [hour(1)])
    assert runs(lake) == {4: 1}


def test_the_same_batch_again_has_no_effect(lake: Lake) -> None:
    batch = Batch(YARD, 0, 10)
    for run_ms in (1, 2):
        with lake.lock():
            send(lake.tables, batch, {DAY: [event(1)]}, {hour(0): [attempt(1, run_ms=run_ms)]})
    assert seqs(lake) == [1]
    assert runs(lake) == {1: 1}


def test_a_batch_that_overlaps_is_refused(lake: Lake) -> None:
    with lake.lock():
        send(lake.tables, Batch(YARD, 0, 10), {DAY: [event(1)]})
        with pytest.raises(JobyardError, match="overlaps") as fault:
            send(lake.tables, Batch(YARD, 5, 20), {DAY: [event(6)]})
        assert fault.value.code == Code.BAD_BATCH
    assert seqs(lake) == [1]
    assert lake.tables.position(YARD) == 10


def test_a_batch_without_changes_moves_the_position_only(lake: Lake) -> None:
    with lake.lock():
        send(lake.tables, Batch(YARD, 0, 10), {DAY: [event(1)]})
        lake.tables.commit(Batch(YARD, 10, 20), [])
        send(lake.tables, Batch(YARD, 20, 30), {}, {})
    assert lake.tables.position(YARD) == 30
    assert seqs(lake) == [1]


def test_partitions_are_replaced_without_events(lake: Lake) -> None:
    with lake.lock():
        send(lake.tables, Batch(YARD, 0, 10), {DAY: [event(1)]}, {hour(0): [attempt(1)]})
        for run_ms in (5, 6):
            batch = Batch(YARD, 10, 10)
            rows = {hour(0): [attempt(1, run_ms=run_ms)]}
            change = stage(lake.tables.staging(batch), ATTEMPTS, rows, rows)
            lake.tables.commit(batch, [change])
        with pytest.raises(JobyardError, match="cannot add rows"):
            send(lake.tables, Batch(YARD, 10, 10), {DAY: [event(1)]})
    assert runs(lake) == {1: 6}
    assert seqs(lake) == [1]
    assert lake.tables.position(YARD) == 10


def test_two_yards_have_their_own_positions(lake: Lake) -> None:
    with lake.lock():
        send(lake.tables, Batch(YARD, 0, 10), {DAY: [event(1)]}, {hour(0): [attempt(1)]})
        rows = {hour(0): [attempt(1), attempt(1, yard=OTHER_YARD, run_ms=9)]}
        send(lake.tables, Batch(OTHER_YARD, 0, 10), {DAY: [event(1, yard=OTHER_YARD)]}, rows)
        send(lake.tables, Batch(YARD, 10, 12), {DAY: [event(11)]})
    assert lake.tables.position(YARD) == 12
    assert lake.tables.position(OTHER_YARD) == 10
    assert [(row["yard"], row["seq"]) for row in found(lake, EVENTS)] == [
        *((YARD, 1), (YARD, 11), (OTHER_YARD, 1))
    ]
    assert len(found(lake, ATTEMPTS)) == 2


def test_yards_whose_names_begin_alike_have_their_own_files(lake: Lake) -> None:
    yards = [f"{YARD[:8]}{number}" for number in range(3)]
    with lake.lock():
        for yard in yards:
            send(lake.tables, Batch(yard, 0, 10), {DAY: [event(1, yard=yard)]})
    assert [row["yard"] for row in found(lake, EVENTS)] == yards


@pytest.mark.parametrize(
    "yard", ["", "../x", "a/b", ".hidden", "_made", "a b", "a\n", "a" * 129, "a\0", "é", "*"]
)
def test_names_of_yards_that_cannot_be_are_refused(lake: Lake, yard: str) -> None:
    with lake.lock():
        with pytest.raises(JobyardError) as fault:
            lake.tables.staging(Batch(yard, 0, 10))
        assert fault.value.code == Code.BAD_OPTION
        with pytest.raises(JobyardError):
            lake.tables.commit(Batch(yard, 0, 10), [])


@pytest.mark.parametrize("yard", ["all", "a", "A.b~c:d-e_f", "0-1-2", "9" * 128])
def test_odd_names_of_yards_work(lake: Lake, yard: str) -> None:
    with lake.lock():
        send(lake.tables, Batch(yard, 0, 10), {DAY: [event(1, yard=yard)]}, {hour(0): [attempt(1)]})
        send(lake.tables, Batch(yard, 10, 11), {DAY: [event(11, yard=yard)]})
    assert seqs(lake) == [1, 11]
    assert lake.tables.position(yard) == 11


def test_several_files_of_a_partition_become_one(lake: Lake) -> None:
    with lake.lock():
        batch = Batch(YARD, 0, 100)
        staging = lake.tables.staging(batch)
        events = {DAY: [event(seq) for seq in range(1, 101)]}
        rows = {hour(0): [attempt(job) for job in range(50)]}
        changes = [
            stage(staging, EVENTS, events, files=7),
            stage(staging, ATTEMPTS, rows, rows, files=60),
        ]
        lake.tables.commit(batch, changes)
    assert seqs(lake) == list(range(1, 101))
    assert len(runs(lake)) == 50
    assert len(lake.tables.files(EVENTS)) == len(lake.tables.files(ATTEMPTS)) == 1


def test_facts_come_from_footers(lake: Lake) -> None:
    with lake.lock():
        rows = {hour(0): [attempt(3), attempt(9, run_ms=40)], hour(1): [attempt(5, hour=1)]}
        send(lake.tables, Batch(YARD, 0, 10), {DAY: [event(1)]}, rows)
        send(lake.tables, Batch(YARD, 10, 20), {DAY: [event(15, minutes=2)]})
    facts = lake.tables.partitions(ATTEMPTS)[hour(0)]
    assert facts.rows == 2
    assert facts.least["job_id"] == 3
    assert facts.greatest["job_id"] == 9
    assert facts.greatest["run_ms"] == 40
    assert facts.least["claimed_at"] == int(START.timestamp() + 1) * 1_000_000
    assert "finished_at" not in facts.least
    assert facts.nulls["finished_at"] == 2
    assert facts.nulls["job_id"] == 0
    assert facts.bytes == sum(p.stat().st_size for _, p in lake.tables.files(ATTEMPTS, [hour(0)]))
    bronze = lake.tables.partitions(EVENTS)[DAY]
    assert (bronze.rows, bronze.least["seq"], bronze.greatest["seq"]) == (2, 1, 15)
    assert bronze.greatest["ts"] - bronze.least["ts"] == 120_000_000


def test_every_type_of_every_table_can_be_written_and_read(lake: Lake) -> None:
    values: dict[str, object] = {
        schemas.TEXT: YARD,
        schemas.LONG: 4,
        schemas.REAL: 0.25,
        schemas.TIME: START,
        schemas.BYTES: b"\0\xff",
        schemas.LONGS: [1, 2],
    }
    full = {
        table: {column.name: values[column.type] for column in table.columns}
        for table in TABLES.values()
    }
    with lake.lock():
        batch = Batch(YARD, 0, 10)
        staging = lake.tables.staging(batch)
        changes = []
        for table, row in full.items():
            partition = hour(4) if len(table.partition_by) == 2 else DAY
            replaced = None if table == EVENTS else [partition]
            changes.append(stage(staging, table, {partition: [row]}, replaced))
        lake.tables.commit(batch, changes)
    for table, row in full.items():
        (only,) = found(lake, table)
        assert {name: only[name] for name in row} == row
