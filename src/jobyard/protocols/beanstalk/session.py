"""One beanstalk connection: reads commands, calls the verbs, writes the answers.

The most frequent input (put with its body, reserve, delete) is read straight from the buffer.
Anything else, and any of these in an unusual form, is cut out as a line and read by `_command`,
which implements all rules; a test checks that both paths agree.

A connection runs one command at a time: while it waits in `reserve`, later input stays in `_rest`.
"""

from typing import TYPE_CHECKING, Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64, u8

from jobyard.engine.jobs.clearing import KickTask
from jobyard.engine.jobs.finish import bury, finish, hand_back, held, touch
from jobyard.engine.jobs.holders import drop_holder
from jobyard.engine.jobs.move import kick_job, remove
from jobyard.engine.jobs.put import put
from jobyard.engine.jobs.queues import drop_user, hold_user, open_queue, pause
from jobyard.engine.jobs.take import cancel_wait, take, take_job, wait
from jobyard.engine.state.admission import first_ready
from jobyard.engine.state.tasks import Task, TaskOwner
from jobyard.errors import NameTaken, NotFound, Refused, StorageFull, YardFull
from jobyard.model.details import Outcome
from jobyard.model.family import BEANSTALK
from jobyard.model.job import DONE, LEASED, RAW, Job
from jobyard.model.lease import Holder, Lease
from jobyard.model.limits import LINE_SIZE_MAX, NEVER_MS, U32_MAX
from jobyard.model.waiter import Waiter
from jobyard.protocols.beanstalk import commands, statistics
from jobyard.protocols.beanstalk.commands import InputMode
from jobyard.protocols.beanstalk.door import SOON_MS, TERMS, TIMEOUT_MAX, BeanstalkDoor
from jobyard.protocols.beanstalk.tubes import TubeList
from jobyard.protocols.beanstalk.watched import WatchedTubes
from jobyard.protocols.session import OUTPUT_MAX, Peer, Session
from jobyard.wire.beanstalk import (
    CRLF,
    is_http,
    is_tube_name,
    parse_id,
    parse_kick_bound,
    tube_name_end,
)
from jobyard.wire.numbers import parse_number, write_number
from jobyard.wire.payload import to_raw

if TYPE_CHECKING:
    from jobyard.model.queue import Queue

SPACE: Final[u8] = 32


