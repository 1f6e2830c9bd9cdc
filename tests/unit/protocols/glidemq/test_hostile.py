"""Input that no client of the library would send: it is answered, and does no harm."""

from jobyard.protocols.glidemq.events import RING_SIZE_MAX, EventRing
from jobyard.protocols.glidemq.maintenance import GROUPS_FEW, READERS_MAX
from tests.support.clients.library import Library
from tests.support.doors.glidemq import BareGlidemq
from tests.support.site.recount import recount
from tests.support.site.storage import MemoryStorage


def opened() -> Library:
    return Library(BareGlidemq(MemoryStorage()), "q")


# -- keys --------------------------------------------------------------------------------------


def test_a_job_that_is_named_twice_is_deleted_once() -> None:
    library = opened()
    library.add()
    assert library.client.ask("DEL", *library.keys("job:1", "job:1")) == 1
    recount(library.site.yard)


def test_a_job_that_went_with_its_stream_is_not_deleted_again() -> None:
    library = opened()
    library.add()
    library.add()
    [(job_id, entry)] = library.read()
    library.fail(job_id, entry)
    parts = ("stream", "failed", "job:1", "job:2", "scheduled")
    assert library.client.ask("UNLINK", *library.keys(*parts)) == 2
    recount(library.site.yard)


def test_the_signals_of_a_job_are_under_its_own_key() -> None:
    library = opened()
    library.add()
    [(job_id, entry)] = library.read()
    parts = ["job:1", "stream", "events", "suspended"]
    library.call("suspend", parts, job_id, entry, "workers", library.ts(), "", 0)
    for key in ("signals:2", "signals:", "signals:1\0s"):
        said = library.refused("signal", [*parts, key], job_id, "go", "1", library.ts())
        assert said == "ERR wrong key at 5"
    assert library.call("signal", [*parts, "signals:1"], job_id, "go", "1", library.ts()) == b"ok"
    again = Library(library.site.reboot(), "q")
    assert again.client.ask("LLEN", again.key("signals:1")) == 1


def test_a_list_of_another_queue_is_refused() -> None:
    library = opened()
    library.add(lifo=1)
    keys = [*library.keys("meta", "stream", "list-active"), "glide:{other}:lifo"]
    said = library.client.refused("FCALL", "glidemq_rpopAndReserve", 4, *keys, "workers", 1)
    assert said == "ERR wrong key 'glide:{other}:lifo' at 4"
    assert library.client.ask("LLEN", library.key("lifo")) == 1


def test_the_last_id_outlasts_the_jobs_until_it_is_deleted() -> None:
    library = opened()
    for number in (b"1", b"2"):
        assert library.add() == number
        [(job_id, entry)] = library.read()
        library.complete(job_id, entry, keep=("true", 0, 0))
        assert library.client.ask("GET", library.key("id")) == number
    library = Library(library.site.reboot(), "q")
    assert library.add() == b"3"
    keys = library.keys("id", "id", "stream", "meta")
    assert library.client.ask("UNLINK", *keys) == 3
    assert "q" not in library.site.yard.queues
    assert library.add() == b"1"


# -- text --------------------------------------------------------------------------------------


def test_a_member_of_a_flow_that_is_no_text_is_refused() -> None:
    library = opened()
    library.add()
    client = library.client
    said = client.refused("SADD", library.key("deps:1"), "glide:{q}:2", b"\xff\xfe")
    assert said == "ERR the job name is not UTF-8"
    assert client.ask("SMEMBERS", library.key("deps:1")) == []
    assert client.ask("SREM", library.key("deps:1"), b"\xff\xfe") == 0


def test_a_consumer_whose_name_is_no_text_ends_no_run() -> None:
    library = opened()
    library.add()
    library.add()
    [(job_id, entry)] = library.read()
    parts = ["stream", "completed", "events", "job:1", "metrics:completed"]
    rest = ("1", library.ts(), "workers", b"\xff", 0, 0, 0)
    said = library.refused("completeAndFetchNext", parts, job_id, entry, *rest)
    assert said == "ERR argument 6 is not UTF-8"
    assert library.state("1") == "active"
    assert library.state("2") == "waiting"


