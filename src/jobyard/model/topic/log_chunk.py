"""The records of a log with up to 1,024 consecutive seqs: text, and columns instead of objects.

The text of a record is the default view that a reader gets, with the comma that joins it to the one
before: `,{"$seq":1,"$ts":1700000000000,"data":...,"meta":{...}}`. So a page without special options
is a slice of it. While a chunk fills, and when its records are long, each text is separate;
otherwise they are joined when it is full. Text may leave memory once it can be read back from the
journal: the chunk is then cold, and stores the place and checksum of each text. Tag and node, which
only some readers request, are stored separately as shown: `"$tag":"...","$node":"...",`.

Slot `i` belongs to seq `base + i`. A slot whose record never existed or is gone is dead, and stays
dead. Knows no log, and nothing of the journal but the place of each text.
"""

from array import array
from typing import Final, final
from zlib import crc32

from mypy_extensions import i64

from jobyard.model.topic.log_rows import (
    DATA_SIZE,
    META_FRAME_SIZE,
    LogRows,
    content_between,
    content_size,
    digits,
    is_binary_at,
)

LOG_CHUNK_ROWS: Final = 1024
# A chunk with so much text gets no more records: the newest chunk stays in memory.
CHUNK_BYTES: Final = 8 << 20
# Longer texts are never joined: it saves little, and costs a copy.
JOINED_SIZE_MAX: Final = 1 << 20
# Its size is stored in two bytes; the door allows less.
META_SIZE_MAX: Final = 0xFFFF
# Journal bytes of a record besides its text and labels: its row, and a share of the head.
ROW_WEIGHT: Final = 56

_NODE: Final = b'"$node":'
ALIVE: Final = 0
DEAD_SLOT: Final = b"\1"
ALIVE_SLOT: Final = b"\0"


