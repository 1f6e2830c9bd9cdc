"""A server that answers before the sync, and clients that require more: no power cut costs them.

Whole sessions of three protocols over a disk in memory, committed as the server does it. The
power fails at any moment; everything answered for a topic of class fsync, or for a job pushed as
durable, must be there after the next start.
"""

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from jobyard.engine.state.yard import Yard
from jobyard.journal.reply_gate import Gate, Outbox
from jobyard.protocols.beanstalk.entrance import BeanstalkEntrance
from jobyard.protocols.bunqueue.ids import find_job
from jobyard.protocols.session import Entrance, Peer
from jobyard.server.committer import OS, Committer
from tests.support.doors.topics import BareTopics
from tests.support.engine.logs import contents
from tests.support.servers.bunqueue import frame, pack, unpack
from tests.support.site.committers import HandWorker, SlowStorage
from tests.support.site.site import NOW_MS
from tests.support.site.storage import MemoryStorage

STEPS = 400
INTERVAL_MS = 10_000

# What becomes of an answer once it has come.
DashboardEvent = Callable[[bytes], None]


class Line(Peer):
    """One connection, and what is to be done with the answer it waits for."""

    def __init__(self, server: "OsServer", entrance: Entrance) -> None:
        self._server = server
        self.session = entrance.enter(self)
        self._outbox = Outbox(server.gate, self)
        self._told: DashboardEvent | None = None

    def is_free(self) -> bool:
        """Return whether nothing is pending."""
        return self._told is None

    def say(self, data: bytes, told: DashboardEvent) -> None:
        """Send a request; `told` is called when its answer has been sent."""
        assert self._told is None
        self._told = told
        journal = self._server.bare.journal
        self.session.receive(data, self._server.now_ms)
        self.session.await_synced(journal.take_command_sync_batch())
        self.session.hand_output(self._outbox)

    def deliver(self, data: bytes) -> None:
        told = self._told
        assert told is not None
        self._told = None
        told(data)


class OsServer:
    """One boot of a server in class os."""

    def __init__(self, storage: MemoryStorage, now_ms: int) -> None:
        self.now_ms = now_ms
        self.storage = SlowStorage()
        self.storage.files = storage.files
        self.storage.sync_directory()
        self.bare = BareTopics(self.storage, now_ms, ids_ahead=True)
        self.gate = Gate()
        self.gate.release(self.bare.journal.durable)
        self.worker = HandWorker()
        self._committer = Committer(
            self.bare.yard,
            self.gate,
            self.storage,  # type: ignore[arg-type]  # as much of a FileStorage as it uses
            self.worker,
            OS,
            INTERVAL_MS,
        )
        self.http = [Line(self, self.bare.entrance) for _ in range(3)]
        self.bunqueue = Line(self, self.bare.others.entrance)
        self.beanstalk = Line(self, BeanstalkEntrance(self.bare.beanstalk_door))
        self.guest = Line(self, BeanstalkEntrance(self.bare.beanstalk_door))

    def turn(self) -> None:
        """End a turn."""
        self._committer.turn(self.now_ms)
        self.now_ms += 1


def post(path: str, body: object) -> bytes:
    """Return a request."""
    data = json.dumps(body).encode()
    verb = "PUT" if path.count("/") == 0 and "records" not in str(body) else "POST"
    head = f"{verb} /v0/topics/{path} HTTP/1.1\r\nHost: y\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data


def answer_of(data: bytes) -> Any:
    """Return the body of an HTTP answer."""
    head, _, body = data.partition(b"\r\n\r\n")
    assert head.startswith((b"HTTP/1.1 200", b"HTTP/1.1 201")), data
    return json.loads(body)


