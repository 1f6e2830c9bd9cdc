"""The environment of doors: facts about the process, and webhooks posted through it."""

import io
import os
import resource
import time

from jobyard.journal.journal import Journal
from jobyard.server.environment import ServerEnvironment
from jobyard.server.log import Log
from tests.support.servers.patience import PATIENCE_S
from tests.unit.server.test_webhooks import receiving


def surround(*, tries: int = 1, allow_private: bool = True) -> tuple[ServerEnvironment, Journal]:
    journal = Journal(None, 1 << 20, ids_ahead=False)
    log = Log("error", "text", io.StringIO())
    return ServerEnvironment(journal, log, tries, allow_private=allow_private), journal


def outcome(around: ServerEnvironment) -> tuple[str, bool, int]:
    """Wait for the one outcome that is due."""
    around._outcomes.put(around._outcomes.get(timeout=PATIENCE_S))
    [found] = around.take_outcomes()
    return found


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def test_the_process_is_measured() -> None:
    around, _ = surround()
    assert 1 < around.memory_mb() < peak_mb() + 1
    assert 0 < around.cpu_s() < 100_000


def test_a_full_disk_is_an_error_since_it_was_seen() -> None:
    around, journal = surround()
    around.look_at_disk(5)
    assert around.disk_error() == ""
    journal.is_full = True
    around.look_at_disk(7)
    around.look_at_disk(9)
    assert (around.disk_error(), around.disk_error_since_ms()) == ("the disk is full", 7)
    journal.is_full = False
    around.look_at_disk(11)
    journal.is_full = True
    around.look_at_disk(13)
    assert around.disk_error_since_ms() == 13


def test_outcomes_are_told_once() -> None:
    around, _ = surround()
    with receiving(200, 500) as receiver:
        around.post("a", receiver.url(), "", "job.pushed", b"{}")
        first, is_done, at_ms = outcome(around)
        assert (first, is_done) == ("a", True)
        assert abs(at_ms - time.time() * 1000) < 60_000
        around.post("b", receiver.url(), "s", "job.pushed", b"{}")
        second, is_done, _ = outcome(around)
        assert (second, is_done) == ("b", False)
        around.close()
    assert "X-Webhook-Signature" not in receiver.requests[0][1]
    assert "X-Webhook-Signature" in receiver.requests[1][1]
    assert around.take_outcomes() == []


def test_a_close_lets_go_what_is_in_line() -> None:
    around, _ = surround()
    with receiving() as receiver:
        for n in range(20):
            around.post("a", receiver.url(), "", "job.pushed", b"%d" % n)
        around.close()
        assert len(receiver.requests) == 20
        around.post("a", receiver.url(), "", "job.pushed", b"late")
    assert len(receiver.requests) == 20


def test_private_addresses_are_not_reached_unless_allowed() -> None:
    around, _ = surround(allow_private=False)
    with receiving() as receiver:
        around.post("a", receiver.url(), "", "job.pushed", b"{}")
        assert outcome(around)[:2] == ("a", False)
        around.close()
    assert receiver.requests == []


def test_what_is_forgotten_is_not_tried_again() -> None:
    around, _ = surround(tries=3)
    with receiving(500) as receiver:
        around.post("a", receiver.url(), "", "job.pushed", b"{}")
        deadline = time.monotonic() + PATIENCE_S
        while not receiver.requests:
            assert time.monotonic() < deadline
            os.sched_yield()
        around.forget("a")
        around.close()
    assert len(receiver.requests) == 1
    assert around.take_outcomes() == []
