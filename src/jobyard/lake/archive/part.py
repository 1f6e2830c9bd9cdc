"""One file of an archive while it is written: a Parquet file under a name that readers pass over.

Row groups have at most 65,536 rows or 16 MiB, so that a reader of a few rows reads little. A file
never grows beyond its limit: what may not fit begins another one. `place` gives a file its name,
after it is durable.
"""

import os
from pathlib import Path
from typing import Final, NamedTuple, final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from jobyard.lake.archive.blocks import SummingFile, encode_sums
from jobyard.lake.archive.checksum import RowsChecksum
from jobyard.lake.archive.footer import SCHEMA_VERSION, Footer
from jobyard.lake.archive.index import FileEntry, Gap, sync_folder
from jobyard.lake.archive.names import PART, file_name

FILE_BYTES: Final = 128 << 20
GROUP_BYTES: Final = 16 << 20
GROUP_ROWS: Final = 64 << 10
# Of rows that do not compress, and of what the footer says of a column in a group.
_GROWTH: Final = 1.02
_NOTE_BYTES: Final = 400
_DELTA: Final = "DELTA_BINARY_PACKED"
# Rising numbers, which take a byte each as differences.
_RISING: Final = ("seq", "ts")
# Different in every row, so a dictionary would be made in vain.
_UNIQUE: Final = frozenset({*_RISING, "value"})


class Begin(NamedTuple):
    """Where a file begins: the first three belong to all files of a life."""

    topic: str
    incarnation: str
    schema: pa.Schema
    day: int
    after_seq: int
    gap: Gap | None


@final
class PartFile:
    """A file that is being written."""

    def __init__(self, folder: Path, begin: Begin, bytes_max: int = FILE_BYTES) -> None:
        self.begin = begin
        self._folder = folder
        self._bytes_max = bytes_max
        self._group_bytes = min(GROUP_BYTES, bytes_max // 4)
        self._checksum = RowsChecksum(begin.schema.names)
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = self._waiting_rows = 0
        self._groups: list[int] = []
        self._ts_min: int | None = None
        self._ts_max = 0
        self.rows = 0
        self.last_seq = begin.after_seq
        self._file = (folder / PART).open("wb")
        self._sink = SummingFile(self._file)
        names = begin.schema.names
        self._writer = pq.ParquetWriter(
            pa.PythonFile(self._sink, mode="w"),
            begin.schema,
            compression="zstd",
            use_dictionary=[name for name in names if name not in _UNIQUE],
            column_encoding=dict.fromkeys(_RISING, _DELTA),
        )

    def abandon(self) -> None:
        """Leave the file; the next one takes its place."""
        # A writer that is collected later would write into a closed file.
        self._writer.is_open = False
        self._file.close()

    def has_room(self, rows: pa.RecordBatch) -> bool:
        """Return whether rows surely fit; a file takes at least one batch."""
        if self.rows == 0:
            return True
        columns = len(self.begin.schema)
        groups = len(self._groups) + 2
        coming = (self._waiting_bytes + rows.nbytes) * _GROWTH
        footer = (groups + 2) * columns * _NOTE_BYTES + len(rows.schema.to_string())
        return bool(self._sink.size + coming + footer + 4096 <= self._bytes_max)

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows, all of them of the file's day."""
        self._checksum.add(rows)
        self._waiting.append(rows)
        self._waiting_bytes += rows.nbytes
        self._waiting_rows += rows.num_rows
        self.rows += rows.num_rows
        self.last_seq = rows.column("seq")[-1].as_py()
        times = pc.min_max(rows.column("ts").cast(pa.int64()))
        least, most = times["min"].as_py(), times["max"].as_py()
        self._ts_min = least if self._ts_min is None else min(self._ts_min, least)
        self._ts_max = max(self._ts_max, most)
        if self._waiting_bytes >= self._group_bytes or self._waiting_rows >= GROUP_ROWS:
            self._write_group()

    def finish(self, to_seq: int) -> FileEntry:
        """Make the file durable and return what it is; it has no name yet."""
        assert self.rows > 0, "a file has rows"
        self._write_group()
        begin = self.begin
        checksum = self._checksum.text()
        footer = Footer(
            begin.topic, begin.incarnation, begin.after_seq, to_seq, self.rows, checksum,
            SCHEMA_VERSION, begin.gap,
        )  # fmt: skip
        self._writer.add_key_value_metadata(footer.fields())
        self._writer.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return FileEntry(
            name=file_name(begin.day, begin.incarnation, begin.after_seq, to_seq),
            incarnation=begin.incarnation,
            after_seq=begin.after_seq,
            to_seq=to_seq,
            rows=self.rows,
            bytes=self._sink.size,
            ts_min=self._ts_min or 0,
            ts_max=self._ts_max,
            checksum=checksum,
            blocks=encode_sums(self._sink.sums()),
            groups=tuple(self._groups),
            gap=begin.gap,
        )

    def place(self, entry: FileEntry) -> None:
        """Give the file its name, durably."""
        path = self._folder / entry.name
        if not path.parent.is_dir():
            path.parent.mkdir()
            sync_folder(self._folder)
        (self._folder / PART).rename(path)
        sync_folder(path.parent)

    def _write_group(self) -> None:
        if not self._waiting:
            return
        table = pa.Table.from_batches(self._waiting, self.begin.schema)
        self._writer.write_table(table, row_group_size=table.num_rows)
        self._groups.append(self.last_seq)
        self._waiting = []
        self._waiting_bytes = self._waiting_rows = 0
