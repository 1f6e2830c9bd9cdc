"""The file that vouches for what nothing later in the journal vouches for.

Every other segment is told of by a record in a later one, and every batch but the newest by a later
header. This file names the newest hot segment, so that it cannot be missing unseen, and once the
server has been idle for a moment the newest batch that is on disk, so that damage to it is not
taken for a torn tail. 32 bytes: 0 segment number, 8 crc of bytes 0-7, 16 batch number or 0, 24 crc
of bytes 0-23. A crash may leave it unreadable; then it says nothing, and nothing is missed.
"""

from typing import Final
from zlib import crc32

from librt.strings import BytesWriter, read_i64_le, write_i64_le
from mypy_extensions import i64

from jobyard.errors import JournalDamaged, ReadFailed, StorageFull
from jobyard.journal.format.segment import segment_name
from jobyard.journal.storage import Storage

NAME: Final = "newest"
SIZE: Final = 32
# What older versions wrote, and still read: the segment alone.
_SEGMENT_SIZE: Final = 16


def note_newest(storage: Storage, number: i64, batch: i64 = 0) -> None:
    """Write down, on disk, that segment `number` has been begun, and that `batch` is on disk."""
    if NAME not in storage.names():
        try:
            storage.create(NAME, SIZE)
        except StorageFull:
            # Without it some kinds of damage would go unseen; that is no reason not to serve.
            return
        storage.sync_directory()
    out = BytesWriter()
    write_i64_le(out, number)
    write_i64_le(out, crc32(out.getvalue()))
    write_i64_le(out, batch)
    write_i64_le(out, crc32(out.getvalue()))
    storage.write(NAME, 0, out.getvalue())
    storage.sync(NAME)


def check_newest(storage: Storage) -> i64:
    """Raise JournalDamaged if the segment that was begun last is not there.

    Returns a batch that was on disk, or 0 if none is told.
    """
    names = storage.names()
    try:
        data = storage.read(NAME, 0, SIZE) if NAME in names else b""
    except ReadFailed as error:
        raise JournalDamaged(NAME, 0, "the disk cannot read what lies there") from error
    if len(data) < _SEGMENT_SIZE or read_i64_le(data, 8) != crc32(data[:8]):
        return 0
    name = segment_name(read_i64_le(data, 0))
    if name not in names:
        raise JournalDamaged(name, 0, "the newest segment is missing")
    if len(data) < SIZE or read_i64_le(data, 24) != crc32(data[:24]):
        return 0
    return read_i64_le(data, 16)
