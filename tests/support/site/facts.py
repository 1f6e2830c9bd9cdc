"""What doors ask of their process, always answered the same: machines that never change."""

from jobyard.protocols.beanstalk.door import BeanstalkFacts
from jobyard.protocols.bunqueue.door import Environment
from jobyard.protocols.glidemq.door import GlidemqFacts
from jobyard.protocols.topics.door import RandomSource


class BeanstalkMachine(BeanstalkFacts):
    """The process behind a beanstalk door."""

    def pid(self) -> int:
        return 4711

    def cpu_times(self) -> tuple[float, float]:
        return 1.25, 0.5

    def machine(self) -> tuple[str, str, str]:
        return "yard", "#1 SMP", "x86_64"

    def instance_id(self) -> str:
        return "0123456789abcdef"


class GlidemqMachine(GlidemqFacts):
    """The process behind a glide-mq door."""

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


class StillLife(Environment):
    """The process behind a bunqueue door, with a healthy disk; keeps webhook posts."""

    def __init__(self) -> None:
        self.posts: list[tuple[str, str, str, str, bytes]] = []
        self.forgotten: list[str] = []
        self.outcomes: list[tuple[str, bool, int]] = []
        self.error = ""
        self.error_since_ms = 0

    def memory_mb(self) -> float:
        return 12.5

    def cpu_s(self) -> float:
        return 1.5

    def disk_error(self) -> str:
        """Return the error that the test has set, if any."""
        return self.error

    def disk_error_since_ms(self) -> int:
        return self.error_since_ms

    def forget(self, webhook_id: str) -> None:
        self.forgotten.append(webhook_id)

    def take_outcomes(self) -> list[tuple[str, bool, int]]:
        """Return the outcomes of posts that the test has set, once."""
        taken, self.outcomes = self.outcomes, []
        return taken

    def post(self, webhook_id: str, url: str, secret: str, event: str, body: bytes) -> None:
        self.posts.append((webhook_id, url, secret, event, body))


class CountedRandomSource(RandomSource):
    """A predictable random source."""

    def __init__(self) -> None:
        self.drawn = 0

    def draw(self, size: int) -> bytes:
        self.drawn += 1
        return int(self.drawn).to_bytes(size, "big")
