"""Queues that may take no jobs while a log has their name."""

from jobyard.engine.state.yard import Yard
from jobyard.model.topic.config import BARRED


def bar(yard: Yard, name: str) -> None:
    """Let a queue take no jobs: its name is that of a log now. One that has jobs goes on."""
    queue = yard.queues.get(name)
    if queue is not None and queue.config is None and queue.jobs_count() == 0:
        queue.config = BARRED


def unbar(yard: Yard, name: str) -> None:
    """Let a queue take jobs again: there is no log of that name any more."""
    queue = yard.queues.get(name)
    if queue is not None and queue.config is BARRED:
        queue.config = None
