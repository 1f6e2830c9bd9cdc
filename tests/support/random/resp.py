"""Commands of the glide-mq door drawn from a seed: every command and function, valid or not.

A shape gives the kind of each argument of a command; now and then another value is used.
Nothing here knows the expected result.
"""

import random
from typing import Final

from jobyard.protocols.glidemq.command_table import REDIS_COMMANDS
from jobyard.protocols.glidemq.functions.table import FUNCTIONS

PARTS: Final = (
    "id", "stream", "scheduled", "completed", "failed", "events", "meta", "dedup", "ordering",
    "ratelimited", "lifo", "priority", "list-active", "suspended", "metrics:completed",
    "metrics:failed", "job:1", "job:2", "job:3", "job:x", "log:1", "deps:1", "deps:2", "parents:1",
    "group:k", "groupq:k", "rate", "schedulers", "signals:1", "budget:f", "w:1", "usage:1", "tpm:1",
    "jstream:1", "schedulers:lock:__tick__", "job:1:sub:g", "job:1:usage-lock", "", "nonsense",
)  # fmt: skip
INTEGERS: Final = (
    0, 1, 2, 3, -1, -2, 10, 1000, 2048, 2049, 1 << 31, 1 << 42, (1 << 53) + 1, (1 << 63) - 1,
    -(1 << 63), 1 << 63, 1 << 64, -(1 << 64), 10**30, "", "1.5", "1e3", "+1", " 1", "007", "x",
    1_700_000_000_000, 1_700_000_000_500,
)  # fmt: skip
FLOATS: Final = (
    "0", "1", "-1", "1.5", "inf", "-inf", "nan", "(1", "(inf", "1e308", "-1e308", "1e400", "0x1",
    "4398046511104", "4398046511104.5", "9007199254740993", "", "1_0", " 1", "1700000000000",
)  # fmt: skip
TEXTS: Final = (
    b"", b"a", b"x", b"1", b"2", b"paused", b"state", b"data", b"progress", b"parentId",
    b"lastActive",
    b"globalConcurrency", b"rateLimitMax", b"{}", b'{"a":1}', b"[", b"\xff\xfe", b"\x00", b"a\r\nb",
    b"\xed\xa0\x80", b"y" * 300, b"glide:{q}:2", b"glide:{q}:9", b"*", b"[a", b"\\", b"a*b?",
    b'{"ordering":{"key":"k"},"attempts":3,"backoff":{"type":"fixed","delay":5}}',
    rb'{"ordering":{"key":"\ud800","concurrency":2},"cost":1e999,"lockDuration":-1}',
)  # fmt: skip
IDS: Final = (
    "0-0", "1-1", "0", "-", "+", "$", "*", ">", "(0-1", "5-*", "18446744073709551615", "0-",
    "18446744073709551615-18446744073709551615", "99999999999999999999-0", "-1-1", "a-b", "",
)  # fmt: skip
OPTIONS: Final = (
    "NX", "XX", "GT", "LT", "CH", "EX", "PX", "KEEPTTL", "GET", "COUNT", "MATCH", "TYPE", "LIMIT",
    "WITHSCORES", "BYSCORE", "REV", "MAXLEN", "MINID", "~", "=", "NOMKSTREAM", "MKSTREAM", "IDLE",
    "JUSTID", "FORCE", "BLOCK", "NOACK", "STREAMS", "SETNAME", "NOVALUES", "WITHCODE", "REPLACE",
)  # fmt: skip

