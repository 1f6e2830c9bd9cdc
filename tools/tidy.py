"""House rules that no linter covers: size limits, charters, banned words, names and calls.

Reads files and runs nothing of what it reads. A rule is a function from a file to findings, listed
in RULES, or from all files together, listed in WIDE_RULES. Findings in tools/ratchet.txt are
tolerated for now; the list may only shrink: a fixed finding must be removed from it, and
RATCHET_MAX must be lowered with it.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
RATCHET: Final = "tools/ratchet.txt"
RATCHET_MAX: Final = 0

FILE_LINES_MAX: Final = 600
FUNCTION_LINES_MAX: Final = 70
# Without `__init__`: more than this, and nobody sees from a folder what is where.
FOLDER_MODULES_MAX: Final = 20
# Anything shorter cannot state what a module holds, must not know, and guarantees.
CHARTER_SIZE_MIN: Final = 40
# In a file this short the code is enough.
UNCHARTERED_LINES_MAX: Final = 20

MADE_FOLDERS: Final = frozenset({"__pycache__", "build", "dist", "jobyard-data"})
HIDDEN_FOLDERS: Final = frozenset({".ci"})
TEXT_SUFFIXES: Final = frozenset(
    {"", ".c", ".cfg", ".h", ".json", ".md", ".py", ".sh", ".toml", ".txt", ".yaml", ".yml"}
)
CHARTERED: Final = ("src/", "sim/", "bench/", "tools/", "fuzz/")
COMPILED: Final = tuple(
    f"src/jobyard/{room}/" for room in ("model", "wire", "journal", "engine", "protocols")
)

# Spelled so that this file does not contain the words it searches for.
UNFINISHED: Final = re.compile(r"\b(TO[D]O|FIX[M]E|XX[X]|HAC[K])\b(?!.*#\d)")
MACHINE_PATH: Final = re.compile(r"(?<![\w.~$}])/(home|root|Users|work|tmp)/\w")
# Turns that make a reader stop: quaint English, and private words that the field has others for.
QUAINT: Final = re.compile(
    r"\b(whoever|somebody|anew|those who|on its way|let go of|is told|no HTTP|tidings|namesakes?"
    r"|shelf|shelves|rosters?|moulds?|husks?|cohorts?|audiences?|onlookers?|clerks?|errands?"
    r"|lookouts?|counsel)\b",
    re.IGNORECASE,
)
# Private words of the past, for which names of tests say what they test.
OLD_WORDS: Final = re.compile(
    r"(?:^|_)(lanes?|shelf|shelves|rosters?|kin|stir(?:red|s)?|routines?|cohorts?|moulds?)(?=_|$)",
    re.IGNORECASE,
)
PLAIN_PROSE: Final = ("src/", "docs/", "sim/", "bench/", "tools/", "README.md", "CONTRIBUTING.md")
EMPTY_NAME: Final = re.compile(
    r"(Manager|Handler|Helper|Util)s?$|^(manager|handler|helper|util)s?$"
)
REASONED: Final = re.compile(r"noqa: BLE001\W+\w.{15,}")
UNSAFE_MODULES: Final = frozenset({"pickle", "marshal", "shelve", "dill"})
UNSAFE_CALLS: Final = frozenset({"eval", "exec", "__import__"})
BROAD: Final = frozenset({"Exception", "BaseException"})


class Finding(NamedTuple):
    """One breach of one rule. The subject distinguishes it from others in the same file."""

    path: str
    line: int
    rule: str
    subject: str
    text: str

    def key(self) -> str:
        """Return the line for the ratchet: without line numbers and measures, which change."""
        return f"{self.path}: {self.rule}: {self.subject}"

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}: {self.subject}: {self.text}"


class Source(NamedTuple):
    """A file of the repository; only Python files have a tree."""

    path: str
    text: str
    tree: ast.Module | None

    def finding(self, line: int, rule: str, subject: str, text: str) -> Finding:
        """Return a finding in this file."""
        return Finding(self.path, line, rule, subject, text)


def read(root: Path) -> Iterator[Source]:
    """Yield every text file written by people; generated files are left out."""
    for path in sorted(root.rglob("*")):
        relative = path.relative_to(root)
        folders = relative.parts[:-1]
        is_ours = not any(
            part in MADE_FOLDERS
            or part.endswith(".egg-info")
            or (part.startswith(".") and part not in HIDDEN_FOLDERS)
            for part in folders
        )
        if is_ours and path.suffix in TEXT_SUFFIXES and path.is_file():
            try:
                yield source_of(str(relative), path.read_text(encoding="utf-8"))
            except UnicodeDecodeError:
                continue  # bytes on purpose, in a transcript or a damaged journal


def source_of(path: str, text: str) -> Source:
    """Parse a file under the path by which it will be reported."""
    return Source(path, text, ast.parse(text, path) if path.endswith(".py") else None)


def nodes(source: Source) -> Iterator[ast.AST]:
    """Yield every node of a Python file; none of any other."""
    return ast.walk(source.tree) if source.tree is not None else iter(())


def file_size(source: Source) -> Iterator[Finding]:
    """Check the length of a file: one that grew past the limit should be split."""
    count = source.text.count("\n")
    if count > FILE_LINES_MAX and Path(source.path).suffix in {".py", ".sh", ".c", ".h"}:
        yield source.finding(1, "file-size", "file", f"{count} lines, at most {FILE_LINES_MAX}")


def function_size(source: Source) -> Iterator[Finding]:
    """Check the length of functions, without their docstrings."""
    for node in nodes(source):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            count = (node.end_lineno or node.lineno) - node.lineno + 1
            if ast.get_docstring(node) is not None:
                docstring = node.body[0]
                count -= (docstring.end_lineno or docstring.lineno) - docstring.lineno + 1
            if count > FUNCTION_LINES_MAX:
                text = f"{count} lines, at most {FUNCTION_LINES_MAX}"
                yield source.finding(node.lineno, "function-size", node.name, text)


def charter(source: Source) -> Iterator[Finding]:
    """Check that every module states what it holds, must not know, and guarantees."""
    if source.tree is None or not source.path.startswith(CHARTERED) or not source.text.strip():
        return
    size = len(ast.get_docstring(source.tree) or "")
    size_min = CHARTER_SIZE_MIN if source.text.count("\n") > UNCHARTERED_LINES_MAX else 1
    if size < size_min:
        yield source.finding(1, "charter", "module", "no docstring that states what belongs here")


def unfinished(source: Source) -> Iterator[Finding]:
    """Check that marks of unfinished work have the number of an issue."""
    for line, text in _prose(source):
        if match := UNFINISHED.search(text):
            yield source.finding(line, "unfinished", match.group(), "name the issue: #number")


def _prose(source: Source) -> Iterator[tuple[int, str]]:
    """Yield the comments of a Python file, or all lines of any other."""
    if source.tree is None:
        yield from enumerate(source.text.splitlines(), 1)
        return
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def machine_path(source: Source) -> Iterator[Finding]:
    """Check that no file names the folders of one machine."""
    for line, text in enumerate(source.text.splitlines(), 1):
        if match := MACHINE_PATH.search(text):
            yield source.finding(line, "machine-path", match.group(), "path of one machine")


def quaint(source: Source) -> Iterator[Finding]:
    """Prose that a reader has to translate."""
    is_prose = source.path.startswith(PLAIN_PROSE) and source.path.endswith((".py", ".md"))
    if is_prose and source.path != "tools/tidy.py":
        for line, text in enumerate(source.text.splitlines(), 1):
            for match in QUAINT.finditer(text):
                yield source.finding(line, "quaint", match.group(0), "say it in plain words")


def whitespace(source: Source) -> Iterator[Finding]:
    """Check whitespace in files that the formatter skips; transcripts are exempt."""
    if source.tree is not None or source.path.startswith("tests/transcripts/"):
        return
    for line, text in enumerate(source.text.split("\n"), 1):
        if text != text.rstrip():
            yield source.finding(line, "whitespace", "line end", "trailing whitespace")
    if source.text and not source.text.endswith("\n"):
        yield source.finding(1, "whitespace", "file end", "no newline at the end")


def sleeping_test(source: Source) -> Iterator[Finding]:
    """Check that tests wait for an event, with a deadline, never for time to pass."""
    if not source.path.startswith("tests/"):
        return
    for node in nodes(source):
        if isinstance(node, ast.Call) and _name(node.func) == "sleep":
            yield source.finding(node.lineno, "sleep", "sleep", "wait for the event instead")


def broad_except(source: Source) -> Iterator[Finding]:
    """Check for broad exception handlers, which hide our own bugs; re-raising is allowed.

    So is ending the process at the one place that would otherwise continue: the server's loop, with
    the reason on the line.
    """
    lines = source.text.splitlines()
    for node in nodes(source):
        if isinstance(node, ast.ExceptHandler) and not _raises_again(node):
            if source.path.startswith("src/jobyard/server/") and REASONED.search(
                lines[node.lineno - 1]
            ):
                continue
            caught = {_name(part) for part in _parts(node.type)}
            if node.type is None or caught & BROAD:
                yield source.finding(node.lineno, "broad-except", "except", "name the errors")
        elif isinstance(node, ast.Call) and _name(node.func) == "suppress":
            caught = {_name(part) for part in node.args}
            if caught & BROAD:
                yield source.finding(node.lineno, "broad-except", "suppress", "name the errors")


def _parts(node: ast.expr | None) -> list[ast.expr]:
    if isinstance(node, ast.Tuple):
        return node.elts
    return [] if node is None else [node]


def _raises_again(handler: ast.ExceptHandler) -> bool:
    last = handler.body[-1]
    return isinstance(last, ast.Raise) and last.exc is None


def unsafe(source: Source) -> Iterator[Finding]:
    """Check for calls that turn untrusted bytes into code."""
    for node in nodes(source):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name.split(".")[0] for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [(node.module or "").split(".")[0]]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            names = [node.func.id]
        for name in names:
            if name in (UNSAFE_CALLS if isinstance(node, ast.Call) else UNSAFE_MODULES):
                line = getattr(node, "lineno", 1)
                yield source.finding(line, "unsafe", name, "executes its input")


def empty_name(source: Source) -> Iterator[Finding]:
    """Check for names that do not describe what a thing does."""
    if source.tree is not None and EMPTY_NAME.search(Path(source.path).stem):
        yield source.finding(1, "empty-name", Path(source.path).stem, "name what it does")
    for node in nodes(source):
        if isinstance(node, ast.ClassDef) and EMPTY_NAME.search(node.name):
            yield source.finding(node.lineno, "empty-name", node.name, "name what it does")


def old_word(source: Source) -> Iterator[Finding]:
    """Check the names of functions and classes in tests for words that stand for nothing now."""
    if not source.path.startswith("tests/"):
        return
    for node in nodes(source):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for match in OLD_WORDS.finditer(node.name):
                yield source.finding(node.lineno, "old-word", match.group(1), "name what it tests")


def unchecked_type(source: Source) -> Iterator[Finding]:
    """Check for ignored types in compiled rooms, where they cost speed as well as safety."""
    if source.path.startswith(COMPILED):
        for line, text in _prose(source):
            if "type: ignore" in text:
                yield source.finding(line, "unchecked-type", "ignore", "not in a compiled room")


def _name(node: ast.expr) -> str:
    """Return the last word of a dotted name."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


