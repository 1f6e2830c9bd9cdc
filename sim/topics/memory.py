"""What must come back of topics after a restart, and the model that continues from what did.

A memory is taken of the model, not of the yard, when a batch is sealed. A yard that read up to that
batch must hold the same, record by record; then the model is rebuilt from it.
"""

from __future__ import annotations

import json
from base64 import b64encode
from typing import TYPE_CHECKING

from jobyard.engine.jobs.durable_leases import lease_name
from jobyard.engine.logs.text import texts_between
from jobyard.model.details import Outcome
from jobyard.model.family import TOPICS
from jobyard.model.job import BYTES as BYTES_CODEC
from jobyard.model.job import DEAD, DELAYED
from sim.state import Violation
from sim.topics.keys import RecordKeys, adopt_keys, keys_found
from sim.topics.logs import Log
from sim.topics.nouns import (
    BYTES,
    Config,
    Content,
    Job,
    Reply,
    Router,
    Row,
    Write,
    compact,
    data_of,
)
from sim.topics.queues import Queue
from sim.topics.txns import adopt_txns, facts_of, leases_of, memory_of

if TYPE_CHECKING:
    from jobyard.engine.state.yard import Yard
    from jobyard.model.job import Job as YardJob
    from jobyard.model.queue import Queue as YardQueue
    from jobyard.model.topic.key_table import KeyTable
    from jobyard.model.topic.log import LogTopic
    from sim.topics.model import TopicsModel

Facts = dict[str, object]


def rows_of(yard: Yard, log: LogTopic) -> list[tuple[int, str, str, int]]:
    """Return seq, text, label and arrival of every record."""
    return [
        (
            int(chunk.base) + slot,
            texts_between(yard.journal, chunk, slot, slot + 1)[0][1:].decode(),
            chunk.label_at(slot).decode(),
            int(chunk.at[slot]),
        )
        for chunk in log.chunks
        for slot in range(int(chunk.used()))
        if chunk.is_alive(slot)
    ]


def _text_of(row: Row) -> tuple[str, str]:
    """Return a record as it is stored: its text, and its labels."""
    content = row.content
    meta = f',"meta":{compact(content.meta)}' if content.meta else ""
    data = f'"data":{content.data}'
    if content.data.startswith(BYTES):
        data = f'"data_b64":"{content.data.removeprefix(BYTES)}"'
    text = f'{{"$seq":{row.seq},"$ts":{row.ts},{data}{meta}}}'
    tag = f'"$tag":{json.dumps(content.tag)},' if content.tag else ""
    node = f'"$node":{json.dumps(content.node)},' if content.node else ""
    return text, tag + node


class KeysMemory:
    """The keys of the records of a topic at the moment a batch was sealed."""

    def __init__(self, topic: Log | Queue) -> None:
        self.config = topic.config
        self.keys = RecordKeys()
        self.keys.found = dict(topic.record_keys.found)
        self.keys.floor = topic.record_keys.floor


class LogMemory:
    """A log at the moment a batch was sealed."""

    def __init__(self, log: Log, found: LogTopic) -> None:
        self.config = log.config.fields
        self.rows = list(log.rows.values())
        self.keys = dict(log.keys)
        self.window = log.config.window
        self.record_keys = KeysMemory(log)
        self.facts = (log.cap_floor, log.ttl_floor, log.last_write)
        self.cursor = log.cursor
        self.next_seq = log.next_seq
        self.seq_limit = int(found.seq_limit)
        self.incarnation = int(found.incarnation)


class QueueMemory:
    """A queue at the moment a batch was sealed."""

    def __init__(self, queue: Queue, found: YardQueue) -> None:
        self.config = queue.config.fields
        self.jobs = {
            job.seq: (job.content, job.deliveries, job.error, bool(job.buried))
            for job in queue.jobs.values()
        }
        self.writes = dict(queue.writes)
        self.record_keys = KeysMemory(queue)
        # A restart continues behind the reserved seqs; only the server gives them back.
        next_seq = max(queue.next_seq, int(found.seq_limit))
        self.facts = (next_seq, queue.cap_floor, queue.ttl_floor, queue.dead_lettered)
        self.cursor = queue.cursor


