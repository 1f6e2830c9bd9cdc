"""The power of a real ext4 file system cut under load: what was answered is on the disk."""

import contextlib
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.process.ledger import Crew, Ledger
from tests.acceptance.process.yards import SMALL_SEGMENTS, Yard, put_id, times
from tests.support.servers.faults import PowerDisk, Unavailable

DISK_SIZE = 64 << 20
LONG_SIZE = 1_100_000


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[PowerDisk]:
    """A disk that can lose its power."""
    try:
        made = PowerDisk(tmp_path, DISK_SIZE)
    except Unavailable as error:
        pytest.skip(str(error))
    yield made
    made.unplug()


def cut_power(disk: PowerDisk, yard: Yard) -> None:
    """Cut the power, end what hangs on it, and bring the disk back."""
    disk.cut_power()
    yard.kill()
    yard.close()
    disk.unplug()
    disk.plug_in()


def test_nothing_answered_is_lost_when_the_power_is_cut(disk: PowerDisk) -> None:
    run_cycles(disk, Ledger(random.randrange(1 << 32)), SMALL_SEGMENTS, times(8))


def test_no_long_body_is_lost_when_the_power_is_cut(disk: PowerDisk) -> None:
    """Batches of more than a megabyte are written by the thread that syncs."""
    ledger = Ledger(random.randrange(1 << 32), big_size=LONG_SIZE, big_every=40)
    flags = ("--segment-size", "4MiB", "--events-bytes", "0", "--max-job-size", "2MiB")
    run_cycles(disk, ledger, flags, times(4))


def run_cycles(disk: PowerDisk, ledger: Ledger, flags: tuple[str, ...], count: int) -> None:
    """Load, cut the power and check, over and over."""
    with contextlib.closing(Yard(disk.root / "data", *flags)) as yard:
        yard.start()
        for cycle in range(count):
            crew = Crew(ledger, yard.address)
            crew.work_for(0.6 if cycle % 4 == 3 else ledger.rng.uniform(0.02, 0.2))
            disk.cut_power()
            # The server notices it on its own, and sends nothing wrong meanwhile.
            crew.work_for(0.02)
            yard.kill()
            crew.finish()
            yard.close()
            disk.unplug()
            disk.plug_in()
            yard.start()
            ledger.check(yard.address)
        ledger.check_all(yard.address)
        yard.stop()


def test_a_power_cut_is_noticed_and_ends_the_server(disk: PowerDisk) -> None:
    with contextlib.closing(Yard(disk.root / "data", *SMALL_SEGMENTS)) as yard:
        yard.start()
        peer = yard.connect()
        kept = put_id(peer, b"kept")
        disk.cut_power()
        peer.send(b"put 0 0 60 4\r\nlost\r\n")
        assert peer.await_end() == b""
        assert yard.process.wait() == 1
        assert "Traceback" not in yard.errors()
        peer.close()
        yard.close()
        disk.unplug()
        disk.plug_in()
        yard.start()
        with contextlib.closing(yard.connect()) as again:
            assert again.ask(b"peek %d" % kept) == b"FOUND %d 4\r\nkept\r\n" % kept


def test_class_os_loses_only_its_last_moments(disk: PowerDisk) -> None:
    """It always starts again, and what was answered half a second before is there."""
    flags = (*SMALL_SEGMENTS, "--durability", "os")
    with contextlib.closing(Yard(disk.root / "data", *flags)) as yard:
        for _ in range(times(3)):
            yard.start()
            with contextlib.closing(yard.connect()) as peer:
                old = [put_id(peer, b"%d" % n * 500) for n in range(20)]
                until = time.monotonic() + 0.6
                while time.monotonic() < until:
                    job_id = put_id(peer, b"young" * 500)
                    assert peer.ask(b"delete %d" % job_id) == b"DELETED\r\n"
            cut_power(disk, yard)
            yard.start()
            with contextlib.closing(yard.connect()) as peer:
                for job_id in old:
                    assert peer.ask(b"peek %d" % job_id).startswith(b"FOUND")
                assert put_id(peer, b"next") > max(old)
            yard.stop()
            yard.close()
