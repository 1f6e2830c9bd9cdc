"""Planted bugs in starts, reads and repairs: a story, the invariants that find it, and its text."""

from typing import Final

_REPAIR: Final = frozenset({"repair", "silent damage", "recovery twice", "JournalDamaged"})

Spoiled = tuple[str, frozenset[str], tuple[tuple[str, str, str], ...], str]

MENDING_BUGS: Final[dict[str, Spoiled]] = {
    "begun-taken-for-sealed": (
        "a segment that was only begun is expected to be sealed because newer ones exist",
        frozenset({"JournalDamaged"}),
        (
            (
                "jobyard.journal.recovery.scan",
                "if self._is_only_begun(segment):",
                "if segment.number < 0:",
            ),
        ),
        "World",
    ),
    "repair-renames-first": (
        "a repair renames the damaged file before its replacement is written",
        _REPAIR,
        (
            (
                "jobyard.journal.repair.salvage",
                "    fresh = name + REPAIRED_TAIL\n",
                (
                    "    fresh = name + REPAIRED_TAIL\n"
                    "    if salvage.source == name:\n"
                    "        storage.rename(name, next_aside(names, name))\n"
                    "        salvage.source = ''\n"
                ),
            ),
            (
                "jobyard.journal.repair.salvage",
                "salvage.source = name if name in names else _last_aside(names, name)",
                "salvage.source = name if name in names else ''",
            ),
        ),
        "World",
    ),
    "aside-forgotten": (
        "a repair that was interrupted between its renames reads nothing the next time",
        _REPAIR,
        (
            (
                "jobyard.journal.repair.salvage",
                "salvage.source = name if name in names else _last_aside(names, name)",
                "salvage.source = name if name in names else ''",
            ),
        ),
        "World",
    ),
    "read-error-ends-all": (
        "a body that the disk cannot read stops the server",
        frozenset({"read error"}),
        (
            (
                "jobyard.journal.batches",
                (
                    "return read_around(self.storage(), segment_name(number), offset, size, "
                    "READ_FAILURES_MAX)"
                ),
                "return self.storage().read(segment_name(number), offset, size)",
            ),
        ),
        "World",
    ),
    "read-error-at-start": (
        "a batch that the disk cannot read is a disk error instead of damage at a place",
        frozenset({"read error", "repair"}),
        (
            (
                "jobyard.journal.recovery.reader",
                (
                    "        except ReadFailed:\n            self._note_failure(offset, size)\n"
                    '            return b""\n'
                ),
                (
                    "        except ZeroDivisionError:\n"
                    "            self._note_failure(offset, size)\n"
                    '            return b""\n'
                ),
            ),
        ),
        "World",
    ),
    "sums-unchecked": (
        "records are not compared with their checksums",
        _REPAIR | {"AssertionError", "KeyError", "IndexError", "ValueError", "OverflowError"},
        (
            (
                "jobyard.journal.recovery.reader",
                "head.records_size) < 0:\n",
                "head.records_size) < 1 << 40:\n",
            ),
        ),
        "World",
    ),
    "bit-not-corrected": (
        "a repair gives up a sector with a single flipped bit",
        _REPAIR,
        (
            (
                "jobyard.journal.repair.damaged_batch",
                "right = corrected(data[at:stop], known)",
                "right = None",
            ),
        ),
        "World",
    ),
    "options-not-filled": (
        "a repair does not restore jobs whose policy is lost",
        _REPAIR,
        (
            (
                "jobyard.engine.recovery.gaps",
                "        if self.is_filled:\n",
                "        if self.is_filled and not self.policies:\n",
            ),
        ),
        "BunWorld",
    ),
}
