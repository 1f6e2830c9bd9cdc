"""FileStorage: the only place that calls the operating system for the journal.

Every failure becomes StorageFull (no space for a new file), ReadFailed (one place of the disk is
unreadable) or StorageFailed (anything else). A sync is never retried: after a failed one the kernel
may have dropped the dirty pages, and a second sync could succeed without them.
"""

import contextlib
import errno
import fcntl
import os
import stat
from pathlib import Path
from typing import Final, final

from jobyard.errors import ReadFailed, StartRefused, StorageFailed, StorageFull
from jobyard.journal.storage import Storage

LOCK_NAME: Final = "lock"
DIRECTORY_MODE: Final = 0o700
FILE_MODE: Final = 0o600
# Bodies that are only on disk are read from few segments at a time.
READ_FILES_MAX: Final = 64
# Kept open so that the journal can open files when connections use up all descriptors.
RESERVED_FILES: Final = 4
# Two segments are written at a time; a sync in the other thread uses the newest of these.
WRITTEN_FILES_MAX: Final = 8
_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# No file can be created now, but later one can; waiting loses nothing.
_NO_DESCRIPTOR: Final = (errno.EMFILE, errno.ENFILE)
# Errors of a disk or file system for an unreadable place.
_UNREADABLE: Final = (errno.EIO, errno.EBADMSG, errno.EUCLEAN, errno.EREMOTEIO)
_ZEROS: Final = bytes(1 << 20)
# A new file up to this size is filled with zeros immediately (a few ms). For larger ones, space is
# reserved and the zeros follow in the background: a sync is cheapest on blocks written before.
FILLED_AT_ONCE_MAX: Final = 4 << 20
# The kernel's limit for one call.
PIECES_AT_ONCE: Final = 1024


def _failed(what: str, name: str, error: OSError) -> StorageFailed:
    # The text carries the cause: compiled code drops __cause__.
    return StorageFailed(f"{what} {name}: {error.strerror or error}")


