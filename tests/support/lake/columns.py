"""The tables of columns in `docs/lake.md`, as `jobyard.lake.schemas` has them.

`PYTHONPATH=src:. python -m tests.support.lake.columns` prints them.
"""

import sys

from jobyard.lake.schemas import TABLES, TableSchema


def lines_of(table: TableSchema) -> list[str]:
    """Return the lines of one table."""
    by = ", ".join(f"`{column.name}` {column.meaning}" for column in table.partition_by)
    key = ", ".join(f"`{name}`" for name in table.key)
    return [
        f"### {table.name}",
        "",
        f"{table.layer.capitalize()}. A row is {table.grain}. Key: {key}. Folders: {by}.",
        "",
        "| column | type | meaning |",
        "|---|---|---|",
        *(f"| `{column.name}` | {column.type} | {column.meaning} |" for column in table.columns),
    ]


if __name__ == "__main__":
    for each in TABLES.values():
        sys.stdout.write("\n".join(lines_of(each)) + "\n\n")
