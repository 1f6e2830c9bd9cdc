"""Tables of Iceberg, through pyiceberg: `jobyard.<table>`, with all files in `<lake>/<table>`.

The catalogue is an SQLite file in the manifest, or a REST catalogue that sees the same folders.
Every snapshot has the number of the lake's commit, the yard and the last event as properties; by
the first of them a commit is known again. Iceberg writes whole paths, so a lake of
Iceberg tables cannot be moved.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchTableError,
    RESTError,
    ValidationException,
)
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    DateType,
    DoubleType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    TimestamptzType,
)
from requests.exceptions import RequestException
from sqlalchemy.exc import SQLAlchemyError

from jobyard.client.errors import Code, JobyardError
from jobyard.lake import schemas
from jobyard.lake.disk import Disk
from jobyard.lake.intent import Intent
from jobyard.lake.schemas import TableSchema
from jobyard.lake.snapshots import Added, Leaving, SnapshotTables
from jobyard.lake.tables import Partition

NAMESPACE: Final = "jobyard"
_GENERATION: Final = "jobyard.commit"
_NAME_MAPPING: Final = "schema.name-mapping.default"
_FAULTS: Final = (CommitFailedException, ValidationException)
_EPOCH: Final = date(1970, 1, 1)
# Of elements of lists; columns have lower ones.
_ELEMENT_IDS: Final = 1000
_TYPES: Final[dict[str, IcebergType]] = {
    schemas.TEXT: StringType(),
    schemas.LONG: LongType(),
    schemas.REAL: DoubleType(),
    schemas.TIME: TimestamptzType(),
    schemas.DATE: DateType(),
    schemas.HOUR: IntegerType(),
    schemas.BYTES: BinaryType(),
}


class IcebergTables(SnapshotTables):
    """The tables of a lake of Iceberg tables."""

    def __init__(self, folder: Path, table_format: str, disk: Disk) -> None:
        super().__init__(folder.absolute(), table_format, disk)

    def data_folder(self, table: TableSchema) -> Path:
        """Return the folder of the folders of partitions."""
        return self.folder / table.name / "data"

    def log_folder(self, table: TableSchema) -> Path:
        """Return the folder of the metadata of a table."""
        return self.folder / table.name / "metadata"

    def current(self, table: TableSchema) -> Iterable[tuple[Partition, Path]] | None:
        """Return the files of the newest snapshot; None if there is no such table."""
        if not self.log_folder(table).is_dir():
            return None
        with self.catalog() as catalog:
            try:
                iceberg = catalog.load_table((NAMESPACE, table.name))
            except NoSuchTableError:
                return None
            return [(_partition(file), _path(file)) for file in _live(iceberg)]

    def commit_table(
        self, table: TableSchema, added: Added, leaving: Leaving, intent: Intent
    ) -> None:
        """Commit files to a table, unless it has the commit of this intent."""
        with self.catalog() as catalog:
            iceberg = self._table(catalog, table)
            if _generation(iceberg) >= intent.generation:
                return
            _add_columns(iceberg, table)
            told = {
                _GENERATION: str(intent.generation),
                "jobyard.yard": intent.yard,
                "jobyard.to-seq": str(intent.to_seq),
            }
            removed = [f for f in _live(iceberg) if leaving.has(_partition(f), _path(f))]
            with iceberg.transaction() as transaction:
                # Files of Spark have no numbers of columns.
                mapping = iceberg.schema().name_mapping.model_dump_json()
                transaction.set_properties({_NAME_MAPPING: mapping})
                update = transaction.update_snapshot(snapshot_properties=told)
                with update.overwrite() if removed else update.merge_append() as snapshot:
                    for file in removed:
                        snapshot.delete_data_file(file)
                    for partition, path in added:
                        snapshot.append_data_file(_data_file(iceberg, partition, path))

    def expire_table(self, table: TableSchema, before: datetime) -> int:
        """Forget older snapshots, and remove files that no newer one has; return how many."""
        if not self.log_folder(table).is_dir():
            return 0
        with self.catalog() as catalog:
            iceberg = catalog.load_table((NAMESPACE, table.name))
            iceberg.maintenance.expire_snapshots().older_than(before).commit()
            iceberg = catalog.load_table((NAMESPACE, table.name))
            kept = {
                _path(entry.data_file)
                for snapshot in iceberg.snapshots()
                for manifest in snapshot.manifests(iceberg.io)
                for entry in manifest.fetch_manifest_entry(iceberg.io, discard_deleted=True)
            }
        gone = [
            path
            for path in sorted(self.data_folder(table).rglob("*.parquet"))
            if path not in kept and path.stat().st_mtime < before.timestamp()
        ]
        for path in gone:
            self.disk.remove(path)
        return len(gone)

    @contextmanager
    def catalog(self) -> Iterator[Catalog]:
        """Open the catalogue."""
        if self.catalogue:
            # Its token, if it wants one, is a variable that pyiceberg reads.
            catalog: Catalog = load_catalog(NAMESPACE, type="rest", uri=self.catalogue)
        else:
            uri = f"sqlite:///{self.manifest}/catalogue.sqlite"
            catalog = SqlCatalog(NAMESPACE, uri=uri, warehouse=_uri(self.folder))
        try:
            yield catalog
        finally:
            catalog.close()

    @contextmanager
    def faults(self, doing: str) -> Iterator[None]:
        """Give faults of the library the name of the lake."""
        try:
            yield
        except (RESTError, ConnectionError, RequestException) as fault:
            raise JobyardError(
                Code.UNREACHABLE,
                f"{doing} failed at the REST catalogue: {type(fault).__name__}",
                url=self.catalogue,
                option="catalogue",
                remedy="start it, and check PYICEBERG_CATALOG__JOBYARD__TOKEN",
            ) from fault
        except (*_FAULTS, SQLAlchemyError, ValueError, OSError) as fault:
            raise self.fault(doing, fault) from fault

    def _table(self, catalog: Catalog, table: TableSchema) -> Table:
        catalog.create_namespace_if_not_exists(NAMESPACE)
        try:
            return catalog.load_table((NAMESPACE, table.name))
        except NoSuchTableError:
            schema = _schema(table)
            return catalog.create_table(
                (NAMESPACE, table.name),
                schema,
                location=_uri(self.folder / table.name),
                partition_spec=_spec(table, schema),
                properties={
                    "write.metadata.delete-after-commit.enabled": "true",
                    "write.metadata.previous-versions-max": "20",
                },
            )


def _schema(table: TableSchema) -> Schema:
    fields = []
    for number, column in enumerate((*table.columns, *table.partition_by), 1):
        kind = _TYPES.get(column.type)
        if kind is None:
            assert column.type == schemas.LONGS
            kind = ListType(_ELEMENT_IDS + number, LongType(), element_required=False)
        fields.append(NestedField(number, column.name, kind, required=False))
    return Schema(*fields)


def _spec(table: TableSchema, schema: Schema) -> PartitionSpec:
    return PartitionSpec(
        *(
            PartitionField(
                schema.find_field(column.name).field_id, 1000 + n, IdentityTransform(), column.name
            )
            for n, column in enumerate(table.partition_by)
        )
    )


def _add_columns(iceberg: Table, table: TableSchema) -> None:
    """Add columns that came with a newer version of the table."""
    known = {field.name for field in iceberg.schema().fields}
    missing = [field for field in _schema(table).fields if field.name not in known]
    if missing:
        with iceberg.update_schema() as update:
            for field in missing:
                update.add_column(field.name, field.field_type)


def _generation(iceberg: Table) -> int:
    """Return the number of the newest commit of the lake that the table has."""
    snapshot = iceberg.current_snapshot()
    while snapshot is not None:
        if snapshot.summary is not None and (told := snapshot.summary.get(_GENERATION)):
            return int(told)
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else iceberg.snapshot_by_id(parent)
    return 0


def _live(iceberg: Table) -> list[DataFile]:
    return [task.file for task in iceberg.scan().plan_files()]


def _uri(path: Path) -> str:
    # Not as `Path.as_uri` has it: readers of Iceberg take the signs as they are.
    return f"file://{path}"


def _path(file: DataFile) -> Path:
    # pyiceberg writes three slashes, and Spark one.
    return Path("/" + file.file_path.removeprefix("file:").lstrip("/"))


def _partition(file: DataFile) -> Partition:
    values: list[str] = []
    for value in (file.partition[n] for n in range(len(file.partition))):
        is_day = not values
        values.append((_EPOCH + timedelta(days=int(value))).isoformat() if is_day else str(value))
    return tuple(values)


def _data_file(iceberg: Table, partition: Partition, path: Path) -> DataFile:
    day, *hours = partition
    footer = pq.read_metadata(path)
    schema = iceberg.schema()
    told = data_file_statistics_from_parquet_metadata(
        footer,
        compute_statistics_plan(schema, iceberg.properties),
        parquet_path_to_id_mapping(schema),
    )
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=_uri(path),
        file_format=FileFormat.PARQUET,
        partition=Record((date.fromisoformat(day) - _EPOCH).days, *map(int, hours)),
        file_size_in_bytes=path.stat().st_size,
        sort_order_id=None,
        spec_id=iceberg.spec().spec_id,
        equality_ids=None,
        key_metadata=None,
        **told.to_serialized_dict(),
    )
