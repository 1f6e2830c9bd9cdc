"""FileStorage on a real directory: the files it creates, and the names of its errors."""

import contextlib
import fcntl
import os
import resource
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jobyard.errors import StartRefused, StorageFailed, StorageFull
from jobyard.server.disk import (
    FILLED_AT_ONCE_MAX,
    READ_FILES_MAX,
    RESERVED_FILES,
    WRITTEN_FILES_MAX,
    FileStorage,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def storage(folder: Path) -> Iterator[FileStorage]:
    with contextlib.closing(FileStorage(folder)) as opened:
        yield opened


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_new_directory_is_for_its_owner_alone(storage: FileStorage, folder: Path) -> None:
    storage.create("a", 100)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for path in folder.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_new_file_is_zeros_with_its_space_reserved(storage: FileStorage, folder: Path) -> None:
    storage.create("small", 10_000)
    assert (folder / "small").read_bytes() == bytes(10_000)
    large = FILLED_AT_ONCE_MAX + (1 << 20)
    storage.create("large", large)
    assert storage.size("large") == large
    assert (folder / "large").stat().st_blocks * 512 >= large


def test_what_is_written_is_read(storage: FileStorage, folder: Path) -> None:
    storage.create("a", 100)
    storage.write("a", 10, b"hello")
    storage.sync("a")
    assert storage.read("a", 8, 9) == b"\0\0hello\0\0"
    assert (folder / "a").read_bytes()[10:15] == b"hello"


def test_a_read_is_short_only_past_the_end(storage: FileStorage) -> None:
    storage.create("a", 100)
    assert len(storage.read("a", 0, 100)) == 100
    assert len(storage.read("a", 90, 100)) == 10
    assert storage.read("a", 100, 1) == b""
    assert storage.read("a", 5000, 1) == b""


def test_names_come_and_go(storage: FileStorage) -> None:
    storage.create("a", 10)
    storage.create("b", 10)
    storage.write("a", 0, b"1")
    storage.rename("a", "c")
    storage.unlink("b")
    storage.sync_directory()
    assert sorted(storage.names()) == ["c", "lock"]
    assert storage.read("c", 0, 1) == b"1"


def test_a_name_used_again_is_another_file(storage: FileStorage) -> None:
    """Descriptors are cached by name: a rename or removal must not leave one behind."""
    storage.create("a", 10)
    storage.write("a", 0, b"old")
    assert storage.read("a", 0, 3) == b"old"
    storage.rename("a", "b")
    storage.create("a", 10)
    storage.write("a", 0, b"new")
    assert storage.read("a", 0, 3) == b"new"
    assert storage.read("b", 0, 3) == b"old"
    storage.unlink("b")
    storage.rename("a", "b")
    assert storage.read("b", 0, 3) == b"new"


def test_truncation_gives_space_back(storage: FileStorage) -> None:
    storage.create("a", 1 << 20)
    storage.write("a", 0, b"kept")
    storage.truncate("a", 4)
    assert storage.size("a") == 4
    assert storage.read("a", 0, 100) == b"kept"


def test_zeros_are_filled_in_piece_by_piece(storage: FileStorage) -> None:
    size = (2 << 20) + 5
    storage.create("a", size)
    storage.write("a", 0, b"x" * size)
    offsets = [0]
    while offsets[-1] >= 0:
        offsets.append(storage.fill("a", offsets[-1]))
    assert offsets == [0, 1 << 20, 2 << 20, size, -1]
    assert storage.read("a", 0, size) == bytes(size)


def test_descriptors_do_not_pile_up(storage: FileStorage) -> None:
    for n in range(100):
        storage.create(f"{n}", 10)
    before = open_files()
    for n in range(100):
        storage.write(f"{n}", 0, b"%d" % n)
        storage.sync(f"{n}")
    for n in range(100):
        assert storage.read(f"{n}", 0, 2).rstrip(b"\0") == b"%d" % n
    assert open_files() - before <= READ_FILES_MAX + WRITTEN_FILES_MAX
    storage.write("0", 3, b"again")
    assert storage.read("0", 3, 5) == b"again"


def test_closing_gives_all_descriptors_back(folder: Path) -> None:
    before = open_files()
    storage = FileStorage(folder)
    storage.create("a", 10)
    storage.write("a", 0, b"x")
    storage.read("a", 0, 1)
    storage.close()
    assert open_files() == before


# -- the lock ----------------------------------------------------------------------------------


def test_a_directory_has_one_user_at_a_time(storage: FileStorage, folder: Path) -> None:
    with pytest.raises(StartRefused, match="in use by another server"):
        FileStorage(folder)
    storage.create("a", 10)


def test_closing_frees_the_directory(folder: Path) -> None:
    FileStorage(folder).close()
    FileStorage(folder).close()


@pytest.mark.parametrize("name", ["a file", "a file/below"])
def test_what_cannot_be_a_directory_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "a file").write_text("x")
    with pytest.raises(StartRefused, match="a file"):
        FileStorage(tmp_path / name)


