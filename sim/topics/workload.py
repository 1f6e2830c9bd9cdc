"""The requests of topics clients in a run, and the topics of a seed and their configuration.

Draws from a separate generator, so that runs without topics clients keep their meaning.
Some names have one use only, where the order of simultaneous events could not be determined:
logs that are sources of routers have no time to live, queues with waiting claims no dead letters.
"""

from __future__ import annotations

from base64 import b64encode
from random import Random
from typing import TYPE_CHECKING, Final

from sim.topics.keys import KEYS
from sim.topics.nouns import Ask, Reply, compact

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.topics.model import TopicsModel
    from sim.topics.queues import Queue

_VERBS: Final = (
    ("write-log", 12.0),
    ("write-queue", 12.0),
    ("diff", 8.0),
    ("wait-diff", 2.0),
    ("claim", 10.0),
    ("wait-claim", 2.0),
    ("ack", 8.0),
    ("nack", 4.0),
    ("extend", 1.5),
    ("delete", 2.0),
    ("put", 2.0),
    ("get", 1.5),
    ("drop", 0.5),
    ("list", 0.3),
    ("redrive", 1.5),
    ("purge", 0.4),
    ("route", 1.2),
    ("router", 0.6),
    ("unroute", 0.3),
)
_ALWAYS: Final = ("write-log", "write-queue", "diff", "claim", "ack", "nack")
_TAGS: Final = ("", "", "x", "x:1", "y")
_MATCHES: Final = ("x", "x*", "y", "z")
_LONG: Final = (3900, 4100, 9000)
# How often a record is bytes; not drawn, so that all else in a run stays what it was.
BYTES_EVERY: Final = 5
PREFIX: Final = "t."
# Logs that are sources of routers, other logs, and one for dead letters.
SOURCES: Final = ("t.a", "t.b")
SINKS: Final = ("t.c", "t.d")
LETTERS: Final = "t.letters"
# Claims wait at the first, the second has dead letters.
PATIENT: Final = "t.q"
DEADLY: Final = "t.p"
# May be dropped and created again as the other kind.
EITHER: Final = "t.either"
ROUTERS: Final = ("r1", "r2", "r3")


class TopicsSwarm:
    """The choices of one seed for its topics clients."""

    def __init__(self, rng: Random, *, has_memory: bool) -> None:
        pick = rng.choice
        # Whether there is room for records that are only in memory.
        self.has_memory = has_memory
        self.clients_max = pick((1, 2, 4))
        self.nodes = pick((("a",), ("a", "b"), ("a", "b", "c")))
        self.small_max = pick((5, 60, 400))
        self.long_odds = pick((0.0, 0.0, 0.05))
        self.records_max = pick((1, 3, 8))
        self.key_odds = pick((0.0, 0.2, 0.5))
        # Keys of records, which stay in memory. They are drawn from a generator of their own, so
        # that runs without them keep their meaning.
        self.keys_rng = Random(str(rng.getstate()[1][:2]))
        self.record_key_odds = self.keys_rng.choice((0.0, 0.3, 0.7)) if has_memory else 0.0
        self.meta_odds = pick((0.0, 0.4))
        self.rows_aimed = pick((6, 25, 60))
        self.jobs_aimed = pick((4, 15, 40))
        self.delays = pick(((0,), (0, 0, 0, 300, 2000)))
        self.priorities = pick(((0,), (0, 0, -5, 3)))
        self.leases = pick(((30_000,), (100, 1000, 30_000), (100,)))
        # How often another door is used.
        self.others_odds = pick((0.0, 0.0, 0.3))
        # How often a reader stores how far it has got; none for most, as in older seeds.
        self.cursor_odds = 0.0
        self.verbs: list[str] = []
        self.weights: list[float] = []
        for verb, weight in _VERBS:
            if verb in _ALWAYS or rng.random() > 0.2:
                self.verbs.append(verb)
                self.weights.append(weight * (0.3 + 2 * rng.random()))


