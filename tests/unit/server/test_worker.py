"""The worker thread: tasks run there one by one, and their callbacks on the loop."""

import threading
from collections.abc import Callable

import pytest

from jobyard.errors import StorageFailed
from jobyard.server.committer import WorkerThread
from tests.support.servers.patience import PATIENCE_S


class Alarm:
    """Counts wakes, and lets a test wait for the next."""

    def __init__(self) -> None:
        self._rings = threading.Semaphore(0)

    def ring(self) -> None:
        self._rings.release()

    def wait(self) -> None:
        assert self._rings.acquire(timeout=PATIENCE_S), "the worker woke nobody"


def test_a_task_runs_in_the_thread_and_its_end_in_the_loop() -> None:
    alarm = Alarm()
    worker = WorkerThread(alarm.ring)
    threads: list[int] = []

    def task() -> Callable[[], None]:
        threads.append(threading.get_ident())
        return lambda: threads.append(threading.get_ident())

    worker.submit(task)
    alarm.wait()
    assert len(threads) == 1
    worker.collect()
    assert threads[0] != threads[1] == threading.get_ident()
    worker.collect()
    assert len(threads) == 2
    worker.stop()


def test_tasks_keep_their_order() -> None:
    alarm = Alarm()
    worker = WorkerThread(alarm.ring)
    done: list[int] = []

    def task(number: int) -> Callable[[], Callable[[], None]]:
        return lambda: lambda: done.append(number)

    for number in range(50):
        worker.submit(task(number))
    worker.stop()
    worker.collect()
    assert done == list(range(50))


def failing() -> Callable[[], None]:
    raise StorageFailed("sync x: an error of the disk")


def test_a_failure_in_the_thread_reaches_the_loop_and_stays() -> None:
    alarm = Alarm()
    worker = WorkerThread(alarm.ring)
    worker.submit(failing)
    alarm.wait()
    for _ in range(2):
        with pytest.raises(StorageFailed, match="an error of the disk"):
            worker.collect()
    worker.stop()


def test_after_a_failure_no_later_task_counts() -> None:
    """Its sync may have succeeded only because the failed one dropped the pages."""
    alarm = Alarm()
    worker = WorkerThread(alarm.ring)
    done: list[str] = []
    worker.submit(failing)
    worker.submit(lambda: lambda: done.append("later"))
    worker.stop()
    with pytest.raises(StorageFailed):
        worker.collect()
    assert done == []


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_mistake_of_ours_in_the_thread_does_not_hang_the_server() -> None:
    alarm = Alarm()
    worker = WorkerThread(alarm.ring)

    def mistaken() -> Callable[[], None]:
        raise AssertionError("we are wrong")

    worker.submit(mistaken)
    alarm.wait()
    with pytest.raises((AssertionError, StorageFailed), match="we are wrong"):
        worker.collect()
    worker.stop()
