"""One bit of the journal flipped, anywhere.

The outcome is the same yard, a start refused with file and offset, or a job whose body is reported
as damaged; never a yard that differs silently.
"""

import io
from collections.abc import Iterator
from random import Random

import pytest

from jobyard.engine.jobs.take import take_job
from jobyard.engine.recovery.open_yard import replay_all
from jobyard.engine.recovery.repair import repair_storage
from jobyard.engine.state.yard import Yard
from jobyard.errors import JournalDamaged, NotFound
from jobyard.journal.bodies import Bodies
from jobyard.journal.format.segment import SEGMENT_HEADER_SIZE, segment_number
from jobyard.journal.journal import Journal
from jobyard.model.job import DEAD
from jobyard.protocols.beanstalk.door import TERMS
from tests.support.random.beanstalk import RandomRun
from tests.support.site.recount import recount
from tests.support.site.snapshot import Snapshot, snapshot
from tests.support.site.storage import MemoryStorage
from tests.support.site.yard import OpenYard

SEGMENT = 16 * 1024
FLIPS = 2400
SAME, REFUSED, DAMAGED_BODY = "same", "refused", "damaged body"
_BODY = 9  # where a snapshot has the body of a job


class History:
    """Three boots with compaction: hot and cold segments, sealed and open, long bodies."""

    def __init__(self, seed: int) -> None:
        self.storage = MemoryStorage()
        for boot in range(3):
            site = self._boot(boot, seed)
        # The loss of the last batch could not be noticed; it holds nothing.
        site.journal.append_clean()
        site.commit()
        self.now_ms = site.now_ms
        site.jump()
        self.state = snapshot(site.yard)
        kinds = {(int(s.temperature), s.is_sealed) for s in site.journal.segments.values()}
        assert kinds == {(0, True), (0, False), (1, True), (1, False)}
        self.used = {segment.name: int(segment.end) for segment in site.journal.segments.values()}

    def _boot(self, boot: int, seed: int) -> OpenYard:
        start_ms = 1_700_000_000_000 + boot * 10_000_000
        site = OpenYard(self.storage, start_ms, segment_size=SEGMENT, budget=0)
        run = RandomRun(site, seed + boot, sizes=(0, 40, 800, 4500))
        for number in range(220):
            run.step()
            if number % 4 == 0:
                # Some batches go to disk two at a time, as they do during a compaction.
                site.journal.seal_batch()
            if number % 4 > 1:
                site.commit()
                site.compactor.step()
        site.commit()
        return site

    def flips(self, count: int, seed: int) -> Iterator[tuple[str, int, int]]:
        """Draw places in the used parts of all files, and a few behind them."""
        draw = Random(seed)
        names = sorted(self.used)
        weights = [self.used[name] for name in names]
        for name in draw.choices(names, weights, k=count):
            size = self.storage.size(name)
            most = size if draw.random() < 0.05 else min(size, self.used[name])
            yield name, draw.randrange(most), draw.randrange(8)


def read_back(storage: MemoryStorage, now_ms: int) -> Yard:
    journal = Journal(storage, SEGMENT, ids_ahead=False)
    yard = Yard(journal, Bodies(journal, 0))
    replay_all(yard, storage, now_ms)
    return yard


def without_bodies(state: Snapshot) -> Snapshot:
    return {key: (*facts[:_BODY], *facts[_BODY + 1 :]) for key, facts in state.items()}


def damaged_jobs(state: Snapshot, wanted: Snapshot) -> list[int]:
    """Return the jobs whose bodies cannot be read; every other body must be as it was put."""
    damaged = []
    for key, facts in state.items():
        if isinstance(key, int) and facts[_BODY] != wanted[key][_BODY]:
            assert facts[_BODY] is None
            damaged.append(key)
    return damaged


def judge(storage: MemoryStorage, history: History, name: str) -> str:
    """Return the outcome for a journal with one flipped bit in one file."""
    try:
        state = snapshot(read_back(storage, history.now_ms))
    except JournalDamaged as damage:
        is_named = damage.name == name and 0 <= damage.offset <= storage.size(name)
        return REFUSED if is_named else f"another place is blamed: {damage}"
    if without_bodies(state) != without_bodies(history.state):
        return "another yard, without a word"
    return DAMAGED_BODY if damaged_jobs(state, history.state) else SAME


@pytest.fixture(scope="module", params=[1, 2])
def history(request: pytest.FixtureRequest) -> History:
    return History(request.param)


