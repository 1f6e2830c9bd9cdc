"""The description of the API: complete, valid, and true of every answer."""

import json
import re
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from jobyard import __version__
from jobyard.model.secrets import digest_of
from jobyard.protocols.http import openapi
from jobyard.protocols.http.routes import Parameter, Route, Routes, RouteSchemas, Schema
from jobyard.protocols.topics.api_keys import read_keys
from jobyard.protocols.topics.door import TopicsDoor
from jobyard.protocols.topics.routes import install
from tests.support.clients.http import BunqueueHttpClient, Reply
from tests.support.clients.openapi import METHODS, Reader, references_in, schemas_in
from tests.support.doors.http import BareHttp
from tests.support.site.facts import CountedRandomSource

JSON = {"Content_Type": "application/json"}


class Port(BareHttp):
    """The whole port, as a server opens it."""

    def __init__(self, keys: str = "", tokens: tuple[bytes, ...] = ()) -> None:
        super().__init__()
        topics = TopicsDoor(self.yard, self.now_ms)
        topics.keys = read_keys(keys)
        topics.random_source = CountedRandomSource()
        self.door.tokens = [digest_of(one) for one in tokens]
        install(self.routes, topics)
        openapi.install(self.routes)

    def document(self) -> dict[str, Any]:
        """Return the document as it is served."""
        reply = self.call().ask("GET", "/openapi.json")
        assert reply.status == 200
        assert reply.headers["content-type"] == "application/json"
        made: dict[str, Any] = reply.json
        return made


class Walk:
    """One caller whose every answer is checked against the document."""

    def __init__(self, port: Port) -> None:
        self.reader = Reader(port.document())
        self._client: BunqueueHttpClient = port.call()

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> Reply:
        reply = self._client.ask(method, path, body, **JSON, **headers)
        self.reader.judge(method, path, reply)
        return reply

    def topic(self, word: str, body: object, status: int = 200, name: str = "q") -> Any:
        path = f"/v0/topics/{name}"
        reply = self.ask("POST", f"{path}/{word}" if word else path, body)
        assert reply.status == status, reply.body
        return reply.json


@pytest.fixture
def port() -> Port:
    return Port()


# -- what is in it --------------------------------------------------------------------------------


def test_every_route_is_in_the_document_and_nothing_else(port: Port) -> None:
    described = {(method.upper(), path) for path, method, _ in Reader(port.document()).operations()}
    assert described == {(route.method, route.pattern) for route in port.routes.all}
    assert ("GET", "/openapi.json") in described


def test_every_topics_route_says_what_it_answers(port: Port) -> None:
    for route in port.routes.all:
        if route.pattern.startswith("/v0/"):
            assert route.shape.answers is not None, f"{route.method} {route.pattern}"
            assert route.summary


def test_the_document_names_the_server_and_itself(port: Port) -> None:
    document = port.document()
    assert document["openapi"] == "3.1.0"
    assert document["info"]["version"] == __version__
    assert document["servers"] == [{"url": "/"}]
    assert [tag["name"] for tag in document["tags"]] == ["bunqueue", "topics"]


def test_it_is_the_same_every_time(port: Port) -> None:
    first = port.call().ask("GET", "/openapi.json").body
    assert port.call().ask("GET", "/openapi.json").body == first
    assert Port().call().ask("GET", "/openapi.json").body == first


# -- whether it is well formed --------------------------------------------------------------------


def test_paths_and_parameters_fit_each_other(port: Port) -> None:
    document = port.document()
    assert list(document["paths"]) == sorted(document["paths"])
    shapes = [re.sub(r"{[^}]+}", "{}", path) for path in document["paths"]]
    assert len(shapes) == len(set(shapes))
    for path, method, operation in Reader(document).operations():
        assert path.startswith("/")
        assert method in METHODS
        parameters = operation.get("parameters", [])
        places = [(one["in"], one["name"]) for one in parameters]
        assert len(places) == len(set(places))
        assert {place for place, _ in places} <= {"path", "query", "header"}
        braces = re.findall(r"{([^}]+)}", path)
        assert [name for place, name in places if place == "path"] == braces
        assert all(one["required"] for one in parameters if one["in"] == "path")
        assert all("schema" in one for one in parameters)


