r"""The list of the files of one topic: what readers trust, and the archiver extends.

    <BLAKE2b of the rest, in hex>\n
    {"v":1,"topic":"clicks","files":[...]}

It is replaced as a whole by one rename, after the files that it names are durable. So every reader
sees a list whose files are all there, and a file that is missing has a name. Files are in the order
in which they were written: their ranges follow each other without overlap, and what lies between
two of them is a gap that the later one names. A topic that was made again begins another life.
"""

import hashlib
import json
import os
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple, final

from jobyard.lake.archive.blocks import decode_sums
from jobyard.lake.archive.faults import damaged, not_found
from jobyard.lake.archive.names import INDEX, INDEX_NEW, SUFFIX, is_file_name, topic_folder

VERSION: Final = 1
SIZE_MAX: Final = 1 << 30
_SEQ_MAX: Final = (1 << 63) - 1
_REASON_MAX: Final = 200


class Gap(NamedTuple):
    """Records that were gone before they could be copied."""

    after_seq: int
    to_seq: int
    reason: str


class FileEntry(NamedTuple):
    """One file: the records of one life of a topic after a seq and up to another."""

    # Below the folder of the topic.
    name: str
    incarnation: str
    after_seq: int
    to_seq: int
    rows: int
    bytes: int
    # The least and greatest time of a row, in microseconds.
    ts_min: int
    ts_max: int
    # Over the rows.
    checksum: str
    # Over the blocks of the file.
    blocks: str
    # The last seq of each row group.
    groups: tuple[int, ...]
    gap: Gap | None

    @property
    def begin_seq(self) -> int:
        """Return the seq after which the entry begins, with its gap."""
        return self.after_seq if self.gap is None else self.gap.after_seq


class Life(NamedTuple):
    """What an archive has of one incarnation."""

    incarnation: str
    after_seq: int
    to_seq: int


@final
class TopicIndex:
    """The files of one topic."""

    def __init__(self, topic: str, files: Sequence[FileEntry] = ()) -> None:
        self.topic = topic
        self.files = tuple(files)
        self._by_life: dict[str, list[FileEntry]] = {}
        for file in files:
            self._by_life.setdefault(file.incarnation, []).append(file)
        self.lives = [
            Life(life, found[0].begin_seq, found[-1].to_seq)
            for life, found in self._by_life.items()
        ]
        self._ends = {life: [file.to_seq for file in each] for life, each in self._by_life.items()}

    def life(self, incarnation: str) -> Life | None:
        """Return what there is of an incarnation."""
        return next((life for life in self.lives if life.incarnation == incarnation), None)

    def files_of(self, incarnation: str) -> Sequence[FileEntry]:
        """Return the files of an incarnation."""
        return self._by_life.get(incarnation, ())

    def file_after(self, incarnation: str, seq: int) -> FileEntry | None:
        """Return the file whose range, or whose gap, has the number after a seq."""
        files = self._by_life.get(incarnation, [])
        at = bisect_right(self._ends.get(incarnation, []), seq)
        if at == len(files) or seq < files[at].begin_seq:
            return None
        return files[at]

    def with_file(self, file: FileEntry) -> "TopicIndex":
        """Return the list with one more file at its end."""
        return TopicIndex(self.topic, (*self.files, file))


@final
class IndexFile:
    """The list on disk, read again when it was replaced."""

    def __init__(self, root: Path, topic: str) -> None:
        self.topic = topic
        self.folder = root / topic_folder(topic)
        self._root = root
        self._seen: tuple[int, int, int] | None = None
        self._index: TopicIndex | None = None

    @property
    def path(self) -> Path:
        """Return where it is."""
        return self.folder / INDEX

    def load(self) -> TopicIndex:
        """Return the list; one without files if nothing was archived yet."""
        try:
            with self.path.open("rb") as file:
                state = os.fstat(file.fileno())
                seen = (state.st_ino, state.st_mtime_ns, state.st_size)
                if self._index is not None and seen == self._seen:
                    return self._index
                if state.st_size > SIZE_MAX:
                    raise damaged(self.path, "is too large")
                data = file.read()
        except FileNotFoundError:
            return self._without_index()
        except OSError as fault:
            raise not_found(self.path, f"cannot be read ({fault.strerror})") from None
        self._index, self._seen = parsed(data, self.topic, self.path), seen
        return self._index

    def store(self, index: TopicIndex) -> None:
        """Replace the list; it is durable when this returns."""
        new = self.folder / INDEX_NEW
        with new.open("wb") as file:
            file.write(encoded(index))
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.path)
        sync_folder(self.folder)
        self._index = None

    def _without_index(self) -> TopicIndex:
        if not self._root.is_dir():
            raise not_found(self._root, "is not there")
        # Files are put in their place after the list that names them, so they never are alone.
        has_files = self.folder.is_dir() and any(self.folder.glob(f"date=*/*{SUFFIX}"))
        if has_files or (self._index is not None and self._index.files):
            raise damaged(self.path, "is missing")
        return TopicIndex(self.topic)


