"""One server from start to stop: doors, data, loop, signals.

Start: bind the doors (a port in use leaves the data untouched), lock the data directory, recover,
and only then accept connections and print `ready`. Stop: accept nothing, end all waits, answer
everything or give it back, seal the journal, exit 0.
"""

import asyncio
import contextlib
import ctypes
import gc
import resource
import secrets
import signal
import sys
import time
from typing import Final, final

from jobyard import build
from jobyard.config import DROP_IN_EXIT_DATA, EXIT_DAMAGED, EXIT_FAILED, Config
from jobyard.engine.recovery.compaction import Compactor
from jobyard.engine.recovery.open_yard import Recovered, open_yard
from jobyard.engine.state.yard import Yard
from jobyard.errors import JournalDamaged, StartRefused, StorageFailed, StorageFull
from jobyard.journal.bodies import Bodies
from jobyard.journal.journal import Journal
from jobyard.journal.reply_gate import Gate
from jobyard.protocols.shared_limits import SharedLimits
from jobyard.server.addresses import UNIX_PREFIX
from jobyard.server.asyncio_connection import StreamTurns
from jobyard.server.committer import SYNC, Committer, WorkerThread
from jobyard.server.disk import FileStorage
from jobyard.server.doors import Doors
from jobyard.server.edge import place_of
from jobyard.server.http import set_txns
from jobyard.server.log import Log
from jobyard.server.loop import Clock, HotLoop, connections_limit
from jobyard.server.selector import YardSelector
from jobyard.server.sockets import DoorListener, close_doors, open_doors
from jobyard.server.turn import Turns

# From malloc.h.
M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3
# How long a stop waits for clients to read their last replies.
STOP_WAIT_S: Final = 5.0
HOUR_MS: Final = 3_600_000
# Random bytes in the id of a new data directory.
YARD_ID_SIZE: Final = 8
# Only the youngest generation is collected: older objects are jobs, queues and sessions, which
# leave no cycles, and a full collection takes hundreds of milliseconds. Collected often, and at
# least once a second, so that a list leaves that generation before it has a million entries.
GC_THRESHOLDS: Final = (700, 1 << 30, 1 << 30)


def run(config: Config) -> int:
    """Serve until stopped by a signal; return the exit code."""
    log = Log(config.log_level, config.log_format)
    _raise_descriptor_limit()
    _return_large_blocks()
    doors = open_doors(config)
    try:
        server = Server(config, log, doors)
    except JournalDamaged as error:
        close_doors(doors)
        text = f"the journal is damaged: {error}; run `jobyard check` and `jobyard repair`"
        raise StartRefused(text, _data_exit(config, EXIT_DAMAGED)) from error
    except StartRefused as error:
        close_doors(doors)
        raise StartRefused(str(error), _data_exit(config, error.exit_code)) from error
    except StorageFull as error:
        close_doors(doors)
        text = f"no space for a new segment in {config.data} ({error})"
        raise StartRefused(text, _data_exit(config, EXIT_FAILED)) from error
    except StorageFailed as error:
        close_doors(doors)
        text = f"cannot use {config.data}: {error}"
        raise StartRefused(text, _data_exit(config, EXIT_FAILED)) from error
    # Only now: a refused start logs its reason and nothing else.
    if build.kind() != "compiled":
        log.info("not compiled: this runs as plain Python and is several times slower")
    return server.serve()


def _data_exit(config: Config, code: int) -> int:
    return DROP_IN_EXIT_DATA if config.drop_in else code


