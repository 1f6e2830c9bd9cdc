"""What a lake tells, as a page and as lines for a terminal: read from gold, without Spark or Java.

`report` writes one HTML file that needs nothing else; `summary` returns about twenty lines.
"""

import os
from datetime import datetime
from pathlib import Path

from jobyard.client.errors import bad_option
from jobyard.lake.opening import Lake
from jobyard.lake.report.facts import Since, gather
from jobyard.lake.report.page.document import document
from jobyard.lake.report.terminal import lines

__all__ = ["report", "summary"]


def report(
    lake: Lake,
    *,
    since: Since = None,
    queue: str | None = None,
    out: Path,
    now: datetime | None = None,
) -> Path:
    """Write the report of a lake, or of one queue in it, to the file `out`; return its path.

    `since` is a time, or how far to go back from now; without it the report covers the whole lake.
    The file is there as a whole or not at all.
    """
    if out.is_dir():
        raise bad_option("out", f"{out} is a folder.", "Name a file in it, such as report.html.")
    if not out.parent.is_dir():
        raise bad_option("out", f"The folder {out.parent} does not exist.", "Make it first.")
    page = document(gather(lake, since=since, queue=queue, now=now))
    # In the same folder, for a rename; with the process in its name, for two that write one file.
    part = out.with_name(f".{out.name}.{os.getpid()}.part")
    try:
        part.write_text(page, encoding="utf-8")
        part.replace(out)
    except OSError as error:
        part.unlink(missing_ok=True)
        message = f"The report cannot be written to {out}: {error.strerror}."
        raise bad_option("out", message, "Name another file.") from error
    return out


def summary(
    lake: Lake,
    *,
    since: Since = None,
    queue: str | None = None,
    now: datetime | None = None,
    colours: bool = False,
) -> str:
    """Return the figures of a lake in about twenty lines of at most 80 columns."""
    return lines(gather(lake, since=since, queue=queue, now=now), colours=colours)