def test_operations_have_their_own_ids_and_at_least_one_answer(port: Port) -> None:
    document = port.document()
    ids = []
    for _, _, operation in Reader(document).operations():
        ids.append(operation["operationId"])
        assert operation["responses"]
        for status, response in operation["responses"].items():
            assert re.fullmatch(r"[1-5]\d\d|default", status)
            assert response["description"]
        for requirement in operation["security"]:
            assert set(requirement) <= set(document["components"]["securitySchemes"])
    assert len(ids) == len(set(ids))
    assert all(re.fullmatch(r"[A-Za-z0-9_]+", one) for one in ids)


def test_every_schema_is_one_and_every_reference_leads_to_one(port: Port) -> None:
    document = port.document()
    named = document["components"]["schemas"]
    for schema in (*schemas_in(document["paths"]), *named.values()):
        Draft202012Validator.check_schema(schema)
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+", name) for name in named)
    referred = set(references_in(document))
    assert referred == {f"#/components/schemas/{name}" for name in named}


def test_two_schemas_cannot_have_one_title(port: Port) -> None:
    area = port.area
    routes = Routes(area)
    for path, kind in (("/a", "string"), ("/b", "integer")):
        schema: Schema = {"title": "Same", "type": kind}
        shape = RouteSchemas(schema)
        routes.add(Route("POST", path, lambda _: None, area, shape=shape))
    with pytest.raises(AssertionError, match="two schemas have the title Same"):
        openapi.document(routes, "t", "1")


def test_a_property_may_be_called_title(port: Port) -> None:
    routes = Routes(port.area)
    text: Schema = {"type": "string"}
    shape = RouteSchemas(
        {"title": "Book", "type": "object", "properties": {"title": text}},
        needs_body=True,
        query=(Parameter("page", text, "Where.", is_required=True),),
    )
    routes.add(Route("POST", "/books", lambda _: None, port.area, shape=shape))
    made = json.loads(json.dumps(openapi.document(routes, "t", "1")))
    operation = made["paths"]["/books"]["post"]
    assert made["components"]["schemas"]["Book"]["properties"] == {"title": text}
    assert operation["requestBody"] == {
        "required": True,
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Book"}}},
    }
    assert operation["parameters"] == [
        {"name": "page", "in": "query", "description": "Where.", "required": True, "schema": text}
    ]


# -- keys -----------------------------------------------------------------------------------------


def test_without_keys_none_is_asked_for(port: Port) -> None:
    assert all(operation["security"] == [] for _, _, operation in _operations(port))


def test_keys_are_asked_for_with_what_they_must_allow() -> None:
    port = Port("k1", (b"t1",))
    document = port.document()
    paths = document["paths"]
    claim = paths["/v0/topics/{topic}/claim"]["post"]
    assert claim["security"] == [{"bearer": ["read", "write"]}]
    assert {"401", "403"} <= set(claim["responses"])
    work = paths["/v0/topics/{topic}/work"]["get"]
    assert work["security"] == [{"bearer": ["read", "write"]}, {"token": ["read", "write"]}]
    assert paths["/queues"]["get"]["security"] == [{"bearer": []}]
    assert paths["/ws"]["get"]["responses"].keys() == {"101", "400", "401", "426", "503"}
    for path in ("/v0/health", "/v0/ready", "/openapi.json", "/health", "/prometheus"):
        assert paths[path]["get"]["security"] == []


def test_refusals_for_want_of_a_key_are_described() -> None:
    port = Port("k1,reader:read:a", (b"t1",))
    walk = Walk(port)
    assert walk.ask("GET", "/v0/topics").status == 401
    reader = "Bearer reader"
    assert walk.ask("PUT", "/v0/topics/a", {}, Authorization=reader).status == 403
    assert walk.ask("GET", "/v0/topics/b", Authorization=reader).status == 403
    assert walk.ask("GET", "/queues").status == 401


# -- whether it is true ---------------------------------------------------------------------------


def _operations(port: Port) -> list[tuple[str, str, dict[str, Any]]]:
    return list(Reader(port.document()).operations())


