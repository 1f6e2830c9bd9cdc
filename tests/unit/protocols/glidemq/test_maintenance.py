"""What the server does for queues whose workers are idle or gone."""

import pytest

from tests.support.clients.glidemq import GlideClient
from tests.support.clients.library import Library
from tests.support.doors.glidemq import BareGlidemq


@pytest.fixture
def library() -> Library:
    return Library(BareGlidemq())


def read(library: Library, client: GlideClient, consumer: str) -> list[str]:
    """Take a job through a connection of its own; return its id."""
    answer = client.ask(
        "XREADGROUP", "GROUP", "workers", consumer, "COUNT", 1,
        "STREAMS", library.key("stream"), ">",
    )  # fmt: skip
    return [] if answer is None else [fields[1].decode() for _, fields in answer[0][1]]


def test_a_job_is_given_back_whose_worker_is_gone_though_others_read(library: Library) -> None:
    site = library.site
    for _ in range(2):
        library.add()
    gone, stays = site.connect(), site.connect()
    assert read(library, gone, "gone") == ["1"]
    assert read(library, stays, "stays") == ["2"]
    gone.close()
    site.tick(59_000)
    assert (library.state("1"), library.state("2")) == ("active", "active")
    site.tick(2_000)
    assert (library.state("1"), library.state("2")) == ("waiting", "active")
    assert read(library, stays, "stays") == ["1"]
    site.tick(120_000)
    # It is slow, but there.
    assert library.state("2") == "active"


def test_a_worker_that_comes_back_keeps_its_jobs(library: Library) -> None:
    site = library.site
    library.add()
    first = site.connect()
    assert read(library, first, "w") == ["1"]
    first.close()
    site.tick(30_000)
    assert read(library, site.connect(), "w") == []
    site.tick(120_000)
    assert library.state("1") == "active"


def test_a_job_says_how_long_its_worker_may_be_silent(library: Library) -> None:
    site = library.site
    library.add(opts='{"lockDuration":2000}')
    worker = site.connect()
    assert read(library, worker, "w") == ["1"]
    worker.close()
    site.tick(3_000)
    assert library.state("1") == "active"
    library.client.ask("HSET", library.key("job:1"), "lastActive", library.ts())
    site.tick(3_000)
    assert library.state("1") == "active"
    site.tick(2_000)
    assert library.state("1") == "waiting"


def test_jobs_of_lists_are_given_back_when_nobody_reads_any_more(library: Library) -> None:
    site = library.site
    library.add(priority=1)
    library.promote()
    worker = site.connect()
    assert read(library, worker, "w") == []
    assert library.call("popLists", ["priority", "lifo"], 1) == [b"1"]
    site.tick(70_000)
    assert library.state("1") == "active"
    worker.close()
    site.tick(70_000)
    assert library.state("1") == "waiting"


def test_what_nobody_promotes_goes_to_the_stream_in_slices(library: Library) -> None:
    for _ in range(1500):
        library.add(priority=3)
    library.client.ask("XGROUP", "CREATE", library.key("stream"), "workers", "0", "MKSTREAM")
    library.site.tick(4_000)
    assert library.client.ask("XLEN", library.key("stream")) == 0
    library.site.tick(1_100)
    assert library.client.ask("XLEN", library.key("stream")) == 1000
    library.site.tick(1_000)
    assert library.client.ask("XLEN", library.key("stream")) == 1500
    assert [one for one, _ in library.read(count=2)] == ["1", "2"]
