"""Writes a page of records as the answer to a read, for logs, queues and `_events`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from librt.strings import BytesWriter

from jobyard.protocols.session import PIECE_SIZE
from jobyard.protocols.topics.answers import begin, finish, finish_long, put_bool, put_int
from jobyard.wire.json.write import write_text

if TYPE_CHECKING:
    from jobyard.model.topic.log import LogPage, Tombstone
    from jobyard.protocols.http.call import HttpCall


def is_all_read(page: LogPage) -> bool:
    """Return whether a page is empty and the reader has reached the head."""
    return page.count == 0 and page.tombstone is None and page.next_from_seq == page.head_seq


def answer_page(call: HttpCall, name: str, page: LogPage) -> None:
    """Answer with a page."""
    out = begin(name)
    out.write(b',"records":[')
    pieces: list[bytes] = []
    for piece in page.records:
        if len(out) + len(piece) > PIECE_SIZE:
            pieces.append(out.getvalue())
            pieces.append(piece)
            out = BytesWriter()
        else:
            out.write(piece)
    put_int(out, b'],"next_from_seq":', page.next_from_seq)
    put_int(out, b',"head_seq":', page.head_seq)
    put_int(out, b',"earliest_seq":', page.earliest_seq)
    put_bool(out, b',"caught_up":', value=page.next_from_seq == page.head_seq)
    out.write(b',"tombstone":')
    if page.tombstone is None:
        out.write(b"null")
    else:
        write_tombstone(out, page.tombstone)
    put_int(out, b',"lag":', page.head_seq - page.next_from_seq)
    call.await_batch(page.batch, is_synced=page.is_synced)
    if pieces:
        finish_long(call, pieces, out)
    else:
        finish(call, out)


def write_tombstone(out: BytesWriter, stone: Tombstone) -> None:
    """Write which records were removed before the reader reached them."""
    put_int(out, b'{"gap_from":', stone.gap_from)
    put_int(out, b',"gap_to":', stone.gap_to)
    out.write(b',"reason":')
    write_text(out, stone.reason)
    put_int(out, b',"missed_estimate":', stone.missed_estimate)
    put_int(out, b',"earliest_seq":', stone.earliest_seq)
    put_int(out, b',"head_seq":', stone.head_seq)
    out.write(b"}")
