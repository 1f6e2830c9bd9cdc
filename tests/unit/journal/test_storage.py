import pytest

from jobyard.journal.storage import Storage
from tests.support.site.storage import MemoryStorage


def test_the_seam_itself_holds_nothing() -> None:
    storage = Storage()
    with pytest.raises(NotImplementedError):
        storage.names()
    with pytest.raises(NotImplementedError):
        storage.size("a")
    with pytest.raises(NotImplementedError):
        storage.read("a", 0, 1)
    with pytest.raises(NotImplementedError):
        storage.create("a", 1)
    with pytest.raises(NotImplementedError):
        storage.write("a", 0, b"")
    with pytest.raises(NotImplementedError):
        storage.sync("a")
    with pytest.raises(NotImplementedError):
        storage.truncate("a", 0)
    with pytest.raises(NotImplementedError):
        storage.rename("a", "b")
    with pytest.raises(NotImplementedError):
        storage.unlink("a")
    with pytest.raises(NotImplementedError):
        storage.sync_directory()


def test_the_directory_in_memory_loses_at_a_power_cut_what_was_not_synced() -> None:
    storage = MemoryStorage()
    storage.create("kept", 4)
    storage.sync_directory()
    storage.write("kept", 0, b"ab")
    storage.sync("kept")
    storage.write("kept", 2, b"cd")
    storage.create("unnamed", 1)
    assert storage.killed().read("kept", 0, 9) == b"abcd"
    assert storage.killed().size("unnamed") == 1
    assert storage.cut_off().read("kept", 0, 9) == b"ab\0\0"
    assert storage.cut_off().names() == ["kept"]
