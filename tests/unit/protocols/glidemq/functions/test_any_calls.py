"""Any function with any keys and arguments, any command on any key: always an answer."""

import random

import pytest

from jobyard.engine.glidemq.add import id_of
from jobyard.journal.storage import Storage
from jobyard.protocols.glidemq.command_table import REDIS_COMMANDS
from jobyard.protocols.glidemq.functions.table import FUNCTIONS
from tests.support.clients.library import Library
from tests.support.doors.glidemq import BareGlidemq
from tests.support.site.recount import recount
from tests.support.site.storage import MemoryStorage

PARTS = (
    "id", "stream", "scheduled", "completed", "failed", "events", "meta", "dedup", "ordering",
    "ratelimited", "lifo", "priority", "list-active", "suspended", "metrics:completed",
    "metrics:failed", "job:1", "job:2", "job:x", "log:1", "deps:1", "deps:2", "parents:1",
    "group:k", "groupq:k", "rate", "schedulers", "signals:1", "budget:f", "w:1", "usage:1",
    "schedulers:lock:__tick__", "job:1:sub:g", "", "nonsense",
)  # fmt: skip
WORDS = (
    "", "0", "1", "2", "-1", "x", "workers", "true", "count", "age_count", "simple", "debounce",
    "throttle", "1700000000000", "9223372036854775807", "-9223372036854775808", "1e3", "1.5", "nan",
    "{}", "[]", '{"a":1}', '{"ordering":{"key":"k"}}', "k", "w1", "-", "+", ">", "$", "*", "0-0",
    "1700000000000-0", "(1", "COUNT", "BLOCK", "STREAMS", "GROUP", "CREATE", "MKSTREAM", "IDLE",
    "JUSTID", "WITHSCORES", "LIMIT", "BYSCORE", "MATCH", b"\xff\xfe", "a" * 300, "glide:{q}:1",
    "paused", "globalConcurrency", "data", "progress", "lastActive", "state", "parentId",
)  # fmt: skip
# Those that end or block the connection, or say nothing of keys.
LEFT_OUT = (b"QUIT", b"RESET", b"HELLO", b"CLIENT", b"MULTI", b"AUTH", b"XREAD", b"XREADGROUP")


class Caller:
    """Sends random commands, from one seed."""

    def __init__(self, seed: int, storage: Storage | None = None) -> None:
        self.random = random.Random(seed)
        self.site = BareGlidemq(storage)
        self.library = Library(self.site, "q")
        for given in ({}, {"key": "k"}, {"delay": 100}, {"priority": 1}, {"lifo": 1}):
            self.library.add(**given)
        self.entries = [entry for _, entry in self.library.read(count=2)]

    def key(self) -> str:
        queue = self.random.choice(("q", "q", "q", "q", "r"))
        return f"glide:{{{queue}}}:{self.random.choice(PARTS)}"

    def word(self) -> object:
        pick = self.random.random()
        if pick < 0.1:
            return self.random.choice(self.entries)
        return self.key() if pick < 0.2 else self.random.choice(WORDS)

    def say(self, *words: object) -> None:
        client = self.library.client
        client.send(*words)
        assert client.take_unread(), words

    def call_function(self) -> None:
        name = self.random.choice(list(FUNCTIONS))
        function = FUNCTIONS[name]
        keys_count = self.random.randint(int(function.keys_min), min(int(function.keys_max), 9))
        args_count = self.random.randint(int(function.args_min), min(int(function.args_max), 24))
        keys = [self.key() for _ in range(keys_count)]
        self.say("FCALL", name, keys_count, *keys, *(self.word() for _ in range(args_count)))

    def call_command(self) -> None:
        name = self.random.choice([one for one in REDIS_COMMANDS if one not in LEFT_OUT])
        count = self.random.randint(0, 6)
        self.say(name, self.key(), *(self.word() for _ in range(count)))


@pytest.mark.parametrize("seed", range(10))
def test_any_call_is_answered(seed: int) -> None:
    caller = Caller(seed)
    for _ in range(400):
        caller.call_function()
        caller.call_command()
    caller.site.tick(1000)
    recount(caller.site.yard)