# -- errors ------------------------------------------------------------------------------------


def test_every_failure_names_the_file_and_the_reason(storage: FileStorage) -> None:
    storage.create("there", 10)
    calls: list[Callable[[], object]] = [
        lambda: storage.size("absent"),
        lambda: storage.read("absent", 0, 1),
        lambda: storage.write("absent", 0, b"x"),
        lambda: storage.sync("absent"),
        lambda: storage.truncate("absent", 0),
        lambda: storage.fill("absent", 0),
        lambda: storage.rename("absent", "x"),
        lambda: storage.unlink("absent"),
    ]
    for call in calls:
        with pytest.raises(StorageFailed, match="absent: No such file"):
            call()
    with pytest.raises(StorageFailed, match="there: File exists"):
        storage.create("there", 10)
    assert storage.read("there", 0, 10) == bytes(10), "what was there is gone"


@contextlib.contextmanager
def limit(kind: int, soft: int) -> Iterator[None]:
    usual = resource.getrlimit(kind)
    resource.setrlimit(kind, (soft, usual[1]))
    try:
        yield
    finally:
        resource.setrlimit(kind, usual)


def test_no_room_is_not_a_failure_and_leaves_nothing(storage: FileStorage) -> None:
    with limit(resource.RLIMIT_FSIZE, 1 << 20), pytest.raises(StorageFull):
        storage.create("a", 2 << 20)
    assert storage.names() == ["lock"]
    storage.create("a", 2 << 20)


def test_a_write_that_finds_no_room_is_a_failure(storage: FileStorage) -> None:
    """Its space was reserved: a disk that has none after all cannot be trusted."""
    storage.create("a", 100)
    with limit(resource.RLIMIT_FSIZE, 1 << 20), pytest.raises(StorageFailed, match="write a"):
        storage.write("a", 1 << 20, b"x")


def test_out_of_descriptors_is_no_failure_of_the_disk(storage: FileStorage) -> None:
    """A spare file can be made later; nothing is lost by waiting."""
    lowest_free = os.dup(0)
    os.close(lowest_free)
    with limit(resource.RLIMIT_NOFILE, lowest_free), pytest.raises(StorageFull):
        storage.create("a", 100)
    storage.create("a", 100)


def test_files_of_the_journal_are_opened_when_connections_have_all_descriptors(
    storage: FileStorage,
) -> None:
    for name in ("a", "b", "c"):
        storage.create(name, 100)
    storage.write("a", 0, b"x")
    lowest_free = os.dup(0)
    os.close(lowest_free)
    with limit(resource.RLIMIT_NOFILE, lowest_free):
        storage.write("b", 0, b"y")
        storage.sync("b")
        assert storage.read("a", 0, 1) == b"x"
        assert storage.read("c", 0, 1) == b"\0"
        storage.write("c", 0, b"z")
        # The reserve is used up: now it is a failure after all.
        with pytest.raises(StorageFailed, match="Too many open files"):
            storage.read("b", 0, 1)
    storage.look()
    assert len(storage._reserved) == RESERVED_FILES


