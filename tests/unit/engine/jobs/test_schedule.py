"""Crons: every slot once, on any clock, across restarts, and always together with its job."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobyard.engine.jobs.finish import complete
from jobyard.engine.jobs.holders import drop_holder
from jobyard.engine.jobs.put import _forget_unused
from jobyard.engine.jobs.schedule import (
    SKIPS_IDLE,
    crons_of,
    drop_cron,
    find_cron,
)
from jobyard.errors import Refused, YardFull
from jobyard.model.details import KEY_EXTENDS, KEY_REPLACES, JobDetails
from jobyard.model.entry import EntryKind
from jobyard.model.family import BUNQUEUE
from jobyard.model.job import LEASED, MSGPACK
from jobyard.model.lease import Lease
from jobyard.model.limits import NEVER_MS
from jobyard.protocols.bunqueue.door import DetachedHolder
from tests.support.engine.crons import (
    Advice,
    jobs,
    kept,
    kept_executions,
    make,
    start,
    times,
    wish_of,
)
from tests.support.site.recount import recount
from tests.support.site.site import NOW_MS
from tests.support.site.storage import MemoryStorage
from tests.support.site.yard import OpenYard

HOUR_MS = 3_600_000
# The next whole minute after the tests begin.
MINUTE = NOW_MS - NOW_MS % 60_000 + 60_000
EVERY_SECOND = "* * * * * *"
EVERY_MINUTE = "* * * * *"


@pytest.fixture(params=[False, True], ids=["memory", "durable"])
def site(request: pytest.FixtureRequest) -> OpenYard:
    return OpenYard(MemoryStorage() if request.param else None)


# -- slots -------------------------------------------------------------------------------------


def test_an_expression_fires_at_each_of_its_slots(site: OpenYard) -> None:
    cron = start(site, make(site, schedule=EVERY_MINUTE))
    assert cron.next_wall_ms() == MINUTE
    site.tick(MINUTE - NOW_MS + 2 * 60_000)
    assert times(site) == [MINUTE, MINUTE + 60_000, MINUTE + 120_000]
    assert (cron.executions, cron.last_slot_ms) == (3, MINUTE + 120_000)
    assert cron.next_wall_ms() == MINUTE + 180_000
    recount(site.yard)


def test_an_expression_of_seconds_fires_every_second(site: OpenYard) -> None:
    start(site, make(site, schedule=EVERY_SECOND))
    site.tick(5000)
    assert times(site) == [NOW_MS + 1000 * n for n in range(1, 6)]


def test_the_job_of_a_run_is_as_asked(site: OpenYard) -> None:
    cron = make(site, every_ms=1000)
    cron.rank = -7
    cron.delay_ms = 500
    start(site, cron)
    site.tick(1000)
    (job,) = jobs(site)
    assert (job.queue.name, job.rank, job.delay_ms) == ("q", -7, 500)
    assert (job.family, job.codec, site.yard.bodies.fetch(job)) == (BUNQUEUE, MSGPACK, b"\x01")
    assert (job.policy.name, job.policy.max_attempts) == ("tick", 5)


def test_an_interval_keeps_its_rhythm_however_late_it_is(site: OpenYard) -> None:
    cron = start(site, make(site, every_ms=100))
    site.jump(350)
    assert len(jobs(site)) == 1, "what was passed over is one run"
    assert cron.next_ms == NOW_MS + 400
    site.jump(50)
    assert len(jobs(site)) == 2
    assert cron.next_ms == NOW_MS + 500


def test_the_first_run_may_be_immediate_but_only_the_first(site: OpenYard) -> None:
    for schedule, every_ms, name in ((EVERY_MINUTE, 0, "e"), ("", 60_000, "i")):
        cron = make(site, name, schedule=schedule, every_ms=every_ms)
        start(site, cron, is_immediate=True)
        assert cron.executions == 1
        assert cron.next_wall_ms() == (MINUTE if schedule else NOW_MS + 60_000)
        again = start(
            site, make(site, name, schedule=schedule, every_ms=every_ms), is_immediate=True
        )
        assert again.executions == 1
    assert len(jobs(site)) == 2


def test_a_new_definition_keeps_the_count_and_fires_no_slot_again(site: OpenYard) -> None:
    old = start(site, make(site, schedule=EVERY_MINUTE))
    site.tick(MINUTE - NOW_MS)
    new = start(site, make(site, schedule=EVERY_MINUTE))
    assert kept(site) is new
    assert (new.executions, new.last_slot_ms, old.pos) == (1, MINUTE, -1)
    site.tick(59_999)
    assert len(jobs(site)) == 1
    site.tick(1)
    assert len(jobs(site)) == 2


def test_a_cron_that_ran_often_enough_is_gone(site: OpenYard) -> None:
    cron = make(site, every_ms=10)
    cron.max_limit = 2
    start(site, cron)
    site.tick(100)
    assert len(jobs(site)) == 2
    assert find_cron(site.yard, "c") is None
    if site.storage is not None:
        assert find_cron(site.reboot().yard, "c") is None


def test_a_new_limit_that_is_reached_already_lets_it_go_without_a_run(site: OpenYard) -> None:
    start(site, make(site, every_ms=10))
    site.tick(30)
    cron = make(site, every_ms=10)
    cron.max_limit = 3
    start(site, cron)
    site.tick(100)
    assert len(jobs(site)) == 3
    assert find_cron(site.yard, "c") is None


def test_a_dropped_cron_fires_no_more(site: OpenYard) -> None:
    drop_cron(site.yard, start(site, make(site, schedule=EVERY_SECOND)))
    site.tick(5000)
    assert jobs(site) == []
    assert site.yard.next_timer_ms() == NEVER_MS, "nothing is left to watch the wall for"


def test_an_expression_without_a_slot_is_refused(site: OpenYard) -> None:
    with pytest.raises(Refused, match="it never fires"):
        start(site, make(site, schedule="0 0 30 2 *"))
    assert find_cron(site.yard, "c") is None


# -- the wall clock ----------------------------------------------------------------------------


def test_a_clock_put_forward_is_followed_within_a_second_by_one_run(site: OpenYard) -> None:
    cron = start(site, make(site, schedule=EVERY_MINUTE))
    site.journal.wall_offset_ms = HOUR_MS
    site.tick(1000)
    assert cron.executions == 1
    assert cron.last_slot_ms == MINUTE
    assert cron.next_wall_ms() == MINUTE + HOUR_MS
    site.tick(MINUTE - NOW_MS)
    assert cron.executions == 2


def test_a_clock_set_back_fires_no_slot_twice(site: OpenYard) -> None:
    cron = start(site, make(site, schedule=EVERY_MINUTE))
    site.tick(MINUTE - NOW_MS)
    site.journal.wall_offset_ms = -10 * 60_000
    site.tick(11 * 60_000 - 1)
    assert cron.executions == 1
    site.tick(1)
    assert cron.executions == 2
    assert cron.last_slot_ms == MINUTE + 60_000


def test_a_clock_set_back_brings_slots_nearer_that_were_not_fired(site: OpenYard) -> None:
    cron = start(site, make(site, schedule="0 * * * *"))
    hour = cron.next_wall_ms()
    site.journal.wall_offset_ms = -HOUR_MS
    site.tick(1000)
    assert cron.next_wall_ms() == hour - HOUR_MS


def test_a_clock_gone_wrong_for_a_while_does_not_silence_a_cron_for_years(site: OpenYard) -> None:
    cron = start(site, make(site, schedule=EVERY_MINUTE))
    site.journal.wall_offset_ms = 4 * 365 * 24 * HOUR_MS
    site.tick(61_000)
    fired = int(cron.executions)
    site.journal.wall_offset_ms = 0
    site.tick(61_000)
    assert cron.executions == fired + 1


def test_a_small_correction_makes_no_run_early(site: OpenYard) -> None:
    cron = start(site, make(site, schedule=EVERY_MINUTE))
    site.journal.wall_offset_ms = -40
    site.tick(MINUTE - NOW_MS + 39)
    assert cron.executions == 0
    site.tick(1)
    assert times(site) == [MINUTE]


def test_an_interval_does_not_ask_the_wall(site: OpenYard) -> None:
    start(site, make(site, every_ms=1000))
    site.journal.wall_offset_ms = HOUR_MS
    site.tick(2000)
    site.journal.wall_offset_ms = -HOUR_MS
    site.tick(2000)
    assert len(jobs(site)) == 4


# -- restarts ----------------------------------------------------------------------------------


def test_a_cron_is_the_same_after_a_restart() -> None:
    site = OpenYard(MemoryStorage())
    cron = make(site, schedule="30 9 * * *")
    cron.set_schedule("30 9 * * *", "Europe/Rome")
    cron.set_job(wish_of(site, b"\x01", "key"))
    cron.rank = -3
    cron.max_limit = 9
    cron.flags = 0
    start(site, cron, is_immediate=True)
    again = kept(site.reboot(1000))
    assert again.encode() == cron.encode()
    assert again.encode_progress() == cron.encode_progress()
    assert again.next_wall_ms() == cron.next_wall_ms()


@pytest.mark.parametrize("schedule", [EVERY_MINUTE, ""])
def test_slots_missed_while_stopped_are_skipped_by_default(schedule: str) -> None:
    site = OpenYard(MemoryStorage())
    cron = make(site, schedule=schedule, every_ms=0 if schedule else 60_000)
    start(site, cron)
    planned = int(cron.next_wall_ms())
    late = site.reboot(10 * 60_000)
    again = kept(late)
    assert again.next_wall_ms() == planned + 10 * 60_000
    late.tick(0)
    assert jobs(late) == []
    late.tick(60_000)
    assert len(jobs(late)) == 1


@pytest.mark.parametrize("schedule", [EVERY_MINUTE, ""])
def test_slots_missed_while_stopped_may_be_made_up_for_once(schedule: str) -> None:
    site = OpenYard(MemoryStorage())
    cron = make(site, schedule=schedule, every_ms=0 if schedule else 60_000)
    cron.flags = 0
    start(site, cron)
    late = site.reboot(10 * 60_000)
    late.tick(0)
    assert len(jobs(late)) == 1
    late.tick(60_000)
    assert len(jobs(late)) == 2


def test_a_slot_is_not_fired_again_by_the_next_boot() -> None:
    site = OpenYard(MemoryStorage())
    cron = make(site, schedule=EVERY_MINUTE)
    cron.flags = 0
    start(site, cron)
    site.tick(MINUTE - NOW_MS)
    site.commit()
    assert isinstance(site.storage, MemoryStorage)
    # The wall clock was set back meanwhile.
    early = OpenYard(site.storage.killed(), MINUTE - 30_000)
    early.tick(89_999)
    assert len(jobs(early)) == 1
    early.tick(1)
    assert len(jobs(early)) == 2


def test_an_interval_is_waited_for_no_longer_than_once() -> None:
    site = OpenYard(MemoryStorage())
    start(site, make(site, every_ms=60_000))
    early = site.reboot(-24 * HOUR_MS)
    early.tick(60_000)
    assert len(jobs(early)) == 1


def test_a_zone_that_is_known_no_more_does_not_stop_the_start() -> None:
    site = OpenYard(MemoryStorage())
    cron = start(site, make(site, schedule=EVERY_MINUTE))
    cron.zone = "Atlantis/Center"
    site.journal.set_entry(EntryKind.CRON, b"=c", cron.encode())
    late = site.reboot(HOUR_MS)
    again = kept(late)
    assert (again.zone, again.next_wall_ms()) == ("Atlantis/Center", NEVER_MS)
    late.tick(HOUR_MS)
    assert jobs(late) == []
    start(late, make(late, schedule=EVERY_MINUTE))
    late.tick(60_000)
    assert len(jobs(late)) == 1


@pytest.mark.parametrize("schedule", [EVERY_MINUTE, ""])
def test_a_cron_without_its_progress_starts_over(schedule: str) -> None:
    site = OpenYard(MemoryStorage())
    start(site, make(site, schedule=schedule, every_ms=0 if schedule else 60_000))
    site.tick(120_000)
    site.journal.drop_entry(EntryKind.CRON, b"#c")
    late = site.reboot()
    assert kept_executions(late) == 0
    assert 0 < kept(late).next_wall_ms() - late.now_ms <= 60_000


def test_a_cron_and_the_job_it_made_lie_in_one_batch() -> None:
    site = OpenYard(MemoryStorage(), segment_size=1 << 14)
    cron = make(site, every_ms=10)
    cron.body = b"\xc4\xff" + bytes(255)
    start(site, cron)
    entry = site.journal.entries.get((EntryKind.CRON, b"#c"))
    assert entry is not None
    segments: set[int] = set()
    for n in range(200):
        site.jump(10)
        newest = jobs(site)[n]
        assert entry.segment == newest.place >> 32
        segments.add(int(entry.segment))
        if n % 3 == 0:
            site.commit()
    assert len(segments) > 3
    assert kept(site.reboot()).executions == 200


def test_a_crash_leaves_a_run_and_its_job_or_neither() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage)
    start(site, make(site, every_ms=10))
    for done in range(20):
        site.jump(10)
        found = OpenYard(storage.killed(), site.now_ms)
        assert kept_executions(found) == len(jobs(found)) == done
        site.commit()


def test_crons_survive_compaction() -> None:
    site = OpenYard(MemoryStorage(), segment_size=1 << 14)
    start(site, make(site, every_ms=10))
    start(site, make(site, "gone", every_ms=10))
    drop_cron(site.yard, kept(site, "gone"))
    lease_set = site.yard.new_lease_set(DetachedHolder())
    for _ in range(300):
        site.jump(10)
        complete(site.yard, site.take(lease_set, "q").job, b"", 0, 0, site.now_ms)
        site.commit()
    site.compact()
    late = site.reboot()
    assert kept(late).executions == 300
    assert find_cron(late.yard, "gone") is None
    recount(late.yard)


def test_a_policy_forgotten_between_two_runs_is_written_again() -> None:
    site = OpenYard(MemoryStorage())
    start(site, make(site, every_ms=10))
    site.jump(10)
    lease_set = site.yard.new_lease_set(DetachedHolder())
    complete(site.yard, site.take(lease_set, "q").job, b"", 0, 0, site.now_ms)
    _forget_unused(site.yard)
    site.jump(10)
    (job,) = jobs(site.reboot())
    assert job.policy.name == "tick"


class Recorder:
    """A cron over boots and moves of the clock, and the slots it fired."""

    def __init__(self) -> None:
        self.site = OpenYard(MemoryStorage())
        cron = make(self.site, schedule=EVERY_MINUTE)
        cron.flags = 0
        start(self.site, cron)
        self.slots: list[int] = []

    def advance(self, ms: int) -> None:
        for _ in range(ms // 10_000):
            before = kept_executions(self.site)
            self.site.jump(10_000)
            cron = kept(self.site)
            if cron.executions > before:
                assert cron.executions == before + 1, "a slot at a time"
                self.slots.append(int(cron.last_slot_ms))

    def move_clock(self, ms: int) -> None:
        self.site.journal.wall_offset_ms += ms

    def reboot(self, ms: int) -> None:
        wall_ms = self.site.now_ms + int(self.site.journal.wall_offset_ms)
        self.site.commit()
        assert isinstance(self.site.storage, MemoryStorage)
        self.site = OpenYard(self.site.storage.killed(), wall_ms + ms)


MINUTES = st.integers(-90, 90).map(lambda n: n * 60_000)


@settings(max_examples=60)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("advance"), st.integers(0, 180_000)),
            st.tuples(st.just("move_clock"), MINUTES),
            st.tuples(st.just("reboot"), MINUTES),
        ),
        max_size=25,
    )
)
def test_no_slot_is_fired_twice_whatever_happens_to_clock_and_server(
    steps: list[tuple[str, int]],
) -> None:
    recorder = Recorder()
    for what, ms in steps:
        if what == "advance":
            recorder.advance(ms)
        elif what == "move_clock":
            recorder.move_clock(ms)
        else:
            recorder.reboot(ms)
        assert kept_executions(recorder.site) == len(jobs(recorder.site))
    slots = recorder.slots
    assert all(slot % 60_000 == 0 for slot in slots)
    assert slots == sorted(set(slots))


# -- what keeps a run back ---------------------------------------------------------------------


def test_a_run_is_put_off_while_there_is_no_room() -> None:
    site = OpenYard(budget=2000)
    cron = start(site, make(site, every_ms=50))
    cron.body = bytes(2000)
    site.jump(50)
    assert (cron.executions, jobs(site)) == (0, [])
    assert "q" not in site.yard.queues
    cron.body = b"\x01"
    site.jump(999)
    assert jobs(site) == []
    site.jump(1)
    assert len(jobs(site)) == 1


def test_a_cron_for_which_there_is_no_room_is_not_set() -> None:
    site = OpenYard(budget=10)
    with pytest.raises(YardFull):
        start(site, make(site, every_ms=50))
    assert find_cron(site.yard, "c") is None


def test_a_run_that_lives_keeps_the_next_one_out(site: OpenYard) -> None:
    cron = make(site, every_ms=10)
    cron.unique_key = "cron:c"
    start(site, cron)
    site.tick(50)
    assert len(jobs(site)) == 1
    assert cron.executions == 5, "a run that was kept out counts"
    lease_set = site.yard.new_lease_set(DetachedHolder())
    complete(site.yard, site.take(lease_set, "q").job, b"", 0, 0, site.now_ms)
    site.tick(10)
    assert len(jobs(site)) == 1


def test_a_key_ends_with_its_time(site: OpenYard) -> None:
    cron = make(site, every_ms=10)
    cron.unique_key = "k"
    cron.key_ttl_ms = 25
    start(site, cron)
    site.tick(40)
    assert [job.created_ms - NOW_MS for job in jobs(site)] == [10, 40]


def test_a_key_may_be_extended_by_runs_that_are_kept_out(site: OpenYard) -> None:
    cron = make(site, every_ms=10)
    cron.unique_key = "k"
    cron.key_mode = KEY_EXTENDS
    cron.key_ttl_ms = 25
    start(site, cron)
    site.tick(100)
    assert len(jobs(site)) == 1


def test_a_run_may_replace_the_one_before_unless_it_is_held(site: OpenYard) -> None:
    cron = make(site, every_ms=10)
    cron.unique_key = "k"
    cron.key_mode = KEY_REPLACES
    start(site, cron)
    site.tick(30)
    (job,) = jobs(site)
    assert job.created_ms == NOW_MS + 30
    site.take(site.yard.new_lease_set(DetachedHolder()), "q")
    site.tick(20)
    assert [each.created_ms - NOW_MS for each in jobs(site)] == [30, 50]
    # The key is not given back to the one that runs on, neither by the end of the other nor by a
    # restart.
    assert [each.ensure_details().unique_key for each in jobs(site)] == ["", "k"]


def test_a_cron_may_wait_for_a_worker(site: OpenYard) -> None:
    advice = Advice()
    cron = make(site, schedule=EVERY_SECOND)
    cron.flags = SKIPS_IDLE
    start(site, cron)
    site.tick(2000)
    crons_of(site.yard).hooks = advice
    site.tick(2000)
    assert (cron.executions, jobs(site)) == (0, [])
    advice.queues.add("q")
    site.tick(1000)
    assert times(site) == [NOW_MS + 5000]


def test_the_run_of_a_cron_goes_with_its_holder_for_as_long_as_there_is_a_next(
    site: OpenYard,
) -> None:
    cron = make(site, every_ms=10)
    cron.unique_key = "cron:c"
    start(site, cron)
    for is_cron in (True, False):
        site.tick(10)
        lease_set = site.yard.new_lease_set(DetachedHolder())
        site.take(lease_set, "q")
        if not is_cron:
            drop_cron(site.yard, cron)
        drop_holder(site.yard, lease_set, None, site.now_ms)
        assert len(jobs(site)) == (0 if is_cron else 1)
        recount(site.yard)


# -- jobs that repeat themselves ---------------------------------------------------------------


def repeating(site: OpenYard) -> tuple[Advice, Lease]:
    """Return the hooks in use, and the lease of a job with protocol fields."""
    advice = Advice()
    crons_of(site.yard).hooks = advice
    cron = make(site, every_ms=10)
    cron.max_limit = 1
    start(site, cron)
    site.jump(10)
    lease = site.take(site.yard.new_lease_set(DetachedHolder()), "q")
    lease.job.ensure_details().protocol_fields = b"\x80"
    return advice, lease


def test_a_successor_is_put_when_its_job_is_done(site: OpenYard) -> None:
    advice, lease = repeating(site)
    advice.next = wish_of(site)
    advice.next.delay_ms = 30
    complete(site.yard, lease.job, b"", 0, 0, site.now_ms)
    (job,) = jobs(site)
    assert (job.delay_ms, job.queue.name) == (30, "q")
    assert site.yard.queues["q"].users_count == 0
    recount(site.yard)


def test_a_job_without_a_successor_just_ends(site: OpenYard) -> None:
    _, lease = repeating(site)
    complete(site.yard, lease.job, b"", 0, 0, site.now_ms)
    assert jobs(site) == []
    assert "q" not in site.yard.queues


def test_without_room_for_its_successor_a_job_does_not_end() -> None:
    site = OpenYard(budget=1000)
    advice, lease = repeating(site)
    advice.next = wish_of(site, bytes(2000))
    with pytest.raises(YardFull):
        complete(site.yard, lease.job, b"", 0, 0, site.now_ms)
    assert lease.job.state == LEASED
    recount(site.yard)


def test_an_end_and_its_successor_lie_in_one_batch() -> None:
    site = OpenYard(MemoryStorage(), segment_size=1 << 14)
    advice, lease = repeating(site)
    lease_set = site.yard.new_lease_set(DetachedHolder())
    segments: set[int] = set()
    for _ in range(300):
        new_job = wish_of(site)
        new_job.details = JobDetails()
        new_job.details.protocol_fields = b"\x80"
        advice.next = new_job
        before = lease.job
        complete(site.yard, before, bytes(90), MSGPACK, 1, site.now_ms)
        lease = site.take(lease_set, "q")
        assert lease.job.place >> 32 == before.trail
        segments.add(int(before.trail))
        site.commit()
    assert len(segments) > 3
