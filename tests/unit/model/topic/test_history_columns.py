from datetime import UTC, datetime

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from jobyard.model.topic.history_columns import HistoryColumns
from jobyard.model.topic.history_row import CLAIMED, ENQUEUED, HistoryRow
from jobyard.protocols.topics.export.sources import HISTORY_FIELDS
from jobyard.wire.arrow.stream import END, batch_message, schema_message

MS = st.integers(0, 10**13)
NUMBER = st.integers(0, (1 << 63) - 1)
WORD = st.text(st.characters(codec="utf-8"), max_size=8)
TEXTS = (
    *("state", "family", "door", "error", "worker", "client_id", "name"),
    *("origin_queue", "reason", "letter_topic"),
)
NUMBERS = ("rank", "attempts", "deliveries", "size")
KNOWN_NUMBERS = ("lease", "holder", "ttl_ms", "queue_seq", "origin_id", "letter_seq")
TIMES = ("due_ms", "enqueued_ms", "available_ms", "claimed_ms", "finished_ms")


def at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


@st.composite
def rows(draw: st.DrawFn) -> HistoryRow:
    event = draw(st.sampled_from((ENQUEUED, CLAIMED, "completed")))
    row = HistoryRow(draw(NUMBER), draw(MS), event, draw(WORD), draw(NUMBER))
    for name in TEXTS:
        setattr(row, name, draw(WORD))
    for name in NUMBERS + KNOWN_NUMBERS:
        setattr(row, name, draw(NUMBER | st.just(0)))
    for name in TIMES:
        setattr(row, name, draw(MS | st.just(0)))
    return row


def as_read(row: HistoryRow) -> dict[str, object]:
    """Return what a reader should see of a row."""
    found: dict[str, object] = {
        "seq": row.seq,
        "ts": row.ts_ms * 1000,
        "event": row.event,
        "queue": row.queue,
        "job_id": row.job_id,
    }
    found |= {name: getattr(row, name) or None for name in TEXTS + KNOWN_NUMBERS}
    found |= {name: getattr(row, name) for name in NUMBERS}
    found |= {f"{name.removesuffix('_ms')}_at": getattr(row, name) * 1000 or None for name in TIMES}
    return found


@given(st.lists(rows(), max_size=20))
def test_every_row_is_read_back_field_by_field(history: list[HistoryRow]) -> None:
    made = HistoryColumns()
    for row in history:
        made.add(row)
    data = schema_message(HISTORY_FIELDS, {}) + batch_message(made.columns(), {}) + END
    table = pa.ipc.open_stream(data).read_all()
    table.validate(full=True)
    times = [i for i, field in enumerate(table.schema) if pa.types.is_timestamp(field.type)]
    assert len(times) == 6
    for i in times:
        field = table.schema.field(i).with_type(pa.int64())
        table = table.set_column(i, field, table.column(i).cast(pa.int64()))
    assert table.to_pylist() == [as_read(row) for row in history]


def test_what_a_row_does_not_know_has_no_value() -> None:
    made = HistoryColumns()
    made.add(HistoryRow(7, 1_700_000_000_000, ENQUEUED, "q", 3))
    data = schema_message(HISTORY_FIELDS, {}) + batch_message(made.columns(), {}) + END
    [row] = pa.ipc.open_stream(data).read_all().to_pylist()
    assert {name: value for name, value in row.items() if value is not None} == {
        "seq": 7,
        "ts": at(1_700_000_000_000),
        "event": "enqueued",
        "queue": "q",
        "job_id": 3,
        "rank": 0,
        "attempts": 0,
        "deliveries": 0,
        "size": 0,
    }
