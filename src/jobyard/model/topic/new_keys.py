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
        # The ids that clients chose for jobs, by position, and the places of new ones.
        self.job_ids: dict[int, str] = {}
        self._id_places: dict[str, int] = {}

    def add(self, key: str, job_id: str = "") -> None:
        """Add a record; `key` and `job_id` are empty if it has none."""
        if key:
            self.add_digest(digest_of(key))
        else:
            self.digests.append(b"")
        if job_id:
            self.add_job_id(job_id)

    def add_job_id(self, job_id: str) -> None:
        """Add the id of the job that the newest record becomes; it counts as a key."""
        self.job_ids[len(self.digests) - 1] = job_id
        self.count += 1

    def kept_job_ids(self) -> list[str]:
        """Return the ids of the records to be written."""
        return list(self._id_places)

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
        self._id_places = {}

    def next_job_id(self) -> str:
        """Return the id of the next record to sort in; empty if it has none."""
        if not self.job_ids:
            return ""
        return self.job_ids.get(len(self.kept) + len(self.duplicates), "")

    def sort_in(self, digest: bytes, seq: i64, job_id: str = "", owner_seq: i64 = 0) -> None:
        """Note whether the next record is a duplicate.

        `seq` is that of the record with this key which the topic has; 0 if there is none, -1 if the
        key of that record is no longer valid. `owner_seq` is that of the job that has `job_id`.
        """
        place: i64 = len(self.kept)
        position = place + len(self.duplicates)
        if job_id:
            if owner_seq == 0:
                before = self._id_places.get(job_id, -1)
                owner_seq = 0 if before < 0 else -1 - before
            if owner_seq != 0:
                self.duplicates.append(position)
                self.duplicate_seqs.append(owner_seq)
                return
            if not digest or (seq <= 0 and digest not in self._places):
                self._id_places[job_id] = place
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
