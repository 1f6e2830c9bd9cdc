"""Dead letters: jobs that were delivered too often, or given up, become records of a log.

The meta of a dead letter says where it came from. It is written in the same batch as the removal of
the job, so a crash leaves exactly one of the two. If it cannot be written, the job stays.
"""

import json
from base64 import b64encode
from typing import Final, final

from mypy_extensions import i64

from jobyard.engine.jobs.low_watermarks import remember_floors
from jobyard.engine.logs.logs import append, open_log
from jobyard.engine.logs.text import text_at
from jobyard.engine.state import bus
from jobyard.engine.state.yard import Yard
from jobyard.errors import TextDamaged, YardFull
from jobyard.journal.format.record import END_ROOM, GONE_SIZE, Cause
from jobyard.model.details_codec import error_field, letter_field, size_of
from jobyard.model.family import counts_attempts
from jobyard.model.job import BYTES, GONE, JSON, Job
from jobyard.model.policy import NAME_DEFAULT
from jobyard.model.queue import Queue
from jobyard.model.topic.config import TopicConfig
from jobyard.model.topic.log import LogRecord, LogTopic, WriteTooLarge
from jobyard.model.transition import Transition

# Record heads, names and a configuration, in case the log has to be created.
DEAD_LETTER_ROOM: Final = 4096
# Making an encoder takes as long as encoding the meta of a letter.
_COMPACT: Final = json.JSONEncoder(separators=(",", ":"))
# An id with more digits is not one of ours: clients can write to the log of dead letters too.
ID_DIGITS: Final = 18
# Of the name and the client's id of a job, in bytes.
LABEL_MAX: Final = 256


@final
class LetterMark:
    """Fields that mark a dead letter; stored in the meta of its record, with strings as values."""

    PREFIX: Final = "$dead_letter_"
    FROM: Final = "$dead_letter_from"
    DELIVERIES: Final = "$dead_letter_deliveries"
    SRC_SEQ: Final = "$dead_letter_src_seq"
    JOB_ID: Final = "$dead_letter_job_id"
    REASON: Final = "$dead_letter_reason"
    ERROR: Final = "$dead_letter_error"
    CLIENT_ID: Final = "$dead_letter_client_id"
    NAME: Final = "$dead_letter_name"
    MAX_ATTEMPTS: Final = "$dead_letter_max_attempts"


@final
class LetterReason:
    """Why a job became a dead letter."""

    MAX_DELIVERIES: Final = "max_deliveries"
    GIVEN_UP: Final = "given_up"
    FAILED: Final = "failed"


@final
class DeadLetter:
    """A dead letter as the record that its job was."""

    def __init__(self, record: LogRecord, origin_id: i64, origin_queue: str) -> None:
        self.record: LogRecord = record
        # The id of the job, 0 if it is unknown, and its queue.
        self.origin_id: i64 = origin_id
        self.origin_queue: str = origin_queue
        # The name of the job, the id that its client chose, and its own limit of deliveries.
        self.name: str = ""
        self.job_id: str = ""
        self.max_attempts: i64 = 0


def is_spent(job: Job, config: TopicConfig) -> bool:
    """Return whether a job used up its deliveries; never for families that count attempts."""
    deliveries: i64 = i64(job.deliveries)
    if deliveries == 0:
        return False
    most = job.policy.max_attempts
    if most == 0:
        most = config.max_deliveries
    return (
        0 < most <= deliveries
        and config.dead_letter is not None
        and not counts_attempts(job.family)
    )


def may_send(yard: Yard, job: Job) -> bool:
    """Return whether a job may become a dead letter: no job waits for it, and a log can take it."""
    config = job.queue.config
    if config is None or config.dead_letter is None or yard.names.dependents.has(int(job.id)):
        return False
    return config.dead_letter in yard.logs or config.dead_letter not in yard.queues


def send_spent(yard: Yard, job: Job, now_ms: i64) -> bool:
    """Turn a job that used up its deliveries into a dead letter, as `send` does."""
    error = "" if job.details is None else job.details.last_error
    return send(yard, job, LetterReason.MAX_DELIVERIES, error, now_ms)


def send(yard: Yard, job: Job, reason: str, error: str, now_ms: i64) -> bool:
    """Turn a job into a dead letter and remove it; False changes nothing.

    False if the log is full, if a queue has its name, if other jobs wait for the job, or if its
    body cannot be read back.
    """
    queue = job.queue
    body = yard.bodies.fetch(job)
    if body is None or not may_send(yard, job):
        return False
    row = _letter(job, body, reason, error)
    journal = yard.journal
    was_held = yard.routers.is_held
    yard.routers.is_held = True
    try:
        if journal.is_on and not journal.admit(_room(yard, job, row, error), now_ms):
            return False
        log = _log_of(yard, queue, now_ms)
        letter_seq = append(yard, log, [row], "", now_ms).last_seq
    except (YardFull, WriteTooLarge):
        return False
    finally:
        yard.routers.is_held = was_held
    if yard.bus.is_on:
        event = bus.Event(bus.EventName.FAILED, queue, job, now_ms)
        event.error = "dead letter"
        event.is_final = True
        yard.bus.publish(event)
    if journal.is_on:
        end = Transition(job, Cause.DEAD_LETTERED, GONE)
        end.changed_fields = letter_field(log.name, letter_seq, reason) + error_field(error)
        journal.append_end(job, end, now_ms, waited=True)
    yard.counters.of(job).dead += 1
    yard.apply_gone(job)
    queue.finished_count += 1
    topic_state = queue.topic_state
    if topic_state is not None:
        topic_state.dead_lettered += 1
        if yard.txns.held_offers is None:
            # Else a commit is entering, which writes them once for all its letters.
            remember_floors(yard, queue)
    return True


