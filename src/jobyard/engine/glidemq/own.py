"""Which jobs are glide-mq's own: its clients see jobs of all families, each with its own rules."""

from jobyard.model.family import GLIDE
from jobyard.model.job import Job


def is_own(job: Job) -> bool:
    """Return whether a job was put by a glide-mq client."""
    return job.family == GLIDE
