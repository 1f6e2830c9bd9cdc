"""One client on the hot loop: what is read when, what is sent when, and how it ends."""

import contextlib
import socket
import struct
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from jobyard.engine.jobs.put import put
from jobyard.engine.jobs.queues import open_queue
from jobyard.errors import JournalDamaged, StorageFailed
from jobyard.journal.reply_gate import Gate
from jobyard.model.family import BEANSTALK
from jobyard.model.job import RAW
from jobyard.model.limits import READ_AHEAD_MAX
from jobyard.protocols.session import OUTPUT_MAX
from jobyard.server.connection import SEND_MAX, STUCK_MS, Connection
from jobyard.server.loop import Clock, HotLoop
from jobyard.server.turn import Turns
from tests.support.servers.patience import PATIENCE_S
from tests.support.site.yard import OpenYard
from tests.unit.server.connection.puppets import PuppetEntrance


class Line:
    """A client, its connection in the loop, and the session behind it."""

    def __init__(self, hall: "Hall", client: socket.socket, number: int) -> None:
        self._hall = hall
        self.client = client
        self.connection: Connection = hall.hot.connections()[number]
        self.session = hall.entrance.sessions[number]

    def hear(self, size: int) -> bytes:
        """Turn the loop until so many bytes have come, or the end."""
        heard = bytearray()
        deadline = time.monotonic() + PATIENCE_S
        while len(heard) < size:
            assert time.monotonic() < deadline, f"only {len(heard)} bytes came"
            self._hall.hot.turn(0.001)
            with contextlib.suppress(BlockingIOError):
                data = self.client.recv(1 << 16)
                if not data:
                    break
                heard += data
        return bytes(heard)

    def send(self, data: bytes) -> None:
        """Send, turning the loop as long as it takes."""
        at = 0
        deadline = time.monotonic() + PATIENCE_S
        while at < len(data):
            assert time.monotonic() < deadline, f"only {at} bytes were taken"
            with contextlib.suppress(BlockingIOError):
                at += self.client.send(data[at:])
            self._hall.hot.turn(0.0)


