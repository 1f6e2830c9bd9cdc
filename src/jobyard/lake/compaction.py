"""Fewer and larger files: bronze files of closed days are merged, and old snapshots forgotten.

May go on beside a run. Rows are merged without a lock that a run needs, since nobody but a
compaction removes a bronze file. For the swap it waits until the run is between two batches and
no reader that Jobyard knows reads (`swap` of `locks`). A day changes in one step; a reader by path
that has listed the old files gets an error for a file that is gone, never rows twice.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

from jobyard.client.errors import Code, JobyardError, bad_option
from jobyard.lake import names, staged
from jobyard.lake.disk import named_faults
from jobyard.lake.locks import COMPACTING, held
from jobyard.lake.opening import Lake
from jobyard.lake.parquet import ParquetTables
from jobyard.lake.schemas import EVENTS, TABLES
from jobyard.lake.snapshots import SnapshotTables
from jobyard.lake.staged import StagedPart
from jobyard.lake.tables import Partition

_MERGED: Final = "merged"
_KEEP_MIN: Final = timedelta(hours=1)


class Compacted(NamedTuple):
    """What a compaction did."""

    days: int
    files_before: int
    files_after: int
    rows: int


class _Bronze(NamedTuple):
    label: str
    from_seq: int
    to_seq: int
    path: Path


def compact(lake: Lake, now: datetime) -> Compacted:
    """Merge the bronze files of days before today; the newest file of each yard stays."""
    tables = lake.tables
    if not tables.manifest.is_dir():
        return Compacted(0, 0, 0, 0)
    done = Compacted(0, 0, 0, 0)
    folder = tables.manifest / _MERGED
    with (
        held(tables.manifest / COMPACTING, "a compaction"),
        named_faults(lake.folder, "a compaction"),
    ):
        if isinstance(tables, ParquetTables):
            tables.check_exchange()
        tables.finish_alone()
        for partition, files in _closed(lake, now.astimezone(UTC).date().isoformat()):
            groups = list(_groups(files, tables.part_bytes_max))
            rows = [_merge(lake, partition, group, folder) for group in groups]
            tables.disk.remove_folder(folder)
            if rows:
                before = sum(map(len, groups))
                done = Compacted(
                    done.days + 1,
                    done.files_before + before,
                    done.files_after + len(groups),
                    done.rows + sum(rows),
                )
    return done


def _closed(lake: Lake, today: str) -> Iterator[tuple[Partition, list[_Bronze]]]:
    """Yield the days before today, with their files but the newest of each yard."""
    by_partition: dict[Partition, list[_Bronze]] = {}
    newest: dict[str, int] = {}
    for partition, path in lake.tables.files(EVENTS):
        found = names.range_of(path.name)
        if found is not None:
            one = _Bronze(*found, path)
            by_partition.setdefault(partition, []).append(one)
            newest[one.label] = max(newest.get(one.label, 0), one.to_seq)
    for partition, files in sorted(by_partition.items()):
        if partition[0] < today:
            yield partition, sorted(each for each in files if each.to_seq < newest[each.label])


def _groups(files: Sequence[_Bronze], bytes_max: int) -> Iterator[list[_Bronze]]:
    """Yield files of one yard that follow each other and become one of at most that many bytes."""
    group: list[_Bronze] = []
    size = 0
    for each in files:
        own = each.path.stat().st_size
        if group and (group[-1].label != each.label or size + own > bytes_max):
            if len(group) > 1:
                yield group
            group, size = [], 0
        group.append(each)
        size += own
    if len(group) > 1:
        yield group


def _merge(lake: Lake, partition: Partition, group: Sequence[_Bronze], folder: Path) -> int:
    """Let one file take the place of a group; return its rows."""
    tables = lake.tables
    tables.disk.make_folder(folder)
    name = names.range_file(group[0].label, group[0].from_seq, group[-1].to_seq)
    target = folder / f"{name}.staged"
    facts = staged.merge(tables.disk, EVENTS, [each.path for each in group], target)
    part = StagedPart(partition, target, facts)
    old = frozenset(each.path.name for each in group)
    if not tables.swap_merged(EVENTS, part, name, old):
        raise JobyardError(
            Code.LAKE_BUSY,
            f"files of {partition[0]} changed while they were merged",
            option="lake",
            remedy="run the compaction again",
        )
    return facts.rows


def expire(lake: Lake, before: datetime, now: datetime) -> int:
    """Remove files that only snapshots before a moment have; return how many."""
    if now - before < _KEEP_MIN:
        raise bad_option("before", "younger snapshots may be read just now", "at least 1 hour ago")
    tables = lake.tables
    if not isinstance(tables, SnapshotTables) or not tables.manifest.is_dir():
        return 0
    with held(tables.manifest / COMPACTING, "a compaction"), tables.swap.alone():
        removed = 0
        with named_faults(lake.folder, "a compaction"):
            # A commit that was cut off still needs its files.
            tables.finish()
            for table in TABLES.values():
                with tables.faults(f"forgetting old snapshots of {table.name}"):
                    removed += tables.expire_table(table, before)
        return removed
