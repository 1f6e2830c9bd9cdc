"""What a commit is about to do, written down before the first step.

All content is on the disk before the intent, and its steps only rename, exchange, remove, and let
files enter a table. So a commit that a kill cut off is done again from its first step: a step
that was done has no effect. The last step puts the new state in its place.
"""

import json
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from jobyard.lake import state as states
from jobyard.lake.disk import Disk, damaged
from jobyard.lake.names import MANIFEST

INTENT: Final = "intent.json"
RENAME: Final = "rename"
EXCHANGE: Final = "exchange"
REMOVE: Final = "remove"
ENTER: Final = "enter"
_ACTS: Final = frozenset({RENAME, EXCHANGE, REMOVE, ENTER})


class Step(NamedTuple):
    """One change. Paths are relative to the lake."""

    act: str
    source: str = ""
    target: str = ""
    # EXCHANGE: files that are in the target after it. ENTER: files that enter the table.
    names: tuple[str, ...] = ()
    # ENTER: folders of partitions whose files leave the table.
    folders: tuple[str, ...] = ()


class Intent(NamedTuple):
    """All steps of one commit or compaction."""

    generation: int
    yard: str
    to_seq: int
    steps: tuple[Step, ...]


def write_intent(disk: Disk, lake: Path, intent: Intent) -> None:
    """Have an intent on the disk: from here on it will be done."""
    manifest = lake / MANIFEST
    new = manifest / f"{INTENT}.new"
    disk.write(new, json.dumps(intent._asdict()).encode())
    disk.rename(new, manifest / INTENT)
    disk.sync(manifest)


def read_intent(lake: Path) -> Intent | None:
    """Return the intent that waits to be ended, if there is one."""
    path = lake / MANIFEST / INTENT
    if not path.exists():
        return None
    found = states.read_json(path)
    try:
        return _intent(found)
    except (KeyError, TypeError, ValueError) as fault:
        raise damaged(path, f"the file is not what Jobyard writes: {fault}") from fault


def _intent(found: dict[str, object]) -> Intent:
    generation, yard, to_seq = found["generation"], found["yard"], found["to_seq"]
    steps = found["steps"]
    if (
        not isinstance(generation, int)
        or not isinstance(yard, str)
        or not isinstance(to_seq, int)
        or not isinstance(steps, list)
    ):
        raise TypeError("a field has a wrong type")
    return Intent(generation, yard, to_seq, tuple(_step(*each) for each in steps))


def _step(act: str, source: str, target: str, names: list[str], folders: list[str]) -> Step:
    if act not in _ACTS:
        raise ValueError(act)
    for each in (source, target, *names, *folders):
        path = PurePosixPath(each)
        if path.is_absolute() or ".." in path.parts:
            raise ValueError(each)
    return Step(act, source, target, tuple(names), tuple(folders))


def do_step(disk: Disk, lake: Path, step: Step) -> None:
    """Do a step on files, or find that it was done."""
    source, target = lake / step.source, lake / step.target
    if step.act == RENAME:
        if source.exists():
            disk.rename(source, target)
        elif not target.exists():
            raise damaged(source, "the file is gone, and a commit that was begun needs it")
    elif step.act == EXCHANGE:
        if not _is_exchanged(target, step):
            disk.exchange(source, target)
    else:
        assert step.act == REMOVE
        disk.remove(target)


def _is_exchanged(target: Path, step: Step) -> bool:
    if step.names:
        return all((target / name).exists() for name in step.names)
    return not any(target.iterdir())
