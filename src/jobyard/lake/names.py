"""Names in a lake: of yards, partitions, folders and files.

Names come from folders and from servers, so all are checked here, both ways. Nothing here reads
or writes a file.
"""

import hashlib
import re
from collections.abc import Iterable
from datetime import date
from pathlib import PurePosixPath
from typing import Final

from jobyard.client.errors import JobyardError, bad_option
from jobyard.lake.disk import bad_batch
from jobyard.lake.schemas import TableSchema
from jobyard.lake.tables import Batch, Partition

MANIFEST: Final = "_manifest"
SUFFIX: Final = ".parquet"
# The content of a partition that is replaced as a whole.
WHOLE: Final = "all"
SEQ_MAX: Final = 2**63 - 1
_YARD: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~:-]{0,127}")
_DAY: Final = re.compile(r"\d{4}-\d{2}-\d{2}")
_HOUR: Final = re.compile(r"\d|1\d|2[0-3]")
_RANGE: Final = re.compile(r"([0-9A-Za-z]{1,64})-(\d{1,19})-(\d{1,19})\.parquet")


def checked(batch: Batch) -> Batch:
    """Return a batch whose yard and numbers can be right."""
    if not _YARD.fullmatch(batch.yard):
        raise _bad_yard(batch.yard)
    if not 0 <= batch.from_seq <= batch.to_seq <= SEQ_MAX:
        raise bad_batch(f"a batch cannot go from {batch.from_seq} to {batch.to_seq}")
    return batch


def is_yard(yard: str) -> bool:
    """Return whether this can be the name of a yard."""
    return _YARD.fullmatch(yard) is not None


def _bad_yard(yard: str) -> JobyardError:
    return bad_option(
        "lake",
        f"{yard[:140]!r} cannot be the name of a yard",
        "it is `incarnation` of `_events`: at most 128 letters, digits and ._~:-",
    )


def label_of(yard: str, taken: Iterable[str]) -> str:
    """Return a short name for the files of a yard that no other yard of the lake has."""
    others = {*taken, WHOLE}
    digest = hashlib.sha256(yard.encode()).hexdigest()
    plain = re.sub(r"[^0-9A-Za-z]", "", yard)[:8]
    return next(each for each in (plain, digest[:8], digest[:16], digest) if each not in others)


def folder_of(table: TableSchema, partition: Partition) -> PurePosixPath:
    """Return the folder of a partition within that of its table."""
    columns = table.partition_by
    return PurePosixPath(*(f"{c.name}={v}" for c, v in zip(columns, partition, strict=True)))


def partition_of(table: TableSchema, folder: PurePosixPath) -> Partition | None:
    """Return the partition of a folder within that of its table; None if it is none."""
    parts = folder.parts
    if len(parts) != len(table.partition_by):
        return None
    values = []
    for part, column in zip(parts, table.partition_by, strict=True):
        name, _, value = part.partition("=")
        if name != column.name:
            return None
        values.append(value)
    partition = tuple(values)
    return partition if is_partition(table, partition) else None


def is_partition(table: TableSchema, partition: Partition) -> bool:
    """Return whether these values can be those of a partition, written as in folders."""
    if len(partition) != len(table.partition_by):
        return False
    for value, column in zip(partition, table.partition_by, strict=True):
        if column.name != "date":
            if not _HOUR.fullmatch(value):
                return False
        elif not _DAY.fullmatch(value) or not _is_day(value):
            return False
    return True


def _is_day(value: str) -> bool:
    try:
        date.fromisoformat(value)
    except ValueError:
        return False
    return True


def range_file(label: str, from_seq: int, to_seq: int) -> str:
    """Return the name of a file with what happened in a yard in a range."""
    return f"{label}-{from_seq}-{to_seq}{SUFFIX}"


def range_of(name: str) -> tuple[str, int, int] | None:
    """Return label and range of the name of such a file; None for another name."""
    match = _RANGE.fullmatch(name)
    if match is None or name.startswith(f"{WHOLE}-"):
        return None
    return match[1], int(match[2]), int(match[3])


def whole_file(generation: int | None = None, number: int = 0) -> str:
    """Return the name of the file, or of one of the files, of a replaced partition."""
    return f"{WHOLE}{SUFFIX}" if generation is None else f"{WHOLE}-{generation}-{number}{SUFFIX}"
