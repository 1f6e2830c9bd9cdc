"""How a batch enters the tables of a lake, whatever their format.

Content first, then the intent, then its steps, then the state, which is the last step. So the
position never is ahead of a table, and a commit is done as a whole or not at all. Where files
lie, and what makes them part of a table, is the business of the formats.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from jobyard.lake import intent as intents
from jobyard.lake import names, staged
from jobyard.lake import state as states
from jobyard.lake.disk import Disk, bad_batch, damaged, named_faults
from jobyard.lake.footers import FileFacts, facts_of, sum_of
from jobyard.lake.intent import Intent, Step
from jobyard.lake.locks import SWAP, SwapLock
from jobyard.lake.schemas import TABLES, TableSchema
from jobyard.lake.staged import StagedPart
from jobyard.lake.state import Page, State, YardState
from jobyard.lake.tables import Batch, Change, Partition, PartitionFacts

STAGING: Final = "staging"


class Placing(NamedTuple):
    """How the files of a change get into their places."""

    steps: list[Step]
    # The files that the table has then, by partition and name.
    entered: dict[tuple[Partition, str], FileFacts]


class LedgerTables(ABC):
    """The tables of one lake, with what all formats have in common."""

    def __init__(self, folder: Path, table_format: str, disk: Disk) -> None:
        self.folder = folder
        self.table_format = table_format
        self.manifest = folder / names.MANIFEST
        self.disk = disk
        self.part_bytes_max = staged.PART_BYTES_MAX
        self.swap = SwapLock(self.manifest / SWAP)
        # Of Iceberg: the url of a REST catalogue.
        self.catalogue = ""
        # Whether this process holds the lock of runs.
        self.is_held = False

    # What a format has to say.

    @abstractmethod
    def files(
        self, table: TableSchema, partitions: Iterable[Partition] | None = None
    ) -> Sequence[tuple[Partition, Path]]:
        """Return the files with the rows of these partitions, or of all."""

    @abstractmethod
    def place(
        self, change: Change, parts: Sequence[StagedPart], file_name: str, generation: int
    ) -> Placing:
        """Return how files get into the table; nothing a reader sees changes yet."""

    @abstractmethod
    def place_merged(
        self, table: TableSchema, merged: StagedPart, name: str, old: frozenset[str]
    ) -> list[Step]:
        """Return how a file takes the place of others of its partition."""

    def enter(self, step: Step, intent: Intent) -> None:
        """Let files become part of a table; no effect if they are."""
        message = f"commit {intent.generation} has a step that {step.target} cannot have"
        raise damaged(self.manifest / intents.INTENT, message)

    def bytes_max_of_part(self, change: Change) -> int:
        """Return how large a file of this change should be at most."""
        return names.SEQ_MAX if change.replaced is None else self.part_bytes_max

    # What every format does in the same way.

    def state(self) -> State:
        """Return what the lake remembers."""
        path = self.manifest / states.STATE
        return states.read_state(path) if path.exists() else self.empty()

    def empty(self) -> State:
        """Return the state of a new lake."""
        return states.empty(self.table_format, self.catalogue)

    def position(self, yard: str) -> int:
        """Return the last event of a yard that all tables know; 0 for none."""
        known = self.state().yards.get(yard)
        return known.seq if known is not None else 0

    def partitions(self, table: TableSchema) -> Mapping[Partition, PartitionFacts]:
        """Return the partitions of a table that have rows."""
        pages: dict[str, Page] = {}
        found = []
        for partition, path in self.files(table):
            day = partition[0]
            if day not in pages:
                pages[day] = self.page(table, day)
            found.append(
                (partition, self._facts(table, path, pages[day].get((partition, path.name))))
            )
        return grouped(table, found)

    def _facts(self, table: TableSchema, path: Path, known: FileFacts | None) -> FileFacts:
        """Return the facts of a file: those that are known, if the file is as it was then."""
        status = path.stat()
        if known and (known.size, known.mtime_ns) == (status.st_size, status.st_mtime_ns):
            return known
        found = facts_of(path, table)
        if found is None:
            raise damaged(path, "its footer lacks statistics: Jobyard did not write it")
        return found

    def check_facts(
        self, table: TableSchema, partition: Partition, path: Path, found: FileFacts | None
    ) -> None:
        """Refuse a file whose footer is not what the manifest says."""
        known = self.page(table, partition[0]).get((partition, path.name))
        if found is None or (known is not None and not found.says_as(known)):
            raise damaged(path, "its footer does not agree with the manifest")

    def has_intent(self) -> bool:
        """Return whether a commit goes on, or was cut off."""
        return (self.manifest / intents.INTENT).exists()

    def page(self, table: TableSchema, day: str) -> Page:
        """Return the files of a day, as the manifest knows them."""
        path = states.page_path(self.manifest, table.name, day)
        return states.read_page(path, table) if path.exists() else {}

    def staging(self, batch: Batch) -> Path:
        """Return an empty folder for what a batch stages; from now on no file is swapped."""
        self._check_held()
        path = self._staging_of(batch)
        with named_faults(self.folder, "staging"):
            self.swap.share()
            self.disk.remove_folder(path)
            self.disk.make_folder(path)
        return path

    def commit(self, batch: Batch, changes: Sequence[Change]) -> None:
        """Let a batch enter all tables, and remember its end as the position."""
        self._check_held()
        path = self._staging_of(names.checked(batch))
        with named_faults(self.folder, "a commit"), self._sharing():
            self.finish()
            state = self.state()
            if not _is_known(state, batch, changes):
                self._begin(batch, changes, state, path)
                self.finish()
            self.disk.remove_folder(path)

    def recover(self) -> None:
        """End what a run that was killed has begun, and remove what it has staged."""
        self._check_held()
        if not self.manifest.is_dir():
            return
        with named_faults(self.folder, "recovery"):
            self.swap.free()
            self.finish_alone()
            self.disk.remove_folder(self.manifest / STAGING)

    def finish_alone(self) -> None:
        """Do all steps of an intent that a process left; wait if it is of one that goes on."""
        if self.has_intent():
            with self.swap.alone():
                self.finish()

    def finish(self) -> None:
        """Do all steps of the intent, if there is one. Called with a part in the swap lock."""
        intent = intents.read_intent(self.folder)
        if intent is None:
            return
        if intent.generation > self.state().generation:
            *steps, last = intent.steps
            for step in steps:
                self._do(step, intent)
            for folder in sorted({(self.folder / step.target).parent for step in steps}):
                if folder.is_dir():
                    self.disk.sync(folder)
            self._do(last, intent)
            self.disk.sync(self.manifest)
        self.disk.remove(self.manifest / intents.INTENT)
        self.disk.sync(self.manifest)

    def write_intent(self, steps: Sequence[Step], state: State, yard: str, to_seq: int) -> None:
        """Write down what is to be done; `state` is what the lake remembers then."""
        new = self.manifest / f"{states.STATE}.new"
        self.disk.write(new, states.state_text(state))
        self.disk.sync(self.manifest)
        last = Step(intents.RENAME, self.relative(new), self.relative(self.manifest / states.STATE))
        intent = Intent(state.generation, yard, to_seq, (*steps, last))
        intents.write_intent(self.disk, self.folder, intent)

    def swap_merged(
        self, table: TableSchema, merged: StagedPart, name: str, old: frozenset[str]
    ) -> bool:
        """Let a file take the place of others; False if they are not those of the table."""
        day = merged.partition[0]
        with named_faults(self.folder, "a compaction"), self.swap.alone():
            self.finish()
            state = self.state()
            gone = {(merged.partition, each) for each in old}
            if not gone <= self.page(table, day).keys():
                return False
            steps = self.place_merged(table, merged, name, old)
            pages, counts = self.page_steps(table, gone, {(merged.partition, name): merged.facts})
            days = {each: dict(known) for each, known in state.days.items()}
            days[table.name] |= counts
            new = state._replace(generation=state.generation + 1, days=days)
            self.write_intent([*steps, *pages], new, "", 0)
            self.finish()
            return True

    def page_steps(
        self,
        table: TableSchema,
        gone: Iterable[tuple[Partition, str]],
        entered: Mapping[tuple[Partition, str], FileFacts],
    ) -> tuple[list[Step], dict[str, int]]:
        """Return the steps that renew the pages of a table, and the number of files per day."""
        left = set(gone)
        steps = []
        counts = {}
        for day in sorted({partition[0] for partition, _ in (*left, *entered)}):
            path = states.page_path(self.manifest, table.name, day)
            old = self.page(table, day)
            page = {key: facts for key, facts in old.items() if key not in left}
            page |= {key: facts for key, facts in entered.items() if key[0][0] == day}
            counts[day] = len(page)
            if page:
                self.disk.make_folder(path.parent)
                self.disk.write(path.with_suffix(".new"), states.page_text(table, page))
                self.disk.sync(path.parent)
                source = self.relative(path.with_suffix(".new"))
                steps.append(Step(intents.RENAME, source, self.relative(path)))
            else:
                steps.append(Step(intents.REMOVE, target=self.relative(path)))
        return steps, counts

    def relative(self, path: Path) -> str:
        """Return a path as the manifest writes it."""
        try:
            return str(path.absolute().relative_to(self.folder.absolute()))
        except ValueError:
            raise bad_batch(f"{path} is not in the lake: use the folder of `staging`") from None

    def known_files(self, table: TableSchema, days: Iterable[str]) -> set[tuple[Partition, str]]:
        """Return the files of some days that the manifest knows."""
        return {key for day in days for key in self.page(table, day)}

    def _begin(self, batch: Batch, changes: Sequence[Change], state: State, path: Path) -> None:
        taken = {name: each.label for name, each in state.yards.items()}
        label = taken.get(batch.yard) or names.label_of(batch.yard, taken.values())
        generation = state.generation + 1
        days = {name: dict(each) for name, each in state.days.items()}
        versions = dict(state.versions)
        steps: list[Step] = []
        for change in _checked(changes):
            table = change.table
            ready = path / "ready" / table.name
            parts = staged.parts(self.disk, change, ready, self.bytes_max_of_part(change))
            if change.replaced is None:
                _check_range(batch, table, parts)
            if not parts and not change.replaced:
                continue
            file_name = names.range_file(label, batch.from_seq, batch.to_seq)
            placing = self.place(change, parts, file_name, generation)
            replaced = change.replaced or frozenset()
            known = self.known_files(table, {each[0] for each in replaced})
            gone = {key for key in known if key[0] in replaced}
            pages, counts = self.page_steps(table, gone, placing.entered)
            steps += placing.steps
            steps += pages
            kept = days.get(table.name, {}) | counts
            days[table.name] = {day: count for day, count in sorted(kept.items()) if count}
            versions[table.name] = table.version
        yards = dict(state.yards)
        has_events = batch.to_seq > batch.from_seq
        if has_events:
            yards[batch.yard] = YardState(batch.to_seq, label)
        new = State(self.table_format, generation, versions, yards, days, state.catalogue)
        for folder in (path, *path.rglob("*")):
            if folder.is_dir():
                self.disk.sync(folder)
        told = (batch.yard, batch.to_seq) if has_events else ("", 0)
        self.write_intent(steps, new, *told)

    def _do(self, step: Step, intent: Intent) -> None:
        if step.act == intents.ENTER:
            self.enter(step, intent)
        else:
            intents.do_step(self.disk, self.folder, step)

    def _staging_of(self, batch: Batch) -> Path:
        names.checked(batch)
        name = f"{names.label_of(batch.yard, ())}-{batch.from_seq}-{batch.to_seq}"
        return self.manifest / STAGING / name

    def _check_held(self) -> None:
        assert self.is_held, "only the run that holds the lock of a lake may change it"

    @contextmanager
    def _sharing(self) -> Iterator[None]:
        self.swap.share()
        try:
            yield
        finally:
            self.swap.free()


def grouped(
    table: TableSchema, files: Iterable[tuple[Partition, FileFacts]]
) -> dict[Partition, PartitionFacts]:
    """Return the facts of partitions from those of their files."""
    by_partition: dict[Partition, list[FileFacts]] = {}
    for partition, facts in files:
        by_partition.setdefault(partition, []).append(facts)
    return {each: sum_of(table, found) for each, found in sorted(by_partition.items())}


def _is_known(state: State, batch: Batch, changes: Sequence[Change]) -> bool:
    """Return whether the tables have a batch, or refuse one that does not follow."""
    known = state.yards.get(batch.yard)
    if batch.from_seq == batch.to_seq:
        if any(change.replaced is None for change in changes):
            raise bad_batch("a batch without events cannot add rows, only replace partitions")
        return False
    if known is None or batch.from_seq >= known.seq:
        return False
    if batch.to_seq <= known.seq:
        return True
    raise bad_batch(
        f"a batch after {batch.from_seq} up to {batch.to_seq} overlaps: "
        f"the tables know all up to {known.seq}"
    )


def _checked(changes: Sequence[Change]) -> Sequence[Change]:
    """Return changes of which each is of a known table, and none of the same."""
    seen = set()
    for change in changes:
        table = change.table
        if TABLES.get(table.name) != table or table.name in seen:
            raise bad_batch(f"{table.name[:80]!r} is no table of the lake, or changes twice")
        seen.add(table.name)
        for partition in change.replaced or ():
            if not names.is_partition(table, partition):
                raise bad_batch(f"{table.name} has no partition {partition}")
    return changes


def _check_range(batch: Batch, table: TableSchema, parts: Sequence[StagedPart]) -> None:
    if "seq" not in table.names():
        return
    for part in parts:
        least, greatest = part.facts.least.get("seq"), part.facts.greatest.get("seq")
        if least is None or greatest is None or part.facts.nulls["seq"]:
            raise bad_batch(f"{table.name}: a row has no seq")
        if least <= batch.from_seq or greatest > batch.to_seq:
            raise bad_batch(
                f"{table.name}: rows {least} to {greatest} are staged for the batch "
                f"after {batch.from_seq} up to {batch.to_seq}"
            )
