"""What is in a lake, as a small result that a command prints: for people, or as JSON.

Made from the manifest, and from footers where it knows none; no rows are read.
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from jobyard.lake.opening import Lake
from jobyard.lake.schemas import TABLES, TIME, TableSchema
from jobyard.lake.tables import PartitionFacts

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# The column that says how new a row is, by table; others have it in this order.
_NEWEST: Final[Mapping[str, str]] = {
    "events": "ts",
    "attempts": "claimed_at",
    "jobs": "enqueued_at",
}


class TableStatus(NamedTuple):
    """What a table has."""

    name: str
    rows: int
    partitions: int
    files: int
    bytes: int
    # The newest time of its rows; None without rows.
    newest: datetime | None


class LakeStatus(NamedTuple):
    """What a lake has."""

    folder: str
    table_format: str
    # The last event of each yard that all tables know.
    positions: Mapping[str, int]
    tables: tuple[TableStatus, ...]
    # Whether a run was cut off, or goes on: the next run ends its commit.
    is_in_commit: bool

    def as_json(self) -> str:
        """Return it for programs."""
        content = self._asdict() | {"tables": [each._asdict() for each in self.tables]}
        return json.dumps(content, default=_json)

    def as_text(self, now: datetime) -> str:
        """Return it for people."""
        lines = [f"{self.folder}: {self.table_format}"]
        lines += [f"yard {yard}: up to {seq:,}" for yard, seq in sorted(self.positions.items())]
        if self.is_in_commit:
            lines.append("a commit is in progress, or was cut off and ends with the next run")
        rows: list[tuple[str, ...]] = [
            ("table", "rows", "partitions", "files", "bytes", "newest", "age")
        ]
        for each in self.tables:
            counts = (each.rows, each.partitions, each.files, each.bytes)
            newest = f"{each.newest:%Y-%m-%d %H:%M:%S}" if each.newest else ""
            age = _age(now - each.newest) if each.newest else ""
            rows.append((each.name, *(f"{count:,}" for count in counts), newest, age))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for name, *rest in rows:
            cells = [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
            lines.append("  ".join([name.ljust(widths[0]), *cells]).rstrip())
        return "\n".join(lines)


def status(lake: Lake) -> LakeStatus:
    """Return what is in a lake."""
    with lake.reading():
        state = lake.tables.state()
        return LakeStatus(
            str(lake.folder),
            lake.table_format,
            {yard: each.seq for yard, each in sorted(state.yards.items())},
            tuple(_table(lake, table) for table in TABLES.values()),
            lake.tables.has_intent(),
        )


def _table(lake: Lake, table: TableSchema) -> TableStatus:
    found = lake.tables.partitions(table)
    newest = max((_newest(table, facts) for facts in found.values()), default=None)
    return TableStatus(
        table.name,
        sum(facts.rows for facts in found.values()),
        len(found),
        len(lake.tables.files(table)),
        sum(facts.bytes for facts in found.values()),
        _EPOCH + timedelta(microseconds=newest) if newest else None,
    )


def _newest(table: TableSchema, facts: PartitionFacts) -> int:
    """Return the newest time of a partition, 0 for none."""
    times = [column.name for column in table.columns if column.type == TIME]
    # Of minutes and hours: the column of the key.
    column = _NEWEST.get(table.name) or next(name for name in times if name in table.key)
    return facts.greatest.get(column, 0)


def _age(age: timedelta) -> str:
    seconds = max(0, int(age.total_seconds()))
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def _json(value: object) -> str:
    assert isinstance(value, datetime)
    return value.isoformat()
