"""Jobs that go in at one door and out at the other: bunqueue and beanstalk on one engine."""

import json
import time
from collections.abc import Iterator

import pytest

from tests.support.servers.bunqueue import ORIGINAL, Client, Yard, pack, running
from tests.support.servers.sockets import SocketPeer, connect, stat

pytestmark = pytest.mark.skipif(bool(ORIGINAL), reason="the original has one door")

UUID7_LENGTH = 36


@pytest.fixture(scope="module")
def yard() -> Iterator[Yard]:
    with running("--memory") as made:
        yield made


@pytest.fixture
def address(yard: Yard) -> tuple[str, int]:
    return yard.bunqueue


@pytest.fixture
def bean(yard: Yard, queue: str) -> Iterator[SocketPeer]:
    """A beanstalk connection that uses and watches the queue of the test only."""
    peer = connect(yard.beanstalk)
    assert peer.ask(b"use " + queue.encode()).startswith(b"USING")
    assert peer.ask(b"watch " + queue.encode()).startswith(b"WATCHING")
    assert peer.ask(b"ignore default").startswith(b"WATCHING")
    yield peer
    peer.close()


def reserve(bean: SocketPeer, timeout_s: int = 5) -> tuple[int, bytes]:
    """Take a job and return its number and body."""
    answer = bean.ask(b"reserve-with-timeout %d" % timeout_s)
    head, _, rest = answer.partition(b"\r\n")
    assert head.startswith(b"RESERVED"), answer
    return int(head.split()[1]), rest.removesuffix(b"\r\n")


def put(bean: SocketPeer, body: bytes, head: bytes = b"0 0 60") -> int:
    bean.send(b"put " + head + b" %d\r\n" % len(body) + body + b"\r\n")
    word, number = bean.read_line().split()
    assert word == b"INSERTED"
    return int(number)


def job_stat(bean: SocketPeer, number: int, key: str) -> str:
    return stat(bean.ask(b"stats-job %d" % number), key)


BODIES: list[object] = [
    {"a": 1, "b": [True, None, "x"]},
    "text",
    5,
    1.5,
    [],
    None,
    {"deep": {"er": [{}]}},
    "\u00e4\u20ac",
    -(2**31),
]


@pytest.mark.parametrize("data", BODIES)
def test_beanstalk_gets_the_data_as_compact_json(
    client: Client, bean: SocketPeer, queue: str, data: object
) -> None:
    client.ok("PUSH", queue=queue, data=data)
    _, body = reserve(bean)
    assert json.loads(body) == data
    compact = json.dumps(data, separators=(",", ":"), ensure_ascii=False).encode()
    assert body in (compact, json.dumps(data, separators=(",", ":")).encode())


def test_beanstalk_gets_binary_data_as_they_are(
    client: Client, bean: SocketPeer, queue: str
) -> None:
    client.push(queue, b"\x00\xff\r\n")
    assert reserve(bean)[1] == b"\x00\xff\r\n"


def test_binary_data_inside_are_spelt_in_base64(
    client: Client, bean: SocketPeer, queue: str
) -> None:
    client.push(queue, {"bin": b"\x00\xff"})
    assert json.loads(reserve(bean)[1]) == {"bin": {"$base64": "AP8="}}


@pytest.mark.parametrize(
    ("body", "data"),
    [
        (b'{"a":[1,2.5,null,true]}', {"a": [1, 2.5, None, True]}),
        (b"5", 5),
        (b'"text"', "text"),
        (b"plain words", "plain words"),
        ("\u00e4".encode(), "\u00e4"),
        (b"{broken", "{broken"),
        (b"", ""),
        (b"\xff\xfe", {"$base64": "//4="}),
    ],
)
def test_bunqueue_gets_a_body_as_json_text_or_base64(
    client: Client, bean: SocketPeer, queue: str, body: bytes, data: object
) -> None:
    put(bean, body)
    job = client.pull(queue)
    assert job["data"] == data
    assert (job["name"], job["maxAttempts"], job["queue"]) == ("default", 1000, queue)
    assert len(job["id"]) == UUID7_LENGTH


def test_long_numbers_become_floats(client: Client, bean: SocketPeer, queue: str) -> None:
    put(bean, b'{"ms":1794743315146}')
    data = client.pull(queue)["data"]
    assert data == {"ms": 1_794_743_315_146.0}
    assert isinstance(data["ms"], float)


