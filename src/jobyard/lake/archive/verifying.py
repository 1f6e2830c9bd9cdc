"""Reads an archive back and compares it with what it says of itself.

Everything is checked: the list of files, each byte, the footer, the number of rows, their checksum,
that seqs rise within the range of the file, that times lie in its folder, and that ranges follow
each other. Needs no server, and may run beside the archiver.
"""

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from jobyard.client.errors import Code, JobyardError
from jobyard.lake.archive.blocks import BLOCK_BYTES, encode_sums
from jobyard.lake.archive.checksum import RowsChecksum
from jobyard.lake.archive.faults import damaged, not_found
from jobyard.lake.archive.footer import footer_of
from jobyard.lake.archive.index import FileEntry, Gap, IndexFile, Life, topic_of
from jobyard.lake.archive.names import DAY_US, INDEX, SUFFIX, day_folder
from jobyard.lake.archive.reading import opened

_SHOWN: Final = 3
_LISTED: Final = 1000


class TopicReport(NamedTuple):
    """What an archive has of one topic."""

    topic: str
    lives: tuple[Life, ...]
    files: int
    rows: int
    bytes: int
    # By incarnation.
    gaps: tuple[tuple[str, Gap], ...]
    # Files that no list names yet: one that is being put in its place, or what a killed archiver
    # left to its next start.
    unlisted: tuple[str, ...]


class VerifyReport(NamedTuple):
    """What an archive has; all of it is as it was written."""

    topics: tuple[TopicReport, ...]


def verify(folder: str | Path, topic: str = "") -> VerifyReport:
    """Read everything back, of one topic or all; raise JobyardError that names what is damaged."""
    root = Path(folder).absolute()
    if not root.is_dir():
        raise not_found(root, "is not there")
    faults: list[JobyardError] = []
    reports: list[TopicReport] = []
    for name in [topic] if topic else _topics(root, faults):
        report = _verified(root, name, faults)
        if report is not None:
            reports.append(report)
    if faults:
        raise _joined(faults)
    return VerifyReport(tuple(reports))


def _joined(faults: list[JobyardError]) -> JobyardError:
    files = [str(fault.detail.get("file", "")) for fault in faults]
    if len(faults) == 1:
        return faults[0]
    more = f" and {len(faults) - _SHOWN} more" if len(faults) > _SHOWN else ""
    shown = ", ".join(files[:_SHOWN])
    return JobyardError(
        Code.ARCHIVE_DAMAGED,
        f"{len(faults)} files are damaged or missing: {shown}{more}; {faults[0].message}",
        option="archivePath",
        remedy=faults[0].remedy,
        detail={"file": files[0], "files": files[:_LISTED]},
    )


def _topics(root: Path, faults: list[JobyardError]) -> Iterator[str]:
    """Yield the topics in a folder, whose names the lists have."""
    for folder in sorted(root.glob("topic=*")):
        path = folder / INDEX
        try:
            if path.is_file() or any(folder.glob(f"date=*/*{SUFFIX}")):
                yield topic_of(path)
        except JobyardError as fault:
            faults.append(fault)


def _verified(root: Path, topic: str, faults: list[JobyardError]) -> TopicReport | None:
    file = IndexFile(root, topic)
    found = {f"{path.parent.name}/{path.name}" for path in file.folder.glob(f"date=*/*{SUFFIX}")}
    try:
        index = file.load()
        if found and not index.files and not file.path.is_file():
            raise damaged(file.path, "is missing")
    except JobyardError as fault:
        faults.append(fault)
        return None
    for entry in index.files:
        try:
            check_file(file.folder, topic, entry)
        except JobyardError as fault:
            faults.append(fault)
    return TopicReport(
        topic,
        tuple(index.lives),
        len(index.files),
        sum(entry.rows for entry in index.files),
        sum(entry.bytes for entry in index.files),
        tuple((entry.incarnation, entry.gap) for entry in index.files if entry.gap is not None),
        tuple(sorted(found - {entry.name for entry in index.files})),
    )