class Memory:
    """All topics at the moment a batch was sealed."""

    def __init__(self, model: TopicsModel, yard: Yard) -> None:
        self.logs = {name: LogMemory(log, yard.logs[name]) for name, log in model.logs.items()}
        self.queues = {
            name: QueueMemory(queue, yard.queues[name]) for name, queue in model.queues.items()
        }
        self.routers = {
            name: (one.source, one.dest, one.cursor if one.is_behind else -1)
            for name, one in model.routers.items()
        }
        self.txns = memory_of(model.txns)
        self.leases = leases_of(model)


class Recall:
    """Compares a yard that came back with a memory."""

    def __init__(
        self, yard: Yard, now: int, *, is_clean: bool, is_unsure: bool, has_jumped: bool
    ) -> None:
        self._yard = yard
        self._now = now
        # The last process stopped cleanly, or was about to.
        self._is_clean = is_clean
        # Whether that was the last record in the journal is unknown.
        self._is_unsure = is_unsure
        self._has_jumped = has_jumped

    def check(self, memory: Memory) -> None:
        """Raise a Violation at the first difference."""
        yard = self._yard
        self._same("logs", sorted(yard.logs), sorted(memory.logs))
        queues = {n: q for n, q in yard.queues.items() if q.config is not None}
        self._same("queues", sorted(queues), sorted(memory.queues))
        routers = {
            name: (one.source, one.dest, int(one.cursor) if one.is_behind else -1)
            for name, one in yard.routers.by_name.items()
        }
        self._same("routers", routers, memory.routers)
        for name, known in memory.logs.items():
            self._check_log(yard.logs[name], known)
        for name, queue in memory.queues.items():
            self._check_queue(queues[name], queue)
        if not self._has_jumped:
            self._same("transactions", facts_of(yard), memory.txns)
            self._check_leases(memory.leases)

    def _check_leases(self, wanted: dict[tuple[str, int], tuple[str, int]]) -> None:
        """Check that the leases of claim sets came back."""
        for (name, seq), known in wanted.items():
            jobs = {int(job.key): job for job in jobs_of(self._yard, name)}
            lease = None if seq not in jobs else jobs[seq].lease
            found = None
            if lease is not None:
                found = lease_name(self._yard, lease), int(lease.sort_key)
            self._same(f"lease of job {seq} of {name}", found, known)

    def _same(self, what: str, found: object, wanted: object) -> None:
        if found != wanted:
            raise Violation("restart", f"{what}: {found}, not {wanted}"[:2000])

    def _check_log(self, log: LogTopic, known: LogMemory) -> None:
        name = log.name
        self._same(f"config of {name}", log.config.fields(), known.config)
        self._same(f"incarnation of {name}", int(log.incarnation), known.incarnation)
        self._same(f"cursor of {name}", cursor_of(self._yard, name), known.cursor)
        if known.config["durability"] == "ephemeral":
            self._check_ephemeral(log, known)
            return
        found = rows_of(self._yard, log)
        if self._has_jumped:
            found = [(seq, text, label, 0) for seq, text, label, _ in found]
        wanted = [
            (row.seq, *_text_of(row), 0 if self._has_jumped else row.at) for row in known.rows
        ]
        if found != wanted:
            new = [one for one in found if one not in wanted]
            lost = [one for one in wanted if one not in found]
            raise Violation("restart", f"records of {name}: {new} came, {lost} should"[:2000])
        facts = (int(log.cap_floor), int(log.ttl_floor), int(log.last_write_ms))
        self._same(f"floors and last write of {name}", facts, known.facts)
        next_seq = known.next_seq if self._is_clean else max(known.next_seq, known.seq_limit)
        if not (self._is_clean and self._is_unsure and log.next_seq == known.seq_limit):
            self._same(f"next seq of {name}", int(log.next_seq), next_seq)
        keys = {
            key: (int(one.first_seq), int(one.last_seq), int(one.at_ms))
            for key, one in log.keys.items()
        }
        oldest = self._now - known.window
        self._check_keys(name, keys, {k: w for k, w in known.keys.items() if w.time > oldest})
        self._check_record_keys(name, log.record_keys, known.record_keys)

    def _check_ephemeral(self, log: LogTopic, known: LogMemory) -> None:
        """Check that nothing came back, and that a reader who continues gets the gap."""
        facts = (int(log.count), int(log.cap_floor))
        self._same(f"records and floor of {log.name}", facts, (0, int(log.next_seq)))
        if log.next_seq < known.next_seq:
            raise Violation(
                "restart", f"{log.next_seq} comes next in {log.name}, not {known.next_seq}"
            )

    def _check_keys(
        self, name: str, found: dict[str, tuple[int, int, int]], wanted: dict[str, Write]
    ) -> None:
        """Check that no valid key is lost; an expired one may be there or not."""
        for key, write in wanted.items():
            told = found.get(key)
            if self._has_jumped:
                # Its expiry was decided by another clock.
                if told is not None:
                    self._same(f"key {key} of {name}", told[:2], (write.first, write.last))
            else:
                self._same(f"key {key} of {name}", told, (write.first, write.last, write.time))

    def _check_record_keys(self, name: str, table: KeyTable | None, memory: KeysMemory) -> None:
        """Check that exactly the valid keys came back."""
        found = keys_found(table, self._now)
        if self._has_jumped:
            # Their expiry was decided by another clock. One that an earlier start found expired,
            # and that the model forgot with it, may be valid again.
            known = {key: one.seq for key, one in memory.keys.found.items()}
            wrong = {key: one for key, one in found.items() if known.get(key, one[0]) != one[0]}
            self._same(f"keys of records of {name}", wrong, {})
            return
        valid = memory.keys.valid(memory.config, self._now)
        wanted = {key: (one.seq, one.at) for key, one in valid.items() if one.is_written}
        self._same(f"keys of records of {name}", found, wanted)

    def _check_queue(self, queue: YardQueue, known: QueueMemory) -> None:
        name = queue.name
        assert queue.config is not None
        topic_state = queue.topic_state
        assert topic_state is not None
        self._same(f"config of {name}", queue.config.fields(), known.config)
        floors = (
            int(topic_state.cap_floor),
            int(topic_state.ttl_floor),
            int(topic_state.dead_lettered),
        )
        self._same(f"cursor of {name}", cursor_of(self._yard, name), known.cursor)
        self._same(f"next seq and floors of {name}", (int(queue.next_seq), *floors), known.facts)
        jobs = {
            int(job.key): (
                content_of(self._yard, job),
                int(job.deliveries),
                _error_of(job),
                job.state == DEAD,
            )
            for job in jobs_of(self._yard, name)
        }
        wanted = {
            seq: (content._replace(delay=0), count, error, is_dead)
            for seq, (content, count, error, is_dead) in known.jobs.items()
        }
        self._same(f"jobs of {name}", jobs, wanted)
        writes = {
            key: (int(one.first_seq), int(one.first_seq + one.count) - 1, int(one.until_ms))
            for key, one in topic_state.writes.items()
        }
        lasting = {key: one for key, one in known.writes.items() if one.time > self._now}
        self._check_keys(name, writes, lasting)
        self._check_record_keys(name, topic_state.record_keys, known.record_keys)


