"""Dead letters: jobs that were delivered too often, or given up, become records of a log.

A letter says in its meta where it came from. It is written in the batch in which the job goes, so
after a crash there is the one or the other. Where it cannot be written the job stays.
"""

import json
from base64 import b64encode
from typing import Final

from mypy_extensions import i64

from jobyard.engine.jobs.low_watermarks import remember_floors
from jobyard.engine.logs.logs import append, open_log
from jobyard.engine.logs.text import text_at
from jobyard.engine.state import bus
from jobyard.engine.state.yard import Yard
from jobyard.errors import TextDamaged, YardFull
from jobyard.journal.format.record import BURIED, END_SIZE, FAILED
from jobyard.model.family import counts_attempts
from jobyard.model.job import GONE, JSON, LEASED, Job
from jobyard.model.queue import Queue
from jobyard.model.topic.config import TopicConfig
from jobyard.model.topic.log import LogTopic, Row, WriteTooLarge
from jobyard.model.transition import End

# What a letter is known by; names and values stand in the meta of a record as texts.
MARK: Final = "$dead_letter_"
FROM: Final = "$dead_letter_from"
DELIVERIES: Final = "$dead_letter_deliveries"
SRC_SEQ: Final = "$dead_letter_src_seq"

# Heads, names and a configuration, should the log have to be made.
LETTER_ROOM: Final = 4096


def is_spent(job: Job, config: TopicConfig) -> bool:
    """Tell whether a job was delivered as often as it may be; those of some count attempts."""
    return (
        0 < config.max_deliveries <= i64(job.deliveries)
        and config.dead_letter is not None
        and not counts_attempts(job.family)
    )


def may_send(yard: Yard, job: Job) -> bool:
    """Tell whether a job may become a letter: there is a log, or could be, and nobody waits."""
    config = job.queue.config
    if config is None or config.dead_letter is None or yard.names.dependents.has(int(job.id)):
        return False
    return config.dead_letter in yard.logs or config.dead_letter not in yard.queues


def send(yard: Yard, job: Job, now_ms: i64) -> bool:
    """Make a letter of a job, which is gone then; False changes nothing.

    There is no letter where the log is full, where a queue has its name, of a job for which others
    wait, or whose body cannot be read back.
    """
    queue = job.queue
    body = yard.bodies.fetch(job)
    if body is None or not may_send(yard, job):
        return False
    row = _letter(job, body)
    journal = yard.journal
    was_held = yard.routers.is_held
    yard.routers.is_held = True
    try:
        if journal.is_on and not journal.admit(_room(yard, job, row), now_ms):
            return False
        append(yard, _log_of(yard, queue, now_ms), [row], "", now_ms)
    except (YardFull, WriteTooLarge):
        return False
    finally:
        yard.routers.is_held = was_held
    if yard.bus.is_on:
        event = bus.Event(bus.FAILED, queue, job, now_ms)
        event.error = "dead letter"
        event.is_final = True
        yard.bus.tell(event)
    if journal.is_on:
        if job.state == LEASED:
            journal.append_end(job, End(job, BURIED, GONE), now_ms, waited=True)
        else:
            journal.append_gone(job, FAILED, now_ms)
    yard.counters.of(job).dead += 1
    yard.apply_gone(job)
    queue.finished_count += 1
    stock = queue.stock
    if stock is not None:
        stock.dead_lettered += 1
        remember_floors(yard, queue)
    return True


def _log_of(yard: Yard, queue: Queue, now_ms: i64) -> LogTopic:
    config = queue.config
    assert config is not None
    assert config.dead_letter is not None
    log = yard.logs.get(config.dead_letter)
    return open_log(yard, config.dead_letter, TopicConfig(), now_ms) if log is None else log


def _room(yard: Yard, job: Job, row: Row) -> i64:
    # A character of a label is at most twelve bytes where it is escaped.
    labels: i64 = 12 * (len(row.tag) + len(row.node))
    extra = job.extra
    bases = 0 if extra is None or extra.old_bases is None else len(extra.old_bases)
    size: i64 = len(row.data) + len(row.meta) + labels
    room = size + LETTER_ROOM + END_SIZE * (2 + bases)
    config = job.queue.config
    log = yard.logs.get(config.dead_letter or "") if config is not None else None
    if log is not None and log.onward is not None:
        room += log.onward.room(1, size + LETTER_ROOM)
    return room


def _letter(job: Job, body: bytes) -> Row:
    extra = job.extra
    remark = None if extra is None else extra.remark
    marks = {
        FROM: job.queue.name,
        DELIVERIES: str(int(job.deliveries)),
        SRC_SEQ: str(int(job.key)),
    }
    data = body if job.codec == JSON else _json_of(body)
    if remark is None:
        return Row(data, _with_marks(b"", marks))
    return Row(data, _with_marks(remark.meta, marks), remark.tag, remark.node)


def _with_marks(meta: bytes, marks: dict[str, str]) -> bytes:
    """Return a meta with some texts added; what was in it stays as it was written."""
    if MARK.encode() in meta:
        # A letter of a letter: the newer marks take the place of the older.
        fields = json.loads(meta)
        fields.update(marks)
        return json.dumps(fields, separators=(",", ":")).encode()
    added = json.dumps(marks, separators=(",", ":")).encode()
    inside = meta.strip()[1:-1].strip()
    return b"".join([b"{", inside, b",", added[1:]]) if inside else added


def letters_for(yard: Yard, log: LogTopic, name: str, most: i64) -> list[int]:
    """Return the seqs of letters from a queue, oldest first; damaged ones stay where they are."""
    mark = f"{json.dumps(FROM)}:{json.dumps(name)}".encode()
    found: list[int] = []
    for chunk in log.chunks:
        if not chunk.has_meta:
            continue
        slot: i64 = 0
        while slot < chunk.used() and len(found) < most:
            size: i64 = chunk.metas[slot]
            if chunk.is_alive(slot) and size > 0:
                try:
                    text = text_at(yard.journal, chunk, slot)
                except TextDamaged:
                    text = b""
                if mark in text[-1 - size :]:
                    found.append(int(chunk.base + slot))
            slot += 1
    return found


def read_letter(yard: Yard, log: LogTopic, seq: i64) -> Row:
    """Return what a job was before it became a letter."""
    chunk = log.chunk_of(seq)
    assert chunk is not None
    slot = seq - chunk.base
    text = text_at(yard.journal, chunk, slot)
    meta_size: i64 = chunk.metas[slot]
    meta_at: i64 = len(text) - 1 - meta_size
    # After `,{"$seq":1,"$ts":1,"data":`, and up to `,"meta":`.
    data = text[chunk.labels_from(slot) + 7 : meta_at - 8]
    fields = json.loads(text[meta_at:-1])
    meta = {name: value for name, value in fields.items() if not name.startswith(MARK)}
    labels = json.loads(b"{" + chunk.label_at(slot)[:-1] + b"}")
    return Row(
        data,
        json.dumps(meta, separators=(",", ":")).encode() if meta else b"",
        labels.get("$tag", ""),
        labels.get("$node", ""),
    )


def _json_of(body: bytes) -> bytes:
    """Return a body without form as JSON: itself if it is JSON, else text, else base64."""
    try:
        json.loads(body)
    except ValueError:
        pass
    else:
        return body
    try:
        return json.dumps(body.decode(), ensure_ascii=False).encode()
    except UnicodeDecodeError:
        return json.dumps({"$base64": b64encode(body).decode()}).encode()
