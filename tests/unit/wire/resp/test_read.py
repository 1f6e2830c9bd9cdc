import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jobyard.wire.resp.read import (
    LIMITS,
    STRANGER_LIMITS,
    BadResp,
    Command,
    RespLimits,
    RespReader,
    of_arguments,
    parse_integer,
    split_inline,
)
from tests.support.clients.resp import pack

# redis-py splits the first argument at its spaces.
ARGUMENTS = st.lists(st.binary(max_size=20), max_size=6).map(lambda rest: [b"SET", *rest])


def words(command: Command) -> list[bytes]:
    return [command.arg(at) for at in range(command.count())]


def read(*pieces: bytes, limits: RespLimits = LIMITS) -> list[list[bytes]]:
    reader = RespReader(limits)
    commands = []
    for piece in pieces:
        reader.feed(piece)
        while (command := reader.next()) is not None:
            commands.append(words(command))
    return commands


def refusal(data: bytes, limits: RespLimits = LIMITS) -> str:
    with pytest.raises(BadResp) as caught:
        read(data, limits=limits)
    return str(caught.value)


@given(st.lists(ARGUMENTS, max_size=5), st.lists(st.integers(0, 200), max_size=12))
def test_any_split_of_the_bytes_gives_the_same_commands(
    commands: list[list[bytes]], cuts: list[int]
) -> None:
    data = b"".join(pack(*command) for command in commands)
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    pieces = [data[a:b] for a, b in pairwise(places)]
    assert read(*pieces) == commands
    assert read(*(data[at : at + 1] for at in range(len(data)))) == commands


@given(st.binary(max_size=60), st.integers(0, 60))
@example(b"*1\r\n$1\r\nx\r\n\r\n*0\r\nPING\r\n", 9)
@example(b'*2\r\n$-1\r\n"', 4)
def test_any_bytes_are_read_alike_in_one_piece_and_in_two(data: bytes, cut: int) -> None:
    assert outcome(data) == outcome(data[:cut], data[cut:])


def outcome(*pieces: bytes) -> tuple[list[list[bytes]], str]:
    reader = RespReader(LIMITS)
    commands: list[list[bytes]] = []
    try:
        for piece in pieces:
            reader.feed(piece)
            while (command := reader.next()) is not None:
                commands.append(words(command))
    except BadResp as error:
        return commands, str(error)
    return commands, ""


def test_a_command_before_a_bad_one_is_given_out_first() -> None:
    reader = RespReader(LIMITS)
    reader.feed(pack("PING") + b"*1\r\n:1\r\n")
    assert reader.next() is not None
    with pytest.raises(BadResp):
        reader.next()


def test_unread_bytes_are_those_of_commands_not_given_out() -> None:
    reader = RespReader(LIMITS)
    reader.feed(pack("PING") * 3 + b"*1")
    assert reader.next() is not None
    assert reader.unread_size() == 2 * len(pack("PING")) + 2


@pytest.mark.parametrize("nothing", [b"*0\r\n", b"*-1\r\n", b"\r\n", b"  \n"])
def test_a_request_for_nothing_is_passed_over(nothing: bytes) -> None:
    assert read(nothing + pack("PING")) == [[b"PING"]]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"*2147483647\r\n", "invalid multibulk length"),
        (b"*100001\r\n", "invalid multibulk length"),
        (b"*9223372036854775807\r\n", "invalid multibulk length"),
        (b"*-2\r\n", "invalid multibulk length"),
        (b"*01\r\n", "invalid multibulk length"),
        (b"*+1\r\n", "invalid multibulk length"),
        (b"*\r\n", "invalid multibulk length"),
        (b"*1\n", "invalid multibulk length"),
        (b"*1\rx", "invalid multibulk length"),
        (b"*" + b"9" * 40, "invalid multibulk length"),
        (b"*" + b"0" * 40, "invalid multibulk length"),
        (b"*1\r\n$9223372036854775807\r\n", "invalid bulk length"),
        (b"*1\r\n$67108865\r\n", "invalid bulk length"),
        (b"*1\r\n$-1\r\n", "invalid bulk length"),
        (b"*1\r\n$x\r\n", "invalid bulk length"),
        (b"*1\r\n:1\r\n", "expected '$', got ':'"),
        (b"*1\r\n\n", r"expected '$', got '\x0a'"),
        (b"*1\r\n$1\r\nxyz", "expected CRLF after an argument"),
        (b'SET "a', ""),
        (b'SET "a\r\n', "unbalanced quotes in request"),
        (b'SET "a"b\r\n', "unbalanced quotes in request"),
        (b"SET 'a\r\n", "unbalanced quotes in request"),
        (b"x" * 65537, "too big inline request"),
        (b"x" * 65537 + b"\n", "too big inline request"),
    ],
)
def test_what_is_no_request_is_refused(data: bytes, why: str) -> None:
    assert outcome(data)[1] == why


