"""The fallback on any asyncio loop: the same rules as on the hot loop."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, cast

import pytest

from jobyard.errors import StorageFailed
from jobyard.journal.reply_gate import Gate
from jobyard.model.limits import NEVER_MS, READ_AHEAD_MAX
from jobyard.protocols.session import OUTPUT_MAX
from jobyard.protocols.shared_limits import FREE_SIZE
from jobyard.server.asyncio_connection import STUCK_S, StreamConnection, StreamTurns
from jobyard.server.connection import SEND_MAX
from jobyard.server.loop import Clock
from jobyard.server.turn import Commits, Turns
from tests.support.site.yard import OpenYard
from tests.unit.server.connection.puppets import Puppet, PuppetEntrance

HIGH_WATER = 64 * 1024


class FakeTransport:
    """A transport whose peer reads on the test's request."""

    def __init__(self) -> None:
        self.sent = b""
        self.buffered = 0
        # The peer reads all at once.
        self.is_quick = False
        self.is_reading = True
        self.is_closing = False
        self.is_aborted = False
        self.protocol: StreamConnection | None = None

    def write(self, data: bytes) -> None:
        self.sent += data
        was_slow = self.buffered > HIGH_WATER
        self.buffered += 0 if self.is_quick else len(data)
        if self.buffered > HIGH_WATER and not was_slow:
            assert self.protocol is not None
            self.protocol.pause_writing()

    def drain(self) -> None:
        """Make the peer read everything."""
        was_slow = self.buffered > HIGH_WATER
        self.buffered = 0
        if was_slow:
            assert self.protocol is not None
            self.protocol.resume_writing()

    def get_write_buffer_size(self) -> int:
        return self.buffered

    def get_extra_info(self, name: str) -> object:
        assert name in ("peername", "sockname")
        return ("127.0.0.1", 4711)

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True

    def close(self) -> None:
        self.is_closing = True

    def abort(self) -> None:
        self.is_aborted = True


