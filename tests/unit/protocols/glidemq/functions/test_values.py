"""What workers store besides their jobs: schedules, budgets, usage, locks, a rate limit."""

import json

import pytest

from jobyard.engine.jobs.finish import ATTEMPTS_COUNTED
from tests.support.clients.library import Library
from tests.support.doors.glidemq import BareGlidemq
from tests.support.site.storage import MemoryStorage


@pytest.fixture
def library() -> Library:
    return Library(BareGlidemq(MemoryStorage()))


def restarted(library: Library) -> Library:
    return Library(library.site.reboot(), library.name)


# -- schedules ----------------------------------------------------------------------------------


def test_a_schedule_and_its_job_are_written_together(library: Library) -> None:
    lock = ["schedulers:lock:__tick__"]
    schedule = {"every": 1000, "nextRun": library.ts(), "template": {"name": "n"}}
    client = library.client
    client.ask("HSET", library.key("schedulers"), "s", json.dumps(schedule))
    assert library.call("tryLock", lock, "w1", 1000) == 1
    schedule["nextRun"] = library.ts() + 1000
    keys = library.keys("id", "stream", "scheduled", "events")
    client.ask("MULTI")
    client.ask("FCALL", "glidemq_addJob", 4, *keys, *library.arguments(name="n"), 0, "", "s")
    client.ask("HSET", library.key("schedulers"), "s", json.dumps(schedule))
    assert client.ask("EXEC") == [b"1", 0]
    library = restarted(library)
    kept = library.client.ask("HGET", library.key("schedulers"), "s")
    assert json.loads(kept) == schedule
    assert library.job("1")["schedulerName"] == "s"
    # The previous holder is gone with the server; the next may begin at once.
    assert library.call("tryLock", lock, "w2", 1000) == 1
    assert library.client.ask("HDEL", library.key("schedulers"), "s") == 1
    assert library.client.ask("EXISTS", library.key("schedulers")) == 0


def test_an_error_in_a_transaction_leaves_the_others_as_they_are(library: Library) -> None:
    client = library.client
    keys = library.keys("id", "stream", "scheduled", "events")
    client.ask("MULTI")
    client.ask("HSET", library.key("schedulers"), "s", "1")
    client.ask("FCALL", "glidemq_addJob", 4, *keys, *library.arguments(ts="soon"))
    client.ask("FCALL", "glidemq_addJob", 4, *keys, *library.arguments())
    first, error, last = client.ask("EXEC")
    assert (first, str(error), last) == (1, "timestamp is not an integer or out of range", b"1")
    library = restarted(library)
    assert library.client.ask("HGET", library.key("schedulers"), "s") == b"1"
    assert library.client.ask("GET", library.key("id")) == b"1"


# -- usage and budgets --------------------------------------------------------------------------


def test_usage_is_counted_over_restarts(library: Library) -> None:
    minute = library.key("usage:1700000040000")
    for _ in range(2):
        assert library.client.ask("HINCRBY", minute, "tokens:input", 70)
        assert library.client.ask("HINCRBYFLOAT", minute, "cost", "0.1")
        library.client.ask("SADD", "glide:usage:queues", library.name)
        library.client.ask("EXPIRE", minute, 30 * 86_400)
        library = restarted(library)
    assert library.client.ask("HMGET", minute, "tokens:input", "cost") == [b"140", b"0.2"]
    assert library.client.ask("TTL", minute) == 30 * 86_400
    assert library.client.ask("SMEMBERS", "glide:usage:queues") == [b"tasks"]


def test_tokens_of_a_minute_are_counted_and_go_with_it(library: Library) -> None:
    window = library.key("tpm:28333333")
    assert library.client.ask("INCRBY", window, 500) == 500
    assert library.client.ask("PEXPIRE", window, 120_000) == 1
    assert library.client.ask("INCRBY", window, 250) == 750
    library.site.tick(119_999)
    assert library.client.ask("GET", window) == b"750"
    library.site.tick(1)
    assert library.client.ask("GET", window) is None


