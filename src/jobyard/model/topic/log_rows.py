"""Columns of log records that are being added or read, and the text of each record.

A text holds the seq and the time of its record, which are only known when the write is applied. For
a short write it is made then. A long one gets its texts while it is read, with the expected seqs;
if another client writes to the log in the meantime, they are made again.
"""

from typing import Final, final

from mypy_extensions import i64

# Bytes of text that are made in a unit of work.
TEXT_PER_UNIT: Final = 1024

# In a text, only numbers precede it.
_DATA: Final = b',"data":'
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


def body_of(data: bytes, meta: bytes) -> bytes:
    """Return data and meta as they are in the text of a record."""
    return b"".join([data, b',"meta":', meta]) if meta else data


def text_of(seq: i64, middle: bytes, body: bytes) -> bytes:
    """Return the text of a record; `middle` is from the end of the seq to the body."""
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
        self.at_ms: i64 = at_ms
        # The key of the write, and its number of rows.
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
        """Append a row that gets its seq and its time later, with all others, by `stamp`."""
        body = body_of(data, meta)
        if self.has_expected_seqs:
            text = text_of(self.first_seq + self.stamped, self._middle, body)
            self.texts.append(text)
            self.size += len(text)
            self.stamped += 1
        else:
            self.bodies.append(body)
        self._add_content(len(data) + len(meta), len(meta), tag, node)

    def count(self) -> i64:
        """Return the number of rows."""
        return len(self.metas)

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
            body = old[old.index(_DATA) + len(_DATA) : -1]
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
