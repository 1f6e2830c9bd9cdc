"""The memory limit of all connections: exact at every moment, zero at the end, bounded."""

import contextlib
import gc
import random
import socket
import time
from collections.abc import Callable, Iterator

import pytest

from jobyard.config import Config
from jobyard.protocols.shared_limits import FREE_SIZE
from jobyard.server.log import Log
from jobyard.server.loop import Clock, HotLoop
from jobyard.server.server import Server
from tests.support.clients.http_text import handshake, ws_frame
from tests.support.servers.bunqueue import frame, pack
from tests.support.servers.patience import PATIENCE_S

MIB = 1 << 20
LONG = 3 * MIB
# More than a socket takes at once.
GREAT = 16 * MIB
DOORS = ("beanstalk", "bunqueue", "glidemq", "http")


def upgrade(path: str) -> bytes:
    lines = [f"GET {path} HTTP/1.1", "Host: 127.0.0.1"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in handshake().items()]
    return "\r\n".join([*lines, "", ""]).encode()


def post(path: str, how: str) -> bytes:
    return f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{how}\r\n\r\n".encode()


# Long things to be cut off anywhere, by door.
LONGS: list[tuple[str, bytes]] = [
    ("beanstalk", b"put 0 0 60 %d\r\n" % LONG + b"x" * LONG + b"\r\n"),
    ("bunqueue", frame(pack({"cmd": "PUSH", "queue": "q", "data": "x" * LONG}))),
    ("glidemq", b"*2\r\n$4\r\nECHO\r\n$%d\r\n" % LONG + b"x" * LONG + b"\r\n"),
    ("glidemq", b"*40\r\n$6\r\nEXISTS\r\n" + (b"$70000\r\n" + b"x" * 70_000 + b"\r\n") * 39),
    ("glidemq", b"MULTI\r\n" + (b"*2\r\n$4\r\nECHO\r\n$60000\r\n" + b"x" * 60_000 + b"\r\n") * 40),
    ("http", post("/v0/topics/t", f"Content-Length: {LONG}") + b"x" * LONG),
    (
        "http",
        post("/v0/topics/t", "Transfer-Encoding: chunked")
        + (b"10000\r\n" + b"x" * 65_536 + b"\r\n") * 40
        + b"0\r\n\r\n",
    ),
    ("http", upgrade("/v0/ws") + ws_frame(1, b"x" * LONG)),
    ("http", upgrade("/ws") + ws_frame(1, b"x" * 1_000_000) * 2),
]


