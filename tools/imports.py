"""The direction of imports: which room may import which, and which may reach the outside world.

    model <- wire        model <- journal <- engine <- protocols <- server <- cli

Reads sources as syntax trees and imports nothing it checks. Checks six things: rooms import
only the rooms below them; folders within a room only the folders below them; the protocols never
import each other; modules for clocks, disks, sockets, threads or randomness are imported
only at the edge; there are no import cycles; and no more than `KNOT_MAX` modules import each
other if imports for type checking count. These count elsewhere too, except in cycles and between
the folders of a room.
"""

import ast
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent

_BELOW_PROTOCOLS: Final = frozenset({"errors", "model", "wire", "journal", "engine"})
_BELOW_CLI: Final = _BELOW_PROTOCOLS | {
    *("protocols", "server", "config", "config_values", "build")
}
# What each room may import besides itself; a room that is not listed is an error.
ROOMS: Final[dict[str, frozenset[str]]] = {
    "": frozenset(),
    "errors": frozenset(),
    "build": frozenset(),
    "model": frozenset({"errors"}),
    "wire": frozenset({"errors", "model"}),
    "journal": frozenset({"errors", "model"}),
    "engine": frozenset({"errors", "model", "journal"}),
    "protocols": _BELOW_PROTOCOLS,
    "config": frozenset({"errors", "model", "config_values"}),
    "config_values": frozenset(),
    "server": _BELOW_PROTOCOLS | {"protocols", "config", "build"},
    # Of the last three, commands import what they need when they run.
    "cli": _BELOW_CLI | {"client", "lake", "spark"},
    "__main__": frozenset({"cli"}),
    "client": frozenset({"errors", "model", "wire"}),
    "lake": frozenset({"client"}),
    "spark": frozenset({"client", "lake"}),
}
# Outside the package: what each folder of the repository may import of it.
VISITORS: Final[dict[str, frozenset[str]]] = {
    "sim": frozenset({"", "errors", "build", "model", "wire", "journal", "engine", "protocols"}),
}
# The folders of a package from the lowest to the highest: each imports only folders below it, and
# none on its own level. This does not apply to modules outside the folders.
FOLDERS: Final[dict[str, tuple[tuple[str, ...], ...]]] = {
    "jobyard.wire": (("msgpack",), ("json",), ("arrow", "http", "resp")),
    "jobyard.journal": (("format",), ("recovery",), ("history",), ("space",), ("repair",)),
    "jobyard.engine": (
        ("state",),
        ("logs",),
        ("jobs",),
        ("subscriptions",),
        ("glidemq", "topics"),
        ("recovery",),
    ),
    "jobyard.protocols.bunqueue": (("metrics",), ("commands",), ("http",)),
    "jobyard.protocols.glidemq": (("keyspace",), ("groups",), ("functions",), ("commands",)),
    "jobyard.protocols.topics": (
        ("records",),
        ("export",),
        ("queue",),
        ("admin", "follow", "txns"),
        ("schemas",),
    ),
    "jobyard.spark": (("read", "write"), ("fleet", "letters", "archive"), ("pipeline",)),
}
# `http` is not among them: it carries protocols, and knows none.
PROTOCOLS: Final = ("beanstalk", "bunqueue", "glidemq", "topics")
# Modules whose effects a seed could not replay.
WORLDLY: Final = frozenset(
    {
        *("asyncio", "concurrent", "fcntl", "mmap", "multiprocessing", "os", "random", "secrets"),
        *("select", "selectors", "signal", "socket", "ssl", "subprocess", "tempfile"),
        *("threading", "time", "uuid", "uvloop"),
        *("librt.random", "librt.threading", "librt.time"),
    }
)
# The most modules that may only be understood together, because each imports all others of them, at
# run time or for type checking, directly or through others. It may only shrink.
KNOT_MAX: Final = 8
EDGE: Final = frozenset({"server", "cli", "config", "client", "lake", "spark", "__main__"})


class Import(NamedTuple):
    """One imported module name, its line, and whether it is for type checking only."""

    target: str
    line: int
    is_for_types: bool


class Module(NamedTuple):
    """A source file under its Python module name."""

    name: str
    path: Path
    imports: list[Import]


def imports_of(tree: ast.Module, package: str) -> Iterator[Import]:
    """Yield every import of a module in `package`, at any depth."""
    yield from _walk(tree, package, is_for_types=False)


