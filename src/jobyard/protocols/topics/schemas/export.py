"""What the export and the search for a seq take and answer, as JSON schemas: data, and no more.

Beside `schemas`, and under the same rules.
"""

from typing import Final

from jobyard.protocols.http.routes import Parameter, Schema, Shape
from jobyard.protocols.topics.api import NAME
from jobyard.protocols.topics.schemas.records import PERFORMANCE
from jobyard.wire.arrow.stream import ARROW_STREAM

_FLAG: Final[Schema] = {"type": "boolean"}
_WHOLE: Final[Schema] = {"type": "integer", "minimum": 0}
_TEXT: Final[Schema] = {"type": "string"}

_INCARNATION: Final = Parameter(
    "incarnation", _TEXT, "Refuse if the topic was made anew and is another one now."
)
_RANGE: Final = (
    Parameter("from_seq", _WHOLE, "After which seq to begin; before the first if not said."),
    Parameter("to_seq", _WHOLE, "The last seq; the newest if not said."),
    Parameter("columns", _TEXT, "Names of columns, joined by commas; all of them if not said."),
    Parameter("allow_gap", _FLAG, "Whether to go on without what caps or time have taken."),
    _INCARNATION,
)
_TS: Final = Parameter(
    "ts", _WHOLE, "A time on the wall, in milliseconds since 1970.", is_required=True
)
_PLACE: Final[dict[str, Schema]] = {
    "topic": NAME,
    "seq": {**_WHOLE, "description": "The first at that time or later, or the next to be given."},
    "from_seq": {**_WHOLE, "description": "From where to read so that it comes first."},
    "found": {**_FLAG, "description": "Whether there is one already."},
    "head_seq": _WHOLE,
    "earliest_seq": _WHOLE,
    "incarnation": _TEXT,
    "performance": PERFORMANCE,
}
_FOUND: Final[Schema] = {
    "title": "FoundSeq",
    "type": "object",
    "required": list(_PLACE),
    "properties": _PLACE,
}
_ONE: Final = "/v0/topics/{topic}"

EXPORT_SHAPES: Final[dict[str, Shape]] = {
    f"GET {_ONE}/export": Shape(
        query=_RANGE,
        answers={},
        texts=(ARROW_STREAM,),
        refusals=(400, 404, 406, 409, 410, 416, 429, 500),
    ),
    f"GET {_ONE}/seq": Shape(
        query=(_TS, _INCARNATION), answers={200: _FOUND}, refusals=(400, 404, 409)
    ),
}
