"""The compiling half of the package build; everything else is in pyproject.toml.

mypyc turns the compiled rooms into one C extension when a wheel is built: a C file for each module,
compiled on all cores, and linked with hidden symbols, so that a call between modules costs as
little as one inside a module. An object file is named by a digest of its inputs, and is reused for
as long as that stays the same. mypyc runs only when extensions are really built, since a package
build reads this file several times for other reasons.

A machine that cannot compile gets the same package in plain Python and one warning, never a
failure. Code that does not compile where a compiler is present is our bug and fails. An
editable install is always plain: edits must take effect.
"""

import contextlib
import hashlib
import importlib.metadata
import io
import json
import multiprocessing
import os
import re
import runpy
import shlex
import shutil
import struct
import subprocess
import sys
import sysconfig
import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from setuptools import Distribution, Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.errors import CompileError

PACKAGE: Final = Path("src/jobyard")
C_FOLDER: Final = Path("build/c")
OBJECT_FOLDER: Final = Path("build/objects")
# Objects shared with other working copies, if a folder is set.
SHARED_FOLDER: Final = os.environ.get("JOBYARD_OBJECT_CACHE", "")
SHARED_DAYS: Final = 14
# The files that mypyc generated when it last ran.
LISTING: Final = C_FOLDER / "extensions.json"
# The messages of mypyc about the sources; a test checks that there are none.
MESSAGES: Final = C_FOLDER / "messages.txt"
# Warnings about generated code are useless, and gcc takes long to find them.
C_FLAGS: Final = ["-g0", "-w", "-fvisibility=hidden", "-fno-lto"]
# The first lines of every generated file; long, hence precompiled once for all of them.
NATIVE_HEADERS: Final = ("__native_jobyard.h", "__native_internal_jobyard.h")
NATIVE_START: Final = "".join(f'#include "{name}"\n' for name in NATIVE_HEADERS)
PYTHON_HEADER: Final = "#include <Python.h>\n"
# The file with the table of all literals, to which the others refer by position.
LITERALS_FILE: Final = "__native_jobyard.c"
# A line of progress at least this often.
QUIET_S: Final = 5
CORES: Final = len(os.sched_getaffinity(0))


def say(text: str) -> None:
    """Print a line of progress."""
    print(f"jobyard: {text}", file=sys.stderr, flush=True)


@cache
def obstacle() -> str | None:
    """Return why nothing can be compiled here; None if it can; empty if it is switched off."""
    if os.environ.get("JOBYARD_COMPILE") == "0":
        return ""
    try:
        import mypyc.build  # noqa: F401, PLC0415  # only a build that compiles needs mypyc
    except ImportError:
        return "mypyc is not installed"
    command = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    with TemporaryDirectory() as folder:
        source = Path(folder, "probe.c")
        source.write_text(PYTHON_HEADER)
        include = "-I" + sysconfig.get_paths()["include"]
        probe = [*command, include, "-c", str(source), "-o", str(source.with_suffix(".o"))]
        try:
            outcome = subprocess.run(probe, capture_output=True, text=True, check=False)
        except OSError:
            return f"no C compiler ({command[0]})"
    if outcome.returncode == 0:
        return None
    return "no Python.h" if "Python.h" in outcome.stderr else f"{command[0]} does not work"


class Yard(Distribution):
    """A distribution that is platform-specific exactly when something will be compiled."""

    def has_ext_modules(self) -> bool:
        """Decide the wheel's tag and whether the extension step runs at all."""
        return obstacle() is None


class CopySources(build_py):
    """The step that every build runs, hence the place for the one warning."""

    def run(self) -> None:
        """Copy the sources; warn if they will not be compiled."""
        if obstacle() and not self.editable_mode:
            print(
                f"warning: {obstacle()}: Jobyard will run as plain Python, several times slower",
                file=sys.stderr,
            )
        super().run()


@cache
def build_facts() -> dict[str, Any]:
    """Return the package's own build facts: which modules are compiled, and which run rarely."""
    return runpy.run_path(str(PACKAGE / "build.py"))


def c_name(module: Path) -> str:
    """Return the C file that mypyc makes of a module of the package."""
    return "__native_" + "___".join(["jobyard", *module.with_suffix("").parts]) + ".c"


def native_start(headers: list[str]) -> str:
    """Return the first lines of generated files, which declare their symbols as hidden.

    A hidden symbol is reached directly, any other through a table of the
    dynamic linker, since it might come from another library. Foreign headers come first.
    """
    lines = [line for text in headers for line in text.splitlines() if line.startswith("#include")]
    foreign = [line for line in lines if "__native_" not in line]
    return "\n".join([*foreign, "#pragma GCC visibility push(hidden)", NATIVE_START])


