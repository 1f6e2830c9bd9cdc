"""Which parts of Jobyard are compiled, and which build of them is running.

Holds the one list of compiled rooms. The package build reads it from this file, so it imports
only the standard library and no other room. It checks the files next to it, never a marker written
at build time: a missing extension module can never be reported as present.
"""

from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Final, Literal

BuildKind = Literal["plain", "compiled", "mixed"]

# Folders and files below the package. Everything else either gains nothing from being compiled
# (start-up, configuration, commands) or is the thin layer that calls the operating system.
COMPILED: Final = (
    "model",
    "wire",
    "journal",
    "engine",
    "protocols",
    "server/loop.py",
    "server/connection.py",
    "server/turn.py",
)

# Compiled modules off the path of jobs: descriptions, tables that are built once, operator
# commands. The C compiler spends half as long on them. All other modules get all of its
# optimizations.
RARELY_RUN: Final = (
    "model/timetable.py",
    "model/webhook_url.py",
    "protocols/beanstalk/statistics.py",
    "protocols/bunqueue/commands/control.py",
    "protocols/bunqueue/commands/dlq.py",
    "protocols/bunqueue/commands/prometheus.py",
    "protocols/bunqueue/http/derived_events.py",
    "protocols/bunqueue/http/watchdog.py",
    "protocols/bunqueue/http/pages.py",
    "protocols/bunqueue/http/routes.py",
    "protocols/bunqueue/commands/monitor.py",
    "protocols/bunqueue/commands/query.py",
    "protocols/bunqueue/commands/registry.py",
    "protocols/bunqueue/commands/repeats.py",
    "protocols/bunqueue/commands/schedules.py",
    "protocols/bunqueue/webhooks.py",
    "protocols/bunqueue/workers.py",
    "protocols/glidemq/commands/cluster.py",
    "protocols/glidemq/functions/manage.py",
    "protocols/glidemq/functions/table.py",
    "protocols/glidemq/commands/generic.py",
    "protocols/glidemq/commands/server_info.py",
    "protocols/glidemq/keyspace/views/queue.py",
    "protocols/glidemq/keyspace/views/sets.py",
    "protocols/glidemq/keyspace/views/streams.py",
    "protocols/glidemq/keyspace/views/writes.py",
    "protocols/glidemq/commands/scans.py",
    "protocols/glidemq/commands/strings.py",
    "protocols/glidemq/command_table.py",
    "protocols/glidemq/commands/zsets.py",
    "protocols/http/openapi.py",
    "protocols/topics/export/export.py",
    "protocols/topics/schemas/export.py",
    "protocols/topics/export/sources.py",
    "protocols/topics/schemas/follow.py",
    "protocols/topics/admin/health.py",
    "protocols/topics/schemas/records.py",
    "protocols/topics/routes.py",
)


def compiled_sources(package: Path) -> list[Path]:
    """Return the existing source files of the compiled rooms, without `__init__.py` files."""
    found: list[Path] = []
    for name in COMPILED:
        path = package / name
        if path.is_dir():
            found += [file for file in path.rglob("*.py") if file.name != "__init__.py"]
        elif path.is_file():
            found.append(path)
    return sorted(found)


def kind(package: Path = Path(__file__).parent) -> BuildKind:
    """Return how a copy of the package runs, by default this one; `mixed` means a broken build."""
    sources = compiled_sources(package)
    twins = [source for source in sources if _has_extension(source)]
    if not twins:
        return "plain"
    return "compiled" if len(twins) == len(sources) else "mixed"


def _has_extension(source: Path) -> bool:
    # Python prefers the extension module when both are in one folder.
    return any(source.with_name(source.stem + suffix).exists() for suffix in EXTENSION_SUFFIXES)
