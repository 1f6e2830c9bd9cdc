"""Mutants: small bugs planted at random places of the engine and the journal, one at a time.

    python -m tools.mutants --count 50              at places that a fresh seed draws
    python -m tools.mutants --count 50 --seed 7     the same ones again
    python -m tools.mutants --only engine/jobs      at places below this path only

A mutant has one operator changed, one constant changed, or one call dropped. The tests of its
module, of its folder and of its room run until one fails, then some seeds of the simulator. The
report names what detected it; an undetected mutant is shown. Either a test is missing there, or
the change makes no difference. Fails only if the tests fail without a mutant.

The working tree is never touched: mutants are made in a temporary copy of it, tests run there on
the plain sources, one at a time at low priority, with limits on processor time, memory and files.
The time limit is a multiple of what the same tests take without a mutant.
"""

import argparse
import ast
import contextlib
import copy
import difflib
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGE: Final = "src/jobyard"
ROOMS: Final = ("engine", "journal")
# What tests and simulator need of the repository.
COPIED: Final = ("src", "tests", "sim", "tools", "conftest.py", "pyproject.toml")
# Tests of the room, and of the room above that depends on it.
ROOM_TESTS: Final = {
    "engine": ("tests/unit/engine",),
    "journal": ("tests/unit/journal", "tests/unit/engine"),
}
WIDE_TESTS: Final = ("tests/unit/protocols", "tests/unit/doors")

# Ends at the first failure, and loads no slow plugins that are not needed.
PYTEST: Final = (
    *("pytest", "-q", "-x", "-p", "no:cacheprovider"),
    *("-p", "no:schemathesis", "-p", "no:anyio"),
)

UNIT: Final = "unit tests"
SIMULATOR: Final = "the simulator"
NOBODY: Final = "nobody"

# A mutant may do more work than the sources do; an endless one is stopped by this limit.
CPU_FACTOR: Final = 4
CPU_SPARE_S: Final = 20
# On a busy machine, wall time is much longer than processor time.
WALL_FACTOR: Final = 20
MEMORY_MAX: Final = 6 << 30
FILE_SIZE_MAX: Final = 1 << 30
# Larger constants are limits and sizes; one more or less makes no real difference.
SMALL_MAX: Final = 16

_COMPARISONS: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,  # codespell:ignore notin
    ast.NotIn: ast.In,  # codespell:ignore notin
}
_OPERATIONS: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Add,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitOr,
}
# Fields without effect at run time, and those that only the compiler reads.
_IDLE_FIELDS: Final = frozenset({"annotation", "returns", "decorator_list"})
_FAILED: Final = re.compile(r"^(?:FAILED|ERROR) (\S+)|^  (seed \d+: .*?)   \(", re.MULTILINE)


class Site(NamedTuple):
    """A place for a bug: the node there, and its replacement; None: nothing."""

    path: str
    node: ast.expr | ast.stmt
    planted: ast.expr | ast.stmt | None


class Mutant(NamedTuple):
    """A module with one bug in it. The path is below the package."""

    path: str
    line: int
    right: bytes
    wrong: bytes

    def diff(self) -> list[str]:
        """Return the lines that differ."""
        lines = difflib.unified_diff(
            self.right.decode().splitlines(), self.wrong.decode().splitlines(), n=0, lineterm=""
        )
        return [line for line in lines if not line.startswith(("---", "+++", "@@"))]


class Verdict(NamedTuple):
    """What detected a mutant, and by which failure."""

    who: str
    by: str


class Judge(NamedTuple):
    """Tests that a mutant must pass to stay undetected."""

    who: str
    command: tuple[str, ...]


class Ending(NamedTuple):
    """How a program ended: None as exit code if its time limit was exceeded."""

    code: int | None
    output: str
    cpu_s: float


# --- where bugs are planted


def sites(path: str, text: str) -> list[Site]:
    """Return every place of a module where a bug can be planted, in a fixed order."""
    return [
        Site(path, node, mistake)
        for node in _working(ast.parse(text, path))
        if isinstance(node, ast.expr | ast.stmt)
        for mistake in _mistakes(node)
    ]


