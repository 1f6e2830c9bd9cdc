"""Which parts of Jobyard are compiled, and which build of them is running.

Holds the one list of compiled rooms; the package build reads it from this file, so it imports
only the standard library and no other room. It judges by the files beside it, never by a mark
written at build time: an extension module that is not there cannot be claimed.
"""

from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Final, Literal

Kind = Literal["plain", "compiled", "mixed"]

# Folders and files below the package. What is left out either cannot be compiled with profit
# (start-up, configuration, commands) or is the thin edge that calls the operating system.
COMPILED: Final = (
    "model",
    "wire",
    "journal",
    "engine",
    "sessions",
    "server/loop.py",
    "server/connection.py",
    "server/turn.py",
)


def compiled_sources(package: Path) -> list[Path]:
    """Every source file of the compiled rooms that is there; packages' `__init__.py` excepted."""
    found: list[Path] = []
    for name in COMPILED:
        path = package / name
        if path.is_dir():
            found += [file for file in path.rglob("*.py") if file.name != "__init__.py"]
        elif path.is_file():
            found.append(path)
    return sorted(found)


def kind(package: Path = Path(__file__).parent) -> Kind:
    """Say how a copy of the package runs, by default this one; `mixed` means a broken build."""
    sources = compiled_sources(package)
    twins = [source for source in sources if _has_extension(source)]
    if not twins:
        return "plain"
    return "compiled" if len(twins) == len(sources) else "mixed"


def _has_extension(source: Path) -> bool:
    # Python prefers the extension module when both lie in one folder.
    return any(source.with_name(source.stem + suffix).exists() for suffix in EXTENSION_SUFFIXES)
