"""Queries to a server: its counts are parsed, and nonsense is refused."""

import socket
import struct
import threading
from typing import Any

import msgspec
import pytest

from bench.clients.ask import Ledger, read_ledger
from bench.load import BenchError

UNDEFINED = msgspec.msgpack.Ext(0, b"\0")
METRICS = {"totalPushed": 5.0, "totalPulled": 4, "totalCompleted": 3, "totalFailed": 0}
COUNTS = {"waiting": 1, "active": 1.0, "completed": 3, "waiting-children": 0}


def serve_once_each(answers: list[bytes]) -> int:
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with listener:
            for answer in answers:
                peer, _ = listener.accept()
                with peer:
                    peer.recv(65536)
                    peer.sendall(answer)

    threading.Thread(target=serve, daemon=True).start()
    return int(listener.getsockname()[1])


def frame(message: dict[str, Any]) -> bytes:
    encoded = msgspec.msgpack.encode(message | {"reqId": UNDEFINED})
    return struct.pack(">I", len(encoded)) + encoded


def test_the_counts_are_read() -> None:
    port = serve_once_each(
        [frame({"ok": True, "metrics": METRICS}), frame({"ok": True, "counts": COUNTS})]
    )
    assert read_ledger(port) == Ledger(pushed=5, pulled=4, completed=3, standing=2)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\0\0",
        b"\0\0\0\x09\x80",
        frame({"ok": False, "error": "Unknown command: Metrics"}),
        frame({"ok": True, "metrics": {"totalPushed": "many"}}),
    ],
)
def test_what_is_no_count_is_refused(answer: bytes) -> None:
    with pytest.raises(BenchError, match="'Metrics'"):
        read_ledger(serve_once_each([answer]))
