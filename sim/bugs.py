"""Planted bugs: known mistakes that the simulator must find, each in a bounded number of seeds.

The compiled build binds its calls early, so a bug cannot be patched into it. Most are planted into
the sources instead: a changed copy of one module is imported in place of the real one, with all of
the package in plain Python. The others are a World of `sim.liars` whose disk or server is wrong.
A text that no longer occurs in the sources is an error: the bug must be planted anew.

Imports nothing of the yard, because a bug must be planted before the yard is imported.
"""

from __future__ import annotations

import importlib
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

    from sim.world import World


class Change(NamedTuple):
    """A mistake in the text of one module."""

    module: str
    right: str
    wrong: str


class Bug(NamedTuple):
    """A mistake, where it is planted, and the invariants by which it may be found."""

    story: str
    found_by: frozenset[str]
    changes: tuple[Change, ...] = ()
    world: str = "World"


_RESTART: Final = frozenset({"restart", "no job from nowhere", "order", "recovery twice"})
_DAMAGE: Final = frozenset({"silent damage"}) | _RESTART
_ANSWER: Final = frozenset({"answer before its record", "durable mark", "restart"})


class Spoiled(SourceFileLoader):
    """Loads a module with a mistake in it; never from or into cached byte code."""

    def __init__(self, name: str, path: str, changes: list[Change]) -> None:
        super().__init__(name, path)
        self._changes = changes

    def path_stats(self, path: str) -> dict[str, float]:  # type: ignore[override]
        """Say that there is nothing to cache."""
        raise OSError(path)

    def get_data(self, path: str) -> bytes:
        """Return the source with its mistakes."""
        text = super().get_data(path).decode()
        for change in self._changes:
            if text.count(change.right) != 1:
                message = f"{change.module} has {text.count(change.right)} times: {change.right}"
                raise ImportError(message)
            text = text.replace(change.right, change.wrong)
        return text.encode()


class Planter(MetaPathFinder):
    """Finds every module of the package as plain source, one of them spoiled."""

    def __init__(self, folder: Path, changes: Sequence[Change]) -> None:
        self._folder = folder
        self._changes = changes

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002  the interface is Python's
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """Return where a module of the package is."""
        parts = fullname.split(".")
        if parts[0] != "jobyard":
            return None
        place = self._folder.joinpath(*parts)
        file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
        changes = [change for change in self._changes if change.module == fullname]
        return spec_from_file_location(
            fullname,
            file,
            loader=Spoiled(fullname, str(file), changes),
            submodule_search_locations=[str(place)] if place.is_dir() else None,
        )


def plant(name: str | None) -> type[World]:
    """Plant a bug, or none, and return the kind of world to run."""
    world = "World"
    if name is not None:
        bug = BUGS[name]
        world = bug.world
        if bug.changes:
            assert "jobyard" not in sys.modules, "the yard is imported already"
            folders = [Path(folder) for folder in sys.path]
            folder = next(each for each in folders if (each / "jobyard/__init__.py").is_file())
            sys.meta_path.insert(0, Planter(folder, bug.changes))
    module = importlib.import_module("sim.world" if world == "World" else "sim.liars")
    kind: type[World] = getattr(module, world)
    return kind


BUGS: Final[dict[str, Bug]] = {
    "answer-before-sync": Bug(
        "answers leave after the write, before the sync", _ANSWER, world="HastyWorld"
    ),
    "sync-retried": Bug(
        "a failed sync is tried again and then believed",
        _ANSWER | _RESTART,
        world="StubbornWorld",
    ),
    "lying-disk": Bug(
        "the disk says it synced and did not", _ANSWER | _RESTART, world="LazyWorld"
    ),
    "directory-not-synced": Bug(
        "names of files are never made durable",
        _RESTART | {"JournalDamaged"},
        world="NamelessWorld",
    ),
    "wall-clock": Bug(
        "delays and leases run on the wall clock",
        frozenset({"reply", "counters", "waiters", "lease"}) | _RESTART,
        world="WallWorld",
    ),
    "ids-not-ahead": Bug(
        "class os issues ids that the disk knows no limit for",
        frozenset({"ids"}),
        world="RecklessWorld",
    ),
}
