"""The load generator: its line is parsed whole or not at all, and it counts what it really did."""

import json
import shutil
import socket
import subprocess
import threading
from pathlib import Path

import pytest

from bench.load import BenchError, Shape, compile_load, parse_result

LINE = {
    "protocol": "beanstalk", "connections": 64, "depth": 1, "body_size": 100, "seconds": 2.0,
    "operations": 200000, "errors": 0, "jobs_finished": 70000, "ops_per_s": 100000.0,
    "p50_us": 530.0, "p99_us": 700.5, "max_us": 1500.0, "server_cpu_s": 1.8, "load_cpu_s": 1.0,
}  # fmt: skip

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_load(tmp_path_factory.mktemp("load"))


class Script(threading.Thread):
    """A server for one connection that answers each request with the next prepared bytes."""

    def __init__(self, answers: list[bytes]) -> None:
        super().__init__(daemon=True)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._answers = answers
        self.port = int(self._listener.getsockname()[1])
        self.requests: list[bytes] = []
        self.start()

    def run(self) -> None:
        peer, _ = self._listener.accept()
        with self._listener, peer:
            for answer in self._answers:
                request = peer.recv(65536)
                if not request:
                    return
                self.requests.append(request)
                peer.sendall(answer)
            peer.recv(65536)


def run_load(program: Path, port: int, *flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program, "--port", str(port), *flags],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


def test_a_line_is_read_and_its_shares_are_worked_out() -> None:
    result = parse_result(json.dumps(LINE) + "\n")
    assert result.operations == 200_000
    assert result.server_us_per_op == pytest.approx(9.0)
    assert result.server_core_share == pytest.approx(0.9)
    assert result.load_core_share == pytest.approx(0.5)


def test_an_unknown_server_has_no_processor_time() -> None:
    result = parse_result(json.dumps(LINE | {"server_cpu_s": None}))
    assert result.server_us_per_op is None
    assert result.server_core_share is None


@pytest.mark.parametrize(
    "line",
    ["", "not json", "[]", "{}", json.dumps(LINE | {"operations": "many"}), json.dumps(LINE)[:-2]],
)
def test_a_line_that_is_not_a_result_is_refused(line: str) -> None:
    with pytest.raises(BenchError, match="unexpected output of load"):
        parse_result(line)


def test_a_shape_is_written_as_connections_by_depth() -> None:
    assert str(Shape(4, 64)) == "4x64"
    assert str(Shape(4, 1, bundle=50)) == "4x1x50"
    assert str(Shape(4, 50, is_owned=True)) == "4x50-owned"


@needs_compiler
def test_it_is_compiled_once(program: Path) -> None:
    made = program.stat().st_mtime_ns
    assert compile_load(program.parent) == program
    assert program.stat().st_mtime_ns == made


@needs_compiler
def test_a_cycle_asks_for_what_it_put_and_deletes_what_it_got(program: Path) -> None:
    script = Script(
        [
            b"INSERTED 7\r\nINSERTED 8\r\n",
            b"RESERVED 7 3\r\nxxx\r\nRESERVED 8 3\r\nxxx\r\n",
            b"DELETED\r\nDELETED\r\n",
        ]
    )
    done = run_load(
        program, script.port, "--depth", "2", "--body", "3", "--seconds", "0", "--warm", "0"
    )
    assert done.returncode == 0, done.stderr
    assert script.requests == [
        b"put 1024 0 120 3\r\nxxx\r\n" * 2,
        b"reserve\r\n" * 2,
        b"delete 7\r\ndelete 8\r\n",
    ]


