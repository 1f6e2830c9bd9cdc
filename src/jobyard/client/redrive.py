"""Redrives: moves dead letters and dead jobs of a queue back into it, once under a key."""

from collections.abc import Sequence
from typing import Final

from jobyard.client.answer import Answer
from jobyard.client.calls import YardClient, topic_path

# Letters or jobs that one call may name.
REDRIVE_MAX: Final = 10_000


def redrive(
    client: YardClient,
    queue: str,
    *,
    seqs: Sequence[int] | None = None,
    job_ids: Sequence[int] | None = None,
    patch: object = None,
    key: str = "",
    dry_run: bool = False,
) -> Answer:
    """Move the letters or dead jobs that are named, either of which; return what was moved.

    With a key the call may be repeated: what it has moved is not moved again. Without one it is
    sent once, and an error may mean that it was done.
    """
    body: dict[str, object] = {}
    if seqs is not None:
        body["seqs"] = list(seqs)
    if job_ids is not None:
        body["job_ids"] = list(job_ids)
    if patch is not None:
        body["patch"] = patch
    if key:
        body["key"] = key
    if dry_run:
        body["dry_run"] = True
    return client.ask(
        "POST",
        topic_path(queue, "redrive"),
        {**body, "strict": True},
        is_repeatable=bool(key) or dry_run,
    )
