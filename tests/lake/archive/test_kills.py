"""An archiver that is killed at every point: the folder is right, and the next run completes it.

The program is one of its own, which kills itself before or after the nth call of a kind.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from jobyard.client import YardClient
from jobyard.lake.archive import ArchiveRules, archive, verify
from tests.support.clients.archives import WrittenTopic, archived
from tests.support.servers.http import HttpYard, Topics

RUN_S = 120
RULES = ArchiveRules(file_bytes=64 << 10)
PROGRAM = """
import os, signal, sys
from pathlib import Path

from jobyard.client import YardClient
from jobyard.client.errors import JobyardError
from jobyard.lake.archive import ArchiveRules, archive
from jobyard.lake.archive.blocks import SummingFile

url, topic, folder, wanted = sys.argv[1:]
seen = {}


def reach(point):
    seen[point] = seen.get(point, 0) + 1
    if f"{point} {seen[point]}" == wanted:
        os.kill(os.getpid(), signal.SIGKILL)


def watched(owner, name, kind):
    call = getattr(owner, name)

    def watching(*given, **named):
        what = kind(*given)
        if what:
            reach(f"before {what}")
        answer = call(*given, **named)
        if what:
            reach(f"after {what}")
        return answer

    setattr(owner, name, watching)


def synced(fd):
    name = os.path.basename(os.readlink(f"/proc/self/fd/{fd}"))
    return "sync folder" if "=" in name else f"sync {name}"


watched(os, "fsync", synced)
watched(SummingFile, "write", lambda *_: "write")
watched(Path, "rename", lambda *_: "rename")
watched(Path, "replace", lambda *_: "replace")
watched(YardClient, "ask", lambda self, method, *_: "cursor" if method == "PUT" else "")
with YardClient(url) as client:
    archive(client, topic, folder, ArchiveRules(file_bytes=64 << 10))
print(seen)
"""
POINTS = [
    f"{side} {what}"
    for side in ("before", "after")
    for what in (
        *("write 1", "write 20", "write 90"),
        *("sync _new.parquet 1", "sync _new.parquet 2", "rename 1", "rename 3"),
        *("sync folder 2", "sync _index.new 1", "replace 1", "replace 2", "cursor 1", "cursor 3"),
    )
]


def run(url: str, topic: str, folder: Path, point: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, url, topic, str(folder), point],
        capture_output=True, text=True, timeout=RUN_S, check=False, env=dict(os.environ),
    )  # fmt: skip


@pytest.mark.parametrize("point", POINTS)
def test_a_killed_archiver_leaves_a_right_folder(
    client: YardClient, yard: HttpYard, topics: Topics, tmp_path: Path, point: str
) -> None:
    topic = WrittenTopic(topics, f"killed-{POINTS.index(point)}", cap_records=100)
    # The cursor is there, so nothing is lost from here on.
    archive(client, topic.name, tmp_path)
    topic.write([{"data": os.urandom(200).hex()} for _ in range(1000)])
    done = run(yard.url, topic.name, tmp_path, point)
    assert done.returncode == -signal.SIGKILL, (done.stdout, done.stderr)
    # What is there is right, whole, and a beginning of what was written; nothing else has left.
    verify(tmp_path)
    there = archived(tmp_path, topic.name)
    assert there == topic.rows[: len(there)]
    topic.fill(150)
    archive(client, topic.name, tmp_path, RULES)
    assert archived(tmp_path, topic.name) == topic.rows
    (report,) = verify(tmp_path).topics
    assert (report.rows, report.unlisted) == (1150, ())
