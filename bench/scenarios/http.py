"""HTTP: the topics API under wrk, pushed jobs over many streams, exports, and a log of a million.

Records hold 100 bytes of text. wrk keeps 16 connections busy, one request on each: writes of one
and of 100 records, pages of 256 and 1,000 records from random cursors, claims of 8 jobs and their
acks. Every measurement has a fresh server, and ends with a check of the topic itself: records that
were acknowledged but are not there would be false speed. On the durable server every
answer to a write or an ack waits for the disk.

The floor is a server that parses requests and gives each the same answer (bench/httpecho.py). It
is measured with single writes only, because other loads mean nothing to it.
"""

import random
import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from bench.clients.topics import DATA, FILL_BATCH, Topic, records_body
from bench.load import BenchError, LoadResult
from bench.run import Run, say
from bench.scenarios.exports import measure_exports
from bench.scenarios.recovery import forget_files
from bench.servers import Kind, Running
from bench.wrk import CONNECTIONS, Wrk

__all__ = ["FLOOR", "FLOOR_LOAD", "LOADS", "SERVERS", "YARDS", "measure_http"]

YARDS: Final = ("jobyard-http-memory", "jobyard-http-durable")
FLOOR: Final = "httpecho"
FLOOR_LOAD: Final = "write"
SERVERS: Final = (FLOOR, *YARDS)
TOPIC: Final = "bench"
NODE: Final = "w1"
CLAIM: Final = 8
WRITES: Final = {"write": 1, "write100": 100}
PAGES: Final = {"diff256": 256, "diff1000": 1000}
LEASES: Final = f"claim{CLAIM}"
LOADS: Final = (*WRITES, *PAGES, LEASES)


def measure_http(run: Run) -> None:
    """Measure everything that is available over HTTP."""
    wrk = run.wrk
    if wrk is None:
        run.note(f"NO WRK: {', '.join(LOADS)} over HTTP are not measured (Debian package wrk)")
    else:
        for load in LOADS:
            say(f"http {load}")
            for _ in range(run.settings.rounds):
                for kind in run.kinds(SERVERS if load == FLOOR_LOAD else YARDS):
                    with run.stable.serving(kind) as server:
                        _measure_load(run, wrk, server, load)
    _measure_streams(run)
    measure_exports(run, YARDS)
    for kind in run.kinds(YARDS):
        say(f"http {kind.name}, log of {run.settings.jobs:,} records")
        folder = run.stable.new_folder()
        try:
            _measure_log(run, kind, folder)
        finally:
            shutil.rmtree(folder)


# -- under wrk ---------------------------------------------------------------------------------


def _measure_load(run: Run, wrk: Wrk, server: Running, load: str) -> None:
    prefix = f"http.{server.kind.name}.{load}"
    if server.kind.name == FLOOR:
        words = [f"/v0/topics/{TOPIC}", str(_write_body(server, 1))]
        _warm(run, wrk, server, "same.lua", words)
        seen, result = wrk.run(server.port, server.pid, "same.lua", words, run.settings.seconds)
        _note(run, prefix, seen.requests, result)
    elif load in WRITES:
        _measure_writes(run, wrk, server, WRITES[load], prefix)
    elif load in PAGES:
        _measure_pages(run, wrk, server, PAGES[load], prefix)
    else:
        _measure_leases(run, wrk, server, prefix)


def _measure_writes(run: Run, wrk: Wrk, server: Running, batch: int, prefix: str) -> None:
    topic = _make_topic(server)
    words = [topic.path, str(_write_body(server, batch))]
    _warm(run, wrk, server, "same.lua", words)
    before = topic.state()
    seen, result = wrk.run(server.port, server.pid, "same.lua", words, run.settings.seconds)
    after = topic.state()
    check_growth("records", seen.requests * batch, after.head_seq - before.head_seq, batch)
    if after.count != after.head_seq:
        raise BenchError(f"of {after.head_seq} records {after.count} are there")
    topic.check_page(before.head_seq, min(1000, after.head_seq - before.head_seq))
    _note(run, prefix, seen.requests * batch, result)


def _measure_pages(run: Run, wrk: Wrk, server: Running, limit: int, prefix: str) -> None:
    topic = _make_topic(server)
    newest = run.settings.topic_records
    topic.fill(newest)
    for from_seq in (0, random.randrange(newest - limit + 1), newest - limit):
        topic.check_page(from_seq, limit)
    words = [f"{topic.path}/diff", str(limit), str(newest), str(len(DATA))]
    _warm(run, wrk, server, "diff.lua", words)
    seen, result = wrk.run(server.port, server.pid, "diff.lua", words, run.settings.seconds)
    if seen.records != seen.requests * limit:
        raise BenchError(f"{seen.requests} pages of {limit} had {seen.records} records")
    _note(run, prefix, seen.records, result)


