"""FileStorage: the one place that calls the operating system for the journal.

Every failure becomes StorageFull (no room for a new file), ReadFailed (a place that the disk cannot
read, while it can read others) or StorageFailed (anything else). A
sync is never retried: after a failed one the kernel may have dropped the dirty pages, and a
second sync could succeed without them.
"""

import contextlib
import errno
import fcntl
import os
from pathlib import Path
from typing import Final, final

from jobyard.errors import ReadFailed, StartRefused, StorageFailed, StorageFull
from jobyard.journal.storage import Storage

LOCK_NAME: Final = "lock"
DIRECTORY_MODE: Final = 0o700
FILE_MODE: Final = 0o600
# Bodies on disk only are read from few segments at a time.
READ_FILES_MAX: Final = 64
# Two segments are written at a time; a sync in the other thread uses the newest of these.
WRITTEN_FILES_MAX: Final = 8
_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# No file can be made now, but one can be later; nothing is lost by waiting.
_NO_DESCRIPTOR: Final = (errno.EMFILE, errno.ENFILE)
# What a disk or file system says of a place that it cannot read.
_UNREADABLE: Final = (errno.EIO, errno.EBADMSG, errno.EUCLEAN, errno.EREMOTEIO)
_ZEROS: Final = bytes(1 << 20)
# Up to here a new file is written with zeros at once (a few ms); beyond, its space is reserved and
# the zeros follow in the background, because a sync is cheapest where blocks were written before.
FILLED_AT_ONCE_MAX: Final = 4 << 20


def _failed(what: str, name: str, error: OSError) -> StorageFailed:
    # The text carries the cause: compiled code drops __cause__.
    return StorageFailed(f"{what} {name}: {error.strerror or error}")


@final
class FileStorage(Storage):
    """The files of one data directory, held by one server at a time."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._written: dict[str, int] = {}
        self._read: dict[str, int] = {}
        if directory.exists() and not directory.is_dir():
            raise StartRefused(f"cannot use {directory}: it is not a directory")
        try:
            directory.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
            self._directory_fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise StartRefused(f"cannot use {directory}: {error.strerror}") from error
        self._lock_fd = self._lock()

    def _lock(self) -> int:
        path = self._directory / LOCK_NAME
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        except OSError as error:
            raise StartRefused(f"cannot write to {self._directory}: {error.strerror}") from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            raise StartRefused(f"{self._directory} is in use by another server") from error
        return fd

    def close(self) -> None:
        """Give up the directory."""
        for fds in (self._written, self._read):
            for fd in fds.values():
                os.close(fd)
            fds.clear()
        os.close(self._directory_fd)
        os.close(self._lock_fd)

    def names(self) -> list[str]:
        """Return the names of all files."""
        try:
            return [path.name for path in self._directory.iterdir()]
        except OSError as error:
            raise _failed("list", str(self._directory), error) from error

    def size(self, name: str) -> int:
        """Return the size of a file."""
        try:
            return os.stat(name, dir_fd=self._directory_fd).st_size
        except OSError as error:
            raise _failed("stat", name, error) from error

    def read(self, name: str, offset: int, size: int) -> bytes:
        """Return up to `size` bytes."""
        data = b""
        try:
            fd = self._fd(name, self._read, READ_FILES_MAX)
            data = os.pread(fd, size, offset)
            while len(data) < size:
                more = os.pread(fd, size - len(data), offset + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            if error.errno in _UNREADABLE:
                at = offset + len(data)
                text = f"read {name} at offset {at}: {error.strerror}"
                raise ReadFailed(text, name, at) from error
            raise _failed("read", name, error) from error
        return data

    def create(self, name: str, size: int) -> None:
        """Make a file of zeros with its space reserved; leave nothing behind when there is none."""
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            fd = os.open(name, flags, FILE_MODE, dir_fd=self._directory_fd)
        except OSError as error:
            if error.errno in _NO_ROOM or error.errno in _NO_DESCRIPTOR:
                raise StorageFull(name) from error
            raise _failed("create", name, error) from error
        try:
            os.posix_fallocate(fd, 0, size)
            if size <= FILLED_AT_ONCE_MAX:
                _pwrite(fd, bytes(size), 0)
            os.fdatasync(fd)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=self._directory_fd)
            if error.errno in _NO_ROOM:
                raise StorageFull(name) from error
            raise _failed("create", name, error) from error
        finally:
            os.close(fd)

    def fill(self, name: str, offset: int) -> int:
        """Write zeros over the next piece of a new file; return where to go on, or -1 when done.

        Only for a file that no one uses yet. May be called from another thread.
        """
        try:
            fd = os.open(name, os.O_RDWR | os.O_CLOEXEC, dir_fd=self._directory_fd)
            try:
                size = os.fstat(fd).st_size
                piece = min(len(_ZEROS), size - offset)
                if piece > 0:
                    _pwrite(fd, _ZEROS[:piece], offset)
                    return offset + piece
                os.fdatasync(fd)
            finally:
                os.close(fd)
        except OSError as error:
            # A file that is not filled is only slower to use.
            if error.errno not in _NO_DESCRIPTOR:
                raise _failed("fill", name, error) from error
        return -1

    def write(self, name: str, offset: int, data: bytes) -> None:
        """Write all of `data`."""
        try:
            _pwrite(self._fd(name, self._written, WRITTEN_FILES_MAX), data, offset)
        except OSError as error:
            raise _failed("write", name, error) from error

    def sync(self, name: str) -> None:
        """Return once the file's bytes are on disk."""
        try:
            os.fdatasync(self._fd(name, self._written, WRITTEN_FILES_MAX))
        except OSError as error:
            raise _failed("sync", name, error) from error

    def truncate(self, name: str, size: int) -> None:
        """Give back the space past `size`."""
        try:
            os.ftruncate(self._fd(name, self._written, WRITTEN_FILES_MAX), size)
        except OSError as error:
            raise _failed("truncate", name, error) from error

    def rename(self, old: str, new: str) -> None:
        """Rename a file."""
        self._forget(old)
        try:
            fd = self._directory_fd
            os.rename(old, new, src_dir_fd=fd, dst_dir_fd=fd)
        except OSError as error:
            raise _failed("rename", old, error) from error

    def unlink(self, name: str) -> None:
        """Remove a file."""
        self._forget(name)
        try:
            os.unlink(name, dir_fd=self._directory_fd)
        except OSError as error:
            raise _failed("unlink", name, error) from error

    def sync_directory(self) -> None:
        """Return once all names are on disk."""
        try:
            os.fsync(self._directory_fd)
        except OSError as error:
            raise _failed("sync", str(self._directory), error) from error

    def _fd(self, name: str, fds: dict[str, int], most: int) -> int:
        fd = fds.get(name)
        if fd is None:
            if len(fds) >= most:
                os.close(fds.pop(next(iter(fds))))
            fd = os.open(name, os.O_RDWR | os.O_CLOEXEC, dir_fd=self._directory_fd)
            fds[name] = fd
        return fd

    def _forget(self, name: str) -> None:
        for fds in (self._written, self._read):
            fd = fds.pop(name, None)
            if fd is not None:
                os.close(fd)


def _pwrite(fd: int, data: bytes, offset: int) -> None:
    done = os.pwrite(fd, data, offset)
    while done < len(data):
        more = os.pwrite(fd, memoryview(data)[done:], offset + done)
        if more == 0:
            raise OSError(errno.EIO, "a write made no progress")
        done += more
