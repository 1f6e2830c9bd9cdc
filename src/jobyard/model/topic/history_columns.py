"""Rows of the yard's history column by column.

Times are in microseconds, and have no value where a row says 0; so have texts that are empty, and
lease, holder and ttl, which are never 0 where they are known. Other numbers are as they are.
"""

from typing import Final, final

from jobyard.model.topic.columns import Column, Numbers, Texts
from jobyard.model.topic.history_row import HistoryRow

# Names of queues that are remembered as bytes, beside the words that rows are made of.
WORDS_MAX: Final = 1024


@final
class HistoryColumns:
    """Some rows that follow each other."""

    def __init__(self) -> None:
        self.seqs = Numbers()
        self.times = Numbers()
        self.events = Texts()
        self.queues = Texts()
        self.job_ids = Numbers()
        self.states = Texts()
        self.families = Texts()
        self.ranks = Numbers()
        self.attempts = Numbers()
        self.deliveries = Numbers()
        self.sizes = Numbers()
        self.leases = Numbers()
        self.holders = Numbers()
        self.doors = Texts()
        self.ttls = Numbers()
        self.due = Numbers()
        self.enqueued = Numbers()
        self.available = Numbers()
        self.claimed = Numbers()
        self.finished = Numbers()
        self.errors = Texts()
        self._words: dict[str, bytes] = {}

    def columns(self) -> list[Column]:
        """Return the columns in the order readers see them."""
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
        self.errors.add_known(row.error.encode(errors="replace") if row.error else b"")

    def _encoded(self, word: str) -> bytes:
        """Return a word as bytes: the same few come again and again."""
        found = self._words.get(word)
        if found is None:
            found = word.encode(errors="replace")
            if len(self._words) < WORDS_MAX:
                self._words[word] = found
        return found
