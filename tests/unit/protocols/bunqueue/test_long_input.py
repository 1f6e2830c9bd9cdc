"""Long frames, bodies and messages: read in slices, with the same outcome as short ones."""

import json

import pytest

from jobyard.protocols.bunqueue.frames import LONG_FRAME
from jobyard.protocols.bunqueue.http.long_json import BODY_AT_ONCE
from jobyard.protocols.session import Peer
from tests.support.clients.bunqueue import BunqueueClient
from tests.support.clients.http import BunqueueHttpClient, Reply, WebSocket
from tests.support.doors.bunqueue import BareBunqueue
from tests.support.doors.http import BareHttp
from tests.support.servers.bunqueue import frame, pack, unpack
from tests.support.site.connection import Connection
from tests.support.site.storage import MemoryStorage

MANY = LONG_FRAME + 1000
UNITS = 100


def slow(site: BareBunqueue) -> None:
    """Continue long work only on the test's request, and little at a time."""
    site.yard.tasks.units_per_turn = UNITS
    site.is_slow = True
    site.slice()


def turns_to_end(site: BareBunqueue) -> int:
    """Run long work to its end; return the number of turns. Each does about its units."""
    turns = 1
    while True:
        before = site.yard.tasks.units_done
        is_left = site.slice()
        assert site.yard.tasks.units_done - before <= 3 * UNITS
        if not is_left:
            return turns
        turns += 1


def slow_client() -> tuple[BareBunqueue, BunqueueClient]:
    """A connection to such a yard."""
    site = BareBunqueue()
    slow(site)
    return site, site.connect()


# -- frames ------------------------------------------------------------------------------------


def test_a_long_frame_is_looked_through_while_others_are_served() -> None:
    site, client = slow_client()
    other = site.connect()
    number = client.send("PUSH", queue="q", data=[1] * MANY, name="many")
    assert client.hear(number) is None
    assert other.ok("Ping") is not None
    assert turns_to_end(site) > 10
    answer = client.hear(number)
    assert answer is not None
    job = other.pull("q")
    assert job["id"] == answer["id"]
    assert job["name"] == "many"
    assert len(job["data"]) == MANY


def test_names_inside_long_data_are_found() -> None:
    site, client = slow_client()
    number = client.send("PUSH", queue="q", data={"list": [{}] * MANY, "name": "inside"})
    turns_to_end(site)
    assert client.hear(number) is not None
    assert client.pull("q")["name"] == "inside"


def test_what_comes_behind_a_long_frame_waits_for_it() -> None:
    site, client = slow_client()
    long = client.send("PUSH", queue="q", data=[1] * MANY)
    count = client.send("Count", queue="q")
    assert client.hear(count) is None
    turns_to_end(site)
    assert client.hear(long) is not None
    assert client.hear(count) == {"ok": True, "count": 1}


def test_a_long_frame_is_counted_as_held_until_its_command_is_answered() -> None:
    site, client = slow_client()
    jobs = [{"data": [1] * 200} for _ in range(2000)]
    number = client.send("PUSHB", queue="q", jobs=jobs)
    while client.hear(number) is None:
        assert client.session.held_size() > 2000 * 200
        site.slice()
    assert client.session.held_size() == 0
    client.send("PUSH", queue="q", data=[1] * MANY)
    assert client.session.held_size() > MANY
    turns_to_end(site)
    assert client.session.held_size() == 0


def test_who_leaves_while_a_frame_is_looked_through_costs_nothing_more() -> None:
    site, client = slow_client()
    client.send("PUSH", queue="q", data=[1] * MANY)
    assert site.yard.tasks.count() == 1
    client.close()
    assert site.yard.tasks.count() == 0


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (pack([1] * MANY), "Invalid command"),
        (pack({f"k{at}": 1 for at in range(60_000)}), "Invalid command"),
        (pack([1] * MANY) + b"\x01", "Invalid command format"),
        (pack([1] * MANY)[:-1], "Invalid command format"),
        (b"\x91" * MANY, "Invalid command format"),
        (b"\x91" * 600 + pack([1] * MANY), "Invalid command format"),
        (b"\xc1" * MANY, "Invalid command format"),
        (pack({"cmd": 7, "x": [1] * MANY}), "Unknown command: 7"),
        (pack({"x": [1] * MANY}), "Invalid command"),
    ],
)
def test_a_long_frame_that_is_no_command_is_refused_as_a_short_one(
    content: bytes, error: str
) -> None:
    site, _ = slow_client()
    session = site.entrance.enter(Peer())
    session.receive(frame(content), site.now_ms)
    turns_to_end(site)
    out = session.take_output()
    assert unpack(out[4:]) == {"ok": False, "error": error}