def _working(node: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes whose change could alter what the program does."""
    yield node
    for name, value in ast.iter_fields(node):
        if name in _IDLE_FIELDS:
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not _is_idle(child):
                yield from _working(child)


def _is_idle(node: ast.AST) -> bool:
    """Return whether a node is an assertion, text for people, or for type checking only."""
    is_guard = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    return is_guard or isinstance(node, ast.Assert | ast.JoinedStr)


def _mistakes(node: ast.expr | ast.stmt) -> Iterator[ast.expr | ast.stmt | None]:
    if isinstance(node, ast.Compare):
        for at, operator in enumerate(node.ops):
            compared = copy.copy(node)
            compared.ops = [*node.ops[:at], _COMPARISONS[type(operator)](), *node.ops[at + 1 :]]
            yield compared
    elif isinstance(node, ast.BoolOp):
        joined = copy.copy(node)
        joined.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield joined
    elif isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in _OPERATIONS:
        reckoned = copy.copy(node)
        reckoned.op = _OPERATIONS[type(node.op)]()
        yield reckoned
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand
    elif isinstance(node, ast.Constant):
        if isinstance(node.value, int):
            yield ast.Constant(_other(node.value))
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield None


def _other(value: int) -> int:
    if isinstance(value, bool):
        return not value
    return value + 1 if value <= SMALL_MAX else value // 2


def planted(site: Site, text: str) -> Mutant:
    """Return the module with the bug."""
    source = text.encode()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    node = site.node
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    start = starts[node.lineno - 1] + node.col_offset
    end = starts[node.end_lineno - 1] + node.end_col_offset
    if site.planted is None:
        new = "pass"
    else:
        new = ast.unparse(site.planted)
        if isinstance(site.planted, ast.expr) and not isinstance(site.planted, ast.Constant):
            new = f"({new})"
    return Mutant(site.path, node.lineno, source, source[:start] + new.encode() + source[end:])


def drawn(root: Path, count: int, seed: int, only: str) -> list[Mutant]:
    """Draw this many mutants of the sources below a root, at different places."""
    package = root / PACKAGE
    texts: dict[str, str] = {}
    found: list[Site] = []
    for room in ROOMS:
        for source in sorted((package / room).rglob("*.py")):
            path = str(source.relative_to(package))
            if path.startswith(only):
                texts[path] = source.read_text(encoding="utf-8")
                found += sites(path, texts[path])
    lot = random.Random(seed)  # noqa: S311  a seed must draw the same places again
    chosen = lot.sample(found, min(count, len(found)))
    return [planted(site, texts[site.path]) for site in chosen]


# --- which tests run


def judges(root: Path, path: str, seeds: int, *, is_wide: bool) -> list[Judge]:
    """Return the tests for a mutant of a module, the nearest first."""
    module = Path(path)
    room = module.parts[0]
    places = [
        f"tests/unit/{module.parent}/test_{module.stem}.py",
        f"tests/unit/{module.parent}",
        *ROOM_TESTS[room],
        *(WIDE_TESTS if is_wide else ()),
    ]
    asked = [
        Judge(UNIT, (*PYTEST, place)) for place in dict.fromkeys(places) if (root / place).exists()
    ]
    simulator = ("sim", "--start", "1", "--seeds", str(seeds), "--jobs", "1")
    return [*asked, Judge(SIMULATOR, simulator)] if seeds > 0 else asked


# --- the copy


class Trial:
    """A copy of the repository in which mutants are tested, one after the other."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.folder = folder / "copy"
        self._scratch = folder / "scratch"
        self._scratch.mkdir()
        # The processor time of each test run without a mutant.
        self._cpu_s: dict[Judge, float] = {}
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "*.so")
        self.folder.mkdir()
        for name in COPIED:
            if (root / name).is_dir():
                shutil.copytree(root / name, self.folder / name, ignore=ignored)
            elif (root / name).exists():
                shutil.copy(root / name, self.folder / name)

    def verdict(self, mutant: Mutant, asked: list[Judge]) -> Verdict:
        """Return what detects a mutant first."""
        for judge in asked:
            # Before the mutant: the unchanged sources must pass.
            limit_s = CPU_FACTOR * self._usual_cpu_s(judge) + CPU_SPARE_S
            self._write(mutant.path, mutant.wrong)
            ending = self._run(judge, limit_s)
            self._write(mutant.path, mutant.right)
            if ending.code is None:
                return Verdict(judge.who, f"exceeded {limit_s:.0f} s of processor time")
            if ending.code != 0:
                return Verdict(judge.who, _reason(ending))
        return Verdict(NOBODY, "")

    def _usual_cpu_s(self, judge: Judge) -> float:
        if judge not in self._cpu_s:
            ending = self._run(judge, None)
            if ending.code != 0:
                print(ending.output)
                raise SystemExit(f"fails without a mutant: {' '.join(judge.command)}")
            self._cpu_s[judge] = ending.cpu_s
        return self._cpu_s[judge]

    def _write(self, path: str, source: bytes) -> None:
        target = self.folder / PACKAGE / path
        target.write_bytes(source)
        # Python identifies byte code by date and size of its source: a mutant may share both.
        for cached in (target.parent / "__pycache__").glob(f"{target.stem}.*.pyc"):
            cached.unlink()

    def _run(self, judge: Judge, cpu_max_s: float | None) -> Ending:
        environment = {
            **os.environ,
            "PYTHONPATH": str(self.folder / "src"),
            "TMPDIR": str(self._scratch),
            # Generated tests must be the same in every run.
            "CI": "1",
        }
        command = [sys.executable, "-m", *judge.command]
        return run(command, self.folder, environment, cpu_max_s)