def _walk(node: ast.AST, package: str, *, is_for_types: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield Import(alias.name, child.lineno, is_for_types)
        elif isinstance(child, ast.ImportFrom):
            base = child.module or ""
            if child.level:
                folders = package.split(".")
                kept = folders[: len(folders) - child.level + 1]
                base = ".".join([*kept, base] if base else kept)
            # `from a import b` may name the module a.b; names of no modules are dropped later.
            yield Import(base, child.lineno, is_for_types)
            for alias in child.names:
                yield Import(f"{base}.{alias.name}", child.lineno, is_for_types)
        else:
            is_guard = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
            yield from _walk(child, package, is_for_types=is_for_types or is_guard)


def load(folder: Path, prefix: str) -> list[Module]:
    """Read every module below `folder`, whose Python name is `prefix`."""
    modules = []
    for path in sorted(folder.rglob("*.py")):
        parts = [prefix, *path.relative_to(folder).with_suffix("").parts]
        package = ".".join(parts[:-1])
        if parts[-1] == "__init__":
            parts.pop()
        tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
        modules.append(Module(".".join(parts), path, list(imports_of(tree, package))))
    return modules


def room_of(name: str) -> str:
    """Return the room of a module: its first folder or file below the package."""
    return [*name.split("."), ""][1]


def protocol_of(name: str) -> str | None:
    """Return the protocol a module belongs to; None for code that all protocols share."""
    parts = name.split(".")
    if parts[:2] != ["jobyard", "protocols"] or len(parts) < 3:
        return None
    return next((p for p in PROTOCOLS if parts[2] == p or parts[2].startswith(p + "_")), None)


def layer_faults(module: Module) -> Iterator[tuple[int, str]]:
    """Yield imports of the package that point the wrong way."""
    if module.name.split(".")[0] == "jobyard":
        room = room_of(module.name)
        allowed = ROOMS.get(room)
        if allowed is None:
            yield 1, f"room {room!r} is not in tools/imports.py; add what it may import"
            return
        # The version and the kind of build are facts, not behaviour.
        allowed |= {room, ""}
    else:
        room = module.name.split(".")[0]
        allowed = VISITORS[room]
    for target, line, _ in module.imports:
        if target.split(".")[0] != "jobyard":
            continue
        other = room_of(target)
        if other in ROOMS and other not in allowed:
            yield line, f"{room or 'the package'} may not import {target}"


def folder_faults(module: Module) -> Iterator[tuple[int, str]]:
    """Yield imports between the folders of one package that point the wrong way."""
    for package, levels in FOLDERS.items():
        own = _folder_in(module.name, package)
        heights = {folder: height for height, level in enumerate(levels) for folder in level}
        if own is None:
            continue
        if own not in heights:
            yield 1, f"folder {own!r} of {package} is not in tools/imports.py; add its level"
            continue
        for target, line, is_for_types in module.imports:
            other = _folder_in(target, package)
            if other in (None, own) or other not in heights or is_for_types:
                continue
            if heights[other] >= heights[own]:
                yield line, f"{module.name} may not import {target}: {other} is not below {own}"


def _folder_in(name: str, package: str) -> str | None:
    """Return the folder of a package that holds a module; None if it is outside the folders."""
    if not name.startswith(package + "."):
        return None
    rest = name[len(package) + 1 :].split(".")
    return rest[0] if len(rest) > 1 else None


def protocol_faults(module: Module) -> Iterator[tuple[int, str]]:
    """Yield imports between protocols, and imports of a protocol by shared code."""
    if room_of(module.name) != "protocols":
        return
    own = protocol_of(module.name)
    for target, line, _ in module.imports:
        other = protocol_of(target)
        if other is not None and other != own:
            yield line, f"{module.name} may not import {target}: protocols are independent"


def worldly_faults(module: Module) -> Iterator[tuple[int, str]]:
    """Yield imports of clocks, disks, sockets, threads and randomness away from the edge."""
    if room_of(module.name) in EDGE:
        return
    for target, line, _ in module.imports:
        parts = target.split(".")
        if parts[0] in WORLDLY or ".".join(parts[:2]) in WORLDLY:
            yield line, f"{target} may be imported only in {', '.join(sorted(EDGE))}"


def circle(modules: list[Module]) -> list[str]:
    """Return the modules of an import cycle, or none."""
    names = {module.name for module in modules}
    graph = {
        module.name: {
            target
            for target, _, is_for_types in module.imports
            # A package does not form a cycle with the modules below it that it imports.
            if target in names and not is_for_types and not _is_around(target, module.name)
        }
        for module in modules
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        members: list[str] = error.args[1]
        return members
    return []


def _is_around(package: str, name: str) -> bool:
    """Return whether a module is in a package, or is the package itself."""
    return f"{name}.".startswith(f"{package}.")


def knots(modules: list[Module]) -> list[list[str]]:
    """Return the groups of modules that import each other, for type checking too; largest first."""
    names = {module.name for module in modules}
    graph = {
        module.name: {
            target
            for target, _, _ in module.imports
            if target in names and not _is_around(target, module.name)
        }
        for module in modules
    }
    reached = {name: _reached_from(name, graph) for name in graph}
    found: set[tuple[str, ...]] = set()
    for name, others in reached.items():
        knot = tuple(sorted(other for other in others if name in reached[other]))
        if len(knot) > 1:
            found.add(knot)
    return sorted(map(list, found), key=lambda knot: (-len(knot), knot))


def _reached_from(name: str, graph: dict[str, set[str]]) -> set[str]:
    reached = {name}
    left = [name]
    while left:
        more = graph[left.pop()] - reached
        reached |= more
        left += more
    return reached


def findings(root: Path) -> list[str]:
    """Return all import errors of a tree, as lines for a terminal."""
    package = load(root / "src" / "jobyard", "jobyard")
    found = []
    for module in package:
        for rule in (layer_faults, folder_faults, protocol_faults, worldly_faults):
            found += [_line(root, module, *fault) for fault in rule(module)]
    for folder in VISITORS:
        for module in load(root / folder, folder):
            found += [_line(root, module, *fault) for fault in layer_faults(module)]
    if members := circle(package):
        found.append(f"import cycle: {' -> '.join(members)}")
    for knot in knots(package):
        if len(knot) > KNOT_MAX:
            found.append(f"{len(knot)} modules import each other: {', '.join(knot)}")
    return found


def _line(root: Path, module: Module, line: int, text: str) -> str:
    return f"{module.path.relative_to(root)}:{line}: {text}"


def main() -> int:
    """Print every finding; fail if there is one."""
    found = findings(ROOT)
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