def test_a_listing_takes_a_descriptor_out_of_the_reserve(storage: FileStorage) -> None:
    storage.create("a", 100)
    lowest_free = os.dup(0)
    os.close(lowest_free)
    with limit(resource.RLIMIT_NOFILE, lowest_free):
        assert "a" in storage.names()


def test_bytes_written_from_another_thread_are_read_back(storage: FileStorage) -> None:
    storage.create("a", 100)
    storage.write("a", 0, b"x")
    storage.write_apart("a", 1, [b"y", b"", b"z"])
    storage.sync("a")
    assert storage.read("a", 0, 4) == b"xyz\0"


def test_a_directory_without_its_lock_file_still_has_one_user(
    storage: FileStorage, folder: Path
) -> None:
    (folder / "lock").unlink()
    with pytest.raises(StartRefused, match="in use by another server"):
        FileStorage(folder)
    with pytest.raises(StartRefused, match="in use by another server"):
        FileStorage(folder, is_read_only=True)
    storage.create("a", 10)


def test_a_lock_file_held_by_an_older_server_counts_too(folder: Path) -> None:
    folder.mkdir()
    with (folder / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(StartRefused, match="in use by another server"):
            FileStorage(folder)


def test_a_directory_that_was_removed_is_noticed(storage: FileStorage, folder: Path) -> None:
    storage.create("a", 10)
    storage.write("a", 0, b"x")
    storage.look()
    shutil.rmtree(folder)
    with pytest.raises(StorageFailed, match=f"{folder} was removed while the server"):
        storage.look()


def test_a_file_in_use_that_was_removed_is_noticed(storage: FileStorage, folder: Path) -> None:
    storage.create("a", 10)
    storage.create("b", 10)
    storage.write("a", 0, b"x")
    storage.unlink("b")
    storage.look()
    (folder / "a").unlink()
    with pytest.raises(StorageFailed, match="a was removed while the server"):
        storage.look()


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o702])
def test_a_directory_that_everybody_may_write_to_is_refused(folder: Path, mode: int) -> None:
    folder.mkdir()
    folder.chmod(mode)
    before = open_files()
    with pytest.raises(StartRefused, match=f"is writable by everyone .mode {mode:04o}.: chmod"):
        FileStorage(folder)
    assert open_files() == before
    assert list(folder.iterdir()) == []
    FileStorage(folder, is_read_only=True).close()
    folder.chmod(0o750)
    FileStorage(folder).close()


@pytest.mark.parametrize(("mode", "is_told"), [(0o700, False), (0o755, False), (0o770, True)])
def test_a_directory_that_its_group_may_write_to_is_reported(
    folder: Path, mode: int, *, is_told: bool
) -> None:
    folder.mkdir()
    folder.chmod(mode)
    with contextlib.closing(FileStorage(folder)) as storage:
        told = f"{folder} is writable by its group (mode {mode:04o}): chmod g-w {folder}"
        assert storage.warning() == (told if is_told else "")


def test_a_look_at_a_directory_changes_nothing_in_it(folder: Path) -> None:
    folder.mkdir()
    (folder / "a").write_bytes(b"text")
    with contextlib.closing(FileStorage(folder, is_read_only=True)) as storage:
        assert storage.read("a", 0, 9) == b"text"
    assert [path.name for path in folder.iterdir()] == ["a"]
    with pytest.raises(StartRefused, match="No such file"):
        FileStorage(folder / "below", is_read_only=True)
    assert [path.name for path in folder.iterdir()] == ["a"]


def test_a_sync_on_a_closed_descriptor_is_a_failure(storage: FileStorage) -> None:
    storage.create("a", 100)
    storage.write("a", 0, b"x")
    os.close(storage._written["a"])
    with pytest.raises(StorageFailed, match="sync a: Bad file descriptor"):
        storage.sync("a")
    del storage._written["a"]
