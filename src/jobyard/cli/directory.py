"""`jobyard check DIR` and `jobyard repair DIR`: look at a data directory no server is using.

Only asks; what damage is and how it is set aside is known to the server's room.
"""

import sys
from pathlib import Path

import click

from jobyard.config import EXIT_USAGE
from jobyard.errors import StartRefused

_DIRECTORY = click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))


@click.command(short_help="Tell whether a data directory is whole; changes nothing.")
@_DIRECTORY
def check(directory: Path) -> int:
    """Read every file of the data directory DIR and tell what is in it and what is damaged.

    Changes nothing. The exit code is 0 when everything can be read back, otherwise not 0. A damaged
    body of more than 4 KiB counts, also after a repair, until its job is deleted.
    """
    _require_directory(directory)
    from jobyard.server import check_repair  # noqa: PLC0415 - see main.py

    return check_repair.check(directory, sys.stdout)


@click.command(short_help="Set damaged parts of a data directory aside.")
@_DIRECTORY
def repair(directory: Path) -> int:
    """Make the data directory DIR readable again.

    Damaged bytes are kept aside in the same directory, never deleted; every job that can still be
    read stays. Stop the server first. `jobyard check DIR` tells beforehand what is damaged.
    """
    _require_directory(directory)
    from jobyard.server import check_repair  # noqa: PLC0415 - see main.py

    return check_repair.repair(directory, sys.stdout)


def _require_directory(directory: Path) -> None:
    if not directory.is_dir():
        what = "is not a directory" if directory.exists() else "does not exist"
        raise StartRefused(f"{directory} {what}", EXIT_USAGE)
