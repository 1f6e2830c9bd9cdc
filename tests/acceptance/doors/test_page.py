"""The example of docs/one-job-any-door.md, run as written there, on a new server."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.servers.doors import FourDoors

PAGE = Path(__file__).parents[3] / "docs" / "one-job-any-door.md"

# What people have under this name differs in its flags, and may not be there at all.
NC = """#!{python}
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), 10) as sock:
    sock.sendall(sys.stdin.buffer.read())
    while data := sock.recv(65536):
        sys.stdout.buffer.write(data)
"""


def steps() -> list[tuple[str, list[str]]]:
    """Return every command of the page, and the lines that are promised to come of it."""
    found: list[tuple[str, list[str]]] = []
    for block in re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            if line.startswith("#> "):
                found[-1][1].append(line.removeprefix("#> "))
            else:
                found.append((line, []))
    assert found
    return found


def assert_promised(said: str, promised: list[str]) -> None:
    """Check that lines come in order, with dots standing for anything."""
    at = 0
    for line in promised:
        pattern = ".*?".join(re.escape(part) for part in line.split("..."))
        match = re.compile(pattern, re.DOTALL).search(said, at)
        assert match is not None, (line, said)
        at = match.end()


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_one_job_goes_through_four_doors(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "nc").write_text(NC.format(python=sys.executable))
    (tools / "nc").chmod(0o755)
    env = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
    four = FourDoors("--data", str(tmp_path / "data"))
    try:
        ports = {"11300": "beanstalk", "6379": "glidemq", "6790": "http"}
        known: dict[str, str] = {}
        for written, promised in steps():
            command = written
            for port, door in ports.items():
                command = re.sub(rf"\b{port}\b", str(four.addresses[door][1]), command)
            for word, value in known.items():
                command = re.sub(rf"\b{word}\b", value, command)
            done = subprocess.run(
                ["bash", "-o", "pipefail", "-c", command.replace("curl ", "curl -sS ", 1)],
                env=env,
                capture_output=True,
                text=True,
                timeout=30,
                check=True,
            )
            assert promised, written
            assert_promised(done.stdout, promised)
            if "ID" not in known:
                known["ID"] = re.findall(r'"id":"([^"]+)"', done.stdout)[0]
            for entry in re.findall(r"^(\d+-\d+)\r?$", done.stdout, re.MULTILINE):
                known["ENTRY"] = entry
    finally:
        four.close()
