"""The bunqueue door without a socket: sessions over a yard in memory, on a clock tests move.

`BareBunqueue` is the door of one boot, on a storage in memory if a next boot reads its records
back. Its clients send whole commands; a later answer is fetched with `hear`.
Time moves from one due timer to the next, so that each timer fires at its exact time.
"""

from collections import deque
from typing import Any, Final, Protocol

from jobyard.engine.jobs.tick import tick
from jobyard.journal.storage import Storage
from jobyard.model.job import Job
from jobyard.protocols.bunqueue.door import BunqueueDoor, Environment
from jobyard.protocols.bunqueue.entrance import BunqueueEntrance
from jobyard.protocols.bunqueue.ids import find_job
from jobyard.protocols.session import Peer
from tests.support.bunqueue import frame, pack, unpack
from tests.support.memory_storage import MemoryStorage
from tests.support.yards import NOW_MS, OpenYard, recount

# Tests know the types of the values in an answer.
Answer = dict[str, Any]

EMPTY: Final[Answer] = {}


class StillLife(Environment):
    """A process that never changes, with a healthy disk; keeps webhook posts."""

    def __init__(self) -> None:
        self.posts: list[tuple[str, str, str, str, bytes]] = []
        self.forgotten: list[str] = []
        self.outcomes: list[tuple[str, bool, int]] = []
        self.error = ""
        self.error_since_ms = 0

    def memory_mb(self) -> float:
        """Return a size."""
        return 12.5

    def cpu_s(self) -> float:
        """Return a time."""
        return 1.5

    def disk_error(self) -> str:
        """Return the error that the test has set, if any."""
        return self.error

    def disk_error_since_ms(self) -> int:
        """Return when that began."""
        return self.error_since_ms

    def forget(self, webhook_id: str) -> None:
        """Remember it."""
        self.forgotten.append(webhook_id)

    def take_outcomes(self) -> list[tuple[str, bool, int]]:
        """Return the outcomes of posts that the test has set, once."""
        taken, self.outcomes = self.outcomes, []
        return taken

    def post(self, webhook_id: str, url: str, secret: str, event: str, body: bytes) -> None:
        """Keep the post."""
        self.posts.append((webhook_id, url, secret, event, body))


class Resumable(Protocol):
    """A connection without a socket."""

    def resume(self) -> None:
        """Resume the session."""


class Ears(Peer):
    """Notes that its session has output or can continue."""

    def __init__(self, wake: deque[Resumable], owner: Resumable) -> None:
        self._woken = wake
        self._owner = owner

    def wake(self) -> None:
        """Queue the session for a later call; it is never called from within."""
        self._woken.append(self._owner)