def run(
    command: list[str], folder: Path, environment: dict[str, str], cpu_max_s: float | None
) -> Ending:
    """Run a program to its end, with a limit on processor time, if one is given."""
    before = _children_cpu_s()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            _bounded(command, cpu_max_s),
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        wall_max_s = cpu_max_s * WALL_FACTOR if cpu_max_s is not None else None
        try:
            code: int | None = process.wait(wall_max_s)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            _end_group(process)
        output.seek(0)
        told = output.read().decode(errors="replace")
    # The kernel sends SIGKILL to a program that survives SIGXCPU.
    is_over = code in (None, -signal.SIGXCPU, -signal.SIGKILL)
    return Ending(None if is_over else code, told, _children_cpu_s() - before)


def _bounded(command: list[str], cpu_max_s: float | None) -> list[str]:
    """Return a command with limits, set by a shell: a limit set from here could come too late."""
    limits = [f"ulimit -v {MEMORY_MAX >> 10}", f"ulimit -f {FILE_SIZE_MAX >> 9}"]
    if cpu_max_s is not None:
        limits.append(f"ulimit -t {int(cpu_max_s) + 1}")
    return ["/bin/sh", "-c", " && ".join([*limits, 'exec "$@"']), "sh", *command]


def _end_group(process: "subprocess.Popen[bytes]") -> None:
    """Kill the rest of a program and everything that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _reason(ending: Ending) -> str:
    """Return the first failure that a test run reported, or how it ended."""
    match = _FAILED.search(ending.output)
    if match is None:
        return f"exit code {ending.code}"
    return str(match[1] or match[2])


# --- the report


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    """Test as many mutants as requested, and report what detected each."""
    parser = argparse.ArgumentParser(prog="mutants", description="which tests detect planted bugs?")
    parser.add_argument("--count", type=int, default=50, help="number of mutants (default 50)")
    parser.add_argument("--seed", type=int, help="seed for their places (default: a fresh one)")
    parser.add_argument("--only", default="", help="only below this path of the package")
    parser.add_argument("--sim-seeds", type=int, default=40, help="simulator seeds per mutant")
    parser.add_argument("--wide", action="store_true", help="also run the tests of higher rooms")
    parser.add_argument("--nice", type=int, default=10, help="nice value of the tests")
    options = parser.parse_args(arguments)
    seed: int = (
        options.seed if options.seed is not None else time.time_ns() // 1_000_000 % 1_000_000
    )
    os.nice(options.nice)
    mutants = drawn(root, options.count, seed, options.only)
    print(f"{len(mutants)} mutants of seed {seed}", flush=True)
    noticed: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        trial = Trial(root, Path(folder))
        for number, mutant in enumerate(mutants, 1):
            asked = judges(root, mutant.path, options.sim_seeds, is_wide=options.wide)
            verdict = trial.verdict(mutant, asked)
            noticed[verdict.who] += 1
            place = f"{PACKAGE}/{mutant.path}:{mutant.line}"
            by = f" ({verdict.by})" if verdict.by else ""
            print(f"{number:>3} {place}: detected by {verdict.who}{by}", flush=True)
            if verdict.who == NOBODY:
                print("\n".join(f"      {line}" for line in mutant.diff()), flush=True)
    counts = ", ".join(f"{noticed[who]} by {who}" for who in (UNIT, SIMULATOR, NOBODY))
    print(f"{len(mutants)} mutants of seed {seed}: detected {counts}")
    return 0


def _stop(_number: int, _frame: object) -> None:
    """Exit as on an error, which ends the tests and removes the copy."""
    sys.exit(1)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _stop)
    sys.exit(main())
