"""Any sequence of batches, yards, kills and compactions gives what a dictionary gives."""

import shutil
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from jobyard.lake import opening
from jobyard.lake.checking import check
from jobyard.lake.compaction import compact
from jobyard.lake.schemas import ATTEMPTS, EVENTS
from jobyard.lake.tables import Batch, Partition
from tests.lake.faulty import FaultyDisk, Killed
from tests.lake.readers import READERS
from tests.lake.rows import OTHER_YARD, YARD, Row, attempt, event, send

DAYS: list[Partition] = [("2026-11-16",), ("2026-11-17",)]
HOURS: list[Partition] = [("2026-11-16", str(hour)) for hour in range(3)]
LATER = datetime(2026, 11, 20, tzinfo=UTC)
# Of Delta and Iceberg few, since each takes a while.
EXAMPLES = {"parquet": 15, "delta": 6, "iceberg": 4}

steps = st.lists(
    st.tuples(
        st.sampled_from([YARD, OTHER_YARD]),
        st.integers(1, 5),
        st.lists(st.sampled_from([0, 1]), max_size=4),
        st.dictionaries(st.sampled_from(HOURS), st.integers(0, 3), max_size=3),
        # How many calls until it is killed, if it is.
        st.none() | st.integers(0, 60),
        st.booleans(),
    ),
    min_size=1,
    max_size=6,
)
Step = tuple[str, int, list[int], dict[Partition, int], int | None, bool]


class Oracle:
    """What the tables should have, in dictionaries."""

    def __init__(self) -> None:
        self.seqs = {YARD: 0, OTHER_YARD: 0}
        self.events: set[tuple[str, int, Partition]] = set()
        self.attempts: dict[Partition, set[tuple[int, int]]] = {}

    def check(self, folder: Path, table_format: str) -> None:
        for reader in READERS[table_format]:
            events = reader(folder, EVENTS)
            assert {(row["yard"], row["seq"], row["in"]) for row in events} == self.events
            assert len(events) == len(self.events)
            attempts = [
                (row["in"], row["job_id"], row["run_ms"]) for row in reader(folder, ATTEMPTS)
            ]
            expected = [(p, *each) for p, rows in self.attempts.items() for each in rows]
            assert sorted(attempts, key=str) == sorted(expected, key=str)


def play(folder: Path, table_format: str, drawn: list[Step]) -> None:
    oracle = Oracle()
    for number, (yard, length, days, hours, calls_max, is_compacted) in enumerate(drawn):
        begin = oracle.seqs[yard]
        batch = Batch(yard, begin, begin + length)
        events: dict[Partition, list[Row]] = {}
        for seq, day in enumerate(days[:length], begin + 1):
            events.setdefault(DAYS[day], []).append(event(seq, yard=yard, minutes=1440 * day))
            oracle.events.add((yard, seq, DAYS[day]))
        attempts = {p: [attempt(j, run_ms=number) for j in range(n)] for p, n in hours.items() if n}
        if calls_max is not None:
            try:
                lake = opening.open_lake(folder, table_format, disk=FaultyDisk(calls_max))
                with lake.lock():
                    send(lake.tables, batch, events, attempts, hours)
            except Killed:
                pass
        lake = opening.open_lake(folder, table_format)
        with lake.lock():
            send(lake.tables, batch, events, attempts, hours)
            assert lake.tables.position(yard) == batch.to_seq
        if is_compacted:
            compact(lake, LATER)
        oracle.seqs[yard] = batch.to_seq
        for partition, count in hours.items():
            oracle.attempts[partition] = {(job, number) for job in range(count)}
        oracle.check(folder, table_format)
    assert check(opening.open_lake(folder)) == []


def drawn_play(table_format: str, memory: Path) -> None:
    @settings(max_examples=EXAMPLES[table_format], deadline=None)
    @given(steps)
    def one(drawn: list[Step]) -> None:
        folder = Path(tempfile.mkdtemp(dir=memory))
        try:
            play(folder, table_format, drawn)
        finally:
            shutil.rmtree(folder)

    one()


def test_parquet(memory: Path) -> None:
    drawn_play("parquet", memory)


def test_delta(memory: Path) -> None:
    drawn_play("delta", memory)


def test_iceberg(memory: Path) -> None:
    drawn_play("iceberg", memory)