RULES: Final[tuple[Callable[[Source], Iterator[Finding]], ...]] = (
    file_size,
    function_size,
    charter,
    unfinished,
    machine_path,
    quaint,
    whitespace,
    sleeping_test,
    broad_except,
    unsafe,
    empty_name,
    old_word,
    unchecked_type,
)


def folder_size(sources: list[Source]) -> Iterator[Finding]:
    """Check how many modules a folder has."""
    modules: dict[str, list[Source]] = {}
    for source in sources:
        if source.tree is not None and not source.path.endswith("__init__.py"):
            modules.setdefault(source.path.rpartition("/")[0], []).append(source)
    for folder, found in modules.items():
        if len(found) > FOLDER_MODULES_MAX:
            text = f"{len(found)} modules, at most {FOLDER_MODULES_MAX}"
            yield found[0].finding(1, "folder-size", folder or ".", text)


def unique_constant(sources: list[Source]) -> Iterator[Finding]:
    """Check that public constants of one name have one value: a wrong import would pass as right.

    This counts aliases of types too.
    """
    for half in _halves(sources):
        known: dict[str, tuple[str, str]] = {}
        for source in half:
            for name, value, line in _constants(source):
                first, path = known.setdefault(name, (value, source.path))
                if first != value:
                    yield source.finding(line, "unique-constant", name, f"another value in {path}")


