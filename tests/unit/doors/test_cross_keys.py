"""Keys, ids, ordering groups, groups and flows of jobs that are ended at other doors."""

from collections.abc import Callable

import pytest

from jobyard.model.job import DEAD, LEASED, READY
from tests.support.doors.crossing import DOORS, QUEUE, Crossing
from tests.support.site.storage import MemoryStorage

Act = Callable[[Crossing], object]


def opened() -> Crossing:
    doors = Crossing()
    doors.make()
    return doors


def run_at_glide(doors: Crossing) -> tuple[str, str]:
    ((job_id, entry),) = doors.glide.read()
    return job_id, entry


def leave(doors: Crossing) -> None:
    bean = doors.another_bean()
    bean.reserve()
    bean.client.leave()


FREES: dict[str, Act] = {
    "delete held": lambda doors: doors.bean.ask(f"delete {doors.bean.reserve()[0]}"),
    "delete ready": lambda doors: doors.bean.ask("delete 1"),
    "bury": lambda doors: doors.bean.ask(f"bury {doors.bean.reserve()[0]} 0"),
    "complete": lambda doors: doors.glide.complete(*run_at_glide(doors)),
    "fail": lambda doors: doors.glide.fail(*run_at_glide(doors)),
    "XACK": lambda doors: doors.glide.client.ask(
        "XACK", doors.glide.key("stream"), "workers", run_at_glide(doors)[1]
    ),
    "DEL": lambda doors: doors.glide.client.ask("DEL", doors.glide.key("job:1")),
    "revoke": lambda doors: doors.glide.call(
        "revoke", ["job:1", "stream", "scheduled", "failed", "events"], "1", 1, "workers"
    ),
    "ack": lambda doors: doors.api.ok(
        f"{QUEUE}/ack", {"node": "w", "seqs": [doors.api.claim(QUEUE)["claimed"][0]["$seq"]]}
    ),
    "topics delete": lambda doors: doors.api.ok(f"{QUEUE}/delete", {"before_seq": 9}),
}
KEEPS: dict[str, Act] = {
    "release": lambda doors: doors.bean.ask(f"release {doors.bean.reserve()[0]} 0 0"),
    "leave": leave,
    "fail": lambda doors: doors.glide.fail(*run_at_glide(doors), attempts=5),
    "nack": lambda doors: doors.api.ok(
        f"{QUEUE}/nack", {"node": "w", "seqs": [doors.api.claim(QUEUE)["claimed"][0]["$seq"]]}
    ),
}


@pytest.mark.parametrize("free", FREES)
def test_a_key_of_bunqueue_is_free_once_the_job_ended_at_any_door(free: str) -> None:
    doors = opened()
    name = doors.bun.push(QUEUE, 1, uniqueKey="k", maxAttempts=1)
    assert doors.bun.push(QUEUE, 2, uniqueKey="k") == name
    FREES[free](doors)
    assert doors.bun.push(QUEUE, 3, uniqueKey="k") != name
    doors.check()


@pytest.mark.parametrize("keep", KEEPS)
def test_a_key_of_bunqueue_outlasts_a_run_that_is_to_be_tried_again(keep: str) -> None:
    doors = opened()
    name = doors.bun.push(QUEUE, 1, uniqueKey="k", maxAttempts=9)
    KEEPS[keep](doors)
    assert doors.bun.push(QUEUE, 3, uniqueKey="k") == name
    doors.check()


@pytest.mark.parametrize("free", FREES)
def test_an_id_of_bunqueue_is_reused_after_an_end_at_any_door(free: str) -> None:
    doors = opened()
    assert doors.bun.push(QUEUE, 1, jobId="mine", maxAttempts=1) == "mine"
    FREES[free](doors)
    assert doors.bun.push(QUEUE, 2, jobId="mine") == "mine"
    assert doors.bun.ok("GetJobByCustomId", customId="mine")["job"]["data"] == 2
    assert doors.bun.pull(QUEUE)["data"] == 2
    doors.check()


@pytest.mark.parametrize("free", [free for free in FREES if free not in {"DEL", "revoke"}])
def test_an_id_of_glide_mq_is_taken_for_as_long_as_its_hash_is_there(free: str) -> None:
    doors = opened()
    doors.glide.add(data="1", custom="mine")
    FREES[free](doors)
    is_gone = free in {"delete ready", "topics delete"}
    assert (doors.glide.state("mine") is None) == is_gone
    assert doors.glide.add(data="2", custom="mine") == (b"mine" if is_gone else b"duplicate")
    doors.check()