def _measure_leases(run: Run, wrk: Wrk, server: Running, prefix: str) -> None:
    topic = _make_topic(server, is_queue=True)
    topic.fill(run.settings.jobs)
    words = [topic.path, NODE, str(CLAIM), str(_write_body(server, FILL_BATCH))]
    _warm(run, wrk, server, "lease.lua", words)
    before = topic.state()
    seen, result = wrk.run(server.port, server.pid, "lease.lua", words, run.settings.seconds)
    after = topic.state()
    # An acked job is removed, and nothing else removes one.
    acked = (after.head_seq - after.count) - (before.head_seq - before.count)
    check_growth("acks", seen.records, acked, CLAIM)
    if seen.refills:
        run.note(f"{prefix}: {seen.refills} writes of {FILL_BATCH} jobs kept the queue full")
    _note(run, prefix, seen.records, result)


def _warm(run: Run, wrk: Wrk, server: Running, script: str, words: list[str]) -> None:
    seconds = run.warm_seconds(server)
    if seconds > 0:
        wrk.run(server.port, server.pid, script, words, seconds)


def _make_topic(server: Running, *, is_queue: bool = False) -> Topic:
    topic = Topic(server.port, TOPIC)
    topic.make(is_queue=is_queue, is_durable=server.kind.is_durable)
    return topic


def _write_body(server: Running, count: int) -> Path:
    path = server.log.with_name("body")
    path.write_bytes(records_body(count))
    return path


def check_growth(what: str, answered: int, found: int, batch: int) -> None:
    """Check that everything acknowledged is there, plus at most what wrk had on the wire."""
    if not answered <= found <= answered + CONNECTIONS * batch:
        raise BenchError(f"{answered} {what} were acknowledged, the topic shows {found}")


def _note(run: Run, prefix: str, records: int, result: LoadResult) -> None:
    run.note_result(prefix, result)
    run.figures.add(f"{prefix}.records_per_s", records / result.seconds)
    if result.server_cpu_s is not None and records:
        run.figures.add(f"{prefix}.server_us_per_record", result.server_cpu_s / records * 1e6)


# -- streams -----------------------------------------------------------------------------------


def _measure_streams(run: Run) -> None:
    streams, scale = run.streams, run.settings
    if streams is None:
        run.note("NO STREAMS: pushed jobs are not measured")
        return
    say(f"http {scale.streams:,} streams at {scale.stream_rate:,} records/s")
    for _ in range(scale.rounds):
        for kind in run.kinds(YARDS):
            prefix = f"http.{kind.name}.streams"
            with run.stable.serving(kind) as server:
                topic = _make_topic(server, is_queue=True)
                window = (scale.stream_seconds, run.warm_seconds(server))
                result = streams.run(
                    server.port, server.pid, TOPIC, scale.streams, scale.stream_rate, window
                )
                state = topic.state()
            if (state.head_seq, state.count) != (result.load.jobs_finished, 0):
                raise BenchError(f"{result.load.jobs_finished} jobs were acked, the topic: {state}")
            _note(run, prefix, result.load.operations, result.load)
            run.figures.add(f"{prefix}.late_max_us", result.late_max_us)


# -- a long log --------------------------------------------------------------------------------


def _measure_log(run: Run, kind: Kind, folder: Path) -> None:
    """Measure the size of a log; if it is durable, kill the server and measure its recovery."""
    records = run.settings.jobs
    prefix = f"http.{kind.name}.log"
    server = run.stable.start(kind, folder)
    try:
        topic = _make_topic(server)
        before = server.rss_bytes()
        topic.fill(records)
        run.figures.add(f"{prefix}.bytes_per_record", (server.rss_bytes() - before) / records)
        for _ in range(run.settings.rounds if kind.is_durable else 0):
            server = _start_again(run, server, folder)
            run.figures.add(f"{prefix}.ready_seconds", server.ready_seconds)
            per_million = server.ready_seconds * 1_000_000 / records
            run.figures.add(f"{prefix}.seconds_per_million", per_million)
            server.kill()
            forget_files(folder)
            server = _start_again(run, server, folder)
            run.figures.add(f"{prefix}.cold_ready_seconds", server.ready_seconds)
    except BenchError as error:
        raise BenchError(f"{kind.name}: {error}{server.log_tail()}") from error
    finally:
        server.kill()


def _start_again(run: Run, server: Running, folder: Path) -> Running:
    """Kill the server and start it again on the same data; every record must be there."""
    records = run.settings.jobs
    server.kill()
    again = run.stable.start(server.kind, folder)
    with ExitStack() as undo:
        undo.callback(again.kill)
        topic = Topic(again.port, TOPIC)
        state = topic.state()
        if (state.head_seq, state.count) != (records, records):
            raise BenchError(f"{records} records became {state} after kill and restart")
        limit = min(1000, records)
        topic.check_page(random.randrange(records - limit + 1), limit)
        undo.pop_all()
    return again