def topic_of(path: Path) -> str:
    """Return the topic that a list is of, by what it says."""
    try:
        return str(json.loads(path.read_bytes().partition(b"\n")[2])["topic"])
    except FileNotFoundError:
        raise damaged(path, "is missing") from None
    except (OSError, ValueError, KeyError, TypeError):
        raise damaged(path, "is damaged") from None


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def encoded(index: TopicIndex) -> bytes:
    """Return the content of the file."""
    body = json.dumps(
        {
            "v": VERSION,
            "topic": index.topic,
            "files": [
                {**file._asdict(), "gap": None if file.gap is None else list(file.gap)}
                for file in index.files
            ],
        },
        separators=(",", ":"),
    ).encode()
    return _digest(body) + b"\n" + body


def parsed(data: bytes, topic: str, path: Path) -> TopicIndex:
    """Return the list in the content of a file; raise JobyardError if it is not as it was."""
    digest, _, body = data.partition(b"\n")
    if digest != _digest(body):
        raise damaged(path, "is damaged")
    fields = json.loads(body)
    if fields["v"] != VERSION:
        raise not_found(path, f"has version {fields['v']}, and this Jobyard knows {VERSION},")
    if fields["topic"] != topic:
        raise damaged(path, f"is of topic {fields['topic']!r}")
    try:
        files = [_entry(each) for each in fields["files"]]
        _check_order(files)
    except (KeyError, TypeError, ValueError) as fault:
        raise damaged(path, f"has an entry that cannot be right ({fault!r})") from None
    return TopicIndex(topic, files)


def _digest(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=16).hexdigest().encode()


def _entry(fields: dict[str, object]) -> FileEntry:
    entry = FileEntry(
        name=_text(fields["name"]),
        incarnation=_text(fields["incarnation"]),
        after_seq=_whole(fields["after_seq"]),
        to_seq=_whole(fields["to_seq"]),
        rows=_whole(fields["rows"]),
        bytes=_whole(fields["bytes"]),
        ts_min=_whole(fields["ts_min"]),
        ts_max=_whole(fields["ts_max"]),
        checksum=_text(fields["checksum"]),
        blocks=_text(fields["blocks"]),
        groups=tuple(_whole(each) for each in _list(fields["groups"])),
        gap=_gap(fields["gap"]),
    )
    decode_sums(entry.blocks)
    if not is_file_name(entry.name) or not entry.incarnation or not entry.groups:
        raise ValueError(entry.name)
    return entry


def _check_order(files: Sequence[FileEntry]) -> None:
    ends: dict[str, int] = {}
    last = ""
    for file in files:
        is_next = ends.get(file.incarnation, file.begin_seq) == file.begin_seq
        is_new_life = file.incarnation != last
        if not file.begin_seq <= file.after_seq < file.to_seq or not is_next:
            raise ValueError(file.name)
        if is_new_life and file.incarnation in ends:
            raise ValueError(file.name)
        ends[file.incarnation] = file.to_seq
        last = file.incarnation


def _gap(value: object) -> Gap | None:
    if value is None:
        return None
    after_seq, to_seq, reason = _list(value)
    return Gap(_whole(after_seq), _whole(to_seq), _text(reason)[:_REASON_MAX])


def _whole(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _SEQ_MAX:
        return value
    raise ValueError(value)


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    raise ValueError(value)


def _list(value: object) -> list[object]:
    if isinstance(value, list):
        return value
    raise ValueError(value)
