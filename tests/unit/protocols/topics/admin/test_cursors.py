"""Cursors of readers through the API."""

from typing import Any

import pytest

from tests.support.doors.streams import StreamsSite
from tests.support.site.storage import MemoryStorage

KEYS = "all,read:read,narrow:read+write:other"


def site_with_records(count: int = 5, keys: str = "") -> StreamsSite:
    site = StreamsSite(keys)
    assert site.ask("PUT", "/v0/topics/log", {}, "all")[0] == 201
    for n in range(count):
        assert site.ask("POST", "/v0/topics/log", {"records": [{"data": n}]}, "all")[0] == 200
    return site


def put(
    site: StreamsSite, seq: object, name: str = "c", key: str = "", **more: object
) -> tuple[int, Any]:
    return site.ask("PUT", f"/v0/topics/log/cursors/{name}", {"seq": seq, **more}, key)


def code(answer: tuple[int, Any]) -> tuple[int, str]:
    return answer[0], answer[1]["error"]["code"]


def test_a_cursor_shows_how_far_its_reader_is_behind() -> None:
    site = site_with_records()
    status, made = put(site, 2)
    made.pop("performance")
    updated_ms = made.pop("updated_ms")
    incarnation = site.ask("GET", "/v0/topics/log")[1]["incarnation"]
    shown = {
        "cursor": "c",
        "topic": "log",
        "seq": 2,
        "incarnation": incarnation,
        "hold": False,
        "is_broken": False,
        "lag": 3,
        "lag_ms": 0,
    }
    assert (status, made) == (201, {**shown, "created": True})
    site.now_ms += 5000
    site.yard.now_ms = site.now_ms
    status, found = site.ask("GET", "/v0/topics/log/cursors/c")
    found.pop("performance")
    assert (status, found) == (200, {**shown, "lag_ms": 5000, "updated_ms": updated_ms})
    assert put(site, 5)[1]["lag_ms"] == 0
    listed = site.ask("GET", "/v0/topics/log/cursors")[1]["cursors"]
    assert [(one["cursor"], one["seq"], one["lag"]) for one in listed] == [("c", 5, 0)]
    assert site.ask("GET", "/v0/topics/log")[1]["cursors"] == listed


def test_records_that_are_gone_are_no_lag() -> None:
    site = site_with_records(9)
    assert put(site, 0)[1]["lag"] == 9
    site.ask("POST", "/v0/topics/log/delete", {"before_seq": 4})
    shown = [put(site, seq)[1]["lag"] for seq in (0, 2, 3, 4, 6, 8, 9)]
    assert shown == [6, 6, 6, 5, 3, 1, 0]


def test_a_cursor_goes_back_only_by_force() -> None:
    site = site_with_records()
    put(site, 4)
    refused = put(site, 3)
    assert code(refused) == (409, "cursor_behind")
    assert refused[1]["error"]["detail"] == {"seq": 4}
    assert put(site, 3, force=True)[0] == 200


@pytest.mark.parametrize(
    ("body", "refusal"),
    [
        ({}, (400, "invalid_request")),
        ({"seq": -1}, (400, "invalid_request")),
        ({"seq": "1"}, (400, "invalid_request")),
        ({"seq": 6}, (416, "out_of_range")),
        ({"seq": 1 << 63}, (416, "out_of_range")),
        ({"seq": 10**19}, (416, "out_of_range")),
        ({"seq": 1, "hold": 1}, (400, "invalid_request")),
        ({"seq": 1, "incarnation": "7"}, (409, "wrong_incarnation")),
    ],
)
def test_a_bad_cursor_is_refused(body: dict[str, object], refusal: tuple[int, str]) -> None:
    site = site_with_records()
    assert code(site.ask("PUT", "/v0/topics/log/cursors/c", body)) == refusal
    assert site.yard.cursors.count == 0


@pytest.mark.parametrize("name", ["a%20b", "%C3%A4", "x" * 129, "a%2Fb"])
def test_a_bad_name_is_refused(name: str) -> None:
    site = site_with_records()
    assert code(put(site, 1, name)) == (400, "invalid_request")


def test_a_cursor_of_no_topic_is_refused() -> None:
    site = site_with_records()
    for path in ("/v0/topics/none/cursors/c", "/v0/topics/_events/cursors/c"):
        assert code(site.ask("GET", path)) == (404, "topic_not_found")
        assert code(site.ask("PUT", path, {"seq": 0})) == (404, "topic_not_found")
    assert code(site.ask("GET", "/v0/topics/log/cursors/c")) == (404, "cursor_not_found")