def unique_class(sources: list[Source]) -> Iterator[Finding]:
    """Check that no two classes of one half of the package have one name."""
    for half in _halves(sources):
        known: dict[str, str] = {}
        for source in half:
            for node in nodes(source):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    if node.name in known:
                        text = f"another one in {known[node.name]}"
                        yield source.finding(node.lineno, "unique-class", node.name, text)
                    known.setdefault(node.name, source.path)


def _halves(sources: list[Source]) -> tuple[list[Source], list[Source]]:
    """Return the server, and what talks to it from elsewhere: neither imports names of the other.

    The words of both meet users: a job of the engine and one that Spark's workers get are both
    called jobs.
    """
    package = [source for source in sources if source.path.startswith("src/")]
    outside = [source for source in package if source.path.startswith(OUTSIDE)]
    return [source for source in package if not source.path.startswith(OUTSIDE)], outside


def _constants(source: Source) -> Iterator[tuple[str, str, int]]:
    """Yield name, value and line of each public constant of a module."""
    for node in [] if source.tree is None else source.tree.body:
        if isinstance(node, ast.AnnAssign) and "Final" in ast.unparse(node.annotation):
            targets: list[ast.expr] = [node.target]
            value = node.value
        elif isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        else:
            continue
        for target in targets:
            if isinstance(target, ast.Name) and value is not None and target.id[0] != "_":
                yield target.id, ast.unparse(value), node.lineno