class TopicsAuthor:
    """Writes requests."""

    def __init__(self, rng: Random, swarm: TopicsSwarm, cursor_rng: Random) -> None:
        self._rng = rng
        self._swarm = swarm
        # Draws apart, so that seeds without cursors keep their meaning.
        self._cursor_rng = cursor_rng
        swarm.cursor_odds = cursor_rng.choice((0.0, 0.0, 0.03, 0.15))
        self._count = 0
        self._writers: dict[str, Callable[[str, TopicsModel], Ask]] = {
            "write-log": self._write_log,
            "write-queue": self._write_queue,
            "diff": self._diff,
            "wait-diff": self._diff,
            "claim": self._claim,
            "wait-claim": self._claim,
            "ack": self._end,
            "nack": self._end,
            "extend": self._end,
            "delete": self._delete,
            "put": self._put,
            "route": self._route,
            "router": self._route,
            "unroute": self._route,
        }

    def write(self, model: TopicsModel) -> Ask:
        """Return the next request of a client."""
        rng = self._rng
        if self._swarm.cursor_odds > 0 and self._cursor_rng.random() < self._swarm.cursor_odds:
            return self._cursor(model)
        (verb,) = rng.choices(self._swarm.verbs, self._swarm.weights)
        if verb in self._writers:
            return self._writers[verb](verb, model)
        if verb == "list":
            return Ask("list", PREFIX, {})
        if verb in {"redrive", "purge"}:
            name = rng.choice((DEADLY, DEADLY, DEADLY, PATIENT, EITHER, SINKS[0]))
            return Ask(verb, name, {"max": rng.choice((1, 3, 1000))})
        if verb == "drop":
            verb = rng.choice(("drop", "drop-empty"))
        return Ask(verb, self._any_name(), {})

    def _any_name(self) -> str:
        names = (*SOURCES, *SINKS, LETTERS, PATIENT, DEADLY, EITHER, EITHER, "t.nobody")
        return self._rng.choice(names)

    def _cursor(self, model: TopicsModel) -> Ask:
        rng = self._cursor_rng
        name = rng.choice((*SOURCES, *SINKS, LETTERS, EITHER, PATIENT))
        if rng.random() < 0.2:
            return Ask("cursors", name, {})
        log = model.logs.get(name)
        head = 0 if log is None else log.head
        seq = rng.choice((0, head, head, max(0, head - 3), int(rng.random() * (head + 2))))
        fields: Reply = {"seq": seq, "hold": rng.random() < 0.4}
        if rng.random() < 0.2:
            fields["force"] = True
        return Ask("cursor", name, fields)

    # -- writing ---------------------------------------------------------------------------------

    def _write_log(self, _: str, model: TopicsModel) -> Ask:
        rng = self._rng
        name = rng.choice((*SOURCES, *SOURCES, *SINKS, EITHER))
        log = model.logs.get(name)
        if log is not None and len(log.rows) > self._swarm.rows_aimed and rng.random() < 0.7:
            bound = rng.choice(list(log.rows)) if rng.random() < 0.8 else log.next_seq
            return Ask("delete", name, {"before_seq": bound})
        fields = self._records(is_job=name in model.queues)
        if rng.random() < 0.3:
            fields["config"] = self._config(name, "log")
        if rng.random() < 0.1:
            fields["create"] = False
        return Ask("write", name, fields)

    def _write_queue(self, _: str, model: TopicsModel) -> Ask:
        rng = self._rng
        name = rng.choice((PATIENT, PATIENT, DEADLY, DEADLY, EITHER))
        queue = model.queues.get(name)
        if queue is None and name not in model.logs and rng.random() < 0.7:
            return Ask("put", name, self._config(name, "queue"))
        if queue is not None and len(queue.jobs) > self._swarm.jobs_aimed and rng.random() < 0.8:
            return Ask("claim", name, {"node": rng.choice(self._swarm.nodes), "max": 8})
        fields = self._records(is_job=queue is not None or name not in model.logs)
        fields["config"] = self._config(name, "queue")
        return Ask("write", name, fields)

    def _records(self, *, is_job: bool) -> Reply:
        rng = self._rng
        swarm = self._swarm
        records = []
        for _ in range(1 + int(rng.random() * swarm.records_max)):
            self._count += 1
            size = int(rng.random() * rng.random() * swarm.small_max)
            if rng.random() < swarm.long_odds:
                size = rng.choice(_LONG)
            one: Reply = {"data": {"n": self._count, "p": "." * size}}
            if self._count % BYTES_EVERY == 0:
                one = {"data_b64": b64encode(b"\xff" + compact(one).encode()).decode()}
            tag = rng.choice(_TAGS)
            if tag:
                one["tag"] = tag
            if rng.random() < swarm.meta_odds:
                one["meta"] = {"m": self._count}
            if rng.random() < 0.3:
                one["node"] = rng.choice(swarm.nodes)
            if swarm.keys_rng.random() < swarm.record_key_odds:
                one["key"] = swarm.keys_rng.choice(KEYS)
            if is_job:
                delay, priority = rng.choice(swarm.delays), rng.choice(swarm.priorities)
                one |= {"delay_ms": delay, "priority": priority}
            records.append(one)
        fields: Reply = {"records": records}
        is_keyed = any("key" in one for one in records)
        if rng.random() < swarm.key_odds and not is_keyed:
            fields["idempotency_key"] = rng.choice(("k1", "k2", "k3"))
        return fields

    def _put(self, _: str, __: TopicsModel) -> Ask:
        rng = self._rng
        name = rng.choice((*SOURCES, *SINKS, PATIENT, DEADLY, EITHER, LETTERS))
        kind = "queue" if name in {PATIENT, DEADLY} else "log"
        if name == EITHER or rng.random() < 0.02:
            kind = rng.choice(("queue", "log"))
        return Ask("put", name, self._config(name, kind))

    def _config(self, name: str, kind: str) -> Reply:
        rng = self._rng
        pick = rng.choice
        classes = ["disk", "disk", "fsync", "fsync", "memory"]
        if kind == "log" and self._swarm.has_memory:
            classes += ["ephemeral", "ephemeral"]
        fields: Reply = {"type": kind, "durability": pick(classes)}
        choices: list[tuple[str, object]] = [
            ("cap_records", pick((5, 12, 30))),
            ("cap_bytes", pick((200, 1500))),
            ("idempotency_window_ms", pick((0, 1500, 120_000))),
            ("dedupe_node", False),
            ("ttl_ms", pick((700, 3000))),
        ]
        for key, value in choices:
            if rng.random() < 0.2 and (key != "ttl_ms" or name not in {*SOURCES, LETTERS}):
                fields[key] = value
        if self._swarm.record_key_odds:
            keys_rng = self._swarm.keys_rng
            if keys_rng.random() < 0.4:
                fields["key_window_ms"] = keys_rng.choice((1500, 20_000))
            if keys_rng.random() < 0.2:
                fields["key_max"] = keys_rng.choice((1, 4))
        if "ttl_ms" not in fields and rng.random() < 0.3:
            fields["discard"] = "reject"
        if kind == "queue":
            fields["lease_ms"] = pick(self._swarm.leases)
        if name == DEADLY and rng.random() < 0.8:
            fields["max_deliveries"] = pick((1, 2, 3))
            fields["dead_letter"] = pick((LETTERS, LETTERS, SOURCES[0]))
        return fields

    # -- reading and taking ----------------------------------------------------------------------

    def _diff(self, verb: str, model: TopicsModel) -> Ask:
        rng = self._rng
        is_patient = verb == "wait-diff"
        name = rng.choice((*SOURCES, *SINKS, LETTERS) if is_patient else (self._any_name(),))
        topic = model.logs.get(name) or model.queues.get(name)
        head = 0 if topic is None else topic.head
        after = rng.choice((0, head, max(0, head - 3), int(rng.random() * (head + 2)), head + 5))
        if is_patient:
            after = head
        fields: Reply = {"from_seq": after}
        if rng.random() < 0.4:
            fields["limit"] = rng.choice((1, 3, 10))
        if rng.random() < 0.2:
            fields["max_batch_bytes"] = rng.choice((1, 100, 500))
        if rng.random() < 0.3:
            fields["node"] = rng.choice(self._swarm.nodes)
        fields["include_tags"] = rng.random() < 0.4
        fields["include_meta"] = rng.random() < 0.8
        if is_patient and name not in model.queues:
            fields["wait_ms"] = rng.choice((50, 700, 9000))
        return Ask("diff", name, fields)

    def _claim(self, verb: str, _: TopicsModel) -> Ask:
        rng = self._rng
        is_patient = verb == "wait-claim"
        name = PATIENT if is_patient else rng.choice((PATIENT, DEADLY, DEADLY, EITHER))
        fields: Reply = {
            "node": rng.choice(self._swarm.nodes),
            "max": rng.choice((1, 2, 8)),
        }
        if rng.random() < 0.5:
            fields["lease_ms"] = rng.choice(self._swarm.leases)
        if is_patient:
            fields["wait_ms"] = rng.choice((50, 700, 9000))
        return Ask("claim", name, fields)

    def _end(self, verb: str, model: TopicsModel) -> Ask:
        rng = self._rng
        name = rng.choice((PATIENT, DEADLY, DEADLY, EITHER))
        queue = model.queues.get(name)
        node = rng.choice(self._swarm.nodes)
        seqs = [1] if queue is None else self._some_seqs(queue, node)
        fields: Reply = {"node": node, "seqs": seqs}
        if queue is not None and rng.random() < 0.5:
            fields["lease_ids"] = [self._lease_id(queue, seq) for seq in seqs]
        if verb == "nack":
            fields["delay_ms"] = rng.choice(self._swarm.delays)
            fields["error"] = rng.choice(("", "boom", "no \N{SNOWMAN}", "x" * 200))
        if verb == "extend":
            fields["lease_ms"] = rng.choice(self._swarm.leases)
        return Ask(verb, name, fields)

    def _some_seqs(self, queue: Queue, node: str) -> list[int]:
        rng = self._rng
        held = [job.seq for job in queue.jobs.values() if job.holder == node]
        if not held or rng.random() < 0.1:
            return [int(rng.random() * (queue.next_seq + 2)) for _ in range(2)]
        seqs = rng.sample(held, 1 + int(rng.random() * min(len(held), 6)))
        return [*seqs, seqs[0]] if rng.random() < 0.05 else seqs

    def _lease_id(self, queue: Queue, seq: int) -> str:
        job = queue.jobs.get(seq)
        if job is None or self._rng.random() < 0.1:
            return self._rng.choice(("", "lease_0"))
        return job.lease_id

    def _delete(self, _: str, model: TopicsModel) -> Ask:
        rng = self._rng
        name = self._any_name()
        topic = model.logs.get(name) or model.queues.get(name)
        fields: Reply = {}
        if rng.random() < 0.6:
            fields["match"] = rng.choice(_MATCHES)
        if not fields or rng.random() < 0.3:
            fields["before_seq"] = int(rng.random() * (1 if topic is None else topic.next_seq + 1))
        return Ask("delete", name, fields)

    def _route(self, verb: str, model: TopicsModel) -> Ask:
        rng = self._rng
        at = int(rng.random() * len(ROUTERS))
        if verb != "route":
            return Ask(verb, ROUTERS[at], {})
        source = rng.choice((SOURCES[0], LETTERS, SOURCES[1]))
        dest = rng.choice((SOURCES[1], SINKS[0], PATIENT, DEADLY, SINKS[1]))
        if source == dest:
            dest = SINKS[0]
        fields: Reply = {"source": source, "dest": dest}
        if rng.random() < 0.05:
            fields["source"] = "t.nobody"
            fields["dest"] = SINKS[0]
        if fields["source"] in model.queues:
            # Routers from queues are left to other tests.
            fields["source"] = "t.nobody"
        if rng.random() < 0.3:
            fields["filter"] = rng.choice(_MATCHES)
        if rng.random() < 0.3:
            fields["guarantee"] = "exactly_once"
        if rng.random() < 0.2:
            fields["preserve_tag"] = fields["preserve_node"] = False
        return Ask("route", ROUTERS[at], fields)
