"""Long answers on the hot loop: in pieces that are not copied, and never much of them at once."""

import contextlib
import select
from collections.abc import Iterator

import pytest

from jobyard.protocols.shared_limits import FREE_SIZE
from jobyard.server.connection import SEND_MAX
from tests.unit.server.connection.test_connection import Hall, numbered


@pytest.fixture
def hall() -> Iterator[Hall]:
    with contextlib.closing(Hall()) as opened:
        yield opened


def test_a_long_answer_leaves_in_pieces_that_are_not_copied(hall: Hall) -> None:
    line = hall.connect()
    whole = numbered(24 << 20)
    pieces = [whole[at : at + (256 << 10)] for at in range(0, len(whole), 256 << 10)]
    line.session.on_data = lambda: line.session.write_long(list(pieces))
    line.client.send(b"x")
    hall.turn_until(lambda: line.connection.unsent_size() > 0)
    shared_limits = hall.turns.shared_limits
    assert shared_limits.held == line.connection.unsent_size() - FREE_SIZE
    waiting = line.connection._backlog[1:60]
    assert waiting
    assert {id(piece) for piece in waiting} <= {id(piece) for piece in pieces}
    heard = line.hear(10 << 20)
    assert shared_limits.held == line.connection.unsent_size() - FREE_SIZE
    assert heard + line.hear(len(whole) - len(heard)) == whole
    hall.turn()
    assert (line.connection.unsent_size(), shared_limits.held, hall.hot.stuck_count) == (0, 0, 0)


def test_no_more_is_sent_at_once_than_others_can_wait_for(hall: Hall) -> None:
    line = hall.connect()
    taken: list[int] = []

    def take_all(data: bytes | memoryview) -> int:
        taken.append(len(data))
        return len(data)

    line.connection._send = take_all
    line.connection.deliver(bytes(8 << 20))
    assert sum(taken) == SEND_MAX
    hall.hot.turn(0.0)
    assert sum(taken) == 2 * SEND_MAX
    hall.turn_until(lambda: line.connection.unsent_size() == 0)
    taken.clear()
    line.connection.deliver_all([bytes(256 << 10)] * 32)
    assert sum(taken) == SEND_MAX
    line.connection.deliver_all([bytes(1 << 20)])
    hall.turn_until(lambda: line.connection.unsent_size() == 0)
    assert sum(taken) == 9 << 20
    assert hall.hot.stuck_count == 0
    assert line.connection._events & select.EPOLLOUT == 0


def test_pieces_that_the_socket_takes_at_once_leave_nothing_behind(hall: Hall) -> None:
    line = hall.connect()
    line.connection.deliver_all([b"first ", b"second"])
    assert line.hear(12) == b"first second"
    assert (line.connection.unsent_size(), hall.hot.stuck_count) == (0, 0)


def test_pieces_for_a_socket_that_failed_go_with_the_connection(hall: Hall) -> None:
    line = hall.connect()

    def fail(data: bytes | memoryview) -> int:
        raise ConnectionResetError(len(data))

    line.connection._send = fail
    line.connection.deliver_all([bytes(1 << 20)] * 4)
    assert line.session.calls == []
    hall.turn(1)
    assert line.session.calls == ["closed"]
    line.connection.deliver_all([b"too late"])
    assert (line.connection.unsent_size(), hall.hot.stuck_count) == (0, 0)
