"""Queues that accept no jobs while a log has their name."""

from jobyard.engine.state.yard import Yard
from jobyard.model.topic.config import BARRED


def bar(yard: Yard, name: str) -> None:
    """Make a queue refuse jobs because a log has its name now, unless the queue has jobs."""
    queue = yard.queues.get(name)
    if queue is not None and queue.config is None and queue.jobs_count() == 0:
        queue.config = BARRED


def unbar(yard: Yard, name: str) -> None:
    """Make a queue accept jobs again: there is no longer a log with its name."""
    queue = yard.queues.get(name)
    if queue is not None and queue.config is BARRED:
        queue.config = None