class House:
    """A server in memory with all its doors on a loop that the test turns."""

    def __init__(self) -> None:
        thresholds = gc.get_threshold()
        config = Config(
            memory=True,
            beanstalk="off",
            bunqueue="off",
            http="off",
            glidemq="off",
            max_job_size=GREAT,
        )
        self.server = Server(config, Log("error", "text"), {})
        gc.unfreeze()
        gc.set_threshold(*thresholds)
        self.shared_limits = self.server._shared_limits
        self.clock = Clock()
        self.hot = HotLoop(self.server._turns, self.server._gate, self.clock, 1000)
        self._listeners = {door: socket.create_server(("127.0.0.1", 0)) for door in DOORS}
        for door, listener in self._listeners.items():
            self.hot.listen(listener, self.server._doors[door].entrance)

    def connect(self, door: str) -> socket.socket:
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32 << 10)
        client.connect(self._listeners[door].getsockname())
        client.settimeout(0)
        return client

    def turn_until(self, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not is_so():
            assert time.monotonic() < deadline
            self.hot.turn(0.001)

    def send(self, client: socket.socket, data: bytes) -> None:
        """Send all of it, or as much as the server takes before it closes."""
        at = 0
        deadline = time.monotonic() + PATIENCE_S
        while at < len(data):
            assert time.monotonic() < deadline, f"only {at} bytes were taken"
            with contextlib.suppress(BlockingIOError):
                try:
                    at += client.send(data[at : at + MIB])
                except ConnectionError:
                    return
            self.hot.turn(0.0)
            self.check()

    def hear(self, client: socket.socket, ends: bytes) -> bytes:
        """Run turns until something was received that ends so."""
        heard = b""
        deadline = time.monotonic() + PATIENCE_S
        while not heard.endswith(ends) or not heard:
            assert time.monotonic() < deadline, heard[-200:]
            self.hot.turn(0.001)
            with contextlib.suppress(BlockingIOError):
                data = client.recv(1 << 16)
                if not data:
                    break
                heard += data
        return heard

    def check(self) -> None:
        """Check that exactly what is held is charged."""
        sizes = [one._session.held_size() + one.unsent_size() for one in self.hot.connections()]
        assert self.shared_limits.held == sum(max(0, size - FREE_SIZE) for size in sizes)

    def close(self) -> None:
        for listener in self._listeners.values():
            listener.close()
        self.hot.close(self.clock.now_ms())
        self.server._doors["bunqueue"].close(self.clock.now_ms())


@pytest.fixture
def house() -> Iterator[House]:
    with contextlib.closing(House()) as made:
        yield made


def test_whatever_is_cut_off_is_given_back(house: House) -> None:
    rng = random.Random(11)
    clients: list[socket.socket] = []
    highest = 0
    for number in range(60):
        door, data = LONGS[number % len(LONGS)]
        client = house.connect(door)
        clients.append(client)
        house.send(client, data[: rng.randrange(1, len(data))])
        highest = max(highest, house.shared_limits.held)
        if len(clients) > 8:
            clients.pop(rng.randrange(len(clients))).close()
    assert highest > 4 * MIB
    for client in clients:
        client.close()
    house.turn_until(lambda: not house.hot.connections())
    assert house.shared_limits.held == 0


def test_complete_input_is_held_no_more(house: House) -> None:
    for door, data in LONGS[:4]:
        client = house.connect(door)
        house.send(client, data)
        house.turn_until(lambda: house.shared_limits.held == 0)
        client.close()


def put_great(house: House, client: socket.socket) -> None:
    house.send(client, b"put 0 0 60 %d\r\n" % GREAT + b"x" * GREAT + b"\r\n")
    assert house.hear(client, b"\r\n") == b"INSERTED 1\r\n"


def test_unread_answers_are_charged_until_they_leave(house: House) -> None:
    client = house.connect("beanstalk")
    put_great(house, client)
    house.send(client, b"peek 1\r\n")
    house.turn_until(lambda: house.shared_limits.held > MIB)
    house.check()
    heard = house.hear(client, b"xx\r\n")
    assert len(heard) > GREAT
    house.turn_until(lambda: house.shared_limits.held == 0)
    house.send(client, b"peek 1\r\n")
    house.turn_until(lambda: house.shared_limits.held > MIB)
    client.close()
    house.turn_until(lambda: not house.hot.connections())
    assert house.shared_limits.held == 0


# The answer to a connection that is too large while the limit is exceeded.
REFUSALS = {
    0: b"OUT_OF_MEMORY\r\n",
    1: b"Out of memory for unfinished commands, try again later",
    2: b"-ERR out of memory for unfinished commands, try again later\r\n",
    3: b"-ERR out of memory for unfinished commands, try again later\r\n",
    4: b"-ERR out of memory for unfinished commands, try again later\r\n",
    5: b"HTTP/1.1 429 ",
    6: b"HTTP/1.1 429 ",
    7: b"\x03\xf5out of memory for unfinished messages",
}


@pytest.mark.parametrize("number", sorted(REFUSALS))
def test_the_newest_large_consumer_is_refused_in_its_own_words(house: House, number: int) -> None:
    door, data = LONGS[number]
    house.shared_limits.memory_max = 2 * MIB
    house.shared_limits._large_max = 3 * MIB // 2
    client = house.connect(door)
    heard = b""
    house.send(client, data)
    deadline = time.monotonic() + PATIENCE_S
    while REFUSALS[number] not in heard:
        assert time.monotonic() < deadline, heard[-200:]
        house.hot.turn(0.001)
        with contextlib.suppress(BlockingIOError):
            try:
                data = client.recv(1 << 16)
            except ConnectionError:
                break
            if not data:
                break
            heard += data
    assert REFUSALS[number] in heard or door in ("bunqueue", "glidemq")
    assert house.shared_limits.inputs_refused == 1
    assert house.shared_limits.held == 0
    # Others are served meanwhile, and this one again where it may stay.
    other = client if door == "beanstalk" else house.connect("beanstalk")
    house.send(other, b"list-tube-used\r\n")
    assert house.hear(other, b"\r\n") == b"USING default\r\n"
    for one in {client, other}:
        one.close()


def test_one_who_holds_much_and_asks_for_no_more_is_left_alone(house: House) -> None:
    client = house.connect("beanstalk")
    head = b"put 0 0 60 %d\r\n" % LONG
    house.send(client, head + b"x" * 2 * MIB)
    [connection] = house.hot.connections()
    house.turn_until(lambda: connection._session.held_size() == 2 * MIB)
    house.shared_limits.memory_max = MIB
    house.shared_limits._large_max = MIB
    connection.wake()
    house.hot.turn(0.0)
    assert house.shared_limits.inputs_refused == 0
    house.send(client, b"x" * 100_000)
    house.turn_until(lambda: house.shared_limits.inputs_refused == 1)
    client.close()


def test_one_who_is_answered_while_it_grows_is_refused_too(house: House) -> None:
    client = house.connect("glidemq")
    house.shared_limits.memory_max = MIB
    house.shared_limits._large_max = MIB
    house.send(client, b"MULTI\r\n")
    echo = b"*2\r\n$4\r\nECHO\r\n$30000\r\n" + b"x" * 30_000 + b"\r\n"
    for _ in range(50):
        # One command a turn, so that each is answered before the next comes.
        house.send(client, echo)
        house.hot.turn(0.0)
    house.turn_until(lambda: house.shared_limits.inputs_refused == 1)
    client.close()


def test_one_who_does_not_read_is_closed_when_answers_take_too_much(house: House) -> None:
    client = house.connect("beanstalk")
    put_great(house, client)
    house.shared_limits.memory_max = MIB
    house.shared_limits._large_max = MIB
    house.send(client, b"peek 1\r\n")
    house.turn_until(lambda: not house.hot.connections())
    assert (house.shared_limits.outputs_cut, house.shared_limits.held) == (1, 0)
    client.close()


def test_an_address_may_have_so_many_connections(house: House) -> None:
    house.shared_limits.address_max = 3
    clients = [house.connect("beanstalk") for _ in range(5)]
    house.turn_until(lambda: house.shared_limits.connections_refused == 2)
    assert len(house.hot.connections()) == 3
    for client in clients:
        client.close()
    house.turn_until(lambda: not house.hot.connections())
    assert house.shared_limits.connections == {}
    late = house.connect("beanstalk")
    house.send(late, b"list-tube-used\r\n")
    assert house.hear(late, b"\r\n") == b"USING default\r\n"
    late.close()
