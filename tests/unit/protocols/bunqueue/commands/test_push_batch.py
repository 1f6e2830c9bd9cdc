"""PUSHB of many jobs: checked as a whole, then entered in slices; others are served between."""

import pytest

from jobyard.engine.topics.topic_setup import open_topic_queue
from jobyard.model.topic.config import DISCARD_REJECT, QUEUE, TopicConfig
from jobyard.protocols.bunqueue.commands.push_batch import ENTER_UNITS, PUSHED_AT_ONCE
from jobyard.protocols.session import PIECE_SIZE
from tests.support.clients.bunqueue import Answer, BunqueueClient
from tests.support.doors.bunqueue import BareBunqueue
from tests.support.site.storage import MemoryStorage

LONG = PUSHED_AT_ONCE + 200
# Three moments of entering.
LONGER = 2 * ENTER_UNITS + 500


def slow_site() -> tuple[BareBunqueue, BunqueueClient]:
    """A yard whose long work continues only on the test's request."""
    site = BareBunqueue(MemoryStorage())
    site.yard.tasks.units_per_turn = 100
    site.is_slow = True
    site.slice()
    return site, site.connect()


def finish(site: BareBunqueue) -> int:
    """Run long work to its end; return the number of turns."""
    turns = 1
    while site.slice():
        turns += 1
    return turns


def answer_of(site: BareBunqueue, client: BunqueueClient, number: str) -> Answer:
    """Return the answer that comes at the end of long work."""
    finish(site)
    answer = client.hear(number)
    assert answer is not None
    return answer


def count_of(site: BareBunqueue) -> int:
    """Return how many jobs there are."""
    return sum(int(queue.jobs_count()) for queue in site.yard.queues.values())


def plain(count: int) -> list[dict[str, object]]:
    """Return distinguishable jobs."""
    return [{"data": at} for at in range(count)]


def test_a_short_batch_is_done_in_its_turn_though_the_turn_is_short() -> None:
    site, client = slow_site()
    number = client.send("PUSHB", queue="q", jobs=plain(PUSHED_AT_ONCE))
    answer = client.hear(number)
    assert answer is not None
    assert len(answer["ids"]) == PUSHED_AT_ONCE
    site.check()


def test_nothing_of_a_long_batch_is_seen_before_all_of_it_was_checked() -> None:
    site, client = slow_site()
    other = site.connect()
    number = client.send("PUSHB", queue="q", jobs=plain(LONG))
    turns = 0
    while count_of(site) == 0:
        units = site.yard.tasks.units_done
        assert other.ok("Ping") is not None
        assert site.slice()
        turns += 1
        if count_of(site) == 0:
            assert site.yard.tasks.units_done - units <= 100 + 5
    assert turns > LONG // 100
    # All of it entered at one moment.
    assert count_of(site) == LONG
    answer = answer_of(site, client, number)
    assert len(set(answer["ids"])) == LONG
    site.check()


def test_jobs_come_out_in_the_order_in_which_they_were_pushed() -> None:
    site, client = slow_site()
    number = client.send("PUSHB", queue="q", jobs=plain(LONGER))
    ids = answer_of(site, client, number)["ids"]
    taken = client.ok("PULLB", queue="q", count=1000)["jobs"]
    assert [job["id"] for job in taken] == ids[:1000]
    assert [job["data"] for job in taken] == list(range(1000))
    site.check()


def test_a_longer_batch_enters_in_parts_and_each_is_bounded() -> None:
    site, client = slow_site()
    number = client.send("PUSHB", queue="q", jobs=plain(LONGER))
    counts = [0]
    while site.slice():
        if count_of(site) != counts[-1]:
            counts.append(count_of(site))
    assert counts == [0, ENTER_UNITS, 2 * ENTER_UNITS, LONGER]
    answer = client.hear(number)
    assert answer is not None
    assert len(answer["ids"]) == LONGER
    site.check()


def test_large_bodies_enter_in_smaller_parts() -> None:
    site, client = slow_site()
    jobs = [{"data": "x" * 40_000} for _ in range(300)]
    number = client.send("PUSHB", queue="q", jobs=jobs)
    seen = {0}
    while site.slice():
        seen.add(count_of(site))
    assert len(seen) >= 4
    answer = client.hear(number)
    assert answer is not None
    assert len(answer["ids"]) == 300


