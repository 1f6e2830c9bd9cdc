"""Faults for a real server process: a disk that fails, fills up, slows down or loses its power.

There are two ways. A small C library loaded before libc makes chosen calls fail, for every user;
it needs a C compiler. Mounts (a small tmpfs, an ext4 image whose power can be cut) are real and
need root. A test is skipped with the reason if its way is not available.
"""

import array
import contextlib
import fcntl
import mmap
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).with_name("faults.c")

# In the order of the enum in faults.c.
FIELDS: Final = (
    "syncs",
    "counts_all",
    "sync_fails_at",
    "sync_delay_us",
    "writes",
    "write_fails_at",
    "write_short_at",
    "is_full",
    "has_failed",
    "sends_after",
    "is_in_thread",
)

# ext4: stop at once without writing anything more, not even the file system's own journal.
FS_IOC_SHUTDOWN: Final = 0x8004587D
NO_LOG_FLUSH: Final = 2

COMMAND_S: Final = 60.0


class Unavailable(Exception):
    """This machine or user cannot produce the fault; the text says why."""


def build_library(folder: Path) -> Path:
    """Compile the library into `folder`."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise Unavailable("no C compiler")
    library = folder / "faults.so"
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE), "-ldl"]
    built = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_S, check=False)
    if built.returncode != 0:
        raise Unavailable(f"faults.c does not compile: {built.stderr}")
    return library


class Faults:
    """The switches of one process that runs with the library, and what it has counted."""

    def __init__(self, library: Path, path: Path) -> None:
        path.write_bytes(bytes(8 * len(FIELDS)))
        with path.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), 8 * len(FIELDS))
        self.env: Final = {"LD_PRELOAD": str(library), "YARD_FAULTS": str(path)}

    def get(self, field: str) -> int:
        """Return a number as the process sees it now."""
        at = 8 * FIELDS.index(field)
        return array.array("q", self._shared[at : at + 8])[0]

    def set(self, field: str, value: int) -> None:
        """Set a number; it holds from the next call on."""
        at = 8 * FIELDS.index(field)
        self._shared[at : at + 8] = array.array("q", [value]).tobytes()

    def reset(self) -> None:
        """Make every call succeed, and reset the counters."""
        for field in FIELDS:
            self.set(field, 0)

    def fail_sync(self, after: int) -> None:
        """Let `after` more syncs succeed and the next one fail."""
        self.set("sync_fails_at", self.get("syncs") + after + 1)

    def fail_write(self, after: int) -> None:
        """Let `after` more writes succeed and the next one fail."""
        self.set("write_fails_at", self.get("writes") + after + 1)

    def close(self) -> None:
        """Unmap the switches."""
        self._shared.close()


def _run(*command: str) -> None:
    ended = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_S, check=False)
    if ended.returncode != 0:
        raise Unavailable(f"{command[0]}: {ended.stderr.strip()}")


def _require(*programs: str) -> None:
    if os.geteuid() != 0:
        raise Unavailable("only root may mount")
    for program in programs:
        if shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin") is None:
            raise Unavailable(f"no {program}")


@contextlib.contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Path]:
    """Mount a file system of exactly `size` bytes."""
    _require("mount", "umount")
    folder.mkdir()
    _run("mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder))
    try:
        yield folder
    finally:
        _run("umount", "-l", str(folder))


class PowerDisk:
    """An ext4 file system in an image file, whose power can be cut."""

    def __init__(self, folder: Path, size: int) -> None:
        _require("mount", "umount", "mkfs.ext4", "losetup")
        self._image = folder / "disk.image"
        self.root: Final = folder / "disk"
        self.root.mkdir()
        with self._image.open("wb") as file:
            file.truncate(size)
        _run("mkfs.ext4", "-q", "-F", str(self._image))
        self.plug_in()

    def plug_in(self) -> None:
        """Mount what the disk holds now."""
        _run("mount", "-o", "loop", str(self._image), str(self.root))

    def cut_power(self) -> None:
        """Lose everything that was not synced; every later call on the disk fails."""
        descriptor = os.open(self.root, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, FS_IOC_SHUTDOWN, array.array("I", [NO_LOG_FLUSH]))
        except OSError as error:
            raise Unavailable(f"ext4 cannot be shut down: {error}") from error
        finally:
            os.close(descriptor)

    def unplug(self) -> None:
        """Unmount, once no process uses the disk."""
        _run("umount", str(self.root))
