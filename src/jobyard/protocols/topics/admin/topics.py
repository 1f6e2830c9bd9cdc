"""Creates, shows, lists and removes topics."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from jobyard.engine.jobs.obliterate import Obliteration
from jobyard.engine.logs import logs
from jobyard.engine.logs.cursors import drop_cursors_of
from jobyard.engine.state.tasks import Task
from jobyard.engine.topics import topic_queue, topic_setup
from jobyard.engine.topics.routers import drop_routers_of
from jobyard.engine.topics.topic_setup import config_of
from jobyard.model.queue import is_topic
from jobyard.model.topic.config import (
    FSYNC,
    QUEUE,
    TopicConfig,
    is_topic_name,
)
from jobyard.model.topic.router import is_router_name
from jobyard.protocols.http.call import HttpCall, HttpRefused
from jobyard.protocols.http.long_calls import LongCall
from jobyard.protocols.topics.admin.topic_state import log_state, queue_state
from jobyard.protocols.topics.answers import begin, finish, put_bool
from jobyard.protocols.topics.api import may_see
from jobyard.protocols.topics.body import invalid, is_strict, query_flag, read_body
from jobyard.protocols.topics.find import (
    check_dead_letter_topic,
    drop_topic,
    find_queue,
    make_topic,
    wanted_config,
)
from jobyard.protocols.topics.limits import check_topics
from jobyard.protocols.topics.names import EVENTS_TOPIC, check_topic_name
from jobyard.protocols.topics.records.events import events_state, is_events
from jobyard.protocols.topics.records.writes import CONFIG_FIELDS
from jobyard.wire.http.request import parse_query
from jobyard.wire.json.write import write_texts
from jobyard.wire.numbers import decimal

if TYPE_CHECKING:
    from jobyard.engine.state.yard import Yard
    from jobyard.model.topic.log import LogTopic
    from jobyard.protocols.topics.door import TopicsDoor

PAGE_DEFAULT: Final = 100
PAGE_MAX: Final = 1000
# Names checked together; names copied or sorted per unit of work; units of work per listed topic.
NAMES_AT_ONCE: Final = 200
NAMES_PER_UNIT: Final = 32
LINE_UNITS: Final = 16


def put_topic(door: TopicsDoor, call: HttpCall) -> None:
    """PUT /v0/topics/{topic}."""
    name = call.params[0]
    check_topic_name(name)
    fields = read_body(call, may_be_empty=True)
    is_strict(fields, CONFIG_FIELDS | {"strict"})
    config = wanted_config(call, name, json.loads(fields.data))
    yard = door.yard
    check_dead_letter_topic(yard, config)
    log = yard.logs.get(name)
    queue = find_queue(yard, name)
    created = False
    if log is not None:
        _check_type(name, log.config.type, config)
        _set_log_config(yard, log, config, call.now_ms)
    elif queue is not None:
        _check_type(name, QUEUE, config)
        topic_setup.set_queue_config(yard, queue, config, call.now_ms)
    else:
        created = True
        check_topics(door)
        make_topic(yard, name, config, call.now_ms)
    out = begin(name)
    put_bool(out, b',"created":', value=created)
    out.write(b',"config":')
    out.write(_printed(config.fields()))
    call.await_batch(yard.journal.newest(), is_synced=config.durability == FSYNC)
    finish(call, out, 201 if created else 200)


def _set_log_config(yard: Yard, log: LogTopic, config: TopicConfig, now_ms: i64) -> None:
    try:
        logs.set_config(yard, log, config, now_ms)
    except logs.HoldsRecords:
        story = f"{log.name} must be empty to change its durability to {config.durability}"
        raise HttpRefused(409, "topic_not_empty", story) from None


def _check_type(name: str, is_type: str, config: TopicConfig) -> None:
    if config.type != is_type:
        raise HttpRefused(
            409,
            "topic_exists_incompatible",
            f"{name} is a {is_type}; the type of a topic cannot change",
            {"type": is_type},
        )


def list_topics(door: TopicsDoor, call: HttpCall) -> None:
    """GET /v0/topics."""
    asked = parse_query(call.request.query)
    prefix = asked.get("prefix", "")
    size = page_size(asked.get("page_size", ""))
    after = read_cursor(asked.get("cursor", ""))
    listed = TopicPage(door, call, prefix, after, size)
    LongCall(door.yard.tasks, call, listed, listed.answer).begin()


@final
class TopicPage(Task):
    """A page of topics sorted by name, made from all names in slices."""

    def __init__(
        self, door: TopicsDoor, call: HttpCall, prefix: str, after: str, size: int
    ) -> None:
        super().__init__()
        self.is_reading = True
        self._door = door
        self._call = call
        self._prefix = prefix
        self._after = after
        self._size = size
        # None until all names are copied, which takes a while if there are very many.
        self._left: list[str] | None = None
        # The names of the page so far, and one more.
        self._found: list[str] = []
        self._gone_count: i64 = 0
        self._lines: list[bytes] = []

    def step(self, most: i64, now_ms: i64) -> i64:
        """Check some names, or describe some topics."""
        done: i64 = 0
        left = self._left
        if left is None:
            left = self._names()
            self._left = left
            done = len(left) // NAMES_PER_UNIT
        while done < most and left:
            some = left[-NAMES_AT_ONCE:]
            del left[-NAMES_AT_ONCE:]
            done += len(some) + self._choose(some)
        while done < most and len(self._lines) < min(self._size, len(self._found)):
            done += self._add_line(self._found[len(self._lines)], now_ms)
        return done

    def _names(self) -> list[str]:
        yard = self._door.yard
        names = list(yard.queues)
        names += yard.logs
        if is_events(yard, EVENTS_TOPIC):
            names.append(EVENTS_TOPIC)
        return names

    def _choose(self, names: list[str]) -> i64:
        """Keep the names that belong to the page so far; return the units of work."""
        found = self._found
        if len(found) > self._size:
            last = found[-1]
            names = [name for name in names if name < last]
        chosen = [name for name in names if self._is_meant(name)]
        if not chosen:
            return 0
        # A queue and a log may have the same name.
        self._found = list(dict.fromkeys(sorted(found + chosen)))[: self._size + 1]
        return len(self._found) // NAMES_PER_UNIT

    def _is_meant(self, name: str) -> bool:
        if name <= self._after or not name.startswith(self._prefix):
            return False
        yard = self._door.yard
        if name not in yard.logs and name != EVENTS_TOPIC:
            queue = yard.queues.get(name)
            if queue is None or not is_topic(queue) or not is_topic_name(name):
                return False
        return may_see(self._call, name)

    def _add_line(self, name: str, now_ms: i64) -> i64:
        yard = self._door.yard
        queue = yard.queues.get(name)
        if name not in yard.logs and name != EVENTS_TOPIC and queue is None:
            # It was removed meanwhile.
            self._found.remove(name)
            self._gone_count += 1
            return 1
        # The first listing sorts the jobs by seq.
        jobs: i64 = 0 if queue is None or queue.jobs_by_seq is not None else queue.jobs_count()
        self._lines.append(_printed(_line(self._door, name, now_ms)))
        return LINE_UNITS + jobs

    def answer(self) -> None:
        """Answer with the page."""
        rest: dict[str, object] = {}
        if self._lines and len(self._found) + self._gone_count > self._size:
            rest["next_cursor"] = page_cursor(self._found[len(self._lines) - 1])
        rest["performance"] = {"server_total_ms": int(self._call.elapsed_us()) / 1000}
        lines = b",".join(self._lines)
        self._call.answer(200, b"".join([b'{"topics":[', lines, b"],", _printed(rest)[1:]]))


def _line(door: TopicsDoor, name: str, now_ms: i64) -> dict[str, object]:
    log = door.yard.logs.get(name)
    if name == EVENTS_TOPIC:
        state = events_state(door.yard)
        durability = FSYNC
    elif log is not None:
        state = log_state(door, log, now_ms)
        durability = log.config.durability
    else:
        queue = door.yard.queues[name]
        state = queue_state(door, queue)
        durability = config_of(queue).durability
    wanted = ("head_seq", "earliest_seq", "count", "bytes", "effective_priority")
    line: dict[str, object] = {"topic": name, "type": state["type"]}
    line.update((field, state[field]) for field in wanted)
    line["durable"] = durability == FSYNC
    line["incarnation"] = state["incarnation"]
    return line


def page_size(text: str) -> int:
    """Return the requested page size."""
    if not text:
        return PAGE_DEFAULT
    if not text.isdecimal() or not text.isascii():
        raise invalid("page_size must be a whole number")
    return max(1, min(decimal(text.encode()), PAGE_MAX))


def page_cursor(name: str) -> str:
    """Return the cursor of the page after a name."""
    return urlsafe_b64encode(name.encode()).decode()


def read_cursor(text: str) -> str:
    """Return the name after which a page begins."""
    try:
        after = urlsafe_b64decode(text.encode()).decode()
    except (NotBase64, ValueError):
        raise _bad_cursor() from None
    # The decoder skips characters that are not base64.
    is_name = is_router_name(after) or after == EVENTS_TOPIC
    if text and (not is_name or page_cursor(after) != text):
        raise _bad_cursor()
    return after


def _bad_cursor() -> HttpRefused:
    return invalid("invalid cursor")


def delete_topic(door: TopicsDoor, call: HttpCall) -> None:
    """DELETE /v0/topics/{topic}."""
    name = call.params[0]
    check_topic_name(name)
    if_empty = query_flag(call, "if_empty", otherwise=False)
    yard = door.yard
    log = yard.logs.get(name)
    queue = find_queue(yard, name)
    count: i64 = 0
    if log is not None:
        logs.trim(yard, log, call.now_ms)
        count = log.count
    elif queue is not None:
        count = topic_queue.counts(queue).count
    if if_empty and count > 0:
        raise HttpRefused(409, "topic_not_empty", f"{name} holds {count} records")
    if queue is None or log is not None:
        _answer_deleted(call, _delete(door, name, call.now_ms))
        return
    # The jobs are removed at once, and their memory is freed over the next turns.
    task = Obliteration(yard, queue)
    deleted: list[DeletedTopic] = []
    task.then = lambda now_ms: deleted.append(_delete(door, name, now_ms))
    LongCall(yard.tasks, call, task, lambda: _answer_deleted(call, deleted[0])).begin()


@final
class DeletedTopic:
    """What the answer to a delete shows."""

    def __init__(self, routers: list[str], *, is_synced: bool, was_there: bool) -> None:
        self.routers = routers
        self.is_synced = is_synced
        self.was_there = was_there


def _delete(door: TopicsDoor, name: str, now_ms: i64) -> DeletedTopic:
    yard = door.yard
    log = yard.logs.get(name)
    queue = find_queue(yard, name)
    is_synced = (
        log.config.durability == FSYNC if log is not None else queue is not None and queue.is_synced
    )
    removed = drop_routers_of(yard, name)
    drop_cursors_of(yard, name)
    was_there = drop_topic(yard, name, now_ms)
    if queue is not None:
        door.queue_readers.notify(queue)
    return DeletedTopic(removed, is_synced=is_synced, was_there=was_there)


def _answer_deleted(call: HttpCall, deleted: DeletedTopic) -> None:
    out = begin(call.params[0])
    put_bool(out, b',"deleted":', value=deleted.was_there)
    out.write(b',"routers_removed":')
    write_texts(out, deleted.routers)
    call.await_batch(call.session.journal.newest(), is_synced=deleted.is_synced)
    finish(call, out)


def _printed(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
