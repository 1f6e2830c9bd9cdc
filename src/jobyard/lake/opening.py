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
from urllib.parse import urlsplit

from jobyard.client.errors import Code, JobyardError, bad_option
from jobyard.lake import state as states
from jobyard.lake.disk import Disk, damaged, named_faults
from jobyard.lake.ledger import LedgerTables
from jobyard.lake.locks import RUN, SWAP, Flock, held
from jobyard.lake.names import MANIFEST, SLO_FILE
from jobyard.lake.parquet import ParquetTables
from jobyard.lake.schemas import TABLES
from jobyard.lake.state import State

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
        self.tables.disk.write(new, states.state_text(self.tables.empty()))
        self.tables.disk.rename(new, path)
        self.tables.disk.sync(self.tables.manifest)


def open_lake(
    folder: Path, table_format: str | None = None, *, catalogue: str = "", disk: Disk | None = None
) -> Lake:
    """Open a lake; `table_format` has to be the one it has, and is `parquet` for a new one."""
    _check_local(folder, table_format)
    folder = Path(folder)
    if table_format is not None and table_format not in states.FORMATS:
        raise bad_option(
            "table-format",
            f"{table_format[:40]!r} is no format of tables",
            f"one of {', '.join(states.FORMATS)}",
        )
    found = _state_of(folder)
    if found is not None and table_format is not None:
        _check_format(folder, found.table_format, table_format)
    chosen = found.table_format if found else table_format or states.FORMATS[0]
    tables = _tables(folder, chosen, disk or Disk())
    tables.catalogue = _catalogue(found, chosen, catalogue)
    return Lake(folder, chosen, tables)


def _catalogue(found: State | None, table_format: str, wanted: str) -> str:
    """Return the url of the catalogue of a lake, or refuse another."""
    if not wanted:
        return found.catalogue if found else ""
    if table_format != "iceberg":
        raise bad_option("catalogue", f"{table_format} tables have none", "leave it out")
    parts = urlsplit(wanted)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username is not None:
        raise bad_option(
            "catalogue",
            "this is not the url of a REST catalogue",
            "http://host:port; a token is PYICEBERG_CATALOG__JOBYARD__TOKEN",
        )
    if found is not None and found.catalogue != wanted:
        raise bad_option("catalogue", "the tables of this lake are in another", "leave it out")
    return wanted


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


def _state_of(folder: Path) -> State | None:
    """Return the state of the lake in a folder, None for none yet, or refuse the folder."""
    with named_faults(folder, "opening"):
        if not folder.exists():
            return None
        if not folder.is_dir():
            raise _bad(folder, "is no folder", "name a folder, or one that does not exist yet")
        if not os.access(folder, os.R_OK | os.X_OK):
            raise PermissionError(13, "not readable", str(folder))
        content = {path.name for path in folder.iterdir()} - {SLO_FILE}
    path = folder / MANIFEST / states.STATE
    if MANIFEST in content:
        if path.exists():
            return states.read_state(path)
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
