"""Transactions, claim sets and fences: the requests of a client, and what the model expects.

The client works on one transaction after the other: it stages, commits, looks, sometimes aborts,
and often repeats its newest commit, as one does that died before it heard the answer. It draws from
a generator of its own, so that runs without transactions keep their meaning.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from jobyard.engine.topics.staged_rows import read_staged
from sim.state import Violation
from sim.topics.keys import KEYS, key_of
from sim.topics.nouns import Ask, Refusal, Reply, compact
from sim.topics.txn_book import STAGE_MS, Decided, OpenTxn, StagedRow
from sim.topics.workload import DEADLY, EITHER, PATIENT, SINKS, SOURCES

if TYPE_CHECKING:
    from random import Random

    from jobyard.engine.state.yard import Yard
    from jobyard.model.topic.txn import StagedChunk
    from sim.topics.logs import Log
    from sim.topics.model import TopicsModel
    from sim.topics.nouns import Content, Job
    from sim.topics.queues import Queue
    from sim.topics.txn_book import TxnBook

_TARGETS: Final = (*SOURCES, *SINKS, PATIENT, DEADLY, EITHER)
_QUEUES: Final = (PATIENT, DEADLY, EITHER)
_WORKER: Final = "driver"
NODE: Final = "set"

# -- what must come back ---------------------------------------------------------------------------


def _text_of(row: StagedRow) -> tuple[str, str, object, str]:
    return row.content.data, row.content.tag, row.link, row.key


def _rows_in(yard: Yard, chunk: StagedChunk) -> list[tuple[str, str, object, str]]:
    log = yard.txns.log
    assert log is not None
    found: list[tuple[str, str, object, str]] = []
    seq, last = int(chunk.first_seq), int(chunk.first_seq + chunk.rows) - 1
    while seq <= last:
        for row in read_staged(yard.journal, log, seq, last):
            link = (row.with_queue, int(row.with_seq)) if row.with_seq else None
            found.append((row.data.decode(), row.tag, link, key_of(row.key_digest)))
            seq += 1
    return found


def facts_of(yard: Yard) -> Reply:
    """Return what a yard holds of transactions, as plain values."""
    txns = yard.txns
    return {
        "open": {
            name: {key: _rows_in(yard, chunk) for key, chunk in txn.chunks.items()}
            for name, txn in txns.open.items()
        },
        "decided": {
            name: (one.state, json.loads("{" + one.answer + "}"))
            for name, one in txns.decided.items()
        },
        "fences": {worker: int(one.epoch) for worker, one in txns.fences.items()},
        "sets": {key: (one.node, int(one.count)) for key, one in txns.claim_sets.items()},
    }


def memory_of(book: TxnBook) -> Reply:
    """Return the same of the model."""
    return {
        "open": {
            name: {key: [_text_of(row) for row in rows] for key, rows in txn.chunks.items()}
            for name, txn in book.open.items()
        },
        "decided": {name: (one.state, one.outcome) for name, one in book.decided.items()},
        "fences": dict(book.fences),
        "sets": {
            f"{queue}\0{name}": (one.node, len(one.names))
            for (queue, name), one in book.sets.items()
        },
    }


def leases_of(model: TopicsModel) -> dict[tuple[str, int], str]:
    """Return the names of the leases that outlive the server."""
    found: dict[tuple[str, int], str] = {}
    for (name, _), one in model.txns.sets.items():
        queue = model.queues.get(name)
        for seq, lease_id in one.names.items():
            job = None if queue is None else queue.jobs.get(seq)
            if job is not None and job.lease_id == lease_id:
                found[name, seq] = lease_id
    return found


def adopt_txns(model: TopicsModel, yard: Yard) -> None:
    """Go on with what came back; outcomes and sets that were compared stay as they were known."""
    book = model.txns
    txns = yard.txns
    book.open = {}
    for name, txn in txns.open.items():
        known = OpenTxn()
        known.until = int(txn.until_ms)
        known.chunks = {
            key: _staged_as(model.staged_before[name, key], _rows_in(yard, chunk))
            for key, chunk in txn.chunks.items()
        }
        book.open[name] = known
    outcomes = {name: json.loads("{" + one.answer + "}") for name, one in txns.decided.items()}
    book.decided = {
        name: Decided(one.state, model.digests.get(name, ""), outcomes[name], 0)
        for name, one in txns.decided.items()
    }
    book.fences = {worker: int(one.epoch) for worker, one in txns.fences.items()}
    book.sets = {
        key: one for key, one in model.sets_before.items() if "\0".join(key) in _keys(yard)
    }


def _staged_as(
    candidates: list[list[StagedRow]], found: list[tuple[str, str, object, str]]
) -> list[StagedRow]:
    """Return which of the chunks of one place came back: an aborted name may be used again."""
    for rows in candidates:
        if [_text_of(row) for row in rows] == found:
            return rows
    raise Violation("restart", f"{found} was never staged"[:1500])


def _keys(yard: Yard) -> set[str]:
    return {key for key, _ in yard.txns.claim_sets.items()}


# -- what is expected ------------------------------------------------------------------------------


def stage(model: TopicsModel, ask: Ask) -> tuple[Reply, int]:
    """Apply a stage; return the expected answer and the batch it depends on."""
    book = model.txns
    fields = ask.fields
    topic = ask.text("topic")
    if topic not in model.logs and topic not in model.queues:
        raise Refusal(404, "topic_not_found")
    decided = book.decided.get(ask.name)
    if decided is not None and decided.state == "committed":
        raise Refusal(409, "committed")
    place = (topic, ask.number("part", 0), ask.number("attempt", 0), ask.number("chunk", 0))
    txn = book.open.setdefault(ask.name, OpenTxn())
    txn.until = model.now + STAGE_MS
    links = [one.get("with") for one in _objects(fields["records"])]
    rows = [
        StagedRow(content, None if link is None else (str(link[0]), int(str(link[1]))), key)
        for content, link, key in zip(ask.contents(), links, ask.keys(), strict=True)
    ]
    is_known = place in txn.chunks
    if is_known:
        model.reach("chunk staged again")
        if sizes(txn.chunks[place]) != sizes(rows):
            raise Refusal(409, "txn_differs")
        rows = txn.chunks[place]
    else:
        txn.chunks[place] = rows
        model.staged_before.setdefault((ask.name, place), []).append(rows)
    count, size = sizes(rows)
    wanted: Reply = {"txn": ask.name, "topic": topic, "part": place[1], "attempt": place[2]}
    return {
        **wanted,
        "chunk": place[3],
        "rows": count,
        "bytes": size,
        "duplicate": is_known,
    }, 0 if is_known else model.batch


def _objects(value: object) -> list[dict[str, list[object]]]:
    assert isinstance(value, list)
    return value


def sizes(rows: list[StagedRow]) -> tuple[int, int]:
    """Return the number of records and their size."""
    return len(rows), sum(row.content.size(is_job=False) for row in rows)


def commit(model: TopicsModel, ask: Ask) -> tuple[Reply, int]:
    """Apply a commit; return the expected answer and the batch it depends on."""
    book = model.txns
    name, fields = ask.name, ask.fields
    digest = compact([fields["parts"], fields["acks"], fields["nacks"]])
    decided = book.decided.get(name)
    if decided is not None and decided.state == "committed":
        if decided.digest != digest:
            raise Refusal(409, "txn_differs")
        model.reach("commit repeated")
        told: Reply = {"txn": name, "state": "committed", **decided.outcome}
        return {**told, "duplicate": True}, decided.batch
    parts = _parts(fields["parts"])
    if decided is not None and decided.state == "expired" and parts and name not in book.open:
        raise Refusal(410, "txn_expired")
    epoch = ask.number("epoch", 0)
    if epoch < book.fences.get(_WORKER, 0):
        raise Refusal(409, "fenced")
    book.fences[_WORKER] = epoch
    rows = _staged(model, name, parts)
    outcome = _enter(model, fields, rows)
    book.open.pop(name, None)
    book.decided[name] = Decided("committed", digest, outcome, model.batch)
    model.digests[name] = digest
    model.reach("commit")
    return {"txn": name, "state": "committed", **outcome, "duplicate": False}, model.batch


def _parts(value: object) -> list[dict[str, object]]:
    assert isinstance(value, list)
    return value


def _staged(
    model: TopicsModel, name: str, parts: list[dict[str, object]]
) -> dict[str, list[StagedRow]]:
    """Return the records of a commit by topic."""
    txn = model.txns.open.get(name)
    if txn is not None:
        txn.until = model.now + STAGE_MS
    found: dict[str, list[StagedRow]] = {}
    for part in parts:
        topic, chunks = str(part["topic"]), part["chunks"]
        assert isinstance(chunks, int)
        rows: list[StagedRow] = []
        for number in range(chunks):
            place = (topic, part["part"], part["attempt"], number)
            chunk = None if txn is None else txn.chunks.get(place)  # type: ignore[arg-type]
            if chunk is None:
                raise Refusal(409, "incomplete")
            rows += chunk
        if len(rows) != part["rows"]:
            raise Refusal(409, "incomplete")
        found.setdefault(topic, []).extend(rows)
    return found


def _enter(model: TopicsModel, fields: Reply, rows: dict[str, list[StagedRow]]) -> Reply:
    """Let everything enter, or refuse it."""
    for topic in rows:
        if topic not in model.logs and topic not in model.queues:
            raise Refusal(404, "topic_not_found")
    ends, skipped = _ends_in(model, fields)
    ending = {(queue.name, job.seq) for queue, job, _ in ends}
    wanted = {
        topic: [row for row in found if row.link is None or row.link in ending]
        for topic, found in rows.items()
    }
    fresh: dict[str, list[StagedRow]] = {}
    contents: dict[str, list[Content]] = {}
    for topic, found in wanted.items():
        fresh[topic] = _without_duplicates(model, topic, found)
        contents[topic] = [row.content for row in fresh[topic]]
        _check(model, topic, contents[topic])
    _make_way(model, contents)
    for queue, job, delay in ends:
        if delay < 0:
            del queue.jobs[job.seq]
        else:
            queue.free(job, delay, model.now)
    topics = _write(model, contents, wanted, rows)
    for topic, found in fresh.items():
        _remember(model, topic, found, topics)
    if skipped:
        model.reach("run skipped in a commit")
    acked = sum(1 for _, _, delay in ends if delay < 0)
    counts: Reply = {"topics": topics, "acked": acked, "nacked": len(ends) - acked}
    return {**counts, "dead_lettered": 0, "skipped": skipped}


def _topic(model: TopicsModel, name: str) -> Log | Queue:
    log = model.logs.get(name)
    return model.queues[name] if log is None else log


def _without_duplicates(model: TopicsModel, name: str, rows: list[StagedRow]) -> list[StagedRow]:
    topic = _topic(model, name)
    keys = [row.key for row in rows]
    found = topic.record_keys.sort(keys, topic.config, topic.next_seq, model.now)
    if found.duplicates:
        model.reach("staged record known by its key")
    return [rows[at] for at in found.kept]


def _remember(model: TopicsModel, name: str, rows: list[StagedRow], topics: Reply) -> None:
    topic, told = _topic(model, name), topics[name]
    assert isinstance(told, dict)
    keys = [row.key for row in rows]
    topic.record_keys.remember(keys, told["first_seq"], model.now, model.batch, topic.config)


def _ends_in(
    model: TopicsModel, fields: Reply
) -> tuple[list[tuple[Queue, Job, int]], list[list[object]]]:
    """Return the runs that a commit ends, and those that it skips."""
    ends: list[tuple[Queue, Job, int]] = []
    skipped: list[list[object]] = []
    for word in ("acks", "nacks"):
        for group in _groups(fields[word]):
            queue_name, node = str(group["queue"]), str(group["node"])
            queue = model.queues.get(queue_name)
            for item in _items(group["items"]):
                job = None if queue is None else queue.jobs.get(item[0])
                why = _lost(job, node, str(item[1]), model.now)
                if why or queue is None or job is None:
                    skipped.append([queue_name, item[0], why])
                else:
                    ends.append((queue, job, -1 if word == "acks" else item[2]))
    return ends, skipped


def _make_way(model: TopicsModel, contents: dict[str, list[Content]]) -> None:
    for topic, kept in contents.items():
        if topic in model.queues and kept:
            size = sum(one.size(is_job=True) for one in kept)
            model.queues[topic].evict_for(len(kept), size)


def _groups(value: object) -> list[dict[str, object]]:
    assert isinstance(value, list)
    return value


def _items(value: object) -> list[list[int]]:
    assert isinstance(value, list)
    return value


def _lost(job: Job | None, node: str, lease_id: str, now: int) -> str:
    if job is None:
        return "gone"
    if not job.holder:
        return "expired"
    if job.holder != node:
        return "other_holder"
    is_lost = lease_id not in {"", job.lease_id} or job.deadline <= now
    return "expired" if is_lost else ""


def _check(model: TopicsModel, topic: str, contents: list[Content]) -> None:
    """Refuse records for which a topic has no room."""
    if not contents:
        return
    log = model.logs.get(topic)
    count, size = len(contents), sum(one.size(is_job=log is None) for one in contents)
    known = _topic(model, topic)
    config = known.config
    if log is not None:
        log.trim(model.now)
    held = len(log.rows) if log is not None else len(model.queues[topic].jobs)
    is_over = 0 < config.cap_records < held + count or 0 < config.cap_bytes < known.bytes + size
    if not is_over:
        return
    is_exceeded = config.is_exceeded_by(count, size)
    if is_exceeded and (config.is_rejecting or log is None):
        raise Refusal(400, "record_too_large")
    if config.is_rejecting:
        raise Refusal(422, "topic_full")


def _write(
    model: TopicsModel,
    contents: dict[str, list[Content]],
    wanted: dict[str, list[StagedRow]],
    rows: dict[str, list[StagedRow]],
) -> Reply:
    topics: Reply = {}
    for topic, kept in contents.items():
        log = model.logs.get(topic)
        first = _topic(model, topic).next_seq
        if kept:
            write = model.enter_held(log, topic, kept)
            first = write.first
        topics[topic] = {
            "first_seq": first,
            "last_seq": first + len(kept) - 1,
            "written": len(kept),
            "duplicates": len(wanted[topic]) - len(kept),
            "left_out": len(rows[topic]) - len(wanted[topic]),
        }
    return topics


def look(model: TopicsModel, ask: Ask) -> tuple[Reply, int]:
    """Return how a transaction is shown."""
    txn = model.txns.open.get(ask.name)
    if txn is not None:
        txn.until = model.now + STAGE_MS
        totals = [sizes(rows) for rows in txn.chunks.values()]
        wanted: Reply = {"txn": ask.name, "state": "open", "chunks": len(totals)}
        wanted |= {"rows": sum(count for count, _ in totals)}
        wanted |= {"bytes": sum(size for _, size in totals)}
        return {**wanted, "expires_at": txn.until + model.wall_offset}, 0
    decided = model.txns.decided.get(ask.name)
    if decided is None:
        return {"txn": ask.name, "state": "unknown"}, 0
    if decided.state == "expired":
        return {"txn": ask.name, "state": "aborted", "expired": True}, decided.batch
    return {"txn": ask.name, "state": decided.state, **decided.outcome}, decided.batch


def abort(model: TopicsModel, ask: Ask) -> tuple[Reply, int]:
    """Apply an abort."""
    book = model.txns
    decided = book.decided.get(ask.name)
    if decided is not None and decided.state == "committed":
        raise Refusal(409, "committed")
    if book.open.pop(ask.name, None) is not None:
        model.reach("transaction aborted")
        book.decided[ask.name] = Decided("aborted", "", {}, model.batch)
        return {"txn": ask.name, "state": "aborted"}, model.batch
    return {"txn": ask.name, "state": "aborted"}, 0


def show_set(model: TopicsModel, ask: Ask, claimed: list[Reply]) -> Reply:
    """Check what is shown of a claim set; return the other fields of the expected answer."""
    known = model.txns.sets[ask.name, ask.text("claim_id")]
    queue = model.queues.get(ask.name)
    jobs = {} if queue is None else queue.jobs
    live = {
        seq: name
        for seq, name in known.names.items()
        if seq in jobs and jobs[seq].lease_id == name and jobs[seq].deadline > model.now
    }
    told = {int(str(one["$seq"])): str(one["lease_id"]) for one in claimed}
    if told != live:
        raise Violation("claim set", f"{ask}: {told}, not {live}")
    model.reach("claim set shown again")
    return {"duplicate": True, "left_out": len(known.names) - len(live), "count": len(live)}


# -- what is asked ---------------------------------------------------------------------------------


class TxnAuthor:
    """Writes the requests of one client that uses transactions."""

    def __init__(self, rng: Random, keys_rng: Random, *, has_memory: bool) -> None:
        self._rng = rng
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
        if verb == "stage":
            return self._stage(name, model)
        if verb == "commit":
            self._last = Ask("commit", name, self._commit(name, model))
            if rng.random() < 0.7:
                self._number += 1
            return self._last
        if verb == "again" and self._last is not None:
            return Ask("commit", self._last.name, self._last.fields)
        if verb in {"claim-set", "show-set"}:
            return self._claim(verb)
        if rng.random() < 0.3:
            name = f"x{max(self._number - 1, 0)}"
        return Ask("txn-abort" if verb == "abort" else "txn-look", name, {})

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
        acks, nacks = self._ends(model)
        ends: Reply = {"acks": acks, "nacks": nacks}
        return {"parts": parts, **ends, "worker": _WORKER, "epoch": epoch}

    def _ends(self, model: TopicsModel) -> tuple[list[Reply], list[Reply]]:
        rng = self._rng
        acks: list[Reply] = []
        nacks: list[Reply] = []
        for queue in model.queues.values():
            held = [job for job in queue.jobs.values() if job.holder == NODE]
            some = [job for job in held if rng.random() < 0.7]
            done: list[list[object]] = [[job.seq, job.lease_id] for job in some[::2]]
            back: list[list[object]] = [[job.seq, job.lease_id, 0] for job in some[1::2]]
            if rng.random() < 0.1:
                done.append([queue.next_seq + 5, ""])
            if done:
                acks.append({"queue": queue.name, "node": NODE, "items": done})
            if back:
                nacks.append({"queue": queue.name, "node": NODE, "items": back})
        return acks, nacks

    def _claim(self, verb: str) -> Ask:
        rng = self._rng
        if rng.random() < 0.6:
            self._claims += 1
        name = rng.choice(_QUEUES)
        fields: Reply = {"claim_id": f"c{self._claims}", "node": NODE}
        if verb == "claim-set":
            fields |= {"max": rng.choice((1, 3, 8)), "lease_ms": rng.choice((1000, 30_000))}
        return Ask(verb, name, fields)
