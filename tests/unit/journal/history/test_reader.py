from jobyard.engine.jobs.finish import (
    KEEP_AS_ASKED,
    bury,
    complete,
    finish,
    hand_over,
    release,
)
from jobyard.engine.jobs.move import kick_job, remove
from jobyard.engine.jobs.take import take
from jobyard.engine.state.history import read_history
from jobyard.journal.format.record import KIND_PUT, PUT_SIZE
from jobyard.journal.history.reader import CAUSE_WORDS, HistoryPage, read_past, read_worker
from jobyard.journal.journal import WORKERS_KNOWN
from jobyard.model.details import JobDetails
from jobyard.model.family import BUNQUEUE
from jobyard.model.job import MSGPACK
from jobyard.model.lease import Proof, Terms, WorkerName
from jobyard.model.limits import WORKER_NAME_MAX
from jobyard.model.members import Member
from jobyard.model.policy import Policy
from jobyard.model.topic.history_row import HistoryRow
from tests.support.site.site import ALL_HISTORY, NOW_MS
from tests.support.site.storage import MemoryStorage
from tests.support.site.yard import OpenYard

ALWAYS = 1 << 62


def page(site: OpenYard, after: int = 0, rows: int = 1000, most: int = 1 << 20) -> HistoryPage:
    return read_past(site.journal, after, ALWAYS, rows, most)


def told(rows: list[HistoryRow]) -> list[tuple[str, str, int, str]]:
    return [(row.event, row.queue, int(row.job_id), row.state) for row in rows]


def test_the_life_of_a_job_can_be_read_as_rows() -> None:
    site = OpenYard(MemoryStorage(), window=ALL_HISTORY)
    site.journal.wall_offset_ms = 7
    lease_set = site.connect().lease_set
    job = site.put(b"hello", "mails", rank=3, delay_ms=500)
    site.jump(500)
    taken = site.take(lease_set, "mails").job
    site.now_ms += 20
    release(site.yard, taken, 9, 0, site.now_ms)
    taken = site.take(lease_set, "mails").job
    bury(site.yard, taken, 9, site.now_ms)
    kick_job(site.yard, job.id, site.now_ms)
    finish(site.yard, site.take(lease_set, "mails").job, site.now_ms)
    site.commit()
    rows = page(site).rows
    assert told(rows) == [
        ("enqueued", "mails", 1, "delayed"),
        ("claimed", "mails", 1, "leased"),
        ("released", "mails", 1, "ready"),
        ("claimed", "mails", 1, "leased"),
        ("buried", "mails", 1, "dead"),
        ("kicked", "mails", 1, "ready"),
        ("claimed", "mails", 1, "leased"),
        ("completed", "mails", 1, "gone"),
    ]
    assert [int(row.seq) for row in rows] == sorted({int(row.seq) for row in rows})
    first, claimed, released = rows[0], rows[1], rows[2]
    wall = NOW_MS + 7
    assert (first.ts_ms, first.enqueued_ms, first.due_ms) == (wall, wall, wall + 500)
    assert (first.family, first.rank, first.size) == ("beanstalk", 3, 5)
    assert (claimed.ts_ms, claimed.lease, claimed.door) == (wall + 500, 1, "beanstalk")
    assert (claimed.holder, claimed.ttl_ms) == (lease_set.key, 60_000)
    assert (released.ts_ms, released.claimed_ms, released.finished_ms) == (
        *(wall + 520, wall + 500, wall + 520),
    )
    assert (released.enqueued_ms, released.available_ms) == (wall, wall + 500)
    assert (released.rank, released.deliveries, released.holder) == (9, 1, lease_set.key)
    for run in ((claimed, released), (rows[3], rows[4]), (rows[6], rows[7])):
        assert run_of(run[0]) == run_of(run[1])
    assert run_of(claimed) == (1, lease_set.key, "beanstalk", "beanstalk", "beanstalk", 1, 1)
    assert [row.deliveries for row in rows if row.event == "claimed"] == [1, 2, 3]


def run_of(row: HistoryRow) -> tuple[object, ...]:
    """Return what all rows about one run have in common."""
    who = (int(row.lease), int(row.holder), row.worker, row.door, row.family)
    return (*who, int(row.deliveries), int(row.queue_seq))