class Hall:
    """A hot loop with puppets for sessions."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.gate = Gate()
        self.turns = Turns(OpenYard(now_ms=self.clock.now_ms()).yard, None, None)
        self.hot = HotLoop(self.turns, self.gate, self.clock, 1000)
        self.entrance = PuppetEntrance()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.hot.listen(self.listener, self.entrance)
        self._clients: list[socket.socket] = []

    def connect(self) -> Line:
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32 << 10)
        client.connect(self.listener.getsockname())
        client.settimeout(0)
        self._clients.append(client)
        number = len(self.hot.connections())
        self.turn_until(lambda: len(self.hot.connections()) > number)
        return Line(self, client, number)

    def turn_until(self, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not is_so():
            assert time.monotonic() < deadline, "it never came to pass"
            self.hot.turn(0.005)

    def turn(self, count: int = 3) -> None:
        """Turn a few times without waiting for anything."""
        for _ in range(count):
            self.hot.turn(0.0)

    def close(self) -> None:
        for client in self._clients:
            client.close()
        self.hot.close(self.clock.now_ms())
        self.listener.close()


@pytest.fixture
def hall() -> Iterator[Hall]:
    with contextlib.closing(Hall()) as opened:
        yield opened


def numbered(size: int) -> bytes:
    """Return bytes that differ at every position."""
    return b"".join(struct.pack(">I", n) for n in range(size // 4))


# -- reading and sending -----------------------------------------------------------------------


def test_what_is_read_is_answered_in_the_same_turn(hall: Hall) -> None:
    line = hall.connect()
    line.session.on_data = lambda: line.session.say(b"answer")
    line.client.send(b"question")
    hall.hot.turn(1.0)
    assert line.client.recv(100) == b"answer"
    assert line.session.heard == b"question"


def test_an_answer_waits_for_its_batch(hall: Hall) -> None:
    line = hall.connect()
    line.session.on_data = lambda: line.session.say(b"answer", awaits=7)
    line.client.send(b"question")
    hall.turn_until(lambda: line.session.heard == b"question")
    for safe in (5, 6):
        hall.gate.release(safe)
        hall.turn()
        with pytest.raises(BlockingIOError):
            line.client.recv(100)
    hall.gate.release(7)
    assert line.hear(6) == b"answer"


def test_only_who_asked_for_the_disk_waits_for_it(hall: Hall) -> None:
    journal = hall.turns.yard.journal
    careful, plain = hall.connect(), hall.connect()

    def ask() -> None:
        journal.command_sync_batch = 7
        careful.session.say(b"careful", awaits=7)

    careful.session.on_data = ask
    plain.session.on_data = lambda: plain.session.say(b"plain", awaits=7)
    careful.client.send(b"x")
    hall.turn_until(lambda: careful.session.heard == b"x")
    plain.client.send(b"x")
    hall.turn_until(lambda: plain.session.heard == b"x")
    hall.gate.release_up_to(7, 6)
    assert plain.hear(5) == b"plain"
    with pytest.raises(BlockingIOError):
        careful.client.recv(100)
    hall.gate.release_up_to(7, 7)
    assert careful.hear(7) == b"careful"


def test_what_time_does_holds_back_no_answer(hall: Hall) -> None:
    line = hall.connect()
    hall.turns.yard.journal.command_sync_batch = 7
    line.session.on_data = lambda: line.session.say(b"answer")
    line.client.send(b"x")
    hall.turn_until(lambda: line.session.heard == b"x")
    assert line.hear(6) == b"answer"


def test_answers_keep_their_order_whatever_they_wait_for(hall: Hall) -> None:
    line = hall.connect()
    answers = iter([(b"first", 9), (b"second", 3), (b"third", 0)])

    def say() -> None:
        data, awaits = next(answers)
        line.session.awaits = 0
        line.session.say(data, awaits)

    line.session.on_data = say
    for n in range(3):
        line.client.send(b"x")
        hall.turn_until(lambda n=n: len(line.session.heard) > n)  # type: ignore[misc]
    hall.gate.release(3)
    hall.turn()
    with pytest.raises(BlockingIOError):
        line.client.recv(100)
    hall.gate.release(9)
    assert line.hear(16) == b"firstsecondthird"


def test_a_great_answer_is_sent_in_pieces_and_in_order(hall: Hall) -> None:
    line = hall.connect()
    data = numbered(8 << 20)
    line.session.on_data = lambda: line.session.say(data)
    line.client.send(b"x")
    assert line.hear(len(data)) == data
    hall.turn()
    assert hall.hot.stuck_count == 0


def test_what_is_left_of_a_great_answer_is_not_copied(hall: Hall) -> None:
    line = hall.connect()
    answer = bytes(16 << 20)
    line.connection.deliver(answer)
    piece = line.connection._next_piece(SEND_MAX)
    assert piece.obj is answer
    left = line.connection.unsent_size()
    assert len(line.hear(len(answer) - left + (1 << 20))) < len(answer)
    assert line.connection._next_piece(SEND_MAX).obj is answer
    assert line.connection.unsent_size() < left


def test_small_answers_behind_one_another_leave_together(hall: Hall) -> None:
    line = hall.connect()
    great = bytes(8 << 20)
    line.connection.deliver(great)
    for number in range(5000):
        line.connection.deliver(b"%07d\n" % number)
    heard = line.hear(len(great) + 5000 * 8)
    assert heard[len(great) :].split() == [b"%07d" % number for number in range(5000)]
    assert line.connection.unsent_size() == 0


def test_more_answers_behind_an_unsent_one_keep_their_order(hall: Hall) -> None:
    line = hall.connect()
    parts = [numbered(600_000), b"second" * 1000, b"third"]
    answers = iter(parts)
    line.session.on_data = lambda: line.session.say(next(answers))
    for n in range(3):
        line.client.send(b"x")
        hall.turn_until(lambda n=n: len(line.session.heard) > n)  # type: ignore[misc]
    whole = b"".join(parts)
    assert line.hear(len(whole)) == whole


# -- when reading stops ------------------------------------------------------------------------


def flood(hall: Hall, line: Line) -> int:
    """Send until the kernel accepts no more; return how much the session received."""
    with contextlib.suppress(BlockingIOError):
        while True:
            line.client.send(b"x" * 65536)
            hall.turn(1)
    hall.turn(20)
    return len(line.session.heard)


def test_nothing_is_read_while_the_peer_does_not_read(hall: Hall) -> None:
    line = hall.connect()
    line.session.on_data = lambda: line.session.say(b"y" * (OUTPUT_MAX * 8))
    line.client.send(b"x")
    hall.turn_until(lambda: line.session.heard != b"")
    line.session.on_data = None
    assert flood(hall, line) == 1
    assert len(line.hear(OUTPUT_MAX * 8)) == OUTPUT_MAX * 8
    hall.turn_until(lambda: len(line.session.heard) > 1)


def test_nothing_is_read_while_answers_wait_for_the_disk(hall: Hall) -> None:
    line = hall.connect()
    line.session.on_data = lambda: line.session.say(b"y" * (OUTPUT_MAX + 1), awaits=5)
    line.client.send(b"x")
    hall.turn_until(lambda: line.session.heard != b"")
    line.session.on_data = None
    assert flood(hall, line) == 1
    hall.gate.release(5)
    assert len(line.hear(OUTPUT_MAX + 1)) == OUTPUT_MAX + 1
    hall.turn_until(lambda: len(line.session.heard) > 1)


def test_a_session_with_much_unread_input_gets_no_more(hall: Hall) -> None:
    line = hall.connect()
    line.session.unread = READ_AHEAD_MAX + 1
    line.client.send(b"x")
    hall.turn_until(lambda: line.session.heard != b"")
    assert flood(hall, line) == 1
    line.session.unread = 0
    line.session.peer.wake()
    hall.turn_until(lambda: len(line.session.heard) > 1)


def test_a_stalled_session_continues_when_its_output_was_sent(hall: Hall) -> None:
    line = hall.connect()
    left = [3]

    def say_more() -> None:
        left[0] -= 1
        line.session.is_stalled = left[0] > 0
        line.session.say(b"z" * OUTPUT_MAX)

    line.session.on_data = say_more
    line.session.on_resume = say_more
    line.client.send(b"x")
    assert line.hear(3 * OUTPUT_MAX) == b"z" * (3 * OUTPUT_MAX)
    assert left == [0]


def test_a_stalled_session_does_not_go_on_while_the_peer_does_not_read(hall: Hall) -> None:
    line = hall.connect()

    def say_more() -> None:
        line.session.is_stalled = True
        line.session.say(b"z" * (8 * OUTPUT_MAX))

    line.session.on_data = say_more
    line.session.on_resume = say_more
    line.client.send(b"x")
    hall.turn(50)
    assert "resume" not in line.session.calls


# -- peers that do not read --------------------------------------------------------------------


def test_a_peer_that_reads_nothing_for_long_is_closed(hall: Hall) -> None:
    line = hall.connect()
    quick = hall.connect()
    line.session.on_data = lambda: line.session.say(b"y" * (8 << 20))
    line.client.send(b"x")
    hall.turn_until(lambda: hall.hot.stuck_count == 1)
    now_ms = hall.clock.now_ms()
    assert not line.connection.is_stuck(now_ms + STUCK_MS - 1000)
    assert line.connection.is_stuck(now_ms + STUCK_MS + 1)
    assert not quick.connection.is_stuck(now_ms + STUCK_MS + 1)
    hall.hot._every_second(now_ms + STUCK_MS - 1000)
    assert line.session.calls == []
    hall.hot._every_second(now_ms + STUCK_MS + 1)
    assert line.connection.is_closed
    assert line.session.calls == ["closed"]
    assert hall.hot.stuck_count == 0
    assert not quick.connection.is_closed


def test_a_peer_that_reads_a_little_is_not_stuck(hall: Hall) -> None:
    line = hall.connect()
    line.session.on_data = lambda: line.session.say(b"y" * (16 << 20))
    line.client.send(b"x")
    hall.turn_until(lambda: hall.hot.stuck_count == 1)
    begun_ms = hall.clock.now_ms()
    while hall.clock.now_ms() < begun_ms + 20:
        hall.turn()
    # More than any buffer of the kernel holds, so that the server has sent some of it.
    line.hear(7 << 20)
    assert not line.connection.is_stuck(begun_ms + STUCK_MS + 5)


# -- the end -----------------------------------------------------------------------------------


@pytest.mark.parametrize("is_reset", [False, True], ids=["closed", "reset"])
def test_a_peer_that_leaves_is_noticed_once(hall: Hall, *, is_reset: bool) -> None:
    line = hall.connect()
    if is_reset:
        line.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    line.client.close()
    hall.turn_until(lambda: line.connection.is_closed)
    assert line.session.calls.count("closed") == 1
    assert hall.hot.connections() == []


def test_half_a_goodbye_is_answered_before_the_end(hall: Hall) -> None:
    line = hall.connect()
    line.session.on_data = lambda: line.session.say(b"last words", awaits=4)
    line.client.send(b"x")
    line.client.shutdown(socket.SHUT_WR)
    hall.turn_until(lambda: "end_input" in line.session.calls)
    hall.turn()
    assert not line.connection.is_closed
    hall.gate.release(4)
    assert line.hear(100) == b"last words"
    assert line.session.calls[-1] == "closed"


def test_a_finished_session_is_closed_after_its_last_answer(hall: Hall) -> None:
    line = hall.connect()
    data = numbered(4 << 20)

    def finish() -> None:
        line.session.say(data)
        line.session.is_finished = True

    line.session.on_data = finish
    line.client.send(b"x")
    assert line.hear(len(data) + 1) == data
    assert line.connection.is_closed
    assert line.session.calls[-1] == "closed"


def test_a_connection_that_breaks_while_it_is_sent_to_is_closed(hall: Hall) -> None:
    """The gate releases answers in the middle of a turn; no session may end inside another's."""
    broken, whole = hall.connect(), hall.connect()
    for line in (broken, whole):
        line.session.on_data = partial(line.session.say, b"answer", awaits=3)
        line.client.send(b"x")
        hall.turn_until(lambda one=line: one.session.heard != b"")  # type: ignore[misc]
    broken.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    broken.client.close()
    hall.gate.release(3)
    assert "closed" not in broken.session.calls
    hall.turn_until(lambda: broken.connection.is_closed)
    assert whole.hear(6) == b"answer"
    assert broken.session.calls.count("closed") == 1


