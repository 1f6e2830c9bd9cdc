"""Any commands in any order, on several connections: one answer each, and a consistent yard."""

import pytest

from jobyard.protocols.glidemq.session import GlidemqSession
from tests.support.clients.resp import unpack
from tests.support.doors.glidemq import BareGlidemq
from tests.support.random.resp import RandomResp
from tests.support.site.recount import recount
from tests.support.site.storage import MemoryStorage

ROUNDS = 3
COMMANDS = 120


class Crowd:
    """Some connections that say anything."""

    def __init__(self, seed: int) -> None:
        self.draw = RandomResp(seed)
        self.site = BareGlidemq(MemoryStorage())
        self.clients = [self.site.connect() for _ in range(3)]
        self._last_id = ""

    def speak(self) -> None:
        """Send one command; check that it is answered once, unless it waits."""
        self.draw.wall_ms = self.site.now_ms + int(self.site.yard.journal.wall_offset_ms)
        words = self.draw.command()
        client = self.draw.random.choice(self.clients)
        session = client.session
        assert isinstance(session, GlidemqSession)
        if session.queued is not None and (
            words[0] in (b"HELLO", b"AUTH") or self.draw.random.random() < 0.2
        ):
            # No client can read an answer in two protocol versions, and redis-py stops reading
            # after a wrong password.
            words = [b"EXEC"]
        client.send(*words)
        if session.is_blocked():
            assert client.take_unread() == b"", words
            self.clients.remove(client)
            client.close()
            self.clients.append(self.site.connect())
            return
        raw = client.take_unread()
        if raw.startswith(b"-"):
            assert raw.count(b"\r\n") == 1, (words, raw)
            return
        answers = unpack(raw, int(session.proto))
        assert len(answers) == 1, (words, raw)
        if words[0] == "XREADGROUP":
            self.draw.held.clear()
            self._note_held(answers[0])

    def _note_held(self, answer: object) -> None:
        """Remember which jobs were given, each with its entry."""
        if isinstance(answer, dict):
            answer = list(answer.values())
        if not isinstance(answer, list):
            return
        for at, one in enumerate(answer):
            if one == b"jobId" and at + 1 < len(answer):
                self._last_id = answer[at + 1].decode("utf-8", "replace")
            elif isinstance(one, list) and len(one) == 2 and isinstance(one[0], bytes):
                self._note_held(one[1])
                if self._last_id:
                    self.draw.held[self._last_id] = one[0].decode("utf-8", "replace")
                    self._last_id = ""
            else:
                self._note_held(one)

    def restart(self) -> None:
        """Go on with what the disk holds."""
        for client in self.clients:
            client.close()
        self.site = self.site.reboot()
        self.clients = [self.site.connect() for _ in range(3)]


@pytest.mark.parametrize("seed", range(5))
def test_any_commands_are_answered_and_read_back(seed: int) -> None:
    crowd = Crowd(seed)
    for _ in range(ROUNDS):
        for _ in range(COMMANDS):
            crowd.speak()
        crowd.site.tick(crowd.draw.random.choice((10, 6000)))
        recount(crowd.site.yard)
        crowd.restart()
        recount(crowd.site.yard)