# k: key, i: integer, f: float, t: text, e: id of an entry, o: option, g: group, c: consumer,
# w: one of the words after it; in brackets, may be left out or repeated.
SHAPES: Final[dict[bytes, str]] = {
    b"SCAN": "i (oi)", b"KEYS": "t", b"TYPE": "k", b"EXISTS": "k (k)", b"DEL": "k (k)",
    b"UNLINK": "k (k)", b"TTL": "k", b"PTTL": "k", b"EXPIRE": "k i (o)", b"PEXPIRE": "k i (o)",
    b"EXPIREAT": "k i", b"PEXPIREAT": "k i", b"PERSIST": "k", b"MEMORY": "w:USAGE k",
    b"OBJECT": "w:ENCODING k", b"GET": "k", b"MGET": "k (k)", b"GETRANGE": "k i i",
    b"STRLEN": "k", b"SET": "k t (o) (oi)", b"SETNX": "k t", b"SETEX": "k i t",
    b"PSETEX": "k i t", b"GETDEL": "k", b"INCR": "k", b"DECR": "k", b"INCRBY": "k i",
    b"DECRBY": "k i", b"HSET": "k t t (tt)", b"HMSET": "k t t", b"HSETNX": "k t t",
    b"HGET": "k t", b"HMGET": "k t (t)", b"HGETALL": "k", b"HKEYS": "k", b"HVALS": "k",
    b"HSCAN": "k i (ot)", b"HLEN": "k", b"HEXISTS": "k t", b"HSTRLEN": "k t", b"HDEL": "k t (t)",
    b"HINCRBY": "k t i", b"HINCRBYFLOAT": "k t f", b"RPUSH": "k t (t)", b"LPUSH": "k t (t)",
    b"RPOP": "k (i)", b"LPOP": "k (i)", b"LRANGE": "k i i", b"LINDEX": "k i", b"LLEN": "k",
    b"LTRIM": "k i i", b"SADD": "k t (t)", b"SREM": "k t (t)", b"SMEMBERS": "k",
    b"SSCAN": "k i (ot)", b"SCARD": "k", b"SISMEMBER": "k t", b"ZADD": "k (o) f t (ft)",
    b"ZREM": "k t (t)", b"ZSCORE": "k t", b"ZCARD": "k", b"ZSCAN": "k i", b"ZCOUNT": "k f f",
    b"ZRANGE": "k i i (o) (oii)", b"ZREVRANGE": "k i i (o)", b"ZRANGEBYSCORE": "k f f (o) (oii)",
    b"ZREVRANGEBYSCORE": "k f f (oii)", b"ZPOPMIN": "k (i)", b"XADD": "k (oi) e t t (tt)",
    b"XLEN": "k", b"XRANGE": "k e e (oi)", b"XREVRANGE": "k e e (oi)",
    b"XREAD": "(w:COUNT i) (w:BLOCK i) w:STREAMS k e", b"XTRIM": "k w:MAXLEN|MINID i (oi)",
    b"XDEL": "k e (e)", b"XGROUP": "w:CREATE|SETID|DESTROY|CREATECONSUMER|DELCONSUMER k g e (o)",
    b"XREADGROUP": "w:GROUP g c (w:COUNT i) (w:BLOCK i) w:STREAMS k w:>|0|5-5",
    b"XACK": "k g e (e)", b"XPENDING": "k g (w:IDLE i) e e i (c)", b"XCLAIM": "k g c i e (e) (o)",
    b"XAUTOCLAIM": "k g c i e (oi)", b"XINFO": "w:STREAM|GROUPS|CONSUMERS k (g)",
    b"INFO": "(t)", b"COMMAND": "(w:COUNT|LIST|INFO|DOCS|GETKEYS) (t)", b"CONFIG": "w:GET|SET t",
    b"FUNCTION": "w:LIST|STATS|LOAD|DELETE|FLUSH (o) (t)", b"SELECT": "i", b"PING": "(t)",
    b"ECHO": "t", b"CLIENT": "w:ID|SETNAME|GETNAME|SETINFO|INFO|LIST|NO-EVICT (t)",
    b"HELLO": "(i) (ot)", b"AUTH": "t (t)", b"TIME": "", b"ROLE": "", b"DBSIZE": "", b"MULTI": "",
    b"EXEC": "", b"DISCARD": "", b"UNWATCH": "", b"WATCH": "k", b"SLOWLOG": "w:GET|LEN",
    b"LATENCY": "w:LATEST|DOCTOR", b"CLUSTER": "w:SLOTS", b"MODULE": "w:LIST", b"ACL": "w:WHOAMI",
    b"EVAL": "t w:0",
    b"EVALSHA": "t w:0",
    b"EVAL_RO": "t w:0",
    b"EVALSHA_RO": "t w:0",
    b"SCRIPT": "w:EXISTS t",
}  # fmt: skip

READ: Final = "w:GROUP g c w:COUNT n w:STREAMS w:glide:{q}:stream w:>"

# These end the connection, or suppress an answer.
LEFT_OUT: Final = frozenset(
    {b"QUIT", b"RESET", b"FCALL", b"FCALL_RO", b"READONLY", b"READWRITE", b"ASKING"}
)