def _log_of(yard: Yard, queue: Queue, now_ms: i64) -> LogTopic:
    config = queue.config
    assert config is not None
    assert config.dead_letter is not None
    log = yard.logs.get(config.dead_letter)
    return open_log(yard, config.dead_letter, TopicConfig(), now_ms) if log is None else log


def _room(yard: Yard, job: Job, row: LogRecord, error: str) -> i64:
    # An escaped character of a label takes at most twelve bytes.
    labels: i64 = 12 * (len(row.tag) + len(row.node))
    details = job.details
    bases = 0 if details is None or details.old_bases is None else len(details.old_bases)
    size = row.size() + labels
    weight: i64 = len(error.encode()) + (0 if details is None else size_of(details))
    room = size + weight + DEAD_LETTER_ROOM + END_ROOM + GONE_SIZE * (1 + bases)
    config = job.queue.config
    log = yard.logs.get(config.dead_letter or "") if config is not None else None
    if log is not None and log.onward is not None:
        room += log.onward.room(1, size + DEAD_LETTER_ROOM)
    return room


def _letter(job: Job, body: bytes, reason: str, error: str) -> LogRecord:
    details = job.details
    record_meta = None if details is None else details.record_meta
    marks = {
        LetterMark.FROM: job.queue.name,
        LetterMark.DELIVERIES: str(int(job.deliveries)),
        LetterMark.SRC_SEQ: str(int(job.key)),
        LetterMark.JOB_ID: str(int(job.id)),
        LetterMark.REASON: reason,
    }
    if error:
        marks[LetterMark.ERROR] = error
    if details is not None and details.custom_id:
        marks[LetterMark.CLIENT_ID] = details.custom_id
    if job.policy.name != NAME_DEFAULT:
        marks[LetterMark.NAME] = job.policy.name
    if job.policy.max_attempts > 0:
        marks[LetterMark.MAX_ATTEMPTS] = str(int(job.policy.max_attempts))
    is_binary = job.codec == BYTES
    data = body if is_binary or job.codec == JSON else _json_of(body)
    if record_meta is None:
        return LogRecord(data, _with_marks(b"", marks), is_binary=is_binary)
    meta = _with_marks(record_meta.meta, marks)
    return LogRecord(data, meta, record_meta.tag, record_meta.node, is_binary=is_binary)


def _with_marks(meta: bytes, marks: dict[str, str]) -> bytes:
    """Return a meta with some fields added; its own text is copied unchanged."""
    if LetterMark.PREFIX.encode() in meta:
        # The job was a dead letter before: the new fields replace the old ones.
        fields = {
            name: value
            for name, value in json.loads(meta).items()
            if not name.startswith(LetterMark.PREFIX)
        }
        fields.update(marks)
        return _COMPACT.encode(fields).encode()
    added = _COMPACT.encode(marks).encode()
    inside = meta.strip()[1:-1].strip()
    return b"".join([b"{", inside, b",", added[1:]]) if inside else added


def dead_letters_for(yard: Yard, log: LogTopic, name: str, most: i64) -> list[int]:
    """Return the seqs of dead letters from a queue, oldest first; skip damaged ones."""
    mark = f"{json.dumps(LetterMark.FROM)}:{json.dumps(name)}".encode()
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


def read_dead_letter(yard: Yard, log: LogTopic, seq: i64) -> DeadLetter:
    """Return the job of a dead letter: its record without the dead letter fields."""
    chunk = log.chunk_of(seq)
    assert chunk is not None
    slot = seq - chunk.base
    text = text_at(yard.journal, chunk, slot)
    data, marked = chunk.content_of(slot, text)
    fields = json.loads(marked)
    meta = {name: value for name, value in fields.items() if not name.startswith(LetterMark.PREFIX)}
    labels = json.loads(b"{" + chunk.label_at(slot)[:-1] + b"}")
    origin_id = str(fields.get(LetterMark.JOB_ID, ""))
    record = LogRecord(
        data,
        json.dumps(meta, separators=(",", ":")).encode() if meta else b"",
        labels.get("$tag", ""),
        labels.get("$node", ""),
        is_binary=chunk.is_binary(slot, text),
    )
    letter = DeadLetter(record, _number_in(origin_id), str(fields.get(LetterMark.FROM, "")))
    letter.name = _text_in(fields.get(LetterMark.NAME, ""))
    letter.job_id = _text_in(fields.get(LetterMark.CLIENT_ID, ""))
    letter.max_attempts = _number_in(str(fields.get(LetterMark.MAX_ATTEMPTS, "")))
    return letter


def _number_in(text: str) -> int:
    """Return a number in a letter; 0 for any other text, which a client may have written."""
    is_number = text.isascii() and text.isdecimal() and len(text) <= ID_DIGITS
    return int(text) if is_number else 0


def _text_in(value: object) -> str:
    if not isinstance(value, str):
        return ""
    # A client may have written half a surrogate pair.
    label = value.encode(errors="replace")
    return label.decode() if len(label) <= LABEL_MAX else ""


def _json_of(body: bytes) -> bytes:
    """Return a body of unknown format as JSON: itself if it is JSON, else a string, else base64."""
    try:
        # Given bytes, the parser would also accept UTF-16, UTF-32 and surrogates.
        text = body.decode()
    except UnicodeDecodeError:
        return json.dumps({"$base64": b64encode(body).decode()}).encode()
    try:
        json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return json.dumps(text, ensure_ascii=False).encode()
    return body


def _refuse_constant(word: str) -> None:
    raise ValueError(f"{word} is not JSON")
