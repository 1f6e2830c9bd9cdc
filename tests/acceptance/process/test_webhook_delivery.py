"""Webhooks over real sockets: where an attempt connects, when it gives up, and which is next.

This is the part of a delivery that needs no server around it. The test resolves names, so that it
can move them; receivers are real servers on a local port, some of them ill-behaved.
"""

import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jobyard.server.outbound import (
    TIMEOUT_S,
    Outbound,
    Undelivered,
    connect_address,
    resolve_name,
)
from jobyard.server.webhooks import HOOK_THREADS_MAX
from tests.support.servers.patience import PATIENCE_S
from tests.unit.server.test_webhooks import Gate, receiving, stand

PUBLIC = "93.184.216.34"


@contextmanager
def answering(
    receiver: Callable[[socket.socket], object], wrap: ssl.SSLContext | None = None
) -> Iterator[int]:
    """Accept one connection on a local port, read the request, and let `receiver` do the rest."""

    def run() -> None:
        try:
            plain, _ = listener.accept()
            with plain, wrap.wrap_socket(plain, server_side=True) if wrap else plain as sock:
                sock.settimeout(PATIENCE_S)
                sock.recv(65536)
                receiver(sock)
        except OSError:
            return  # the peer has disconnected, which these tests expect

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=run)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), "the connection was not let go"


def post(outbound: Outbound, url: str) -> None:
    outbound.post(url, {"X-Test": "1"}, b"body")


def test_a_private_address_is_refused_before_anything_is_connected() -> None:
    with receiving() as receiver, pytest.raises(Undelivered, match=r"127\.0\.0\.1, which is not"):
        post(Outbound(), receiver.url())
    assert receiver.requests == []


def test_a_name_is_refused_whole_if_one_of_its_addresses_is_private() -> None:
    tried: list[str] = []

    def connect(address: str, _port: int, _timeout_s: float) -> socket.socket:
        tried.append(address)
        raise ConnectionRefusedError

    for private in ("10.0.0.7", "::1", "fe80::1%eth0"):
        outbound = Outbound(resolve=lambda *_, it=private: [PUBLIC, it], connect=connect)
        with pytest.raises(Undelivered, match=f"{private}, which is not public"):
            post(outbound, "http://example.org/")
    with pytest.raises(Undelivered, match="has no address"):
        post(Outbound(resolve=lambda *_: [], connect=connect), "http://example.org/")
    assert tried == []


def test_the_connection_goes_to_the_address_that_was_checked() -> None:
    # The name moves to an internal address as soon as it has been resolved.
    looked_up = iter([[PUBLIC], ["127.0.0.1"]])
    connected: list[tuple[str, int]] = []
    with receiving() as receiver:

        def connect(address: str, port: int, timeout_s: float) -> socket.socket:
            connected.append((address, port))
            return connect_address("127.0.0.1", receiver.port, timeout_s)

        outbound = Outbound(resolve=lambda *_: next(looked_up), connect=connect)
        post(outbound, "http://hook.example:81/a?b")
        assert connected == [(PUBLIC, 81)]
        path, headers, body = receiver.requests[0]
        assert (path, headers["Host"], body) == ("/a?b", "hook.example:81", b"body")
        with pytest.raises(Undelivered, match="not public"):
            post(outbound, "http://hook.example:81/a?b")
    assert len(connected) == len(receiver.requests) == 1


def test_the_next_address_is_tried_when_one_does_not_answer() -> None:
    tried: list[str] = []
    timeouts: list[float] = []
    with receiving() as receiver:

        def connect(address: str, _port: int, timeout_s: float) -> socket.socket:
            tried.append(address)
            timeouts.append(timeout_s)
            if len(tried) < 3:
                raise TimeoutError
            return connect_address("127.0.0.1", receiver.port, timeout_s)

        addresses = ["2606:4700::1", "8.8.4.4", PUBLIC]
        post(Outbound(resolve=lambda *_: addresses, connect=connect), "http://hook.example/")
        assert tried == addresses
        # An address that swallows packets must leave time for the others.
        assert [round(TIMEOUT_S / timeout_s) for timeout_s in timeouts] == [3, 2, 1]
    assert len(receiver.requests) == 1


