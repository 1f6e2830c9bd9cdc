"""Finds the topic of a call, a log or a queue, and creates or removes topics."""

from mypy_extensions import i64

from jobyard.engine.logs import logs
from jobyard.engine.state.yard import Yard
from jobyard.engine.topics import topic_setup
from jobyard.model.queue import Queue, is_topic
from jobyard.model.topic.config import LOG, QUEUE, BadConfig, TopicConfig, read_config
from jobyard.model.topic.log import LogTopic
from jobyard.protocols.http.call import HttpCall, HttpRefused
from jobyard.protocols.topics.api import check_name
from jobyard.protocols.topics.body import invalid
from jobyard.protocols.topics.names import EVENTS_TOPIC, check_read_name, check_topic_name
from jobyard.protocols.topics.records.events import is_events


def no_topic(name: str) -> HttpRefused:
    """Return the refusal of a call about a topic that does not exist."""
    hint = "no history is kept" if name == EVENTS_TOPIC else "create it with PUT"
    return HttpRefused(404, "topic_not_found", f"topic {name} does not exist; {hint}")


def find_queue(yard: Yard, name: str) -> Queue | None:
    """Return the queue with that name if it is visible as a topic."""
    queue = yard.queues.get(name)
    return queue if queue is not None and is_topic(queue) else None


def queue_of(yard: Yard, name: str) -> Queue:
    """Return the queue of a call; refuse logs and missing topics."""
    if name == EVENTS_TOPIC and not is_events(yard, name):
        raise no_topic(name)
    check_read_name(name)
    if name == EVENTS_TOPIC or name in yard.logs:
        raise HttpRefused(409, "not_a_queue", f"{name} is a log, not a queue")
    queue = find_queue(yard, name)
    if queue is None:
        raise no_topic(name)
    return queue


def log_of(yard: Yard, name: str) -> LogTopic:
    """Return the log of a call; refuse queues and missing topics."""
    check_topic_name(name)
    log = yard.logs.get(name)
    if log is not None:
        return log
    if find_queue(yard, name) is not None:
        raise HttpRefused(409, "not_a_log", f"{name} is a queue, not a log")
    raise no_topic(name)


def wanted_config(call: HttpCall, name: str, given: dict[str, object]) -> TopicConfig:
    """Return the configuration that a caller requests for a topic, checked against its key."""
    try:
        config = read_config(given)
    except BadConfig as bad:
        raise invalid(str(bad)) from None
    letters = config.dead_letter
    if letters == name:
        raise invalid("dead_letter must be another topic")
    if letters is not None:
        check_name(call, letters)
    return config


def check_dead_letter_topic(yard: Yard, config: TopicConfig) -> None:
    """Refuse a configuration that sends dead letters to a queue."""
    letters = config.dead_letter
    if letters is None or config.type != QUEUE or find_queue(yard, letters) is None:
        return
    # Dead letters would become jobs again and circulate forever.
    message = f"dead_letter must be a log, and {letters} is a queue"
    detail: dict[str, object] = {"reason": "dead_letter_queue"}
    raise HttpRefused(409, "topic_exists_incompatible", message, detail)


def make_topic(yard: Yard, name: str, config: TopicConfig, now_ms: i64) -> None:
    """Create a topic that does not exist."""
    if config.type == LOG:
        logs.open_log(yard, name, config, now_ms)
    else:
        topic_setup.open_topic_queue(yard, name, config, now_ms)


def drop_topic(yard: Yard, name: str, now_ms: i64) -> bool:
    """Remove a topic with all its records; return whether it existed."""
    log = yard.logs.get(name)
    if log is not None:
        logs.drop_log(yard, log, now_ms)
        return True
    queue = find_queue(yard, name)
    if queue is None:
        return False
    topic_setup.drop_topic_queue(yard, queue, now_ms)
    return True
