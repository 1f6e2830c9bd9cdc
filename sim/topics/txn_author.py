"""The requests of a client that uses transactions, claim sets and fences.

It works on one transaction after the other: it stages, commits, looks, sometimes aborts, and often
repeats its newest commit, as one does that died before it heard the answer. It draws from
generators of its own, so that runs without transactions keep their meaning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sim.topics.keys import KEYS
from sim.topics.nouns import Ask, Reply
from sim.topics.txns import WORKER
from sim.topics.workload import DEADLY, EITHER, LETTERS, PATIENT, SINKS, SOURCES

if TYPE_CHECKING:
    from random import Random

    from sim.topics.model import TopicsModel

_TARGETS: Final = (*SOURCES, *SINKS, PATIENT, DEADLY, EITHER)
_QUEUES: Final = (PATIENT, DEADLY, EITHER)
NODE: Final = "set"
_MORE_ODDS: Final = 0.15
_CURSOR_ODDS: Final = 0.15
_RESTART_ODDS: Final = 0.2
_LETTER_ODDS: Final = 0.3
_DEADLY_ODDS: Final = 0.8


class TxnAuthor:
    """Writes the requests of one client that uses transactions."""

    def __init__(
        self, rng: Random, keys_rng: Random, more_rng: Random, *, has_memory: bool
    ) -> None:
        self._rng = rng
        # Draws apart: errors, dead letters, cursors, chunks sent again and sets extended.
        self._more_rng = more_rng
        self._last_stage: Ask | None = None
        # Draws apart, so that seeds without keys keep their meaning.
        self._keys_rng = keys_rng
        # Keys stay in memory, and writes are refused if there is none.
        self._key_odds = keys_rng.choice((0.0, 0.0, 0.3, 0.8)) if has_memory else 0.0
        # How often a request is about a transaction.
        self.odds = rng.choice((0.0, 0.0, 0.25, 0.5))
        self._number = 0
        self._count = 0
        self._claims = 0
        self._epoch = 1
        self._last: Ask | None = None

    def rolls(self) -> bool:
        """Return whether the next request is about a transaction."""
        return self.odds > 0 and self._rng.random() < self.odds

    def write(self, model: TopicsModel) -> Ask:
        """Return the next request."""
        rng = self._rng
        name = f"x{self._number}"
        verbs = ("stage", "commit", "again", "look", "abort", "claim-set", "show-set")
        (verb,) = rng.choices(verbs, (6, 3, 2, 1, 0.4, 2, 1))
        if self._more_rng.random() < _MORE_ODDS:
            return self._more(model)
        if verb == "stage":
            self._last_stage = self._stage(name, model)
            return self._last_stage
        if verb == "commit":
            self._last = Ask("commit", name, self._commit(name, model))
            if rng.random() < 0.7:
                self._number += 1
            return self._last
        if verb == "again" and self._last is not None:
            return Ask("commit", self._last.name, self._again(self._last.fields))
        if verb in {"claim-set", "show-set"}:
            return self._claim(verb)
        if rng.random() < 0.3:
            name = f"x{max(self._number - 1, 0)}"
        return Ask("txn-abort" if verb == "abort" else "txn-look", name, {})

    def _again(self, fields: Reply) -> Reply:
        """Return the fields of a commit as its driver sends them again, perhaps after a restart."""
        if self._more_rng.random() < _RESTART_ODDS:
            self._epoch += 1
            return {**fields, "epoch": self._epoch}
        return fields

    def _more(self, model: TopicsModel) -> Ask:
        """Return a request to send a chunk again, as it was or not, or to extend a claim set."""
        rng = self._more_rng
        last = self._last_stage
        if last is None or rng.random() < 0.4:
            known = list(model.txns.sets)
            queue, claim_id = rng.choice(known) if known else (_QUEUES[0], "c0")
            epoch = self._epoch - (1 if self._epoch > 1 and rng.random() < 0.1 else 0)
            fields: Reply = {"claim_id": claim_id, "lease_ms": rng.choice((1000, 30_000))}
            return Ask("extend-set", queue, {**fields, "worker": WORKER, "epoch": epoch})
        if rng.random() < 0.6:
            return last
        records = last.fields["records"]
        assert isinstance(records, list)
        changed = [{**one, "tag": rng.choice(("x", "y", "z"))} for one in records]
        return Ask("stage", last.name, {**last.fields, "records": changed})

    def _stage(self, name: str, model: TopicsModel) -> Ask:
        rng = self._rng
        topic = rng.choice(_TARGETS)
        part, attempt = rng.choice((0, 0, 1)), rng.choice((0, 0, 1))
        txn = model.txns.open.get(name)
        chunks = (
            [] if txn is None else [one for one in txn.chunks if one[:3] == (topic, part, attempt)]
        )
        chunk = len(chunks) if rng.random() < 0.9 else max(len(chunks) - 1, 0)
        held = [
            [queue.name, job.seq]
            for queue in model.queues.values()
            for job in queue.jobs.values()
            if job.holder == NODE
        ]
        records = []
        for _ in range(rng.choice((1, 1, 2, 5))):
            self._count += 1
            one: Reply = {"data": {"x": self._count, "p": "." * rng.choice((1, 30, 300))}}
            if rng.random() < 0.3:
                one["tag"] = rng.choice(("x", "y"))
            if held and rng.random() < 0.4:
                one["with"] = rng.choice(held)
            if self._keys_rng.random() < self._key_odds:
                one["key"] = self._keys_rng.choice(KEYS)
            records.append(one)
        place: Reply = {"topic": topic, "part": part, "attempt": attempt, "chunk": chunk}
        return Ask("stage", name, {**place, "records": records})

    def _commit(self, name: str, model: TopicsModel) -> Reply:
        rng = self._rng
        txn = model.txns.open.get(name)
        attempts: dict[tuple[str, int], int] = {}
        for topic, part, attempt, _ in [] if txn is None else txn.chunks:
            if rng.random() < 0.9:
                attempts[topic, part] = attempt
        parts = []
        for (topic, part), attempt in attempts.items():
            assert txn is not None
            rows = [
                len(rows) for key, rows in txn.chunks.items() if key[:3] == (topic, part, attempt)
            ]
            count = sum(rows) + (1 if rng.random() < 0.03 else 0)
            place: Reply = {"topic": topic, "part": part, "attempt": attempt}
            parts.append({**place, "chunks": len(rows), "rows": count})
        if rng.random() < 0.05:
            self._epoch += 1
        epoch = self._epoch - (1 if self._epoch > 1 and rng.random() < 0.1 else 0)
        fields: Reply = {**self._ends(model), "cursors": self._cursors(model)}
        return {"parts": parts, **fields, "worker": WORKER, "epoch": epoch}

    def _cursors(self, model: TopicsModel) -> list[Reply]:
        rng = self._more_rng
        found: list[Reply] = []
        for name in (*SOURCES, *SINKS, LETTERS, PATIENT):
            topic = model.logs.get(name) or model.queues.get(name)
            if topic is None or rng.random() > _CURSOR_ODDS:
                continue
            at = 0 if topic.cursor is None else topic.cursor[0]
            seq = rng.choice((topic.head, topic.head, at, max(at - 1, 0), topic.head + 1))
            one: Reply = {"topic": name, "cursor": "c", "seq": seq}
            if rng.random() < 0.3 and name in model.logs:
                one["hold"] = rng.random() < 0.5
            if rng.random() < 0.5:
                one["force"] = True
            found.append(one)
        return found

    def _ends(self, model: TopicsModel) -> Reply:
        rng, more_rng = self._rng, self._more_rng
        acks: list[Reply] = []
        nacks: list[Reply] = []
        letters: list[Reply] = []
        for queue in model.queues.values():
            held = [job for job in queue.jobs.values() if job.holder == NODE]
            some = [job for job in held if rng.random() < 0.7]
            done: list[list[object]] = [[job.seq, job.lease_id] for job in some[::2]]
            letter_odds = _DEADLY_ODDS if queue.name == DEADLY else _LETTER_ODDS
            back: list[list[object]] = []
            dead: list[list[object]] = []
            for job in some[1::2]:
                error = more_rng.choice(("", "boom", "no \N{SNOWMAN}", "x" * 200))
                if more_rng.random() < letter_odds:
                    dead.append([job.seq, job.lease_id, error])
                else:
                    back.append([job.seq, job.lease_id, 0, error])
            if rng.random() < 0.1:
                done.append([queue.next_seq + 5, ""])
            if done:
                acks.append({"queue": queue.name, "node": NODE, "items": done})
            if back:
                nacks.append({"queue": queue.name, "node": NODE, "items": back})
            if dead:
                letters.append({"queue": queue.name, "node": NODE, "items": dead})
        return {"acks": acks, "nacks": nacks, "dead_letters": letters}

    def _claim(self, verb: str) -> Ask:
        rng = self._rng
        if rng.random() < 0.6:
            self._claims += 1
        name = rng.choice(_QUEUES)
        fields: Reply = {"claim_id": f"c{self._claims}", "node": NODE}
        if verb == "claim-set":
            fields |= {"max": rng.choice((1, 3, 8)), "lease_ms": rng.choice((1000, 30_000))}
        return Ask(verb, name, fields)
