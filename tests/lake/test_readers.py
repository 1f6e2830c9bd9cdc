"""Programs that read by path while batches enter: every partition is whole, at every moment."""

import threading
from pathlib import Path

import pytest

from jobyard.lake import open_lake
from jobyard.lake.schemas import ATTEMPTS, EVENTS
from jobyard.lake.tables import Batch, Partition
from tests.lake.readers import READERS, Reader
from tests.lake.rows import YARD, attempt, event, read, send

DAY: Partition = ("2026-11-16",)
HOUR: Partition = ("2026-11-16", "0")
ROWS = 200
BATCHES = 25


@pytest.mark.parametrize("reader", READERS["parquet"])
def test_a_partition_that_is_replaced_is_whole_for_all_who_read(
    memory: Path, reader: Reader
) -> None:
    """Jobyard's own list of files is asked too, without any lock."""
    lake = open_lake(memory / "lake")
    ended = threading.Event()
    faults: list[BaseException] = []

    def write() -> None:
        try:
            with open_lake(lake.folder).lock():
                pass
            other = open_lake(lake.folder)
            with other.lock():
                for number in range(1, BATCHES):
                    rows = {HOUR: [attempt(job, run_ms=number) for job in range(ROWS)]}
                    batch = Batch(YARD, number, number + 1)
                    send(other.tables, batch, {DAY: [event(number + 1)]}, rows)
        except BaseException as fault:
            faults.append(fault)
            raise
        finally:
            ended.set()

    with lake.lock():
        rows = {HOUR: [attempt(job, run_ms=0) for job in range(ROWS)]}
        send(lake.tables, Batch(YARD, 0, 1), {DAY: [event(1)]}, rows)
    thread = threading.Thread(target=write)
    thread.start()
    reads = seen = 0
    while not ended.is_set() or not reads:
        found = [row["run_ms"] for row in reader(lake.folder, ATTEMPTS)]
        assert found == [found[0]] * ROWS
        known = len(reader(lake.folder, EVENTS))
        assert known >= seen
        seen = known
        assert lake.tables.partitions(ATTEMPTS)[HOUR].rows == ROWS
        assert len(lake.tables.files(EVENTS)) >= seen
        reads += 1
    thread.join(60)
    assert not faults
    assert len(read(lake.tables, EVENTS)) == BATCHES