@final
class BeanstalkSession(Session, Holder, TaskOwner):
    """Runs the commands of one connection in order."""

    def __init__(self, door: BeanstalkDoor, peer: Peer) -> None:
        super().__init__(peer, door.yard.journal)
        self._door = door
        self._yard = door.yard
        self._lease_set = door.yard.new_lease_set(self)
        self._used: Queue = door.default
        self._watched = WatchedTubes(door.yard, door.default)
        hold_user(door.default)
        self._waiter: Waiter | None = None
        self._long: Task | None = None  # A command that takes several turns.
        self._rest: bytes = b""
        self._mode: int = InputMode.LINES
        self._left: i64 = 0
        self._body = BytesWriter()  # Collects a body that arrives in pieces; freed in one block.
        self._rank: i64 = 0
        self._delay_ms: i64 = 0
        self._ttr_ms: i64 = 0
        self._is_producer: bool = False
        self._is_worker: bool = False
        self._waits_no_more: bool = False
        self._input_ended: bool = False
        self._running: bytes = b""  # Set only while commands run.
        self._running_at: i64 = 0
        door.connections_count += 1
        door.connections_total += 1

    # -- the session ---------------------------------------------------------------------------

    def receive(self, data: bytes, now_ms: i64) -> None:
        """Run every complete command; store incomplete and waiting input."""
        if self._rest:
            data = self._rest + data
            self._rest = b""
        at: i64 = 0
        size: i64 = len(data)
        self.is_stalled = False
        self._running = data
        while at < size and not self._is_busy() and not self.is_finished:
            if len(self.out) > OUTPUT_MAX:
                self.is_stalled = True
                break
            self._running_at = at
            self.changes_before = self._yard.changes()
            try:
                after = self._step(data, at, size, now_ms)
            except (Refused, StorageFull) as error:
                after = self._refuse(error, data, at)
            if after == InputMode.INCOMPLETE:
                break
            at = after
        self._running = b""
        if at < size and not self.is_finished:
            self._rest = data[at:] if at > 0 else data

    def _is_busy(self) -> bool:
        return self._waiter is not None or self._long is not None

    def _refuse(self, error: Exception, data: bytes, at: i64) -> i64:
        """Answer a line without a job, or without room even in reserved space; return its end."""
        is_full = isinstance(error, (YardFull, StorageFull))
        self._say(commands.OUT_OF_MEMORY if is_full else commands.NOT_FOUND)
        return data.find(CRLF, at) + 2

    def resume(self, now_ms: i64) -> None:
        """Continue with input that was sent while the connection waited for a job."""
        if self._rest and not self._is_busy():
            self.receive(b"", now_ms)
        if self._input_ended and not self.is_stalled and self._long is None:
            self.is_finished = True

    def half_close(self, now_ms: i64) -> None:
        """Answer a waiting reserve; later ones do not wait."""
        self._waits_no_more = True
        waiter = self._waiter
        if waiter is not None:
            cancel_wait(self._yard, waiter)
            self._stop_waiting(commands.TIMED_OUT)
        self.resume(now_ms)

    def end_input(self, now_ms: i64) -> None:
        """Answer complete commands, then finish."""
        self._input_ended = True
        self.half_close(now_ms)

    def closed(self, now_ms: i64) -> None:
        """Release jobs and tubes, and stop waiting."""
        door = self._door
        if self._waiter is not None:
            cancel_wait(self._yard, self._waiter)
            self._waiter = None
            door.waiting_count -= 1
        self.is_finished = True
        if self._long is not None:
            self._yard.tasks.leave(self._long)
        drop_holder(self._yard, self._lease_set, None, now_ms)
        drop_user(self._yard, self._used)
        self._watched.leave()
        self._rest, self._body = b"", BytesWriter()
        self.forget_connection()
        door.connections_count -= 1
        door.producers_count -= 1 if self._is_producer else 0
        door.workers_count -= 1 if self._is_worker else 0

    def unread_size(self) -> i64:
        """Return the size of pipelined input."""
        return len(self._rest)

    def held_size(self) -> i64:
        """Return the size of pipelined input and of an incomplete body."""
        return len(self._rest) + len(self._body)

    def refuse_input(self, now_ms: i64) -> None:  # noqa: ARG002  the session's
        """Discard a body while the rest of it arrives; close for any other input."""
        self.is_finished = self._mode != InputMode.BODY
        if self._mode == InputMode.BODY:
            self._mode, self._body = InputMode.REFUSED_BODY, BytesWriter()

    def doing(self) -> str:
        """Return the command that runs, for the log."""
        return "beanstalk " + commands.name_of(self._running, self._running_at)

    # -- reading -------------------------------------------------------------------------------

    def _step(self, data: bytes, at: i64, size: i64, now_ms: i64) -> i64:
        """Run the command at `at`; return where the next begins, or InputMode.INCOMPLETE."""
        if self._mode != InputMode.LINES:
            return self._collect(data, at, size, now_ms)
        if size - at > 8:
            first = data[at]
            if first == 112 and data[at + 1] == 117 and data[at + 3] == 32:  # pu. + space
                return self._put(data, at, size, now_ms)
            if first == 100 and data[at + 6] == 32 and data[at + 1] == 101:  # de.... + space
                return self._delete(data, at, size, now_ms)
            if first == 114 and data[at + 7] == 13 and data[at + 8] == 10:  # r...... + CRLF
                return self._reserve_line(data, at, size, now_ms)
        return self._line(data, at, size, now_ms)

    def _line(self, data: bytes, at: i64, size: i64, now_ms: i64) -> i64:
        end: i64 = data.find(CRLF, at)
        if end < 0:
            if size - at < LINE_SIZE_MAX:
                return InputMode.INCOMPLETE
            self.is_finished = is_http(data[at : at + LINE_SIZE_MAX])
            self._mode = InputMode.LONG_LINE
            return at
        if end - at > LINE_SIZE_MAX - 2:
            self.is_finished = is_http(data[at:end])
            self._say(commands.BAD_FORMAT)
            return end + 2
        line = data[at:end]
        if 0 in line:
            self._say(commands.BAD_FORMAT)
        elif line.startswith(b"put "):
            self._put_slowly(line)
        else:
            self._command(line, now_ms)
        return end + 2

    def _collect(self, data: bytes, at: i64, size: i64, now_ms: i64) -> i64:
        """Read more of a body, or of input that is discarded."""
        if self._mode == InputMode.LONG_LINE:
            end: i64 = data.find(CRLF, at)
            if end < 0:
                # The CR of the CRLF may have arrived without its LF.
                kept: i64 = 1 if data[size - 1] == 13 else 0
                self._rest = b""
                return size - kept if size - kept > at else InputMode.INCOMPLETE
            self._mode = InputMode.LINES
            self._say(commands.BAD_FORMAT)
            return end + 2
        taken = min(self._left, size - at)
        self._left -= taken
        if self._mode == InputMode.BODY:
            self._body.write(data[at : at + taken])
        if self._left == 0:
            mode, self._mode = self._mode, InputMode.LINES
            if mode != InputMode.BODY:
                self._say(
                    b"JOB_TOO_BIG\r\n" if mode == InputMode.SKIPPED_BODY else commands.OUT_OF_MEMORY
                )
            else:
                whole, self._body = self._body.getvalue(), BytesWriter()
                self._insert(whole, 0, len(whole) - 2, now_ms)
        return at + taken

    # -- put -----------------------------------------------------------------------------------

    def _put(self, data: bytes, at: i64, size: i64, now_ms: i64) -> i64:
        """Read a put in its usual form with a complete body; leave others to the slow path."""
        if data[at + 2] != 116:
            return self._line(data, at, size, now_ms)
        rank, pos = parse_number(data, at + 4, size, U32_MAX)
        delay, pos = parse_number(data, pos, size, U32_MAX)
        ttr, pos = parse_number(data, pos, size, U32_MAX)
        body_size, pos = parse_number(data, pos, size, U32_MAX)
        if (
            rank < 0
            or delay < 0
            or ttr < 0
            or body_size < 0
            or body_size > self._door.job_size_max
            or pos + 2 + body_size + 2 > size
            or pos - at > LINE_SIZE_MAX - 2
            or data[pos] != 13
            or data[pos + 1] != 10
        ):
            return self._line(data, at, size, now_ms)
        self._begin_put(rank, delay, ttr)
        start = pos + 2
        self._insert(data, start, start + body_size, now_ms)
        return start + body_size + 2

    def _put_slowly(self, line: bytes) -> None:
        """Read the line of a put by all rules, and expect its body."""
        end: i64 = len(line)
        rank, pos = parse_number(line, 4, end, U32_MAX)
        delay, pos = parse_number(line, pos, end, U32_MAX) if rank >= 0 else (rank, pos)
        ttr, pos = parse_number(line, pos, end, U32_MAX) if delay >= 0 else (delay, pos)
        size, pos = parse_number(line, pos, end, U32_MAX) if ttr >= 0 else (ttr, pos)
        is_too_large = size > self._door.job_size_max
        if size < 0 or (pos != end and not is_too_large):
            self._say(commands.BAD_FORMAT)
        elif is_too_large:
            self._door.counts[commands.CommandNo.PUT] += 1
            self._mode, self._left = InputMode.SKIPPED_BODY, size + 2
        else:
            self._begin_put(rank, delay, ttr)
            self._mode, self._left = InputMode.BODY, size + 2

    def _begin_put(self, rank: i64, delay: i64, ttr: i64) -> None:
        door = self._door
        door.counts[commands.CommandNo.PUT] += 1
        if not self._is_producer:
            self._is_producer = True
            door.producers_count += 1
        self._rank, self._delay_ms = rank, delay * 1000
        self._ttr_ms = ttr * 1000 if ttr > 0 else 1000

    def _insert(self, data: bytes, start: i64, end: i64, now_ms: i64) -> None:
        """Put a job with the body between `start` and `end`; CRLF must follow it."""
        if data[end] != 13 or data[end + 1] != 10:
            self._say(b"EXPECTED_CRLF\r\n")
            return
        if self._door.is_draining:
            self._say(b"DRAINING\r\n")
            return
        yard, used, ttr_ms = self._yard, self._used, self._ttr_ms
        body = data[start:end]
        try:
            job = put(yard, used, BEANSTALK, RAW, self._rank, self._delay_ms, ttr_ms, body, now_ms)
        except (YardFull, StorageFull) as full:
            self._say(b"DRAINING\r\n" if isinstance(full, NameTaken) else commands.OUT_OF_MEMORY)
            return
        out = self.out
        before: i64 = len(out)
        out.write(b"INSERTED ")
        write_number(out, job.id)
        out.write(CRLF)
        self.narrow(before, job.batch)

    # -- reserve -------------------------------------------------------------------------------

    def _reserve_line(self, data: bytes, at: i64, size: i64, now_ms: i64) -> i64:
        if data[at : at + 7] != b"reserve":
            return self._line(data, at, size, now_ms)
        self._door.counts[commands.CommandNo.RESERVE] += 1
        self._reserve(NEVER_MS, now_ms)
        return at + 9

    def _reserve(self, until_ms: i64, now_ms: i64) -> None:
        self._become_worker()
        lease = take(self._yard, self._watched.queues, self._lease_set, TERMS, now_ms)
        if lease is not None:
            self._say_job(b"RESERVED ", lease.job, lease.body)
            return
        soon_ms = self._lease_set.soonest_ms() - SOON_MS
        if soon_ms <= now_ms:
            self._say(b"DEADLINE_SOON\r\n")
        elif until_ms <= now_ms or self._waits_no_more:
            self._say(commands.TIMED_OUT)
        else:
            there = self._watched.queues
            self._waiter = wait(self._yard, there, self._lease_set, TERMS, until_ms, soon_ms)
            self._door.waiting_count += 1

    def _become_worker(self) -> None:
        if not self._is_worker:
            self._is_worker = True
            self._door.workers_count += 1

    def given(self, waiter: Waiter, lease: Lease) -> None:
        """Answer a waiting reserve."""
        assert waiter is self._waiter
        self._waiter = None
        self._door.waiting_count -= 1
        self._say_job(b"RESERVED ", lease.job, lease.body)
        self.peer.wake()

    def waited_enough(self, waiter: Waiter, *, is_deadline_soon: bool) -> None:
        """Answer a waiting reserve that got no job."""
        assert waiter is self._waiter
        self._stop_waiting(b"DEADLINE_SOON\r\n" if is_deadline_soon else commands.TIMED_OUT)
        self.peer.wake()

    def _stop_waiting(self, answer: bytes) -> None:
        self._waiter = None
        self._door.waiting_count -= 1
        self._say(answer)

    # -- delete --------------------------------------------------------------------------------

    def _delete(self, data: bytes, at: i64, size: i64, now_ms: i64) -> i64:
        if data[at : at + 7] != b"delete ":
            return self._line(data, at, size, now_ms)
        job_id, pos = parse_id(data, at + 7, size)
        is_usual = job_id >= 0 and pos + 2 <= size and pos - at <= LINE_SIZE_MAX - 2
        if not is_usual or data[pos] != 13 or data[pos + 1] != 10:
            return self._line(data, at, size, now_ms)
        self._delete_job(job_id, now_ms)
        return pos + 2

    def _delete_job(self, job_id: i64, now_ms: i64) -> None:
        self._door.counts[commands.CommandNo.DELETE] += 1
        yard = self._yard
        job = self._job(job_id)
        if job is None:
            raise NotFound
        if job.state != LEASED:
            remove(yard, job, now_ms)
        else:
            finish(yard, held(yard, job_id, self._lease_set), now_ms)
        self._say(b"DELETED\r\n")

    def _job(self, job_id: i64) -> Job | None:
        """Return a job; None for a done job of another door, which beanstalk clients do not see."""
        job = self._yard.jobs.get(job_id)
        return None if job is None or job.state == DONE else job

    # -- everything else -----------------------------------------------------------------------

    def _command(self, line: bytes, now_ms: i64) -> None:
        """Run any command but put. Words are matched as in beanstalkd: as prefixes, in order."""
        found = commands.find(line)
        if found is None:
            self.is_finished = is_http(line)
            self._say(commands.UNKNOWN_COMMAND)
            return
        word, code, shape = found
        rest = line[len(word) :]
        if shape == commands.Operand.NUMBER:
            self._with_number(code, rest, now_ms)
        elif shape == commands.Operand.NAME:
            self._with_name(code, rest, now_ms)
        elif rest and code != commands.CommandNo.QUIT:
            self._say(commands.BAD_FORMAT)
        else:
            self._plain(code, now_ms)

    def _plain(self, code: int, now_ms: i64) -> None:
        """Run a command that has no argument."""
        door = self._door
        if code == commands.CommandNo.QUIT:
            self.is_finished = True
            return
        door.counts[code] += 1
        if code == commands.CommandNo.RESERVE:
            self._reserve(NEVER_MS, now_ms)
        elif code == commands.CommandNo.PEEK_READY:
            self._found(first_ready(self._used))
        elif code == commands.CommandNo.PEEK_DELAYED:
            self._found(self._used.delayed.items[0] if self._used.delayed.items else None)
        elif code == commands.CommandNo.PEEK_BURIED:
            outcome = self._used.dead.first()
            self._found(outcome.job if isinstance(outcome, Outcome) else None)
        elif code == commands.CommandNo.STATS:
            self._say_yaml(statistics.of_server(door, now_ms))
        elif code == commands.CommandNo.LIST_TUBES:
            self._begin(TubeList(self._yard), now_ms)
        elif code == commands.CommandNo.LIST_TUBES_WATCHED:
            self._say_yaml(statistics.list_of(self._watched.queues))
        else:
            assert code == commands.CommandNo.LIST_TUBE_USED
            self.write_own(b"USING " + self._used.name.encode() + CRLF)

    def _with_number(self, code: int, rest: bytes, now_ms: i64) -> None:
        """Run a command whose argument begins with a number."""
        end: i64 = len(rest)
        if code == commands.CommandNo.KICK:
            bound = parse_kick_bound(rest)
            if bound < 0:
                self._say(commands.BAD_FORMAT)
                return
            self._door.counts[commands.CommandNo.KICK] += 1
            self._begin(KickTask(self._yard, self._used, bound), now_ms)
            return
        if code == commands.CommandNo.RESERVE_WITH_TIMEOUT:
            # The rest of the line is ignored, as in beanstalkd 1.13.
            timeout, _ = parse_number(rest, 0, end, TIMEOUT_MAX)
            if timeout < 0:
                self._say(commands.BAD_FORMAT)
                return
            self._door.counts[commands.CommandNo.RESERVE_WITH_TIMEOUT] += 1
            self._reserve(now_ms + timeout * 1000, now_ms)
            return
        job_id, pos = parse_id(rest, 0, end)
        rank: i64 = 0
        delay: i64 = 0
        if job_id >= 0 and code in (commands.CommandNo.RELEASE, commands.CommandNo.BURY):
            rank, pos = parse_number(rest, pos, end, U32_MAX)
        if job_id >= 0 and rank >= 0 and code == commands.CommandNo.RELEASE:
            delay, pos = parse_number(rest, pos, end, U32_MAX)
        if job_id < 0 or rank < 0 or delay < 0 or pos != end:
            self._say(commands.BAD_FORMAT)
            return
        self._with_job(code, job_id, rank, delay * 1000, now_ms)

    def _with_job(self, code: int, job_id: i64, rank: i64, delay_ms: i64, now_ms: i64) -> None:
        """Run a command that names a job; the caller answers Refused with NOT_FOUND."""
        yard = self._yard
        if code == commands.CommandNo.DELETE:
            self._delete_job(job_id, now_ms)
            return
        self._door.counts[min(code, commands.CommandNo.UNCOUNTED)] += 1
        if code == commands.CommandNo.RELEASE:
            is_ready = hand_back(yard, held(yard, job_id, self._lease_set), rank, delay_ms, now_ms)
            self._say(b"RELEASED\r\n" if is_ready else b"BURIED\r\n")
        elif code == commands.CommandNo.BURY:
            bury(yard, held(yard, job_id, self._lease_set), rank, now_ms)
            self._say(b"BURIED\r\n")
        elif code == commands.CommandNo.TOUCH:
            lease = held(yard, job_id, self._lease_set).lease
            assert lease is not None
            touch(yard, lease, lease.ttl_ms, now_ms)
            self._say(b"TOUCHED\r\n")
        elif code == commands.CommandNo.PEEK:
            self._found(self._job(job_id))
        elif code == commands.CommandNo.STATS_JOB:
            job = self._job(job_id)
            if job is None:
                raise NotFound
            self._say_yaml(statistics.of_job(job, now_ms))
        elif code == commands.CommandNo.KICK_JOB:
            kick_job(yard, job_id, now_ms)
            self._say(b"KICKED\r\n")
        else:
            assert code == commands.CommandNo.RESERVE_JOB
            taken = take_job(yard, job_id, self._lease_set, TERMS, now_ms)
            self._become_worker()
            self._say_job(b"RESERVED ", taken.job, taken.body)

    def _with_name(self, code: int, rest: bytes, now_ms: i64) -> None:
        """Run a command whose argument begins with a tube name."""
        delay: i64 = 0
        if code == commands.CommandNo.PAUSE_TUBE:
            rest = rest.lstrip(b" ")
            end = tube_name_end(rest)
            delay, pos = parse_number(rest, end, len(rest), U32_MAX)
            if delay < 0 or pos != len(rest):
                self._say(commands.BAD_FORMAT)
                return
            rest = rest[:end]
            self._door.counts[code] += 1
        if not is_tube_name(rest):
            self._say(commands.BAD_FORMAT)
            return
        tube = rest.decode()
        self._door.counts[code] += 1 if code != commands.CommandNo.PAUSE_TUBE else 0
        if code == commands.CommandNo.USE:
            self._use(tube)
        elif code == commands.CommandNo.WATCH:
            self._say(self._watched.watch(tube))
        elif code == commands.CommandNo.IGNORE:
            self._say(self._watched.ignore(tube))
        else:
            queue = self._yard.queues.get(tube)
            if queue is None:
                self._say(commands.NOT_FOUND)
            elif code == commands.CommandNo.STATS_TUBE:
                self._say_yaml(statistics.of_tube(queue, now_ms))
            else:
                pause(self._yard, queue, delay * 1000, now_ms)
                self._say(b"PAUSED\r\n")

    # -- tubes ---------------------------------------------------------------------------------

    def _use(self, tube: str) -> None:
        queue = open_queue(self._yard, tube)
        hold_user(queue)
        drop_user(self._yard, self._used)
        self._used = queue
        self._say(b"USING " + tube.encode() + CRLF)

    def _begin(self, task: Task, now_ms: i64) -> None:
        """Start a kick or a list; later commands on the connection wait for its end."""
        if self._yard.tasks.begin(task, self, now_ms):
            self.task_ended(task, None, now_ms)
        else:
            self._long = task

    def task_ended(self, task: Task, refusal: Exception | None, now_ms: i64) -> None:  # noqa: ARG002
        """Answer; a kick on a full disk reports how many jobs it could kick."""
        self._long = None
        self.await_synced(task.reply_sync_batch)
        if isinstance(task, KickTask):
            self._say(b"KICKED %d\r\n" % task.count)
        elif isinstance(task, TubeList):
            self.write_long(task.answer())
        self.peer.wake()

    # -- answers -------------------------------------------------------------------------------

    def _say(self, answer: bytes) -> None:
        """Write an answer that waits for the newest of the records that replies wait for."""
        self.out.write(answer)
        self.narrow(len(self.out) - len(answer), self.journal.appended)

    def _say_job(self, word: bytes, job: Job, body: bytes) -> None:
        out = self.out
        before: i64 = len(out)
        if job.codec != RAW:
            body = to_raw(i64(job.codec), body)
        out.write(word)
        write_number(out, job.id)
        out.append(SPACE)
        write_number(out, len(body))
        out.write(CRLF)
        out.write(body)
        out.write(CRLF)
        self.narrow(before, job.batch)

    def _found(self, job: object) -> None:
        if not isinstance(job, Job):
            self._say(commands.NOT_FOUND)
        elif (body := self._yard.bodies.fetch(job)) is None:
            self._say(commands.INTERNAL_ERROR)
        else:
            self._say_job(b"FOUND ", job, body)

    def _say_yaml(self, text: str) -> None:
        """Write counts, which may disclose any record, so the answer waits for all of them."""
        data = text.encode()
        self.out.write(b"OK %d\r\n%b\r\n" % (len(data), data))
