from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from jobyard.protocols.glidemq.call import ARGUMENT_NS, COMMAND_NS
from jobyard.protocols.glidemq.session import QUEUED_NS_MAX
from tests.support.clients.resp import pack
from tests.support.doors.glidemq import BareGlidemq

KEYS = ("glide:{q}:tpm:1", "glide:{q}:budget:1", "glide:{q}:signals:1", "glide:{q}:jstream:1", "x")
WORDS = st.sampled_from([*KEYS, "a", "1", "-1", "*", "0", "NX", "COUNT", "STREAMS", "-", "+", "EX"])
NAMES = st.sampled_from(
    [
        "GET",
        "SET",
        "INCR",
        "HSET",
        "HGETALL",
        "HDEL",
        "RPUSH",
        "LPOP",
        "LRANGE",
        "XADD",
        "XLEN",
        "XRANGE",
        "XREAD",
        "DEL",
        "EXPIRE",
        "SCAN",
        "MULTI",
        "EXEC",
        "DISCARD",
        "PING",
        "HELLO",
        "FCALL",
        "NONSENSE",
        "TYPE",
    ]
)
COMMANDS = st.lists(
    st.tuples(NAMES, st.lists(WORDS, max_size=4)).map(lambda one: pack(one[0], *one[1])),
    max_size=25,
)


@settings(max_examples=60, deadline=None)
@given(COMMANDS, st.lists(st.integers(0, 1500), max_size=6))
def test_any_split_of_the_input_gives_the_same_output(
    commands: list[bytes], cuts: list[int]
) -> None:
    data = b"".join(commands)
    whole = BareGlidemq().connect()
    whole.feed(data)
    parts = BareGlidemq().connect()
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    for start, end in pairwise(places):
        parts.feed(data[start:end])
    assert parts.take_unread() == whole.take_unread()


@settings(max_examples=60, deadline=None)
@given(COMMANDS)
def test_every_command_is_answered_once(commands: list[bytes]) -> None:
    client = BareGlidemq().connect()
    for command in commands:
        client.feed(command)
        assert client.take_unread(), command


@given(st.binary(max_size=200))
def test_any_bytes_leave_the_door_open_for_others(data: bytes) -> None:
    site = BareGlidemq()
    site.connect().feed(data)
    assert site.connect().ask("PING") == b"PONG"


def test_a_reader_waits_for_a_stream_that_is_created_again() -> None:
    site = BareGlidemq()
    reader, other = site.connect(), site.connect()
    reader.send("XREAD", "BLOCK", "1000", "STREAMS", "glide:{q}:jstream:1", "0")
    other.ask("XADD", "glide:{q}:jstream:1", "1-0", "a", "b")
    assert len(reader.hear()) == 1
    reader.send("XREAD", "BLOCK", "1000", "STREAMS", "glide:{q}:jstream:1", "$")
    other.ask("DEL", "glide:{q}:jstream:1")
    other.ask("XADD", "glide:{q}:jstream:1", "1-1", "a", "b")
    assert len(reader.hear()) == 1


def test_a_transaction_has_bounds() -> None:
    client = BareGlidemq().connect()
    client.ask("MULTI")
    most = QUEUED_NS_MAX // (COMMAND_NS + ARGUMENT_NS)
    client.feed(b"PING\r\n" * most)
    assert client.take_unread() == b"+QUEUED\r\n" * most
    assert client.refused("PING").startswith("ERR transaction too large")
    assert client.refused("EXEC").startswith("EXECABORT")
    assert client.ask("PING") == b"PONG"
    # A few commands with many arguments are as long, and nothing of them is done.
    client.ask("MULTI")
    fields = [str(at) for at in range(3000)]
    assert client.ask("HSET", "glide:{q}:rate", *fields) == b"QUEUED"
    assert client.ask("HSET", "glide:{q}:rate", *fields) == b"QUEUED"
    assert client.refused("DEL", *[f"glide:{{q}}:w:{at}" for at in fields]).startswith("ERR trans")
    assert client.refused("EXEC").startswith("EXECABORT")
    assert client.ask("EXISTS", "glide:{q}:rate") == 0
