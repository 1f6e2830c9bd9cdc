"""Signals under load: a stop that loses nothing, drain mode, and a process that stood still."""

import contextlib
import random
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobyard.server.server import STOP_WAIT_S
from tests.acceptance.process.ledger import Crew, Ledger
from tests.acceptance.process.yards import SMALL_SEGMENTS, Yard, await_true, put, put_id, times
from tests.support.servers.sockets import SILENCE_S, await_stat, stat

LOOPS = ["epoll", "uvloop", "asyncio"]
# What the server may take to stop; it gives slow clients half of it.
STOP_S = 10.0


@pytest.fixture(params=LOOPS)
def any_yard(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Yard]:
    """A running server on every kind of loop."""
    flags = (*SMALL_SEGMENTS, "--loop", str(request.param))
    with contextlib.closing(Yard(tmp_path / "data", *flags)) as made:
        made.start()
        yield made


def assert_quiet(yard: Yard) -> None:
    assert "Traceback" not in yard.errors(), yard.errors()
    assert "error" not in yard.errors(), yard.errors()


def test_sigterm_under_load_loses_nothing(any_yard: Yard) -> None:
    ledger = Ledger(random.randrange(1 << 32))
    for _ in range(times(4)):
        waiter = any_yard.connect()
        waiter.send(b"watch nothing\r\nignore default\r\nreserve\r\n")
        crew = Crew(ledger, any_yard.address)
        crew.work_for(ledger.rng.uniform(0.1, 0.5))
        any_yard.process.signal(signal.SIGTERM)
        crew.finish()
        assert any_yard.process.wait() == 0, any_yard.errors()
        assert waiter.await_end() == b"WATCHING 2\r\nWATCHING 1\r\nTIMED_OUT\r\n"
        waiter.close()
        assert_quiet(any_yard)
        any_yard.restart()
        ledger.check(any_yard.address)
    ledger.check_all(any_yard.address)


def test_sigterm_while_idle_is_quick(any_yard: Yard) -> None:
    peer = any_yard.connect()
    put_id(peer, b"x")
    started = time.monotonic()
    any_yard.stop()
    assert time.monotonic() - started < STOP_WAIT_S, "it waited for somebody"
    assert peer.await_end() == b""
    peer.close()
    assert_quiet(any_yard)


def ask_for_too_much(yard: Yard) -> socket.socket:
    """Leave answers unread that fit no buffer; return the connection they wait on."""
    with contextlib.closing(yard.connect()) as peer:
        put_id(peer, b"x" * 60_000)
    slow = socket.create_connection(yard.address)
    slow.sendall(b"peek-ready\r\n" * 1000)
    probe = yard.connect()
    for _ in range(50):
        probe.ask(b"list-tube-used")
    probe.close()
    return slow


def test_a_client_that_never_reads_delays_a_stop_but_not_for_ever(yard: Yard) -> None:
    slow = ask_for_too_much(yard)
    started = time.monotonic()
    yard.stop()
    assert time.monotonic() - started < STOP_S
    slow.close()
    assert_quiet(yard)


def test_a_second_sigterm_stops_at_once(any_yard: Yard) -> None:
    slow = ask_for_too_much(any_yard)
    with contextlib.closing(any_yard.connect()) as peer:
        kept = put_id(peer, b"kept")
    any_yard.process.signal(signal.SIGTERM)
    await_true(lambda: "stopping" in any_yard.errors(), "the stop begins")
    started = time.monotonic()
    any_yard.stop()
    assert time.monotonic() - started < STOP_WAIT_S, "it went on waiting"
    slow.close()
    assert_quiet(any_yard)
    any_yard.restart()
    with contextlib.closing(any_yard.connect()) as peer:
        assert peer.ask(b"peek %d" % kept) == b"FOUND %d 4\r\nkept\r\n" % kept


def test_a_clean_stop_needs_no_mending(yard: Yard) -> None:
    with contextlib.closing(yard.connect()) as peer:
        put_id(peer, b"x")
    yard.stop()
    yard.restart()
    assert "torn" not in yard.errors()


def test_drain_mode_refuses_new_jobs_and_nothing_else(any_yard: Yard) -> None:
    peer = any_yard.connect()
    job_id = put_id(peer, b"old")
    any_yard.process.signal(signal.SIGUSR1)
    await_stat(peer, "draining", "true")
    assert put(peer, b"new") == b"DRAINING\r\n"
    assert peer.ask(b"reserve").startswith(b"RESERVED %d " % job_id)
    assert peer.ask(b"release %d 5 0" % job_id) == b"RELEASED\r\n"
    assert peer.ask(b"delete %d" % job_id) == b"DELETED\r\n"
    late = any_yard.connect()
    assert put(late, b"new") == b"DRAINING\r\n"
    late.close()
    peer.close()
    any_yard.stop()


def test_a_lease_that_ended_while_the_process_stood_still_ends_once(any_yard: Yard) -> None:
    holder = any_yard.connect()
    job_id = put_id(holder, b"x", b"put 0 0 1")
    assert holder.ask(b"reserve").startswith(b"RESERVED")
    waiter = any_yard.connect()
    waiter.send(b"reserve\r\n")
    await_stat(holder, "current-waiting", "1")
    any_yard.process.signal(signal.SIGSTOP)
    # Real time must pass; a stopped process gives no sign.
    holder.receive_more(1.3)
    any_yard.process.signal(signal.SIGCONT)
    assert waiter.read_line() == b"RESERVED %d 1\r\n" % job_id
    assert waiter.read_line() == b"x\r\n"
    assert holder.ask(b"release %d 0 0" % job_id) == b"NOT_FOUND\r\n"
    assert holder.ask(b"delete %d" % job_id) == b"NOT_FOUND\r\n"
    facts = waiter.ask(b"stats-job %d" % job_id)
    assert (stat(facts, "timeouts"), stat(facts, "reserves")) == ("1", "2")
    assert waiter.ask(b"delete %d" % job_id) == b"DELETED\r\n"
    assert not holder.receive_more(SILENCE_S)
    holder.close()
    waiter.close()


def test_delays_are_over_on_time_after_a_standstill(yard: Yard) -> None:
    peer = yard.connect()
    job_id = put_id(peer, b"x", b"put 0 1 60")
    yard.process.signal(signal.SIGSTOP)
    peer.receive_more(1.2)
    yard.process.signal(signal.SIGCONT)
    assert peer.ask(b"reserve-with-timeout 0").startswith(b"RESERVED %d " % job_id)
    peer.close()
