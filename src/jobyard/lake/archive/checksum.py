"""A checksum over rows, whatever file, encoding or batches carry them.

Of each column three streams are hashed with BLAKE2b: whether each row has a value (a byte), the
lengths of texts and bytes (int32), and the values themselves, where a row without a value counts as
empty or 0. The checksum is the hash of all of these with the names of the columns. Equal rows have
equal checksums however they are cut into batches.
"""

import hashlib
from collections.abc import Sequence
from typing import Final, final

import pyarrow as pa
import pyarrow.compute as pc

SIZE: Final = 16
METHOD: Final = "blake2b-128"


@final
class RowsChecksum:
    """The checksum of rows that are added batch by batch."""

    def __init__(self, names: Sequence[str]) -> None:
        self._columns = {name: _ColumnHash() for name in names}

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows that have the columns."""
        for name, column in self._columns.items():
            column.add(rows.column(name))

    def text(self) -> str:
        """Return the checksum of all rows so far."""
        whole = hashlib.blake2b(digest_size=SIZE)
        for name, column in self._columns.items():
            whole.update(f"{name}\n{column.text()}\n".encode())
        return f"{METHOD}:{whole.hexdigest()}"


@final
class _ColumnHash:
    def __init__(self) -> None:
        self._valid = hashlib.blake2b(digest_size=SIZE)
        self._lengths = hashlib.blake2b(digest_size=SIZE)
        self._values = hashlib.blake2b(digest_size=SIZE)

    def add(self, values: pa.Array) -> None:
        self._valid.update(_fixed(values.is_valid().cast(pa.uint8())))
        if pa.types.is_string(values.type) or pa.types.is_binary(values.type):
            texts = values.cast(pa.binary())
            filled = pc.fill_null(texts, b"") if texts.null_count else texts
            self._lengths.update(_fixed(pc.binary_length(filled)))
            self._values.update(_content(filled))
        else:
            whole = values.cast(pa.int64())
            self._values.update(_fixed(pc.fill_null(whole, 0) if whole.null_count else whole))

    def text(self) -> str:
        return " ".join(part.hexdigest() for part in (self._valid, self._lengths, self._values))


def _fixed(values: pa.Array) -> memoryview:
    """Return the bytes of values of one width, none of them null."""
    width = values.type.bit_width // 8
    first = values.offset * width
    return memoryview(values.buffers()[1])[first : first + len(values) * width]


def _content(texts: pa.Array) -> memoryview | bytes:
    """Return the bytes of all texts, one after the other."""
    _, offsets, content = texts.buffers()
    if content is None or not len(texts):
        return b""
    places = memoryview(offsets).cast("i")
    first, last = places[texts.offset], places[texts.offset + len(texts)]
    return memoryview(content)[first:last]
