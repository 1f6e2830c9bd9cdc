"""Planted bugs: known mistakes that the simulator must find, each in a bounded number of seeds.

The compiled build binds its calls early, so a bug cannot be patched into it. Most are planted into
the sources instead: a changed copy of one module is imported in place of the real one, with all of
the package in plain Python. The others are a World of `sim.liars` whose disk or server is wrong.
A text that no longer occurs in the sources is an error: the bug must be planted anew.

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
    """A mistake in the text of one module."""

    module: str
    right: str
    wrong: str


class Bug(NamedTuple):
    """A mistake, where it is planted, and the invariants by which it may be found."""

    story: str
    found_by: frozenset[str]
    changes: tuple[Change, ...] = ()
    world: str = "World"


_RESTART: Final = frozenset({"restart", "no job from nowhere", "order", "recovery twice"})
_DAMAGE: Final = frozenset({"silent damage"}) | _RESTART
# Errors that only a wrong yard lets out.
_CRASH: Final = frozenset(
    {"JournalDamaged", "AssertionError", "KeyError", "IndexError", "ValueError", "OverflowError"}
)
_ANSWER: Final = frozenset({"answer before its record", "durable mark", "restart"})


class Spoiled(SourceFileLoader):
    """Loads a module with a mistake in it; never from or into cached byte code."""

    def __init__(self, name: str, path: str, changes: list[Change]) -> None:
        super().__init__(name, path)
        self._changes = changes

    def path_stats(self, path: str) -> dict[str, float]:
        """Say that there is nothing to cache."""
        raise OSError(path)

    def get_data(self, path: str) -> bytes:
        """Return the source with its mistakes."""
        text = super().get_data(path).decode()
        for change in self._changes:
            if text.count(change.right) != 1:
                message = f"{change.module} has {text.count(change.right)} times: {change.right}"
                raise ImportError(message)
            text = text.replace(change.right, change.wrong)
        return text.encode()


class Planter(MetaPathFinder):
    """Finds every module of the package as plain source, one of them spoiled."""

    def __init__(self, folder: Path, changes: Sequence[Change]) -> None:
        self._folder = folder
        self._changes = changes

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002  the interface is Python's
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """Return where a module of the package is."""
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
            assert "jobyard" not in sys.modules, "the yard is imported already"
            folders = [Path(folder) for folder in sys.path]
            folder = next(each for each in folders if (each / "jobyard/__init__.py").is_file())
            sys.meta_path.insert(0, Planter(folder, bug.changes))
    module = importlib.import_module(_WORLDS.get(world, "sim.liars"))
    kind: type[World] = getattr(module, world)
    return kind


BUGS: Final[dict[str, Bug]] = {
    "answer-before-sync": Bug(
        "answers leave after the write, before the sync", _ANSWER, world="HastyWorld"
    ),
    "sync-retried": Bug(
        "a failed sync is tried again and then believed",
        _ANSWER | _RESTART,
        world="StubbornWorld",
    ),
    "lying-disk": Bug("the disk says it synced and did not", _ANSWER | _RESTART, world="LazyWorld"),
    "directory-not-synced": Bug(
        "names of files are never made durable",
        _RESTART | {"JournalDamaged"},
        world="NamelessWorld",
    ),
    "wall-clock": Bug(
        "delays and leases run on the wall clock",
        frozenset({"reply", "counters", "waiters", "lease", "timers"}) | _RESTART,
        world="WallWorld",
    ),
    "ids-not-ahead": Bug(
        "class os issues ids that the disk knows no limit for",
        frozenset({"ids"}),
        world="RecklessWorld",
    ),
    "no-checksum": Bug(
        "batches count whatever their checksum says",
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
        "a torn tail is not looked for in bodies outside the records",
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
        "a body read back is handed out without a look at its checksum",
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
        "what an older use left in a recycled file is read as new",
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
        "batches behind a gap count",
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
        "recovery does not write again what only the page cache may hold",
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
        "a seal is written before what it vouches for is on disk",
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
        "whoever knows the id of a reserved job may release, bury or touch it",
        frozenset({"reply"}),
        (
            Change(
                "jobyard.engine.jobs.finish",
                "if lease is None or lease.book is not book:",
                "if lease is None:",
            ),
        ),
    ),
    "id-reused": Bug(
        "a restart forgets which ids were issued to jobs that are gone",
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
        "a segment goes before the copies of what lived in it are on disk",
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
                "jobyard.engine.recovery.replay",
                "    journal.record_base = replay.next_record\n",
                "",
            ),
        ),
    ),
    "past-name-dropped": Bug(
        "compaction forgets the names of queues that are gone and still told of",
        frozenset({"history"}),
        (
            Change(
                "jobyard.engine.recovery.compaction",
                "            saved.add_name(past)\n",
                "            pass\n",
            ),
        ),
    ),
    "history-too-soon": Bug(
        "history shows what is not on disk yet",
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
        "a clock that was set back makes a job wait longer than it was told to",
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
        "after one lease of a client ran out the others never do",
        frozenset({"counters", "waiters", "reply"}),
        (
            Change(
                "jobyard.engine.jobs.tick",
                "_rearm(yard, book, book.soonest_ms(), is_needed=len(leases) > 0)",
                "_rearm(yard, book, book.soonest_ms(), is_needed=False)",
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
        "puts may use up the room for the ends of jobs",
        # A delete that finds no room is refused, which the model does not allow.
        frozenset({"StorageFull", "reply"}),
        (
            Change(
                "jobyard.journal.batches",
                "return self.ledger.jobs_count * END_ROOM + 2 * self.segment_size",
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
        "a seal that only the page cache may hold is not written again",
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
        "nothing is compacted any more once one segment cannot be read",
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
        "a full disk keeps no job that is done, and says nothing",
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
        "a claim that is to last is given on a full disk and not noted",
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
        "compaction does not note where it wrote what jobs came to",
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
        "burials are numbered anew when they are replayed",
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
