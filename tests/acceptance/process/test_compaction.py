"""Compaction on a real disk, and a start on its results."""

import contextlib
from pathlib import Path

import pytest

from tests.acceptance.process.yards import SMALL_SEGMENTS, Yard, await_true, put_id
from tests.support.servers.sockets import SocketPeer


def bury(peer: SocketPeer, body: bytes) -> int:
    job_id = put_id(peer, body)
    assert peer.ask(b"reserve-job %d" % job_id).startswith(b"RESERVED")
    assert peer.ask(b"bury %d 0" % job_id) == b"BURIED\r\n"
    return job_id


def roll(yard: Yard, peer: SocketPeer) -> None:
    """Fill the journal until it continues in another file."""
    last = yard.segment_numbers()[-1]
    while yard.segment_numbers()[-1] == last:
        assert peer.ask(b"delete %d" % put_id(peer, b"x" * 4000)) == b"DELETED\r\n"


@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "stopped"])
def test_burial_order_survives_the_loss_of_the_first_segment(
    yard: Yard, *, is_killed: bool
) -> None:
    peer = yard.connect()
    first_segment = yard.segment_numbers()[0]
    gone = bury(peer, b"gone")
    ids = [bury(peer, b"first")]
    assert peer.ask(b"delete %d" % gone) == b"DELETED\r\n"
    roll(yard, peer)
    ids += [bury(peer, b"second"), bury(peer, b"third")]
    await_true(lambda: first_segment not in yard.segment_numbers(), "the segment is dropped")
    peer.close()
    if is_killed:
        yard.kill()
    else:
        yard.stop()
    yard.restart()
    with contextlib.closing(yard.connect()) as again:
        found = []
        for _ in ids:
            found.append(int(again.ask(b"peek-buried").split()[1]))
            assert again.ask(b"kick 1") == b"KICKED 1\r\n"
        assert found == ids


def test_the_journal_does_not_grow_with_the_work_done(tmp_path: Path) -> None:
    """One old job must not pin what was written after it."""
    with contextlib.closing(Yard(tmp_path / "data", *SMALL_SEGMENTS)) as yard:
        yard.start()
        peer = yard.connect()
        old = put_id(peer, b"old")
        for _ in range(12):
            roll(yard, peer)
        await_true(lambda: len(yard.segment_numbers()) <= 4, "old segments are dropped", 30)
        size = sum(path.stat().st_size for path in yard.folder.iterdir())
        assert size < 10 * 64 * 1024
        peer.close()
        yard.kill()
        yard.restart()
        with contextlib.closing(yard.connect()) as again:
            assert again.ask(b"peek %d" % old) == b"FOUND %d 3\r\nold\r\n" % old
