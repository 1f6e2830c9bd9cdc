"""Transactions, claim sets and fences: what the model expects.

The requests are written in `txn_author.py`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple

from jobyard.engine.topics.staged_rows import read_staged
from jobyard.model.topic.txn import TXN_BYTES_MAX, TXN_ROWS_MAX
from sim.state import Violation
from sim.topics.keys import key_of
from sim.topics.nouns import Ask, Refusal, Reply, compact
from sim.topics.txn_book import STAGE_MS, Decided, OpenTxn, StagedRow

if TYPE_CHECKING:
    from jobyard.engine.state.yard import Yard
    from jobyard.model.topic.txn import StagedChunk
    from sim.topics.logs import Log
    from sim.topics.model import TopicsModel
    from sim.topics.nouns import Content, Job
    from sim.topics.queues import Queue
    from sim.topics.txn_book import TxnBook

WORKER: Final = "driver"
LIMITS: Final[Reply] = {"rows_max": TXN_ROWS_MAX, "bytes_max": TXN_BYTES_MAX}
_ENDS: Final = ("acks", "nacks", "dead_letters")

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


def leases_of(model: TopicsModel) -> dict[tuple[str, int], tuple[str, int]]:
    """Return the names and deadlines of the leases that outlive the server."""
    found: dict[tuple[str, int], tuple[str, int]] = {}
    for (name, _), one in model.txns.sets.items():
        queue = model.queues.get(name)
        for seq, lease_id in one.names.items():
            job = None if queue is None else queue.jobs.get(seq)
            if job is not None and job.lease_id == lease_id:
                found[name, seq] = lease_id, job.deadline
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
        if txn.chunks[place] != rows:
            model.reach("chunk staged again with other content")
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
        **LIMITS,
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
    digest = compact([fields["parts"], *(fields[word] for word in _ENDS), fields["cursors"]])
    decided = book.decided.get(name)
    is_raised = _raise_fence(model, ask)
    if decided is not None and decided.state == "committed":
        if decided.digest != digest:
            raise Refusal(409, "txn_differs")
        model.reach("commit repeated")
        if is_raised:
            model.reach("fence raised by a repeated commit")
        told: Reply = {"txn": name, "state": "committed", **decided.outcome}
        return {**told, "duplicate": True}, model.batch if is_raised else decided.batch
    parts = _parts(fields["parts"])
    if decided is not None and decided.state == "expired" and parts and name not in book.open:
        raise Refusal(410, "txn_expired")
    for one in _groups(fields["cursors"]):
        _check_cursor(model, one)
    rows = _staged(model, name, parts)
    outcome = _enter(model, fields, rows)
    book.open.pop(name, None)
    book.decided[name] = Decided("committed", digest, outcome, model.batch)
    model.digests[name] = digest
    model.reach("commit")
    return {"txn": name, "state": "committed", **outcome, "duplicate": False}, model.batch


def _raise_fence(model: TopicsModel, ask: Ask) -> bool:
    """Refuse a smaller epoch; return whether this one is new."""
    book = model.txns
    epoch = ask.number("epoch", 0)
    if epoch < book.fences.get(WORKER, 0):
        raise Refusal(409, "fenced")
    is_new = book.fences.get(WORKER, -1) < epoch
    book.fences[WORKER] = epoch
    return is_new


def _check_cursor(model: TopicsModel, wanted: Reply) -> None:
    """Refuse a cursor that cannot be set."""
    topic, seq = str(wanted["topic"]), wanted["seq"]
    assert isinstance(seq, int)
    if topic not in model.logs and topic not in model.queues:
        raise Refusal(404, "topic_not_found")
    _topic(model, topic).check_cursor(seq, is_forced=bool(wanted.get("force")))


def _set_cursor(model: TopicsModel, wanted: Reply) -> None:
    topic, seq = _topic(model, str(wanted["topic"])), wanted["seq"]
    assert isinstance(seq, int)
    known = topic.cursor
    holds = bool(wanted.get("hold", known is not None and known[1]))
    topic.put_cursor(seq, holds=holds, now=model.now)
    model.reach("cursor set in a commit")


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
    ending = {(end.queue.name, end.job.seq) for end in ends}
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
    _end_runs(model, ends, contents)
    topics = _write(model, contents, wanted, rows)
    for topic, found in fresh.items():
        _remember(model, topic, found, topics)
    if skipped:
        model.reach("run skipped in a commit")
    for one in _groups(fields["cursors"]):
        _set_cursor(model, one)
    counts = [sum(1 for end in ends if end.word == word) for word in _ENDS]
    told: Reply = {"topics": topics, "acked": counts[0], "nacked": counts[1]}
    cursors = len(_groups(fields["cursors"]))
    return {**told, "dead_lettered": counts[2], "skipped": skipped, "cursors": cursors}


def _end_runs(model: TopicsModel, ends: list[_End], contents: dict[str, list[Content]]) -> None:
    """End the runs; letters leave room for the records of the commit."""
    logs = [(model.logs[topic], kept) for topic, kept in contents.items() if topic in model.logs]
    for log, kept in logs:
        log.promise(kept)
    for end in ends:
        _end(model, end)
    for log, _ in logs:
        log.promise([])


def _end(model: TopicsModel, end: _End) -> None:
    """End one run."""
    queue, job = end.queue, end.job
    if end.word == "acks":
        del queue.jobs[job.seq]
    elif end.word == "nacks":
        queue.free(job, end.delay, model.now)
        job.error = end.error or job.error
    else:
        model.give_up(queue, job, end.error)


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


class _End(NamedTuple):
    """The end of one run."""

    word: str
    queue: Queue
    job: Job
    delay: int
    error: str


def _ends_in(model: TopicsModel, fields: Reply) -> tuple[list[_End], list[list[object]]]:
    """Return the runs that a commit ends, and those that it skips."""
    ends: list[_End] = []
    skipped: list[list[object]] = []
    for word in _ENDS:
        for group in _groups(fields[word]):
            queue_name, node = str(group["queue"]), str(group["node"])
            queue = model.queues.get(queue_name)
            for seq, lease_id, *rest in _items(group["items"]):
                job = None if queue is None else queue.jobs.get(int(str(seq)))
                why = _lost(job, node, str(lease_id), model.now)
                if why or queue is None or job is None:
                    skipped.append([queue_name, seq, why])
                    continue
                delay = int(str(rest[0])) if word == "nacks" else 0
                error = str(rest[-1]) if word != "acks" else ""
                ends.append(_End(word, queue, job, delay, error))
    return ends, skipped


def _make_way(model: TopicsModel, contents: dict[str, list[Content]]) -> None:
    for topic, kept in contents.items():
        if topic in model.queues and kept:
            size = sum(one.size(is_job=True) for one in kept)
            model.queues[topic].evict_for(len(kept), size)


def _groups(value: object) -> list[dict[str, object]]:
    assert isinstance(value, list)
    return value


def _items(value: object) -> list[list[object]]:
    assert isinstance(value, list)
    return value


def _lost(job: Job | None, node: str, lease_id: str, now: int) -> str:
    if job is None or job.buried:
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
    shown, batch = _state_of(model, ask)
    return {**shown, **LIMITS}, batch


def _state_of(model: TopicsModel, ask: Ask) -> tuple[Reply, int]:
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
    return _state_of(model, ask)


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


def extend_set(model: TopicsModel, ask: Ask) -> tuple[Reply, int]:
    """Return what extending a claim set is answered with."""
    if ask.name in model.logs:
        raise Refusal(409, "not_a_queue")
    queue = model.queues.get(ask.name)
    if queue is None:
        raise Refusal(404, "topic_not_found")
    known = model.txns.sets.get((ask.name, ask.text("claim_id")))
    if known is None:
        raise Refusal(404, "claim_not_found")
    is_changed = _raise_fence(model, ask)
    deadline = model.now + ask.number("lease_ms", 0)
    count = 0
    for seq, name in known.names.items():
        job = queue.jobs.get(seq)
        if job is not None and job.lease_id == name and job.deadline > model.now:
            job.deadline = deadline
            model.ring_by(job.holder, deadline)
            count += 1
    if count:
        model.reach("claim set extended")
        is_changed = True
    told: Reply = {"topic": ask.name, "claim_id": ask.text("claim_id"), "extended": count}
    left_out = len(known.names) - count
    batch = model.batch if is_changed else 0
    return {**told, "left_out": left_out, "deadline": deadline + model.wall_offset}, batch