def test_answers_for_one_who_left_are_dropped(hall: Hall) -> None:
    line = hall.connect()
    line.session.on_data = lambda: line.session.say(b"answer", awaits=3)
    line.client.send(b"x")
    hall.turn_until(lambda: line.session.heard != b"")
    line.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    line.client.close()
    hall.turn_until(lambda: line.connection.is_closed)
    hall.gate.release(3)
    hall.turn()
    assert hall.gate.held == []


def test_a_session_that_ends_can_tell_what_never_left(hall: Hall) -> None:
    line = hall.connect()
    peer = line.session.peer
    unsent: list[int] = []
    line.session.on_closed = lambda: unsent.append(peer.unsent_size())
    line.session.on_data = lambda: line.session.say(b"answer", awaits=3)
    line.client.send(b"x")
    hall.turn_until(lambda: line.session.heard != b"")
    assert peer.unsent_size() == len(b"answer")
    line.connection.close(hall.clock.now_ms())
    assert unsent == [len(b"answer")]
    assert peer.unsent_size() == 0


def test_closing_twice_is_closing_once(hall: Hall) -> None:
    line = hall.connect()
    line.connection.close(hall.clock.now_ms())
    line.connection.close(hall.clock.now_ms())
    assert line.session.calls == ["closed"]
    line.connection.deliver(b"too late")
    line.session.peer.wake()
    hall.turn()
    assert line.session.calls == ["closed"]


