"""Starts that must be refused with one line, and damaged data that must never be served."""

import contextlib
import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from tests.acceptance.process.yards import SMALL_SEGMENTS, Yard, await_true, put_id
from tests.support.servers.processes import JOBYARD, run_to_end

EXIT_DAMAGED = 3


def serve(folder: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    """Try to serve a directory; the start is expected to be refused."""
    command = [*JOBYARD, "serve", "--data", str(folder), "--beanstalk", "127.0.0.1:0", *flags]
    return run_to_end(command)


def look(verb: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return run_to_end([*JOBYARD, verb, str(folder)])


def assert_refused(ended: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    assert ended.returncode == code, ended.stderr
    assert ended.stdout == ""
    assert len(ended.stderr.splitlines()) == 1, ended.stderr
    for word in words:
        assert word in ended.stderr


def snapshot(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_second_server_is_refused_while_the_first_works(yard: Yard) -> None:
    peer = yard.connect()
    kept = put_id(peer, b"kept")
    assert_refused(serve(yard.folder), 1, str(yard.folder), "in use")
    assert peer.ask(b"delete %d" % kept) == b"DELETED\r\n"
    peer.close()


def test_a_server_that_was_killed_leaves_no_lock(yard: Yard) -> None:
    for _ in range(3):
        yard.kill()
        yard.restart()


def test_check_and_repair_refuse_while_a_server_runs(yard: Yard) -> None:
    for verb in ("check", "repair"):
        ended = look(verb, yard.folder)
        assert ended.returncode == 1
        assert len(ended.stderr.splitlines()) == 1
        assert "in use" in ended.stderr


def test_a_port_in_use_changes_nothing(yard: Yard, tmp_path: Path) -> None:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        yard.stop()
        before = snapshot(yard.folder)
        command = [*JOBYARD, "serve", "--data", str(yard.folder), "--beanstalk", address]
        assert_refused(run_to_end(command), 1, address)
        assert snapshot(yard.folder) == before
        assert not (tmp_path / "jobyard-data").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_that_may_not_be_written(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir(mode=0o500)
    assert_refused(serve(folder), 1, str(folder))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become somebody else")
def test_a_directory_that_somebody_else_may_not_write(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir(mode=0o755)
    # Give up root, but keep access to the interpreter and the sources.
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        pytest.skip("there is no setpriv")
    command = [setpriv, "--bounding-set=-all", "--inh-caps=-all", "--securebits=+noroot", *JOBYARD]
    (folder / "lock").touch(mode=0o600)
    os.chown(folder, 65534, 65534)
    os.chown(folder / "lock", 65534, 65534)
    ended = run_to_end([*command, "serve", "--data", str(folder), "--beanstalk", "127.0.0.1:0"])
    assert_refused(ended, 1, str(folder))


def test_a_file_in_place_of_the_directory(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("not a directory", "ascii")
    assert_refused(serve(tmp_path / "data"), 1, str(tmp_path / "data"))


# -- damage ------------------------------------------------------------------------------------


@pytest.fixture
def stopped(yard: Yard) -> tuple[Yard, list[int]]:
    """A stopped server with jobs in several sealed segments, and their ids."""
    with contextlib.closing(yard.connect()) as peer:
        ids = [put_id(peer, b"%03d" % n * 1000) for n in range(100)]
    yard.stop()
    yard.close()
    assert len(yard.segment_numbers()) > 3
    return yard, ids


def damage(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 0x10
    path.write_bytes(bytes(data))


def assert_most_are_there(yard: Yard, ids: list[int], lost_max: int) -> None:
    with contextlib.closing(yard.connect()) as peer:
        lost = 0
        for n, job_id in enumerate(ids):
            answer = peer.ask(b"peek %d" % job_id)
            if answer == b"NOT_FOUND\r\n":
                lost += 1
            else:
                assert answer == b"FOUND %d 3000\r\n" % job_id + b"%03d" % n * 1000 + b"\r\n"
    assert lost <= lost_max


def test_damage_is_named_and_repaired(stopped: tuple[Yard, list[int]]) -> None:
    yard, ids = stopped
    path = sorted(yard.folder.glob("*.journal"))[1]
    offset = path.stat().st_size // 2
    damage(path, offset)
    before = snapshot(yard.folder)
    ended = serve(yard.folder)
    assert_refused(ended, EXIT_DAMAGED, path.name, "offset")
    assert snapshot(yard.folder) == before, "a refused start changed something"
    named = int(ended.stderr.split("offset ")[1].split(":")[0])
    assert named <= offset < named + 4096
    checked = look("check", yard.folder)
    assert checked.returncode == EXIT_DAMAGED
    assert path.name in checked.stdout
    assert snapshot(yard.folder) == before, "check changed something"
    repaired = look("repair", yard.folder)
    assert repaired.returncode == 0, repaired.stdout + repaired.stderr
    kept = [other for other in yard.folder.iterdir() if other.read_bytes() == before[path.name]]
    assert kept, "the damaged bytes are gone"
    assert look("check", yard.folder).returncode == 0
    yard.start()
    # A batch of these puts is one job each.
    assert_most_are_there(yard, ids, lost_max=1)


@pytest.mark.parametrize("where", ["header", "end", "cut", "missing", "long body"])
def test_every_kind_of_damage_is_noticed(stopped: tuple[Yard, list[int]], where: str) -> None:
    yard, ids = stopped
    path = sorted(yard.folder.glob("*.journal"))[1]
    size = path.stat().st_size
    if where == "header":
        damage(path, 13)
    elif where == "end":
        damage(path, path.read_bytes().rindex(b"JYSL") + 20)
    elif where == "cut":
        os.truncate(path, size // 2)
    elif where == "missing":
        path.unlink()
    else:
        damage(path, size // 3)
    assert_refused(serve(yard.folder), EXIT_DAMAGED, path.name, "offset")
    assert look("repair", yard.folder).returncode == 0
    yard.start()
    assert_most_are_there(yard, ids, lost_max=30)


def test_a_damaged_long_body_is_buried_and_never_delivered(yard: Yard) -> None:
    """A start does not read bodies this long; a worker that takes the job gets no wrong bytes."""
    with contextlib.closing(yard.connect()) as peer:
        bad = put_id(peer, b"long" * 10_000)
        good = put_id(peer, b"good" * 10_000)
        # The newest files are read whole, in case they are torn.
        for _ in range(3):
            put_id(peer, b"more" * 12_000, b"put 1 0 600")
    yard.stop()
    yard.close()
    for path in yard.folder.glob("*.journal"):
        at = path.read_bytes().find(b"longlong")
        if at >= 0:
            damage(path, at + 9000)
            break
    else:
        raise AssertionError("the body is in no file")
    checked = look("check", yard.folder)
    assert checked.returncode == EXIT_DAMAGED
    assert path.name in checked.stdout
    yard.flags = (*yard.flags, "--body-memory", "0")
    yard.start()
    with contextlib.closing(yard.connect()) as peer:
        assert peer.ask(b"peek %d" % bad) == b"INTERNAL_ERROR\r\n"
        assert peer.ask(b"reserve").startswith(b"RESERVED %d " % good)
        assert b"state: buried\n" in peer.ask(b"stats-job %d" % bad)
        assert peer.ask(b"delete %d" % bad) == b"DELETED\r\n"


def test_a_newer_format_is_neither_served_nor_repaired(stopped: tuple[Yard, list[int]]) -> None:
    """Files of a later version are not damaged: repair must not take them for it."""
    import zlib  # noqa: PLC0415

    yard, _ids = stopped
    path = max(yard.folder.glob("*.journal"))
    data = bytearray(path.read_bytes())
    data[8:12] = (99).to_bytes(4, "little")
    data[56:64] = zlib.crc32(data[:56]).to_bytes(8, "little")
    path.write_bytes(bytes(data))
    before = snapshot(yard.folder)
    assert_refused(serve(yard.folder), EXIT_DAMAGED, path.name)
    repaired = look("repair", yard.folder)
    assert repaired.returncode != 0
    assert snapshot(yard.folder) == before


def test_a_torn_tail_is_cut_and_told(yard: Yard) -> None:
    with contextlib.closing(yard.connect()) as peer:
        kept = put_id(peer, b"kept")
    yard.kill()
    yard.close()
    path = max(yard.folder.glob("*.journal"))
    data = path.read_bytes()
    end = len(data.rstrip(b"\0"))
    at = data.rfind(b"JYBT", 0, end)
    torn = data[at : at + 60]
    with path.open("r+b") as file:
        file.seek(-(-end // 8) * 8)
        file.write(torn)
    yard.start()
    with contextlib.closing(yard.connect()) as peer:
        assert peer.ask(b"peek %d" % kept) == b"FOUND %d 4\r\nkept\r\n" % kept
    yard.kill()
    yard.restart()
    await_true(lambda: "recovered" in yard.errors(), "the start is told")
    assert "torn" not in yard.errors(), "what was cut once is cut for good"


def test_small_segments_stay_small(yard: Yard) -> None:
    assert SMALL_SEGMENTS[1] == "64KiB"
    assert all(path.stat().st_size <= 64 << 10 for path in yard.folder.glob("*.journal"))