def test_a_real_name_is_looked_up() -> None:
    assert set(resolve_name("localhost", 80)) <= {"127.0.0.1", "::1"}
    with receiving() as receiver:
        post(Outbound(allow_private=True), receiver.url(host="localhost"))
        assert receiver.requests[0][1]["Host"] == f"localhost:{receiver.port}"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_a_failure_and_is_not_followed(status: int) -> None:
    with receiving(status) as receiver:
        with pytest.raises(Undelivered, match=f"status {status}; redirects are not followed"):
            post(Outbound(allow_private=True), receiver.url())
        assert [path for path, _, _ in receiver.requests] == ["/hook"]


@pytest.mark.parametrize(("status", "is_taken"), [(200, True), (204, True), (400, False)])
def test_success_is_2xx(status: int, is_taken: bool) -> None:  # noqa: FBT001
    with receiving(status) as receiver:
        if is_taken:
            post(Outbound(allow_private=True), receiver.url())
            return
        with pytest.raises(Undelivered, match=f"status {status}"):
            post(Outbound(allow_private=True), receiver.url())


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (b"", "RemoteDisconnected"),
        (b"hello\r\n\r\n", "BadStatusLine"),
        (b"HTTP/1.1 " + b"2" * 70_000, "LineTooLong|BadStatusLine"),
    ],
)
def test_an_answer_without_a_status_is_a_failure(answer: bytes, complaint: str) -> None:
    with (
        answering(lambda sock: sock.sendall(answer)) as port,
        pytest.raises(Undelivered, match=complaint),
    ):
        post(Outbound(allow_private=True), f"http://127.0.0.1:{port}/")


@pytest.mark.parametrize(
    "field",
    [b"Content-Length: 999999999999", b"Transfer-Encoding: chunked", b"X: y", b"X:" + b"y" * 65500],
)
def test_an_answer_without_end_is_cut(field: bytes) -> None:
    def pour(sock: socket.socket) -> None:
        sock.sendall(b"HTTP/1.1 200 OK\r\n" + field + b"\r\n\r\nfffffff\r\n")
        while True:
            sock.sendall(b"x" * 65536)

    # `answering` fails unless the pouring ends, and it ends only when the connection is cut.
    with answering(pour) as port:
        post(Outbound(allow_private=True), f"http://127.0.0.1:{port}/")


def test_a_receiver_that_never_comes_to_the_point_is_cut() -> None:
    def promise(sock: socket.socket) -> None:
        while True:
            sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000)

    with answering(promise) as port, pytest.raises(Undelivered, match=r"BadStatus|Disconnected"):
        post(Outbound(allow_private=True), f"http://127.0.0.1:{port}/")


def test_an_answer_of_ordinary_size_is_heard_to_its_end() -> None:
    ends: list[bytes] = []

    def receiver(sock: socket.socket) -> None:
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n" + b"x" * 60000)
        # Hanging up on unread bytes would be a reset, and an error in the receiver's log.
        ends.append(sock.recv(1))

    with answering(receiver) as port:
        post(Outbound(allow_private=True), f"http://127.0.0.1:{port}/")
    assert ends == [b""]


def test_a_body_that_breaks_off_does_not_undo_a_success() -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n123"
    with answering(lambda sock: sock.sendall(answer)) as port:
        post(Outbound(allow_private=True), f"http://127.0.0.1:{port}/")


def test_a_silent_receiver_is_given_up() -> None:
    with (
        answering(lambda sock: sock.recv(1)) as port,
        pytest.raises(Undelivered, match="timed out"),
    ):
        post(Outbound(allow_private=True, timeout_s=0.1), f"http://127.0.0.1:{port}/")


def test_a_receiver_that_drips_is_given_up_as_soon() -> None:
    never = threading.Event()

    def drip(sock: socket.socket) -> None:
        sock.sendall(b"HTTP/1.1 200 OK\r\nX: ")
        while not never.wait(0.02):
            sock.sendall(b"x")

    with answering(drip) as port, pytest.raises(Undelivered, match="timed out"):
        post(Outbound(allow_private=True, timeout_s=0.3), f"http://127.0.0.1:{port}/")


def test_a_look_up_that_fails_or_takes_too_long_is_a_failed_try() -> None:
    def fail(_host: str, _port: int) -> list[str]:
        raise socket.gaierror(socket.EAI_NONAME, "no such name")

    with pytest.raises(Undelivered, match="no such name"):
        post(Outbound(resolve=fail), "http://hook.example/")
    with pytest.raises(Undelivered, match="timed out"):
        post(Outbound(resolve=lambda *_: [PUBLIC], timeout_s=0.0), "http://hook.example/")
    with pytest.raises(Undelivered, match="must start with http"):
        post(Outbound(), "gopher://hook.example/")


