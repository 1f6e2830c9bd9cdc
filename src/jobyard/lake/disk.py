"""Every call that changes files of a lake, in one place.

What is written is on the disk when a call returns that says so (`sync`), and a test can replace
this class to stop a program at each call. It knows no tables. Reading is not its business.
"""

import ctypes
import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from jobyard.client.errors import Code, JobyardError

_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2
_NOT_SUPPORTED: Final = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP})
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_REFUSED: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


class Disk:
    """The file system, as far as it is changed."""

    def make_folder(self, path: Path) -> None:
        """Make a folder and those around it, and have their names on the disk."""
        missing = []
        while not path.is_dir():
            missing.append(path)
            path = path.parent
        for each in reversed(missing):
            each.mkdir(exist_ok=True)
            self.sync(each.parent)

    def create(self, path: Path) -> BinaryIO:
        """Open a new file for writing; `sync` brings it to the disk."""
        return path.open("wb")

    def write(self, path: Path, content: bytes) -> None:
        """Write a whole file, and have its content on the disk."""
        with self.create(path) as file:
            file.write(content)
        self.sync(path)

    def sync(self, path: Path) -> None:
        """Have the content of a file, or the names in a folder, on the disk."""
        number = os.open(path, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)

    def rename(self, source: Path, target: Path) -> None:
        """Put a file in its place, over what has that name."""
        source.replace(target)

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name."""
        target.hardlink_to(source)

    def remove(self, path: Path) -> None:
        """Remove a file that may be gone."""
        path.unlink(missing_ok=True)

    def remove_folder(self, path: Path) -> None:
        """Remove a folder with all it holds; it may be gone."""
        if path.is_dir():
            shutil.rmtree(path)

    def exchange(self, one: Path, other: Path) -> None:
        """Let two folders change places in one step: nobody sees neither or both."""
        call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
        code = errno.ENOSYS
        if call is not None:
            names = os.fsencode(one), os.fsencode(other)
            if call(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0:
                return
            code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(other))

    def can_exchange(self, folder: Path) -> bool:
        """Return whether folders can change places here, by trying it with two empty ones."""
        one, other = folder / "exchange-1", folder / "exchange-2"
        self.make_folder(one)
        self.make_folder(other)
        try:
            self.exchange(one, other)
        except OSError as fault:
            if fault.errno in _NOT_SUPPORTED:
                return False
            raise
        finally:
            self.remove_folder(one)
            self.remove_folder(other)
        return True


@contextmanager
def named_faults(folder: Path, doing: str) -> Iterator[None]:
    """Give faults of the file system the name of the lake, and tell what to do."""
    try:
        yield
    except OSError as fault:
        name = fault.filename or folder
        if fault.errno in _FULL:
            raise JobyardError(
                Code.LAKE_FULL,
                f"the disk of lake {folder} is full: {doing} stopped",
                option="lake",
                remedy="free some of it and run again: nothing is half there",
            ) from fault
        if fault.errno in _REFUSED:
            raise JobyardError(
                Code.BAD_LAKE,
                f"no permission for {name}: {fault.strerror} during {doing}",
                option="lake",
                remedy="give this user the right to read and write the folder",
            ) from fault
        raise JobyardError(
            Code.BAD_LAKE,
            f"{doing} failed in lake {folder}: {fault}",
            option="lake",
            remedy="mend the file system, or use a lake elsewhere",
        ) from fault


def damaged(path: Path | str, message: str) -> JobyardError:
    """Return the error for a file of a lake that is not what it should be."""
    return JobyardError(
        Code.LAKE_DAMAGED,
        f"{path}: {message}",
        option="lake",
        remedy="bring the file back from a copy, or fill a new lake from the server",
    )


def bad_batch(message: str) -> JobyardError:
    """Return the error for what cannot enter the tables."""
    return JobyardError(
        Code.BAD_BATCH,
        message,
        option="lake",
        remedy="Nothing was changed. A lake has one pipeline: look for another writer.",
    )
