"""One bunqueue connection: splits input into frames, runs commands, writes answers and events.

The most frequent commands (PUSH, PULL, ACK and their batches) are called directly; all others are
looked up in the door's table. A command is answered at once or, if it waits for a job, later and
out of order; up to fifty commands of a connection may wait, then its input waits too. While the
task of a long command runs, later commands do not start.
"""

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

from jobyard.engine.jobs.finish import hand_over
from jobyard.engine.jobs.holders import drop_holder
from jobyard.engine.jobs.queues import drop_if_idle, drop_watch
from jobyard.engine.jobs.take import cancel_wait
from jobyard.engine.state.bus import Event, Listener
from jobyard.engine.state.job_waits import JobWait, JobWaiter
from jobyard.engine.state.tasks import Task, TaskOwner
from jobyard.errors import NameTaken, Refused, StorageFull, YardFull
from jobyard.model.family import BUNQUEUE
from jobyard.model.job import Job
from jobyard.model.lease import Holder, Lease, Proof, Terms
from jobyard.model.waiter import Waiter
from jobyard.protocols.bunqueue import job_fields
from jobyard.protocols.bunqueue.commands import acks, jobs, push_batch, push_options
from jobyard.protocols.bunqueue.door import Answer, BunqueueDoor
from jobyard.protocols.bunqueue.frames import (
    LONG_FRAME,
    FrameScan,
    LongCommand,
    UnreadFrames,
    is_message,
    read_frame,
    text_req_id,
)
from jobyard.protocols.bunqueue.long_answers import frame_of, is_long
from jobyard.protocols.bunqueue.request import Pull, Request
from jobyard.protocols.login_attempts import STRANGER_MS, STRANGER_SIZE_MAX
from jobyard.protocols.next_turn import NextTurn
from jobyard.protocols.session import DOING_MAX, OUTPUT_MAX, Peer, Session
from jobyard.protocols.timeout import Timeout
from jobyard.wire.msgpack.forms import KIND_INTEGER
from jobyard.wire.msgpack.read import MapFields
from jobyard.wire.msgpack.write import (
    begin_frame,
    end_frame,
    write_ascii,
    write_map,
    write_text,
    write_value,
)

FRAME_SIZE_MAX: Final = 64 << 20
# Commands of one connection that may wait at a time.
COMMANDS_WAITING_MAX: Final = 50
# Pipelined commands other than the frequent ones that run in one turn.
ASKED_MAX: Final = 64

PLAIN_TERMS: Final = Terms(BUNQUEUE, Proof.DOOR, 0, "")

STORAGE_FULL: Final = "Storage full"
DENIED: Final = "Invalid token"
MEMORY_FULL: Final = "Out of memory for unfinished commands, try again later"

# Stands for no queue name: longer than any name that is compared, so none equals it.
_NO_NAME: Final = bytes(32)


