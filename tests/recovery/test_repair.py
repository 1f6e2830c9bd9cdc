"""Repairs that lose what jobs refer to, that are interrupted, and that have no room."""

import io
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from jobyard.config import EXIT_FAILED
from jobyard.engine.jobs.move import set_body
from jobyard.engine.recovery.repair import repair_storage
from jobyard.errors import JournalDamaged, StorageFull
from jobyard.journal.format.record import MOVED_SIZE
from jobyard.journal.format.segment import segment_number
from jobyard.model.job import RAW
from jobyard.model.policy import Policy
from jobyard.server.check_repair import repair
from tests.support.site.recount import recount
from tests.support.site.site import NOW_MS
from tests.support.site.snapshot import Snapshot, snapshot
from tests.support.site.storage import EACH, MemoryStorage, PowerCut, stop_everywhere
from tests.support.site.yard import OpenYard

SEGMENT = 16 * 1024
WHERE = "data"
ENDS: list[Callable[[MemoryStorage], MemoryStorage]] = [MemoryStorage.killed, MemoryStorage.cut_off]


def asked(attempts: int) -> Policy:
    policy = Policy(0)
    policy.max_attempts = attempts
    policy.timeout_ms = 5000
    return policy


def started(storage: MemoryStorage) -> OpenYard:
    return OpenYard(storage, NOW_MS, segment_size=SEGMENT)


def mended(storage: MemoryStorage) -> str:
    out = io.StringIO()
    assert repair_storage(storage, WHERE, NOW_MS, out), out.getvalue()
    return out.getvalue()


def served(storage: MemoryStorage) -> Snapshot:
    site = started(storage)
    recount(site.yard)
    return snapshot(site.yard)


def place_of(storage: MemoryStorage, text: bytes) -> tuple[str, int]:
    """Return where some bytes of the journal are."""
    for name, file in sorted(storage.files.items()):
        at = bytes(file.seen).find(text)
        if at >= 0 and segment_number(name) > 0:
            return name, at
    raise AssertionError(text)


def two_families() -> MemoryStorage:
    """Return three boots' worth of journal, each with jobs of two families and a policy."""
    storage = MemoryStorage()
    for boot in range(3):
        site = started(storage)
        for number in range(5):
            body = b"boot %d job %d " % (boot, number) * 10
            site.enter(body, f"queue{boot}", policy=asked(boot + 1))
            site.commit()
            site.put(b"plain " + body, f"tube{boot}")
            site.commit()
        site.put(b"long" * 2000, f"tube{boot}")
        site.commit()
        site.journal.append_clean()
        site.journal.close()
    return storage


# -- bodies that were replaced -----------------------------------------------------------------


@pytest.mark.parametrize("lost", ["record", "batch"])
def test_a_job_that_is_back_with_the_body_of_before_is_told(lost: str) -> None:
    storage = MemoryStorage()
    site = started(storage)
    job = site.enter(b"first", "q", policy=asked(1))
    site.commit()
    set_body(site.yard, job, b"second" * 300, RAW, site.now_ms)
    site.commit()
    site.journal.append_clean()
    site.journal.close()
    name, at = place_of(storage, b"second")
    # The body covers several sectors; the description of the batch is before the record.
    storage.spoil(name, at + 1024 if lost == "record" else at - MOVED_SIZE - 1)
    told = mended(storage)
    if lost == "record":
        assert f"1 job may have an older body: {job.id}\n" in told
    else:
        assert re.search(r"^up to \d+ jobs may have an older body", told, re.MULTILINE), told


# -- what jobs refer to ------------------------------------------------------------------------


