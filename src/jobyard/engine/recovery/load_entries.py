"""Restores what the entries of the journal set: rules, schedules, stored values, topics."""

from mypy_extensions import i64

from jobyard.engine.glidemq.stored_values import load_stored
from jobyard.engine.jobs.queues import apply_settings, open_queue
from jobyard.engine.jobs.schedule import load_cron
from jobyard.engine.state.names import rules_of
from jobyard.engine.state.yard import Yard
from jobyard.engine.subscriptions.subscriptions import load_subscriptions
from jobyard.engine.topics.topic_setup import load_topic_queues
from jobyard.model.entry import Entry, EntryKind
from jobyard.model.throttle.settings import Settings


def load_entries(yard: Yard, now_ms: i64) -> None:
    """Apply all entries again after a start. Replay has read the policies already."""
    parts: list[Entry] = []
    readers: list[Entry] = []
    for entry in yard.journal.entries.values():
        if entry.is_gone:
            continue
        if entry.kind == EntryKind.SETTINGS:
            settings = Settings()
            settings.fill(entry.value)
            queue = open_queue(yard, entry.key.decode())
            apply_settings(queue, settings, now_ms, is_new=False)
        elif entry.kind == EntryKind.GROUP:
            name, _, group_name = entry.key.decode().partition("\0")
            group = rules_of(open_queue(yard, name)).group(group_name)
            group.fill(entry.value, now_ms)
        elif entry.kind == EntryKind.COUNTED:
            open_queue(yard, entry.key.decode()).is_counted = True
        elif entry.kind == EntryKind.CRON:
            load_cron(yard, entry.key.decode(), entry.value, now_ms)
        elif entry.kind == EntryKind.STORED_VALUE:
            parts.append(entry)
        elif entry.kind == EntryKind.SUBSCRIPTIONS:
            readers.append(entry)
    load_stored(yard, parts, now_ms)
    load_subscriptions(yard, readers, now_ms)
    load_topic_queues(yard, now_ms)