def test_a_large_body_arrives_whole() -> None:
    body = bytes(range(256)) * 20_000
    with receiving() as receiver:
        Outbound(allow_private=True).post(receiver.url(), {}, body)
        assert receiver.bodies() == [body]


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes its certificate with openssl")
def test_https_checks_the_certificate_against_the_name(tmp_path: Path) -> None:
    certificate, key = str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=hook.example", "-addext", "subjectAltName=DNS:hook.example"]
    subprocess.run([*command, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, key)
    names: list[str | None] = []
    server.sni_callback = lambda _sock, name, _context: names.append(name)
    trusting = ssl.create_default_context(cafile=certificate)

    def try_as(name: str, tls: ssl.SSLContext | None) -> None:
        answer = b"HTTP/1.1 204 No Content\r\n\r\n"
        with answering(lambda sock: sock.sendall(answer), server) as port:
            outbound = Outbound(
                resolve=lambda *_: [PUBLIC],
                connect=lambda _address, _port, timeout_s: connect_address(
                    "127.0.0.1", port, timeout_s
                ),
                tls=tls,
            )
            post(outbound, f"https://{name}/")

    try_as("hook.example", trusting)
    with pytest.raises(Undelivered, match="SSLCertVerificationError"):
        try_as("other.example", trusting)
    with pytest.raises(Undelivered, match="SSLCertVerificationError"):
        try_as("hook.example", None)
    assert names == ["hook.example", "other.example", "hook.example"]


# -- many at once ---------------------------------------------------------------------------------


def test_a_stuck_receiver_leaves_threads_to_the_others() -> None:
    with receiving() as stuck, receiving() as receiver:
        gate = Gate(stuck.port)
        with stand(threads_max=4, gate=gate) as made:
            for _ in range(9):
                made.send("stuck", stuck.url())
            for _ in range(9):
                made.send("well", receiver.url())
            assert [made.outcome() for _ in range(9)] == [("well", True)] * 9
            gate.await_arrivals(HOOK_THREADS_MAX)
            gate.let()
            assert [made.outcome() for _ in range(9)] == [("stuck", True)] * 9


def test_a_webhook_may_use_two_threads() -> None:
    with receiving() as receiver:
        gate = Gate(receiver.port)
        with stand(threads_max=2, gate=gate) as made:
            for name in "ab":
                made.send(name, receiver.url())
            gate.await_arrivals(2)
            for _ in range(3):
                made.send("c", receiver.url())
            gate.let(2)
            gate.await_arrivals(2)
            gate.let()
            assert sorted(made.outcome()[0] for _ in range(5)) == ["a", "b", "c", "c", "c"]


def test_deliveries_due_together_are_tried_together() -> None:
    with receiving(500, 500) as receiver:
        gate = Gate(receiver.port)
        with stand(threads_max=2, gate=gate) as made:
            made.send("a", receiver.url())
            made.send("b", receiver.url())
            gate.await_arrivals(2)
            gate.let(2)
            while made.deliveries._idle_count < 2:
                made.clock.next_wait()
            made.clock.advance(1.0)
            gate.await_arrivals(2)
            gate.let()


def test_an_idle_thread_watches_over_retries_of_busy_ones() -> None:
    with receiving(500) as stuck, receiving() as receiver:
        gate = Gate(stuck.port)
        with stand(threads_max=3, gate=gate) as made:
            made.send("stuck", stuck.url())
            made.send("stuck", stuck.url())
            gate.await_arrivals(2)
            made.send("well", receiver.url())
            assert made.clock.next_wait() is None
            made.send("stuck", stuck.url())
            assert made.clock.next_wait() is None
            gate.let(1)
            assert made.clock.next_wait() == 1.0
            gate.await_arrivals(1)
            gate.let()


def test_webhooks_take_turns() -> None:
    with receiving() as receiver, receiving() as first:
        gate = Gate(first.port)
        with stand(gate=gate) as made:
            made.send("first", first.url())
            gate.await_arrivals(1)
            for name in "aaab":
                made.send(name, receiver.url())
            gate.let()
            assert "".join(made.outcome()[0] for _ in range(5)) == "firstabaa"