def test_a_long_list_of_options_is_refused() -> None:
    client = BareBunqueue().connect()
    for key in ("dependsOn", "tags", "childrenIds"):
        error = client.refused("PUSH", queue="q", data=1, **{key: ["x"] * 10_001})
        assert error == f"{key} must have at most 10000 entries"
    assert (
        client.refused("PUSH", queue="q", data=1, backoff={"x": [1] * 30_000}) == "too many values"
    )


# -- bodies ------------------------------------------------------------------------------------


def answer_of(site: BareHttp, client: BunqueueHttpClient) -> Reply:
    """Return the answer that comes at the end of long work."""
    turns_to_end(site)
    reply = client.hear()
    assert reply is not None
    return reply


def slow_http() -> BareHttp:
    """A port to such a yard."""
    site = BareHttp()
    slow(site)
    return site


def test_a_long_body_is_read_while_others_are_served() -> None:
    site = slow_http()
    client, other = site.call(), site.call()
    data = {"list": [{"a": at} for at in range(20_000)], "text": "\u00e4" * 1000}
    client.send("POST", "/queues/q/jobs", {"data": data, "attempts": 7, "cmd": "x"})
    assert client.hear() is None
    assert other.ok("GET", "/ping") is not None
    assert turns_to_end(site) > 10
    reply = client.hear()
    assert reply is not None
    assert reply.status == 200
    site.is_slow = False
    job = other.ok("GET", "/queues/q/jobs")["job"]
    assert job["data"] == data
    assert job["maxAttempts"] == 7
    assert job["id"] == reply.json["id"]


def test_many_jobs_in_one_body() -> None:
    site = slow_http()
    client = site.call()
    jobs = [{"data": {"at": at}} for at in range(5000)]
    client.send("POST", "/queues/q/jobs/bulk", {"jobs": jobs})
    turns = 0
    while site.slice():
        turns += 1
    assert turns > 20
    reply = client.hear()
    assert reply is not None
    assert len(reply.json["ids"]) == 5000
    site.check()


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b'{"data":[' + b"1," * BODY_AT_ONCE + b"]}", "Invalid JSON body"),
        (b"[" + b"1," * BODY_AT_ONCE + b"1]", "Invalid JSON body"),
        (b'{"data":"' + b"x" * BODY_AT_ONCE + b'\xff"}', "Invalid JSON body"),
        (b'{"x":"' + b"x" * BODY_AT_ONCE + b'"}', "Job data is required"),
        (json.dumps({f"k{at}": at for at in range(9000)}).encode(), "Invalid command"),
    ],
)
def test_a_long_body_that_is_none_is_refused(body: bytes, error: str) -> None:
    site = slow_http()
    client = site.call()
    client.send("POST", "/queues/q/jobs", body)
    reply = answer_of(site, client)
    assert reply.status == 400
    assert reply.json == {"ok": False, "error": error}


def test_requests_behind_a_long_body_wait_for_it() -> None:
    site = slow_http()
    client = site.call()
    client.send("POST", "/queues/q/jobs", {"data": [1] * BODY_AT_ONCE})
    client.send("GET", "/queues/q/count")
    assert client.hear() is None
    turns_to_end(site)
    first, second = client.hear(), client.hear()
    assert first is not None
    assert second is not None
    assert first.json["ok"]
    assert second.json["count"] == 1


def test_who_leaves_while_a_body_is_read_has_pushed_nothing() -> None:
    site = slow_http()
    client = site.call()
    client.send("POST", "/queues/q/jobs", {"data": [1] * BODY_AT_ONCE})
    assert site.yard.tasks.count() == 1
    client.close()
    assert site.yard.tasks.count() == 0
    assert "q" not in site.yard.queues


