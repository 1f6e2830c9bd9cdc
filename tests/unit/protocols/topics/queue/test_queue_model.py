"""A lease queue over HTTP compared with a few dictionaries, across restarts."""

import random
from typing import Any

import pytest

from tests.support.doors.topics import BareTopics
from tests.support.site.storage import MemoryStorage

NODES = ("a", "b", "c")
TAGS = ("", "x", "x:1", "y")


class Entry:
    """What one job should be."""

    def __init__(self, data: int, tag: str, node: str) -> None:
        self.data = data
        self.tag = tag
        self.node = node
        self.deliveries = 0
        # Ready from then on.
        self.due_ms = 0
        self.holder = ""
        self.until_ms = 0
        self.lease_id = ""


class Model:
    """A queue and its model, which get the same requests."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.site = BareTopics(MemoryStorage())
        self.site.api.put("q", type="queue", durable=True, lease_ms=1000)
        self.jobs: dict[int, Entry] = {}
        self.next_seq = 1
        self.stale: list[tuple[int, str]] = []

    def state_of(self, entry: Entry) -> str:
        """Return the state of a job."""
        if entry.holder:
            return "in_flight"
        return "delayed" if entry.due_ms > self.site.now_ms else "ready"

    def expire(self) -> None:
        """Take back what was held for too long."""
        for seq, entry in self.jobs.items():
            if entry.holder and entry.until_ms <= self.site.now_ms:
                self.stale.append((seq, entry.lease_id))
                entry.holder = ""
                entry.due_ms = 0

    # -- steps ---------------------------------------------------------------------------------

    def write(self) -> None:
        """Write some jobs."""
        entries = [
            Entry(self.next_seq + at, self.rng.choice(TAGS), self.rng.choice(("", *NODES)))
            for at in range(self.rng.randint(1, 4))
        ]
        records = [{"data": one.data, "tag": one.tag, "node": one.node} for one in entries]
        answer = self.site.api.ok("q", {"records": records})
        assert answer["seqs"] == list(range(self.next_seq, self.next_seq + len(entries)))
        for entry in entries:
            self.jobs[self.next_seq] = entry
            self.next_seq += 1

    def claim(self) -> None:
        """Claim some jobs."""
        node = self.rng.choice(NODES)
        most = self.rng.randint(1, 4)
        ready = [seq for seq, one in self.jobs.items() if self.state_of(one) == "ready"]
        claimed = self.site.api.claim("q", node=node, max=most)["claimed"]
        assert [job["$seq"] for job in claimed] == sorted(ready)[:most]
        for job in claimed:
            entry = self.jobs[job["$seq"]]
            entry.deliveries += 1
            assert (job["deliveries"], job["data"]) == (entry.deliveries, entry.data)
            assert job.get("$tag", "") == entry.tag
            entry.holder, entry.lease_id = node, job["lease_id"]
            entry.until_ms = self.site.now_ms + 1000
            assert job["deadline"] == entry.until_ms

    def end(self) -> None:
        """End or renew some leases, some of them not one's own."""
        node = self.rng.choice(NODES)
        verb, done = self.rng.choice([("ack", "acked"), ("nack", "nacked"), ("extend", "extended")])
        known = list(self.jobs)
        seqs = self.rng.sample(range(1, self.next_seq + 3), min(4, self.next_seq + 2))
        seqs += self.rng.sample(known, min(3, len(known)))
        ids = [self._id_of(seq) for seq in seqs] if self.rng.random() < 0.5 else None
        delay_ms = self.rng.choice((0, 0, 300))
        body: dict[str, object] = {"node": node, "seqs": seqs, "lease_ids": ids}
        body |= {"lease_ms": 2000, "delay_ms": delay_ms}
        answer = self.site.api.ok(f"q/{verb}", body)
        ended: list[int] = []
        skipped: list[int] = []
        for at, seq in enumerate(seqs):
            entry = self.jobs.get(seq)
            is_own = entry is not None and entry.holder == node and seq not in ended
            if entry is None or not is_own or (ids and ids[at] not in {"", entry.lease_id}):
                skipped.append(seq)
                continue
            ended.append(seq)
        assert (answer[done], answer["skipped"]) == (len(ended), skipped)
        for seq in ended:
            self._end(verb, seq, delay_ms)

    def _id_of(self, seq: int) -> str:
        stale = [name for one, name in self.stale if one == seq]
        entry = self.jobs.get(seq)
        fresh = [entry.lease_id] if entry is not None else []
        return self.rng.choice(["", "lease_0", *stale, *fresh, *fresh])

    def _end(self, verb: str, seq: int, delay_ms: int) -> None:
        entry = self.jobs[seq]
        if verb == "ack":
            del self.jobs[seq]
        elif verb == "nack":
            self.stale.append((seq, entry.lease_id))
            entry.holder = ""
            entry.due_ms = self.site.now_ms + delay_ms
        else:
            entry.until_ms = self.site.now_ms + 2000

    def delete(self) -> None:
        """Delete by tag, by seq or by both."""
        query: dict[str, object] = {}
        tag = self.rng.choice(["x", "x*", "y"])
        bound = self.next_seq
        how = self.rng.randint(0, 2)
        if how != 1:
            query["match"] = tag
        if how != 0:
            bound = self.rng.randint(0, max(0, self.next_seq - 6))
            query["before_seq"] = bound
        gone = [
            seq
            for seq, one in self.jobs.items()
            if seq < bound and (how == 1 or self._has(one, tag))
        ]
        assert self.site.api.ok("q/delete", query)["deleted"] == len(gone)
        for seq in gone:
            del self.jobs[seq]

    def _has(self, entry: Entry, tag: str) -> bool:
        if tag.endswith("*"):
            return entry.tag.startswith(tag[:-1]) and entry.tag != ""
        return entry.tag == tag

    def read(self) -> None:
        """Read from any position, as any node."""
        node = self.rng.choice(("", *NODES))
        cursor = self.rng.randint(0, self.next_seq - 1)
        limit = self.rng.randint(1, 5)
        page = self.site.api.diff("q", from_seq=cursor, limit=limit, node=node)
        wanted = [
            seq for seq, one in sorted(self.jobs.items())
            if seq > cursor and (not node or one.node != node)
        ]  # fmt: skip
        assert [one["$seq"] for one in page["records"]] == wanted[:limit]
        assert page["head_seq"] == self.next_seq - 1
        assert page["earliest_seq"] == min(self.jobs, default=self.next_seq)
        assert page["caught_up"] == (page["next_from_seq"] == page["head_seq"])
        if len(wanted) > limit:
            assert wanted[limit - 1] <= page["next_from_seq"] < wanted[limit]
        else:
            assert page["next_from_seq"] == page["head_seq"]
        assert page["tombstone"] is None

    def pass_time(self) -> None:
        """Let time pass."""
        self.site.tick(self.rng.choice((1, 100, 300, 999, 1000, 1001, 2500)))
        self.expire()

    def restart(self) -> None:
        """Lose power."""
        self.site = self.site.after_a_crash(self.rng.choice((0, 100, 400)))
        self.site.tick(0)
        for seq, entry in self.jobs.items():
            if entry.holder:
                self.stale.append((seq, entry.lease_id))
                entry.holder = ""
                entry.due_ms = 0

    def check(self) -> None:
        """Compare the counts."""
        state: Any = self.site.api.state("q")
        counts = dict.fromkeys(("ready", "in_flight", "delayed"), 0)
        for entry in self.jobs.values():
            counts[self.state_of(entry)] += 1
        assert {name: state["queue"][name] for name in counts} == counts
        assert state["count"] == len(self.jobs)
        assert state["bytes"] == sum(len(str(one.data)) for one in self.jobs.values())
        assert state["next_seq"] == self.next_seq


@pytest.mark.parametrize("seed", range(40))
def test_whatever_is_done_to_a_queue_is_as_it_should_be(seed: int) -> None:
    model = Model(seed)
    steps = [model.write, model.claim, model.claim, model.end, model.end, model.end]
    steps += [model.read, model.read, model.pass_time, model.delete]
    for _ in range(60):
        step = model.rng.choice(steps)
        if model.rng.random() < 0.05:
            step = model.restart
        step()
        model.check()
    model.site.check()
