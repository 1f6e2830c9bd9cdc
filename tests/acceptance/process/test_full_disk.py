"""A disk without room: puts are refused, nothing else is, and it recovers on its own."""

import contextlib
import random
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.acceptance.process.ledger import Crew, Ledger
from tests.acceptance.process.yards import Yard, await_true, put, put_id, times
from tests.support.servers.faults import Faults, Unavailable, small_disk
from tests.support.servers.sockets import SocketPeer

OUT_OF_MEMORY = b"OUT_OF_MEMORY\r\n"
BODY = b"b" * 3000


def fill(peer: SocketPeer) -> list[int]:
    """Put until the disk is full; return the ids of what went in."""
    ids: list[int] = []
    while len(ids) < 10_000:
        answer = put(peer, BODY)
        if answer == OUT_OF_MEMORY:
            return ids
        ids.append(int(answer.split()[1]))
    raise AssertionError("the disk took 30 MB")


@pytest.fixture
def full_yard(faulty_yard: Yard, faults: Faults) -> Yard:
    """A running server with several segments that cannot create more files."""
    with contextlib.closing(faulty_yard.connect()) as peer:
        for _ in range(100):
            put_id(peer, BODY, b"put 9 0 600")
    faults.set("is_full", 1)
    return faulty_yard


def test_on_a_full_disk_only_puts_are_refused(full_yard: Yard) -> None:
    peer = full_yard.connect()
    held = put_id(peer, b"held", b"put 0 0 600")
    ids = fill(peer)
    assert peer.ask(b"reserve").startswith(b"RESERVED %d " % held)
    assert peer.ask(b"touch %d" % held) == b"TOUCHED\r\n"
    assert peer.ask(b"release %d 7 0" % held) == b"RELEASED\r\n"
    assert peer.ask(b"reserve-job %d" % ids[0]).startswith(b"RESERVED")
    assert peer.ask(b"bury %d 3" % ids[0]) == b"BURIED\r\n"
    assert peer.ask(b"kick-job %d" % ids[0]) == b"KICKED\r\n"
    assert peer.ask(b"delete %d" % ids[0]) == b"DELETED\r\n"
    assert peer.ask(b"use other") == b"USING other\r\n"
    # What was deleted makes room for as much, once its segment was compacted.
    fill(peer)
    peer.close()


def test_every_job_can_be_deleted_on_a_full_disk(full_yard: Yard) -> None:
    """Space for the end of each was set aside when it came; and that makes room for others."""
    peer = full_yard.connect()
    for job_id in range(1, fill(peer)[-1] + 1):
        assert peer.ask(b"delete %d" % job_id) == b"DELETED\r\n"
    await_true(lambda: put(peer, BODY).startswith(b"INSERTED"), "a put is taken", 10)
    peer.close()


def give_back_for_ever(yard: Yard) -> None:
    peer = yard.connect()
    job_id = put_id(peer, b"again", b"put 0 0 600")
    fill(peer)
    for n in range(times(1000)):
        assert peer.ask(b"reserve-job %d" % job_id).startswith(b"RESERVED"), yard.errors()
        assert peer.ask(b"release %d %d 0" % (job_id, n % 8)) == b"RELEASED\r\n", yard.errors()
    assert peer.ask(b"delete %d" % job_id) == b"DELETED\r\n"


def test_jobs_can_be_given_back_for_ever_on_a_full_disk(full_yard: Yard) -> None:
    give_back_for_ever(full_yard)


def test_puts_work_again_when_room_comes_back(full_yard: Yard, faults: Faults) -> None:
    peer = full_yard.connect()
    ids = fill(peer)
    faults.set("is_full", 0)
    await_true(lambda: put(peer, BODY).startswith(b"INSERTED"), "a put is taken")
    assert peer.ask(b"delete %d" % ids[0]) == b"DELETED\r\n"
    peer.close()


def test_a_full_disk_costs_no_processor_time(full_yard: Yard) -> None:
    peer = full_yard.connect()
    fill(peer)
    before_s = full_yard.cpu_s()
    # A timer of the server itself measures the time: nothing else happens meanwhile.
    assert peer.ask(b"watch empty") == b"WATCHING 2\r\n"
    assert peer.ask(b"ignore default") == b"WATCHING 1\r\n"
    assert peer.ask(b"reserve-with-timeout 2") == b"TIMED_OUT\r\n"
    assert full_yard.cpu_s() - before_s < 0.2
    peer.close()


