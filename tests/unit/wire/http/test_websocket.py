from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wsproto.frame_protocol import CloseReason, FrameProtocol, ParseFailed
from wsproto.utilities import generate_accept_token

from jobyard.wire.http.request import BadHttp
from jobyard.wire.http.websocket import (
    CLOSE_NO_CODE,
    CLOSE_NORMAL,
    FRAGMENTS_MAX,
    MESSAGE_SIZE_MAX,
    OP_BINARY,
    OP_CLOSE,
    OP_CONTINUATION,
    OP_PING,
    OP_PONG,
    OP_TEXT,
    WsReader,
    accept,
    accept_key,
    binary,
    close,
    ping,
    pong,
    text,
    unmasked,
)

MASK = b"\x37\xfa\x21\x3d"
Heard = list[tuple[int, bytes, int]]


def frame(opcode: int, content: bytes, *, is_last: bool = True, reserved: int = 0) -> bytes:
    """A frame as a client sends it."""
    first = (0x80 if is_last else 0) | reserved << 4 | opcode
    size = len(content)
    if size < 126:
        length = bytes((0x80 | size,))
    elif size < 65536:
        length = b"\xfe" + size.to_bytes(2, "big")
    else:
        length = b"\xff" + size.to_bytes(8, "big")
    masked = bytes(byte ^ MASK[at % 4] for at, byte in enumerate(content))
    return bytes((first,)) + length + MASK + masked


def read(*pieces: bytes, message_max: int = MESSAGE_SIZE_MAX) -> WsReader:
    reader = WsReader(message_max)
    for piece in pieces:
        reader.feed(piece)
    return reader


def heard(reader: WsReader) -> Heard:
    return [(each.opcode, each.content, each.code) for each in reader.messages]


def outcome(reader: WsReader) -> tuple[object, ...]:
    failure = reader.failure
    return (
        heard(reader),
        None if failure is None else (failure.code, str(failure)),
        reader.is_closed,
        reader.is_in_message,
        reader.held_bytes,
    )


def code_of(data: bytes, message_max: int = 1000) -> int:
    failure = read(data, message_max=message_max).failure
    assert failure is not None
    return failure.code


# --- the handshake


def test_the_example_of_the_standard() -> None:
    assert accept_key("dGhlIHNhbXBsZSBub25jZQ==") == b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


@given(st.binary(min_size=24, max_size=24).map(bytes.hex))
def test_keys_are_answered_as_wsproto_answers_them(key: str) -> None:
    assert accept_key(key) == generate_accept_token(key.encode())


HEADERS = {"sec-websocket-version": "13", "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ=="}


def test_a_handshake() -> None:
    assert accept(HEADERS, b"X-A: b\r\n") == (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nX-A: b\r\n\r\n"
    )


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"sec-websocket-version": "8"}, 426),
        ({"sec-websocket-version": ""}, 426),
        ({"sec-websocket-key": ""}, 400),
        ({"sec-websocket-key": "abc"}, 400),
        ({"sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ"}, 400),
        ({"sec-websocket-key": "dGhlIHNhbXBsZSBub25j!Q=="}, 400),
        ({"sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ=\xe9"}, 400),
        ({"sec-websocket-key": "dGhlIHNhbXBsZSBub25jZXh4"}, 400),
    ],
)
def test_handshakes_that_are_refused(changed: dict[str, str], status: int) -> None:
    with pytest.raises(BadHttp) as refused:
        accept(HEADERS | changed, b"")
    assert refused.value.status == status


# --- what comes

EVERYTHING = (
    frame(OP_TEXT, "é".encode() * 100)
    + frame(OP_BINARY, b"")
    + frame(OP_TEXT, b"\xc3", is_last=False)
    + frame(OP_PING, b"between")
    + frame(OP_CONTINUATION, b"", is_last=False)
    + frame(OP_CONTINUATION, b"\xa9")
    + frame(OP_PONG, b"")
    + frame(OP_BINARY, b"\xff" * 300)
    + frame(OP_CLOSE, b"\x03\xe8bye")
    + frame(OP_TEXT, b"too late")
)


