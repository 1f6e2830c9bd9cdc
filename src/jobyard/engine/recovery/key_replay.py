"""Rebuilds the keys of records from the journal.

Copies that compaction made are read later than younger keys, so keys are collected in any order and
sorted by their age at the end, if they must be. A table without an entry belongs to a topic that
was dropped.
"""

from operator import itemgetter
from typing import final

from mypy_extensions import i64

from jobyard.engine.state.record_keys import count_memory, read_table, set_expiry
from jobyard.engine.state.yard import Yard
from jobyard.engine.topics.topic_setup import topic_state_of
from jobyard.journal.format.key_record import read_keys
from jobyard.journal.format.segment import Segment
from jobyard.model.entry import EntryKind
from jobyard.model.topic.config import QUEUE
from jobyard.model.topic.key_table import KeyTable


@final
class KeyReplay:
    """Applies the records of keys to a yard."""

    def __init__(self, yard: Yard) -> None:
        self._yard = yard
        self._live_bytes = yard.journal.live_bytes
        self._tables: dict[int, KeyTable] = {}
        # The time of the newest key of each table, as long as its keys came by age; then absent.
        self._newest: dict[int, int] = {}
        # From the clock of the boot that wrote a batch to that of this one.
        self.offset_ms: i64 = 0

    def apply(self, data: bytes, pos: i64, segment: Segment) -> None:
        """Apply a KEYS."""
        rows = read_keys(data, pos)
        table = self._table_of(rows.table)
        newest = self._newest.get(rows.table, -1)
        for i in range(len(rows.digests)):
            digest = rows.digests[i]
            at_ms = rows.times[i] + int(self.offset_ms)
            number = table.find(digest)
            if number >= 0:
                self._live_bytes.forget_keys(1, table.segment_of(number))
            if number >= 0 or at_ms < newest:
                newest = -1
                self._newest.pop(rows.table, None)
            elif newest >= 0:
                newest = at_ms
            table.put_back(digest, rows.seqs[i], at_ms, segment.number)
        if newest >= 0:
            self._newest[rows.table] = newest
        self._live_bytes.hold_keys(len(rows.digests), segment)

    def _table_of(self, number: i64) -> KeyTable:
        table = self._tables.get(number)
        if table is None:
            table = KeyTable("", 0)
            table.number = number
            self._tables[number] = table
            self._newest[number] = 0
            # Also of a topic that was dropped: no other table may get its keys.
            self._yard.journal.next_queue = max(self._yard.journal.next_queue, number + 1)
        return table

    def finish(self, now_ms: i64) -> None:
        """Give each table to its topic, and forget those of topics that were dropped."""
        yard = self._yard
        for entry in yard.journal.entries.values():
            if entry.kind == EntryKind.RECORD_KEY and not entry.is_gone:
                number, floor_ms = read_table(yard, entry)
                table = self._table_of(number)
                table.name = entry.key.decode()
                table.floor_ms = floor_ms
        for table in self._tables.values():
            table.window_ms = self._window_of(table.name) if table.name else 0
            if table.window_ms == 0:
                self._discard(table)
            elif self._newest.get(table.number, now_ms + 1) > now_ms:
                self._attach(self._by_age(table, now_ms), now_ms)
            else:
                self._attach(table, now_ms)

    def _window_of(self, name: str) -> i64:
        """Return how long the keys of a topic are valid; 0 if there is no such topic."""
        log = self._yard.logs.get(name)
        if log is not None:
            return log.config.key_window_ms
        queue = self._yard.queues.get(name)
        config = None if queue is None else queue.config
        return 0 if config is None or config.type != QUEUE else config.key_window_ms

    def _attach(self, table: KeyTable, now_ms: i64) -> None:
        yard = self._yard
        log = yard.logs.get(table.name)
        if log is not None:
            log.record_keys = table
        else:
            topic_state_of(yard.queues[table.name]).record_keys = table
        yard.key_tables[table.number] = table
        count_memory(yard, table.count)
        set_expiry(yard, table, now_ms)

    def _discard(self, table: KeyTable) -> None:
        for number in table.numbers():
            self._live_bytes.forget_keys(1, table.segment_of(number))

    def _by_age(self, table: KeyTable, now_ms: i64) -> KeyTable:
        """Return a table with the same keys by age; none of them is from the future.

        If the clock was set back, a key is valid for one window from now.
        """
        found = KeyTable(table.name, table.window_ms)
        found.number = table.number
        found.floor_ms = table.floor_ms
        ages = [(int(table.at_of(number)), number) for number in table.numbers()]
        ages.sort(key=itemgetter(0))
        for at_ms, number in ages:
            segment = table.segment_of(number)
            digest = table.digest_at(number)
            found.put_back(digest, table.seq_of(number), min(at_ms, now_ms), segment)
        return found