@pytest.mark.parametrize("free", [free for free in FREES if free not in {"DEL", "revoke"}])
def test_who_stands_for_others_at_glide_mq_may_end_at_any_door(free: str) -> None:
    doors = opened()
    assert doors.glide.dedup("d", "simple") == b"1"
    assert doors.glide.dedup("d", "simple") == b"skipped"
    FREES[free](doors)
    assert doors.glide.dedup("d", "simple") == b"2"
    doors.check()


def test_who_stands_for_others_and_comes_back_stands_for_them_again() -> None:
    doors = opened()
    doors.glide.dedup("d", "simple")
    doors.bean.ask(f"bury {doors.bean.reserve()[0]} 0")
    doors.bean.ask("kick 1")
    assert doors.glide.dedup("d", "simple") == b"skipped"
    leave(doors)
    assert doors.glide.dedup("d", "simple") == b"skipped"


def test_a_debounce_replaces_what_is_to_come_and_nothing_that_runs_elsewhere() -> None:
    doors = opened()
    doors.glide.dedup("d", "debounce", delay=5000)
    assert doors.glide.dedup("d", "debounce", delay=5000) == b"2"
    assert doors.yard.jobs.count == 1
    doors.bean.ask("kick 1")
    doors.bean.reserve()
    assert doors.glide.dedup("d", "debounce", delay=5000) == b"skipped"


# -- ordering groups and groups ----------------------------------------------------------------


def put_group(doors: Crossing) -> None:
    for number in range(3):
        doors.glide.add(data=str(number), key="group", attempts=9)


@pytest.mark.parametrize("door", DOORS)
def test_every_door_keeps_the_order_of_an_ordering_group(door: str) -> None:
    doors = opened()
    put_group(doors)
    assert doors.take_at(door) == 0
    assert all(doors.take_at(other) is None for other in DOORS)
    assert doors.glide.client.ask("HGET", doors.glide.key("ordering"), "group") == b"3"
    doors.check()


@pytest.mark.parametrize("keep", KEEPS)
def test_a_turn_stays_with_a_job_that_is_tried_again(keep: str) -> None:
    doors = opened()
    put_group(doors)
    KEEPS[keep](doors)
    doors.tick(5)
    # The one that started continues before the next one starts.
    assert [doors.take_at("bunqueue"), doors.take_at("bunqueue")] == [0, None]
    doors.check()


@pytest.mark.parametrize("free", [free for free in FREES if free != "topics delete"])
def test_the_next_of_an_ordering_group_wakes_a_client_of_another_door(free: str) -> None:
    doors = opened()
    for number in range(3):
        doors.glide.add(data=str(number), key="group")
    if free in {"delete ready", "DEL", "revoke"}:
        # Of the first, which does not run yet.
        FREES[free](doors)
        assert doors.take_at("topics") == 1
    else:
        FREES[free](doors)
        waiting = doors.wait("PULL")
        assert waiting.heard() == 1
    assert doors.take_at("topics") is None
    doors.check()


def test_an_ordering_group_delays_no_job_of_another_door() -> None:
    doors = opened()
    put_group(doors)
    for number, door in enumerate(DOORS):
        doors.put_at(door, 10 + number)
    assert [doors.take_at("beanstalk") for _ in range(6)] == [0, 10, 11, 12, 13, None]


def test_the_slot_of_a_group_is_free_at_once_wherever_its_job_ran() -> None:
    doors = opened()
    doors.bun.ok("SetGroupConcurrency", queue=QUEUE, groupId="g", concurrency=1)
    for number in range(2):
        doors.bun.push(QUEUE, number, groupId="g", maxAttempts=9, backoff=60_000)
    job_id, entry = run_at_glide(doors)
    assert all(doors.take_at(door) is None for door in DOORS)
    waiting = doors.wait("reserve")
    doors.glide.fail(job_id, entry)
    assert waiting.heard() == 1
    doors.check()


# -- parents and children ----------------------------------------------------------------------


@pytest.mark.parametrize("free", FREES)
def test_a_parent_is_notified_of_the_end_of_a_child_at_any_door(free: str) -> None:
    doors = opened()
    kind = {"parentId": "pending", "removeDependencyOnFailure": True}
    name = doors.bun.push(QUEUE, 1, maxAttempts=1, **kind)
    parent = doors.bun.push("parents", 2)
    doors.bun.ok("UpdateParent", childId=name, parentId=parent)
    assert doors.bun.state(parent) == "waiting-children"
    FREES[free](doors)
    assert doors.bun.state(parent) == "waiting"
    doors.check()


