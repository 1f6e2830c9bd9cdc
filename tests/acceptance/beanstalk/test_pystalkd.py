"""pystalkd, through its whole public API, against Jobyard and against the original.

It reads with one recv and treats any read that ends in CRLF as a whole answer: every answer must
be sent in one piece.
"""

from collections.abc import Iterator
from datetime import timedelta

import pytest
from pystalkd.Beanstalkd import BeanstalkdException, CommandFailed, Connection, DeadlineSoon

from tests.support.servers.sockets import REPLY_S

Address = tuple[str, int]


def open_connection(address: Address) -> Connection:
    # Without PyYAML it returns the text; with parsing off, it does so with PyYAML too.
    return Connection(address[0], address[1], parse_yaml=False, connect_timeout=REPLY_S)


@pytest.fixture
def connection(host_and_port: Address) -> Iterator[Connection]:
    opened = open_connection(host_and_port)
    yield opened
    opened.close()


@pytest.fixture
def other(host_and_port: Address) -> Iterator[Connection]:
    opened = open_connection(host_and_port)
    yield opened
    opened.close()


def pairs(text: str) -> dict[str, str]:
    """Read the statistics text into keys and values without quotes."""
    lines = text.strip().split("\n")
    assert lines[0] == "---"
    return {key: value.strip('"') for key, value in (line.split(": ", 1) for line in lines[1:])}


def entries(text: str) -> list[str]:
    """Read a list text into its names."""
    lines = text.strip().split("\n")
    assert lines[0] == "---"
    assert all(line.startswith("- ") for line in lines[1:])
    return [line[2:] for line in lines[1:]]


def test_put_reserve_delete(connection: Connection) -> None:
    job_id = connection.put("hello")
    job = connection.reserve()
    assert (job.job_id, job.body, job.size, job.reserved) == (job_id, "hello", 5, True)
    job.delete()
    assert not job.reserved
    with pytest.raises(CommandFailed, match="NOT_FOUND"):
        connection.delete(job_id)


def test_bytes(connection: Connection) -> None:
    body = bytes(byte for byte in range(256) if byte not in b"\r\n\t\v\f \x1c\x1d\x1e\x1f\x85")
    connection.put_bytes(body)
    assert connection.reserve_bytes(timeout=0).body == body


def test_a_body_larger_than_its_buffer(connection: Connection) -> None:
    connection.put("x" * 60000)
    assert connection.reserve(timeout=0).body == "x" * 60000


def test_times_as_timedelta(connection: Connection) -> None:
    job_id = connection.put("x", delay=timedelta(minutes=2), ttr=timedelta(minutes=3))
    found = pairs(connection.stats_job(job_id))
    assert (found["delay"], found["ttr"]) == ("120", "180")
    assert connection.reserve(timeout=timedelta(0)) is None
    connection.pause_tube("default", timedelta(hours=1))
    assert pairs(connection.stats_tube("default"))["pause"] == "3600"


def test_reserve_times_out(connection: Connection) -> None:
    assert connection.reserve(timeout=0) is None


def test_deadline_soon(connection: Connection) -> None:
    connection.put("x", ttr=1)
    job = connection.reserve(timeout=0)
    with pytest.raises(DeadlineSoon):
        connection.reserve(timeout=0)
    job.delete()


def test_release(connection: Connection) -> None:
    job_id = connection.put("x", priority=5)
    job = connection.reserve(timeout=0)
    job.release(priority=9)
    assert not job.reserved
    assert pairs(connection.stats_job(job_id))["pri"] == "9"
    connection.reserve(timeout=0).release(delay=100)
    assert pairs(connection.stats_job(job_id))["state"] == "delayed"
    with pytest.raises(CommandFailed, match="NOT_FOUND"):
        connection.release(job_id)


