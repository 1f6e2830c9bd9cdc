"""Objectives for queues, as `slo.toml` says them.

    window_days = 30

    [objectives.fast-mails]
    queues = ["mails", "orders-*"]
    wait_ms = 500
    target = 0.99

Reads and checks one file and nothing else: what is unknown, missing or impossible is an error that
names the file and the key.
"""

import difflib
import re
import tomllib
from pathlib import Path
from typing import Final, NamedTuple

from jobyard.client.errors import JobyardError, bad_option

WINDOW_DAYS: Final = 30
WINDOW_DAYS_MAX: Final = 366
OBJECTIVES_MAX: Final = 200
NAME_MAX: Final = 128
QUEUES_MAX: Final = 100
_MS_MAX: Final = 366 * 86_400_000
_FILE_SIZE_MAX: Final = 1 << 20
_TOP_KEYS: Final = ("window_days", "objectives")
_KEYS: Final = ("queues", "wait_ms", "total_ms", "target")


class Objective(NamedTuple):
    """A share of jobs that is to be quicker than a time."""

    name: str
    # A regular expression for the whole name of a queue.
    queues: str
    # The wait of each run, or else the time from put to completion of each job.
    is_wait: bool
    limit_ms: int
    target: float


class Objectives(NamedTuple):
    """All objectives, and the days that their budgets are for."""

    window_days: int = WINDOW_DAYS
    all: tuple[Objective, ...] = ()


def read_objectives(path: Path) -> Objectives:
    """Return the objectives of a file."""
    try:
        if path.stat().st_size > _FILE_SIZE_MAX:
            raise _bad(path, "it is larger than 1 MiB")
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as fault:
        raise _bad(path, f"it cannot be read: {fault.strerror}") from None
    except ValueError as fault:
        raise _bad(path, f"it is not TOML: {fault}") from None
    _known(path, "", content, _TOP_KEYS)
    window = content.get("window_days", WINDOW_DAYS)
    if isinstance(window, bool) or not isinstance(window, int):
        raise _bad(path, "window_days must be a whole number")
    if not 1 <= window <= WINDOW_DAYS_MAX:
        raise _bad(path, f"window_days must be from 1 to {WINDOW_DAYS_MAX}")
    found = content.get("objectives", {})
    if not isinstance(found, dict) or len(found) > OBJECTIVES_MAX:
        raise _bad(path, f"objectives must be at most {OBJECTIVES_MAX} tables [objectives.NAME]")
    return Objectives(window, tuple(_objective(path, name, found[name]) for name in found))


def _objective(path: Path, name: str, fields: object) -> Objective:
    if not 0 < len(name) <= NAME_MAX or not name.isprintable():
        raise _bad(path, f"a name of an objective has 1 to {NAME_MAX} letters")
    if not isinstance(fields, dict):
        raise _bad(path, f"objective {name} must be a table [objectives.{name}]")
    _known(path, f" of objective {name}", fields, _KEYS)
    limits = [key for key in ("wait_ms", "total_ms") if key in fields]
    if len(limits) != 1:
        raise _bad(path, f"objective {name} needs exactly one of wait_ms and total_ms")
    limit_ms = fields[limits[0]]
    if isinstance(limit_ms, bool) or not isinstance(limit_ms, int) or not 0 < limit_ms <= _MS_MAX:
        raise _bad(path, f"{limits[0]} of objective {name} must be a positive whole number")
    target = fields.get("target")
    if isinstance(target, bool) or not isinstance(target, float) or not 0 < target < 1:
        raise _bad(path, f"target of objective {name} must be between 0 and 1, such as 0.99")
    return Objective(name, _queues(path, name, fields), limits[0] == "wait_ms", limit_ms, target)


def _queues(path: Path, name: str, fields: dict[str, object]) -> str:
    queues = fields.get("queues")
    if (
        not isinstance(queues, list)
        or not 0 < len(queues) <= QUEUES_MAX
        or not all(isinstance(queue, str) and 0 < len(queue) <= 1000 for queue in queues)
    ):
        raise _bad(path, f'queues of objective {name} must be names, such as ["mails", "a-*"]')
    return "^(?:{})$".format("|".join(_pattern(queue) for queue in queues))


def _pattern(queue: str) -> str:
    """Return a name in which * stands for any letters, as a regular expression."""
    return ".*".join(re.escape(part) for part in queue.split("*"))


def _known(path: Path, where: str, fields: dict[str, object], known: tuple[str, ...]) -> None:
    for key in fields:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"keys are {', '.join(known)}"
            raise _bad(path, f"there is no key {key[:80]}{where}; {hint}")


def _bad(path: Path, why: str) -> JobyardError:
    return bad_option("slo", f"{path}: {why}", "See the chapter on slo.toml in docs/lake.md.")
