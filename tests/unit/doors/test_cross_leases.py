"""The door of a lease decides how long it lasts, the family of the job what happens then, and
only the client that took the job may end it."""

import pytest

from jobyard.model.job import DEAD, DELAYED, DONE, GONE, LEASED, READY, Job
from tests.support.doors.crossing import DOORS, QUEUE, Crossing
from tests.support.site.storage import MemoryStorage

# A door and, for bunqueue, whether with a lock.
LEASES = ("beanstalk", "bunqueue", "lock", "glide-mq", "topics", "work")


def put(doors: Crossing, family: str, **own: object) -> Job:
    """Put a job whose attempts are not used up by one failure."""
    if family == "beanstalk":
        doors.bean.put("1", ttr_s=7)
    elif family == "bunqueue":
        backoff = {"type": "fixed", "delay": 2000}
        doors.bun.push(QUEUE, 1, maxAttempts=5, backoff=backoff, **own)
    elif family == "glide-mq":
        opts = '{"attempts":5,"backoff":{"type":"fixed","delay":2000}}'
        doors.glide.add(**{"data": "1", "attempts": 5, "opts": opts, **own})
    else:
        doors.api.write(QUEUE, 1)
    job = doors.yard.jobs.get(doors.yard.journal.next_id - 1)
    assert job is not None
    return job


def take(doors: Crossing, how: str) -> None:
    if how == "lock":
        doors.bun.lock(QUEUE, lockTtl=4000)
    elif how == "work":
        doors.connect().listen(f"/v0/topics/{QUEUE}/work?node=w8&max=1")
    else:
        assert doors.take_at(how) == 1


def opened(**config: object) -> Crossing:
    doors = Crossing()
    doors.api.put(QUEUE, type="queue", lease_ms=9000, **config)
    return doors


LENGTHS = {
    "beanstalk": {"beanstalk": 7000, "bunqueue": 30_000, "glide-mq": 30_000, "topics": 9000},
    "bunqueue": {"beanstalk": 7000, "bunqueue": 35_000, "glide-mq": 35_000, "topics": 35_000},
    "lock": dict.fromkeys(DOORS, 4000),
    "topics": dict.fromkeys(DOORS, 9000),
    "work": dict.fromkeys(DOORS, 9000),
}


@pytest.mark.parametrize("family", DOORS)
@pytest.mark.parametrize("how", LENGTHS)
def test_the_door_says_how_long_and_the_family_what_then(how: str, family: str) -> None:
    doors = opened()
    job = put(doors, family)
    take(doors, how)
    length_ms = LENGTHS[how][family]
    assert job.lease is not None
    assert job.lease.sort_key == doors.now_ms + length_ms
    # No client waits that would get it again at once.
    if how == "work":
        doors.bun.ok("SetConcurrency", queue=QUEUE, limit=0)
    doors.tick(length_ms - 1)
    assert job.state == LEASED
    doors.tick(1)
    assert job.state == READY
    counters = job.counters()
    if family in {"beanstalk", "topics"}:
        assert (counters.timeouts, counters.stalls, job.attempts) == (1, 0, 0)
    elif family == "bunqueue":
        assert (counters.timeouts, counters.stalls, job.attempts) == (0, 1, 1)
    else:
        assert (counters.timeouts, counters.stalls, job.attempts) == (0, 1, 0)
    doors.check()


@pytest.mark.parametrize("family", DOORS)
def test_a_silent_worker_of_glide_mq_is_like_a_lease_that_ran_out(family: str) -> None:
    doors = opened()
    job = put(doors, family)
    take(doors, "glide-mq")
    doors.tick(3_600_000 - 1000)
    keys = ["stream", "events"]
    # Workers are still connected, so the server leaves the check to them.
    assert job.state == LEASED
    given = ("workers", "w2", 30_000, 1, doors.glide.ts(), doors.glide.key("failed"))
    assert doors.glide.call("reclaimStalled", keys, *given) == 1
    assert job.state == READY
    counted = (job.counters().timeouts, job.counters().stalls, job.attempts)
    assert counted == {"bunqueue": (0, 1, 1), "glide-mq": (0, 1, 0)}.get(family, (1, 0, 0))


