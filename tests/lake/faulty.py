"""File systems that stop a program at a call, or are full from a call on."""

import errno
import os
from pathlib import Path
from typing import BinaryIO, cast

from jobyard.lake.disk import Disk


class Killed(BaseException):
    """The process is gone: nothing it would have done happens."""


class FaultyDisk(Disk):
    """Does `calls_max` calls; then every one fails."""

    def __init__(self, calls_max: int) -> None:
        self.calls = 0
        self.calls_max = calls_max

    def _call(self, path: Path, *, grows: bool = False) -> None:
        del path, grows
        self.calls += 1
        if self.calls > self.calls_max:
            raise Killed

    def make_folder(self, path: Path) -> None:
        if not path.is_dir():
            self._call(path, grows=True)
        super().make_folder(path)

    def create(self, path: Path) -> BinaryIO:
        self._call(path, grows=True)
        return cast("BinaryIO", _FaultyFile(self, path))

    def on_write(self, path: Path) -> None:
        self._call(path, grows=True)

    def sync(self, path: Path) -> None:
        self._call(path)
        super().sync(path)

    def rename(self, source: Path, target: Path) -> None:
        self._call(target)
        super().rename(source, target)

    def link(self, source: Path, target: Path) -> None:
        self._call(target, grows=True)
        super().link(source, target)

    def remove(self, path: Path) -> None:
        self._call(path)
        super().remove(path)

    def remove_folder(self, path: Path) -> None:
        self._call(path)
        super().remove_folder(path)

    def exchange(self, one: Path, other: Path) -> None:
        self._call(other)
        super().exchange(one, other)


class FullDisk(FaultyDisk):
    """Has no room from a call on: what needs none still works."""

    def __init__(self, calls_max: int) -> None:
        super().__init__(calls_max)
        self.refused = 0

    def _call(self, path: Path, *, grows: bool = False) -> None:
        if grows:
            self.calls += 1
            if self.calls > self.calls_max:
                self.refused += 1
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


class _FaultyFile:
    def __init__(self, disk: FaultyDisk, path: Path) -> None:
        self._disk = disk
        self._path = path
        self._file = path.open("wb")

    def write(self, content: bytes) -> int:
        # Half of it is there when the call fails.
        self._file.write(content[: len(content) // 2])
        self._disk.on_write(self._path)
        return self._file.write(content[len(content) // 2 :]) + len(content) // 2

    def tell(self) -> int:
        return self._file.tell()

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    @property
    def closed(self) -> bool:
        return self._file.closed

    def __enter__(self) -> "_FaultyFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