def test_everything_in_one_connection_however_it_is_cut() -> None:
    whole = read(EVERYTHING)
    assert heard(whole) == [
        (OP_TEXT, "é".encode() * 100, 0),
        (OP_BINARY, b"", 0),
        (OP_PING, b"between", 0),
        (OP_TEXT, "é".encode(), 0),
        (OP_PONG, b"", 0),
        (OP_BINARY, b"\xff" * 300, 0),
        (OP_CLOSE, b"bye", CLOSE_NORMAL),
    ]
    assert outcome(whole)[1:] == (None, True, False, 0)
    for at in range(len(EVERYTHING) + 1):
        assert outcome(read(EVERYTHING[:at], EVERYTHING[at:])) == outcome(whole)
    for step in (1, 2, 3, 7):
        pieces = [EVERYTHING[at : at + step] for at in range(0, len(EVERYTHING), step)]
        assert outcome(read(*pieces)) == outcome(whole)


BAD = {
    "not masked": (b"\x81\x01a", 1002),
    "reserved bit 1": (frame(OP_TEXT, b"a", reserved=4), 1002),
    "reserved bit 2": (frame(OP_TEXT, b"a", reserved=2), 1002),
    "reserved bit 3": (frame(OP_PING, b"a", reserved=1), 1002),
    **{f"opcode {opcode}": (frame(opcode, b""), 1002) for opcode in (3, 4, 5, 6, 7)},
    **{f"opcode {opcode}": (frame(opcode, b""), 1002) for opcode in (11, 12, 13, 14, 15)},
    "a fragment of nothing": (frame(OP_CONTINUATION, b"a"), 1002),
    "a message within a message": (
        frame(OP_TEXT, b"a", is_last=False) + frame(OP_TEXT, b"b"),
        1002,
    ),
    "a fragment of a ping": (frame(OP_PING, b"", is_last=False), 1002),
    "a long ping": (frame(OP_PING, b"a" * 126), 1002),
    "a long close": (frame(OP_CLOSE, b"\x03\xe8" + b"a" * 124), 1002),
    "two bytes of length for 125": (b"\x82\xfe\x00\x7d" + MASK + b"a" * 125, 1002),
    "eight bytes of length for 65535": (b"\x82\xff" + bytes(6) + b"\xff\xff", 1002),
    "a length of 2 ** 63": (b"\x82\xff\x80" + bytes(7), 1002),
    "a length of 2 ** 63 - 1": (b"\x82\xff\x7f" + b"\xff" * 7, 1009),
    "text that is none": (frame(OP_TEXT, b"a\xff"), 1007),
    "half a character": (frame(OP_TEXT, b"\xc3"), 1007),
    "a surrogate": (frame(OP_TEXT, b"\xed\xa0\x80"), 1007),
    "fragments that are no text": (
        frame(OP_TEXT, b"\xc3", is_last=False) + frame(OP_CONTINUATION, b"a"),
        1007,
    ),
    "half a code": (frame(OP_CLOSE, b"\x03"), 1002),
    "a reason that is no text": (frame(OP_CLOSE, b"\x03\xe8\xff"), 1007),
    **{
        f"code {code}": (frame(OP_CLOSE, code.to_bytes(2, "big")), 1002)
        for code in (0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65535)
    },
}


@pytest.mark.parametrize("name", BAD)
def test_bad_frames_however_they_are_cut(name: str) -> None:
    bad, code = BAD[name]
    data = frame(OP_TEXT, b"good") + bad
    whole = read(data)
    assert whole.failure is not None
    assert whole.failure.code == code
    assert heard(whole) == [(OP_TEXT, b"good", 0)]
    assert (whole.held_bytes, whole.is_in_message) == (0, False)
    for at in range(len(data) + 1):
        assert outcome(read(data[:at], data[at:])) == outcome(whole)
    assert outcome(read(data, frame(OP_TEXT, b"more"))) == outcome(whole)


