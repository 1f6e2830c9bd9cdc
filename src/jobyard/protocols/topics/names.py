"""What topics may be called, and the one name that is taken: no other topic begins like it."""

from jobyard.model.topic.config import EVENTS, is_topic_name
from jobyard.protocols.http.call import HttpRefused
from jobyard.protocols.topics.body import invalid

__all__ = ["EVENTS", "check_read_name", "check_topic_name"]


def check_topic_name(name: str) -> None:
    """Refuse what no topic may be called that somebody makes or changes."""
    if name == EVENTS:
        detail: dict[str, object] = {"reason": "read_only"}
        raise HttpRefused(403, "forbidden", f"{EVENTS} can only be read", detail)
    if not is_topic_name(name):
        raise invalid("a topic is named by letters, digits and . _ : -, at most 255 of them")


def check_read_name(name: str) -> None:
    """Refuse what no topic is called that somebody reads."""
    if name != EVENTS:
        check_topic_name(name)