@pytest.mark.parametrize(
    ("spoiled", "error"),
    [
        ({}, "Job data is required"),
        ({"data": 1, "delay": -1}, "delay must be at least 0"),
        ({"data": 1, "dependsOn": ["nobody"]}, "Dependency job not found: nobody"),
        ({"data": 1, "customId": "me", "dependsOn": ["me"]}, "Job cannot depend on itself: me"),
    ],
)
def test_a_long_batch_with_one_bad_job_changes_nothing(
    spoiled: dict[str, object], error: str
) -> None:
    site, client = slow_site()
    number = client.send("PUSHB", queue="q", jobs=[*plain(LONGER), spoiled])
    answer = answer_of(site, client, number)
    assert answer == {"ok": False, "error": f"jobs[{LONGER}]: {error}"}
    assert count_of(site) == 0
    assert client.hear(client.send("Count", queue="q")) == {"ok": True, "count": 0}


def test_what_is_no_object_is_told_by_its_place() -> None:
    site, client = slow_site()
    number = client.send("PUSHB", queue="q", jobs=[*plain(LONG), 7])
    answer = answer_of(site, client, number)
    assert answer["error"] == f"jobs[{LONG}]: must be an object"
    assert count_of(site) == 0


def test_a_circle_in_a_long_batch_changes_nothing() -> None:
    site, client = slow_site()
    jobs: list[dict[str, object]] = [
        {"data": at, "customId": f"c{at}", "dependsOn": [f"c{(at + 1) % LONG}"]}
        for at in range(LONG)
    ]
    answer = answer_of(site, client, client.send("PUSHB", queue="q", jobs=jobs))
    assert "Job cannot depend on itself" in answer["error"]
    assert count_of(site) == 0


def test_jobs_of_one_batch_that_wait_for_each_other_are_tied_across_its_parts() -> None:
    site, client = slow_site()
    # The first waits for the last, and each other one for the next.
    jobs: list[dict[str, object]] = [
        {"data": at, "customId": f"c{at}", "dependsOn": [f"c{at + 1}"]} for at in range(LONG)
    ]
    jobs.append({"data": "end", "customId": f"c{LONG}"})
    answer = answer_of(site, client, client.send("PUSHB", queue="q", jobs=jobs))
    assert answer["ids"] == [f"c{at}" for at in range(LONG + 1)]
    site.is_slow = False
    for at in range(LONG, LONG - 5, -1):
        job = client.pull("q")
        assert job["id"] == f"c{at}"
        assert client.ok("PULL", queue="q")["job"] is None
        client.ok("ACK", id=job["id"])
    site.check()


def test_ids_and_keys_stand_for_one_job_across_the_parts_of_a_batch() -> None:
    site, client = slow_site()
    jobs: list[dict[str, object]] = [*plain(LONGER)]
    jobs[0] = {"data": "a", "customId": "same"}
    jobs[1] = {"data": "b", "uniqueKey": "key"}
    jobs[-1] = {"data": "c", "customId": "same"}
    jobs[-2] = {"data": "d", "uniqueKey": "key"}
    ids = answer_of(site, client, client.send("PUSHB", queue="q", jobs=jobs))["ids"]
    assert ids[0] == ids[-1] == "same"
    assert ids[1] == ids[-2]
    assert count_of(site) == LONGER - 2
    site.check()


def test_who_depends_on_a_job_that_ended_meanwhile_does_not_wait_for_it() -> None:
    site, client = slow_site()
    site.is_slow = False
    done, gone = client.push("other", "done"), client.push("other", "gone")
    site.is_slow = True
    worker = site.connect()
    jobs = [*plain(LONG), {"data": 1, "dependsOn": [done, gone]}]
    before = site.yard.tasks.units_done
    number = client.send("PUSHB", queue="q", jobs=jobs)
    # Read and linked, at one unit each or more, but not entered.
    while site.yard.tasks.units_done - before < 2 * LONG + 50:
        assert site.slice()
    assert count_of(site) == 2
    assert worker.pull("other")["id"] == done
    worker.ok("ACK", id=done, result=1)
    worker.ok("Cancel", id=gone)
    ids = answer_of(site, client, number)["ids"]
    assert client.hear(client.send("GetState", id=ids[-1])) == {
        "ok": True,
        "id": ids[-1],
        "state": "waiting",
    }
    site.check()


