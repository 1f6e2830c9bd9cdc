"""Every command of the beanstalk door, with a hostile word in each place."""

from typing import Final

import pytest

from jobyard.protocols.beanstalk.commands import WORDS as COMMANDS
from tests.support.site.storage import MemoryStorage
from tests.support.site.yard import OpenYard
from tests.support.values.hostile import WORDS

TEMPLATES: Final[dict[str, str]] = {
    "put": "1 1 1 1", "peek": "1", "peek-ready": "", "peek-delayed": "", "peek-buried": "",
    "reserve-with-timeout": "0", "reserve-job": "1", "reserve": "", "delete": "1",
    "release": "1 1 1", "bury": "1 1", "kick": "1", "kick-job": "1", "touch": "1",
    "stats-job": "1", "stats-tube": "t", "stats": "", "use": "t", "watch": "t", "ignore": "t",
    "list-tubes-watched": "", "list-tube-used": "", "list-tubes": "", "quit": "",
    "pause-tube": "t 1",
}  # fmt: skip


def test_every_command_has_a_template() -> None:
    assert set(TEMPLATES) == {word.decode().strip() for word, _, _ in COMMANDS} | {"put"}


@pytest.mark.parametrize("name", sorted(TEMPLATES))
def test_no_word_of_a_command_ends_the_session(name: str) -> None:
    storage = MemoryStorage()
    site = OpenYard(storage)
    friend = site.connect()
    words = TEMPLATES[name].split()
    for place in range(len(words) + 1):
        for word in WORDS:
            for job in (b"put 1 0 1 1\r\nx\r\n", b"put 1 9 9 1\r\nx\r\n"):
                friend.say(job)
            client = site.connect()
            client.say(b"reserve-with-timeout 0\r\n")
            line = " ".join([name, *words[:place], word, *words[place + 1 :]])
            client.say(line.encode("latin-1") + b"\r\nx\r\n")
            client.say(line.encode("latin-1"))
            assert friend.say(b"list-tube-used\r\n") == b"USING default\r\n"
            client.leave()
    site.jump(2000)
    friend.say(b"stats\r\n")
    site.commit()
    OpenYard(storage.killed(), site.now_ms)
