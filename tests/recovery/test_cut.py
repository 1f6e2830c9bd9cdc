"""The journal cut at every byte of its last 64 KiB.

A crash leaves the bytes up to some point and nothing behind it. Wherever that point is, a start
must find exactly what the complete batches before it state: nothing less, since each was
acknowledged, and nothing more.
"""

from random import Random

import pytest

from jobyard.engine.recovery.open_yard import replay_all
from jobyard.engine.state.yard import Yard
from jobyard.journal.bodies import Bodies
from jobyard.journal.format.segment import Segment
from jobyard.journal.journal import Journal
from jobyard.journal.recovery.reader import Reader
from tests.support.site.recount import recount
from tests.support.site.site import BUDGET
from tests.support.site.snapshot import Snapshot, snapshot
from tests.support.site.storage import EACH, MemoryStorage
from tests.support.site.yard import OpenYard

WINDOW = 64 * 1024
SEGMENT = 96 * 1024


class History:
    """A journal of two boots whose last segment holds more than 64 KiB, one batch per command."""

    def __init__(self) -> None:
        self.storage = MemoryStorage()
        before = OpenYard(self.storage, segment_size=SEGMENT)
        before.connect().say(b"put 9 0 60 3\r\nold\r\nput 9 90 60 7\r\ndelayed\r\n")
        before.commit()
        site = OpenYard(self.storage, segment_size=SEGMENT)
        self._client = site.connect()
        self._site = site
        self.states: list[tuple[int, Snapshot]] = []
        self.name = site.journal.hot.name
        self._note()
        self._live()
        assert self.name == site.journal.hot.name
        self.now_ms = site.now_ms
        self.end = int(site.journal.hot.end)
        self.begin = self.end - WINDOW
        assert self.begin > self.states[0][0]

    def _note(self) -> None:
        """Remember what the yard is once everything up to here is on disk."""
        self._site.commit()
        self.states.append((int(self._site.journal.hot.end), snapshot(self._site.yard)))

    def _say(self, command: bytes) -> bytes:
        answer = self._client.say(command)
        self._note()
        return answer

    def _put(self, rank: int, delay: int, size: int) -> None:
        body = bytes([65 + rank]) * size
        self._say(b"put %d %d 60 %d\r\n%s\r\n" % (rank, delay, size, body))

    def _live(self) -> None:
        for size in (4000, 9000, 500, 0, 4097, 3900):
            self._put(3, 0, size)
            self._put(1, 60, size)
        for command in (b"release %d 7 0\r\n", b"release %d 2 30\r\n", b"bury %d 5\r\n"):
            taken = self._say(b"reserve\r\n").split()[1]
            self._say(command % int(taken))
        self._say(b"delete 3\r\n")
        self._say(b"use other\r\n")
        self._put(0, 0, 10_000)
        self._say(b"use default\r\nkick 5\r\n")
        self._put(2, 0, 12_000)
        taken = self._say(b"reserve\r\n").split()[1]
        self._say(b"delete %d\r\n" % int(taken))
        self._put(1, 5, 4096)

    def state_at(self, cut: int) -> Snapshot:
        """Return what the whole batches before a byte say."""
        return next(state for end, state in reversed(self.states) if end <= cut)

    def state_at_zeros(self, cut: int) -> Snapshot:
        """Return what there is if zeros follow a byte: a batch may have ended in zeros anyway."""
        seen = self.storage.files[self.name].seen
        while cut < self.end and seen[cut] == 0:
            cut += 1
        return self.state_at(cut)


@pytest.fixture(scope="module")
def history() -> History:
    return History()


def read_back(storage: MemoryStorage, now_ms: int) -> Snapshot:
    journal = Journal(storage, SEGMENT, ids_ahead=False)
    yard = Yard(journal, Bodies(journal, BUDGET))
    replay_all(yard, storage, now_ms)
    return snapshot(yard)


def test_a_cut_at_every_byte_of_the_last_64_kib_leaves_what_was_answered_for(
    history: History,
) -> None:
    storage = history.storage.killed()
    seen = storage.files[history.name].seen
    for cut in range(history.end, history.begin - 1, -EACH):
        seen[cut : history.end] = bytes(history.end - cut)
        assert read_back(storage, history.now_ms) == history.state_at_zeros(cut), cut


def test_a_start_after_a_cut_goes_on_from_there_for_good(history: History) -> None:
    """A sample of the cuts, with all that a start does to the disk, and a second start."""
    edges = [end for end, _ in history.states]
    cuts = {edge + more for edge in edges for more in (-1, 0, 1, 50, 95, 96, 97)}
    cuts |= set(range(history.begin, history.end, 499))
    for cut in sorted(cut for cut in cuts if history.begin <= cut <= history.end):
        storage = history.storage.killed()
        size = storage.size(history.name)
        storage.write(history.name, cut, bytes(size - cut))
        again = OpenYard(storage, history.now_ms, segment_size=SEGMENT)
        assert snapshot(again.yard) == history.state_at_zeros(cut)
        recount(again.yard)
        fresh = again.put(b"goes on")
        again.commit()
        third = OpenYard(storage.cut_off(), history.now_ms, segment_size=SEGMENT)
        assert snapshot(third.yard) == snapshot(again.yard)
        assert third.put().id > fresh.id


@pytest.mark.parametrize("seed", range(3))
def test_what_lies_behind_a_cut_may_be_anything(history: History, seed: int) -> None:
    """Sectors of an older use of the file, or noise."""
    draw = Random(seed)
    for _ in range(150):
        cut = draw.randrange(history.begin, history.end)
        storage = history.storage.killed()
        size = storage.size(history.name)
        noise = draw.randbytes(size - cut)
        if noise[0] == storage.files[history.name].seen[cut]:
            continue  # that byte would not be cut
        storage.write(history.name, cut, noise)
        assert read_back(storage, history.now_ms) == history.state_at(cut)


def test_a_cut_that_takes_the_end_of_the_file_along_is_a_cut_like_any_other(
    history: History,
) -> None:
    for cut in range(history.begin, history.end, 997):
        storage = history.storage.killed()
        storage.truncate(history.name, cut)
        again = OpenYard(storage, history.now_ms, segment_size=SEGMENT)
        assert snapshot(again.yard) == history.state_at(cut)


def test_the_history_is_as_it_is_meant_to_be(history: History) -> None:
    """Long and short bodies, all states, and one batch per step in the part that is cut."""
    number = int(history.name.split(".")[0])
    segment = Segment(number, 0, history.storage.size(history.name))
    reader = Reader(history.storage, segment)
    sizes = []
    while (head := reader.next()) is not None:
        sizes.append((int(head.part1_size), int(head.part2_size)))
    assert len(sizes) > 24
    assert sum(part2 > 0 for _, part2 in sizes) >= 4
    states = {facts[1] for _, state in history.states for facts in state.values() if len(facts) > 9}
    assert states == {0, 1, 3}
