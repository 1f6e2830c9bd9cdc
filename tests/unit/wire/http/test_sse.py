import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobyard.wire.http.sse import comment, event, retry

# Bytes among which line ends are likely.
BYTES = st.lists(st.sampled_from([b"a", b" ", b":", b"\r", b"\n", b"\0", b"data: x"])).map(b"".join)


def dispatched(stream: bytes) -> list[tuple[bytes, bytes, bytes]]:
    """What a browser makes of a stream: (last id, name, data) of each event."""
    events = []
    last_id, name, data = b"", b"", b""
    for line in stream.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n"):
        if line == b"":
            if data:
                events.append((last_id, name or b"message", data[:-1]))
            name, data = b"", b""
            continue
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"id" and b"\0" not in value:
            last_id = value
        elif field == b"event":
            name = value
        elif field == b"data":
            data += value + b"\n"
    return events


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ((b"1", b"job", b"{}"), b"id: 1\nevent: job\ndata: {}\n\n"),
        ((b"", b"", b"x"), b"data: x\n\n"),
        ((b"7", b"", b""), b"id: 7\ndata: \n\n"),
        ((b"", b"", b"a\nb\r\nc\rd"), b"data: a\ndata: b\ndata: c\ndata: d\n\n"),
        ((b"1\ndata: x", b"a\r\n\r\nb", b""), b"id: 1data: x\nevent: ab\ndata: \n\n"),
    ],
)
def test_events(parts: tuple[bytes, bytes, bytes], expected: bytes) -> None:
    assert event(*parts) == expected


def test_comments_and_retry() -> None:
    assert comment(b"ping") == b": ping\n\n"
    assert comment(b"a\n\ndata: b") == b": adata: b\n\n"
    assert retry(3000) == b"retry: 3000\n\n"


@given(BYTES, BYTES, BYTES)
def test_one_event_is_one_event_whatever_is_in_it(
    identity: bytes, name: bytes, data: bytes
) -> None:
    heard = dispatched(comment(name) + event(identity, name, data) + event(b"next", b"", b"more"))
    wanted_data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    wanted_name = name.translate(None, b"\r\n\0") or b"message"
    assert heard == [
        (identity.translate(None, b"\r\n\0"), wanted_name, wanted_data),
        (b"next", b"message", b"more"),
    ]
