"""The keys of the records of one write: which records are new, and which are duplicates.

Knows no table and no topic: `engine/state/record_keys.py` compares the keys with those that the
topic has. Of two records with the same key in one write the second is a duplicate of the first.
"""

from typing import final

from mypy_extensions import i64

from jobyard.errors import Refused
from jobyard.model.topic.key_table import digest_of


class TooManyKeys(Refused):
    """A topic has as many valid keys as its configuration allows."""

    def __init__(self, count: i64, key_max: i64) -> None:
        super().__init__("too_many_keys")
        self.count: i64 = count
        self.key_max: i64 = key_max


@final
class NewKeys:
    """The keys of one write."""

    def __init__(self) -> None:
        # A digest for each record; empty for a record without a key.
        self.digests: list[bytes] = []
        # Records with a key.
        self.count: i64 = 0
        # Positions of the records to be written, and for each key among them its digest and which
        # of these records has it.
        self.kept: list[int] = []
        self.fresh: list[bytes] = []
        self.fresh_at: list[int] = []
        # Of these, keys that the topic has and that are no longer valid.
        self.stale: list[bytes] = []
        # Positions of the duplicates, and their seqs; for a duplicate of a record of the same
        # write it is not known before `settle`, and stored as -1 - (its place among the kept).
        self.duplicates: list[int] = []
        self.duplicate_seqs: list[int] = []
        # The place of each new key among the kept records.
        self._places: dict[bytes, int] = {}

    def add(self, key: str) -> None:
        """Add a record; `key` is empty if it has none."""
        if key:
            self.add_digest(digest_of(key))
        else:
            self.digests.append(b"")

    def add_digest(self, digest: bytes) -> None:
        """Add a record with a key."""
        self.digests.append(digest)
        self.count += 1

    def add_unkeyed(self, count: i64) -> None:
        """Add records without keys, all of which are written; only before any other."""
        assert not self.digests
        self.digests = [b""] * count
        self.kept = list(range(count))

    def begin(self) -> None:
        """Forget what was found out about the records."""
        self.kept = []
        self.fresh = []
        self.fresh_at = []
        self.stale = []
        self.duplicates = []
        self.duplicate_seqs = []
        self._places = {}

    def sort_in(self, digest: bytes, seq: i64) -> None:
        """Note whether the next record is a duplicate.

        `seq` is that of the record with this key which the topic has; 0 if there is none, -1 if the
        key of that record is no longer valid.
        """
        place: i64 = len(self.kept)
        position = place + len(self.duplicates)
        if digest:
            if seq <= 0:
                first = self._places.get(digest, -1)
                if first < 0:
                    self._places[digest] = place
                    self.fresh.append(digest)
                    self.fresh_at.append(place)
                    if seq < 0:
                        self.stale.append(digest)
                    self.kept.append(position)
                    return
                seq = -1 - first
            self.duplicates.append(position)
            self.duplicate_seqs.append(seq)
            return
        self.kept.append(position)

    def settle(self, first_seq: i64) -> list[int]:
        """Note the seq of the first record that is written; return the seqs of the new keys."""
        for i in range(len(self.duplicate_seqs)):
            seq = i64(self.duplicate_seqs[i])
            if seq < 0:
                self.duplicate_seqs[i] = int(first_seq - 1 - seq)
        return [int(first_seq) + at for at in self.fresh_at]