def test_commands_behind_a_long_batch_wait_for_its_end() -> None:
    site, client = slow_site()
    batch = client.send("PUSHB", queue="q", jobs=plain(LONG))
    push = client.send("PUSH", queue="q", data="later")
    pull = client.send("PULL", queue="q")
    site.slice()
    assert [client.hear(number) for number in (batch, push, pull)] == [None] * 3
    ids = answer_of(site, client, batch)["ids"]
    assert client.hear(push) is not None
    taken = client.hear(pull)
    assert taken is not None
    assert taken["job"]["id"] == ids[0]


def test_a_batch_is_added_also_for_who_has_left() -> None:
    site, client = slow_site()
    client.send("PUSHB", queue="q", jobs=plain(LONG))
    site.slice()
    client.close()
    finish(site)
    assert count_of(site) == LONG
    site.check()


def test_a_worker_that_waits_is_served_while_a_batch_enters() -> None:
    site, client = slow_site()
    worker = site.connect()
    pull = worker.send("PULL", queue="q", timeout=5000)
    number = client.send("PUSHB", queue="q", jobs=plain(LONGER))
    while worker.hear(pull) is None:
        assert site.slice()
    assert client.hear(number) is None
    assert count_of(site) == ENTER_UNITS
    finish(site)
    site.check()


def test_a_kill_in_the_middle_leaves_whole_parts() -> None:
    site, client = slow_site()
    client.send("PUSHB", queue="q", jobs=plain(LONGER))
    while count_of(site) == 0:
        assert site.slice()
    again = site.reboot()
    assert count_of(again) == ENTER_UNITS
    again.check()


def test_a_batch_that_finds_no_room_is_refused_before_its_first_job() -> None:
    site = BareBunqueue()
    client = site.connect()
    site.yard.bodies.in_memory = 1 << 40
    assert client.refused("PUSHB", queue="q", jobs=plain(LONG)) == "Storage full"
    assert count_of(site) == 0
    assert "q" not in site.yard.queues


def test_a_batch_that_others_leave_no_room_for_tells_how_far_it_came() -> None:
    site = BareBunqueue()
    site.is_slow = True
    client = site.connect()
    number = client.send("PUSHB", queue="q", jobs=plain(LONGER))
    while count_of(site) == 0:
        assert site.slice()
    full = site.yard.bodies.in_memory
    site.yard.bodies.in_memory = 1 << 40
    answer = answer_of(site, client, number)
    site.yard.bodies.in_memory = full
    added = f"{ENTER_UNITS} of {LONGER} jobs were added"
    assert answer == {"ok": False, "error": f"Storage full ({added})"}
    assert count_of(site) == ENTER_UNITS
    site.check()


def test_a_long_batch_for_a_topic_that_rejects_is_refused_as_a_whole() -> None:
    site = BareBunqueue()
    config = TopicConfig()
    config.type = QUEUE
    config.cap_records = LONG
    config.discard = DISCARD_REJECT
    open_topic_queue(site.yard, "q", config, site.now_ms)
    client = site.connect()
    client.push()
    assert client.refused("PUSHB", queue="q", jobs=plain(LONG)) == "Storage full"
    assert count_of(site) == 1


@pytest.mark.parametrize("is_chain", [False, True])
def test_ids_are_answered_in_pieces_in_the_order_of_the_jobs(*, is_chain: bool) -> None:
    site = BareBunqueue(MemoryStorage())
    client = site.connect()
    names = [f"{at:05}" + "x" * 95 for at in range(3 * PIECE_SIZE // 100)]
    jobs: list[dict[str, object]] = [{"data": 1, "customId": name} for name in names]
    if is_chain:
        # The first waits for the last, so they enter in another order.
        jobs[0]["dependsOn"] = [names[-1]]
    assert client.ok("PUSHB", queue="q", jobs=jobs)["ids"] == names
    assert count_of(site) == len(names)
    site.check()