# The key parts a function takes; `#` stands for a job id.
KEYS: Final[dict[str, str]] = {
    "version": "", "addJob": "id stream scheduled events",
    "dedup": "dedup id stream scheduled events", "addFlow": "id stream scheduled events",
    "pause": "meta events", "resume": "meta events", "promote": "scheduled stream events",
    "nextDue": "scheduled ratelimited", "popLists": "priority lifo",
    "rpopAndReserve": "meta stream list-active lifo",
    "checkConcurrency": "meta stream list-active", "moveToActive": "job:# stream",
    "completeAndFetchNext": "stream completed events job:# metrics:completed",
    "complete": "stream completed events job:# metrics:completed",
    "fail": "stream failed scheduled events job:# metrics:failed",
    "deferActive": "stream job:# list-active", "reclaimStalled": "stream events",
    "reclaimStalledListJobs": "stream events", "healListActive": "id",
    "getActiveListJobIds": "id", "tryLock": "schedulers:lock:__tick__",
    "unlock": "schedulers:lock:__tick__", "renewLock": "schedulers:lock:__tick__",
    "rateLimit": "rate meta", "promoteRateLimited": "ratelimited stream",
    "removeJob": "job:# stream scheduled completed failed events log:#",
    "clean": "completed events id", "drain": "stream scheduled events id lifo priority",
    "retryJobs": "failed scheduled events id", "revoke": "job:# stream scheduled failed events",
    "changePriority": "job:# stream scheduled events",
    "changeDelay": "job:# stream scheduled events",
    "promoteJob": "job:# stream scheduled events", "searchByName": "stream",
    "moveActiveToDelayed": "job:# stream scheduled events",
    "moveToWaitingChildren": "job:# stream events", "completeChild": "deps:# job:# stream events",
    "registerParent": "job:# parents:# deps:2 job:2 stream events",
    "rateLimitGroup": "job:# stream",
    "rateLimitGroupExternal": "ratelimited events", "suspend": "job:# stream events suspended",
    "signal": "job:# stream events suspended signals:#",
    "sweepSuspended": "suspended events failed metrics:failed", "checkBudget": "budget:f",
    "recordUsageAndCheckBudget": "budget:f", "updateFlowBudget": "budget:f",
    "popListsReserve": "priority lifo list-active", "updateJobFields": "job:# events",
    "retryJob": "job:# failed scheduled", "trimBroadcast": "stream completed failed scheduled",
    "casSchedulerEntry": "schedulers",
}  # fmt: skip
# Functions that leave little for others to do.
STOPPING: Final = frozenset({"pause", "drain", "removeJob", "clean", "trimBroadcast"})

# Kinds of the arguments of functions, where random words would be refused: as above; n: a small
# number, s: the time, j: a job id, r: how results are kept.
_END: Final = "j e t s g"
_ADD: Final = "w:mail t t s n n w:|1 n w:||k|l n n n w:0|0|5000 n n w:0|0|90 w:|||||x|y|3"
ARGUMENTS: Final[dict[str, str]] = {
    "addJob": f"{_ADD} n",
    "dedup": f"w:d1|d2 n w:simple|throttle|debounce {_ADD} n",
    "addFlow": "w:mail|post t t s n n n w:0 w:||||x|y", "promote": "s", "popLists": "n",
    "rpopAndReserve": "g n", "checkConcurrency": "g", "moveToActive": "s e g j",
    "complete": f"{_END} r n n t t",
    "completeAndFetchNext": f"{_END} c r n n t t w:__ t w:__ w:0 t w:0 w:0|1 w:0",
    "fail": "j e t s n n g r n n", "deferActive": "j e g",
    "reclaimStalled": "g c n n s t w:0 n", "reclaimStalledListJobs": "n n s t n",
    "getActiveListJobIds": "i i", "tryLock": "c n", "unlock": "c", "renewLock": "c n",
    "rateLimit": "n n s", "promoteRateLimited": "s", "removeJob": "j", "clean": "s n",
    "drain": "w:0|1 g", "retryJobs": "n s", "revoke": "j s g", "changePriority": "j n g",
    "changeDelay": "j n s g", "promoteJob": "j", "searchByName": "t t n t",
    "moveActiveToDelayed": "j e s s g t", "moveToWaitingChildren": "j e g s",
    "completeChild": "t j", "registerParent": "j j t t",
    "rateLimitGroup": "j e g n s w:0 w:fail|requeue n w:replace|max",
    "rateLimitGroupExternal": "w:k|l n s w:replace|max", "suspend": "j e g s t n",
    "signal": "j t t s", "sweepSuspended": "s g", "recordUsageAndCheckBudget": "t t f f t t",
    "updateFlowBudget": "t f (tf)", "popListsReserve": "n", "updateJobFields": "j t t t t (tt)",
    "retryJob": "j s", "trimBroadcast": "n s", "casSchedulerEntry": "t t t",
}  # fmt: skip


