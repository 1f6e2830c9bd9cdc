"""greenstalk, through its whole public API, against Jobyard and against the original."""

import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import get_type_hints

import greenstalk
import pytest

from tests.support.servers.processes import start_jobyard
from tests.support.servers.sockets import REPLY_S, SocketStage
from tests.support.transcripts.theatre import ORIGINAL, Theatre

Address = tuple[str, int]
Client = greenstalk.Client[str]


def open_client(
    address: Address, use: str = "default", watch: str | list[str] = "default"
) -> Client:
    """Open a client over a socket that gives up: greenstalk itself would wait for ever."""
    sock = socket.create_connection(address, timeout=REPLY_S)
    return greenstalk.Client(sock, use=use, watch=watch)


@pytest.fixture
def client(host_and_port: Address) -> Iterator[Client]:
    with open_client(host_and_port) as opened:
        yield opened


@pytest.fixture
def other(host_and_port: Address) -> Iterator[Client]:
    with open_client(host_and_port) as opened:
        yield opened


def test_connects_to_a_host_and_port(host_and_port: Address) -> None:
    with greenstalk.Client(host_and_port) as client:
        assert client.using() == "default"
        assert str(host_and_port[1]) in repr(client)


def test_connects_to_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "yard.sock"
    server = start_jobyard("--memory", address=f"unix:{path}")
    with closing(server), greenstalk.Client(str(path)) as client:
        job_id = client.put("over a file")
        assert client.reserve(timeout=0).body == "over a file"
        client.delete(job_id)


def test_use_and_watch_at_connect(host_and_port: Address) -> None:
    with open_client(host_and_port, use="in", watch=["out", "default"]) as client:
        assert client.using() == "in"
        assert client.watching() == ["default", "out"]
    with open_client(host_and_port, use="in", watch="out") as client:
        assert client.watching() == ["out"]


def test_put_reserve_delete(client: Client) -> None:
    job_id = client.put("hello")
    job = client.reserve()
    assert (job.id, job.body) == (job_id, "hello")
    client.delete(job)
    with pytest.raises(greenstalk.NotFoundError):
        client.delete(job)


def test_bodies_in_other_characters(client: Client) -> None:
    client.put("žluťoučký kůň 馬\r\n")
    assert client.reserve(timeout=0).body == "žluťoučký kůň 馬\r\n"


def test_binary_bodies(host_and_port: Address) -> None:
    body = bytes(range(256)) * 4
    sock = socket.create_connection(host_and_port, timeout=REPLY_S)
    with greenstalk.Client(sock, encoding=None) as client:
        job_id = client.put(body)
        assert client.peek(job_id).body == body
        assert client.reserve(timeout=0).body == body


def test_an_empty_body(client: Client) -> None:
    client.put("")
    assert client.reserve(timeout=0).body == ""


def test_priority_delay_and_ttr(client: Client) -> None:
    late = client.put("late", priority=9)
    first = client.put("first", priority=3, ttr=33)
    delayed = client.put("delayed", delay=100)
    assert client.reserve(timeout=0).id == first
    assert client.reserve(timeout=0).id == late
    with pytest.raises(greenstalk.TimedOutError):
        client.reserve(timeout=0)
    assert client.stats_job(first)["ttr"] == 33
    assert client.stats_job(delayed)["delay"] == 100


def test_reserve_job(client: Client, other: Client) -> None:
    first = client.put("first")
    second = client.put("second", delay=100)
    assert client.reserve_job(second).body == "second"
    with pytest.raises(greenstalk.NotFoundError):
        other.reserve_job(second)
    assert other.reserve_job(first).body == "first"


def test_release(client: Client) -> None:
    client.put("x", priority=1)
    job = client.reserve(timeout=0)
    client.release(job, priority=7, delay=0)
    assert client.stats_job(job)["pri"] == 7
    client.release(client.reserve(timeout=0), delay=50)
    assert client.stats_job(job)["state"] == "delayed"
    with pytest.raises(greenstalk.NotFoundError):
        client.release(job)


def test_bury_and_kick(client: Client) -> None:
    client.put("a")
    client.put("b")
    for _ in range(2):
        client.bury(client.reserve(timeout=0), priority=5)
    assert client.peek_buried().body == "a"
    assert client.kick(1) == 1
    assert client.peek_ready().body == "a"
    assert client.kick(10) == 1
    assert client.kick(10) == 0


def test_kick_job(client: Client) -> None:
    job_id = client.put("x", delay=100)
    client.kick_job(job_id)
    job = client.reserve(timeout=0)
    client.bury(job)
    client.kick_job(job)
    assert client.stats_job(job)["kicks"] == 2
    with pytest.raises(greenstalk.NotFoundError):
        client.kick_job(job)


def test_touch(client: Client, other: Client) -> None:
    client.put("x")
    job = client.reserve(timeout=0)
    client.touch(job)
    with pytest.raises(greenstalk.NotFoundError):
        other.touch(greenstalk.Job(job.id, ""))


