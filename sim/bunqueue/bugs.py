"""Planted bugs that only runs with bunqueue clients can find: plain data, see `sim.bugs`.

Each is a story, the invariants that may find it, and changes of the sources as (module,
right text, wrong text).
"""

from __future__ import annotations

from typing import Final

Planted = tuple[str, frozenset[str], tuple[tuple[str, str, str], ...]]

_RESTART: Final = frozenset({"restart", "recovery twice", "no job from nowhere"})

BUN_BUGS: Final[dict[str, Planted]] = {
    "lock-token-unchecked": (
        "any client that has the id of a locked job may finish it",
        frozenset({"reply"}),
        (
            (
                "jobyard.protocols.bunqueue.commands.jobs",
                "    if token_number(session.yard, token) != lease.key:\n",
                "    if token_number(session.yard, token) == -2:\n",
            ),
        ),
    ),
    "key-freed-by-retry": (
        "a job that is retried lets others with its key in",
        frozenset({"dedup", "state"}) | _RESTART,
        (
            (
                "jobyard.engine.state.yard",
                (
                    "        self._leave(job)\n        why = end.why\n"
                    "        if why == Cause.RELEASED:\n"
                ),
                (
                    "        self._leave(job)\n        self.names.free_key(job)\n"
                    "        why = end.why\n        if why == Cause.RELEASED:\n"
                ),
            ),
        ),
    ),
    "attempts-forgotten": (
        "a restart resets the attempts of every job",
        _RESTART,
        (
            (
                "jobyard.engine.recovery.replay",
                "        end.attempts = i64(read_i32_le(data, pos + 48)) & ATTEMPTS_BITS\n",
                "        end.attempts = 0\n",
            ),
        ),
    ),
    "result-dropped": (
        "compaction forgets the results of jobs",
        _RESTART | {"live bytes", "result"},
        (
            (
                "jobyard.model.details_codec",
                "    if outcome is not None and outcome.result_size > 0:\n        # The last",
                "    if outcome is not None and outcome.result_size < 0:\n        # The last",
            ),
        ),
    ),
    "child-ends-first": (
        "clients that wait for a job are notified in a later batch than that of its end",
        frozenset({"members", "liveness"}) | _RESTART,
        (
            (
                "jobyard.engine.jobs.finish",
                (
                    "    if yard.names.dependents.count > 0:\n"
                    "        flows.settle(yard, job, result, now_ms)\n"
                ),
                (
                    "    if yard.names.dependents.count > 0:\n        yard.journal.seal_batch()\n"
                    "        flows.settle(yard, job, result, now_ms)\n"
                ),
            ),
        ),
    ),
    "revived-without-reset": (
        "a job that is brought back has no attempts left",
        frozenset({"state", "attempts"}),
        (
            (
                "jobyard.engine.jobs.move",
                "        move.stamp = yard.new_place(job, now_ms)\n        move.attempts = 0\n",
                "        move.stamp = yard.new_place(job, now_ms)\n",
            ),
        ),
    ),
    "old-base-not-killed": (
        "a job whose body was replaced comes back after its end",
        _RESTART | {"live bytes", "JournalDamaged", "AssertionError", "KeyError"},
        (
            (
                "jobyard.journal.journal",
                "        for base in details.old_bases:\n            if base in self.segments:\n",
                "        for base in details.old_bases:\n            if base < 0:\n",
            ),
        ),
    ),
    "policy-dropped": (
        "compaction forgets the options of jobs",
        _RESTART | {"JournalDamaged"},
        (
            (
                "jobyard.engine.recovery.compaction",
                "        if journal.is_entry_needed(entry, victim):\n",
                "        if kind != 1 and journal.is_entry_needed(entry, victim):\n",
            ),
        ),
    ),
    "long-body-written-again": (
        "a long body that a short one replaced at once is written with every batch from then on",
        frozenset({"liveness", "disk use"}),
        (
            (
                "jobyard.journal.batches",
                "        if bodies:\n",
                "        if self._long_jobs:\n",
            ),
        ),
    ),
    "settings-not-recorded": (
        "a pause or a limit does not survive the process",
        _RESTART,
        (
            (
                "jobyard.engine.jobs.queues",
                "            yard.journal.set_entry(EntryKind.SETTINGS, key, settings.encode())\n",
                "            pass\n",
            ),
        ),
    ),
    "late-token-kept": (
        "a token stays valid after the job was given to another client",
        frozenset({"reply"}),
        (
            (
                "jobyard.engine.jobs.take",
                "        details.last_lease = 0\n",
                "        details.last_lease += 0\n",
            ),
            (
                "jobyard.engine.jobs.finish",
                "        job.details.last_lease = 0\n",
                "        job.details.last_lease += 0\n",
            ),
        ),
    ),
    "ended-twice": (
        "a token that failed a job can fail it again",
        frozenset({"reply"}),
        (
            (
                "jobyard.engine.jobs.finish",
                "        and end.why in (Cause.STALLED, Cause.HOLDER_LEFT)\n",
                "        and end.why >= 0\n",
            ),
        ),
    ),
    "stalls-forgotten": (
        "a state record does not store how often a job stalled",
        _RESTART,
        (
            (
                "jobyard.engine.recovery.replay",
                "            counters.stalls = read_i32_le(data, at + 64)\n",
                "",
            ),
        ),
    ),
    "unblocked-too-soon": (
        "a job runs when the first of its dependencies is done",
        frozenset({"state", "members", "lease"}),
        (
            (
                "jobyard.engine.jobs.flows",
                "(is_enough or _is_last(parent, member))",
                "(is_enough or member is not None)",
            ),
        ),
    ),
    "given-before-durable": (
        "a job is delivered before its put is on disk",
        frozenset({"answer before its record"}),
        (
            (
                "jobyard.protocols.bunqueue.session",
                "            newest = max(newest, lease.job.batch)\n",
                "",
            ),
        ),
    ),
    "policy-number-reused": (
        "a restart forgets which policy numbers were assigned",
        _RESTART | {"live bytes"},
        (
            (
                "jobyard.engine.recovery.replay",
                "max(self._yard.next_policy, policy.number + 1)",
                "self._yard.next_policy",
            ),
        ),
    ),
    "batch-half-entered": (
        "a batch with a refused job leaves the others behind",
        frozenset({"counters", "state", "dedup"}),
        (
            (
                "jobyard.protocols.bunqueue.commands.push_batch",
                "                    links.refuse_taken(queue, now_ms)\n",
                "                    assert now_ms >= 0\n",
            ),
            (
                "jobyard.protocols.bunqueue.commands.push_batch",
                "        job = commit(self._yard, queue, new_job, links, now_ms)\n",
                (
                    "        if links is not None:\n"
                    "            links.refuse_taken(queue, now_ms)\n"
                    "        job = commit(self._yard, queue, new_job, links, now_ms)\n"
                ),
            ),
        ),
    ),
    "key-kept-by-replaced": (
        "a job replaced while it ran owns its key again after a restart",
        _RESTART | {"dedup"},
        (
            (
                "jobyard.engine.jobs.unique_keys",
                "        yard.note(owner, changes.done(), is_needed=True)\n    else:\n",
                "    else:\n",
            ),
        ),
    ),
    "obliterated-by-halves": (
        "jobs of an obliterated queue that are not freed yet exist after a restart",
        _RESTART | {"state", "counters"},
        (
            (
                "jobyard.engine.jobs.obliterate",
                "        if entry.kind == EntryKind.CONDEMNED and not entry.is_gone:\n",
                "        if entry.kind == EntryKind.CONDEMNED and entry.is_gone:\n",
            ),
        ),
    ),
    "obliterated-seen": (
        "a job of an obliterated queue is found by its id until it is freed",
        frozenset({"reply", "state", "counters", "dedup", "AssertionError()"}) | _RESTART,
        (
            (
                "jobyard.model.index.job_table",
                "        return None if job is None or job.id < job.queue.gone_before else job\n",
                "        return job\n",
            ),
        ),
    ),
    "slice-skips": (
        "a slice of a long removal skips a job",
        frozenset({"reply", "state", "counters"}),
        (
            (
                "jobyard.engine.jobs.clearing",
                "job = self._found.pop()\n            done += 1\n            if self._is",
                (
                    "job = self._found.pop()\n            done += 1\n"
                    "            if done > most // 2:\n                continue\n"
                    "            if self._is"
                ),
            ),
        ),
    ),
}
