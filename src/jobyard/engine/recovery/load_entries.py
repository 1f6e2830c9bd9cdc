"""From what is remembered under keys to what it sets: rules, schedules, topics."""

from mypy_extensions import i64

from jobyard.engine.glidemq.stored_values import load_side
from jobyard.engine.jobs.queues import apply_settings, open_queue
from jobyard.engine.jobs.schedule import load_cron
from jobyard.engine.jobs.subscriptions import load_audiences
from jobyard.engine.state.names import rules_of
from jobyard.engine.state.yard import Yard
from jobyard.engine.topics.topic_setup import load_topic_queues
from jobyard.model.entry import AUDIENCE, COUNTED, CRON, GROUP, SETTINGS, SIDE, Entry
from jobyard.model.throttle.settings import Settings


def load_entries(yard: Yard, now_ms: i64) -> None:
    """Set again what was set before the last stop. Policies are known already."""
    parts: list[Entry] = []
    readers: list[Entry] = []
    for entry in yard.journal.entries.values():
        if entry.is_gone:
            continue
        if entry.kind == SETTINGS:
            settings = Settings()
            settings.fill(entry.value)
            queue = open_queue(yard, entry.key.decode())
            apply_settings(queue, settings, now_ms, is_new=False)
        elif entry.kind == GROUP:
            name, _, group_name = entry.key.decode().partition("\0")
            group = rules_of(open_queue(yard, name)).group(group_name)
            group.fill(entry.value, now_ms)
        elif entry.kind == COUNTED:
            open_queue(yard, entry.key.decode()).is_counted = True
        elif entry.kind == CRON:
            load_cron(yard, entry.key.decode(), entry.value, now_ms)
        elif entry.kind == SIDE:
            parts.append(entry)
        elif entry.kind == AUDIENCE:
            readers.append(entry)
    load_side(yard, parts, now_ms)
    load_audiences(yard, readers, now_ms)
    load_topic_queues(yard, now_ms)
