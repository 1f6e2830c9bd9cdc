"""Keys of the topics API: what they open, on which names, and how they are shown."""

from collections.abc import Iterator

import pytest

from jobyard.errors import StartRefused
from jobyard.protocols.topics.api_keys import read_keys
from tests.support.clients.topics import TopicsClient, said
from tests.support.doors.topics import BareTopics

KEYS = (
    "all, reader:read,writer:w , killer:delete,boss:admin,worker:rw,mine::a.|b.,"
    "few:read+write+admin:a."
)


@pytest.fixture
def guarded() -> Iterator[BareTopics]:
    """A port with keys, a log and a queue."""
    site = BareTopics(keys=KEYS)
    caller = site.connect("all")
    caller.put("a.log")
    caller.put("a.queue", type="queue")
    caller.put("b.log")
    caller.put("c.log")
    caller.write("a.queue", 1)
    yield site
    site.check()


WRITE = {"records": [{"data": 1}]}
CALLS: list[tuple[str, str, object, str]] = [
    ("GET", "/v0/topics", None, "r"),
    ("GET", "/v0/topics/a.log", None, "r"),
    ("POST", "/v0/topics/a.log/diff", {}, "r"),
    ("GET", "/v0/metrics", None, "r"),
    ("POST", "/v0/topics/a.log", WRITE, "w"),
    ("POST", "/v0/topics/new.log", WRITE, "w"),
    ("POST", "/v0/topics/a.queue/ack", {"node": "n", "seqs": []}, "w"),
    ("POST", "/v0/topics/a.queue/nack", {"node": "n", "seqs": []}, "w"),
    ("POST", "/v0/topics/a.queue/dead-letter", {"node": "n", "seqs": []}, "w"),
    ("POST", "/v0/topics/a.queue/extend", {"node": "n", "seqs": [], "lease_ms": 1}, "w"),
    ("POST", "/v0/topics/a.queue/redrive", {}, "w"),
    ("POST", "/v0/topics/a.queue/claim", {"node": "n"}, "rw"),
    ("POST", "/v0/topics/a.log/delete", {"before_seq": 1}, "d"),
    ("POST", "/v0/topics/a.queue/purge", {}, "d"),
    ("DELETE", "/v0/topics/none", None, "d"),
    ("PUT", "/v0/topics/a.log", {}, "a"),
    ("GET", "/v0/health", None, ""),
    ("GET", "/v0/ready", None, ""),
]
HOLDERS = {"all": "rwda", "reader": "r", "writer": "w", "killer": "d", "boss": "a", "worker": "rw"}


@pytest.mark.parametrize(("method", "path", "body", "needed"), CALLS)
def test_what_each_key_opens(
    guarded: BareTopics, method: str, path: str, body: object, needed: str
) -> None:
    for key, scopes in HOLDERS.items():
        answer = guarded.connect(key).ask(method, path, body)
        if set(needed) <= set(scopes):
            assert answer.status in {200, 201}, (key, answer)
        else:
            assert answer.refusal == (403, "forbidden"), key


@pytest.mark.parametrize(("method", "path", "body", "needed"), CALLS)
def test_without_a_key_only_health_is_reported(
    guarded: BareTopics, method: str, path: str, body: object, needed: str
) -> None:
    for headers in (
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Bearer "},
        {"Authorization": "Basic all"},
        {"Authorization": "all"},
        {"Authorization": "Bearer ALL"},
        {"Authorization": "Bearer all:"},
    ):
        answer = guarded.api.ask(method, path, body, headers)
        if needed:
            assert answer.refusal == (401, "unauthorized")
            assert answer.headers["www-authenticate"] == "Bearer"
        else:
            assert answer.status == 200


def test_probes_need_a_key_where_they_are_guarded(guarded: BareTopics) -> None:
    guarded.topics.guards_probes = True
    for path in ("/v0/health", "/v0/ready", "/readyz"):
        assert guarded.api.ask("GET", path).refusal == (401, "unauthorized")
        shown = {"Authorization": "Bearer all"}
        assert guarded.api.ask("GET", path, None, shown).status == 200
    described = guarded.api.ask("GET", "/openapi.json").json["paths"]["/v0/health"]["get"]
    assert described["security"]


