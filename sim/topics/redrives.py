"""Redrives of named letters: the requests of a client, and what the model expects.

The client names letters, mostly under a key, and often sends its newest request again, as one does
that died before it heard the answer. It draws from a generator of its own, so that runs without
such redrives keep their meaning.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from sim.topics.keys import REDRIVE_KEYS, redrive_key
from sim.topics.nouns import BYTES, Ask, Content, Refusal, Reply, compact
from sim.topics.topics import FROM, MARK
from sim.topics.workload import DEADLY, PATIENT

if TYPE_CHECKING:
    from random import Random

    from sim.topics.logs import Log
    from sim.topics.model import TopicsModel
    from sim.topics.queues import Queue


class Moved(NamedTuple):
    """What the model expects of a redrive."""

    answer: Reply
    batch: int


class _Stopped(Exception):
    """The queue takes no more."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.code)
        self.refusal = refusal


class _Redrive:
    """One call."""

    def __init__(self, model: TopicsModel, queue: Queue, ask: Ask) -> None:
        self.model = model
        self.queue = queue
        self.ask = ask
        self.log: Log | None = model.logs.get(queue.config.letters)
        self.key = str(ask.fields.get("key", ""))
        self.is_dry = bool(ask.fields.get("dry_run", False))
        self.moved: list[list[int | None]] = []
        self.known: list[list[int]] = []
        self.skipped: list[list[object]] = []
        self.batch = 0

    def move(self, seq: int) -> None:
        """Move one letter, or note why not."""
        model, queue, log = self.model, self.queue, self.log
        name = ""
        if self.key:
            stamp = 0 if log is None else int(model.yard.logs[log.name].incarnation)
            name = redrive_key(self.key, stamp, seq)
            valid = queue.record_keys.valid(queue.config, model.now)
            if log is not None and name in valid:
                self.known.append([seq, valid[name].seq])
                self.batch = max(self.batch, valid[name].batch)
                return
            if len(valid) + 1 > queue.config.key_max:
                raise _Stopped(Refusal(422, "too_many_keys"))
        row = None if log is None else log.rows.get(seq)
        if row is None or not row.content.meta:
            self.skipped.append([seq, "gone"])
        elif row.content.meta.get(FROM, "") != queue.name:
            self.skipped.append([seq, "other_queue"])
        else:
            assert log is not None
            self._write(log, seq, name, row.content)

    def _write(self, log: Log, seq: int, name: str, content: Content) -> None:
        model, queue = self.model, self.queue
        data = content.data
        patch = self.ask.fields.get("patch")
        if patch is not None:
            if data.startswith(BYTES):
                self.skipped.append([seq, "not_json"])
                return
            assert isinstance(patch, dict)
            merged = {**json.loads(data), **patch}
            data = compact({key: one for key, one in merged.items() if one is not None})
        meta = {key: one for key, one in content.meta.items() if not key.startswith(MARK)}
        again = Content(data, meta, content.tag, content.node)
        if queue.config.is_exceeded_by(1, again.size(is_job=True)):
            self.skipped.append([seq, "too_large"])
            return
        if self.is_dry:
            self.moved.append([seq, None])
            return
        try:
            write = model.enter_job(queue, again)
        except Refusal as no:
            raise _Stopped(no) from no
        log.remove([seq])
        if name:
            queue.record_keys.remember([name], write.first, model.now, model.batch, queue.config)
        self.moved.append([seq, write.first])
        self.batch = model.batch


def redrive(model: TopicsModel, queue: Queue, ask: Ask) -> Moved:
    """Apply a redrive of named letters; return the expected answer and the batch it depends on."""
    seqs = ask.fields["seqs"]
    assert isinstance(seqs, list)
    call = _Redrive(model, queue, ask)
    wanted = list(dict.fromkeys(seqs))
    stopped: Refusal | None = None
    left = 0
    for at, seq in enumerate(wanted):
        try:
            call.move(seq)
        except _Stopped as full:
            stopped, left = full.refusal, len(wanted) - at
            break
    if stopped is not None and not call.moved:
        raise stopped
    answer: Reply = {
        "topic": ask.name,
        "redriven": 0 if call.is_dry else len(call.moved),
        "duplicate": bool(call.known) and not call.moved,
        "dry_run": call.is_dry,
        "moved": call.moved,
        "already": call.known,
        "skipped": call.skipped,
        "left": left,
    }
    if stopped is not None:
        answer["stopped"] = stopped.code
        model.reach("redrive stopped")
    if call.known:
        model.reach("redriven before under the key")
    if call.moved and not call.is_dry:
        model.reach("named letters redriven")
    return Moved(answer, call.batch)


class RedriveAuthor:
    """Writes the requests of one client that redrives letters."""

    def __init__(self, rng: Random, *, has_memory: bool) -> None:
        self._rng = rng
        # Keys stay in memory, and redrives are refused if there is none.
        self._key_odds = rng.choice((0.5, 0.9)) if has_memory else 0.0
        self._odds = rng.choice((0.0, 0.0, 0.0, 0.2))
        self._last: Ask | None = None

    def rolls(self, model: TopicsModel) -> bool:
        """Return whether the next request is a redrive of named letters."""
        if self._odds == 0 or DEADLY not in model.queues:
            return False
        return self._rng.random() < self._odds

    def write(self, model: TopicsModel) -> Ask:
        """Return the next request."""
        rng = self._rng
        if self._last is not None and rng.random() < 0.4:
            return Ask("redrive", self._last.name, self._last.fields)
        log = model.logs.get(model.queues[DEADLY].config.letters)
        rows = [] if log is None else [seq for seq, row in log.rows.items() if row.content.meta]
        seqs = rng.sample(rows, min(len(rows), rng.choice((1, 3, 8))))
        if not seqs or rng.random() < 0.2:
            seqs += [int(rng.random() * (1 if log is None else log.next_seq + 2))]
        fields: Reply = {"seqs": seqs, "strict": True}
        if rng.random() < self._key_odds:
            fields["key"] = rng.choice(REDRIVE_KEYS)
        if rng.random() < 0.3:
            fields["patch"] = {"p": None, "r": rng.randrange(9)}
        if rng.random() < 0.1:
            fields["dry_run"] = True
        self._last = Ask("redrive", DEADLY if rng.random() < 0.95 else PATIENT, fields)
        return self._last