def test_a_refused_job_leaves_no_events() -> None:
    library = opened()
    assert library.add(key="k", capacity=1, cost=5) == b"ERR:COST_EXCEEDS_CAPACITY"
    assert library.client.ask("TYPE", library.key("events")) == b"none"
    keys = library.keys("id", "stream", "scheduled", "events")
    opts = '{"ordering":{"key":"k","tokenBucket":{"capacity":1,"refillRate":1}},"cost":2}'
    parent = ("p", "{}", opts, library.ts(), 0, 0, 0, 0, "")
    said = library.client.ask("FCALL", "glidemq_addFlow", 4, *keys, *parent)
    assert said == b"ERR:COST_EXCEEDS_CAPACITY"
    assert library.client.ask("TYPE", library.key("events")) == b"none"
    assert "q" not in library.site.yard.queues
    library.add()
    assert [kind for kind, _ in library.events()] == ["added"]


def test_the_id_of_an_event_may_not_be_far_ahead() -> None:
    library = opened()
    library.add()
    far = "18446744073709551615-18446744073709551615"
    said = library.client.refused("XADD", library.key("events"), far, "a", "b")
    assert said == "ERR event ids are times, and this one is too far in the future"
    assert library.client.ask("XADD", library.key("events"), "*", "a", "b")


def test_each_command_of_a_transaction_has_its_place_in_the_answer() -> None:
    client = opened().client
    client.send("MULTI")
    client.send("CLIENT", "REPLY", "SKIP")
    client.send("PING")
    client.take_unread()
    client.send("EXEC")
    assert client.take_unread() == b"*2\r\n+OK\r\n+PONG\r\n"


def test_a_job_nobody_was_given_is_not_begun_by_its_id_alone() -> None:
    library = opened()
    library.add()
    library.add(key="k")
    library.add(key="k")
    library.call("pause", ["meta", "events"])
    assert [library.activate(job_id, "") for job_id in "123"] == [b"GROUP_FULL"] * 3
    assert library.counts()["waiting"] == 3


# -- waiting -----------------------------------------------------------------------------------


def test_who_waited_at_several_streams_waits_at_none_any_more() -> None:
    library = opened()
    library.add()
    keys = library.keys("events", "stream", "jstream:1")
    observer = library.site.connect()
    observer.send("XREAD", "BLOCK", 100, "STREAMS", *keys, "$", "$", "$")
    assert observer.hear() == []
    assert len(library.site.door.events.rings["q"].readers) == 1
    library.site.tick(100)
    assert observer.hear() == [None]
    assert library.site.door.events.rings["q"].readers == []
    assert library.site.yard.queues["q"].subscriptions is None
    assert library.site.yard.stored_values.readers == {}


# -- no room -----------------------------------------------------------------------------------


def test_a_job_whose_entry_finds_no_room_does_not_enter() -> None:
    library = Library(BareGlidemq(MemoryStorage(), budget=20_000), "q")
    library.dedup("a", "debounce", delay=1000)
    filler = library.client.ask("HSET", library.key("budget:f"), "x", "y" * 17_000)
    assert filler == 1
    parts = ["dedup", "id", "stream", "scheduled", "events"]
    said = library.refused("dedup", parts, "a", 0, "debounce", *library.arguments(delay=1000))
    assert said == "OOM command not allowed when used memory > 'maxmemory'."
    assert library.client.ask("ZRANGE", library.key("scheduled"), 0, -1) == [b"1"]
    assert library.client.ask("GET", library.key("id")) == b"1"


def test_a_child_is_waited_for_from_its_first_moment_on() -> None:
    library = opened()
    library.add()
    [(job_id, entry)] = library.read()
    parts = ["id", "stream", "scheduled", "events", f"deps:{job_id}"]
    assert library.call("addJob", parts, *library.arguments(parent=job_id)) == b"2"
    assert library.client.ask("SMEMBERS", library.key("deps:1")) == [b"glide:{q}:2"]
    parts = ["job:1", "stream", "events"]
    said = library.call("moveToWaitingChildren", parts, job_id, entry, "workers", library.ts())
    assert said == b"ok"


# -- without end -------------------------------------------------------------------------------


def test_events_that_hold_long_results_are_kept_for_a_shorter_time() -> None:
    ring = EventRing()
    for number in range(1, 41):
        ring.add((number, 0), [b"event", b"x" * (1 << 20)])
    assert ring.entries[-1].id == (40, 0)
    assert sum(entry.size() for entry in ring.entries) <= RING_SIZE_MAX
    ring.add((41, 0), [b"event", b"x" * (2 * RING_SIZE_MAX)])
    assert [entry.id for entry in ring.entries] == [(41, 0)]