@final
class FileStorage(Storage):
    """The files of one data directory, used by one server at a time."""

    def __init__(self, directory: Path, *, is_read_only: bool = False) -> None:
        self._directory = directory
        self._written: dict[str, int] = {}
        self._read: dict[str, int] = {}
        self._reserved: list[int] = []
        # The directory and the lock file are both locked: either may exist without the other.
        self._locks: list[int] = []
        if directory.exists() and not directory.is_dir():
            raise StartRefused(f"cannot use {directory}: it is not a directory")
        try:
            if not is_read_only:
                directory.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
            self._directory_fd = os.open(directory, flags)
        except OSError as error:
            raise StartRefused(f"cannot use {directory}: {error.strerror}") from error
        self._locks.append(self._directory_fd)
        try:
            if not is_read_only:
                self._refuse_writable()
            self._lock(self._directory_fd)
            self._lock_file(is_read_only=is_read_only)
        except StartRefused:
            self.close()
            raise
        self._refill()

    def warning(self) -> str:
        """Return a warning about the directory's permissions, or an empty text."""
        mode = stat.S_IMODE(os.fstat(self._directory_fd).st_mode)
        if not mode & stat.S_IWGRP:
            return ""
        directory = self._directory
        return f"{directory} is writable by its group (mode {mode:04o}): chmod g-w {directory}"

    def _refuse_writable(self) -> None:
        mode = stat.S_IMODE(os.fstat(self._directory_fd).st_mode)
        if mode & stat.S_IWOTH:
            directory = self._directory
            text = f"{directory} is writable by everyone (mode {mode:04o}): chmod o-w {directory}"
            raise StartRefused(text)

    def _lock(self, fd: int) -> None:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StartRefused(f"{self._directory} is in use by another server") from error
        except OSError as error:
            # Some network file systems cannot lock directories.
            if fd != self._directory_fd:
                raise StartRefused(f"cannot lock {self._directory}: {error.strerror}") from error

    def _lock_file(self, *, is_read_only: bool) -> None:
        """Lock the lock file too, which is what older versions check."""
        path = self._directory / LOCK_NAME
        flags = os.O_RDONLY if is_read_only else os.O_RDWR | os.O_CREAT
        try:
            self._locks.append(os.open(path, flags | os.O_CLOEXEC, FILE_MODE))
        except FileNotFoundError as error:
            if is_read_only:
                return
            raise StartRefused(f"cannot write to {self._directory}: {error.strerror}") from error
        except OSError as error:
            what = "read" if is_read_only else "write to"
            raise StartRefused(f"cannot {what} {self._directory}: {error.strerror}") from error
        self._lock(self._locks[-1])

    def close(self) -> None:
        """Release the directory and close all files."""
        for fds in (self._written, self._read):
            for fd in fds.values():
                os.close(fd)
            fds.clear()
        for fd in (*self._reserved, *self._locks):
            os.close(fd)
        self._reserved.clear()
        self._locks.clear()

    def look(self) -> None:
        """Raise StorageFailed if the directory, or a file being written, was removed.

        Whatever is written then is lost, although every call succeeds. Called once a second.
        """
        files = {str(self._directory): self._directory_fd, **self._written}
        for name, fd in files.items():
            try:
                is_there = os.fstat(fd).st_nlink > 0
            except OSError as error:
                raise _failed("check", name, error) from error
            if not is_there:
                raise StorageFailed(f"{name} was removed while the server was running")
        self._refill()

    def _refill(self) -> None:
        """Refill the reserve of descriptors; if none is free, the next call tries again."""
        with contextlib.suppress(OSError):
            while len(self._reserved) < RESERVED_FILES:
                self._reserved.append(os.dup(self._directory_fd))

    def _open(self, name: str, flags: int) -> int:
        """Open an existing file, if needed with a descriptor of the reserve."""
        while True:
            try:
                return os.open(name, flags | os.O_CLOEXEC, dir_fd=self._directory_fd)
            except OSError as error:
                if not self._gave_way(error):
                    raise

    def _gave_way(self, error: OSError) -> bool:
        """Free a descriptor of the reserve if none was left; return whether one was freed."""
        if error.errno not in _NO_DESCRIPTOR or not self._reserved:
            return False
        os.close(self._reserved.pop())
        return True

    def names(self) -> list[str]:
        """Return the names of all files."""
        while True:
            try:
                return [path.name for path in self._directory.iterdir()]
            except OSError as error:
                if not self._gave_way(error):
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
            fd = self._fd(name, self._read, READ_FILES_MAX, os.O_RDONLY)
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
        """Create a file of zeros with its space reserved; remove it if there is not enough."""
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
        """Fill the next piece of a new file with zeros; return where to continue, or -1 if done.

        Only for a file that is not used yet. May be called from another thread.
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
            # A file that is not filled is only slower.
            if error.errno not in _NO_DESCRIPTOR:
                raise _failed("fill", name, error) from error
        return -1

    def write(self, name: str, offset: int, data: bytes) -> None:
        """Write all of `data`."""
        try:
            _pwrite(self._fd(name, self._written, WRITTEN_FILES_MAX), data, offset)
        except OSError as error:
            raise _failed("write", name, error) from error

    def write_apart(self, name: str, offset: int, pieces: list[bytes]) -> None:
        """Write all of `pieces` from another thread, with a descriptor of its own."""
        try:
            fd = self._open(name, os.O_RDWR)
            try:
                for at in range(0, len(pieces), PIECES_AT_ONCE):
                    offset = _pwritev(fd, pieces[at : at + PIECES_AT_ONCE], offset)
            finally:
                os.close(fd)
        except OSError as error:
            raise _failed("write", name, error) from error

    def sync(self, name: str) -> None:
        """Return once the file's bytes are on disk."""
        try:
            os.fdatasync(self._fd(name, self._written, WRITTEN_FILES_MAX))
        except OSError as error:
            raise _failed("sync", name, error) from error

    def truncate(self, name: str, size: int) -> None:
        """Release the space beyond `size`."""
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
        """Return once all file names are on disk."""
        try:
            os.fsync(self._directory_fd)
        except OSError as error:
            raise _failed("sync", str(self._directory), error) from error

    def _fd(self, name: str, fds: dict[str, int], most: int, flags: int = os.O_RDWR) -> int:
        fd = fds.get(name)
        if fd is None:
            if len(fds) >= most:
                os.close(fds.pop(next(iter(fds))))
            fd = self._open(name, flags)
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


def _pwritev(fd: int, pieces: list[bytes], offset: int) -> int:
    """Write all of `pieces` in sequence; return the offset of their end."""
    done = os.pwritev(fd, pieces, offset)
    for piece in pieces:
        size = len(piece)
        if done < size:
            _pwrite(fd, piece[done:], offset + done)
            done = size
        done -= size
        offset += size
    return offset
