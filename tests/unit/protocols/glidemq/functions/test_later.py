"""Functions that later versions of the library use beyond those of version 93."""

import pytest

from tests.support.clients.library import Library
from tests.support.doors.glidemq import BareGlidemq


@pytest.fixture
def library() -> Library:
    return Library(BareGlidemq())


def test_fields_are_set_of_a_job_that_is_there(library: Library) -> None:
    parts = ["job:1", "events"]
    assert library.call("updateJobFields", parts, "1", "", "", "data", "2") == 0
    assert library.client.ask("EXISTS", library.key("job:1")) == 0
    library.add()
    assert library.call("updateJobFields", parts, "1", "progress", "7", "progress", "7") == 1
    assert library.job("1")["progress"] == "7"
    assert library.events()[-1] == ("progress", "1")
    [*_, (_, told)] = library.client.ask("XRANGE", library.key("events"), "-", "+")
    assert told[4:] == [b"data", b"7"]
    assert library.call("updateJobFields", parts, "1", "", "", "data", "[1]", "note", "x") == 1
    assert (library.job("1")["data"], library.job("1")["note"]) == ("[1]", "x")
    assert library.events()[-1] == ("progress", "1")
    keys = library.keys(*parts)
    odd = ("FCALL", "glidemq_updateJobFields", 2, *keys, "1", "", "", "data")
    assert library.client.refused(*odd) == "ERR wrong number of arguments"


def test_one_dead_job_is_retried(library: Library) -> None:
    parts = ["job:1", "failed", "scheduled"]
    assert library.call("retryJob", parts, "1", library.ts()) == b"error:not_found"
    library.add()
    assert library.call("retryJob", parts, "1", library.ts()) == b"error:not_failed"
    [(job_id, entry)] = library.read()
    library.fail(job_id, entry)
    assert library.call("retryJob", parts, "1", library.ts()) == b"ok"
    assert library.job("1")["attemptsMade"] == "0"
    library.promote()
    assert [job_id for job_id, _ in library.read()] == ["1"]


def test_lists_are_popped_and_counted_in_one(library: Library) -> None:
    library.add(lifo=1)
    parts = ["priority", "lifo", "list-active"]
    assert library.call("popListsReserve", parts, 5) == [b"1"]
    assert library.client.ask("GET", library.key("list-active")) == b"1"
    assert library.call("popListsReserve", parts, 5) == []


def test_a_schedule_is_written_over_what_was_read(library: Library) -> None:
    def write(expected: str, value: str) -> object:
        return library.call("casSchedulerEntry", ["schedulers"], "s", expected, value)

    assert write("x", "{}") == 0
    assert write("", "{}") == 1
    assert write("", "other") == 0
    assert write("{}", "other") == 1
    assert library.client.ask("HGET", library.key("schedulers"), "s") == b"other"


def test_a_stream_keeps_so_many_messages(library: Library) -> None:
    parts = ["stream", "completed", "failed", "scheduled"]
    assert library.call("trimBroadcast", parts, 2, library.ts()) == 0
    for _ in range(5):
        library.add()
    assert library.call("trimBroadcast", parts, 2, library.ts()) == 3
    assert library.client.ask("XLEN", library.key("stream")) == 2
    assert library.state("1") is None


def test_a_budget_is_changed(library: Library) -> None:
    budget = library.key("budget:f")
    assert library.call("updateFlowBudget", ["budget:f"], "maxTotalTokens", 5) == b"no_budget"
    library.client.ask("HSET", budget, "usedTokens", 10, "maxTotalCost", 1, "exceeded", 0)
    assert library.call("updateFlowBudget", ["budget:f"], "maxTotalTokens", 5) == b"exceeded"
    assert library.call("checkBudget", ["budget:f"]) == b"exceeded"
    assert library.call("updateFlowBudget", ["budget:f"], "maxTotalTokens", 50) == b"ok"
    assert library.call("updateFlowBudget", ["budget:f"], "maxTokens", '{"in":3}') == b"ok"
    library.client.ask("HSET", budget, "usedTokens:in", 4)
    assert library.call("updateFlowBudget", ["budget:f"], "maxTotalCost", "") == b"exceeded"
    assert library.client.ask("HGET", budget, "maxTotalCost") is None
    assert library.call("checkBudget", ["budget:f"]) == b"exceeded"


def test_jobs_are_added_with_their_budget(library: Library) -> None:
    parts = ["id", "stream", "scheduled", "events"]
    given = (*library.arguments(), 0, "", "", 0, library.key("budget:f"))
    assert library.call("addJob", parts, *given) == b"1"
    assert library.job("1")["budgetKey"] == library.key("budget:f")
    flow = ("p", "{}", "{}", library.ts(), 0, 0, 0, 1, "")
    child = ("c", "{}", "{}", 0, 0, 0, library.p, library.name, "")
    answer = library.call("addFlow", parts * 2, *flow, *child, 0, library.key("budget:g"))
    assert answer == b'["2","3"]'
    for job_id in ("2", "3"):
        assert library.job(job_id)["budgetKey"] == library.key("budget:g")


def test_a_limit_that_held_a_job_up_is_no_attempt(library: Library) -> None:
    library.add()
    [(job_id, entry)] = library.read()
    parts = ["stream", "failed", "scheduled", "events", "job:1", "metrics:failed"]
    given = (job_id, entry, "held", library.ts(), 2, 50, "workers", 0, 0, 0, 0, 0, 0, 1)
    assert library.call("fail", parts, *given) == b"retrying"
    job = library.job("1")
    assert (job["state"], job["attemptsMade"]) == ("delayed", "0")
    assert "failedReason" not in job


def test_what_is_appended_to_calls_is_left_aside(library: Library) -> None:
    library.add()
    [(job_id, entry)] = library.read()
    parts = ["job:1", "stream"]
    given = (library.ts(), entry, "workers", job_id, 0, 1)
    assert library.call("moveToActive", parts, *given)[:2] == [b"id", b"1"]
    stalled = ("workers", "w2", 1000, 1, library.ts(), library.key("failed"), 0, 0, 1, 0, 5000)
    assert library.call("reclaimStalled", ["stream", "events"], *stalled) == 0
    lists = (1000, 1, library.ts(), library.key("failed"), 0, 1)
    assert library.call("reclaimStalledListJobs", ["stream", "events"], *lists) == 0
    assert library.call("healListActive", ["id"], 500, 100) == 0
    deferred = (job_id, entry, "workers", 0, 0, 0, "w1")
    assert library.call("deferActive", ["stream", "job:1", "list-active"], *deferred) == 1
    revoked = ["job:1", "stream", "scheduled", "failed", "events", "lifo", "priority"]
    assert library.call("revoke", revoked, "1", library.ts(), "workers") == b"revoked"
    removed = ["job:1", "stream", "scheduled", "completed", "failed", "events", "log:1"]
    assert library.call("removeJob", [*removed, "lifo", "priority"], "1") == 1
