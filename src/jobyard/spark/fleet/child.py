"""A child process in which a user's function works on jobs, so that its end is seen and survived.

The parent, a Python worker of Spark, sends a batch and gets outcomes as the child has them. If the
child ends, the parent knows how, and which job it was with: a number in memory that both share is
set before each job. The child ends with its parent, is the first that a machine without memory
ends, and is in a session of its own, so that a signal to its group does not reach the parent.
"""

import contextlib
import ctypes
import fcntl
import io
import mmap
import os
import select
import signal
import struct
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Final, final

import pyarrow as pa

from jobyard.spark.fleet.calls import Calls, JobOutcome, as_columns

# A length, and what follows it: a batch, outcomes, or the end of a batch.
_HEAD: Final = "<Q"
_PLACE: Final = "<q"
_NONE: Final = -1
# Outcomes are sent when they are so old: one that is not sent yet is lost with the process.
_SEND_S: Final = 0.02
_SEND_ROWS: Final = 1000
# How often the end of a child is looked for that says nothing.
_LOOK_MS: Final = 1000
_PR_SET_PDEATHSIG: Final = 1
_OOM_FIRST: Final = "1000"
_BUG_CODE: Final = 70
_PIPE_SIZE: Final = 1 << 20


class ChildDied(Exception):
    """The process has ended in the middle of a batch."""

    def __init__(self, why: str, place: int) -> None:
        super().__init__(why)
        self.why = why
        # Of the job that it was with; -1 if that is not known.
        self.place = place


@final
class Child:
    """One process, and the pipes to it."""

    def __init__(self, calls: Calls) -> None:
        self._shared = mmap.mmap(-1, struct.calcsize(_PLACE))
        inward, self._to_child = os.pipe()
        self._from_child, outward = os.pipe()
        for pipe in (self._to_child, outward):
            _widen(pipe)
        # What is buffered would be written twice.
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._to_child)
            os.close(self._from_child)
            _live(calls, inward, outward, self._shared, parent)
        os.close(inward)
        os.close(outward)
        self._is_reaped = False

    def run(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield outcomes for all jobs of a batch; ChildDied if the process ends before."""
        struct.pack_into(_PLACE, self._shared, 0, _NONE)
        try:
            _write(self._to_child, _as_bytes(batch))
        except BrokenPipeError:
            raise self._died() from None
        while True:
            data = self._receive()
            if data is None:
                raise self._died()
            if not data:
                return
            yield from pa.ipc.open_stream(data)

    def close(self) -> None:
        """Let the process end, and wait for that."""
        self._close_pipes()
        if not self._is_reaped:
            self._is_reaped = True
            os.waitpid(self.pid, 0)

    def kill(self) -> None:
        """End the process wherever it is."""
        if not self._is_reaped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        self.close()

    def _receive(self) -> bytes | None:
        """Return the next message; None if the process has ended.

        A process that the function left behind may keep the pipe open, so the end of the child is
        looked for as well.
        """
        waiting = select.poll()
        waiting.register(self._from_child, select.POLLIN)
        while not waiting.poll(_LOOK_MS):
            ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is not None and not waiting.poll(0):
                return None
        return _read(self._from_child)

    def _died(self) -> ChildDied:
        self._close_pipes()
        self._is_reaped = True
        _, status = os.waitpid(self.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        place: int = struct.unpack_from(_PLACE, self._shared, 0)[0]
        return ChildDied(_how(code), place)

    def _close_pipes(self) -> None:
        for pipe in (self._to_child, self._from_child):
            if pipe >= 0:
                os.close(pipe)
        self._to_child = self._from_child = -1


def _how(code: int) -> str:
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"was killed by {signal.Signals(-code).name}"
        return f"was killed by signal {-code}"
    return f"ended with exit code {code}"


def _live(calls: Calls, inward: int, outward: int, shared: mmap.mmap, parent: int) -> None:
    """Work until the parent closes the pipe; never returns."""
    code = _BUG_CODE
    try:
        _settle(parent)
        while (data := _read(inward)) is not None:
            for batch in pa.ipc.open_stream(data):
                _work(calls, batch, outward, shared)
            sys.stdout.flush()
            sys.stderr.flush()
            _write(outward, b"")
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        # What the parent has open is not this process's to end: no exit of Python's own.
        os._exit(code & 0xFF)


def _settle(parent: int) -> None:
    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        with contextlib.suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text(_OOM_FIRST)
    if os.getppid() != parent:
        os._exit(0)


def _work(calls: Calls, batch: pa.RecordBatch, outward: int, shared: mmap.mmap) -> None:
    waiting: list[JobOutcome] = []
    sent_s = time.monotonic()

    def begin(place: int) -> None:
        struct.pack_into(_PLACE, shared, 0, place)

    for found in calls.outcomes(batch, begin):
        if isinstance(found, JobOutcome):
            waiting.append(found)
            now_s = time.monotonic()
            if now_s < sent_s + _SEND_S and len(waiting) < _SEND_ROWS:
                continue
            sent_s = now_s
            _write(outward, _as_bytes(as_columns(waiting)))
            waiting = []
        else:
            _write(outward, _as_bytes(found))
    if waiting:
        _write(outward, _as_bytes(as_columns(waiting)))


def _as_bytes(batch: pa.RecordBatch) -> memoryview:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getbuffer()


def _widen(pipe: int) -> None:
    """Let a pipe hold more, where that is possible: a batch then takes fewer turns."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_SIZE)


def _write(pipe: int, data: bytes | memoryview) -> None:
    """Write a whole message."""
    _write_all(pipe, memoryview(struct.pack(_HEAD, len(data))))
    _write_all(pipe, memoryview(data))


def _write_all(pipe: int, data: memoryview) -> None:
    done = 0
    while done < len(data):
        done += os.write(pipe, data[done:])


def _read(pipe: int) -> bytes | None:
    """Return the next message; None at the end of the pipe, even inside a message."""
    head = _read_all(pipe, struct.calcsize(_HEAD))
    if head is None:
        return None
    return _read_all(pipe, struct.unpack(_HEAD, head)[0])


def _read_all(pipe: int, size: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < size:
        data = os.read(pipe, min(size - len(parts), 1 << 20))
        if not data:
            return None
        parts += data
    return bytes(parts)
