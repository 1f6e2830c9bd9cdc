"""One glide-mq connection: parses commands, runs them in order, writes replies.

A command that waits (`Blocked`) holds up those behind it. What a command wrote before it was
refused is taken back, so that the reply is the refusal alone.
"""

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from jobyard.engine.jobs.finish import untake
from jobyard.errors import Refused, StorageFull, YardFull
from jobyard.model.limits import NEVER_MS
from jobyard.protocols.glidemq.call import COMMAND_NS, FUNCTION_ARGUMENT_NS, Call, is_http
from jobyard.protocols.glidemq.client import REPLIES_ON, REPLIES_SKIP, Blocked, Client
from jobyard.protocols.glidemq.command_table import IMMEDIATE, REDIS_COMMANDS
from jobyard.protocols.glidemq.door import GlidemqDoor
from jobyard.protocols.glidemq.errors import (
    AUTH_TIMED_OUT,
    DISK_FULL_ERROR,
    EXEC_ABORT,
    LONG_TRANSACTION,
    MEMORY_FULL_ERROR,
    NO_AUTH,
    OUT_OF_MEMORY_ERROR,
    Denied,
    Wrong,
    unknown_command,
    wrong_count,
)
from jobyard.protocols.glidemq.functions.table import find_function
from jobyard.protocols.glidemq.keyspace.finder import room_of
from jobyard.protocols.glidemq.prepared import PreparedCall, may_recur, prepare_call
from jobyard.protocols.glidemq.waits import HeldBack, TurnWait
from jobyard.protocols.login_attempts import STRANGER_MS
from jobyard.protocols.session import DOING_MAX, OUTPUT_MAX, Peer
from jobyard.protocols.timeout import Timeout
from jobyard.wire.resp.read import LIMITS, STRANGER_LIMITS, BadResp, Command, RespReader
from jobyard.wire.resp.write import write_array, write_error, write_ok, write_simple

if TYPE_CHECKING:
    from jobyard.model.lease import Lease

# Limits of a transaction, which runs in one piece and keeps all other connections waiting: cost and
# bytes of its commands, units of work in tasks, bytes of its reply.
QUEUED_NS_MAX: Final = 8_000_000
QUEUED_SIZE_MAX: Final = 64 << 20
EXEC_UNITS: Final = 5000
EXEC_ANSWER_MAX: Final = 16 << 20
# In addition to its price, the cost of a command per unit of work in tasks and per byte of its
# reply; bytes beyond the maximum belong to long values, which take no time.
UNIT_NS: Final = 1000
ANSWER_NS: Final = 4
ANSWER_SIZE_MAX: Final = 16 << 10
# A command with more arguments, or a transaction with a higher price, gets a turn of its own.
ARGUMENTS_AT_ONCE: Final = 512
LONG_NS: Final = 500_000
# How long a command may stay incomplete without another byte of it.
UNFINISHED_MS: Final = 60_000

# Prepared calls of a connection: the requests that a producer or a worker repeats.
PREPARED_CALLS_MAX: Final = 4
# How many may be prepared in a row before one is used, and how many misses drop them all.
CHANCES: Final = 8
MISSES_MAX: Final = 64


