"""`check` and `repair`: what they find, what they keep, and that they change nothing else."""

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobyard.config import EXIT_DAMAGED
from jobyard.errors import StartRefused
from jobyard.journal.format.segment import segment_name
from jobyard.server.check_repair import check, repair
from jobyard.server.disk import FileStorage
from jobyard.server.loop import Clock
from tests.support.site.yard import OpenYard


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A directory with jobs in several sealed segments."""
    with served(tmp_path / "data") as site:
        client = site.connect()
        for n in range(60):
            client.say(b"put 0 0 60 3000\r\n" + b"%02d" % n * 1500 + b"\r\n")
            site.commit()
        client.say(b"put 0 1000 60 4\r\nlate\r\nreserve-job 1\r\nbury 1 0\r\nuse other\r\n")
        client.say(b"put 0 0 60 20000\r\n" + b"long" * 5000 + b"\r\n")
        site.commit()
    return tmp_path / "data"


@contextlib.contextmanager
def served(folder: Path) -> Iterator[OpenYard]:
    """A yard on a real directory, stopped in good order."""
    storage = FileStorage(folder)
    try:
        site = OpenYard(storage, Clock().now_ms())
        yield site
        site.journal.close()
    finally:
        storage.close()


def run_check(folder: Path) -> tuple[int, str]:
    out = io.StringIO()
    return check(folder, out), out.getvalue()


def run_repair(folder: Path) -> tuple[int, str]:
    out = io.StringIO()
    return repair(folder, out), out.getvalue()


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def flip(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 0xFF
    path.write_bytes(bytes(data))


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.journal"))


def jobs_in(folder: Path) -> int:
    with served(folder) as site:
        return int(site.yard.jobs.count)


def test_a_whole_directory(folder: Path) -> None:
    before = contents(folder)
    code, said = run_check(folder)
    assert code == 0
    assert "62 jobs (60 ready, 1 delayed, 1 buried) in 2 queues" in said
    assert "everything can be read back" in said
    assert contents(folder) == before
    code, said = run_repair(folder)
    assert code == 0
    assert "62 jobs can be served" in said
    assert contents(folder) == before


def test_an_empty_directory(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    assert run_check(tmp_path / "data")[0] == 0
    assert run_repair(tmp_path / "data")[0] == 0


def test_a_directory_in_use_is_left_alone(folder: Path) -> None:
    storage = FileStorage(folder)
    for look in (run_check, run_repair):
        with pytest.raises(StartRefused, match="in use"):
            look(folder)
    storage.close()
    assert run_check(folder)[0] == 0


def test_a_damaged_batch_costs_the_jobs_in_it(folder: Path) -> None:
    path = segments(folder)[1]
    offset = 64 + 96 + 3000 + 200
    flip(path, offset)
    before = contents(folder)
    code, said = run_check(folder)
    assert code == EXIT_DAMAGED
    assert f"damaged: {path.name} at offset " in said
    assert contents(folder) == before
    code, said = run_repair(folder)
    assert code == 0
    assert "61 jobs can be served" in said
    kept = [data for name, data in contents(folder).items() if name.endswith(".damaged")]
    assert kept == [before[path.name]]
    assert run_check(folder)[0] == 0
    assert jobs_in(folder) == 61


def test_several_damaged_files_are_repaired_in_one_go(folder: Path) -> None:
    for path in segments(folder)[:3]:
        flip(path, 20_000)
    code, said = run_repair(folder)
    assert code == 0, said
    assert len(list(folder.glob("*.damaged"))) == 3
    assert run_check(folder)[0] == 0
    assert jobs_in(folder) >= 50


def test_jobs_outlive_the_name_of_their_queue(folder: Path) -> None:
    """The name is in one record, before the first job; the jobs themselves are whole."""
    path = segments(folder)[0]
    flip(path, path.read_bytes().index(b"default"))
    assert run_check(folder)[0] == EXIT_DAMAGED
    code, said = run_repair(folder)
    assert code == 0, said
    assert jobs_in(folder) >= 60


def test_a_missing_file_is_named(folder: Path) -> None:
    path = segments(folder)[1]
    path.unlink()
    code, said = run_check(folder)
    assert code == EXIT_DAMAGED
    assert path.name in said
    assert run_repair(folder)[0] == 0
    assert run_check(folder)[0] == 0


def test_a_file_cut_short_keeps_its_beginning(folder: Path) -> None:
    path = segments(folder)[1]
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    assert run_check(folder)[0] == EXIT_DAMAGED
    assert run_repair(folder)[0] == 0
    assert jobs_in(folder) >= 45


def test_repairing_twice_keeps_both_damaged_files(folder: Path) -> None:
    path = segments(folder)[1]
    flip(path, 64 + 96 + 100)
    assert run_repair(folder)[0] == 0
    flip(path, 64 + 96 + 100)
    assert run_repair(folder)[0] == 0
    assert len(list(folder.glob(f"{path.name}.damaged*"))) == 2
    assert run_check(folder)[0] == 0


def test_a_damaged_long_body_is_found_and_repaired(tmp_path: Path) -> None:
    """A start reads long bodies only in its newest files; check reads all."""
    folder = tmp_path / "data"
    with served(folder) as site:
        client = site.connect()
        client.say(b"put 0 0 60 20000\r\n" + b"long" * 5000 + b"\r\n")
        site.commit()
        for _ in range(60):
            client.say(b"put 0 0 60 4000\r\n" + b"x" * 4000 + b"\r\n")
            site.commit()
    path = segments(folder)[0]
    flip(path, path.read_bytes().index(b"longlong") + 5000)
    code, said = run_check(folder)
    assert code == EXIT_DAMAGED
    assert path.name in said
    lost = "the body of job 1 of queue default is damaged beyond repair"
    code, said = run_repair(folder)
    assert code == 0
    assert lost in said
    code, said = run_check(folder)
    assert code == EXIT_DAMAGED
    assert f"damaged: {lost}" in said
    assert path.name not in said, "the file is repaired"
    assert "everything can be read back" not in said
    with served(folder) as site:
        assert site.connect().say(b"delete 1\r\n") == b"DELETED\r\n"
        site.commit()
    code, said = run_check(folder)
    assert code == 0, f"the job is deleted, and still: {said}"


def test_a_torn_tail_is_reported_and_is_no_damage(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    storage = FileStorage(folder)
    site = OpenYard(storage)
    client = site.connect()
    for n in range(3):
        client.say(b"put 0 0 60 100\r\n" + b"%d" % n * 100 + b"\r\n")
        site.commit()
    hot = site.journal.hot
    end = int(hot.end)
    storage.close()
    path = folder / segment_name(hot.number)
    data = bytearray(path.read_bytes())
    last = data.rindex(b"JYBT", 0, end)
    data[last + 96 + 100] ^= 1
    path.write_bytes(bytes(data))
    code, said = run_check(folder)
    # The newest batch is not known to be on disk: no later one states it.
    assert code == 0
    assert "torn tail" in said
    assert jobs_in(folder) == 2


def test_files_of_a_newer_version_are_not_repaired(folder: Path) -> None:
    from zlib import crc32  # noqa: PLC0415

    path = segments(folder)[-1]
    data = bytearray(path.read_bytes())
    data[8:12] = (99).to_bytes(4, "little")
    data[56:64] = crc32(data[:56]).to_bytes(8, "little")
    path.write_bytes(bytes(data))
    before = contents(folder)
    code, said = run_repair(folder)
    assert code != 0
    assert "newer" in said
    assert contents(folder) == before
