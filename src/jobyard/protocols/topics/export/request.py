"""Reads the query of an export: the range, the columns, and which rows are wanted.

Everything in a query is checked here, against what the source has, before the first row is read.
"""

from typing import Final, final

from mypy_extensions import i64

from jobyard.journal.history.filter import NEVER, HistoryFilter
from jobyard.protocols.http.call import HttpCall, HttpRefused
from jobyard.protocols.topics.body import invalid, query_flag, query_whole
from jobyard.protocols.topics.export.packing import PagePacker
from jobyard.protocols.topics.export.sources import NOT_KNOWN, VALUE_FIELD, RowSource
from jobyard.wire.arrow.stream import ArrowField
from jobyard.wire.http.request import parse_query

METADATA_PREFIX: Final = "topics."
PARAMETERS: Final = frozenset(
    ("from_seq", "to_seq", "columns", "allow_gap", "incarnation", "nullable", "compress")
)
ZSTD: Final = "zstd"
NO_OTHERS: Final[frozenset[str]] = frozenset()
# Parameters of `_events` alone.
FILTERS: Final = frozenset(("queue", "event", "from_ts", "to_ts"))
# Of a queue: the states of the jobs that are wanted.
JOBS: Final = frozenset(("jobs",))
# Characters of an unknown parameter that a refusal repeats.
NAME_SHOWN_MAX: Final = 64


@final
class ExportRange:
    """The requested range, and what exists of it."""

    def __init__(self, name: str, incarnation: str, from_seq: i64, to_seq: i64) -> None:
        self.name = name
        self.incarnation = incarnation
        self.from_seq: i64 = from_seq
        self.to_seq: i64 = to_seq
        self.rows: i64 = NOT_KNOWN
        self.may_have_gaps: bool = False
        # The last seq of rows that were removed before the request.
        self.gap_to: i64 = 0
        # Indexes of the requested columns.
        self.columns: list[int] = []
        # Whether the schema calls all columns nullable.
        self.is_nullable: bool = False

    def notes(self) -> dict[str, str]:
        """Return the metadata of the Arrow schema."""
        notes = {
            f"{METADATA_PREFIX}topic": self.name,
            f"{METADATA_PREFIX}incarnation": self.incarnation,
            f"{METADATA_PREFIX}from_seq": str(int(self.from_seq)),
            f"{METADATA_PREFIX}to_seq": str(int(self.to_seq)),
        }
        if self.rows != NOT_KNOWN:
            notes[f"{METADATA_PREFIX}expected_rows"] = str(int(self.rows))
        if self.gap_to > 0:
            notes[f"{METADATA_PREFIX}gap_to"] = str(int(self.gap_to))
        return notes

    def headers(self) -> bytes:
        """Return the same as HTTP header lines."""
        lines = [
            f"Topics-Incarnation: {self.incarnation}\r\n",
            f"Topics-From-Seq: {int(self.from_seq)}\r\n",
            f"Topics-To-Seq: {int(self.to_seq)}\r\n",
        ]
        trailers = "Topics-Rows"
        if self.rows != NOT_KNOWN:
            lines.append(f"Topics-Expected-Rows: {int(self.rows)}\r\n")
            trailers += ", Topics-Lost-Rows"
        if self.gap_to > 0:
            lines.append(f"Topics-Gap-To: {int(self.gap_to)}\r\n")
        lines.append(f"Trailer: {trailers}\r\nCache-Control: no-store\r\n")
        return "".join(lines).encode()


def check_parameters(asked: dict[str, str], name: str, others: frozenset[str]) -> None:
    """Refuse parameters that an export does not have: ignored, they would give other rows."""
    check_known(asked, f"an export of {name}", PARAMETERS | others)


def check_known(asked: dict[str, str], what: str, known: frozenset[str]) -> None:
    """Refuse parameters that are not known."""
    for parameter in asked:
        if parameter not in known:
            raise invalid(f"{what} has no parameter {parameter[:NAME_SHOWN_MAX]}")


