"""The sixteen pairs of family and door, and the name and form of one job at each door."""

from typing import Any, Final

import pytest

from tests.support.servers.doors import LETTERS, FourDoors, number_of

# Families whose jobs count attempts and are kept with their result.
COUNTING: Final = "NG"
# Families whose jobs are retried for ever and removed when they are finished.
PLAIN: Final = "BT"

READY: Final = {"B": "ready", "N": "waiting", "G": "waiting", "T": "shown"}
DELAYED: Final = {"B": "delayed", "N": "delayed", "G": "delayed", "T": "shown"}
LEASED: Final = {"B": "reserved", "N": "active", "G": "active", "T": "shown"}
DEAD: Final = {"B": "buried", "N": "failed", "G": "failed", "T": "shown"}
DONE: Final = {"B": "NOT_FOUND", "N": "completed", "G": "completed", "T": ""}
BLOCKED: Final = {"B": "delayed", "N": "waiting-children", "G": "waiting-children", "T": "shown"}
GONE: Final = {"B": "NOT_FOUND", "N": "unknown", "G": "", "T": ""}


def pairs(families: str = LETTERS, at: str = LETTERS) -> pytest.MarkDecorator:
    """Run a test for jobs of these families at these doors, each under the name of the pair."""
    found = [(family, door) for family in families for door in at]
    names = [f"{family}-to-{door}" for family, door in found]
    return pytest.mark.parametrize(("family", "door"), found, ids=names)


class OneJob:
    """The one job of a queue, as every door calls it; it must be there when this is made."""

    def __init__(self, doors: FourDoors, queue: str, family: str, **put: Any) -> None:
        self.doors = doors
        self.queue = queue
        self.family = family
        made = doors.door(family).put(queue, put.pop("data", {"a": 1}), **put)
        [uuid] = doors.n.ids(queue)
        self.ids = {"B": number_of(uuid), "N": uuid, "G": "1", "T": "1"}
        if family == "G":
            self.ids["G"] = made
        assert self.ids[family] == made

    def states(self) -> dict[str, str]:
        """Return the state of the job in the words of every door."""
        return {
            letter: self.doors.door(letter).inspect(self.queue, self.ids[letter]).state
            for letter in LETTERS
        }

    def seen(self, letter: str) -> dict[str, Any]:
        """Return what a door shows of the job."""
        return self.doors.door(letter).inspect(self.queue, self.ids[letter]).fields

    def give_up(self, letter: str) -> object:
        """Give the job up at a door, which takes it before if it has to."""
        door = self.doors.door(letter)
        if door.gives_up_held:
            assert door.must_take(self.queue).id == self.ids[letter]
        return door.give_up(self.queue, self.ids[letter])

    def wake(self) -> None:
        """Promote the job before the end of its delay."""
        assert self.doors.b.ask(f"kick-job {self.ids['B']}") == b"KICKED"
