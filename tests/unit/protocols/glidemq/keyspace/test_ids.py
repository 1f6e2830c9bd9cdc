"""Generated job ids: each is issued once, whatever happens to jobs and server."""

from tests.support.clients.library import Library
from tests.support.doors.glidemq import BareGlidemq
from tests.support.site.storage import MemoryStorage

REMOVED = ("true", 0, 0)


def run_one(library: Library) -> str:
    """Add a job, run it, and remove it; return its id."""
    library.add()
    [(job_id, entry)] = library.read()
    library.complete(job_id, entry, keep=REMOVED)
    return job_id


def test_ids_go_on_when_the_queue_is_empty() -> None:
    library = Library(BareGlidemq())
    assert [run_one(library) for _ in range(3)] == ["1", "2", "3"]
    assert library.client.ask("GET", library.key("id")) == b"3"


def test_ids_go_on_after_a_restart_of_an_empty_queue() -> None:
    library = Library(BareGlidemq(MemoryStorage()))
    run_one(library)
    run_one(library)
    again = Library(library.site.reboot())
    assert run_one(again) == "3"
    assert run_one(Library(again.site.reboot())) == "4"


def test_ids_go_on_after_their_segments_are_gone() -> None:
    library = Library(BareGlidemq(MemoryStorage(), segment_size=1 << 14))
    for _ in range(400):
        run_one(library)
    assert run_one(Library(library.site.reboot())) == "401"


def test_a_deleted_counter_starts_over_once_the_queue_is_empty() -> None:
    library = Library(BareGlidemq(MemoryStorage()))
    run_one(library)
    assert library.client.ask("DEL", library.key("id")) == 1
    assert library.client.ask("EXISTS", library.key("id")) == 0
    again = Library(library.site.reboot())
    assert run_one(again) == "1"


def test_a_refused_job_does_not_keep_the_queue() -> None:
    site = BareGlidemq()
    library = Library(site)
    assert library.add(key="k", capacity=1, refill=1, cost=5) == b"ERR:COST_EXCEEDS_CAPACITY"
    assert "tasks" not in site.yard.queues


def put_hash(library: Library, *ids: object) -> None:
    for each in ids:
        library.client.ask("HSET", library.key(f"job:{each}"), "data", "old")


def test_an_id_that_a_hash_without_a_job_has_is_stepped_over() -> None:
    library = Library(BareGlidemq(MemoryStorage()))
    put_hash(library, 1, 3)
    assert library.add() == b"2"
    assert library.add() == b"4"
    assert library.add(custom="3") == b"duplicate"
    assert library.job("1") == {"data": "old"}
    library = Library(library.site.reboot())
    put_hash(library, 5, 7)
    assert library.dedup("d", "simple") == b"6"
    keys = library.keys("id", "stream", "scheduled", "events") * 2
    child = ["child", "{}", "{}", 0, 0, 0, library.p, library.name, ""]
    given: list[object] = ["parent", "{}", "{}", library.ts(), 0, 0, 0, 1, "", *child]
    answer = library.client.ask("FCALL", "glidemq_addFlow", len(keys), *keys, *given)
    assert answer == b'["8","9"]'


def test_a_hash_that_is_made_and_dropped_between_adds_alike() -> None:
    library = Library(BareGlidemq())
    assert [library.add() for _ in range(3)] == [b"1", b"2", b"3"]
    put_hash(library, 4, 6)
    assert library.add() == b"5"
    library.client.ask("DEL", library.key("job:6"))
    assert library.add() == b"6"
    assert library.job("4") == {"data": "old"}


def test_ids_are_exhausted_after_a_thousand_tries() -> None:
    library = Library(BareGlidemq())
    put_hash(library, *range(1, 1001))
    assert library.add() == b"ERR:ID_EXHAUSTED"
    assert library.dedup("d", "simple") == b"ERR:ID_EXHAUSTED"
    assert "tasks" not in library.site.yard.queues
    library.client.ask("DEL", library.key("job:1000"))
    assert library.add() == b"1000"
