"""A queue that is a topic against a plain list of jobs, with crashes and compaction in between."""

from copy import deepcopy

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from jobyard.engine.topics import topic_queue
from jobyard.model.entry import EntryKind
from jobyard.model.job import DELAYED, LEASED
from jobyard.model.topic.config import TopicConfig
from jobyard.model.topic.log import TopicFull
from tests.support.engine.topics import Topic, config, record
from tests.support.site.recount import recount
from tests.support.site.site import NOW_MS
from tests.support.site.snapshot import Snapshot, snapshot
from tests.support.site.storage import MemoryStorage

NODES = st.sampled_from(["a", "b"])
TAGS = st.sampled_from(["", "x:1", "x:2", "y"])
SEGMENT = 1 << 13

CONFIGS = st.sampled_from(
    [
        config(idempotency_window_ms=3000),
        config(max_deliveries=2, dead_letter="t.dlq"),
        config(cap_records=4, max_deliveries=3, dead_letter="t.dlq"),
        config(cap_records=4, discard="reject"),
        config(cap_bytes=40),
        config(ttl_ms=2500),
    ]
)


class PlainJob:
    """A job as a client sees it."""

    def __init__(self, seq: int, data: bytes, tag: str, rank: int, created_ms: int) -> None:
        self.seq = seq
        self.data = data
        self.tag = tag
        self.rank = rank
        self.created_ms = created_ms
        self.due_ms = created_ms
        self.deliveries = 0
        self.node = ""
        self.deadline_ms = 0

    def facts(self, now_ms: int) -> tuple[object, ...]:
        """Return how it should be shown."""
        state = "leased" if self.node else "delayed" if self.due_ms > now_ms else "ready"
        return self.seq, self.data, self.tag, self.deliveries, state, self.node


class PlainQueue:
    """The jobs of a queue in a list, and the rules in the fewest words."""

    def __init__(self, given: TopicConfig) -> None:
        self.config = given
        self.jobs: list[PlainJob] = []
        self.next_seq = 1
        self.writes: dict[str, tuple[int, int, int]] = {}
        self.letters: list[tuple[int, int]] = []

    def live(self, now_ms: int) -> list[PlainJob]:
        """Return the jobs that have not expired; whether the others are gone is open."""
        ttl_ms = self.config.ttl_ms
        return [
            job for job in self.jobs if ttl_ms == 0 or job.node or now_ms < job.created_ms + ttl_ms
        ]

    def tick(self, now_ms: int) -> None:
        """End expired leases."""
        for job in self.jobs:
            if job.node and job.deadline_ms <= now_ms:
                job.node = ""

    def is_full(self, sizes: list[int]) -> bool:
        """Return whether this many more are too many."""
        cap = self.config.cap_records
        most = self.config.cap_bytes
        size = sum(len(job.data) for job in self.jobs) + sum(sizes)
        return 0 < cap < len(self.jobs) + len(sizes) or 0 < most < size

    def evict_for(self, sizes: list[int]) -> bool:
        """Evict the oldest jobs; False if the write must be refused."""
        if not self.is_full(sizes):
            return True
        if self.config.discard == "reject":
            return False
        for job in [one for one in self.jobs if not one.node]:
            if self.is_full(sizes):
                self.jobs.remove(job)
        return True

    def claim(self, node: str, most: int, lease_ms: int, now_ms: int) -> list[int]:
        """Lease the first jobs; those delivered too often become dead letters."""
        ready = [one for one in self.live(now_ms) if not one.node and one.due_ms <= now_ms]
        claimed: list[int] = []
        for job in sorted(ready, key=lambda one: (one.rank, one.seq)):
            if len(claimed) == most:
                break
            if self.config.dead_letter and 0 < self.config.max_deliveries <= job.deliveries:
                self.jobs.remove(job)
                self.letters.append((job.seq, job.deliveries))
                continue
            job.deliveries += 1
            job.node = node
            job.deadline_ms = now_ms + lease_ms
            claimed.append(job.seq)
        return sorted(claimed)

    def held(self, node: str, seqs: list[int]) -> list[PlainJob]:
        """Return the jobs a node holds, each once."""
        return [job for job in self.jobs if job.seq in seqs and job.node == node]


