"""The epoll loop: which connections are accepted and served, and how long it sleeps."""

import contextlib
import os
import resource
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jobyard.journal.reply_gate import Gate
from jobyard.protocols.beanstalk.entrance import BeanstalkEntrance
from jobyard.server.loop import (
    ACCEPT_REST_MS,
    ACCEPTS_PER_TURN,
    Clock,
    HotLoop,
    connections_limit,
)
from jobyard.server.turn import Turns
from tests.support.servers.patience import PATIENCE_S
from tests.support.site.yard import OpenYard

USING = b"USING default\r\n"
ASK = b"list-tube-used\r\n"


class Hall:
    """A hot loop over a yard in memory, with one open door."""

    def __init__(self, connections_max: int = 1000) -> None:
        self.clock = Clock()
        self.site = OpenYard(now_ms=self.clock.now_ms())
        self.gate = Gate()
        self.turns = Turns(self.site.yard, None, None)
        self.hot = HotLoop(self.turns, self.gate, self.clock, connections_max)
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=1000)
        self.hot.listen(self.listener, BeanstalkEntrance(self.site.door))
        self.clients: list[socket.socket] = []

    def connect(self) -> socket.socket:
        client = socket.create_connection(self.listener.getsockname(), timeout=PATIENCE_S)
        self.clients.append(client)
        return client

    def turn_until(self, is_so: Callable[[], bool]) -> None:
        """Turn the loop until something is so."""
        deadline = time.monotonic() + PATIENCE_S
        while not is_so():
            assert time.monotonic() < deadline, "it never came to pass"
            self.hot.turn(0.005)

    def count(self) -> int:
        return len(self.hot.connections())

    def hear(self, client: socket.socket, size: int) -> bytes:
        """Turn the loop until a client has so many bytes, or the end of its connection."""
        client.settimeout(0)
        heard = b""
        deadline = time.monotonic() + PATIENCE_S
        while len(heard) < size:
            assert time.monotonic() < deadline, f"only {heard!r} came"
            self.hot.turn(0.005)
            with contextlib.suppress(BlockingIOError):
                data = client.recv(size - len(heard))
                if not data:
                    break
                heard += data
        return heard

    def close(self) -> None:
        for client in self.clients:
            client.close()
        self.hot.close(self.clock.now_ms())
        self.listener.close()


@pytest.fixture
def hall() -> Iterator[Hall]:
    with contextlib.closing(Hall()) as opened:
        yield opened


def test_a_client_is_let_in_and_served(hall: Hall) -> None:
    client = hall.connect()
    client.sendall(ASK)
    assert hall.hear(client, len(USING)) == USING
    assert hall.count() == 1


def test_everything_that_is_there_is_served_in_one_turn(hall: Hall) -> None:
    clients = [hall.connect() for _ in range(20)]
    hall.turn_until(lambda: hall.count() == 20)
    for client in clients:
        client.sendall(ASK * 3)
    hall.turn_until(lambda: True)
    # Loopback delivers at once: one poll sees all twenty.
    hall.hot.turn(0.0)
    for client in clients:
        client.settimeout(0)
        assert client.recv(1000) == USING * 3


def test_a_crowd_is_let_in_over_several_turns(hall: Hall) -> None:
    for _ in range(ACCEPTS_PER_TURN + 10):
        hall.connect()
    hall.hot.turn(0.0)
    assert hall.count() == ACCEPTS_PER_TURN
    hall.turn_until(lambda: hall.count() == ACCEPTS_PER_TURN + 10)


def test_a_client_that_left_is_forgotten(hall: Hall) -> None:
    client = hall.connect()
    hall.turn_until(lambda: hall.count() == 1)
    client.close()
    hall.turn_until(lambda: hall.count() == 0)
    assert hall.site.door.connections_count == 0


def test_beyond_the_limit_newcomers_are_closed_and_counted() -> None:
    with contextlib.closing(Hall(connections_max=3)) as hall:
        inside = [hall.connect() for _ in range(3)]
        hall.turn_until(lambda: hall.count() == 3)
        outside = hall.connect()
        assert hall.hear(outside, 1) == b""
        assert hall.hot.refused_count == 1
        assert hall.count() == 3
        inside[0].close()
        hall.turn_until(lambda: hall.count() == 2)
        late = hall.connect()
        late.sendall(ASK)
        assert hall.hear(late, len(USING)) == USING


@contextlib.contextmanager
def no_more_descriptors() -> Iterator[None]:
    lowest_free = os.dup(0)
    os.close(lowest_free)
    usual = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, usual[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, usual)


def test_without_descriptors_the_door_rests_and_the_others_are_served(hall: Hall) -> None:
    inside = hall.connect()
    hall.turn_until(lambda: hall.count() == 1)
    outside = hall.connect()
    inside.sendall(ASK)
    with no_more_descriptors():
        sleep_s = hall.hot.turn(0.0)
        assert hall.hot.refused_count == 1
        assert hall.hear(inside, len(USING)) == USING
        for _ in range(5):
            hall.hot.turn(0.0)
        assert hall.hot.refused_count == 1, "the resting door was tried again at once"
    assert sleep_s <= ACCEPT_REST_MS / 1000, "the loop would sleep longer than the door rests"
    outside.sendall(ASK)
    assert hall.hear(outside, len(USING)) == USING


