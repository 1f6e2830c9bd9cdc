"""Who may change a lake: one run, and for a moment one compaction.

Three locks of the kernel (flock), which the end of a process frees, whatever ends it:
- `lock` belongs to a run for as long as it lives; its text says who holds it.
- `compacting` belongs to a compaction, in the same way.
- `swap` is shared by all who read files that they found before: a run from the staging of a batch
  to its commit, and `reading`. A compaction takes it alone for the moment of its swap.
"""

import errno
import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from jobyard.client.errors import Code, JobyardError
from jobyard.lake.disk import named_faults

RUN: Final = "lock"
COMPACTING: Final = "compacting"
SWAP: Final = "swap"
# The locks are for this user's processes and for readers of the same group.
_MODE: Final = 0o664
_TEXT_MAX: Final = 1000


class Flock:
    """One open lock file; closed, it is free."""

    def __init__(self, path: Path, *, to_share: bool = False) -> None:
        try:
            self._number = os.open(path, os.O_RDWR | os.O_CREAT, _MODE)
        except OSError as fault:
            # One who may only read can share it.
            if not to_share or fault.errno not in {errno.EACCES, errno.EPERM, errno.EROFS}:
                raise
            self._number = os.open(path, os.O_RDONLY)

    def take(self, *, shared: bool = False, wait: bool = True) -> bool:
        """Take the lock; return whether that worked, which it does in the end if it may wait."""
        kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        try:
            fcntl.flock(self._number, kind if wait else kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def tell(self) -> None:
        """Write who holds it."""
        since = datetime.now(UTC).isoformat(timespec="seconds")
        text = json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": since})
        os.ftruncate(self._number, 0)
        os.pwrite(self._number, text.encode(), 0)

    def holder(self) -> str:
        """Return who holds it, as far as its text says."""
        text = os.pread(self._number, _TEXT_MAX, 0)
        with suppress(ValueError, KeyError, TypeError):
            told = json.loads(text)
            return f"process {told['pid']} on {told['host']} since {told['since']}"
        return "another process"

    def close(self) -> None:
        """Free the lock."""
        os.close(self._number)


@contextmanager
def held(path: Path, what: str) -> Iterator[None]:
    """Hold a lock, or say who holds it."""
    lake = path.parent.parent
    with named_faults(lake, "taking the lock"):
        lock = Flock(path)
    try:
        if not lock.take(wait=False):
            raise JobyardError(
                Code.LAKE_BUSY,
                f"{what} of lake {lake} goes on: {lock.holder()}",
                option="lake",
                remedy="wait for it, or end it; the end of the process frees the lake",
            )
        with named_faults(lake, "taking the lock"):
            lock.tell()
        yield
    finally:
        lock.close()


class SwapLock:
    """This process's part in the lock that readers share."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock: Flock | None = None

    def share(self) -> None:
        """Keep the files that are there; no effect if that is so already."""
        if self._lock is None:
            lock = Flock(self._path, to_share=True)
            lock.take(shared=True)
            self._lock = lock

    def free(self) -> None:
        """Let files be swapped again."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Wait until nobody reads, and hold the lake alone."""
        assert self._lock is None, "a reader that waits for itself would wait forever"
        lock = Flock(self._path)
        try:
            lock.take()
            yield
        finally:
            lock.close()