@needs_compiler
def test_a_hop_moves_to_the_next_tube_with_every_job(program: Path) -> None:
    script = Script(
        [
            b"USING t0\r\nINSERTED 1\r\nUSING t1\r\nINSERTED 2\r\n",
            b"".join(b"WATCHING 2\r\nWATCHING 1\r\nRESERVED %d 0\r\n\r\n" % job for job in (1, 2)),
            b"DELETED\r\nDELETED\r\n",
        ]
    )
    flags = ["--work", "hop", "--tubes", "5", "--depth", "2", "--body", "0"]
    done = run_load(program, script.port, *flags, "--seconds", "0", "--warm", "0")
    assert done.returncode == 0, done.stderr
    assert script.requests == [
        b"use t0\r\nput 1024 0 120 0\r\n\r\nuse t1\r\nput 1024 0 120 0\r\n\r\n",
        b"watch t0\r\nignore default\r\nreserve\r\nwatch t1\r\nignore t0\r\nreserve\r\n",
        b"delete 1\r\ndelete 2\r\n",
    ]


@needs_compiler
def test_a_fill_puts_exactly_as_many_jobs_as_asked(program: Path) -> None:
    script = Script([b"USING t0\r\nINSERTED 1\r\n" * 4, b"USING t0\r\nINSERTED 1\r\n" * 3])
    flags = ["--work", "put", "--jobs", "7", "--tubes", "3", "--depth", "4", "--priority", "9"]
    done = run_load(program, script.port, *flags, "--warm", "0", "--body", "1")
    assert done.returncode == 0, done.stderr
    sent = b"".join(script.requests)
    assert sent.count(b"put 9 0 120 1\r\nx\r\n") == 7
    assert [sent.count(b"use t%d\r\n" % tube) for tube in range(3)] == [3, 2, 2]
    assert parse_result(done.stdout).operations == 14


@needs_compiler
def test_answers_cut_anywhere_are_put_together(program: Path) -> None:
    answers = b"INSERTED 7\r\n", b"RESERVED 7 3\r\nxxx\r\n", b"DELETED\r\n"
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        peer, _ = listener.accept()
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with listener, peer:
            for answer in answers:
                peer.recv(65536)
                for i in range(len(answer)):
                    peer.sendall(answer[i : i + 1])
            peer.recv(65536)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    port = int(listener.getsockname()[1])
    done = run_load(program, port, "--body", "3", "--seconds", "0", "--warm", "0")
    assert done.returncode == 0, done.stderr


@needs_compiler
def test_a_refusal_is_counted_and_is_no_operation(program: Path) -> None:
    script = Script([b"OUT_OF_MEMORY\r\n"])
    done = run_load(
        program, script.port, "--work", "put", "--jobs", "1", "--body", "1", "--warm", "0"
    )
    assert done.returncode == 3
    assert "OUT_OF_MEMORY" in done.stderr
    result = parse_result(done.stdout)
    assert (result.operations, result.errors) == (0, 1)


@needs_compiler
def test_a_body_of_another_size_is_an_error(program: Path) -> None:
    script = Script([b"INSERTED 1\r\n", b"RESERVED 1 4\r\nxxxx\r\n"])
    done = run_load(program, script.port, "--body", "3", "--seconds", "0", "--warm", "0")
    assert done.returncode == 3
    assert parse_result(done.stdout).errors == 1


@needs_compiler
def test_a_lost_connection_is_no_result(program: Path) -> None:
    done = run_load(program, Script([]).port)
    assert done.returncode == 1
    assert done.stdout == ""
    assert "closed a connection" in done.stderr


@needs_compiler
@pytest.mark.parametrize(
    "flags",
    [
        ["--work", "dance"],
        ["--work", "hop"],
        ["--tubes", "5"],
        ["--connections", "0"],
        ["--depth", "-1"],
        ["--body", "1x"],
        ["--seconds", "soon"],
        ["--protocol", "morse"],
        ["--bundle", "2"],
        ["--owner"],
        ["--protocol", "bunqueue", "--bundle", "1001"],
        ["--protocol", "bunqueue", "--work", "hop", "--tubes", "5"],
        ["stray"],
    ],
)
def test_nonsense_is_refused_before_anything_is_sent(program: Path, flags: list[str]) -> None:
    done = run_load(program, 1, *flags)
    assert done.returncode in (1, 2)
    assert "load: connect:" not in done.stderr
