"""The errors of an archive: each names the file, the cause, and what to do.

A file that is damaged or missing is never a gap: it was there, and its rows are somewhere, in a
backup or on the server.
"""

import socket
from pathlib import Path

from jobyard.client.errors import Code, JobyardError


def damaged(file: Path, why: str) -> JobyardError:
    """Return the error for a file whose content cannot be trusted."""
    return JobyardError(
        Code.ARCHIVE_DAMAGED,
        f"{file} {why}",
        option="archivePath",
        remedy="Restore this file from a backup; nothing is read in its place.",
        detail={"file": str(file)},
    )


def not_found(path: Path, why: str) -> JobyardError:
    """Return the error for an archive that this machine does not have."""
    return JobyardError(
        Code.ARCHIVE_NOT_FOUND,
        f"{path} {why} on {socket.gethostname()}",
        option="archivePath",
        remedy="The driver and all executors must reach the folder under the same path.",
        detail={"file": str(path)},
    )


def not_written(folder: Path, fault: OSError) -> JobyardError:
    """Return the error for an archive that cannot be added to."""
    return JobyardError(
        Code.ARCHIVE_NOT_WRITTEN,
        f"{folder} cannot be written: {fault.strerror or fault}",
        option="folder",
        remedy="Give permission or space; the next run goes on behind the last file.",
        detail={"file": str(folder)},
    )


def differs(topic: str, why: str, remedy: str) -> JobyardError:
    """Return the error for an archive and a topic that do not belong together."""
    return JobyardError(Code.ARCHIVE_DIFFERS, why, option="archivePath", remedy=remedy).within(
        topic=topic
    )
