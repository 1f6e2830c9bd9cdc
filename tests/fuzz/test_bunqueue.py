"""Every field of every bunqueue command, at and beyond every bound: nothing ends the session.

In process: an error that no session expects comes out of `receive` and fails the test. The
commands are those of the door's own table, and one without a template fails; the fields are all
that the sources of the door name.
"""

import re
from pathlib import Path
from typing import Final

import pytest

from jobyard.protocols.bunqueue.commands.table import COMMANDS
from tests.support.doors.doors import BareDoors
from tests.support.site.storage import MemoryStorage
from tests.support.values.bunqueue_commands import TEMPLATES
from tests.support.values.hostile import (
    FLOATS,
    NO_NUMBERS,
    OTHERS,
    SHARP,
    WHOLE,
    filled,
    frame,
    places,
    put,
)

SOURCES: Final = Path(__file__).parents[2] / "src" / "jobyard" / "sessions" / "bunqueue"
USUAL: Final = ("PUSH", "PUSHB", "PULL", "PULLB", "ACK", "ACKB")
ALL: Final = (*WHOLE, *FLOATS, *NO_NUMBERS, *OTHERS)


def names() -> list[str]:
    """Return every name of a field that the sources of the door know."""
    found: set[str] = set()
    for path in SOURCES.glob("*.py"):
        found.update(re.findall(r'b"([a-z][A-Za-z]+)"', path.read_text()))
    return sorted(found - {"cmd"})


class Assault:
    """A yard with jobs in every state, and a client who means no good."""

    def __init__(self) -> None:
        self.site = BareDoors(MemoryStorage())
        self.friend = self.site.bunqueue()
        self.client = self.site.bunqueue()
        self.count = 0

    def cast(self) -> dict[str, object]:
        """Return a job of each state, by the words that stand for them."""
        friend = self.friend
        friend.push("run")
        active, token = friend.lock("run")
        worker = friend.ok("RegisterWorker", name="w", queues=["q"])
        return {
            "$waiting": friend.push("q"),
            "$delayed": friend.push("q", delay=60_000),
            "$active": active,
            "$token": token,
            "$dead": friend.bury("dead"),
            "$worker": worker["data"]["workerId"],
        }

    def fire(self, command: dict[str, object]) -> None:
        """Send a command, whatever the result, and check that another client is served."""
        self.count += 1
        self.client.session.receive(frame(command), self.site.now_ms)
        self.client.session.take_output()
        self.site.settle()
        if self.client.session.is_finished or self.count % 40 == 0:
            self.client.close()
            self.client = self.site.bunqueue()
        if self.count % 100 == 0:
            assert self.friend.ok("Ping")["data"]["pong"]


def test_every_command_has_a_template() -> None:
    assert set(TEMPLATES) == {name.decode() for name in COMMANDS} | set(USUAL)


@pytest.mark.parametrize("name", sorted(TEMPLATES))
def test_no_field_of_a_command_ends_the_session(name: str) -> None:
    assault = Assault()
    template = TEMPLATES[name]
    strange = [field for field in names() if field not in template]
    for way in [*places(template), *((field,) for field in strange)]:
        command = filled({"cmd": name, **template}, assault.cast())
        for value in ALL if way[0] in template else SHARP:
            sent = put(command, way, value)
            assert isinstance(sent, dict)
            assault.fire(sent)
    assault.client.close()
    for command in ("Stats", "DashboardOverview", "CronList", "ListWorkers", "Prometheus"):
        assault.friend.ok(command)
    for queue in ("q", "run"):
        assault.friend.ok("GetJobs", queue=queue, limit=1000)
        assault.friend.ok("DashboardQueue", queue=queue, includeJobs=True)
    assault.site.tick(2000)
    assault.site.check()
    again = assault.site.after_a_crash()
    again.bunqueue().ok("GetJobs", queue="q", limit=1000)
