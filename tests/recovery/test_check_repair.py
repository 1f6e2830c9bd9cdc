"""`check` and `repair` on real directories: what they report and keep, and that it starts."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jobyard.config import EXIT_DAMAGED
from jobyard.errors import StartRefused
from jobyard.journal.format.segment import (
    SEGMENT_HEADER_SIZE,
    Segment,
    segment_name,
    segment_number,
)
from jobyard.server.check_repair import check, repair
from jobyard.server.disk import FileStorage
from tests.recovery.test_promises import newer_format
from tests.support.site.site import NOW_MS
from tests.support.site.snapshot import Snapshot, snapshot
from tests.support.site.storage import MemoryStorage
from tests.support.site.yard import OpenYard, batches

SEGMENT = 16 * 1024
LONG = b"L" * 5000


@contextmanager
def opened(folder: Path) -> Iterator[OpenYard]:
    storage = FileStorage(folder)
    try:
        yield OpenYard(storage, NOW_MS, segment_size=SEGMENT, budget=0)
    finally:
        storage.close()


def fill(folder: Path, boots: int = 3, *, closes: bool = True) -> Snapshot:
    """Write a journal of several segments: per boot a tube, short bodies and one long one."""
    for boot in range(boots):
        with opened(folder) as site:
            for number in range(6):
                site.put(b"%d-%d" % (boot, number) * 20, f"tube{boot}")
                site.commit()
            site.put(LONG, f"tube{boot}")
            site.commit()
            state = snapshot(site.yard)
            if closes:
                site.journal.append_clean()
                site.journal.close()
    return state


def serve(folder: Path) -> Snapshot:
    with opened(folder) as site:
        return snapshot(site.yard)


def checked(folder: Path) -> tuple[int, str]:
    out = io.StringIO()
    return check(folder, out), out.getvalue()


def repaired(folder: Path) -> tuple[int, str]:
    out = io.StringIO()
    return repair(folder, out), out.getvalue()


def flip(path: Path, offset: int) -> None:
    """Damage more than the one bit that a repair puts right."""
    data = bytearray(path.read_bytes())
    data[offset] ^= 0xFF
    path.write_bytes(bytes(data))


def journals(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.name.endswith(".journal"))


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def batch_at(path: Path, body: bytes) -> int:
    """Return where the bytes of a body are in a file."""
    return path.read_bytes().index(body)


# -- check -------------------------------------------------------------------------------------


def test_a_whole_directory_is_reported_as_such_and_left_alone(tmp_path: Path) -> None:
    fill(tmp_path)
    before = contents(tmp_path)
    code, text = checked(tmp_path)
    assert code == 0
    assert text == (
        "21 jobs (21 ready, 0 delayed, 0 buried) in 3 queues, 3 segments\n"
        "everything can be read back\n"
    )
    assert contents(tmp_path) == before


def test_an_empty_directory_is_whole(tmp_path: Path) -> None:
    code, text = checked(tmp_path)
    assert code == 0
    assert text.startswith("0 jobs ")


def test_a_torn_tail_is_reported_and_is_no_damage(tmp_path: Path) -> None:
    fill(tmp_path, boots=1, closes=False)
    name = journals(tmp_path)[-1]
    at = batch_at(name, LONG)
    flip(name, at + 100)
    code, text = checked(tmp_path)
    assert code == 0
    assert "6 jobs" in text
    assert "bytes of a torn tail are cut" in text


@pytest.mark.parametrize("which", [0, 1, 2])
def test_damage_is_reported_with_file_and_offset(tmp_path: Path, which: int) -> None:
    fill(tmp_path)
    path = journals(tmp_path)[which]
    flip(path, batch_at(path, b"%d-2" % which))
    before = contents(tmp_path)
    code, text = checked(tmp_path)
    assert code == EXIT_DAMAGED
    assert f"damaged: {path.name} at offset " in text
    assert "everything can be read back" not in text
    assert contents(tmp_path) == before


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_damaged_long_body_is_found_wherever_it_is(tmp_path: Path, which: int) -> None:
    fill(tmp_path)
    path = journals(tmp_path)[which]
    flip(path, batch_at(path, LONG) + 7)
    code, text = checked(tmp_path)
    assert code == EXIT_DAMAGED
    assert f"damaged: {path.name} at offset " in text


@pytest.mark.parametrize("which", [0, 1])
def test_a_missing_file_is_reported(tmp_path: Path, which: int) -> None:
    fill(tmp_path)
    path = journals(tmp_path)[which]
    path.unlink()
    code, text = checked(tmp_path)
    assert code == EXIT_DAMAGED
    assert f"damaged: {path.name} at offset 0: the segment is missing" in text


def test_a_directory_in_use_is_not_looked_at(tmp_path: Path) -> None:
    with opened(tmp_path):
        for look in (checked, repaired):
            with pytest.raises(StartRefused, match="in use"):
                look(tmp_path)


# -- repair ------------------------------------------------------------------------------------


def test_repair_of_a_whole_directory_changes_nothing(tmp_path: Path) -> None:
    state = fill(tmp_path)
    before = contents(tmp_path)
    code, text = repaired(tmp_path)
    assert (code, text) == (0, "21 jobs can be served\n")
    assert contents(tmp_path) == before
    assert serve(tmp_path) == state


@pytest.mark.parametrize("which", [0, 1, 2])
def test_repair_keeps_the_damaged_file_aside_and_serves_the_rest(
    tmp_path: Path, which: int
) -> None:
    state = fill(tmp_path)
    path = journals(tmp_path)[which]
    flip(path, batch_at(path, b"%d-2" % which))
    damaged = path.read_bytes()
    code, text = repaired(tmp_path)
    assert code == 0
    assert f"damaged: {path.name} at offset " in text
    assert (tmp_path / f"{path.name}.damaged").read_bytes() == damaged
    assert "20 jobs can be served" in text
    lost = which * 7 + 3
    wanted = {key: facts for key, facts in state.items() if key != lost}
    assert serve(tmp_path) == wanted
    assert checked(tmp_path)[0] == 0


@pytest.mark.parametrize("which", [0, 1, 2])
def test_repair_serves_the_jobs_of_a_queue_whose_name_is_lost(tmp_path: Path, which: int) -> None:
    """The first batch of a tube names it. Without that batch the others must still be served."""
    fill(tmp_path)
    path = journals(tmp_path)[which]
    flip(path, batch_at(path, b"%d-0" % which))
    code, text = repaired(tmp_path)
    assert code == 0, text
    assert "20 jobs can be served" in text
    found = serve(tmp_path)
    assert len(found) == 20
    for number in range(which * 7 + 2, which * 7 + 8):
        assert number in found


@pytest.mark.parametrize("which", [0, 1, 2])
def test_repair_ends_with_a_damaged_long_body(tmp_path: Path, which: int) -> None:
    state = fill(tmp_path)
    path = journals(tmp_path)[which]
    flip(path, batch_at(path, LONG) + 7)
    code, text = repaired(tmp_path)
    assert code == 0, text
    damaged = which * 7 + 7
    found = serve(tmp_path)
    for key, facts in state.items():
        if key != damaged:
            assert found[key] == facts


@pytest.mark.parametrize("which", [0, 1])
def test_repair_of_a_missing_file_serves_the_rest(tmp_path: Path, which: int) -> None:
    state = fill(tmp_path)
    path = journals(tmp_path)[which]
    path.unlink()
    code, text = repaired(tmp_path)
    assert code == 0, text
    assert "14 jobs can be served" in text
    assert f"{path.name} is missing: its part of batches " in text
    assert ", at most 7 jobs\n" in text
    lost = range(which * 7 + 1, which * 7 + 8)
    assert serve(tmp_path) == {key: facts for key, facts in state.items() if key not in lost}


@pytest.mark.parametrize("which", [0, 1, 2])
def test_repair_of_a_damaged_header_loses_no_job(tmp_path: Path, which: int) -> None:
    state = fill(tmp_path)
    flip(journals(tmp_path)[which], 30)
    code, text = repaired(tmp_path)
    assert code == 0, text
    assert "21 jobs can be served" in text
    assert serve(tmp_path) == state


def test_repair_of_a_file_cut_short_keeps_what_is_before_the_cut(tmp_path: Path) -> None:
    state = fill(tmp_path)
    path = journals(tmp_path)[1]
    data = path.read_bytes()
    path.write_bytes(data[: batch_at(path, b"1-3")])
    code, text = repaired(tmp_path)
    assert code == 0, text
    lost = range(11, 15)
    assert serve(tmp_path) == {key: facts for key, facts in state.items() if key not in lost}


def test_repair_of_several_damaged_files_mends_them_all(tmp_path: Path) -> None:
    state = fill(tmp_path)
    for which, path in enumerate(journals(tmp_path)):
        flip(path, batch_at(path, b"%d-4" % which))
    code, text = repaired(tmp_path)
    assert code == 0
    assert text.count("kept ") == 3
    lost = {5, 12, 19}
    assert serve(tmp_path) == {key: facts for key, facts in state.items() if key not in lost}


def test_repair_twice_keeps_both_damaged_files(tmp_path: Path) -> None:
    fill(tmp_path)
    path = journals(tmp_path)[0]
    for body in (b"0-2", b"0-4"):
        flip(path, batch_at(path, body))
        assert repaired(tmp_path)[0] == 0
    kept = sorted(other.name for other in tmp_path.iterdir() if ".damaged" in other.name)
    assert kept == [f"{path.name}.damaged", f"{path.name}.damaged-again"]
    assert len(serve(tmp_path)) == 19


def test_after_a_repair_no_id_is_used_twice(tmp_path: Path) -> None:
    """The ids of lost jobs are known from the seal of the file, if not from its batches."""
    state = fill(tmp_path)
    path = journals(tmp_path)[-1]
    storage = FileStorage(tmp_path)
    segment = Segment(segment_number(path.name), 0, path.stat().st_size)
    places = [offset for _, offset, _ in batches(storage, segment)]
    storage.close()
    for offset in places[:-1]:  # the last is the seal
        flip(path, offset + 20)
    assert repaired(tmp_path)[0] == 0
    with opened(tmp_path) as site:
        issued = {key for key in state if isinstance(key, int)}
        assert len(issued) == 21
        assert site.yard.jobs.count == 14
        assert site.put().id not in issued


def test_a_job_that_was_deleted_stays_so_after_the_repair_of_another_file(tmp_path: Path) -> None:
    fill(tmp_path)
    with opened(tmp_path) as site:
        client = site.connect()
        assert client.say(b"delete 1\r\ndelete 8\r\n") == b"DELETED\r\n" * 2
        site.journal.close()
    path = journals(tmp_path)[0]
    flip(path, batch_at(path, b"0-3"))
    assert repaired(tmp_path)[0] == 0
    found = serve(tmp_path)
    assert 1 not in found
    assert 8 not in found


def test_a_directory_of_a_newer_format_is_not_repaired(tmp_path: Path) -> None:
    fill(tmp_path)
    path = journals(tmp_path)[0]
    copy = MemoryStorage()
    copy.create(path.name, path.stat().st_size)
    copy.write(path.name, 0, path.read_bytes())
    newer_format(copy, path.name)
    path.write_bytes(bytes(copy.files[path.name].seen))
    before = contents(tmp_path)
    code, text = repaired(tmp_path)
    assert code != 0
    assert "newer" in text
    assert contents(tmp_path) == before


def test_a_damaged_cold_segment_is_repaired_too(tmp_path: Path) -> None:
    with opened(tmp_path) as site:
        keep = []
        for number in range(60):
            job = site.put(b"%04d" % number * 200)
            site.commit()
            if number % 6 == 0:
                keep.append(int(job.id))
            else:
                site.connect().say(b"delete %d\r\n" % job.id)
        site.commit()
        site.compact()
        cold = site.journal.cold
        assert cold is not None
        moved = [int(job.id) for job in site.yard.jobs.all() if job.place >> 32 == cold.number]
        assert len(moved) > 3
        site.journal.close()
        name = cold.name
    state = serve(tmp_path)
    assert set(state) == set(keep)
    path = tmp_path / name
    flip(path, SEGMENT_HEADER_SIZE + 300)
    assert checked(tmp_path)[0] == EXIT_DAMAGED
    code, text = repaired(tmp_path)
    assert code == 0, text
    found = serve(tmp_path)
    assert set(keep) - set(moved) <= set(found) <= set(keep)
    assert segment_name(1) not in found