@pytest.mark.parametrize("boot", [0, 1, 2])
def test_jobs_whose_policy_is_lost_get_the_default_one(boot: int) -> None:
    storage = two_families()
    wanted = served(storage.killed())
    # The first batch of a family has the records of its policy and of its queue.
    lost = b"boot %d job 0" % boot
    name, at = place_of(storage, lost)
    damage = bytes(storage.files[name].seen[at : at + 4])
    storage.write(name, at, bytes(255 - byte for byte in damage))
    with pytest.raises(JournalDamaged):
        started(storage)
    text = mended(storage)
    assert "4 jobs of queue lost-" in text
    assert " have default options now: their own are lost\n" in text
    assert "renamed a queue to lost-" in text
    assert "32 jobs can be served" in text
    assert "journal" not in storage.names()
    site = started(storage)
    recount(site.yard)
    found = snapshot(site.yard)
    assert {key for key in wanted if isinstance(key, int)} - set(found) == {boot * 11 + 1}
    nameless = [job for job in site.yard.jobs.all() if job.queue.name.startswith("lost-")]
    assert len(nameless) == 4
    for job in nameless:
        assert job.policy.max_attempts == 0
        assert job.policy.text == Policy(0).encode()
    # A policy or queue that comes now is another one.
    other = site.enter(b"new", "other", policy=asked(7))
    assert other.policy.number not in {job.policy.number for job in nameless}
    assert other.queue.number not in {job.queue.number for job in nameless}
    site.commit()
    assert mended(storage.killed()) == "33 jobs can be served\n"


def test_lost_options_are_told_by_queue_in_few_lines() -> None:
    storage = MemoryStorage()
    site = started(storage)
    site.enter(b"the first of all", "queue0", policy=asked(1))
    site.commit()
    for number in range(30):
        for _ in range(2 if number == 17 else 1):
            site.enter(b"another", f"queue{number}", policy=asked(1))
        site.commit()
    site.journal.append_clean()
    site.journal.close()
    name, at = place_of(storage, b"the first of all")
    storage.write(name, at, b"XXXX")
    told = [line for line in mended(storage).splitlines() if "options" in line or "queues" in line]
    assert told[0] == "2 jobs of queue queue17 have default options now: their own are lost"
    assert "1 job of queue queue1 has default options now: its own are lost" in told
    assert len(told) == 21
    assert told[-1] == "and so do 10 jobs of 10 more queues"


def test_a_start_on_jobs_without_a_policy_is_refused_with_a_way_out() -> None:
    """As left by a repair interrupted between the file and the replacement policies."""
    storage = two_families()
    name, at = place_of(storage, b"boot 1 job 0")
    storage.write(name, at, b"XXXX")
    told = set()
    for cut in stop_everywhere(storage.killed, lambda one: void(mended(one))):
        try:
            started(cut.killed())
        except JournalDamaged as error:
            told.add(error.why)
    assert any("policy" in why and "jobyard repair" in why for why in told)


def test_a_lost_name_takes_no_name_that_is_in_use() -> None:
    storage = MemoryStorage()
    site = started(storage)
    site.put(b"first of many", "tube")
    site.commit()
    site.put(b"second", "tube")
    site.put(b"another", "lost-1")
    site.commit()
    site.journal.close()
    name, at = place_of(storage, b"first of many")
    storage.write(name, at, b"XXXX")
    text = mended(storage)
    assert "renamed a queue to lost-1-again: its own name is lost" in text
    assert {job.queue.name for job in started(storage).yard.jobs.all()} == {
        "lost-1",
        "lost-1-again",
    }


class Riddle(MemoryStorage):
    """A storage that makes every reader blame a file that does not exist."""

    def read(self, name: str, offset: int, size: int) -> bytes:
        raise JournalDamaged("journal", offset, f"nobody knows why, {name} and {size}")


def test_what_no_file_is_blamed_for_is_not_repaired_into_a_file() -> None:
    storage = Riddle()
    storage.files = two_families().files
    before = sorted(storage.names())
    out = io.StringIO()
    assert not repair_storage(storage, WHERE, NOW_MS, out)
    assert out.getvalue().endswith("the damage could not be repaired\n")
    assert sorted(storage.names()) == before


# -- interrupted -------------------------------------------------------------------------------


