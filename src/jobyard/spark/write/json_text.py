"""Values of Spark as JSON text, the same text that Spark's `to_json` makes of them.

Nulls of a struct are left out, those of arrays and maps are not. Times are in the zone of the
session, which is that of the column, to the millisecond. Numbers look as in Java. For each type a
function is made once, which is then called for each value.
"""

import base64
import datetime as dt
import struct
from collections.abc import Callable
from decimal import Decimal
from json.encoder import encode_basestring
from typing import Any, Final, final

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

_KEYS: Final = (
    *(StringType, BooleanType, ByteType, ShortType, IntegerType, LongType),
    *(FloatType, DoubleType, DecimalType, DateType, TimestampType, TimestampNTZType),
)
_PLAIN: Final = (*_KEYS, BinaryType)
_EPOCH: Final = dt.date(1970, 1, 1)
_EPOCH_TIME: Final = dt.datetime(1970, 1, 1)  # noqa: DTZ001  of a timestamp without a zone
_MICROSECOND: Final = dt.timedelta(microseconds=1)
ToText = Callable[[Any], str]


def unwritable(kind: DataType) -> DataType | None:
    """Return the first type inside a type that has no JSON here; None if there is none."""
    if isinstance(kind, StructType):
        inside = [field.dataType for field in kind.fields]
    elif isinstance(kind, ArrayType):
        inside = [kind.elementType]
    elif isinstance(kind, MapType):
        # Of bytes as a key Spark writes something without meaning.
        if not isinstance(kind.keyType, _KEYS):
            return kind.keyType
        inside = [kind.valueType]
    else:
        # A field that is null in all rows is left out, or null in an array or a map.
        return None if isinstance(kind, (*_PLAIN, NullType)) else kind
    return next((bad for each in inside if (bad := unwritable(each)) is not None), None)


def to_text(kind: pa.DataType) -> ToText:
    """Return the function that makes JSON of a value of a type as pyarrow shows it."""
    if pa.types.is_struct(kind):
        return _Struct(kind).text
    if pa.types.is_map(kind):
        return _Map(kind).text
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _Array(kind).text
    if pa.types.is_float32(kind):
        return _float_text
    for is_kind, made in _BY_TYPE:
        if is_kind(kind):
            return made
    return str


@final
class _Struct:
    def __init__(self, kind: pa.StructType) -> None:
        fields = [kind.field(place) for place in range(kind.num_fields)]
        self._fields = [
            (each.name, encode_basestring(each.name) + ":", to_text(each.type)) for each in fields
        ]

    def text(self, value: dict[str, Any]) -> str:
        parts = []
        for name, head, made in self._fields:
            inside = value[name]
            if inside is not None:
                parts.append(head + made(inside))
        return "{" + ",".join(parts) + "}"


@final
class _Map:
    def __init__(self, kind: pa.MapType) -> None:
        self._key = _key_of(kind.key_type)
        self._item = to_text(kind.item_type)

    def text(self, value: list[tuple[Any, Any]]) -> str:
        parts = [
            f"{encode_basestring(self._key(key))}:{'null' if item is None else self._item(item)}"
            for key, item in value
        ]
        return "{" + ",".join(parts) + "}"


@final
class _Array:
    def __init__(self, kind: pa.ListType) -> None:
        self._item = to_text(kind.value_type)

    def text(self, value: list[Any]) -> str:
        return "[" + ",".join(["null" if one is None else self._item(one) for one in value]) + "]"


def _key_of(kind: pa.DataType) -> ToText:
    """Return the function that makes the name of an entry; Spark shows times as it stores them."""
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return str
    if pa.types.is_date(kind):
        return _days
    if pa.types.is_timestamp(kind):
        return _microseconds
    made = to_text(kind)
    return lambda value: made(value).strip('"')


def _days(value: dt.date) -> str:
    return str((value - _EPOCH).days)


def _microseconds(value: dt.datetime) -> str:
    if value.tzinfo is not None:
        value = value.astimezone(dt.UTC).replace(tzinfo=None)
    return str((value - _EPOCH_TIME) // _MICROSECOND)


def _boolean_text(value: bool) -> str:  # noqa: FBT001  a value
    return "true" if value else "false"


def _binary_text(value: bytes) -> str:
    return f'"{base64.b64encode(value).decode()}"'


def _date_text(value: dt.date) -> str:
    return f'"{value.isoformat()}"'


def _time_text(value: dt.datetime) -> str:
    text = value.isoformat(timespec="milliseconds")
    if value.tzinfo is not None and not value.utcoffset():
        text = text.rpartition("+")[0] + "Z"
    return f'"{text}"'


def _double_text(value: float) -> str:
    if 1e-3 <= abs(value) < 1e7:
        return repr(value)
    return _java_text(value, repr(value))


def _float_text(value: float) -> str:
    """Return the fewest digits that mean the same number in 32 bits."""
    text = repr(value)
    if value - value == 0:
        for digits in range(6, 10):
            text = f"{value:.{digits}g}"
            if struct.unpack("f", struct.pack("f", float(text)))[0] == value:
                break
    return _java_text(value, text)


def _java_text(value: float, text: str) -> str:
    if value != value:  # noqa: PLR0124  the way to ask
        return '"NaN"'
    if value - value != 0:
        return '"Infinity"' if value > 0 else '"-Infinity"'
    is_negative, digits, _ = Decimal(text).as_tuple()
    sign = "-" if is_negative else ""
    exponent = Decimal(text).adjusted()
    shown = "".join(map(str, digits)).strip("0") if value else "0"
    if not value:
        return f"{sign}0.0"
    if -3 <= exponent < 7:
        plain = f"{Decimal(text):f}"
        return plain if "." in plain else f"{plain}.0"
    return f"{sign}{shown[0]}.{shown[1:] or '0'}E{exponent}"


_BY_TYPE: Final[tuple[tuple[Callable[[pa.DataType], bool], ToText], ...]] = (
    (pa.types.is_string, encode_basestring),
    (pa.types.is_large_string, encode_basestring),
    (pa.types.is_boolean, _boolean_text),
    (pa.types.is_float64, _double_text),
    (pa.types.is_binary, _binary_text),
    (pa.types.is_large_binary, _binary_text),
    (pa.types.is_date, _date_text),
    (pa.types.is_timestamp, _time_text),
)