def test_winding_up_sends_what_there_is_and_closes(hall: Hall) -> None:
    line = hall.connect()
    line.session.on_data = lambda: line.session.say(b"answer", awaits=3)
    line.client.send(b"x")
    hall.turn_until(lambda: line.session.heard != b"")
    line.connection.wind_up(hall.clock.now_ms())
    assert "closed" not in line.session.calls
    hall.gate.release(3)
    assert line.hear(100) == b"answer"
    assert line.connection.is_closed


def test_woken_sessions_continue_in_order_and_once(hall: Hall) -> None:
    lines = [hall.connect() for _ in range(3)]
    order: list[int] = []
    for n, line in enumerate(lines):
        line.session.on_resume = partial(order.append, n)
    for n in (2, 0, 2, 1, 0):
        lines[n].session.peer.wake()
    hall.turn()
    assert order == [2, 0, 1]


# -- errors of Jobyard's own -------------------------------------------------------------------


def fails(error: Exception) -> Callable[[], None]:
    """Return a method of a session that fails."""

    def fail() -> None:
        raise error

    return fail


def test_an_error_that_changed_nothing_costs_one_connection(hall: Hall) -> None:
    told: list[tuple[str, str]] = []
    hall.turns.error_boundary.log_error = lambda doing, error: told.append((doing, str(error)))
    broken, other = hall.connect(), hall.connect()
    broken.session.on_data = fails(ValueError("no such luck"))
    other.session.on_data = lambda: other.session.say(b"answer")
    broken.client.send(b"x")
    hall.turn_until(lambda: broken.connection.is_closed)
    assert broken.session.calls == ["closed"]
    assert broken.hear(1) == b""
    assert hall.turns.yard.errors.survived_count == 1
    assert told == [("unknown", "no such luck")]
    other.client.send(b"x")
    assert other.hear(6) == b"answer"


