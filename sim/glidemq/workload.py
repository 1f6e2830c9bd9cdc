"""The commands of glide-mq clients in a run, and the queues and keys of a seed.

Draws from a separate generator, so that runs without glide-mq clients keep their meaning.
A command is written once, as the words a client sends and as their meaning for the model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jobyard.model.job import BLOCKED, DELAYED, LEASED, READY
from sim.glidemq.nouns import Ask, GlideJob, NewGlideJob
from sim.glidemq.words import FOUR, fcall, key, keys_of, new_job_words, phrase

if TYPE_CHECKING:
    from random import Random

    from sim.glidemq.model import GlideModel

_VERBS: Final = (
    ("add", 18.0),
    ("dedup", 4.0),
    ("flow", 3.5),
    ("read", 14.0),
    ("wait", 3.0),
    ("pop", 4.0),
    ("active", 5.0),
    ("complete", 9.0),
    ("next", 6.0),
    ("fail", 6.0),
    ("defer", 1.5),
    ("delay_active", 1.0),
    ("reclaim", 1.5),
    ("promote", 5.0),
    ("promote_job", 1.0),
    ("remove", 1.5),
    ("revoke", 1.0),
    ("set_priority", 1.0),
    ("set_delay", 1.0),
    ("drain", 0.3),
    ("clean", 0.8),
    ("retry", 1.5),
    ("pause", 0.8),
    ("group", 0.5),
    ("hset", 3.0),
    ("log", 1.5),
    ("look", 8.0),
    ("side", 4.0),
    ("exec", 5.0),
    ("refused", 2.0),
)
_ALWAYS: Final = ("add", "read", "complete", "promote", "look")
# Commands that may be sent together with a following one, and those that may follow: none of these
# undoes the effect of another, so the yard shows the result of each.
_AHEAD: Final = ("add", "add", "hset", "log", "look", "look", "side", "refused")
_BEHIND: Final = ("add", "read", "wait", "complete", "next", "fail", "active", "look", "refused")
_OF_RUN: Final = ("active", "complete", "next", "fail", "defer", "delay_active")
_LONG: Final = (3900, 4100, 9000)


class GlideSwarm:
    """The choices of one seed for its glide-mq clients."""

    def __init__(self, rng: Random, *, is_steady: bool) -> None:
        pick = rng.choice
        # Whether wall clock and steady clock agree: then keys may expire in an hour.
        self.is_steady = is_steady
        self.clients_max = pick((1, 2, 4, 6))
        self.queues = pick((("g1",), ("g1", "g2")))
        self.small_max = pick((5, 60, 400))
        self.long_odds = pick((0.0, 0.0, 0.05))
        self.delays = pick(((0,), (0, 0, 20, 900), (0, 5, 3000, 9000)))
        self.priorities = pick(((0,), (0, 0, 1, 7), (0, 1, 2048)))
        self.option_odds = pick((0.05, 0.3))
        self.customs = ["c1", "c2", "c3", "3"]
        self.orderings = pick(({}, {"k1": 1}, {"k1": 0, "k2": 2}, {"k2": 3}))
        # The most commands before time passes.
        self.eagerness = pick((1, 4, 8))
        self.jobs_aimed = pick((4, 12, 30))
        self.others_odds = pick((0.0, 0.0, 0.3))
        self.verbs: list[str] = []
        self.weights: list[float] = []
        for verb, weight in _VERBS:
            if verb in _ALWAYS or rng.random() < 0.75:
                self.verbs.append(verb)
                self.weights.append(weight * pick((0.5, 1.0, 2.0)))


class GlideAuthor:
    """Writes the commands of clients."""

    def __init__(self, rng: Random, swarm: GlideSwarm) -> None:
        self._rng = rng
        self._swarm = swarm
        self._count = 0
        # Former entry ids of jobs: workers that lost a job have these.
        self._entries: dict[int, list[str]] = {}

    def write(self, model: GlideModel, number: int) -> list[Ask]:
        """Return the next command of a client, or a transaction."""
        rng = self._rng
        swarm = self._swarm
        (verb,) = rng.choices(swarm.verbs, swarm.weights)
        if len(model.jobs) > swarm.jobs_aimed and verb in {"add", "dedup", "flow"}:
            verb = rng.choice(("read", "next", "complete", "promote", "clean", verb))
        if verb == "exec":
            return self._transaction(model)
        asks: list[Ask] = []
        while rng.random() < 0.2:
            asks.append(self.command(rng.choice(_AHEAD), model, number))
        if asks and verb not in _BEHIND:
            return asks
        return [*asks, self.command(verb, model, number)]

    def command(self, verb: str, model: GlideModel, number: int) -> Ask:
        """Return a command of some kind."""
        queue = self._rng.choice(self._swarm.queues)
        ts = self._now(model)
        if verb == "refused":
            return self._refused(queue, model)
        if verb in {"add", "dedup", "flow"}:
            ask = self._adding(verb, queue, model)
        elif verb in {"read", "wait"}:
            ask = self._read(verb, queue, number)
        elif verb in _OF_RUN:
            ask = self._of_run(verb, queue, model)
        elif verb in {"hset", "log"}:
            ask = self._of_hash(verb, queue, model)
        elif verb == "look":
            ask = self._look(queue, model)
        elif verb == "side":
            ask = self._side(queue)
        elif verb in {"promote_job", "remove", "revoke", "set_priority", "set_delay"}:
            ask = self._of_job(verb, queue, model)
        else:
            ask = self._of_queue(verb, queue, model)
        return phrase(ask, ts)

    def _now(self, model: GlideModel) -> int:
        return model.now + model.wall_offset

    # -- adding ------------------------------------------------------------------------------------

    def _data(self) -> bytes:
        rng = self._rng
        self._count += 1
        size = int(rng.random() * rng.random() * self._swarm.small_max)
        if rng.random() < self._swarm.long_odds:
            size = rng.choice(_LONG)
        head = b'{"n":%d,"p":"' if rng.random() < 0.8 else b"\xff raw %d"
        data = head % self._count + b"." * size
        return data + b'"}' if data.startswith(b"{") else data

    def new_job(self, model: GlideModel, *, is_plain: bool = False) -> NewGlideJob:
        """Return a job to add; a plain one has no options that flows lack."""
        rng = self._rng
        swarm = self._swarm
        odds = swarm.option_odds
        new_job = NewGlideJob(rng.choice((b"mail", b"call")), self._data(), self._now(model))
        if rng.random() < 0.3:
            new_job.opts = rng.choice((b'{"x":1}', b'{"jobId":"%d"}' % self._count))
        new_job.delay = rng.choice(swarm.delays)
        new_job.priority = rng.choice(swarm.priorities)
        new_job.attempts = rng.choice((0, 1, 3))
        if rng.random() < odds:
            new_job.custom = rng.choice(swarm.customs)
        if is_plain:
            return new_job
        new_job.cost = 1500 if self._count % 4 == 0 else 0
        if swarm.orderings and rng.random() < 0.5:
            new_job.ordering = rng.choice(list(swarm.orderings))
            new_job.concurrency = swarm.orderings[new_job.ordering]
        if rng.random() < odds:
            new_job.is_lifo = True
        if rng.random() < odds / 2:
            new_job.ttl = rng.choice((100, 4000))
        return new_job

    def _adding(self, verb: str, queue: str, model: GlideModel) -> Ask:
        rng = self._rng
        ask = Ask(verb, queue)
        ask.new_jobs = [(queue, self.new_job(model, is_plain=verb == "flow"))]
        if verb == "dedup":
            ask.mode = rng.choice((b"simple", b"throttle", b"debounce"))
            ask.value = rng.choice((b"d1", b"d2"))
            ask.number = rng.choice((0, 500, 60_000))
            if rng.random() < 0.3:
                ask.new_jobs[0][1].custom = rng.choice(self._swarm.customs)
        elif verb == "flow":
            for _ in range(1 + int(rng.random() * 3)):
                other = rng.choice(self._swarm.queues)
                ask.new_jobs.append((other, self.new_job(model, is_plain=True)))
        return ask

    # -- taking and ending -------------------------------------------------------------------------

    def _read(self, verb: str, queue: str, number: int) -> Ask:
        rng = self._rng
        ask = Ask("read", queue)
        ask.consumer = rng.choice((f"w{number}", "shared"))
        ask.count = rng.choice((1, 1, 2, 5))
        ask.number = number
        ask.block = rng.choice((1, 50, 700, 9000)) if verb == "wait" else 0
        return ask

    def _pick(self, model: GlideModel, queue: str, *states: int) -> GlideJob | None:
        """Return a job, preferably one in these states."""
        rng = self._rng
        jobs = [job for job in model.jobs.values() if job.queue == queue]
        fitting = [job for job in jobs if job.state in states]
        if fitting and rng.random() < 0.85:
            return rng.choice(fitting)
        if model.gone and rng.random() < 0.1:
            gone = rng.choice(list(model.gone.values()))
            return gone if gone.queue == queue else None
        return rng.choice(jobs) if jobs else None

    def _entry(self, job: GlideJob | None) -> str:
        """Return the entry a worker names for a job: the current one, an older one, or none."""
        if job is None or job.place is None:
            return self._rng.choice(("", "1-1"))
        known = self._entries.setdefault(job.number, [])
        entry = job.entry()
        if entry not in known:
            known.append(entry)
        chance = self._rng.random()
        if chance < 0.08:
            return self._rng.choice(known)
        is_list = job.held is not None and job.held.is_list
        return "" if is_list != (chance < 0.12) else entry

    def _of_run(self, verb: str, queue: str, model: GlideModel) -> Ask:
        rng = self._rng
        job = self._pick(model, queue, LEASED)
        if job is None or (job.state == READY and job.deliveries == 0):
            # A worker acts only on jobs that it was given.
            ask = Ask(verb, queue, "nobody")
            ask.entry = "1-1"
        else:
            ask = Ask(verb, queue, job.id)
            ask.entry = self._entry(job)
        if verb in {"complete", "next"}:
            ask.value = rng.choice((b"", b"null", self._data()))
            ask.mode, ask.count = rng.choice(((b"0", 0), (b"0", 0), (b"true", 0), (b"count", 2)))
            ask.consumer = f"n{int(rng.random() * 3)}"
        elif verb == "fail":
            ask.value = b"no " + b"!" * int(rng.random() * 9)
            ask.count, ask.number = rng.choice((0, 1, 3)), rng.choice((0, 30, 2000))
            ask.mode = rng.choice((b"0", b"0", b"true"))
        elif verb == "delay_active":
            ask.number = rng.choice((1, 500, 4000))
            ask.value = rng.choice((b"", self._data()))
        return ask

    # -- jobs and queues ---------------------------------------------------------------------------

    def _of_job(self, verb: str, queue: str, model: GlideModel) -> Ask:
        job = self._pick(model, queue, READY, DELAYED, BLOCKED)
        ask = Ask(verb, queue, "nobody" if job is None else job.id)
        if verb == "set_priority":
            ask.number = self._rng.choice((0, 1, 9))
        elif verb == "set_delay":
            ask.number = self._rng.choice((0, 40, 5000))
        return ask

    def _of_queue(self, verb: str, queue: str, model: GlideModel) -> Ask:
        rng = self._rng
        ask = Ask(verb, queue)
        if verb == "pop":
            ask.mode, ask.count = rng.choice((b"both", b"lifo", b"priority")), rng.choice((1, 3))
        elif verb == "reclaim":
            ask.number, ask.count = rng.choice((0, 100, 3000)), rng.choice((0, 1, 2))
            ask.is_set = rng.random() < 0.3
        elif verb == "drain":
            ask.is_set = rng.random() < 0.5
        elif verb == "clean":
            ask.mode, ask.count = rng.choice((b"completed", b"failed")), rng.choice((1, 3, 100))
            ask.number = rng.choice((0, 2000))
        elif verb == "retry":
            ask.count = rng.choice((0, 1, 3))
        elif verb == "pause":
            ask.is_set = queue not in model.paused and rng.random() < 0.5
        return ask

    # -- keys --------------------------------------------------------------------------------------

    def _of_hash(self, verb: str, queue: str, model: GlideModel) -> Ask:
        rng = self._rng
        states = (LEASED,) if rng.random() < 0.7 else (READY, DELAYED)
        job = self._pick(model, queue, *states)
        if job is None or job.number not in model.jobs:
            return self._side(queue)
        ask = Ask(verb, queue, job.id)
        if verb == "log":
            self._count += 1
            ask.key = key(queue, f"log:{job.id}")
            ask.value = b"line %d" % self._count
        else:
            ask.key = key(queue, f"job:{job.id}")
            name = rng.choice((b"data", b"progress", b"lastActive", b"note", b"other"))
            ask.fields[name] = self._data() if name == b"data" else b"%d" % int(rng.random() * 100)
        return ask

    def _look(self, queue: str, model: GlideModel) -> Ask:
        """Return a read of some key."""
        rng = self._rng
        ask = Ask(rng.choice(_LOOKS), queue)
        if ask.kind in {"hgetall", "hget", "logs", "deps"}:
            job = self._pick(model, queue, LEASED, BLOCKED)
            ask.id = "nobody" if job is None else job.id
            ask.key = key(queue, f"job:{ask.id}")
            ask.value = b"state"
        elif ask.kind == "range":
            ask.mode = rng.choice((b"priority", b"lifo"))
        elif ask.kind == "count":
            ask.mode = rng.choice((b"stream", b"scheduled", b"failed", b"priority", b"lifo"))
        else:
            ask.mode = rng.choice((b"scheduled", b"completed", b"failed"))
        return ask

    def _side(self, queue: str) -> Ask:
        rng = self._rng
        ask = Ask(rng.choice(_SIDES), queue)
        self._count += 1
        ask.value = b"v%d" % self._count + b"." * int(rng.random() * 90)
        ask.key = key(queue, rng.choice(("w:1", "w:2")))
        if ask.kind in {"hset", "hgetall", "hdel"}:
            ask.key = key(queue, "schedulers")
            field = rng.choice((b"s1", b"s2", b"s3"))
            ask.fields = {field: ask.value}
            ask.value = field
        elif ask.kind in {"push", "lpop"}:
            ask.key = key(queue, "signals:1")
        elif ask.kind == "set":
            ask.number = rng.choice((0, 0, 800, 3_600_000 if self._swarm.is_steady else 0))
        return ask

    def _refused(self, queue: str, model: GlideModel) -> Ask:
        """Return a command that is wrong in every state."""
        new_job = self.new_job(model)
        new_job.custom = new_job.custom or "c9"
        four = keys_of(queue, *FOUR)
        words = new_job_words(new_job)
        bad = {
            "number": [*words[:5], b"high", *words[6:]],
            "range": [*words[:5], b"2049", *words[6:]],
            "id": [*words[:16], b"a:b", *words[17:]],
        }
        wrong = self._rng.choice(
            (
                fcall("addJob", four, *bad["number"]),
                fcall("addJob", four, *bad["range"]),
                fcall("addJob", four, *bad["id"]),
                fcall("addJob", [*four[:3], key("other", "events")], *words),
                fcall("addJob", four, *words[:9]),
                fcall("unheardOf", four),
                [b"SET", b"elsewhere", b"1"],
                [b"HSET", key(queue, "stream"), b"a", b"b"],
                [b"LPUSH", key(queue, "schedulers"), b"a"],
                [b"NOSUCH", b"1"],
                [b"XREADGROUP", b"GROUP", b"others", b"c", b"STREAMS", key(queue, "stream"), b">"],
            )
        )
        ask = Ask("refused", queue)
        ask.words = wrong
        return ask

    def _transaction(self, model: GlideModel) -> list[Ask]:
        """Return several commands that take effect together."""
        rng = self._rng
        inner = [
            self.command(rng.choice(("add", "hset", "side", "log")), model, 0)
            for _ in range(1 + int(rng.random() * 6))
        ]
        if rng.random() < 0.2:
            # It must not remove what another one has just added under a known name.
            inner = [one for one in inner if not any(new_job.custom for _, new_job in one.new_jobs)]
            inner.append(self.command("dedup", model, 0))
        first, last = Ask("ok"), Ask("exec")
        first.words, last.words = [b"MULTI"], [b"EXEC"]
        last.inner = inner
        return [first, *(self._queued(one) for one in inner), last]

    def _queued(self, inner: Ask) -> Ask:
        ask = Ask("queued", inner.queue)
        ask.words = inner.words
        return ask


_LOOKS: Final = (
    *("hgetall", "hgetall", "hget", "logs", "deps"),
    *("count", "count", "range", "scores", "entries", "pending", "scan"),
)
_SIDES: Final = ("set", "set", "get", "del", "hset", "hgetall", "hdel", "push", "lpop", "lpop")