def _raise_descriptor_limit() -> None:
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _return_large_blocks() -> None:
    """Make the C library return large blocks to the system when they are freed.

    By default glibc raises its threshold to up to 32 MiB when such blocks are freed; later ones are
    then kept on the heap, where one small block behind them keeps them forever.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        # Above the usual size of a journal batch: the system clears each block it hands out.
        mallopt(M_MMAP_THRESHOLD, 4 << 20)
        mallopt(M_TRIM_THRESHOLD, 8 << 20)


@final
class Server:
    """A yard, its doors and its loop."""

    def __init__(self, config: Config, log: Log, listeners: dict[str, DoorListener]) -> None:
        self._config = config
        self._log = log
        self._listeners = listeners
        self._clock = Clock()
        self._gate = Gate()
        self._storage: FileStorage | None = None
        self._committer: Committer | None = None
        self._hot: HotLoop | None = None
        self._refused_seen = 0
        self._is_full_logged = False
        # How many refusals were logged, by message.
        self._logged_counts: dict[str, int] = {}
        self._lost_logged = (0, 0)
        compactor = self._open()
        self._yard.bodies.result_size_max = config.max_result_size
        self._shared_limits = SharedLimits(config.connection_memory)
        self._shared_limits.address_max = config.max_connections_per_address
        self._turns = Turns(self._yard, self._committer, compactor, self._shared_limits)
        self._turns.on_second = self._look_around
        self._turns.error_boundary.log_error = self._log_error
        doors = Doors(config, self._yard, self._shared_limits, log, self._clock.now_ms())
        self._doors = doors.all(listeners, self._committer)
        self._warn_of_open_doors()
        # Frozen without a collection first: over a million recovered jobs one takes 250 ms.
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)

    def _warn_of_open_doors(self) -> None:
        """If any secret is set, warn about doors that do not require one."""
        config = self._config
        if not (config.auth_token or config.topics_key or config.glidemq_password):
            return
        anybody = [
            f"{name}={listener.text}"
            for name, listener in self._listeners.items()
            if not self._doors[name].is_guarded and not listener.text.startswith(UNIX_PREFIX)
        ]
        if anybody:
            text = "these doors require no password: any client that can reach them may use them"
            self._log.warning(text, doors=" ".join(anybody))

    def _open(self) -> Compactor | None:
        """Recover the yard, or create an empty one in memory."""
        config = self._config
        if config.memory:
            journal = Journal(None, config.segment_size, ids_ahead=False)
            self._yard = Yard(journal, Bodies(journal, config.body_memory))
            set_txns(config, self._yard.txns)
            return None
        storage = FileStorage(config.data)
        self._storage = storage
        warning = storage.warning()
        if warning:
            self._log.warning(warning)
        ids_ahead = config.durability != SYNC
        journal = Journal(storage, config.segment_size, ids_ahead=ids_ahead)
        window = config.events_hours * HOUR_MS, config.events_bytes
        journal.history.keep(*window, config.hold_bytes)
        yard = Yard(journal, Bodies(journal, config.body_memory))
        yard.cursors.hold_bytes = config.hold_bytes
        set_txns(config, yard.txns)
        started = time.perf_counter()
        # Replay creates millions of objects and no garbage; collections would double its time.
        gc.disable()
        recovered = open_yard(
            yard, storage, self._clock.now_ms(), yard_id=secrets.token_hex(YARD_ID_SIZE)
        )
        gc.enable()
        self._yard = yard
        self._gate.release(journal.durable)
        self._log_recovery(recovered, time.perf_counter() - started)
        worker = WorkerThread(self._wake)
        self._committer = Committer(
            yard, self._gate, storage, worker, config.durability, config.sync_interval_ms
        )
        return Compactor(yard, recovered.superseded)

    def _log_recovery(self, recovered: Recovered, took_s: float) -> None:
        self._log.info(
            "recovered",
            jobs=self._yard.jobs.count,
            queues=len(self._yard.queues),
            logs=len(self._yard.logs),
            records=recovered.records_count,
            segments=recovered.segments_count,
            seconds=round(took_s, 3),
        )
        if recovered.cut_bytes > 0:
            self._log.warning(
                "cut a torn journal tail that was not known to be durable",
                bytes=recovered.cut_bytes,
            )

    # -- running -------------------------------------------------------------------------------

    def serve(self) -> int:
        """Run the configured event loop."""
        if self._config.loop == "epoll":
            return self._serve_hot()
        if self._config.loop == "uvloop":
            import uvloop  # noqa: PLC0415  only this loop needs it

            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                return runner.run(self._serve_streams())
        return asyncio.run(self._serve_streams())

    def _wake(self) -> None:
        """Wake the loop to collect a finished worker task; called from the worker thread."""
        self._waker()

    def _serve_hot(self) -> int:
        soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        hot = HotLoop(self._turns, self._gate, self._clock, connections_limit(soft))
        self._waker = hot.wake
        if self._committer is not None:
            hot.on_wake(self._committer.collect)
        self._hot = hot
        if self._config.log_level == "debug":
            hot.on_connection = self._log_connection
        for name, listener in self._listeners.items():
            for sock in listener.sockets:
                hot.listen(sock, self._doors[name].entrance)
        with asyncio.Runner(
            loop_factory=lambda: asyncio.SelectorEventLoop(YardSelector(hot))
        ) as runner:
            try:
                runner.run(self._until_stopped(hot))
            except (StorageFailed, StorageFull, JournalDamaged) as error:
                return self._fail(error)
        return 0

    async def _until_stopped(self, hot: HotLoop) -> None:
        stop = self._stop_event()
        self._say_ready()
        await stop.wait()
        self._log_stopping()
        hot.stop_listening()
        close_doors(self._listeners)
        self._refuse_new()
        for connection in hot.connections():
            connection.wind_up(hot.now_ms)
        hot.on_empty = stop.empty
        if hot.connections():
            await stop.wait_empty(STOP_WAIT_S)
        for connection in hot.connections():
            connection.close(hot.now_ms)
        self._finish()

    def _look_around(self) -> None:
        """Follow the wall clock and log what operators should know; called once a second."""
        gc.collect(0)
        self._correct_wall()
        if self._committer is not None:
            self._committer.look()
        now_ms = self._clock.now_ms()
        for door in self._doors.values():
            door.every_second(now_ms)
        hot = self._hot
        if hot is not None and hot.refused_count > self._refused_seen:
            count = hot.refused_count - self._refused_seen
            self._refused_seen = hot.refused_count
            self._log.warning("refused connections: no file descriptors left", count=count)
        self._log_refusals()
        is_full = self._yard.journal.is_full
        if is_full != self._is_full_logged:
            self._is_full_logged = is_full
            if is_full:
                self._log.warning("the disk is full: new jobs are refused, everything else works")
            else:
                self._log.info("the disk has free space again")
        self._log_losses()

    def _log_refusals(self) -> None:
        """Log how many refusals the shared limits caused since the last time."""
        shared_limits = self._shared_limits
        for message, count in (
            ("failed authentication attempts", shared_limits.attempts.failed_count),
            ("refused connections: too many from one address", shared_limits.connections_refused),
            ("refused input: connections use too much memory", shared_limits.inputs_refused),
            (
                "closed connections: their unread replies used too much memory",
                shared_limits.outputs_cut,
            ),
        ):
            new_count = int(count) - self._logged_counts.get(message, 0)
            if new_count > 0:
                self._logged_counts[message] = int(count)
                self._log.warning(message, count=new_count)

    def _log_error(self, doing: str, error: Exception) -> None:
        """Log an internal error that closed one connection, without any client data."""
        self._log.error_repeated(
            "unexpected",
            "unexpected error; the connection was closed",
            during=doing,
            error=type(error).__name__,
            where=place_of(error),
        )

    def _log_losses(self) -> None:
        """Log what a full disk could not store and what was found damaged since the last time."""
        journal = self._yard.journal
        lost = (int(journal.results_lost), int(journal.done_lost))
        if lost != self._lost_logged:
            results, jobs = lost[0] - self._lost_logged[0], lost[1] - self._lost_logged[1]
            self._lost_logged = lost
            self._log.error(
                "no disk space for results of finished jobs", results=results, jobs=jobs
            )
        for story in journal.damages.take_stories():
            self._log.error("damage on disk", damage=story)
        for story in self._yard.cursors.take_stories():
            self._log.error("a cursor was passed", cursor=story)

    def _log_connection(self, what: str, fd: int) -> None:
        self._log.debug(what, connection=fd)

    def _correct_wall(self) -> None:
        journal = self._yard.journal
        offset_ms = int(time.time() * 1000) - self._clock.now_ms()
        # Two clocks read in milliseconds may differ by one; reported times must not follow that.
        if not -1 <= offset_ms - journal.wall_offset_ms <= 1:
            journal.wall_offset_ms = offset_ms

    async def _serve_streams(self) -> int:
        loop = asyncio.get_running_loop()
        failed: asyncio.Future[BaseException] = loop.create_future()
        stop = self._stop_event()

        def on_failure(error: BaseException) -> None:
            if not failed.done():
                failed.set_result(error)

        turns = StreamTurns(loop, self._turns, self._gate, self._clock, on_failure)

        committer = self._committer

        def wake() -> None:
            assert committer is not None
            loop.call_soon_threadsafe(turns.collect, committer.collect)

        self._waker = wake
        servers = [
            await loop.create_server(turns.protocol_factory(self._doors[name].entrance), sock=sock)
            for name, listener in self._listeners.items()
            for sock in listener.sockets
        ]
        turns.schedule()
        self._say_ready()
        failed.add_done_callback(lambda _: stop.set())
        await stop.wait()
        if failed.done():
            return self._fail(failed.result())
        self._log_stopping()
        for server in servers:
            server.close()
        close_doors(self._listeners)
        self._refuse_new()
        for connection in list(turns.connections):
            connection.wind_up()
        turns.on_empty = stop.empty
        if turns.connections:
            await stop.wait_empty(STOP_WAIT_S)
        self._finish()
        return 0

    # -- signals and the end -------------------------------------------------------------------

    def _stop_event(self) -> "_Stop":
        loop = asyncio.get_running_loop()
        stop = _Stop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        loop.add_signal_handler(signal.SIGUSR1, self._drain)
        return stop

    def _log_stopping(self) -> None:
        self._log.info("stopping")
        for door in self._doors.values():
            door.stopping()

    def _drain(self) -> None:
        self._refuse_new()
        self._log.info("drain mode: new jobs are refused")

    def _refuse_new(self) -> None:
        for door in self._doors.values():
            door.drain()

    def _say_ready(self) -> None:
        words = [f"{name}={listener.text}" for name, listener in self._listeners.items()]
        data = "memory" if self._config.memory else str(self._config.data)
        try:
            sys.stdout.write(f"ready {' '.join(words)} data={data}\n")
            sys.stdout.flush()
        except OSError as error:
            # The server works without it.
            self._log.warning("cannot write the ready line to stdout", error=str(error))

    def _fail(self, error: BaseException) -> int:
        """Stop immediately, without confirming anything that is not durable."""
        self._turns.stop()
        if self._hot is not None:
            self._hot.abort()
        if not isinstance(error, StorageFailed | StorageFull | JournalDamaged):
            raise error
        self._log_losses()
        self._log.error("storage failed; stopping without further replies", error=str(error))
        return EXIT_FAILED

    def _finish(self) -> None:
        self._turns.stop()
        if self._committer is not None and self._storage is not None:
            self._committer.stop()
            self._storage.close()
        for door in self._doors.values():
            door.close(self._clock.now_ms())
        # Includes what was found since the last full second.
        self._log_losses()
        self._log.info("stopped")


@final
class _Stop:
    """Stop requests: the first stops cleanly, the second immediately."""

    def __init__(self) -> None:
        self._asked = asyncio.Event()
        self._over = asyncio.Event()

    def set(self) -> None:
        if self._asked.is_set():
            self._over.set()
        self._asked.set()

    async def wait(self) -> None:
        await self._asked.wait()

    def empty(self) -> None:
        """Note that the last connection is closed."""
        self._over.set()

    async def wait_empty(self, most_s: float) -> None:
        """Wait for the last connection to close, a second stop request, or the timeout."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._over.wait(), most_s)
