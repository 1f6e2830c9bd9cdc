import pytest

from tests.support.clients.glidemq import GlideClient
from tests.support.doors.glidemq import BareGlidemq
from tests.support.site.site import NOW_MS

ONE = "glide:{q}:jstream:1"
TWO = "glide:{q}:jstream:2"
BAD_ID = "ERR Invalid stream ID specified as stream command argument"


@pytest.fixture
def site() -> BareGlidemq:
    return BareGlidemq()


@pytest.fixture
def client(site: BareGlidemq) -> GlideClient:
    return site.connect()


def ids(entries: list[list[object]]) -> list[object]:
    return [entry[0] for entry in entries]


def test_ids_rise(site: BareGlidemq, client: GlideClient) -> None:
    first = f"{NOW_MS}-0".encode()
    assert client.ask("XADD", ONE, "*", "a", "1") == first
    assert client.ask("XADD", ONE, "*", "a", "1") == f"{NOW_MS}-1".encode()
    assert client.ask("XADD", ONE, f"{NOW_MS}-*", "a", "1") == f"{NOW_MS}-2".encode()
    assert client.refused("XADD", ONE, "5-5", "a", "1").startswith(
        "ERR The ID specified in XADD is"
    )
    assert client.refused("XADD", TWO, "0-0", "a", "1").endswith("must be greater than 0-0")
    for text in ("x", "-", "1-", "1-2-3", "1-x", "-1", "18446744073709551616"):
        assert client.refused("XADD", ONE, text, "a", "1") == BAD_ID
    assert client.refused("XADD", ONE, "*", "a").startswith("ERR wrong number of arguments")
    assert client.ask("XADD", TWO, "NOMKSTREAM", "*", "a", "1") is None
    site.tick(5)
    assert client.ask("XADD", ONE, "*", "a", "1") == f"{NOW_MS + 5}-0".encode()
    assert client.ask("XLEN", ONE) == 4


def test_ids_end(client: GlideClient) -> None:
    last = (1 << 64) - 1
    assert client.ask("XADD", ONE, f"5-{last}", "a", "1") == f"5-{last}".encode()
    assert client.refused("XADD", ONE, "5-*", "a", "1").startswith(
        "ERR The ID specified in XADD is"
    )
    assert client.ask("XADD", ONE, f"{last}-{last}", "a", "1") == f"{last}-{last}".encode()
    assert client.refused("XADD", ONE, "*", "a", "1").startswith("ERR ")
    assert client.ask("XREAD", "STREAMS", ONE, f"{last}-{last}") is None
    count = str((1 << 63) - 1)
    assert len(client.ask("XRANGE", ONE, "-", "+", "COUNT", count)) == 2


def test_ranges(client: GlideClient) -> None:
    for number in range(1, 6):
        client.ask("XADD", ONE, f"{number}-0", "n", number)
    assert client.ask("XRANGE", ONE, "2", "3") == [[b"2-0", [b"n", b"2"]], [b"3-0", [b"n", b"3"]]]
    assert ids(client.ask("XRANGE", ONE, "-", "+", "COUNT", "2")) == [b"1-0", b"2-0"]
    assert ids(client.ask("XRANGE", ONE, "(2-0", "+", "COUNT", "1")) == [b"3-0"]
    assert ids(client.ask("XRANGE", ONE, "4", "(5-0")) == [b"4-0"]
    assert ids(client.ask("XREVRANGE", ONE, "+", "-", "COUNT", "1")) == [b"5-0"]
    assert ids(client.ask("XREVRANGE", ONE, "4", "3")) == [b"4-0", b"3-0"]
    assert client.ask("XRANGE", ONE, "5", "2") == []
    assert client.ask("XRANGE", TWO, "-", "+") == []
    assert client.refused("XRANGE", ONE, "x", "+") == BAD_ID
    assert client.refused("XRANGE", ONE, "-", "+", "FLY", "1") == "ERR syntax error"