def facts(site: Topic) -> Snapshot:
    """Return all that must survive; a log may leave out seqs that it had reserved."""
    found = snapshot(site.yard)
    write = f"entry {EntryKind.WRITE} "
    return {key: value for key, value in found.items() if not str(key).startswith(("log ", write))}


class ClaimsMachine(RuleBasedStateMachine):
    """Does the same to both and compares what a client can see."""

    @initialize(given=CONFIGS)
    def open(self, given: TopicConfig) -> None:
        self.storage = MemoryStorage()
        self.site = Topic(self.storage, NOW_MS, given=given, segment_size=SEGMENT)
        self.plain = PlainQueue(given)
        self.site.commit()
        self.saved = deepcopy(self.plain)
        self.leases: dict[int, str] = {}

    @property
    def now_ms(self) -> int:
        return self.site.now_ms

    @rule(
        sizes=st.lists(st.integers(1, 20), min_size=1, max_size=3),
        tag=TAGS,
        priority=st.integers(-1, 1),
        delay_ms=st.sampled_from([0, 0, 500]),
        key=st.sampled_from(["", "", "k"]),
    )
    def produce(self, sizes: list[int], tag: str, priority: int, delay_ms: int, key: str) -> None:
        known = self.plain.writes.get(key)
        records = [record(b"1" * size, tag, priority=priority, delay_ms=delay_ms) for size in sizes]
        window_ms = self.plain.config.idempotency_window_ms
        if known is not None and known[2] + window_ms > self.now_ms:
            done = self.site.produce(*records, key=key)
            assert (done.first_seq, done.last_seq, done.is_deduped) == (*known[:2], True)
            return
        if not self.plain.evict_for(sizes):
            before = snapshot(self.site.yard)
            try:
                self.site.produce(*records, key=key)
            except TopicFull:
                assert snapshot(self.site.yard) == before
                return
            raise AssertionError("a full queue took more")
        done = self.site.produce(*records, key=key)
        assert (done.first_seq, done.is_deduped) == (self.plain.next_seq, False)
        for size in sizes:
            job = PlainJob(self.plain.next_seq, b"1" * size, tag, -priority, self.now_ms)
            job.due_ms += delay_ms
            self.plain.jobs.append(job)
            self.plain.next_seq += 1
        config = self.plain.config
        if 0 < config.cap_records < len(sizes) or 0 < config.cap_bytes < sum(sizes):
            self.plain.evict_for([])
        assert done.last_seq == self.plain.next_seq - 1
        if key:
            self.plain.writes[key] = (int(done.first_seq), int(done.last_seq), self.now_ms)

    @rule(node=NODES, most=st.integers(1, 4), lease_ms=st.sampled_from([100, 1000, 30_000]))
    def claim(self, node: str, most: int, lease_ms: int) -> None:
        leases = self.site.claim(node, most, lease_ms)
        expected = self.plain.claim(node, most, lease_ms, self.now_ms)
        assert [int(lease.job.key) for lease in leases] == expected
        for lease in leases:
            self.leases[int(lease.job.key)] = topic_queue.lease_name(self.site.yard, lease)

    @rule(node=NODES, seqs=st.lists(st.integers(1, 12), max_size=5), fenced=st.booleans())
    def ack(self, node: str, seqs: list[int], *, fenced: bool) -> None:
        ids = [self.leases.get(seq, "") for seq in seqs] if fenced else None
        held = self.plain.held(node, seqs)
        ended = self.site.ack(*seqs, node=node, ids=ids)
        assert ended.done == len(held)
        assert len(ended.skipped) == len(seqs) - len(held)
        self.plain.jobs = [job for job in self.plain.jobs if job not in held]

    @rule(
        node=NODES,
        seqs=st.lists(st.integers(1, 12), max_size=5),
        delay_ms=st.sampled_from([0, 700]),
    )
    def nack(self, node: str, seqs: list[int], delay_ms: int) -> None:
        held = self.plain.held(node, seqs)
        assert self.site.nack(*seqs, node=node, delay_ms=delay_ms).done == len(held)
        for job in held:
            job.node = ""
            job.due_ms = self.now_ms + delay_ms

    @rule(node=NODES, seqs=st.lists(st.integers(1, 12), max_size=5))
    def extend(self, node: str, seqs: list[int]) -> None:
        held = self.plain.held(node, seqs)
        ended = self.site.extend(*seqs, node=node, lease_ms=900)
        assert ended.deadlines == {job.seq: self.now_ms + 900 for job in held}
        for job in held:
            job.deadline_ms = self.now_ms + 900

    @rule(ms=st.sampled_from([1, 100, 500, 900, 2500, 31_000]))
    def wait(self, ms: int) -> None:
        until_ms = self.now_ms + ms
        while self.now_ms < until_ms:
            due_ms = self.site.jump()
            self.site.now_ms = max(self.now_ms, min(due_ms, until_ms))
        self.site.jump()
        self.plain.tick(self.now_ms)

    @rule(before_seq=st.integers(0, 12))
    def delete_below(self, before_seq: int) -> None:
        self.site.remove(before_seq=before_seq)
        self.plain.jobs = [job for job in self.plain.jobs if job.seq >= before_seq]

    @rule(tag=st.sampled_from(["x:1", "x:*", "y", "z*"]))
    def delete_tagged(self, tag: str) -> None:
        self.site.remove(tag=tag)
        self.plain.jobs = [
            job
            for job in self.plain.jobs
            if not (job.tag == tag or (tag.endswith("*") and job.tag.startswith(tag[:-1])))
            or not job.tag
        ]

    @rule()
    def commit(self) -> None:
        self.site.commit()
        self.saved = deepcopy(self.plain)

    @rule()
    def compact(self) -> None:
        self.site.compact()
        self.site.commit()
        self.saved = deepcopy(self.plain)

    @rule(is_clean=st.booleans())
    def crash(self, *, is_clean: bool) -> None:
        if is_clean:
            self.commit()
        before = facts(self.site)
        self.storage = self.storage.cut_off()
        self.site = Topic(self.storage, self.now_ms, segment_size=SEGMENT)
        if is_clean and self.plain.config.ttl_ms == 0:
            assert facts(self.site) == before
        self.plain = deepcopy(self.saved)
        for job in self.plain.jobs:
            job.node = ""
        self.saved = deepcopy(self.plain)
        self.leases.clear()
        self.site.jump()

    @invariant()
    def same(self) -> None:
        if not hasattr(self, "site"):
            return
        recount(self.site.yard)
        now_ms = self.now_ms
        ttl_ms = self.plain.config.ttl_ms
        found: list[tuple[object, ...]] = []
        for job in self.site.peek():
            if 0 < ttl_ms <= now_ms - int(job.created_ms) and job.state != LEASED:
                continue
            record_meta = topic_queue.record_meta_of(job)
            tag = record_meta.tag if record_meta is not None else ""
            state = {DELAYED: "delayed", LEASED: "leased"}.get(int(job.state), "ready")
            node = job.lease.terms.label if job.lease is not None else ""
            found.append((int(job.key), job.body, tag, int(job.deliveries), state, node))
        assert found == [job.facts(now_ms) for job in self.plain.live(now_ms)]
        log = self.site.yard.logs.get("t.dlq")
        assert (0 if log is None else log.count) == len(self.plain.letters)


ClaimsMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestClaims = ClaimsMachine.TestCase
