"""Jobs that cross over where a real clock or a real socket would be in the way.

What needs neither is in tests/acceptance/doors, for every pair.
"""

import json

import pytest

from tests.support.bare_doors import BareDoors
from tests.support.memory_storage import MemoryStorage


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


# -- what beanstalk tells of others ----------------------------------------------------------------


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