def test_trimming_and_deleting(client: GlideClient) -> None:
    for number in range(1, 8):
        client.ask("XADD", ONE, f"{number}-0", "n", number)
    assert client.ask("XDEL", ONE, "2-0", "9-9") == 1
    assert client.ask("XTRIM", ONE, "MAXLEN", "~", "5") == 1
    assert client.ask("XTRIM", ONE, "MINID", "=", "5-0") == 2
    assert ids(client.ask("XRANGE", ONE, "-", "+")) == [b"5-0", b"6-0", b"7-0"]
    assert client.ask("XADD", ONE, "MAXLEN", "~", "1", "LIMIT", "10", "8-0", "n", "8") == b"8-0"
    assert ids(client.ask("XRANGE", ONE, "-", "+")) == [b"8-0"]
    assert client.ask("XTRIM", ONE, "MAXLEN", "0") == 1
    assert client.ask("XLEN", ONE) == 0
    assert client.ask("EXISTS", ONE) == 1
    assert client.refused("XADD", ONE, "8-0", "n", "8").startswith("ERR The ID specified")
    assert client.ask("XINFO", "STREAM", ONE)[3] == b"8-0"
    assert client.ask("DEL", ONE) == 1


def test_reading_behind_an_id(client: GlideClient) -> None:
    client.ask("XADD", ONE, "1-0", "a", "1")
    client.ask("XADD", TWO, "2-0", "b", "2")
    assert client.ask("XREAD", "STREAMS", ONE, TWO, "0", "2-0") == [
        [ONE.encode(), [[b"1-0", [b"a", b"1"]]]]
    ]
    assert client.ask("XREAD", "COUNT", "1", "STREAMS", TWO, "+") == [
        [TWO.encode(), [[b"2-0", [b"b", b"2"]]]]
    ]
    assert client.ask("XREAD", "STREAMS", ONE, "$") is None
    assert client.refused("XREAD", "STREAMS", ONE, TWO, "0").startswith("ERR Unbalanced")
    assert client.refused("XREAD", "BLOCK", "-1", "STREAMS", ONE, "0") == "ERR timeout is negative"
    assert client.refused("XREAD", "FLY", "STREAMS", ONE, "0") == "ERR syntax error"
    client.speak(3)
    assert client.ask("XREAD", "STREAMS", ONE, "0") == {ONE.encode(): [[b"1-0", [b"a", b"1"]]]}


def test_a_reader_waits_for_the_next_entry(site: BareGlidemq, client: GlideClient) -> None:
    other = site.connect()
    client.ask("XADD", ONE, "1-0", "a", "1")
    client.send("XREAD", "BLOCK", "0", "STREAMS", ONE, TWO, "$", "$")
    client.send("PING")
    assert client.take_unread() == b""
    assert client.session.unread_size() > 0
    assert b"blocked_clients:1" in other.ask("INFO", "clients")
    other.ask("XADD", TWO, "5-0", "b", "2")
    assert client.hear() == [[[TWO.encode(), [[b"5-0", [b"b", b"2"]]]]], b"PONG"]
    assert site.yard.stored_values.readers == {}
    other.ask("XADD", TWO, "6-0", "b", "2")
    assert client.take_unread() == b""


def test_waiting_ends_with_its_time(site: BareGlidemq, client: GlideClient) -> None:
    client.send("XREAD", "BLOCK", "100", "STREAMS", ONE, "$")
    site.tick(99)
    assert client.take_unread() == b""
    site.tick(1)
    assert client.take_unread() == b"*-1\r\n"
    assert client.ask("PING") == b"PONG"
    assert site.yard.stored_values.readers == {}


def test_who_leaves_waits_no_more(site: BareGlidemq, client: GlideClient) -> None:
    client.send("XREAD", "BLOCK", "100", "STREAMS", ONE, "$")
    client.close()
    assert site.yard.stored_values.readers == {}
    site.tick(200)


def test_who_sends_no_more_is_answered(site: BareGlidemq, client: GlideClient) -> None:
    client.send("XREAD", "BLOCK", "0", "STREAMS", ONE, "$")
    client.session.end_input(site.now_ms)
    assert client.session.take_output() == b"*-1\r\n"
    assert client.session.is_finished


def test_nobody_waits_in_a_transaction(client: GlideClient) -> None:
    client.ask("MULTI")
    client.ask("XREAD", "BLOCK", "0", "STREAMS", ONE, "$")
    assert client.ask("EXEC") == [None]
