"""Logs and the history of jobs as Parquet files, copied for good.

`archive` copies a topic into a folder and holds what it has not copied yet, `verify` reads
everything back, `Archive` gives rows to readers. Needs pyarrow and the client, no Spark and no
Java.
"""

from jobyard.lake.archive.archiving import Archived, Archiver, ArchiveRules, archive, keep_archiving
from jobyard.lake.archive.reading import Archive
from jobyard.lake.archive.verifying import TopicReport, VerifyReport, verify

__all__ = [
    "Archive",
    "ArchiveRules",
    "Archived",
    "Archiver",
    "TopicReport",
    "VerifyReport",
    "archive",
    "keep_archiving",
    "verify",
]
