"""Routers created, shown and removed through the API."""

from typing import Any

import pytest

from jobyard.model.topic.config import TopicConfig
from tests.support.doors.streams import StreamsSite


def site_with(*topics: str, keys: str = "") -> StreamsSite:
    site = StreamsSite(keys)
    for topic in topics:
        assert site.ask("PUT", f"/v0/topics/{topic}", {}, "all")[0] == 201
    return site


def lead(
    site: StreamsSite, source: str, dest: str, name: str = "r", key: str = "", **more: object
) -> tuple[int, Any]:
    body = {"source": source, "dest": dest, **more}
    return site.ask("PUT", f"/v0/routers/{name}", body, key)


def code(answer: tuple[int, Any]) -> tuple[int, str]:
    return answer[0], answer[1]["error"]["code"]


def test_a_router_is_shown_as_it_was_made() -> None:
    site = site_with("a")
    status, made = lead(site, "a", "b", "a%3Eb", filter=["tag", "Glob", "t*"])
    assert status == 201
    fields = {
        "router": "a>b",
        "source": "a",
        "dest": "b",
        "preserve_node": True,
        "preserve_tag": True,
        "create_dest": True,
        "filter": ["tag", "Glob", "t*"],
        "allow_cycle": False,
        "guarantee": "at_least_once",
    }
    made.pop("performance")
    assert made == {**fields, "created": True}
    site.write("a", 1, tag="tt")
    site.write("a", 2)
    status, found = site.ask("GET", "/v0/routers/a%3Eb")
    found.pop("performance")
    assert (status, found) == (200, {**fields, "forwarded_total": 1, "cursor": 2, "lag": 0})
    assert [record["data"] for record in site.read("b")] == [1]
    status, made = lead(site, "a", "b", "a%3Eb", filter="t")
    assert (status, made["created"], made["filter"]) == (200, False, ["tag", "Eq", "t"])


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"source": "a"},
        {"source": "a", "dest": "a"},
        {"source": "a", "dest": "/"},
        {"source": 1, "dest": "b"},
        {"source": "a", "dest": "b", "preserve_tag": 1},
        {"source": "a", "dest": "b", "guarantee": "perhaps"},
        {"source": "a", "dest": "b", "filter": ["node", "Eq", "x"]},
    ],
)
def test_a_router_that_makes_no_sense_is_refused(body: object) -> None:
    site = site_with("a", "b")
    assert code(site.ask("PUT", "/v0/routers/r", body)) == (400, "invalid_request")
    assert code(site.ask("PUT", "/v0/routers/r%20r", {})) == (400, "invalid_request")
    assert site.yard.routers.by_name == {}


def test_a_source_that_is_not_there_is_made() -> None:
    site = site_with("a")
    assert lead(site, "x", "a")[0] == 201
    assert site.yard.logs["x"].config.fields() == TopicConfig().fields()
    site.ask("POST", "/v0/topics/x", {"records": [{"data": 1}]})
    assert [one["data"] for one in site.read("a")] == [1]
    # Refused, it leaves nothing behind.
    assert code(lead(site, "y", "a", "other")) == (409, "topic_exists_incompatible")
    assert code(lead(site, "y", "z", "r")) == (409, "router_repoint_forbidden")
    assert code(lead(site, "y", "z", "other", create_dest=False)) == (404, "topic_not_found")
    site.door.limits.topics = 3
    assert code(lead(site, "y", "z", "other"))[0] == 429
    assert sorted(site.yard.logs) == ["a", "x"]
    assert code(lead(site, "_events", "b", "other")) == (403, "forbidden")


def test_a_destination_must_be_there_unless_it_may_be_made() -> None:
    site = site_with("a")
    assert code(lead(site, "a", "b", create_dest=False)) == (404, "topic_not_found")
    assert "b" not in site.yard.logs
    assert lead(site, "a", "b")[0] == 201
    assert "b" in site.yard.logs


def test_a_queue_can_be_led_to() -> None:
    site = site_with("a")
    site.ask("PUT", "/v0/topics/q", {"type": "queue"})
    assert lead(site, "a", "q")[0] == 201
    site.write("a", {"x": 1})
    _, answer = site.ask("POST", "/v0/topics/q/claim", {"node": "n", "max": 2})
    assert [job["data"] for job in answer["claimed"]] == [{"x": 1}]


def test_a_queue_that_is_led_to_stays_when_it_is_empty() -> None:
    site = site_with("a")
    site.put(queue="tube")
    assert lead(site, "a", "tube")[0] == 201
    site.ask("POST", "/v0/topics/tube/delete", {"before_seq": 100})
    site.write("a", 1)
    assert "tube" not in site.yard.logs
    assert [record["data"] for record in site.read("tube")] == [1]


def test_what_cannot_be_is_refused_in_its_own_words() -> None:
    site = site_with("a", "b", "c")
    assert lead(site, "a", "b", "ab")[0] == 201
    status, answer = lead(site, "b", "a", "ba")
    assert (status, answer["error"]["code"]) == (409, "router_cycle")
    assert answer["error"]["detail"] == {"cycle": ["b", "a", "b"]}
    status, answer = lead(site, "c", "b", "cb")
    assert (status, answer["error"]["code"]) == (409, "topic_exists_incompatible")
    assert answer["error"]["detail"] == {"reason": "router_dest_fan_in"}
    assert code(lead(site, "a", "c", "ab")) == (409, "router_repoint_forbidden")
    assert lead(site, "b", "a", "ba", allow_cycle=True)[0] == 201


