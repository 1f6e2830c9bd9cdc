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

# Compiled modules that no job passes through on its way: descriptions, tables that are made once,
# commands of an operator. The C compiler spends half as long on them. What is not named here gets
# all of its optimizations.
COLD: Final = (
    "engine/timetable.py",
    "model/webhook_url.py",
    "sessions/beanstalk/statistics.py",
    "sessions/bunqueue/control.py",
    "sessions/bunqueue/dead.py",
    "sessions/bunqueue/exposition.py",
    "sessions/bunqueue/http_asides.py",
    "sessions/bunqueue/http_lookout.py",
    "sessions/bunqueue/http_pages.py",
    "sessions/bunqueue/http_table.py",
    "sessions/bunqueue/monitor.py",
    "sessions/bunqueue/query.py",
    "sessions/bunqueue/registry.py",
    "sessions/bunqueue/repeats.py",
    "sessions/bunqueue/schedules.py",
    "sessions/bunqueue/webhooks.py",
    "sessions/bunqueue/workers.py",
    "sessions/glidemq/cluster.py",
    "sessions/glidemq/functions_manage.py",
    "sessions/glidemq/functions_table.py",
    "sessions/glidemq/generic.py",
    "sessions/glidemq/inform.py",
    "sessions/glidemq/projection_keys.py",
    "sessions/glidemq/projection_sets.py",
    "sessions/glidemq/projection_streams.py",
    "sessions/glidemq/projection_writes.py",
    "sessions/glidemq/scans.py",
    "sessions/glidemq/strings.py",
    "sessions/glidemq/table.py",
    "sessions/glidemq/zsets.py",
    "sessions/http/openapi.py",
    "sessions/topics/export.py",
    "sessions/topics/export_schemas.py",
    "sessions/topics/export_sources.py",
    "sessions/topics/follow_schemas.py",
    "sessions/topics/health.py",
    "sessions/topics/schemas.py",
    "sessions/topics/table.py",
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
