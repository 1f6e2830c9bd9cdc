"""A disk whose calls fail: no answer after the failure, a quick end, and nothing answered lost."""

import contextlib
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.process.ledger import Crew, Ledger
from tests.acceptance.process.yards import SMALL_SEGMENTS, Yard, await_true, put, put_id, times
from tests.support.servers.faults import Faults

# A sync this slow is done by the thread.
SLOW_US = 3000


def fail_under_load(yard: Yard, faults: Faults, ledger: Ledger) -> None:
    """Work until the disk has failed; see the server end in good time."""
    crew = Crew(ledger, yard.address)
    crew.work(lambda: faults.get("has_failed") != 0)
    await_true(lambda: yard.process.child.poll() is not None, "the server ends")
    crew.finish()
    assert faults.get("has_failed") == 1, "the server left before anything failed"
    assert yard.process.child.returncode == 1, yard.errors()
    assert "storage failed" in yard.errors()
    assert "Traceback" not in yard.errors()
    if "epoll" in yard.flags and not faults.get("is_in_thread"):
        # Elsewhere the failure may come while a loop sends safe answers; the ledger decides.
        assert faults.get("sends_after") == 0, "something was sent after the failure"


def recover(yard: Yard, faults: Faults, ledger: Ledger) -> None:
    faults.reset()
    yard.restart()
    ledger.check(yard.address)


@contextlib.contextmanager
def yard_on(loop: str, folder: Path, faults: Faults) -> Iterator[Yard]:
    yard = Yard(folder / "data", *SMALL_SEGMENTS, "--loop", loop, env=faults.env)
    with contextlib.closing(yard):
        yard.start()
        yield yard


@pytest.mark.parametrize("loop", ["epoll", "uvloop", "asyncio"])
@pytest.mark.parametrize("delay_us", [0, SLOW_US], ids=["inline", "thread"])
def test_a_failed_sync_ends_the_server_before_any_answer(
    tmp_path: Path, faults: Faults, loop: str, delay_us: int
) -> None:
    ledger = Ledger(random.randrange(1 << 32))
    with yard_on(loop, tmp_path, faults) as yard:
        for round_number in range(times(3)):
            faults.set("sync_delay_us", delay_us)
            # Past the first few the committer has seen how slow the disk is.
            faults.fail_sync(after=20 + ledger.rng.randrange(40) + round_number)
            fail_under_load(yard, faults, ledger)
            recover(yard, faults, ledger)
        ledger.check_all(yard.address)


def test_a_failed_write_ends_the_server_before_any_answer(
    faulty_yard: Yard, faults: Faults
) -> None:
    ledger = Ledger(random.randrange(1 << 32))
    for _ in range(times(4)):
        faults.fail_write(after=ledger.rng.randrange(60))
        fail_under_load(faulty_yard, faults, ledger)
        recover(faulty_yard, faults, ledger)
    ledger.check_all(faulty_yard.address)


def test_the_put_of_a_failed_sync_gets_no_answer(faulty_yard: Yard, faults: Faults) -> None:
    peer = faulty_yard.connect()
    kept = put_id(peer, b"before")
    faults.fail_sync(after=0)
    peer.send(b"put 0 0 60 5\r\nafter\r\n")
    assert peer.await_end() == b""
    assert faulty_yard.process.wait() == 1
    told = [line for line in faulty_yard.errors().splitlines() if "not compiled" not in line]
    assert len(told) == 2, "more than start and end was told"
    faults.reset()
    faulty_yard.restart()
    again = faulty_yard.connect()
    assert again.ask(b"peek %d" % kept) == b"FOUND %d 6\r\nbefore\r\n" % kept
    again.close()
    peer.close()


def test_a_failed_sync_of_what_nobody_waits_for_ends_the_server_too(
    faulty_yard: Yard, faults: Faults
) -> None:
    """The record of a lease is written without haste; its sync may fail all the same."""
    peer = faulty_yard.connect()
    put_id(peer, b"x")
    faults.fail_sync(after=0)
    assert peer.ask(b"reserve").startswith(b"RESERVED")
    assert faulty_yard.process.wait() == 1
    peer.close()


@pytest.mark.parametrize("nth", [1, 2, 3, 4, 5, 6])
def test_a_sync_that_fails_during_the_start_refuses_it(
    tmp_path: Path, faults: Faults, nth: int
) -> None:
    with contextlib.closing(Yard(tmp_path / "data", *SMALL_SEGMENTS, env=faults.env)) as yard:
        yard.start()
        with contextlib.closing(yard.connect()) as peer:
            kept = put_id(peer, b"kept")
        yard.kill()
        yard.close()
        faults.reset()
        faults.set("counts_all", 1)
        faults.set("sync_fails_at", nth)
        process = yard.launch()
        with contextlib.closing(process):
            code = process.wait()
            if faults.get("has_failed"):
                assert code == 1
                assert process.rest_of_output() == "", "it was ready before its syncs"
        faults.reset()
        yard.start()
        with contextlib.closing(yard.connect()) as peer:
            assert peer.ask(b"peek %d" % kept) == b"FOUND %d 4\r\nkept\r\n" % kept


def test_short_writes_are_completed(faulty_yard: Yard, faults: Faults) -> None:
    peer = faulty_yard.connect()
    ids = []
    for n in range(10):
        faults.set("write_short_at", faults.get("writes") + 1)
        ids.append(put_id(peer, b"%d" % n * 3000))
    peer.close()
    faulty_yard.kill()
    faults.reset()
    faulty_yard.restart()
    again = faulty_yard.connect()
    for n, job_id in enumerate(ids):
        assert again.ask(b"peek %d" % job_id).endswith(b"\r\n" + b"%d" % n * 3000 + b"\r\n")
    again.close()


def test_a_failed_sync_in_class_os_ends_the_server(tmp_path: Path, faults: Faults) -> None:
    flags = (*SMALL_SEGMENTS, "--durability", "os")
    with contextlib.closing(Yard(tmp_path / "data", *flags, env=faults.env)) as yard:
        yard.start()
        peer = yard.connect()
        faults.fail_sync(after=0)
        assert put(peer, b"x").startswith(b"INSERTED")
        assert yard.process.wait() == 1
        peer.close()


def test_sigterm_with_a_sync_that_fails_is_no_clean_end(faulty_yard: Yard, faults: Faults) -> None:
    peer = faulty_yard.connect()
    kept = put_id(peer, b"kept")
    faults.fail_sync(after=0)
    faulty_yard.process.signal(signal.SIGTERM)
    assert faulty_yard.process.wait() == 1, faulty_yard.errors()
    assert "Traceback" not in faulty_yard.errors()
    peer.close()
    faults.reset()
    faulty_yard.restart()
    with contextlib.closing(faulty_yard.connect()) as again:
        assert again.ask(b"peek %d" % kept).startswith(b"FOUND")
