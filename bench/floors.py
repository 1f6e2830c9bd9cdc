"""The build of the floor servers: bare, echo and httpecho, compiled into a separate folder.

The echo servers are compiled together with a copy of the yard's sources: a session from another
extension could neither extend the compiled classes nor be called as fast. The folder is rebuilt
when the contents it was made from change. Uncompiled, a floor is too high and makes the yard look
better; it is built anyway, and the report says so.
"""

import hashlib
import os
import runpy
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Floors", "build_floors"]

HERE = Path(__file__).parent
FLOORS = (HERE / "bare.py", HERE / "echo.py", HERE / "httpecho.py")
PACKAGE = HERE / "__init__.py"  # so that they are imported under the names they have here
COMPILE_SECONDS_MAX = 900
# One C file. setup.py makes one for each module, with hidden symbols, which takes 2 to 5 % fewer
# instructions, so these floors are that much too slow. Sources come before "build_ext".
SETUP = """
import sys
from mypyc.build import mypycify
from setuptools import setup
cut = sys.argv.index("build_ext")
sources, sys.argv[1:] = sys.argv[1:cut], sys.argv[cut:]
made = mypycify(sources, opt_level="3", debug_level="0", multi_file=False, group_name="floors")
for extension in made:
    extension.extra_compile_args = [*extension.extra_compile_args, "-Wno-misleading-indentation"]
setup(name="floors", packages=[], py_modules=[], ext_modules=made)
"""


@dataclass(frozen=True)
class Floors:
    """The folder they can be imported from, and what is wrong with them."""

    folder: Path
    doubt: str | None = None


def build_floors(folder: Path, root: Path) -> Floors:
    """Return compiled floors in `folder`, rebuilt if they or the yard's sources changed."""
    package = root / "src" / "jobyard"
    state = _state([PACKAGE, *FLOORS, *package.rglob("*.py")])
    mark = folder / "made-of"
    if mark.exists() and mark.read_text() == state:
        return Floors(folder)
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(package, folder / "jobyard", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / HERE.name).mkdir()
    for source in (PACKAGE, *FLOORS):
        shutil.copyfile(source, folder / HERE.name / source.name)
    # Otherwise mypy would use the project's settings, and find the yard a second time through them.
    (folder / "mypy.ini").write_text("[mypy]\n")
    complaint = _compile(folder)
    if complaint is not None:
        return Floors(folder, f"the floors are not compiled and so too high ({complaint})")
    mark.write_text(state)
    return Floors(folder)


def _compile(folder: Path) -> str | None:
    """Compile in place; return the reason if that failed."""
    listing = runpy.run_path(str(folder / "jobyard" / "build.py"))["compiled_sources"]
    sources = [str(path.relative_to(folder)) for path in listing(folder / "jobyard")]
    sources += [f"{HERE.name}/{source.name}" for source in FLOORS]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", SETUP, *sources, "build_ext", "--inplace"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=COMPILE_SECONDS_MAX,
    )
    if done.returncode == 0:
        return None
    lines = (done.stdout + done.stderr).strip().splitlines() or ["no reason given"]
    return next((line for line in lines if "error" in line.lower()), lines[-1])


def _state(paths: list[Path]) -> str:
    total = hashlib.sha256(sys.version.encode())
    for path in sorted(paths):
        total.update(f"{path.name} {path.parent.name}\n".encode() + path.read_bytes())
    return total.hexdigest()
