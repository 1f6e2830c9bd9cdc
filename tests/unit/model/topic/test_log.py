from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from jobyard.engine.logs.logs import set_config
from jobyard.model.topic.log import LogTopic, chunk_base
from jobyard.model.topic.log_chunk import LOG_CHUNK_ROWS
from jobyard.model.topic.log_rows import LogRows, middle_of, text_of
from tests.support.engine.logs import (
    config_of,
    delete_below,
    delete_tagged,
    items,
    new_log,
    page_of,
    row,
    write,
)
from tests.support.site.recount import recount
from tests.support.site.site import NOW_MS
from tests.support.site.storage import MemoryStorage
from tests.support.site.yard import OpenYard


def rows_of(*seqs: int) -> LogRows:
    rows = LogRows(seqs[0], NOW_MS, NOW_MS)
    for seq in seqs:
        text = text_of(seq, middle_of(NOW_MS), b"%d" % seq)
        rows.add(seq, NOW_MS, NOW_MS, text, 0, b"", b"")
    rows.place(0)
    return rows


def test_a_chunk_begins_after_every_1024th_seq() -> None:
    assert [chunk_base(seq) for seq in (1, LOG_CHUNK_ROWS, LOG_CHUNK_ROWS + 1)] == [
        1,
        1,
        LOG_CHUNK_ROWS + 1,
    ]


def test_rows_may_come_back_in_any_order() -> None:
    log = LogTopic("log", config_of())
    log.is_filling = True
    for seq in (2000, 5, 5000, 7, 6, 2001, 1):
        log.put_back(rows_of(seq), 0, 3)
        log.next_seq = max(log.next_seq, seq + 1)
    log.sweep()
    found = [seq for seq in range(1, 5002) if log.is_alive(seq)]
    assert found == [1, 5, 6, 7, 2000, 2001, 5000]
    assert (log.count, log.earliest_seq, log.bytes) == (7, 1, 4 + 4 * 3)
    assert [int(chunk.base) for chunk in log.chunks] == [1, 1025, 4097]


def test_a_floor_takes_no_more_than_it_must() -> None:
    log = LogTopic("log", config_of())
    log.add(rows_of(*range(1, 3001)), 0)
    log.next_seq = 3001
    assert log.floor_without(1, 0) == 2
    assert log.floor_without(0, 10) == 11
    assert log.floor_without(2000, 0) == 2001
    assert log.floor_without(9999, 0) == 3001
    log.kill_below(1500)
    assert (log.count, log.earliest_seq) == (1501, 1500)
    assert log.floor_without(1, 0) == 1501


# -- against a plain list --------------------------------------------------------------------------


@dataclass
class Model:
    """What a log should hold, as simply as possible."""

    rows: list[dict[str, object]] = field(default_factory=list)
    next_seq: int = 1
    cap_floor: int = 1
    ttl_floor: int = 1

    def trim(self, cap: int, ttl_ms: int, now_ms: int) -> None:
        while ttl_ms and self.rows and now_ms - int(str(self.rows[0]["$ts"])) > ttl_ms:
            self.ttl_floor = int(str(self.rows.pop(0)["$seq"])) + 1
        while cap and len(self.rows) > cap:
            self.cap_floor = int(str(self.rows.pop(0)["$seq"])) + 1


WORDS = st.sampled_from(["", "a", "b:1", "b:2", 'q"\\ü'])
STEPS = st.one_of(
    st.tuples(st.just("write"), st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=300)),
    st.tuples(st.just("below"), st.integers(0, 900)),
    st.tuples(st.just("tag"), WORDS, st.booleans()),
    st.tuples(st.just("time"), st.integers(0, 300)),
    st.tuples(st.just("config"), st.sampled_from([0, 5, 250]), st.sampled_from([0, 200])),
    st.tuples(st.just("read"), st.integers(0, 900), st.integers(1, 400), WORDS, st.booleans()),
    st.tuples(st.just("restart")),
)


