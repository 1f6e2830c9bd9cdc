"""Planted bugs that only runs with topics clients can find: plain data, see `sim.bugs`.

Each is a story, the invariants that may find it, and changes of the sources as (module,
right text, wrong text).
"""

from __future__ import annotations

from typing import Final

Planted = tuple[str, frozenset[str], tuple[tuple[str, str, str], ...]]

_RESTART: Final = frozenset({"restart", "recovery twice", "seqs"})

TOPICS_BUGS: Final[dict[str, Planted]] = {
    "seqs-not-ahead": (
        "a log discloses seqs before their sync and reserves none",
        _RESTART,
        (
            (
                "jobyard.engine.logs.logs",
                "        _reserve(yard, log, seq_after, len(items.seqs))\n",
                "        pass\n",
            ),
        ),
    ),
    "gap-untold": (
        "a clean stop after a crash goes back to seqs that were skipped",
        _RESTART,
        (
            (
                "jobyard.engine.recovery.open_yard",
                "        journal.append_head(log)\n",
                "        assert log.number > 0\n",
            ),
        ),
    ),
    "log-key-forgotten": (
        "the keys of writes to logs do not survive the process",
        _RESTART,
        (
            (
                "jobyard.engine.recovery.log_replay",
                "        log.keys.put(rows.key, key)\n",
                "        live_bytes.forget_key(key)\n",
            ),
        ),
    ),
    "cursor-forgotten": (
        "the cursors of readers do not survive the process",
        _RESTART,
        (
            (
                "jobyard.engine.logs.cursors",
                "        yard.journal.set_entry(EntryKind.CURSOR, new.key(), new.encode())\n",
                "        assert new.encode()\n",
            ),
        ),
    ),
    "hold-passed": (
        "a log is trimmed past a cursor that holds its records",
        frozenset({"state", "reply", "restart"}),
        (
            (
                "jobyard.engine.logs.cursors",
                "        return first\n    if log.bytes_between",
                "        return first + 1\n    if log.bytes_between",
            ),
        ),
    ),
    "queue-key-forgotten": (
        "the keys of writes to queues are not recorded",
        _RESTART | {"live bytes"},
        (
            (
                "jobyard.engine.topics.topic_setup",
                (
                    "        journal.set_entry"
                    "(EntryKind.WRITE, _write_key(queue.number, key), out.getvalue())\n"
                ),
                "        assert out.getvalue()\n",
            ),
        ),
    ),
    "record-key-forgotten": (
        "the keys of records do not survive the process",
        _RESTART | {"live bytes"},
        (
            (
                "jobyard.engine.state.record_keys",
                "        journal.append_keys(rows)\n",
                "        assert rows.digests\n",
            ),
        ),
    ),
    "record-key-dropped": (
        "compaction forgets the keys of records",
        _RESTART | {"live bytes"},
        (
            (
                "jobyard.engine.recovery.compaction",
                "                saved.add_key(table, number, digest, seq, at_ms)\n",
                "                pass\n",
            ),
        ),
    ),
    "record-key-kept-too-long": (
        "a record is taken for a duplicate though its key is older than the window",
        _RESTART | {"reply", "state"},
        (
            (
                "jobyard.model.topic.key_table",
                "return max(now_ms - self.window_ms, self.floor_ms)",
                "return self.floor_ms if now_ms > 0 else now_ms",
            ),
        ),
    ),
    "record-key-brought-back": (
        "a longer window makes keys valid again that were not",
        _RESTART | {"reply", "state"},
        (
            (
                "jobyard.engine.state.record_keys",
                "        table.floor_ms = table.valid_after(now_ms)\n",
                "        assert table.window_ms < window_ms\n",
            ),
        ),
    ),
    "duplicate-written": (
        "of two records of one write with the same key both are written",
        frozenset({"reply", "state"}),
        (
            (
                "jobyard.model.topic.new_keys",
                "                if first < 0:\n",
                "                if first != -9:\n",
            ),
        ),
    ),
    "deleted-back-by-floor": (
        "records deleted below a seq come back after a restart",
        _RESTART | {"live bytes"},
        (
            (
                "jobyard.engine.recovery.log_replay",
                "log.erased_floor = max(log.erased_floor, read_i64_le(data, pos + 48))",
                "log.erased_floor = max(log.erased_floor, 1)",
            ),
        ),
    ),
    "deleted-back-by-tag": (
        "records deleted by their tag come back after a restart",
        _RESTART | {"live bytes"},
        (
            (
                "jobyard.engine.logs.erase",
                "    yard.journal.append_erased(log, records)\n",
                "",
            ),
        ),
    ),
    "erased-dropped": (
        "compaction forgets which records were deleted while their segment still exists",
        _RESTART | {"live bytes"},
        (
            (
                "jobyard.engine.recovery.compaction",
                "                saved.add_erased(erased)\n",
                "                pass\n",
            ),
        ),
    ),
    "head-dropped": (
        "compaction forgets the heads of logs",
        _RESTART | {"live bytes", "KeyError"},
        (
            (
                "jobyard.engine.recovery.compaction",
                "                saved.add_head(log)\n",
                "                pass\n",
            ),
        ),
    ),
    "key-dropped": (
        "compaction saves the records of a write and forgets its key",
        _RESTART | {"live bytes"},
        (("jobyard.engine.recovery.compaction", "            keyed.key = rows.key\n", ""),),
    ),
    "older-log-wins": (
        "of two logs of one name a restart brings back the dropped one",
        _RESTART,
        (
            (
                "jobyard.engine.recovery.log_replay",
                "(known is None or known.number < log.number)",
                "(known is None or known.number > log.number)",
            ),
        ),
    ),
    "lease-name-unchecked": (
        "a client that has a seq may end a newer lease than its own",
        frozenset({"reply"}),
        (
            (
                "jobyard.engine.topics.topic_queue",
                'lease_ids[each] not in ("", lease_name(yard, lease))',
                'lease_ids[each] == "never"',
            ),
        ),
    ),
    "node-unchecked": (
        "a node may end the leases of others",
        frozenset({"reply"}),
        (
            (
                "jobyard.engine.topics.topic_queue",
                "lease is None or not lease.terms.is_node(node) or lease",
                "lease is None or lease",
            ),
        ),
    ),
    "nack-without-delay": (
        "a job that is given back with a delay is ready at once",
        frozenset({"reply", "state", "counters"}),
        (
            (
                "jobyard.engine.topics.topic_queue",
                "release(yard, job, job.rank, max(delay_ms, 0), now_ms, error=error)",
                "release(yard, job, job.rank, 0, now_ms, error=error)",
            ),
        ),
    ),
    "deliveries-forgotten": (
        "the deliveries of a poison job are counted from zero after a crash",
        _RESTART,
        (
            (
                "jobyard.engine.state.yard",
                "        job.deliveries += 1\n",
                "        job.deliveries += 0 if lease is None else 1\n",
            ),
        ),
    ),
    "eviction-untold": (
        "jobs that a queue lost by its cap are not recorded",
        _RESTART,
        (
            (
                "jobyard.engine.jobs.put",
                "victims[-1].key + 1)\n    remember_floors(yard, queue)\n",
                "victims[-1].key + 1)\n",
            ),
        ),
    ),
    "queue-seqs-reused": (
        "the seqs of a queue start again once its newest jobs are gone",
        _RESTART,
        (
            (
                "jobyard.engine.jobs.put",
                "is_due = i64(queue.segment) != journal.hot.number",
                "is_due = i64(queue.segment) < 0",
            ),
        ),
    ),
    "router-behind-forgotten": (
        "a late router counts as caught up after a restart",
        _RESTART,
        (
            (
                "jobyard.engine.topics.routers",
                "    router.is_behind = True\n    _is_remembered(yard, router)\n",
                "    router.is_behind = True\n",
            ),
        ),
    ),
    "router-passes-all": (
        "a router forwards records that its filter excludes",
        frozenset({"reply", "state"}),
        (
            (
                "jobyard.model.topic.router",
                "return tag.startswith(self.tag) if self.is_prefix else tag == self.tag",
                'return tag != "z"',
            ),
        ),
    ),
    "reader-forgotten": (
        "a client that waits for a log is not notified of new records",
        frozenset({"waiters"}),
        (
            (
                "jobyard.engine.logs.logs",
                "        trim(yard, log, now_ms)\n    _notify_readers(log)\n    if len(items.seqs)",
                "        trim(yard, log, now_ms)\n    if len(items.seqs)",
            ),
        ),
    ),
    "trimmed-once": (
        "expired data stays after the first check",
        frozenset({"ttl"}),
        (
            (
                "jobyard.engine.logs.logs",
                "        set_alarm(self._yard, self._log, now_ms)\n",
                "",
            ),
        ),
    ),
    "page-before-its-records": (
        "records are shown before they are on disk",
        frozenset({"answer before its record", "restart"}),
        (
            (
                "jobyard.protocols.topics.records.pages",
                "    call.await_batch(page.batch, is_synced=page.is_synced)\n",
                "    call.await_batch(0, is_synced=page.is_synced)\n",
            ),
        ),
    ),
    "refused-before-its-record": (
        "a refusal waits for nothing, though it discloses a removal",
        frozenset({"answer before its record", "restart"}),
        (
            (
                "jobyard.protocols.http.session",
                "        self.enough = -1\n        call.answer(\n            refused.status",
                "        self.enough = 0\n        call.answer(\n            refused.status",
            ),
        ),
    ),
    "fsync-not-asked": (
        "a write to a topic of class fsync is answered before the sync",
        frozenset({"answer before its record", "restart"}),
        (
            (
                "jobyard.protocols.http.call",
                "            session.await_synced(number)\n",
                "            assert number >= 0\n",
            ),
        ),
    ),
    "letter-kept-when-driven-back": (
        "a redriven dead letter also stays a dead letter",
        frozenset({"reply", "state"}) | _RESTART,
        (
            (
                "jobyard.engine.topics.topic_queue",
                "    erase_seqs(yard, log, [int(seq)])\n",
                "    assert log.count > 0\n",
            ),
        ),
    ),
    "redrive-key-forgotten": (
        "a redrive does not store the keys of the letters that it moves",
        frozenset({"reply", "state"}) | _RESTART,
        (
            (
                "jobyard.engine.topics.topic_queue",
                "    batch.record_keys = keys\n",
                "    assert batch.record_keys is None\n",
            ),
        ),
    ),
    "bytes-copied-as-json": (
        "bytes that a router copies from a log to a queue become JSON",
        frozenset({"reply", "state", "JSONDecodeError"}) | _RESTART,
        (
            (
                "jobyard.engine.topics.job_batch",
                "    record.is_binary = row.is_binary\n",
                "    assert row.is_binary or not record.is_binary\n",
            ),
        ),
    ),
    "error-unrecorded": (
        "the error of a nack is not among the changes of the job in the journal",
        frozenset({"reply", "state"}) | _RESTART,
        (
            (
                "jobyard.model.details_codec",
                "        fields.text(Tag.ERROR, details.last_error)\n",
                "        pass\n",
            ),
        ),
    ),
    "half-a-commit": (
        "a commit writes to the first of its topics only",
        frozenset({"reply", "state"}),
        (
            (
                "jobyard.engine.topics.transactions",
                "        for target in self._targets:\n            written",
                "        for target in self._targets[:1]:\n            written",
            ),
        ),
    ),
    "letter-without-error": (
        "a commit drops the errors of the jobs that it gives up",
        frozenset({"reply", "state"}) | _RESTART,
        (
            (
                "jobyard.engine.topics.commit_ends",
                "bury(yard, job, job.rank, now_ms, error=end.error)",
                "bury(yard, job, job.rank, now_ms)",
            ),
        ),
    ),
    "other-chunk-taken": (
        "a chunk of another content passes for the one that is staged",
        frozenset({"reply", "state"}) | _RESTART,
        (
            (
                "jobyard.engine.topics.stages",
                "        if known.write_key != write_key:\n",
                "        if known.rows != items.count():\n",
            ),
        ),
    ),
    "commit-without-cursor": (
        "a commit says that it has set cursors, and sets none",
        frozenset({"reply", "state"}) | _RESTART,
        (
            (
                "jobyard.engine.topics.transactions",
                "            apply_cursor(yard, change.cursor, now_ms)\n",
                "            assert change.cursor.name\n",
            ),
        ),
    ),
    "set-not-extended": (
        "an extended claim set keeps its old deadlines in the journal",
        frozenset({"lease", "claim set", "reply", "state"}) | _RESTART,
        (
            (
                "jobyard.engine.topics.claim_sets",
                "            keep_lease(yard, lease)\n            self.count += 1\n",
                "            self.count += 1\n",
            ),
        ),
    ),
    "staged-key-forgotten": (
        "a commit does not store the keys of the records that it writes",
        frozenset({"reply", "state"}),
        (
            (
                "jobyard.engine.topics.commit_targets",
                "        self._rows.record_keys = self.keys\n",
                "        assert self._rows.record_keys is None\n",
            ),
            (
                "jobyard.engine.topics.commit_targets",
                "            remember_job_keys(yard, queue, self.keys, first_seq, now_ms)\n",
                "            assert first_seq > 0\n",
            ),
        ),
    ),
    "staged-key-unread": (
        "the keys of staged records do not survive the log of stages",
        frozenset({"reply", "state"}) | _RESTART,
        (
            (
                "jobyard.engine.topics.staged_rows",
                "            row.key_digest = b64decode(more[_MORE_FIELDS])\n",
                "            assert not row.key_digest\n",
            ),
        ),
    ),
    "result-without-its-ack": (
        "a commit writes the records of jobs whose runs it could not end",
        frozenset({"reply", "state"}),
        (
            (
                "jobyard.engine.topics.commit_targets",
                "                if (row.with_queue, int(row.with_seq)) not in ending:\n",
                "                if not row.with_queue:\n",
            ),
        ),
    ),
    "stage-seen": (
        "after a restart the log of stages is a topic like any other",
        _RESTART | {"topics"},
        (
            (
                "jobyard.engine.recovery.log_replay",
                "            yard.txns.log = log\n",
                "            yard.logs[log.name] = log\n",
            ),
        ),
    ),
    "stage-forgotten": (
        "what is staged does not survive the process",
        _RESTART | {"reply"},
        (
            (
                "jobyard.engine.topics.stages",
                "        if is_over or count_between",
                "        if not is_over or count_between",
            ),
        ),
    ),
    "commit-forgotten": (
        "the outcome of a transaction does not survive the process",
        _RESTART | {"reply"},
        (
            (
                "jobyard.engine.topics.stages",
                (
                    "        journal.set_entry(EntryKind.TXN, name.encode(), "
                    "decided.encode(journal.wall_offset_ms))\n"
                ),
                "        assert decided.encode(journal.wall_offset_ms)\n",
            ),
        ),
    ),
    "fence-passed": (
        "a worker with an older epoch may still commit",
        frozenset({"reply"}),
        (
            (
                "jobyard.engine.topics.fences",
                "    if fence is not None and epoch < fence.epoch:\n",
                "    if fence is not None and epoch < 0:\n",
            ),
        ),
    ),
    "fence-passed-again": (
        "a commit that is repeated by a newer driver does not shut out the older one",
        frozenset({"reply", "restart"}),
        (
            (
                "jobyard.engine.topics.transactions",
                "            self._raise_fence(now_ms)\n",
                (
                    "            if self._yard.txns.decided.get(self._request.name) is None:\n"
                    "                self._raise_fence(now_ms)\n"
                ),
            ),
        ),
    ),
    "claim-set-given-twice": (
        "an id that was used before claims other jobs",
        frozenset({"reply", "lease", "claim set"}),
        (
            (
                "jobyard.engine.topics.claim_sets",
                "        if known is not None:\n",
                "        if known is not None and not known.node:\n",
            ),
        ),
    ),
    "claim-set-forgotten": (
        "claim sets do not survive the process",
        _RESTART | {"reply"},
        (
            (
                "jobyard.engine.topics.claim_sets",
                "    journal.set_entry(EntryKind.CLAIM_SET, key, value)\n",
                "    assert value\n",
            ),
        ),
    ),
}