def test_a_deleted_job_is_completed(client: Client, bean: SocketPeer, queue: str) -> None:
    job_id = client.push(queue, 1)
    wait = client.send("WaitJob", id=job_id, timeout=20_000)
    number, _ = reserve(bean)
    assert client.state(job_id) == "active"
    assert bean.ask(b"delete %d" % number) == b"DELETED\r\n"
    assert client.receive(wait)["completed"] is True
    assert client.state(job_id) == "completed"
    assert client.ok("GetResult", id=job_id).get("result") is None
    assert bean.ask(b"stats-job %d" % number) == b"NOT_FOUND\r\n"
    assert bean.ask(b"peek %d" % number) == b"NOT_FOUND\r\n"
    assert bean.ask(b"delete %d" % number) == b"NOT_FOUND\r\n"


def test_a_released_job_has_failed_once(client: Client, bean: SocketPeer, queue: str) -> None:
    job_id = client.push(queue, 1, maxAttempts=2, backoff=600_000)
    number, _ = reserve(bean)
    assert bean.ask(b"release %d 7 0" % number) == b"RELEASED\r\n"
    again, _ = reserve(bean)
    assert again == number
    assert client.job(job_id)["attempts"] == 1
    assert client.job(job_id)["priority"] == 0
    assert bean.ask(b"release %d 7 0" % number) == b"BURIED\r\n"
    assert client.state(job_id) == "failed"
    assert [job["id"] for job in client.ok("Dlq", queue=queue)["jobs"]] == [job_id]


def test_a_released_job_keeps_the_delay_it_is_given(
    client: Client, bean: SocketPeer, queue: str
) -> None:
    job_id = client.push(queue, 1)
    number, _ = reserve(bean)
    assert bean.ask(b"release %d 0 100" % number) == b"RELEASED\r\n"
    job = client.job(job_id)
    assert job["state"] == "delayed"
    assert 90_000 < job["runAt"] - time.time() * 1000 < 101_000


def test_a_buried_job_is_dead_and_a_kick_revives_it(
    client: Client, bean: SocketPeer, queue: str
) -> None:
    job_id = client.push(queue, 1)
    number, _ = reserve(bean)
    assert bean.ask(b"bury %d 0" % number) == b"BURIED\r\n"
    [entry] = client.ok("Dlq", queue=queue)["entries"]
    assert (entry["job"]["id"], entry["reason"]) == (job_id, "buried")
    assert job_stat(bean, number, "state") == "buried"
    assert bean.ask(b"kick-job %d" % number) == b"KICKED\r\n"
    job = client.pull(queue)
    assert (job["id"], job["attempts"]) == (job_id, 0)


def test_a_failed_job_can_be_kicked(client: Client, bean: SocketPeer, queue: str) -> None:
    job_id = client.bury(queue, 1)
    assert bean.ask(b"kick 10") == b"KICKED 1\r\n"
    job = client.pull(queue)
    assert (job["id"], job["attempts"]) == (job_id, 0)


@pytest.mark.parametrize(("priority", "shown"), [(0, 0), (5, 0), (-7, 7), (1_000_000, 0)])
def test_a_priority_is_shown_as_its_rank(
    client: Client, bean: SocketPeer, queue: str, priority: int, shown: int
) -> None:
    client.push(queue, 1, priority=priority)
    number, _ = reserve(bean)
    assert job_stat(bean, number, "pri") == str(shown)


def test_ranks_of_both_doors_are_one_order(client: Client, bean: SocketPeer, queue: str) -> None:
    put(bean, b'"b10"', b"10 0 60")
    client.push(queue, "n-20", priority=-20)
    client.push(queue, "n0")
    put(bean, b'"b0"', b"0 0 60")
    client.push(queue, "n3", priority=3)
    taken = [client.pull(queue)["data"] for _ in range(5)]
    assert taken == ["n3", "n0", "b0", "b10", "n-20"]


def test_a_parked_job_looks_delayed_and_cannot_be_kicked(
    client: Client, bean: SocketPeer, queue: str
) -> None:
    parked = client.push(queue, 1)
    number = int(bean.ask(b"peek-ready").split()[1])
    client.push(queue + "-c", {"__parentId": parked, "__parentQueue": queue}, parentId=parked)
    assert client.state(parked) == "waiting-children"
    assert job_stat(bean, number, "state") == "delayed"
    assert bean.ask(b"kick-job %d" % number) == b"NOT_FOUND\r\n"
    assert bean.ask(b"kick 10") == b"KICKED 0\r\n"
    assert client.state(parked) == "waiting-children"


