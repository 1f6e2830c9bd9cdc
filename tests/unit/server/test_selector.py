"""asyncio on the hot loop: everything of asyncio works while the hot doors are busy, and idle."""

import asyncio
import contextlib
import os
import selectors
import signal
import socket
import sys
import threading
import time
from collections.abc import Coroutine, Iterator
from typing import TypeVar

import pytest

from jobyard.journal.reply_gate import Gate
from jobyard.protocols.beanstalk.entrance import BeanstalkEntrance
from jobyard.server.loop import Clock, HotLoop
from jobyard.server.selector import YardSelector
from jobyard.server.turn import Turns
from tests.support.servers.patience import PATIENCE_S
from tests.support.site.yard import OpenYard

T = TypeVar("T")


class Hall:
    """A hot loop with an open beanstalk door, and asyncio on it."""

    def __init__(self) -> None:
        clock = Clock()
        site = OpenYard(now_ms=clock.now_ms())
        self.turns = Turns(site.yard, None, None)
        self.hot = HotLoop(self.turns, Gate(), clock, 1000)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.hot.listen(self.listener, BeanstalkEntrance(site.door))
        self.selector = YardSelector(self.hot)
        self._clock = clock

    def run(self, main: Coroutine[object, object, T]) -> T:
        """Run a coroutine as the server does."""
        make = lambda: asyncio.SelectorEventLoop(self.selector)  # noqa: E731
        with asyncio.Runner(loop_factory=make) as runner:
            return runner.run(asyncio.wait_for(main, PATIENCE_S))

    def close(self) -> None:
        self.hot.close(self._clock.now_ms())
        self.listener.close()


class Load:
    """A thread that keeps the hot door busy."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._is_over = threading.Event()
        self.answers = 0
        self.failure: BaseException | None = None
        self._news = threading.Condition()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        assert self.failure is None

    def _run(self) -> None:
        try:
            with socket.create_connection(self._address, timeout=PATIENCE_S) as sock:
                file = sock.makefile("rb")
                while not self._is_over.is_set():
                    sock.sendall(b"put 0 0 60 1\r\nx\r\n" * 20)
                    for _ in range(20):
                        assert file.readline().startswith(b"INSERTED")
                    with self._news:
                        self.answers += 20
                        self._news.notify_all()
                # Left while the loop still runs, so that its last turn sees the end.
                file.close()
        except (OSError, AssertionError) as error:
            self.failure = error

    def wait_for(self, count: int) -> None:
        """Wait until so many commands were answered."""
        with self._news:
            is_so = self._news.wait_for(lambda: self.answers >= count, PATIENCE_S)
        assert is_so, "the hot door starves"


@pytest.fixture
def hall() -> Iterator[Hall]:
    with contextlib.closing(Hall()) as opened:
        yield opened


async def echo_once(count: int) -> bytes:
    """Serve a stream and talk to it."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    reader, writer = await asyncio.open_connection(host, port)
    sent = b"".join(b"%d " % n for n in range(count))
    writer.write(sent)
    writer.write_eof()
    heard = await reader.read()
    writer.close()
    await writer.wait_closed()
    server.close()
    await server.wait_closed()
    return heard if heard == sent else b"something else"


async def count_ticks(count: int) -> float:
    """Set a timer a few times; return the longest time by which one was late."""
    worst_s = 0.0
    for _ in range(count):
        started = time.monotonic()
        rung = asyncio.Event()
        asyncio.get_running_loop().call_later(0.01, rung.set)
        await rung.wait()
        worst_s = max(worst_s, time.monotonic() - started - 0.01)
    return worst_s


async def run_child() -> bytes:
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-S", "-c", "print('hello')", stdout=asyncio.subprocess.PIPE
    )
    out, _ = await child.communicate()
    return out


async def await_signal() -> bool:
    heard = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR2, heard.set)
    loop.call_later(0.02, os.kill, os.getpid(), signal.SIGUSR2)
    await heard.wait()
    return loop.remove_signal_handler(signal.SIGUSR2)


