"""The functions of producers, with the answers and effects their document names."""

import json

import pytest

from jobyard.journal.format.segment import BATCH_HEADER_SIZE
from tests.support.clients.library import Library
from tests.support.doors.glidemq import BareGlidemq
from tests.support.site.storage import MemoryStorage

SHIFT = 1 << 42


@pytest.fixture
def library() -> Library:
    return Library(BareGlidemq())


def test_the_version_is_the_one_clients_compare_with(library: Library) -> None:
    assert library.client.ask("FCALL", "glidemq_version", 0) == b"93"
    assert library.client.ask("FCALL", "glidemq_version", 1, "{glidemq}:_") == b"93"


def test_a_job_is_a_hash_and_an_entry(library: Library) -> None:
    ts = library.ts()
    assert library.add() == b"1"
    assert library.job("1") == {
        "id": "1",
        "name": "send-email",
        "data": '{"to":"me"}',
        "opts": "{}",
        "timestamp": str(ts),
        "attemptsMade": "0",
        "delay": "0",
        "priority": "0",
        "maxAttempts": "0",
        "state": "waiting",
    }
    assert library.client.ask("XLEN", library.key("stream")) == 1
    entries = library.client.ask("XRANGE", library.key("stream"), "-", "+")
    assert entries[0][1] == [b"jobId", b"1", b"name", b"send-email"]
    assert library.client.ask("GET", library.key("id")) == b"1"
    assert library.events() == [("added", "1")]


def test_delay_and_priority_are_scores(library: Library) -> None:
    ts = library.ts()
    library.add(delay=5000)
    library.add(priority=3)
    library.add(delay=7000, priority=2)
    assert [library.state(job_id) for job_id in "123"] == ["delayed", "prioritized", "delayed"]
    scored = library.client.ask("ZRANGE", library.key("scheduled"), 0, -1, "WITHSCORES")
    assert scored == [
        b"1", str(ts + 5000).encode(),
        b"3", str(2 * SHIFT + ts + 7000).encode(),
        b"2", str(3 * SHIFT).encode(),
    ]  # fmt: skip
    assert library.client.ask("ZSCORE", library.key("scheduled"), "2") == str(3 * SHIFT).encode()
    assert library.counts()["scheduled"] == 3
    assert library.counts()["waiting"] == 0


def test_a_chosen_id_is_taken_once(library: Library) -> None:
    assert library.add(custom="mine") == b"mine"
    assert library.add(custom="mine") == b"duplicate"
    assert library.job("mine")["id"] == "mine"
    # Also an id that looks like the next number, which is then skipped.
    assert library.add(custom="3") == b"3"
    assert library.add() == b"4"
    assert library.counts()["waiting"] == 3


@pytest.mark.parametrize("name", ["a:b", "a{b", "a}b", "a\x00b", "a\x7fb", "x" * 257])
def test_an_id_that_may_not_be_is_refused(library: Library, name: str) -> None:
    parts = ["id", "stream", "scheduled", "events"]
    assert library.refused("addJob", parts, *library.arguments(custom=name)).startswith("ERR")
    assert library.counts()["waiting"] == 0
    assert library.client.ask("EXISTS", library.key("id")) == 0


@pytest.mark.parametrize(
    ("what", "value"),
    [("ts", "soon"), ("delay", "-1"), ("priority", "2049"), ("attempts", "x"), ("ttl", "1e99"),
     ("cost", ""), ("delay", str(1 << 50))],
)  # fmt: skip
def test_what_is_no_number_is_refused(library: Library, what: str, value: str) -> None:
    parts = ["id", "stream", "scheduled", "events"]
    assert library.refused("addJob", parts, *library.arguments(**{what: value})).startswith("ERR")
    assert "tasks" not in library.site.yard.queues


