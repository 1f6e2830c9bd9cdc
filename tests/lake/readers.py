"""What programs other than Jobyard find in a lake, by path or through the library of a format."""

from collections.abc import Callable
from pathlib import Path

import duckdb
import pyarrow.dataset as ds
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError

from jobyard.lake.schemas import TableSchema
from tests.lake.rows import Row

Reader = Callable[[Path, TableSchema], list[Row]]


def by_pyarrow(folder: Path, table: TableSchema) -> list[Row]:
    if not (folder / table.name).is_dir():
        return []
    found = ds.dataset(folder / table.name, format="parquet", partitioning="hive")
    return in_order(table, found.to_table().to_pylist())


def by_duckdb(folder: Path, table: TableSchema) -> list[Row]:
    if not any((folder / table.name).rglob("*.parquet")):
        return []
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        relation = connection.read_parquet(
            f"{folder / table.name}/**/*.parquet", hive_partitioning=True, union_by_name=True
        )
        names = relation.columns
        rows = relation.fetchall()
    return in_order(table, [dict(zip(names, row, strict=True)) for row in rows])


def by_deltalake(folder: Path, table: TableSchema) -> list[Row]:
    if not DeltaTable.is_deltatable(str(folder / table.name)):
        return []
    found = DeltaTable(str(folder / table.name)).to_pyarrow_table()
    return in_order(table, found.to_pylist())


def by_pyiceberg(folder: Path, table: TableSchema) -> list[Row]:
    path = folder / "_manifest" / "catalogue.sqlite"
    if not path.exists():
        return []
    catalog = SqlCatalog("jobyard", uri=f"sqlite:///{path}")
    try:
        return in_order(
            table, catalog.load_table(("jobyard", table.name)).scan().to_arrow().to_pylist()
        )
    except NoSuchTableError:
        return []
    finally:
        catalog.close()


READERS: dict[str, tuple[Reader, ...]] = {
    "parquet": (by_pyarrow, by_duckdb),
    "delta": (by_deltalake,),
    "iceberg": (by_pyiceberg,),
}


def in_order(table: TableSchema, rows: list[Row]) -> list[Row]:
    """Return rows by key, without nulls, and with the partition as in names of folders."""
    found = []
    for row in rows:
        partition = tuple(str(row.pop(column.name)) for column in table.partition_by)
        found.append(
            {name: each for name, each in row.items() if each is not None} | {"in": partition}
        )
    return sorted(found, key=lambda row: tuple(str(row[name]).zfill(20) for name in table.key))
