"""Frees the memory of a log that was dropped, in slices."""

from typing import Final, final

from mypy_extensions import i64

from jobyard.engine.logs.text import free_some
from jobyard.engine.state.tasks import Task
from jobyard.journal.space.live_bytes import LiveBytes
from jobyard.model.index.recent_keys import RecentKeys
from jobyard.model.topic.log import WriteKey
from jobyard.model.topic.log_chunk import JOINED_SIZE_MAX, LogChunk

# Units of work to free a chunk.
CHUNK_UNITS: Final = 50


@final
class DroppedLog(Task):
    """Frees the memory of a log that was dropped."""

    def __init__(
        self, live_bytes: LiveBytes, chunks: list[LogChunk], keys: RecentKeys[WriteKey]
    ) -> None:
        super().__init__()
        self._ledger = live_bytes
        self._chunks = chunks
        self._keys = keys

    def step(self, most: i64, now_ms: i64) -> i64:  # noqa: ARG002  the task's
        """Free some keys, then some chunks."""
        done = self._forget_keys(most)
        while done < most and self._chunks:
            if self._chunks[-1].memory > JOINED_SIZE_MAX:
                done += free_some(self._chunks[-1].pieces, most - done)
            if done < most:
                self._chunks.pop()
                done += CHUNK_UNITS
        return done

    def _forget_keys(self, most: i64) -> i64:
        done: i64 = 0
        while done < most:
            oldest = self._keys.oldest()
            if oldest is None:
                break
            self._ledger.forget_key(oldest[1])
            self._keys.remove_oldest()
            done += 1
        return done
