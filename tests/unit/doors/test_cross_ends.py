"""Jobs that cross doors, in cases where a real clock or a real socket would be in the way.

Cases that need neither are in tests/acceptance/doors, for every pair.
"""

import json
from typing import Any

import pytest

from jobyard.protocols.bunqueue.webhooks import LOOK_MS
from tests.support.doors.doors import BareDoors
from tests.support.site.storage import MemoryStorage


@pytest.fixture
def site() -> BareDoors:
    return BareDoors(MemoryStorage())


def hash_of(site: BareDoors, job_id: str = "1") -> dict[str, str]:
    return site.library().job(job_id)


# -- results ---------------------------------------------------------------------------------------


def test_a_result_of_bunqueue_is_text_to_a_job_of_glide_mq(site: BareDoors) -> None:
    library = site.library()
    library.add(data="{}")
    worker = site.bunqueue()
    worker.ok("SubscribeEvents", queue="q")
    job_id = worker.pull()["id"]
    wait = worker.send("WaitJob", id=job_id, timeout=60_000)
    worker.ok("ACK", id=job_id, result={"n": [1, b"\xff"]})
    shown = '{"n":[1,{"$base64":"/w=="}]}'
    value = json.loads(shown)
    for place in (site, site.after_a_crash()):
        assert hash_of(place)["returnvalue"] == shown
        client = place.bunqueue()
        assert client.ok("GetResult", id=job_id)["result"] == value
        assert client.ok("GetJob", id=job_id)["job"]["returnvalue"] == value
    answer = worker.hear(wait)
    assert answer is not None
    assert answer["result"] == value
    [event] = [one for one in worker.events if one["eventType"] == "completed"]
    assert event["data"] == value
    entries = library.client.ask("XRANGE", library.key("events"), "-", "+")
    told = [fields[5].decode() for _, fields in entries if fields[1] == b"completed"]
    assert told == [shown]


@pytest.mark.parametrize(
    ("said", "value"), [('{"n":[1]}', {"n": [1]}), ("plain", "plain"), ("null", None), ("", "")]
)
def test_a_result_of_glide_mq_is_a_value_to_a_job_of_bunqueue(
    site: BareDoors, said: str, value: object
) -> None:
    producer = site.bunqueue()
    producer.ok("SubscribeEvents", queue="q")
    job_id = producer.push(data={})
    wait = producer.send("WaitJob", id=job_id, timeout=60_000)
    library = site.library()
    library.client.ask("XLEN", library.key("events"))
    [(number, entry)] = library.read()
    library.complete(number, entry, said)
    site.settle()
    answer = producer.hear(wait)
    assert answer is not None
    assert answer.get("result") == value
    [event] = [one for one in producer.events if one["eventType"] == "completed"]
    assert event.get("data") == value
    for place in (site, site.after_a_crash()):
        client = place.bunqueue()
        assert client.ok("GetResult", id=job_id).get("result") == value
        assert client.ok("GetJob", id=job_id)["job"]["returnvalue"] == value
        assert json.loads(hash_of(place)["returnvalue"]) == value


def test_webhooks_are_told_results_of_either_kind(site: BareDoors) -> None:
    client = site.bunqueue()
    client.ok("AddWebhook", url="https://93.184.216.34/h", events=["job.completed"], queue="q")
    library = site.library()
    library.add(data="{}")
    [(number, entry)] = library.read()
    library.complete(number, entry, '{"a":1}')
    library.add(data="{}")
    [(number, entry)] = library.read()
    library.complete(number, entry, "plain")
    client.push(data=1)
    [(number, entry)] = library.read()
    library.complete(number, entry, "[2]")
    site.commit()
    site.tick(LOOK_MS)
    posts = [json.loads(post[-1])["data"] for post in site.others.life.posts]
    assert posts == [{"a": 1}, "plain", [2]]


def test_a_parent_at_bunqueue_is_told_what_a_child_of_glide_mq_came_to(site: BareDoors) -> None:
    library = site.library()
    library.add(data="{}")
    library.add(data="{}")
    client = site.bunqueue()
    first, second = (job["id"] for job in client.ok("GetJobs", queue="q")["jobs"])
    parent = client.push("p", {})
    for child in (first, second):
        client.ok("UpdateParent", childId=child, parentId=parent)
    for number, entry in library.read(count=2):
        library.complete(number, entry, '{"a":1}')
    wanted = {f"q:{first}": {"a": 1}, f"q:{second}": {"a": 1}}
    assert client.ok("GetChildrenValues", id=parent)["data"]["values"] == wanted
    library.client.ask("DEL", library.key("job:1"))
    assert client.ok("GetChildrenValues", id=parent)["data"]["values"] == wanted