def test_an_error_of_a_session_that_continues_costs_one_connection(hall: Hall) -> None:
    line = hall.connect()
    line.session.on_resume = fails(AssertionError())
    line.session.peer.wake()
    hall.turn_until(lambda: line.connection.is_closed)
    assert line.session.calls == ["resume", "closed"]


def test_an_error_at_the_end_costs_one_connection(hall: Hall) -> None:
    line = hall.connect()
    line.session.on_end = fails(AssertionError())
    line.connection.wind_up(hall.clock.now_ms())
    assert line.connection.is_closed
    assert hall.turns.yard.errors.survived_count == 1


def test_an_error_after_a_record_ends_the_process(hall: Hall) -> None:
    yard = hall.turns.yard
    line = hall.connect()

    def put_and_fail() -> None:
        put(yard, open_queue(yard, "q"), BEANSTALK, RAW, 0, 0, 1000, b"x", hall.clock.now_ms())
        raise ValueError

    line.session.on_data = put_and_fail
    line.client.send(b"x")
    with pytest.raises(ValueError, match=r"^$"):
        hall.turn_until(lambda: line.connection.is_closed)
    assert yard.errors.survived_count == 0


def test_commands_before_the_one_that_failed_do_not_count(hall: Hall) -> None:
    yard = hall.turns.yard
    line = hall.connect()

    def put_then_fail() -> None:
        put(yard, open_queue(yard, "q"), BEANSTALK, RAW, 0, 0, 1000, b"x", hall.clock.now_ms())
        line.session.changes_before = yard.changes()
        raise ValueError

    line.session.on_data = put_then_fail
    line.client.send(b"x")
    hall.turn_until(lambda: line.connection.is_closed)
    assert yard.errors.survived_count == 1


def test_an_error_while_a_connection_closes_ends_the_process(hall: Hall) -> None:
    line = hall.connect()
    line.session.on_closed = fails(ValueError("held"))
    line.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    line.client.close()
    with pytest.raises(ValueError, match="held"):
        hall.turn_until(lambda: line.connection.is_closed)
    # The process would end here, and its sockets with it.
    line.connection._sock.close()


@pytest.mark.parametrize("error", [StorageFailed("gone"), JournalDamaged("f", 0, "why")])
def test_failures_of_the_disk_end_the_process(hall: Hall, error: Exception) -> None:
    line = hall.connect()
    line.session.on_data = fails(error)
    line.client.send(b"x")
    with pytest.raises(type(error)):
        hall.turn_until(lambda: line.connection.is_closed)
