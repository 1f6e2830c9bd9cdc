"""What Delta and Iceberg have in common: files lie ready, and a commit of the table takes them in.

Files go to their places first, where no reader of the table sees them. Then one commit of the
table adds them, and takes away those of replaced partitions; it bears the number of the lake's
commit, so that it happens once. Each table is a commit of its own: a reader may see the
events of a batch before its attempts.
"""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from jobyard.client.errors import Code, JobyardError
from jobyard.lake import intent as intents
from jobyard.lake import names
from jobyard.lake.disk import damaged
from jobyard.lake.intent import Intent, Step
from jobyard.lake.ledger import LedgerTables, Placing
from jobyard.lake.schemas import TABLES, TableSchema
from jobyard.lake.staged import StagedPart
from jobyard.lake.tables import Change, Partition

_FULL: Final = ("No space left", "os error 28", "Errno 28")

Added = Sequence[tuple[Partition, Path]]


class Leaving(NamedTuple):
    """The files that leave a table with a commit."""

    partitions: frozenset[Partition]
    paths: frozenset[Path]

    def has(self, partition: Partition, path: Path) -> bool:
        """Return whether a file is among them."""
        return partition in self.partitions or path in self.paths


class SnapshotTables(LedgerTables):
    """The tables of a lake in a format with snapshots."""

    @abstractmethod
    def data_folder(self, table: TableSchema) -> Path:
        """Return the folder of the folders of partitions."""

    @abstractmethod
    def log_folder(self, table: TableSchema) -> Path:
        """Return the folder of the log or the metadata of a table."""

    @abstractmethod
    def current(self, table: TableSchema) -> Iterable[tuple[Partition, Path]] | None:
        """Return the files of the newest snapshot; None if there is no such table."""

    @abstractmethod
    def commit_table(
        self, table: TableSchema, added: Added, leaving: Leaving, intent: Intent
    ) -> None:
        """Commit files to a table, unless it has the commit of this intent."""

    @abstractmethod
    def expire_table(self, table: TableSchema, before: datetime) -> int:
        """Forget older snapshots, and remove files that no newer one has; return how many."""

    @abstractmethod
    def faults(self, doing: str) -> AbstractContextManager[None]:
        """Give faults of the library the name of the lake."""

    def files(
        self, table: TableSchema, partitions: Iterable[Partition] | None = None
    ) -> Sequence[tuple[Partition, Path]]:
        """Return the files of the newest snapshot, after a look that each is there."""
        wanted = None if partitions is None else set(partitions)
        with self.faults(f"reading table {table.name}"):
            found = self.current(table)
            if found is None:
                if self.state().days.get(table.name):
                    raise damaged(self.log_folder(table), "the table is gone")
                return []
            chosen = sorted(each for each in found if wanted is None or each[0] in wanted)
        for _, path in chosen:
            if not path.exists():
                raise damaged(path, "the file is gone")
        return chosen

    def place(
        self, change: Change, parts: Sequence[StagedPart], file_name: str, generation: int
    ) -> Placing:
        """Return how files get into the table."""
        table = change.table
        placing = Placing([], {})
        entering = []
        for number, part in enumerate(parts):
            # Files of older snapshots stay, so a name is used once.
            is_added = change.replaced is None
            name = file_name if is_added else names.whole_file(generation, number)
            inner = names.folder_of(table, part.partition)
            self.disk.make_folder(self.data_folder(table) / inner)
            target = self.relative(self.data_folder(table) / inner / name)
            placing.steps.append(Step(intents.RENAME, self.relative(part.path), target))
            placing.entered[part.partition, name] = part.facts
            entering.append(str(inner / name))
        folders = [str(names.folder_of(table, each)) for each in sorted(change.replaced or ())]
        placing.steps.append(
            Step(intents.ENTER, "", table.name, names=tuple(entering), folders=tuple(folders))
        )
        return placing

    def place_merged(
        self, table: TableSchema, merged: StagedPart, name: str, old: frozenset[str]
    ) -> list[Step]:
        """Return how a file takes the place of others of its partition."""
        inner = names.folder_of(table, merged.partition)
        target = self.relative(self.data_folder(table) / inner / name)
        leaving = tuple(str(inner / each) for each in sorted(old))
        return [
            Step(intents.RENAME, self.relative(merged.path), target),
            Step(intents.ENTER, "", table.name, (str(inner / name),), leaving),
        ]

    def enter(self, step: Step, intent: Intent) -> None:
        """Let files become part of a table; no effect if they are."""
        table = TABLES[step.target]
        folder = self.data_folder(table)
        inner = [PurePosixPath(name) for name in step.names]
        added = [(self._partition(table, each.parent), folder / each) for each in inner]
        names_left = [PurePosixPath(each) for each in step.folders]
        leaving = Leaving(
            frozenset(self._partition(table, each) for each in names_left if not each.suffix),
            frozenset(folder / each for each in names_left if each.suffix),
        )
        for parent in sorted({path.parent for _, path in added}):
            self.disk.sync(parent)
        log = self.log_folder(table)
        self.disk.make_folder(log.parent)
        before = set(log.rglob("*"))
        with self.faults(f"a commit of table {table.name}"):
            self.commit_table(table, added, leaving, intent)
        # The libraries leave it to the kernel when it is on the disk.
        for path in sorted(set(log.rglob("*")) - before):
            self.disk.sync(path)
        self.disk.sync(log)

    def _partition(self, table: TableSchema, folder: PurePosixPath) -> Partition:
        partition = names.partition_of(table, folder)
        if partition is None:
            raise damaged(self.manifest / intents.INTENT, f"{folder} is no partition")
        return partition

    def fault(self, doing: str, fault: Exception) -> JobyardError:
        """Return the error for a fault that a library found."""
        text = " ".join(str(fault).split())
        if any(each in text for each in _FULL):
            return JobyardError(
                Code.LAKE_FULL,
                f"the disk of lake {self.folder} is full: {doing} stopped",
                option="lake",
                remedy="free some of it and run again: nothing is half there",
            )
        return damaged(self.folder, f"{doing} failed: {text[:300]}")


def now_ms() -> int:
    """Return the time, as formats of tables write it."""
    return int(datetime.now(UTC).timestamp() * 1000)
