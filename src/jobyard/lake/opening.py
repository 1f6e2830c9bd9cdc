"""A lake and how it is opened: what folder, which format, whose lock.

Opening only reads. A folder that is empty or missing becomes a lake when the lock is taken for
the first time. What cannot be a lake is refused with a named error.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, final

from jobyard.client.errors import Code, JobyardError, bad_option
from jobyard.lake import state as states
from jobyard.lake.disk import Disk, damaged, named_faults
from jobyard.lake.ledger import LedgerTables
from jobyard.lake.locks import RUN, SWAP, Flock, held
from jobyard.lake.names import MANIFEST
from jobyard.lake.parquet import ParquetTables
from jobyard.lake.schemas import TABLES

_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


@final
class Lake:
    """An open lake."""

    def __init__(self, folder: Path, table_format: str, tables: LedgerTables) -> None:
        self.folder = folder
        self.table_format = table_format
        self.tables = tables

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the lake for a run, whose work may begin: what a killed one left is ended."""
        tables = self.tables
        with named_faults(self.folder, "taking the lock"):
            tables.disk.make_folder(tables.manifest)
        with held(tables.manifest / RUN, "a run"):
            tables.is_held = True
            try:
                with named_faults(self.folder, "making the lake"):
                    self._make()
                tables.recover()
                yield
            finally:
                tables.is_held = False
                tables.swap.free()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Keep the files that `files` returns from being swapped by a compaction meanwhile."""
        if not self.tables.manifest.is_dir():
            yield
            return
        with named_faults(self.folder, "reading"):
            lock = Flock(self.tables.manifest / SWAP, to_share=True)
        try:
            lock.take(shared=True)
            yield
        finally:
            lock.close()

    def _make(self) -> None:
        path = self.tables.manifest / states.STATE
        if path.exists():
            # Another program may have made it since this one looked.
            _check_format(self.folder, states.read_state(path).table_format, self.table_format)
            return
        # So that one who may only read finds it.
        Flock(self.tables.manifest / SWAP).close()
        new = path.with_suffix(".new")
        self.tables.disk.write(new, states.state_text(states.empty(self.table_format)))
        self.tables.disk.rename(new, path)
        self.tables.disk.sync(self.tables.manifest)


def open_lake(folder: Path, table_format: str | None = None, *, disk: Disk | None = None) -> Lake:
    """Open a lake; `table_format` has to be the one it has, and is `parquet` for a new one."""
    _check_local(folder, table_format)
    if table_format is not None and table_format not in states.FORMATS:
        raise bad_option(
            "table-format",
            f"{table_format[:40]!r} is no format of tables",
            f"one of {', '.join(states.FORMATS)}",
        )
    found = _format_of(Path(folder))
    if found is not None and table_format is not None:
        _check_format(Path(folder), found, table_format)
    chosen = found or table_format or states.FORMATS[0]
    return Lake(Path(folder), chosen, _tables(Path(folder), chosen, disk or Disk()))


def _tables(folder: Path, table_format: str, disk: Disk) -> LedgerTables:
    if table_format == "parquet":
        return ParquetTables(folder, table_format, disk)
    try:
        if table_format == "delta":
            from jobyard.lake.delta import DeltaTables  # noqa: PLC0415  an optional package

            return DeltaTables(folder, table_format, disk)
        from jobyard.lake.iceberg import IcebergTables  # noqa: PLC0415  likewise

        return IcebergTables(folder, table_format, disk)
    except ModuleNotFoundError as fault:
        raise bad_option(
            "table-format",
            f"tables of {table_format} need {fault.name}",
            f"pip install 'jobyard[{table_format}]'",
        ) from fault


def _check_local(folder: Path, table_format: str | None) -> None:
    text = str(folder)
    if not _URL.match(text):
        return
    if table_format in {None, "parquet"}:
        raise bad_option(
            "lake",
            f"{text[:80]!r}: bare Parquet needs a file system, and an object store is none",
            "use a local folder; object stores need Delta or Iceberg",
        )
    raise bad_option(
        "lake",
        f"{text[:80]!r} is no local folder, and a lake keeps its manifest and locks in one",
        "use a local folder, and copy its tables from there",
    )


def _format_of(folder: Path) -> str | None:
    """Return the format of the lake in a folder, None for none yet, or refuse the folder."""
    with named_faults(folder, "opening"):
        if not folder.exists():
            return None
        if not folder.is_dir():
            raise _bad(folder, "is no folder", "name a folder, or one that does not exist yet")
        if not os.access(folder, os.R_OK | os.X_OK):
            raise PermissionError(13, "not readable", str(folder))
        content = {path.name for path in folder.iterdir()}
    path = folder / MANIFEST / states.STATE
    if MANIFEST in content:
        if path.exists():
            return states.read_state(path).table_format
        if content & TABLES.keys():
            raise damaged(path, "the file is gone")
        content -= {MANIFEST}
    if content:
        raise _bad(
            folder,
            f"holds other things, such as {min(content)[:80]!r}",
            "name an empty folder, or a lake",
        )
    return None


def _check_format(folder: Path, found: str, wanted: str) -> None:
    if found != wanted:
        raise _bad(
            folder,
            f"is a lake of {found} tables, not {wanted}",
            f"leave out --table-format, or set it to {found}, or name another folder",
        )


def _bad(folder: Path, message: str, remedy: str) -> JobyardError:
    return JobyardError(Code.BAD_LAKE, f"{folder} {message}", option="lake", remedy=remedy)
