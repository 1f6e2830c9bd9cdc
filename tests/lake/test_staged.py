"""What a run stages becomes files of the table, or is refused with what is wrong with it."""

import errno
import os
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobyard.client.errors import Code, JobyardError
from jobyard.lake import open_lake, opening
from jobyard.lake.compaction import compact
from jobyard.lake.disk import Disk
from jobyard.lake.footers import arrow_schema
from jobyard.lake.opening import Lake
from jobyard.lake.schemas import ATTEMPTS, EVENTS
from jobyard.lake.tables import Batch, Change, Partition
from tests.lake.rows import YARD, arrow, attempt, event, read, stage, write

BATCH = Batch(YARD, 0, 10)
DAY: Partition = ("2026-11-16",)
HOURS: list[Partition] = [("2026-11-16", "0"), ("2026-11-16", "1")]


@pytest.fixture
def lake(memory: Path) -> Lake:
    return open_lake(memory / "lake")


def commit(lake: Lake, rows: pa.Table, where: str = "date=2026-11-16/part-0.parquet") -> None:
    with lake.lock():
        staged = lake.tables.staging(BATCH) / "events"
        path = staged / where
        path.parent.mkdir(parents=True)
        pq.write_table(rows, path)
        lake.tables.commit(BATCH, [Change(EVENTS, staged, None)])


def refused(lake: Lake, rows: pa.Table, where: str = "date=2026-11-16/part-0.parquet") -> str:
    with pytest.raises(JobyardError) as fault:
        commit(lake, rows, where)
    assert fault.value.code == Code.BAD_BATCH
    assert lake.tables.position(YARD) == 0
    assert lake.tables.files(EVENTS) == []
    return fault.value.message


@pytest.mark.parametrize(
    "where",
    [
        "part-0.parquet",
        "date=__HIVE_DEFAULT_PARTITION__/part-0.parquet",
        "date=2026-13-01/part-0.parquet",
        "date=20261116/part-0.parquet",
        "day=2026-11-16/part-0.parquet",
        "date=2026-11-16/hour=1/part-0.parquet",
        "date=2026-11-16/part-0.orc",
    ],
)
def test_folders_that_are_no_partitions_are_refused(lake: Lake, where: str) -> None:
    assert "no file of a partition" in refused(lake, arrow(EVENTS, [event(1)]), where)


@pytest.mark.parametrize("hour", ["24", "01", "-1", "x", ""])
def test_hours_that_are_none_are_refused(lake: Lake, hour: str) -> None:
    with lake.lock():
        staging = lake.tables.staging(BATCH)
        change = stage(staging, ATTEMPTS, {("2026-11-16", hour): [attempt(1)]}, HOURS)
        with pytest.raises(JobyardError, match="no file of a partition"):
            lake.tables.commit(BATCH, [change])


def test_columns_that_do_not_fit_are_refused(lake: Lake) -> None:
    rows = arrow(EVENTS, [event(1)])
    assert "['letter_seq']" in refused(lake, rows.drop_columns(["letter_seq"]))
    assert "['date']" in refused(lake, rows.append_column("date", pa.array(["2026-11-16"])))
    words = rows.set_column(1, "seq", pa.array(["one"]))
    assert "column seq" in refused(lake, words)


def test_rows_outside_the_range_of_the_batch_are_refused(lake: Lake) -> None:
    assert "after 0 up to 10" in refused(lake, arrow(EVENTS, [event(1), event(11)]))
    assert "no seq" in refused(lake, arrow(EVENTS, [event(1) | {"seq": None}]))


def test_a_staged_file_that_cannot_be_read_is_refused(lake: Lake) -> None:
    with lake.lock():
        staging = lake.tables.staging(BATCH)
        change = stage(staging, EVENTS, {DAY: [event(1)]})
        path = next(change.staged.rglob("*.parquet"))
        path.write_bytes(path.read_bytes()[:-20])
        with pytest.raises(JobyardError) as fault:
            lake.tables.commit(BATCH, [change])
    assert fault.value.code == Code.BAD_BATCH


def test_rows_for_a_partition_that_is_not_replaced_are_refused(lake: Lake) -> None:
    with lake.lock():
        rows = {each: [attempt(1)] for each in HOURS}
        change = stage(lake.tables.staging(BATCH), ATTEMPTS, rows, HOURS[:1])
        with pytest.raises(JobyardError, match="not replaced"):
            lake.tables.commit(BATCH, [change])


