"""Writes answers of the topics API: flat JSON objects that end with a `performance` field."""

from librt.strings import BytesWriter
from mypy_extensions import i64

from jobyard.protocols.http.call import HttpCall
from jobyard.wire.json.write import write_int, write_text


def begin(topic: str) -> BytesWriter:
    """Begin an answer about a topic."""
    out = BytesWriter()
    out.write(b'{"topic":')
    write_text(out, topic)
    return out


def put_int(out: BytesWriter, key: bytes, number: i64) -> None:
    """Add a number; `key` is already quoted, with its comma and colon."""
    out.write(key)
    write_int(out, number)


def put_bool(out: BytesWriter, key: bytes, *, value: bool) -> None:
    """Add a boolean."""
    out.write(key)
    out.write(b"true" if value else b"false")


def finish(
    call: HttpCall,
    out: BytesWriter,
    status: i64 = 200,
    *,
    is_synced: bool = False,
    is_claim: bool = False,
) -> None:
    """End an answer and send it; `is_synced` if it waits for a disk sync."""
    _begin_performance(call, out)
    if is_synced:
        out.write(b',"fsync_ms":')
        _write_ms(out, max(call.session.door.stopwatch.sync_us(), 1))
    if is_claim:
        # This server never throttles claims, but clients of the original read the field.
        out.write(b',"throttle_wait_ms":0.0')
    out.write(b"}}")
    call.answer(status, out.getvalue())


def finish_long(call: HttpCall, pieces: list[bytes], out: BytesWriter) -> None:
    """End an answer that is too long to be joined, and send it: the pieces, then `out`."""
    _begin_performance(call, out)
    out.write(b"}}")
    pieces.append(out.getvalue())
    call.answer_long(pieces)


def _begin_performance(call: HttpCall, out: BytesWriter) -> None:
    out.write(b',"performance":{"server_total_ms":')
    _write_ms(out, call.elapsed_us())


def _write_ms(out: BytesWriter, us: i64) -> None:
    write_int(out, us // 1000)
    rest = us % 1000
    out.write(b".")
    out.append(48 + rest // 100)
    out.append(48 + rest // 10 % 10)
    out.append(48 + rest % 10)
