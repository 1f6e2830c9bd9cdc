"""The compiling half of the package build; everything else stands in pyproject.toml.

mypyc turns the compiled rooms into one C extension when a wheel is built. It runs only when
extensions are really built, since a package build reads this file several times for other
reasons. A machine that cannot compile gets the same package in plain Python and one warning,
never a failure. Code that does not compile where a compiler is present is our mistake and fails.
An editable install is always plain: edits must take effect.
"""

import os
import runpy
import shlex
import subprocess
import sys
import sysconfig
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from setuptools import Distribution, Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

PACKAGE = Path("src/jobyard")
C_FOLDER = "build/c"
# mypyc indents what it writes by a thousand columns, and -Wall, which Python's own flags hold, has
# gcc look up each line again to judge that: more than half of the time of the whole build.
C_FLAGS = ["-Wno-misleading-indentation"]


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
        source.write_text("#include <Python.h>\n")
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


class CompileRooms(build_ext):
    """Generates C with mypyc and compiles it on all cores."""

    def run(self) -> None:
        """Make the extensions now, when they are wanted, and build them."""
        if self.editable_mode:
            return
        from mypyc.build import mypycify  # noqa: PLC0415  # its import patches setuptools

        listing = runpy.run_path(str(PACKAGE / "build.py"))["compiled_sources"]
        sources = [str(path) for path in listing(PACKAGE)]
        if not sources:
            return
        made = mypycify(
            sources,
            opt_level="3",
            debug_level="0",
            # One C file: calls between modules can be inlined, and it compiles no slower.
            multi_file=False,
            target_dir=C_FOLDER,
            group_name="jobyard",
        )
        self.distribution.ext_modules = [each for each in made if isinstance(each, Extension)]
        for extension in self.distribution.ext_modules:
            extension.extra_compile_args = [*extension.extra_compile_args, *C_FLAGS]
        # Finalized a second time, because that is when each extension is prepared.
        self.distribution.reinitialize_command(self)
        self.ensure_finalized()
        self.parallel = os.cpu_count() or 1
        super().run()


setup(
    distclass=Yard,
    cmdclass={"build_ext": CompileRooms, "build_py": CopySources},
    # Filled in by CompileRooms; must be a list because the manifest asks for its sources.
    ext_modules=[],
)