# The parts that functions take in their places, so that arguments are what may be wrong.
SHAPES = {
    "promote": ["scheduled", "stream", "events"],
    "popLists": ["priority", "lifo"],
    "moveToActive": ["job:1", "stream"],
    "complete": ["stream", "completed", "events", "job:1", "metrics:completed"],
    "completeAndFetchNext": ["stream", "completed", "events", "job:1", "metrics:completed"],
    "fail": ["stream", "failed", "scheduled", "events", "job:1", "metrics:failed"],
    "deferActive": ["stream", "job:1", "list-active"],
    "reclaimStalled": ["stream", "events"],
    "reclaimStalledListJobs": ["stream", "events"],
    "addJob": ["id", "stream", "scheduled", "events"],
    "dedup": ["dedup", "id", "stream", "scheduled", "events"],
    "addFlow": ["id", "stream", "scheduled", "events"],
    "changePriority": ["job:1", "stream", "scheduled", "events"],
    "changeDelay": ["job:1", "stream", "scheduled", "events"],
    "promoteJob": ["job:1", "stream", "scheduled", "events"],
    "moveActiveToDelayed": ["job:1", "stream", "scheduled", "events"],
    "moveToWaitingChildren": ["job:1", "stream", "events"],
    "suspend": ["job:1", "stream", "events", "suspended"],
    "signal": ["job:1", "stream", "events", "suspended", "signals:1"],
    "sweepSuspended": ["suspended", "events", "failed", "metrics:failed"],
    "retryJobs": ["failed", "scheduled", "events", "id"],
    "revoke": ["job:1", "stream", "scheduled", "failed", "events"],
    "clean": ["completed", "events", "id"],
    "drain": ["stream", "scheduled", "events", "id"],
    "rateLimit": ["rate", "meta"],
    "rateLimitGroup": ["job:1", "stream"],
    "rateLimitGroupExternal": ["ratelimited", "events"],
    "recordUsageAndCheckBudget": ["budget:f"],
    "tryLock": ["schedulers:lock:__tick__"],
    "completeChild": ["deps:1", "job:1", "stream", "events"],
    "registerParent": ["job:1", "parents:1", "deps:2", "job:2", "stream", "events"],
    "pause": ["meta", "events"],
    "resume": ["meta", "events"],
}


def live_on(caller: Caller) -> None:
    """Do what a producer or a worker does."""
    library, pick = caller.library, caller.random.choice
    what = caller.random.randrange(5)
    if what < 2:
        given = {
            "delay": pick((0, 0, 50)), "priority": pick((0, 0, 2)), "key": pick(("", "", "k", "l")),
            "concurrency": pick((0, 2)), "attempts": pick((0, 3)), "opts": pick(("{}", '{"a":1}')),
            "lifo": pick((0, 0, 1)), "custom": pick(("", "", "x", "y")), "ttl": pick((0, 0, 60000)),
        }  # fmt: skip
        given["lifo"] = 0 if given["key"] else given["lifo"]
        arguments = {name: value for name, value in given.items() if name != "lifo"}
        library.add(**arguments, lifo=given["lifo"])
    elif what == 2:
        library.promote()
        caller.site.tick(pick((0, 30)))
    else:
        for job_id, entry in library.read(count=pick((1, 3))):
            caller.entries.append(entry)
            if what == 3:
                library.complete(job_id, entry)
            else:
                library.fail(job_id, entry, attempts=pick((0, 3)), backoff=pick((0, 40)))


def say_anything(caller: Caller, times: int) -> None:
    """Add and remove jobs, and call functions with arguments that may be valid."""
    for _ in range(times):
        if caller.random.random() < 0.5:
            live_on(caller)
            continue
        name = caller.random.choice(list(SHAPES))
        function = FUNCTIONS[f"glidemq_{name}".encode()]
        count = caller.random.randint(int(function.args_min), min(int(function.args_max), 24))
        job_id = caller.random.choice("12345")
        parts = [part.replace(":1", f":{job_id}") for part in SHAPES[name]]
        words = [caller.word() for _ in range(count)]
        if count > 1 and caller.random.random() < 0.7:
            words[0] = job_id
            words = ["workers" if word == "x" else word for word in words]
        caller.say("FCALL", f"glidemq_{name}", len(parts), *caller.library.keys(*parts), *words)


@pytest.mark.parametrize("seed", range(10))
def test_any_arguments_are_answered(seed: int) -> None:
    caller = Caller(seed)
    say_anything(caller, 800)
    caller.site.tick(1000)
    recount(caller.site.yard)


@pytest.mark.parametrize("seed", range(10))
def test_a_restart_shows_the_same(seed: int) -> None:
    caller = Caller(seed, MemoryStorage())
    for _ in range(5):
        say_anything(caller, 60)
        before = shown(caller.library)
        caller.site = caller.site.reboot()
        caller.library = Library(caller.site, "q")
        recount(caller.site.yard)
        after = shown(caller.library)
        assert after.keys() == before.keys()
        for job_id, fields in before.items():
            if fields["state"] == "active":
                continue
            if fields["state"] == "group-waiting":
                # Leases end with a restart, and so does what a worker set for an ordering group.
                fields["state"] = after[job_id]["state"]
                assert fields["state"] in ("waiting", "group-waiting")
            assert after[job_id] == fields


def shown(library: Library) -> dict[str, dict[str, str]]:
    """Return all jobs as clients see them."""
    queue = library.site.yard.queues.get("q")
    if queue is None:
        return {}
    jobs = [job for job in library.site.yard.jobs.all() if job.queue is queue]
    return {id_of(job): library.job(id_of(job)) for job in jobs}