@final
class LogChunk:
    """Some consecutive records of a log."""

    def __init__(self, base: i64) -> None:
        self.base: i64 = base
        # One text per slot, until they are joined.
        self.pieces: list[bytes] = []
        self.labels: list[bytes] = []
        self.is_joined: bool = False
        # Its text is only on disk; these are the checksums of the texts.
        self.is_cold: bool = False
        self.crcs: array[int] = array("I")
        # Newest batch that holds one of its records.
        self.batch: i64 = 0
        self.text: bytes = b""
        self.label_text: bytes = b""
        self.ends: array[int] = array("I")
        self.label_ends: array[int] = array("I")
        self.ts: array[int] = array("q")
        # When it was appended, on the clock of this boot.
        self.at: array[int] = array("q")
        self.metas: array[int] = array("H")
        self.nodes: array[int] = array("H")
        self.segments: array[int] = array("I")
        self.offsets: array[int] = array("I")
        self.dead = bytearray()
        # Nodes as shown, by their number in this chunk.
        self.node_numbers: dict[bytes, int] = {}
        self.count: i64 = 0
        self.bytes: i64 = 0
        # Bytes of text and labels in memory, and how much of the joined text belongs to no record.
        self.memory: i64 = 0
        self.wasted: i64 = 0
        # Bytes of labels, and of text still covered by `ends`, of records removed since the texts
        # were joined.
        self.gone_size: i64 = 0
        self.has_meta: bool = False
        self.has_labels: bool = False

    def used(self) -> i64:
        """Return the number of slots."""
        return len(self.dead)

    def last_seq(self) -> i64:
        """Return the greatest seq that has a slot."""
        return self.base + len(self.dead) - 1

    def is_alive(self, slot: i64) -> bool:
        """Return whether there is a record in a slot."""
        return slot < len(self.dead) and self.dead[slot] == ALIVE

    # -- adding --------------------------------------------------------------------------------

    def extend(self, rows: LogRows, start: i64, end: i64, segment: i64) -> None:
        """Append some rows after the last slot; their seqs continue without a gap."""
        if end - start == 1:
            self._append(rows, start, segment)
            return
        count = int(end - start)
        texts = rows.texts[start:end]
        self.pieces.extend(texts)
        self.labels.extend(rows.labels[start:end])
        self.ts.fromlist(rows.times[start:end])
        self.at.fromlist(rows.arrivals[start:end])
        metas = rows.metas[start:end]
        self.metas.fromlist(metas)
        self.segments.extend(array("I", [segment]) * count)
        self.offsets.fromlist(rows.offsets[start:end])
        self.dead += ALIVE_SLOT * count
        self.count += count
        self.memory += sum(map(len, texts))
        self.bytes += sum(rows.contents[start:end])
        self.has_meta = self.has_meta or any(metas)
        if rows.labels_size > 0:
            labels_size: i64 = sum(map(len, rows.labels[start:end]))
            self.memory += labels_size
            self.has_labels = self.has_labels or labels_size > 0
        if rows.nodes_size == 0:
            self.nodes.extend(array("H", [0]) * count)
            return
        for node in rows.nodes[start:end]:
            self.nodes.append(self._number_of(node) if node else 0)

    def _append(self, rows: LogRows, i: i64, segment: i64) -> None:
        # For a single row, slices cost more than everything else.
        self.pieces.append(rows.texts[i])
        self.labels.append(rows.labels[i])
        self.ts.append(rows.times[i])
        self.at.append(rows.arrivals[i])
        self.metas.append(rows.metas[i])
        self.segments.append(segment)
        self.offsets.append(rows.offsets[i])
        self.dead += ALIVE_SLOT
        self.count += 1
        self.memory += len(rows.texts[i])
        self.bytes += i64(rows.contents[i])
        if rows.metas[i] > 0:
            self.has_meta = True
        if rows.labels_size == 0:
            self.nodes.append(0)
            return
        label_size: i64 = len(rows.labels[i])
        self.memory += label_size
        if label_size > 0:
            self.has_labels = True
        node = rows.nodes[i]
        self.nodes.append(self._number_of(node) if node else 0)

    def pad(self, slot: i64) -> None:
        """Add dead slots until `slot` is the next one."""
        missing = int(slot) - len(self.dead)
        if missing <= 0:
            return
        self.pieces += [b""] * missing
        self.labels += [b""] * missing
        self.ts += array("q", [self.ts[-1] if self.ts else 0]) * missing
        self.at += array("q", [0]) * missing
        self.metas += array("H", [0]) * missing
        self.nodes += array("H", [0]) * missing
        self.segments += array("I", [0]) * missing
        self.offsets += array("I", [0]) * missing
        self.dead += DEAD_SLOT * missing

    def fill(self, slot: i64, rows: LogRows, i: i64, segment: i64) -> None:
        """Put row `i` into a slot without a record; only while the journal is read back."""
        assert not self.is_joined
        node = rows.nodes[i]
        self.pieces[slot] = rows.texts[i]
        self.labels[slot] = rows.labels[i]
        self.ts[slot] = rows.times[i]
        self.at[slot] = rows.arrivals[i]
        self.metas[slot] = rows.metas[i]
        self.nodes[slot] = self._number_of(node) if node else 0
        self.segments[slot] = segment
        self.offsets[slot] = rows.offsets[i]
        self.dead[slot] = ALIVE
        self._count_in(rows, i)

    def _number_of(self, node: bytes) -> int:
        number = self.node_numbers.get(node, 0)
        if number == 0:
            number = len(self.node_numbers) + 1
            self.node_numbers[node] = number
        return number

    def _count_in(self, rows: LogRows, i: i64) -> None:
        label_size: i64 = len(rows.tags[i]) + len(rows.nodes[i])
        self.count += 1
        self.bytes += i64(rows.contents[i])
        self.memory += len(rows.texts[i]) + label_size
        if rows.metas[i] > 0:
            self.has_meta = True
        if label_size > 0:
            self.has_labels = True

    def join(self) -> None:
        """Join the texts of a chunk that gets no more records."""
        if self.is_joined or self.memory > JOINED_SIZE_MAX:
            return
        self.text = b"".join(self.pieces)
        self._index()

    def _index(self) -> None:
        """Store where texts end instead of the texts."""
        end = 0
        for piece in self.pieces:
            end += len(piece)
            self.ends.append(end)
        if self.has_labels:
            self.label_text = b"".join(self.labels)
            label_end = 0
            for label in self.labels:
                label_end += len(label)
                self.label_ends.append(label_end)
        self.pieces = []
        self.labels = []
        self.is_joined = True
        # A column that grew has spare capacity, a copy has none.
        self.ends, self.label_ends = self.ends[:], self.label_ends[:]
        self.ts, self.at, self.metas = self.ts[:], self.at[:], self.metas[:]
        self.nodes, self.segments, self.offsets = self.nodes[:], self.segments[:], self.offsets[:]
        self.dead = self.dead[:]

    def can_cool(self) -> bool:
        """Return whether every record is in the journal."""
        slot: i64 = 0
        while slot < len(self.dead):
            if self.dead[slot] == ALIVE and self.segments[slot] == 0:
                return False
            slot += 1
        return True

    def sum_some(self, most: i64) -> i64:
        """Compute checksums of the text of a full chunk, before the text is dropped.

        Returns about how many bytes were summed; fewer than `most` means that this was all.
        """
        done: i64 = 0
        slot: i64 = len(self.crcs)
        while done < most and slot < len(self.dead):
            crc = 0
            done += 1
            if self.dead[slot] == ALIVE:
                text = self.text_at(slot)
                crc = crc32(text)
                done += len(text)
            self.crcs.append(crc)
            slot += 1
        return done

    def cool(self) -> None:
        """Drop the text of a full chunk from memory."""
        assert not self.is_cold
        while len(self.crcs) < len(self.dead):
            self.sum_some(JOINED_SIZE_MAX)
        if not self.is_joined:
            self._index()
        self.crcs = self.crcs[:]
        self.text = b""
        self.wasted = 0
        self.memory = len(self.label_text)
        self.is_cold = True

    # -- content of a slot ----------------------------------------------------------------------

    def start_of(self, slot: i64) -> i64:
        """Return where the text of a slot begins in the joined text."""
        return 0 if slot == 0 else self.ends[slot - 1]

    def size_of(self, slot: i64) -> i64:
        """Return the size of the text of a slot."""
        if not self.is_joined:
            return len(self.pieces[slot])
        return i64(self.ends[slot]) - self.start_of(slot)

    def text_at(self, slot: i64) -> bytes:
        """Return the text of a slot, which must be in memory."""
        assert not self.is_cold
        if not self.is_joined:
            return self.pieces[slot]
        return self.text[self.start_of(slot) : self.ends[slot]]

    def label_at(self, slot: i64) -> bytes:
        """Return tag and node of a slot as shown."""
        if not self.is_joined:
            return self.labels[slot]
        if not self.has_labels:
            return b""
        start = 0 if slot == 0 else self.label_ends[slot - 1]
        return self.label_text[start : self.label_ends[slot]]

    def _label_size(self, slot: i64) -> i64:
        if not self.is_joined:
            return len(self.labels[slot])
        if not self.has_labels:
            return 0
        start: i64 = 0 if slot == 0 else self.label_ends[slot - 1]
        return i64(self.label_ends[slot]) - start

    def content_size(self, slot: i64) -> i64:
        """Return the size of a record as its writer sees it: data and meta."""
        return content_size(self.size_of(slot), self.base + slot, self.ts[slot], self.metas[slot])

    def weight_of(self, slot: i64) -> i64:
        """Return the size of a record in the journal."""
        return ROW_WEIGHT + self.size_of(slot) + self._label_size(slot)

    def is_in_one_segment(self) -> bool:
        """Return whether all slots name the same segment."""
        used = len(self.dead)
        return used > 0 and self.segments == array("I", [self.segments[0]]) * used

    def weight(self) -> i64:
        """Return the size of all records in the journal."""
        rows: i64 = ROW_WEIGHT * self.count
        if not self.is_joined:
            return rows + self.memory
        labels_size: i64 = self.label_ends[-1] if self.has_labels else 0
        return rows + i64(self.ends[-1]) + labels_size - self.gone_size

    def labels_from(self, slot: i64) -> i64:
        """Return the position of tag and node in the text of a slot."""
        # After `,{"$seq":1,"$ts":1,`.
        return 17 + digits(self.base + slot) + digits(self.ts[slot])

    def is_binary(self, slot: i64, text: bytes) -> bool:
        """Return whether the data of a slot with this text are bytes, not JSON."""
        return is_binary_at(text, self.labels_from(slot) + DATA_SIZE)

    def content_of(self, slot: i64, text: bytes) -> tuple[bytes, bytes]:
        """Return data and meta of a slot with this text as they were sent."""
        start = self.labels_from(slot) + DATA_SIZE
        end: i64 = len(text) - 1
        meta_size: i64 = self.metas[slot]
        if meta_size == 0:
            return content_between(text, start, end), b""
        data = content_between(text, start, end - meta_size - META_FRAME_SIZE)
        return data, text[end - meta_size : end]

    def view(
        self,
        slot: i64,
        text: bytes,
        *,
        include_tags: bool,
        include_meta: bool,
        include_data: bool = True,
    ) -> bytes:
        """Return the text of a slot as a reader requested it."""
        if not include_data:
            return self._frame(slot, text, include_tags=include_tags, include_meta=include_meta)
        if not include_meta:
            meta_size: i64 = self.metas[slot]
            if meta_size > 0:
                text = text[: len(text) - 1 - meta_size - META_FRAME_SIZE] + b"}"
        label = self._shown_label(slot, include_tags=include_tags)
        if label:
            at = self.labels_from(slot)
            text = b"".join([text[:at], label, text[at:]])
        return text

    def _shown_label(self, slot: i64, *, include_tags: bool) -> bytes:
        """Return tag and node of a slot, or the node alone."""
        label = self.label_at(slot)
        if include_tags or not label:
            return label
        # Inside a tag, its quotes would be escaped.
        at: i64 = label.find(_NODE)
        return label[at:] if at >= 0 else b""

    def _frame(self, slot: i64, text: bytes, *, include_tags: bool, include_meta: bool) -> bytes:
        """Return the text of a slot without its data."""
        # The comma before the data is removed, and added again with the labels, which end in one.
        parts = [text[: self.labels_from(slot) - 1]]
        label = self._shown_label(slot, include_tags=include_tags)
        if label:
            parts += (b",", label[:-1])
        meta_size: i64 = self.metas[slot]
        if include_meta and meta_size > 0:
            parts.append(text[len(text) - 1 - meta_size - META_FRAME_SIZE : -1])
        parts.append(b"}")
        return b"".join(parts)

    # -- removing ------------------------------------------------------------------------------

    def kill(self, slot: i64) -> None:
        """Remove the record in a slot."""
        size = self.size_of(slot)
        self.count -= 1
        self.bytes -= self.content_size(slot)
        self.dead[slot] = 1
        if not self.is_joined:
            self.memory -= size + len(self.labels[slot])
            self.pieces[slot] = b""
            self.labels[slot] = b""
            return
        self.gone_size += size + self._label_size(slot)
        if self.is_cold:
            return
        self.wasted += size
        if self.wasted * 2 > len(self.text):
            self._pack()

    def kill_all(self) -> None:
        """Remove all records at once, without packing the text in between."""
        used = len(self.dead)
        self.count = 0
        self.bytes = 0
        self.dead = bytearray(DEAD_SLOT * used)
        if not self.is_joined:
            self.memory = 0
            self.pieces = [b""] * used
            self.labels = [b""] * used
        elif not self.is_cold:
            self.memory -= len(self.text)
            self.text = b""
            self.ends = array("I", bytes(self.ends.itemsize * used))
            self.wasted = 0

    def _pack(self) -> None:
        """Rebuild the joined text without the text of removed records."""
        pieces: list[bytes] = []
        ends = array("I")
        end = 0
        for slot in range(len(self.dead)):
            if self.dead[slot] == ALIVE:
                piece = self.text_at(slot)
                pieces.append(piece)
                end += len(piece)
            ends.append(end)
        self.memory -= len(self.text) - end
        self.text = b"".join(pieces)
        self.ends = ends
        self.gone_size -= self.wasted
        self.wasted = 0