def check_file(folder: Path, topic: str, entry: FileEntry) -> None:
    """Read a file back; raise JobyardError if anything is not as the list says."""
    path = folder / entry.name
    with opened(folder, entry) as file:
        if not footer_of(file.metadata.metadata, path).agrees(topic, entry):
            raise damaged(path, "has a footer that says otherwise than the list of files")
        _check_rows(path, file, entry)
    # Also what lies between the columns, if anything does.
    _check_bytes(path, entry)


def _check_bytes(path: Path, entry: FileEntry) -> None:
    if _sums(path) != entry.blocks:
        raise damaged(path, "is damaged")


def _check_rows(path: Path, file: pq.ParquetFile, entry: FileEntry) -> None:
    checksum = RowsChecksum(file.schema_arrow.names)
    rows, last_seq = 0, entry.after_seq
    day = path.parent.name
    try:
        for group, group_end in enumerate(entry.groups):
            for batch in file.read_row_group(group, use_threads=False).to_batches():
                checksum.add(batch)
                rows += batch.num_rows
                last_seq = _checked_seqs(path, batch, last_seq)
                times = batch.column("ts").cast(pa.int64())
                for ts_us in (pc.min(times).as_py(), pc.max(times).as_py()):
                    is_known = entry.ts_min <= ts_us <= entry.ts_max
                    if day_folder(ts_us // DAY_US) != day or not is_known:
                        raise damaged(path, "has rows of another day")
            if last_seq != group_end:
                raise damaged(path, f"has {last_seq} where the list has {group_end}")
    except (pa.ArrowException, ValueError) as fault:
        raise damaged(path, f"cannot be read: {fault}") from None
    if rows != entry.rows or last_seq > entry.to_seq:
        raise damaged(path, f"has {rows} rows up to {last_seq}, and had {entry.rows}")
    if checksum.text() != entry.checksum:
        raise damaged(path, "has other rows than were written: their checksum differs")


def _checked_seqs(path: Path, batch: pa.RecordBatch, last_seq: int) -> int:
    """Return the last seq of some rows, which rise."""
    seqs = batch.column("seq")
    is_rising = pc.all(pc.greater(seqs[1:], seqs[:-1])).as_py() is not False
    if seqs.null_count or not is_rising or seqs[0].as_py() <= last_seq:
        raise damaged(path, f"has seqs that do not rise after {last_seq}")
    end: int = seqs[-1].as_py()
    return end


def entry_of(folder: Path, path: Path, topic: str) -> FileEntry:
    """Return what the list should say of a file, from the file alone."""
    try:
        file = pq.ParquetFile(path)
        with file:
            footer = footer_of(file.metadata.metadata, path)
            ends: list[int] = []
            ts_min: list[int] = []
            ts_max: list[int] = []
            for group in range(file.metadata.num_row_groups):
                rows = file.read_row_group(group, columns=["seq", "ts"], use_threads=False)
                ends.append(rows.column("seq")[-1].as_py())
                times = rows.column("ts").cast(pa.int64())
                ts_min.append(pc.min(times).as_py())
                ts_max.append(pc.max(times).as_py())
    except (OSError, pa.ArrowException, IndexError) as fault:
        raise damaged(path, f"is no file that an archiver has left: {fault}") from None
    if footer.topic != topic or not ends:
        raise damaged(path, f"is of topic {footer.topic!r}, and lies in the folder of {topic}")
    return FileEntry(
        name=str(path.relative_to(folder)),
        incarnation=footer.incarnation,
        after_seq=footer.after_seq,
        to_seq=footer.to_seq,
        rows=footer.rows,
        bytes=path.stat().st_size,
        ts_min=min(ts_min),
        ts_max=max(ts_max),
        checksum=footer.checksum,
        blocks=_sums(path),
        groups=tuple(ends),
        gap=footer.gap,
    )


def _sums(path: Path) -> str:
    """Return the checksums of the blocks of a file."""
    sums = []
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            sums.append(zlib.crc32(block))
    return encode_sums(sums)
