"""Rows of the yard's history as columns.

Times are in microseconds, and null where a row has 0; so are empty texts, and lease, holder, ttl,
ids and seqs, which are never 0 when known. Other numbers are stored unchanged.
"""

from typing import Final, final

from jobyard.model.topic.columns import Column, NumberColumn, TextColumn
from jobyard.model.topic.history_row import HistoryRow

# How many words (queue names and the words that rows consist of) are cached as bytes.
WORDS_MAX: Final = 1024


@final
class HistoryColumns:
    """Some consecutive rows."""

    def __init__(self) -> None:
        self.seqs = NumberColumn()
        self.times = NumberColumn()
        self.events = TextColumn()
        self.queues = TextColumn()
        self.job_ids = NumberColumn()
        self.states = TextColumn()
        self.families = TextColumn()
        self.ranks = NumberColumn()
        self.attempts = NumberColumn()
        self.deliveries = NumberColumn()
        self.sizes = NumberColumn()
        self.leases = NumberColumn()
        self.holders = NumberColumn()
        self.doors = TextColumn()
        self.ttls = NumberColumn()
        self.due = NumberColumn()
        self.enqueued = NumberColumn()
        self.available = NumberColumn()
        self.claimed = NumberColumn()
        self.finished = NumberColumn()
        self.errors = TextColumn()
        self.workers = TextColumn()
        self.queue_seqs = NumberColumn()
        self.client_ids = TextColumn()
        self.names = TextColumn()
        self.origin_ids = NumberColumn()
        self.origin_queues = TextColumn()
        self.reasons = TextColumn()
        self.letter_topics = TextColumn()
        self.letter_seqs = NumberColumn()
        self._words: dict[str, bytes] = {}

    def columns(self) -> list[Column]:
        """Return the columns in the order that readers see."""
        return [
            self.seqs,
            self.times,
            self.events,
            self.queues,
            self.job_ids,
            self.states,
            self.families,
            self.ranks,
            self.attempts,
            self.deliveries,
            self.sizes,
            self.leases,
            self.holders,
            self.doors,
            self.ttls,
            self.due,
            self.enqueued,
            self.available,
            self.claimed,
            self.finished,
            self.errors,
            self.workers,
            self.queue_seqs,
            self.client_ids,
            self.names,
            self.origin_ids,
            self.origin_queues,
            self.reasons,
            self.letter_topics,
            self.letter_seqs,
        ]

    def add(self, row: HistoryRow) -> None:
        """Append a row."""
        self.seqs.add(row.seq)
        self.times.add(row.ts_ms * 1000)
        self.events.add(self._encoded(row.event))
        self.queues.add(self._encoded(row.queue))
        self.job_ids.add(row.job_id)
        self.states.add_known(self._encoded(row.state))
        self.families.add_known(self._encoded(row.family))
        self.ranks.add(row.rank)
        self.attempts.add(row.attempts)
        self.deliveries.add(row.deliveries)
        self.sizes.add(row.size)
        self.leases.add_known(row.lease)
        self.holders.add_known(row.holder)
        self.doors.add_known(self._encoded(row.door))
        self.ttls.add_known(row.ttl_ms)
        self.due.add_known(row.due_ms * 1000)
        self.enqueued.add_known(row.enqueued_ms * 1000)
        self.available.add_known(row.available_ms * 1000)
        self.claimed.add_known(row.claimed_ms * 1000)
        self.finished.add_known(row.finished_ms * 1000)
        self.errors.add_known(_encode(row.error))
        self.workers.add_known(self._encoded(row.worker))
        self.queue_seqs.add_known(row.queue_seq)
        self.client_ids.add_known(_encode(row.client_id))
        self.names.add_known(self._encoded(row.name))
        self.origin_ids.add_known(row.origin_id)
        self.origin_queues.add_known(self._encoded(row.origin_queue))
        self.reasons.add_known(self._encoded(row.reason))
        self.letter_topics.add_known(self._encoded(row.letter_topic))
        self.letter_seqs.add_known(row.letter_seq)

    def _encoded(self, word: str) -> bytes:
        """Return a word as bytes: the same few are used again and again."""
        found = self._words.get(word)
        if found is None:
            found = word.encode(errors="replace")
            if len(self._words) < WORDS_MAX:
                self._words[word] = found
        return found


def _encode(text: str) -> bytes:
    return text.encode(errors="replace") if text else b""
