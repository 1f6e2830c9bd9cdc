"""What records hold, as it arrives in the column `value`."""

import base64
import json
from collections.abc import Mapping

from tests.support.clients.spark import read_batch
from tests.support.servers.http import HttpYard, Topics

BINARY = bytes(range(256))


def write(topics: Topics, topic: str, *records: Mapping[str, object]) -> None:
    assert topics.ask("POST", f"/v0/topics/{topic}", {"records": list(records)})[0] < 300


def test_values_are_the_bytes_that_were_written(yard: HttpYard, topics: Topics) -> None:
    texts = ["", "ä\u0000", "x" * 1_000_000]
    write(topics, "texts", *({"data": text} for text in texts), {"data": None}, {"data": {"a": 1}})
    values = [row["value"] for row in read_batch(yard.url, "value", topic="texts")]
    assert [json.loads(value) for value in values] == [*texts, None, {"a": 1}]


def test_bytes_are_not_changed(yard: HttpYard, topics: Topics) -> None:
    raw = [BINARY, b"", b"\xff"]
    write(topics, "bytes", *({"data_b64": base64.b64encode(each).decode()} for each in raw))
    assert [row["value"] for row in read_batch(yard.url, "value", topic="bytes")] == raw


def test_headers_are_what_was_written(yard: HttpYard, topics: Topics) -> None:
    write(topics, "heads", {"data": 1, "meta": {"a": "b", "n": 1}, "tag": "k"}, {"data": 2})
    first, second = read_batch(yard.url, "", topic="heads")
    assert (first["key"], first["headers"]) == (b"k", [("a", "b"), ("n", "1")])
    assert (second["key"], second["headers"]) == (None, None)
    (kafka, _) = read_batch(yard.url, "", subscribe="heads", includeHeaders="true")
    assert kafka["headers"] == [{"key": "a", "value": b"b"}, {"key": "n", "value": b"1"}]
    assert (kafka["offset"], kafka["timestampType"], kafka["value"]) == (1, 1, b"1")


def test_a_value_that_nobody_asks_for_is_not_read(yard: HttpYard, topics: Topics) -> None:
    write(topics, "bare", {"data": 1})
    (row,) = read_batch(yard.url, "", topic="bare", includePayload="false", includeHeaders="false")
    assert list(row) == ["topic", "partition", "seq", "ts", "key", "node"]
