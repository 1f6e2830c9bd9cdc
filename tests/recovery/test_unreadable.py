"""Sectors that the disk cannot read: damage in one place, which costs only what is stored there."""

import errno
import io
import os
from pathlib import Path

import pytest

from jobyard.config import EXIT_DAMAGED
from jobyard.engine.jobs.take import take_job
from jobyard.engine.recovery.repair import repair_storage
from jobyard.errors import JournalDamaged, NotFound
from jobyard.journal.format.segment import segment_number
from jobyard.journal.storage import SECTOR, find_unreadable, read_around
from jobyard.model.job import DEAD
from jobyard.protocols.beanstalk.door import TERMS
from jobyard.server.check_repair import check, repair
from jobyard.server.disk import FileStorage
from tests.recovery.test_flips import SEGMENT, History, damaged_jobs, without_bodies
from tests.support.site.recount import recount
from tests.support.site.site import NOW_MS
from tests.support.site.snapshot import snapshot
from tests.support.site.storage import MemoryStorage
from tests.support.site.yard import OpenYard


@pytest.fixture(scope="module")
def history() -> History:
    return History(3)


def sectors(history: History) -> list[tuple[str, int]]:
    return [
        (name, offset)
        for name, used in sorted(history.used.items())
        for offset in range(0, min(used, history.storage.size(name)), SECTOR)
    ]


def opened(storage: MemoryStorage, history: History) -> OpenYard:
    return OpenYard(storage, history.now_ms, segment_size=SEGMENT, budget=0)


def test_every_unreadable_sector_refuses_the_start_with_its_offset_or_costs_bodies(
    history: History,
) -> None:
    outcomes = {"refused": 0, "bodies": 0, "same": 0}
    for name, offset in sectors(history):
        storage = history.storage.killed()
        storage.spoil(name, offset)
        try:
            site = opened(storage, history)
        except JournalDamaged as damage:
            blamed = (damage.name, damage.offset, "cannot read" in damage.why)
            outcomes["refused"] += blamed == (name, offset, True)
            continue
        found = snapshot(site.yard)
        assert without_bodies(found) == without_bodies(history.state)
        lost = damaged_jobs(found, history.state)
        outcomes["bodies" if lost else "same"] += 1
        lease_set = site.connect().lease_set
        for job_id in lost:
            with pytest.raises(NotFound):
                take_job(site.yard, job_id, lease_set, TERMS, site.now_ms)
            job = site.yard.jobs.get(job_id)
            assert job is not None
            assert job.state == DEAD
        site.commit()
        recount(site.yard)
    assert sum(outcomes.values()) == len(sectors(history))
    assert outcomes["refused"] > 20
    assert outcomes["bodies"] > 5


def test_a_repair_reads_around_every_unreadable_sector(history: History) -> None:
    for name, offset in sectors(history)[::5]:
        storage = history.storage.killed()
        storage.spoil(name, offset)
        out = io.StringIO()
        assert repair_storage(storage, "data", history.now_ms, out), out.getvalue()
        site = opened(storage, history)
        recount(site.yard)


def test_an_unreadable_mark_of_the_newest_segment_is_set_aside(history: History) -> None:
    storage = history.storage.killed()
    storage.spoil("newest", 0)
    with pytest.raises(JournalDamaged, match="newest at offset 0"):
        opened(storage, history)
    out = io.StringIO()
    assert repair_storage(storage, "data", history.now_ms, out)
    assert "newest.damaged" in storage.names()
    assert snapshot(opened(storage, history).yard) == history.state


def test_a_page_of_a_log_beside_an_unreadable_sector_is_read() -> None:
    storage = MemoryStorage()
    storage.create("a", 10 * SECTOR)
    storage.write("a", 0, bytes(range(256)) * 20)
    storage.spoil("a", 3 * SECTOR)
    storage.spoil("a", 7 * SECTOR)
    whole = bytes(storage.files["a"].seen)
    wanted = bytearray(whole)
    for sector in (3, 7):
        wanted[sector * SECTOR : (sector + 1) * SECTOR] = bytes(SECTOR)
    for offset, size in ((0, 10 * SECTOR), (100, 5000), (3 * SECTOR + 5, 10), (5119, 5)):
        assert read_around(storage, "a", offset, size) == wanted[offset : offset + size]
    assert read_around(storage, "a", 9 * SECTOR, 5000) == whole[9 * SECTOR :]
    assert find_unreadable(storage, "a", 0, 9999) == 3 * SECTOR
    assert find_unreadable(storage, "a", 4 * SECTOR + 7, 9999) == 7 * SECTOR
    assert find_unreadable(storage, "a", 8 * SECTOR, 9999) == -1
    few = read_around(storage, "a", 0, 10 * SECTOR, 1)
    assert few == bytes(10 * SECTOR), "after so many failures the rest is given up"


def test_compaction_leaves_a_body_that_cannot_be_read_where_it_is() -> None:
    """What the disk reads again later must not have been replaced by zeros meanwhile."""
    storage = MemoryStorage()
    site = OpenYard(storage, NOW_MS, segment_size=SEGMENT, budget=0)
    bodies = {int(site.put(b"%d" % n * 5000).id): b"%d" % n * 5000 for n in range(6)}
    site.commit()
    client = site.connect()
    kept = list(bodies)[2]
    for job_id in bodies:
        if job_id != kept:
            client.say(b"delete %d\r\n" % job_id)
    site.commit()
    job = site.yard.jobs.get(kept)
    assert job is not None
    name = f"{job.place >> 32:010d}.journal"
    storage.spoil(name, (job.place & 0xFFFFFFFF) + 2000)
    for _ in range(20):
        site.put(b"more" * 200)
        site.commit()
    site.compact()
    assert name in storage.names()
    assert site.bodies.fetch(job) is None
    storage.files[name].bad.clear()
    assert site.bodies.fetch(job) == bodies[kept]


def test_real_files_are_checked_repaired_and_served_around_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = FileStorage(tmp_path)
    for boot in range(2):
        site = OpenYard(storage, NOW_MS, segment_size=SEGMENT, budget=0)
        for number in range(40):
            site.put(b"boot %d number %02d " % (boot, number) * 8)
            site.commit()
        site.journal.close()
    storage.close()
    name = min(path.name for path in tmp_path.iterdir() if segment_number(path.name) > 0)
    at = (tmp_path / name).read_bytes().index(b"number 20") // SECTOR * SECTOR
    fail_reads(monkeypatch, tmp_path / name, at)
    out = io.StringIO()
    assert check(tmp_path, out) == EXIT_DAMAGED
    assert out.getvalue() == f"damaged: {name} at offset {at}: the disk cannot read this sector\n"
    assert repair(tmp_path, out) == 0, out.getvalue()
    storage = FileStorage(tmp_path)
    site = OpenYard(storage, NOW_MS, segment_size=SEGMENT, budget=0)
    # Batches of 336 bytes: what touches the sector is lost.
    assert 76 <= site.yard.jobs.count < 80
    storage.close()


def fail_reads(monkeypatch: pytest.MonkeyPatch, path: Path, bad: int) -> None:
    """Make every read of one sector of a file fail, whatever the name of the file is."""
    real = os.pread
    inode = path.stat().st_ino

    def pread(fd: int, size: int, offset: int) -> bytes:
        if os.fstat(fd).st_ino == inode and offset < bad + SECTOR and bad < offset + size:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(fd, size, offset)

    monkeypatch.setattr(os, "pread", pread)