@pytest.mark.parametrize("how", ["beanstalk", "lock", "topics"])
def test_a_job_of_glide_mq_may_stall_once_at_any_door(how: str) -> None:
    doors = opened()
    job = put(doors, "glide-mq")
    for state in (READY, DEAD):
        take(doors, how)
        doors.tick(30_000)
        assert job.state == state
    assert doors.glide.job("1")["failedReason"] == "job stalled more than maxStalledCount"
    assert doors.bean.of_job(int(job.id), "state") == "buried"
    assert doors.bun.ok("Dlq", queue=QUEUE)["entries"][0]["reason"] == "stalled"


@pytest.mark.parametrize("how", ["beanstalk", "lock", "topics"])
def test_a_job_of_bunqueue_is_out_of_attempts_by_stalls_at_any_door(how: str) -> None:
    doors = opened()
    doors.bun.push(QUEUE, 1, maxAttempts=2)
    job = doors.yard.jobs.get(1)
    assert job is not None
    for state in (READY, DEAD):
        take(doors, how)
        doors.tick(30_000)
        assert job.state == state
    assert doors.bun.ok("Dlq", queue=QUEUE)["entries"][0]["reason"] == "max_attempts_exceeded"


@pytest.mark.parametrize("how", LEASES)
def test_a_processing_time_of_bunqueue_ends_at_any_door(how: str) -> None:
    doors = opened()
    job = put(doors, "bunqueue", timeout=1500)
    take(doors, how)
    doors.tick(1499)
    assert job.state == LEASED
    doors.tick(1)
    assert (job.state, job.attempts) == (DELAYED, 1)
    assert doors.glide.job("1")["failedReason"] == "Job timeout exceeded"


def test_a_lock_that_glide_mq_named_holds_at_beanstalk_too() -> None:
    doors = opened()
    doors.glide.add(data="1", opts='{"lockDuration":12000}')
    take(doors, "beanstalk")
    assert doors.bean.of_job(1, "ttr") == "12"


FAILS = {
    "bunqueue": lambda doors: doors.bun.ok("FAIL", id=doors.bun.pull(QUEUE)["id"], error="no"),
    "glide-mq": lambda doors: doors.glide.fail(*doors.glide.read()[0], attempts=5, backoff=2000),
    "topics": lambda doors: doors.api.ok(
        f"{QUEUE}/nack", {"node": "w", "seqs": [doors.api.claim(QUEUE)["claimed"][0]["$seq"]]}
    ),
}


@pytest.mark.parametrize("family", ["bunqueue", "glide-mq"])
@pytest.mark.parametrize("door", FAILS)
def test_who_fails_without_a_delay_waits_as_its_family_does(door: str, family: str) -> None:
    doors = opened()
    job = put(doors, family)
    FAILS[door](doors)
    assert (job.state, job.attempts) == (DELAYED, 1)
    # A fixed wait of bunqueue is spread by a fifth.
    assert 1600 <= job.due_ms - doors.now_ms <= 2400
    doors.check()


@pytest.mark.parametrize("family", ["beanstalk", "topics"])
@pytest.mark.parametrize("door", ["bunqueue", "glide-mq"])
def test_a_job_without_attempts_waits_longer_each_time_for_ever(door: str, family: str) -> None:
    doors = opened()
    job = put(doors, family)
    waits = []
    for _ in range(9):
        FAILS[door](doors)
        assert job.state == DELAYED
        waits.append(int(job.due_ms) - doors.now_ms)
        doors.tick(60_000)
    assert 1000 <= waits[0] <= 3000
    assert all(20_000 <= wait_ms <= 60_000 for wait_ms in waits[5:])


def test_deliveries_of_all_doors_make_a_dead_letter() -> None:
    doors = opened(max_deliveries=3, dead_letter="letters")
    doors.api.write(QUEUE, 1)
    for how in ("beanstalk", "lock", "topics"):
        take(doors, how)
        doors.tick(30_000)
    assert doors.glide.read() == []
    (letter,) = doors.api.diff("letters")["records"]
    assert letter["meta"]["$dead_letter_deliveries"] == "3"
    assert doors.yard.jobs.count == 0


