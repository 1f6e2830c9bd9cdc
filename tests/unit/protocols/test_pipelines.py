"""Commands and requests that were sent ahead: a turn runs some, later turns the others."""

from itertools import pairwise

import pytest

from jobyard.protocols.bunqueue.session import ASKED_MAX
from jobyard.protocols.http.limits import SERVED_MAX
from tests.support.doors.http import BareHttp
from tests.support.servers.bunqueue import frame, pack

GET = b"GET /stats HTTP/1.1\r\nHost: yard\r\n\r\n"


@pytest.fixture
def site() -> BareHttp:
    site = BareHttp()
    site.is_slow = True
    return site


def finish(site: BareHttp) -> None:
    """Run turns until nothing is left to do."""
    while site.slice() or site.yard.tasks.count() > 0:
        pass


def test_requests_sent_ahead_are_served_over_turns(site: BareHttp) -> None:
    http = site.call()
    http.feed(GET * (2 * SERVED_MAX + 5))
    heard = [http.unread.count(b"HTTP/1.1 200")]
    while site.slice() or site.yard.tasks.count() > 0:
        heard.append(http.unread.count(b"HTTP/1.1 200"))
    assert heard[0] == SERVED_MAX
    assert http.unread.count(b"HTTP/1.1 200") == 2 * SERVED_MAX + 5
    assert all(after - before <= SERVED_MAX for before, after in pairwise(heard))


def test_a_request_that_comes_while_others_wait_keeps_its_place(site: BareHttp) -> None:
    http = site.call()
    http.feed(GET * (SERVED_MAX + 1))
    http.feed(b"GET /nowhere HTTP/1.1\r\nHost: yard\r\n\r\n")
    assert http.unread.count(b"HTTP/1.1 ") == SERVED_MAX
    assert http.session.unread_size() > 0
    finish(site)
    assert http.unread.count(b"HTTP/1.1 200") == SERVED_MAX + 1
    assert http.unread.rindex(b"HTTP/1.1 404") > http.unread.rindex(b"HTTP/1.1 200")
    assert http.session.unread_size() == 0


def test_a_connection_that_goes_leaves_nothing_to_do(site: BareHttp) -> None:
    http = site.call()
    http.feed(GET * (SERVED_MAX + 1))
    tcp = site.connect()
    tcp.session.receive(frame(pack({"cmd": "Ping", "reqId": "1"})) * (ASKED_MAX + 1), site.now_ms)
    http.close()
    tcp.close()
    finish(site)
    assert not site.woken


@pytest.mark.parametrize("count", [ASKED_MAX - 1, ASKED_MAX, ASKED_MAX + 1, 3 * ASKED_MAX + 7])
def test_commands_of_bunqueue_sent_ahead_are_run_over_turns(site: BareHttp, count: int) -> None:
    tcp = site.connect()
    asked = b"".join(frame(pack({"cmd": "Ping", "reqId": str(at)})) for at in range(count))
    tcp.session.receive(asked, site.now_ms)
    tcp.collect()
    assert tcp.hear(str(min(count, ASKED_MAX) - 1)) is not None
    assert tcp.hear(str(ASKED_MAX)) is None
    finish(site)
    if count > ASKED_MAX:
        assert tcp.hear(str(count - 1)) is not None
    assert tcp.session.unread_size() == 0


def test_the_end_of_the_input_is_heeded_behind_commands_sent_ahead(site: BareHttp) -> None:
    tcp = site.connect()
    frames = frame(pack({"cmd": "Ping", "reqId": "1"})) * (ASKED_MAX + 1)
    tcp.session.receive(frames, site.now_ms)
    tcp.session.end_input(site.now_ms)
    assert not tcp.session.is_finished
    finish(site)
    assert tcp.session.is_finished


def test_usual_commands_of_bunqueue_are_not_held_back(site: BareHttp) -> None:
    tcp = site.connect()
    push = {"cmd": "PUSH", "queue": "q", "data": 1}
    asked = b"".join(frame(pack({**push, "reqId": str(at)})) for at in range(3 * ASKED_MAX))
    tcp.session.receive(asked, site.now_ms)
    tcp.collect()
    assert tcp.hear(str(3 * ASKED_MAX - 1)) is not None