def test_the_lag_of_a_queue_is_the_age_of_its_first_job() -> None:
    site = StreamsSite("")
    site.ask("PUT", "/v0/topics/q", {"type": "queue"})
    path = "/v0/topics/q/cursors/c"
    assert site.ask("PUT", path, {"seq": 0})[1]["lag_ms"] == 0
    for _ in range(2):
        site.now_ms += 3000
        site.yard.now_ms = site.now_ms
        site.ask("POST", "/v0/topics/q", {"records": [{"data": 1}]})
    site.now_ms += 1000
    site.yard.now_ms = site.now_ms
    shown = site.ask("GET", path)[1]
    assert (shown["lag"], shown["lag_ms"]) == (2, 4000)
    assert site.ask("PUT", path, {"seq": 1})[1]["lag_ms"] == 1000
    site.ask("POST", "/v0/topics/q/claim", {"node": "n", "max": 9})
    site.ask("POST", "/v0/topics/q/ack", {"node": "n", "seqs": [1, 2]})
    shown = site.ask("GET", path)[1]
    assert (shown["lag"], shown["lag_ms"]) == (1, 0)


def test_a_hold_ends_only_by_administrators() -> None:
    site = site_with_records(keys=KEYS)
    path = "/v0/topics/log/cursors/c"
    assert put(site, 1, key="all", hold=True)[0] == 201
    assert code(site.ask("DELETE", path, None, "read")) == (403, "forbidden")
    assert code(put(site, 2, key="read")) == (403, "forbidden")
    assert code(put(site, 2, key="read", hold=False)) == (403, "forbidden")
    found = site.ask("GET", path, None, "read")[1]
    assert (found["hold"], found["seq"]) == (True, 1)
    assert put(site, 2, key="all", hold=False)[0] == 200
    assert site.ask("DELETE", path, None, "read")[1]["deleted"]
    assert not site.ask("DELETE", path, None, "read")[1]["deleted"]
    put(site, 1, key="all", hold=True)
    assert site.ask("DELETE", path, None, "all")[1]["deleted"]


def test_only_logs_can_be_held_and_only_by_administrators() -> None:
    site = site_with_records(keys=KEYS)
    assert code(put(site, 1, key="read", hold=True)) == (403, "forbidden")
    assert code(put(site, 1, key="narrow")) == (403, "forbidden")
    assert put(site, 1, key="read")[0] == 201
    assert put(site, 1, key="all", hold=True)[1]["hold"] is True
    # It keeps holding until told otherwise.
    assert put(site, 2, key="all")[1]["hold"] is True
    assert put(site, 3, key="all", hold=False)[1]["hold"] is False
    site.ask("PUT", "/v0/topics/q", {"type": "queue"}, "all")
    path = "/v0/topics/q/cursors/c"
    assert code(site.ask("PUT", path, {"seq": 0, "hold": True}, "all")) == (409, "not_a_log")
    assert site.ask("PUT", path, {"seq": 0}, "all")[0] == 201


def test_cursors_go_with_their_topic() -> None:
    site = site_with_records()
    put(site, 2)
    site.ask("DELETE", "/v0/topics/log")
    assert site.yard.cursors.count == 0
    site.ask("PUT", "/v0/topics/log", {})
    assert code(site.ask("GET", "/v0/topics/log/cursors/c")) == (404, "cursor_not_found")
    assert site.ask("DELETE", "/v0/topics/log/cursors/c")[1]["deleted"] is False


def test_there_are_not_too_many_cursors() -> None:
    site = site_with_records()
    site.door.limits.cursors = 2
    assert put(site, 1, "a")[0] == 201
    assert put(site, 1, "b")[0] == 201
    assert code(put(site, 1, "c")) == (429, "throttled")
    assert put(site, 2, "a")[0] == 200
    assert site.ask("DELETE", "/v0/topics/log/cursors/b")[1]["deleted"] is True
    assert put(site, 1, "c")[0] == 201


def test_a_cursor_of_history() -> None:
    site = StreamsSite(storage=MemoryStorage(), window=(1 << 40, 1 << 40))
    path = "/v0/topics/_events/cursors/spark"
    site.ask("PUT", "/v0/topics/q", {"type": "queue"})
    site.write("q", 1)
    site.commit()
    head = site.ask("GET", "/v0/topics/_events")[1]["head_seq"]
    status, made = site.ask("PUT", path, {"seq": 0, "hold": True})
    # The job that was put is the only row.
    assert (status, made["lag"], made["hold"]) == (201, 1, True)
    site.write("q", 1, 2)
    assert site.ask("GET", path)[1]["lag"] == 1
    site.commit()
    assert site.ask("GET", path)[1]["lag"] == 3
    assert site.ask("PUT", path, {"seq": head})[1]["lag"] == 2
    assert site.ask("PUT", path, {"seq": 0, "force": True})[1]["lag"] == 3
    assert site.journal.history.hold_seq == 0
    site.ask("DELETE", path)
    assert site.journal.history.hold_seq > head
