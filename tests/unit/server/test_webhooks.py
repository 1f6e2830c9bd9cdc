"""Where a webhook may point, what it receives, and the outcome of a delivery.

Threads sharing the work and the single attempt are in acceptance/process/test_webhook_delivery.py.
Receivers are real servers on a local port. No test waits for time to pass: retries follow a clock
that the test sets, and everything else is waited for by its event.
"""

import hashlib
import hmac
import io
import queue
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from jobyard import __version__
from jobyard.errors import Refused
from jobyard.model.webhook_url import check_url, is_public, parse_url
from jobyard.server import webhooks
from jobyard.server.log import Log
from jobyard.server.outbound import Outbound, connect_address
from jobyard.server.webhooks import DeliveryClock, WebhookDeliveries, WebhookDelivery
from tests.support.servers.patience import PATIENCE_S

WALL_MS = 1_700_000_000_123
PUBLIC = "93.184.216.34"

# -- the URL -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("http://example.org", ("http", "example.org", 80, "/", "example.org")),
        ("HTTPS://Example.ORG/A?b=C#d", ("https", "example.org", 443, "/A?b=C", "example.org")),
        ("https://example.org:/x", ("https", "example.org", 443, "/x", "example.org")),
        ("https://example.org.:8443?q", ("https", "example.org", 8443, "/?q", "example.org:8443")),
        ("http://a_b.example-1.org:80/", ("http", "a_b.example-1.org", 80, "/", None)),
        ("http://8.8.8.8:8080/@/", ("http", "8.8.8.8", 8080, "/@/", "8.8.8.8:8080")),
        ("http://[2606:4700::0]:81/", ("http", "2606:4700::", 81, "/", "[2606:4700::]:81")),
        ("http://[2606:4700::1]", ("http", "2606:4700::1", 80, "/", "[2606:4700::1]")),
        ("http://127.0.0.1.example.org/", ("http", "127.0.0.1.example.org", 80, "/", None)),
        ("http://internal.example.org/", ("http", "internal.example.org", 80, "/", None)),
    ],
)
def test_a_url_is_taken_apart(url: str, parts: tuple[str, str, int, str, str | None]) -> None:
    check_url(url)
    target = parse_url(url)
    authority = parts[4] or target.host
    assert (target.scheme, target.host, target.port, target.path) == parts[:4]
    assert target.authority() == authority


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("", "must start with http"),
        ("example.org", "must start with http"),
        ("ftp://example.org/", "must start with http"),
        ("file:///etc/passwd", "must start with http"),
        ("http:example.org", "must start with http"),
        ("http://" + "a" * 2042, "max 2048"),
        ("http://example.org/a b", "printable ASCII"),
        ("http://example.org/\r\nX: y", "printable ASCII"),
        ("http://example.org\t/", "printable ASCII"),
        ("http://example.org\\@8.8.8.8/", "printable ASCII"),
        ("http://\uff11\uff12\uff17.0.0.1/", "printable ASCII"),
        ("http://user@example.org/", "user name or password"),
        ("http://a:b@example.org/", "user name or password"),
        ("http:///path", "no host"),
        ("http://:80/", "no host"),
        ("http://./", "no host"),
        ("http://a..b/", "invalid host"),
        ("http://%6cocalhost/", "invalid host"),
        ("http://" + "a" * 64 + ".org/", "invalid host"),
        ("http://" + "a." * 127 + "org/", "invalid host"),
        ("http://[::1]x/", "invalid host"),
        ("http://[::1", "invalid host"),
        ("http://[::1%25lo]/", "invalid IPv6"),
        ("http://[8.8.8.8]/", "invalid IPv6"),
        ("http://example.org:0/", "invalid port"),
        ("http://example.org:65536/", "invalid port"),
        ("http://example.org:+1/", "invalid port"),
        ("http://example.org:1:2/", "invalid port"),
        # Numbers that some C libraries read as an address: all of these are 127.0.0.1 or 8.8.8.8.
        ("http://2130706433/", "four decimal numbers"),
        ("http://0x7f000001/", "four decimal numbers"),
        ("http://0x7f.0.0.0x1/", "four decimal numbers"),
        ("http://017700000001/", "four decimal numbers"),
        ("http://127.1/", "four decimal numbers"),
        ("http://127.0.0.01/", "four decimal numbers"),
        ("http://134744072/", "four decimal numbers"),
        ("http://1.2.3.4.5/", "four decimal numbers"),
    ],
)
def test_a_url_of_another_form_is_refused_for_everybody(url: str, complaint: str) -> None:
    for allow_private in (False, True):
        with pytest.raises(Refused, match=complaint) as refusal:
            check_url(url, allow_private=allow_private)
        assert str(refusal.value).isprintable()


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST.",
        "a.localhost",
        "metadata.google.internal",
        "internal",
        "127.0.0.1",
        "127.0.0.1.",
        "169.254.169.254",
        "10.0.0.1",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[64:ff9b::7f00:1]",
    ],
)
def test_a_local_host_is_refused_unless_everybody_is_trusted(host: str) -> None:
    with pytest.raises(Refused, match="must not point to"):
        check_url(f"http://{host}:8080/")
    check_url(f"http://{host}:8080/", allow_private=True)


