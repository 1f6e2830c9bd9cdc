"""The compiling half of the package build; everything else stands in pyproject.toml.

mypyc turns the compiled rooms into one C extension when a wheel is built: a C file for each module,
compiled on all cores, and linked with hidden symbols, so that a call between modules costs what it
costs inside one. An object file is named by a digest of all it was made from, and is used again for
as long as that stays the same. mypyc runs only when extensions are really built, since a package
build reads this file several times for other reasons.

A machine that cannot compile gets the same package in plain Python and one warning, never a
failure. Code that does not compile where a compiler is present is our mistake and fails. An
editable install is always plain: edits must take effect.
"""

import hashlib
import importlib.metadata
import json
import multiprocessing
import os
import runpy
import shlex
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
# What mypyc made of the sources when it last ran, as the names of files.
LISTING: Final = C_FOLDER / "extensions.json"
# Hidden symbols are what makes a call or a literal of another file as cheap as one's own. Warnings
# about generated code help nobody, and gcc takes long to find them.
C_FLAGS: Final = ["-g0", "-w", "-fvisibility=hidden", "-fno-lto"]
# Every generated file begins with these two, which are long: they are read once for all of them.
HEADERS: Final = '#include "__native_jobyard.h"\n#include "__native_internal_jobyard.h"\n'
PYTHON_HEADER: Final = "#include <Python.h>\n"
# A line of progress at least this often.
QUIET_S: Final = 5
CORES: Final = len(os.sched_getaffinity(0))


def say(text: str) -> None:
    """Tell whoever waits for the build."""
    print(f"jobyard: {text}", file=sys.stderr, flush=True)


@cache
def obstacle() -> str | None:
    """Why nothing can be compiled here; None when it can. Empty when nobody wants it."""
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
        """Copy the sources; say so if they will not be compiled."""
        if obstacle() and not self.editable_mode:
            print(
                f"warning: {obstacle()}: Jobyard will run as plain Python, several times slower",
                file=sys.stderr,
            )
        super().run()


@cache
def build_facts() -> dict[str, Any]:
    """What the package says of its own build: which modules are compiled, and which are cold."""
    return runpy.run_path(str(PACKAGE / "build.py"))


def c_name(module: Path) -> str:
    """Return the C file that mypyc makes of a module of the package."""
    return "__native_" + "___".join(["jobyard", *module.with_suffix("").parts]) + ".c"


def translate(sources: list[str]) -> None:
    """Let mypyc write the C files, and a list of the extensions they make."""
    from mypyc.build import mypycify  # noqa: PLC0415  # its import patches setuptools

    made = mypycify(sources, multi_file=True, target_dir=str(C_FOLDER), group_name="jobyard")
    found = [each for each in made if isinstance(each, Extension)]
    listing = [[each.name, each.sources, each.include_dirs] for each in found]
    LISTING.write_text(json.dumps(listing))