def test_every_answer_of_the_topics_api_is_as_described(port: Port) -> None:
    walk = Walk(port)
    _walk_log(walk)
    _walk_queue(walk)
    _walk_refusals(walk)
    _walk_followers(walk)
    _walk_exports(walk)
    _walk_txns(walk)
    _walk_claims(walk)
    _walk_cursors(walk)
    for path in ("/v0/health", "/v0/ready", "/v0/metrics", "/openapi.json"):
        assert walk.ask("GET", path).status == 200
    assert walk.ask("GET", "/v0/metrics", Accept="application/json").status == 200
    for name in ("q", "log", "nobody"):
        walk.ask("DELETE", f"/v0/topics/{name}")
    unseen = {
        (route.method, route.pattern)
        for route in port.routes.all
        if route.pattern.startswith("/v0/") and not route.is_stream
    } - walk.reader.seen
    assert unseen == set()


def _walk_followers(walk: Walk) -> None:
    made = walk.ask("POST", "/v0/watch", {"topics": {"log": {"tail": True}, "q": None}})
    assert made.status == 200
    assert walk.ask("POST", "/v0/watch", {"topics": {}}).status == 400
    assert walk.ask("POST", "/v0/watch", {"topics": {"nowhere": {}}}).status == 404
    assert walk.ask("GET", "/v0/watch/wid_nobody").status == 404
    assert walk.ask("GET", "/v0/ws").status == 426
    one = "/v0/routers/r"
    ends = {"source": "log", "dest": "copies"}
    assert walk.ask("PUT", one, {**ends, "filter": ["tag", "Glob", "t*"]}).status == 201
    assert walk.ask("PUT", one, ends).status == 200
    assert walk.ask("PUT", one, {}).status == 400
    lost = {"source": "log", "dest": "nowhere", "create_dest": False}
    assert walk.ask("PUT", "/v0/routers/lost", lost).status == 404
    assert walk.ask("PUT", one, {"source": "log", "dest": "q"}).status == 409
    assert walk.ask("GET", one).status == 200
    assert walk.ask("GET", "/v0/routers?source=log&page_size=1").status == 200
    assert walk.ask("GET", "/v0/routers?cursor=!").status == 400
    assert walk.ask("DELETE", one).status == 200
    assert walk.ask("GET", one).status == 404


def _walk_log(walk: Walk) -> None:
    one = "/v0/topics/log"
    assert walk.ask("PUT", one, {"durable": True, "cap_records": 3}).status == 201
    assert walk.ask("PUT", one, {"cap_records": 3}).status == 200
    assert walk.ask("GET", one).status == 200
    tagged = {"data": {"a": [1, None]}, "tag": "t:1", "node": "n", "meta": {"m": 1}}
    walk.topic("", {"records": [tagged, {"data": None}], "idempotency_key": "k"}, name="log")
    walk.topic("", {"records": [{"data": 1}], "idempotency_key": "k"}, name="log")
    walk.ask("POST", f"{one}?return_seqs=false", {"records": [{"data": 1}] * 3})
    walk.topic("", {"records": [{"data": 1, "key": "k"}] * 2, "strict": True}, 201, "keyed")
    walk.topic("", {"records": [{"data": 1}]}, 201, "made")
    lost = walk.topic("diff", {}, name="log")
    assert lost["tombstone"]["reason"] == "cap"
    walk.topic("", {"records": [tagged, {"data_b64": "/w=="}]}, name="log")
    page = walk.topic("diff", {"from_seq": 5, "include_tags": True}, name="log")
    assert set(page["records"][0]) == {"$seq", "$ts", "$tag", "$node", "data", "meta"}
    assert walk.topic("diff", {"from_seq": 99}, name="log")["tombstone"]["reason"] == "recreated"
    walk.topic("delete", {"match": ["tag", "Glob", "t:*"], "before_seq": 100}, name="log")
    assert len(walk.ask("GET", "/v0/topics?page_size=1").json["next_cursor"]) > 0
    assert walk.ask("GET", one).json["last_write_ts"] is not None