# -- data ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("door", ["glide-mq", "topics"])
def test_new_data_from_bunqueue_is_json_to_doors_of_text(site: BareDoors, door: str) -> None:
    api = site.api
    library = site.library()
    if door == "glide-mq":
        library.add(data="gz:AAAA")
    else:
        api.put("q", type="queue")
        api.write("q", 1)
    client = site.bunqueue()
    [job] = client.ok("GetJobs", queue="q")["jobs"]
    client.ok("Update", id=job["id"], data=b"\xff")
    assert api.diff("q")["records"][0]["data"] == {"$base64": "/w=="}
    client.ok("Update", id=job["id"], data="words")
    assert hash_of(site)["data"] == '"words"'
    assert hash_of(site.after_a_crash())["data"] == '"words"'
    assert client.pull()["data"] == "words"


def test_new_data_of_a_job_of_bunqueue_may_come_from_glide_mq(site: BareDoors) -> None:
    client = site.bunqueue()
    job_id = client.push(data={"a": 1})
    library = site.library()
    library.client.ask("HSET", library.key("job:1"), "data", '{"b":2}')
    assert client.ok("GetJob", id=job_id)["job"]["data"] == {"b": 2}
    client.ok("Update", id=job_id, data={"c": 3})
    assert hash_of(site)["data"] == '{"c":3}'


# -- ids -------------------------------------------------------------------------------------------


def test_an_id_chosen_at_glide_mq_is_none_at_bunqueue(site: BareDoors) -> None:
    site.library().add(data="1", custom="mine")
    worker = site.bunqueue()
    job = worker.pull()
    assert (len(job["id"]), job["customId"]) == (36, None)
    assert worker.state(job["id"]) == "active"
    assert worker.refused("GetJobByCustomId", customId="mine") == "Job not found"
    worker.ok("ACK", id=job["id"])
    assert hash_of(site, "mine")["state"] == "completed"


# -- revoked jobs ----------------------------------------------------------------------------------


def revoke(site: BareDoors) -> Any:
    parts = ["job:1", "stream", "scheduled", "failed", "events"]
    return site.library().call("revoke", parts, "1", site.library().ts(), "workers")


def put(site: BareDoors, family: str) -> None:
    if family == "B":
        site.beanstalk().say(b"use q\r\nput 0 0 60 1\r\nx\r\n")
    elif family == "N":
        site.bunqueue().push(data=1)
    elif family == "G":
        site.library().add(data="1", attempts=3)
    else:
        site.api.put("q", type="queue")
        site.api.write("q", 1)


@pytest.mark.parametrize("family", list("BNGT"))
@pytest.mark.parametrize("way", ["kick", "RetryDlq", "retryJobs", "redrive"])
def test_who_brings_a_revoked_job_back_wants_it_to_run(
    site: BareDoors, family: str, way: str
) -> None:
    put(site, family)
    assert revoke(site) == b"revoked"
    assert hash_of(site)["revoked"] == "1"
    if way == "kick":
        assert b"KICKED 1" in site.beanstalk().say(b"use q\r\nkick 1\r\n")
    elif way == "RetryDlq":
        assert site.bunqueue().ok("RetryDlq", queue="q") == {"count": 1}
    elif way == "redrive":
        assert site.api.ok("q/redrive", {})["redriven"] == 1
    else:
        library = site.library()
        parts = ["failed", "scheduled", "events", "id"]
        assert library.call("retryJobs", parts, 0, library.ts()) == 1
    for place in (site, site.after_a_crash()):
        library = place.library()
        library.promote()
        [(number, entry)] = library.read()
        assert isinstance(library.activate(number, entry), list)
        assert "revoked" not in hash_of(place)


@pytest.mark.parametrize("family", list("BNGT"))
def test_a_job_revoked_while_it_runs_is_not_tried_again(site: BareDoors, family: str) -> None:
    put(site, family)
    library = site.library()
    [(number, entry)] = library.read()
    assert revoke(site) == b"flagged"
    assert library.activate(number, entry) == b"REVOKED"
    assert library.fail(number, entry, "revoked", attempts=3) == b"failed"
    assert library.state("1") == "failed"


# -- failing at doors that name no delay -----------------------------------------------------------


def test_a_nack_without_a_delay_waits_as_the_job_was_put_to(site: BareDoors) -> None:
    client = site.bunqueue()
    job_id = client.push(data=1, backoff={"type": "fixed", "delay": 10_000})
    site.api.claim("q")
    body: dict[str, object] = {"node": "w", "seqs": [1]}
    assert site.api.ok("q/nack", body)["nacked"] == 1
    assert client.state(job_id) == "delayed"
    site.tick(7000)
    assert site.api.claim("q")["count"] == 0
    site.tick(6000)
    assert site.api.claim("q")["count"] == 1
    assert site.api.ok("q/nack", {**body, "delay_ms": 0})["nacked"] == 1
    assert site.api.claim("q")["count"] == 1


def test_a_nack_of_a_job_that_counts_no_attempts_comes_back_at_once(site: BareDoors) -> None:
    put(site, "B")
    site.api.claim("q")
    assert site.api.ok("q/nack", {"node": "w", "seqs": [1]})["nacked"] == 1
    assert site.api.claim("q")["count"] == 1


