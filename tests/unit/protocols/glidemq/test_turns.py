"""Commands that were sent together: those that take long together are run over several turns."""

import pytest

from jobyard.protocols.glidemq.call import COMMAND_NS
from jobyard.protocols.glidemq.door import TURN_NS
from jobyard.protocols.glidemq.session import GlidemqSession
from jobyard.protocols.session import OUTPUT_MAX, Peer
from tests.support.clients.glidemq import GlideClient
from tests.support.clients.library import Library
from tests.support.clients.resp import pack
from tests.support.doors.glidemq import BareGlidemq
from tests.support.site.storage import MemoryStorage

# Enough for 50 small commands of one connection.
UNITS = 50 * COMMAND_NS // TURN_NS


@pytest.fixture
def site() -> BareGlidemq:
    site = BareGlidemq(MemoryStorage())
    site.is_slow = True
    site.yard.tasks.units_per_turn = UNITS
    site.slice()
    return site


def session_of(client: GlideClient) -> GlidemqSession:
    session = client.session
    assert isinstance(session, GlidemqSession)
    return session


def test_a_pipeline_continues_in_later_turns_without_more_input(site: BareGlidemq) -> None:
    client = site.connect()
    client.feed(b"".join(pack("ECHO", str(at)) for at in range(500)))
    assert session_of(client).is_at_work()
    first = client.hear()
    assert 20 <= len(first) <= 60
    told, turns = first, 0
    while session_of(client).is_at_work():
        site.slice()
        some = client.hear()
        assert len(some) <= 60
        told += some
        turns += 1
    assert [int(one) for one in told] == list(range(500))
    assert 10 <= turns <= 60
    assert site.yard.tasks.count() == 0


def test_another_connection_is_served_in_between(site: BareGlidemq) -> None:
    client, other = site.connect(), site.connect()
    client.feed(pack("ECHO", "x") * 500)
    for _ in range(5):
        site.slice()
        assert session_of(client).is_at_work()
        assert other.ask("PING") == b"PONG"


def test_what_a_connection_took_leaves_less_for_others_of_the_turn(site: BareGlidemq) -> None:
    client, other = site.connect(), site.connect()
    client.feed(pack("ECHO", "x") * 500)
    other.feed(pack("ECHO", "x") * 500)
    assert 0 < 2 * len(other.hear()) < len(client.hear())


def test_a_few_commands_are_run_at_once_whatever_others_do(site: BareGlidemq) -> None:
    for _ in range(3):
        busy = site.connect()
        busy.feed(pack("ECHO", "x") * 500)
    client = site.connect()
    client.feed(pack("ECHO", "x") * 8)
    assert len(client.hear()) == 8
    assert not session_of(client).is_at_work()


def test_work_in_tasks_counts(site: BareGlidemq) -> None:
    library = Library(site)
    library.client.feed(pack("SCAN", "0", "COUNT", "1000") * 100)
    assert len(library.client.hear()) < 40
    turns = 0
    while session_of(library.client).is_at_work():
        site.slice()
        turns += 1
    assert len(library.client.hear()) > 60
    assert turns > 3


def test_a_transaction_that_takes_long_begins_a_turn_of_its_own() -> None:
    site = BareGlidemq(MemoryStorage())
    site.is_slow = True
    client = site.connect()
    client.feed(b"PING\r\nMULTI\r\n" + b"PING\r\n" * 200 + b"EXEC\r\nPING\r\n")
    assert session_of(client).is_at_work()
    assert client.take_unread().endswith(b"+QUEUED\r\n")
    # What it buffers counts as held.
    assert client.session.held_size() > 0
    assert client.session.unread_size() > 0
    while session_of(client).is_at_work():
        site.slice()
    assert client.take_unread() == b"*200\r\n" + b"+PONG\r\n" * 201
    # A short one does not.
    client.feed(b"PING\r\nMULTI\r\nPING\r\nEXEC\r\n")
    assert client.take_unread() == b"+PONG\r\n+OK\r\n+QUEUED\r\n*1\r\n+PONG\r\n"


def test_a_command_of_many_arguments_begins_a_turn_of_its_own(site: BareGlidemq) -> None:
    client = site.connect()
    fields = [str(at) for at in range(1000)]
    client.feed(pack("PING") + pack("HSET", "glide:{q}:rate", *fields) + pack("PING"))
    assert client.hear() == [b"PONG"]
    while session_of(client).is_at_work():
        site.slice()
    assert client.hear() == [500, b"PONG"]


class Unread(Peer):
    """A peer that reads nothing."""

    def unsent_size(self) -> int:
        return OUTPUT_MAX + 1


def test_nothing_is_run_for_a_peer_that_does_not_read(site: BareGlidemq) -> None:
    client = site.connect()
    client.feed(pack("ECHO", "x") * 200)
    client.hear()
    peer = client.session.peer
    client.session.peer = Unread()
    for _ in range(3):
        site.slice()
        client.resume()
    assert (client.hear(), client.session.is_stalled) == ([], True)
    client.session.peer = peer
    client.resume()
    assert not client.session.is_stalled
    assert len(client.hear()) > 10


def test_input_that_ends_is_answered_to_its_end(site: BareGlidemq) -> None:
    client = site.connect()
    client.feed(pack("ECHO", "x") * 200)
    client.session.end_input(site.now_ms)
    assert not client.session.is_finished
    while session_of(client).is_at_work():
        site.slice()
    assert len(client.hear()) == 200
    assert client.session.is_finished


def test_a_stranger_is_refused_each_of_many_commands() -> None:
    site = BareGlidemq(MemoryStorage(), password=b"secret")
    site.is_slow = True
    client = site.connect()
    client.feed(b"DBSIZE\r\n" * 4000)
    assert session_of(client).is_at_work()
    while session_of(client).is_at_work():
        site.slice()
    assert client.take_unread().count(b"-NOAUTH") == 4000
    assert not client.session.is_finished


def test_who_leaves_while_it_waits_for_its_turn_is_forgotten(site: BareGlidemq) -> None:
    client = site.connect()
    client.feed(pack("ECHO", "x") * 200)
    client.close()
    while site.slice():
        pass
    assert site.yard.tasks.count() == 0
    assert len(client.hear()) < 100


def test_jobs_that_are_handed_over_count(site: BareGlidemq) -> None:
    library = Library(site)
    for _ in range(300):
        library.add()
    words = ["XREADGROUP", "GROUP", "workers", "w", "COUNT", "20", "STREAMS", library.key("stream")]
    library.client.feed(pack(*words, ">") * 15)
    assert session_of(library.client).is_at_work()
    heard = len(library.client.hear())
    assert heard < 12
    while session_of(library.client).is_at_work():
        site.slice()
    assert heard + len(library.client.hear()) == 15


def test_many_connections_are_told_of_over_turns(site: BareGlidemq) -> None:
    client = site.connect()
    others = [site.connect() for _ in range(200)]
    client.send("CLIENT", "LIST")
    assert session_of(client).is_at_work()
    others.pop().close()
    while session_of(client).is_at_work():
        site.slice()
    [told] = client.hear()
    assert told.count(b"\n") == 200