def translate(sources: list[str]) -> None:
    """Make mypyc write the C files, and a list of the extensions they make."""
    from mypyc.build import mypycify  # noqa: PLC0415  # its import patches setuptools

    C_FOLDER.mkdir(parents=True, exist_ok=True)
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said):
            made = mypycify(
                sources, multi_file=True, target_dir=str(C_FOLDER), group_name="jobyard"
            )
    finally:
        MESSAGES.write_text(said.getvalue())
        sys.stderr.write(said.getvalue())
    found = [each for each in made if isinstance(each, Extension)]
    listing = [[each.name, each.sources, each.include_dirs] for each in found]
    LISTING.write_text(json.dumps(listing))


def translated(sources: list[str]) -> list[Extension]:
    """Run mypyc; return the extensions to build.

    It runs in a separate process, whose memory is free again when the C compilers start, and
    which cannot block the progress lines of this one.
    """
    process = multiprocessing.get_context("fork").Process(target=translate, args=(sources,))
    process.start()
    while process.is_alive():
        say(f"translating {len(sources)} Python modules to C")
        process.join(QUIET_S)
    if process.exitcode != 0:
        sys.exit("mypyc could not translate the package; see above")
    return [
        Extension(name, sources=files, include_dirs=folders)
        for name, files, folders in json.loads(LISTING.read_text())
    ]


def digest(*parts: str | bytes) -> str:
    """Return one name for some contents."""
    total = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        total.update(b"%d " % len(data) + data)
    return total.hexdigest()


class Preamble:
    """A header that many files begin with, precompiled once for all of them."""

    def __init__(self, name: str, text: str, command: list[str]) -> None:
        self._path = OBJECT_FOLDER / f"{name}.h"
        self._text = text
        self._plain_command = command
        # A compiler that cannot use the precompiled header reads the header itself.
        self.command = [*command, "-include", str(self._path)]

    def prepare(self) -> None:
        """Precompile it; without that, compiling is only slower."""
        self._path.write_text(self._text)
        target = self._path.with_name(self._path.name + ".gch")
        # One of an earlier build would be used, even if its headers have changed since.
        target.unlink(missing_ok=True)
        command = [*self._plain_command, "-x", "c-header", str(self._path), "-o", str(target)]
        subprocess.run(command, capture_output=True, check=False)


class Declarations:
    """What the generated headers declare, to find which of it a file depends on.

    The headers change with nearly every change of the sources, and then everything would be
    compiled again. A file means the same for as long as what it uses is declared the same way.
    """

    # Other kinds of names are not searched for; their declarations count for every file.
    _NAME: Final = re.compile(r"(?:CPy|jobyard___|tuple_)\w+")
    _DECLARED: Final = re.compile(r"extern [^();={}]*?\b((?:CPy|jobyard___|tuple_)\w+)[(;\[]")
    _TYPE: Final = re.compile(r"typedef struct\b.*\} ((?:CPy|jobyard___|tuple_)\w+);$", re.DOTALL)
    _GUARD: Final = re.compile(r"#(ifndef|define) MYPYC_DECLARED_|#endif")

    def __init__(self, headers: list[str]) -> None:
        self.common: list[str] = []
        self._texts: dict[str, str] = {}
        self._names: dict[str, set[str]] = {}
        for header in headers:
            self._read(header)

    def _read(self, header: str) -> None:
        parts: list[str] = []
        depth = 0
        for line in header.splitlines():
            if line.startswith("#"):
                if not self._GUARD.match(line):
                    self.common.append(line)
                continue
            parts.append(line)
            depth += line.count("{") - line.count("}")
            if depth == 0 and line.endswith(";"):
                self._add("\n".join(parts).strip())
                parts = []
        self.common += parts

    def _add(self, text: str) -> None:
        found = self._DECLARED.match(text) or self._TYPE.match(text)
        if found is None or found[1] in self._texts:
            self.common.append(text)
            return
        self._texts[found[1]] = text
        self._names[found[1]] = set(self._NAME.findall(text))

    def of(self, content: str) -> list[str]:
        """Return all declarations that a file uses, and those that they use."""
        left = {name for text in (content, *self.common) for name in self._NAME.findall(text)}
        found: set[str] = set()
        while left:
            known = {name for name in left if name in self._texts}
            found |= known
            left = {other for name in known for other in self._names[name]} - found
        return [self._texts[name] for name in sorted(found)]