def read_filter(asked: dict[str, str]) -> HistoryFilter | None:
    """Return which rows of history are wanted; None for all."""
    if FILTERS.isdisjoint(asked):
        return None
    from_ms = query_whole(asked, "from_ts", 0)
    to_ms = query_whole(asked, "to_ts", NEVER)
    return HistoryFilter(_names(asked, "queue"), _names(asked, "event"), from_ms, to_ms)


def _names(asked: dict[str, str], key: str) -> frozenset[str]:
    """Return the names in a parameter; none if it is absent."""
    word = asked.get(key)
    if word is None:
        return frozenset()
    names = frozenset(word.split(","))
    if "" in names:
        raise invalid(f"{key} must be names separated by commas")
    return names


def check_incarnation(asked: dict[str, str], source: RowSource, name: str) -> None:
    """Refuse a caller that knows an earlier topic of this name."""
    wanted = asked.get("incarnation", "")
    if wanted and wanted != source.incarnation():
        message = f"{name} was deleted and created again since then"
        raise HttpRefused(409, "wrong_incarnation", message, _bounds(source))


def _bounds(source: RowSource) -> dict[str, object]:
    """Return the error detail that describes what the source has."""
    return {
        "incarnation": source.incarnation(),
        "head_seq": int(source.head_seq()),
        "earliest_seq": int(source.earliest_seq()),
    }


def read_packer(call: HttpCall, packers: dict[str, PagePacker]) -> PagePacker | None:
    """Return what compresses the pages of a call; None if it does not ask for that."""
    codec = parse_query(call.request.query).get("compress", "")
    if not codec:
        return None
    if codec != ZSTD:
        raise invalid(f"compress must be {ZSTD}")
    packer = packers.get(codec)
    if packer is None:
        message = f"this server has no {ZSTD}: install jobyard[{ZSTD}] there, or leave out compress"
        raise HttpRefused(406, "not_acceptable", message)
    return packer


def read_range(call: HttpCall, source: RowSource, name: str) -> ExportRange:
    """Return the range of a call; refuse it if the source does not have it."""
    asked = parse_query(call.request.query)
    check_incarnation(asked, source, name)
    head = source.head_seq()
    floor = source.floor()
    from_seq = query_whole(asked, "from_seq", max(floor - 1, 0))
    to_seq = query_whole(asked, "to_seq", max(head, from_seq))
    if to_seq < from_seq:
        raise invalid("to_seq must not be less than from_seq")
    if to_seq > max(head, 0):
        named = "from_seq" if from_seq > head else "to_seq"
        message = f"{named} is beyond the newest seq, {int(head)}"
        raise HttpRefused(416, "out_of_range", message, _bounds(source))
    wanted = ExportRange(name, source.incarnation(), from_seq, to_seq)
    wanted.may_have_gaps = query_flag(call, "allow_gap", otherwise=False)
    if from_seq + 1 < floor and from_seq < to_seq:
        wanted.gap_to = min(floor - 1, to_seq)
        if not wanted.may_have_gaps:
            detail = _bounds(source)
            detail["gap_from"] = int(from_seq) + 1
            detail["gap_to"] = int(wanted.gap_to)
            detail["reason"] = source.gap_reason(from_seq)
            message = "part of the range was removed; allow_gap=true exports the rest"
            raise HttpRefused(410, "gone", message, detail)
    return wanted


def read_columns(call: HttpCall, fields: list[ArrowField]) -> list[int]:
    """Return the indexes of the columns that a call names, in its order.

    By default all but the one that repeats another.
    """
    names = [field.name for field in fields]
    word = parse_query(call.request.query).get("columns", "")
    wanted = word.split(",") if word else [name for name in names if name != VALUE_FIELD]
    if len(set(wanted)) < len(wanted) or not set(wanted) <= set(names):
        raise invalid(f"columns must be names from {','.join(names)}, each at most once")
    return [names.index(name) for name in wanted]


def picked_fields(
    fields: list[ArrowField], places: list[int], *, is_nullable: bool
) -> list[ArrowField]:
    """Return the requested columns as the schema describes them."""
    picked = [fields[place] for place in places]
    if is_nullable:
        return [ArrowField(field.name, field.kind, is_nullable=True) for field in picked]
    return picked
