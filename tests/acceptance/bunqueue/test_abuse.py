"""The cost of misbehaving clients: bounded memory, and nothing for the others."""

import struct
from collections.abc import Iterator

import pytest

from tests.support.servers.bunqueue import FRAME_SIZE_MAX, ORIGINAL, Yard, frame, pack, running
from tests.support.servers.processes import rss_bytes

pytestmark = pytest.mark.skipif(bool(ORIGINAL), reason="looks at the memory of its own server")

MIB = 1 << 20


@pytest.fixture
def yard() -> Iterator[Yard]:
    with running("--memory") as made:
        yield made


def test_announced_lengths_cost_nothing(yard: Yard) -> None:
    good = yard.connect()
    assert good.ok("Ping")
    before = rss_bytes(yard.process.pid)
    for _ in range(50):
        yard.connect().send_bytes(struct.pack(">I", FRAME_SIZE_MAX) + b"\x81\xa3cmd\xdb\x03")
    for code in (b"\xdd", b"\xdf", b"\xdb", b"\xc6"):
        good.send_payload(b"\x82\xa3cmd\xa4PUSH\xa4data" + code + b"\x03\xff\xff\xff")
        assert good.receive()["ok"] is False
    assert rss_bytes(yard.process.pid) - before < 40 * MIB


def test_a_deep_message_is_refused_quickly(yard: Yard) -> None:
    good = yard.connect()
    before = rss_bytes(yard.process.pid)
    good.send_payload(b"\x82\xa3cmd\xa4PUSH\xa4data" + b"\x91" * MIB + b"\xc0")
    assert good.receive()["ok"] is False
    assert good.ok("Ping")
    assert rss_bytes(yard.process.pid) - before < 100 * MIB


def test_a_client_that_never_reads_is_bounded(yard: Yard) -> None:
    good = yard.connect()
    job_id = good.push("q", "x" * MIB)
    before = rss_bytes(yard.process.pid)
    deaf = yard.connect()
    deaf.send_without_waiting(frame(pack({"cmd": "GetJob", "id": job_id})) * 400)
    for _ in range(50):
        assert good.ok("Ping")
    assert rss_bytes(yard.process.pid) - before < 200 * MIB
    assert good.pull("q")["id"] == job_id


def test_a_subscriber_that_never_reads_is_bounded(yard: Yard) -> None:
    good = yard.connect()
    good.ok("Ping")
    before = rss_bytes(yard.process.pid)
    deaf = yard.connect()
    deaf.ok("SubscribeEvents", queue="q")
    text = "x" * (4 * MIB)
    for _ in range(20):
        good.finish("q", 1, result=text, removeOnComplete=True)
    assert rss_bytes(yard.process.pid) - before < 150 * MIB


def test_fifty_blocked_pulls_on_many_connections_are_cheap(yard: Yard) -> None:
    good = yard.connect()
    good.ok("Ping")
    before = rss_bytes(yard.process.pid)
    blocked = [yard.connect() for _ in range(20)]
    for each in blocked:
        each.send_bytes(frame(pack({"cmd": "PULL", "queue": "q", "timeout": 60_000})) * 60)
    assert blocked[-1].is_silent()
    ids = good.ok("PUSHB", queue="q", jobs=[{"data": n} for n in range(1000)])["ids"]
    served = [each.receive()["job"]["id"] for each in blocked for _ in range(50)]
    assert sorted(served) == sorted(ids)
    assert rss_bytes(yard.process.pid) - before < 60 * MIB


def test_garbage_of_every_length_harms_nobody(yard: Yard) -> None:
    good = yard.connect()
    for size in range(200):
        bad = yard.connect()
        bad.send_bytes(bytes((size * 7 + at * 31) % 256 for at in range(size)))
        bad.reset()
    assert good.ok("Ping")
    job_id = good.push("q", 1)
    assert good.pull("q")["id"] == job_id


def test_a_frame_that_never_ends_is_given_up() -> None:
    with running("--memory", env={"TCP_IDLE_TIMEOUT_MS": "300"}) as yard:
        idle, stuck = yard.connect(), yard.connect()
        assert idle.ok("Ping")
        stuck.send_bytes(struct.pack(">I", 100) + b"\x81")
        stuck.await_end()
        assert idle.ok("Ping")


def test_the_bytes_kept_for_a_client_that_never_reads_can_be_set() -> None:
    with running("--memory", env={"TCP_MAX_WRITE_QUEUE_BYTES": str(8 * MIB)}) as yard:
        good, deaf = yard.connect(), yard.connect()
        job_id = good.push("q", "x" * MIB)
        before = rss_bytes(yard.process.pid)
        deaf.send_without_waiting(frame(pack({"cmd": "GetJob", "id": job_id})) * 100)
        assert good.ok("Ping")
        assert rss_bytes(yard.process.pid) - before < 60 * MIB
