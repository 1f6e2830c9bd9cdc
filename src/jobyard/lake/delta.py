"""Tables of Delta, through delta-rs: `<lake>/<table>` is a table that Spark, DuckDB and more read.

Partitions are real ones of Delta. Every commit has two application transactions: `jobyard` with
the number of the lake's commit, by which it is known again, and `jobyard:<yard>` with the last
event, for others to see.
"""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Field, Transaction
from deltalake import Schema as DeltaSchema
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, RemoveAction

from jobyard.lake import schemas
from jobyard.lake.disk import damaged
from jobyard.lake.footers import FileFacts, arrow_schema, facts_of
from jobyard.lake.intent import Intent
from jobyard.lake.schemas import TableSchema
from jobyard.lake.snapshots import Added, Leaving, SnapshotTables, now_ms
from jobyard.lake.tables import Partition

_APP: Final = "jobyard"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class DeltaTables(SnapshotTables):
    """The tables of a lake of Delta tables."""

    def data_folder(self, table: TableSchema) -> Path:
        """Return the folder of the folders of partitions."""
        return self.folder / table.name

    def log_folder(self, table: TableSchema) -> Path:
        """Return the folder of the log of a table."""
        return self.folder / table.name / "_delta_log"

    def current(self, table: TableSchema) -> Iterable[tuple[Partition, Path]] | None:
        """Return the files of the newest snapshot; None if there is no such table."""
        if not any(self.log_folder(table).glob("*.json")):
            return None
        found = _live(DeltaTable(str(self.folder / table.name)), table)
        return [(partition, self.folder / table.name / path) for partition, path, _ in found]

    def commit_table(
        self, table: TableSchema, added: Added, leaving: Leaving, intent: Intent
    ) -> None:
        """Commit files to a table, unless it has the commit of this intent."""
        partition_by = [column.name for column in table.partition_by]
        schema = arrow_schema(table, with_partition=True)
        uri = str(self.folder / table.name)
        delta = DeltaTable.create(
            uri, schema, mode="ignore", partition_by=partition_by, name=table.name
        )
        if (delta.transaction_version(_APP) or 0) >= intent.generation:
            return
        _add_columns(delta, schema)
        now = now_ms()
        actions: list[AddAction | RemoveAction] = [
            RemoveAction(
                path,
                data_change=True,
                deletion_timestamp=now,
                size=size,
                partition_values=dict(zip(partition_by, partition, strict=True)),
            )
            for partition, path, size in _live(delta, table)
            if leaving.has(partition, self.folder / table.name / path)
        ]
        actions += [self._add_action(table, partition, path) for partition, path in added]
        transactions = [Transaction(_APP, intent.generation)]
        if intent.to_seq:
            transactions.append(Transaction(f"{_APP}:{intent.yard}", intent.to_seq))
        delta.create_write_transaction(
            actions,
            "append",
            delta.schema(),
            partition_by,
            commit_properties=CommitProperties(app_transactions=transactions),
        )

    def expire_table(self, table: TableSchema, before: datetime) -> int:
        """Remove files that only older versions have; return how many."""
        if not any(self.log_folder(table).glob("*.json")):
            return 0
        hours = (datetime.now(UTC) - before) // timedelta(hours=1)
        removed = DeltaTable(str(self.folder / table.name)).vacuum(
            hours, dry_run=False, enforce_retention_duration=False
        )
        return len(removed)

    def _add_action(self, table: TableSchema, partition: Partition, path: Path) -> AddAction:
        facts = facts_of(path, table)
        if facts is None:
            raise damaged(path, "its footer lacks statistics")
        values: dict[str, str | None] = {
            column.name: value for column, value in zip(table.partition_by, partition, strict=True)
        }
        return AddAction(
            path=str(path.relative_to(self.folder / table.name)),
            size=facts.size,
            partition_values=values,
            modification_time=facts.mtime_ns // 1_000_000,
            data_change=True,
            stats=_stats(table, facts),
        )

    @contextmanager
    def faults(self, doing: str) -> Iterator[None]:
        """Give faults of the library the name of the lake."""
        try:
            yield
        except DeltaError as fault:
            raise self.fault(doing, fault) from fault


def _live(delta: DeltaTable, table: TableSchema) -> list[tuple[Partition, str, int]]:
    """Return partition, path and size of the files of the newest snapshot."""
    actions = pa.table(delta.get_add_actions(flatten=True))
    columns = [f"partition.{column.name}" for column in table.partition_by]
    return [
        (tuple(str(row[name]) for name in columns), str(row["path"]), int(row["size_bytes"]))
        for row in actions.select(["path", "size_bytes", *columns]).to_pylist()
    ]


def _add_columns(delta: DeltaTable, schema: pa.Schema) -> None:
    """Add columns that came with a newer version of the table."""
    known = {field.name for field in delta.schema().fields}
    wanted: list[Field] = DeltaSchema.from_arrow(schema).fields
    if missing := [field for field in wanted if field.name not in known]:
        delta.alter.add_columns(missing)


def _stats(table: TableSchema, facts: FileFacts) -> str:
    """Return what readers of Delta pass over files by."""
    types = {column.name: column.type for column in table.columns}
    least = {name: _told(types[name], value, is_least=True) for name, value in facts.least.items()}
    greatest = {
        name: _told(types[name], value, is_least=False) for name, value in facts.greatest.items()
    }
    return json.dumps(
        {
            "numRecords": facts.rows,
            "minValues": least,
            "maxValues": greatest,
            "nullCount": {
                name: nulls for name, nulls in facts.nulls.items() if types[name] != schemas.LONGS
            },
        }
    )


def _told(kind: str, value: int, *, is_least: bool) -> int | str:
    if kind != schemas.TIME:
        return value
    # Delta has milliseconds here, so bounds are rounded outwards.
    whole_ms = value // 1000 if is_least else -(-value // 1000)
    time = _EPOCH + timedelta(milliseconds=whole_ms)
    return time.strftime("%Y-%m-%dT%H:%M:%S.") + f"{time.microsecond // 1000:03}Z"
