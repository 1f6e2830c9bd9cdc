"""Reads what a call brings along, and says in the API's words what is wrong with it."""

import json
from typing import Final

from mypy_extensions import i64

from jobyard.protocols.http.call import JSON, Call, HttpRefused, refuse_encoded
from jobyard.wire.http.request import parse_query
from jobyard.wire.json.read import JsonFields, first_items, read_object, read_objects
from jobyard.wire.json.scan import DEPTH_MAX, NUMBER_SIZE_MAX
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

# What plain `curl -d` says it sends.
_FORM: Final = "application/x-www-form-urlencoded"
# Larger numbers count as this one; nothing that is counted here comes near, or overflows by it.
WHOLE_MAX: Final = 1 << 62
EMPTY: Final = b"{}"
# Of every body but those with records: far more than any call needs, and read in no time.
SMALL_BODY_MAX: Final = 1 << 20
# Of a number that is counted with; data may have longer ones.
DIGITS_MAX: Final = 20
# A body that is looked into again to say what is wrong with it.
FAULT_SIZE_MAX: Final = 1 << 16


def invalid(message: str) -> HttpRefused:
    """Return the refusal of a call that is not as it should be."""
    return HttpRefused(400, "invalid_request", message)


def read_body(call: Call, *, may_be_empty: bool, most: i64 = SMALL_BODY_MAX) -> JsonFields:
    """Return the object that a call brings along, of at most so many bytes."""
    body = call.request.body
    if body or not may_be_empty:
        check_head(call, most)
    else:
        body = EMPTY
    fields = read_object(body, 0, len(body))
    if fields is None:
        raise invalid(fault_of(body))
    return check_twins(fields)


def check_head(call: Call, most: i64) -> None:
    """Refuse a body that is said to be no JSON, or that is too long."""
    _check_type(call)
    refuse_encoded(call)
    if len(call.request.body) > most:
        raise HttpRefused(413, "payload_too_large", f"this body may have at most {most} bytes")


def check_twins(fields: JsonFields) -> JsonFields:
    """Refuse an object in which a key stands twice: readers would differ in which one counts."""
    if fields.has_twins():
        raise invalid("a key stands twice in one object")
    return fields


def fault_of(body: bytes) -> str:
    """Say what is wrong with a body that could not be read, so that its writer finds the place."""
    if not body.lstrip().startswith(b"{"):
        return "the body must be a JSON object"
    if len(body) > FAULT_SIZE_MAX:
        return "the body is no JSON"
    try:
        json.loads(body)
    except json.JSONDecodeError as fault:
        return f"the body is no JSON: {fault.msg} at character {fault.pos + 1}"
    except UnicodeDecodeError as fault:
        return f"the body is no JSON: no UTF-8 at byte {fault.start + 1}"
    except (ValueError, RecursionError):
        pass
    # Python is not as strict as we are, or stricter.
    return (
        f"the body holds NaN or Infinity, values more than {DEPTH_MAX} deep, or a number of more "
        f"than {NUMBER_SIZE_MAX} characters"
    )


def _check_type(call: Call) -> None:
    kind = call.header("content-type")
    if ";" in kind:
        kind = kind[: kind.index(";")]
    kind = kind.strip().lower()
    if kind not in (JSON, _FORM):
        raise HttpRefused(415, "unsupported_media_type", f"the body must be {JSON}")


def whole(fields: JsonFields, key: bytes, otherwise: i64) -> i64:
    """Return a whole number of at least 0; one that is not given is `otherwise`."""
    kind = fields.kind(key)
    if kind in (KIND_ABSENT, KIND_NIL):
        return otherwise
    number: i64 = -1
    if kind in (KIND_INTEGER, KIND_FLOAT):
        number = min(fields.integer(key, -1), WHOLE_MAX)
        if number < 0 and fields.number(key, -1.0) >= WHOLE_MAX and _is_short(fields, key):
            number = WHOLE_MAX
    if number < 0:
        raise invalid(f"{key.decode()} must be a whole number of at least 0")
    return number


def _is_short(fields: JsonFields, key: bytes) -> bool:
    start, end = fields.find(key)
    return end - start <= DIGITS_MAX


def signed(fields: JsonFields, key: bytes, most: i64) -> i64:
    """Return a whole number from -`most` to `most`; 0 if none is given."""
    kind = fields.kind(key)
    if kind in (KIND_ABSENT, KIND_NIL):
        return 0
    number = fields.integer(key, most + 1) if kind in (KIND_INTEGER, KIND_FLOAT) else most + 1
    if not -most <= number <= most:
        raise invalid(f"{key.decode()} must be a whole number from {-most} to {most}")
    return number


def flag(fields: JsonFields, key: bytes, *, otherwise: bool) -> bool:
    """Return true or false; what is not given is `otherwise`."""
    kind = fields.kind(key)
    if kind in (KIND_ABSENT, KIND_NIL):
        return otherwise
    if kind != KIND_BOOL:
        raise invalid(f"{key.decode()} must be true or false")
    return fields.is_true(key)


def query_flag(call: Call, key: str, *, otherwise: bool) -> bool:
    """Return true or false as the query says; what is not given is `otherwise`."""
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
    """Return a whole number of at least 0 as the query says; one not given is `otherwise`."""
    word = asked.get(key, "")
    if not word:
        return otherwise
    if not word.isascii() or not word.isdecimal():
        raise invalid(f"{key} must be a whole number of at least 0")
    return min(decimal(word.encode()), WHOLE_MAX)


def text(fields: JsonFields, key: bytes, most: i64) -> str:
    """Return a text of at most so many bytes; nothing if none is given."""
    kind = fields.kind(key)
    if kind in (KIND_ABSENT, KIND_NIL):
        return ""
    found = fields.text(key) if kind == KIND_TEXT else None
    if found is None:
        raise invalid(f"{key.decode()} must be a text")
    if len(found) > most or len(found.encode()) > most:
        raise invalid(f"{key.decode()} must be at most {most} bytes long")
    return found


def array_place(fields: JsonFields, key: bytes) -> tuple[i64, i64]:
    """Return where an array stands, which must be given."""
    start, end = fields.find(key)
    if start < 0 or fields.kind(key) != KIND_ARRAY:
        raise invalid(f"{key.decode()} must be an array")
    return start, end


def objects(fields: JsonFields, key: bytes, most: i64) -> list[JsonFields] | None:
    """Return the objects of an array, which must be given; None if it holds anything else.

    One more than so many tells that there are more.
    """
    start, end = array_place(fields, key)
    found = read_objects(fields.data, start, end, most + 1)
    if found is not None:
        for one in found:
            check_twins(one)
    return found


def array(fields: JsonFields, key: bytes, most: i64) -> list[tuple[i64, i64]]:
    """Return where the items of an array stand, which must be given; one too many tells of more."""
    start, end = array_place(fields, key)
    return first_items(fields.data, start, end, most + 1)