@final
class GlidemqSession(Client):
    """Commands of one connection."""

    def __init__(self, door: GlidemqDoor, peer: Peer) -> None:
        super().__init__(door, peer)
        self._reader = RespReader(LIMITS if self.is_known else STRANGER_LIMITS)
        self._queued_size: i64 = 0
        self._queued_ns: i64 = 0
        self._is_spoiled: bool = False
        # A command that was read and runs first in the next turn.
        self._kept: Command | None = None
        # Timers are created when first needed.
        self._idle_timeout: Timeout | None = None
        self._blocked: Blocked | None = None
        self._wait_timeout: Timeout | None = None
        # Prepared calls of this connection; the last used first.
        self._prepared_calls: list[PreparedCall] = []
        self._chances: i64 = CHANCES
        self._misses: i64 = 0
        self._waits_no_more: bool = False
        self._input_ended: bool = False
        # Deadline for authentication.
        self._deadline: Timeout | None = None

    # -- the session ---------------------------------------------------------------------------

    def receive(self, data: bytes, now_ms: i64) -> None:
        """Run every complete command; keep the rest as input."""
        if self.began_ms < 0:
            self.began_ms = now_ms
        self.heard_ms = now_ms
        self.door.read_bytes += len(data)
        if self.handed:
            self.handed = []
        self._reader.feed(data)
        self._proceed(now_ms)
        is_ahead = not self.is_known and self._reader.unread_size() > STRANGER_LIMITS.whole
        if is_ahead and not self.is_at_work():
            # While a refusal is delayed, a client has no reason to send more.
            self.is_finished = True

    def _proceed(self, now_ms: i64) -> None:
        """Run commands until none is complete, one waits, or the turn's budget is used up."""
        self.is_stalled = False
        self.work_ns = 0
        door = self.door
        most_ns = door.room_ns()
        while self._blocked is None and not self.is_finished:
            if len(self.out) > OUTPUT_MAX:
                self.is_stalled = True
                break
            if self.work_ns > most_ns and self._ahead_size() > 0:
                self._wait_for_turn()
                break
            self.changes_before = door.yard.changes()
            if self._prepared_calls and self._run_prepared(now_ms):
                continue
            command = self._next(now_ms)
            if command is None:
                break
            if self.work_ns > 0 and self._is_long(command):
                self._kept = command
                self._wait_for_turn()
                break
            self._run(command, now_ms)
        door.spend(self.work_ns)

    def _next(self, now_ms: i64) -> Command | None:
        """Return the next command if it is complete."""
        command = self._kept
        if command is not None:
            self._kept = None
            return command
        try:
            command = self._reader.next()
        except BadResp as error:
            self.say_error(f"ERR Protocol error: {error}")
            self.is_finished = True
            return None
        if command is None and self._reader.unread_size() > 0:
            self._expect_more(now_ms + UNFINISHED_MS)
        return command

    def _is_long(self, command: Command) -> bool:
        """Return whether a command alone may take most of a turn."""
        if self.queued is not None and command.is_word(0, b"EXEC"):
            return self._queued_ns > LONG_NS
        return command.count() > ARGUMENTS_AT_ONCE

    def _wait_for_turn(self) -> None:
        """Continue in the next turn, so that other connections run in between."""
        self.block(TurnWait(self), NEVER_MS)

    def _ahead_size(self) -> i64:
        kept = self._kept
        return self._reader.unread_size() + (0 if kept is None else kept.weight())

    def _expect_more(self, until_ms: i64) -> None:
        """Set a timer that gives up on a command that stays incomplete."""
        if self._idle_timeout is None:
            self._idle_timeout = Timeout(self.look_at_input)
        if self._idle_timeout.pos < 0:
            self.door.yard.arm(self._idle_timeout, until_ms)

    def look_at_input(self, now_ms: i64) -> None:
        """Close the connection if its incomplete command has not grown for too long."""
        is_behind = self._blocked is not None or self.is_stalled
        if self._reader.unread_size() == 0 or is_behind or self.is_finished:
            return
        if now_ms < self.heard_ms + UNFINISHED_MS:
            self._expect_more(self.heard_ms + UNFINISHED_MS)
            return
        self.is_finished = True
        self.peer.wake()

    def resume(self, now_ms: i64) -> None:
        """Continue with the waiting command and with input that was sent ahead."""
        blocked = self._blocked
        if blocked is not None and self._try(blocked, now_ms):
            self._end_wait(blocked)
        if self._blocked is None:
            self.is_stalled = self.peer.unsent_size() > OUTPUT_MAX and self._ahead_size() > 0
            if not self.is_stalled:
                self._proceed(now_ms)
        if self._input_ended and not self.is_stalled and self._blocked is None:
            self.is_finished = True

    def half_close(self, now_ms: i64) -> None:
        """Answer a waiting command; later ones do not wait."""
        self._waits_no_more = True
        blocked = self._blocked
        if blocked is not None and blocked.may_give_up():
            self._give_up(blocked)
        self.resume(now_ms)

    def end_input(self, now_ms: i64) -> None:
        """Answer what is complete: no more input will come."""
        self._input_ended = True
        self.half_close(now_ms)

    def closed(self, now_ms: i64) -> None:
        """Stop waiting, and return jobs that were not sent to the client."""
        if self._blocked is not None:
            self._unblock()
        self.is_finished = True
        self.heard_ms = now_ms
        if self.handed and (len(self.out) > 0 or self.peer.unsent_size() > 0):
            untake(self.door.yard, self.handed, now_ms)
        self.handed = []
        if self._idle_timeout is not None:
            self.door.yard.disarm(self._idle_timeout)
            self._idle_timeout = None
        self._wait_timeout = None
        self._stop_auth_timeout()
        self.end_transaction()
        self._prepared_calls = []
        self._kept = None
        self._reader.forget()
        self.door.sessions.pop(self.id, None)
        self.forget_connection()

    def unread_size(self) -> i64:
        """Return how much input is ahead of what can run; an incomplete command does not count."""
        is_behind = self._blocked is not None or self.is_stalled
        return self._ahead_size() if is_behind else 0

    def held_size(self) -> i64:
        """Return the bytes of incomplete commands, of input sent ahead, and of the transaction."""
        return self._ahead_size() + self._queued_size

    def refuse_input(self, now_ms: i64) -> None:  # noqa: ARG002  the session's
        """Refuse an incomplete command and close: its rest would be read as other commands."""
        self.say_error(MEMORY_FULL_ERROR)
        self.is_finished = True
        self.end_transaction()
        self._kept = None
        self._reader.forget()

    def keeps_out(self) -> bool:
        """Return whether a waiting command will be answered later."""
        return self._blocked is not None

    def doing(self) -> str:
        """Return the command that runs, or ran last, without its arguments."""
        return "glide-mq " + self.last_command[:DOING_MAX].decode("utf-8", "replace")

    # -- prepared calls ------------------------------------------------------------------------

    def _run_prepared(self, now_ms: i64) -> bool:
        """Run the next request if it repeats an earlier one except for some arguments."""
        if self.queued is not None or self.replies != REPLIES_ON or not self.is_known:
            return False
        if self._kept is not None:
            return False
        prepared_call = self._fitting()
        if prepared_call is None:
            return False
        before: i64 = len(self.out)
        try:
            if not prepared_call.run(self, now_ms):
                return False
        except (Refused, StorageFull) as error:
            self.unwrite(before)
            self.say_error(self._words_of(error))
        self._reader.pass_over(prepared_call.template.end)
        self.work_ns += COMMAND_NS
        self.door.commands_count += 1
        self.last_command = prepared_call.command
        self._chances = CHANCES
        self._misses = 0
        self.narrow(before, self.journal.appended)
        return True

    def _fitting(self) -> PreparedCall | None:
        """Return the prepared call that fits the next request, if the request is complete."""
        reader = self._reader
        ahead = reader.ahead()
        if not ahead:
            return None
        place = reader.place()
        prepared_calls = self._prepared_calls
        if prepared_calls[0].template.fits(ahead, place):
            return prepared_calls[0]
        for at in range(1, len(prepared_calls)):
            prepared_call = prepared_calls[at]
            if prepared_call.template.fits(ahead, place):
                prepared_calls[at] = prepared_calls[0]
                prepared_calls[0] = prepared_call
                return prepared_call
        self._misses += 1
        if self._misses > MISSES_MAX:
            self._prepared_calls = []
        return None

    def _learn(self, call: Call) -> None:
        """Prepare a call from a request that was run, if it is likely to repeat."""
        if not may_recur(call.command):
            return
        self._chances -= 1
        prepared_call = prepare_call(call)
        if prepared_call is None:
            return
        others = [
            one for one in self._prepared_calls if not one.template.equals(prepared_call.template)
        ]
        self._prepared_calls = [prepared_call, *others[: PREPARED_CALLS_MAX - 1]]

    # -- commands ------------------------------------------------------------------------------

    def _run(self, command: Command, now_ms: i64) -> None:
        """Run a command, or queue it for its transaction; always answer it."""
        door = self.door
        door.commands_count += 1
        replies = self.replies
        before: i64 = len(self.out)
        tasks = door.yard.tasks
        units = tasks.units_done
        try:
            if self.queued is None and self.is_known and command.is_word(0, b"FCALL"):
                self._call_function(command, now_ms)
                self.narrow(before, self.journal.appended)
            else:
                self.narrow(before, self._dispatch(command, now_ms))
        except (Refused, StorageFull) as error:
            self.unwrite(before)
            if self.queued is not None and not isinstance(error, YardFull):
                self._is_spoiled = True
            if isinstance(error, Denied) and self._deny(error, now_ms):
                return
            self.say_error(self._words_of(error))
        answered: i64 = min(max(len(self.out) - before, 0), ANSWER_SIZE_MAX)
        self.work_ns += (tasks.units_done - units) * UNIT_NS + answered * ANSWER_NS
        if REPLIES_ON not in (replies, self.replies):
            self.unwrite(before)
            if self._blocked is not None:
                self._blocked.mute()
            if self.replies == REPLIES_SKIP:
                self.replies = REPLIES_ON

    def _dispatch(self, command: Command, now_ms: i64) -> i64:
        """Run a command; return the batch that its reply waits for."""
        name = command.word(0)
        spec = REDIS_COMMANDS.get(name)
        if spec is None:
            self._refuse_unknown(command, name)
            return 0
        if not self.is_known and not spec.is_open:
            raise Wrong(NO_AUTH)
        if not spec.takes(command.count()):
            self.is_finished = is_http(command)
            raise wrong_count(name.decode())
        self.last_command = name
        if self.queued is not None and name not in IMMEDIATE:
            self._queued_size += command.weight()
            self._queued_ns += spec.price_of(command.count())
            if self._queued_ns > QUEUED_NS_MAX or self._queued_size > QUEUED_SIZE_MAX:
                raise Wrong(LONG_TRANSACTION)
            self.queued.append(command)
            write_simple(self.out, b"QUEUED")
            return 0
        self.work_ns += spec.price_of(command.count())
        call = Call(self, command, now_ms, may_wait=not self._waits_no_more)
        spec.run(call)
        if self._chances > 0 and name == b"XREADGROUP":
            self._learn(call)
        if spec.is_still:
            return 0
        return self.journal.appended

    def _call_function(self, command: Command, now_ms: i64) -> None:
        """Run FCALL without the command table: busy clients send little else."""
        if command.count() < 3:
            raise wrong_count("fcall")
        self.last_command = b"FCALL"
        self.work_ns += COMMAND_NS + FUNCTION_ARGUMENT_NS * command.count()
        call = Call(self, command, now_ms, may_wait=not self._waits_no_more)
        function = find_function(command.arg(1))
        function.run(function.bind(call))
        if self._chances > 0:
            self._learn(call)

    def _refuse_unknown(self, command: Command, name: bytes) -> None:
        if name in (b"POST", b"HOST:") or is_http(command):
            # A browser that was tricked into sending an HTTP request here; ignore all it sends.
            self.is_finished = True
            return
        if not self.is_known:
            raise Wrong(NO_AUTH)
        arguments = [command.text(at) for at in range(1, min(command.count(), 20))]
        raise unknown_command(command.text(0), arguments)

    def execute(self, now_ms: i64) -> None:
        """Run the transaction in one turn and hence in one batch."""
        queued = self.queued
        assert queued is not None
        is_spoiled = self._is_spoiled
        self.work_ns += self._queued_ns
        self.end_transaction()
        if is_spoiled:
            raise Wrong(EXEC_ABORT)
        if self.journal.is_on:
            self.journal.make_room(room_of(self.door.yard, queued))
        start: i64 = len(self.out)
        write_array(self.out, len(queued))
        self.units_left = EXEC_UNITS
        try:
            for command in queued:
                self._execute(command, start, now_ms)
        finally:
            self.units_left = -1

    def _execute(self, command: Command, start: i64, now_ms: i64) -> None:
        spec = REDIS_COMMANDS[command.word(0)]
        before: i64 = len(self.out)
        try:
            spec.run(Call(self, command, now_ms, may_wait=False))
            if len(self.out) - start > EXEC_ANSWER_MAX:
                raise Wrong(f"ERR a transaction reply can have at most {EXEC_ANSWER_MAX} bytes")
        except (Refused, StorageFull) as error:
            self.unwrite(before)
            self.say_error(self._words_of(error))
        if len(self.out) == before:
            # CLIENT REPLY answers nothing, but each command needs a place in the reply.
            write_ok(self.out)

    def end_transaction(self) -> None:
        """Discard the transaction, if there is one."""
        self.queued = None
        self._queued_size = 0
        self._queued_ns = 0
        self._is_spoiled = False

    def expect_auth(self, now_ms: i64) -> None:
        """Set the deadline for authentication."""
        self._deadline = Timeout(self._auth_timed_out)
        self.door.yard.arm(self._deadline, now_ms + STRANGER_MS)

    def _auth_timed_out(self, now_ms: i64) -> None:
        """Close a connection that has not authenticated in time."""
        del now_ms
        self._deadline = None
        if not self.is_known:
            self.say_error(AUTH_TIMED_OUT)
            self.is_finished = True
            self.peer.wake()

    def _stop_auth_timeout(self) -> None:
        if self._deadline is not None:
            self.door.yard.disarm(self._deadline)
            self._deadline = None

    def _deny(self, error: Denied, now_ms: i64) -> bool:
        """Delay a refusal, longer after more failures; False for the first few."""
        wait_ms = self.door.shared_limits.attempts.fail(self.peer.host(), now_ms)
        if wait_ms == 0 or self._waits_no_more:
            return False
        self.block(HeldBack(self, str(error)), now_ms + wait_ms)
        return True

    def authenticate(self) -> None:
        """Accept a connection that gave the password."""
        self.is_known = True
        self._stop_auth_timeout()
        self._reader.limits = LIMITS

    def deauthenticate(self) -> None:
        """Require the password again, if there is one."""
        self.is_known = not self.door.password
        self._reader.limits = LIMITS if self.is_known else STRANGER_LIMITS

    # -- answers -------------------------------------------------------------------------------

    def say_error(self, text: str) -> None:
        """Answer with an error."""
        before: i64 = len(self.out)
        write_error(self.out, text)
        self.work_ns += COMMAND_NS
        self.door.errors_count += 1
        self.narrow(before, self.journal.appended)

    def _words_of(self, error: Exception) -> str:
        if isinstance(error, Wrong):
            return str(error)
        if isinstance(error, StorageFull) or (isinstance(error, YardFull) and not str(error)):
            return DISK_FULL_ERROR if self.door.yard.journal.is_full else OUT_OF_MEMORY_ERROR
        return f"ERR {error}"

    # -- waiting -------------------------------------------------------------------------------

    def is_blocked(self) -> bool:
        """Return whether a command of this connection waits."""
        return self._blocked is not None

    def is_at_work(self) -> bool:
        """Return whether a command of this connection waits only for its own long work."""
        return self._blocked is not None and not self._blocked.may_give_up()

    def block(self, blocked: Blocked, until_ms: i64) -> None:
        """Run nothing else until a waiting command is answered."""
        self._blocked = blocked
        if until_ms < NEVER_MS:
            if self._wait_timeout is None:
                self._wait_timeout = Timeout(self.waited_enough)
            self.door.yard.arm(self._wait_timeout, until_ms)

    def waited_enough(self, now_ms: i64) -> None:
        """Answer the waiting command: its timeout is over."""
        blocked = self._blocked
        if blocked is None:
            return
        if self._try(blocked, now_ms):
            self._end_wait(blocked)
        else:
            self._give_up(blocked)
        self.peer.wake()

    def stand_aside(self, queue_name: str, consumer: str) -> None:
        """Give no more jobs to a worker that signed off, if it waits here.

        Its read keeps waiting: if answered now, it would look for jobs elsewhere before it leaves.
        """
        if self._blocked is not None:
            self._blocked.stand_aside(queue_name, consumer)

    def take_back(self, queue_name: str, consumer: str, now_ms: i64) -> None:
        """Take back the jobs that a worker that signed off read last and never started."""
        unbegun: list[Lease] = []
        for lease in self.handed:
            is_its = lease.terms.label == consumer and lease.job.queue.name == queue_name
            if is_its and not lease.is_renewed:
                unbegun.append(lease)
        untake(self.door.yard, unbegun, now_ms)

    def _give_up(self, blocked: Blocked) -> None:
        before: i64 = len(self.out)
        blocked.give_up()
        self.narrow(before, self.journal.appended)
        self._unblock()

    def _try(self, blocked: Blocked, now_ms: i64) -> bool:
        before: i64 = len(self.out)
        try:
            is_done = blocked.try_again(now_ms)
        except (Refused, StorageFull) as error:
            self.unwrite(before)
            self.say_error(self._words_of(error))
            is_done = True
        if is_done:
            self.narrow(before, self.journal.appended)
        return is_done

    def _end_wait(self, blocked: Blocked) -> None:
        """Continue after a command that was answered, unless it waits for something else by now."""
        if self._blocked is blocked:
            self._unblock()
        else:
            blocked.leave()

    def _unblock(self) -> None:
        blocked = self._blocked
        assert blocked is not None
        self._blocked = None
        if self._wait_timeout is not None:
            self.door.yard.disarm(self._wait_timeout)
        blocked.leave()
