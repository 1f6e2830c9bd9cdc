"""Rows of Arrow batches as records of a write, in the JSON that the server reads.

A row that cannot be written is set aside with its reason and never changes another one. Each value
is checked as JSON by itself before it is joined with others: a text that only looks like JSON
could otherwise add fields or records of its own.
"""

import base64
import json
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, NoReturn, final

import pyarrow as pa

from jobyard.spark.options import TOPIC_NAME
from jobyard.spark.write.json_text import ToText, to_text
from jobyard.spark.write.options import ValueFormat, WriteOptions

VALUE_MAX: Final = 1 << 20
KEY_MAX: Final = 256
TAG_MAX: Final = 256
NODE_MAX: Final = 128
HEADERS_SIZE_MAX: Final = 16 << 10
HEADERS_COUNT_MAX: Final = 64
# The server reads 128 levels, of which the call itself takes three.
DEPTH_MAX: Final = 125
# Characters: such a text is neither too large nor too deep.
_SHORT: Final = 2 * DEPTH_MAX
DELAY_MS_MAX: Final = 365 * 86_400_000
PRIORITY_MAX: Final = 1_000_000
JOB_ID_MAX: Final = 256
JOB_NAME_MAX: Final = 256
ATTEMPTS_MAX: Final = 1000

# Columns that are fields of a record as they are: texts with their most bytes, and numbers.
_LABELS: Final = (("node", NODE_MAX), ("job_id", JOB_ID_MAX), ("name", JOB_NAME_MAX))
_NUMBERS: Final = (
    ("delay_ms", 0, DELAY_MS_MAX),
    ("priority", -PRIORITY_MAX, PRIORITY_MAX),
    ("max_attempts", 1, ATTEMPTS_MAX),
)

NULL_VALUE: Final = "value is null"
TOO_LARGE: Final = f"value is longer than {VALUE_MAX} bytes"
TOO_LARGE_TOGETHER: Final = f"value and headers are longer than {VALUE_MAX} bytes"
NOT_JSON: Final = "value is not JSON"
BAD_TOPIC: Final = "topic is missing or not the name of a topic"

# Brackets, and whole strings, in which brackets mean nothing.
_MARKS: Final = re.compile(r'[\[\]{}]|"(?:[^"\\]|\\.)*"')


class Record(NamedTuple):
    """One record, and where it goes."""

    topic: str
    body: str
    # As how many records it counts in a commit: two if it has a key.
    rows: int = 1


class BadRow(NamedTuple):
    """A row that cannot be written."""

    # Within its partition, from 0.
    row: int
    reason: str
    # What it begins with, for people.
    sample: str
    # Its seq in the topic that it was read from; 0 if the rows have none.
    seq: int = 0


class _Unfit(Exception):
    """A value that cannot be written; its text is the reason."""


_Value = bytes | str | _Unfit | None


def _no_constant(text: str) -> NoReturn:
    raise ValueError(text)


