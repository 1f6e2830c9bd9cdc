"""The data of a record in a call: JSON under `data`, or bytes as base64 under `data_b64`.

Base64 is checked here; whatever is stored or shown later is the encoding of the same bytes. Knows
neither logs nor queues.
"""

from base64 import b64decode
from binascii import Error as NotBase64
from typing import Final

from jobyard.protocols.http.call import HttpRefused
from jobyard.protocols.topics.body import invalid
from jobyard.wire.json.read import JsonFields
from jobyard.wire.msgpack.forms import KIND_ABSENT, KIND_NIL

RECORD_MAX: Final = 1 << 20
# The longest base64 of a record; a longer one is not decoded.
BASE64_MAX: Final = (RECORD_MAX + 2) // 3 * 4


def read_data(record: JsonFields) -> tuple[bytes, bool]:
    """Return the data of a record, and whether they are bytes."""
    data = record.raw(b"data")
    if record.kind(b"data_b64") in (KIND_ABSENT, KIND_NIL):
        if data is None:
            raise invalid("a record must have data, or data_b64")
        return data, False
    if data is not None:
        raise invalid("a record has either data or data_b64")
    encoded = record.content(b"data_b64")
    if encoded is None:
        raise invalid("data_b64 must be a string")
    if len(encoded) > BASE64_MAX:
        raise HttpRefused(400, "record_too_large", f"a record must have at most {RECORD_MAX} bytes")
    try:
        return b64decode(encoded, validate=True), True
    except NotBase64:
        raise invalid("data_b64 must be base64, with padding") from None