def test_deleting_a_ready_job_cancels_it(
    client: Client, other: Client, bean: SocketPeer, queue: str
) -> None:
    other.ok("SubscribeEvents", queue=queue)
    job_id = client.push(queue, 1, uniqueKey="k")
    number = int(bean.ask(b"peek-ready").split()[1])
    assert bean.ask(b"delete %d" % number) == b"DELETED\r\n"
    assert client.state(job_id) == "unknown"
    assert other.next_event("removed")["jobId"] == job_id
    assert client.push(queue, 2, uniqueKey="k") != job_id


def test_a_job_held_at_the_other_door_cannot_be_deleted(
    client: Client, bean: SocketPeer, queue: str
) -> None:
    job_id = client.push(queue, 1)
    number = int(bean.ask(b"peek-ready").split()[1])
    client.pull(queue)
    assert bean.ask(b"delete %d" % number) == b"NOT_FOUND\r\n"
    assert job_stat(bean, number, "state") == "reserved"
    client.ok("ACK", id=job_id)


@pytest.mark.parametrize("cmd", ["ACK", "FAIL"])
def test_an_end_without_a_token_does_not_touch_the_other_doors_lease(
    client: Client, bean: SocketPeer, queue: str, cmd: str
) -> None:
    job_id = client.push(queue, 1)
    number, _ = reserve(bean)
    assert "Invalid or expired lock token" in client.refused(cmd, id=job_id)
    assert client.state(job_id) == "active"
    assert bean.ask(b"delete %d" % number) == b"DELETED\r\n"


def test_an_acknowledged_beanstalk_job_is_gone(
    client: Client, bean: SocketPeer, queue: str
) -> None:
    number = put(bean, b"x")
    job = client.pull(queue)
    assert client.state(job["id"]) == "active"
    assert client.job(job["id"])["data"] == "x"
    client.ok("ACK", id=job["id"], result=5)
    assert client.state(job["id"]) == "unknown"
    assert bean.ask(b"peek %d" % number) == b"NOT_FOUND\r\n"


def test_a_failed_beanstalk_job_waits_a_second(
    client: Client, bean: SocketPeer, queue: str
) -> None:
    number = put(bean, b"x")
    job = client.pull(queue)
    started = time.monotonic()
    client.ok("FAIL", id=job["id"], error="no")
    assert job_stat(bean, number, "state") == "delayed"
    assert reserve(bean)[0] == number
    assert time.monotonic() - started > 0.9


def test_a_discarded_beanstalk_job_is_buried_and_can_be_retried(
    client: Client, bean: SocketPeer, queue: str
) -> None:
    number = put(bean, b"x")
    job = client.pull(queue)
    client.ok("Discard", id=job["id"])
    assert job_stat(bean, number, "state") == "buried"
    assert client.ok("RetryDlq", queue=queue) == {"count": 1}
    assert job_stat(bean, number, "kicks") == "1"
    assert reserve(bean)[0] == number


def test_a_buried_beanstalk_job_is_in_the_dlq(client: Client, bean: SocketPeer, queue: str) -> None:
    number = put(bean, b'"x"')
    reserve(bean)
    bean.ask(b"bury %d 0" % number)
    [entry] = client.ok("Dlq", queue=queue)["entries"]
    assert entry["job"]["data"] == "x"
    assert client.ok("MoveToWait", id=entry["job"]["id"]) == {}
    assert reserve(bean)[0] == number
    bean.ask(b"bury %d 0" % number)
    assert client.ok("PurgeDlq", queue=queue) == {"count": 1}
    assert bean.ask(b"peek %d" % number) == b"NOT_FOUND\r\n"


def test_each_door_wakes_the_other(client: Client, bean: SocketPeer, queue: str) -> None:
    bean.send(b"reserve-with-timeout 20\r\n")
    assert bean.take_unread() == b""
    client.push(queue, 1)
    assert bean.read_line().startswith(b"RESERVED")
    assert bean.read(3) == b"1\r\n"
    pull = client.send("PULL", queue=queue, timeout=20_000)
    assert client.is_silent()
    put(bean, b"2")
    assert client.receive(pull)["job"]["data"] == 2