def test_the_loop_sleeps_until_the_next_timer(hall: Hall) -> None:
    client = hall.connect()
    client.sendall(b"put 0 1 60 1\r\nx\r\n")
    assert hall.hear(client, 12) == b"INSERTED 1\r\n"
    assert 0.8 < hall.hot.turn(0.0) <= 1.0
    client.sendall(b"reserve-with-timeout 0\r\n")
    assert hall.hear(client, 11) == b"TIMED_OUT\r\n"
    client.sendall(b"reserve\r\n")
    assert hall.hear(client, 17) == b"RESERVED 1 1\r\nx\r\n"


def test_a_stopped_listener_lets_nobody_in(hall: Hall) -> None:
    hall.hot.stop_listening()
    client = hall.connect()
    hall.hot.turn(0.0)
    hall.hot.turn(0.0)
    assert hall.count() == 0
    client.close()


def test_another_thread_can_end_the_sleep(hall: Hall) -> None:
    woken: list[int] = []
    hall.hot.on_wake(lambda: woken.append(1))
    thread = threading.Timer(0.05, hall.hot.wake)
    thread.start()
    started = time.monotonic()
    hall.turn_until(lambda: bool(woken))
    assert time.monotonic() - started < PATIENCE_S / 2
    thread.join()
    assert woken == [1]


def test_wakes_that_come_together_are_one(hall: Hall) -> None:
    woken: list[int] = []
    hall.hot.on_wake(lambda: woken.append(1))
    for _ in range(5):
        hall.hot.wake()
    hall.hot.turn(0.0)
    hall.hot.turn(0.0)
    assert woken == [1]


def test_select_returns_when_asyncio_has_something_to_do(hall: Hall) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        hall.hot.watch_cold(ours.fileno(), 1)
        assert hall.hot.select(0.0) == []
        theirs.send(b"x")
        assert hall.hot.select(PATIENCE_S) == [(ours.fileno(), 1)]
        hall.hot.change_cold(ours.fileno(), 4)
        assert hall.hot.select(PATIENCE_S) == [(ours.fileno(), 4)]
        hall.hot.unwatch_cold(ours.fileno())
        assert hall.hot.select(0.0) == []


def test_select_keeps_to_its_time(hall: Hall) -> None:
    started = time.monotonic()
    assert hall.hot.select(0.1) == []
    assert 0.09 < time.monotonic() - started < PATIENCE_S / 2


def test_select_serves_the_hot_doors_meanwhile(hall: Hall) -> None:
    client = hall.connect()
    client.sendall(ASK)
    hall.hot.select(0.1)
    client.settimeout(PATIENCE_S)
    assert client.recv(100) == USING


def test_a_call_back_ends_select_early(hall: Hall) -> None:
    hall.hot.on_wake(hall.hot.call_back)
    hall.hot.wake()
    started = time.monotonic()
    assert hall.hot.select(PATIENCE_S) == []
    assert time.monotonic() - started < PATIENCE_S / 2


def test_the_last_to_leave_is_told_of(hall: Hall) -> None:
    clients = [hall.connect() for _ in range(2)]
    hall.turn_until(lambda: hall.count() == 2)
    calls: list[int] = []
    hall.hot.on_empty = lambda: calls.append(hall.count())
    clients[0].close()
    hall.turn_until(lambda: hall.count() == 1)
    assert calls == []
    clients[1].close()
    hall.turn_until(lambda: hall.count() == 0)
    assert calls == [0]


def test_closing_the_loop_closes_everybody() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    hall = Hall()
    client = hall.connect()
    hall.turn_until(lambda: hall.count() == 1)
    hall.hot.close(hall.clock.now_ms())
    assert client.recv(1) == b""
    assert hall.site.door.connections_count == 0
    client.close()
    hall.listener.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_descriptors_are_kept_back() -> None:
    assert connections_limit(20_000) == 19_872
    assert connections_limit(1024) == 896
    assert connections_limit(64) == 16, "some must always get in"


# -- the clock ---------------------------------------------------------------------------------


def test_the_clock_starts_at_the_wall_and_runs_steadily() -> None:
    clock = Clock()
    before = clock.now_ms()
    assert abs(int(before) - time.time() * 1000) < PATIENCE_S * 1000
    started = time.monotonic()
    while time.monotonic() < started + 0.02:
        pass
    assert 19 <= clock.now_ms() - before < 5000


@pytest.mark.parametrize("jump_s", [-3600, 3600, 10 * 365 * 86400])
def test_a_jump_of_the_wall_clock_moves_nothing(
    monkeypatch: pytest.MonkeyPatch, jump_s: int
) -> None:
    clock = Clock()
    before = clock.now_ms()
    wall_s = time.time()
    monkeypatch.setattr(time, "time", lambda: wall_s + jump_s)
    assert 0 <= clock.now_ms() - before < 1000


def test_the_selector_bits_of_epoll_are_what_we_think() -> None:
    assert (selectors.EVENT_READ, selectors.EVENT_WRITE) == (1, 2)