# -- waiting for the end of a beanstalk job --------------------------------------------------------


def test_who_waits_for_a_beanstalk_job_is_told_that_it_was_deleted(site: BareDoors) -> None:
    put(site, "B")
    client = site.bunqueue()
    client.ok("SubscribeEvents", queue="q")
    [job] = client.ok("GetJobs", queue="q")["jobs"]
    wait = client.send("WaitJob", id=job["id"], timeout=60_000)
    parent = client.push("p", {}, dependsOn=[job["id"]])
    assert client.state(parent) == "waiting-children"
    worker = site.beanstalk()
    assert b"RESERVED 1 1" in worker.say(b"watch q\r\nreserve\r\n")
    assert worker.say(b"delete 1\r\n") == b"DELETED\r\n"
    site.settle()
    answer = client.hear(wait)
    assert answer is not None
    assert answer["completed"] is True
    assert "completed" in [event["eventType"] for event in client.events]
    assert client.state(parent) == "waiting"
    site.check()
    assert site.after_a_crash().bunqueue().state(parent) == "waiting"


# -- counters --------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", list("BNGT"))
def test_counters_count_the_act_whatever_the_family(site: BareDoors, family: str) -> None:
    put(site, family)
    worker = site.beanstalk()
    worker.say(b"watch q\r\n")
    for act in (b"release 1 0 0", b"bury 1 0"):
        assert worker.say(b"reserve-with-timeout 0\r\n").startswith(b"RESERVED")
        assert worker.say(act + b"\r\n") in (b"RELEASED\r\n", b"BURIED\r\n")
    assert site.bunqueue().ok("RetryDlq", queue="q") == {"count": 1}
    for place in (site, site.after_a_crash()):
        told = place.beanstalk().say(b"stats-job 1\r\n")
        for line in (b"reserves: 2", b"releases: 1", b"buries: 1", b"kicks: 1"):
            assert line in told


def test_a_failure_at_any_door_is_counted_where_the_job_is_not_kept(site: BareDoors) -> None:
    client = site.bunqueue()
    worker = site.beanstalk()
    worker.say(b"watch q\r\n")
    for act in (b"release %d 0 0", b"bury %d 0"):
        client.push(data=1, maxAttempts=1, removeOnFail=True)
        number = worker.say(b"reserve-with-timeout 0\r\n").split()[1]
        assert worker.say(act % int(number) + b"\r\n") == b"BURIED\r\n"
    assert site.others.door.yard.counters.dead_total() == 2


# -- progress and logs -----------------------------------------------------------------------------


@pytest.mark.parametrize("family", list("BNGT"))
def test_progress_and_logs_are_the_same_at_both_doors_that_have_them(
    site: BareDoors, family: str
) -> None:
    put(site, family)
    client = site.bunqueue()
    job_id = client.pull()["id"]
    client.ok("Progress", id=job_id, progress=12.5)
    client.ok("AddLog", id=job_id, message="first")
    library = site.library()
    assert hash_of(site)["progress"] == "12.5"
    library.client.ask("RPUSH", library.key("log:1"), "second")
    assert len(library.client.ask("LRANGE", library.key("log:1"), 0, -1)) == 2
    told = [log["message"] for log in client.ok("GetLogs", id=job_id)["data"]["logs"]]
    assert told == ["first", "second"]


# -- what beanstalk shows of others ----------------------------------------------------------------


def test_a_lease_without_an_end_has_the_longest_time_left_there_is(site: BareDoors) -> None:
    put(site, "N")
    site.library().read()
    assert b"time-left: 4294967295\n" in site.beanstalk().say(b"stats-job 1\r\n")


@pytest.mark.parametrize(
    ("name", "shown"),
    [("a b", '"a b"'), ('a"b\\', '"a\\"b\\\\"'), ("a\nb", '"a\\nb"'), ("ü", '"ü"')],
)
def test_a_name_no_tube_can_have_is_one_value(site: BareDoors, name: str, shown: str) -> None:
    site.library(name).add(data="1")
    said = site.beanstalk().say(b"stats-job 1\r\n").decode()
    assert f"\ntube: {shown}\nstate: ready\n" in said


@pytest.mark.parametrize("data", ["gz:AAAA", "words", '{"a":1}'])
def test_a_dead_letter_is_json_whatever_glide_mq_made_of_its_data(
    site: BareDoors, data: str
) -> None:
    site.api.put("q", type="queue", max_deliveries=9, dead_letter="dead")
    site.api.write("q", 1)
    library = site.library()
    library.client.ask("HSET", library.key("job:1"), "data", data)
    site.api.claim("q")
    assert site.api.ok("q/dead-letter", {"node": "w", "seqs": [1]})["dead_lettered"] == 1
    [letter] = site.api.diff("dead")["records"]
    assert letter["data"] == (json.loads(data) if data[0] == "{" else data)
