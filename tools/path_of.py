"""How long the way of a put is: its deepest stack, and the files of ours that it runs through.

    python -m tools.path_of            depth, files and deepest stack of a put at three doors
    python -m tools.path_of --tree     every call as well
    python -m tools.path_of --files    every file as well

A reader who follows a put has to hold this much in mind, so a test keeps the figures from growing.
Each put is the second or a later one of its queue, of a plain job, on a journal in memory, through
a session as a connection would call it. Only frames of the package count, beginning with `receive`.
Compiled code has no frames: this runs on the plain sources alone.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Final, NamedTuple

import jobyard
from jobyard.build import kind
from jobyard.protocols.session import Session
from tests.support.clients import resp
from tests.support.clients.library import Library
from tests.support.doors.bunqueue import BareBunqueue
from tests.support.doors.glidemq import BareGlidemq
from tests.support.servers import bunqueue
from tests.support.site.storage import MemoryStorage
from tests.support.site.yard import OpenYard

PACKAGE: Final = f"{Path(jobyard.__file__).parent}/"
# More than a connection prepares calls for, and then more misses than it keeps them for: from here
# on each command is parsed.
UNLIKE: Final = 100


class Frame(NamedTuple):
    """One call: how deep it is, the function and its file below the package."""

    depth: int
    function: str
    file: str


class Way(NamedTuple):
    """All calls of one operation, in their order."""

    frames: list[Frame]

    def depth(self) -> int:
        """Return the size of the deepest stack."""
        return max(frame.depth for frame in self.frames)

    def files(self) -> list[str]:
        """Return the different files."""
        return sorted({frame.file for frame in self.frames})

    def deepest(self) -> list[str]:
        """Return the functions of the deepest stack, the first one if there are several."""
        stack: list[str] = []
        for frame in self.frames:
            stack[frame.depth - 1 :] = [frame.function]
            if frame.depth == self.depth():
                return stack
        raise AssertionError("a way has a deepest frame")


def way_of(session: Session, data: bytes, now_ms: int) -> Way:
    """Return the way of the commands in `data`."""
    frames: list[Frame] = []
    depth = 0

    def note(frame: FrameType, event: str, _: object) -> None:
        nonlocal depth
        code = frame.f_code
        if not code.co_filename.startswith(PACKAGE):
            return
        if event == "call":
            depth += 1
            frames.append(Frame(depth, code.co_qualname, code.co_filename.removeprefix(PACKAGE)))
        elif event == "return":
            depth -= 1

    sys.setprofile(note)
    try:
        session.receive(data, now_ms)
    finally:
        sys.setprofile(None)
    return Way(frames)


def of_beanstalk() -> Way:
    """Return the way of a put."""
    site = OpenYard(MemoryStorage())
    client = site.connect()
    put = b"put 0 0 60 5\r\nhello\r\n"
    client.say(put)
    way = way_of(client.session, put, site.now_ms)
    assert client.hear() == b"INSERTED 2\r\n"
    return way


def of_bunqueue() -> Way:
    """Return the way of a PUSH."""
    site = BareBunqueue(MemoryStorage())
    client = site.connect()
    client.push("q", {"to": "me"})
    push = {"cmd": "PUSH", "queue": "q", "data": {"to": "me"}, "reqId": "9"}
    way = way_of(client.session, bunqueue.frame(bunqueue.pack(push)), site.now_ms)
    assert client.ok("GetJobCounts", queue="q")["counts"]["waiting"] == 2
    return way


def of_glidemq() -> Way:
    """Return the way of an addJob that fits no prepared call."""
    site = BareGlidemq(MemoryStorage())
    library = Library(site)
    for each in range(UNLIKE):
        library.add(name=f"job-{each}")
    keys = library.keys("id", "stream", "scheduled", "events")
    add = resp.pack("FCALL", "glidemq_addJob", 4, *keys, *library.arguments(name="job-0"))
    way = way_of(library.client.session, add, site.now_ms)
    assert library.client.session.take_output() == b"$3\r\n101\r\n"
    return way


OPERATIONS: Final[dict[str, Callable[[], Way]]] = {
    "beanstalk put": of_beanstalk,
    "bunqueue PUSH": of_bunqueue,
    "glide-mq addJob": of_glidemq,
}


def main() -> int:
    """Print the ways that the arguments request."""
    parser = argparse.ArgumentParser(prog="tools.path_of")
    parser.add_argument("--tree", action="store_true", help="print every call")
    parser.add_argument("--files", action="store_true", help="print every file")
    arguments = parser.parse_args()
    if kind() != "plain":
        print("compiled code has no frames: run this with PYTHONPATH=src", file=sys.stderr)
        return 1
    for name, trace in OPERATIONS.items():
        way = trace()
        print(f"{name}: depth {way.depth()}, files {len(way.files())}, calls {len(way.frames)}")
        print("  " + " > ".join(way.deepest()))
        if arguments.tree:
            for frame in way.frames:
                print(f"{'  ' * frame.depth}{frame.function}  {frame.file}")
        if arguments.files:
            print("\n".join(f"  {file}" for file in way.files()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
