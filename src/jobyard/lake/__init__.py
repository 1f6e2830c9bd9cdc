"""Tables on disk about the lives of jobs: what they are, where they lie, and how they change.

A lake is a folder that programs other than Jobyard read: pyarrow, DuckDB, Spark, pandas. Nothing
here knows Spark or needs Java; the pipeline in `spark/pipeline` fills the tables, and the report
is made from them.
"""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jobyard.lake.opening import Lake

__all__ = ["open_lake"]


def open_lake(folder: Path, table_format: str | None = None, *, catalogue: str = "") -> "Lake":
    """Open a lake; `table_format` has to be the one it has, and is `parquet` for a new one.

    `catalogue` is the url of a REST catalogue for a new lake of Iceberg tables.
    """
    # Names of tables and columns are of use without pyarrow, which is slow to load.
    from jobyard.lake import opening  # noqa: PLC0415

    return opening.open_lake(folder, table_format, catalogue=catalogue)