def _walk_claims(walk: Walk) -> None:
    one = "/v0/topics/q/claims/c1"
    assert walk.ask("GET", one).status == 404
    assert walk.ask("POST", "/v0/topics/q", {"records": [{"data": 1}]}).status == 200
    wanted = {"node": "w", "claim_id": "c1", "worker": "d", "epoch": 1}
    assert walk.topic("claim", wanted)["count"] == 1
    assert walk.ask("GET", one).status == 200
    assert walk.ask("POST", f"{one}/extend", {"lease_ms": 1000}).status == 200
    assert walk.ask("POST", f"{one}/extend", {}).status == 400
    assert walk.ask("GET", "/v0/topics/log/claims/c1").status == 409
    walk.topic("claim", {**wanted, "node": "x"}, 409)


def _walk_txns(walk: Walk) -> None:
    one = "/v0/txns/t:1"
    place = {"topic": "log", "part": 0, "attempt": 1, "chunk": 0}
    records = [{"data": 1, "tag": "t", "with": None}]
    assert walk.ask("POST", f"{one}/stage", {**place, "records": records}).status == 200
    assert walk.ask("POST", f"{one}/stage", {**place, "records": []}).status == 400
    assert walk.ask("GET", one).status == 200
    assert walk.ask("DELETE", one).status == 200
    assert walk.ask("GET", one).status == 200
    part = {"topic": "log", "part": 0, "attempt": 1, "chunks": 1, "rows": 1}
    assert walk.ask("POST", f"{one}/commit", {"parts": [part]}).status == 409
    assert walk.ask("POST", f"{one}/stage", {**place, "records": records}).status == 200
    ends = {"acks": [{"queue": "q", "node": "w", "items": [[99, None]]}]}
    wanted = {"parts": [part], **ends, "worker": "w", "epoch": 2}
    assert walk.ask("POST", f"{one}/commit", wanted).status == 200
    assert walk.ask("POST", f"{one}/commit", wanted).json["duplicate"] is True
    assert walk.ask("GET", one).json["skipped"] == [["q", 99, "gone"]]
    assert walk.ask("DELETE", one).status == 409
    assert walk.ask("GET", "/v0/txns/a%20b").status == 400


def _walk_exports(walk: Walk) -> None:
    one = "/v0/topics/log"
    assert walk.ask("GET", f"{one}/seq?ts=1").status == 200
    assert walk.ask("GET", f"{one}/seq").status == 400
    assert walk.ask("GET", "/v0/topics/none/seq?ts=1").status == 404
    assert walk.ask("GET", f"{one}/export?from_seq=x").status == 400
    assert walk.ask("GET", "/v0/topics/none/export").status == 404
    assert walk.ask("GET", f"{one}/export", Accept="image/png").status == 406
    assert walk.ask("GET", "/v0/topics/q/export").status == 409
    assert walk.ask("GET", "/v0/topics/q/export?jobs=none").status == 400
    assert walk.ask("GET", f"{one}/export?from_seq=0").status == 410
    assert walk.ask("GET", f"{one}/export?to_seq=999").status == 416


def _walk_cursors(walk: Walk) -> None:
    one = "/v0/topics/log/cursors/c"
    assert walk.ask("PUT", one, {"seq": 1, "hold": True}).status == 201
    assert walk.ask("PUT", one, {"seq": 2, "incarnation": None}).status == 200
    assert walk.ask("PUT", one, {"seq": 1}).status == 409
    assert walk.ask("PUT", one, {"seq": 10**9}).status == 416
    assert walk.ask("PUT", one, {}).status == 400
    assert walk.ask("GET", one).status == 200
    assert walk.ask("GET", "/v0/topics/log/cursors").json["cursors"][0]["hold"] is True
    assert walk.ask("GET", "/v0/topics/log").json["cursors"]
    assert walk.ask("GET", "/v0/topics/log/cursors/none").status == 404
    assert walk.ask("GET", "/v0/topics/none/cursors").status == 404
    assert walk.ask("DELETE", one).json["deleted"] is True


