"""The file that tells the newest hot segment, so that this one cannot be missing unseen.

Every other segment is vouched for by a record in a later one. Sixteen bytes: 0 number, 8 crc of
bytes 0-7. A crash may leave it unreadable; then it says nothing, and nothing is missed.
"""

from typing import Final
from zlib import crc32

from librt.strings import BytesWriter, read_i64_le, write_i64_le
from mypy_extensions import i64

from jobyard.errors import JournalDamaged, ReadFailed, StorageFull
from jobyard.journal.segment import segment_name
from jobyard.journal.storage import Storage

NAME: Final = "newest"
SIZE: Final = 16


def note_newest(storage: Storage, number: i64) -> None:
    """Write down, on disk, that segment `number` has been begun."""
    if NAME not in storage.names():
        try:
            storage.create(NAME, SIZE)
        except StorageFull:
            # Without it one kind of damage would go unseen; that is no reason not to serve.
            return
        storage.sync_directory()
    out = BytesWriter()
    write_i64_le(out, number)
    write_i64_le(out, crc32(out.getvalue()))
    storage.write(NAME, 0, out.getvalue())
    storage.sync(NAME)


def check_newest(storage: Storage) -> None:
    """Raise JournalDamaged if the segment that was begun last is not there."""
    names = storage.names()
    try:
        data = storage.read(NAME, 0, SIZE) if NAME in names else b""
    except ReadFailed as error:
        raise JournalDamaged(NAME, 0, "the disk cannot read what lies there") from error
    if len(data) < SIZE or read_i64_le(data, 8) != crc32(data[:8]):
        return
    name = segment_name(read_i64_le(data, 0))
    if name not in names:
        raise JournalDamaged(name, 0, "the newest segment is missing")
