"""Clients on a faulty disk: queues and a log of topics, each with a router; a queue of glide-mq.

Each has the answers it may get: a full disk refuses new data, and a durable lease that
it cannot record; damaged or unreadable data is `corrupt`. Nothing else is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jobyard.engine.glidemq.add import find as find_glide
from jobyard.engine.jobs.listing import jobs_by_seq_of
from sim.faulty.ledger import Entry, Ledger, Stream
from sim.glidemq.network import Answer as RespAnswer
from sim.glidemq.network import Error
from sim.glidemq.nouns import Ask as RespAsk
from sim.glidemq.words import FOUR, GROUP, fcall, key, keys_of, phrase
from sim.state import Violation
from sim.topics.nouns import compact

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from jobyard.engine.state.yard import Yard
    from jobyard.model.job import Job
    from sim.faulty.world import FaultyWorld

NODE: Final = "n"
WORKER: Final = "w"
JOBS_MAX: Final = 14
RECORDS_MAX: Final = 120
PAGE: Final = 50
LONG_TEXT: Final = 4096
FULL_STATUS: Final = 507
LOST_RESULT: Final = b"result not kept: storage full"


class Client:
    """The common part of all clients: unique bodies, and a world to send requests to."""

    def __init__(self, world: FaultyWorld, rng: Random) -> None:
        self.world = world
        self.rng = rng
        self.count = 0

    def set_up(self) -> None:
        """Create what is needed, while there are no faults."""
        raise NotImplementedError

    def act(self) -> None:
        """Perform one action."""
        raise NotImplementedError

    def restart(self, yard: Yard, floor: int) -> None:
        """Check what came back."""
        raise NotImplementedError

    def pick(self, jobs: list[Entry]) -> Entry:
        """Choose a job to read, preferring damaged ones."""
        damaged = [one for one in jobs if one.is_damaged]
        return self.rng.choice(damaged if damaged and self.rng.random() < 0.8 else jobs)

    def data(self) -> dict[str, object]:
        """Return unique data; some of it is too long to be among the records of a batch."""
        self.count += 1
        size = self.rng.choice((0, 40, 900, 5000, 5000))
        return {"n": self.count, "p": "." * size}


class TopicsQueue(Client):
    """Writes to a queue of topics, claims and acks; a router copies what it writes."""

    def __init__(self, world: FaultyWorld, rng: Random, name: str, *, is_kept: bool) -> None:
        super().__init__(world, rng)
        self.ledger = Ledger(name, _find_seq(name))
        self.stream = Stream(name, name + ".copy")
        # Whether leases survive the process.
        self.is_durable = is_kept

    def set_up(self) -> None:
        """Create the queue, and the router behind it."""
        name = self.ledger.queue
        self.world.http("put", name, {"type": "queue", "leases_durable": self.is_durable})
        _set_up_router(self.world, self.stream)

    def act(self) -> None:
        """Perform one action."""
        now = self.world.now_ms()
        held = self.ledger.open_jobs(now, is_held=True)
        others = self.ledger.open_jobs(now, is_held=False)
        choice = self.rng.random()
        if choice < 0.4 and len(held) + len(others) < JOBS_MAX:
            self._write()
        elif choice < 0.5 and held + others:
            self._look(self.pick(held + others))
        elif choice < 0.7 or not held:
            self.claim(self.rng.choice((1, 4)))
        else:
            self.ack(held[: 1 + int(self.rng.random() * 3)])

    def _write(self) -> None:
        records = [self.data() for _ in range(self.rng.choice((1, 1, 9)))]
        fields: dict[str, object] = {"records": [{"data": one} for one in records]}
        answer = self.world.http("write", self.ledger.queue, fields)
        if answer.status == FULL_STATUS:
            self.world.see_refusal(answer.body)
            return
        first = answer.number("first_seq")
        batch = self.world.newest()
        for at, data in enumerate(records):
            self.ledger.add(str(first + at), compact(data).encode(), batch)
            self.stream.write(int(str(data["n"])), batch)

    def _look(self, entry: Entry) -> None:
        """Read a job as a record: as it was written, or reported as damaged."""
        before = self.world.disk.failed_reads_count
        fields: dict[str, object] = {"from_seq": int(entry.name) - 1, "limit": 1}
        answer = self.world.http("diff", self.ledger.queue, fields)
        if answer.code() == "corrupt":
            if not entry.is_damaged and self.world.disk.failed_reads_count == before:
                raise Violation("silent damage", f"{answer.body} for the undamaged {entry}")
            self.world.reach("damage told to a topics client")
            return
        (one,) = answer.list("records")
        if str(one["$seq"]) != entry.name or compact(one["data"]).encode() != entry.body:
            raise Violation("silent damage", f"{entry} was shown as {one}"[:500])

    def claim(self, most: int) -> int:
        """Claim some jobs; return how many there were."""
        lease_ms = self.rng.choice((1500, 60_000))
        fields: dict[str, object] = {"node": NODE, "max": most, "lease_ms": lease_ms}
        answer = self.world.http("claim", self.ledger.queue, fields)
        if answer.status == FULL_STATUS and self.is_durable:
            self.world.see_refusal(answer.body)
            self.world.reach("claim refused by a full disk")
            return 0
        claimed = answer.list("claimed")
        now = self.world.now_ms()
        for one in claimed:
            entry = self.ledger.taken(str(one["$seq"]), now)
            if compact(one["data"]).encode() != entry.body:
                raise Violation("silent damage", f"{entry} was given as {one}"[:500])
            entry.until = now + lease_ms
            entry.leased = self.world.newest() if self.is_durable else 0
            if self.is_durable and self.world.is_tight():
                self.world.reach("claim noted on a full disk")
        return len(claimed)

    def ack(self, held: list[Entry]) -> None:
        """End jobs, which succeeds however full the disk is."""
        seqs = [int(entry.name) for entry in held]
        answer = self.world.http("ack", self.ledger.queue, {"node": NODE, "seqs": seqs})
        if answer.body.get("acked") != len(seqs):
            raise Violation("full disk", f"ack of {held}: {answer.status} {answer.body}"[:800])
        if self.world.is_tight():
            self.world.reach("ack on a full disk")
        for entry in held:
            entry.ended = self.world.newest()

    def restart(self, yard: Yard, floor: int) -> None:
        """Check what came back."""
        self.ledger.restart(yard, floor, self.world.now_ms())
        self.stream.restart(int(yard.queues[self.ledger.queue].next_seq) - 1, floor)


class TopicsLog(Client):
    """Writes to a log of topics, and reads what a router copies to another."""

    def __init__(self, world: FaultyWorld, rng: Random, name: str) -> None:
        super().__init__(world, rng)
        self.stream = Stream(name, name + ".copy")
        # Long records as they are in the journal.
        self.texts: list[bytes] = []

    def set_up(self) -> None:
        """Create the log, and the router behind it."""
        self.world.http("put", self.stream.source, {"type": "log"})
        _set_up_router(self.world, self.stream)

    def act(self) -> None:
        """Write some records, unless there are too many."""
        if len(self.stream.written) > RECORDS_MAX:
            return
        records = [self.data() for _ in range(self.rng.choice((1, 3, 25)))]
        fields: dict[str, object] = {"records": [{"data": one} for one in records]}
        answer = self.world.http("write", self.stream.source, fields)
        if answer.status == FULL_STATUS:
            self.world.see_refusal(answer.body)
            return
        if answer.number("count") != len(records):
            raise Violation("reply", f"{answer.body}"[:300])
        for data in records:
            self.stream.write(int(str(data["n"])), self.world.newest())
            text = compact(data).encode()
            if len(text) > LONG_TEXT:
                self.texts.append(text)

    def restart(self, yard: Yard, floor: int) -> None:
        """Check what came back."""
        self.stream.restart(int(yard.logs[self.stream.source].next_seq) - 1, floor)


class GlideQueue(Client):
    """Adds jobs to a queue of glide-mq, reads them from its stream and completes them."""

    def __init__(self, world: FaultyWorld, rng: Random, name: str) -> None:
        super().__init__(world, rng)
        self.ledger = Ledger(name, _find_id(name))

    def set_up(self) -> None:
        """Do nothing: a queue exists once it has a job."""

    def act(self) -> None:
        """Perform one action."""
        now = self.world.now_ms()
        held = self.ledger.open_jobs(now, is_held=True)
        others = self.ledger.open_jobs(now, is_held=False)
        choice = self.rng.random()
        if choice < 0.4 and len(held) + len(others) < JOBS_MAX:
            self._add()
        elif choice < 0.6 or not held:
            self.read(self.rng.choice((1, 3)))
        elif choice < 0.75:
            self._look(self.pick(held + others))
        else:
            self.complete(held[0])

    def _add(self) -> None:
        body = compact(self.data()).encode()
        queue = self.ledger.queue
        ts = self.world.now_ms()
        told = (b"name", body, b"{}", ts, 0, 0, b"", 0, b"", 0, 0, 0, 0, 0, 0, 0, b"", 0)
        answer = self.world.resp(fcall("addJob", keys_of(queue, *FOUR), *told))
        if isinstance(answer, Error):
            self.world.see_refusal(answer.text)
            return
        assert isinstance(answer, bytes)
        self.ledger.add(answer.decode(), body, self.world.newest())

    def read(self, most: int) -> int:
        """Read some jobs from the stream; return how many there were."""
        ask = RespAsk("read", self.ledger.queue)
        ask.consumer, ask.count = WORKER, most
        answer = self.world.resp(phrase(ask, 0).words)
        if answer is None:
            return 0
        if not isinstance(answer, list) or not isinstance(answer[0], list):
            raise Violation("reply", f"{answer!r}")
        entries = answer[0][1]
        assert isinstance(entries, list)
        for one in entries:
            assert isinstance(one, list)
            assert isinstance(one[0], bytes)
            assert isinstance(one[1], list)
            assert isinstance(one[1][1], bytes)
            entry = self.ledger.taken(one[1][1].decode(), self.world.now_ms())
            entry.until = 1 << 60
            entry.word = one[0].decode()
        return len(entries)

    def _look(self, entry: Entry) -> None:
        """Read the data of a job: as it was put, or reported as damaged."""
        before = self.world.disk.failed_reads_count
        name = key(self.ledger.queue, f"job:{entry.name}")
        answer = self.world.resp([b"HGET", name, b"data"])
        if answer == entry.body:
            return
        is_fair = entry.is_damaged or self.world.disk.failed_reads_count > before
        is_told = isinstance(answer, Error) and answer.text.startswith("ERR corrupt")
        if not is_fair or not is_told:
            raise Violation("silent damage", f"{entry}: {answer!r}"[:300])
        self.world.reach("damage told to a RESP client")

    def complete(self, entry: Entry) -> None:
        """End a job, which succeeds however full the disk is; its result may be reported lost."""
        queue = self.ledger.queue
        result = compact("r" * self.rng.choice((5, 300, 3000))).encode()
        parts = ("stream", "completed", "events", f"job:{entry.name}", "metrics:completed")
        told = (entry.name, entry.word, result, self.world.now_ms(), GROUP, 0, 0, 0)
        answer = self.world.resp(fcall("complete", keys_of(queue, *parts), *told))
        if answer != 1:
            raise Violation("full disk", f"complete of {entry}: {answer!r}")
        entry.ended = self.world.newest()
        lost, kept = LOST_RESULT, result
        found = self._result(entry)
        if found == [kept, None]:
            entry.result = result
        elif not self.world.is_tight() or found not in ([None, lost], [None, None]):
            raise Violation("full disk", f"the result of {entry} is {found!r}"[:500])
        elif found == [None, None] and not int(self.world.boot.journal.done_lost):
            raise Violation("full disk", f"the loss of the result of {entry} is not reported")
        else:
            self.world.reach("result lost on a full disk and told")

    def _result(self, entry: Entry) -> RespAnswer:
        name = key(self.ledger.queue, f"job:{entry.name}")
        return self.world.resp([b"HMGET", name, b"returnvalue", b"failedReason"])

    def check_results(self) -> None:
        """Check that results that were kept are there; only while every read succeeds."""
        for entry in self.ledger.jobs.values():
            if entry.result is not None and self._result(entry) != [entry.result, None]:
                raise Violation("full disk", f"the result of {entry} is gone")

    def restart(self, yard: Yard, floor: int) -> None:
        """Check what came back; no run continues."""
        for entry in self.ledger.jobs.values():
            entry.until = 0
            if entry.ended > floor:
                entry.result = None
        self.ledger.restart(yard, floor, self.world.now_ms())


def _find_seq(queue: str) -> Callable[[Yard, str], Job | None]:
    def find(yard: Yard, name: str) -> Job | None:
        place = yard.queues.get(queue)
        return None if place is None else jobs_by_seq_of(place).find(int(name))

    return find


def _find_id(queue: str) -> Callable[[Yard, str], Job | None]:
    def find(yard: Yard, name: str) -> Job | None:
        place = yard.queues.get(queue)
        return None if place is None else find_glide(yard, place, name)

    return find


def _set_up_router(world: FaultyWorld, stream: Stream) -> None:
    world.http("put", stream.dest, {"type": "log"})
    fields: dict[str, object] = {"source": stream.source, "dest": stream.dest}
    world.http("route", "from-" + stream.source, fields)


def follow(world: FaultyWorld, stream: Stream, *, may_skip: bool) -> None:
    """Read what a router has delivered since the last time."""
    fields: dict[str, object] = {"from_seq": stream.cursor, "limit": PAGE}
    answer = world.http("diff", stream.dest, fields)
    for one in answer.list("records"):
        data = one["data"]
        assert isinstance(data, dict)
        stream.came(int(data["n"]), may_skip=may_skip)
        stream.cursor = int(str(one["$seq"]))
