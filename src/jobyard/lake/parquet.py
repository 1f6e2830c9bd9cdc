"""Tables of bare Parquet files, which other programs read by path.

At every moment, and after every kill, a reader by path finds each partition as it was or as it
is: a file that is added appears by one rename, the one file of a partition is replaced by one
rename over it, and several files by one exchange of the folder. What is not done yet lies in
`_manifest`, outside the folders of tables, which change one after the other.

The manifest knows all files, so one that is gone or was changed is an error, never a gap.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple

from jobyard.client.errors import Code, JobyardError
from jobyard.lake import intent as intents
from jobyard.lake import names
from jobyard.lake import state as states
from jobyard.lake.disk import damaged
from jobyard.lake.footers import FileFacts, facts_of
from jobyard.lake.intent import Step
from jobyard.lake.ledger import LedgerTables, Placing, grouped
from jobyard.lake.schemas import TableSchema
from jobyard.lake.staged import StagedPart
from jobyard.lake.state import Page
from jobyard.lake.tables import Change, Partition, PartitionFacts

# How often one who reads while a commit goes on looks again: at one commit, and at many.
_LOOKS: Final = 4
_LOOKS_MAX: Final = 50


class LiveFile(NamedTuple):
    """A file that is there and as the manifest says."""

    partition: Partition
    path: Path
    facts: FileFacts


class ParquetTables(LedgerTables):
    """The tables of a lake of bare Parquet files."""

    def files(
        self, table: TableSchema, partitions: Iterable[Partition] | None = None
    ) -> Sequence[tuple[Partition, Path]]:
        """Return the files of partitions, after a look that each is as the manifest says."""
        return [(each.partition, each.path) for each in self.live(table, partitions)]

    def partitions(self, table: TableSchema) -> Mapping[Partition, PartitionFacts]:
        """Return the partitions of a table that have rows."""
        return grouped(table, ((each.partition, each.facts) for each in self.live(table)))

    def live(
        self, table: TableSchema, partitions: Iterable[Partition] | None = None
    ) -> list[LiveFile]:
        """Return the files of partitions with their facts; a missing one is an error."""
        wanted = None if partitions is None else set(partitions)
        for look in range(_LOOKS_MAX):
            before = self.state().generation, self.has_intent()
            try:
                return self._look(table, wanted)
            except JobyardError as fault:
                # A commit that goes on may have come between the manifest and its files.
                is_same = before == (self.state().generation, self.has_intent())
                is_settled = is_same and (not before[1] or look >= _LOOKS)
                if fault.code != Code.LAKE_DAMAGED or is_settled or look == _LOOKS_MAX - 1:
                    raise
        raise AssertionError("the last look returns or raises")

    def _look(self, table: TableSchema, wanted: set[Partition] | None) -> list[LiveFile]:
        days = self.state().days.get(table.name, {})
        intent = intents.read_intent(self.folder)
        coming = {step.target: step.source for step in intent.steps} if intent else {}
        chosen = set(days) | {
            Path(target).stem for target in coming if Path(target).parent == self._pages_of(table)
        }
        if wanted is not None:
            chosen &= {each[0] for each in wanted}
        found = []
        for day in sorted(chosen):
            path = states.page_path(self.manifest, table.name, day)
            old = self.page(table, day)
            if intent is None and len(old) != days.get(day, 0):
                raise damaged(path, f"the manifest knows {days.get(day, 0)} files of this day")
            new = self._coming_page(table, path, coming) if intent else old
            for key in sorted({*old, *new}):
                if wanted is None or key[0] in wanted:
                    found += self._checked(table, key, (old.get(key), new.get(key)))
        return found

    def _pages_of(self, table: TableSchema) -> Path:
        return Path(self.relative(states.page_path(self.manifest, table.name, "").parent))

    def _coming_page(self, table: TableSchema, path: Path, coming: Mapping[str, str]) -> Page:
        """Return the page as it is after the commit that goes on, or was cut off."""
        target = self.relative(path)
        if target not in coming:
            return self.page(table, path.stem)
        if not coming[target]:
            return {}
        source = self.folder / coming[target]
        return states.read_page(source if source.exists() else path, table)

    def _checked(
        self,
        table: TableSchema,
        key: tuple[Partition, str],
        allowed: tuple[FileFacts | None, FileFacts | None],
    ) -> list[LiveFile]:
        """Return a file that is as it was before or is after a commit; none if it may be gone."""
        partition, name = key
        path = self.path_of(table, partition) / name
        try:
            status = path.stat()
        except FileNotFoundError:
            if None in allowed:
                return []
            raise damaged(path, "the file is gone") from None
        known = [each for each in allowed if each is not None]
        for each in known:
            if (each.size, each.mtime_ns) == (status.st_size, status.st_mtime_ns):
                return [LiveFile(partition, path, each)]
        # A copy of a lake has other times.
        if any(each.size == status.st_size for each in known):
            found = facts_of(path, table)
            for each in known:
                if found is not None and found.says_as(each):
                    return [LiveFile(partition, path, each)]
        raise damaged(path, f"the file was changed: the manifest knows {known[0].size} bytes")

    def path_of(self, table: TableSchema, partition: Partition) -> Path:
        """Return the folder of a partition."""
        return self.folder / table.name / names.folder_of(table, partition)

    def bytes_max_of_part(self, change: Change) -> int:
        """Return how large a file may be: several take the place of others by one exchange."""
        staged = sum(path.stat().st_size for path in change.staged.rglob(f"*{names.SUFFIX}"))
        if change.replaced is None or staged <= self.part_bytes_max or not self.can_exchange:
            return names.SEQ_MAX
        return self.part_bytes_max

    @cached_property
    def can_exchange(self) -> bool:
        """Whether folders can change places in one step here."""
        return self.disk.can_exchange(self.manifest)

    def check_exchange(self) -> None:
        """Refuse a file system where folders cannot change places."""
        if not self.can_exchange:
            raise JobyardError(
                Code.BAD_LAKE,
                f"the file system of {self.folder} cannot let two folders change places",
                option="lake",
                remedy="use another file system (ext4, xfs, btrfs), or Delta or Iceberg",
            )

    def place(
        self, change: Change, parts: Sequence[StagedPart], file_name: str, generation: int
    ) -> Placing:
        """Return how files get into the folders of the table."""
        placing = Placing([], {})
        by_partition: dict[Partition, list[StagedPart]] = {}
        for part in parts:
            by_partition.setdefault(part.partition, []).append(part)
        if change.replaced is None:
            for partition, added in by_partition.items():
                assert len(added) == 1, "rows that are added are one file"
                self._put(placing, change.table, added[0], file_name)
                self.disk.make_folder(self.path_of(change.table, partition))
            return placing
        known = self.known_files(change.table, {each[0] for each in change.replaced})
        for partition in sorted(change.replaced):
            old = sorted(name for other, name in known if other == partition)
            new = by_partition.get(partition, [])
            if new or old:
                self.disk.make_folder(self.path_of(change.table, partition))
                self._replace(placing, change, old, (partition, new), generation)
        return placing

    def _put(self, placing: Placing, table: TableSchema, part: StagedPart, name: str) -> None:
        target = self.path_of(table, part.partition) / name
        placing.entered[part.partition, name] = part.facts
        placing.steps.append(Step(intents.RENAME, self.relative(part.path), self.relative(target)))

    def _replace(
        self,
        placing: Placing,
        change: Change,
        old: Sequence[str],
        new: tuple[Partition, Sequence[StagedPart]],
        generation: int,
    ) -> None:
        partition, parts = new
        target = self.path_of(change.table, partition)
        is_one = not old or (len(old) == 1 and names.range_of(old[0]) is None)
        if is_one and len(parts) == 1:
            self._put(placing, change.table, parts[0], old[0] if old else names.whole_file())
        elif len(old) == 1 and not parts:
            placing.steps.append(Step(intents.REMOVE, target=self.relative(target / old[0])))
        else:
            self.check_exchange()
            folder = change.staged.parent / "swap" / change.table.name / str(len(placing.steps))
            self.disk.make_folder(folder)
            entered = []
            for number, part in enumerate(parts):
                entered.append(names.whole_file(generation, number))
                self.disk.rename(part.path, folder / entered[-1])
                placing.entered[partition, entered[-1]] = part.facts
            self.disk.sync(folder)
            placing.steps.append(self.exchange_step(folder, target, entered))

    def exchange_step(self, source: Path, target: Path, entered: Sequence[str]) -> Step:
        """Return the step that lets a folder take the place of a partition's."""
        # An empty folder is in its place if it is gone from where it was.
        return Step(intents.EXCHANGE, self.relative(source), self.relative(target), tuple(entered))

    def place_merged(
        self, table: TableSchema, merged: StagedPart, name: str, old: frozenset[str]
    ) -> list[Step]:
        """Return how a file takes the place of others: with a new folder for the partition.

        It has second names of the files that stay, so one exchange takes away the old ones and
        brings the new one.
        """
        target = self.path_of(table, merged.partition)
        folder = merged.path.with_suffix(".folder")
        self.disk.remove_folder(folder)
        self.disk.make_folder(folder)
        for partition, each in sorted(self.page(table, merged.partition[0])):
            if partition == merged.partition and each not in old:
                self.disk.link(target / each, folder / each)
        self.disk.rename(merged.path, folder / name)
        self.disk.sync(folder)
        return [Step(intents.EXCHANGE, self.relative(folder), self.relative(target), (name,))]
