"""Planted bugs: known mistakes that the simulator must find, each in a bounded number of seeds.

The compiled build binds its calls early, so a bug cannot be patched into it. Most are planted into
the sources instead: a changed copy of one module is imported in place of the real one, with all of
the package in plain Python. The others are a World of `sim.liars` whose disk or server is wrong.
If a text no longer occurs in the sources, that is an error: the bug must be planted again.

Imports nothing of the yard, because a bug must be planted before the yard is imported.
"""

from __future__ import annotations

import importlib
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from sim.bunqueue.bugs import BUN_BUGS
from sim.faulty.bugs import FAULTY_BUGS
from sim.glidemq.bugs import GLIDE_BUGS
from sim.mending_bugs import MENDING_BUGS
from sim.topics.bugs import TOPICS_BUGS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

    from sim.world import World


class Change(NamedTuple):
    """A bug in the text of one module."""

    module: str
    right: str
    wrong: str


class Bug(NamedTuple):
    """A bug, where it is planted, and the invariants that may find it."""

    story: str
    found_by: frozenset[str]
    changes: tuple[Change, ...] = ()
    world: str = "World"


_RESTART: Final = frozenset({"restart", "no job from nowhere", "order", "recovery twice"})
_DAMAGE: Final = frozenset({"silent damage"}) | _RESTART
# Exceptions that only a faulty yard raises.
_CRASH: Final = frozenset(
    {"JournalDamaged", "AssertionError", "KeyError", "IndexError", "ValueError", "OverflowError"}
)
_ANSWER: Final = frozenset({"answer before its record", "durable mark", "restart"})


class Spoiled(SourceFileLoader):
    """Loads a module with a bug in it; never from or into cached byte code."""

    def __init__(self, name: str, path: str, changes: list[Change]) -> None:
        super().__init__(name, path)
        self._changes = changes

    def path_stats(self, path: str) -> dict[str, float]:
        """Report that there is nothing to cache."""
        raise OSError(path)

    def get_data(self, path: str) -> bytes:
        """Return the source with its bugs."""
        text = super().get_data(path).decode()
        for change in self._changes:
            if text.count(change.right) != 1:
                message = f"{change.module} has {text.count(change.right)} times: {change.right}"
                raise ImportError(message)
            text = text.replace(change.right, change.wrong)
        return text.encode()


class Planter(MetaPathFinder):
    """Finds every module of the package as plain source, with the bug planted in one of them."""

    def __init__(self, folder: Path, changes: Sequence[Change]) -> None:
        self._folder = folder
        self._changes = changes

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002  the interface is Python's
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """Return the location of a module of the package."""
        parts = fullname.split(".")
        if parts[0] != "jobyard":
            return None
        place = self._folder.joinpath(*parts)
        file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
        changes = [change for change in self._changes if change.module == fullname]
        return spec_from_file_location(
            fullname,
            file,
            loader=Spoiled(fullname, str(file), changes),
            submodule_search_locations=[str(place)] if place.is_dir() else None,
        )


_WORLDS: Final = {
    "World": "sim.world",
    "BunWorld": "sim.bunqueue.world",
    "TopicsWorld": "sim.topics.world",
    "GlideWorld": "sim.glidemq.world",
    "FaultyWorld": "sim.faulty.world",
}


def plant(name: str | None) -> type[World]:
    """Plant a bug, or none, and return the kind of world to run."""
    world = "World"
    if name is not None:
        bug = BUGS[name]
        world = bug.world
        if bug.changes:
            assert "jobyard" not in sys.modules, "the yard has already been imported"
            folders = [Path(folder) for folder in sys.path]
            folder = next(each for each in folders if (each / "jobyard/__init__.py").is_file())
            sys.meta_path.insert(0, Planter(folder, bug.changes))
    module = importlib.import_module(_WORLDS.get(world, "sim.liars"))
    kind: type[World] = getattr(module, world)
    return kind