# -- messages ----------------------------------------------------------------------------------


def test_a_long_message_is_read_in_slices_and_those_behind_it_wait() -> None:
    site = slow_http()
    socket = WebSocket(site)
    other = site.call()
    socket.say({"cmd": "PUSH", "queue": "q", "data": [1] * BODY_AT_ONCE, "reqId": "long"})
    socket.say({"cmd": "Count", "queue": "q", "reqId": "count"})
    assert socket.messages() == []
    assert other.ok("GET", "/ping") is not None
    turns_to_end(site)
    answers = [one for one in socket.messages() if "reqId" in one]
    assert [one["reqId"] for one in answers] == ["long", "count"]
    assert answers[1]["count"] == 1


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (b"[" + b"1," * BODY_AT_ONCE + b"]", "Invalid JSON"),
        (b"[" + b"1," * BODY_AT_ONCE + b"1]", "Invalid command"),
    ],
)
def test_a_long_message_that_is_no_command_is_refused(message: bytes, error: str) -> None:
    site = slow_http()
    socket = WebSocket(site)
    socket.say(message)
    turns_to_end(site)
    assert socket.messages() == [{"ok": False, "error": error}]
    socket.say({"cmd": "Ping", "reqId": "1"})
    assert socket.messages()[0]["ok"]


def test_who_leaves_while_a_message_is_read_costs_nothing_more() -> None:
    site = slow_http()
    socket = WebSocket(site)
    socket.say({"cmd": "PUSH", "queue": "q", "data": [1] * BODY_AT_ONCE})
    assert site.yard.tasks.count() == 1
    socket.close()
    assert site.yard.tasks.count() == 0


# -- durable jobs ------------------------------------------------------------------------------


def durable(count: int) -> dict[str, object]:
    """Return the fields of a durable job with as much data."""
    return {"queue": "q", "data": [1] * count, "durable": True}


@pytest.fixture
def os_site() -> BareHttp:
    """A port whose answers need not wait for the disk, unless a job asks for it."""
    site = BareHttp(MemoryStorage(), ids_ahead=True)
    slow(site)
    return site


def check_synced(site: BareHttp, client: Connection) -> None:
    """Check that the answer to long input waits for the disk."""
    other = site.connect()
    pull = other.send("PULL", queue="q", timeout=1000)
    # Of another connection: it ends in the same turn or later, and needs no sync.
    site.connect().send("PUSH", queue="other", data=[1] * MANY)
    assert client.session.awaits_synced == 0
    while site.slice():
        pass
    answer = other.hear(pull)
    assert answer is not None
    assert answer["job"] is not None
    assert client.session.awaits_synced == site.yard.journal.open_number
    assert other.session.awaits_synced == 0
    assert site.yard.journal.command_sync_batch == 0, "the request is left for another connection"


def test_the_answer_to_a_durable_job_in_a_long_frame_waits_for_the_disk(os_site: BareHttp) -> None:
    client = os_site.connect()
    client.send("PUSH", **durable(MANY))
    check_synced(os_site, client)


def test_the_answer_to_durable_jobs_in_a_long_frame_waits_for_the_disk(os_site: BareHttp) -> None:
    client = os_site.connect()
    client.send("PUSHB", queue="q", jobs=[durable(MANY // 200)] * 200)
    check_synced(os_site, client)


@pytest.mark.parametrize("count", [BODY_AT_ONCE, MANY])
def test_the_answer_to_a_durable_job_in_a_long_body_waits_for_the_disk(
    os_site: BareHttp, count: int
) -> None:
    client = os_site.call()
    client.send("POST", "/queues/q/jobs", durable(count))
    check_synced(os_site, client)


@pytest.mark.parametrize("count", [BODY_AT_ONCE, MANY])
def test_the_answer_to_a_durable_job_in_a_long_message_waits_for_the_disk(
    os_site: BareHttp, count: int
) -> None:
    socket = WebSocket(os_site)
    socket.say({"cmd": "PUSH", **durable(count)})
    check_synced(os_site, socket)
