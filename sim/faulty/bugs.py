"""Planted bugs that only runs on a faulty disk can find, or find soonest: see `sim.bugs`.

Each is a story, the invariants that may find it, and changes of the sources as (module,
right text, wrong text).
"""

from __future__ import annotations

from typing import Final

Planted = tuple[str, frozenset[str], tuple[tuple[str, str, str], ...]]

_ROUTERS: Final = frozenset({"routers", "liveness"})

FAULTY_BUGS: Final[dict[str, Planted]] = {
    "ends-refused-while-full": (
        "a full disk refuses the ends of jobs of topics and glide-mq",
        frozenset({"full disk", "StorageFull"}),
        (
            (
                "jobyard.journal.batches",
                "return self.live_bytes.jobs_count * RESERVED_PER_JOB + 2 * self.segment_size",
                "return 0",
            ),
        ),
    ),
    "kept-claim-pretended": (
        "a durable lease is given at the door although it cannot be recorded",
        frozenset({"restart"}),
        (
            (
                "jobyard.engine.jobs.durable_leases",
                "    yard.note(lease.job, fields.done(), is_needed=True)\n",
                (
                    "    if not yard.journal.is_full:\n"
                    "        yard.note(lease.job, fields.done(), is_needed=True)\n"
                ),
            ),
        ),
    ),
    "lost-result-untold": (
        "a glide-mq client gets no report that a full disk did not keep a result",
        frozenset({"full disk"}),
        (
            (
                "jobyard.protocols.glidemq.keyspace.views.job",
                "(job.state == DEAD or outcome.reason == FailureReason.RESULT_LOST)",
                "job.state == DEAD",
            ),
        ),
    ),
    "full-for-ever": (
        "a disk that was full once refuses new jobs for good",
        frozenset({"full disk"}),
        (
            (
                "jobyard.journal.batches",
                "        if self.is_full and now_ms >= self._full_until_ms:\n",
                "        if self.is_full and now_ms < 0:\n",
            ),
        ),
    ),
    "damaged-body-given": (
        "topics and glide-mq clients get a damaged body",
        frozenset({"silent damage"}),
        (
            (
                "jobyard.journal.bodies",
                "len(body) == size and crc32(body) == job.crc",
                "len(body) == size",
            ),
        ),
    ),
    "damaged-job-done": (
        "a job whose body cannot be read counts as done",
        frozenset({"lost"}),
        (
            (
                "jobyard.engine.jobs.take",
                "    move = Transition(job, Cause.CORRUPT, DEAD)\n",
                "    move = Transition(job, Cause.CORRUPT, 5)\n",
            ),
        ),
    ),
    "late-router-gives-up": (
        "a late router stops after one slice",
        _ROUTERS,
        (
            (
                "jobyard.engine.topics.routers",
                "            elif router.is_behind:\n",
                "            elif not router.is_behind:\n",
            ),
        ),
    ),
    "late-router-copies-twice": (
        "a late router begins each slice with the last record of the previous one",
        _ROUTERS,
        (
            (
                "jobyard.engine.topics.routers",
                "    router.cursor = found.last_seq\n",
                "    router.cursor = found.last_seq - (router.is_behind and most > 1)\n",
            ),
        ),
    ),
    "late-router-skips": (
        "a late router skips the first record of each slice",
        _ROUTERS,
        (
            (
                "jobyard.engine.topics.routers",
                "    for i in range(len(found.rows)):\n        row = found.rows[i]\n        if",
                (
                    "    for i in range(1 if router.is_late else 0, len(found.rows)):\n"
                    "        row = found.rows[i]\n        if"
                ),
            ),
        ),
    ),
}
