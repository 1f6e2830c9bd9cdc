"""What a format of tables must be able to do: find files, and take a batch as a whole.

Three formats implement it: bare Parquet, Delta and Iceberg. A run of the pipeline stages Parquet
files of all tables that change, by partition, and then commits them under the number of its
last event; one conformance suite tests all three.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from jobyard.lake.schemas import TableSchema

# The values of the columns that a table is partitioned by, as they are in the names of folders:
# ("2026-11-16", "7").
Partition = tuple[str, ...]


class PartitionFacts(NamedTuple):
    """What is known of a partition without reading it: from the footers of its files."""

    rows: int
    bytes: int
    # Least and greatest value, nulls left out, of each column of integers or times, as an integer
    # (times in microseconds); absent if all are null.
    least: Mapping[str, int]
    greatest: Mapping[str, int]
    # How many are null, of every column.
    nulls: Mapping[str, int]


class Change(NamedTuple):
    """What a batch does to one table: rows are added, or whole partitions replaced."""

    table: TableSchema
    # Folders `date=2026-11-16/hour=7` with Parquet files of the columns of the table.
    staged: Path
    # None adds the staged rows. Otherwise the content of these partitions is replaced by what is
    # staged for them; a partition without staged rows becomes empty.
    replaced: frozenset[Partition] | None


class Batch(NamedTuple):
    """A range of the history of one yard, and the run of the pipeline that takes it in.

    One that ends where it begins has no events: it only replaces partitions (a backfill), moves no
    position, and is done each time it is committed.
    """

    yard: str
    # After this event, and up to that one.
    from_seq: int
    to_seq: int


class Tables(Protocol):
    """The tables of one lake, in one format."""

    def position(self, yard: str) -> int:
        """Return the last event of a yard that all tables know; 0 for none."""
        ...

    def partitions(self, table: TableSchema) -> Mapping[Partition, PartitionFacts]:
        """Return the partitions of a table that have rows."""
        ...

    def files(
        self, table: TableSchema, partitions: Iterable[Partition] | None = None
    ) -> Sequence[tuple[Partition, Path]]:
        """Return the Parquet files with the rows of these partitions, or of all.

        The columns of the partition are not in the files.
        """
        ...

    def staging(self, batch: Batch) -> Path:
        """Return an empty folder for what a batch stages, which readers of tables pass over.

        Until the commit, or the end of the lock, no compaction removes a file that `files` names.
        Each table has its own folder in it, which is `staged` of its `Change`.
        """
        ...

    def commit(self, batch: Batch, changes: Sequence[Change]) -> None:
        """Let a batch enter all tables, and remember its end as the position.

        Whatever is killed meanwhile, `recover` ends it or undoes it, and the same batch again has
        no effect on a table that has it.
        """
        ...

    def recover(self) -> None:
        """End or undo what a run that was killed has left. Called with the lock held."""
        ...
