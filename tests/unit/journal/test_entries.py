from jobyard.model.entry import EntryKind
from tests.support.site.recount import recount
from tests.support.site.storage import MemoryStorage
from tests.support.site.yard import OpenYard


def values_of(site: OpenYard) -> dict[bytes, bytes]:
    entries = site.journal.entries.values()
    return {entry.key: entry.value for entry in entries if not entry.is_gone}


def test_an_entry_is_its_newest_value_after_a_restart() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage)
    for value in (b"old", b"x" * 5000, b"new"):
        site.journal.set_entry(EntryKind.WEBHOOK, b"a", value)
    site.journal.set_entry(EntryKind.WEBHOOK, b"b", b"")
    site.journal.set_entry(EntryKind.WEBHOOK, b"c", b"c")
    site.journal.drop_entry(EntryKind.WEBHOOK, b"c")
    site.journal.drop_entry(EntryKind.WEBHOOK, b"never there")
    site.commit()
    again = OpenYard(storage.cut_off())
    for each in (site, again):
        assert values_of(each) == {b"a": b"new", b"b": b""}
        recount(each.yard)


def test_an_entry_that_was_dropped_never_comes_back_and_is_forgotten_in_the_end() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage, segment_size=8192)
    for boot in range(4):
        for number in range(40):
            key = b"%d" % (number % 10)
            if (number + boot) % 3:
                site.journal.set_entry(EntryKind.WEBHOOK, key, b"%d;" % boot * 200)
            else:
                site.journal.drop_entry(EntryKind.WEBHOOK, key)
            site.commit()
        wanted = values_of(site)
        site.compact()
        recount(site.yard)
        assert values_of(site) == wanted
        storage = storage.cut_off()
        site = OpenYard(storage, segment_size=8192)
        assert values_of(site) == wanted
        recount(site.yard)
    for key in list(wanted):
        site.journal.drop_entry(EntryKind.WEBHOOK, key)
    for _ in range(60):
        site.journal.set_entry(EntryKind.WEBHOOK, b"last", b"x" * 1000)
        site.commit()
    site.compact()
    assert values_of(site) == {b"last": b"x" * 1000}
    assert site.journal.entries.count < 10
