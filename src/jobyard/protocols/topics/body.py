"""Reads the body and the query of a call, and reports what is wrong with them."""

import json
from typing import Final

from mypy_extensions import i64

from jobyard.protocols.http.call import JSON_TYPE, HttpCall, HttpRefused, refuse_encoded
from jobyard.wire.http.request import parse_query
from jobyard.wire.json.read import JsonFields, first_items, read_object, read_objects
from jobyard.wire.json.scan import JSON_DEPTH_MAX, NUMBER_SIZE_MAX
from jobyard.wire.msgpack.forms import (
    KIND_ABSENT,
    KIND_ARRAY,
    KIND_BOOL,
    KIND_FLOAT,
    KIND_INTEGER,
    KIND_NIL,
    KIND_TEXT,
)
from jobyard.wire.numbers import decimal

# The Content-Type that plain `curl -d` sends.
_FORM: Final = "application/x-www-form-urlencoded"
# Larger numbers are clamped to this one: no limit comes near it, and sums with it do not overflow.
BODY_NUMBER_MAX: Final = 1 << 62
EMPTY: Final = b"{}"
# For every body without records: far more than any call needs, and quick to read.
SMALL_BODY_MAX: Final = 1 << 20
# For numbers that the server interprets; data may hold longer ones.
DIGITS_MAX: Final = 20
# A body up to this size is parsed again to say where it is wrong.
FAULT_SIZE_MAX: Final = 1 << 16
# How much of the name of an unknown field a refusal shows.
FIELD_SHOWN_MAX: Final = 100


def invalid(message: str) -> HttpRefused:
    """Return the refusal of an invalid request."""
    return HttpRefused(400, "invalid_request", message)


def read_body(call: HttpCall, *, may_be_empty: bool, most: i64 = SMALL_BODY_MAX) -> JsonFields:
    """Return the JSON object in the body of a call; refuse more than `most` bytes."""
    body = call.request.body
    if body or not may_be_empty:
        check_head(call, most)
    else:
        body = EMPTY
    fields = read_object(body, 0, len(body))
    if fields is None:
        raise invalid(fault_of(body))
    return check_twins(fields)


def check_head(call: HttpCall, most: i64) -> None:
    """Refuse a body whose Content-Type is not JSON, or that is too long."""
    _check_type(call)
    refuse_encoded(call)
    if len(call.request.body) > most:
        raise HttpRefused(413, "payload_too_large", f"the body must be at most {most} bytes long")


def check_twins(fields: JsonFields) -> JsonFields:
    """Refuse an object with a duplicate key: parsers differ in which one they use."""
    if fields.has_twins():
        raise invalid("an object has a duplicate key")
    return fields


def fault_of(body: bytes) -> str:
    """Describe what is wrong with a body that could not be read, and where."""
    if not body.lstrip().startswith(b"{"):
        return "the body must be a JSON object"
    if len(body) > FAULT_SIZE_MAX:
        return "the body is not valid JSON"
    try:
        json.loads(body)
    except json.JSONDecodeError as fault:
        return f"the body is not valid JSON: {fault.msg} at character {fault.pos + 1}"
    except UnicodeDecodeError as fault:
        return f"the body is not valid JSON: invalid UTF-8 at byte {fault.start + 1}"
    except (ValueError, RecursionError):
        pass
    # Python's parser accepts it, or has stricter limits than ours.
    return (
        f"the body contains NaN or Infinity, values nested deeper than {JSON_DEPTH_MAX}, "
        "or a number longer "
        f"than {NUMBER_SIZE_MAX} characters"
    )


def check_strict(fields: JsonFields, known: frozenset[str]) -> None:
    """Refuse an object with an unknown field: the caller set `"strict": true`."""
    names = fields.keys()
    for name in names:
        if name not in known:
            shown = name if len(name) <= FIELD_SHOWN_MAX else name[:FIELD_SHOWN_MAX] + "..."
            detail: dict[str, object] = {"field": shown}
            raise HttpRefused(400, "invalid_request", f"there is no field {shown}", detail)


def is_strict(fields: JsonFields, known: frozenset[str]) -> bool:
    """Return whether unknown fields are refused, and refuse those of this object if so."""
    if not flag(fields, b"strict", otherwise=False):
        return False
    check_strict(fields, known)
    return True