def test_a_beanstalk_disconnect_gives_a_job_back(
    client: Client, bean: SocketPeer, queue: str
) -> None:
    job_id = client.push(queue, 1)
    reserve(bean)
    bean.close()
    job = client.pull(queue)
    assert (job["id"], job["attempts"]) == (job_id, 0)


def test_a_processing_time_ends_at_any_door(client: Client, bean: SocketPeer, queue: str) -> None:
    job_id = client.push(queue, 1, timeout=150, maxAttempts=1)
    number, _ = reserve(bean)
    assert client.ok("PULL", queue=queue, timeout=900)["job"] is None
    assert client.state(job_id) == "failed"
    [entry] = client.ok("Dlq", queue=queue)["entries"]
    assert entry["error"] == "Job timeout exceeded"
    assert job_stat(bean, number, "state") == "buried"
    assert bean.ask(b"delete %d" % number) == b"DELETED\r\n"
    assert client.state(job_id) == "unknown"


def test_a_pause_holds_at_both_doors(client: Client, bean: SocketPeer, queue: str) -> None:
    client.push(queue, 1)
    client.ok("Pause", queue=queue)
    assert bean.ask(b"reserve-with-timeout 0") == b"TIMED_OUT\r\n"
    assert stat(bean.ask(b"stats-tube " + queue.encode()), "pause") == "4294967295"
    client.ok("Resume", queue=queue)
    assert bean.ask(b"pause-tube " + queue.encode() + b" 60") == b"PAUSED\r\n"
    assert client.ok("IsPaused", queue=queue) == {"paused": True}
    assert client.is_empty(queue)
    client.ok("Resume", queue=queue)
    assert client.pull(queue)["data"] == 1


def test_concurrency_counts_both_doors(client: Client, bean: SocketPeer, queue: str) -> None:
    client.ok("SetConcurrency", queue=queue, limit=1)
    client.push(queue, 1)
    client.push(queue, 2)
    number, _ = reserve(bean)
    assert client.is_empty(queue)
    bean.ask(b"delete %d" % number)
    assert client.pull(queue)["data"] == 2
    assert bean.ask(b"reserve-with-timeout 0") == b"TIMED_OUT\r\n"


def test_counters_count_the_act_whatever_door_did_it(
    client: Client, bean: SocketPeer, queue: str
) -> None:
    number = put(bean, b"x")
    job_id = client.pull(queue)["id"]
    client.ok("MoveToWait", id=job_id)
    reserve(bean)
    assert job_stat(bean, number, "reserves") == "2"


def test_counts_are_of_both_families(client: Client, bean: SocketPeer, queue: str) -> None:
    put(bean, b"1")
    put(bean, b"2", b"0 100 60")
    client.push(queue, 3)
    counts = client.ok("GetJobCounts", queue=queue)["counts"]
    assert counts["waiting"] + counts["prioritized"] == 2
    assert counts["delayed"] == 1
    tube = bean.ask(b"stats-tube " + queue.encode())
    assert stat(tube, "current-jobs-ready") == "2"
    assert stat(tube, "current-jobs-delayed") == "1"
    listed = client.ok("GetJobs", queue=queue, state="waiting")["jobs"]
    assert sorted(job["data"] for job in listed) == [1, 3]


def test_names_a_door_cannot_spell_are_left_out(
    client: Client, bean: SocketPeer, queue: str
) -> None:
    client.push(f"{queue}:colon", 1)
    put(bean, b"1")
    odd = queue.encode() + b"/+;"
    bean.ask(b"use " + odd)
    put(bean, b"2")
    tubes = bean.ask(b"list-tubes")
    assert f"{queue}:colon".encode() not in tubes
    names = [each["name"] for each in client.ok("ListQueues")["queues"]]
    assert f"{queue}:colon" in names
    assert queue in names
    assert odd.decode() not in names


def test_beanstalk_takes_a_job_larger_than_it_may_put(
    client: Client, bean: SocketPeer, queue: str
) -> None:
    text = "x" * 200_000
    client.send_payload(pack({"cmd": "PUSH", "queue": queue, "data": text, "reqId": "big"}))
    assert client.receive("big")["ok"] is True
    assert json.loads(reserve(bean)[1]) == text