@pytest.mark.parametrize("code", [1000, 1001, 1003, 1007, 1014, 3000, 4999])
def test_codes_for_closing(code: int) -> None:
    reader = read(frame(OP_CLOSE, code.to_bytes(2, "big") + b"why"))
    assert heard(reader) == [(OP_CLOSE, b"why", code)]


def test_a_close_without_a_code() -> None:
    assert heard(read(frame(OP_CLOSE, b""))) == [(OP_CLOSE, b"", CLOSE_NO_CODE)]


def test_the_size_of_a_message() -> None:
    for size in (125, 126, 999, 1000):
        reader = read(frame(OP_BINARY, b"a" * size), message_max=1000)
        assert heard(reader) == [(OP_BINARY, b"a" * size, 0)]
    assert code_of(frame(OP_BINARY, b"a" * 1001)) == 1009
    # By its head alone.
    assert code_of(frame(OP_BINARY, b"a" * 1001)[:4]) == 1009
    half = frame(OP_BINARY, b"a" * 500, is_last=False)
    rest = frame(OP_CONTINUATION, b"a" * 500)
    assert heard(read(half + rest, message_max=1000)) == [(OP_BINARY, b"a" * 1000, 0)]
    assert code_of(half + frame(OP_CONTINUATION, b"a" * 501)) == 1009
    # Counted separately for every message.
    assert len(read((half + rest) * 3, message_max=1000).messages) == 3
    # A ping has room even when the message has none left.
    full = frame(OP_BINARY, b"a" * 1000, is_last=False)
    assert heard(read(full + frame(OP_PING, b"x"), message_max=1000)) == [(OP_PING, b"x", 0)]