def translated(sources: list[str]) -> list[Extension]:
    """Run mypyc; return the extensions to build.

    It runs in a process of its own, whose memory is free again when the C compilers start, and
    which cannot keep this one from saying that the build goes on.
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
    """One name for all of some contents."""
    total = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        total.update(b"%d " % len(data) + data)
    return total.hexdigest()


class Preamble:
    """A header that many files begin with, read once by the C compiler for all of them."""

    def __init__(self, name: str, text: str, command: list[str]) -> None:
        self._path = OBJECT_FOLDER / f"{name}.h"
        self._text = text
        # A compiler that cannot use what was prepared reads the header itself.
        self.command = [*command, "-include", str(self._path)]
        self._plain_command = command

    def prepare(self) -> None:
        """Read it; who cannot is only slower."""
        self._path.write_text(self._text)
        target = self._path.with_name(self._path.name + ".gch")
        command = [*self._plain_command, "-x", "c-header", str(self._path), "-o", str(target)]
        subprocess.run(command, capture_output=True, check=False)


@dataclass(frozen=True)
class Piece:
    """One C file, the object made of it, and how."""

    source: Path
    target: Path
    command: list[str]

    def make(self) -> None:
        """Compile it; the object is there whole or not at all."""
        unfinished = self.target.with_suffix(f".{os.getpid()}")
        run([*self.command, "-c", str(self.source), "-o", str(unfinished)])
        unfinished.rename(self.target)


def run(command: list[str]) -> None:
    """Run a compiler; show what it says only if it fails."""
    outcome = subprocess.run(command, capture_output=True, text=True, check=False)
    if outcome.returncode != 0:
        raise CompileError(f"{shlex.join(command)}\n{outcome.stderr[-4000:]}")


def await_all(what: str, tasks: list[Future[None]]) -> None:
    """Wait for all of some work, and tell how far it is."""
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
    """Knows how each C file is compiled, and compiles those that changed."""

    def __init__(self, compiler: list[str], folders: list[str]) -> None:
        self._base = [*compiler, *[f"-I{folder}" for folder in folders], *C_FLAGS]
        facts = build_facts()
        self._cold = {c_name(Path(name)) for name in facts["COLD"]}
        self._preambles: dict[tuple[str, str], Preamble] = {}
        version = subprocess.run([*compiler, "--version"], capture_output=True, check=False).stdout
        self._makers = [version.decode(), sys.version, importlib.metadata.version("mypy")]
        self._headers = [path.read_bytes() for path in sorted(C_FOLDER.rglob("*.h"))]

    def pieces_of(self, extension: Extension) -> list[Piece]:
        """Return the C files of an extension, with all that is to be known of each."""
        folders = [f"-I{folder}" for folder in extension.include_dirs]
        return [self._piece(Path(source), folders) for source in extension.sources]

    def _piece(self, source: Path, folders: list[str]) -> Piece:
        command = [*self._base, *folders, "-O1" if source.name in self._cold else "-O3"]
        content = source.read_bytes()
        headers: list[bytes] = []
        for text in (HEADERS, PYTHON_HEADER):
            if content.startswith(text.encode()):
                command = self._preamble(text, command).command
                headers = self._headers if text == HEADERS else []
                break
        name = digest(content, *command, *self._makers, *headers)
        return Piece(source, OBJECT_FOLDER / f"{name}.o", command)

    def _preamble(self, text: str, command: list[str]) -> Preamble:
        key = (text, shlex.join(command))
        if key not in self._preambles:
            name = f"preamble{len(self._preambles)}"
            self._preambles[key] = Preamble(name, text, command)
        return self._preambles[key]

    def make(self, pieces: list[Piece]) -> None:
        """Compile what is not there, and drop what nobody wants any more."""
        missing = {piece.target: piece for piece in pieces if not piece.target.exists()}
        # The longest first, so that no core waits for another at the end.
        order = sorted(missing.values(), key=lambda piece: -piece.source.stat().st_size)
        with ThreadPoolExecutor(CORES) as pool:
            if order:
                list(pool.map(Preamble.prepare, self._preambles.values()))
            try:
                await_all("compiling", [pool.submit(piece.make) for piece in order])
            except CompileError:
                pool.shutdown(cancel_futures=True)
                raise
        wanted = {piece.target for piece in pieces}
        for path in OBJECT_FOLDER.glob("*.o"):
            if path not in wanted:
                path.unlink()


class CompileRooms(build_ext):
    """Generates C with mypyc and compiles what changed, on all cores."""

    def run(self) -> None:
        """Make the extensions now, when they are wanted, and build them."""
        if self.editable_mode:
            return
        sources = [str(path) for path in build_facts()["compiled_sources"](PACKAGE)]
        if not sources:
            return
        self.distribution.ext_modules = [*translated(sources)]
        # Finalized a second time, because that is when each extension is prepared.
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
        """Where it is noted of what an extension was linked, and what should stand there."""
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
        # Never written in place: somebody may be running it.
        target.unlink(missing_ok=True)
        objects = [str(piece.target) for piece in pieces]
        run([*self.compiler.linker_so, *objects, "-o", str(target)])
        path, mark = self._mark(extension, pieces)
        path.write_text(mark)


setup(
    distclass=Yard,
    cmdclass={"build_ext": CompileRooms, "build_py": CopySources},
    # Filled in by CompileRooms; must be a list because the manifest asks for its sources.
    ext_modules=[],
)
