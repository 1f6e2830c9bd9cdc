"""The words of the command for each kind of `Ask`: names of functions, keys, arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.glidemq.nouns import Ask, NewGlideJob

GROUP: Final = b"workers"
FOUR: Final = ("id", "stream", "scheduled", "events")


def key(queue: str, part: str) -> bytes:
    """Return a key of a queue."""
    return f"glide:{{{queue}}}:{part}".encode()


def keys_of(queue: str, *parts: str) -> list[bytes]:
    """Return some keys of a queue."""
    return [key(queue, part) for part in parts]


def fcall(name: str, keys: list[bytes], *arguments: object) -> list[bytes]:
    """Return the words of a function call."""
    words = [one if isinstance(one, bytes) else str(one).encode() for one in arguments]
    return [b"FCALL", f"glidemq_{name}".encode(), b"%d" % len(keys), *keys, *words]


def new_job_words(new_job: NewGlideJob) -> list[bytes]:
    """Return the arguments that describe a job."""
    limits = (new_job.concurrency, 0, 0, 0, 0, new_job.cost, new_job.ttl)
    return [
        *(new_job.name, new_job.data, new_job.opts),
        *(b"%d" % number for number in (new_job.ts, new_job.delay, new_job.priority)),
        *(b"", b"%d" % new_job.attempts, new_job.ordering.encode()),
        *(b"%d" % number for number in limits),
        *(new_job.custom.encode(), b"%d" % new_job.is_lifo),
    ]


def phrase(ask: Ask, ts: int) -> Ask:
    """Set the words of a command; `ts` is the time by the clock of the client."""
    ask.words = _PHRASES[ask.kind](ask, ts)
    return ask


def _add(ask: Ask, _: int) -> list[bytes]:
    return fcall("addJob", keys_of(ask.queue, *FOUR), *new_job_words(ask.new_jobs[0][1]))


def _dedup(ask: Ask, _: int) -> list[bytes]:
    ask.key = key(ask.queue, "dedup")
    told = (ask.value, ask.number, ask.mode, *new_job_words(ask.new_jobs[0][1]))
    return fcall("dedup", [ask.key, *keys_of(ask.queue, *FOUR)], *told)


def _flow(ask: Ask, ts: int) -> list[bytes]:
    (queue, parent), *children = ask.new_jobs
    keys = keys_of(queue, *FOUR)
    words: list[object] = [parent.name, parent.data, parent.opts, ts, parent.delay]
    words += [parent.priority, parent.attempts, len(children), parent.custom]
    for other, new_job in children:
        keys += keys_of(other, *FOUR)
        words += [
            new_job.name,
            new_job.data,
            new_job.opts,
            new_job.delay,
            new_job.priority,
            new_job.attempts,
        ]
        words += ["", queue, new_job.custom]
    return fcall("addFlow", keys, *words)


def _read(ask: Ask, _: int) -> list[bytes]:
    words = [b"XREADGROUP", b"GROUP", GROUP, ask.consumer.encode(), b"COUNT", b"%d" % ask.count]
    if ask.block:
        words += [b"BLOCK", b"%d" % ask.block]
    return [*words, b"STREAMS", key(ask.queue, "stream"), b">"]


def _pop(ask: Ask, _: int) -> list[bytes]:
    if ask.mode == b"both":
        return fcall("popLists", keys_of(ask.queue, "priority", "lifo"), ask.count)
    parts = ("meta", "stream", "list-active", ask.mode.decode())
    return fcall("rpopAndReserve", keys_of(ask.queue, *parts), GROUP, ask.count)


def _active(ask: Ask, ts: int) -> list[bytes]:
    keys = keys_of(ask.queue, f"job:{ask.id}", "stream")
    return fcall("moveToActive", keys, ts, ask.entry, GROUP)


def _ended(name: str, ask: Ask, ts: int, *consumer: str) -> list[bytes]:
    parts = ("stream", "completed", "events", f"job:{ask.id}", "metrics:completed")
    told = (ask.id, ask.entry, ask.value, ts, GROUP, *consumer, ask.mode, ask.count, 0)
    return fcall(name, keys_of(ask.queue, *parts), *told)


def _complete(ask: Ask, ts: int) -> list[bytes]:
    return _ended("complete", ask, ts)


def _next(ask: Ask, ts: int) -> list[bytes]:
    return _ended("completeAndFetchNext", ask, ts, ask.consumer)


def _fail(ask: Ask, ts: int) -> list[bytes]:
    keys = keys_of(ask.queue, "stream", "failed", "scheduled", "events", f"job:{ask.id}")
    told = (ts, ask.count, ask.number, GROUP, ask.mode, 0, 0)
    return fcall("fail", keys, ask.id, ask.entry, ask.value, *told)


def _defer(ask: Ask, _: int) -> list[bytes]:
    keys = keys_of(ask.queue, "stream", f"job:{ask.id}")
    return fcall("deferActive", keys, ask.id, ask.entry, GROUP)


def _delay_active(ask: Ask, ts: int) -> list[bytes]:
    told = (ask.id, ask.entry, ts, ts + ask.number, GROUP, ask.value)
    return fcall("moveActiveToDelayed", _of_job(ask), *told)


def _of_job(ask: Ask) -> list[bytes]:
    return keys_of(ask.queue, f"job:{ask.id}", "stream", "scheduled", "events")


def _reclaim(ask: Ask, ts: int) -> list[bytes]:
    keys = keys_of(ask.queue, "stream", "events")
    told = (ask.number, ask.count, ts, key(ask.queue, "failed"))
    if ask.is_set:
        return fcall("reclaimStalledListJobs", keys, *told)
    return fcall("reclaimStalled", keys, GROUP, "w", *told)


def _promote(ask: Ask, ts: int) -> list[bytes]:
    ask.number = ts
    return fcall("promote", keys_of(ask.queue, "scheduled", "stream", "events"), ts)


def _promote_job(ask: Ask, _: int) -> list[bytes]:
    return fcall("promoteJob", _of_job(ask), ask.id)


def _remove(ask: Ask, _: int) -> list[bytes]:
    parts = ("stream", "scheduled", "completed", "failed", "events", f"log:{ask.id}")
    return fcall("removeJob", keys_of(ask.queue, f"job:{ask.id}", *parts), ask.id)


def _revoke(ask: Ask, ts: int) -> list[bytes]:
    parts = ("stream", "scheduled", "failed", "events")
    return fcall("revoke", keys_of(ask.queue, f"job:{ask.id}", *parts), ask.id, ts)


def _set_priority(ask: Ask, _: int) -> list[bytes]:
    return fcall("changePriority", _of_job(ask), ask.id, ask.number)


def _set_delay(ask: Ask, ts: int) -> list[bytes]:
    return fcall("changeDelay", _of_job(ask), ask.id, ask.number, ts)


def _drain(ask: Ask, _: int) -> list[bytes]:
    keys = keys_of(ask.queue, "stream", "scheduled", "events", "id")
    return fcall("drain", keys, int(ask.is_set), GROUP)


def _clean(ask: Ask, ts: int) -> list[bytes]:
    # The age of the jobs, then the time.
    ask.number = ts - ask.number
    keys = keys_of(ask.queue, ask.mode.decode(), "events", "id")
    return fcall("clean", keys, ask.number, ask.count)


def _retry(ask: Ask, ts: int) -> list[bytes]:
    keys = keys_of(ask.queue, "failed", "scheduled", "events", "id")
    return fcall("retryJobs", keys, ask.count, ts)


def _pause(ask: Ask, _: int) -> list[bytes]:
    return fcall("pause" if ask.is_set else "resume", keys_of(ask.queue, "meta", "events"))


def _group(ask: Ask, _: int) -> list[bytes]:
    return [b"XGROUP", b"CREATE", key(ask.queue, "stream"), GROUP, b"$", b"MKSTREAM"]


def _fields(ask: Ask, _: int) -> list[bytes]:
    words = [word for pair in ask.fields.items() for word in pair]
    return [b"HSET", ask.key, *words]


def _keyed(ask: Ask, _: int) -> list[bytes]:
    word = {"push": b"RPUSH", "log": b"RPUSH"}.get(ask.kind, ask.kind.upper().encode())
    words = [word, ask.key]
    if ask.kind in {"set", "hget", "hdel", "push", "log"}:
        words.append(ask.value)
    if ask.kind == "set" and ask.number:
        words += [b"PX", b"%d" % ask.number]
    return words


def _listed(ask: Ask, _: int) -> list[bytes]:
    own = key(ask.queue, ask.mode.decode())
    stream = key(ask.queue, "stream")
    words = {
        "logs": [b"LRANGE", key(ask.queue, f"log:{ask.id}"), b"0", b"-1"],
        "deps": [b"SMEMBERS", key(ask.queue, f"deps:{ask.id}")],
        "count": [_COUNTS.get(ask.mode, b"ZCARD"), own],
        "range": [b"LRANGE", own, b"0", b"-1"],
        "scores": [b"ZRANGE", own, b"0", b"-1", b"WITHSCORES"],
        "entries": [b"XRANGE", stream, b"-", b"+"],
        "pending": [b"XPENDING", stream, GROUP, b"-", b"+", b"1000"],
        "scan": [b"SCAN", b"0", b"MATCH", key(ask.queue, "job:*"), b"COUNT", b"10000"],
    }
    return words[ask.kind]


_COUNTS: Final = {b"stream": b"XLEN", b"priority": b"LLEN", b"lifo": b"LLEN"}

_PHRASES: Final[dict[str, Callable[[Ask, int], list[bytes]]]] = {
    "add": _add,
    "dedup": _dedup,
    "flow": _flow,
    "read": _read,
    "pop": _pop,
    "active": _active,
    "complete": _complete,
    "next": _next,
    "fail": _fail,
    "defer": _defer,
    "delay_active": _delay_active,
    "reclaim": _reclaim,
    "promote": _promote,
    "promote_job": _promote_job,
    "remove": _remove,
    "revoke": _revoke,
    "set_priority": _set_priority,
    "set_delay": _set_delay,
    "drain": _drain,
    "clean": _clean,
    "retry": _retry,
    "pause": _pause,
    "group": _group,
    "hset": _fields,
    **dict.fromkeys(("hgetall", "hget", "hdel", "set", "get", "del"), _keyed),
    **dict.fromkeys(("push", "lpop", "log"), _keyed),
    **dict.fromkeys(("logs", "deps", "count", "range", "scores"), _listed),
    **dict.fromkeys(("entries", "pending", "scan"), _listed),
}
