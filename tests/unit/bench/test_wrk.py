"""wrk: its line is parsed or refused, and our scripts count only right answers."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from os import getpid
from pathlib import Path
from typing import Any

import pytest

from bench.clients.topics import DATA, records_body
from bench.load import BenchError
from bench.wrk import CONNECTIONS, SCRIPTS, Wrk, find_wrk, parse_wrk, server_cpu_s, wrk_version

LINE = {
    "requests": 5000, "seconds": 2.0, "status_errors": 0, "socket_errors": 0,
    "timeouts": 0, "refills": 1, "records": 40000, "wrong": 0, "p50_us": 530, "p99_us": 700,
    "max_us": 1500, "first_wrong": "",
}  # fmt: skip
TABLE = """Running 2s test @ http://127.0.0.1:4242
  1 threads and 16 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     5.21ms    2.01ms  26.96ms   81.52%
Requests/sec:   2500.00
"""
PROGRAM = find_wrk()

needs_wrk = pytest.mark.skipif(PROGRAM is None, reason="needs wrk")


def output(**changes: object) -> str:
    return f"{TABLE}{json.dumps(LINE | changes)}\n"


def test_the_line_below_the_table_is_read() -> None:
    seen = parse_wrk(output())
    assert (seen.requests, seen.records, seen.refills, seen.errors) == (5000, 40_000, 1, 0)
    result = seen.load_result(server_cpu_s=1.5, load_cpu_s=0.5)
    assert result.ops_per_s == 2500.0
    assert result.operations == 5000
    assert result.jobs_finished == 40_000
    assert result.server_us_per_op == pytest.approx(300.0)
    assert (result.p50_us, result.p99_us, result.max_us) == (530.0, 700.0, 1500.0)


@pytest.mark.parametrize("name", ["status_errors", "socket_errors", "timeouts", "wrong"])
def test_every_kind_of_error_counts(name: str) -> None:
    assert parse_wrk(output(**{name: 3})).errors == 3


@pytest.mark.parametrize(
    "text",
    ["", TABLE, "{}", output(requests="many"), output(seconds=0), output()[:-3]],
)
def test_what_is_no_line_is_refused(text: str) -> None:
    with pytest.raises(BenchError, match=r"\bwrk\b"):
        parse_wrk(text)


def test_a_program_that_is_not_wrk_is_not_taken_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_wrk() is None
    program = tmp_path / "wrk"
    program.write_text("#!/bin/sh\necho 'error while loading shared libraries' >&2\nexit 127\n")
    program.chmod(0o755)
    assert find_wrk() is None
    program.write_text("#!/bin/sh\necho 'wrk 4.1.0 [epoll] Copyright'\nexit 1\n")
    assert find_wrk() == program
    assert wrk_version(program) == "4.1.0"


def test_the_processor_time_of_a_process_grows() -> None:
    before = server_cpu_s(getpid())
    assert sum(range(100_000)) > 0
    assert server_cpu_s(getpid()) > before > 0


# -- the scripts, against a server that answers as a test wants ---------------------------------

Answer = Callable[[str, dict[str, Any]], tuple[int, dict[str, Any]]]


@contextmanager
def answering(answer: Answer) -> Iterator[int]:
    lock = threading.Lock()

    class Answering(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                status, said = answer(self.path, asked)
            body = json.dumps(said, separators=(",", ":")).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = CONNECTIONS

        def handle_error(self, *_: object) -> None: ...  # wrk leaves in the middle of an answer

    with Server(("127.0.0.1", 0), Answering) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield int(server.server_address[1])
        finally:
            server.shutdown()
            thread.join()


def wrk() -> Wrk:
    assert PROGRAM is not None
    return Wrk(PROGRAM)


def page(asked: dict[str, Any], count: int, data: str) -> dict[str, Any]:
    first = asked["from_seq"] + 1
    records = [{"$seq": first + at, "data": data} for at in range(count)]
    return {"records": records, "next_from_seq": first + count - 1, "head_seq": 100}


@needs_wrk
def test_the_same_request_is_sent_over_and_over(tmp_path: Path) -> None:
    body = tmp_path / "body"
    body.write_bytes(records_body(2))
    seen: list[tuple[str, dict[str, Any]]] = []

    def answer(path: str, asked: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        seen.append((path, asked))
        return 200, {}

    with answering(answer) as port:
        result, load = wrk().run(port, getpid(), "same.lua", ["/v0/topics/a", str(body)], 0.1)
    assert result.requests <= len(seen) <= result.requests + CONNECTIONS
    assert load.operations == result.requests > 0
    assert all(each == ("/v0/topics/a", {"records": [{"data": DATA}] * 2}) for each in seen)


@needs_wrk
def test_a_refusal_is_no_result(tmp_path: Path) -> None:
    body = tmp_path / "body"
    body.write_bytes(records_body(1))
    with (
        answering(lambda _path, _asked: (422, {"error": {"code": "topic_full"}})) as port,
        pytest.raises(BenchError, match=r"same.lua: \d+ answers were wrong"),
    ):
        wrk().run(port, getpid(), "same.lua", ["/v0/topics/a", str(body)], 0.1)


@needs_wrk
def test_records_of_pages_are_counted_wherever_they_begin() -> None:
    asked_for: set[int] = set()

    def answer(_path: str, asked: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        asked_for.add(asked["from_seq"])
        return 200, page(asked, asked["limit"], DATA)

    words = ["/v0/topics/a/diff", "7", "100", str(len(DATA))]
    with answering(answer) as port:
        result, _ = wrk().run(port, getpid(), "diff.lua", words, 0.1)
    assert result.records == result.requests * 7 > 0
    assert len(asked_for) > 1
    assert min(asked_for) >= 0
    assert max(asked_for) <= 93


@needs_wrk
@pytest.mark.parametrize(("count", "data"), [(6, DATA), (7, "x")], ids=["few", "small"])
def test_a_page_that_is_not_whole_is_no_result(count: int, data: str) -> None:
    words = ["/v0/topics/a/diff", "7", "100", str(len(DATA))]
    with (
        answering(lambda _path, asked: (200, page(asked, count, data))) as port,
        pytest.raises(BenchError, match=r"diff.lua: \d+ answers were wrong: 200 ."),
    ):
        wrk().run(port, getpid(), "diff.lua", words, 0.1)


class Queue:
    """As much of a lease queue as claims, acks and writes need."""

    def __init__(self, jobs: int) -> None:
        self.ready = jobs
        self.next_seq = 1
        self.leased: set[int] = set()
        self.acked = 0

    def answer(self, path: str, asked: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if path.endswith("/claim"):
            count = min(self.ready, asked["max"])
            seqs = range(self.next_seq, self.next_seq + count)
            self.ready -= count
            self.next_seq += count
            self.leased |= set(seqs)
            claimed = [{"$seq": seq, "data": DATA} for seq in seqs]
            return 200, {"claimed": claimed, "count": count, "ready": self.ready}
        if path.endswith("/ack"):
            done = self.leased & set(asked["seqs"])
            self.leased -= done
            self.acked += len(done)
            return 200, {"acked": len(done), "skipped": [], "ready": self.ready, "in_flight": 0}
        self.ready += len(asked["records"])
        return 200, {"first_seq": 1, "seqs": [1], "count": len(asked["records"])}


@needs_wrk
@pytest.mark.parametrize(("jobs", "is_refilled"), [(1_000_000, False), (3000, True)])
def test_what_is_claimed_is_acked_once(tmp_path: Path, jobs: int, *, is_refilled: bool) -> None:
    body = tmp_path / "body"
    body.write_bytes(records_body(1000))
    queue = Queue(jobs)
    with answering(queue.answer) as port:
        words = ["/v0/topics/q", "w1", "8", str(body)]
        result, _ = wrk().run(port, getpid(), "lease.lua", words, 0.1)
    assert 0 < result.records <= queue.acked <= result.records + CONNECTIONS * 8
    assert len(queue.leased) <= CONNECTIONS * 8
    assert (result.refills > 0) is is_refilled


@needs_wrk
def test_a_queue_that_runs_empty_is_no_result(tmp_path: Path) -> None:
    body = tmp_path / "body"
    body.write_bytes(b'{"records":[]}')
    words = ["/v0/topics/q", "w1", "8", str(body)]
    with (
        answering(Queue(20).answer) as port,
        pytest.raises(BenchError, match=r"lease.lua: \d+ answers were wrong: 200 ..claimed"),
    ):
        wrk().run(port, getpid(), "lease.lua", words, 0.1)


@needs_wrk
def test_an_ack_that_skips_a_job_is_no_result(tmp_path: Path) -> None:
    body = tmp_path / "body"
    body.write_bytes(records_body(1000))
    queue = Queue(1_000_000)

    def forgetful(path: str, asked: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if path.endswith("/ack"):
            asked["seqs"] = asked["seqs"][1:]
        return queue.answer(path, asked)

    with (
        answering(forgetful) as port,
        pytest.raises(BenchError, match=r"answers were wrong: 200 ..acked.:7"),
    ):
        wrk().run(port, getpid(), "lease.lua", ["/v0/topics/q", "w1", "8", str(body)], 0.1)


def test_every_script_prints_the_line() -> None:
    scripts = {path.name for path in SCRIPTS.iterdir()}
    assert scripts == {"report.lua", "same.lua", "diff.lua", "lease.lua"}
    for name in scripts - {"report.lua"}:
        assert '"report.lua")' in (SCRIPTS / name).read_text()
