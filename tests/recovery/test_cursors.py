"""Cursors that hold, over kills and power cuts: none goes back, and nothing they hold is lost."""

import contextlib
import random

import pytest

from jobyard.engine.jobs.finish import finish
from jobyard.engine.logs.cursors import CursorBehind, CursorChange, drop_cursor, set_cursor
from jobyard.engine.logs.logs import trim
from jobyard.engine.state.history import read_history
from jobyard.model.topic.config import EVENTS_TOPIC
from jobyard.model.topic.cursor import NO_HOLD, TopicCursor
from tests.support.engine.logs import items, new_log, page_of, row, write
from tests.support.site.recount import recount
from tests.support.site.site import NOW_MS
from tests.support.site.storage import MemoryStorage
from tests.support.site.yard import OpenYard

STEPS = 300
STEPS_PER_BOOT = 30
CAP = 20
AGE_MS = 5000
WINDOW = (1 << 40, 60_000)
Known = dict[tuple[str, str], tuple[int, bool, bool]]


def open_on(storage: MemoryStorage, now_ms: int) -> OpenYard:
    return OpenYard(storage, now_ms, segment_size=16_384, window=WINDOW)


def put_cursor(site: OpenYard, cursor: TopicCursor) -> None:
    change = CursorChange(cursor, is_forced=False, keeps_hold=False)
    set_cursor(site.yard, change, site.now_ms)


def known(site: OpenYard) -> Known:
    """Return seq, hold and whether it is broken of each cursor."""
    return {
        (one.topic, one.name): (int(one.seq), bool(one.holds), bool(one.is_broken))
        for one in site.yard.cursors.all()
    }


class Readers:
    """A writer, workers and readers of one log and of the history, drawn from a seed."""

    def __init__(self, site: OpenYard, seed: int) -> None:
        self.site = site
        self.random = random.Random(seed)
        # What was there at the last check, or came since.
        self.written: set[int] = set()
        self.events: dict[int, str] = {}
        # The greatest seq up to which nothing was held at some time since the last check.
        self.free: dict[str, int] = {}
        new_log(site, cap_records=CAP, ttl_ms=AGE_MS)
        self.note_holds()

    def note_holds(self) -> None:
        for topic in ("log", EVENTS_TOPIC):
            hold = int(self.site.yard.cursors.hold_of(topic))
            self.free[topic] = max(self.free.get(topic, 0), hold)

    def step(self) -> None:
        self.site.jump(self.random.randrange(400))
        steps = (self.write, self.write, self.work, self.work, self.move, self.move, self.drop)
        self.random.choice(steps)()
        self.note_holds()

    def write(self) -> None:
        log = self.site.yard.logs["log"]
        for _ in range(self.random.randrange(1, 9)):
            self.written.add(int(log.next_seq))
            write(self.site, log, row(int(log.next_seq)))

    def work(self) -> None:
        for _ in range(self.random.randrange(1, 9)):
            self.site.put(b"x" * 400)
            finish(self.site.yard, self.site.take(self.site.lease_set).job, self.site.now_ms)

    def move(self) -> None:
        site, draw = self.site, self.random
        topic = draw.choice(("log", EVENTS_TOPIC))
        name = draw.choice("ab")
        cursor = site.yard.cursors.get(topic, name)
        head = int(site.journal.history.last_row)
        if topic == "log":
            head = int(site.yard.logs["log"].next_seq) - 1
        at = 0 if cursor is None else int(cursor.seq)
        moved = TopicCursor(topic, name)
        moved.seq = draw.randint(min(at, head), head)
        moved.holds = draw.random() < 0.8
        with contextlib.suppress(CursorBehind):
            put_cursor(site, moved)

    def drop(self) -> None:
        cursors = self.site.yard.cursors.all()
        if cursors and self.random.random() < 0.2:
            drop_cursor(self.site.yard, self.random.choice(cursors))

    def check(self) -> int:
        """Check that what was held is there; return how much of it is beyond the caps."""
        site = self.site
        recount(site.yard)
        log = site.yard.logs["log"]
        trim(site.yard, log, site.now_ms)
        page = page_of(site, log, int(log.earliest_seq) - 1)
        found = {int(str(item["$seq"])) for item in items(page)}
        held = {seq for seq in self.written if seq > self.free["log"]}
        assert held <= found
        site.compact()
        history = read_history(site.yard, 0, 1 << 20, 1 << 30).rows
        rows = {int(one.seq): one.event for one in history}
        seen = {seq: event for seq, event in self.events.items() if seq > self.free[EVENTS_TOPIC]}
        assert {seq: rows.get(seq) for seq in seen} == seen
        self.written, self.events = found, rows
        self.free.clear()
        self.note_holds()
        return max(len(held) - CAP, 0)


@pytest.mark.parametrize("is_power_cut", [False, True])
@pytest.mark.parametrize("seed", range(61, 65))
def test_what_cursors_hold_outlasts_kills(seed: int, *, is_power_cut: bool) -> None:
    storage = MemoryStorage()
    site = open_on(storage, NOW_MS)
    readers = Readers(site, seed)
    beyond = 0
    for number in range(1, STEPS + 1):
        readers.step()
        if number % 10 == 0:
            site.commit()
            beyond += readers.check()
        if number % STEPS_PER_BOOT == 0:
            site.commit()
            before = known(site)
            storage = storage.cut_off() if is_power_cut else storage.killed()
            site = readers.site = open_on(storage, site.now_ms + readers.random.randrange(9000))
            assert known(site) == before
            beyond += readers.check()
    assert beyond > 0
    # Only those that were set where the window had already passed.
    floor = int(site.journal.history.floor)
    broken = [key for key, (seq, _, is_broken) in known(site).items() if is_broken and seq >= floor]
    assert broken == []


def test_a_hold_that_was_broken_stays_broken_over_a_kill() -> None:
    storage = MemoryStorage()
    site = open_on(storage, NOW_MS)
    site.journal.history.hold_bytes = 20_000
    cursor = TopicCursor(EVENTS_TOPIC, "slow")
    cursor.holds = True
    put_cursor(site, cursor)
    readers = Readers(site, 1)
    for _ in range(200):
        readers.work()
        site.commit()
        site.compact()
    (found,) = site.yard.cursors.of(EVENTS_TOPIC)
    assert found.is_broken
    assert len(site.yard.cursors.take_stories()) == 1
    again = open_on(storage.killed(), site.now_ms)
    (found,) = again.yard.cursors.of(EVENTS_TOPIC)
    assert (found.is_broken, found.holds) == (True, True)
    assert again.yard.cursors.hold_of(EVENTS_TOPIC) == NO_HOLD
    # It holds again once it is set.
    moved = TopicCursor(EVENTS_TOPIC, "slow")
    moved.seq = again.journal.history.last_row
    moved.holds = True
    put_cursor(again, moved)
    assert again.journal.history.hold_seq == moved.seq