class RandomResp:
    """Draws commands from a seed; `held` are entries that were seen, by the ids of their jobs."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.held: dict[str, str] = {}
        self.wall_ms = 0

    def command(self) -> list[object]:
        """Return any command."""
        pick = self.random.random()
        if pick < 0.2:
            return self.function(self.random.choice(("addJob", "addJob", "addFlow", "promote")))
        if pick < 0.21:
            start = self.random.choice(("0", "$", *self.held.values()))
            return ["XGROUP", "CREATE", "glide:{q}:stream", "mails", start, "MKSTREAM"]
        if pick < 0.3:
            words = [self._slip(word, 0.01) for word in self.fill(READ)]
            return ["XREADGROUP", *words]
        if pick < 0.7:
            name = self.random.choice(list(KEYS))
            is_rare = name in STOPPING and self.random.random() < 0.8
            return self.function("resume" if is_rare else name)
        command = self.random.choice([one for one in REDIS_COMMANDS if one not in LEFT_OUT])
        words = [self._slip(word) for word in self.fill(SHAPES[command])]
        if self.random.random() < 0.03:
            del words[self.random.randrange(len(words) + 1) :]
        return [command, *words]

    def function(self, name: str) -> list[object]:
        """Return any call of a function."""
        job_id = str(self.random.choice((*range(1, 20), "x", "y")))
        if self.held and self.random.random() < 0.7:
            job_id = self.random.choice(list(self.held))
        queue = self.random.choice("qqqqqr")
        parts = KEYS[name].replace("#", job_id).split()
        keys: list[object] = [f"glide:{{{queue}}}:{part}" for part in parts]
        arguments = self.fill(ARGUMENTS.get(name, ""), job_id)
        arguments = [self._slip(word, 0.01) for word in arguments]
        if self.random.random() < 0.03:
            keys = [self._slip(key, 0.3) for key in keys]
        count: object = len(keys)
        if self.random.random() < 0.01:
            count = self.random.choice(INTEGERS)
        return ["FCALL", f"glidemq_{name}", count, *keys, *arguments]

    def fill(self, shape: str, job_id: str = "1") -> list[object]:
        """Return words of a shape."""
        words: list[object] = []
        for place in shape.replace("( ", "(").split(" ") if shape else []:
            if place.startswith("("):
                for _ in range(self.random.choice((0, 0, 1, 1, 2))):
                    words += [self._word(kind, job_id) for kind in _kinds(place[1:].rstrip(")"))]
            elif place:
                words += [self._word(kind, job_id) for kind in _kinds(place.rstrip(")"))]
        return words

    def _word(self, kind: str, job_id: str) -> object:
        draw = self.random
        if kind.startswith("w:"):
            return draw.choice(kind[2:].split("|"))
        if kind == "e" and job_id in self.held and draw.random() < 0.9:
            return self.held[job_id]
        choices: dict[str, object] = {
            "k": f"glide:{{{draw.choice('qqqqr')}}}:{draw.choice(PARTS)}",
            "i": draw.choice(INTEGERS), "f": draw.choice(FLOATS), "t": draw.choice(TEXTS),
            "e": draw.choice(IDS), "o": draw.choice(OPTIONS),
            "g": draw.choice(("workers", "workers", "mails")),
            "c": draw.choice(("w1", "w2")), "n": draw.choice((0, 0, 0, 1, 2, 3, 50, 1000)),
            "s": self.wall_ms + draw.choice((0, 0, 0, 1, 60_000, -5)), "j": job_id,
            "r": draw.choice(("0", "true", "count", "age_count", "")),
        }  # fmt: skip
        return choices[kind]

    def _slip(self, word: object, chance: float = 0.04) -> object:
        """Return the word, or now and then another that may be invalid there."""
        if self.random.random() >= chance:
            return word
        return self.random.choice((*INTEGERS, *FLOATS, *TEXTS, *IDS, *OPTIONS))


def _kinds(place: str) -> list[str]:
    return [place] if place.startswith("w:") else list(place)


assert {f"glidemq_{name}".encode() for name in KEYS} == set(FUNCTIONS)
assert set(SHAPES) | LEFT_OUT == set(REDIS_COMMANDS)
