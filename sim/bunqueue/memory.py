"""A yard as plain values, and what a restart may change in them.

A snapshot of the running yard is taken when a batch is sealed. A restart that reads up to it
must bring back the same, except for what ends with a process: leases, and delays that are over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from zlib import crc32

from jobyard.engine.state.yard import due_stamp
from jobyard.model.entry import EntryKind
from jobyard.model.family import BUNQUEUE, GLIDE
from jobyard.model.job import BLOCKED, DEAD, DELAYED, DONE, LEASED, READY
from jobyard.model.throttle.ready_lists import ReadyList
from jobyard.model.throttle.settings import DEFAULTS
from sim.state import Violation

if TYPE_CHECKING:
    from jobyard.engine.state.yard import Yard
    from jobyard.model.details import JobDetails
    from jobyard.model.glidemq.fields import GlidePart
    from jobyard.model.job import Job

_DEFAULT_RULES: Final = DEFAULTS.encode()

# One job: what never changes, then what a restart may change.
Facts = dict[str, object]


def facts_of(job: Job) -> Facts:
    """Return everything about a job that survives a restart, except its body."""
    facts: Facts = {
        "queue": job.queue.name,
        "kind": (int(job.family), int(job.codec), int(job.key), int(job.own_ms)),
        "policy": job.policy.text,
        "created": int(job.created_ms),
        "state": int(job.state),
        "rank": int(job.rank),
        "due": int(job.due_ms),
        "delay": int(job.delay_ms),
        "stamp": int(job.stamp),
        "due stamp": int(due_stamp(job)),
        "ready_list": int(job.ready_list),
        "deliveries": int(job.deliveries),
        "attempts": int(job.attempts),
        "counts": (0, 0, 0),
        # The name of a lease that outlives the server.
        "lease": "",
        "steps": (0, 0),
        "rare": NOTHING,
        "part": (),
        "times": (),
    }
    details = job.details
    if details is None:
        return facts
    stored = details.durable_lease
    facts["lease"] = "" if stored is None else stored.name
    counters = details.counters
    if counters is not None:
        facts["counts"] = (int(counters.timeouts), int(counters.releases), int(counters.buries))
        facts["steps"] = (int(counters.stalls), int(counters.kicks))
    facts["rare"] = _rare(details)
    facts["times"] = _times(details)
    if details.glide is not None:
        facts["part"] = _part(details.glide)
    return facts


NOTHING: Final = ("", "", "", b"", 0, "", "", "", 0, (), (), (), ())


def _rare(details: JobDetails) -> tuple[object, ...]:
    """Return the parts that few jobs have, as they are in memory and not as they are written."""
    failures = [(int(one.attempt), int(one.reason), one.error) for one in details.failures or ()]
    members = [
        (int(one.child_id), one.label, int(one.state), one.value) for one in details.members or ()
    ]
    end = details.outcome
    outcome: tuple[object, ...] = ()
    if end is not None:
        # For a result that is only on disk, compare the checksum; reading it is tried elsewhere.
        crc = crc32(end.result) if end.result else int(end.result_crc)
        outcome = (int(end.key), int(end.reason), end.error, int(end.codec))
        outcome += (int(end.result_size), crc if end.result_size else 0)
    return (
        *(
            details.custom_id,
            details.unique_key,
            details.group_id,
            details.protocol_fields,
            int(details.parent_id),
        ),
        *(details.progress, details.message, details.stack, int(details.retries)),
        *(tuple(failures), tuple(members), outcome),
        tuple((one.level, one.text) for one in details.logs or ()),
    )


def _part(part: GlidePart) -> tuple[object, ...]:
    """Return the fields that only glide-mq jobs have, except when a signal comes too late."""
    limits = part.limits
    return (
        *(part.opts, part.ordering_key, int(part.order), int(part.cost), int(part.flags)),
        *(int(limits.concurrency), int(limits.rate_most), int(limits.rate_ms)),
        *(int(limits.capacity), int(limits.refill), part.parent_id, part.parent_queue),
        *(part.parent_ids, part.parent_queues, part.scheduler),
        tuple(sorted((part.overlay or {}).items())),
    )


def _times(details: JobDetails) -> tuple[int, ...]:
    end = details.outcome
    times = [] if end is None else [int(end.ended_ms), int(end.started_ms)]
    for failure in details.failures or ():
        times += [int(failure.started_ms), int(failure.failed_ms)]
    times += [int(line.at_ms) for line in details.logs or ()]
    if details.retried_ms:
        times.append(int(details.retried_ms))
    if details.unique_key and details.key_until_ms:
        times.append(int(details.key_until_ms))
    if details.glide is not None:
        times.append(int(details.glide.until_ms))
    return tuple(times)


class Snapshot:
    """A yard at the moment a batch was sealed."""

    def __init__(self, yard: Yard, bodies: dict[int, bytes]) -> None:
        self.jobs = {int(job.id): facts_of(job) for job in yard.jobs.all()}
        self.bodies = bodies
        # A start frees the remaining jobs of emptied queues, and then drops the entry for them.
        entries = entries_of(yard)
        self.entries = {key: entries[key] for key in entries if key[0] != EntryKind.CONDEMNED}
        self.tables = tables_of(yard)


_ENTRIES_APART: Final = frozenset(
    {
        *(EntryKind.POLICY, EntryKind.WRITE),
        *(EntryKind.TXN, EntryKind.CLAIM_SET, EntryKind.FENCE),
    }
)


def entries_of(yard: Yard) -> dict[tuple[int, bytes], bytes]:
    """Return the journal entries by kind and key.

    Policies are compared job by job; no record states that the key of a write is forgotten, or a
    transaction.
    """
    return {
        (int(entry.kind), bytes(entry.key)): bytes(entry.value)
        for entry in yard.journal.entries.values()
        if not entry.is_gone and entry.kind not in _ENTRIES_APART
    }


def found_by_name(yard: Yard) -> dict[str, int]:
    """Return the jobs with client-chosen names; removed ones may not be freed yet."""
    named = dict((*yard.names.custom.items(), *yard.names.glide.items()))
    there = {name: job for name, job in named.items() if job.id >= job.queue.gone_before}
    return {name: int(job.id) for name, job in there.items()}


def tables_of(yard: Yard) -> dict[str, object]:
    """Return the tables by which jobs are found by name."""
    names = yard.names
    keys: dict[tuple[str, str], tuple[int, int]] = {}
    for queue in yard.queues.values():
        for key, job in (queue.keys or {}).items():
            details = job.details
            assert details is not None
            keys[queue.name, key] = (int(job.id), int(details.key_until_ms))
    rules: dict[str, bytes] = {}
    for queue in yard.queues.values():
        if queue.rules is not None:
            rules[queue.name] = queue.rules.settings.encode()
            for group in queue.rules.groups.values():
                if not group.is_plain():
                    rules[f"{queue.name} {group.name}"] = group.encode()
    return {
        "rules": {name: rule for name, rule in rules.items() if rule != _DEFAULT_RULES},
        "custom": found_by_name(yard),
        "dependents": {
            child: sorted(int(job.id) for job in jobs) for child, jobs in names.dependents.items()
        },
        "keys": keys,
    }


# Fields that a full disk may leave unrecorded.
_SKIPPED: Final = ("deliveries", "counts")
# Fields that move with the wall clock.
_TIMES: Final = ("created", "due", "times", "stamp", "state", "ready_list")


class Comparison:
    """Compares a yard that came back with a snapshot."""

    def __init__(self, now_ms: int, *, may_skip: bool, has_jumped: bool) -> None:
        self._now_ms = now_ms
        self._may_skip = may_skip
        self._has_jumped = has_jumped

    def check(self, yard: Yard, snapshot: Snapshot) -> None:
        """Raise a Violation at the first difference."""
        found = {int(job.id): job for job in yard.jobs.all()}
        if found.keys() != snapshot.jobs.keys():
            lost = sorted(snapshot.jobs.keys() - found.keys())
            new = sorted(found.keys() - snapshot.jobs.keys())
            raise Violation("restart", f"jobs {lost} are lost, jobs {new} are back")
        for number, job in found.items():
            self._check_job(number, facts_of(job), self._expected(snapshot.jobs[number]))
            body = snapshot.bodies.get(number)
            if body is not None and yard.bodies.fetch(job) != body:
                raise Violation("restart", f"job {number} came back with another body")
            if job.state == DONE and yard.bodies.fetch_result(job) is None:
                raise Violation("restart", f"job {number} came back without its result")
        entries = entries_of(yard)
        if entries != snapshot.entries:
            raise Violation("restart", f"entries {entries}, not {snapshot.entries}")
        tables = tables_of(yard)
        for name, table in tables.items():
            wanted = snapshot.tables[name]
            if name == "keys":
                if not self._has_jumped and self._lasting(table) != self._lasting(wanted):
                    raise Violation("restart", f"keys: {table}, not {wanted}")
            elif table != wanted:
                raise Violation("restart", f"{name}: {table}, not {wanted}")

    def _lasting(self, keys: object) -> object:
        """Return the keys that still keep duplicates out."""
        assert isinstance(keys, dict)
        return {
            place: (number, until)
            for place, (number, until) in keys.items()
            if until == 0 or until > self._now_ms
        }

    def _expected(self, was: Facts) -> Facts:
        facts = dict(was)
        state = facts["state"]
        due, delay = facts["due"], facts["delay"]
        assert isinstance(due, int)
        assert isinstance(delay, int)
        if state == LEASED and not facts["lease"]:
            facts["state"] = READY
        elif state == DELAYED and due <= self._now_ms:
            facts["state"] = READY
            kind = facts["kind"]
            assert isinstance(kind, tuple)
            if kind[0] in {BUNQUEUE, GLIDE}:
                facts["stamp"] = facts["due stamp"]
            if kind[0] == GLIDE:
                facts["ready_list"] = ReadyList.STAGED
        elif state in {DELAYED, BLOCKED}:
            facts["due"] = min(due, self._now_ms + delay)
        return facts

    def _check_job(self, number: int, found: Facts, wanted: Facts) -> None:
        skipped = {"due stamp"}
        if found["state"] not in {DELAYED, BLOCKED}:
            skipped.add("due")
        if self._may_skip:
            skipped.update(_SKIPPED)
            if found["state"] not in {DELAYED, BLOCKED}:
                skipped.add("delay")
            if found["state"] in {DEAD, DONE}:
                # Its place in line no longer matters, and an unrecorded lease gave it one.
                skipped.add("stamp")
        if self._has_jumped:
            skipped.update(_TIMES)
        wrong = {
            key: (found[key], wanted[key])
            for key in wanted
            if key not in skipped and found[key] != wanted[key]
        }
        if wrong:
            raise Violation("restart", f"job {number} (found, expected): {wrong}")


def whole_dump(yard: Yard) -> list[tuple[object, ...]]:
    """Return a yard without leases as plain values, in a fixed order, bodies included."""
    dump: list[tuple[object, ...]] = [
        (int(job.id), tuple(facts_of(job).items()), yard.bodies.fetch(job))
        for job in yard.jobs.all()
    ]
    dump.append((0, tuple(sorted(entries_of(yard).items())), None))
    return dump
