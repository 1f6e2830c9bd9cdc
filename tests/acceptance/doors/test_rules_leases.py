"""Only its own door can end a lease, and a broken connection gives back what it may."""

import pytest

from tests.acceptance.doors.pairs import pairs
from tests.support.servers.doors import LETTERS, FourDoors, Taken, number_of


def is_running(four: FourDoors, queue: str) -> bool:
    counts = four.t.counts(queue)
    return (counts["in_flight"], counts["ready"], counts["delayed"]) == (1, 0, 0)


def ids_of(four: FourDoors, queue: str) -> dict[str, Taken]:
    """Return the one job of a queue under its name at each door, with what each could know."""
    (uuid,) = four.n.ids(queue)
    stream = four.g.key(queue, "stream")
    ((entry, fields),) = four.g.client.xrange(stream)
    job_id = fields[b"jobId"].decode()
    return {
        "B": Taken(queue, number_of(uuid), b""),
        "N": Taken(queue, uuid, None),
        "G": Taken(queue, job_id, b"", entry.decode()),
        "T": Taken(queue, "1", None, ""),
    }


@pairs()
def test_no_other_door_ends_a_lease(doors: FourDoors, queue: str, family: str, door: str) -> None:
    doors.t.make(queue)
    doors.door(family).put(queue, 7, attempts=3)
    taken = doors.door(door).must_take(queue, 0)
    names = ids_of(doors, queue)
    for letter in LETTERS.replace(door, ""):
        other = doors.door(letter)
        other.finish(names[letter])
        other.fail(names[letter])
        if other.gives_up_held:
            other.give_up(queue, names[letter].id)
        assert is_running(doors, queue), letter
    assert doors.b.ask(f"stats-job {names['B'].id}").count(b"reserves: 1") == 1
    doors.door(door).finish(taken)
    assert doors.t.counts(queue)["in_flight"] == 0


@pairs()
def test_who_leaves_gives_back_what_its_door_lends_to_connections(
    doors: FourDoors, queue: str, family: str, door: str
) -> None:
    doors.t.make(queue)
    doors.door(family).put(queue, 7)
    opened = {"B": doors.beanstalk, "N": doors.bunqueue, "G": doors.glide, "T": doors.topics}
    worker = opened[door]()
    worker.must_take(queue, 0)
    worker.close()
    if door in "GT":
        # Consumers and nodes are not connections.
        assert is_running(doors, queue)
        return
    taken = doors.b.must_take(queue)
    assert doors.b.inspect(queue, taken.id).fields["timeouts"] == "0"
    assert doors.g.inspect(queue, "1").fields["attemptsMade"] == "0"


@pytest.mark.parametrize("family", LETTERS)
def test_ids_of_all_doors_name_one_job(doors: FourDoors, queue: str, family: str) -> None:
    doors.t.make(queue)
    doors.door(family).put(queue, {"a": family})
    names = ids_of(doors, queue)
    seen = {letter: doors.door(letter).inspect(queue, names[letter].id) for letter in LETTERS}
    assert [seen[letter].state for letter in LETTERS] == ["ready", "waiting", "waiting", "shown"]
    assert seen["N"].fields["data"] == seen["T"].fields["data"] == {"a": family}
    assert seen["G"].fields["data"] == b'{"a":"%b"}' % family.encode()
    assert doors.b.ask(f"peek {names['B'].id}").endswith(b'{"a":"%b"}' % family.encode())
    # A delay and its end change none of them.
    doors.n.client.ok("ChangeDelay", id=names["N"].id, delay=600_000)
    keys = [f"job:{names['G'].id}", "stream", "scheduled", "events"]
    assert doors.g.call("promoteJob", queue, keys, names["G"].id) == b"ok"
    after = ids_of(doors, queue)
    assert [after[letter].id for letter in LETTERS] == [names[letter].id for letter in LETTERS]
    assert doors.n.inspect(queue, names["N"].id).state == "waiting"
