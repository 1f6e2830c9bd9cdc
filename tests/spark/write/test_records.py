"""Rows as records: the short way for plain batches gives what the long one gives, or declines."""

import json
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobyard.client import Answer
from jobyard.spark.write.options import WriteOptions, write_options
from jobyard.spark.write.records import (
    ATTEMPTS_MAX,
    BAD_TOPIC,
    DELAY_MS_MAX,
    DEPTH_MAX,
    HEADERS_COUNT_MAX,
    HEADERS_SIZE_MAX,
    JOB_ID_MAX,
    JOB_NAME_MAX,
    KEY_MAX,
    NODE_MAX,
    PRIORITY_MAX,
    TAG_MAX,
    TOO_LARGE,
    VALUE_MAX,
    BadRow,
    Record,
    RecordReader,
)
from jobyard.spark.write.sending import CHUNK_BYTES, CHUNK_ROWS, WAITING_BYTES, ChunkSender

PLAIN = write_options({"url": "http://localhost:1", "topic": "t"}, None)


def batch_of(*values: object, kind: pa.DataType = None) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(values, kind)], names=["value"])


def long_way(batch: pa.RecordBatch, options: WriteOptions = PLAIN) -> list[Record | BadRow]:
    return list(RecordReader(options).read(batch))


@pytest.mark.parametrize(
    "values",
    [
        ['{"a":1}', "[1, 2]", '"text"', "1", "null", "-1e9"],
        [b'{"a":1}', b"true"],
        ['"\u00e4\U0001f600"', '"\\ud800"'],
        [{"a": 1, "b": "x"}, {"a": 2, "b": None}],
        [1, None, 3][:1],
        [],
    ],
)
def test_values_that_are_json_go_the_short_way(values: list[object]) -> None:
    batch = batch_of(*values, kind=None if values else pa.string())
    found = RecordReader(PLAIN).bodies(batch)
    assert found is not None
    assert [Record("t", body) for body in found] == long_way(batch)


@pytest.mark.parametrize(
    "value",
    [
        None, "", " ", "a", "{", '{"a":1},{"b":2}', "1 2", '1}{"data":2', "NaN", "[Infinity]",
        " 1", "1\n", b"\xff", "[" * 100_000, "1" * (VALUE_MAX + 1), b"1" * (VALUE_MAX + 1),
    ],
    ids=str,
)  # fmt: skip
def test_any_other_value_makes_a_batch_go_the_long_way(value: str | bytes | None) -> None:
    around = (b"1", b"2") if isinstance(value, bytes) else ("1", "2")
    batch = batch_of(around[0], value, around[1])
    reader = RecordReader(PLAIN)
    assert reader.bodies(batch) is None
    first, middle, last = reader.read(batch)
    assert (first, last) == (Record("t", '{"data":1}'), Record("t", '{"data":2}'))
    if isinstance(middle, BadRow):
        assert middle.row == 1


@given(st.lists(st.text(alphabet='{}[]",:1aN \\', max_size=8), max_size=5))
def test_no_text_is_taken_for_json_that_is_none(values: list[str]) -> None:
    batch = batch_of(*values, kind=pa.string())
    found = RecordReader(PLAIN).bodies(batch)
    if found is not None:
        assert [Record("t", body) for body in found] == long_way(batch)


def test_only_values_for_one_topic_as_json_go_the_short_way() -> None:
    batch = batch_of("1")
    keyed = pa.RecordBatch.from_arrays([pa.array(["1"]), pa.array(["k"])], names=["value", "key"])
    assert RecordReader(PLAIN).bodies(keyed) is None
    assert RecordReader(replace(PLAIN, topic="")).bodies(batch) is None
    assert RecordReader(replace(PLAIN, value_format="bytes")).bodies(batch) is None
    assert RecordReader(replace(PLAIN, value_format="json")).bodies(batch) == ['{"data":1}']


def test_rows_are_counted_on_both_ways() -> None:
    reader = RecordReader(PLAIN)
    assert reader.bodies(batch_of("1", "2")) is not None
    (bad,) = reader.read(batch_of(None, kind=pa.string()))
    assert isinstance(bad, BadRow)
    assert bad.row == 2


WIDE = "\u00e4"


