"""What a restart keeps: after SIGTERM, after SIGKILL, and where the original is known to fail."""

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.servers.processes import Server, start_jobyard
from tests.support.servers.sockets import SocketPeer, connect, stat

ENDS = [signal.SIGTERM, signal.SIGKILL]


class Yard:
    """A server on one folder that can be ended and started again."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self._command = ("--data", str(folder), *flags)
        self._server: Server = start_jobyard(*self._command)
        self.peer: SocketPeer = connect(self._server.address)

    def restart(self, how: signal.Signals) -> None:
        """End the server with a signal and start it again on the same folder."""
        process = self._server.process
        process.signal(how)
        code = process.wait()
        assert code == (0 if how == signal.SIGTERM else -how), process.errors()
        self.close()
        self._server = start_jobyard(*self._command)
        self.peer = connect(self._server.address)

    def put(self, line: bytes, body: bytes) -> int:
        """Put a job and return its id."""
        self.peer.send(line + b" %d\r\n" % len(body) + body + b"\r\n")
        word, number = self.peer.read_line().split()
        assert word == b"INSERTED"
        return int(number)

    def job(self, job_id: int, key: str) -> str:
        """Return one statistic of a job."""
        return stat(self.peer.ask(b"stats-job %d" % job_id), key)

    def close(self) -> None:
        """End it for good."""
        self.peer.close()
        self._server.close()


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    with contextlib.closing(Yard(tmp_path)) as opened:
        yield opened


@pytest.mark.parametrize("how", ENDS)
def test_jobs_come_back_in_their_states(yard: Yard, how: signal.Signals) -> None:
    yard.peer.ask(b"use mail")
    yard.peer.ask(b"watch mail")
    buried = yard.put(b"put 1 0 60", b"buried")
    assert b"buried" in yard.peer.ask(b"reserve")
    assert yard.peer.ask(b"bury %d 11" % buried) == b"BURIED\r\n"
    held = yard.put(b"put 2 0 60", b"held")
    assert b"held" in yard.peer.ask(b"reserve")
    ready = yard.put(b"put 3 0 61", b"\0\xff\r\n")
    delayed = yard.put(b"put 4 1000 62", b"delayed")
    gone = yard.put(b"put 5 0 60", b"gone")
    assert yard.peer.ask(b"delete %d" % gone) == b"DELETED\r\n"
    yard.restart(how)
    states = [yard.job(job_id, "state") for job_id in (buried, held, ready, delayed)]
    assert states == ["buried", "ready", "ready", "delayed"]
    assert yard.peer.ask(b"peek %d" % gone) == b"NOT_FOUND\r\n"
    assert [yard.job(job_id, "pri") for job_id in (buried, held, ready)] == ["11", "2", "3"]
    assert yard.job(ready, "ttr") == "61"
    assert yard.job(delayed, "delay") == "1000"
    assert 900 <= int(yard.job(delayed, "time-left")) <= 1000
    assert yard.job(held, "tube") == "mail"
    assert yard.peer.ask(b"peek %d" % ready) == b"FOUND %d 4\r\n\0\xff\r\n\r\n" % ready


@pytest.mark.parametrize("how", ENDS)
def test_a_job_of_the_largest_size_survives(yard: Yard, how: signal.Signals) -> None:
    before = yard.put(b"put 0 0 60", b"before")
    largest = yard.put(b"put 0 0 60", b"x" * 65535)
    after = yard.put(b"put 0 0 60", b"after")
    yard.restart(how)
    assert yard.peer.ask(b"peek %d" % largest).count(b"x") == 65535
    assert b"before" in yard.peer.ask(b"peek %d" % before)
    assert b"after" in yard.peer.ask(b"peek %d" % after)


@pytest.mark.parametrize("how", ENDS)
def test_a_released_job_keeps_its_new_priority(yard: Yard, how: signal.Signals) -> None:
    first = yard.put(b"put 1 0 60", b"first")
    second = yard.put(b"put 2 0 60", b"second")
    assert b"first" in yard.peer.ask(b"reserve")
    assert yard.peer.ask(b"release %d 9 0" % first) == b"RELEASED\r\n"
    yard.restart(how)
    assert yard.job(first, "pri") == "9"
    assert yard.job(first, "releases") == "1"
    assert yard.peer.ask(b"reserve").startswith(b"RESERVED %d " % second)


@pytest.mark.parametrize("how", ENDS)
def test_ids_never_start_again(yard: Yard, how: signal.Signals) -> None:
    last = 0
    for _ in range(3):
        job_id = yard.put(b"put 0 0 60", b"x")
        assert job_id > last
        last = job_id
        assert yard.peer.ask(b"delete %d" % job_id) == b"DELETED\r\n"
        yard.restart(how)
        yard.restart(how)


def test_order_and_burial_order_survive(yard: Yard) -> None:
    ids = [yard.put(b"put 0 0 60", b"%d" % n) for n in range(6)]
    for _ in ids:
        yard.peer.ask(b"reserve")
    for job_id in (ids[3], ids[0], ids[5]):
        assert yard.peer.ask(b"bury %d 0" % job_id) == b"BURIED\r\n"
    yard.restart(signal.SIGKILL)
    assert yard.job(ids[3], "buries") == "1"
    ready = [yard.peer.ask(b"reserve").split()[1] for _ in range(3)]
    assert ready == [b"%d" % ids[n] for n in (1, 2, 4)]
    buried = []
    for _ in range(3):
        buried.append(yard.peer.ask(b"peek-buried").split()[1])
        assert yard.peer.ask(b"kick 1") == b"KICKED 1\r\n"
    assert buried == [b"%d" % ids[n] for n in (3, 0, 5)]


def test_a_larger_job_survives_a_smaller_limit(tmp_path: Path) -> None:
    with contextlib.closing(Yard(tmp_path)) as yard:
        job_id = yard.put(b"put 0 0 60", b"x" * 1000)
        yard.restart(signal.SIGTERM)
    with contextlib.closing(Yard(tmp_path, "--max-job-size", "10")) as yard:
        assert yard.peer.ask(b"peek %d" % job_id).count(b"x") == 1000


@pytest.mark.parametrize("durability", ["sync", "os"])
def test_a_killed_process_loses_nothing_answered(tmp_path: Path, durability: str) -> None:
    with contextlib.closing(Yard(tmp_path, "--durability", durability)) as yard:
        ids = [yard.put(b"put 0 0 60", b"%d" % n) for n in range(200)]
        for job_id in ids[:100]:
            assert yard.peer.ask(b"delete %d" % job_id) == b"DELETED\r\n"
        yard.restart(signal.SIGKILL)
        found = [yard.peer.ask(b"peek %d" % job_id).startswith(b"FOUND") for job_id in ids]
        assert found == [False] * 100 + [True] * 100


def test_cumulative_counters_and_pauses_start_again(yard: Yard) -> None:
    yard.put(b"put 0 0 60", b"x")
    assert yard.peer.ask(b"pause-tube default 1000") == b"PAUSED\r\n"
    yard.restart(signal.SIGTERM)
    answer = yard.peer.ask(b"stats")
    assert stat(answer, "total-jobs") == "0"
    assert stat(answer, "cmd-put") == "0"
    assert stat(answer, "current-jobs-ready") == "1"
    assert yard.peer.ask(b"reserve-with-timeout 0").startswith(b"RESERVED")
