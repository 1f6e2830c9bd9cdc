"""`list-tubes` with very many tubes: in slices, whole, and in the order in which they came."""

from jobyard.engine.jobs.queues import open_queue
from jobyard.protocols.session import OUTPUT_MAX
from tests.support.site.yard import OpenYard

TUBES = 3000


def many_tubes(count: int = TUBES) -> tuple[OpenYard, list[bytes]]:
    site = OpenYard()
    names = ["default", *(f"tube-{at}-{'x' * 180}" for at in range(count))]
    for name in names[1:]:
        open_queue(site.yard, name)
    return site, [name.encode() for name in names]


def finish(site: OpenYard) -> int:
    """Run long work to its end; return the number of turns."""
    turns = 1
    while site.yard.tasks.proceed(site.now_ms):
        turns += 1
    return turns


def test_very_many_tubes_are_listed_in_slices_and_whole() -> None:
    site, names = many_tubes(12_000)
    client, other = site.connect(), site.connect()
    assert client.say(b"list-tubes\r\nlist-tube-used\r\n") == b""
    assert other.say(b"list-tube-used\r\n") == b"USING default\r\n"
    assert finish(site) > 3
    assert client.session.has_long()
    pieces = client.session.take_pieces()
    assert max(map(len, pieces)) < 2 * OUTPUT_MAX
    head, _, rest = b"".join(pieces).partition(b"\r\n")
    assert head == b"OK %d" % (len(rest) - 2)
    assert rest == b"---\n" + b"".join(b"- %b\n" % name for name in names) + b"\r\n"
    client.session.resume(site.now_ms)
    assert client.hear() == b"USING default\r\n", "what came behind it waits for it"


def test_tubes_that_go_meanwhile_are_not_listed() -> None:
    site, names = many_tubes()
    site.yard.tasks.units_per_turn = 100
    site.yard.tasks.proceed(site.now_ms)
    client = site.connect()
    assert client.say(b"list-tubes\r\n") == b""
    del site.yard.queues[names[-1].decode()]
    finish(site)
    assert client.hear().count(b"\n- ") == len(names) - 1


def test_who_leaves_meanwhile_costs_nothing_more() -> None:
    site, _ = many_tubes()
    client = site.connect()
    client.say(b"list-tubes\r\n")
    assert site.yard.tasks.count() == 1
    client.leave()
    assert site.yard.tasks.count() == 0
