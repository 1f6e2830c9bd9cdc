"""The model of the keys of records: a dict by key, whose entries are valid for a window."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from jobyard.model.topic.key_table import digest_of, redrive_digest
from sim.topics.nouns import Refusal

if TYPE_CHECKING:
    from jobyard.model.topic.key_table import KeyTable
    from sim.topics.nouns import Config

# Few, so that most come again.
KEYS: Final = tuple(f"r{number}" for number in range(30))
_NAMES: Final = {digest_of(key): key for key in KEYS}
# Of redrives, whose keys are of a letter each.
REDRIVE_KEYS: Final = tuple(f"d{number}" for number in range(6))
_NEVER: Final = -(1 << 62)


class Keyed(NamedTuple):
    """The record that has a key."""

    seq: int
    at: int
    batch: int
    # Whether the journal has it.
    is_written: bool


class Sorted(NamedTuple):
    """The records of a write: which are new, and those that are not with the seq of the other."""

    kept: list[int]
    duplicates: list[list[int]]
    # The newest batch of an earlier record.
    batch: int


class RecordKeys:
    """The keys of the records of one topic."""

    def __init__(self) -> None:
        self.found: dict[str, Keyed] = {}
        # Keys from before this are not valid, though the window may have become longer.
        self.floor = _NEVER

    def valid(self, config: Config, now: int) -> dict[str, Keyed]:
        """Return the keys that are known."""
        after = max(now - config.key_window, self.floor)
        return {key: one for key, one in self.found.items() if one.at > after}

    def sort(self, keys: list[str], config: Config, next_seq: int, now: int) -> Sorted:
        """Compare the keys of a write with those that are known, and with each other."""
        valid = self.valid(config, now)
        fresh: dict[str, int] = {}
        found = Sorted([], [], max((valid[key].batch for key in keys if key in valid), default=0))
        for at, key in enumerate(keys):
            if key in valid:
                found.duplicates.append([at, valid[key].seq])
            elif key in fresh:
                found.duplicates.append([at, fresh[key]])
            else:
                if key:
                    fresh[key] = next_seq + len(found.kept)
                found.kept.append(at)
        if fresh and len(valid) + len(fresh) > config.key_max:
            raise Refusal(422, "too_many_keys")
        return found

    def remember(self, keys: list[str], first: int, now: int, batch: int, config: Config) -> None:
        """Store the keys of the records that were written."""
        held = batch if config.is_written else 0
        for at, key in enumerate(keys):
            if key:
                self.found[key] = Keyed(first + at, now, held, config.is_written)

    def configure(self, before: Config, after: Config, now: int) -> None:
        """Apply a new window."""
        if after.key_window > before.key_window:
            self.floor = max(self.floor, now - before.key_window)


def keys_found(table: KeyTable | None, now: int) -> dict[str, tuple[int, int]]:
    """Return the valid keys of a yard: seq and time."""
    if table is None:
        return {}
    after = table.valid_after(now)
    found = {_NAMES[table.digest_at(number)]: number for number in table.numbers()}
    told = {
        key: (int(table.seq_of(number)), int(table.at_of(number))) for key, number in found.items()
    }
    return {key: one for key, one in told.items() if one[1] > after}


def redrive_key(key: str, incarnation: int, seq: int) -> str:
    """Return the key under which a letter of a log is redriven."""
    name = f"{key} {incarnation} {seq}"
    _NAMES[redrive_digest(key, str(incarnation), seq)] = name
    return name


def key_of(digest: bytes) -> str:
    """Return the key with a digest; empty for that of a record without one."""
    return _NAMES[digest] if digest else ""


def adopt_keys(table: KeyTable | None) -> RecordKeys:
    """Return the model of the keys that came back."""
    keys = RecordKeys()
    if table is not None:
        keys.floor = int(table.floor_ms)
        for number in table.numbers():
            seq, at, segment = table.seq_of(number), table.at_of(number), table.segment_of(number)
            key = _NAMES[table.digest_at(number)]
            keys.found[key] = Keyed(int(seq), int(at), 0, segment != 0)
    return keys
