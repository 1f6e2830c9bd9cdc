"""The order of system calls, seen from outside: write, sync, and only then the answer."""

import contextlib
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.process.yards import SMALL_SEGMENTS, Yard, await_true, put_id
from tests.support.servers.processes import run_to_end

CALLS = "pwrite64,fdatasync,fsync,sendto,accept4,accept,write,rename,renameat,unlinkat"


@pytest.fixture
def traced(tmp_path: Path) -> Iterator[tuple[Yard, Path]]:
    """A server traced by strace, not started yet, and the log of its calls."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("there is no strace")
    if run_to_end([strace, "-e", "trace=none", "true"]).returncode != 0:
        pytest.skip("strace may not trace here")
    log = tmp_path / "calls"
    # -D leaves the server our own child, so that signals reach it and not strace.
    before = (strace, "-D", "-f", "-y", "-s", "64", "-e", f"trace={CALLS}", "-o", str(log))
    with contextlib.closing(Yard(tmp_path / "data", *SMALL_SEGMENTS, before=before)) as yard:
        yield yard, log


def read_calls(log: Path) -> list[str]:
    """Return the calls of all threads, each where it returned.

    Those on spare files are left out: they are made meanwhile, and nothing is in them.
    """
    begun: dict[str, str] = {}
    calls: list[str] = []
    for line in log.read_text("utf-8", "replace").splitlines():
        thread, _, call = line.partition(" ")
        call = call.strip()
        if call.endswith("<unfinished ...>"):
            begun[thread] = call.removesuffix("<unfinished ...>")
        elif resumed := re.match(r"<\.\.\. \w+ resumed>(.*)", call):
            calls.append(begun.pop(thread) + resumed[1])
        else:
            calls.append(call)
    return [call for call in calls if ".spare>" not in call]


def index_of(calls: list[str], start: str, part: str) -> int:
    found = [n for n, call in enumerate(calls) if call.startswith(start) and part in call]
    assert found, f"no {start} with {part!r}"
    return found[0]


def file_in(call: str) -> str:
    match = re.search(r"<([^>]*)>", call)
    assert match is not None, call
    return match[1]


def test_a_put_is_synced_before_it_is_answered(traced: tuple[Yard, Path]) -> None:
    yard, log = traced
    yard.start()
    with contextlib.closing(yard.connect()) as peer:
        ids = [put_id(peer, b"body-%d" % n) for n in range(10)]
    yard.kill()
    yard.close()
    await_true(lambda: "+++ killed" in log.read_text("utf-8", "replace"), "strace is done")
    calls = read_calls(log)
    for job_id in ids:
        answer = index_of(calls, "sendto", f'"INSERTED {job_id}\\r\\n')
        before = calls[:answer]
        written = max(n for n, call in enumerate(before) if call.startswith("pwrite64"))
        name = file_in(calls[written])
        assert name.endswith(".journal")
        synced = [
            call
            for call in calls[written:answer]
            if call.startswith("fdatasync") and file_in(call) == name and call.endswith("= 0")
        ]
        assert synced, f"INSERTED {job_id} left before the sync: {calls[written:answer]}"


def test_nobody_is_let_in_before_what_was_recovered_is_safe(traced: tuple[Yard, Path]) -> None:
    yard, log = traced
    yard.start()
    with contextlib.closing(yard.connect()) as peer:
        put_id(peer, b"kept")
    yard.kill()
    yard.close()
    await_true(lambda: "+++ killed" in log.read_text("utf-8", "replace"), "strace is done")
    log.unlink()
    yard.start()
    with contextlib.closing(yard.connect()) as peer:
        assert peer.ask(b"reserve").startswith(b"RESERVED")
    yard.kill()
    await_true(lambda: "+++ killed" in log.read_text("utf-8", "replace"), "strace is done")
    calls = read_calls(log)
    ready = index_of(calls, "write(1", '"ready ')
    entered = index_of(calls, "accept", "")
    assert ready < entered
    start = calls[:ready]
    # The tail that a crash may have left in the page cache only: written again, sealed, synced.
    last_write = max(n for n, call in enumerate(start) if call.startswith("pwrite64"))
    assert any(call.startswith("fdatasync") for call in start[last_write:]), start[last_write:]
    # New names are safe only after a sync of the directory.
    last_name = max(n for n, call in enumerate(start) if call.startswith("rename"))
    folder = str(yard.folder)
    assert any(
        call.startswith("fsync") and file_in(call) == folder for call in start[last_name:]
    ), start[last_name:]


def test_a_roll_syncs_the_old_file_before_the_new_one_is_written(
    traced: tuple[Yard, Path],
) -> None:
    yard, log = traced
    yard.start()
    with contextlib.closing(yard.connect()) as peer:
        for n in range(40):
            put_id(peer, b"%d" % n * 4000)
    yard.kill()
    await_true(lambda: "+++ killed" in log.read_text("utf-8", "replace"), "strace is done")
    calls = read_calls(log)
    seals = [n for n, call in enumerate(calls) if call.startswith("pwrite64") and '"JYSL' in call]
    assert seals, "nothing was rolled"
    for seal in seals:
        name = file_in(calls[seal])
        batches = [
            n
            for n, call in enumerate(calls[seal:], seal)
            if call.startswith("pwrite64") and '"JYBT' in call and file_in(call) != name
        ]
        if batches:
            between = calls[seal : batches[0]]
            assert any(c.startswith("fdatasync") and file_in(c) == name for c in between), between
