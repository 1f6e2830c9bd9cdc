"""A committer over a disk in memory, with a worker that runs only when a test says so."""

from collections import deque
from collections.abc import Callable

from jobyard.journal.outgoing import LONG_BATCH
from jobyard.journal.reply_gate import Gate, Outbox, Sink
from jobyard.server.committer import SYNC, Committer, WorkerThread
from tests.support.site.site import NOW_MS, SEGMENT_SIZE
from tests.support.site.storage import MemoryStorage
from tests.support.site.yard import OpenYard

INTERVAL_MS = 50
QUICK_S = 0.00001
SLOW_S = 0.005
LARGE = b"x" * (LONG_BATCH + 1)
# Room for several batches.
LARGE_SEGMENT = 16 * LONG_BATCH


class SlowStorage(MemoryStorage):
    """A disk in memory whose syncs take time, and whose spare files are filled in pieces."""

    def __init__(self) -> None:
        super().__init__()
        self.sync_s = QUICK_S
        self.now_s = 0.0
        self.fills: list[str] = []

    def sync(self, name: str) -> None:
        self.now_s += self.sync_s
        super().sync(name)

    def write_apart(self, name: str, offset: int, pieces: list[bytes]) -> None:
        self.write(name, offset, b"".join(pieces))

    def fill(self, name: str, offset: int) -> int:
        self.fills.append(f"{name} {offset}")
        return offset + 1 if offset < 2 else -1


class HandWorker(WorkerThread):
    """A worker without a thread: tests run its tasks."""

    def __init__(self) -> None:
        self.waiting: deque[Callable[[], Callable[[], None]]] = deque()
        self._finished: deque[Callable[[], None]] = deque()

    def submit(self, task: Callable[[], Callable[[], None]]) -> None:
        self.waiting.append(task)

    def work(self) -> None:
        """Run the first task, as the thread would."""
        self._finished.append(self.waiting.popleft()())

    def collect(self) -> None:
        while self._finished:
            self._finished.popleft()()

    def work_all(self) -> None:
        """Run tasks and their callbacks on the loop until nothing is left."""
        while self.waiting:
            self.work()
            self.collect()

    def stop(self) -> None:
        while self.waiting:
            self.work()


class Heard(Sink):
    """Receives the answers."""

    def __init__(self) -> None:
        self.data = b""

    def deliver(self, data: bytes) -> None:
        self.data += data


class Desk:
    """A committer over a disk in memory, and one client whose answers it holds."""

    def __init__(self, durability: str = SYNC, segment_size: int = SEGMENT_SIZE) -> None:
        self.storage = SlowStorage()
        self.site = OpenYard(
            self.storage,
            segment_size=segment_size,
            ids_ahead=durability != SYNC,
            job_size_max=len(LARGE),
        )
        self.journal = self.site.journal
        self.gate = Gate()
        self.gate.safe = self.journal.durable
        self.worker = HandWorker()
        self.committer = Committer(
            self.site.yard,
            self.gate,
            self.storage,  # type: ignore[arg-type]  # has the parts of FileStorage that are used
            self.worker,
            durability,
            INTERVAL_MS,
        )
        self.committer.clock = lambda: self.storage.now_s
        self.client = self.site.connect()
        self.heard = Heard()
        self.outbox = Outbox(self.gate, self.heard)
        self.make_spares()
        self.storage.calls.clear()

    def make_spares(self) -> None:
        """Create all spare files, so that only commits are left to do."""
        while True:
            self.committer.turn(NOW_MS)
            if not self.worker.waiting:
                break
            self.worker.work_all()

    def say(self, data: bytes) -> None:
        """Run a command and pass its answer to the gate, as a connection does."""
        self.client.session.receive(data, NOW_MS)
        session = self.client.session
        session.await_synced(self.journal.take_command_sync_batch())
        session.hand_output(self.outbox)

    def put(self, body: bytes = b"x") -> None:
        self.say(b"put 0 0 60 %d\r\n" % len(body) + body + b"\r\n")

    def stored_body(self, job_id: int) -> bytes:
        """Return a body as the journal has it."""
        job = self.site.yard.jobs.get(job_id)
        assert job is not None
        place = int(job.place)
        return self.journal.read(place >> 32, place & 0xFFFFFFFF, int(job.size))

    def is_full(self) -> bool:
        return self.journal.is_full

    def take_calls(self) -> list[str]:
        """Return the kinds of disk calls made since the last call."""
        calls = [call.split()[0] for call in self.storage.calls]
        self.storage.calls.clear()
        return calls

    def slow_down(self) -> None:
        """Make the disk appear slow, so that the committer syncs in the thread."""
        self.storage.sync_s = SLOW_S
        self.put()
        self.committer.turn(NOW_MS)
        self.worker.work_all()
        self.storage.sync_s = QUICK_S
        self.heard.data = b""
        self.storage.calls.clear()
