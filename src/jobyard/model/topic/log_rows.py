"""Columns of log records that are being added or read, and the text of each record.

Bytes are in a text as base64, under the key "data_b64" instead of "data": the text itself says what
it holds.

A text holds the seq and the time of its record, which are only known when the write is applied. For
a short write it is made then. A long one gets its texts while it is read, with the expected seqs;
if another client writes to the log in the meantime, they are made again.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

if TYPE_CHECKING:
    from jobyard.model.topic.new_keys import NewKeys

# Bytes of text that are made in a unit of work.
TEXT_PER_UNIT: Final = 1024

# In a text, only numbers precede it.
_DATA: Final = b',"data'
_DATA_END: Final = 6
# Follows in the key of bytes, where the key of JSON ends.
BINARY_MARK: Final = 0x5F
_BINARY: Final = b'_b64":"'
BINARY_FRAME_SIZE: Final = 8
# Lengths of `,{"$seq":`, `,"$ts":`, `,"data":` and `}`; of `,"meta":`.
_FRAME_SIZE: Final = 25
META_FRAME_SIZE: Final = 8
# Of `"data":`.
DATA_SIZE: Final = 7


def digits(number: i64) -> i64:
    """Return the number of digits of a non-negative number."""
    if 1_000_000_000_000 <= number < 10_000_000_000_000:
        # Any current wall time, until the year 2286.
        return 13
    count: i64 = 1
    while number >= 10:
        number //= 10
        count += 1
    return count


def content_size(text_size: i64, seq: i64, ts: i64, meta_size: i64) -> i64:
    """Return the size of a record as its writer sent it: data and meta."""
    frame: i64 = _FRAME_SIZE + digits(seq) + digits(ts)
    if meta_size > 0:
        frame += META_FRAME_SIZE
    return text_size - frame


def data_from(seq: i64, ts: i64) -> i64:
    """Return where the data begin in the text of a record."""
    # After `,{"$seq":1,"$ts":1,"data":`.
    return 17 + DATA_SIZE + digits(seq) + digits(ts)


def binary_size(size: i64) -> i64:
    """Return the size of bytes in a text, as `content_size` counts them."""
    return BINARY_FRAME_SIZE - 2 + (size + 2) // 3 * 4


def binary_text(data: bytes) -> bytes:
    """Return bytes as they are in a text, from behind `"data`."""
    return b"".join([_BINARY, b64encode(data), b'"'])


def is_binary_at(text: bytes, data_at: i64) -> bool:
    """Return whether a text holds bytes; `data_at` is where JSON data would begin."""
    return text[data_at - 2] == BINARY_MARK


def base64_of(text: bytes, data_at: i64, data_end: i64) -> bytes:
    """Return the base64 of the bytes in a text."""
    return text[data_at - 2 + len(_BINARY) : data_end - 1]


def content_between(text: bytes, data_at: i64, data_end: i64) -> bytes:
    """Return the data of a text as they were sent: JSON text, or bytes."""
    if is_binary_at(text, data_at):
        return b64decode(base64_of(text, data_at, data_end))
    return text[data_at:data_end]


def body_of(data: bytes, meta: bytes) -> bytes:
    """Return data and meta as they are in the text of a record."""
    return b"".join([data, b',"meta":', meta]) if meta else data


def _is_marked(data: bytes) -> bool:
    """Return whether data are `binary_text`; those of a letter may be empty."""
    return len(data) > 0 and data[0] == BINARY_MARK


def text_of(seq: i64, middle: bytes, body: bytes) -> bytes:
    """Return the text of a record; `middle` is from the end of the seq to the body."""
    if _is_marked(body):
        # The body begins with the rest of a longer key, as no JSON text does.
        middle = middle[:-2]
    return b"".join([b',{"$seq":', str(int(seq)).encode(), middle, body, b"}"])


def middle_of(ts: i64) -> bytes:
    """Return the part of a text between the seq and the data."""
    return b"".join([b',"$ts":', str(int(ts)).encode(), b',"data":'])


@final
class LogRows:
    """Records of one log that are being added or read, in seq order."""

    def __init__(self, first_seq: i64, ts: i64, at_ms: i64) -> None:
        self.first_seq: i64 = first_seq
        self.ts: i64 = ts
        # Whether memory for them was made already.
        self.is_admitted: bool = False
        self.at_ms: i64 = at_ms
        # The keys of the rows, and of the write; the number of its rows.
        self.record_keys: NewKeys | None = None
        self.key: str = ""
        self.total: i64 = 0
        self.seqs: list[int] = []
        self.times: list[int] = []
        self.arrivals: list[int] = []
        self.metas: list[int] = []
        # Sizes as writers see them: data and meta.
        self.contents: list[int] = []
        # As shown, or empty.
        self.tags: list[bytes] = []
        self.nodes: list[bytes] = []
        # Both together.
        self.labels: list[bytes] = []
        self.texts: list[bytes] = []
        # Offset of each text in the segment, 0 if it is in none.
        self.offsets: list[int] = []
        # Sizes: of labels and texts, of labels alone, of nodes alone, and of what writers sent.
        self.size: i64 = 0
        self.labels_size: i64 = 0
        self.nodes_size: i64 = 0
        self.content_size: i64 = 0
        # Of rows without seqs, instead of texts.
        self.bodies: list[bytes] = []
        # Whether rows get their texts before they are added, with an expected seq and time, and how
        # many of them have these texts.
        self.has_expected_seqs: bool = False
        self.stamped: i64 = 0
        self._middle: bytes = b""
        # The node of the last row, and its label; whether a row is too large for a log.
        self.node_name: str = ""
        self.node_label: bytes = b""
        self.is_too_large: bool = False
        # Whether all rows have the same time.
        self.is_one_time: bool = False

    def add(
        self, seq: i64, ts: i64, at_ms: i64, text: bytes, meta_size: i64, tag: bytes, node: bytes
    ) -> None:
        """Append a row."""
        self.seqs.append(seq)
        self.times.append(ts)
        self.arrivals.append(at_ms)
        self.texts.append(text)
        self.size += len(text)
        self._add_content(content_size(len(text), seq, ts, meta_size), meta_size, tag, node)

    def add_ahead(self, data: bytes, meta: bytes, tag: bytes, node: bytes) -> None:
        """Append a row that gets its seq and its time later, with all others, by `stamp`.

        Bytes are given as `binary_text`.
        """
        size: i64 = len(data) + len(meta)
        if _is_marked(data):
            size -= 2
        body = body_of(data, meta)
        if self.has_expected_seqs:
            text = text_of(self.first_seq + self.stamped, self._middle, body)
            self.texts.append(text)
            self.size += len(text)
            self.stamped += 1
        else:
            self.bodies.append(body)
        self._add_content(size, len(meta), tag, node)

    def count(self) -> i64:
        """Return the number of rows."""
        return len(self.metas)

    def keep(self, positions: list[int]) -> None:
        """Drop all rows but those at some rising positions; only before they are stamped.

        Texts that were made in advance are then made again, by `stamp_some`.
        """
        if self.has_expected_seqs:
            self.size -= sum(map(len, self.texts))
            self.texts = [self.texts[at] for at in positions]
            self.size += sum(map(len, self.texts))
            self.stamped = 0
        else:
            self.bodies = [self.bodies[at] for at in positions]
        self.metas = [self.metas[at] for at in positions]
        self.contents = [self.contents[at] for at in positions]
        self.content_size = sum(self.contents)
        self.tags = [self.tags[at] for at in positions]
        self.nodes = [self.nodes[at] for at in positions]
        self.nodes_size = sum(map(len, self.nodes))
        self.labels = [self.labels[at] for at in positions]
        self.size -= self.labels_size
        self.labels_size = sum(map(len, self.labels))
        self.size += self.labels_size

    def set_expected_seqs(self, first_seq: i64, ts: i64) -> None:
        """Give rows that are added ahead these seqs and this time, as far as is known now.

        Rows that already have texts get new ones by `stamp_some`.
        """
        self.has_expected_seqs = True
        self.first_seq = first_seq
        self.ts = ts
        self.stamped = 0
        self._middle = middle_of(ts)

    def is_right(self, next_seq: i64, ts_min: i64) -> bool:
        """Return whether rows can be added with the expected seqs and time."""
        return self.first_seq == next_seq and self.ts >= ts_min

    def stamp_some(self, most: i64) -> i64:
        """Make texts with the newest expected seqs and time, some at a time.

        Returns the units of work done; fewer than `most` means that all texts are up to date.
        """
        done: i64 = 0
        while done < most and self.stamped < len(self.texts):
            old = self.texts[self.stamped]
            at: i64 = old.index(_DATA) + _DATA_END
            body = old[at:-1] if old[at] == BINARY_MARK else old[at + 2 : -1]
            text = text_of(self.first_seq + self.stamped, self._middle, body)
            self.texts[self.stamped] = text
            self.size += len(text) - len(old)
            self.stamped += 1
            done += 1 + len(text) // TEXT_PER_UNIT
        return done

    def _add_content(self, size: i64, meta_size: i64, tag: bytes, node: bytes) -> None:
        self.metas.append(meta_size)
        self.contents.append(size)
        self.content_size += size
        self.tags.append(tag)
        self.nodes.append(node)
        label = tag
        if node:
            label = tag + node
            self.nodes_size += len(node)
        self.labels.append(label)
        self.labels_size += len(label)
        self.size += len(label)

    def stamp(self, first_seq: i64, ts: i64, at_ms: i64) -> None:
        """Give rows that were added ahead their seqs, their time and their texts.

        Texts that were made in advance must have the right seqs; they keep their own time.
        """
        count = len(self.metas)
        self.at_ms = at_ms
        self.total = count
        self.is_one_time = True
        if self.has_expected_seqs:
            assert self.first_seq == first_seq
            ts = self.ts
        else:
            self.first_seq = first_seq
            self.ts = ts
            middle = middle_of(ts)
            seq = first_seq
            for body in self.bodies:
                text = text_of(seq, middle, body)
                self.texts.append(text)
                self.size += len(text)
                seq += 1
        if count == 1:
            self.seqs.append(first_seq)
            self.times.append(ts)
            self.arrivals.append(at_ms)
        else:
            self.seqs = list(range(int(first_seq), int(first_seq) + count))
            self.times = [int(ts)] * count
            self.arrivals = [int(at_ms)] * count

    def place(self, offset: i64) -> None:
        """Note that the texts are stored one after the other, from `offset` of their segment on."""
        self.offsets = []
        for text in self.texts:
            self.offsets.append(offset)
            if offset > 0:
                offset += len(text)
