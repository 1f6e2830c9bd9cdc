"""The load generator speaking bunqueue: its requests, and answers it must refuse."""

import shutil
import socket
import struct
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bench.load import compile_load, parse_result

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")

Message = dict[str, Any]  # what a field holds depends on the command
Answers = Callable[[list[Message]], list[Message]]

ENCODER = msgspec.msgpack.Encoder()
LONG = "l" * 300
# One value of every kind MessagePack has, as far as the encoder here can write it.
AROUND: Message = {
    "nothing": None, "yes": True, "small": 7, "least": -3, "u8": 200, "u16": 60_000, "u32": 2**31,
    "u64": 2**63, "i8": -100, "i16": -30_000, "i32": -(2**31), "i64": -(2**62), "float": 0.5,
    "text": "t", "text8": LONG[:40], "text16": LONG, "bin": b"\0" * 9, "bin16": b"\0" * 300,
    "ext": msgspec.msgpack.Ext(0, b"\0"), "ext8": msgspec.msgpack.Ext(5, b"123"),
    "list": [1, [2, [LONG]], {}], "list16": list(range(20)),
    "map16": {str(n): n for n in range(20)}, "id2": "not the id", "job2": {"id": "neither"},
}  # fmt: skip


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_load(tmp_path_factory.mktemp("load"))


class Original(threading.Thread):
    """A server for one connection: takes batches of `depth` requests, answers by a function."""

    def __init__(self, depth: int, answers: Answers, *, is_dripping: bool = False) -> None:
        super().__init__(daemon=True)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._depth, self._answers, self._is_dripping = depth, answers, is_dripping
        self.port = int(self._listener.getsockname()[1])
        self.batches: list[list[Message]] = []
        self.start()

    def run(self) -> None:
        peer, _ = self._listener.accept()
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._listener, peer, peer.makefile("rb") as requests:
            while head := requests.read(4):
                heads = [head, *(None for _ in range(self._depth - 1))]
                batch = [read_frame(requests.read, head or requests.read(4)) for head in heads]
                self.batches.append(batch)
                answer = b"".join(map(frame, self._answers(batch)))
                step = 1 if self._is_dripping else len(answer)
                for i in range(0, len(answer), step):
                    peer.sendall(answer[i : i + step])


def read_frame(read: Callable[[int], bytes], head: bytes) -> Message:
    message: Message = msgspec.msgpack.decode(read(struct.unpack(">I", head)[0]))
    return message


def frame(message: Message) -> bytes:
    encoded = ENCODER.encode(message)
    return struct.pack(">I", len(encoded)) + encoded


def job(number: int, body: str = "xxx") -> Message:
    return {"queue": "bench", **AROUND, "id": f"job-{number}", "data": {"data": body}, **AROUND}


def answer(request: Message) -> Message:
    """Answer as the original does, the reqId last and everything else between."""
    number = int(request["reqId"], 16)
    owned = "owner" in request
    given: dict[str, Message] = {
        "PUSH": {"id": f"job-{number}"},
        "PUSHB": {"ids": [f"job-{i}" for i in range(len(request.get("jobs", [])))]},
        "PULL": {"job": job(number), "token": f"token-{number}" if owned else None},
        "PULLB": {
            "jobs": [job(i) for i in range(request.get("count", 0))],
            "tokens": [f"token-{i}" for i in range(request.get("count", 0))] if owned else [],
        },
        "ACK": {"id": msgspec.msgpack.Ext(0, b"\0")},
        "ACKB": {},
    }
    return {"ok": True, **AROUND, **given[request["cmd"]], "reqId": request["reqId"]}


