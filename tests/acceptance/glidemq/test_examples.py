"""The examples over redis-py, run as a reader would run them: one program after the other."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.servers.valkey import NO_DOOR, has_door, serving

EXAMPLES = Path(__file__).parents[3] / "examples"

pytestmark = pytest.mark.skipif(not has_door(), reason=NO_DOOR)


@pytest.fixture
def url() -> Iterator[str]:
    with serving() as (host, port):
        yield f"redis://{host}:{port}"


def run_example(name: str, url: str, *flags: str) -> list[str]:
    """Run an example to its end; return the lines it printed."""
    command = [sys.executable, str(EXAMPLES / name), "--url", url, "--queue", "letters", *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_worker_completes_what_the_producer_added(url: str) -> None:
    added, counts = run_example("glidemq_producer.py", url)
    word, plain, urgent, later, named = added.split()
    assert word == "added"
    assert named.startswith("report-")
    assert counts == "ready 2 later 2"
    lines = run_example("glidemq_worker.py", url, "--jobs", "4")
    runs = [line.split(maxsplit=3) for line in lines if " is " in line]
    assert [(run[0], run[2]) for run in runs] == [
        (urgent, "password"),
        (plain, "welcome"),
        (named, "report"),
        (later, "reminder"),
    ]
    assert runs[0][3] == '{"to": "alan@example.com"}'
    assert [line for line in lines if line.endswith(" completed")] == [
        f"{job} completed" for job in (urgent, plain, named, later)
    ]


def test_a_named_job_is_added_once(url: str) -> None:
    run_example("glidemq_producer.py", url)
    added, counts = run_example("glidemq_producer.py", url)
    assert added.endswith(" duplicate")
    assert counts == "ready 3 later 4"