def _check_type(call: HttpCall) -> None:
    kind = call.header("content-type")
    if ";" in kind:
        kind = kind[: kind.index(";")]
    kind = kind.strip().lower()
    if kind not in (JSON_TYPE, _FORM):
        raise HttpRefused(415, "unsupported_media_type", f"the body must be {JSON_TYPE}")


def whole(fields: JsonFields, key: bytes, otherwise: i64) -> i64:
    """Return a whole number of at least 0, or `otherwise` if it is absent."""
    kind = fields.kind(key)
    if kind in (KIND_ABSENT, KIND_NIL):
        return otherwise
    number: i64 = -1
    if kind in (KIND_INTEGER, KIND_FLOAT):
        number = min(fields.integer(key, -1), BODY_NUMBER_MAX)
        if number < 0 and fields.number(key, -1.0) >= BODY_NUMBER_MAX and _is_short(fields, key):
            number = BODY_NUMBER_MAX
    if number < 0:
        raise invalid(f"{key.decode()} must be a whole number of at least 0")
    return number


def _is_short(fields: JsonFields, key: bytes) -> bool:
    start, end = fields.find(key)
    return end - start <= DIGITS_MAX


def signed(fields: JsonFields, key: bytes, most: i64) -> i64:
    """Return a whole number from -`most` to `most`, or 0 if it is absent."""
    kind = fields.kind(key)
    if kind in (KIND_ABSENT, KIND_NIL):
        return 0
    number = fields.integer(key, most + 1) if kind in (KIND_INTEGER, KIND_FLOAT) else most + 1
    if not -most <= number <= most:
        raise invalid(f"{key.decode()} must be a whole number from {-most} to {most}")
    return number


def flag(fields: JsonFields, key: bytes, *, otherwise: bool) -> bool:
    """Return a boolean, or `otherwise` if it is absent."""
    kind = fields.kind(key)
    if kind in (KIND_ABSENT, KIND_NIL):
        return otherwise
    if kind != KIND_BOOL:
        raise invalid(f"{key.decode()} must be true or false")
    return fields.is_true(key)


def query_flag(call: HttpCall, key: str, *, otherwise: bool) -> bool:
    """Return a boolean from the query, or `otherwise` if it is absent."""
    query = call.request.query
    if not query:
        return otherwise
    word = parse_query(query).get(key)
    if word is None:
        return otherwise
    if word not in ("true", "false"):
        raise invalid(f"{key} must be true or false")
    return word == "true"


def query_whole(asked: dict[str, str], key: str, otherwise: i64) -> i64:
    """Return a whole number of at least 0 from the query, or `otherwise` if it is absent."""
    word = asked.get(key, "")
    if not word:
        return otherwise
    if not word.isascii() or not word.isdecimal():
        raise invalid(f"{key} must be a whole number of at least 0")
    return min(decimal(word.encode()), BODY_NUMBER_MAX)


def text(fields: JsonFields, key: bytes, most: i64) -> str:
    """Return a string of at most `most` bytes; empty if it is absent."""
    kind = fields.kind(key)
    if kind in (KIND_ABSENT, KIND_NIL):
        return ""
    found = fields.text(key) if kind == KIND_TEXT else None
    if found is None:
        raise invalid(f"{key.decode()} must be a string")
    if len(found) > most or len(found.encode()) > most:
        raise invalid(f"{key.decode()} must be at most {most} bytes long")
    return found


def array_place(fields: JsonFields, key: bytes) -> tuple[i64, i64]:
    """Return where a required array begins and ends."""
    start, end = fields.find(key)
    if start < 0 or fields.kind(key) != KIND_ARRAY:
        raise invalid(f"{key.decode()} must be an array")
    return start, end


def objects(fields: JsonFields, key: bytes, most: i64) -> list[JsonFields] | None:
    """Return the objects of a required array; None if it holds anything else.

    If there are more than `most`, the result has `most` + 1.
    """
    start, end = array_place(fields, key)
    found = read_objects(fields.data, start, end, most + 1)
    if found is not None:
        for one in found:
            check_twins(one)
    return found


def array(fields: JsonFields, key: bytes, most: i64) -> list[tuple[i64, i64]]:
    """Return where the items of a required array are; `most` + 1 of them if there are more."""
    start, end = array_place(fields, key)
    return first_items(fields.data, start, end, most + 1)
