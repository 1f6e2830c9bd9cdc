"""Rows of an archive, for readers: by life, range and columns, and where a time begins.

Every block that is read is checked against the list of files. What is damaged or missing raises,
and is never passed over.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from jobyard.lake.archive.blocks import CheckedFile, decode_sums
from jobyard.lake.archive.faults import damaged
from jobyard.lake.archive.index import FileEntry, IndexFile, TopicIndex, topic_of
from jobyard.lake.archive.names import INDEX

BATCH_ROWS: Final = 16 << 10


@final
class Archive:
    """The files of one topic. Cheap to make, and may be used while the archiver writes."""

    def __init__(self, folder: str | Path, topic: str) -> None:
        self.topic = topic
        self._file = IndexFile(Path(folder).absolute(), topic)

    @property
    def path(self) -> Path:
        """Return the folder of the topic."""
        return self._file.folder

    def index(self) -> TopicIndex:
        """Return the list of files as it is now."""
        return self._file.load()

    def rows(
        self, entry: FileEntry, after_seq: int, to_seq: int, columns: Sequence[str] = ()
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file after a seq and up to another, in order.

        A column that the file does not have, because it is older, is left out.
        """
        if after_seq >= to_seq or not entry.after_seq - 1 <= to_seq:
            return
        with opened(self.path, entry) as file:
            names = [name for name in columns or file.schema_arrow.names
                     if name in file.schema_arrow.names]  # fmt: skip
            before = entry.after_seq
            for group, last in enumerate(entry.groups):
                if last > after_seq and before < to_seq:
                    is_whole = after_seq <= before and last <= to_seq
                    yield from _group(file, group, names, None if is_whole else (after_seq, to_seq))
                before = last

    def first_at(self, ts_us: int) -> tuple[str, int] | None:
        """Return life and seq of the first row at or after a time; None if there is none."""
        for entry in self.index().files:
            if entry.ts_max < ts_us:
                continue
            for rows in self.rows(entry, entry.after_seq, entry.to_seq, ("seq", "ts")):
                times = rows.column("ts").cast(pa.int64())
                at = pc.index(pc.greater_equal(times, ts_us), value=True).as_py()
                if at >= 0:
                    return entry.incarnation, rows.column("seq")[at].as_py()
        return None


def archived_topics(folder: Path) -> list[str]:
    """Return the topics that an archive has, by the names of their folders and lists."""
    found = []
    for path in sorted(folder.glob("topic=*")):
        text = path.name.removeprefix("topic=")
        topic = topic_of(path / INDEX) if "~" in text else unquote(text)
        if (path / INDEX).is_file():
            found.append(topic)
    return found


class opened:  # noqa: N801  used as a function is
    """Open a file of an archive, its first and last block checked, until `with` ends."""

    def __init__(self, folder: Path, entry: FileEntry) -> None:
        self._path = folder / entry.name
        self._file = CheckedFile(self._path, entry.bytes, decode_sums(entry.blocks))
        self._entry = entry

    def __enter__(self) -> pq.ParquetFile:
        try:
            self._file.check_edges()
            found = pq.ParquetFile(pa.PythonFile(self._file, mode="r"), pre_buffer=True)
        except pa.ArrowException as fault:
            self._file.close()
            raise damaged(self._path, f"is not a Parquet file: {fault}") from None
        except BaseException:
            self._file.close()
            raise
        if found.metadata.num_row_groups != len(self._entry.groups):
            self._file.close()
            raise damaged(self._path, "has another number of row groups")
        return found

    def __exit__(self, *_: object) -> None:
        self._file.close()


def _group(
    file: pq.ParquetFile, group: int, names: Sequence[str], bounds: tuple[int, int] | None
) -> Iterator[pa.RecordBatch]:
    wanted = list(names) if bounds is None or "seq" in names else [*names, "seq"]
    table = file.read_row_group(group, columns=wanted, use_threads=False)
    if bounds is not None:
        seqs = table.column("seq")
        first = _count_to(seqs, bounds[0])
        table = table.slice(first, _count_to(seqs, bounds[1]) - first).select(list(names))
    yield from table.to_batches(max_chunksize=BATCH_ROWS)


def _count_to(seqs: pa.ChunkedArray, seq: int) -> int:
    """Return how many of some rising seqs are at most this one."""
    count: int = pc.sum(pc.less_equal(seqs, seq)).as_py()
    return count