def value_of(size: int) -> str:
    """Return a JSON text of so many bytes, which has fewer characters."""
    return '"' + WIDE * (size // 2 - 1) + "x" * (size % 2) + '"'


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary()])
@pytest.mark.parametrize(("size", "fits"), [(VALUE_MAX, True), (VALUE_MAX + 1, False)])
def test_values_are_measured_in_bytes(kind: pa.DataType, size: int, *, fits: bool) -> None:
    text = value_of(size)
    assert (len(text.encode()), len(text) < VALUE_MAX) == (size, True)
    batch = batch_of(text.encode() if kind == pa.binary() else text, kind=kind)
    bodies = RecordReader(PLAIN).bodies(batch)
    (long,) = long_way(batch)
    if fits:
        assert bodies is not None
        assert long == Record("t", bodies[0])
    else:
        assert bodies is None
        assert isinstance(long, BadRow)
        assert long.reason == TOO_LARGE


@pytest.mark.parametrize(
    ("name", "most"),
    [("key", KEY_MAX), ("tag", TAG_MAX), ("node", NODE_MAX), ("job_id", JOB_ID_MAX),
     ("name", JOB_NAME_MAX)],
)  # fmt: skip
@pytest.mark.parametrize(("more", "fits"), [(0, True), (1, False)])
def test_labels_are_measured_in_bytes(name: str, most: int, more: int, *, fits: bool) -> None:
    label = WIDE * (most // 2) + "x" * more
    batch = pa.RecordBatch.from_pydict({"value": ["1"], name: [label]})
    (found,) = long_way(batch)
    assert isinstance(found, Record) == fits
    if isinstance(found, BadRow):
        assert found.reason == f"{name} is empty or longer than {most} bytes"


def with_headers(value: str, headers: list[tuple[str, str]]) -> pa.RecordBatch:
    kind = pa.map_(pa.string(), pa.string())
    columns = [pa.array([value]), pa.array([headers], kind)]
    return pa.RecordBatch.from_arrays(columns, names=["value", "headers"])


@pytest.mark.parametrize(
    ("value", "headers", "fits"),
    [
        ("1", [("h", WIDE * ((HEADERS_SIZE_MAX - 8) // 2))], True),
        ("1", [("h", WIDE * ((HEADERS_SIZE_MAX - 6) // 2))], False),
        ("1", [(f"h{n}", "") for n in range(HEADERS_COUNT_MAX)], True),
        ("1", [(f"h{n}", "") for n in range(HEADERS_COUNT_MAX + 1)], False),
        (value_of(VALUE_MAX - 9), [("h", "1")], True),
        (value_of(VALUE_MAX - 8), [("h", "1")], False),
    ],
)
def test_headers_are_measured_in_bytes_and_count_with_the_value(
    value: str, headers: list[tuple[str, str]], *, fits: bool
) -> None:
    (found,) = long_way(with_headers(value, headers))
    assert isinstance(found, Record) == fits, found


@pytest.mark.parametrize("opened", ["[", '{"a":'])
def test_json_that_is_deeper_than_the_server_reads_is_no_json(opened: str) -> None:
    closed = "]" if opened == "[" else "}"
    fits, deep = (opened * depth + "1" + closed * depth for depth in (DEPTH_MAX, DEPTH_MAX + 1))
    for text, is_json in ((fits, True), (deep, False)):
        batch = batch_of(text)
        assert (RecordReader(PLAIN).bodies(batch) is not None) == is_json
        (found,) = long_way(batch)
        assert isinstance(found, Record)
        assert found.body.startswith('{"data":' if is_json else '{"data_b64":')
    # Brackets in strings do not count.
    assert RecordReader(PLAIN).bodies(batch_of(json.dumps(['[\\"[' * 1000]))) is not None


def bad_text(name: str) -> pa.RecordBatch:
    """Return rows whose first text is not UTF-8, which Spark does not check."""
    places, texts = b"\0\0\0\0\1\0\0\0\2\0\0\0", b"\xff7"
    column = pa.Array.from_buffers(
        pa.string(), 2, [None, pa.py_buffer(places), pa.py_buffer(texts)]
    )
    columns = {"value": pa.array(["1", "2"]), name: column}
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def test_a_text_that_is_not_utf8_concerns_its_row_only() -> None:
    assert RecordReader(PLAIN).bodies(bad_text("value")) is None
    assert long_way(bad_text("value")) == [
        Record("t", '{"data_b64":"/w=="}'),
        Record("t", '{"data":7}'),
    ]
    for name in ("key", "tag", "node", "job_id", "name"):
        bad, good = long_way(bad_text(name))
        assert bad == BadRow(0, f"{name} is not UTF-8", "1")
        assert good == Record("t", f'{{"data":2,"{name}":"7"}}', 2 if name == "key" else 1)
    bad, good = long_way(bad_text("topic"), replace(PLAIN, topic=""))
    assert (bad, good) == (BadRow(0, BAD_TOPIC, "1"), Record("7", '{"data":2}'))


def test_what_a_job_has_is_passed_on() -> None:
    columns = {
        "value": ["1", "2", "3"],
        "job_id": ['mail-"7"', None, "\u00e4"],
        "name": ["send", None, None],
        "max_attempts": pa.array([1, None, ATTEMPTS_MAX], pa.int32()),
        "priority": pa.array([-PRIORITY_MAX, None, PRIORITY_MAX], pa.int64()),
        "delay_ms": pa.array([0, None, DELAY_MS_MAX], pa.int64()),
    }
    batch = pa.RecordBatch.from_pydict(columns)
    # Only what has no other columns goes the short way.
    assert RecordReader(PLAIN).bodies(batch) is None
    found = [json.loads(one.body) for one in long_way(batch) if isinstance(one, Record)]
    assert found == [
        {"data": 1, "job_id": 'mail-"7"', "name": "send", "delay_ms": 0,
         "priority": -PRIORITY_MAX, "max_attempts": 1},
        {"data": 2},
        {"data": 3, "job_id": "\u00e4", "delay_ms": DELAY_MS_MAX, "priority": PRIORITY_MAX,
         "max_attempts": ATTEMPTS_MAX},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "number"),
    [("max_attempts", 0), ("max_attempts", ATTEMPTS_MAX + 1), ("delay_ms", -1),
     ("delay_ms", DELAY_MS_MAX + 1), ("priority", PRIORITY_MAX + 1)],
)  # fmt: skip
def test_numbers_have_bounds(name: str, number: int) -> None:
    (bad,) = long_way(pa.RecordBatch.from_pydict({"value": ["1"], name: [number]}))
    assert isinstance(bad, BadRow)
    assert bad.reason.startswith(f"{name} is not between ")


class Posted:
    """A client that keeps how many records each call had, and how many bytes."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.bytes: list[int] = []
        self.topics: list[str] = []

    def send(self, _method: str, path: str, data: bytes, *, is_repeatable: bool) -> Answer:
        assert is_repeatable
        body = json.loads(data)
        self.sizes.append(len(body["records"]))
        self.bytes.append(len(data))
        self.topics.append(body.get("topic", path))
        return Answer({}, "", 200)


@pytest.mark.parametrize(
    ("batches", "sizes"),
    [
        ([CHUNK_ROWS], [CHUNK_ROWS]),
        ([CHUNK_ROWS - 1, 2], [CHUNK_ROWS, 1]),
        ([2 * CHUNK_ROWS + 3], [CHUNK_ROWS, CHUNK_ROWS, 3]),
        ([0], []),
        ([1, 0, 1], [2]),
    ],
)
def test_chunks_are_full_but_the_last(batches: list[int], sizes: list[int]) -> None:
    client = Posted()
    sender = ChunkSender(client, "", 0, 1)  # type: ignore[arg-type]
    for count in batches:
        sender.add_all("t", ['{"data":1}'] * count)
    assert sender.finish() == []
    assert client.sizes == sizes
    assert sender.counts.written == sum(sizes)


def test_chunks_are_measured_in_bytes() -> None:
    client = Posted()
    sender = ChunkSender(client, "x:1", 0, 1)  # type: ignore[arg-type]
    body = f'{{"data":{value_of(1 << 20)}}}'
    sender.add_all("t", [body] * 7)
    sender.add(Record("t", body))
    (part,) = sender.finish()
    assert (client.sizes, part.chunks, part.rows) == ([3, 3, 2], 3, 8)
    # The head of the call comes on top.
    assert max(client.bytes) < CHUNK_BYTES + 200


def test_chunks_of_many_topics_do_not_wait_without_end() -> None:
    client = Posted()
    sender = ChunkSender(client, "x:1", 0, 1)  # type: ignore[arg-type]
    body = f'{{"data":{value_of(1 << 20)}}}'
    for each in range(40):
        sender.add(Record(f"t{each}", body))
    assert len(client.sizes) == 40 - WAITING_BYTES // len(body.encode())
    assert len(sender.finish()) == len(set(client.topics)) == 40


def test_a_topic_is_a_string_of_json() -> None:
    client = Posted()
    sender = ChunkSender(client, "x:1", 0, 1)  # type: ignore[arg-type]
    sender.add(Record('a","part":7,"b":"', '{"data":1}'))
    sender.finish()
    assert client.topics == ['a","part":7,"b":"']
