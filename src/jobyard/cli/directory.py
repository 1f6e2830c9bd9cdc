"""`jobyard check DIR` and `jobyard repair DIR`: check or repair a data directory not in use.

Only parses the command line; `server/check_repair.py` does the work.
"""

import sys
from pathlib import Path

import click

from jobyard.config import EXIT_USAGE
from jobyard.errors import StartRefused

_DIRECTORY = click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))


@click.command(short_help="Check a data directory for damage, without changing it.")
@_DIRECTORY
def check(directory: Path) -> int:
    """Read every file of the data directory DIR and report its contents and any damage.

    Changes nothing. The exit code is 0 if everything can be read back. A damaged body over 4 KiB is
    reported, even after a repair, until its job is deleted.
    """
    _require_directory(directory)
    from jobyard.server import check_repair  # noqa: PLC0415 - see main.py

    return check_repair.check(directory, sys.stdout)


@click.command(short_help="Repair a damaged data directory.")
@_DIRECTORY
def repair(directory: Path) -> int:
    """Make the data directory DIR readable again.

    Keeps every job that can still be read. Damaged files are renamed within the directory, never
    deleted. Stop the server first. Run `jobyard check DIR` to see what is damaged.
    """
    _require_directory(directory)
    from jobyard.server import check_repair  # noqa: PLC0415 - see main.py

    return check_repair.repair(directory, sys.stdout)


def _require_directory(directory: Path) -> None:
    if not directory.is_dir():
        what = "is not a directory" if directory.exists() else "does not exist"
        raise StartRefused(f"{directory} {what}", EXIT_USAGE)