class Literals:
    """Gives the literals separate names in each file.

    mypyc numbers the literals across all modules, and a new one shifts most of the others. Files
    that refer to names stay unchanged; what changes is a list of names next to the table.
    """

    _USE: Final = re.compile(r"CPyStatics\[(\d+)\]")

    def __init__(self) -> None:
        self._lines: list[str] = []

    def named(self, stem: str, content: str) -> str:
        """Return a file with names in place of numbers."""
        names: dict[str, str] = {}

        def name(use: re.Match[str]) -> str:
            return names.setdefault(use[1], f"CPyLiteral_{stem}_{len(names)}")

        content = self._USE.sub(name, content)
        for place, alias in names.items():
            at = f"CPyStatics + {place} * {struct.calcsize('P')}"
            self._lines.append(f'asm(".globl {alias}\\n.hidden {alias}\\n.set {alias}, {at}");')
        declared = "".join(f"extern PyObject *{alias};\n" for alias in names.values())
        return content.replace(NATIVE_START, NATIVE_START + declared, 1)

    def table(self, content: str) -> str:
        """Return the file with the table, with the names added."""
        return content + "\n".join(self._lines) + "\n"


@dataclass(frozen=True)
class Piece:
    """One C file, the object made of it, and how."""

    source: Path
    content: str
    command: list[str]
    digest: str

    @property
    def target(self) -> Path:
        """Return the path of the object, named by all its inputs."""
        return OBJECT_FOLDER / f"{self.digest}.o"

    def make(self) -> None:
        """Compile it; the object exists whole or not at all."""
        source = OBJECT_FOLDER / f"{self.digest}.c"
        source.write_text(self.content)
        unfinished = source.with_suffix(".new")
        run([*self.command, "-c", str(source), "-o", str(unfinished)])
        source.unlink()
        unfinished.rename(self.target)
        if SHARED_FOLDER:
            copy_whole(self.target, Path(SHARED_FOLDER, self.target.name))

    def fetch(self) -> bool:
        """Return whether the object exists here, or was copied from another working copy."""
        if self.target.exists():
            return True
        shared = Path(SHARED_FOLDER, self.target.name)
        if not SHARED_FOLDER or not shared.exists():
            return False
        shared.touch()
        copy_whole(shared, self.target)
        return True


def copy_whole(source: Path, target: Path) -> None:
    """Copy a file atomically: other processes find no copy, or all of it."""
    unfinished = target.with_suffix(f".{os.getpid()}")
    shutil.copyfile(source, unfinished)
    unfinished.rename(target)


def drop_old_objects() -> None:
    """Remove objects that no working copy has used for a while."""
    oldest_s = time.time() - SHARED_DAYS * 86400
    for path in Path(SHARED_FOLDER).iterdir():
        with contextlib.suppress(FileNotFoundError):  # another build does the same
            if path.stat().st_mtime < oldest_s:
                path.unlink()


def run(command: list[str]) -> None:
    """Run a compiler; show its output only if it fails."""
    outcome = subprocess.run(command, capture_output=True, text=True, check=False)
    if outcome.returncode != 0:
        raise CompileError(f"{shlex.join(command)}\n{outcome.stderr[-4000:]}")


def await_all(what: str, tasks: list[Future[None]]) -> None:
    """Wait for all tasks, and print progress."""
    left = set(tasks)
    told_at = time.monotonic()
    while left:
        done, left = wait(left, timeout=QUIET_S, return_when=FIRST_COMPLETED)
        for each in done:
            each.result()
        if time.monotonic() - told_at >= QUIET_S or not left:
            told_at = time.monotonic()
            say(f"{what} {len(tasks) - len(left)} of {len(tasks)} files")