def test_peek(client: Client) -> None:
    with pytest.raises(greenstalk.NotFoundError):
        client.peek_ready()
    with pytest.raises(greenstalk.NotFoundError):
        client.peek_delayed()
    with pytest.raises(greenstalk.NotFoundError):
        client.peek_buried()
    ready = client.put("ready")
    delayed = client.put("delayed", delay=100)
    assert client.peek(ready).body == "ready"
    assert client.peek_ready().id == ready
    assert client.peek_delayed().id == delayed
    with pytest.raises(greenstalk.NotFoundError):
        client.peek(delayed + 1000)


def test_tubes(client: Client) -> None:
    client.use("in")
    assert client.using() == "in"
    assert client.watch("out") == 2
    assert client.watching() == ["default", "out"]
    assert client.tubes() == ["default", "in", "out"]
    assert client.ignore("default") == 1
    with pytest.raises(greenstalk.NotIgnoredError):
        client.ignore("out")


def test_pause_tube(client: Client) -> None:
    client.put("x")
    client.pause_tube("default", 100)
    with pytest.raises(greenstalk.TimedOutError):
        client.reserve(timeout=0)
    assert client.stats_tube("default")["pause"] == 100
    client.pause_tube("default", 0)
    assert client.reserve(timeout=0).body == "x"
    with pytest.raises(greenstalk.NotFoundError):
        client.pause_tube("nobody", 1)


def check_types(found: dict[str, object], shape: type) -> None:
    """Every key greenstalk declares is there, of the declared type, and no other."""
    hints = get_type_hints(shape)
    assert set(found) == set(hints)
    for key, hint in hints.items():
        value = found[key]
        if hint is int:
            assert isinstance(value, int), (key, value)
            assert value >= 0, (key, value)
        elif hint is str:
            assert isinstance(value, str), (key, value)
        else:
            assert value in hint.__args__, (key, value)


def test_stats_have_every_declared_key_and_type(client: Client, player: str) -> None:
    found = dict(client.stats())
    if player == ORIGINAL:
        # 1.12 may say an `id` or `rusage` that reads as a number; the shape is all it promises.
        assert set(found) == set(get_type_hints(greenstalk.Stats))
        return
    check_types(found, greenstalk.Stats)


def test_stats_tube_has_every_declared_key_and_type(client: Client) -> None:
    client.use("some.tube")
    client.put("x")
    found = client.stats_tube("some.tube")
    check_types(dict(found), greenstalk.StatsTube)
    assert found["name"] == "some.tube"
    assert found["current-jobs-ready"] == 1
    with pytest.raises(greenstalk.NotFoundError):
        client.stats_tube("nobody")


def test_stats_job_has_every_declared_key_and_type(client: Client) -> None:
    job_id = client.put("x", priority=5)
    found = client.stats_job(job_id)
    check_types(dict(found), greenstalk.StatsJob)
    assert (found["id"], found["tube"], found["state"]) == (job_id, "default", "ready")
    with pytest.raises(greenstalk.NotFoundError):
        client.stats_job(job_id + 1000)


def test_deadline_soon(client: Client) -> None:
    client.put("x", ttr=1)
    job = client.reserve(timeout=0)
    with pytest.raises(greenstalk.DeadlineSoonError):
        client.reserve()
    client.delete(job)


def test_job_too_big_leaves_the_connection_usable(client: Client) -> None:
    with pytest.raises(greenstalk.JobTooBigError):
        client.put("x" * 65536)
    assert client.using() == "default"
    job_id = client.put("x" * 65535)
    assert len(client.peek(job_id).body) == 65535


def test_bad_format(client: Client) -> None:
    with pytest.raises(greenstalk.BadFormatError):
        client.use("no spaces here")
    with pytest.raises(greenstalk.BadFormatError):
        client.watch("x" * 201)
    assert client.using() == "default"


def test_draining(player: str, theatre: Theatre) -> None:
    with theatre.start(player, {}) as stage:
        assert isinstance(stage.server.address, tuple)
        with open_client(stage.server.address) as client:
            client.put("before")
            stage.drain()
            with pytest.raises(greenstalk.DrainingError):
                client.put("after")
            assert client.reserve(timeout=0).body == "before"
            assert client.stats()["draining"] == "true"


def test_a_closed_client_gives_its_jobs_back(host_and_port: Address, client: Client) -> None:
    client.put("x")
    with open_client(host_and_port) as leaving:
        assert leaving.reserve(timeout=0).body == "x"
    assert client.reserve(timeout=5).body == "x"


def test_many_jobs_through_two_clients(client: Client, other: Client) -> None:
    ids = [client.put(str(n)) for n in range(300)]
    taken = []
    for _ in range(150):
        for worker in (client, other):
            job = worker.reserve(timeout=0)
            taken.append((job.id, job.body))
            worker.delete(job)
    assert taken == [(job_id, str(n)) for n, job_id in enumerate(ids)]


def test_the_stage_is_left_clean(stage: SocketStage, client: Client) -> None:
    assert client.tubes() == ["default"]
    assert client.stats()["current-jobs-ready"] == 0
    assert stage.server.process.child.poll() is None