def test_there_are_only_so_many_routers() -> None:
    site = site_with("a", "b")
    site.door.limits.routers = 1
    assert lead(site, "a", "b", "ab")[0] == 201
    status, answer = lead(site, "a", "c", "ac")
    assert (status, answer["error"]["code"]) == (429, "throttled")
    assert answer["error"]["detail"] == {"limit": "max_routers", "max": 1}
    assert "c" not in site.yard.logs
    assert lead(site, "a", "b", "ab", preserve_tag=False)[0] == 200


def test_routers_are_listed_by_page_and_by_their_ends() -> None:
    site = site_with("a", "b", "c", "d", "e")
    for source, dest in ("ab", "ac", "bd", "be"):
        assert lead(site, source, dest, f"{source}-{dest}")[0] == 201
    _, answer = site.ask("GET", "/v0/routers?page_size=3")
    assert [one["router"] for one in answer["routers"]] == ["a-b", "a-c", "b-d"]
    _, answer = site.ask("GET", f"/v0/routers?page_size=3&cursor={answer['next_cursor']}")
    assert [one["router"] for one in answer["routers"]] == ["b-e"]
    assert "next_cursor" not in answer
    for query, names in (
        ("source=b", ["b-d", "b-e"]),
        ("dest=c", ["a-c"]),
        ("prefix=a", ["a-b", "a-c"]),
        ("prefix=x", []),
    ):
        _, answer = site.ask("GET", f"/v0/routers?{query}")
        assert [one["router"] for one in answer["routers"]] == names
    assert code(site.ask("GET", "/v0/routers?cursor=%2F")) == (400, "invalid_request")


def test_a_router_is_removed_once() -> None:
    site = site_with("a", "b")
    lead(site, "a", "b")
    assert site.ask("DELETE", "/v0/routers/r")[1]["deleted"]
    assert not site.ask("DELETE", "/v0/routers/r")[1]["deleted"]
    assert code(site.ask("GET", "/v0/routers/r")) == (404, "router_not_found")
    site.write("a", 1)
    assert site.read("b") == []


def test_a_topic_that_is_deleted_names_the_routers_that_went_with_it() -> None:
    site = site_with("a", "b", "c")
    lead(site, "a", "b", "x")
    lead(site, "b", "c", "w")
    _, answer = site.ask("DELETE", "/v0/topics/b")
    assert (answer["deleted"], answer["routers_removed"]) == (True, ["w", "x"])
    _, answer = site.ask("DELETE", "/v0/topics/b")
    assert (answer["deleted"], answer["routers_removed"]) == (False, [])


def test_a_full_topic_keeps_its_routers() -> None:
    site = site_with("a")
    lead(site, "a", "b")
    site.write("a", 1)
    assert site.ask("DELETE", "/v0/topics/a?if_empty=true")[0] == 409
    assert "r" in site.yard.routers.by_name


def test_a_full_destination_does_not_refuse_the_write() -> None:
    site = site_with("a")
    site.ask("PUT", "/v0/topics/b", {"cap_records": 1, "discard": "reject"})
    lead(site, "a", "b")
    site.write("a", 1, 2)
    _, answer = site.ask("GET", "/v0/routers/r")
    assert (answer["cursor"], answer["lag"], answer["forwarded_total"]) == (1, 1, 1)


def test_a_watch_sees_copies_in_the_turn_of_the_write() -> None:
    site = site_with("a", "b")
    lead(site, "a", "b")
    _, answer = site.ask("POST", "/v0/watch", {"topics": {"b": {}}})
    line = site.connect()
    line.open_stream(answer["stream_url"])
    site.write("a", 1)
    assert line.events()[0].data["records"][0]["data"] == 1


KEYS = "all,reader:r,narrow::n.,admin:a,deleter:d"


@pytest.mark.parametrize(
    ("key", "method", "path", "status"),
    [
        ("reader", "PUT", "/v0/routers/x", 403),
        ("reader", "GET", "/v0/routers/r", 200),
        ("reader", "GET", "/v0/routers", 200),
        ("reader", "DELETE", "/v0/routers/r", 403),
        ("deleter", "DELETE", "/v0/routers/r", 200),
        ("deleter", "GET", "/v0/routers", 403),
        ("narrow", "GET", "/v0/routers/r", 403),
        ("narrow", "DELETE", "/v0/routers/r", 403),
        ("narrow", "PUT", "/v0/routers/x", 403),
        ("admin", "PUT", "/v0/routers/x", 201),
        ("", "GET", "/v0/routers", 401),
    ],
)
def test_routers_need_their_rights(key: str, method: str, path: str, status: int) -> None:
    site = site_with("a", "b", "n.a", keys=KEYS)
    assert lead(site, "a", "b", key="all")[0] == 201
    body = {"source": "n.a", "dest": "c"} if method == "PUT" else None
    assert site.ask(method, path, body, key)[0] == status


def test_a_list_shows_only_what_a_key_covers() -> None:
    site = site_with("a", "n.a", "n.b", keys=KEYS)
    lead(site, "a", "b", "r", "all")
    lead(site, "n.a", "n.b", "s", "narrow")
    _, answer = site.ask("GET", "/v0/routers", key="narrow")
    assert [one["router"] for one in answer["routers"]] == ["s"]