def test_tables_that_are_not_of_the_lake_or_change_twice_are_refused(lake: Lake) -> None:
    with lake.lock():
        change = stage(lake.tables.staging(BATCH), EVENTS, {DAY: [event(1)]})
        other = change._replace(table=EVENTS._replace(name="others"))
        for changes in ([other], [change, change]):
            with pytest.raises(JobyardError, match="no table"):
                lake.tables.commit(BATCH, changes)
        elsewhere = lake.folder.parent / "elsewhere"
        write(elsewhere, EVENTS, {DAY: [event(1)]})
        with pytest.raises(JobyardError, match="not in the lake"):
            lake.tables.commit(BATCH, [Change(EVENTS, elsewhere, None)])


def test_other_kinds_of_the_same_types_are_made_into_ours(lake: Lake) -> None:
    """Times of 96 bits, as Spark writes them by default, have no statistics."""
    times = [datetime(2026, 11, 16, 1, tzinfo=UTC)]
    rows = arrow(EVENTS, [event(1)]).set_column(
        2, "ts", pa.array(times, pa.timestamp("ns", tz="UTC"))
    )
    rows = rows.set_column(5, "job_id", pa.array([7], pa.int32()))
    with lake.lock():
        staged = lake.tables.staging(BATCH) / "events"
        (staged / "date=2026-11-16").mkdir(parents=True)
        path = staged / "date=2026-11-16" / "part-0.parquet"
        pq.write_table(rows, path, use_deprecated_int96_timestamps=True)
        lake.tables.commit(BATCH, [Change(EVENTS, staged, None)])
    ((_, made),) = lake.tables.files(EVENTS)
    assert pq.read_schema(made).equals(arrow_schema(EVENTS))
    assert read(lake.tables, EVENTS)[0]["ts"] == times[0]
    assert lake.tables.partitions(EVENTS)[DAY].least["ts"] == int(times[0].timestamp()) * 10**6


def test_a_large_partition_is_several_files_in_one_step(lake: Lake) -> None:
    lake.tables.part_bytes_max = 20_000
    for number, jobs in enumerate((3, 400, 2, 0, 300)):
        batch = Batch(YARD, number, number + 1)
        rows = {HOURS[0]: [attempt(job, run_ms=number) for job in range(jobs)]}
        with lake.lock():
            change = stage(lake.tables.staging(batch), ATTEMPTS, rows, HOURS[:1], files=4)
            lake.tables.commit(batch, [change])
        assert [row["run_ms"] for row in read(lake.tables, ATTEMPTS)] == [number] * jobs
    names = [path.name for _, path in lake.tables.files(ATTEMPTS)]
    assert len(names) > 1
    assert all(name.startswith("all-5-") for name in names)


class PlainDisk(Disk):
    """A file system without exchanges, such as NFS."""

    def exchange(self, one: Path, other: Path) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), str(one), None, str(other))


def test_without_exchanges_a_large_partition_is_one_file(memory: Path) -> None:
    lake = opening.open_lake(memory / "lake", disk=PlainDisk())
    lake.tables.part_bytes_max = 20_000
    for number in range(2):
        batch = Batch(YARD, number, number + 1)
        rows = {HOURS[0]: [attempt(job, run_ms=number) for job in range(400)]}
        with lake.lock():
            change = stage(lake.tables.staging(batch), ATTEMPTS, rows, HOURS[:1], files=4)
            lake.tables.commit(batch, [change])
        assert [row["run_ms"] for row in read(lake.tables, ATTEMPTS)] == [number] * 400
    assert [path.name for _, path in lake.tables.files(ATTEMPTS)] == ["all.parquet"]
    with pytest.raises(JobyardError, match="change places") as fault:
        compact(lake, datetime(2026, 12, 1, tzinfo=UTC))
    assert fault.value.code == Code.BAD_LAKE
    # A lake that came from another file system.
    more = opening.open_lake(memory / "lake")
    more.tables.part_bytes_max = 1
    with more.lock():
        change = stage(more.tables.staging(Batch(YARD, 2, 3)), ATTEMPTS, rows, HOURS[:1], files=2)
        more.tables.commit(Batch(YARD, 2, 3), [change])
    with lake.lock():
        change = stage(lake.tables.staging(Batch(YARD, 3, 4)), ATTEMPTS, rows, HOURS[:1])
        with pytest.raises(JobyardError, match="change places"):
            lake.tables.commit(Batch(YARD, 3, 4), [change])
    assert lake.tables.position(YARD) == 3
