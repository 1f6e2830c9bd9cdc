"""The file `newest`, which names the newest segment and batch.

Every other segment is listed by a record in a later one, and every batch but the newest is named by
a later header. This file names the newest hot segment, so that its loss is detected. Once the
server has been idle for a moment, it also names the newest batch on disk, so that damage to it is
not taken for a torn tail. 32 bytes: 0 segment number, 8 crc of bytes 0-7, 16 batch number or 0,
24 crc of bytes 0-23. A crash may leave the file unreadable; then it is ignored.
"""

from typing import Final
from zlib import crc32

from librt.strings import BytesWriter, read_i64_le, write_i64_le
from mypy_extensions import i64

from jobyard.errors import JournalDamaged, ReadFailed, StorageFull
from jobyard.journal.format.segment import segment_name
from jobyard.journal.storage import Storage

NEWEST_FILE: Final = "newest"
SIZE: Final = 32
# The size that older versions wrote, and still read: the segment alone.
_SEGMENT_SIZE: Final = 16


def note_newest(storage: Storage, number: i64, batch: i64 = 0) -> None:
    """Record, on disk, that segment `number` was begun and that `batch` is on disk."""
    if NEWEST_FILE not in storage.names():
        try:
            storage.create(NEWEST_FILE, SIZE)
        except StorageFull:
            # Without it, some kinds of damage go undetected; that is no reason not to serve.
            return
        storage.sync_directory()
    out = BytesWriter()
    write_i64_le(out, number)
    write_i64_le(out, crc32(out.getvalue()))
    write_i64_le(out, batch)
    write_i64_le(out, crc32(out.getvalue()))
    storage.write(NEWEST_FILE, 0, out.getvalue())
    storage.sync(NEWEST_FILE)


def check_newest(storage: Storage) -> i64:
    """Raise JournalDamaged if the newest segment is missing.

    Returns the number of a batch that was on disk, or 0 if the file names none.
    """
    names = storage.names()
    try:
        data = storage.read(NEWEST_FILE, 0, SIZE) if NEWEST_FILE in names else b""
    except ReadFailed as error:
        raise JournalDamaged(NEWEST_FILE, 0, "the disk cannot read this sector") from error
    if len(data) < _SEGMENT_SIZE or read_i64_le(data, 8) != crc32(data[:8]):
        return 0
    name = segment_name(read_i64_le(data, 0))
    if name not in names:
        raise JournalDamaged(name, 0, "the newest segment is missing")
    if len(data) < SIZE or read_i64_le(data, 24) != crc32(data[:24]):
        return 0
    return read_i64_le(data, 16)
