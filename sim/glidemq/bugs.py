"""Planted bugs that only runs with glide-mq clients can find: plain data, see `sim.bugs`.

Each is a story, the invariants that may find it, and changes of the sources as (module,
right text, wrong text).
"""

from __future__ import annotations

from typing import Final

Planted = tuple[str, frozenset[str], tuple[tuple[str, str, str], ...]]

_RESTART: Final = frozenset({"restart", "recovery twice"})
_REPLY: Final = frozenset({"reply", "state", "lease"})

GLIDE_BUGS: Final[dict[str, Planted]] = {
    "called-before-its-record": (
        "the answer to a function does not wait for the disk",
        frozenset({"answer before its record", "restart"}),
        (
            (
                "jobyard.protocols.glidemq.session",
                (
                    "                self._call_function(command, now_ms)\n"
                    "                self.narrow(before, self.journal.appended)\n"
                ),
                (
                    "                self._call_function(command, now_ms)\n"
                    "                self.narrow(before, 0)\n"
                ),
            ),
        ),
    ),
    "entry-kept": (
        "a worker that lost a job to a restart may end it although another runs it",
        frozenset({"order", "reply"}),
        (
            (
                "jobyard.engine.jobs.take",
                "            _renew_entry_after_restart(yard, job, now_ms)\n",
                "            assert _renew_entry_after_restart is not None\n",
            ),
        ),
    ),
    "entry-unchecked": (
        "any client that has the id of a job may end its run",
        _REPLY,
        (
            (
                "jobyard.engine.glidemq.finish",
                (
                    "    return not entry if lease.terms.proof == Proof.LISTED "
                    "else entry == entry_of(job)\n"
                ),
                "    return bool(lease)\n",
            ),
        ),
    ),
    "key-overtaken": (
        "a job of an ordering key starts before one that was put earlier",
        frozenset({"lease", "ordering", "waiters", "reply"}),
        (
            (
                "jobyard.model.throttle.ordering_group",
                "        return limits.is_sequential() and self.next_to_start() is not job\n",
                "        return limits.capacity < 0\n",
            ),
        ),
    ),
    "slot-forgotten": (
        "a job that will be retried gives its slot away",
        frozenset({"orderings", "ordering", "lease"}),
        (
            (
                "jobyard.engine.state.yard",
                (
                    "            self.arm(job.queue, job.due_ms)\n"
                    "            if job.details is not None:\n"
                    "                use_slot(job, job.details, 1)\n"
                ),
                "            self.arm(job.queue, job.due_ms)\n",
            ),
            (
                "jobyard.engine.state.yard",
                "            self.delayed_count -= 1\n        else:\n",
                "            self.delayed_count -= 1\n            return\n        else:\n",
            ),
        ),
    ),
    "ready-list-forgotten": (
        "after a restart every job is in the stream",
        _RESTART,
        (
            (
                "jobyard.engine.recovery.replay",
                "        job.ready_list = u8(_ready_list_at(data, pos))\n",
                "        job.ready_list = u8(0)\n",
            ),
        ),
    ),
    "parent-let-go-early": (
        "a parent continues with its first child",
        frozenset({"state", "reply", "waiters", "members"}),
        (
            (
                "jobyard.engine.jobs.flows",
                "    return others == (1 if member.state == MemberState.OPEN else 0)\n",
                "    return others >= 0\n",
            ),
        ),
    ),
    "child-untold": (
        "the end of a child is not recorded for its parent",
        _RESTART,
        (
            (
                "jobyard.engine.jobs.flows",
                (
                    "        yard.note(parent, fields.done(), is_needed=True)\n"
                    "    yard.names.stop_waiting(parent, member.child_id)\n"
                ),
                (
                    "        yard.apply_changes(parent, fields.done())\n"
                    "    yard.names.stop_waiting(parent, member.child_id)\n"
                ),
            ),
        ),
    ),
    "side-field-unrecorded": (
        "fields of stored values and deduplication entries do not survive the process",
        _RESTART,
        (
            (
                "jobyard.engine.glidemq.stored_values",
                "        _note(yard, key, tag + field, value)\n",
                "        assert tag\n",
            ),
        ),
    ),
    "sign-of-life-kept": (
        "expired keys exist again after a restart",
        _RESTART,
        (
            (
                "jobyard.engine.glidemq.stored_values",
                "    is_noted = yard.journal.is_on and expires_ms - now_ms > VOLATILE_MS\n",
                "    is_noted = yard.journal.is_on\n",
            ),
        ),
    ),
    "pause-stops-nobody": (
        "workers read from the stream of a queue that is paused",
        frozenset({"lease"}),
        (
            (
                "jobyard.engine.state.admission",
                (
                    "    if not is_open(queue, rules, now_ms):\n        return None\n"
                    "    ready = queue.ready.items\n"
                ),
                "    ready = queue.ready.items\n",
            ),
        ),
    ),
    "one-attempt-more": (
        "a job is tried once more than its worker allows",
        _REPLY,
        (
            (
                "jobyard.engine.jobs.finish",
                "        limit = max(limit, 1)\n",
                "        limit = max(limit, 1) + 1\n",
            ),
        ),
    ),
    "sign-of-life-unheard": (
        "a worker that sends heartbeats loses its job",
        frozenset({"reply"}),
        (
            (
                "jobyard.protocols.glidemq.keyspace.views.writes",
                "        beat(job, now_ms)\n",
                "        assert beat is not None\n",
            ),
        ),
    ),
    "old-job-kept": (
        "an expired job keeps waiting",
        frozenset({"lease", "reply", "state"}),
        (
            (
                "jobyard.engine.jobs.move",
                "            make_expired_dead(yard, job, now_ms)\n",
                "            assert make_expired_dead is not None\n",
            ),
        ),
    ),
    "data-unrecorded": (
        "a restart forgets new data of a job",
        _RESTART | {"body", "live bytes"},
        (
            (
                "jobyard.engine.jobs.move",
                "        journal.append_body(job, body)\n",
                "        job.size = len(body)\n",
            ),
        ),
    ),
    "transaction-in-pieces": (
        "a crash may leave half of a transaction behind",
        frozenset({"pieces"}),
        (
            (
                "jobyard.protocols.glidemq.session",
                "            self.journal.make_room(room_of(self.door.yard, queued))\n",
                "            pass\n",
            ),
        ),
    ),
    "last-promoted-first": (
        "of two jobs with a priority the one that came later is promoted first",
        frozenset({"order", "reply"}),
        (
            (
                "jobyard.engine.glidemq.move",
                "            best = staged[0]\n",
                "            best = staged[-1]\n",
            ),
        ),
    ),
    "note-unrecorded": (
        "a restart forgets fields that a client set on a job",
        _RESTART,
        (
            (
                "jobyard.protocols.glidemq.keyspace.views.writes",
                "    if is_noted or part is not None:\n        yard.note(job, changes.done())\n",
                (
                    "    if is_noted or part is not None:\n"
                    "        yard.apply_changes(job, changes.done())\n"
                ),
            ),
        ),
    ),
    "custom-id-twice": (
        "an id that a client chose is given to a second job",
        frozenset({"reply", "ids", "names"}),
        (
            (
                "jobyard.engine.glidemq.add",
                "(spec.is_taken or find(yard, queue, chosen) is not None):\n",
                "(spec.is_taken or find(yard, queue, spec.name) is not None):\n",
            ),
        ),
    ),
}