def test_wrong_counts_and_keys_are_refused(library: Library) -> None:
    parts = ["id", "stream", "scheduled", "events"]
    given = library.arguments()
    assert "arguments" in library.refused("addJob", parts, *given[:16])
    assert "keys" in library.refused("addJob", parts[:3], *given)
    assert "keys" in library.refused("addJob", [*parts, "a", "b"], *given)
    assert library.refused("addJob", ["stream", "id", "scheduled", "events"], *given)
    ask = library.client.refused
    others = ["glide:{other}:stream", "glide:{tasks}:scheduled", "glide:{tasks}:events"]
    assert ask("FCALL", "glidemq_addJob", 4, "glide:{tasks}:id", *others, *given)
    assert ask("FCALL", "glidemq_addJob", 4, "id", "stream", "scheduled", "events", *given)
    assert ask("FCALL", "glidemq_addJobs", 0) == "ERR Function not found"
    assert "tasks" not in library.site.yard.queues


def test_a_cost_beyond_the_bucket_leaves_nothing_behind(library: Library) -> None:
    refused = library.add(key="k", capacity=5000, refill=1000, cost=6000)
    assert refused == b"ERR:COST_EXCEEDS_CAPACITY"
    assert library.add(key="k", capacity=500, refill=1000) == b"ERR:COST_EXCEEDS_CAPACITY"
    assert "tasks" not in library.site.yard.queues
    assert library.add(key="k", capacity=5000, refill=1000, cost=5000) == b"1"
    assert library.job("1")["cost"] == "5000"
    assert library.job("1")["groupKey"] == "k"
    assert library.job("1")["orderingSeq"] == "1"
    assert "orderingKey" not in library.job("1")
    group = library.client.ask("HGETALL", library.key("group:k"))
    assert dict(zip(group[::2], group[1::2], strict=True))[b"tbCapacity"] == b"5000"


def test_a_cost_is_kept_without_an_ordering_key(library: Library) -> None:
    library.add(cost=2500)
    library.dedup("d", "simple", cost=1500)
    flow(library, [child(library, '{"cost":2}')], [], opts='{"cost":0.5}')
    costs = [library.client.ask("HGET", library.key(f"job:{each}"), "cost") for each in range(1, 5)]
    assert costs == [b"2500", b"1500", b"500", b"2000"]
    # Nothing is limited by it.
    assert len(library.read(count=5)) == 3
    assert "groupKey" not in library.job("1")


def test_a_cost_outlives_a_restart() -> None:
    library = Library(BareGlidemq(MemoryStorage()))
    library.add(cost=2500)
    assert Library(library.site.reboot()).job("1")["cost"] == "2500"


def test_an_ordering_key_numbers_its_jobs(library: Library) -> None:
    library.add(key="k")
    library.add(key="k")
    assert library.job("1")["orderingKey"] == "k"
    assert library.job("1")["groupKey"] == "k"
    assert library.job("2")["orderingSeq"] == "2"
    assert library.client.ask("HGETALL", library.key("ordering")) == [b"k", b"2"]


def test_time_to_live_labels_and_lifo_are_shown(library: Library) -> None:
    ts = library.ts()
    library.add(ttl=60000, parent="7", lifo=1, parent_queue="up", scheduler="nightly")
    job = library.job("1")
    assert job["expireAt"] == str(ts + 60000)
    assert (job["parentId"], job["parentQueue"]) == ("7", "up")
    assert job["schedulerName"] == "nightly"
    assert library.client.ask("LRANGE", library.key("lifo"), 0, -1) == [b"1"]


def test_events_may_be_left_out(library: Library) -> None:
    library.add(lifo=0, parent_queue="", scheduler="", quiet=1)
    library.add()
    assert library.events() == [("added", "2")]


def test_data_of_any_kind_goes_back_untouched(library: Library) -> None:
    for data in (b"gz:AAAB3", b'{"a": 1.0}', b"\xff\x00", b""):
        job_id = library.add(data=data).decode()
        assert library.client.ask("HGET", library.key(f"job:{job_id}"), "data") == data


def test_other_prefixes_are_other_queues() -> None:
    site = BareGlidemq()
    ours, theirs = Library(site), Library(site, prefix="app")
    assert ours.add() == b"1"
    assert theirs.add() == b"1"
    assert set(site.yard.queues) >= {"tasks", "app:tasks"}
    assert theirs.counts()["waiting"] == 1


# -- not twice ---------------------------------------------------------------------------------