class ScriptedCommits(Commits):
    """Releases everything in every turn, or fails."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self.safe = 0
        self.failure: Exception | None = None
        self.count = 0

    def turn(self, now_ms: int) -> int:
        del now_ms
        self.count += 1
        if self.failure is not None:
            raise self.failure
        self._gate.release(self.safe)
        return NEVER_MS


class NotedLoop(asyncio.SelectorEventLoop):
    """A loop that notes what is to be called later."""

    def __init__(self) -> None:
        super().__init__()
        self.later: list[tuple[float, Callable[..., object], tuple[object, ...]]] = []

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: object, **kwargs: Any
    ) -> asyncio.TimerHandle:
        self.later.append((delay, callback, args))
        return super().call_later(delay, callback, *args, **kwargs)


class Hall:
    """Turns on a real asyncio loop, with connections whose transports are fake."""

    def __init__(self) -> None:
        self.loop = NotedLoop()
        self.gate = Gate()
        self.commits = ScriptedCommits(self.gate)
        turns = Turns(OpenYard().yard, self.commits, None)
        self.failures: list[BaseException] = []
        self.streams = StreamTurns(self.loop, turns, self.gate, Clock(), self.failures.append)
        self.entrance = PuppetEntrance()

    def connect(self) -> tuple[StreamConnection, FakeTransport, Puppet]:
        connection = self.streams.protocol_factory(self.entrance)()
        transport = FakeTransport()
        transport.protocol = connection
        connection.connection_made(cast("asyncio.Transport", transport))
        return connection, transport, self.entrance.sessions[-1]

    def turn(self, count: int = 3) -> None:
        """Run the loop through a few passes."""
        for _ in range(count):
            self.loop.call_soon(self.loop.stop)
            self.loop.run_forever()

    def close(self) -> None:
        self.loop.close()


@pytest.fixture
def hall() -> Iterator[Hall]:
    with contextlib.closing(Hall()) as opened:
        yield opened


def test_what_arrives_is_answered_after_the_commit(hall: Hall) -> None:
    connection, transport, session = hall.connect()
    session.on_data = lambda: session.say(b"answer", awaits=3)
    connection.data_received(b"question")
    hall.turn()
    assert transport.sent == b""
    hall.commits.safe = 3
    hall.streams.schedule()
    hall.turn()
    assert transport.sent == b"answer"


def test_all_that_arrives_in_one_pass_shares_a_commit(hall: Hall) -> None:
    lines = [hall.connect() for _ in range(5)]
    hall.turn()
    before = hall.commits.count
    for connection, _transport, session in lines:
        session.on_data = partial(session.say, b"x", awaits=1)
        connection.data_received(b"x")
        connection.data_received(b"x")
    hall.commits.safe = 1
    hall.turn(1)
    assert hall.commits.count == before + 1
    assert all(transport.sent == b"xx" for _, transport, _ in lines)


def test_a_failed_commit_is_reported_and_nothing_is_sent(hall: Hall) -> None:
    connection, transport, session = hall.connect()
    session.on_data = lambda: session.say(b"answer", awaits=3)
    hall.commits.safe = 3
    hall.commits.failure = StorageFailed("sync x: an error of the disk")
    connection.data_received(b"question")
    hall.turn()
    assert [str(failure) for failure in hall.failures] == ["sync x: an error of the disk"]
    assert transport.sent == b""


def test_after_a_failure_no_later_turn_sends_anything(hall: Hall) -> None:
    """The server is stopping, but the loop still runs and peers still send."""
    connection, transport, session = hall.connect()
    session.on_data = lambda: session.say(b"answer", awaits=3)
    hall.commits.safe = 3
    hall.commits.failure = StorageFailed("sync x: an error of the disk")
    connection.data_received(b"question")
    hall.turn()
    hall.commits.failure = None
    connection.data_received(b"another")
    hall.turn()
    assert transport.sent == b""


@pytest.mark.parametrize("event", ["data", "eof", "lost"])
def test_a_disk_that_fails_in_the_middle_of_a_command_is_reported(hall: Hall, event: str) -> None:
    """A roll to the next segment touches the disk; asyncio would log the error and go on."""
    connection, _transport, session = hall.connect()

    def fail() -> None:
        raise StorageFailed("create x: an error of the disk")

    session.on_data = fail
    session.on_end = fail
    session.on_closed = fail
    if event == "data":
        connection.data_received(b"question")
    elif event == "eof":
        connection.eof_received()
    else:
        connection.connection_lost(None)
    assert [str(failure) for failure in hall.failures] == ["create x: an error of the disk"]


def test_reading_stops_while_a_session_has_enough(hall: Hall) -> None:
    connection, transport, session = hall.connect()
    session.unread = READ_AHEAD_MAX + 1
    connection.data_received(b"x")
    assert not transport.is_reading
    session.unread = 0
    session.peer.wake()
    hall.turn()
    assert transport.is_reading


def test_reading_continues_after_answers_that_waited_for_the_disk(hall: Hall) -> None:
    connection, transport, session = hall.connect()
    session.on_data = lambda: session.say(b"y" * (OUTPUT_MAX + 1), awaits=3)
    connection.data_received(b"x")
    assert not transport.is_reading
    hall.commits.safe = 3
    hall.streams.schedule()
    hall.turn()
    transport.drain()
    hall.turn()
    assert transport.is_reading


def test_a_stalled_session_continues_only_when_the_peer_has_read(hall: Hall) -> None:
    connection, transport, session = hall.connect()

    def say_more() -> None:
        session.is_stalled = True
        session.say(b"z" * OUTPUT_MAX)

    session.on_data = say_more
    session.on_resume = lambda: say_more() if len(transport.sent) < 64 * OUTPUT_MAX else None
    connection.data_received(b"x")
    hall.turn(10)
    assert len(transport.sent) == OUTPUT_MAX, "output piles up for one who does not read"
    transport.drain()
    hall.turn()
    assert len(transport.sent) == 2 * OUTPUT_MAX


def test_a_peer_that_never_reads_is_cut_off(hall: Hall) -> None:
    connection, transport, session = hall.connect()
    session.on_data = lambda: session.say(b"z" * (2 * HIGH_WATER))
    connection.data_received(b"x")
    hall.turn()
    [(callback, args)] = [(call, args) for delay, call, args in hall.loop.later if delay == STUCK_S]
    callback(*args)
    assert transport.is_aborted


def test_a_peer_that_reads_slowly_is_given_time(hall: Hall) -> None:
    connection, transport, session = hall.connect()
    session.on_data = lambda: session.say(b"z" * (4 * HIGH_WATER))
    connection.data_received(b"x")
    hall.turn()
    transport.buffered -= 1
    looks = [(call, args) for delay, call, args in hall.loop.later if delay == STUCK_S]
    looks[0][0](*looks[0][1])
    assert not transport.is_aborted
    assert len([delay for delay, _, _ in hall.loop.later if delay == STUCK_S]) == 2


def long_answer(count: int = 64) -> list[bytes]:
    return [b"%07d\n" % at * 8192 for at in range(count)]


def test_a_long_answer_is_given_to_the_transport_as_the_peer_reads(hall: Hall) -> None:
    connection, transport, session = hall.connect()
    pieces = long_answer()
    whole = b"".join(pieces)
    session.on_data = lambda: session.write_long(list(pieces))
    connection.data_received(b"x")
    hall.turn()
    shared_limits = hall.streams.turns.shared_limits
    assert 0 < len(transport.sent) <= 2 * HIGH_WATER
    assert session.peer.unsent_size() == len(whole)
    assert shared_limits.held == len(whole) - FREE_SIZE
    session.on_data = lambda: session.say(b"behind")
    connection.data_received(b"x")
    while len(transport.sent) < len(whole) + 6:
        before = len(transport.sent)
        transport.drain()
        hall.turn()
        assert before < len(transport.sent)
    assert transport.sent == whole + b"behind"
    transport.drain()
    hall.turn()
    assert (session.peer.unsent_size(), shared_limits.held) == (0, 0)


def test_the_end_waits_for_all_pieces_of_a_long_answer(hall: Hall) -> None:
    connection, transport, session = hall.connect()
    whole = b"".join(long_answer())
    session.on_data = lambda: session.write_long(long_answer())
    connection.data_received(b"x")
    connection.eof_received()
    hall.turn()
    assert not transport.is_closing
    while len(transport.sent) < len(whole):
        assert not transport.is_closing
        transport.drain()
        hall.turn()
    assert transport.is_closing


def test_who_reads_at_once_gets_a_long_answer_over_several_passes(hall: Hall) -> None:
    connection, transport, session = hall.connect()
    whole = b"".join(long_answer())
    transport.is_quick = True
    session.on_data = lambda: session.write_long(long_answer())
    connection.data_received(b"x")
    assert len(transport.sent) <= SEND_MAX + HIGH_WATER
    hall.turn(10)
    assert transport.sent == whole


def test_a_connection_that_is_lost_sends_no_more_pieces(hall: Hall) -> None:
    connection, transport, session = hall.connect()
    session.on_data = lambda: session.write_long(long_answer())
    connection.data_received(b"x")
    hall.turn()
    connection.connection_lost(None)
    before = len(transport.sent)
    transport.drain()
    hall.turn()
    assert len(transport.sent) == before
    assert hall.streams.turns.shared_limits.held == 0


def test_who_has_caught_up_meanwhile_is_not_cut_off(hall: Hall) -> None:
    connection, transport, session = hall.connect()
    session.on_data = lambda: session.say(b"z" * (4 * HIGH_WATER))
    connection.data_received(b"x")
    hall.turn()
    transport.drain()
    connection.data_received(b"x")
    hall.turn()
    [(callback, args)] = [(call, args) for delay, call, args in hall.loop.later if delay == STUCK_S]
    callback(*args)
    assert not transport.is_aborted


def test_the_end_of_input_closes_after_the_last_answer(hall: Hall) -> None:
    connection, transport, session = hall.connect()
    session.on_data = lambda: session.say(b"last", awaits=3)
    connection.data_received(b"x")
    assert connection.eof_received(), "asyncio would close the transport by itself"
    hall.turn()
    assert not transport.is_closing
    hall.commits.safe = 3
    hall.streams.schedule()
    hall.turn()
    assert transport.sent == b"last"
    assert transport.is_closing


def test_a_lost_connection_is_given_back_once(hall: Hall) -> None:
    connection, transport, session = hall.connect()
    empty: list[int] = []
    hall.streams.on_empty = lambda: empty.append(1)
    session.on_data = lambda: session.say(b"answer", awaits=3)
    connection.data_received(b"x")
    connection.connection_lost(None)
    assert session.calls.count("closed") == 1
    assert empty == [1]
    assert hall.streams.connections == set()
    hall.commits.safe = 3
    session.peer.wake()
    hall.streams.schedule()
    hall.turn()
    assert transport.sent == b""
    assert hall.gate.held == []


def test_the_next_timer_sets_the_alarm(hall: Hall) -> None:
    hall.streams.schedule()
    hall.turn(1)
    delays = [delay for delay, _, _ in hall.loop.later]
    assert delays[-1] == 1.0


def test_an_error_that_changed_nothing_costs_one_connection(hall: Hall) -> None:
    broken, broken_transport, session = hall.connect()
    other, transport, other_session = hall.connect()

    def fail() -> None:
        raise ValueError

    session.on_data = fail
    other_session.on_data = lambda: other_session.say(b"answer")
    broken.data_received(b"x")
    # Input that was in transit is no longer read.
    broken.data_received(b"x")
    hall.turn()
    assert broken_transport.is_aborted
    assert session.calls == ["closed"]
    assert hall.failures == []
    assert hall.streams.turns.yard.errors.survived_count == 1
    other.data_received(b"x")
    hall.turn()
    assert transport.sent == b"answer"


def test_an_error_of_a_session_that_continues_costs_one_connection(hall: Hall) -> None:
    _connection, transport, session = hall.connect()

    def fail() -> None:
        raise ValueError

    session.on_resume = fail
    session.peer.wake()
    hall.turn()
    assert transport.is_aborted
    assert session.calls == ["resume", "closed"]
    assert hall.failures == []