def test_workers_are_known_in_every_segment() -> None:
    site = OpenYard(MemoryStorage(), segment_size=32_768, window=ALL_HISTORY)
    holder = site.connect().lease_set
    workers = [
        Terms(BUNQUEUE, Proof.TOKEN, 3000, name) for name in ("a", "b\N{SNOWMAN}", "c" * 999)
    ]
    taken = []
    for number in range(300):
        terms = workers[number % 3]
        site.put(b"x" * 200)
        lease = take(site.yard, [site.queue()], holder, terms, site.now_ms)
        assert lease is not None
        taken.append(lease)
        if number >= 50:
            finish(site.yard, taken[number - 50].job, site.now_ms)
        if number % 7 == 0:
            site.commit()
    site.commit()
    assert len(site.journal.history.segments) > 3
    rows = page(site).rows
    claimed = {row.job_id: run_of(row) for row in rows if row.event == "claimed"}
    ended = {row.job_id: run_of(row) for row in rows if row.event == "completed"}
    assert (len(claimed), len(ended)) == (300, 250)
    assert ended == {job_id: claimed[job_id] for job_id in ended}
    shown = [row.worker for row in rows if row.event == "claimed"][:3]
    assert shown == ["a", "b\N{SNOWMAN}", "c" * WORKER_NAME_MAX]
    for start in (0, rows[400].seq, rows[-1].seq - 1):
        assert [run_of(row) for row in page(site, start).rows] == [
            run_of(row) for row in rows if row.seq > start
        ]
    again = OpenYard(site.storage, site.now_ms, segment_size=32_768, window=ALL_HISTORY)
    assert [run_of(row) for row in page(again).rows[: len(rows)]] == [run_of(row) for row in rows]


def test_many_workers_are_named_again_and_a_damaged_name_is_unknown() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage, segment_size=1 << 20, window=ALL_HISTORY)
    holder = site.connect().lease_set
    for number in range(WORKERS_KNOWN + 10):
        site.put()
        terms = Terms(BUNQUEUE, Proof.TOKEN, 3000, f"worker-{number % (WORKERS_KNOWN + 5)}")
        assert take(site.yard, [site.queue()], holder, terms, site.now_ms) is not None
    site.commit()
    rows = [row for row in page(site, rows=5000).rows if row.event == "claimed"]
    assert [row.worker for row in rows] == [
        f"worker-{number % (WORKERS_KNOWN + 5)}" for number in range(WORKERS_KNOWN + 10)
    ]
    assert read_worker(site.journal, site.journal.hot, 70) == ""
    assert read_worker(site.journal, site.journal.hot, int(site.journal.hot.end) + 5) == ""


def test_the_names_that_clients_gave_a_job_are_shown_where_it_enters_and_where_a_run_ends() -> None:
    site = OpenYard(MemoryStorage(), window=ALL_HISTORY)
    details = JobDetails()
    details.custom_id = "order-7"
    policy = Policy(0)
    policy.name = "bill"
    job = site.enter(details=details, policy=policy)
    plain = site.enter(policy=Policy(0))
    site.run(job)
    site.run(plain)
    complete(site.yard, job, b"r", MSGPACK, KEEP_AS_ASKED, site.now_ms)
    finish(site.yard, plain, site.now_ms)
    site.commit()
    named = [(row.event, row.client_id, row.name) for row in page(site).rows]
    assert named == [
        *[("enqueued", "order-7", "bill"), ("enqueued", "", ""), ("claimed", "", "")],
        *[("claimed", "", ""), ("completed", "order-7", "bill"), ("completed", "", "")],
    ]


def test_a_lease_that_goes_to_another_holder_keeps_its_numbers_in_history() -> None:
    site = OpenYard(MemoryStorage(), window=ALL_HISTORY)
    first = site.connect().lease_set
    site.put()
    lease = site.take(first)
    hand_over(site.yard, lease, site.connect().lease_set)
    finish(site.yard, lease.job, site.now_ms)
    site.commit()
    _, claimed, completed = page(site).rows
    assert run_of(claimed) == run_of(completed)
    assert completed.holder == first.key


def test_a_full_disk_writes_no_names() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage, window=ALL_HISTORY)
    job = site.put()
    site.take(site.connect().lease_set)
    site.journal.note_full()
    terms = Terms(BUNQUEUE, Proof.TOKEN, 3000, "late")
    assert job.lease is not None
    job.lease.worker = WorkerName("other")
    release(site.yard, job, 5, 7000, site.now_ms)
    assert terms.worker is not None
    site.commit()
    assert [(row.event, row.worker) for row in page(site).rows[1:]] == [
        *[("claimed", "beanstalk"), ("released", "")],
    ]