@pytest.mark.parametrize("free", ["delete ready", "DEL", "topics delete"])
def test_a_parent_whose_child_was_removed_can_be_seen_to_wait_in_vain(free: str) -> None:
    doors = opened()
    name = doors.bun.push(QUEUE, 1)
    parent = doors.bun.push("parents", 2, dependsOn=[name])
    FREES[free](doors)
    assert doors.bun.state(parent) == "waiting-children"
    told = doors.bun.ok("GetFailedChildrenValues", id=parent)["values"]
    assert list(told) == [f"{QUEUE}:{name}"]
    doors.bun.ok("Cancel", id=parent)
    doors.check()


@pytest.mark.parametrize("door", DOORS)
def test_a_child_that_is_tied_twice_is_waited_for_once(door: str) -> None:
    doors = opened()
    doors.put_at(door, 1)
    name = doors.bun.ok("GetJobs", queue=QUEUE)["jobs"][0]["id"]
    parent = doors.bun.push("parents", 2, dependsOn=[name])
    doors.bun.ok("UpdateParent", childId=name, parentId=parent)
    doors.check()
    doors.bean.ask(f"delete {doors.bean.reserve()[0]}")
    assert doors.bun.state(parent) == "waiting"
    assert doors.yard.names.dependents.count == 0


# -- one line of the dead, one batch of acks ---------------------------------------------------


def test_the_dead_of_all_families_are_one_line() -> None:
    doors = opened()
    for number, door in enumerate(DOORS):
        doors.put_at(door, number)
        doors.bean.ask(f"bury {doors.bean.reserve()[0]} 0")
    assert [job["data"] for job in doors.bun.ok("Dlq", queue=QUEUE)["jobs"]] == [0, 1, 2, 3]
    assert doors.glide.client.ask("ZCARD", doors.glide.key("failed")) == 4
    assert doors.bean.ask("peek-buried") == "FOUND 1 1\r\n0"
    assert doors.bean.ask("kick 2") == "KICKED 2"
    keys = ["failed", "scheduled", "events", "id"]
    assert doors.glide.call("retryJobs", keys, 1, doors.glide.ts()) == 1
    assert doors.api.ok(f"{QUEUE}/redrive", {})["redriven"] == 1
    assert sorted(doors.take_at("bunqueue") for _ in range(4)) == [0, 1, 2, 3]


def test_limits_of_the_dead_are_for_jobs_of_bunqueue_alone() -> None:
    doors = opened()
    doors.bun.ok("SetDlqConfig", queue=QUEUE, config={"maxEntries": 1, "maxAge": 1000})
    for number, door in enumerate([*DOORS, "bunqueue"]):
        doors.put_at(door, number)
        doors.bean.ask(f"bury {doors.bean.reserve()[0]} 0")
    assert [job["data"] for job in doors.bun.ok("Dlq", queue=QUEUE)["jobs"]] == [0, 2, 3, 4]
    doors.tick(5000)
    assert [job["data"] for job in doors.bun.ok("Dlq", queue=QUEUE)["jobs"]] == [0, 2, 3]
    assert doors.bun.ok("PurgeDlq", queue=QUEUE) == {"count": 3}
    assert doors.yard.jobs.count == 0


def test_a_batch_of_acks_ends_all_that_it_may() -> None:
    doors = opened()
    for door in DOORS:
        doors.put_at(door, 1)
    names = [doors.bun.pull(QUEUE)["id"] for _ in range(3)]
    doors.bean.reserve()
    held = [
        job["id"] for job in doors.bun.ok("GetJobs", queue=QUEUE)["jobs"] if job["id"] not in names
    ]
    answer = doors.bun.ok("ACKB", ids=[names[0], "unknown", *held, *names[1:]])
    assert answer["data"]["ignoredIndices"] == [1, 2]
    assert doors.api.state(QUEUE)["queue"]["in_flight"] == 1
    doors.check()


# -- what else is separate ---------------------------------------------------------------------


def test_a_new_configuration_leaves_what_other_doors_have_set() -> None:
    doors = opened()
    doors.bun.ok("Pause", queue=QUEUE)
    doors.bun.ok("RateLimit", queue=QUEUE, limit=5, duration=1000)
    doors.glide.client.ask("HSET", doors.glide.key("meta"), "globalConcurrency", 7)
    doors.api.put(QUEUE, type="queue", cap_records=9)
    meta = doors.glide.client.ask("HGETALL", doors.glide.key("meta"))
    told = dict(zip(meta[::2], meta[1::2], strict=True))
    assert (told[b"paused"], told[b"globalConcurrency"], told[b"rateLimitMax"]) == (
        b"1",
        b"7",
        b"5",
    )
    assert doors.bun.ok("IsPaused", queue=QUEUE)["paused"] is True