@pytest.mark.parametrize(
    "address",
    [
        *(
            "1.1.1.1",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
        ),
        *("128.0.0.0", "172.15.255.255", "172.32.0.0", "192.167.255.255", "223.255.255.255"),
        *("2606:4700::1111", "2a00:1450::1", "64:ff9b::8.8.8.8"),
    ],
)
def test_an_address_of_the_internet_is_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        *("0.0.0.0", "0.1.2.3", "10.255.255.255", "100.64.0.1", "127.255.255.255", "169.254.0.1"),
        *("172.16.0.0", "172.31.255.255", "192.0.0.1", "192.0.2.1", "192.168.0.1", "198.18.0.1"),
        *("198.51.100.1", "203.0.113.1", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255"),
        *("::", "::1", "::127.0.0.1", "::8.8.8.8", "::ffff:10.0.0.1", "::ffff:8.8.8.8"),
        *("64:ff9b::10.0.0.1", "64:ff9b::169.254.169.254", "64:ff9b:1::8.8.8.8", "100::1"),
        *("fc00::1", "fdff::1", "fe80::1", "fe80::1%eth0", "febf::1", "fec0::1", "ff02::1"),
        *("2001::1", "2001:db8::1", "2002:7f00:1::", "3fff::1", "2606:4700::1%eth0"),
        *("", "example.org", "127.1", "2130706433", "[::1]"),
    ],
)
def test_any_other_address_is_not(address: str) -> None:
    assert not is_public(address)


# -- receivers ---------------------------------------------------------------------------------