def test_no_flipped_bit_makes_a_silent_difference(history: History) -> None:
    storage = history.storage.killed()
    outcomes = {SAME: 0, REFUSED: 0, DAMAGED_BODY: 0}
    silent = []
    for name, offset, bit in history.flips(FLIPS // 2, seed=7):
        storage.flip(name, offset, bit)
        outcome = judge(storage, history, name)
        if outcome in outcomes:
            outcomes[outcome] += 1
        else:
            silent.append((name, offset, bit, outcome))
        storage.flip(name, offset, bit)
    assert silent == []
    assert min(outcomes.values()) > 0, outcomes
    assert outcomes[REFUSED] > FLIPS // 6


def test_a_start_on_a_flipped_bit_serves_the_rest_and_buries_the_damaged(history: History) -> None:
    served = 0
    for name, offset, bit in history.flips(150, seed=8):
        storage = history.storage.killed()
        storage.flip(name, offset, bit)
        try:
            again = OpenYard(storage, history.now_ms, segment_size=SEGMENT, budget=0)
        except JournalDamaged:
            continue
        served += 1
        recount(again.yard)
        lease_set = again.connect().lease_set
        for job_id in damaged_jobs(snapshot(again.yard), history.state):
            with pytest.raises(NotFound):
                take_job(again.yard, job_id, lease_set, TERMS, again.now_ms)
            job = again.yard.jobs.get(job_id)
            assert job is not None
            assert job.state == DEAD
        again.commit()
        third = OpenYard(storage.cut_off(), history.now_ms, segment_size=SEGMENT, budget=0)
        assert snapshot(third.yard) == snapshot(again.yard)
    assert served > 5


def test_a_refused_start_changes_nothing_and_is_refused_again(history: History) -> None:
    refused = 0
    for name, offset, bit in history.flips(40, seed=9):
        storage = history.storage.killed()
        storage.flip(name, offset, bit)
        before = {other: bytes(file.seen) for other, file in storage.files.items()}
        messages = set()
        for _ in range(3):
            try:
                OpenYard(storage, history.now_ms, segment_size=SEGMENT)
            except JournalDamaged as damage:
                messages.add(str(damage))
        if messages:
            refused += 1
            assert len(messages) == 1
            assert {other: bytes(file.seen) for other, file in storage.files.items()} == before
    assert refused > 5


def test_a_flip_in_the_batch_nobody_knows_to_be_durable_is_a_torn_tail() -> None:
    """The last batch of an open journal cannot be distinguished from one that a crash tore."""
    storage = MemoryStorage()
    site = OpenYard(storage, segment_size=SEGMENT)
    site.put(b"known")
    site.commit()
    before = snapshot(site.yard)
    begin = int(site.journal.hot.end)
    site.put(b"last")
    site.commit()
    hot = site.journal.hot
    for offset in range(begin, int(hot.end)):
        damaged = storage.killed()
        damaged.flip(hot.name, offset, offset % 8)
        again = OpenYard(damaged, segment_size=SEGMENT)
        assert snapshot(again.yard) == before
        assert again.recovered is not None


def test_damage_to_the_newest_batch_is_none_of_a_crash_once_the_server_was_idle() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage, segment_size=SEGMENT)
    site.put(b"known")
    site.commit()
    begin = int(site.journal.hot.end)
    answered = site.put(b"last")
    site.commit()
    state = snapshot(site.yard)
    site.journal.vouch()
    hot = site.journal.hot
    for end in (storage.killed(), storage.cut_off()):
        assert snapshot(OpenYard(end, segment_size=SEGMENT).yard) == state
    for offset in range(begin, int(hot.end)):
        damaged = storage.killed()
        damaged.flip(hot.name, offset, offset % 8)
        with pytest.raises(JournalDamaged) as refused:
            OpenYard(damaged, segment_size=SEGMENT)
        assert (refused.value.name, refused.value.offset) == (hot.name, begin)
    # Nothing of it can be read: a repair continues without it, and its id is not issued again.
    storage.write(hot.name, begin, bytes(int(hot.end) - begin))
    out = io.StringIO()
    assert repair_storage(storage, "data", site.now_ms, out), out.getvalue()
    again = OpenYard(storage, segment_size=SEGMENT)
    assert again.yard.jobs.count == 1
    assert again.put(b"new").id > answered.id


