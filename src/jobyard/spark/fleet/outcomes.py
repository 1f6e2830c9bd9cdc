"""What became of a claim set, passed from the process that commits to the one that claims.

Spark commits a batch in a process of its own, and reports progress from the reader's. Both run on
the driver's machine under one user, so the counts are in a small file of a folder that only this
user can open. The file serves the progress of the query alone: if it is missing, counts are
missing, and nothing else depends on it.
"""

import contextlib
import json
import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path
from typing import Final, final

from jobyard.client import Answer

# Of a query that ended before it read them.
_KEPT_S: Final = 86_400
_COUNTS: Final = ("acked", "nacked", "dead_lettered")
_SIZE_MAX: Final = 64 << 10


@final
class Outcome:
    """How many runs of some sets have ended, how, and why others could not."""

    def __init__(self) -> None:
        self.ended: Counter[str] = Counter()
        self.skipped: Counter[str] = Counter()

    def add(self, other: "Outcome") -> None:
        """Count another outcome as well."""
        self.ended += other.ended
        self.skipped += other.skipped

    def form(self) -> dict[str, object]:
        """Return it as a progress shows it."""
        counts: dict[str, object] = {name: self.ended[name] for name in _COUNTS}
        return {**counts, "skipped": sum(self.skipped.values()), "skipped_why": dict(self.skipped)}


def outcome_of(answer: Answer) -> Outcome:
    """Return what the answer to a commit says."""
    found = Outcome()
    found.ended.update({name: answer.number_or(name, 0) for name in _COUNTS})
    skipped = answer.fields.get("skipped")
    for one in skipped if isinstance(skipped, list) else ():
        if isinstance(one, list) and len(one) == 3:
            found.skipped[str(one[2])] += 1
    return found


def leave(url: str, claims: Iterable[str], outcome: Outcome) -> None:
    """Leave an outcome for the reader; without room or permission, leave nothing."""
    text = json.dumps([outcome.ended, outcome.skipped])
    for claim in claims:
        with contextlib.suppress(OSError):
            file = _file(url, claim)
            made = file.with_suffix(f".{os.getpid()}")
            made.write_text(text)
            made.replace(file)


def take(url: str, claim: str) -> Outcome | None:
    """Return the outcome that was left for a claim set, once; None if there is none."""
    try:
        file = _file(url, claim)
        text = file.read_text()[:_SIZE_MAX]
        file.unlink()
        ended, skipped = json.loads(text)
    except (OSError, ValueError):
        return None
    found = Outcome()
    found.ended.update(ended)
    found.skipped.update(skipped)
    return found


def clean() -> None:
    """Remove what nobody has read for a day."""
    with contextlib.suppress(OSError):
        for file in _folder().iterdir():
            if file.stat().st_mtime < time.time() - _KEPT_S:
                file.unlink()


def _file(url: str, claim: str) -> Path:
    name = blake2b(f"{url}\0{claim}".encode(), digest_size=16).hexdigest()
    return _folder() / f"{name}.json"


def _folder() -> Path:
    """Return the folder of this user; OSError if it is another one's."""
    folder = Path(tempfile.gettempdir()) / f"jobyard-fleet-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        raise PermissionError(folder)
    return folder