def test_a_stranger_may_ask_less() -> None:
    assert refusal(b"*11\r\n", STRANGER_LIMITS) == "unauthenticated multibulk length"
    assert refusal(b"*1\r\n$16385\r\n", STRANGER_LIMITS) == "unauthenticated bulk length"
    assert read(pack("AUTH", "x" * 16384), limits=STRANGER_LIMITS) == [[b"AUTH", b"x" * 16384]]


def test_all_arguments_together_are_limited() -> None:
    limits = RespLimits(100, 50, 100, 100)
    assert read(pack(b"x" * 50), limits=limits)
    assert refusal(pack(b"x" * 50, b"x" * 50), limits) == "invalid bulk length"


def test_a_length_takes_no_memory_before_its_bytes_are_there() -> None:
    heads = [b"*100000\r\n", b"*1\r\n$67108864\r\n", b"*1000\r\n" + b"$67108864\r\n"]
    tracemalloc.start()
    try:
        readers = []
        for head in heads:
            reader = RespReader(LIMITS)
            reader.feed(head)
            assert reader.next() is None
            readers.append(reader)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64 << 10


def test_a_long_argument_in_small_pieces_is_joined_once() -> None:
    data = pack("SET", "k", b"v" * (1 << 20))
    reader = RespReader(LIMITS)
    for at in range(0, len(data), 1000):
        assert reader.next() is None
        reader.feed(data[at : at + 1000])
    command = reader.next()
    assert command is not None
    assert command.size(2) == 1 << 20
    assert reader.unread_size() == 0


def test_a_long_argument_in_crumbs_takes_little_more_than_its_size() -> None:
    data = pack("SET", "k", b"v" * 200_000)
    reader = RespReader(LIMITS)
    tracemalloc.start()
    try:
        for at in range(0, 200_000, 2):
            reader.feed(data[at : at + 2])
            assert reader.next() is None
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 * len(data)
    reader.feed(data[200_000:])
    command = reader.next()
    assert command is not None
    assert command.arg(2) == b"v" * 200_000


def test_many_arguments_arrive_in_pieces() -> None:
    arguments = [str(n).encode() for n in range(20_000)]
    data = pack(*arguments)
    pieces = [data[at : at + 777] for at in range(0, len(data), 777)]
    assert read(*pieces) == [arguments]


def test_arguments_are_read_as_asked() -> None:
    command = of_arguments([b"fCall", b"-7", b"\xff", b"7 ", b"FCALL_RO"])
    assert command.is_word(0, b"FCALL")
    assert not command.is_word(4, b"FCALL")
    assert not command.is_word(1, b"FC")
    assert command.word(0) == b"FCALL"
    assert command.integer(1) == -7
    assert command.integer(3) is None
    assert command.text(2).encode("utf-8", "surrogateescape") == b"\xff"


@given(st.integers(-(1 << 64), 1 << 64))
@example(1 << 63)
@example((1 << 63) - 1)
@example(-(1 << 63))
@example(-(1 << 63) - 1)
def test_a_number_has_64_bits(number: int) -> None:
    expected = number if -(1 << 63) <= number < 1 << 63 else None
    assert parse_integer(str(number).encode()) == expected


@pytest.mark.parametrize(
    "text", ["", "-", "+1", " 1", "1 ", "01", "-0", "0x1", "1_0", "1.0", "--1"]
)
def test_other_text_is_no_number(text: str) -> None:
    assert parse_integer(text.encode()) is None


@pytest.mark.parametrize(
    ("line", "arguments"),
    [
        (b"", []),
        (b"PING", [b"PING"]),
        (b"  set  a\tb ", [b"set", b"a", b"b"]),
        (b'echo "a b"', [b"echo", b"a b"]),
        (b'echo "\\x41\\n\\"\\q\\xg0"', [b"echo", b'A\n"qxg0']),
        (b"echo 'a\\'b\\n'", [b"echo", b"a'b\\n"]),
        (b'echo ""', [b"echo", b""]),
        (b'pre"fix"', [b"prefix"]),
    ],
)
def test_inline_commands_have_words_and_quotes(line: bytes, arguments: list[bytes]) -> None:
    assert split_inline(line) == arguments


@pytest.mark.parametrize("piece", [1000, 16_384, 100_000])
def test_arguments_of_a_long_command_that_were_set_aside_come_in_their_order(piece: int) -> None:
    command = [b"HSET", *(b"%d" % at * (1000 + at) for at in range(100))]
    data = pack(*command) + pack("PING") + pack(*command[:40])
    pieces = [data[at : at + piece] for at in range(0, len(data), piece)]
    assert read(*pieces) == [command, [b"PING"], command[:40]]


def test_what_was_set_aside_counts_for_the_length_of_a_command() -> None:
    limits = RespLimits(100, 30_000, 50_000, 100)
    reader = RespReader(limits)
    reader.feed(b"*3\r\n$20000\r\n" + b"x" * 20_000 + b"\r\n$5\r\n")
    assert reader.next() is None
    assert reader.unread_size() == 20_018
    reader.feed(b"hello\r\n$29999\r\n")
    with pytest.raises(BadResp, match="invalid bulk length"):
        reader.next()
