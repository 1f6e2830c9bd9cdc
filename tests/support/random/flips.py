"""Damages a journal in one place, repairs it, and compares the loss with what was hit.

    PYTHONPATH=src python -m tests.support.random.flips 1000          that many flipped bits
    PYTHONPATH=src python -m tests.support.random.flips 200 sector    ... sectors full of noise
    PYTHONPATH=src python -m tests.support.random.flips 200 unreadable

A job may be lost only if its own bytes were hit; for a whole sector also if the header or the sums
of its batch are in it, without which no record of the batch can be trusted. Every job that comes
back must be reported.
"""

import io
import re
import sys
from random import Random
from typing import Final, NamedTuple

from jobyard.engine.recovery.repair import repair_storage
from jobyard.journal.format.record import KIND_MOVED, KIND_PUT
from jobyard.journal.format.segment import BATCH_HEADER_SIZE, SEAL_MAGIC, Segment, segment_number
from jobyard.journal.recovery.reader import Reader
from jobyard.journal.storage import SECTOR
from tests.support.random.beanstalk import RandomRun
from tests.support.random.glides import RandomGlides
from tests.support.random.topics import RandomTopics
from tests.support.random.verbs import RandomVerbs
from tests.support.site.recount import recount
from tests.support.site.site import NOW_MS
from tests.support.site.snapshot import snapshot
from tests.support.site.storage import MemoryStorage
from tests.support.site.yard import OpenYard

SEGMENT: Final = 32 * 1024
BIT, SECTOR_NOISE, UNREADABLE = "bit", "sector", "unreadable"
_BACK: Final = re.compile(r"(?:up to )?(\d+) finished jobs (?:are|may be) back")
_LOST: Final = re.compile(r"lost (\d+) jobs?")


class Piece(NamedTuple):
    """Bytes of a file that belong to a job, or to all jobs of a batch."""

    name: str
    start: int
    end: int
    jobs: frozenset[int]
    is_shared: bool = False


class Journal:
    """A journal of jobs and logs of every family, hot and cold, as a clean stop left it."""

    def __init__(self, seed: int) -> None:
        self.storage = MemoryStorage()
        self.now_ms = NOW_MS
        for boot, steps in enumerate((220, 250, 150, 150, 200)):
            site = self._open()
            run = (RandomRun, RandomVerbs, RandomGlides, RandomRun, RandomTopics)[boot](site, seed)
            for number in range(steps):
                run.step()
                if number % 5 > 1:
                    site.commit()
                    site.compactor.step()
            site.jump()
            site.commit()
            site.compact()
            self.now_ms = site.now_ms + 1000
            site.journal.append_clean()
            site.journal.close()
        self.jobs = {key for key in snapshot(self._open_copy().yard) if isinstance(key, int)}
        self.pieces = [piece for name in self.segments() for piece in _pieces(self.storage, name)]

    def _open(self) -> OpenYard:
        return OpenYard(self.storage, self.now_ms, segment_size=SEGMENT, budget=0)

    def _open_copy(self) -> OpenYard:
        return OpenYard(self.storage.killed(), self.now_ms, segment_size=SEGMENT, budget=0)

    def segments(self) -> list[str]:
        """Return the names of all segments."""
        return sorted(name for name in self.storage.names() if segment_number(name) > 0)

    def used(self, name: str) -> int:
        """Return how many bytes of a segment were written."""
        return max((piece.end for piece in self.pieces if piece.name == name), default=0)

    def hit(self, name: str, start: int, end: int, *, is_bit: bool) -> set[int]:
        """Return the jobs that may be lost with these bytes."""
        found: set[int] = set()
        for piece in self.pieces:
            is_touched = piece.name == name and piece.start < end and start < piece.end
            if is_touched and not (is_bit and piece.is_shared):
                found |= piece.jobs
        return found