def test_the_largest_message() -> None:
    content = bytes(range(256)) * (MESSAGE_SIZE_MAX // 256)
    data = frame(OP_BINARY, content)
    pieces = [data[at : at + 65536] for at in range(0, len(data), 65536)]
    assert heard(read(*pieces)) == [(OP_BINARY, content, 0)]


def test_the_count_of_fragments() -> None:
    first = frame(OP_TEXT, b"", is_last=False)
    more = frame(OP_CONTINUATION, b"", is_last=False)
    data = first + more * (FRAGMENTS_MAX - 2) + frame(OP_CONTINUATION, b"")
    assert heard(read(data * 2)) == [(OP_TEXT, b"", 0)] * 2
    assert code_of(first + more * FRAGMENTS_MAX) == 1009


def test_announced_lengths_cost_nothing() -> None:
    reader = read(b"\x82\xff" + (1 << 40).to_bytes(8, "big") + MASK + b"abc", message_max=1 << 50)
    assert (reader.is_in_message, reader.held_bytes) == (True, 3)


def test_where_in_a_message_the_bytes_end() -> None:
    data = frame(OP_TEXT, b"a", is_last=False) + frame(OP_CONTINUATION, b"b" * 200)
    for size in range(len(data) + 1):
        assert read(data[:size]).is_in_message == (0 < size < len(data))


@given(st.binary(max_size=100), st.binary(min_size=4, max_size=4))
def test_a_mask_taken_off_twice_is_on_again(content: bytes, mask: bytes) -> None:
    once = unmasked(content, mask)
    assert once == bytes(byte ^ mask[at % 4] for at, byte in enumerate(content))
    assert unmasked(once, mask) == content


# --- wsproto reads and writes the same


def wsproto_hears(data: bytes, *, is_client: bool) -> tuple[Heard, int | None]:
    """What wsproto makes of the bytes: messages, and the code it fails with."""
    peer = FrameProtocol(client=is_client, extensions=[])
    peer.receive_bytes(data)
    found: Heard = []
    parts: list[bytes] = []
    try:
        for each in peer.received_frames():
            payload = each.payload
            if isinstance(payload, tuple):
                found.append((OP_CLOSE, payload[1].encode(), int(payload[0])))
                continue
            content = payload.encode() if isinstance(payload, str) else bytes(payload)
            if each.opcode.iscontrol():
                found.append((int(each.opcode), content, 0))
            else:
                parts.append(content)
                if each.message_finished:
                    found.append((int(each.opcode), b"".join(parts), 0))
                    parts = []
    except ParseFailed as failed:
        return found, int(failed.code)
    return found, None


CONTENT = st.binary(max_size=200) | st.text(max_size=60).map(str.encode)


@st.composite
def client_frames(draw: st.DrawFn) -> bytes:
    kind = draw(st.sampled_from(["data", "data", "control", "close", "noise", "any"]))
    content = draw(CONTENT)
    if kind == "data":
        opcode = draw(st.sampled_from([OP_CONTINUATION, OP_TEXT, OP_BINARY]))
        return frame(opcode, content, is_last=draw(st.booleans()))
    if kind == "control":
        return frame(draw(st.sampled_from([OP_PING, OP_PONG])), content[:125])
    if kind == "close":
        code = draw(st.sampled_from([999, 1000, 1005, 1011, 1015, 2999, 3000, 4999, 5000]))
        return frame(OP_CLOSE, code.to_bytes(2, "big") + content[:100])
    if kind == "any":
        return frame(draw(st.integers(0, 15)), content, reserved=draw(st.sampled_from([0, 0, 1])))
    return draw(st.binary(max_size=20))


@settings(max_examples=300)
@given(st.lists(client_frames(), max_size=6).map(b"".join), st.lists(st.integers(0, 500)))
def test_we_hear_what_wsproto_hears(data: bytes, cuts: list[int]) -> None:
    expected, code = wsproto_hears(data, is_client=False)
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    reader = read(*(data[start:end] for start, end in pairwise(edges)))
    found = heard(reader)
    assert found[: len(expected)] == expected
    if reader.failure is not None and reader.failure.code == 1009:
        return  # wsproto has no limit
    if code == 1007 and (reader.failure is None or found != expected):
        # wsproto checks a text before it is complete; until then we receive control frames.
        assert all(opcode >= OP_CLOSE for opcode, _, _ in found[len(expected) :])
        return
    assert (None if reader.failure is None else reader.failure.code) == code or (
        # The frame has two errors, and wsproto checks the other first.
        code is not None and reader.failure is not None
    )
    assert len(found) == len(expected)


@given(CONTENT)
def test_wsproto_hears_what_we_say(content: bytes) -> None:
    said = content.decode("utf-8", "replace")
    data = text(said.encode()) + binary(content) + ping(content[:125]) + pong(content[:125])
    data += close(1001, said)
    found, code = wsproto_hears(data, is_client=True)
    assert code is None
    assert found[:4] == [
        (OP_TEXT, said.encode(), 0),
        (OP_BINARY, content, 0),
        (OP_PING, content[:125], 0),
        (OP_PONG, content[:125], 0),
    ]
    opcode, reason, close_code = found[4]
    assert (opcode, close_code) == (OP_CLOSE, CloseReason.GOING_AWAY)
    assert said.startswith(reason.decode())
    assert len(reason) > 119 or reason.decode() == said


@pytest.mark.parametrize("size", [0, 125, 126, 65535, 65536, 70000])
def test_lengths_of_frames(size: int) -> None:
    data = text(b"a" * size)
    assert wsproto_hears(data, is_client=True) == ([(OP_TEXT, b"a" * size, 0)], None)
    client = FrameProtocol(client=True, extensions=[])
    assert heard(read(bytes(client.send_data(b"a" * size)))) == [(OP_BINARY, b"a" * size, 0)]


def test_closing_without_a_code() -> None:
    assert close(CLOSE_NO_CODE, "never said") == b"\x88\x00"
    assert wsproto_hears(close(CLOSE_NO_CODE, ""), is_client=True)[0][0][2] == 1005


def test_control_frames_are_short() -> None:
    for make in (ping, pong):
        with pytest.raises(AssertionError):
            make(b"a" * 126)
    assert len(close(1000, "a" * 200)) == 127
