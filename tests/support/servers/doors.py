"""One server with four doors, and a client of each that has the same verbs.

A job is put, taken, finished, failed, given up, revived and inspected with the same verbs at every
door, so that a test can put at one door and take at another. Each verb sends what a worker of that
protocol would send and nothing more; differences between doors are shown, not hidden: ids,
states and payloads are those of the door.
"""

import itertools
import json
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import redis

from tests.support.servers.bunqueue import Client
from tests.support.servers.http import Topics
from tests.support.servers.patience import PATIENCE_S
from tests.support.servers.processes import DOORS, start_doors
from tests.support.servers.sockets import SocketPeer, connect

LETTERS: Final = "BNGT"
WAIT_S: Final = 10
WORKERS: Final = "workers"


@dataclass
class Taken:
    """A taken job, as it was shown when it was taken.

    `data` is bytes at doors that return bytes (B, G), a value at the others. `proof` ends the lease
    together with the id: a token (N), an entry (G), a lease id (T).
    """

    queue: str
    id: str
    data: Any
    proof: str = ""
    shown: dict[str, Any] = field(default_factory=dict)


@dataclass
class Seen:
    """A job as a door shows it; `state` is in the words of the door.

    If a door finds nothing the state is "NOT_FOUND" (B), "unknown" (N), "" (G, T).
    """

    state: str
    fields: dict[str, Any] = field(default_factory=dict)