@pytest.mark.parametrize("left", [0, SEGMENT_HEADER_SIZE, SEGMENT_HEADER_SIZE + 40])
@pytest.mark.parametrize("how", ["cut", "zeroed"])
def test_an_only_segment_cannot_be_emptied_unseen(how: str, left: int) -> None:
    storage = MemoryStorage()
    site = OpenYard(storage, segment_size=SEGMENT)
    answered = site.put(b"answered")
    site.commit()
    site.journal.vouch()
    name = site.journal.hot.name
    size = storage.size(name)
    if how == "cut":
        data = storage.read(name, 0, left)
        storage.unlink(name)
        storage.create(name, left)
        storage.write(name, 0, data)
    else:
        storage.write(name, left, bytes(size - left))
    with pytest.raises(JournalDamaged) as damage:
        read_back(storage, site.now_ms)
    assert damage.value.name == name
    out = io.StringIO()
    assert repair_storage(storage, "data", site.now_ms, out), out.getvalue()
    again = OpenYard(storage, segment_size=SEGMENT)
    assert again.yard.jobs.count == 0
    assert again.put(b"new").id > answered.id


def test_a_batch_is_vouched_for_once_and_only_when_all_is_on_disk() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage, segment_size=SEGMENT)
    site.put(b"x")
    site.commit()
    for act, is_noted in (
        (site.journal.vouch, True),
        (site.journal.vouch, False),
        (site.put, False),
        (site.journal.vouch, False),
        (site.journal.seal_batch, False),
        (site.journal.vouch, False),
        (site.journal.write_pending, False),
        (site.journal.vouch, False),
        (site.journal.commit, False),
        (site.journal.vouch, True),
    ):
        storage.calls.clear()
        act()
        assert ("write newest" in storage.calls) == is_noted


def test_the_ids_of_a_tail_that_was_cut_are_not_given_again() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage, segment_size=SEGMENT)
    site.put(b"known")
    site.commit()
    begin = int(site.journal.hot.end)
    lost = [int(site.put(b"").id) for _ in range(20)]
    site.commit()
    for offset in (begin + 5, begin + 20, begin + 45, begin + 300):
        damaged = storage.killed()
        damaged.write(site.journal.hot.name, offset, b"XXX")
        again = OpenYard(damaged, segment_size=SEGMENT)
        assert again.yard.jobs.count == 1
        assert int(again.put(b"new").id) > max(lost)


def test_what_was_cut_is_told_whichever_byte_of_it_is_damaged() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage, segment_size=SEGMENT)
    begin = int(site.journal.hot.end)
    site.put(b"last")
    site.commit()
    hot = site.journal.hot
    for offset in range(begin, int(hot.end)):
        damaged = storage.killed()
        damaged.flip(hot.name, offset, 0)
        again = OpenYard(damaged, segment_size=SEGMENT)
        assert again.recovered is not None
        assert again.recovered.cut_bytes > 0, offset - begin


@pytest.mark.parametrize("which", ["first", "middle", "last"])
def test_no_segment_can_be_missing_unseen(history: History, which: str) -> None:
    names = sorted(name for name in history.storage.names() if segment_number(name) > 0)
    chosen = {"first": names[:1], "middle": names[1:-1], "last": names[-1:]}[which]
    for name in chosen:
        storage = history.storage.killed()
        storage.unlink(name)
        with pytest.raises(JournalDamaged) as damage:
            read_back(storage, history.now_ms)
        if which != "last":  # for the last one it may only be known that something is missing
            assert damage.value.name == name


@pytest.mark.parametrize("boots", [2, 3])
def test_the_newest_segment_cannot_be_missing_unseen(boots: int) -> None:
    storage = MemoryStorage()
    for _ in range(boots):
        site = OpenYard(storage, segment_size=SEGMENT)
        site.put(b"answered")
        site.commit()
    storage.unlink(site.journal.hot.name)
    with pytest.raises(JournalDamaged) as damage:
        read_back(storage, site.now_ms)
    assert damage.value.name == site.journal.hot.name


def test_a_sealed_segment_cut_anywhere_is_refused(history: History) -> None:
    sealed = [name for name in sorted(history.used) if name != max(history.used)]
    draw = Random(5)
    for name in sealed:
        storage = history.storage.killed()
        if history.used[name] < storage.size(name):
            continue  # still open
        storage.truncate(name, draw.randrange(1, history.used[name]))
        with pytest.raises(JournalDamaged):
            read_back(storage, history.now_ms)