def _walk_queue(walk: Walk) -> None:
    config = {"type": "queue", "durable": True, "max_deliveries": 1, "dead_letter": "dead"}
    assert walk.ask("PUT", "/v0/topics/q", config).status == 201
    records: list[Any] = [{"data": at, "tag": "t", "meta": {"m": 1}} for at in range(5)]
    records[1] = {"data_b64": ""}
    walk.topic("", {"records": records})
    claimed = walk.topic("claim", {"node": "w", "max": 3})["claimed"]
    assert len(claimed) == 3
    names = [claimed[0]["lease_id"]]
    assert walk.topic("ack", {"node": "w", "seqs": [1], "lease_ids": names})["acked"] == 1
    assert walk.topic("extend", {"node": "w", "seqs": [2, 1], "lease_ms": 500})["skipped"] == [1]
    assert walk.topic("nack", {"node": "w", "seqs": [2, 3]})["nacked"] == 2
    walk.topic("claim", {"node": "w", "max": 9, "lease_ms": 1})
    assert walk.ask("GET", "/v0/topics/q").json["queue"]["in_flight"] > 0
    walk.topic("diff", {"include_tags": True})
    gone = walk.topic("dead-letter", {"node": "w", "seqs": [4, 99]})
    assert (gone["dead_lettered"], gone["skipped"]) == (1, [99])
    named = walk.topic("redrive", {"seqs": [1, 2, 99], "key": "k", "dry_run": True})
    assert (len(named["moved"]), named["skipped"]) == (2, [[99, "gone"]])
    patch = {"seqs": [1, 2, 99], "key": "k", "patch": {"a": 1}}
    assert walk.topic("redrive", patch)["redriven"] == 1
    assert walk.topic("redrive", patch)["duplicate"] is True
    walk.topic("redrive", {"job_ids": [99]})
    walk.topic("redrive", {"max": 1})
    walk.topic("purge", {})
    walk.topic("delete", {"match": "t"})


def _walk_refusals(walk: Walk) -> None:
    assert walk.ask("PUT", "/v0/topics/q", {}).json["error"]["code"] == "topic_exists_incompatible"
    assert walk.ask("GET", "/v0/topics/none").status == 404
    assert walk.ask("GET", "/v0/topics?cursor=x").status == 400
    assert walk.ask("GET", "/v0/topics/log/work?node=w").status == 409
    assert walk.ask("GET", "/v0/topics/q/work").status == 400
    assert walk.ask("GET", "/v0/topics/q/work?node=w", Accept="image/png").status == 406
    walk.topic("claim", {"node": "w"}, 409, "log")
    walk.topic("claim", {"node": "w"}, 404, "none")
    walk.topic("claim", {}, 400)
    walk.topic("", {"records": []}, 400)
    walk.ask("PUT", "/v0/topics/full", {"cap_records": 1, "discard": "reject"})
    walk.topic("", {"records": [{"data": 1}]}, 200, "full")
    full = walk.topic("", {"records": [{"data": 1}]}, 422, "full")
    assert full["error"]["code"] == "topic_full"
    assert walk.ask("DELETE", "/v0/topics/full?if_empty=true").status == 409
    wrong = walk.ask("POST", "/v0/topics/q/diff", b"x", content_type="text/plain")
    assert wrong.status in (400, 415)


def test_every_page_of_bunqueue_is_as_described(port: Port) -> None:
    walk = Walk(port)
    walk.ask("POST", "/queues/emails/jobs", {"data": {"a": 1}})
    for path, method, operation in _operations(port):
        if method != "get" or operation["tags"] != ["bunqueue"] or path.startswith(("/ws", "/ev")):
            continue
        walk.ask("GET", re.sub(r"{[^}]+}", "emails", path))


def test_a_stream_is_described_as_one(port: Port) -> None:
    _, work = Reader(port.document()).find("GET", "/v0/topics/q/work")
    assert set(work["responses"]["200"]["content"]) == {"text/event-stream"}
    _, export = Reader(port.document()).find("GET", "/v0/topics/log/export")
    assert set(export["responses"]["200"]["content"]) == {"application/vnd.apache.arrow.stream"}
    assert [one["name"] for one in work["parameters"] if one["required"]] == ["topic", "node"]
