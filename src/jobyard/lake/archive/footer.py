"""What a file of an archive says of itself, in the metadata of its Parquet footer.

All keys begin with `jobyard.`; values are text. With it a file can be checked, and the list of
files be made again, without anything else. No url of a yard is there: files outlive it.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from jobyard.lake.archive.faults import damaged
from jobyard.lake.archive.index import FileEntry, Gap

# Of the columns; a newer version only adds some, at the end.
SCHEMA_VERSION: Final = 1
_PREFIX: Final = "jobyard."


class Footer(NamedTuple):
    """The facts of one file."""

    topic: str
    incarnation: str
    after_seq: int
    to_seq: int
    rows: int
    checksum: str
    schema_version: int
    gap: Gap | None

    def fields(self) -> dict[str, str]:
        """Return the metadata."""
        gap = "" if self.gap is None else json.dumps(list(self.gap))
        return {
            f"{_PREFIX}topic": self.topic,
            f"{_PREFIX}incarnation": self.incarnation,
            f"{_PREFIX}after_seq": str(self.after_seq),
            f"{_PREFIX}to_seq": str(self.to_seq),
            f"{_PREFIX}rows": str(self.rows),
            f"{_PREFIX}checksum": self.checksum,
            f"{_PREFIX}schema_version": str(self.schema_version),
            f"{_PREFIX}gap": gap,
        }

    def agrees(self, topic: str, entry: FileEntry) -> bool:
        """Return whether the list of files says the same."""
        return self[:6] == (
            topic, entry.incarnation, entry.after_seq, entry.to_seq, entry.rows, entry.checksum,
        ) and self.gap == entry.gap  # fmt: skip


def footer_of(metadata: Mapping[bytes, bytes] | None, file: Path) -> Footer:
    """Return the facts in the metadata of a file."""
    texts = {key.decode(): value.decode() for key, value in (metadata or {}).items()
             if key.startswith(_PREFIX.encode())}  # fmt: skip
    try:
        gap = texts[f"{_PREFIX}gap"]
        footer = Footer(
            texts[f"{_PREFIX}topic"],
            texts[f"{_PREFIX}incarnation"],
            int(texts[f"{_PREFIX}after_seq"]),
            int(texts[f"{_PREFIX}to_seq"]),
            int(texts[f"{_PREFIX}rows"]),
            texts[f"{_PREFIX}checksum"],
            int(texts[f"{_PREFIX}schema_version"]),
            Gap(*json.loads(gap)) if gap else None,
        )
    except (KeyError, ValueError, TypeError):
        raise damaged(file, "is not a file of an archive: its footer has no such facts") from None
    if footer.schema_version > SCHEMA_VERSION:
        raise damaged(
            file, f"has columns of version {footer.schema_version}, newer than this Jobyard"
        )
    return footer
