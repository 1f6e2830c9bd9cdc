"""Invariants that need access to the internals: recounts, restarts, damage, and use of the disk.

Everything here reads the yard and raises Violation; nothing here changes it. Trials that make
changes run on a copy of the disk.
"""

from collections.abc import Iterator
from random import Random
from typing import Final
from zlib import crc32

from jobyard.engine.jobs.listing import ALL_STATES, jobs_in
from jobyard.engine.recovery.open_yard import open_yard, replay_all
from jobyard.engine.state.yard import Yard
from jobyard.errors import JournalDamaged
from jobyard.journal.bodies import Bodies
from jobyard.journal.format.key_record import KEY_SIZE
from jobyard.journal.journal import Journal
from jobyard.journal.space.live_bytes import entry_bytes, queue_bytes
from jobyard.model.details import FailureReason
from jobyard.model.entry import EntryKind
from jobyard.model.index.heap import Heap
from jobyard.model.job import Job
from jobyard.model.queue import Queue
from jobyard.model.topic.key_table import KEY_MEMORY, KeyTable
from jobyard.protocols.beanstalk.door import BeanstalkDoor
from jobyard.protocols.beanstalk.session import BeanstalkSession
from jobyard.protocols.session import Peer
from sim.beanstalk.memory import DEAD, DELAYED, OVER, READY, Memory
from sim.beanstalk.model import Model
from sim.beanstalk.statistics import URGENT, standing
from sim.boot import FixedFacts
from sim.state import ModelJob, Tube, Violation
from sim.storage import VirtualDisk
from sim.workload import Swarm

Dump = list[tuple[tuple[int, ...], str, bytes | None]]

_BATCH: Final = b"JYBT"
_SEAL: Final = b"JYSL"


# -- counters ----------------------------------------------------------------------------------


def check_counts(yard: Yard, model: Model) -> None:
    """Compare the yard's counters with the model: cheap, after every step."""
    expected = standing(list(model.tubes.values()))
    told = {
        "urgent": int(yard.urgent_count),
        "ready": int(yard.ready_count),
        "reserved": int(yard.leased_count),
        "delayed": int(yard.delayed_count),
        "buried": int(yard.dead_count),
    }
    if told != expected:
        raise Violation("counters", f"expected {expected}, the yard has {told}")


def check_yard(yard: Yard, model: Model) -> None:
    """Recount everything and check that every job is where the model has it."""
    check_counts(yard, model)
    if list(yard.queues) != list(model.tubes):
        raise Violation("tubes", f"expected {list(model.tubes)}, the yard has {list(yard.queues)}")
    for name, queue in yard.queues.items():
        _check_queue(queue, model.tubes[name])
    counts = {int(yard.jobs.count), int(yard.journal.live_bytes.jobs_count)}
    if counts != {len(model.jobs)}:
        raise Violation("counters", f"{counts} jobs in the yard, {len(model.jobs)} put")
    kept = kept_bytes(yard)
    if kept != int(yard.bodies.in_memory):
        raise Violation("counters", f"{yard.bodies.in_memory} body bytes counted, {kept} are there")
    check_heap(yard.timers, "timers")


def _check_queue(queue: Queue, tube: Tube) -> None:
    ready = sorted((int(job.sort_key), _id_of(job)) for job in queue.ready.items)
    delayed = sorted((_id_of(job)) for job in queue.delayed.items)
    if ready != tube.ready or delayed != sorted(number for _, number in tube.delayed):
        raise Violation("ready lists", f"{tube.name}: {ready} {delayed}, not {tube.ready}")
    urgent = sum(1 for rank, _ in ready if rank < URGENT)
    counts = (int(queue.urgent_count), len(queue.leased.items), int(queue.dead.live_count))
    if counts != (urgent, tube.leased_count, len(tube.buried)):
        raise Violation("counters", f"{tube.name}: urgent, leased and dead counted as {counts}")
    check_heap(queue.ready, tube.name)
    check_heap(queue.delayed, tube.name)
    if queue.delayed.items and (queue.pos < 0 or queue.sort_key > queue.delayed.items[0].sort_key):
        raise Violation("timers", f"{tube.name} has delayed jobs and no timer for them")


