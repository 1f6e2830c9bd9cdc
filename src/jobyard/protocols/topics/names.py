"""Checks topic names. `_events` is reserved; no other name can begin with an underscore."""

from jobyard.model.topic.config import EVENTS_TOPIC, is_topic_name
from jobyard.protocols.http.call import HttpRefused
from jobyard.protocols.topics.body import invalid

__all__ = ["EVENTS_TOPIC", "check_read_name", "check_topic_name"]


def check_topic_name(name: str) -> None:
    """Refuse an invalid name of a topic to create or change."""
    if name == EVENTS_TOPIC:
        detail: dict[str, object] = {"reason": "read_only"}
        raise HttpRefused(403, "forbidden", f"{EVENTS_TOPIC} is read-only", detail)
    if not is_topic_name(name):
        raise invalid(
            "a topic name consists of 1 to 255 letters, digits and . _ : -, "
            "and begins with a letter or digit"
        )


def check_read_name(name: str) -> None:
    """Refuse an invalid name of a topic to read."""
    if name != EVENTS_TOPIC:
        check_topic_name(name)