BUGS: Final[dict[str, Bug]] = {
    "answer-before-sync": Bug(
        "answers are sent after the write, before the sync", _ANSWER, world="HastyWorld"
    ),
    "sync-retried": Bug(
        "a failed sync is retried and then trusted",
        _ANSWER | _RESTART,
        world="StubbornWorld",
    ),
    "lying-disk": Bug(
        "the disk reports syncs it did not do", _ANSWER | _RESTART, world="LazyWorld"
    ),
    "directory-not-synced": Bug(
        "file names are never made durable",
        _RESTART | {"JournalDamaged"},
        world="NamelessWorld",
    ),
    "wall-clock": Bug(
        "delays and leases run on the wall clock",
        frozenset({"reply", "counters", "waiters", "lease", "timers"}) | _RESTART,
        world="WallWorld",
    ),
    "ids-not-ahead": Bug(
        "class os issues ids beyond the limit stored on disk",
        frozenset({"ids"}),
        world="RecklessWorld",
    ),
    "no-checksum": Bug(
        "batches are accepted whatever their checksum is",
        _DAMAGE | _CRASH,
        (
            Change(
                "jobyard.journal.recovery.reader",
                "if crc32(view[summed:end], crc) != head.crc:",
                "if crc32(view[summed:end], crc) < 0:",
            ),
            Change(
                "jobyard.journal.recovery.reader",
                "head.records_size) < 0:\n",
                "head.records_size) < 1 << 40:\n",
            ),
        ),
    ),
    "long-body-unchecked": Bug(
        "a torn tail is not detected in bodies outside the records",
        _DAMAGE,
        (
            Change(
                "jobyard.journal.recovery.reader",
                "return len(data) == head.part2_size and crc32(data) == head.part2_crc",
                "return len(data) == head.part2_size",
            ),
        ),
    ),
    "body-unchecked": Bug(
        "a body read back is delivered without a check of its checksum",
        _DAMAGE,
        (
            Change(
                "jobyard.journal.bodies",
                "len(body) == size and crc32(body) == job.crc",
                "len(body) == size",
            ),
        ),
    ),
    "stale-batches": Bug(
        "leftovers in a recycled file are read as new data",
        _DAMAGE | _CRASH,
        (
            Change(
                "jobyard.journal.recovery.reader",
                "if head.segment != self.segment.number or head.part1_size < 0",
                "if head.part1_size < 0",
            ),
        ),
    ),
    "tail-not-cut": Bug(
        "batches behind a gap are accepted",
        _RESTART | _CRASH,
        (
            Change(
                "jobyard.journal.recovery.scan",
                "            if number > expected:\n                break\n",
                "            if number > expected:\n                expected = number\n",
            ),
        ),
    ),
    "page-cache-trusted": Bug(
        "recovery does not rewrite data that may be in the page cache only",
        _RESTART | _CRASH,
        (
            Change(
                "jobyard.journal.recovery.scan",
                "if number > self.durable:\n                start = min(start, offset)",
                "if number < 0:\n                start = min(start, offset)",
            ),
        ),
    ),
    "seal-before-sync": Bug(
        "a seal is written before the data it covers is on disk",
        _ANSWER | _RESTART | _CRASH,
        (
            Change(
                "jobyard.journal.outgoing",
                "                for unsynced in self.take_unsynced():\n"
                "                    storage.sync(unsynced)\n",
                "                pass\n",
            ),
        ),
    ),
    "token-unchecked": Bug(
        "any client that has the id of a reserved job may release, bury or touch it",
        frozenset({"reply"}),
        (
            Change(
                "jobyard.engine.jobs.finish",
                "if lease is None or lease.lease_set is not lease_set:",
                "if lease is None:",
            ),
        ),
    ),
    "id-reused": Bug(
        "a restart forgets which ids were issued to removed jobs",
        frozenset({"ids"}),
        (
            Change(
                "jobyard.engine.recovery.replay",
                "        journal.next_id = max(journal.next_id, head.next_id)\n",
                "",
            ),
            Change(
                "jobyard.journal.recovery.scan",
                "        journal.next_id = max(journal.next_id, self.next_id)\n",
                "",
            ),
        ),
    ),
    "unlinked-before-durable": Bug(
        "a segment is removed before the copies of its live records are on disk",
        _RESTART | _CRASH,
        (
            Change(
                "jobyard.engine.recovery.compaction",
                "        self._after = self._journal.open_number - 1\n",
                "        self._after = 0\n",
            ),
            Change(
                "jobyard.engine.recovery.compaction",
                "        self._after = self._journal.open_number\n",
                "        self._after = 0\n",
            ),
        ),
    ),
    "kill-record-dropped": Bug(
        "compaction forgets deaths of jobs whose bases still exist",
        frozenset({"live bytes"}) | _RESTART,
        (
            Change(
                "jobyard.engine.recovery.compaction",
                "saved.add_kill(read_i64_le(data, pos + 8), base)",
                "pass",
            ),
        ),
    ),
    "numbers-given-again": Bug(
        "records are numbered from the beginning after a restart",
        frozenset({"history"}),
        (
            Change(
                "jobyard.engine.recovery.open_yard",
                "    journal.record_base = replay.next_record\n",
                "",
            ),
        ),
    ),
    "past-name-dropped": Bug(
        "compaction forgets the names of removed queues that are still in the history",
        frozenset({"history"}),
        (
            Change(
                "jobyard.engine.recovery.compaction",
                "            saved.add_name(past)\n",
                "            pass\n",
            ),
        ),
    ),
    "worker-named-once": Bug(
        "the name of a worker is not written again in the next segment",
        frozenset({"history"}),
        (
            Change(
                "jobyard.journal.journal",
                "            self._workers_home = hot\n            places.clear()\n",
                "            self._workers_home = hot\n",
            ),
        ),
    ),
    "run-left-open": Bug(
        "a start does not write that the runs of the last boot are over",
        frozenset({"history"}),
        (Change("jobyard.engine.recovery.open_yard", "    replay.abandon_runs()\n", ""),),
    ),
    "run-ended-twice": Bug(
        "each start ends the same run once more",
        frozenset({"history"}),
        (
            Change(
                "jobyard.engine.recovery.replay",
                "        self._runs.end(job_id)\n        if data[pos + 1] == Cause.ABANDONED:\n",
                "        if data[pos + 1] != Cause.ABANDONED:\n            self._runs.end(job_id)\n"
                "        else:\n",
            ),
        ),
    ),
    "durable-run-abandoned": Bug(
        "a start ends runs whose leases it has resumed",
        frozenset({"history"}),
        (
            Change(
                "jobyard.engine.recovery.open_runs",
                "if job is not None and job.lease is None and run.record >= floor:",
                "if job is not None and run.record >= floor:",
            ),
        ),
    ),
    "yard-drawn-again": Bug(
        "every start draws a new id for the data directory",
        frozenset({"history"}),
        (
            Change(
                "jobyard.engine.recovery.open_yard",
                'if yard_id and journal.entries.get((EntryKind.YARD_ID, b"")) is None:',
                "if yard_id:",
            ),
        ),
    ),
    "history-too-soon": Bug(
        "history shows rows that are not on disk yet",
        frozenset({"history"}),
        (
            Change(
                "jobyard.journal.history.window",
                "        self._next_hots.append(self._next_hot_sealed)\n",
                "        self._next_hots.append(self._next_hot_sealed)\n"
                "        self.next_durable = next_record\n"
                "        self.next_hot = self._next_hot_sealed\n",
            ),
        ),
    ),
    "state-dropped": Bug(
        "compaction forgets what happened to jobs since they were put",
        frozenset({"live bytes"}) | _RESTART,
        (Change("jobyard.engine.recovery.compaction", "            saved.add_state(job)\n", ""),),
    ),
    "counter-drift": Bug(
        "an urgent job that leaves is still counted",
        frozenset({"counters"}),
        (
            Change(
                "jobyard.engine.state.yard",
                "            self.urgent_count -= 1\n",
                "            self.urgent_count -= 0\n",
            ),
        ),
    ),
    "rank-forgotten": Bug(
        "the new priority of a released or buried job is not recorded",
        _RESTART | {"live bytes"},
        (
            Change(
                "jobyard.journal.format.record",
                "    write_i64_le(out, end.rank)\n",
                "    write_i64_le(out, job.rank)\n",
            ),
        ),
    ),
    "delay-not-clamped": Bug(
        "a clock that was set back makes a job wait longer than requested",
        _RESTART,
        (
            Change(
                "jobyard.engine.recovery.replay",
                "self._now_ms + min(left, asked_ms)",
                "self._now_ms + left",
            ),
        ),
    ),
    "lease-lost": Bug(
        "after one lease of a client expires the others never do",
        frozenset({"counters", "waiters", "reply"}),
        (
            Change(
                "jobyard.engine.jobs.tick",
                "_rearm(yard, lease_set, lease_set.soonest_ms(), is_needed=len(leases) > 0)",
                "_rearm(yard, lease_set, lease_set.soonest_ms(), is_needed=False)",
            ),
        ),
    ),
    "last-come-first-served": Bug(
        "the newest waiter is served first",
        frozenset({"reply", "waiters"}),
        (
            Change(
                "jobyard.engine.jobs.take",
                "        link = queue.first_link\n",
                "        link = queue.last_link\n",
            ),
        ),
    ),
    "dirty-read": Bug(
        "a job is shown before its put is on disk",
        _ANSWER,
        (
            Change(
                "jobyard.protocols.beanstalk.session",
                "out.write(CRLF)\n        self.narrow(before, job.batch)\n\n    def _f",
                "out.write(CRLF)\n        self.narrow(before, 0)\n\n    def _f",
            ),
        ),
    ),
    "delete-not-waited": Bug(
        "an answer without a job in it waits for nothing",
        _ANSWER,
        (
            Change(
                "jobyard.protocols.beanstalk.session",
                "        self.narrow(len(self.out) - len(answer), self.journal.appended)\n",
                "        self.narrow(len(self.out) - len(answer), 0)\n",
            ),
        ),
    ),
    "room-not-kept": Bug(
        "puts may use up the room reserved for the ends of jobs",
        # A delete that finds no room is refused, which the model does not allow.
        frozenset({"StorageFull", "reply"}),
        (
            Change(
                "jobyard.journal.batches",
                "return self.live_bytes.jobs_count * RESERVED_PER_JOB + 2 * self.segment_size",
                "return 0",
            ),
        ),
    ),
    "sealed-too-soon": Bug(
        "a segment counts as sealed before its seal is written",
        frozenset({"compaction"}),
        (
            Change(
                "jobyard.journal.batches",
                "        segment.end += SEAL_SIZE\n",
                "        segment.end += SEAL_SIZE\n        segment.is_sealed = True\n",
            ),
        ),
    ),
    "copies-unreadable": Bug(
        "a body that compaction moved cannot be read until its batch is written",
        frozenset({"reply", "counters"}),
        (
            Change(
                "jobyard.journal.batches",
                "        for one in self.pending:\n            if one.segment.number == number",
                "        for one in self.pending[:0]:\n            if one.segment.number == number",
            ),
        ),
    ),
    "seal-trusted": Bug(
        "a seal that may be in the page cache only is not written again",
        _CRASH | _RESTART,
        (
            Change(
                "jobyard.journal.recovery.scan",
                "start = tail.end - SEAL_SIZE if tail.is_sealed else tail.end",
                "start = tail.end",
            ),
        ),
    ),
    "compaction-ends-at-damage": Bug(
        "compaction stops for good once one segment cannot be read",
        frozenset({"compaction"}),
        (
            Change(
                "jobyard.engine.recovery.compaction",
                "            if self._left and self._must_stay(segment):\n",
                "            if self._left:\n",
            ),
        ),
    ),
    "corrupt-shown-as-null": Bug(
        "data that is damaged on disk is shown to bunqueue clients as null",
        frozenset({"silent damage"}),
        (
            Change(
                "jobyard.protocols.bunqueue.job_fields",
                '        more["corrupt"] = True\n',
                "        pass\n",
            ),
        ),
    ),
    "done-dropped-while-full": Bug(
        "a full disk silently drops done jobs",
        frozenset({"full disk"}),
        (
            Change(
                "jobyard.engine.jobs.finish",
                "    is_kept = _is_kept(job, keep)\n",
                "    is_kept = _is_kept(job, keep) and not yard.journal.is_full\n",
            ),
        ),
    ),
    "claim-pretended": Bug(
        "a durable lease is given on a full disk without a record",
        frozenset({"full disk"}),
        (
            Change(
                "jobyard.engine.jobs.durable_leases",
                "    yard.note(lease.job, fields.done(), is_needed=True)\n",
                "    if not yard.journal.is_full:\n"
                "        yard.note(lease.job, fields.done(), is_needed=True)\n",
            ),
        ),
    ),
    "result-misplaced": Bug(
        "compaction does not note where it wrote the results of jobs",
        frozenset({"result", "restart", "KeyError"}),
        (
            Change(
                "jobyard.journal.batches",
                "            place_result(job, segment.number, start + end)\n",
                "            pass\n",
            ),
        ),
        "BunWorld",
    ),
    "burials-renumbered": Bug(
        "burials are renumbered when they are replayed",
        _CRASH | _RESTART,
        (
            Change(
                "jobyard.engine.recovery.replay",
                "            queue.endings = max(queue.endings - 1, ending)\n"
                "            self._yard.rest(job, end.state, ending, ended_ms)\n",
                "            assert queue.endings > 0\n",
            ),
        ),
    ),
}
for _world, _planted in (
    ("BunWorld", BUN_BUGS),
    ("TopicsWorld", TOPICS_BUGS),
    ("GlideWorld", GLIDE_BUGS),
    ("FaultyWorld", FAULTY_BUGS),
):
    for _name, (_story, _found_by, _changes) in _planted.items():
        BUGS[_name] = Bug(_story, _found_by, tuple(Change(*one) for one in _changes), _world)
for _name, (_story, _found_by, _changes, _world) in MENDING_BUGS.items():
    BUGS[_name] = Bug(_story, _found_by, tuple(Change(*one) for one in _changes), _world)