@pytest.mark.parametrize("shown", ["Bearer all", "bearer all", "BEARER  all "])
def test_how_a_key_is_shown(guarded: BareTopics, shown: str) -> None:
    assert guarded.api.ask("GET", "/v0/topics", None, {"Authorization": shown}).status == 200


def test_a_key_may_stand_in_the_query_of_a_stream_only(guarded: BareTopics) -> None:
    worker = guarded.connect()
    worker.listen("/v0/topics/a.queue/work?node=n&token=worker")
    assert worker.events()[-1].name == "job"
    caller = guarded.connect()
    path = "/v0/topics/a.queue/work?node=n&token"
    assert caller.ask("GET", f"{path}=wrong").refusal == (401, "unauthorized")
    assert caller.ask("GET", f"{path}=reader").refusal == (403, "forbidden")
    assert caller.ask("GET", "/v0/topics?token=all").refusal == (401, "unauthorized")
    body: object = {"from_seq": 0}
    answer = caller.ask("POST", "/v0/topics/a.log/diff?token=all", body)
    assert answer.refusal == (401, "unauthorized")


def test_a_key_of_some_names_opens_those_alone(guarded: BareTopics) -> None:
    mine = guarded.connect("mine")
    for name in ("a.log", "b.log", "a.new", "b."):
        assert mine.post(name, WRITE).status in {200, 201}
    for name in ("c.log", "ab", "A.log", "c"):
        assert mine.post(name, WRITE).refusal == (403, "forbidden")
        assert mine.ask("GET", f"/v0/topics/{name}").refusal == (403, "forbidden")
        assert mine.ask("PUT", f"/v0/topics/{name}", {}).refusal == (403, "forbidden")
        assert mine.ask("DELETE", f"/v0/topics/{name}").refusal == (403, "forbidden")
    stream = mine.ask("GET", "/v0/topics/c.log/work?node=n")
    assert stream.refusal == (403, "forbidden")


def test_a_key_of_some_names_sees_those_alone(guarded: BareTopics) -> None:
    def names(caller: TopicsClient, query: str = "") -> list[str]:
        found = said(caller.ask("GET", f"/v0/topics{query}"))["topics"]
        return [line["topic"] for line in found]

    assert names(guarded.connect("mine")) == ["a.log", "a.queue", "b.log"]
    assert names(guarded.connect("mine"), "?prefix=c") == []
    assert names(guarded.connect("few")) == ["a.log", "a.queue"]
    assert names(guarded.connect("all"))[-1] == "c.log"


def test_counters_of_topics_are_shown_for_the_names_of_the_key(guarded: BareTopics) -> None:
    text = guarded.connect("mine").ask("GET", "/v0/metrics").body.decode()
    assert 'topic="a.log"' in text
    assert "c.log" not in text


def test_dead_letters_go_only_where_the_key_reaches(guarded: BareTopics) -> None:
    mine = guarded.connect("mine")
    config = {"type": "queue", "dead_letter": "c.dlq"}
    assert mine.ask("PUT", "/v0/topics/a.new", config).refusal == (403, "forbidden")
    answer = mine.post("a.new", {**WRITE, "config": config})
    assert answer.refusal == (403, "forbidden")
    assert mine.ask("GET", "/v0/topics/a.new").status == 404
    assert mine.put("a.new", **{**config, "dead_letter": "b.dlq"})["created"]


def test_who_writes_may_not_configure(guarded: BareTopics) -> None:
    writer = guarded.connect("writer")
    body = {**WRITE, "config": {"ttl_ms": 1}}
    assert writer.post("made.log", body).refusal == (403, "forbidden")
    assert guarded.connect("all").ask("GET", "/v0/topics/made.log").status == 404
    assert writer.post("a.log", body).status == 200
    assert guarded.connect("few").post("a.made", body).status == 201


@pytest.mark.parametrize("text", ["k:reads", "k:read+", "k:read,j:rx", ":read", "k:read write"])
def test_a_key_with_a_scope_nobody_knows_refuses_the_start(text: str) -> None:
    with pytest.raises(StartRefused):
        read_keys(text)


def test_keys_are_kept_as_their_hashes_alone() -> None:
    (key,) = read_keys(" secret:rwda:x|y ")
    assert key.scopes == {"read", "write", "delete", "admin"}
    assert key.prefixes == ("x", "y")
    assert len(key.digest) == 32
    assert read_keys(" , ,") == []