def run_load(program: Path, port: int, *flags: str) -> subprocess.CompletedProcess[str]:
    always = ["--protocol", "bunqueue", "--body", "3", "--seconds", "0", "--warm", "0"]
    return subprocess.run(
        [program, "--port", str(port), *always, *flags],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


def test_a_cycle_pushes_pulls_and_acknowledges_what_it_got(program: Path) -> None:
    # Answers may come in any order.
    server = Original(2, lambda batch: [answer(request) for request in reversed(batch)])
    done = run_load(program, server.port, "--depth", "2")
    assert done.returncode == 0, done.stderr
    assert server.batches == [
        [
            {"cmd": "PUSH", "queue": "bench", "data": {"data": "xxx"}, "reqId": f"{number:08x}"}
            for number in (0, 1)
        ],
        [{"cmd": "PULL", "queue": "bench", "reqId": f"{number:08x}"} for number in (2, 3)],
        [
            {"cmd": "ACK", "id": f"job-{taken}", "reqId": f"{number:08x}"}
            for number, taken in ((4, 3), (5, 2))
        ],
    ]
    assert parse_result(done.stdout).jobs_finished == 2


def test_an_owned_job_is_acknowledged_with_its_token(program: Path) -> None:
    server = Original(1, lambda batch: [answer(request) for request in batch])
    done = run_load(program, server.port, "--owner")
    assert done.returncode == 0, done.stderr
    _, (pull,), (ack,) = server.batches
    assert pull == {"cmd": "PULL", "queue": "bench", "owner": "load", "reqId": "00000001"}
    assert ack == {"cmd": "ACK", "id": "job-1", "token": "token-1", "reqId": "00000002"}


@pytest.mark.parametrize("owner", [False, True])
def test_a_bundle_is_one_request(program: Path, owner: bool) -> None:  # noqa: FBT001
    server = Original(1, lambda batch: [answer(request) for request in batch])
    done = run_load(program, server.port, "--bundle", "20", *(["--owner"] if owner else []))
    assert done.returncode == 0, done.stderr
    (push,), (pull,), (ack,) = server.batches
    assert push["cmd"] == "PUSHB"
    assert push["jobs"] == [{"data": {"data": "xxx"}}] * 20
    assert (pull["cmd"], pull["count"], pull.get("owner")) == (
        "PULLB",
        20,
        "load" if owner else None,
    )
    assert (ack["cmd"], ack["ids"]) == ("ACKB", [f"job-{i}" for i in range(20)])
    assert ack.get("tokens") == ([f"token-{i}" for i in range(20)] if owner else None)
    assert parse_result(done.stdout).jobs_finished == 20


def test_a_fill_pushes_exactly_as_many_jobs_as_asked(program: Path) -> None:
    server = Original(1, lambda batch: [answer(request) for request in batch])
    done = run_load(program, server.port, "--work", "put", "--jobs", "7", "--bundle", "4")
    assert done.returncode == 0, done.stderr
    assert [len(push["jobs"]) for (push,) in server.batches] == [4, 3]


def test_answers_cut_anywhere_are_put_together(program: Path) -> None:
    server = Original(1, lambda batch: [answer(request) for request in batch], is_dripping=True)
    done = run_load(program, server.port)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("command", "spoiled"),
    [
        ("PUSH", {"ok": False, "error": "Rate limit exceeded"}),
        ("PUSH", {"id": ""}),
        ("PULL", {"job": None}),
        ("PULL", {"job": job(1, "xxxx")}),
        ("PULL", {"job": job(1, "xxy")}),
        ("PULL", {"job": {"id": "7"}}),
        ("PULL", {"job": {"data": {"data": "xxx"}}}),
        ("PULL", {"job": job(1) | {"id": "i" * 65}}),
        ("ACK", {"ok": False, "error": "Job not found or not in processing state: 7"}),
        ("ACK", {"data": {"applied": False, "reason": "already-finalized"}}),
        ("ACK", {"ok": 1}),
    ],
)
def test_what_is_no_success_is_an_error(program: Path, command: str, spoiled: Message) -> None:
    def answers(batch: list[Message]) -> list[Message]:
        (request,) = batch
        given = answer(request)
        return [given | spoiled if request["cmd"] == command else given]

    done = run_load(program, Original(1, answers).port)
    assert done.returncode == 3, done.stderr
    assert "first refusal" in done.stderr
    assert parse_result(done.stdout).errors == 1


@pytest.mark.parametrize(
    ("command", "field"), [("PUSHB", "ids"), ("PULLB", "jobs"), ("PULLB", "tokens")]
)
def test_a_bundle_that_is_not_whole_is_an_error(program: Path, command: str, field: str) -> None:
    def answers(batch: list[Message]) -> list[Message]:
        (request,) = batch
        given = answer(request)
        return [given | {field: given[field][1:]} if request["cmd"] == command else given]

    done = run_load(program, Original(1, answers).port, "--bundle", "3", "--owner")
    assert done.returncode == 3, done.stderr
    assert parse_result(done.stdout).errors == 1


@pytest.mark.parametrize("spoiled", ["00000001", "0000000", "0000000g", 0])
def test_an_answer_to_another_request_is_no_answer(program: Path, spoiled: str | int) -> None:
    server = Original(1, lambda batch: [answer(request) | {"reqId": spoiled} for request in batch])
    done = run_load(program, server.port)
    assert done.returncode in (1, 3)
    assert "refusal" in done.stderr or "no request on the wire" in done.stderr


def test_no_request_is_answered_twice(program: Path) -> None:
    server = Original(2, lambda batch: [answer(batch[0]), answer(batch[0])])
    done = run_load(program, server.port, "--depth", "2")
    assert done.returncode == 1
    assert "an answer to no request on the wire" in done.stderr


def test_a_broken_answer_is_an_error(program: Path) -> None:
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        peer, _ = listener.accept()
        with listener, peer:
            peer.recv(65536)
            # A map of two pairs, the second of which is longer than its frame.
            peer.sendall(b"\0\0\0\x0b\x82\xa2ok\xc3\xa2id\xd9\xff7")
            peer.recv(65536)

    threading.Thread(target=serve, daemon=True).start()
    port = int(listener.getsockname()[1])
    done = run_load(program, port, "--work", "put", "--jobs", "1")
    assert done.returncode == 3
    assert parse_result(done.stdout).errors == 1


def test_an_answer_larger_than_any_is_no_answer(program: Path) -> None:
    server = Original(1, lambda batch: [answer(request) | {"pad": "p" * 9999} for request in batch])
    done = run_load(program, server.port)
    assert done.returncode == 1
    assert "an answer of" in done.stderr
