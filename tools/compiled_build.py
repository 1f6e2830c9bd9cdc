"""Keeps `build/compiled` a compiled copy of the package, rebuilt only when something changed.

    python -m tools.compiled_build             build it if it is missing or stale
    python -m tools.compiled_build --require   the same, but a machine that cannot compile fails
    python -m tools.compiled_build --check     build nothing; exit 1 unless it is fresh

The contents of the sources decide whether the copy is fresh, never dates. It is put in place
whole: a process that starts sees the old build or the new one. setup.py works in `build/stage`,
`build/c` and `build/objects`, which are kept so that unchanged modules are not compiled again. A
second working copy, or a fresh one, finds objects in the user's cache (JOBYARD_OBJECT_CACHE). A
virtual environment that runs this prefers the compiled copy to the sources from then on (a `.pth`
file); tests choose for themselves in conftest.py. Where nothing can be compiled there is no copy,
and setup.py has printed one line about it.
"""

import argparse
import fcntl
import hashlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from jobyard.build import kind

ROOT: Final = Path(__file__).resolve().parent.parent
# Sorts before the file of the editable install, and the first folder on the path wins.
PATH_FILE: Final = "__compiled__.jobyard.pth"


def digest(folder: Path, paths: Iterable[Path], *facts: str) -> str:
    """Return one digest of the names and contents of files, and of other facts."""
    total = hashlib.sha256()
    for path in sorted(paths):
        content = path.read_bytes()
        total.update(f"{path.relative_to(folder)} {len(content)}\n".encode())
        total.update(content)
    for fact in facts:
        total.update(f"{fact}\n".encode())
    return total.hexdigest()


def object_cache() -> str:
    """Return the folder of objects for all working copies of one user."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser())
    return str(Path(home, "jobyard", "objects"))


class CompiledCopy:
    """The compiled copy of the package of one repository."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.sources = root / "src" / "jobyard"
        self.work = root / "build"
        self.place = self.work / "compiled"

    def recipe(self) -> str:
        """Return a digest of everything but the sources; old objects are useless if it changes."""
        versions = [importlib.metadata.version(name) for name in ("mypy", "librt", "setuptools")]
        files = [self.root / "setup.py", self.root / "pyproject.toml"]
        return digest(self.root, files, sys.version, os.environ.get("CC", ""), *versions)

    def fingerprint(self) -> str:
        """Return a digest of everything that a copy made now would depend on."""
        return f"{self.recipe()} {digest(self.sources, self.sources.rglob('*.py'))}\n"

    def is_fresh(self) -> bool:
        """Return whether the copy was made from the current sources."""
        mark = self.place / "fingerprint"
        return mark.is_file() and mark.read_text() == self.fingerprint()

    def make(self) -> bool:
        """Run setup.py and put the result in place; False if this machine cannot compile."""
        fingerprint = self.fingerprint()
        self._drop_leftovers()
        # The process that runs the copy writes byte code; setup.py would warn about the setting.
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        environment.setdefault("JOBYARD_OBJECT_CACHE", object_cache())
        command = [sys.executable, "setup.py", "-q", "build", "--build-lib", "build/stage"]
        if subprocess.run(command, cwd=self.root, env=environment, check=False).returncode != 0:
            sys.exit("the package does not compile; see above")
        (self.work / "recipe").write_text(self.recipe())
        result = kind(self.work / "stage" / "jobyard")
        if result == "mixed":
            sys.exit("only some modules were compiled")
        if result == "plain":
            shutil.rmtree(self.place, ignore_errors=True)
            return False
        self._publish(fingerprint)
        return True

    def _drop_leftovers(self) -> None:
        """Remove what another recipe made, and modules whose source is gone."""
        old_recipe = self.work / "recipe"
        if not old_recipe.is_file() or old_recipe.read_text() != self.recipe():
            shutil.rmtree(self.work / "stage", ignore_errors=True)
            shutil.rmtree(self.work / "c", ignore_errors=True)
        stage = self.work / "stage" / "jobyard"
        for path in [path for path in stage.rglob("*") if path.is_file()]:
            source = path.name.split(".")[0] + ".py"
            if not (self.sources / path.parent.relative_to(stage) / source).is_file():
                path.unlink()

    def _publish(self, fingerprint: str) -> None:
        fresh, old = self.work / "compiled.new", self.work / "compiled.old"
        for folder in (fresh, old):
            shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.work / "stage", fresh)
        (fresh / "fingerprint").write_text(fingerprint)
        if self.place.exists():
            self.place.rename(old)
        fresh.rename(self.place)
        shutil.rmtree(old, ignore_errors=True)


def prefer(copy: CompiledCopy) -> None:
    """Make this virtual environment import the compiled copy if there is one."""
    if sys.prefix != sys.base_prefix:
        path_file = Path(sysconfig.get_paths()["purelib"], PATH_FILE)
        path_file.write_text(f"{copy.place}\n")  # Python ignores a folder that does not exist


def main() -> int:
    """Run what the arguments request; return the exit code."""
    parser = argparse.ArgumentParser(prog="tools.compiled_build")
    parser.add_argument("--check", action="store_true", help="only report whether it is fresh")
    parser.add_argument("--require", action="store_true", help="fail if nothing can be compiled")
    arguments = parser.parse_args()
    copy = CompiledCopy(ROOT)
    copy.work.mkdir(exist_ok=True)
    with (copy.work / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of two makes at once, the second finds it done
        if arguments.check and not copy.is_fresh():
            print("build/compiled is missing or stale: run `make compile`", file=sys.stderr)
            return 1
        is_compiled = copy.is_fresh() or copy.make()
        prefer(copy)
    return 1 if arguments.require and not is_compiled else 0


if __name__ == "__main__":
    sys.exit(main())