def test_rows_can_be_read_once_they_are_on_disk_and_not_before() -> None:
    site = OpenYard(MemoryStorage(), window=ALL_HISTORY)
    site.commit()
    head = page(site).head_seq
    site.put()
    assert (page(site).rows, page(site).head_seq) == ([], head)
    site.journal.seal_batch()
    assert (page(site).rows, page(site).to_seq) == ([], head)
    site.journal.write_pending()
    assert (page(site).rows, page(site).to_seq) == ([], head)
    site.commit()
    found = page(site)
    assert told(found.rows) == [("enqueued", "default", 1, "ready")]
    assert found.to_seq == found.head_seq == found.rows[0].seq


def test_a_page_ends_after_some_rows_or_bytes_and_the_next_continues() -> None:
    site = OpenYard(MemoryStorage(), segment_size=32_768, window=ALL_HISTORY)
    for number in range(40):
        site.put(b"x" * 3000)
        if number % 3 == 0:
            site.commit()
    site.commit()
    assert len(site.journal.history.segments) > 2
    wanted = [int(row.seq) for row in page(site).rows]
    assert len(wanted) == 40
    for rows, most in ((1, 1 << 20), (7, 1 << 20), (1000, 1), (1000, 9000)):
        found: list[int] = []
        after = 0
        while True:
            one = page(site, after, rows, most)
            assert len(one.rows) <= rows
            assert one.to_seq > after
            found += [int(row.seq) for row in one.rows]
            after = int(one.to_seq)
            if after == one.head_seq:
                break
        assert found == wanted


def test_a_page_ends_at_the_number_that_was_named() -> None:
    site = OpenYard(MemoryStorage(), window=ALL_HISTORY)
    for _ in range(10):
        site.put()
    site.commit()
    rows = page(site).rows
    found = read_history(site.yard, rows[2].seq, 1000, to_seq=rows[6].seq)
    assert [row.seq for row in found.rows] == [row.seq for row in rows[3:7]]
    assert found.to_seq == rows[6].seq
    beyond = read_history(site.yard, found.head_seq + 5, 1000)
    assert (beyond.rows, beyond.to_seq) == ([], found.head_seq + 5)


def test_a_job_that_waits_for_another_is_reported_as_blocked() -> None:
    site = OpenYard(MemoryStorage(), window=ALL_HISTORY)
    child = site.enter(b"child")
    details = JobDetails()
    details.custom_id = "parent"
    details.members = [Member(child.id, "child")]
    site.enter(b"parent", details=details)
    site.commit()
    assert [row.state for row in page(site).rows] == ["ready", "blocked"]


def test_what_compaction_copies_is_no_row() -> None:
    site = OpenYard(MemoryStorage(), window=(ALL_HISTORY[0], 40_000))
    jobs = [site.put(b"x" * 1500) for _ in range(100)]
    site.commit()
    before = {int(row.seq): told([row]) for row in page(site).rows}
    for job in jobs[:90]:
        remove(site.yard, job, site.now_ms)
    site.commit()
    site.compact()
    assert site.journal.moved_count > 0
    found = page(site)
    assert found.floor > 1
    events = [row.event for row in found.rows]
    assert events.count("removed") == 90
    assert set(events) <= {"enqueued", "removed"}
    for row in found.rows:
        if row.event == "enqueued":
            assert before[int(row.seq)] == told([row])


def test_damage_is_a_gap_and_no_error() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage, segment_size=32_768, window=ALL_HISTORY)
    for _ in range(40):
        site.put(b"x" * 3000)
        site.commit()
    first, second = site.journal.history.segments[:2]
    storage.flip(second.name, int(second.points[0]) + 200, 1)
    found = page(site, 0)
    assert found.floor == second.next_record
    assert found.rows
    assert found.rows[0].seq >= found.floor
    assert not first.is_history


def test_every_reason_has_a_word() -> None:
    assert CAUSE_WORDS[KIND_PUT] == "completed"
    assert all(CAUSE_WORDS[1:17])
    assert PUT_SIZE == 80
