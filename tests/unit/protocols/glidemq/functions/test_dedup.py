"""Deduplication entries are forgotten over turns, whatever they contain."""

from jobyard.protocols.glidemq.functions.dedup import DEDUP_AGE_MS, DEDUP_FEW
from tests.support.clients.library import Library
from tests.support.doors.glidemq import BareGlidemq
from tests.support.site.storage import MemoryStorage

UNITS = 200


def test_old_notes_are_forgotten_a_few_a_turn() -> None:
    library = Library(BareGlidemq(MemoryStorage()))
    site = library.site
    kept = library.dedup("kept", "simple").decode()
    old = library.ts() - DEDUP_AGE_MS - 1
    notes = {f"old{at}": f"gone{at}:{old}" for at in range(int(DEDUP_FEW))}
    notes |= {"runs": f"{kept}:{old}", "odd": "1:" + "9" * 5000, "none": "1"}
    flat = [word for note in notes.items() for word in note]
    library.client.ask("HSET", library.key("dedup"), *flat)
    site.is_slow = True
    site.yard.tasks.units_per_turn = UNITS
    site.slice()
    assert library.dedup("new", "simple") not in (b"skipped", None)
    turns = 0
    left = len(notes) + 2
    while site.slice():
        now = library.client.ask("HLEN", library.key("dedup"))
        assert left - now <= UNITS
        left = now
        turns += 1
    assert turns > 5
    assert sorted(library.client.ask("HKEYS", library.key("dedup"))) == [
        b"kept", b"new", b"none", b"odd", b"runs",
    ]  # fmt: skip
    assert site.door.dedup_marks == {library.key("dedup").encode(): 2 * 5 + DEDUP_FEW}


def test_a_note_with_an_odd_time_throttles_nothing() -> None:
    library = Library(BareGlidemq())
    library.client.ask("HSET", library.key("dedup"), "d", "1:" + "9" * 5000)
    assert library.dedup("d", "throttle", 1000) == b"1"


def test_a_hash_that_goes_meanwhile_ends_the_search() -> None:
    library = Library(BareGlidemq(MemoryStorage()))
    flat = [word for at in range(int(DEDUP_FEW)) for word in (f"d{at}", "gone:1")]
    library.client.ask("HSET", library.key("dedup"), *flat)
    library.site.is_slow = True
    library.site.yard.tasks.units_per_turn = UNITS
    library.site.slice()
    library.dedup("new", "simple")
    assert library.site.slice()
    library.client.ask("DEL", library.key("dedup"))
    while library.site.slice():
        pass
    assert library.site.door.dedup_marks == {}
