"""The topic `_events` of a real server: shown as it happens, and the same after SIGKILL."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.topics.test_socket import Talk
from tests.acceptance.topics.test_watch import Reader
from tests.support.servers.http import HttpYard, Topics
from tests.support.servers.sockets import SocketPeer, connect

PATH = "/v0/topics/_events"
LOOPS = ["epoll", "asyncio"]


@pytest.fixture
def flags(tmp_path: Path) -> tuple[str, ...]:
    """A data directory with small files."""
    return ("--data", str(tmp_path / "data"), "--segment-size", "64KiB")


@contextlib.contextmanager
def served(*flags: str) -> Iterator[tuple[HttpYard, Topics, SocketPeer]]:
    """A server, a topics client and a beanstalk client."""
    yard = HttpYard(*flags)
    topics = Topics(yard.address)
    peer = connect(yard.addresses["beanstalk"])
    try:
        yield yard, topics, peer
    finally:
        topics.close()
        peer.close()
        yard.close()


def put(peer: SocketPeer, body: bytes) -> int:
    answer = peer.ask(b"put 0 0 60 %d\r\n%s" % (len(body), body))
    assert answer.startswith(b"INSERTED"), answer
    return int(answer.split()[1])


def live(peer: SocketPeer, body: bytes = b"x" * 100) -> int:
    """Put a job, take it and finish it."""
    job_id = put(peer, body)
    assert peer.ask(b"reserve-job %d" % job_id).startswith(b"RESERVED")
    assert peer.ask(b"delete %d" % job_id) == b"DELETED\r\n"
    return job_id


def diff(topics: Topics, **asked: object) -> Any:
    status, answer = topics.ask("POST", f"{PATH}/diff", asked)
    assert status == 200, answer
    return answer


def read_all(topics: Topics) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    after = 0
    while True:
        page = diff(topics, from_seq=after, limit=1000)
        found += page["records"]
        after = page["next_from_seq"]
        if page["caught_up"]:
            return found


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("durability", ["sync", "os"])
def test_what_happens_is_told_to_all_who_wait(
    flags: tuple[str, ...], loop: str, durability: str
) -> None:
    with served(*flags, "--loop", loop, "--durability", durability) as (yard, topics, peer):
        _, watch = topics.ask("POST", "/v0/watch", {"topics": {"_events": {}}})
        reader = Reader(yard.address, watch["stream_url"])
        talk = Talk(yard.address)
        talk.say("subscribe", topic="_events")
        waiting: list[Any] = []
        other = Topics(yard.address)
        thread = threading.Thread(
            target=lambda: waiting.append(diff(other, wait_ms=30_000)), daemon=True
        )
        thread.start()
        job_id = live(peer)
        events = [record["data"]["event"] for record in reader.records(3)]
        assert events == ["enqueued", "claimed", "completed"]
        heard: list[str] = []
        while len(heard) < 3:
            message = talk.hear()
            heard += [one["data"]["event"] for one in message.get("records", [])]
        assert heard == events
        thread.join(30)
        assert waiting[0]["records"][0]["data"]["id"] == job_id
        other.close()
        reader.close()
        talk.close()


def test_rows_that_were_seen_are_there_after_a_kill(flags: tuple[str, ...]) -> None:
    seen: list[dict[str, Any]] = []
    for _ in range(4):
        with served(*flags) as (yard, topics, peer):
            found = read_all(topics)
            assert found[: len(seen)] == seen
            for number in range(150):
                live(peer, b"%d" % number * 50)
            seen = read_all(topics)
            assert len(seen) >= len(found) + 450
            # Some that no reader has seen.
            for number in range(5):
                put(peer, b"%d" % number)
            yard.process.signal(signal.SIGKILL)
            yard.process.wait()
    assert len({one["$seq"] for one in seen}) == len(seen)


def test_a_run_that_a_kill_cut_off_is_abandoned_once(flags: tuple[str, ...]) -> None:
    with served(*flags) as (yard, topics, peer):
        cut_off = put(peer, b"cut off")
        assert peer.ask(b"reserve-job %d" % cut_off).startswith(b"RESERVED")
        live(peer)
        kept = {"type": "queue", "leases_durable": True}
        assert topics.ask("PUT", "/v0/topics/kept", kept)[0] == 201
        topics.ask("POST", "/v0/topics/kept", {"records": [{"data": 1}]})
        topics.ask("POST", "/v0/topics/kept/claim", {"node": "w", "lease_ms": 600_000})
        before = read_all(topics)
        yard.process.signal(signal.SIGKILL)
        yard.process.wait()
    for _ in range(2):
        with served(*flags) as (yard, topics, _):
            found = read_all(topics)
            assert found[: len(before)] == before
            (row,) = [one["data"] for one in found[len(before) :]]
            yard.process.signal(signal.SIGKILL)
            yard.process.wait()
        (claim,) = [
            one["data"]
            for one in before
            if one["data"]["event"] == "claimed" and one["data"]["id"] == cut_off
        ]
        same = ("id", "lease", "deliveries", "holder", "worker", "door", "family", "claimed_at")
        assert {key: row[key] for key in same} == {key: claim[key] for key in same}
        assert (row["event"], row["state"]) == ("abandoned", "ready")
        assert row["finished_at"] == max(one["$ts"] for one in before)
    with served(*flags) as (_, topics, _peer):
        _, answer = topics.ask("POST", "/v0/topics/kept/ack", {"node": "w", "seqs": [1]})
        assert answer["acked"] == 1
        last = read_all(topics)[-1]["data"]
        assert (last["event"], last["queue"]) == ("completed", "kept")


def test_a_small_window_moves_on_and_readers_are_told(flags: tuple[str, ...]) -> None:
    with served(*flags, "--events-bytes", "128KiB") as (_, topics, peer):
        live(peer)
        first = diff(topics)["records"][0]["$seq"]
        for _ in range(2000):
            live(peer, b"x" * 1000)
            if diff(topics, limit=1)["tombstone"] is not None:
                break
        page = diff(topics, from_seq=first)
        assert page["tombstone"]["gap_from"] == first + 1
        assert page["tombstone"]["gap_to"] == page["earliest_seq"] - 1
        assert page["records"][0]["$seq"] >= page["earliest_seq"]


@pytest.mark.parametrize("off", [("--events-hours", "0"), ("--events-bytes", "0")])
def test_history_can_be_switched_off(flags: tuple[str, ...], off: tuple[str, ...]) -> None:
    with served(*flags, *off) as (_, topics, _peer):
        assert topics.ask("GET", PATH)[0] == 404
    with served("--memory") as (_, topics, _peer):
        assert topics.ask("GET", PATH)[0] == 404