@dataclass
class Receiver:
    """A web server that keeps what it is sent and answers with the statuses it was given."""

    statuses: list[int] = field(default_factory=list)
    requests: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    port: int = 0

    def url(self, path: str = "/hook", host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    def bodies(self) -> list[bytes]:
        return [body for _, _, body in self.requests]


@contextmanager
def receiving(*statuses: int) -> Iterator[Receiver]:
    receiver = Receiver(list(statuses))

    class Page(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.requests.append((self.path, dict(self.headers), body))
            self.send_response(receiver.statuses.pop(0) if receiver.statuses else 200)
            self.send_header("Location", receiver.url("/elsewhere"))
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, *_: object) -> None:
            """Keep the test's output clean."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        server.daemon_threads = False  # so that leaving the block waits for the last answer
        receiver.port = server.server_port
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield receiver
        finally:
            server.shutdown()
            thread.join()


# -- deliveries --------------------------------------------------------------------------------


class HandClock(DeliveryClock):
    """Stands still until the test moves it, and records how long threads intend to wait."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.waits: queue.Queue[float | None] = queue.Queue()
        self._changed = threading.Condition()

    def steady_s(self) -> float:
        return self.now_s

    def wall_ms(self) -> int:
        return WALL_MS

    def wait(self, changed: threading.Condition, timeout_s: float | None) -> None:
        self._changed = changed
        self.waits.put(timeout_s)
        changed.wait()

    def next_wait(self) -> float | None:
        return self.waits.get(timeout=PATIENCE_S)

    def advance(self, by_s: float) -> None:
        """Wake one thread, as if only its wait had ended."""
        with self._changed:
            self.now_s += by_s
            self._changed.notify()


class Gate:
    """A connector that blocks at one port until it is released."""

    def __init__(self, closed_port: int) -> None:
        self._closed_port = closed_port
        self._arrivals: queue.Queue[int] = queue.Queue()
        self._passes = threading.Semaphore(0)

    def connect(self, address: str, port: int, timeout_s: float) -> socket.socket:
        if port == self._closed_port:
            self._arrivals.put(port)
            assert self._passes.acquire(timeout=PATIENCE_S)
        return connect_address(address, port, timeout_s)

    def await_arrivals(self, count: int) -> None:
        """Wait for this many, and check that no more have come."""
        for _ in range(count):
            self._arrivals.get(timeout=PATIENCE_S)
        assert self._arrivals.empty()

    def let(self, count: int = 1000) -> None:
        self._passes.release(count)


class Stand:
    """Deliveries with everything a test checks."""

    def __init__(self, threads_max: int = 1, waiting_max: int = 100, gate: Gate | None = None):
        self.clock = HandClock()
        self.lines = io.StringIO()
        self.outcomes: queue.Queue[tuple[str, bool, int]] = queue.Queue()
        self.deliveries = WebhookDeliveries(
            Log(stream=self.lines),
            lambda *outcome: self.outcomes.put(outcome),
            Outbound(allow_private=True, connect=gate.connect if gate else connect_address),
            waiting_max=waiting_max,
            threads_max=threads_max,
            clock=self.clock,
        )

    def send(self, name: str, url: str, body: bytes = b"{}", secret: str | None = None) -> None:
        self.deliveries.send(WebhookDelivery(name, url, secret, "job.completed", body))

    def outcome(self) -> tuple[str, bool]:
        name, is_done, at_ms = self.outcomes.get(timeout=PATIENCE_S)
        assert at_ms == WALL_MS
        return name, is_done


@contextmanager
def stand(
    threads_max: int = 1, waiting_max: int = 100, gate: Gate | None = None
) -> Iterator[Stand]:
    made = Stand(threads_max, waiting_max, gate)
    yield made
    assert made.deliveries.close(PATIENCE_S)
    assert not made.deliveries._hook_queues, "a webhook without deliveries must not use memory"


def test_a_delivery_carries_its_event_time_and_signature() -> None:
    body = b'{"event":"job.completed","data":[1]}'
    with receiving() as receiver, stand() as made:
        made.send("w", receiver.url("/a?b=c"), body, "sécret")
        assert made.outcome() == ("w", True)
        path, headers, received = receiver.requests[0]
        signature = hmac.new("sécret".encode(), body, hashlib.sha256).hexdigest()
        assert (path, received) == ("/a?b=c", body)
        assert headers == {
            "Host": f"127.0.0.1:{receiver.port}",
            "Connection": "close",
            "Content-Length": str(len(body)),
            "Content-Type": "application/json",
            "User-Agent": f"jobyard/{__version__}",
            "X-Webhook-Event": "job.completed",
            "X-Webhook-Timestamp": str(WALL_MS),
            "X-Webhook-Signature": signature,
        }


@pytest.mark.parametrize("secret", [None, ""])
def test_without_a_secret_nothing_is_signed(secret: str | None) -> None:
    with receiving() as receiver, stand() as made:
        made.send("w", receiver.url(), secret=secret)
        assert made.outcome() == ("w", True)
        assert "X-Webhook-Signature" not in receiver.requests[0][1]


def test_a_failed_delivery_is_tried_three_times_with_longer_waits() -> None:
    with receiving(500, 302, 404) as receiver, stand() as made:
        made.send("w", receiver.url())
        assert made.clock.next_wait() == 1.0
        made.clock.advance(0.25)
        assert made.clock.next_wait() == 0.75
        assert len(receiver.requests) == 1
        made.clock.advance(0.75)
        assert made.clock.next_wait() == 2.0
        assert len(receiver.requests) == 2
        assert made.outcomes.empty()
        made.clock.advance(2.0)
        assert made.outcome() == ("w", False)
        assert made.clock.next_wait() is None
        assert len(receiver.requests) == 3
        assert "status 500" in made.lines.getvalue()


def test_a_delivery_that_succeeds_in_the_end_has_one_outcome() -> None:
    with receiving(503) as receiver, stand() as made:
        made.send("w", receiver.url(), b"x")
        made.clock.next_wait()
        made.clock.advance(1.0)
        assert made.outcome() == ("w", True)
        assert receiver.bodies() == [b"x", b"x"]
    assert made.outcomes.empty()


def test_a_wait_between_tries_holds_nobody_up() -> None:
    with receiving(500) as receiver, stand() as made:
        made.send("broken", receiver.url())
        assert made.clock.next_wait() == 1.0
        made.send("well", receiver.url())
        assert made.outcome() == ("well", True)
        assert made.deliveries.waiting_count == 1


def test_too_many_waiting_drop_the_oldest_and_say_so_once() -> None:
    with receiving() as receiver:
        gate = Gate(receiver.port)
        with stand(waiting_max=3, gate=gate) as made:
            made.send("w", receiver.url(), b"in flight")
            gate.await_arrivals(1)
            for body in (b"1", b"2", b"3", b"4", b"5"):
                made.send("w", receiver.url(), body)
            assert (made.deliveries.waiting_count, made.deliveries.dropped_count) == (3, 2)
            gate.let()
            assert [made.outcome() for _ in range(4)] == [("w", True)] * 4
            assert receiver.bodies() == [b"in flight", b"3", b"4", b"5"]
            assert made.lines.getvalue().count("the oldest are dropped") == 1


def test_a_second_flood_is_reported_too() -> None:
    with receiving() as receiver:
        gate = Gate(receiver.port)
        with stand(waiting_max=2, gate=gate) as made:
            for floods_count in (1, 2):
                made.send("w", receiver.url())
                gate.await_arrivals(1)
                for _ in range(9):
                    made.send("w", receiver.url())
                assert made.lines.getvalue().count("the oldest are dropped") == floods_count
                gate.let(1)
                gate.await_arrivals(1)
                gate.let(1)
                gate.await_arrivals(1)
                gate.let(1)
                assert [made.outcome() for _ in range(3)] == [("w", True)] * 3


def test_too_many_bytes_drop_the_oldest_but_never_the_newest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(webhooks, "WAITING_BYTES_MAX", 10)
    with receiving() as receiver:
        gate = Gate(receiver.port)
        with stand(gate=gate) as made:
            made.send("w", receiver.url(), b"in flight")
            gate.await_arrivals(1)
            for body in (b"1234", b"5678", b"90ab"):
                made.send("w", receiver.url(), body)
            assert (made.deliveries.waiting_count, made.deliveries.dropped_count) == (2, 1)
            made.send("w", receiver.url(), b"x" * 100)
            assert (made.deliveries.waiting_count, made.deliveries.dropped_count) == (1, 3)
            assert made.lines.getvalue().count("the oldest are dropped") == 1
            gate.let()
            assert [made.outcome() for _ in range(2)] == [("w", True)] * 2
            assert receiver.bodies() == [b"in flight", b"x" * 100]


def test_what_waits_for_another_try_is_older_than_what_came_since() -> None:
    with receiving(500) as receiver:
        gate = Gate(receiver.port)
        with stand(waiting_max=2, gate=gate) as made:
            made.send("w", receiver.url(), b"1")
            gate.await_arrivals(1)
            made.send("w", receiver.url(), b"2")
            made.send("w", receiver.url(), b"3")
            gate.let(1)
            gate.await_arrivals(1)
            made.send("w", receiver.url(), b"4")
            assert made.deliveries.dropped_count == 1
            gate.let()
            assert [made.outcome() for _ in range(3)] == [("w", True)] * 3
            assert receiver.bodies() == [b"1", b"2", b"3", b"4"]


def test_a_delivery_dropped_while_it_waits_for_another_try_is_not_tried() -> None:
    with receiving(500) as receiver, stand(waiting_max=1) as made:
        made.send("w", receiver.url(), b"old")
        assert made.clock.next_wait() == 1.0
        made.send("v", receiver.url(), b"new")
        assert made.outcome() == ("v", True)
        made.clock.next_wait()
        made.clock.advance(1.0)
        assert made.clock.next_wait() is None
        assert receiver.bodies() == [b"old", b"new"]
        assert made.deliveries.dropped_count == 1


@pytest.mark.parametrize("status", [200, 500])
def test_a_forgotten_webhook_gets_nothing_more(status: int) -> None:
    with receiving(status) as receiver:
        gate = Gate(receiver.port)
        with stand(gate=gate) as made:
            made.send("w", receiver.url(), b"in flight")
            gate.await_arrivals(1)
            made.send("w", receiver.url(), b"waits")
            made.deliveries.forget("w")
            made.deliveries.forget("unknown")
            assert made.deliveries.waiting_count == 0
            gate.let()
            assert made.clock.next_wait() is None
            assert receiver.bodies() == [b"in flight"]
            assert made.outcomes.empty()
            made.send("w", receiver.url(), b"new")
            assert made.outcome() == ("w", True)


def test_close_lets_the_try_in_flight_end_and_gives_up_the_rest() -> None:
    with receiving() as receiver:
        gate = Gate(receiver.port)
        made = Stand(gate=gate)
        made.send("w", receiver.url(), b"in flight")
        gate.await_arrivals(1)
        made.send("w", receiver.url(), b"waits")
        assert not made.deliveries.close(0.0)
        made.send("w", receiver.url(), b"late")
        gate.let()
        assert made.deliveries.close(PATIENCE_S)
        assert made.outcome() == ("w", True)
        assert receiver.bodies() == [b"in flight"]
        assert made.deliveries.waiting_count == 0
        assert "dropped by the stop  count=1" in made.lines.getvalue()


def test_a_try_that_fails_during_close_is_not_repeated() -> None:
    with receiving(500) as receiver:
        gate = Gate(receiver.port)
        with stand(gate=gate) as made:
            made.send("w", receiver.url())
            gate.await_arrivals(1)
            assert not made.deliveries.close(0.0)
            gate.let()
        assert made.deliveries.waiting_count == 0
        assert made.outcomes.empty()


def test_close_does_not_wait_for_another_try() -> None:
    with receiving(500) as receiver, stand() as made:
        made.send("w", receiver.url())
        made.clock.next_wait()
    assert len(receiver.requests) == 1
    assert made.outcomes.empty()


def test_nothing_is_started_before_the_first_delivery() -> None:
    before = threading.active_count()
    with stand(threads_max=4) as made:
        assert threading.active_count() == before
        assert made.deliveries.close(0.0)


def test_a_system_without_threads_keeps_the_delivery_for_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with receiving() as receiver, stand() as made:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            made.send("w", receiver.url(), b"1")
        assert "cannot start a thread" in made.lines.getvalue()
        made.send("w", receiver.url(), b"2")
        assert [made.outcome() for _ in range(2)] == [("w", True)] * 2
        assert receiver.bodies() == [b"1", b"2"]


def test_the_real_clock_waits_until_it_is_notified() -> None:
    changed = threading.Condition()
    with changed:
        DeliveryClock().wait(changed, 0.0)
    assert DeliveryClock().wall_ms() > WALL_MS
    assert DeliveryClock().steady_s() <= DeliveryClock().steady_s()


def test_secrets_and_bodies_stay_out_of_what_is_printed() -> None:
    text = repr(WebhookDelivery("w", "http://example.org/", "s3cret", "job.failed", b"private"))
    assert "s3cret" not in text
    assert "private" not in text


# -- receivers that are gone -----------------------------------------------------------------------


def test_a_webhook_that_keeps_failing_is_paused_and_comes_back_by_itself() -> None:
    with receiving(*[500] * 7) as receiver, stand() as made:
        for number in range(8):
            made.send("w", receiver.url(), b"%d" % number)
        # Five attempts, and then none, though others wait and some are due again.
        assert made.clock.next_wait() == 1.0
        assert len(receiver.requests) == 5
        made.clock.advance(1.0)
        assert made.clock.next_wait() == 4.0
        made.clock.advance(4.0)
        # One is tried, alone; each time all pause for longer.
        for count, rest_s in ((6, 10.0), (7, 20.0)):
            assert made.clock.next_wait() == 1.0
            assert len(receiver.requests) == count
            made.clock.advance(1.0)
            assert made.clock.next_wait() == rest_s - 1.0
            made.clock.advance(rest_s - 1.0)
        assert [made.outcome() for _ in range(8)] == [("w", True)] * 8
        lines = made.lines.getvalue()
        assert lines.count("delivery fail") == 2
        assert lines.count("webhook paused") == 1
        assert lines.count("succeed again") == 1


def test_a_paused_webhook_holds_up_no_other_and_is_told_what_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(webhooks, "HOOK_WAITING_MAX", 3)
    with receiving(*[500] * 5) as receiver, stand() as made:
        for _ in range(5):
            made.send("broken", receiver.url())
            made.clock.next_wait()
        assert len(receiver.requests) == 5
        for _ in range(10):
            made.send("broken", receiver.url())
        assert [made.outcome() for _ in range(7)] == [("broken", False)] * 7
        made.send("well", receiver.url())
        assert made.outcome() == ("well", True)
        assert len(receiver.requests) == 6
        made.deliveries.forget("broken")
        assert not made.deliveries._healths
