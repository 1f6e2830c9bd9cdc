import threading
from collections.abc import Callable

import pyarrow as pa
import pytest

from jobyard.client import JobyardError
from jobyard.client.errors import Code
from jobyard.spark.read.prefetch import Prefetch
from tests.support.servers.patience import PATIENCE_S

BATCH = pa.RecordBatch.from_pydict({"a": list(range(1000))})


class Source:
    """Batches by number; it counts what was asked for."""

    def __init__(self, count: int, fault: Exception | None = None) -> None:
        self.left = count
        self.fault = fault
        self.parked = threading.Event()
        self.parks = 0
        self.made = 0

    def next_batch(self) -> pa.RecordBatch | None:
        if self.left == 0:
            if self.fault is not None:
                raise self.fault
            return None
        self.left -= 1
        self.made += 1
        return BATCH

    def park(self) -> None:
        self.parks += 1
        self.parked.set()


def ahead(source: Source, room: int = 10 * BATCH.nbytes, park_s: float = PATIENCE_S) -> Prefetch:
    closed = threading.Event()
    return Prefetch(source, lambda: None, closed, room_bytes=room, park_s=park_s)


def test_all_batches_come_in_order() -> None:
    assert len(list(ahead(Source(500)))) == 500


def test_an_error_comes_behind_what_was_read() -> None:
    fault = JobyardError(Code.DATA_LOSS, "gone")
    found = iter(ahead(Source(3, fault)))
    for _ in range(3):
        assert next(found) is not None
    with pytest.raises(JobyardError) as caught:
        next(found)
    assert caught.value is fault


def test_an_end_that_nobody_thought_of_is_not_taken_for_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[object] = []
    monkeypatch.setattr(threading, "excepthook", seen.append)
    with pytest.raises(RuntimeError, match="unexpectedly"):
        list(ahead(Source(3, KeyError("bug"))))


def test_a_long_pause_frees_the_server_and_loses_nothing() -> None:
    source = Source(50)
    prefetch = ahead(source, room=2 * BATCH.nbytes, park_s=0.01)
    found = iter(prefetch)
    assert next(found) is not None
    # Nothing is taken until the source was parked, however fast this machine is.
    assert source.parked.wait(PATIENCE_S)
    assert source.made < 10
    assert len(list(found)) == 49


def test_what_is_read_ahead_is_bounded() -> None:
    source = Source(1000)
    prefetch = ahead(source, room=3 * BATCH.nbytes, park_s=0.01)
    assert source.parked.wait(PATIENCE_S)
    assert source.made <= 4
    prefetch.close()


def test_leaving_ends_the_thread() -> None:
    source = Source(1000)
    prefetch = ahead(source, room=3 * BATCH.nbytes)
    found = iter(prefetch)
    next(found)
    prefetch.close()
    ended = wait_until(lambda: source.parks > 0)
    assert ended
    assert source.made < 1000


def wait_until(is_true: Callable[[], bool]) -> bool:
    """Return whether something became true in time."""
    changed = threading.Event()
    for _ in range(int(PATIENCE_S * 100)):
        if is_true():
            return True
        changed.wait(0.01)
    return False
