"""Commands about what workers write down of a job while it runs, or after.

Lines are news of the job in the journal and outlast a restart. They weigh on every record that
repeats the whole of a job, so both their number and their size are bounded; the oldest go first.
"""

from typing import Final

from mypy_extensions import i64

from jobyard.engine.state.yard import Yard
from jobyard.errors import Refused, YardFull
from jobyard.journal.format.record import NOTE_SIZE, STATE_SIZE
from jobyard.model.details import LOGS_CUT, Fields, LogLine, log_field, size_of
from jobyard.model.job import Job
from jobyard.protocols.bunqueue.commands import push_options
from jobyard.protocols.bunqueue.commands.jobs import named_job
from jobyard.protocols.bunqueue.door import Answer, Command
from jobyard.protocols.bunqueue.ids import find_job
from jobyard.protocols.bunqueue.request import Request
from jobyard.protocols.bunqueue.session import BunqueueSession

LINES_DEFAULT: Final = 100
# All lines of a job together, in characters; one line alone may have a quarter of it.
TEXT_MAX: Final = 256 * 1024
LINE_MAX: Final = TEXT_MAX // 4
LEVELS: Final = ("info", "warn", "error")
COUNT_MAX: Final = 1_000_000_000


def add_log(session: BunqueueSession, request: Request) -> Answer:
    """AddLog: write one line about a job in any state."""
    fields = request.fields
    job = named_job(session, fields)
    message = fields.text(b"message")
    if message is None:
        raise Refused("message must be a string")
    level = push_options.text(fields, b"level") or "info"
    if level not in LEVELS:
        raise Refused(f"level must be one of {', '.join(LEVELS)}")
    line = LogLine(request.now_ms, level, whole_text(message)[:LINE_MAX])
    news = Fields()
    log_field(news, line)
    kept = _kept_count(job, line)
    extra = job.extra
    known = 0 if extra is None or extra.logs is None else len(extra.logs)
    if known + 1 > kept:
        news.numbers(LOGS_CUT, (kept,), b"")
    _note(session.yard, job, news.done(), request.now_ms)
    return {"data": {"added": True}}


def whole_text(text: str) -> str:
    """Return a text that UTF-8 can hold: halves of surrogate pairs are replaced."""
    return text.encode("utf-8", "replace").decode()


def _kept_count(job: Job, line: LogLine) -> i64:
    """Return how many of the newest lines stay once `line` has been added."""
    most: i64 = job.policy.logs_kept if job.policy.logs_kept >= 0 else LINES_DEFAULT
    size: i64 = len(line.text)
    kept: i64 = 1
    extra = job.extra
    logs = [] if extra is None or extra.logs is None else extra.logs
    at: i64 = len(logs) - 1
    while at >= 0 and kept < most:
        size += len(logs[at].text)
        if size > TEXT_MAX:
            break
        kept += 1
        at -= 1
    return min(kept, most)


def _note(yard: Yard, job: Job, news: bytes, now_ms: i64) -> None:
    journal = yard.journal
    extra = job.extra
    size: i64 = STATE_SIZE + NOTE_SIZE + len(news) + (0 if extra is None else size_of(extra))
    if journal.is_on and not journal.admit(size, now_ms):
        raise YardFull
    yard.note(job, news)


def get_logs(session: BunqueueSession, request: Request) -> Answer:
    """GetLogs: tell the lines of a job, or those from `start` to `end`, both included."""
    fields = request.fields
    name = fields.content(b"id")
    job = None if name is None else find_job(session.yard, name)
    extra = None if job is None else job.extra
    lines = [] if extra is None or extra.logs is None else extra.logs
    count: i64 = len(lines)
    start = push_options.number(fields, b"start", 0, -COUNT_MAX, COUNT_MAX)
    end = push_options.number(fields, b"end", -1, -COUNT_MAX, COUNT_MAX)
    # Negative places count from the end, as in the lists of Redis.
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
    """ClearLogs: forget the lines of a job, but for the newest if that is asked for."""
    fields = request.fields
    name = fields.content(b"id")
    kept = push_options.number(fields, b"keepLogs", 0, 0, COUNT_MAX)
    job = None if name is None else find_job(session.yard, name)
    extra = None if job is None else job.extra
    lines = [] if extra is None or extra.logs is None else extra.logs
    if job is not None and len(lines) > kept:
        news = Fields()
        news.numbers(LOGS_CUT, (kept,), b"")
        _note(session.yard, job, news.done(), request.now_ms)
    return {}


COMMANDS: Final[dict[bytes, Command]] = {
    b"AddLog": add_log,
    b"GetLogs": get_logs,
    b"ClearLogs": clear_logs,
}