def check_after_full(yard: Yard, ids: list[int]) -> None:
    with contextlib.closing(yard.connect()) as peer:
        assert peer.ask(b"peek %d" % ids[0]) == b"NOT_FOUND\r\n"
        for job_id in ids[1:]:
            assert peer.ask(b"peek %d" % job_id).endswith(BODY + b"\r\n")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_full_disk_outlives_the_server(
    full_yard: Yard, faults: Faults, how: signal.Signals
) -> None:
    """Whatever ends the server, nothing is lost, and the next one starts on the full disk."""
    with contextlib.closing(full_yard.connect()) as peer:
        ids = fill(peer)
        assert peer.ask(b"delete %d" % ids[0]) == b"DELETED\r\n"
    if how == signal.SIGKILL:
        full_yard.kill()
    else:
        full_yard.stop()
    full_yard.restart()
    check_after_full(full_yard, ids)
    faults.set("is_full", 0)
    with contextlib.closing(full_yard.connect()) as peer:
        await_true(lambda: put(peer, BODY).startswith(b"INSERTED"), "a put is taken")


def test_many_ends_on_a_full_disk_lose_nothing(faulty_yard: Yard, faults: Faults) -> None:
    """Under load, with room coming and going, and SIGKILL in between."""
    ledger = Ledger(random.randrange(1 << 32))
    for _ in range(times(5)):
        crew = Crew(ledger, faulty_yard.address)
        for is_full in (1, 0, 1):
            faults.set("is_full", is_full)
            crew.work_for(0.2)
        faulty_yard.kill()
        crew.finish()
        faults.set("is_full", 0)
        faulty_yard.restart()
        ledger.check(faulty_yard.address)
    ledger.check_all(faulty_yard.address)


# -- the real thing ----------------------------------------------------------------------------


@contextlib.contextmanager
def yard_on_small_disk(
    folder: Path, size: int, segment_size: str
) -> Iterator[tuple[Yard, Callable[[], None]]]:
    """A server on a real full disk, and what makes room on it."""
    try:
        with small_disk(folder / "disk", size) as root:
            ballast = root / "ballast"
            flags = ("--segment-size", segment_size)
            with contextlib.closing(Yard(root / "data", *flags)) as yard:
                yard.start()
                ballast.write_bytes(b"x" * (size // 4))
                yield yard, ballast.unlink
    except Unavailable as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(
    ("size", "segment_size"), [(2 << 20, "64KiB"), (40 << 20, "8MiB")], ids=["small", "large"]
)
def test_a_real_full_disk(tmp_path: Path, size: int, segment_size: str) -> None:
    with yard_on_small_disk(tmp_path, size, segment_size) as (yard, make_room):
        peer = yard.connect()
        ids = fill(peer)
        assert len(ids) > 100
        assert peer.ask(b"delete %d" % ids[0]) == b"DELETED\r\n"
        peer.close()
        yard.kill()
        yard.restart()
        check_after_full(yard, ids)
        with contextlib.closing(yard.connect()) as again:
            for job_id in ids[1:50]:
                assert again.ask(b"delete %d" % job_id) == b"DELETED\r\n"
            make_room()
            await_true(lambda: put(again, BODY).startswith(b"INSERTED"), "a put is taken")
        yard.stop()


def test_a_file_size_limit_is_a_full_disk(tmp_path: Path) -> None:
    """What RLIMIT_FSIZE forbids is refused like a full disk; no signal ends the server."""
    prlimit = shutil.which("prlimit")
    if prlimit is None:
        pytest.skip("there is no prlimit")
    limit = (prlimit, "--fsize=1000000")
    yard = Yard(tmp_path / "data", "--segment-size", "2MiB", before=limit)
    with contextlib.closing(yard):
        process = yard.launch()
        with contextlib.closing(process):
            assert process.wait() == 1
            assert "Traceback" not in process.errors()