@pytest.mark.parametrize("door", ["beanstalk", "bunqueue", "glide-mq"])
def test_a_queue_born_at_another_door_is_no_log(door: str) -> None:
    doors = Crossing()
    doors.put_at(door, 1)
    answer = doors.api.ask("PUT", f"/v0/topics/{QUEUE}", {"cap_records": 5})
    assert answer.status == 409
    doors.api.put(QUEUE, type="queue", cap_records=5)
    assert doors.take_at("topics") == 1


@pytest.mark.parametrize("door", ["beanstalk", "bunqueue", "glide-mq"])
def test_who_acks_or_erases_leaves_no_gap_to_be_told(door: str) -> None:
    doors = opened()
    for number in range(3):
        doors.put_at(door, number)
    doors.api.ok(
        f"{QUEUE}/ack", {"node": "w", "seqs": [doors.api.claim(QUEUE)["claimed"][0]["$seq"]]}
    )
    doors.bean.ask(f"delete {doors.bean.reserve()[0]}")
    page = doors.api.diff(QUEUE, from_seq=0)
    assert (page["tombstone"], [one["$seq"] for one in page["records"]]) == (None, [3])


def test_what_is_done_is_in_no_reading_and_keeps_its_names() -> None:
    doors = opened()
    doors.bun.push(QUEUE, 1, jobId="mine")
    doors.glide.add(data="2", custom="own")
    for _ in range(2):
        doors.bean.ask(f"delete {doors.bean.reserve()[0]}")
    assert doors.api.diff(QUEUE, from_seq=0)["records"] == []
    assert doors.bun.state("mine") == "completed"
    assert doors.glide.state("own") == "completed"
    assert (doors.glide.state("1"), doors.glide.state("2")) == ("completed", None)
    assert doors.glide.client.ask("GET", doors.glide.key("id")) == b"2"


def test_only_leases_that_are_to_last_outlive_the_server() -> None:
    doors = Crossing(MemoryStorage())
    doors.api.put(QUEUE, type="queue", leases_durable=True)
    for number, door in enumerate(DOORS * 2):
        doors.put_at(door, number)
    for _ in range(4):
        doors.take_at("topics")
    doors.take_at("beanstalk")
    doors.take_at("bunqueue")
    doors.glide.read(count=2)
    after = doors.after_a_crash()
    states = [(int(job.key), job.state, job.deliveries) for job in after.yard.jobs.all()]
    assert sorted(states) == [(seq, LEASED if seq <= 4 else READY, 1) for seq in range(1, 9)]
    assert after.api.ok(f"{QUEUE}/ack", {"node": "w", "seqs": [1, 2, 3, 4, 5]})["skipped"] == [5]


def test_beside_a_lease_that_outlives_the_server_no_other_of_its_ordering_key_runs() -> None:
    doors = Crossing(MemoryStorage())
    doors.api.put(QUEUE, type="queue", leases_durable=True)
    for number in range(2):
        doors.glide.add(data=str(number), key="k")
    [first] = doors.glide.read()
    assert doors.glide.fail(*first) == b"failed"
    doors.take_at("topics")
    keys = ["failed", "scheduled", "events", "id"]
    assert doors.glide.call("retryJobs", keys, 0, doors.glide.ts()) == 1
    doors.glide.promote()
    after = doors.after_a_crash()
    assert after.glide.read(count=2) == []
    after.api.ok(f"{QUEUE}/ack", {"node": "w", "seqs": [2]})
    assert [job_id for job_id, _ in after.glide.read(count=2)] == ["1"]


def test_a_crash_moves_no_job_of_ready_lists_groups_keys_or_dead() -> None:
    doors = Crossing(MemoryStorage())
    doors.make()
    put_group(doors)
    doors.glide.add(data="10", priority=2)
    doors.glide.add(data="11", priority=1)
    doors.glide.add(data="12", lifo=1)
    doors.glide.add(data="13", delay=9000, custom="own")
    doors.bun.push(QUEUE, 14, uniqueKey="k", jobId="mine")
    doors.put_at("beanstalk", 15)
    doors.put_at("topics", 16)
    doors.bean.ask("bury 1 0")
    assert doors.take_at("beanstalk") == 12
    doors.bean.ask("bury 6 0")
    counts = doors.glide.counts()
    after = doors.after_a_crash()
    assert after.glide.counts() == {**counts, "active": 0}
    assert after.bun.push(QUEUE, 0, uniqueKey="k") == "mine"
    assert after.glide.add(custom="own") == b"duplicate"
    (dead,) = [job for job in after.yard.jobs.all() if job.state == DEAD]
    assert dead.key == 6
    assert [after.take_at("bunqueue") for _ in range(7)] == [0, 14, 15, 16, 11, 10, None]
    after.tick(9000)
    assert after.take_at("topics") == 13
    after.check()