def test_simple_dedup_lasts_while_the_job_does(library: Library) -> None:
    assert library.dedup("d", "simple") == b"1"
    assert library.dedup("d", "simple") == b"skipped"
    entry = library.client.ask("HGET", library.key("dedup"), "d")
    assert entry == f"1:{library.ts()}".encode()
    [(job_id, entry_id)] = library.read()
    assert library.dedup("d", "simple") == b"skipped"
    library.complete(job_id, entry_id)
    assert library.dedup("d", "simple") == b"2"


def test_throttle_counts_from_the_last_that_came_in(library: Library) -> None:
    assert library.dedup("d", "throttle", 1000) == b"1"
    assert library.dedup("d", "throttle", 1000, ts=library.ts() + 999) == b"skipped"
    assert library.dedup("d", "throttle", 1000, ts=library.ts() + 1000) == b"2"
    assert library.dedup("d", "throttle", 0) == b"3"


def test_debounce_replaces_what_has_not_come_yet(library: Library) -> None:
    assert library.dedup("d", "debounce", delay=5000) == b"1"
    assert library.dedup("d", "debounce", delay=5000) == b"2"
    assert library.state("1") is None
    assert library.counts()["scheduled"] == 1
    assert ("removed", "1") in library.events()
    assert library.dedup("e", "debounce") == b"3"
    assert library.dedup("e", "debounce") == b"skipped"


def test_a_debounce_that_is_refused_replaces_nothing(library: Library) -> None:
    library.add(custom="taken")
    library.dedup("d", "debounce", delay=5000)
    assert library.dedup("d", "debounce", delay=5000, custom="taken") == b"duplicate"
    assert library.state("2") == "delayed"
    refused = library.dedup("d", "debounce", delay=1, key="k", capacity=1)
    assert refused == b"ERR:COST_EXCEEDS_CAPACITY"
    assert library.state("2") == "delayed"


def test_entries_of_jobs_that_ended_long_ago_are_forgotten(library: Library) -> None:
    week_ms = 7 * 86_400_000
    before = library.ts() - week_ms - 1
    library.dedup("lives", "simple", ts=before, delay=1000)
    for number in range(1022):
        library.dedup(f"d{number}", "simple", ts=before)
    for job_id, entry in library.read(count=1000) + library.read(count=1000):
        library.complete(job_id, entry)
    assert library.client.ask("HLEN", library.key("dedup")) == 1023
    library.dedup("new", "simple")
    assert sorted(library.client.ask("HKEYS", library.key("dedup"))) == [b"lives", b"new"]


def test_an_unknown_mode_is_refused(library: Library) -> None:
    parts = ["dedup", "id", "stream", "scheduled", "events"]
    assert library.refused("dedup", parts, "d", 0, "twice", *library.arguments())


# -- flows -------------------------------------------------------------------------------------


def flow(
    library: Library,
    children: list[list[object]],
    details: list[str],
    custom: str = "",
    opts: str = "{}",
    delay: int = 0,
) -> str:
    keys = library.keys("id", "stream", "scheduled", "events") * (1 + len(children))
    given: list[object] = ["parent", "{}", opts, library.ts(), delay, 0, 0, len(children), custom]
    for child in children:
        given += child
    given += [len(details), *details]
    answer = library.client.ask("FCALL", "glidemq_addFlow", len(keys), *keys, *given)
    return str(answer.decode())


def child(library: Library, opts: str = "{}", custom: str = "") -> list[object]:
    return ["child", '"c"', opts, 0, 0, 0, library.p, library.name, custom]


def test_a_flow_runs_its_parent_last(library: Library) -> None:
    ids = json.loads(flow(library, [child(library), child(library)], []))
    assert ids == ["1", "2", "3"]
    assert library.state("1") == "waiting-children"
    members = library.client.ask("SMEMBERS", library.key("deps:1"))
    assert sorted(members) == [f"{library.p}:2".encode(), f"{library.p}:3".encode()]
    assert library.job("2")["parentId"] == "1"
    assert library.job("2")["parentQueue"] == "tasks"
    for job_id, entry in library.read(count=5):
        library.complete(job_id, entry)
    assert library.state("1") == "waiting"
    assert library.job("1")["depsCompleted"] == "2"
    assert ("active", "1") in library.events()
    assert [job_id for job_id, _ in library.read()] == ["1"]


