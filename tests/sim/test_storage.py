"""The virtual disk keeps what it must, loses what it may, and fails when told to."""

from random import Random

import pytest

from jobyard.errors import StorageFailed, StorageFull
from sim.storage import Stopped, VirtualDisk

SEEDS = range(200)


def nothing(_: str) -> None:
    pass


def disk_of(seed: int = 0) -> VirtualDisk:
    disk = VirtualDisk(Random(seed), nothing)
    disk.create("a", 4096)
    disk.sync_directory()
    return disk


def test_what_was_synced_survives_every_power_cut() -> None:
    for seed in SEEDS:
        disk = disk_of(seed)
        disk.write("a", 100, b"safe" * 300)
        disk.sync("a")
        disk.write("a", 1300, b"lost" * 300)
        disk.cut_power()
        assert disk.read("a", 100, 1200) == b"safe" * 300


def test_what_was_not_synced_comes_back_whole_torn_or_not_at_all() -> None:
    found = set()
    for seed in SEEDS:
        disk = disk_of(seed)
        disk.write("a", 0, b"x" * 2000)
        disk.cut_power()
        kept = disk.read("a", 0, 2000)
        if kept in (b"x" * 2000, bytes(2000)):
            found.add(kept[:1])
        elif kept.rstrip(b"\0").strip(b"x") == b"":
            found.add(b"prefix or holes")
        else:
            found.add(b"noise")
    assert found == {b"x", b"\0", b"prefix or holes", b"noise"}


def test_the_end_of_a_process_loses_nothing() -> None:
    disk = disk_of()
    disk.write("a", 0, b"written")
    assert disk.read("a", 0, 7) == b"written"


def test_a_name_is_durable_only_once_the_directory_is_synced() -> None:
    kept = set()
    for seed in SEEDS:
        disk = disk_of(seed)
        disk.rename("a", "b")
        disk.cut_power()
        assert len(disk.names()) == 1
        kept.update(disk.names())
    assert kept == {"a", "b"}
    disk = disk_of()
    disk.rename("a", "b")
    disk.sync_directory()
    disk.cut_power()
    assert disk.names() == ["b"]


def test_a_failed_sync_keeps_only_the_look_of_the_bytes() -> None:
    lost = 0
    for seed in SEEDS:
        disk = disk_of(seed)
        disk.write("a", 0, b"first")
        disk.fail_sync_in = 0
        with pytest.raises(StorageFailed):
            disk.sync("a")
        disk.sync("a")
        assert disk.read("a", 0, 5) == b"first"
        disk.cut_power()
        lost += disk.read("a", 0, 5) != b"first"
    assert lost > 0


def test_a_sync_covers_only_what_was_written_before_it_began() -> None:
    for seed in SEEDS:
        disk = disk_of(seed)
        disk.write("a", 0, b"before")
        mark = disk.mark()
        disk.write("a", 0, b"after!")
        disk.sync_until("a", mark)
        disk.cut_power()
        if disk.read("a", 0, 6) == b"before":
            return
    pytest.fail("a later write was always covered as well")


def test_a_full_disk_refuses_new_files_and_takes_them_again() -> None:
    disk = disk_of()
    disk.budget = 5000
    with pytest.raises(StorageFull):
        disk.create("b", 1000)
    disk.truncate("a", 1000)
    disk.create("b", 1000)
    assert disk.usage() == 2000


def test_a_process_can_be_stopped_at_any_call() -> None:
    disk = disk_of()
    disk.stop_in = 1
    disk.sync("a")
    with pytest.raises(Stopped):
        disk.write("a", 0, b"x" * 4096)
    disk.disarm()
    assert len(disk.read("a", 0, 4096).rstrip(b"\0")) < 4096


def test_batches_are_safe_once_synced_and_never_after_a_failure() -> None:
    disk = disk_of()
    head = b"JYBT" + bytes(12) + (7).to_bytes(8, "little")
    disk.write("a", 0, head)
    assert not disk.is_safe(7)
    assert disk.is_safe(6)
    disk.fail_sync_in = 0
    with pytest.raises(StorageFailed):
        disk.sync("a")
    disk.sync("a")
    assert not disk.is_safe(7)
    disk.restart(7)
    assert disk.is_safe(7)


def test_a_trial_changes_nothing() -> None:
    disk = disk_of()
    disk.write("a", 0, b"kept")
    copy = disk.clone()
    copy.write("a", 0, b"gone")
    copy.unlink("a")
    assert disk.read("a", 0, 4) == b"kept"
    disk.sync("a")
    disk.cut_power()
    assert disk.read("a", 0, 4) == b"kept"