def _pieces(storage: MemoryStorage, name: str) -> list[Piece]:
    segment = Segment(segment_number(name), 0, storage.size(name))
    reader = Reader(storage, segment)
    found: list[Piece] = []
    while True:
        offset = int(reader.offset)
        head = reader.next()
        if head is None or head.magic == SEAL_MAGIC:
            return found
        shift = offset - int(reader.at)
        pos = int(reader.at) + BATCH_HEADER_SIZE
        end = pos + int(head.records_size)
        part2_at = offset + BATCH_HEADER_SIZE + int(head.part1_size)
        jobs: set[int] = set()
        data = reader.data
        while pos < end:
            length = int.from_bytes(data[pos + 4 : pos + 8], "little")
            if data[pos] in (KIND_PUT, KIND_MOVED):
                number = int.from_bytes(data[pos + 8 : pos + 16], "little")
                jobs.add(number)
                found.append(Piece(name, pos + shift, pos + length + shift, frozenset({number})))
            pos += length
        every = frozenset(jobs)
        found.append(Piece(name, offset, offset + BATCH_HEADER_SIZE, every, is_shared=True))
        found.append(Piece(name, part2_at - int(head.sums_size), part2_at, every, is_shared=True))


class Outcome(NamedTuple):
    """The result of one damage: jobs lost, jobs lost without being hit, jobs that came back."""

    lost: int
    unhit: list[int]
    back: int
    told_back: int
    told_lost: int
    text: str


def damage_and_repair(journal: Journal, kind: str, draw: Random) -> Outcome:
    """Damage one place, repair, start, and compare."""
    storage = journal.storage.killed()
    names = journal.segments()
    name = draw.choices(names, [journal.used(one) for one in names])[0]
    at = draw.randrange(journal.used(name))
    start, end = at, at + 1
    if kind == BIT:
        storage.flip(name, at, draw.randrange(8))
    else:
        start = at // SECTOR * SECTOR
        end = min(start + SECTOR, storage.size(name))
        if kind == SECTOR_NOISE:
            storage.write(name, start, draw.randbytes(end - start))
        else:
            storage.spoil(name, start)
    out = io.StringIO()
    is_repaired = repair_storage(storage, "data", journal.now_ms, out)
    assert is_repaired, (name, at, out.getvalue())
    site = OpenYard(storage, journal.now_ms, segment_size=SEGMENT, budget=0)
    recount(site.yard)
    found = {int(job.id) for job in site.yard.jobs.all()}
    lost = journal.jobs - found
    back = found - journal.jobs
    text = out.getvalue()
    unhit = lost - journal.hit(name, start, end, is_bit=kind == BIT)
    told = sum(int(count) for count in _BACK.findall(text))
    told_lost = sum(int(count) for count in _LOST.findall(text))
    text = f"{name} at {at}: lost {sorted(lost)}, back {sorted(back)}\n{text}"
    return Outcome(len(lost), sorted(unhit), len(back), told, told_lost, text)


def run(count: int, kind: str, seed: int = 1) -> list[Outcome]:
    """Damage a few journals in this many places, one at a time."""
    outcomes: list[Outcome] = []
    draw = Random(seed)
    each = 100
    while len(outcomes) < count:
        journal = Journal(seed + len(outcomes))
        left = min(each, count - len(outcomes))
        outcomes += [damage_and_repair(journal, kind, draw) for _ in range(left)]
    return outcomes


def main() -> int:
    """Run the trials; return 1 if a job was lost without being hit, or came back unreported."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    kind = sys.argv[2] if len(sys.argv) > 2 else BIT
    outcomes = run(count, kind)
    wrong = [one for one in outcomes if one.unhit or one.back > one.told_back]
    for one in wrong[:5]:
        sys.stdout.write(one.text)
    lost = sum(one.lost for one in outcomes)
    told = sum(one.told_lost for one in outcomes)
    back = sum(one.back for one in outcomes)
    sys.stdout.write(
        f"{len(outcomes)} times {kind}: {lost} jobs lost ({told} told), {back} finished jobs back, "
        f"{len(wrong)} wrong\n"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
