"""Every command and function of the glide-mq door, with a hostile word in each place.

The shapes of the commands are those random runs draw from, which name all that the door knows.
"""

from typing import Final

import pytest

from tests.support.doors.doors import BareDoors
from tests.support.random.resp import KEYS, LEFT_OUT, SHAPES, RandomResp
from tests.support.site.storage import MemoryStorage
from tests.support.values.hostile import WORDS

# A template is drawn so often, for what may be left out of it.
DRAWS: Final = 3


def encoded(words: list[object]) -> bytes:
    """Return a command as clients send it."""
    parts = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    body = b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)
    return b"*%d\r\n" % len(parts) + body


class Assault:
    """A yard with jobs of glide-mq, and a client who means no good."""

    def __init__(self, seed: int) -> None:
        self.site = BareDoors(MemoryStorage())
        self.drawn = RandomResp(seed)
        self.library = self.site.library()
        self.client = self.site.glidemq.connect()
        self.count = 0
        for _ in range(4):
            self.library.add()
        self.library.add(delay=1000)
        self.drawn.wall_ms = self.library.ts()
        self.drawn.held.update(self.library.read(count=2))

    def fire(self, words: list[object]) -> None:
        """Send a command, whatever the result, and check that another client is served."""
        self.count += 1
        session = self.client.session
        session.receive(encoded(words), self.site.now_ms)
        session.take_output()
        self.site.settle()
        if session.is_finished or session.unread_size() > 0 or self.count % 50 == 0:
            self.client.close()
            self.client = self.site.glidemq.connect()
        if self.count % 100 == 0:
            assert self.library.client.ask("PING") == b"PONG"

    def attack(self, words: list[object]) -> None:
        """Send a command with a hostile word in each place but the first."""
        self.fire(words)
        for place in range(1, len(words)):
            for word in WORDS:
                self.fire([*words[:place], word.encode("latin-1"), *words[place + 1 :]])
        for size in range(1, len(words)):
            self.fire(words[:size])
        self.fire([*words, "1", "2"])

    def finish(self) -> None:
        """Check that the yard is consistent, also after a restart."""
        self.client.close()
        self.site.tick(2000)
        self.library.client.ask("INFO")
        self.library.counts()
        self.site.check()
        self.site.after_a_crash()


@pytest.mark.parametrize("name", sorted(one.decode() for one in SHAPES))
def test_no_word_of_a_command_ends_the_session(name: str) -> None:
    assault = Assault(len(name))
    for _ in range(DRAWS):
        assault.attack([name, *assault.drawn.fill(SHAPES[name.encode()])])
    assault.finish()


@pytest.mark.parametrize("name", sorted(KEYS))
def test_no_argument_of_a_function_ends_the_session(name: str) -> None:
    assault = Assault(len(name))
    for _ in range(DRAWS):
        assault.attack(assault.drawn.function(name))
    assault.finish()


@pytest.mark.parametrize("name", sorted(one.decode() for one in LEFT_OUT))
def test_no_word_of_the_others_ends_the_session(name: str) -> None:
    assault = Assault(1)
    assault.attack([name, "1", "2"])
    assault.finish()


def test_no_size_ends_the_session() -> None:
    assault = Assault(1)
    for word in WORDS:
        for text in (f"*{word}\r\n$4\r\nPING\r\n", f"*1\r\n${word}\r\nPING\r\n"):
            assault.client.session.receive(text.encode("latin-1"), assault.site.now_ms)
            assault.client.close()
            assault.client = assault.site.glidemq.connect()
    assault.finish()
