"""One archiver at a time for the files of a topic.

The lock belongs to the process: it ends with it, however that ends. What is in the file is only
for the message to the second one.
"""

import fcntl
import os
import socket
from pathlib import Path
from types import TracebackType
from typing import IO, final

from jobyard.client.errors import Code, JobyardError
from jobyard.lake.archive.names import LOCK

_NOTE_MAX = 200


@final
class ArchiveLock:
    """The lock of one folder, held while it is entered."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOCK
        self._file: IO[str] | None = None

    def __enter__(self) -> "ArchiveLock":
        file = self._path.open("a+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            holder = file.read(_NOTE_MAX).strip() or "another process"
            file.close()
            raise JobyardError(
                Code.ARCHIVE_LOCKED,
                f"{self._path.parent} is being archived by {holder}",
                option="folder",
                remedy="One archiver writes a topic to a folder: end that one, or use another.",
            ) from None
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        file.flush()
        self._file = file
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file is not None:
            self._file.close()