OUTSIDE: Final = tuple(f"src/jobyard/{room}/" for room in ("client", "lake", "spark"))
WIDE_RULES: Final[tuple[Callable[[list[Source]], Iterator[Finding]], ...]] = (
    folder_size,
    unique_constant,
    unique_class,
)


def judge(source: Source) -> list[Finding]:
    """Return all findings of all rules in one file."""
    return [finding for rule in RULES for finding in rule(source)]


def judge_all(sources: list[Source]) -> list[Finding]:
    """Return all findings of all rules in some files, and in what they are together."""
    found = [finding for source in sources for finding in judge(source)]
    return found + [finding for rule in WIDE_RULES for finding in rule(sources)]


def settle(findings: list[Finding], debts: list[str], debts_max: int) -> list[str]:
    """Return the lines to print after subtracting the tolerated findings; none means tidy."""
    keys = {finding.key() for finding in findings}
    lines = [str(finding) for finding in findings if finding.key() not in debts]
    lines += [
        f"{RATCHET}: fixed, remove it from the list: {debt}" for debt in debts if debt not in keys
    ]
    if len(debts) > debts_max:
        lines.append(
            f"{RATCHET}: {len(debts)} findings, at most {debts_max}: the list may only shrink"
        )
    elif len(debts) < debts_max:
        lines.append(f"{RATCHET}: {len(debts)} findings left: lower RATCHET_MAX to that")
    return lines


def report(root: Path) -> list[str]:
    """Return all findings in a repository."""
    findings = judge_all(list(read(root)))
    ratchet = (root / RATCHET).read_text(encoding="utf-8").splitlines()
    debts = [line for line in ratchet if line and not line.startswith("#")]
    return settle(findings, debts, RATCHET_MAX)


def main() -> int:
    """Print every finding; fail if there is one."""
    lines = report(ROOT)
    for line in lines:
        print(line)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