async def everything() -> tuple[bytes, float, bytes, bool, int]:
    in_thread = asyncio.to_thread(lambda: 42)
    return await asyncio.gather(
        echo_once(100_000), count_ticks(20), run_child(), await_signal(), in_thread
    )


def check(result: tuple[bytes, float, bytes, bool, int]) -> None:
    heard, late_s, said, has_heard, answer = result
    assert heard.endswith(b"99999 ")
    assert late_s < 0.5, "timers of asyncio starve"
    assert said == b"hello\n"
    assert has_heard
    assert answer == 42


def test_all_of_asyncio_works_while_the_hot_door_is_idle(hall: Hall) -> None:
    check(hall.run(everything()))


def test_all_of_asyncio_works_while_the_hot_door_is_busy(hall: Hall) -> None:
    async def both() -> tuple[tuple[bytes, float, bytes, bool, int], int]:
        with Load(hall.listener.getsockname()) as load:
            await asyncio.to_thread(load.wait_for, 100)
            result = await everything()
            await asyncio.to_thread(load.wait_for, load.answers + 100)
            # The loop must run while the thread is asked to end.
            await asyncio.to_thread(load.__exit__, None, None, None)
        return result, load.answers

    result, answers = hall.run(both())
    check(result)
    assert answers > 200


def test_the_hot_door_is_served_while_asyncio_is_busy(hall: Hall) -> None:
    async def spin() -> int:
        with Load(hall.listener.getsockname()) as load:
            loop = asyncio.get_running_loop()
            while load.answers < 200 and load.failure is None:
                # Something to do in every pass: asyncio never sleeps.
                passed = loop.create_future()
                loop.call_soon(passed.set_result, None)
                await passed
            await asyncio.to_thread(load.__exit__, None, None, None)
        return load.answers

    assert hall.run(spin()) >= 200


def test_an_error_in_a_turn_ends_the_run(hall: Hall) -> None:
    """What the disk does wrong must not be swallowed by asyncio."""

    class Wrong(Exception):
        pass

    def fail() -> None:
        raise Wrong

    hall.hot.on_wake(fail)

    async def wake() -> None:
        hall.hot.wake()
        await asyncio.Event().wait()

    with pytest.raises(Wrong):
        hall.run(wake())


# -- the selector itself -----------------------------------------------------------------------


def test_keys_are_kept_as_registered(hall: Hall) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        key = hall.selector.register(ours, selectors.EVENT_READ, "data")
        assert (key.fileobj, key.fd, key.events, key.data) == (ours, ours.fileno(), 1, "data")
        assert hall.selector.get_key(ours) == key
        assert hall.selector.get_key(ours.fileno()) == key
        assert list(hall.selector.get_map().values()) == [key]
        key = hall.selector.modify(ours, selectors.EVENT_WRITE, "other")
        assert hall.selector.get_key(ours).data == "other"
        assert hall.selector.select(PATIENCE_S) == [(key, selectors.EVENT_WRITE)]
        assert hall.selector.unregister(ours) == key
        with pytest.raises(KeyError):
            hall.selector.get_key(ours)
        with pytest.raises(KeyError):
            hall.selector.unregister(ours)


def test_what_is_registered_twice_is_refused(hall: Hall) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        hall.selector.register(ours, selectors.EVENT_READ)
        with pytest.raises((KeyError, FileExistsError)):
            hall.selector.register(ours, selectors.EVENT_READ)
        hall.selector.unregister(ours)


def test_a_hang_up_is_told_to_whoever_waits(hall: Hall) -> None:
    for events in (selectors.EVENT_READ, selectors.EVENT_WRITE):
        ours, theirs = socket.socketpair()
        with ours:
            theirs.close()
            key = hall.selector.register(ours, events)
            assert hall.selector.select(PATIENCE_S) == [(key, events)]
            hall.selector.unregister(ours)


def test_no_time_and_all_the_time(hall: Hall) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        key = hall.selector.register(ours, selectors.EVENT_READ)
        assert hall.selector.select(0) == []
        assert hall.selector.select(-1) == []
        theirs.send(b"x")
        assert hall.selector.select(None) == [(key, selectors.EVENT_READ)]
        hall.selector.unregister(ours)
