"""Exports as a yard sends them, made by pyarrow, so that a test can also make wrong ones."""

import io
from collections.abc import Sequence
from datetime import UTC, datetime

import pyarrow as pa

from tests.support.servers.scripted import chunked

KIND = "application/vnd.apache.arrow.stream"
MOMENT = datetime(2026, 11, 16, 12, tzinfo=UTC)
SCHEMA = pa.schema([("seq", pa.int64()), ("value", pa.binary())])


def rows(seqs: Sequence[int]) -> pa.RecordBatch:
    """Return records with these seqs."""
    values = [f"v{seq}".encode() for seq in seqs]
    return pa.RecordBatch.from_arrays([pa.array(seqs, pa.int64()), pa.array(values)], schema=SCHEMA)


def notes(**fields: object) -> dict[str, str]:
    """Return metadata of a batch."""
    return {f"topics.{name}": str(value) for name, value in fields.items()}


def noted(seqs: Sequence[int]) -> tuple[pa.RecordBatch, dict[str, str]]:
    """Return a batch with what it says of itself."""
    return rows(seqs), notes(first_seq=seqs[0], last_seq=seqs[-1], rows=len(seqs))


def end(total: int, lost: int = 0) -> tuple[pa.RecordBatch, dict[str, str]]:
    """Return the last batch."""
    return rows([]), notes(total_rows=total, lost_rows=lost)


def stream_of(batches: Sequence[tuple[pa.RecordBatch, dict[str, str]]]) -> bytes:
    """Return an Arrow stream."""
    out = io.BytesIO()
    with pa.ipc.new_stream(out, SCHEMA) as writer:
        for batch, about in batches:
            writer.write_batch(batch, custom_metadata=about)
    return out.getvalue()


def answer(
    *groups: Sequence[int], total: int | None = None, lost: int = 0, headers: Sequence[str] = ()
) -> bytes:
    """Return a whole export with these seqs, batch by batch."""
    count = sum(map(len, groups)) if total is None else total
    body = stream_of([*map(noted, groups), end(count, lost)])
    trailers = f"Topics-Rows: {count}\r\nTopics-Lost-Rows: {lost}\r\n"
    return chunked([body], trailers, *headers, kind=KIND)


def broken(*groups: Sequence[int], cut: int = 8) -> bytes:
    """Return an export that breaks off behind these batches; 8 bytes are the end of a stream."""
    body = stream_of([noted(group) for group in groups])
    return chunked([body[:-cut]], kind=KIND, is_whole=False)
