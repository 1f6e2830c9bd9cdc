"""Multi-part replies: arrays of texts, stream entries and sorted set members."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from jobyard.engine.glidemq.add import id_bytes
from jobyard.engine.logs.text import TextFreeing
from jobyard.engine.state.yard import STAMP_SHIFT
from jobyard.protocols.glidemq.keyspace.gather import FREED_AT_ONCE, Gather, job_of
from jobyard.protocols.glidemq.keyspace.key_parts import bytes_of
from jobyard.protocols.glidemq.long_commands import Pieces
from jobyard.wire.resp.write import (
    double_text,
    write_array,
    write_bulk,
    write_double,
    write_map,
    write_pair,
    write_set,
    write_text,
)

if TYPE_CHECKING:
    from librt.strings import BytesWriter

    from jobyard.engine.state.tasks import Task
    from jobyard.model.glidemq.stored_values import StreamEntry
    from jobyard.protocols.glidemq.keyspace.key import Scored

_LOW_BITS: Final = (1 << STAMP_SHIFT) - 1

# How a list of texts is framed.
ARRAY: Final = 0
MEMBERS: Final = 1
MAP: Final = 2
SCAN: Final = 3


@final
class TextArray(Pieces):
    """Texts, as an array, a set, the fields of a map, or the whole result of a scan.

    Takes ownership of the list and empties it while writing.
    """

    def __init__(self, texts: list[bytes], shape: i64, proto: i64) -> None:
        super().__init__(len(texts))
        self._texts = texts
        self._shape: i64 = shape
        self._proto: i64 = proto

    def write_head(self, out: BytesWriter) -> None:
        """Write the header with the number of parts."""
        if self._shape == MAP:
            write_map(out, self.count // 2, self._proto)
        elif self._shape == MEMBERS:
            write_set(out, self.count, self._proto)
        else:
            if self._shape == SCAN:
                write_array(out, 2)
                write_bulk(out, b"0")
            write_array(out, self.count)

    def write_part(self, out: BytesWriter, at: i64) -> None:
        """Write one text and drop it: freeing a very long list at the end would take too long."""
        write_bulk(out, self._texts[at])
        self._texts[at] = b""

    def forget(self) -> Task | None:
        """Return a task that frees the rest, if there is much of it."""
        return TextFreeing(self._texts) if self.count - self.at > FREED_AT_ONCE else None


@final
class FoundEntries(Pieces):
    """Jobs that were found, as stream entries; each is dropped once it is written."""

    def __init__(self, found: Gather) -> None:
        super().__init__(len(found.items))
        self._found = found
        found.items.reverse()

    def write_head(self, out: BytesWriter) -> None:
        """Write the header with the number of parts."""
        write_array(out, self.count)

    def write_part(self, out: BytesWriter, at: i64) -> None:
        """Write one entry, with the id it had when it was found."""
        job = job_of(self._found.items.pop())
        stamp: i64 = self._found.places[at]
        write_array(out, 2)
        write_pair(out, stamp >> STAMP_SHIFT, stamp & _LOW_BITS)
        write_array(out, 4)
        write_bulk(out, b"jobId")
        write_bulk(out, id_bytes(job))
        write_bulk(out, b"name")
        write_bulk(out, bytes_of(job.policy.name))

    def forget(self) -> Task | None:
        """Return a task that frees the rest, if there is much of it."""
        return self._found.abandon()


@final
class EntryArray(Pieces):
    """Entries of a stream."""

    def __init__(self, entries: list[StreamEntry]) -> None:
        super().__init__(len(entries))
        self._entries = entries

    def write_head(self, out: BytesWriter) -> None:
        """Write the header with the number of parts."""
        write_array(out, self.count)

    def write_part(self, out: BytesWriter, at: i64) -> None:
        """Write one entry: its id and its fields."""
        entry = self._entries[at]
        write_array(out, 2)
        write_text(out, f"{entry.id[0]}-{entry.id[1]}")
        write_array(out, len(entry.fields))
        for part in entry.fields:
            write_bulk(out, part)


@final
class MemberArray(Pieces):
    """Members of a sorted set: jobs that were found, or members of a stored key."""

    def __init__(self, found: Gather | None, scored: list[Scored], proto: i64) -> None:
        super().__init__(len(scored) if found is None else len(found.items))
        self._found = found
        if found is not None:
            found.items.reverse()
        self._scored = scored
        self._proto: i64 = proto
        self.with_scores: bool = False
        # In RESP3, each member and its score may be in an array of their own.
        self.is_paired: bool = False
        # In the format of ZSCAN, where scores are texts.
        self.is_scan: bool = False

    def write_head(self, out: BytesWriter) -> None:
        """Write the header with the number of parts."""
        if self.is_scan:
            write_array(out, 2)
            write_bulk(out, b"0")
        is_flat = (self.with_scores or self.is_scan) and not self.is_paired
        write_array(out, self.count * 2 if is_flat else self.count)

    def write_part(self, out: BytesWriter, at: i64) -> None:
        """Write one member."""
        found = self._found
        if found is None:
            member, score = self._scored[at]
        else:
            member, score = id_bytes(job_of(found.items.pop())), float(found.places[at])
        if self.is_paired:
            write_array(out, 2)
        write_bulk(out, member)
        if self.is_scan:
            write_bulk(out, double_text(score))
        elif self.with_scores:
            write_double(out, score, self._proto)

    def forget(self) -> Task | None:
        """Return a task that frees the rest, if there is much of it."""
        return None if self._found is None else self._found.abandon()