def void(_: object) -> None:
    """Drop a result."""


def damaged(what: str) -> MemoryStorage:
    storage = two_families()
    names = sorted(name for name in storage.names() if segment_number(name) > 0)
    if what == "a batch":
        name, at = place_of(storage, b"boot 1 job 3")
        storage.write(name, at, b"XXXX")
    elif what == "two files":
        for text in (b"boot 0 job 2", b"plain boot 2 job 4"):
            name, at = place_of(storage, text)
            storage.write(name, at, b"XXXX")
    elif what == "a policy":
        name, at = place_of(storage, b"boot 1 job 0")
        storage.write(name, at, b"XXXX")
    elif what == "a long body":
        name, at = place_of(storage, b"longlong")
        storage.write(name, at + 100, b"XXXX")
    elif what == "a missing file":
        storage.unlink(names[1])
    else:
        storage.write(names[2], 20, b"XXXX")
    return storage.killed()


WHAT = ["a batch", "two files", "a policy", "a long body", "a missing file", "a header"]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("what", WHAT)
def test_a_repair_interrupted_at_any_call_and_repeated_saves_the_same(
    what: str, end: Callable[[MemoryStorage], MemoryStorage]
) -> None:
    image = damaged(what)
    whole = image.killed()
    mended(whole)
    wanted = served(whole)
    count = 0
    for storage in stop_everywhere(image.killed, lambda storage: void(mended(storage))):
        count += EACH
        again = end(storage)
        mended(again)
        left = [name for name in again.names() if name.endswith(".repaired")]
        assert left == []
        assert served(again) == wanted
    assert count > 10


@pytest.mark.parametrize("what", WHAT)
def test_repairs_in_a_row_each_interrupted_save_the_same(what: str) -> None:
    image = damaged(what)
    whole = image.killed()
    mended(whole)
    wanted = served(whole)
    draw = Random(7)
    for _ in range(10):
        storage = image.killed()
        for _ in range(draw.randrange(2, 6)):
            storage.stop_at = storage.calls_count + draw.randrange(120)
            with suppress(PowerCut):
                mended(storage)
            storage = draw.choice(ENDS)(storage)
        mended(storage)
        assert served(storage) == wanted


@pytest.mark.parametrize("what", WHAT)
def test_a_start_between_interrupted_repairs_is_refused_or_whole(what: str) -> None:
    image = damaged(what)
    whole = image.killed()
    mended(whole)
    wanted = served(whole)
    for stopped in stop_everywhere(image.killed, lambda storage: void(mended(storage))):
        storage = stopped.cut_off()
        try:
            found = served(storage)
        except JournalDamaged:
            mended(storage)
            found = served(storage)
        assert found == wanted


# -- no room -----------------------------------------------------------------------------------


@pytest.mark.parametrize("what", WHAT)
def test_a_repair_without_room_loses_nothing_and_can_be_run_again(what: str) -> None:
    image = damaged(what)
    whole = image.killed()
    mended(whole)
    wanted = served(whole)
    before = {name: bytes(file.seen) for name, file in image.files.items()}
    image.capacity = image.used()
    with pytest.raises(StorageFull):
        mended(image)
    assert {name: bytes(file.seen) for name, file in image.files.items()} == before
    image.capacity = None
    mended(image)
    assert served(image) == wanted


def test_a_full_disk_is_told_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = damaged("a batch")
    for name, file in image.files.items():
        (tmp_path / name).write_bytes(file.seen)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def full(_storage: object, name: str, _size: int) -> None:
        raise StorageFull(name)

    monkeypatch.setattr("jobyard.server.disk.FileStorage.create", full)
    out = io.StringIO()
    assert repair(tmp_path, out) == EXIT_FAILED
    last = out.getvalue().splitlines()[-1]
    assert last.startswith(f"not repaired: no space in {tmp_path} for ")
    assert last.endswith("nothing is lost: free some space and run repair again")
    found = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    found.pop("lock", None)
    assert found == before