class Door(ABC):
    """One connection of a client of one protocol."""

    letter: str
    # Whether `give_up` needs a job that the client holds; otherwise one that is not held.
    gives_up_held: bool = True

    @abstractmethod
    def put(
        self,
        queue: str,
        data: object = None,
        *,
        rank: int | None = None,
        delay_ms: int = 0,
        attempts: int = 0,
        backoff_ms: int = 0,
        **own: Any,
    ) -> str:
        """Put a job; return its id at this door.

        Bytes are sent unchanged, any other value in the door's encoding. A lower `rank` is
        first at every door. `attempts` and `backoff_ms` are for doors that have them.
        """

    @abstractmethod
    def take(self, queue: str, wait_s: int = WAIT_S) -> Taken | None:
        """Take a job that exists, or comes within the time."""

    @abstractmethod
    def finish(self, taken: Taken, result: object = None) -> object:
        """Complete a run, with a result at doors that have results; return the answer."""

    @abstractmethod
    def fail(self, taken: Taken, delay_ms: int | None = None, error: str = "no") -> object:
        """Fail a run, with a delay at doors that accept one; return the answer."""

    @abstractmethod
    def give_up(self, queue: str, job_id: str) -> object:
        """Stop a job from being retried; return the answer."""

    @abstractmethod
    def revive(self, queue: str, job_id: str) -> object:
        """Revive a dead job, or all if the door has no verb for one; return the answer."""

    @abstractmethod
    def inspect(self, queue: str, job_id: str) -> Seen:
        """Return a job as the door shows it."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""

    def must_take(self, queue: str, wait_s: int = WAIT_S) -> Taken:
        """Take a job, which must exist or come."""
        taken = self.take(queue, wait_s)
        assert taken is not None, f"{self.letter} found no job in {queue}"
        return taken

    def is_empty(self, queue: str) -> bool:
        """Return whether there is nothing to take right now."""
        return self.take(queue, 0) is None


class Beanstalk(Door):
    """Text over TCP."""

    letter = "B"

    def __init__(self, address: tuple[str, int]) -> None:
        self.peer: SocketPeer = connect(address)
        self._used = "default"
        self._watched = "default"

    def ask(self, line: str) -> bytes:
        """Send a line and return the answer without its last line break."""
        return self.peer.ask(line.encode()).removesuffix(b"\r\n")

    def use(self, queue: str) -> None:
        if queue != self._used:
            assert self.ask(f"use {queue}") == f"USING {queue}".encode()
            self._used = queue

    def watch(self, queue: str) -> None:
        """Watch one tube and no other."""
        if queue != self._watched:
            assert self.ask(f"watch {queue}") == b"WATCHING 2"
            assert self.ask(f"ignore {self._watched}") == b"WATCHING 1"
            self._watched = queue

    def put(
        self,
        queue: str,
        data: object = None,
        *,
        rank: int | None = None,
        delay_ms: int = 0,
        attempts: int = 0,  # noqa: ARG002  this door knows none
        backoff_ms: int = 0,  # noqa: ARG002  this door knows none
        **own: Any,
    ) -> str:
        self.use(queue)
        body = _bytes_of(data)
        ttr = own.pop("ttr", 60)
        assert not own, own
        head = f"put {rank or 0} {delay_ms // 1000} {ttr} {len(body)}\r\n"
        self.peer.send(head.encode() + body + b"\r\n")
        word, _, number = self.peer.read_line().decode().strip().partition(" ")
        assert word == "INSERTED", (word, number)
        return number

    def take(self, queue: str, wait_s: int = WAIT_S) -> Taken | None:
        self.watch(queue)
        answer = self.ask(f"reserve-with-timeout {wait_s}")
        head, _, body = answer.partition(b"\r\n")
        if head == b"TIMED_OUT":
            return None
        assert head.startswith(b"RESERVED "), head
        return Taken(queue, head.split()[1].decode(), body)

    def finish(self, taken: Taken, result: object = None) -> bytes:  # noqa: ARG002
        return self.ask(f"delete {taken.id}")

    def fail(self, taken: Taken, delay_ms: int | None = None, error: str = "no") -> bytes:  # noqa: ARG002
        return self.ask(f"release {taken.id} 9 {(delay_ms or 0) // 1000}")

    def give_up(self, queue: str, job_id: str) -> bytes:  # noqa: ARG002  ids are of all tubes
        return self.ask(f"bury {job_id} 9")

    def revive(self, queue: str, job_id: str) -> bytes:  # noqa: ARG002  ids are of all tubes
        return self.ask(f"kick-job {job_id}")

    def inspect(self, queue: str, job_id: str) -> Seen:  # noqa: ARG002  ids are of all tubes
        return self._seen(self.ask(f"stats-job {job_id}"))

    def counts(self, queue: str) -> dict[str, str]:
        """Return the values of `stats-tube`."""
        return self._seen(self.ask(f"stats-tube {queue}")).fields

    def close(self) -> None:
        self.peer.close()

    @staticmethod
    def _seen(answer: bytes) -> Seen:
        head, _, text = answer.decode().partition("\r\n")
        if not head.startswith("OK "):
            return Seen(head)
        pairs = [line.partition(": ") for line in text.splitlines() if ": " in line]
        fields = {name: value.strip('"') for name, _, value in pairs}
        return Seen(fields.get("state", ""), fields)


class Bunqueue(Door):
    """MessagePack over TCP."""

    letter = "N"

    def __init__(self, address: tuple[str, int]) -> None:
        self.client = Client(address)

    def put(
        self,
        queue: str,
        data: object = None,
        *,
        rank: int | None = None,
        delay_ms: int = 0,
        attempts: int = 0,
        backoff_ms: int = 0,
        **own: Any,
    ) -> str:
        if rank is not None:
            own["priority"] = -rank
        if delay_ms:
            own["delay"] = delay_ms
        if attempts:
            own["maxAttempts"] = attempts
            own["backoff"] = {"type": "fixed", "delay": backoff_ms}
        answer = self.client.ok("PUSH", queue=queue, data=data, **own)
        return str(answer["id"])

    def take(self, queue: str, wait_s: int = WAIT_S, **own: Any) -> Taken | None:
        answer = self.client.ok("PULL", queue=queue, timeout=wait_s * 1000, **own)
        job = answer["job"]
        if job is None:
            return None
        return Taken(queue, job["id"], job.get("data"), answer.get("token") or "", job)

    def finish(self, taken: Taken, result: object = None) -> dict[str, Any]:
        return self.client.ask("ACK", id=taken.id, result=result, **self._proof(taken))

    def fail(
        self,
        taken: Taken,
        delay_ms: int | None = None,  # noqa: ARG002  this door names none
        error: str = "no",
    ) -> dict[str, Any]:
        return self.client.ask("FAIL", id=taken.id, error=error, **self._proof(taken))

    @staticmethod
    def _proof(taken: Taken) -> dict[str, str]:
        return {"token": taken.proof} if taken.proof else {}

    def give_up(self, queue: str, job_id: str) -> dict[str, Any]:  # noqa: ARG002  ids are of all
        return self.client.ask("Discard", id=job_id)

    def revive(self, queue: str, job_id: str) -> dict[str, Any]:
        return self.client.ask("RetryDlq", queue=queue, jobId=job_id)

    def inspect(self, queue: str, job_id: str) -> Seen:  # noqa: ARG002  ids are of all queues
        state = self.client.state(job_id)
        answer = self.client.ask("GetJob", id=job_id)
        return Seen(state, answer.get("job") or {})

    def result(self, job_id: str) -> Any:
        """Return the result of a job."""
        return self.client.ok("GetResult", id=job_id).get("result")

    def ids(self, queue: str) -> list[str]:
        """Return the ids of all jobs of a queue, in any state."""
        return [str(job["id"]) for job in self.client.ok("GetJobs", queue=queue)["jobs"]]

    def counts(self, queue: str) -> dict[str, int]:
        """Return how many jobs there are by state."""
        counts: dict[str, int] = self.client.ok("GetJobCounts", queue=queue)["counts"]
        return counts

    def close(self) -> None:
        self.client.close()


class Glide(Door):
    """RESP, with the functions of the library."""

    letter = "G"
    gives_up_held = False

    def __init__(self, address: tuple[str, int]) -> None:
        host, port = address
        self.client: Any = redis.Redis(host=host, port=port, socket_timeout=PATIENCE_S)

    @staticmethod
    def key(queue: str, part: str) -> str:
        return f"glide:{{{queue}}}:{part}"

    def call(self, name: str, queue: str, parts: list[str], *arguments: object) -> Any:
        """Call a function of the library."""
        keys = [self.key(queue, part) for part in parts]
        return self.client.fcall(f"glidemq_{name}", len(keys), *keys, *map(_plain, arguments))

    def put(
        self,
        queue: str,
        data: object = None,
        *,
        rank: int | None = None,
        delay_ms: int = 0,
        attempts: int = 0,
        backoff_ms: int = 0,
        **own: Any,
    ) -> str:
        opts: dict[str, object] = {}
        if attempts:
            opts = {"attempts": attempts, "backoff": {"type": "fixed", "delay": backoff_ms}}
        given: dict[str, object] = {
            "name": "mail", "data": _bytes_of(data), "opts": json.dumps(opts), "ts": now(),
            "delay": delay_ms, "priority": rank or 0, "parent": "", "attempts": attempts,
            "key": "", "concurrency": 0, "rate_max": 0, "rate_ms": 0, "capacity": 0, "refill": 0,
            "cost": 0, "ttl": 0, "custom": "",
        }  # fmt: skip
        given.update(own)
        parts = ["id", "stream", "scheduled", "events"]
        made = self.call("addJob", queue, parts, *given.values())
        return str(made.decode())

    def take(self, queue: str, wait_s: int = WAIT_S, consumer: str = "w1") -> Taken | None:
        """Promote, then take from the lists, then from the stream, as a worker does."""
        self.call("promote", queue, ["scheduled", "stream", "events"], now())
        for job_id in self.call("popLists", queue, ["priority", "lifo"], 1):
            return self.begin(queue, job_id.decode(), "")
        stream = self.key(queue, "stream")
        block = wait_s * 1000 if wait_s else None
        answer = self.client.xreadgroup(WORKERS, consumer, {stream: ">"}, count=1, block=block)
        if not answer:
            return None
        [(entry, fields)] = answer[0][1]
        return self.begin(queue, fields[b"jobId"].decode(), entry.decode())

    def begin(self, queue: str, job_id: str, entry: str) -> Taken:
        """Start the job that was read."""
        parts = [f"job:{job_id}"] if not entry else [f"job:{job_id}", "stream"]
        more = [] if not entry else [entry, WORKERS, job_id]
        flat = self.call("moveToActive", queue, parts, now(), *more)
        assert isinstance(flat, list), flat
        shown = _hash_of(dict(zip(flat[::2], flat[1::2], strict=True)))
        return Taken(queue, job_id, shown.pop("data"), entry, shown)

    def finish(self, taken: Taken, result: object = None) -> Any:
        parts = ["stream", "completed", "events", f"job:{taken.id}", "metrics:completed"]
        value = json.dumps(result)
        given = (taken.id, taken.proof, value, now(), WORKERS, 0, 0, 0)
        return self.call("complete", taken.queue, parts, *given)

    def fail(
        self, taken: Taken, delay_ms: int | None = None, error: str = "no", attempts: int = 0
    ) -> bytes:
        """Fail with the attempts a worker names; by default those of the job."""
        parts = ["stream", "failed", "scheduled", "events", f"job:{taken.id}", "metrics:failed"]
        most = attempts or int(taken.shown.get("maxAttempts", 0))
        given = (taken.id, taken.proof, error, now(), most, delay_ms or 0, WORKERS, 0, 0, 0)
        answer: bytes = self.call("fail", taken.queue, parts, *given)
        return answer

    def give_up(self, queue: str, job_id: str) -> bytes:
        parts = [f"job:{job_id}", "stream", "scheduled", "failed", "events"]
        answer: bytes = self.call("revoke", queue, parts, job_id, now(), WORKERS)
        return answer

    def revive(self, queue: str, job_id: str) -> int:  # noqa: ARG002  all are brought back
        parts = ["failed", "scheduled", "events", "id"]
        return int(self.call("retryJobs", queue, parts, 0, now()))

    def inspect(self, queue: str, job_id: str) -> Seen:
        fields = _hash_of(self.client.hgetall(self.key(queue, f"job:{job_id}")))
        return Seen(fields.get("state", ""), fields)

    def counts(self, queue: str) -> dict[str, int]:
        """Return how many jobs there are, as clients count them."""
        pending = self.client.xpending(self.key(queue, "stream"), WORKERS)["pending"]
        listed = int(self.client.get(self.key(queue, "list-active")) or 0)
        return {
            "waiting": self.client.xlen(self.key(queue, "stream")) - pending,
            "active": pending + listed,
            "scheduled": self.client.zcard(self.key(queue, "scheduled")),
            "completed": self.client.zcard(self.key(queue, "completed")),
            "failed": self.client.zcard(self.key(queue, "failed")),
        }

    def close(self) -> None:
        self.client.close()


class TopicsDoor(Door):
    """JSON over HTTP."""

    letter = "T"

    def __init__(self, address: tuple[str, int], node: str = "w1") -> None:
        self.client = Topics(address)
        self.node = node

    def ask(self, queue: str, action: str = "", body: object = None, method: str = "POST") -> Any:
        """Send a request to a topic, which must succeed."""
        status, answer = self.client.ask(method, f"/v0/topics/{queue}{action}", body)
        assert status < 300, (status, answer)
        return answer

    def refused(self, queue: str, action: str = "", body: object = None) -> tuple[int, str]:
        """Send a request that must be refused; return status and code."""
        status, answer = self.client.ask("POST", f"/v0/topics/{queue}{action}", body)
        assert status >= 400, (status, answer)
        return status, answer["code"] if "code" in answer else answer["error"]["code"]

    def make(self, queue: str, **config: object) -> None:
        """Create or configure a queue."""
        self.ask(queue, "", {"type": "queue", **config}, "PUT")

    def put(
        self,
        queue: str,
        data: object = None,
        *,
        rank: int | None = None,
        delay_ms: int = 0,
        attempts: int = 0,  # noqa: ARG002  this door knows none
        backoff_ms: int = 0,  # noqa: ARG002  this door knows none
        **own: Any,
    ) -> str:
        """Write one record; create the topic as a queue if needed. Bytes are JSON."""
        if self.client.ask("GET", f"/v0/topics/{queue}")[0] == 404:
            self.make(queue)
        if rank is not None:
            own["priority"] = -rank
        if delay_ms:
            own["delay_ms"] = delay_ms
        more = json.dumps(own)[1:-1]
        record = b'{"data":' + _bytes_of(data) + b"," * bool(more) + more.encode() + b"}"
        answer = self.ask(queue, "", b'{"records":[' + record + b"]}")
        return str(answer["seqs"][0])

    def take(self, queue: str, wait_s: int = WAIT_S, **own: Any) -> Taken | None:
        # A queue is a topic once it had a job; before that the door answers that there is none.
        body = {"node": self.node, "wait_ms": wait_s * 1000, **own}
        for job in self.ask(queue, "/claim", body)["claimed"]:
            return Taken(queue, str(job["$seq"]), job.get("data"), str(job["lease_id"]), job)
        return None

    def _held(self, taken: Taken, **own: Any) -> dict[str, Any]:
        seqs = [int(taken.id)]
        return {"node": self.node, "seqs": seqs, "lease_ids": [taken.proof], **own}

    def finish(self, taken: Taken, result: object = None) -> Any:  # noqa: ARG002
        return self.ask(taken.queue, "/ack", self._held(taken))

    def fail(self, taken: Taken, delay_ms: int | None = None, error: str = "no") -> Any:  # noqa: ARG002
        own = {} if delay_ms is None else {"delay_ms": delay_ms}
        return self.ask(taken.queue, "/nack", self._held(taken, **own))

    def give_up(self, queue: str, job_id: str) -> Any:
        body = {"node": self.node, "seqs": [int(job_id)]}
        return self.ask(queue, "/dead-letter", body)

    def revive(self, queue: str, job_id: str) -> Any:  # noqa: ARG002  all are brought back
        return self.ask(queue, "/redrive", {})

    def inspect(self, queue: str, job_id: str) -> Seen:
        """Find the job among the records of the topic; this door shows no states."""
        for record in self.records(queue):
            if record["$seq"] == int(job_id):
                return Seen("shown", record)
        return Seen("")

    def records(self, queue: str) -> list[dict[str, Any]]:
        """Return all records that readers of the topic see."""
        found: list[dict[str, Any]] = self.ask(queue, "/diff", {"from_seq": 0})["records"]
        return found

    def counts(self, queue: str) -> dict[str, int]:
        """Return `count` and the counts of the queue."""
        state = self.ask(queue, method="GET")
        return {"count": state["count"], **state["queue"]}

    def close(self) -> None:
        self.client.close()


D = TypeVar("D", bound=Door)


class FourDoors:
    """`jobyard serve` with every door on a free port."""

    def __init__(self, *flags: str) -> None:
        self._numbers = itertools.count(1)
        self.process, self.addresses = start_doors(DOORS, *flags)
        self._open: list[Door] = []
        self.b = self.beanstalk()
        self.n = self.bunqueue()
        self.g = self.glide()
        self.t = self.topics()

    def beanstalk(self) -> Beanstalk:
        """Open one more connection."""
        return self._opened(Beanstalk(self.addresses["beanstalk"]))

    def bunqueue(self) -> Bunqueue:
        """Open one more connection."""
        return self._opened(Bunqueue(self.addresses["bunqueue"]))

    def glide(self) -> Glide:
        """Open one more connection."""
        return self._opened(Glide(self.addresses["glidemq"]))

    def topics(self, node: str = "w1") -> TopicsDoor:
        """Open one more connection."""
        return self._opened(TopicsDoor(self.addresses["http"], node))

    def _opened(self, door: D) -> D:
        self._open.append(door)
        return door

    def door(self, letter: str) -> Door:
        """Return a door by its letter."""
        doors: dict[str, Door] = {"B": self.b, "N": self.n, "G": self.g, "T": self.t}
        return doors[letter]

    def queue(self) -> str:
        """Return a queue name that no other test uses and every door accepts."""
        return f"q{next(self._numbers)}"

    def close(self) -> None:
        """End the server."""
        for door in self._open:
            door.close()
        self.process.close()


def now() -> int:
    """Return the wall time of a client."""
    return int(time.time() * 1000)


def number_of(uuid: str) -> str:
    """Return the beanstalk id that a bunqueue job id contains."""
    bits = int(uuid.replace("-", ""), 16)
    low = bits & ((1 << 62) - 1)
    return str((bits >> 64 & 0xFFF) << 52 | low >> 10)


def _bytes_of(data: object) -> bytes:
    if isinstance(data, bytes):
        return data
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False).encode()


def _plain(argument: object) -> bytes | str:
    return argument if isinstance(argument, bytes) else str(argument)


def _hash_of(answer: dict[bytes, bytes]) -> dict[str, Any]:
    """Return a hash with text values, except data, which may be any bytes."""
    return {
        name.decode(): value if name == b"data" else value.decode()
        for name, value in answer.items()
    }