class Workshop:
    """Holds how each C file is compiled, and compiles those that changed."""

    def __init__(self, compiler: list[str], folders: list[str]) -> None:
        self._base = [*compiler, *[f"-I{folder}" for folder in folders], *C_FLAGS]
        self._cold = {c_name(Path(name)) for name in build_facts()["RARELY_RUN"]}
        version = subprocess.run([*compiler, "--version"], capture_output=True, check=False).stdout
        self._makers = [version.decode(), sys.version, importlib.metadata.version("mypy")]
        headers = [(C_FOLDER / name).read_text() for name in NATIVE_HEADERS]
        self._declarations = Declarations(headers)
        self._literals = Literals()
        self._native_start = native_start(headers)
        self._preambles: dict[tuple[str, str], Preamble] = {}

    def pieces_of(self, extension: Extension) -> list[Piece]:
        """Return the C files of an extension, each with its inputs."""
        folders = [f"-I{folder}" for folder in extension.include_dirs]
        # The table of literals is written when all files that refer to it are known.
        sources = sorted(map(Path, extension.sources), key=lambda each: each.name == LITERALS_FILE)
        return [self._piece(source, [*self._base, *folders]) for source in sources]

    def _piece(self, source: Path, command: list[str]) -> Piece:
        command = [*command, "-O1" if source.name in self._cold else "-O3"]
        content = source.read_text()
        # The location of headers does not matter: their contents are below, or depend on a version.
        facts = [*self._makers, *[word for word in command if not word.startswith("-I")]]
        if content.startswith(NATIVE_START):
            if source.name == LITERALS_FILE:
                content = self._literals.table(content)
            else:
                content = self._literals.named(source.stem.removeprefix("__native_"), content)
            facts += [self._native_start, *self._declarations.common]
            facts += self._declarations.of(content)
            command = self._preamble(self._native_start, command).command
        elif content.startswith(PYTHON_HEADER):
            command = self._preamble(PYTHON_HEADER, command).command
        return Piece(source, content, command, digest(content, *facts))

    def _preamble(self, text: str, command: list[str]) -> Preamble:
        key = (text, shlex.join(command))
        if key not in self._preambles:
            self._preambles[key] = Preamble(f"preamble{len(self._preambles)}", text, command)
        return self._preambles[key]

    def make(self, pieces: list[Piece]) -> None:
        """Compile what is missing, and remove what is no longer needed."""
        if SHARED_FOLDER:
            Path(SHARED_FOLDER).mkdir(parents=True, exist_ok=True)
            drop_old_objects()
        missing = {piece.target: piece for piece in pieces if not piece.fetch()}
        # The longest first, so that no core waits for another at the end.
        order = sorted(missing.values(), key=lambda piece: -len(piece.content))
        with ThreadPoolExecutor(CORES) as pool:
            if order:
                list(pool.map(Preamble.prepare, self._preambles.values()))
            try:
                await_all("compiling", [pool.submit(piece.make) for piece in order])
            except CompileError:
                pool.shutdown(cancel_futures=True)
                raise
        wanted = {piece.target for piece in pieces}
        for path in OBJECT_FOLDER.iterdir():
            if path.suffix in {".o", ".c", ".new"} and path not in wanted:
                path.unlink()


class CompileRooms(build_ext):
    """Generates C with mypyc and compiles what changed, on all cores."""

    def run(self) -> None:
        """Create the extensions when they are needed, and build them."""
        if self.editable_mode:
            return
        sources = [str(path) for path in build_facts()["compiled_sources"](PACKAGE)]
        if not sources:
            return
        self.distribution.ext_modules = [*translated(sources)]
        # Finalized a second time, because that prepares each extension.
        self.distribution.reinitialize_command(self)
        self.ensure_finalized()
        super().run()

    def build_extensions(self) -> None:
        """Compile every file that changed, then link every extension that did."""
        OBJECT_FOLDER.mkdir(parents=True, exist_ok=True)
        workshop = Workshop(self.compiler.compiler_so, self.include_dirs)
        wholes = [(each, workshop.pieces_of(each)) for each in self.extensions]
        workshop.make([piece for _, pieces in wholes for piece in pieces])
        stale = [whole for whole in wholes if self._is_stale(*whole)]
        with ThreadPoolExecutor(CORES) as pool:
            await_all("linking", [pool.submit(self._link, *whole) for whole in stale])

    def _mark(self, extension: Extension, pieces: list[Piece]) -> tuple[Path, str]:
        """Return the file that notes what an extension was linked from, and its wanted content."""
        path = OBJECT_FOLDER / f"{extension.name}.linked"
        target = self.get_ext_fullpath(extension.name)
        return path, digest(target, *[piece.target.name for piece in pieces])

    def _is_stale(self, extension: Extension, pieces: list[Piece]) -> bool:
        path, mark = self._mark(extension, pieces)
        is_there = Path(self.get_ext_fullpath(extension.name)).exists()
        return not is_there or not path.exists() or path.read_text() != mark

    def _link(self, extension: Extension, pieces: list[Piece]) -> None:
        target = Path(self.get_ext_fullpath(extension.name))
        target.parent.mkdir(parents=True, exist_ok=True)
        # Never written in place: a process may be running it.
        target.unlink(missing_ok=True)
        objects = [str(piece.target) for piece in pieces]
        run([*self.compiler.linker_so, *objects, "-o", str(target)])
        path, mark = self._mark(extension, pieces)
        path.write_text(mark)


setup(
    distclass=Yard,
    cmdclass={"build_ext": CompileRooms, "build_py": CopySources},
    # Filled in by CompileRooms; must be a list because the manifest reads its sources.
    ext_modules=[],
)
