import pytest

from jobyard.errors import JournalDamaged
from jobyard.journal.format.newest_segment import NEWEST_FILE, SIZE, check_newest, note_newest
from jobyard.journal.format.segment import segment_name
from tests.support.site.storage import MemoryStorage
from tests.support.site.yard import OpenYard


def noted(number: int) -> MemoryStorage:
    storage = MemoryStorage()
    storage.create(segment_name(number), 10)
    note_newest(storage, number)
    return storage


def test_the_newest_segment_is_missed_when_it_is_not_there() -> None:
    storage = noted(7)
    check_newest(storage)
    storage.unlink(segment_name(7))
    with pytest.raises(JournalDamaged) as damage:
        check_newest(storage)
    assert damage.value.name == segment_name(7)


def test_the_note_is_on_disk_when_it_is_made() -> None:
    storage = noted(7)
    storage.create(segment_name(8), 10)
    note_newest(storage, 8)
    after = storage.cut_off()
    with pytest.raises(JournalDamaged) as damage:
        check_newest(after)
    assert damage.value.name == segment_name(8)


def test_a_directory_without_a_note_misses_nothing() -> None:
    check_newest(MemoryStorage())


@pytest.mark.parametrize("offset", range(16))
def test_a_damaged_note_says_nothing(offset: int) -> None:
    storage = noted(7)
    storage.unlink(segment_name(7))
    storage.flip(NEWEST_FILE, offset, 3)
    check_newest(storage)
    storage.truncate(NEWEST_FILE, offset)
    check_newest(storage)


@pytest.mark.parametrize("offset", range(16, SIZE))
def test_a_note_whose_second_half_is_damaged_tells_of_the_segment_alone(offset: int) -> None:
    storage = noted(7)
    note_newest(storage, 7, 1234)
    assert check_newest(storage) == 1234
    assert check_newest(storage.cut_off()) == 1234
    storage.flip(NEWEST_FILE, offset, 3)
    assert check_newest(storage) == 0
    storage.truncate(NEWEST_FILE, offset)
    assert check_newest(storage) == 0
    storage.unlink(segment_name(7))
    with pytest.raises(JournalDamaged, match=segment_name(7)):
        check_newest(storage)


def test_a_note_of_an_older_version_grows() -> None:
    storage = noted(7)
    storage.truncate(NEWEST_FILE, 16)
    note_newest(storage, 7, 5)
    assert check_newest(storage.cut_off()) == 5


def test_a_disk_too_full_for_the_note_is_served_without_it() -> None:
    storage = MemoryStorage()
    storage.capacity = 0
    note_newest(storage, 3)
    assert storage.names() == []
    check_newest(storage)


def test_every_boot_and_every_roll_notes_its_segment() -> None:
    storage = MemoryStorage()
    for _ in range(2):
        site = OpenYard(storage, segment_size=8192)
        first = site.journal.hot
        while site.journal.hot is first:
            site.put(b"x" * 1000)
        site.commit()
        storage.rename(site.journal.hot.name, "away")
        with pytest.raises(JournalDamaged) as damage:
            check_newest(storage)
        assert damage.value.name == site.journal.hot.name
        storage.rename("away", site.journal.hot.name)