def test_a_time_to_live_is_over_as_the_family_has_it() -> None:
    doors = opened(ttl_ms=5000)
    doors.bun.push("n", 1, ttl=1000)
    glide = doors.library("g")
    glide.add(data="1", ttl=1000)
    doors.api.write(QUEUE, 1)
    doors.tick(5000)
    assert doors.bun.ok("Count", queue="n")["count"] == 0
    assert glide.job("1")["failedReason"] == "expired"
    assert doors.another_bean("g").ask("kick 9") == "KICKED 1"
    assert doors.take_at("beanstalk") is None
    assert doors.api.diff(QUEUE, from_seq=0)["tombstone"]["reason"] == "ttl"


# -- which client may end it -------------------------------------------------------------------


def ends_of_beanstalk(doors: Crossing) -> None:
    for line in ("delete 1", "release 1 0 0", "bury 1 0", "touch 1", "reserve-job 1", "kick-job 1"):
        assert doors.bean.ask(line) == "NOT_FOUND", line


def ends_of_bunqueue(doors: Crossing) -> None:
    (job,) = doors.bun.ok("GetJobs", queue=QUEUE)["jobs"]
    name = job["id"]
    for cmd in ("ACK", "FAIL", "Discard", "MoveToWait", "MoveToDelayed"):
        assert "Invalid or expired lock token" in doors.bun.refused(cmd, id=name), cmd
    for cmd in ("Cancel", "MoveToWaitingChildren", "JobHeartbeat", "Promote"):
        doors.bun.refused(cmd, id=name)
    doors.bun.refused("ChangeDelay", id=name, delay=5)
    doors.bun.refused("ExtendLock", id=name, duration=5)
    assert doors.bun.ok("ACKB", ids=[name])["data"]["ignoredIds"] == [name]
    assert doors.bun.state(name) == "active"


def ends_of_glide_mq(doors: Crossing) -> None:
    glide = doors.glide
    ask, stream = glide.client.ask, glide.key("stream")
    ((entry, *_),) = ask("XPENDING", stream, "workers", "-", "+", 9)
    job_id = "1"
    glide.complete(job_id, entry.decode())
    glide.complete(job_id, "")
    assert glide.fail(job_id, entry.decode()) == b"failed"
    assert glide.activate(job_id, entry.decode()) == b"GROUP_FULL"
    assert glide.call("deferActive", ["stream", "job:1"], job_id, entry, "workers") == 0
    assert ask("XACK", stream, "workers", entry) == 0
    assert ask("XCLAIM", stream, "workers", "w1", 0, entry) == []
    assert ask("XAUTOCLAIM", stream, "workers", "w1", 0, "0")[1] == []
    assert ask("XREADGROUP", "GROUP", "workers", "w", "STREAMS", stream, "0")[0][1] == []
    assert ask("XGROUP", "DELCONSUMER", stream, "workers", "w") == 0
    keys = ["stream", "events"]
    given = ("workers", "w2", 0, 1, glide.ts(), glide.key("failed"))
    assert glide.call("reclaimStalled", keys, *given) == 0
    parts = ["job:1", "stream", "scheduled", "completed", "failed", "events", "log:1"]
    assert "is running at another door" in glide.refused("removeJob", parts, job_id)


def ends_of_topics(doors: Crossing) -> None:
    held = {"node": "w", "seqs": [1]}
    for action, word in (("ack", "acked"), ("nack", "nacked"), ("dead-letter", "dead_lettered")):
        answer = doors.api.ok(f"{QUEUE}/{action}", held)
        assert (answer[word], answer["skipped"]) == (0, [1])
    assert doors.api.ok(f"{QUEUE}/extend", {**held, "lease_ms": 9000})["extended"] == 0


ENDS = {
    "beanstalk": ends_of_beanstalk,
    "bunqueue": ends_of_bunqueue,
    "glide-mq": ends_of_glide_mq,
    "topics": ends_of_topics,
}


