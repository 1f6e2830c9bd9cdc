"""A disk that is slow to sync delays only the clients that wait for it."""

import contextlib
from pathlib import Path

from tests.acceptance.process.yards import SMALL_SEGMENTS, Yard, await_true, put, put_id
from tests.support.servers.faults import Faults
from tests.support.servers.sockets import SILENCE_S, SocketPeer

SLOW_US = 5_000
VERY_SLOW_US = 500_000


def teach(peer: SocketPeer, faults: Faults) -> None:
    """Show the server a slow disk, so that it syncs in its thread from now on."""
    faults.set("sync_delay_us", SLOW_US)
    for _ in range(3):
        put_id(peer, b"taught", b"put 100 0 60")


def test_others_are_served_during_a_slow_sync(faulty_yard: Yard, faults: Faults) -> None:
    slow = faulty_yard.connect()
    quick = faulty_yard.connect()
    old = put_id(quick, b"old")
    teach(slow, faults)
    faults.set("sync_delay_us", VERY_SLOW_US)
    before = faults.get("syncs")
    slow.send(b"put 0 0 60 3\r\nnew\r\n")
    # The rest happens while that one sync is in progress.
    for _ in range(20):
        assert quick.ask(b"peek %d" % old) == b"FOUND %d 3\r\nold\r\n" % old
    assert quick.ask(b"reserve-job %d" % old).startswith(b"RESERVED")
    assert faults.get("syncs") == before, "the reads waited for the sync"
    assert not slow.receive_more(0), "the put was answered before its sync"
    assert slow.read_line().startswith(b"INSERTED")
    slow.close()
    quick.close()


def test_a_job_is_not_shown_before_it_is_safe(faulty_yard: Yard, faults: Faults) -> None:
    """Neither a client that waits for a job nor one that counts jobs sees it early."""
    putter = faulty_yard.connect()
    teach(putter, faults)
    waiter = faulty_yard.connect()
    waiter.send(b"watch fresh\r\nignore default\r\nreserve\r\n")
    assert waiter.read_line() == b"WATCHING 2\r\n"
    assert waiter.read_line() == b"WATCHING 1\r\n"
    counter = faulty_yard.connect()
    assert putter.ask(b"use fresh") == b"USING fresh\r\n"
    faults.set("sync_delay_us", VERY_SLOW_US)
    putter.send(b"put 0 0 60 3\r\nnew\r\n")
    assert not waiter.receive_more(SILENCE_S)
    counter.send(b"stats-tube fresh\r\n")
    assert not counter.receive_more(SILENCE_S)
    assert putter.read_line().startswith(b"INSERTED")
    assert waiter.read_line().startswith(b"RESERVED")
    assert counter.read_line().startswith(b"OK ")
    for peer in (putter, waiter, counter):
        peer.close()


def test_what_arrives_during_a_sync_shares_the_next(faulty_yard: Yard, faults: Faults) -> None:
    peers = [faulty_yard.connect() for _ in range(20)]
    teach(peers[0], faults)
    faults.set("sync_delay_us", VERY_SLOW_US // 5)
    before = faults.get("syncs")
    for peer in peers:
        peer.send(b"put 0 0 60 1\r\nx\r\n" * 5)
    for peer in peers:
        for _ in range(5):
            assert peer.read_line().startswith(b"INSERTED")
        peer.close()
    assert faults.get("syncs") - before <= 6


def test_the_server_goes_back_to_quick_syncs(faulty_yard: Yard, faults: Faults) -> None:
    """Answers stay right over both changes; nothing is lost at the end."""
    peer = faulty_yard.connect()
    ids = [put_id(peer, b"quick")]
    teach(peer, faults)
    ids += [put_id(peer, b"slow") for _ in range(5)]
    faults.set("sync_delay_us", 0)
    ids += [put_id(peer, b"quick again") for _ in range(100)]
    peer.close()
    faulty_yard.kill()
    faulty_yard.restart()
    with contextlib.closing(faulty_yard.connect()) as again:
        for job_id in ids:
            assert again.ask(b"peek %d" % job_id).startswith(b"FOUND")


def test_class_os_waits_for_no_sync_and_does_not_spin(tmp_path: Path, faults: Faults) -> None:
    flags = (*SMALL_SEGMENTS, "--durability", "os")
    with contextlib.closing(Yard(tmp_path / "data", *flags, env=faults.env)) as yard:
        yard.start()
        peer = yard.connect()
        at_start = faults.get("syncs")
        put_id(peer, b"first")
        await_true(lambda: faults.get("syncs") > at_start, "the first put is synced")
        faults.set("sync_delay_us", 2 * VERY_SLOW_US)
        before, before_s = faults.get("syncs"), yard.cpu_s()
        assert put(peer, b"second").startswith(b"INSERTED")
        assert faults.get("syncs") == before, "the answer waited for the sync"
        await_true(lambda: faults.get("syncs") > before, "the second put is synced")
        assert yard.cpu_s() - before_s < 0.3, "the loop span while the thread worked"
        peer.close()
