"""Commands over RESP: every kind of answer is parsed, and invalid ones are refused."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bench.clients.resp import Resp, RespValue
from bench.load import BenchError


@contextmanager
def answering(answer: bytes) -> Iterator[Resp]:
    """Run a server that reads one request and sends fixed bytes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.recv(1000)
                peer.sendall(answer)

        server = threading.Thread(target=serve)
        server.start()
        with Resp(listener.getsockname()[1]) as resp:
            yield resp
        server.join()


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"+OK\r\n", "OK"),
        (b":42\r\n", 42),
        (b"$5\r\na\r\nbc\r\n", "a\r\nbc"),
        (b"$-1\r\n", None),
        (b"*-1\r\n", None),
        (b"*3\r\n:1\r\n*1\r\n$1\r\nx\r\n$0\r\n\r\n", [1, ["x"], ""]),
    ],
)
def test_answers_are_read(answer: bytes, expected: RespValue) -> None:
    with answering(answer) as resp:
        assert resp.ask("GET", "a") == expected


@pytest.mark.parametrize("answer", [b"-ERR no\r\n", b"", b"+O", b"$x\r\n", b"%1\r\n"])
def test_what_is_no_answer_is_refused(answer: bytes) -> None:
    with answering(answer) as resp, pytest.raises(BenchError):
        resp.ask("GET", "a")


def test_a_number_is_asked_for() -> None:
    with (
        answering(b"+OK\r\n") as resp,
        pytest.raises(BenchError, match="unexpected answer to XLEN a"),
    ):
        resp.number("XLEN", "a")