def _error_of(job: YardJob) -> str:
    return "" if job.details is None else job.details.last_error


def jobs_of(yard: Yard, name: str) -> list[YardJob]:
    """Return the jobs of a queue in the order of their seqs."""
    jobs = [job for job in yard.jobs.all() if job.queue.name == name]
    return sorted(jobs, key=lambda job: int(job.key))


def content_of(yard: Yard, job: YardJob) -> Content:
    """Return what the writer of a job sent."""
    body = yard.bodies.fetch(job)
    if body is not None and job.codec == BYTES_CODEC:
        data = BYTES + b64encode(body).decode()
    else:
        data = "" if body is None else body.decode()
    record_meta = None if job.details is None else job.details.record_meta
    if record_meta is None:
        return Content(data, {}, "", "", 0, -int(job.rank))
    meta: Reply = json.loads(record_meta.meta) if record_meta.meta else {}
    return Content(data, meta, record_meta.tag, record_meta.node, 0, -int(job.rank))


# -- continuing from there -----------------------------------------------------------------------


def adopt(model: TopicsModel, yard: Yard, now: int) -> None:
    """Rebuild the model from a yard."""
    model.yard = yard
    model.logs = {name: _adopt_log(yard, log, now) for name, log in yard.logs.items()}
    model.queues = {
        name: _adopt_queue(yard, queue, now)
        for name, queue in yard.queues.items()
        if queue.config is not None
    }
    model.ring_again()
    adopt_txns(model, yard)
    model.incarnations.update(log.incarnation for log in model.logs.values())
    model.routers = {}
    for routers in yard.routers.by_source.values():
        for one in routers:
            match = None if not one.has_match else one.tag + ("*" if one.is_prefix else "")
            fields: Reply = {"source": one.source, "dest": one.dest, "filter": match}
            fields |= {"guarantee": one.guarantee, "preserve_tag": one.preserve_tag}
            router = Router(one.name, {**fields, "preserve_node": one.preserve_node})
            router.cursor = int(one.cursor)
            router.is_behind = one.is_behind
            router.retry = now + 1000
            model.routers[one.name] = router