@final
class BunqueueSession(Session, Holder, Listener, JobWaiter, TaskOwner):
    """The protocol state of one connection."""

    def __init__(self, door: BunqueueDoor, peer: Peer) -> None:
        super().__init__(peer, door.yard.journal)
        self.door = door
        self.yard = door.yard
        self.lease_set = door.yard.new_lease_set(self)
        self.is_known: bool = not door.tokens
        # Whether this is a TCP connection, which `sessions_count` counts.
        self.is_counted: bool = False
        self.is_limited: bool = True
        self.plain_terms: Terms = PLAIN_TERMS
        # Terms of the last pull with an owner; a worker sends the same ones every time.
        self.owned_terms: Terms | None = None
        self.pulls: dict[Waiter, Pull] = {}
        self.job_waits: dict[JobWait, bytes] = {}
        self._long: LongCommand | None = None
        # Less frequent commands that ran since the last input, and the turn in which to continue.
        self._asked: i64 = 0
        self._turn: NextTurn | None = None
        # A long frame that is being scanned, and the size of the one whose command runs.
        self._looking: FrameScan | None = None
        self._busy_size: i64 = 0
        # The queue whose events are sent; None for no events.
        self.events_of: str | None = None
        # Workers that registered here; they leave with the connection.
        self.worker_ids: list[str] = []
        # The last queue name: clients send the same one over and over.
        self._queue_name: bytes = _NO_NAME
        self._queue_text: str = ""
        self._unread = UnreadFrames()
        self._heard_ms: i64 = 0
        # Created when a frame is first incomplete: most connections never send a long one.
        self._wait_timeout: Timeout | None = None
        self._input_ended: bool = False
        # The current or last command.
        self._doing: bytes = b"frame"
        # Before authentication: the deadline, and a refusal that is delayed.
        self._deadline: Timeout | None = None
        self._denial: Timeout | None = None
        self._denied: bytes = b""
        self._window_ends_ms: i64 = 0
        self._requests: i64 = 0

    # -- the session ---------------------------------------------------------------------------

    def receive(self, data: bytes, now_ms: i64) -> None:
        """Run every complete command; keep input that is incomplete or must wait."""
        self._heard_ms = now_ms
        if not self._is_resting():
            self._turn = None
            self._asked = 0
        if self._unread.have > 0:
            if not self._unread.is_enough_with(data):
                return
            data = self._unread.take(data)
        self.is_stalled = False
        at: i64 = 0
        size: i64 = len(data)
        while not self.is_finished:
            if size - at < 4:
                self._keep(data, at, 4)
                return
            length: i64 = data[at] << 24 | data[at + 1] << 16 | data[at + 2] << 8 | data[at + 3]
            if length > STRANGER_SIZE_MAX and (length > FRAME_SIZE_MAX or not self.is_known):
                self._refuse_long(length)
                return
            if size - at < 4 + length:
                self._keep(data, at, 4 + length)
                return
            if len(self.out) > OUTPUT_MAX or self._waiting_count() >= COMMANDS_WAITING_MAX:
                self.is_stalled = len(self.out) > OUTPUT_MAX
                self._keep(data, at, 4 + length)
                # A client whose refusal is delayed must not pipeline.
                self.is_finished = not self.is_known and size - at > STRANGER_SIZE_MAX
                return
            self._run(data, at + 4, at + 4 + length, now_ms)
            at += 4 + length
            if self._asked >= ASKED_MAX and self._turn is None and at < size:
                self._turn = NextTurn(self.yard.tasks, self.peer)

    def _refuse_long(self, length: i64) -> None:
        most = FRAME_SIZE_MAX if self.is_known else STRANGER_SIZE_MAX
        when = "" if self.is_known else " before authentication"
        self.refuse(b"", f"Frame too large: {length} bytes exceeds maximum {most}{when}")
        self.is_finished = True

    def _keep(self, data: bytes, at: i64, need: i64) -> None:
        if self._unread.keep(data, at, need):
            self._expect_more()

    def _expect_more(self) -> None:
        """Arm the timeout of an incomplete frame."""
        if self._wait_timeout is None:
            self._wait_timeout = Timeout(self.look_at_frame)
        if self._wait_timeout.pos < 0:
            self.yard.arm(self._wait_timeout, self._heard_ms + self.door.idle_ms)

    def look_at_frame(self, now_ms: i64) -> None:
        """Close the connection if its frame has not grown for `idle_ms`."""
        if self._unread.have == 0 or self._unread.is_whole() or self.is_finished:
            return
        until_ms = self._heard_ms + self.door.idle_ms
        if now_ms < until_ms:
            self._expect_more()
            return
        self.is_finished = True
        self.peer.wake()

    def _waiting_count(self) -> i64:
        if self._long is not None or self._denial is not None or self._looking is not None:
            return COMMANDS_WAITING_MAX
        if self._is_resting():
            return COMMANDS_WAITING_MAX
        return len(self.pulls) + len(self.job_waits)

    def _is_resting(self) -> bool:
        return self._turn is not None and not self._turn.has_come

    def resume(self, now_ms: i64) -> None:
        """Run input that was kept."""
        if self._unread.have > 0 and self._unread.is_whole():
            self.receive(b"", now_ms)
        if self._input_ended and not self.is_stalled and not self._waiting_count():
            self.is_finished = True

    def half_close(self, now_ms: i64) -> None:
        """Answer all waiting commands: no more input comes from this peer."""
        for waiter in list(self.pulls):
            cancel_wait(self.yard, waiter)
            self._answer_pull(waiter, [])
        for wait in list(self.job_waits):
            self.yard.disarm(wait)
            self.yard.waits.remove(wait)
            self.job_done(wait, None)
        self.resume(now_ms)

    def end_input(self, now_ms: i64) -> None:
        """Answer all complete commands and finish: the peer has closed its side."""
        self._input_ended = True
        self.half_close(now_ms)
        if self._denial is not None:
            self.is_finished = True

    def closed(self, now_ms: i64) -> None:
        """Release leases, waits, tasks and subscriptions."""
        self.is_finished = True
        if self._wait_timeout is not None:
            self.yard.disarm(self._wait_timeout)
            self._wait_timeout = None
        self._stop_auth_timeout()
        for waiter, pull in self.pulls.items():
            cancel_wait(self.yard, waiter)
            self._leave(pull)
        self.pulls.clear()
        for wait in self.job_waits:
            self.yard.disarm(wait)
            self.yard.waits.remove(wait)
        self.job_waits.clear()
        self._leave_tasks()
        if self.events_of is not None:
            self.events_of = None
            self.yard.bus.remove(self)
        observer = self.door.observer
        for worker_id in self.worker_ids:
            self.door.workers.leave(worker_id)
            if observer is not None:
                observer.publish("worker:disconnected", {"workerId": worker_id})
        drop_holder(self.yard, self.lease_set, self.door.orphans, now_ms)
        self._unread = UnreadFrames()
        self.forget_connection()
        if self.is_counted:
            self.door.sessions_count -= 1
            if observer is not None:
                observer.publish("client:disconnected", {"transport": "tcp"})

    def _leave_tasks(self) -> None:
        if self._turn is not None:
            self._turn.leave()
            self._turn = None
        if self._long is not None:
            self.yard.tasks.leave(self._long.task)
            self._long = None
        if self._looking is not None:
            self.yard.tasks.leave(self._looking)
            self._looking = None

    def unread_size(self) -> i64:
        """Return the size of complete frames that wait to run; an incomplete one does not count."""
        return self._unread.have if self._unread.is_whole() else 0

    def held_size(self) -> i64:
        """Return the size of all input in memory: kept frames and the command that runs."""
        return self._unread.have + self._busy_size

    def refuse_input(self, now_ms: i64) -> None:  # noqa: ARG002  of the base class
        """Refuse an incomplete frame and close: its rest would be read as other frames."""
        self.refuse(b"", MEMORY_FULL)
        self.is_finished = True
        self._unread = UnreadFrames()

    def doing(self) -> str:
        """Return the current command, for error reports."""
        return "bunqueue " + self._doing[:DOING_MAX].decode("utf-8", "replace")

    # -- authentication ------------------------------------------------------------------------

    def expect_auth(self, now_ms: i64) -> None:
        """Start the deadline for authentication."""
        self._deadline = Timeout(self._auth_timed_out)
        self.yard.arm(self._deadline, now_ms + STRANGER_MS)

    def authenticated(self) -> None:
        """Allow all commands on this connection."""
        self.is_known = True
        self._stop_auth_timeout()

    def deny(self, req_id: bytes, now_ms: i64) -> None:
        """Refuse a token, with a delay after repeated failures; nothing else runs until then."""
        wait_ms = self.door.shared_limits.attempts.fail(self.peer.host(), now_ms)
        if wait_ms == 0:
            raise Refused(DENIED)
        self._denied = req_id
        self._denial = Timeout(self._send_denial)
        self.yard.arm(self._denial, now_ms + wait_ms)

    def _send_denial(self, now_ms: i64) -> None:
        """Send a delayed refusal."""
        del now_ms
        self._denial = None
        self.refuse(self._denied, DENIED)
        self.peer.wake()

    def _auth_timed_out(self, now_ms: i64) -> None:
        """Close a connection that did not authenticate in time."""
        del now_ms
        if not self.is_known:
            self.refuse(b"", "Authentication timed out")
            self.is_finished = True
        self.peer.wake()

    def _stop_auth_timeout(self) -> None:
        if self._deadline is not None:
            self.yard.disarm(self._deadline)
            self._deadline = None
        if self._denial is not None:
            self.yard.disarm(self._denial)
            self._denial = None

    # -- commands ------------------------------------------------------------------------------

    def _run(self, data: bytes, at: i64, end: i64, now_ms: i64) -> None:
        if end - at > LONG_FRAME:
            self._look_through(data, at, end, now_ms)
            return
        fields = read_frame(data, at, end)
        if fields is not None:
            self._run_command(fields, now_ms)
        else:
            self._refuse_no_command(now_ms, is_message=is_message(data, at, end))

    def _refuse_no_command(self, now_ms: i64, *, is_message: bool) -> None:
        if self.door.requests_max > 0 and self.is_limited and not self._may_ask(now_ms):
            self._refuse_too_fast(None)
            return
        self.refuse(b"", "Invalid command" if is_message else "Invalid command format")

    def _look_through(self, data: bytes, at: i64, end: i64, now_ms: i64) -> None:
        """Validate a long frame in slices, then run its command."""
        looking = FrameScan(data, at, end)
        self._busy_size = end - at
        if self.yard.tasks.begin(looking, self, now_ms):
            self._run_long(looking, now_ms)
        else:
            self._looking = looking

    def _run_long(self, looking: FrameScan, now_ms: i64) -> None:
        fields = looking.fields()
        if fields is not None:
            self._run_command(fields, now_ms)
        else:
            self._refuse_no_command(now_ms, is_message=looking.is_whole())
        if self._long is None:
            self._busy_size = 0

    def _accept(self, fields: MapFields, now_ms: i64) -> bytes | None:
        """Return the name of a command that may run; refuse any other, and return None."""
        if self.door.requests_max > 0 and self.is_limited and not self._may_ask(now_ms):
            self._refuse_too_fast(fields)
            return None
        name = fields.content_at(fields.cmd)
        if not name and fields.kind(b"cmd") == KIND_INTEGER:
            name = str(fields.integer(b"cmd", 0)).encode()
        if not name:
            self.refuse(text_req_id(fields), "Invalid command")
            return None
        self._doing = name
        if not self.is_known and name != b"Auth":
            self.refuse(text_req_id(fields), "Not authenticated")
            return None
        return name

    def _run_command(self, fields: MapFields, now_ms: i64) -> None:
        self.changes_before = self.yard.changes()
        name = self._accept(fields, now_ms)
        if name is None:
            return
        request = Request(fields, name, now_ms)
        try:
            if name == b"PUSH":
                jobs.push(self, request)
            elif name == b"PULL":
                jobs.pull(self, request, is_batch=False)
            elif name == b"ACK":
                jobs.ack(self, request)
            elif name == b"PUSHB":
                push_batch.push_batch(self, request)
            elif name == b"PULLB":
                jobs.pull(self, request, is_batch=True)
            elif name == b"ACKB":
                acks.ack_batch(self, request)
            else:
                self._run_rarer(request)
        except NameTaken as taken:
            self._refuse_taken(request, taken)
        except (Refused, StorageFull) as refusal:
            self._refuse_for(request, refusal)

    def _refuse_for(self, request: Request, refusal: Exception) -> None:
        is_full = isinstance(refusal, YardFull | StorageFull)
        self.refuse(request.req_id, STORAGE_FULL if is_full else str(refusal))

    def _refuse_too_fast(self, fields: MapFields | None) -> None:
        """Refuse a request that exceeds the rate limit."""
        self.refuse(b"" if fields is None else text_req_id(fields), "Rate limit exceeded")
        if self.door.observer is not None:
            self.door.observer.publish("ratelimit:hit", {"transport": "tcp"})

    def _refuse_taken(self, request: Request, taken: NameTaken) -> None:
        """Refuse a name that belongs to a log, and drop the queue made for this request."""
        self.refuse(request.req_id, str(taken))
        queue = self.yard.queues.get(taken.name)
        if queue is not None:
            drop_if_idle(self.yard, queue)

    def _run_rarer(self, request: Request) -> None:
        """Run a command of the door's table."""
        self._asked += 1
        if not self.door.commands.has(request.name):
            raise Refused(f"Unknown command: {request.name.decode('utf-8', 'replace')}")
        answer = self.door.commands.run(self, request)
        if answer is not None:
            self._answer_request(request, answer)

    def _answer_request(self, request: Request, answer: Answer) -> None:
        self.answer(request.req_id, answer)
        observer = self.door.observer
        if observer is not None:
            observer.did(request, answer)

    def begin(
        self, request: Request, task: Task, make_answer: Callable[[], Answer]
    ) -> Answer | None:
        """Start the task of a command; return the answer, or None if it is sent when it ends."""
        if self.yard.tasks.begin(task, self, request.now_ms):
            return make_answer()
        self._long = LongCommand(request, task, make_answer)
        return None

    def task_ended(self, task: Task, refusal: Exception | None, now_ms: i64) -> None:
        """Answer the command of a finished task, and continue with the commands behind it."""
        looking = self._looking
        if looking is not None:
            self._looking = None
            if refusal is None:
                self._run_long(looking, now_ms)
            else:
                self.refuse(b"", str(refusal))
        else:
            long = self._long
            assert long is not None
            self._long = None
            self._busy_size = 0
            if refusal is None:
                self._answer_request(long.request, long.make_answer())
            else:
                self._refuse_for(long.request, refusal)
        # No connection takes the request of a command that runs here.
        self.await_synced(max(task.reply_sync_batch, self.journal.take_command_sync_batch()))
        self.peer.wake()

    def queue_name(self, fields: MapFields) -> str:
        """Return the queue name of a command."""
        if fields.queue >= 0 and fields.is_text_at(fields.queue, self._queue_name):
            return self._queue_text
        text = push_options.queue_name(fields)
        self._queue_name = text.encode()
        self._queue_text = text
        return text

    def _may_ask(self, now_ms: i64) -> bool:
        if now_ms >= self._window_ends_ms:
            self._window_ends_ms = now_ms + self.door.window_ms
            self._requests = 0
        self._requests += 1
        return self._requests <= self.door.requests_max

    # -- answers -------------------------------------------------------------------------------

    def begin_ok(self, req_id: bytes, count: i64) -> i64:
        """Start an answer with `ok` and `count` more fields; return the position of the frame."""
        out = self.out
        frame = begin_frame(out)
        write_map(out, count + (2 if req_id else 1))
        out.write(b"\xa2ok\xc3")
        return frame

    def end_ok(self, frame: i64, req_id: bytes) -> None:
        """Finish an answer."""
        out = self.out
        if req_id:
            out.write(b"\xa5reqId")
            out.write(req_id)
        end_frame(out, frame)

    def answer(self, req_id: bytes, answer: dict[str, object]) -> None:
        """Answer a command; the answer waits for all records appended before it leaves."""
        if is_long(answer):
            self.write_long(frame_of(req_id, answer))
            return
        frame = self.begin_ok(req_id, len(answer))
        for key, value in answer.items():
            write_text(self.out, key)
            write_value(self.out, value)
        self.end_ok(frame, req_id)

    def refuse(self, req_id: bytes, error: str) -> None:
        """Answer a command with an error."""
        out = self.out
        frame = begin_frame(out)
        write_map(out, 3 if req_id else 2)
        out.write(b"\xa2ok\xc2")
        write_ascii(out, b"error")
        write_text(out, error)
        self.end_ok(frame, req_id)
        self.narrow(frame, self.journal.appended)

    # -- waiting -------------------------------------------------------------------------------

    def given(self, waiter: Waiter, lease: Lease) -> None:
        """Answer a PULL that waited; a PULLB also gets further ready jobs."""
        leases = [lease]
        pull = self.pulls[waiter]
        if pull.count > 1:
            queue = lease.job.queue
            leases += jobs.take_more(self, queue, waiter.terms, pull.count - 1, lease.started_ms)
        self._answer_pull(waiter, leases)

    def waited_enough(self, waiter: Waiter, *, is_deadline_soon: bool) -> None:
        """Answer a PULL that timed out without a job."""
        assert not is_deadline_soon
        self._answer_pull(waiter, [])

    def _answer_pull(self, waiter: Waiter, leases: list[Lease]) -> None:
        pull = self.pulls.pop(waiter)
        self.answer_pull(pull, leases)
        self._leave(pull)
        self.peer.wake()

    def _leave(self, pull: Pull) -> None:
        queue = pull.queue
        assert queue is not None
        drop_watch(self.yard, queue)

    def answer_pull(self, pull: Pull, leases: list[Lease]) -> None:
        """Answer with the jobs that were taken."""
        out = self.out
        frame = self.begin_ok(pull.req_id, 2 if pull.is_owned else 1)
        if pull.is_batch:
            job_fields.write_leases(out, self.door, leases, with_tokens=pull.is_owned)
        else:
            lease = leases[0] if leases else None
            job_fields.write_lease(out, self.door, lease, with_token=pull.is_owned)
        self.end_ok(frame, pull.req_id)
        observer = self.door.observer
        if observer is not None and len(leases) > 1:
            fields: dict[str, object] = {"queue": leases[0].job.queue.name, "count": len(leases)}
            observer.publish("batch:pulled", fields)
        newest: i64 = 0 if leases else self.journal.appended
        for lease in leases:
            if pull.is_detached:
                hand_over(self.yard, lease, self.door.orphans)
            newest = max(newest, lease.job.batch)
        self.narrow(frame, newest)

    def answer_lease(self, req_id: bytes, lease: Lease) -> None:
        """Answer a PULL without options with a job that was ready."""
        frame = self.begin_ok(req_id, 1)
        job_fields.write_lease(self.out, self.door, lease, with_token=False)
        self.end_ok(frame, req_id)
        self.narrow(frame, lease.job.batch)

    def job_done(self, wait: JobWait, result: bytes | None) -> None:
        """Answer a WaitJob."""
        self.yard.disarm(wait)
        req_id = self.job_waits.pop(wait)
        answer: dict[str, object] = {"completed": result is not None}
        if result:
            answer["result"] = job_fields.result_of(wait.job, result)
        self.answer(req_id, answer)
        self.peer.wake()

    def wait_job(self, job: Job, req_id: bytes, until_ms: i64) -> None:
        """Answer when a job is done or the time is over."""
        wait = JobWait(self.yard.new_number(), job, self, until_ms)
        self.job_waits[wait] = req_id
        self.yard.waits.add(wait)
        self.yard.arm(wait, until_ms)

    # -- events --------------------------------------------------------------------------------

    def happened(self, event: Event) -> None:
        """Send an event of the subscribed queue."""
        if event.queue.name != self.events_of:
            return
        job_fields.write_event(self.out, self.door, event)
        # Not narrowed: its record may not be appended yet.
        self.peer.wake()