def test_a_parent_shows_its_delay_and_does_not_wait_for_it() -> None:
    library = Library(BareGlidemq(MemoryStorage()))
    flow(library, [child(library)], [], delay=700)
    assert library.job("1")["delay"] == "700"
    library = Library(library.site.reboot())
    assert library.job("1")["delay"] == "700"
    [(job_id, entry)] = library.read()
    library.complete(job_id, entry)
    assert library.state("1") == "waiting"
    assert library.job("1")["delay"] == "700"
    [(job_id, entry)] = library.read()
    library.fail(job_id, entry, attempts=2, backoff=50)
    assert library.job("1")["delay"] == "700"


def test_a_refused_flow_leaves_nothing_behind(library: Library) -> None:
    library.add(custom="x")
    assert flow(library, [child(library, custom="x")], []) == '["duplicate"]'
    costly = '{"ordering":{"key":"k","tokenBucket":{"capacity":1,"refillRate":1}},"cost":2}'
    assert flow(library, [child(library, costly)], []) == "ERR:COST_EXCEEDS_CAPACITY"
    assert library.counts()["waiting"] == 1
    assert library.client.ask("GET", library.key("id")) == b"1"
    assert library.client.ask("EXISTS", library.key("job:2")) == 0


def test_a_flow_waits_for_those_that_are_there(library: Library) -> None:
    library.add()
    ids = json.loads(flow(library, [], [f"{library.p}:1"], custom="top"))
    assert ids == ["top"]
    assert library.state("top") == "waiting-children"
    [(job_id, entry)] = library.read()
    library.complete(job_id, entry)
    assert library.state("top") == "waiting"


def test_counts_of_a_flow_must_agree(library: Library) -> None:
    keys = library.keys("id", "stream", "scheduled", "events")
    given = ["parent", "{}", "{}", library.ts(), 0, 0, 0, 1, ""]
    refused = library.client.refused("FCALL", "glidemq_addFlow", 4, *keys, *given)
    assert "keys" in refused
    refused = library.client.refused("FCALL", "glidemq_addFlow", 8, *keys, *keys, *given)
    assert "arguments" in refused


# -- pause -------------------------------------------------------------------------------------


def test_a_paused_queue_gives_nothing(library: Library) -> None:
    library.add()
    assert library.call("pause", ["meta", "events"]) == 1
    assert library.client.ask("HGET", library.key("meta"), "paused") == b"1"
    assert library.read() == []
    assert library.call("resume", ["meta", "events"]) == 1
    assert library.client.ask("HGET", library.key("meta"), "paused") in (None, b"0")
    assert len(library.read()) == 1
    assert library.events() == [("added", "1"), ("paused", "0"), ("resumed", "0")]


def test_a_restart_keeps_jobs_as_they_were() -> None:
    library = Library(BareGlidemq(MemoryStorage()))
    library.add(custom="mine", opts='{"jobId":"mine"}')
    library.add(delay=60000, priority=2)
    library.dedup("d", "simple")
    before = [library.job("mine"), library.job("2"), library.counts()]
    again = Library(library.site.reboot())
    assert [again.job("mine"), again.job("2"), again.counts()] == before
    assert again.dedup("d", "simple") == b"skipped"


def test_a_job_its_entry_and_the_end_of_the_one_it_replaces_lie_in_one_batch() -> None:
    library = Library(BareGlidemq(MemoryStorage(), segment_size=4096))
    journal = library.site.yard.journal
    rolled = 0
    for number in range(60):
        sealed_count, open_size = len(journal.pending), int(journal.open_bytes())
        assert library.dedup("d", "debounce", delay=1000, data=f'"{"x" * number}"') != b"skipped"
        sealed = [one for one in journal.pending[sealed_count:] if not one.is_seal]
        rolled += len(sealed)
        assert sum(int(one.size) - BATCH_HEADER_SIZE for one in sealed) in {0, open_size}
        if number % 3 == 2:
            library.site.commit()
    assert rolled > 2
