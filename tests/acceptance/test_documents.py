"""The commands in the documents, run as written there, in order, on a new server."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from jobyard import build
from jobyard.config import DOORS, Config
from tests.support.servers.http import HttpYard

ROOT = Path(__file__).parents[2]
needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[HttpYard]:
    server = HttpYard("--data", str(tmp_path / "data"))
    yield server
    server.close()


def blocks(document: str, language: str) -> list[str]:
    """Return the blocks of one language."""
    text = (ROOT / document).read_text()
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [block for name, block in found if name == language]


def commands(document: str) -> list[str]:
    """Return the lines that call the server with curl."""
    lines = [line for block in blocks(document, "sh") for line in block.splitlines()]
    found = [line for line in lines if line.startswith("curl ")]
    assert found
    return found


def start(yard: HttpYard, folder: Path, command: str) -> subprocess.Popen[str]:
    """Type a command in a shell of its own; a refusal ends curl with an error."""
    typed = command.replace("curl ", "exec curl -sS --fail-with-body ", 1)
    return subprocess.Popen(
        ["bash", "-o", "pipefail", "-c", typed],
        env={**os.environ, "TOPICS": yard.url},
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def type_in(yard: HttpYard, folder: Path, command: str) -> str:
    """Return the output of a command; of an endless one, the first line."""
    with start(yard, folder, command) as shell:
        assert shell.stdout is not None
        if command.startswith("curl -N "):
            first = shell.stdout.readline()
            shell.kill()
            assert first.startswith("retry: "), (command, first)
            return first
        said, _ = shell.communicate(timeout=60)
        assert shell.returncode == 0, (command, said)
        return said


def run_program(text: str) -> str:
    """Return the output of a Python program, which must end."""
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout


@needs_curl
@pytest.mark.parametrize("document", ["README.md", "docs/topics.md"])
def test_every_call_is_granted(yard: HttpYard, tmp_path: Path, document: str) -> None:
    watch = ""
    for written in commands(document):
        if "jq " in written and shutil.which("jq") is None:
            continue
        # What a reader puts in: the server's address, and the name that the last answer gave.
        command = written.replace("wid_...", watch).replace("localhost:6790", yard.url)
        said = type_in(yard, tmp_path, command)
        found = re.search(r'"wid":"([^"]+)"', said)
        watch = found[1] if found else watch
    for program in blocks(document, "python"):
        if find_spec("pyarrow") is not None:
            run_program(program.replace("http://127.0.0.1:6790", yard.url))


def test_the_first_minute_shows_what_it_says_each_time(yard: HttpYard) -> None:
    (block,) = (one for one in blocks("README.md", "sh") if "<<'PY'" in one)
    program = block.partition("<<'PY'\n")[2].partition("PY\n")[0]
    wanted = next(one for one in blocks("README.md", "") if one.startswith("INSERTED"))
    address = yard.addresses["beanstalk"]
    assert isinstance(address, tuple)
    program = program.replace("11300", str(address[1]))
    assert run_program(program).split() == wanted.split()
    # The next job has another number, and nothing else is different.
    again = run_program(program)
    assert re.sub(r"(?<=ED )\d+", "1", again).split() == wanted.split()
    assert "INSERTED 2" in again


def test_the_ready_line_of_the_readme_names_every_door() -> None:
    (line,) = re.findall(r"`(ready [^`]+)`", (ROOT / "README.md").read_text())
    config = Config()
    doors = [f"{door.name}={getattr(config, door.name)}" for door in DOORS]
    assert line == f"ready {' '.join(doors)} data={config.data}"


def test_programs_that_a_reader_may_lack_are_explained() -> None:
    packages = {"nc": "netcat-openbsd", "jq": "package of that name", "redis-cli": "redis-tools"}
    for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        text = path.read_text()
        typed = " ".join(re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
        for program, package in packages.items():
            if re.search(rf"(^|\| ){program} ", typed, re.MULTILINE):
                assert package in text, f"{path.name} uses {program}"


def test_the_package_names_all_protocols() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    protocols = {"beanstalkd", "bunqueue", "glide-mq", "topics"}
    assert protocols <= set(project["keywords"])
    assert all(name in project["description"] for name in protocols)


def test_a_server_that_is_not_compiled_says_so(yard: HttpYard) -> None:
    is_told = "not compiled: this runs as plain Python" in yard.process.errors()
    assert is_told == (build.kind() == "plain")