class Promises:
    """What clients were answered, and what they do next."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.number = 0
        self.records: dict[int, str] = {}
        self.jobs: dict[int, str] = {}
        self.bodies: set[str] = set()
        self.acking: set[int] = set()
        self.gone: set[int] = set()
        self.durable: dict[str, str] = {}
        self.plain: set[str] = set()
        self.lost = 0
        # Of topics that promise less: only that no seq is given twice.
        self.loose: dict[str, int] = {"log": 0, "queue": 0}

    def _name(self) -> str:
        self.number += 1
        return f"n{self.number}"

    def step(self, server: OsServer) -> None:
        """Let one client send a request."""
        if self.rng.random() < 0.5:
            self._put_plain(server)
        else:
            careful = (self._write, self._produce, self._work, self._put, self._push)
            self.rng.choice((*careful, self._write_loose))(server)

    def _free(self, server: OsServer) -> Line | None:
        return next((line for line in server.http if line.is_free()), None)

    def _write(self, server: OsServer) -> None:
        line = self._free(server)
        if line is not None:
            name = self._name()
            body = {"records": [{"data": name}], "idempotency_key": name}

            def told(data: bytes) -> None:
                self.records[answer_of(data)["first_seq"]] = name

            line.say(post("careful", body), told)

    def _write_loose(self, server: OsServer) -> None:
        line = self._free(server)
        if line is not None:
            topic = self.rng.choice(("log", "queue"))
            count = self.rng.choice((1, 3, 300))

            def told(data: bytes) -> None:
                answer = answer_of(data)
                assert answer["first_seq"] > self.loose[topic], "a seq was given twice"
                self.loose[topic] = answer["last_seq"]

            line.say(post(topic, {"records": [{"data": 1}] * count}), told)

    def _produce(self, server: OsServer) -> None:
        line = self._free(server)
        if line is not None:
            name = self._name()

            def told(data: bytes) -> None:
                self.jobs[answer_of(data)["first_seq"]] = name

            line.say(post("jobs", {"records": [{"data": name}]}), told)

    def _work(self, server: OsServer) -> None:
        line = self._free(server)
        if line is None:
            return

        def claimed(data: bytes) -> None:
            seqs = [job["$seq"] for job in answer_of(data)["claimed"]]
            assert not self.gone & set(seqs), "an acked job came back"
            if seqs and line.is_free():

                def acked(data: bytes) -> None:
                    answer = answer_of(data)
                    assert (answer["acked"], answer["skipped"]) == (len(seqs), [])
                    assert answer["performance"]["fsync_ms"] > 0
                    self.gone |= set(seqs)

                # Taken out at once: from here on a crash may leave it there or not.
                self.acking |= set(seqs)
                line.say(post("jobs/ack", {"node": "w", "seqs": seqs}), acked)

        line.say(post("jobs/claim", {"node": "w", "max": 2}), claimed)

    def _put(self, server: OsServer) -> None:
        if server.beanstalk.is_free():
            name = self._name()

            def told(data: bytes) -> None:
                assert data.startswith(b"USING tube\r\nINSERTED"), data
                self.bodies.add(name)

            body = name.encode()
            server.beanstalk.say(b"use tube\r\nput 0 0 60 %d\r\n%s\r\n" % (len(body), body), told)

    def _put_plain(self, server: OsServer) -> None:
        if server.guest.is_free():
            name = self._name()
            server.guest.say(
                b"put 0 0 60 %d\r\n%s\r\n" % (len(name), name.encode()),
                lambda _data: self.plain.add(name),
            )

    def _push(self, server: OsServer) -> None:
        if server.bunqueue.is_free():
            name = self._name()
            command = {"cmd": "PUSH", "queue": "q", "data": name, "durable": True, "reqId": "1"}

            def told(data: bytes) -> None:
                answer = unpack(data[4:])
                assert isinstance(answer, dict)
                self.durable[str(answer["id"])] = name

            server.bunqueue.say(frame(pack(command)), told)

    def check(self, server: OsServer) -> None:
        """Check that all of it is there."""
        bare = server.bare
        bare.check()
        yard = bare.yard
        log = yard.logs["careful"]
        held = {seq: data for seq, _, _, _, data, _ in contents(bare, log)}
        assert self.records.items() <= held.items()
        queue = yard.queues["jobs"]
        found: dict[int, str] = {}
        for job in yard.jobs.all():
            if job.queue is queue:
                body = yard.bodies.fetch(job)
                assert body is not None
                found[int(job.key)] = json.loads(body)
        assert not self.gone & set(found), "an acked job is there again"
        for seq, name in self.jobs.items():
            assert seq in self.acking or found[seq] == name
        assert self.bodies <= bodies_in(yard, "tube")
        for job_id in self.durable:
            assert find_job(yard, job_id.encode()) is not None
        here = bodies_in(yard, "default")
        self.lost += len(self.plain - here)
        self.plain &= here


def bodies_in(yard: Yard, name: str) -> set[str]:
    """Return what the jobs of a queue hold."""
    jobs = [job for job in yard.jobs.all() if job.queue.name == name]
    return {(yard.bodies.fetch(job) or b"").decode() for job in jobs}


def configured(server: OsServer) -> None:
    """Make the topics that ask for more than the server gives."""
    heard: list[bytes] = []
    first, second, third = server.http
    first.say(post("careful", {"durability": "fsync"}), heard.append)
    second.say(post("jobs", {"type": "queue", "durable": True}), heard.append)
    third.say(post("tube", {"type": "queue", "durability": "fsync"}), heard.append)
    server.turn()
    server.worker.work_all()
    first.say(post("log", {}), heard.append)
    second.say(post("queue", {"type": "queue"}), heard.append)
    server.turn()
    server.worker.work_all()
    assert [answer_of(data)["created"] for data in heard] == [True] * 5


@pytest.mark.parametrize("seed", range(4))
def test_what_asks_for_the_disk_survives_a_power_cut_in_class_os(seed: int) -> None:
    rng = random.Random(seed + 100)
    promises = Promises(seed)
    server = OsServer(MemoryStorage(), NOW_MS)
    configured(server)
    for _ in range(STEPS):
        promises.step(server)
        if rng.random() < 0.6:
            server.turn()
        if server.worker.waiting and rng.random() < 0.6:
            server.worker.work()
            server.worker.collect()
        if rng.random() < 0.03:
            server = OsServer(server.storage.cut_off(), server.now_ms + 1)
            promises.check(server)
    assert promises.records
    assert promises.jobs
    assert promises.gone
    assert promises.durable
    assert promises.lost > 0, "the power cuts cost nobody anything"
    assert min(promises.loose.values()) > 0
