"""Writes Arrow's IPC stream: columns that data tools load into memory unchanged.

    stream    schema, any number of batches, end
    message   FF FF FF FF, size of the head (4), head, body
        head      a flatbuffer `Message`, padded with zeros
        body      of a batch: the buffers of its columns one after the other, each padded with zeros

Heads and buffers are padded to 64 bytes, so that all of a stream is aligned in a file. The head of
each message may hold notes (texts by name). Knows no topics and no rows.
"""

from typing import Final, final

from librt.strings import BytesWriter, write_i32_le, write_i64_le
from mypy_extensions import i32, i64

from jobyard.model.topic.columns import Column
from jobyard.wire.arrow.flatbuffers import POINTER, ROOT, FlatWriter

ARROW_STREAM: Final = "application/vnd.apache.arrow.stream"
END: Final = b"\xff\xff\xff\xff\0\0\0\0"

# Kinds of columns: the numbers of their types in the union `Type`.
INT64: Final = 2
BINARY: Final = 4
UTF8: Final = 5
# In microseconds of wall time, UTC; the one kind of time that Spark reads without conversion.
TIMESTAMP: Final = 10

_ALIGNMENT: Final = 64
_CONTINUES: Final = -1
_NOT_COMPRESSED: Final = -1
_VERSION_5: Final = 4
_SCHEMA: Final = 1
_RECORD_BATCH: Final = 3
_MICROSECONDS: Final = 2
# The codec that all buffers of a batch are compressed with, each alone.
_ZSTD: Final = 1

# Sizes of the fields of each table, in the order of Arrow's schema files; 0: left out.
_MESSAGE_SIZES: Final = [2, 1, POINTER, 8, POINTER]
_SCHEMA_SIZES: Final = [2, POINTER, POINTER]
_FIELD_SIZES: Final = [POINTER, 1, 1, POINTER, 0, POINTER]
_INT_SIZES: Final = [4, 1]
_TIMESTAMP_SIZES: Final = [2, POINTER]
_BATCH_SIZES: Final = [8, POINTER, POINTER]
_PACKED_BATCH_SIZES: Final = [8, POINTER, POINTER, POINTER]
_COMPRESSION_SIZES: Final = [1, 1]
_NOTE_SIZES: Final = [POINTER, POINTER]
_NO_FIELDS: Final[list[int]] = []


@final
class ArrowField:
    """A column in the schema."""

    def __init__(self, name: str, kind: int, *, is_nullable: bool = False) -> None:
        self.name = name
        self.kind = kind
        self.is_nullable = is_nullable


def schema_message(fields: list[ArrowField], notes: dict[str, str]) -> bytes:
    """Return the message that every stream begins with."""
    flat = FlatWriter()
    header = _begin(flat, _SCHEMA, 0, {})
    schema = flat.table(header, _SCHEMA_SIZES)
    pointer = flat.pointers(schema[1], len(fields))
    for field in fields:
        _write_field(flat, pointer, field)
        pointer += POINTER
    _write_notes(flat, schema[2], notes)
    return _framed(flat)


def batch_message(columns: list[Column], notes: dict[str, str]) -> bytes:
    """Return a batch of rows; the columns are those of the schema, in its order."""
    return _batch(columns, buffers_of(columns), notes, is_packed=False)


def packed_message(columns: list[Column], packed: list[bytes], notes: dict[str, str]) -> bytes:
    """Return the same with its buffers as `packed_buffer` made them."""
    return _batch(columns, packed, notes, is_packed=True)


def buffers_of(columns: list[Column]) -> list[bytes]:
    """Return the buffers of all columns, in the order of a batch."""
    return [part for column in columns for part in column.buffers()]


def packed_buffer(plain: bytes, compressed: bytes) -> bytes:
    """Return a buffer of a packed batch: its size, then what it was compressed to.

    One that does not get smaller is left as it is, which the size -1 says; an empty one is nothing.
    """
    if not plain:
        return b""
    out = BytesWriter()
    is_smaller = len(compressed) < len(plain)
    write_i64_le(out, len(plain) if is_smaller else _NOT_COMPRESSED)
    out.write(compressed if is_smaller else plain)
    return out.getvalue()


def _batch(
    columns: list[Column], buffers: list[bytes], notes: dict[str, str], *, is_packed: bool
) -> bytes:
    assert columns
    count = columns[0].count
    nodes = BytesWriter()
    places = BytesWriter()
    pieces: list[bytes] = [b""]
    size: i64 = 0
    for column in columns:
        assert column.count == count
        write_i64_le(nodes, count)
        write_i64_le(nodes, column.nulls)
    for part in buffers:
        write_i64_le(places, size)
        write_i64_le(places, len(part))
        pieces.append(part)
        pieces.append(_padding(len(part)))
        size += len(part) + len(pieces[-1])
    flat = FlatWriter()
    header = _begin(flat, _RECORD_BATCH, size, notes)
    batch = flat.table(header, _PACKED_BATCH_SIZES if is_packed else _BATCH_SIZES)
    flat.put(batch[0], 8, count)
    flat.records(batch[1], len(columns), nodes.getvalue())
    flat.records(batch[2], len(buffers), places.getvalue())
    if is_packed:
        compression = flat.table(batch[3], _COMPRESSION_SIZES)
        flat.put(compression[0], 1, _ZSTD)
    pieces[0] = _framed(flat)
    return b"".join(pieces)


def _begin(flat: FlatWriter, kind: i64, body_size: i64, notes: dict[str, str]) -> i64:
    """Begin the head of a message; return the position of the pointer to its content."""
    message = flat.table(ROOT, _MESSAGE_SIZES)
    flat.put(message[0], 2, _VERSION_5)
    flat.put(message[1], 1, kind)
    flat.put(message[3], 8, body_size)
    _write_notes(flat, message[4], notes)
    return message[2]


def _write_field(flat: FlatWriter, pointer: i64, field: ArrowField) -> None:
    table = flat.table(pointer, _FIELD_SIZES)
    flat.text(table[0], field.name)
    flat.put(table[1], 1, 1 if field.is_nullable else 0)
    flat.put(table[2], 1, field.kind)
    if field.kind == INT64:
        number = flat.table(table[3], _INT_SIZES)
        flat.put(number[0], 4, 64)
        flat.put(number[1], 1, 1)
    elif field.kind == TIMESTAMP:
        time = flat.table(table[3], _TIMESTAMP_SIZES)
        flat.put(time[0], 2, _MICROSECONDS)
        flat.text(time[1], "UTC")
    else:
        flat.table(table[3], _NO_FIELDS)
    flat.pointers(table[5], 0)


def _write_notes(flat: FlatWriter, pointer: i64, notes: dict[str, str]) -> None:
    note_pointer = flat.pointers(pointer, len(notes))
    for name, text in notes.items():
        note = flat.table(note_pointer, _NOTE_SIZES)
        flat.text(note[0], name)
        flat.text(note[1], text)
        note_pointer += POINTER


def _framed(flat: FlatWriter) -> bytes:
    head = flat.getvalue()
    padding = _padding(8 + len(head))
    out = BytesWriter()
    write_i32_le(out, _CONTINUES)
    write_i32_le(out, i32(len(head) + len(padding)))
    out.write(head)
    out.write(padding)
    return out.getvalue()


def _padding(size: i64) -> bytes:
    return bytes(int(-size % _ALIGNMENT))