@pytest.mark.parametrize("family", DOORS)
@pytest.mark.parametrize("how", LEASES)
def test_no_other_door_ends_a_lease(how: str, family: str) -> None:
    doors = opened()
    job = put(doors, family)
    take(doors, how)
    lease = job.lease
    assert lease is not None
    own = {"lock": "bunqueue", "work": "topics"}.get(how, how)
    for door, ends in ENDS.items():
        if door != own:
            ends(doors)
            assert (job.state, job.lease) == (LEASED, lease), door
    assert (job.attempts, job.deliveries) == (0, 1)
    doors.check()


# -- clients that disconnect -------------------------------------------------------------------


@pytest.mark.parametrize("family", DOORS)
@pytest.mark.parametrize("how", ["reserve", "PULL", "XREADGROUP", "claim", "work"])
def test_who_leaves_gives_back_what_its_door_lends_to_connections(how: str, family: str) -> None:
    doors = opened()
    waiting = doors.wait(how)
    job = put(doors, family)
    assert waiting.heard() == 1
    waiting.vanish()
    stays = how in {"XREADGROUP", "claim"}
    assert job.state == (LEASED if stays else READY)
    assert (job.attempts, job.counters().timeouts, job.counters().stalls) == (0, 0, 0)
    doors.check()


def test_a_lock_that_was_renewed_by_another_outlives_the_connection() -> None:
    doors = opened()
    job = put(doors, "topics")
    owner = doors.bunqueue()
    name, token = owner.lock(QUEUE, lockTtl=4000)
    doors.bun.ok("ExtendLock", id=name, token=token, duration=60_000)
    owner.close()
    assert job.state == LEASED
    doors.bun.ok("ACK", id=name, token=token)
    assert job.state == GONE


# -- clients that are late ---------------------------------------------------------------------


def test_a_late_ack_counts_until_any_door_takes_the_job_again() -> None:
    doors = opened()
    for family in ("bunqueue", "glide-mq"):
        job = put(doors, family)
        name, token = doors.bun.lock(QUEUE, lockTtl=4000)
        doors.tick(4000)
        assert job.state == READY
        doors.bun.ok("ACK", id=name, token=token)
        assert job.state == DONE
        job = put(doors, family)
        name, token = doors.bun.lock(QUEUE, lockTtl=4000)
        doors.tick(4000)
        number, _ = doors.bean.reserve()
        assert "lock token" in doors.bun.refused("ACK", id=name, token=token)
        doors.bean.client.leave()
        doors.bean = doors.another_bean()
        assert job.state == READY
        assert "not in processing" in doors.bun.refused("ACK", id=name, token=token)
        assert doors.bean.ask(f"delete {number}") == "DELETED"


@pytest.mark.parametrize("family", ["beanstalk", "topics"])
def test_a_late_end_of_a_job_without_attempts_counts_nowhere(family: str) -> None:
    doors = opened()
    job = put(doors, family)
    name, token = doors.bun.lock(QUEUE, lockTtl=4000)
    ((entry, *_),) = doors.glide.client.ask(
        "XPENDING", doors.glide.key("stream"), "workers", "-", "+", 9
    )
    doors.tick(4000)
    doors.bun.refused("ACK", id=name, token=token)
    doors.glide.complete("1", entry.decode())
    assert job.state == READY


@pytest.mark.parametrize("how", ["reserve", "PULL", "work"])
def test_a_worker_of_before_a_restart_has_lost_a_job_that_another_door_took(how: str) -> None:
    doors = Crossing(MemoryStorage())
    doors.make()
    put(doors, "glide-mq")
    ((job_id, entry),) = doors.glide.read()
    after = doors.after_a_crash()
    waiting = after.wait(how)
    assert waiting.heard() == 1
    waiting.vanish()
    assert after.glide.state(job_id) == "waiting"
    after.glide.complete(job_id, entry)
    assert after.glide.state(job_id) == "waiting"
    ((_, renewed),) = after.glide.read()
    assert renewed != entry
    after.glide.complete(job_id, renewed)
    assert after.glide.state(job_id) == "completed"


def test_a_worker_of_before_a_restart_may_end_what_nobody_took() -> None:
    doors = Crossing(MemoryStorage())
    doors.make()
    put(doors, "glide-mq")
    ((job_id, entry),) = doors.glide.read()
    after = doors.after_a_crash()
    after.glide.complete(job_id, entry)
    assert after.glide.state(job_id) == "completed"