def _adopt_log(yard: Yard, found: LogTopic, now: int) -> Log:
    log = Log(found.name, Config(found.config.fields()), now)
    for seq, text, label, at in rows_of(yard, found):
        told = json.loads(text)
        labels = json.loads("{" + label[:-1] + "}")
        tag, node = labels.get("$tag", ""), labels.get("$node", "")
        content = Content(data_of(told), told.get("meta", {}), tag, node)
        row = Row(seq, told["$ts"], at, content, 0)
        log.rows[seq] = row
        log.bytes += row.size
    log.next_seq = int(found.next_seq)
    log.cap_floor, log.ttl_floor = int(found.cap_floor), int(found.ttl_floor)
    log.last_write = int(found.last_write_ms)
    log.incarnation = int(found.incarnation)
    log.keys = {
        key: Write(int(one.first_seq), int(one.last_seq), int(one.at_ms), 0)
        for key, one in found.keys.items()
    }
    log.cursor = cursor_of(yard, found.name)
    log.record_keys = adopt_keys(found.record_keys)
    log.look(now)
    return log


def cursor_of(yard: Yard, topic: str) -> tuple[int, bool] | None:
    """Return the cursor of a topic's reader: its seq, and whether it holds records."""
    cursor = yard.cursors.get(topic, "c")
    return None if cursor is None else (int(cursor.seq), cursor.is_holding())


def _adopt_queue(yard: Yard, found: YardQueue, now: int) -> Queue:
    assert found.config is not None
    topic_state = found.topic_state
    assert topic_state is not None
    queue = Queue(found.name, Config(found.config.fields()), now)
    for one in jobs_of(yard, found.name):
        if one.family != TOPICS:
            raise Violation("no job from nowhere", f"job {one.id} of {found.name}")
        job = Job(int(one.key), content_of(yard, one), int(one.created_ms), 0)
        job.deliveries = int(one.deliveries)
        job.error, job.number = _error_of(one), int(one.id)
        job.is_delayed = one.state == DELAYED
        job.due = int(one.due_ms)
        if one.lease is not None:
            job.holder = one.lease.terms.label
            job.deadline = int(one.lease.sort_key)
            job.lease_id = lease_name(yard, one.lease)
        queue.jobs[job.seq] = job
    for item in found.dead.live():
        assert isinstance(item, Outcome)
        job = queue.jobs[int(item.job.key)]
        queue.bury(job, job.freed)
    queue.cursor = cursor_of(yard, found.name)
    queue.next_seq = int(found.next_seq)
    queue.cap_floor, queue.ttl_floor = int(topic_state.cap_floor), int(topic_state.ttl_floor)
    queue.dead_lettered = int(topic_state.dead_lettered)
    queue.writes = {
        key: Write(int(one.first_seq), int(one.first_seq + one.count) - 1, int(one.until_ms), 0)
        for key, one in topic_state.writes.items()
    }
    queue.record_keys = adopt_keys(topic_state.record_keys)
    return queue


def logs_dump(yard: Yard) -> list[tuple[object, ...]]:
    """Return all logs and write keys as plain values, in a fixed order."""
    dump: list[tuple[object, ...]] = []
    for name, log in sorted(yard.logs.items()):
        keys = [(key, int(one.first_seq), int(one.at_ms)) for key, one in log.keys.items()]
        floors = (int(log.cap_floor), int(log.ttl_floor), int(log.incarnation))
        dump.append((name, (tuple(rows_of(yard, log)), tuple(sorted(keys)), floors), b""))
        named = keys_found(log.record_keys, int(yard.now_ms))
        dump.append((name, tuple(sorted(named.items())), b""))
    for name, queue in sorted(yard.queues.items()):
        topic_state = queue.topic_state
        if queue.config is None or topic_state is None:
            continue
        writes = topic_state.writes
        keys = [(key, int(one.first_seq), int(one.until_ms)) for key, one in writes.items()]
        named = keys_found(topic_state.record_keys, int(yard.now_ms))
        facts = (int(queue.next_seq), tuple(sorted(keys)), tuple(sorted(named.items())))
        dump.append((name, facts, b""))
    dump.append(("transactions", (repr(facts_of(yard)),), b""))
    return dump
