"""The glide-mq door without a socket: sessions over a yard in memory, on a clock tests move.

`BareGlidemq` is the door of one boot, on a storage in memory if a next boot reads its records
back. redis-py parses the answers; errors are its exceptions.
"""

from collections import deque
from typing import Any, Final

from jobyard.engine.jobs.tick import tick
from jobyard.journal.storage import Storage
from jobyard.model.secrets import digest_of
from jobyard.protocols.glidemq.door import GlidemqDoor, GlidemqFacts
from jobyard.protocols.glidemq.entrance import GlidemqEntrance
from tests.support.bare_bunqueue import Ears, Resumable
from tests.support.memory_storage import MemoryStorage
from tests.support.resp import pack, unpack
from tests.support.yards import NOW_MS, OpenYard

SEGMENT_SIZE: Final = 1 << 20


class FixedFacts(GlidemqFacts):
    """A process that never changes."""

    def pid(self) -> int:
        return 42

    def port(self) -> int:
        return 6379

    def memory_bytes(self) -> int:
        return 50 << 20

    def cpu_times(self) -> tuple[float, float]:
        return 1.5, 0.5

    def machine(self) -> tuple[str, str, str]:
        return "host", "Linux 6", "x86_64"

    def run_id(self) -> str:
        return "f" * 40


class BareClient:
    """One connection."""

    def __init__(self, site: "BareGlidemq") -> None:
        self._site = site
        self.session = site.entrance.enter(Ears(site.woken, self))
        self.proto = 2
        self._out = b""

    def send(self, *arguments: object) -> None:
        """Send a command."""
        self.send_raw(pack(*arguments))

    def send_raw(self, data: bytes) -> None:
        """Send bytes."""
        self.session.receive(data, self._site.now_ms)
        self._out += self.session.take_output()
        self._site.settle()

    def resume(self) -> None:
        """Resume the session."""
        self.session.resume(self._site.now_ms)
        self._out += self.session.take_output()

    def take_raw(self) -> bytes:
        """Return the bytes that have come, once."""
        out, self._out = self._out, b""
        return out

    def hear(self) -> list[Any]:
        """Return all answers that have come, once."""
        return unpack(self.take_raw(), self.proto)

    def ask(self, *arguments: object) -> Any:
        """Send a command that is answered at once; return the answer."""
        self.send(*arguments)
        answers = self.hear()
        assert len(answers) == 1, f"{arguments}: {answers}"
        return answers[0]

    def refused(self, *arguments: object) -> str:
        """Send a command that must be refused; return the error as it was sent."""
        self.send(*arguments)
        raw = self.take_raw()
        assert raw.startswith(b"-"), f"{arguments}: {raw!r}"
        assert raw.count(b"\r\n") == 1
        return raw[1:-2].decode()

    def speak(self, proto: int) -> None:
        """Change the protocol version."""
        self.send("HELLO", proto)
        self.proto = proto
        self.hear()

    def close(self) -> None:
        """Close the connection."""
        self.session.closed(self._site.now_ms)


class BareGlidemq:
    """Yard and door of one boot."""

    def __init__(
        self,
        storage: Storage | None = None,
        now_ms: int = NOW_MS,
        *,
        password: bytes = b"",
        segment_size: int = SEGMENT_SIZE,
        budget: int = 1 << 30,
        site: OpenYard | None = None,
        window: tuple[int, int] = (0, 0),
    ) -> None:
        self.window = window
        if site is None:
            site = OpenYard(
                storage, now_ms, segment_size=segment_size, budget=budget, window=window
            )
        self.site = site
        self.yard = self.site.yard
        self.now_ms = now_ms
        self.door = GlidemqDoor(self.yard, FixedFacts(), now_ms)
        self.door.password = digest_of(password) if password else b""
        self.entrance = GlidemqEntrance(self.door)
        self.woken: deque[Resumable] = deque()
        # Long work continues only by `slice`.
        self.is_slow = False

    def connect(self) -> BareClient:
        """Open a connection."""
        return BareClient(self)

    def settle(self) -> None:
        """Resume woken sessions until none is left, and run long work to its end."""
        is_left = True
        while is_left:
            is_left = not self.is_slow and bool(self.yard.tasks.proceed(self.now_ms))
            while self.woken:
                self.woken.popleft().resume()

    def slice(self) -> bool:
        """End a turn, with one slice of long work; return whether work is left."""
        self.yard.tasks.proceed(self.now_ms)
        self.settle()
        return self.yard.tasks.count() > 0

    def tick(self, ms: int) -> None:
        """Move the clock from timer to timer up to `ms` later."""
        until_ms = self.now_ms + ms
        while True:
            due_ms = int(tick(self.yard, self.now_ms))
            self.settle()
            if self.now_ms >= until_ms and due_ms > until_ms:
                return
            self.now_ms = max(self.now_ms, min(due_ms, until_ms))

    def reboot(self, ms: int = 0) -> "BareGlidemq":
        """Return the next boot `ms` later, on the disk after everything was written."""
        self.site.commit()
        assert isinstance(self.site.storage, MemoryStorage)
        return BareGlidemq(self.site.storage.killed(), self.now_ms + ms, window=self.window)
