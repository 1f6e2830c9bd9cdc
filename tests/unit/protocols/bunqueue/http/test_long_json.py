"""Long answers of the HTTP API, made in slices."""

import json

import pytest

from jobyard.model.job import MSGPACK
from jobyard.protocols.bunqueue.http.long_json import JsonTask
from jobyard.protocols.bunqueue.http.runner import JSON_AT_ONCE
from jobyard.wire.msgpack.write import encode
from jobyard.wire.payload import to_json
from tests.support.doors.http import BareHttp

VALUES: list[object] = [
    7,
    {},
    [],
    {"ok": True, "jobs": []},
    {"ok": True, "jobs": [{"id": "1", "data": {"a": [1, {"b": None}]}}, {}, 3, "x"]},
    {"data": {"queues": [{"n": 1}, {"n": 2}], "total": 2.5}, "ok": False},
    [[1, 2], {"k": "v"}, "text \u00e4 \n"],
]


@pytest.mark.parametrize("value", VALUES)
def test_what_is_shown_part_by_part_is_what_is_shown_whole(value: object) -> None:
    data = encode(value)
    task = JsonTask([data])
    for _ in range(1000):
        if task.step(1, 0) == 0:
            break
    assert b"".join(task.pieces()) == to_json(MSGPACK, data)


def test_a_long_list_is_made_in_slices_and_others_are_served() -> None:
    site = BareHttp()
    tcp = site.connect()
    tcp.ok("PUSHB", queue="q", jobs=[{"data": "x" * 200, "priority": at} for at in range(400)])
    client, other = site.call(), site.call()
    site.yard.tasks.units_per_turn = 200
    site.is_slow = True
    site.slice()
    client.send("GET", "/queues/q/jobs/list?limit=400")
    turns = 1
    while site.slice():
        turns += 1
        other.send("GET", "/ping")
        assert other.unread.startswith(b"HTTP/1.1 200")
        other.unread = b""
    assert turns > 30
    head, _, body = client.unread.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    assert len(body) > JSON_AT_ONCE
    assert [job["priority"] for job in json.loads(body)["jobs"]] == list(range(400))


def test_who_leaves_meanwhile_costs_nothing_more() -> None:
    site = BareHttp()
    tcp = site.connect()
    tcp.ok("PUSHB", queue="q", jobs=[{"data": "x" * 200}] * 400)
    client = site.call()
    site.yard.tasks.units_per_turn = 200
    site.is_slow = True
    for turns in (1, 25):
        client = site.call()
        client.send("GET", "/queues/q/jobs/list?limit=400")
        for _ in range(turns):
            assert site.slice()
        client.session.closed(site.now_ms)
        assert site.yard.tasks.count() == 0
