"""A job keeps its name at each door, whatever another door does to it."""

import pytest

from tests.support.doors.crossing import QUEUE, Crossing
from tests.support.site.site import ALL_HISTORY
from tests.support.site.storage import MemoryStorage

CHANGES = {
    "promoteJob": ("1",),
    "changeDelay": ("1", 0, 1_700_000_000_000),
    "changePriority": ("1", 7),
}


def uuid_of(doors: Crossing) -> str:
    (job,) = doors.bun.ok("GetJobs", queue=QUEUE)["jobs"]
    return str(job["id"])


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("family", ["beanstalk", "topics", "bunqueue"])
def test_what_glide_mq_changes_of_a_delayed_job_is_not_its_id(family: str, name: str) -> None:
    doors = Crossing()
    if family == "beanstalk":
        doors.bean.put("1", rank=3, delay_s=9)
    elif family == "topics":
        doors.api.put(QUEUE, type="queue")
        doors.api.ok(QUEUE, {"records": [{"data": 1, "delay_ms": 9000}]})
    else:
        doors.bun.push(QUEUE, 1, delay=9000, priority=-3)
    known = uuid_of(doors)
    doors.tick(5)
    keys = ["job:1", "stream", "scheduled", "events"]
    assert doors.glide.call(name, keys, *CHANGES[name]) == b"ok"
    assert uuid_of(doors) == known
    assert doors.bun.state(known) == ("delayed" if name == "changePriority" else "waiting")
    # Jobs of other families have no ready list but the stream.
    assert doors.glide.counts()["lists"] == 0
    doors.tick(9000)
    assert [job_id for job_id, _ in doors.glide.read()] == ["1"]
    doors.check()


@pytest.mark.parametrize("command", ["Promote", "ChangeDelay", "MoveToWait"])
def test_a_job_of_beanstalk_keeps_its_place_when_bunqueue_promotes_it(command: str) -> None:
    doors = Crossing()
    doors.bean.put("old", delay_s=9)
    known = uuid_of(doors)
    doors.tick(5)
    doors.bean.put("young")
    doors.bun.ok(command, id=known, **({"delay": 0} if command == "ChangeDelay" else {}))
    assert doors.bun.state(known) == "waiting"
    assert [doors.bun.pull(QUEUE)["data"] for _ in range(2)] == ["old", "young"]


def test_the_last_may_be_made_the_first_and_is_still_found() -> None:
    doors = Crossing()
    number = doors.bean.put("x")
    known = uuid_of(doors)
    doors.bun.ok("ChangePriority", id=known, priority=3, lifo=True)
    assert doors.bun.pull(QUEUE)["id"] == known
    doors.bun.ok("ACK", id=known)
    assert doors.bean.ask(f"peek {number}") == "NOT_FOUND"


def test_ids_chosen_at_two_doors_are_of_two_name_spaces() -> None:
    doors = Crossing()
    assert doors.glide.add(custom="a") == b"a"
    assert doors.bun.push(QUEUE, 2, jobId="a") == "a"
    assert doors.bun.ok("GetJobByCustomId", customId="a")["job"]["data"] == 2
    assert doors.bun.refused("GetJob", id=f"{QUEUE}\0a") == "Job not found"
    assert doors.bun.push(QUEUE, 3, jobId=f"{QUEUE}\0a") == f"{QUEUE}\0a"
    assert doors.glide.job("a")["data"] == '{"to":"me"}'
    assert doors.glide.add(custom="a") == b"duplicate"
    doors.check()


def test_a_number_that_was_chosen_for_an_id_is_nobodys_seq() -> None:
    doors = Crossing(MemoryStorage())
    assert doors.glide.add(custom="2") == b"2"
    doors.bean.put("3")
    doors.bun.push(QUEUE, 4)
    assert doors.glide.add(custom="6") == b"6"
    assert doors.api.write(QUEUE, 7, 8)["seqs"] == [7, 8]
    assert doors.glide.add() == b"9"
    told = {job_id: doors.glide.job(job_id)["data"] for job_id, _ in doors.glide.read(count=9)}
    assert told == {
        "2": '{"to":"me"}', "3": "3", "4": "4", "6": '{"to":"me"}', "7": "7", "8": "8",
        "9": '{"to":"me"}',
    }  # fmt: skip
    doors.check()
    assert doors.glide.add(custom="11") == b"11"
    after = doors.after_a_crash()
    after.bean.put("12")
    assert after.glide.job("12")["data"] == "12"
    assert after.glide.client.ask("DEL", after.glide.key("job:11")) == 1
    after.check()


def test_records_of_one_write_have_seqs_in_a_row() -> None:
    doors = Crossing()
    doors.glide.add(custom="3")
    answer = doors.api.write(QUEUE, *range(4))
    assert answer["seqs"] == [4, 5, 6, 7]
    assert [one["data"] for one in doors.api.diff(QUEUE)["records"][1:]] == [0, 1, 2, 3]


def test_a_job_has_one_id_at_each_door_and_all_lead_to_it() -> None:
    doors = Crossing()
    doors.bean.put("0")
    doors.glide.add(data="1", custom="own")
    doors.bun.push(QUEUE, 2, jobId="mine")
    doors.api.write(QUEUE, 3)
    for seq, (known, job_id) in enumerate(
        zip(doors.bun.ok("GetJobs", queue=QUEUE)["jobs"], ("1", "own", "3", "4"), strict=True), 1
    ):
        assert known["data"] == seq - 1
        assert doors.bun.ok("GetJob", id=known["id"])["job"]["data"] == seq - 1
        assert doors.bean.ask(f"peek {seq}") == f"FOUND {seq} 1\r\n{seq - 1}"
        assert doors.glide.job(job_id)["data"] == str(seq - 1)
        records = doors.api.diff(QUEUE, from_seq=seq - 1, limit=1)["records"]
        assert (records[0]["$seq"], records[0]["data"]) == (seq, seq - 1)


def test_the_log_of_events_takes_no_jobs_at_any_door() -> None:
    doors = Crossing(MemoryStorage(), window=ALL_HISTORY)
    bean = doors.another_bean("_events")
    assert bean.ask("put 0 0 1 1\r\nx") == "DRAINING"
    assert (
        doors.bun.refused("PUSH", queue="_events", data=1) == "_events is a log and takes no jobs"
    )
    library = doors.library("_events")
    keys = ["id", "stream", "scheduled", "events"]
    assert library.refused("addJob", keys, *library.arguments()).startswith("ERR _events is a log")
    assert doors.api.post("_events", {"records": [{"data": 1}]}).refusal == (403, "forbidden")
    assert doors.yard.jobs.count == 0


def test_a_log_takes_no_jobs_at_any_door() -> None:
    doors = Crossing()
    doors.api.put(QUEUE, type="log")
    doors.api.write(QUEUE, 1)
    assert doors.bean.ask("put 0 0 1 1\r\nx") == "DRAINING"
    assert "is a log" in doors.bun.refused("PUSH", queue=QUEUE, data=1)
    keys = ["id", "stream", "scheduled", "events"]
    assert "is a log" in doors.glide.refused("addJob", keys, *doors.glide.arguments())
    assert doors.glide.read() == []
    assert doors.bean.is_empty()
    assert doors.yard.jobs.count == 0