class Run:
    """One log and its model, step by step."""

    def __init__(self, budget: int, durability: str) -> None:
        self.budget = budget
        self.durability = durability
        self.site = OpenYard(MemoryStorage(), segment_size=1 << 14, budget=budget)
        self.log = new_log(self.site, durability=durability)
        self.model = Model()
        self.cap = 0
        self.ttl_ms = 0

    def trim(self) -> None:
        self.model.trim(self.cap, self.ttl_ms, self.site.now_ms)

    def write(self, labels: list[tuple[str, str]]) -> None:
        model = self.model
        self.trim()
        rows = [
            row(i, tag=tag, node=node, meta={"i": i} if i % 2 else None)
            for i, (tag, node) in enumerate(labels)
        ]
        write(self.site, self.log, *rows)
        for i, (tag, node) in enumerate(labels):
            item: dict[str, object] = {"$seq": model.next_seq, "$ts": self.site.now_ms}
            if tag:
                item["$tag"] = tag
            if node:
                item["$node"] = node
            item["data"] = i
            if i % 2:
                item["meta"] = {"i": i}
            model.rows.append(item)
            model.next_seq += 1
        self.trim()

    def below(self, seq: int) -> None:
        self.trim()
        kept = [item for item in self.model.rows if int(str(item["$seq"])) >= seq]
        assert delete_below(self.site, self.log, seq) == len(self.model.rows) - len(kept)
        self.model.rows = kept

    def tag(self, tag: str, prefix: bool) -> None:  # noqa: FBT001  drawn with the tag
        self.trim()

        def is_hit(item: dict[str, object]) -> bool:
            found = str(item.get("$tag", ""))
            return found != "" and (found.startswith(tag) if prefix else found == tag)

        kept = [item for item in self.model.rows if not is_hit(item)]
        deleted = delete_tagged(self.site, self.log, tag, prefix=prefix)
        assert deleted == len(self.model.rows) - len(kept)
        self.model.rows = kept

    def time(self, ms: int) -> None:
        self.site.jump(ms)
        self.site.commit()

    def config(self, cap: int, ttl_ms: int) -> None:
        self.trim()
        self.cap, self.ttl_ms = cap, ttl_ms
        config = config_of(durability=self.durability, cap_records=cap, ttl_ms=ttl_ms)
        set_config(self.site.yard, self.log, config, self.site.now_ms)
        self.trim()

    def read(self, from_seq: int, limit: int, node: str, tags: bool) -> None:  # noqa: FBT001
        self.trim()
        model = self.model
        nodes = [node] if node else []
        page = page_of(self.site, self.log, from_seq, limit, 1 << 30, *nodes, tags=tags)
        head = model.next_seq - 1
        floor = max(model.cap_floor, model.ttl_floor)
        if from_seq > head or from_seq + 1 < floor:
            assert page.tombstone is not None
            assert (page.tombstone.reason == "recreated") == (from_seq > head)
            from_seq = 0
        else:
            assert page.tombstone is None
        wanted = [
            item
            for item in model.rows
            if int(str(item["$seq"])) > from_seq and (not node or item.get("$node") != node)
        ]
        shown = wanted[:limit]
        if not tags:
            shown = [{key: value for key, value in item.items() if key != "$tag"} for item in shown]
        assert items(page) == shown
        if len(wanted) <= limit:
            # What it passes over behind its last record depends on where chunks end.
            assert page.next_from_seq in (head, shown[-1]["$seq"] if shown else head)
        else:
            # It may pass over records of the reader's own node, never over one to come.
            last, following = wanted[limit - 1]["$seq"], wanted[limit]["$seq"]
            assert int(str(last)) <= page.next_from_seq < int(str(following))

    def restart(self) -> None:
        self.site.commit()
        self.site.compact()
        recount(self.site.yard)
        storage = self.site.storage
        assert isinstance(storage, MemoryStorage)
        self.site = OpenYard(
            storage.cut_off(), self.site.now_ms, segment_size=1 << 14, budget=self.budget
        )
        self.log = self.site.yard.logs["log"]
        if self.durability == "ephemeral":
            assert self.log.next_seq >= self.model.next_seq
            self.model.next_seq = self.model.cap_floor = int(self.log.next_seq)
            self.model.rows = []


@settings(deadline=None, max_examples=90)
@given(
    st.sampled_from([(0, "fsync"), (1 << 40, "fsync"), (1 << 40, "ephemeral")]),
    st.lists(STEPS, max_size=25),
)
def test_a_log_is_what_a_plain_list_says(
    kind: tuple[int, str], steps: list[tuple[object, ...]]
) -> None:
    run = Run(*kind)
    for name, *arguments in steps:
        getattr(run, str(name))(*arguments)
        run.trim()
        page = page_of(
            run.site, run.log, max(run.model.cap_floor, run.model.ttl_floor) - 1, tags=True
        )
        assert items(page) == run.model.rows
        assert run.log.next_seq == run.model.next_seq
        assert run.log.count == len(run.model.rows)
        recount(run.site.yard)