def test_a_budget_that_is_used_up_stays_so_over_a_restart(library: Library) -> None:
    budget = library.key("budget:f")
    library.client.ask("HSET", budget, "maxTotalCost", "1")
    record = "recordUsageAndCheckBudget"
    used = ('{"output":5}', '{"output":0.6}', 5, 0.6, "{}", '{"output":2}')
    assert library.call(record, ["budget:f"], *used) == b"ok"
    assert library.call(record, ["budget:f"], *used) == b"exceeded"
    library = restarted(library)
    assert library.call("checkBudget", ["budget:f"]) == b"exceeded"
    assert library.client.ask("HGET", budget, "usedCost:output") == b"1.2"


def test_one_kind_of_tokens_may_have_a_limit_of_its_own(library: Library) -> None:
    library.client.ask("HSET", library.key("budget:f"), "maxTotalTokens", "1000")
    used = ('{"output":5}', "{}", 5, 0, '{"output":9}', "{}")
    record = "recordUsageAndCheckBudget"
    said = [library.call(record, ["budget:f"], *used) for _ in range(2)]
    assert said == [b"ok", b"exceeded"]


def test_what_is_no_json_counts_for_no_kind(library: Library) -> None:
    library.client.ask("HSET", library.key("budget:f"), "maxTotalTokens", "10")
    used = ("[1]", "x", "nan", "1e999", "", "{")
    assert library.call("recordUsageAndCheckBudget", ["budget:f"], *used) == b"ok"
    assert library.client.ask("HKEYS", library.key("budget:f")) == [b"maxTotalTokens"]


# -- runs ---------------------------------------------------------------------------------------


def test_a_job_with_models_to_fall_back_on_counts_them(library: Library) -> None:
    library.add(opts='{"fallbacks":[{"model":"b"},{"model":"c"}]}', attempts=3)
    for index in ("1", "2"):
        [(job_id, entry)] = library.read()
        assert library.fail(job_id, entry, attempts=3) == b"retrying"
        assert library.job("1")["fallbackIndex"] == index
        library.promote()
    [(job_id, entry)] = library.read()
    assert library.fail(job_id, entry, attempts=3) == b"failed"
    assert library.job("1")["fallbackIndex"] == "2"


def test_a_job_may_fail_more_often_than_is_counted(library: Library) -> None:
    library.add(attempts=100_000)
    [job] = library.site.yard.jobs.all()
    job.attempts = ATTEMPTS_COUNTED - 1
    for _ in range(3):
        [(job_id, entry)] = library.read()
        assert library.fail(job_id, entry, attempts=100_000) == b"retrying"
        library.promote()
    library = restarted(library)
    assert library.job("1")["attemptsMade"] == str(ATTEMPTS_COUNTED)


def test_a_revoked_job_is_told_of_once(library: Library) -> None:
    library.add()
    parts = ["job:1", "stream", "scheduled", "failed", "events"]
    assert library.call("revoke", parts, "1", library.ts(), "workers") == b"revoked"
    assert [kind for kind, _ in library.events()] == ["added", "revoked"]


def test_a_lock_is_kept_by_whoever_renews_it(library: Library) -> None:
    lock = ["suspended:lock:__sweep__"]
    assert library.call("tryLock", lock, "a", 1000) == 1
    for _ in range(3):
        library.site.tick(900)
        assert library.call("renewLock", lock, "a", 1000) == 1
        assert library.call("tryLock", lock, "b", 1000) == 0
    library.site.tick(1000)
    assert library.call("renewLock", lock, "a", 1000) == 0


def test_a_clock_that_goes_back_waits_no_longer_than_a_window(library: Library) -> None:
    ts = library.ts()
    assert library.call("rateLimit", ["rate", "meta"], 1, 1000, ts) == 0
    assert library.call("rateLimit", ["rate", "meta"], 1, 1000, ts - 60_000) <= 1000
