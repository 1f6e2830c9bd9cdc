"""Where a read starts and ends, as an option says it, before any topic is known.

Numbers in options are the next seq to be read, as Kafka's are: a start is inclusive, an end
exclusive. Makes no call and knows no topic; `states.py` turns a position into a seq.
"""

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

EARLIEST: Final = -2
# Of the form in which a stream stores its offsets.
OFFSETS_VERSION: Final = 1
_EXAMPLE: Final = '{"clicks":{"0":123}}'
LATEST: Final = -1
_RELATIVE: Final = re.compile(r"-(\d{1,18})")
_DURATION: Final = re.compile(r"(\d{1,12})(ms|s|m|h|d)")
_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


@dataclass(frozen=True)
class Position:
    """A place in every topic: one of the fields is set."""

    # EARLIEST or LATEST.
    edge: int = 0
    # The newest so many seqs.
    newest_count: int = 0
    # The next seq by topic, EARLIEST or LATEST; with the incarnation if it was given.
    by_topic: tuple[tuple[str, int, str], ...] = ()
    # The first record at or after this time, or this long before now.
    at_ms: int | None = None
    before_now_ms: int | None = None


def moves(position: Position) -> bool:
    """Return whether a position means another place when it is asked for later."""
    if position.by_topic:
        return any(seq == LATEST for _, seq, _ in position.by_topic)
    is_edge = position.at_ms is None and position.before_now_ms is None
    return (
        position.newest_count > 0
        or position.before_now_ms is not None
        or (is_edge and position.edge == LATEST)
    )


def parse_offsets(text: str) -> Position:
    """Return the position that startingOffsets or endingOffsets means; ValueError if none."""
    text = text.strip()
    word = text.lower()
    if word in ("earliest", "latest"):
        return Position(edge=EARLIEST if word == "earliest" else LATEST)
    if found := _RELATIVE.fullmatch(text):
        return Position(newest_count=int(found[1]))
    try:
        given = json.loads(text)
    except ValueError:
        given = None
    if not isinstance(given, dict) or not given:
        raise ValueError(
            f"{text!r} is none of earliest, latest, -1000, and JSON such as {_EXAMPLE}"
        )
    inner: object = given
    if set(given) == {"v", "t"}:
        if given["v"] != OFFSETS_VERSION:
            raise ValueError(f"the offsets have version {given['v']!r}, not {OFFSETS_VERSION}")
        inner = given["t"]
    if not isinstance(inner, dict) or not inner:
        # Without a topic nothing would be read, in silence.
        raise ValueError(f"{text!r} names no topic; write {_EXAMPLE}")
    return Position(by_topic=tuple(_one(topic, part) for topic, part in inner.items()))


def _one(topic: str, parts: object) -> tuple[str, int, str]:
    fields = parts if isinstance(parts, dict) else {}
    if others := sorted(set(fields) - {"0", "id"}):
        raise ValueError(
            f"{topic} has no partition {others[0]}: a topic has partition 0 only, as in {_EXAMPLE}"
        )
    seq, incarnation = fields.get("0"), fields.get("id", "")
    if isinstance(seq, bool) or not isinstance(seq, int):
        raise ValueError(  # noqa: TRY004  becomes an error about the option
            f"the offset of {topic} must be a whole number, as in {_EXAMPLE}"
        )
    if seq < EARLIEST or not isinstance(incarnation, str):
        raise ValueError(f"{seq} is no offset of {topic}: -2 is earliest, -1 latest")
    return topic, seq, incarnation


def parse_time(text: str) -> Position:
    """Return the position of a time: milliseconds, ISO 8601, or `-10m`; ValueError if none."""
    text = text.strip()
    if text.isdecimal() and len(text) <= 18:
        return Position(at_ms=int(text))
    if text.startswith("-") and _DURATION.fullmatch(text[1:]):
        return Position(before_now_ms=duration_ms(text[1:]))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is neither milliseconds nor an ISO time nor an age such as -10m"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return Position(at_ms=max((moment - _EPOCH) // _MILLISECOND, 0))


def duration_ms(text: str) -> int:
    """Return a duration in milliseconds; ValueError if it is none."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is not a duration such as 500ms, 30s, 10m, 2h or 1d")
    return int(found[1]) * _UNITS_MS[found[2]]
