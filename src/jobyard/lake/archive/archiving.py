"""Copies a log, or the history of jobs, from a yard to files, and holds what is not copied yet.

A file counts once the list of files names it. The order is: the file is durable, gets its name, the
list is replaced, and only then the cursor moves. So retention passes nothing that is not archived,
and a process that is killed anywhere leaves a folder that is right; the next one goes on behind the
last file. Knows nothing of Spark.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, final

import pyarrow as pa
import pyarrow.compute as pc

from jobyard.client import Answer, JobyardError, YardClient
from jobyard.client.calls import topic_path
from jobyard.client.errors import Code, bad_option
from jobyard.lake.archive.exact import LOG_COLUMNS, ExactRange, RowsGone
from jobyard.lake.archive.faults import damaged, differs, not_written
from jobyard.lake.archive.index import FileEntry, Gap, IndexFile, TopicIndex, sync_folder
from jobyard.lake.archive.lock import ArchiveLock
from jobyard.lake.archive.names import DAY_US, EVENTS_TOPIC, SUFFIX, check_topic
from jobyard.lake.archive.part import FILE_BYTES, Begin, PartFile
from jobyard.lake.archive.verifying import check_file, entry_of

_LOG: Final = logging.getLogger("jobyard.archive")
CURSOR: Final = "archive"
FILE_BYTES_MIN: Final = 64 << 10
CLOSE_AFTER_S: Final = 600.0
_RETRIES_MAX: Final = 5
_PASSING: Final = frozenset({Code.CUT_OFF, Code.UNREACHABLE})


class ArchiveRules(NamedTuple):
    """How a topic is archived."""

    # The cursor in the topic that holds what is not archived. Each folder needs its own.
    cursor: str = CURSOR
    file_bytes: int = FILE_BYTES
    # Of a run that goes on: how long records wait for others to fill a file with.
    close_after_s: float = CLOSE_AFTER_S
    # Whether records that are gone before they could be copied become a gap with a name.
    allow_gaps: bool = False


class Archived(NamedTuple):
    """What a pass over a topic has copied."""

    topic: str
    incarnation: str
    # The last number that the archive has.
    to_seq: int
    rows: int
    files: int
    bytes: int
    gaps: tuple[Gap, ...]


def archive(
    client: YardClient, topic: str, folder: str | Path, rules: ArchiveRules | None = None
) -> Archived:
    """Copy everything that is there by now, and return what was copied."""
    with Archiver(client, topic, folder, rules) as archiver:
        return archiver.run_once()


def keep_archiving(
    client: YardClient,
    topic: str,
    folder: str | Path,
    rules: ArchiveRules | None = None,
    *,
    every_s: float,
    stopped: threading.Event,
    report: Callable[[Archived], object] = lambda _: None,
) -> None:
    """Copy every few seconds what fills a file or has waited long enough, until `stopped` is set.

    A server that is away for a while is waited for. At the end everything that is there is copied.
    """
    with Archiver(client, topic, folder, rules, pause=stopped.wait) as archiver:
        is_last = False
        while not is_last:
            is_last = stopped.is_set()
            try:
                if is_last or archiver.is_due():
                    report(archiver.run_once())
            except JobyardError as error:
                if error.code not in _PASSING or is_last:
                    raise
                _LOG.warning("%s is not archived for now: %s", topic, error.message)
            if not is_last:
                stopped.wait(every_s)


class _Extent(NamedTuple):
    """How far a topic goes."""

    incarnation: str
    earliest_seq: int
    head_seq: int
    mean_size: float


@final
class Archiver:
    """The one archiver of a topic in a folder, from `with` to its end."""

    def __init__(
        self,
        client: YardClient,
        topic: str,
        folder: str | Path,
        rules: ArchiveRules | None = None,
        *,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        self.topic = check_topic(topic)
        self._rules = rules or ArchiveRules()
        if self._rules.file_bytes < FILE_BYTES_MIN:
            raise bad_option("file_bytes", f"a file has at least {FILE_BYTES_MIN} bytes")
        self._client = client
        self._root = Path(folder).absolute()
        self._file = IndexFile(self._root, topic)
        self._lock = ArchiveLock(self._file.folder)
        self._index = TopicIndex(topic)
        self._pause = pause
        # Where the cursor is, as far as this process set it.
        self._held: tuple[str, int] | None = None

    def __enter__(self) -> "Archiver":
        try:
            self._file.folder.mkdir(parents=True, exist_ok=True)
            sync_folder(self._root)
            self._lock.__enter__()
        except OSError as fault:
            raise not_written(self._file.folder, fault) from None
        try:
            self._index = self._recovered()
        except OSError as fault:
            self._lock.__exit__(None, None, None)
            raise not_written(self._file.folder, fault) from None
        except BaseException:
            self._lock.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._lock.__exit__(kind, error, trace)

    def is_due(self) -> bool:
        """Return whether what is there fills a file, or has waited long enough for more."""
        extent = self._extent()
        begin = self._begin(extent)
        self._hold(extent.incarnation, begin)
        if extent.head_seq <= begin:
            return False
        if (extent.head_seq - begin) * extent.mean_size >= self._rules.file_bytes:
            return True
        path = topic_path(self.topic, "cursors", self._rules.cursor)
        lag_ms = self._client.get(path).number_or("lag_ms", 0)
        return lag_ms >= self._rules.close_after_s * 1000

    def run_once(self) -> Archived:
        """Copy everything that is there by now."""
        # Set again, as it may have been removed, or its hold was broken.
        self._held = None
        extent = self._held_extent()
        begin = self._begin(extent)
        copied = _Copy(self, extent.incarnation, begin)
        source = ExactRange(
            self._client,
            self.topic,
            extent.incarnation,
            begin,
            extent.head_seq,
            columns="" if self.topic == EVENTS_TOPIC else LOG_COLUMNS,
            pause=self._pause,
            retries_max=_RETRIES_MAX,
        )
        try:
            self._copy(source, copied)
        except JobyardError as error:
            raise error.within(topic=self.topic) from None
        except OSError as fault:
            raise not_written(self._file.folder, fault) from None
        finally:
            copied.abandon()
        life = self._index.life(extent.incarnation)
        return Archived(
            self.topic,
            extent.incarnation,
            life.to_seq if life is not None else begin,
            copied.rows,
            copied.files,
            copied.bytes,
            tuple(copied.gaps),
        )

    def _copy(self, source: ExactRange, copied: "_Copy") -> None:
        while True:
            try:
                for batch in source.batches():
                    copied.add(batch)
            except RowsGone as gone:
                if not self._rules.allow_gaps:
                    raise self._gap_error(gone.gap) from None
                _LOG.warning("%s", self._gap_error(gone.gap).message)
                copied.close(source.reached)
                copied.begin_after(gone.gap)
                source.reached = gone.gap.to_seq
                continue
            copied.close(source.reached)
            return

    def _gap_error(self, gap: Gap) -> JobyardError:
        return JobyardError(
            Code.DATA_LOSS,
            f"records {gap.after_seq + 1} to {gap.to_seq} of {self.topic} were gone before they "
            f"were archived ({gap.reason})",
            option="allow_gaps",
            remedy="With allow_gaps the archive goes on behind them, and its files name the gap.",
            detail={"from": gap.after_seq + 1, "to": gap.to_seq, "why": gap.reason},
        ).within(topic=self.topic)

    def keep(self, part: PartFile, to_seq: int) -> FileEntry:
        """Let a file that is complete become part of the archive, and move the cursor."""
        entry = part.finish(to_seq)
        part.place(entry)
        self._append(entry)
        self._hold(entry.incarnation, entry.to_seq)
        return entry

    def new_part(self, begin: Begin) -> PartFile:
        """Begin a file."""
        return PartFile(self._file.folder, begin, self._rules.file_bytes)

    @property
    def piece_bytes(self) -> int:
        """Return how much of a batch is added to a file at once."""
        return self._rules.file_bytes // 8

    def _append(self, entry: FileEntry) -> None:
        index = self._index.with_file(entry)
        self._file.store(index)
        self._index = index

    def _recovered(self) -> TopicIndex:
        """Return the list of files, with the one that a killed process may have left unlisted."""
        index = self._index = self._file.load()
        listed = {file.name for file in index.files}
        found = sorted(self._file.folder.glob(f"date=*/*{SUFFIX}"))
        unlisted = [path for path in found if f"{path.parent.name}/{path.name}" not in listed]
        if not self._file.path.is_file():
            if found:
                raise damaged(self._file.path, f"is missing, and there are {len(found)} files")
            # Before any file, so that files without a list mean that it was removed.
            self._file.store(index)
        for path in unlisted:
            entry = entry_of(self._file.folder, path, self.topic)
            check_file(self._file.folder, self.topic, entry)
            last = index.lives[-1] if index.lives else None
            is_same = last is not None and last.incarnation == entry.incarnation
            if last is not None and is_same and entry.begin_seq != last.to_seq:
                raise differs(
                    self.topic,
                    f"{path} does not follow the file before it, which ends at {last.to_seq}",
                    "It is from another archive: move it away.",
                )
            if not is_same and index.life(entry.incarnation) is not None:
                raise damaged(path, "is of an earlier life of the topic, and no list names it")
            self._append(entry)
        return self._index

    def _extent(self) -> _Extent:
        answer: Answer = self._client.get(topic_path(self.topic))
        if answer.text("type") != "log":
            raise bad_option("topic", f"{self.topic} is a queue, and only logs are archived")
        head = "head_row_seq" if self.topic == EVENTS_TOPIC else "head_seq"
        count, size = answer.number("count"), answer.number("bytes")
        return _Extent(
            answer.text("incarnation"),
            answer.number("earliest_seq"),
            answer.number(head),
            size / count if count > 0 else 0.0,
        )

    def _held_extent(self) -> _Extent:
        """Return how far the topic goes, once nothing of what is to be copied can leave it."""
        while True:
            extent = self._extent()
            self._hold(extent.incarnation, self._begin(extent))
            again = self._extent()
            if self._begin(again) == self._begin(extent):
                return again

    def _begin(self, extent: _Extent) -> int:
        """Return after which seq there is something to copy."""
        lives = self._index.lives
        if not lives or lives[-1].incarnation != extent.incarnation:
            if self._index.life(extent.incarnation) is not None:
                raise differs(
                    self.topic,
                    f"the archive has a newer life of {self.topic} than the server",
                    "Is this an older copy of the data directory? Archive into another folder.",
                )
            return min(max(extent.earliest_seq - 1, 0), extent.head_seq)
        if lives[-1].to_seq > extent.head_seq:
            raise differs(
                self.topic,
                f"{self.topic} ends at seq {extent.head_seq}, and the archive has it up to "
                f"{lives[-1].to_seq}",
                "Is this an older copy of the data directory? Archive into another folder.",
            )
        return lives[-1].to_seq

    def _hold(self, incarnation: str, seq: int) -> None:
        """Set the cursor, whose hold keeps what follows."""
        if self._held == (incarnation, seq):
            return
        name = self._rules.cursor
        body = {"seq": seq, "incarnation": incarnation, "hold": True}
        try:
            path = topic_path(self.topic, "cursors", name)
            self._client.ask("PUT", path, body, is_repeatable=True)
        except JobyardError as error:
            if error.code == "cursor_behind":
                error.within(
                    remedy="Another archive uses this cursor, or files were removed: give this "
                    "archive another cursor."
                )
            raise error.within(topic=self.topic, option="cursor") from None
        self._held = (incarnation, seq)


@final
class _Copy:
    """The rows of one pass, divided into files."""

    def __init__(self, archiver: Archiver, incarnation: str, after_seq: int) -> None:
        self._archiver = archiver
        self._incarnation = incarnation
        self._after_seq = after_seq
        self._gap: Gap | None = None
        self._part: PartFile | None = None
        self.gaps: list[Gap] = []
        self.rows = 0
        self.files = 0
        self.bytes = 0

    def begin_after(self, gap: Gap) -> None:
        """Let the next file begin behind records that are gone."""
        # Nothing was between two gaps that meet.
        first = gap.after_seq if self._gap is None else self._gap.after_seq
        self._gap = Gap(first, gap.to_seq, gap.reason)
        self._after_seq = gap.to_seq
        self.gaps.append(gap)

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows; a file ends where its day does, or its room."""
        for day, rows in _pieces(batch, self._archiver.piece_bytes):
            part = self._part
            if part is not None and (part.begin.day != day or not part.has_room(rows)):
                self.close(part.last_seq)
                part = None
            if part is None:
                part = self._part = self._archiver.new_part(self._begin(day, rows.schema))
            part.add(rows)
            self.rows += rows.num_rows

    def close(self, to_seq: int) -> None:
        """End the file that is being written, if there is one."""
        part = self._part
        if part is None:
            return
        entry = self._archiver.keep(part, to_seq)
        self._part = None
        self._after_seq = to_seq
        self._gap = None
        self.files += 1
        self.bytes += entry.bytes

    def abandon(self) -> None:
        """Leave what is not complete."""
        if self._part is not None:
            self._part.abandon()

    def _begin(self, day: int, schema: pa.Schema) -> Begin:
        topic = self._archiver.topic
        bare = schema.remove_metadata()
        return Begin(topic, self._incarnation, bare, day, self._after_seq, self._gap)


def _pieces(batch: pa.RecordBatch, size: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield rows of one day each, in order; a clock that is set back may show a day twice.

    Pieces have about this size at most, so that a file need not take more than it may hold.
    """
    if batch.num_rows == 0:
        return
    days = pc.divide(batch.column("ts").cast(pa.int64()), DAY_US)
    runs = pc.run_end_encode(days)
    first = 0
    for end, day in zip(runs.run_ends.to_pylist(), runs.values.to_pylist(), strict=True):
        rows = batch.slice(first, end - first)
        count = max(rows.num_rows * size // max(rows.nbytes, 1), 1)
        for at in range(0, rows.num_rows, count):
            yield day, rows.slice(at, count)
        first = end
