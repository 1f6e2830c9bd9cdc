"""What the manifest of a lake remembers: positions, versions, and the facts of each file.

`_manifest/state.json` has the positions of yards and the days of each table;
`_manifest/files/<table>/<day>.json`, called a page, has the files of one day. Both are replaced
as a whole, by the intent that puts the files in their places. What cannot be read, or says what
cannot be, is `lake_damaged` with the name of the file.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple, TypeVar

from jobyard.client.errors import Code, JobyardError
from jobyard.lake import names
from jobyard.lake.disk import damaged
from jobyard.lake.footers import FileFacts
from jobyard.lake.schemas import TABLES, TableSchema
from jobyard.lake.tables import Partition

LAKE_VERSION: Final = 1
STATE: Final = "state.json"
FORMATS: Final = ("parquet", "delta", "iceberg")
# A page of one day at one batch per second would not reach it.
_FILE_BYTES_MAX: Final = 512 << 20

_T = TypeVar("_T")
# By partition and name.
Page = dict[tuple[Partition, str], FileFacts]


class YardState(NamedTuple):
    """How far a yard has entered the tables, and the short name of it in names of files."""

    seq: int
    label: str


class State(NamedTuple):
    """The content of state.json."""

    table_format: str
    # How many commits and compactions there were.
    generation: int
    # The version of each table when something last entered it.
    versions: Mapping[str, int]
    yards: Mapping[str, YardState]
    # Of each table: days with files, and how many files they have.
    days: Mapping[str, Mapping[str, int]]
    # The url of a REST catalogue of Iceberg; empty for the one in the manifest.
    catalogue: str = ""


def empty(table_format: str, catalogue: str = "") -> State:
    """Return the state of a new lake."""
    return State(table_format, 0, {}, {}, {}, catalogue)


def state_text(state: State) -> bytes:
    """Return the text of a state."""
    return _text(
        {
            "format": LAKE_VERSION,
            "table_format": state.table_format,
            "generation": state.generation,
            "versions": state.versions,
            "yards": {name: {"seq": y.seq, "label": y.label} for name, y in state.yards.items()},
            "days": state.days,
            "catalogue": state.catalogue,
        }
    )


def read_state(path: Path) -> State:
    """Read the state of a lake, and refuse one of a newer Jobyard."""
    state = _read(path, _state)
    for name, version in state.versions.items():
        known = TABLES.get(name)
        if known is None or version > known.version:
            raise newer(path, f"table {name} has version {version}")
    return state


def newer(path: Path, message: str) -> JobyardError:
    """Return the error for a lake that this program is too old for."""
    return JobyardError(
        Code.LAKE_NEWER,
        f"this lake was written by a newer Jobyard: {message} in {path}",
        option="lake",
        remedy="update Jobyard on this machine, or use another lake",
    )


def _state(path: Path, found: dict[str, object]) -> State:
    if _count(found["format"]) > LAKE_VERSION:
        raise newer(path, f"its manifest has format {found['format']}")
    yards = {}
    for name, each in _dict(found["yards"]).items():
        one = _dict(each)
        label = _text_of(one["label"])
        if not names.is_yard(name) or names.range_of(names.range_file(label, 0, 0)) is None:
            raise ValueError(f"yard {name!r}")
        yards[name] = YardState(_count(one["seq"]), label)
    table_format = _text_of(found["table_format"])
    if table_format not in FORMATS:
        raise newer(path, f"tables have format {table_format[:40]!r}")
    return State(
        table_format,
        _count(found["generation"]),
        {name: _count(version) for name, version in _dict(found["versions"]).items()},
        yards,
        {
            name: {day: _count(files) for day, files in _dict(days).items()}
            for name, days in _dict(found["days"]).items()
        },
        _text_of(found.get("catalogue", "")),
    )


def page_path(manifest: Path, table: str, day: str) -> Path:
    """Return where the page of a day is."""
    return manifest / "files" / table / f"{day}.json"


def page_text(table: TableSchema, page: Page) -> bytes:
    """Return the text of a page."""
    return _text(
        {
            str(names.folder_of(table, partition) / name): [
                *(facts.size, facts.mtime_ns, facts.rows),
                *(facts.least, facts.greatest, facts.nulls),
            ]
            for (partition, name), facts in sorted(page.items())
        }
    )


def read_page(path: Path, table: TableSchema) -> Page:
    """Read a page."""

    def page(_: Path, found: dict[str, object]) -> Page:
        return dict(_file(table, name, each) for name, each in found.items())

    return _read(path, page)


def _file(table: TableSchema, text: str, found: object) -> tuple[tuple[Partition, str], FileFacts]:
    where = PurePosixPath(text)
    partition = names.partition_of(table, where.parent)
    if partition is None or not isinstance(found, list):
        raise ValueError(text)
    size, mtime_ns, rows, *maps = found
    least, greatest, nulls = (
        {name: _whole(value) for name, value in _dict(each).items()} for each in maps
    )
    facts = FileFacts(_count(size), _whole(mtime_ns), _count(rows), least, greatest, nulls)
    return (partition, where.name), facts


def read_json(path: Path) -> dict[str, object]:
    """Read a file of the manifest that is an object."""
    return _read(path, lambda _, found: found)


def _read(path: Path, meaning: Callable[[Path, dict[str, object]], _T]) -> _T:
    try:
        if path.stat().st_size > _FILE_BYTES_MAX:
            raise damaged(path, "the file is too large to be of a manifest")
        return meaning(path, _dict(json.loads(path.read_bytes())))
    except FileNotFoundError as fault:
        raise damaged(path, "the file is gone") from fault
    except (KeyError, TypeError, ValueError, RecursionError) as fault:
        raise damaged(path, f"the file is not what Jobyard writes: {fault!r}") from fault


def _text(content: object) -> bytes:
    return json.dumps(content, separators=(",", ":"), default=dict).encode()


def _dict(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise TypeError(f"{str(value)[:40]!r} is no object")
    return value


def _text_of(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{str(value)[:40]!r} is no text")
    return value


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{str(value)[:40]!r} is no number")
    return value


def _count(value: object) -> int:
    number = _whole(value)
    if number < 0:
        raise ValueError(f"{number} is less than 0")
    return number
