"""What calls that set cursors share: the fields of a cursor, and answers to refusals."""

from typing import Final

from jobyard.engine.logs.cursors import (
    CursorBehind,
    CursorBeyond,
    CursorChange,
    CursorTopicMissing,
    HoldsJobs,
    WrongIncarnation,
)
from jobyard.engine.state.yard import Yard
from jobyard.errors import Refused
from jobyard.model.topic.cursor import TopicCursor
from jobyard.protocols.http.call import HttpCall, HttpRefused
from jobyard.protocols.topics.api import check_scope
from jobyard.protocols.topics.api_keys import Scope
from jobyard.protocols.topics.body import flag, invalid, text, whole
from jobyard.protocols.topics.find import no_topic
from jobyard.wire.json.read import JsonFields
from jobyard.wire.msgpack.forms import KIND_ABSENT, KIND_NIL

CURSOR_NAME_MAX: Final = 128
CURSOR_NAME_MARKS: Final = "._:~-"
INCARNATION_MAX: Final = 64


def read_cursor(
    yard: Yard, call: HttpCall, topic: str, name: str, fields: JsonFields
) -> CursorChange:
    """Return the cursor that a caller wants to set; only administrators set or end a hold."""
    if fields.kind(b"seq") in (KIND_ABSENT, KIND_NIL):
        raise invalid("seq is required")
    known = yard.cursors.get(topic, name)
    new = TopicCursor(topic, checked_name(name))
    new.seq = whole(fields, b"seq", 0)
    new.incarnation = text(fields, b"incarnation", INCARNATION_MAX)
    new.holds = flag(fields, b"hold", otherwise=known is not None and known.holds)
    if new.holds or (known is not None and known.holds):
        check_scope(call, Scope.ADMIN)
    keeps_hold = fields.kind(b"hold") in (KIND_ABSENT, KIND_NIL)
    is_forced = flag(fields, b"force", otherwise=False)
    return CursorChange(new, is_forced=is_forced, keeps_hold=keeps_hold)


def cursor_refusal(refused: Refused) -> HttpRefused | None:
    """Return the answer to a refusal to set a cursor; None if it is about something else."""
    if isinstance(refused, CursorTopicMissing):
        return no_topic(refused.topic)
    detail: dict[str, object]
    if isinstance(refused, WrongIncarnation):
        detail = {"incarnation": refused.incarnation}
        return HttpRefused(409, "wrong_incarnation", str(refused), detail)
    if isinstance(refused, CursorBeyond):
        detail = {"head_seq": int(refused.head_seq)}
        return HttpRefused(416, "out_of_range", str(refused), detail)
    if isinstance(refused, CursorBehind):
        detail = {"seq": int(refused.seq)}
        return HttpRefused(409, "cursor_behind", f"{refused}; force sets it back", detail)
    return HttpRefused(409, "not_a_log", str(refused)) if isinstance(refused, HoldsJobs) else None


def checked_name(name: str) -> str:
    """Refuse an invalid name of a cursor; return it."""
    is_valid = 1 <= len(name) <= CURSOR_NAME_MAX and name.isascii()
    if not is_valid or not all(letter.isalnum() or letter in CURSOR_NAME_MARKS for letter in name):
        raise invalid(
            f"a cursor name consists of 1 to {CURSOR_NAME_MAX} letters, digits and . _ : ~ -"
        )
    return name