def _id_of(item: object) -> int:
    assert isinstance(item, Job)
    return int(item.id)


def check_heap(heap: Heap, name: str) -> None:
    """Check the order of a heap, and that its items store their positions."""
    items = heap.items
    for slot, item in enumerate(items):
        above = items[(slot - 1) // 2] if slot else item
        if item.pos != slot or (above.sort_key, above.stamp) > (item.sort_key, item.stamp):
            raise Violation("heap", f"{name}: slot {slot} is out of order")


def kept_bytes(yard: Yard) -> int:
    """Return how many bytes of bodies, results, values of members and errors are in memory."""
    kept = 0
    # Bodies of emptied queues count until they are freed.
    left = [job for grave in yard.condemned.values() for job in jobs_in(grave, ALL_STATES)]
    for job in [*yard.jobs.all(), *left]:
        kept += int(job.size) if job.body is not None else 0
        outcome = None if job.details is None else job.details.outcome
        kept += 0 if outcome is None else len(outcome.result)
        members = None if job.details is None else job.details.members
        kept += sum(len(member.value) for member in members or ())
        kept += 0 if job.details is None else len(job.details.last_error)
    return kept + sum(int(table.count) * KEY_MEMORY for table in tables_of(yard))


def tables_of(yard: Yard) -> list[KeyTable]:
    """Return the keys of the records of all topics that have any."""
    states = [queue.topic_state for queue in yard.queues.values()]
    tables = [log.record_keys for log in yard.logs.values()]
    tables += [None if state is None else state.record_keys for state in states]
    return [table for table in tables if table is not None]


def check_memory(bodies: Bodies, swarm: Swarm) -> None:
    """Check that bodies beyond the budget left memory once everything was written."""
    if bodies.in_memory - bodies.pinned > swarm.body_budget:
        raise Violation("memory", f"{bodies.in_memory} body bytes, budget {swarm.body_budget}")


# -- restarts ----------------------------------------------------------------------------------


def describe(job: Job) -> tuple[int, ...]:
    """Return everything about a job that survives a restart, except its tube and body."""
    details = job.details
    counts = (0, 0, 0, 0)
    if details is not None and details.counters is not None:
        counters = details.counters
        counts = (
            int(counters.timeouts),
            int(counters.releases),
            int(counters.buries),
            int(counters.kicks),
        )
    fixed = (int(job.id), int(job.own_ms), int(job.created_ms), int(job.stamp), int(job.key))
    moving = (int(job.state), int(job.rank), int(job.due_ms), int(job.delay_ms))
    return (*fixed, *moving, int(job.deliveries), *counts)


def dump(yard: Yard) -> Dump:
    """Return a yard without leases as plain values, in a fixed order."""
    jobs = [(describe(job), job.queue.name, yard.bodies.fetch(job)) for job in yard.jobs.all()]
    dead = [
        (tuple(outcome.key for outcome in queue.dead.live()), name, None)
        for name, queue in sorted(yard.queues.items())
        if queue.dead.live_count > 0
    ]
    return [*jobs, *dead]


def _difference(found: Dump, wanted: Dump) -> str:
    """Return what only one of the two has, with shortened bodies."""

    def only(here: Dump, there: Dump) -> list[tuple[object, ...]]:
        return [(one[0], one[1], (one[2] or b"")[:40]) for one in here if one not in there]

    return f"{only(found, wanted)} is not {only(wanted, found)}"


class Restart:
    """Compares a recovered yard with the states that the model allows after a restart."""

    def __init__(self, model: Model, yard: Yard, now: int, base: int) -> None:
        self._model = model
        self._now = now
        # Steady time of this boot minus world time; also the wall clock's offset at its start.
        self._base = base
        self._jobs = {int(job.id): job for job in yard.jobs.all()}
        self._yard = yard

    def find_cut(self, floor: int) -> int:
        """Return the newest record up to which everything came back; it must be >= `floor`."""
        model = self._model
        last = model.records.count
        recent = {job.id: job for job in model.records.recent}
        unknown = [n for n in self._jobs if n not in model.jobs and n not in recent]
        if unknown:
            raise Violation("no job from nowhere", f"jobs {unknown} were deleted or never put")
        for number, job in model.jobs.items():
            if number not in recent and not self._matches(job, job.history[-1].memories):
                raise Violation("restart", self._story(job))
        possible = set(range(floor, last + 1))
        for job in recent.values():
            fitting = self._fitting(job, last)
            if not possible & fitting:
                story = f"records {floor} to {last} must agree; {self._story(job)}"
                raise Violation("restart", story)
            possible &= fitting
        return max(possible)

    def _fitting(self, job: ModelJob, last: int) -> set[int]:
        """Return the records up to which a replay would leave this job as it was found."""
        history = job.history
        fitting: set[int] = set()
        if history[0].first > 0 and job.id not in self._jobs:
            fitting.update(range(history[0].last))
        for i, entry in enumerate(history):
            stop = history[i + 1].last if i + 1 < len(history) else last + 1
            if self._matches(job, entry.memories):
                fitting.update(range(entry.first, stop))
        return fitting

    def _matches(self, job: ModelJob, memories: list[Memory] | None) -> bool:
        found = self._jobs.get(job.id)
        if memories is None or found is None:
            return memories is None and found is None
        return self._is_same(job, found) and any(self._fits(m, found) for m in memories)

    def _is_same(self, job: ModelJob, found: Job) -> bool:
        created = int(found.created_ms)
        return (
            found.queue.name == job.tube.name
            and int(found.own_ms) == job.ttr_ms
            and created in job.created_walls
            and self._yard.bodies.fetch(found) == job.body
        )

    def _fits(self, memory: Memory, found: Job) -> bool:
        if found.rank != memory.rank or not self._is_counted(memory, found):
            return False
        if memory.state != DELAYED:
            return found.state == memory.state
        return any(self._is_due(memory, wall, found) for wall in memory.walls)

    def _is_counted(self, memory: Memory, found: Job) -> bool:
        """Compare counts and the last delay; on a full disk some may be unrecorded."""
        counts = describe(found)[9:]
        if not self._model.records.may_skip:
            return found.delay_ms == memory.delay_ms and counts == memory.counts
        is_alike = memory.state != DELAYED or found.delay_ms == memory.delay_ms
        fewer = all(n <= most for n, most in zip(counts[:3], memory.counts[:3], strict=True))
        return is_alike and fewer and counts[3:] == memory.counts[3:]

    def _is_due(self, memory: Memory, wall: int, found: Job) -> bool:
        now_ms = self._now + self._base
        left = min(wall - now_ms, memory.delay_ms)
        if wall == OVER or left <= 0:
            return found.state == READY
        return found.state == DELAYED and found.due_ms == now_ms + left

    def _story(self, job: ModelJob) -> str:
        found = self._jobs.get(job.id)
        seen = "gone" if found is None else f"{describe(found)} in {found.queue.name}"
        entries = [
            (
                f"{entry.first}-{entry.last}",
                [(m.state, m.rank, m.delay_ms, m.counts, m.walls) for m in entry.memories or ()],
            )
            for entry in job.history
        ]
        known = f"job {job.id} of {job.tube.name}, {len(job.body)} bytes"
        return f"{known}, came back as {seen}; had {entries}"

    # -- continuing from there -----------------------------------------------------------------

    def collapse(self, cut: int) -> None:
        """Continue the model from the state that was found, one of those it allowed."""
        model = self._model
        known = {**{job.id: job for job in model.records.recent}, **model.jobs}
        self._check_burials(known, cut)
        model.begin(self._now)
        model.records.wall_offset = self._base
        for name in self._yard.queues:
            model.open_tube(name)
        model.open_tube("default")
        dead = []
        for number, found in self._jobs.items():
            job = known[number]
            entry = [e for e in job.history if e.first <= cut and self._matches(job, e.memories)][
                -1
            ]
            entry.first = entry.last = 0
            job.history = [entry]
            job.ending = max(memory.ending for memory in entry.memories or ())
            if found.state == READY:
                # A copy of the record of its delay, made from now on, states that it is over.
                for memory in entry.memories or ():
                    memory.walls.add(OVER)
            self._adopt(job, found)
            model.jobs[number] = job
            if job.state == DEAD:
                dead.append(job)
            else:
                model.enter(job, job.state)
        for job in sorted(dead, key=lambda job: job.ending):
            model.enter(job, DEAD)
        model.records.waited = 0
        model.next_id = int(self._yard.journal.next_id)
        model.records.note_wall(self._base, model.jobs.values())

    def _adopt(self, job: ModelJob, found: Job) -> None:
        facts = describe(found)
        job.tube = self._model.open_tube(found.queue.name)
        job.holder = None
        job.waited = 0
        job.created = facts[2] - self._base
        job.state, job.rank, due_ms, job.delay_ms = facts[5:9]
        job.due = due_ms - self._base
        job.reserves, job.timeouts, job.releases, job.buries, job.kicks = facts[9:]

    def _check_burials(self, known: dict[int, ModelJob], cut: int) -> None:
        """Check that dead jobs come back in the order of their burials."""
        for queue in self._yard.queues.values():
            endings = []
            for outcome in queue.dead.live():
                job = known[int(outcome.job.id)]  # type: ignore[attr-defined]
                entry = [e for e in job.history if e.first <= cut][-1]
                endings.append(max(m.ending for m in entry.memories or ()))
            if endings != sorted(endings):
                raise Violation("order", f"the buried of {queue.name} changed places: {endings}")


def check_stamps(yard: Yard) -> None:
    """Check that places in line rise with ids, and that the next numbers exceed all others."""
    last = 0
    for job in yard.jobs.all():
        if job.stamp <= last or job.key >= job.queue.next_seq:
            raise Violation("order", f"job {job.id} has stamp {job.stamp} after {last}")
        last = int(job.stamp)
        if job.id >= yard.journal.next_id:
            raise Violation("ids", f"job {job.id} exists and {yard.journal.next_id} is issued next")


def open_copy(disk: VirtualDisk, swarm: Swarm, now_ms: int) -> Yard:
    """Recover a yard from a disk, as a start would."""
    journal = Journal(disk, swarm.segment_size, ids_ahead=swarm.is_os)
    journal.history.keep(swarm.events_ms, swarm.events_bytes)
    yard = Yard(journal, Bodies(journal, swarm.body_budget))
    open_yard(yard, disk, now_ms, yard_id=f"yard-{now_ms}")
    return yard


def check_repeatable(before: VirtualDisk, yard: Yard, swarm: Swarm, now_ms: int) -> None:
    """Recover a copy twice, the second time after a power cut: the results must be equal."""
    disk = before.clone()
    wanted = dump(yard)
    for _ in range(2):
        again = open_copy(disk, swarm, now_ms)
        if dump(again) != wanted:
            raise Violation("recovery twice", _difference(dump(again), wanted))
        disk.cut_power()


# -- the journal's accounting ------------------------------------------------------------------


def check_live(yard: Yard, disk: VirtualDisk, swarm: Swarm, now_ms: int) -> None:
    """Recount by a fresh replay what compaction would have to save of each segment.

    Call it only when everything appended has been written.
    """
    journal = Journal(disk.clone(), swarm.segment_size, ids_ahead=swarm.is_os)
    fresh = Yard(journal, Bodies(journal, 0))
    replay_all(fresh, journal.storage(), now_ms)
    counted = {n: int(s.live) for n, s in yard.journal.segments.items()}
    for queue in yard.queues.values():
        # A replay forgets tubes without jobs and settings; here they exist as long as clients
        # use them.
        if queue.jobs_count() == 0 and queue.segment != 0 and fresh.queues.get(queue.name) is None:
            counted[int(queue.segment)] -= int(queue_bytes(queue))
    for grave in yard.condemned.values():
        # It keeps its name until the last of its jobs is freed, which a start does at once.
        if grave.segment != 0:
            counted[int(grave.segment)] -= int(queue_bytes(grave))
    found = {n: int(s.live) for n, s in journal.segments.items()}
    for name, queue in fresh.queues.items():
        known = yard.queues.get(name)
        is_gone_here = known is None or known.segment == 0
        if queue.jobs_count() == 0 and queue.segment != 0 and is_gone_here:
            # A queue with settings gets its old number again, which it had lost here.
            found[int(queue.segment)] -= int(queue_bytes(queue))
    for place, entry in journal.entries.items():
        if entry.is_gone and not yard.journal.entries.has(place):
            # Compaction has found that no older value is left for it to override.
            found[int(entry.segment)] -= int(entry_bytes(entry))
    _pass_over_keys(yard, fresh, counted, found)
    wrong = {n: (counted[n], found.get(n)) for n in counted if counted[n] != found.get(n, 0)}
    if wrong:
        raise Violation("live bytes", f"segments (counted, found by replay): {wrong}")


def _pass_over_keys(
    yard: Yard, fresh: Yard, counted: dict[int, int], found: dict[int, int]
) -> None:
    """Count write keys only where both yards have them: no record states that one is gone."""
    for here, there, books in ((yard, fresh, counted), (fresh, yard, found)):
        for place, entry in here.journal.entries.items():
            if entry.kind == EntryKind.WRITE and not there.journal.entries.has(place):
                books[int(entry.segment)] -= int(entry_bytes(entry))
        for number, log in here.log_numbers.items():
            other = there.log_numbers.get(number)
            for name, key in log.keys.items():
                if key.segment != 0 and (other is None or other.keys.get(name) is None):
                    books[int(key.segment)] -= int(key.weight)
        for number, table in here.key_tables.items():
            twin = there.key_tables.get(number)
            for each in table.numbers():
                segment = int(table.segment_of(each))
                if segment in books and (twin is None or twin.find(table.digest_at(each)) < 0):
                    books[segment] -= KEY_SIZE


def check_room(yard: Yard, disk: VirtualDisk, swarm: Swarm) -> None:
    """Check that an idle yard uses no more disk than its data needs."""
    journal = yard.journal
    live = sum(int(segment.live) for segment in journal.segments.values())
    promised = len(yard.jobs.all()) * 64 // swarm.segment_size
    # A file made for one large item keeps that length until the next roll, even if it is gone.
    unsealed = [segment for segment in journal.segments.values() if not segment.is_sealed]
    longer = sum(max(0, int(each.size) - swarm.segment_size) for each in unsealed)
    history = sum(int(each.size) for each in journal.segments.values() if each.is_history)
    most = 3 * live + (promised + 8) * swarm.segment_size + longer + history
    if disk.usage() > most:
        story = f"{disk.usage()} bytes in {len(disk.files)} files for {live} live bytes"
        raise Violation("disk use", story)


# -- damage ------------------------------------------------------------------------------------


def known_ranges(disk: VirtualDisk) -> list[tuple[str, int, int]]:
    """Return (name, start, end) of everything that the disk itself states to be durable.

    That is every sealed segment up to its seal, and in the others each batch that a later header
    calls durable.
    """
    found: list[tuple[str, list[tuple[int, int, int]], bool]] = []
    durable = 0
    for name in sorted(disk.files):
        if not name.endswith(".journal"):
            continue
        data = bytes(disk.files[name].view)
        batches = []
        is_sealed = False
        for start, end, head in _batches(data, int(name.split(".")[0])):
            batches.append((start, end, int.from_bytes(head[16:24], "little")))
            durable = max(durable, int.from_bytes(head[48:56], "little"))
            is_sealed = head.startswith(_SEAL)
        found.append((name, batches, is_sealed))
    ranges = []
    for name, batches, is_sealed in found:
        if is_sealed:
            ranges.append((name, 0, batches[-1][1]))
        else:
            ranges += [(name, start, end) for start, end, n in batches if n <= durable]
    return ranges


def _batches(data: bytes, number: int) -> Iterator[tuple[int, int, bytes]]:
    at = 64
    while data[at : at + 4] in (_BATCH, _SEAL):
        head = data[at : at + 96]
        if int.from_bytes(head[24:28], "little") != number:
            return
        part2_at = at + 96 + int.from_bytes(head[4:8], "little")
        end = part2_at + int.from_bytes(head[8:16], "little")
        # Over the sums of the records if there are any; a torn tail may have these but not those.
        sums_size = int.from_bytes(head[84:88], "little")
        summed_at = part2_at - sums_size if sums_size else at + 96
        crc = crc32(data[summed_at:part2_at], crc32(head[:88]))
        if crc != int.from_bytes(head[88:96], "little"):
            return
        yield at, end, head
        at = end
        if head.startswith(_SEAL):
            return


def check_damage(before: VirtualDisk, yard: Yard, swarm: Swarm, now_ms: int, rng: Random) -> str:
    """Damage data that is known to be on disk; a start must refuse it or show no difference.

    Return the result as text.
    """
    disk = before.clone()
    ranges = known_ranges(disk)
    if not ranges:
        return "nothing to damage"
    what, where = damage(disk, ranges, rng)
    try:
        again = open_copy(disk, swarm, now_ms)
    except JournalDamaged:
        return f"{what} refused"
    wanted = dump(yard)
    found = dump(again)
    damaged = _unreadable(found, wanted)
    if damaged is None:
        raise Violation("silent damage", f"{what}, {where}: {_difference(found, wanted)}")
    for number in damaged:
        _check_set_aside(again, number, now_ms)
    return f"{what} found in a body" if damaged else f"{what} without effect"


def damage(disk: VirtualDisk, ranges: list[tuple[str, int, int]], rng: Random) -> tuple[str, str]:
    """Flip a bit, or lose the end or all of a file that is not the newest of its temperature."""
    name, start, end = ranges[int(rng.random() * len(ranges))]
    view = disk.files[name].view
    at = start + int(rng.random() * (end - start))
    newest = {bytes(disk.files[each].view[20:24]): each for each, _, _ in ranges}
    chance = rng.random()
    if chance < 0.7 or name in newest.values():
        view[at] ^= 1 << int(rng.random() * 8)
        return "flip", f"{name} at {at}"
    if chance < 0.85:
        del view[at:]
        return "lost end", f"{name} at {at}"
    disk.unlink(name)
    return "lost file", name


def _unreadable(found: Dump, wanted: Dump) -> list[int] | None:
    """Return the jobs whose bodies cannot be read; None if anything else differs."""
    if len(found) != len(wanted):
        return None
    damaged = []
    for one, other in zip(found, wanted, strict=True):
        if one[:2] == other[:2] and one[2] is None and other[2] is not None:
            damaged.append(one[0][0])
        elif one != other:
            return None
    return damaged


def _check_set_aside(yard: Yard, number: int, now_ms: int) -> None:
    """Check that a job whose body is damaged is buried and never delivered."""
    job = yard.jobs.get(number)
    was_dead = job is not None and job.state == DEAD
    session = BeanstalkSession(BeanstalkDoor(yard, FixedFacts(), 0, now_ms), Peer())
    session.receive(b"peek %d\r\nreserve-job %d\r\n" % (number, number), now_ms)
    said = session.take_output()
    if said != b"INTERNAL_ERROR\r\nNOT_FOUND\r\n" or job is None or job.state != DEAD:
        raise Violation("silent damage", f"job {number}, its body unreadable: {said!r}")
    is_told = was_dead or job.outcome().reason == FailureReason.DAMAGED
    if not is_told or number not in yard.journal.damages.jobs:
        raise Violation("silent damage", f"the loss of the body of job {number} is not reported")
