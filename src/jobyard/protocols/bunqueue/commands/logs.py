"""Commands for the log lines that workers write about a job.

Lines are changed fields of the job in the journal and survive a restart. Every record that repeats
a whole job contains them, so their number and size are limited; the oldest are dropped first.
"""

from typing import Final

from mypy_extensions import i64

from jobyard.engine.state.yard import Yard
from jobyard.errors import Refused, YardFull
from jobyard.journal.format.record import NOTE_SIZE, STATE_SIZE
from jobyard.model.details import LogLine
from jobyard.model.details_codec import FieldWriter, Tag, log_field, size_of
from jobyard.model.job import Job
from jobyard.protocols.bunqueue.command import Command
from jobyard.protocols.bunqueue.commands import push_options
from jobyard.protocols.bunqueue.commands.jobs import named_job
from jobyard.protocols.bunqueue.door import Answer
from jobyard.protocols.bunqueue.ids import find_job
from jobyard.protocols.bunqueue.request import Request
from jobyard.protocols.bunqueue.session import BunqueueSession

LINES_DEFAULT: Final = 100
# All lines of a job together, in characters; one line may take a quarter of it.
TEXT_MAX: Final = 256 * 1024
LINE_MAX: Final = TEXT_MAX // 4
JOB_LOG_LEVELS: Final = ("info", "warn", "error")
LOG_LINES_MAX: Final = 1_000_000_000


def add_log(session: BunqueueSession, request: Request) -> Answer:
    """AddLog: add one line to the log of a job in any state."""
    fields = request.fields
    job = named_job(session, fields)
    message = fields.text(b"message")
    if message is None:
        raise Refused("message must be a string")
    level = push_options.text(fields, b"level") or "info"
    if level not in JOB_LOG_LEVELS:
        raise Refused(f"level must be one of {', '.join(JOB_LOG_LEVELS)}")
    line = LogLine(request.now_ms, level, whole_text(message)[:LINE_MAX])
    changes = FieldWriter()
    log_field(changes, line)
    kept = _kept_count(job, line)
    details = job.details
    known = 0 if details is None or details.logs is None else len(details.logs)
    if known + 1 > kept:
        changes.numbers(Tag.LOGS_CUT, (kept,), b"")
    _note(session.yard, job, changes.done(), request.now_ms)
    return {"data": {"added": True}}


def whole_text(text: str) -> str:
    """Return a text that UTF-8 can encode: lone surrogates are replaced."""
    return text.encode("utf-8", "replace").decode()


def _kept_count(job: Job, line: LogLine) -> i64:
    """Return how many of the newest lines are kept after `line` is added."""
    most: i64 = job.policy.logs_kept if job.policy.logs_kept >= 0 else LINES_DEFAULT
    size: i64 = len(line.text)
    kept: i64 = 1
    details = job.details
    logs = [] if details is None or details.logs is None else details.logs
    at: i64 = len(logs) - 1
    while at >= 0 and kept < most:
        size += len(logs[at].text)
        if size > TEXT_MAX:
            break
        kept += 1
        at -= 1
    return min(kept, most)


def _note(yard: Yard, job: Job, changed_fields: bytes, now_ms: i64) -> None:
    journal = yard.journal
    details = job.details
    size: i64 = (
        STATE_SIZE + NOTE_SIZE + len(changed_fields) + (0 if details is None else size_of(details))
    )
    if journal.is_on and not journal.admit(size, now_ms):
        raise YardFull
    yard.note(job, changed_fields)


def get_logs(session: BunqueueSession, request: Request) -> Answer:
    """GetLogs: show the lines of a job, or those from `start` to `end` inclusive."""
    fields = request.fields
    name = fields.content(b"id")
    job = None if name is None else find_job(session.yard, name)
    details = None if job is None else job.details
    lines = [] if details is None or details.logs is None else details.logs
    count: i64 = len(lines)
    start = push_options.number(fields, b"start", 0, -LOG_LINES_MAX, LOG_LINES_MAX)
    end = push_options.number(fields, b"end", -1, -LOG_LINES_MAX, LOG_LINES_MAX)
    # Negative indexes count from the end, as in Redis lists.
    start = max(0, start + count) if start < 0 else start
    end = end + count if end < 0 else end
    if fields.is_false(b"asc"):
        lines = lines[::-1]
    shown: list[object] = [
        {
            "message": line.text,
            "level": line.level,
            "timestamp": float(session.door.wall_ms(line.at_ms)),
        }
        for line in lines[int(start) : int(max(end + 1, 0))]
    ]
    return {"data": {"logs": shown, "count": int(count)}}


def clear_logs(session: BunqueueSession, request: Request) -> Answer:
    """ClearLogs: remove the lines of a job, except the newest `keepLogs`."""
    fields = request.fields
    name = fields.content(b"id")
    kept = push_options.number(fields, b"keepLogs", 0, 0, LOG_LINES_MAX)
    job = None if name is None else find_job(session.yard, name)
    details = None if job is None else job.details
    lines = [] if details is None or details.logs is None else details.logs
    if job is not None and len(lines) > kept:
        changes = FieldWriter()
        changes.numbers(Tag.LOGS_CUT, (kept,), b"")
        _note(session.yard, job, changes.done(), request.now_ms)
    return {}


LOG_COMMANDS: Final[dict[bytes, Command]] = {
    b"AddLog": add_log,
    b"GetLogs": get_logs,
    b"ClearLogs": clear_logs,
}
