"""An export as its reader sees it: the head, the trailers, and the rows that pyarrow finds."""

from typing import Any, NamedTuple

import pyarrow as pa

from tests.support.clients.topics import TopicsClient
from tests.support.doors.topics import BareTopics

Row = dict[str, Any]
Notes = dict[str, str]


class Export(NamedTuple):
    """One parsed answer."""

    headers: dict[str, str]
    trailers: dict[str, str]
    schema: pa.Schema
    # Of each batch except the last, which has no rows and the totals.
    batches: list[tuple[list[Row], Notes]]
    end: Notes

    @property
    def rows(self) -> list[Row]:
        """Return all rows."""
        return [row for rows, _ in self.batches for row in rows]

    @property
    def seqs(self) -> list[int]:
        """Return the seqs of all rows."""
        return [row["seq"] for row in self.rows]


def fields_of(lines: list[bytes]) -> dict[str, str]:
    """Return header lines by name."""
    pairs = (line.decode().partition(": ") for line in lines)
    return {name.lower(): value for name, _, value in pairs}


def unchunked(data: bytes) -> tuple[bytes, dict[str, str], bytes] | None:
    """Return a chunked body, its trailers and what follows; None if it is incomplete."""
    body = b""
    while True:
        size, line_end, rest = data.partition(b"\r\n")
        if not line_end:
            return None
        if int(size, 16) == 0:
            if rest.startswith(b"\r\n"):
                return body, {}, rest[2:]
            trailers, line_end, rest = rest.partition(b"\r\n\r\n")
            return (body, fields_of(trailers.split(b"\r\n")), rest) if line_end else None
        body += rest[: int(size, 16)]
        data = rest[int(size, 16) + 2 :]


def notes_of(metadata: pa.KeyValueMetadata | dict[bytes, bytes]) -> Notes:
    """Return notes as texts, without the common prefix of their names."""
    found = {name.decode(): value.decode() for name, value in dict(metadata).items()}
    assert all(name.startswith("topics.") for name in found)
    return {name.removeprefix("topics."): value for name, value in found.items()}


def taken_apart(headers: dict[str, str], body: bytes, trailers: dict[str, str]) -> Export:
    """Parse a complete stream, which must be valid."""
    reader = pa.ipc.open_stream(body)
    batches: list[tuple[list[Row], Notes]] = []
    for found in reader.iter_batches_with_custom_metadata():
        found.batch.validate(full=True)
        notes = notes_of(found.custom_metadata)
        rows = found.batch.to_pylist()
        batches.append((rows, notes))
        if rows and "seq" in rows[0]:
            assert notes == {
                "first_seq": str(rows[0]["seq"]),
                "last_seq": str(rows[-1]["seq"]),
                "rows": str(len(rows)),
            }
    rows, end = batches.pop()
    assert not rows
    assert body.endswith(b"\xff\xff\xff\xff\0\0\0\0")
    made = Export(headers, trailers, reader.schema, batches, end)
    assert end["total_rows"] == trailers["topics-rows"] == str(len(made.rows))
    if "topics-expected-rows" in headers:
        assert end["lost_rows"] == trailers["topics-lost-rows"]
        expected = int(headers["topics-expected-rows"])
        assert int(end["total_rows"]) + int(end["lost_rows"]) == expected
    else:
        assert "lost_rows" not in end
    return made


def begin(caller: TopicsClient, path: str) -> dict[str, str]:
    """Request an export, which must succeed; return the head of the answer."""
    caller.send("GET", f"/v0/topics/{path}")
    head, _, caller.unread = caller.unread.partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    assert first == b"HTTP/1.1 200 OK", head + caller.unread
    headers = fields_of(lines)
    assert headers["content-type"] == "application/vnd.apache.arrow.stream"
    assert headers["transfer-encoding"] == "chunked"
    return headers


def hear(caller: TopicsClient, headers: dict[str, str]) -> Export:
    """Return an export that has arrived completely."""
    found = unchunked(caller.unread)
    assert found is not None, "the stream is incomplete"
    body, trailers, caller.unread = found
    assert set(trailers) == {name.strip().lower() for name in headers["trailer"].split(",")}
    return taken_apart(headers, body, trailers)


def exported(site: BareTopics, path: str, caller: TopicsClient | None = None) -> Export:
    """Request an export, and run it to its end."""
    caller = caller or site.api
    headers = begin(caller, path)
    # What a sent page sets off is seen by the next tick only.
    for _ in range(20):
        site.tick(50)
    made = hear(caller, headers)
    assert not caller.unread
    return made
