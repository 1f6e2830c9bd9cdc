"""One short run of a server on every loop, in memory and on disk: clients see no difference."""

import contextlib
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.process.ledger import Crew, Ledger
from tests.acceptance.process.yards import SMALL_SEGMENTS, Yard, times
from tests.support.servers.processes import Server, start_jobyard
from tests.support.servers.sockets import SILENCE_S, connect

LOOPS = ["epoll", "uvloop", "asyncio"]

PIPELINE = (
    b"use a\r\nwatch a\r\nignore default\r\n"
    b"put 5 0 60 3\r\none\r\nput 1 0 60 3\r\ntwo\r\nput 9 0 60 5000\r\n" + b"x" * 5000 + b"\r\n"
    b"reserve\r\nrelease 2 7 0\r\nreserve\r\nbury 1 3\r\nreserve\r\ndelete 2\r\nkick 9\r\n"
    b"peek-ready\r\nreserve-job 3\r\ndelete 3\r\ndelete 1\r\nnonsense\r\nput 1 2\r\n"
    b"list-tubes-watched\r\nreserve-with-timeout 0\r\nquit\r\n"
)
ANSWERS = (
    b"USING a\r\nWATCHING 2\r\nWATCHING 1\r\n"
    b"INSERTED 1\r\nINSERTED 2\r\nINSERTED 3\r\n"
    b"RESERVED 2 3\r\ntwo\r\nRELEASED\r\nRESERVED 1 3\r\none\r\nBURIED\r\n"
    b"RESERVED 2 3\r\ntwo\r\nDELETED\r\nKICKED 1\r\n"
    b"FOUND 1 3\r\none\r\nRESERVED 3 5000\r\n" + b"x" * 5000 + b"\r\nDELETED\r\nDELETED\r\n"
    b"UNKNOWN_COMMAND\r\nBAD_FORMAT\r\n"
    b"OK 8\r\n---\n- a\n\r\nTIMED_OUT\r\n"
)


KINDS = [(loop, kind) for loop in LOOPS for kind in ("memory", "data")]


@pytest.fixture(params=KINDS, ids="-".join)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    """A server of every kind."""
    loop, kind = request.param
    where = ["--memory"] if kind == "memory" else ["--data", str(tmp_path / "data")]
    with contextlib.closing(start_jobyard("--loop", loop, *where)) as started:
        yield started


def test_a_whole_life_in_one_send(server: Server) -> None:
    peer = connect(server.address)
    # Nothing counts behind a quit.
    peer.send(PIPELINE + b"list-tube-used\r\n")
    assert peer.await_end() == ANSWERS
    peer.close()


def test_a_whole_life_in_small_pieces(server: Server) -> None:
    peer = connect(server.address)
    for at in range(0, len(PIPELINE), 7):
        peer.send(PIPELINE[at : at + 7])
    assert peer.await_end() == ANSWERS
    peer.close()


def test_waiting_and_waking(server: Server) -> None:
    waiters = [connect(server.address) for _ in range(5)]
    boss = connect(server.address)
    for waiter in waiters:
        # Commands behind a reserve wait with it.
        waiter.send(b"reserve\r\nlist-tube-used\r\n")
        boss.ask(b"list-tube-used")
    for n, waiter in enumerate(waiters):
        assert not waiter.receive_more(0)
        boss.send(b"put 0 0 60 1\r\n%d\r\n" % n)
        assert boss.read_line() == b"INSERTED %d\r\n" % (n + 1)
        assert waiter.read_line() == b"RESERVED %d 1\r\n" % (n + 1)
        assert waiter.read_line() == b"%d\r\n" % n
        assert waiter.read_line() == b"USING default\r\n"
    boss.send(b"reserve-with-timeout 1\r\n")
    assert boss.read_line() == b"TIMED_OUT\r\n"
    # The first disconnects, and its job wakes only the waiting client.
    waiters[1].send(b"reserve\r\n")
    waiters[0].close()
    assert waiters[1].read_line() == b"RESERVED 1 1\r\n"
    for peer in (*waiters[1:], boss):
        peer.close()


def test_half_a_goodbye(server: Server) -> None:
    peer = connect(server.address)
    peer.send(b"put 0 0 60 1\r\nx\r\nreserve\r\nreserve\r\nlist-tube-used\r\nput 0 0 60 9\r\nhal")
    peer.shut_down()
    assert peer.await_end() == (
        b"INSERTED 1\r\nRESERVED 1 1\r\nx\r\nTIMED_OUT\r\nUSING default\r\n"
    )
    peer.close()
    again = connect(server.address)
    assert again.ask(b"reserve").startswith(b"RESERVED 1 ")
    assert not again.receive_more(SILENCE_S / 4)
    again.close()


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
@pytest.mark.parametrize("durability", ["sync", "os"])
def test_other_loops_lose_nothing_over_sigkill(tmp_path: Path, loop: str, durability: str) -> None:
    """The hot loop has its own, longer test."""
    ledger = Ledger(random.randrange(1 << 32))
    flags = (*SMALL_SEGMENTS, "--loop", loop, "--durability", durability)
    with contextlib.closing(Yard(tmp_path / "data", *flags)) as yard:
        yard.start()
        for _ in range(times(3)):
            crew = Crew(ledger, yard.address)
            crew.work_for(ledger.rng.uniform(0.05, 0.3))
            yard.kill()
            crew.finish()
            yard.restart()
            ledger.check(yard.address)
        ledger.check_all(yard.address)