class BareClient:
    """One connection. The answer to a command is found by its number."""

    def __init__(self, site: "BareBunqueue") -> None:
        self._site = site
        self.session = site.entrance.enter(Ears(site.woken, self))
        self._unread = b""
        self._asked = 0
        self._answers: dict[str, Answer] = {}
        self.events: list[Answer] = []
        self._is_open = True

    def send(self, cmd: str, **fields: object) -> str:
        """Send a command; return the number of its answer."""
        self._asked += 1
        number = str(self._asked)
        command = pack({"cmd": cmd, **fields, "reqId": number})
        self.session.receive(frame(command), self._site.now_ms)
        self.collect()
        self._site.settle()
        return number

    def collect(self) -> None:
        """Parse the session's output."""
        self._unread += self.session.take_output()
        while len(self._unread) >= 4:
            end = 4 + int.from_bytes(self._unread[:4], "big")
            answer = unpack(self._unread[4:end])
            self._unread = self._unread[end:]
            assert isinstance(answer, dict)
            if "ok" in answer:
                self._answers[str(answer.pop("reqId"))] = answer
            else:
                self.events.append(answer["event"])

    def resume(self) -> None:
        """Resume the session, as a connection does once it was woken."""
        if self._is_open:
            self.session.resume(self._site.now_ms)
            self.collect()

    def hear(self, number: str) -> Answer | None:
        """Return an answer if it has come."""
        return self._answers.pop(number, None)

    def ask(self, cmd: str, **fields: object) -> Answer:
        """Send a command that is answered at once; return the answer."""
        answer = self.hear(self.send(cmd, **fields))
        assert answer is not None, f"no answer to {cmd} {fields}"
        return answer

    def ok(self, cmd: str, **fields: object) -> Answer:
        """Send a request that must succeed; return the answer without `ok`."""
        answer = self.ask(cmd, **fields)
        assert answer.pop("ok") is True, f"{cmd} {fields}: {answer}"
        return answer

    def refused(self, cmd: str, **fields: object) -> str:
        """Send a command that must be refused; return the reason."""
        answer = self.ask(cmd, **fields)
        assert answer.pop("ok") is False, f"{cmd} {fields}: {answer}"
        error = answer.pop("error")
        assert answer == EMPTY
        assert isinstance(error, str)
        return error

    def push(self, queue: str = "q", data: object = None, **fields: object) -> str:
        """Add a job; return its id."""
        return str(self.ok("PUSH", queue=queue, data=data, **fields)["id"])

    def pull(self, queue: str = "q", **fields: object) -> Answer:
        """Take a job that must be there."""
        job: Answer | None = self.ok("PULL", queue=queue, **fields)["job"]
        assert job is not None, f"{queue} has no job to give"
        return job

    def lock(self, queue: str = "q", **fields: object) -> tuple[str, str]:
        """Take a job with a lock; return its id and the token."""
        answer = self.ok("PULL", queue=queue, owner="me", **fields)
        assert answer["job"] is not None, f"{queue} has no job to give"
        return answer["job"]["id"], answer["token"]

    def finish(self, queue: str = "q", data: object = None, **fields: object) -> str:
        """Add a job to an empty queue and complete it; return its id."""
        result = {"result": fields.pop("result")} if "result" in fields else {}
        job_id = self.push(queue, data, **fields)
        assert self.pull(queue)["id"] == job_id
        self.ok("ACK", id=job_id, **result)
        return job_id

    def bury(self, queue: str = "q", data: object = None, **fields: object) -> str:
        """Add a job to an empty queue and fail it for good; return its id."""
        job_id = self.push(queue, data, **fields)
        assert self.pull(queue)["id"] == job_id
        self.ok("FAIL", id=job_id, error="no", unrecoverable=True)
        return job_id

    def state(self, job_id: str) -> str:
        """Return the state of a job."""
        return str(self.ok("GetState", id=job_id)["state"])

    def close(self) -> None:
        """Close the connection."""
        self._is_open = False
        self.session.closed(self._site.now_ms)
        self._site.settle()


class BareBunqueue:
    """Yard and door of one boot."""

    def __init__(
        self,
        storage: Storage | None = None,
        now_ms: int = NOW_MS,
        window: tuple[int, int] = (0, 0),
        *,
        ids_ahead: bool = False,
    ) -> None:
        self.site = OpenYard(
            storage, now_ms, segment_size=1 << 20, ids_ahead=ids_ahead, window=window
        )
        self.yard = self.site.yard
        self.now_ms = now_ms
        self.life = StillLife()
        self.door = BunqueueDoor(self.yard, self.life, now_ms)
        self.entrance = BunqueueEntrance(self.door)
        self.woken: deque[Resumable] = deque()
        # Long work continues only by `slice`.
        self.is_slow = False

    def connect(self) -> BareClient:
        """Open a connection."""
        return BareClient(self)

    def job(self, job_id: str) -> Job:
        """Return a job of the engine, which must exist."""
        job = find_job(self.yard, job_id.encode())
        assert job is not None, f"no job {job_id}"
        return job

    def settle(self) -> None:
        """Resume woken sessions until none is left, and run long work to its end."""
        is_left = True
        while is_left:
            is_left = not self.is_slow and bool(self.yard.tasks.proceed(self.now_ms))
            while self.woken:
                self.woken.popleft().resume()

    def slice(self) -> bool:
        """End a turn, with one slice of long work; return whether work is left."""
        is_left = bool(self.yard.tasks.proceed(self.now_ms))
        self.settle()
        return is_left

    def tick(self, ms: int) -> None:
        """Move the clock from timer to timer up to `ms` later."""
        until_ms = self.now_ms + ms
        while True:
            due_ms = int(tick(self.yard, self.now_ms))
            self.settle()
            if self.now_ms >= until_ms and due_ms > until_ms:
                return
            self.now_ms = max(self.now_ms, min(due_ms, until_ms))

    def check(self) -> None:
        """Check every index and counter against the jobs."""
        recount(self.yard)

    def reboot(self, ms: int = 0) -> "BareBunqueue":
        """Return the next boot `ms` later, on the disk after everything was written."""
        self.site.commit()
        assert isinstance(self.site.storage, MemoryStorage)
        return BareBunqueue(self.site.storage.killed(), self.now_ms + ms)