@final
class RecordReader:
    """Reads records out of the batches of one partition."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._row = 0
        # Not of the module: one that comes from a zip file is pickled with all that it holds.
        decoder = json.JSONDecoder(parse_constant=_no_constant)
        self._decode = decoder.decode
        # Also says where a value ends, in half the time, but wants no spaces before it.
        self._decode_first = decoder.raw_decode

    def bodies(self, batch: pa.RecordBatch) -> list[str] | None:
        """Return the records of a batch that is nothing but JSON texts for one topic, else None.

        The same as `read` for such batches, which are most, in a third of the time.
        """
        options = self._options
        if (
            batch.schema.names != ["value"]
            or not options.topic
            or options.value_format == ValueFormat.BYTES
        ):
            return None
        values = _texts(batch)
        found: list[str] = []
        try:
            for value in values:
                if isinstance(value, str):
                    text = value
                elif isinstance(value, bytes):
                    text = value.decode()
                else:
                    return None
                # Most values are short, and a call for each takes a tenth of the time.
                if len(text) > _SHORT and (size_of(text) > VALUE_MAX or _is_too_deep(text)):
                    return None
                if not self._is_value(text):
                    return None
                found.append(f'{{"data":{text}}}')
        except (ValueError, RecursionError):
            return None
        self._row += len(found)
        return found

    def read(self, batch: pa.RecordBatch) -> Iterator[Record | BadRow]:
        """Yield a record or a bad row for each row."""
        columns = {
            name: _values(batch.column(place))
            for place, name in enumerate(batch.schema.names)
            if name != "value"
        }
        values = _texts(batch)
        seqs = columns.get("seq") or columns.get("offset") or [None] * batch.num_rows
        topics = columns.get("topic") or columns.get("queue") or [None] * batch.num_rows
        for place, value in enumerate(values):
            row = self._row
            self._row += 1
            try:
                topic = self._options.topic or _topic(topics[place])
                body, is_keyed = self._record(columns, place, value)
                yield Record(topic, body, 2 if is_keyed else 1)
            except _Unfit as why:
                seq = seqs[place]
                yield BadRow(row, str(why), _sample(value), seq if isinstance(seq, int) else 0)

    def _record(
        self, columns: dict[str, list[object]], place: int, value: _Value
    ) -> tuple[str, bool]:
        """Return a record, and whether it has a key."""
        data, size = self._data(value)
        parts = ["{", data]
        key = _given(columns, "key", place)
        tag = _given(columns, "tag", place)
        if self._options.key_is_tag:
            key, tag = None, tag if tag is not None else key
        if key is not None:
            parts.append(f',"key":{_label(key, "key", KEY_MAX)}')
        if tag is not None:
            parts.append(f',"tag":{_label(tag, "tag", TAG_MAX)}')
        for name, most in _LABELS:
            label = _given(columns, name, place)
            if label is not None:
                parts.append(f',"{name}":{_label(label, name, most)}')
        headers = _given(columns, "headers", place)
        if headers is not None:
            assert isinstance(headers, list)
            meta = _meta(headers)
            if size + size_of(meta) > VALUE_MAX:
                raise _Unfit(TOO_LARGE_TOGETHER)
            parts.append(f',"meta":{meta}')
        parts += _numbers(columns, place)
        parts.append("}")
        return "".join(parts), key is not None

    def _data(self, value: _Value) -> tuple[str, int]:
        """Return the data of a record, JSON text as it is, anything else as bytes; and its size."""
        if isinstance(value, _Unfit):
            raise value
        if value is None:
            raise _Unfit(NULL_VALUE)
        size = size_of(value)
        if size > VALUE_MAX:
            raise _Unfit(TOO_LARGE)
        wanted = self._options.value_format
        if wanted != ValueFormat.BYTES:
            text = self._json_text(value)
            if text is not None:
                return f'"data":{text}', size
            if wanted == ValueFormat.JSON:
                raise _Unfit(NOT_JSON)
        data = value.encode() if isinstance(value, str) else value
        return f'"data_b64":"{base64.b64encode(data).decode()}"', size

    def _json_text(self, value: bytes | str) -> str | None:
        """Return a value as JSON text, or None if it is none."""
        try:
            text = value if isinstance(value, str) else value.decode()
            if not self._is_value(text):
                # Spaces around it, or no JSON.
                self._decode(text)
        except (ValueError, RecursionError):
            return None
        return None if _is_too_deep(text) else text

    def _is_value(self, text: str) -> bool:
        """Return whether a text is one JSON value without spaces around it."""
        try:
            return self._decode_first(text)[1] == len(text)
        except ValueError:
            return False


def size_of(text: bytes | str) -> int:
    """Return the size of a text in bytes, as the server counts."""
    if isinstance(text, bytes) or text.isascii():
        return len(text)
    return len(text.encode())


def _is_too_deep(text: str) -> bool:
    """Return whether JSON is nested deeper than the server reads."""
    if len(text) <= _SHORT or text.count("[") + text.count("{") <= DEPTH_MAX:
        return False
    depth = deepest = 0
    for mark in _MARKS.findall(text):
        if mark in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif mark in "]}":
            depth -= 1
    return deepest > DEPTH_MAX


def _texts(batch: pa.RecordBatch) -> list[_Value]:
    """Return the values of a batch as texts or bytes; a struct, map or number as its JSON."""
    column = batch.column(batch.schema.get_field_index("value"))
    kind = column.type
    if _is_text(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return _values(column)
    made = to_text(kind)
    try:
        return [None if value is None else made(value) for value in column.to_pylist()]
    except (ValueError, OverflowError):
        # A text that is not UTF-8, a time that Python does not know.
        return [_text_of(one, made) for one in column]


def _text_of(one: pa.Scalar, made: ToText) -> str | _Unfit | None:
    try:
        value = one.as_py()
        return None if value is None else made(value)
    except (ValueError, OverflowError) as fault:
        return _Unfit(f"value has no JSON: {type(fault).__name__}")


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _values(column: pa.Array) -> list[Any]:
    """Return the values of a column; texts as bytes if one of them is not UTF-8.

    Spark does not check its strings.
    """
    try:
        return list(column.to_pylist())
    except UnicodeDecodeError:
        return list(_in_bytes(column).to_pylist())


def _in_bytes(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_map(kind):
        entries = [_in_bytes(column.keys), _in_bytes(column.items)]
        kind = pa.map_(entries[0].type, entries[1].type)
        return column.cast(kind)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        pair = [pa.field("key", pa.large_binary()), pa.field("value", pa.large_binary())]
        return column.cast(pa.list_(pa.struct(pair)))
    return column.cast(pa.large_binary()) if _is_text(kind) else column


def _given(columns: dict[str, list[object]], name: str, place: int) -> object:
    column = columns.get(name)
    return None if column is None else column[place]


def _numbers(columns: dict[str, list[object]], place: int) -> Iterator[str]:
    """Yield the fields that are numbers."""
    for name, least, most in _NUMBERS:
        number = _given(columns, name, place)
        if number is not None:
            assert isinstance(number, int)
            if not least <= number <= most:
                raise _Unfit(f"{name} is not between {least} and {most}")
            yield f',"{name}":{number}'


def _topic(value: object) -> str:
    name = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    if not isinstance(name, str) or not TOPIC_NAME.fullmatch(name):
        raise _Unfit(BAD_TOPIC)
    return name


def _label(value: object, name: str, most: int) -> str:
    try:
        text = value.decode() if isinstance(value, bytes) else str(value)
        size = len(text.encode())
    except ValueError:
        raise _Unfit(f"{name} is not UTF-8") from None
    if not 0 < size <= most:
        raise _Unfit(f"{name} is empty or longer than {most} bytes")
    return json.dumps(text)


def _meta(headers: list[Any]) -> str:
    pairs: dict[object, object] = {}
    for each in headers:
        if each is None:
            raise _Unfit("headers have an entry that is null")
        # Kafka's are structs, and may have a name twice, which the meta of a record cannot.
        name, value = (each["key"], each["value"]) if isinstance(each, dict) else each
        name = _header(name)
        if name is None or name in pairs:
            raise _Unfit("headers have a name twice, or one that is null")
        pairs[name] = _header(value)
    text = json.dumps(pairs, separators=(",", ":"), ensure_ascii=False)
    if len(pairs) > HEADERS_COUNT_MAX or size_of(text) > HEADERS_SIZE_MAX:
        raise _Unfit(
            f"headers are longer than {HEADERS_SIZE_MAX} bytes, or over {HEADERS_COUNT_MAX}"
        )
    return text


def _header(value: object) -> object:
    try:
        return value.decode() if isinstance(value, bytes) else value
    except ValueError:
        raise _Unfit("headers are not UTF-8") from None


def _sample(value: _Value) -> str:
    if value is None:
        return "null"
    if isinstance(value, _Unfit):
        return ""
    head = value[:60]
    return head if isinstance(head, str) else head.decode("utf-8", "replace")
