"""Many waiting clients, and many jobs that come at once: served over turns, in order."""

from typing import TYPE_CHECKING

from jobyard.engine.state.tasks import SERVED_AT_ONCE
from jobyard.protocols.bunqueue.session import COMMANDS_WAITING_MAX
from tests.support.doors.bunqueue import BareBunqueue
from tests.support.site.recount import recount
from tests.support.site.yard import OpenYard

if TYPE_CHECKING:
    from tests.support.clients.bunqueue import BunqueueClient

COUNT = SERVED_AT_ONCE + 200


class Line:
    """Clients that wait for jobs of one queue, longer than are served at once."""

    def __init__(self, count: int = COUNT) -> None:
        self.site = BareBunqueue()
        self.site.is_slow = True
        self.site.yard.tasks.units_per_turn = 80
        self.site.slice()
        self.pusher = self.site.connect()
        self.waits: list[tuple[BunqueueClient, str]] = []
        self.served: list[int] = []
        for at in range(count):
            client = self.site.connect() if at % COMMANDS_WAITING_MAX == 0 else self.waits[-1][0]
            self.waits.append((client, client.send("PULL", queue="q", timeout=60_000)))

    def push(self, count: int) -> None:
        """Push jobs."""
        first = self.site.yard.journal.next_id
        self.pusher.ok("PUSHB", queue="q", jobs=[{"data": int(first) + at} for at in range(count)])

    def look(self) -> int:
        """Note which clients were served since the last call; return how many."""
        found: list[tuple[int, int]] = []
        left: list[tuple[BunqueueClient, str]] = []
        for at, (client, number) in enumerate(self.waits):
            answer = client.hear(number)
            if answer is None:
                left.append((client, number))
            else:
                found.append((at, answer["job"]["data"]))
        assert [at for at, _ in found] == list(range(len(found))), "the first in line come first"
        self.waits = left
        self.served += [data for _, data in found]
        return len(found)


def test_a_long_line_is_served_in_order_over_turns() -> None:
    line = Line()
    line.push(COUNT)
    assert line.look() == SERVED_AT_ONCE
    while line.site.slice():
        assert 0 < line.look() <= 20
    line.look()
    assert not line.waits
    assert line.served == list(range(1, COUNT + 1))
    assert not line.site.yard.queues["q"].is_serving
    line.site.check()


def test_who_comes_meanwhile_gets_no_job_of_those_in_line() -> None:
    line = Line()
    line.push(COUNT - 1)
    late = line.site.connect()
    assert late.ok("PULL", queue="q")["job"] is None
    number = late.send("PULL", queue="q", timeout=60_000)
    line.push(1)
    while line.site.slice():
        line.look()
    line.look()
    assert not line.waits
    assert late.hear(number) is None
    line.push(1)
    answer = late.hear(number)
    assert answer is not None
    assert answer["job"]["data"] == COUNT + 1


def test_who_comes_meanwhile_gets_a_job_that_is_left_over() -> None:
    line = Line()
    line.push(COUNT + 1)
    assert line.site.connect().ok("PULL", queue="q")["job"] is not None
    while line.site.slice():
        pass
    line.look()
    assert not line.waits
    assert line.site.yard.ready_count == 0


def test_who_leaves_the_line_takes_no_job_along() -> None:
    line = Line()
    line.push(COUNT)
    line.look()
    leaving = line.waits[-1][0]
    staying = [one for one in line.waits if one[0] is not leaving]
    gone = len(line.waits) - len(staying)
    leaving.close()
    line.waits = staying
    while line.site.slice():
        pass
    line.look()
    assert not line.waits
    assert line.site.yard.ready_count == gone
    line.push(1)
    assert line.site.yard.ready_count == gone + 1
    line.site.check()


def test_a_queue_that_is_paused_meanwhile_serves_the_others_later() -> None:
    line = Line()
    line.push(COUNT)
    line.look()
    line.pusher.ok("Pause", queue="q")
    while line.site.slice():
        pass
    assert line.look() == 0
    assert not line.site.yard.queues["q"].is_serving
    line.pusher.ok("Resume", queue="q")
    while line.site.slice():
        pass
    line.look()
    assert not line.waits


def test_a_client_at_another_door_that_comes_meanwhile_waits_too() -> None:
    site = OpenYard()
    site.yard.tasks.served_at_once = 2
    clients = [site.connect() for _ in range(5)]
    for client in clients:
        assert client.say(b"reserve\r\n") == b""
    for _ in range(5):
        site.put(delay_ms=1000)
    site.jump(1000)
    assert [client.hear()[:10] for client in clients] == [
        *[b"RESERVED 1", b"RESERVED 2"],
        *[b""] * 3,
    ]
    late = site.connect()
    assert late.say(b"reserve-with-timeout 0\r\n") == b"TIMED_OUT\r\n"
    while site.yard.tasks.proceed(site.now_ms):
        pass
    assert [client.hear()[:10] for client in clients[2:]] == [
        b"RESERVED %d" % at for at in (3, 4, 5)
    ]
    assert site.yard.ready_count == 0
    recount(site.yard)
