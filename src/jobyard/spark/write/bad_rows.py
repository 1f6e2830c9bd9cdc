"""Rows that cannot be written: counted by reason, with examples, or kept aside as Parquet.

A task writes its rows under a name that readers of Parquet pass over; the driver gives them their
name once the task is one of those that count.
"""

import os
from collections import Counter
from typing import Final, final

import pyarrow as pa
import pyarrow.parquet as pq

from jobyard.client import JobyardError
from jobyard.spark.write.bad_files import hidden_file, unwritable_folder
from jobyard.spark.write.records import BadRow

BAD_ROWS: Final = "bad_rows"
# Of each so many that the message is not cut, which has 500 characters.
_EXAMPLES: Final = 3
_REASONS: Final = 3
_SAMPLE_MAX: Final = 32


@final
class BadRows:
    """The bad rows of some tasks: counts, and a few examples."""

    def __init__(self) -> None:
        self.reasons: Counter[str] = Counter()
        self.examples: list[tuple[int, BadRow]] = []
        # Files without their name yet.
        self.files: list[str] = []

    def add(self, part: int, row: BadRow) -> None:
        """Count a row."""
        self.reasons[row.reason] += 1
        if len(self.examples) < _EXAMPLES:
            self.examples.append((part, row))

    def join(self, other: "BadRows") -> None:
        """Add those of another task."""
        self.reasons.update(other.reasons)
        self.examples = (self.examples + other.examples)[:_EXAMPLES]
        self.files += other.files

    def count(self) -> int:
        """Return how many there are."""
        return self.reasons.total()

    def error(self, written: int | None) -> JobyardError:
        """Return the error that names them; `written` are the records of a direct write."""
        common = self.reasons.most_common(_REASONS)
        reasons = ", ".join(f"{count} x {why}" for why, count in common)
        if len(self.reasons) > len(common):
            reasons += f", and {len(self.reasons) - len(common)} more reasons"
        examples = "; ".join(_example(part, row) for part, row in self.examples)
        rows = "1 row" if self.count() == 1 else f"{self.count()} rows"
        before = (
            "Nothing was written."
            if written is None
            else f"The other rows were written before ({written} records), since commit is direct."
        )
        return JobyardError(
            BAD_ROWS,
            f"{rows} cannot be written ({reasons}); {examples}",
            option="badRowsPath",
            remedy=f"{before} Set badRowsPath to write the rest and keep these aside.",
        )


def _example(part: int, row: BadRow) -> str:
    """Return a row as the message shows it, so short that all of them have room in it."""
    seq = f" (seq {row.seq})" if row.seq else ""
    return f"partition {part} row {row.row}{seq}: {repr(row.sample)[:_SAMPLE_MAX]}"


@final
class BadRowsFile:
    """The bad rows of one task, collected until it ends."""

    def __init__(self, folder: str, txn: str, part: int, attempt: int) -> None:
        self._folder = folder
        self._place = (txn, part, attempt)
        self._batches: list[pa.RecordBatch] = []

    def add(self, batch: pa.RecordBatch, rows: list[tuple[int, BadRow]]) -> None:
        """Add rows of a batch by their places in it."""
        places = pa.array([place for place, _ in rows], pa.int64())
        chosen = batch.take(places)
        columns = [
            *chosen.columns,
            pa.array([row.reason for _, row in rows], pa.string()),
            pa.array([row.row for _, row in rows], pa.int64()),
        ]
        fields = [*chosen.schema, pa.field("_reason", pa.string()), pa.field("_row", pa.int64())]
        self._batches.append(pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields)))

    def write(self) -> list[str]:
        """Write the file under a name that readers pass over; return that name, if there is one."""
        if not self._batches:
            return []
        file = hidden_file(self._folder, *self._place)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("wb") as out:
                pq.write_table(pa.Table.from_batches(self._batches), out, compression="zstd")
                out.flush()
                os.fsync(out.fileno())
        except OSError as fault:
            raise unwritable_folder(self._folder, fault) from None
        return [str(file)]