def test_groups_of_queues_that_never_were_are_forgotten_with_their_readers() -> None:
    site = BareGlidemq()
    client, other = site.connect(), site.connect()
    for number in range(GROUPS_FEW + 10):
        who = other if number == 3 else client
        key = f"glide:{{q{number}}}:stream"
        who.ask("XREADGROUP", "GROUP", "workers", "w", "STREAMS", key, ">")
    client.close()
    site.tick(2000)
    assert list(site.door.promoter.groups) == ["q3"]


def test_readers_that_are_gone_are_not_remembered() -> None:
    library = opened()
    reader = Library(library.site, "q")
    reader.read("w2")
    reader.client.close()
    library.read("w1")
    library.site.tick(2000)
    assert list(library.site.door.promoter.groups["q"]) == ["w1"]


def test_consumers_are_remembered_up_to_a_number() -> None:
    promoter = opened().site.door.promoter
    for number in range(READERS_MAX + 1):
        promoter.note_reader("q", f"w{number}", 1)
    assert list(promoter.groups["q"]) == [f"w{READERS_MAX}"]


def test_usage_of_too_many_kinds_is_refused() -> None:
    library = opened()
    library.client.ask("HSET", library.key("budget:f"), "maxTotalTokens", "5")
    kinds = "{" + ",".join(f'"k{number}":1' for number in range(1000)) + "}"
    name, parts = "recordUsageAndCheckBudget", ["budget:f"]
    said = library.refused(name, parts, kinds, "{}", 1, 1, "{}", "{}")
    assert said == "ERR more than 256 kinds of usage"
    for tokens in ('{"in":1e999}', '{"in":2}'):
        assert library.call(name, parts, tokens, "{}", 1, 1, "{}", "{}") == b"ok"
    assert library.client.ask("HGET", library.key("budget:f"), "usedTokens:in") == b"2"


def test_a_long_prefix_is_no_name_of_a_queue() -> None:
    client = opened().client
    said = client.refused("XLEN", "p" * 257 + ":{q}:stream")
    assert said == "ERR a queue name can have at most 256 characters"


# -- groups that subscribe ---------------------------------------------------------------------


def test_names_that_become_keys_have_no_zero_byte() -> None:
    library = opened()
    stream = library.key("stream")
    client = library.client
    said = client.refused("XGROUP", "CREATE", stream, b"fans\0s", "0", "MKSTREAM")
    assert said == "ERR a consumer group name cannot contain a zero byte"
    client.ask("XGROUP", "CREATE", stream, "fans", "0", "MKSTREAM")
    library.add()
    given = client.ask("XREADGROUP", "GROUP", "fans", "c", "STREAMS", stream, ">")
    entry = given[0][1][0][0]
    parts = ["stream", "failed", "scheduled", "events", "job:1\0zz", "metrics:failed"]
    rest = ("1", entry, "boom", library.ts(), 3, 5, "fans", 0, 0, 0, 1)
    assert library.refused("fail", parts, *rest).startswith("ERR wrong key")
    parts[4] = "job:1"
    assert library.call("fail", parts, *rest) == b"retrying"
    again = Library(library.site.reboot(), "q")
    assert again.client.ask("HGET", again.key("job:1:sub:fans"), "a") == b"1"


# -- drain mode --------------------------------------------------------------------------------


def test_a_server_that_drains_takes_no_new_jobs_and_gives_out_what_it_has() -> None:
    library = opened()
    for _ in range(3):
        library.add()
    library.site.door.is_draining = True
    parts = ["id", "stream", "scheduled", "events"]
    told = "ERR the server is draining and takes no new jobs"
    assert library.refused("addJob", parts, *library.arguments()) == told
    assert (
        library.refused("dedup", ["dedup", *parts], "d", 0, "simple", *library.arguments()) == told
    )
    parent = ("p", "{}", "{}", library.ts(), 0, 0, 0, 0, "")
    assert library.refused("addFlow", parts, *parent) == told
    [(job_id, entry)] = library.read()
    assert library.next(job_id, entry)[0] == b"NEXT_HASH"
    assert library.client.ask("GET", library.key("id")) == b"3"