def test_bury_and_kick(connection: Connection) -> None:
    job_id = connection.put("x")
    job = connection.reserve(timeout=0)
    job.bury(priority=3)
    assert connection.peek_buried().job_id == job_id
    assert connection.kick() == 1
    assert pairs(job.stats())["pri"] == "3"
    connection.reserve(timeout=0).bury()
    job.kick()
    assert pairs(job.stats())["kicks"] == "2"
    with pytest.raises(CommandFailed, match="NOT_FOUND"):
        connection.kick_job(job_id)
    with pytest.raises(CommandFailed, match="NOT_FOUND"):
        connection.bury(job_id)


def test_touch(connection: Connection, other: Connection) -> None:
    job_id = connection.put("x")
    job = connection.reserve(timeout=0)
    job.touch()
    with pytest.raises(CommandFailed, match="NOT_FOUND"):
        other.touch(job_id)


def test_peek(connection: Connection) -> None:
    assert connection.peek_ready() is None
    assert connection.peek_delayed() is None
    assert connection.peek_buried() is None
    assert connection.peek(1 << 40) is None
    ready = connection.put("ready")
    delayed = connection.put("delayed", delay=100)
    assert connection.peek(ready).body == "ready"
    assert connection.peek_ready().job_id == ready
    assert connection.peek_delayed().job_id == delayed


def test_tubes(connection: Connection) -> None:
    assert connection.use("in") == "in"
    assert connection.using() == "in"
    assert connection.watch("out") == 2
    assert entries(connection.watching()) == ["default", "out"]
    assert entries(connection.tubes()) == ["default", "in", "out"]
    assert connection.ignore("default") == 1
    with pytest.raises(CommandFailed, match="NOT_IGNORED"):
        connection.ignore("out")


def test_temporary_tubes(connection: Connection) -> None:
    with connection.temporary_use("for-now"):
        assert connection.using() == "for-now"
    assert connection.using() == "default"
    with connection.temporary_watch("for-now"):
        assert entries(connection.watching()) == ["default", "for-now"]
    assert entries(connection.watching()) == ["default"]


def test_pause_tube(connection: Connection) -> None:
    connection.put("x")
    connection.pause_tube("default", 100)
    assert connection.reserve(timeout=0) is None
    connection.pause_tube("default", 0)
    assert connection.reserve(timeout=0).body == "x"
    with pytest.raises(CommandFailed, match="NOT_FOUND"):
        connection.pause_tube("nobody", 1)


def test_statistics(connection: Connection) -> None:
    job_id = connection.put("x")
    assert len(pairs(connection.stats())) == 51
    assert len(pairs(connection.stats_tube("default"))) == 14
    assert len(pairs(connection.stats_job(job_id))) == 14
    with pytest.raises(CommandFailed, match="NOT_FOUND"):
        connection.stats_tube("nobody")
    with pytest.raises(CommandFailed, match="NOT_FOUND"):
        connection.stats_job(job_id + 1000)


def test_parsed_statistics(host_and_port: Address) -> None:
    pytest.importorskip("yaml", reason="pystalkd parses statistics only with PyYAML")
    connection = Connection(*host_and_port, parse_yaml=True, connect_timeout=REPLY_S)
    connection.use("123")
    assert connection.stats()["current-connections"] == 1
    assert connection.tubes() == ["default", 123]
    connection.close()


def test_server_errors(connection: Connection) -> None:
    with pytest.raises(BeanstalkdException, match="BAD_FORMAT"):
        connection.use("no spaces here")
    with pytest.raises(BeanstalkdException, match="UNKNOWN_COMMAND"):
        connection.send("bogus")
    with pytest.raises(CommandFailed, match="JOB_TOO_BIG"):
        connection.put("x" * 65536)
    assert connection.using() == "default"


def test_reconnect_gives_jobs_back(connection: Connection) -> None:
    connection.put("x")
    assert connection.reserve(timeout=0).body == "x"
    connection.reconnect()
    assert connection.reserve(timeout=5).body == "x"


def test_every_answer_comes_in_one_piece(connection: Connection) -> None:
    job_id = connection.put("a body")
    for _ in range(100):
        assert connection.peek(job_id).body == "a body"
        assert len(pairs(connection.stats())) == 51
