"""One glide-mq connection: cuts commands, runs them in order, writes answers.

A command that waits (`Blocked`) holds up those behind it. What a command wrote before it was
refused is taken back, so that a refusal is all that is answered.
"""

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from jobyard.engine.jobs.finish import untake
from jobyard.errors import Refused, StorageFull, YardFull
from jobyard.model.limits import NEVER_MS
from jobyard.protocols.glidemq.call import (
    COMMAND_NS,
    FUNCTION_ARGUMENT_NS,
    REPLIES_ON,
    REPLIES_SKIP,
    Blocked,
    Call,
    is_http,
)
from jobyard.protocols.glidemq.command_table import COMMANDS, IMMEDIATE
from jobyard.protocols.glidemq.door import GlidemqDoor
from jobyard.protocols.glidemq.errors import (
    AUTH_TIMED_OUT,
    DISK_FULL,
    EXEC_ABORT,
    LONG_TRANSACTION,
    MEMORY_FULL,
    NO_AUTH,
    OUT_OF_MEMORY,
    Denied,
    Wrong,
    unknown_command,
    wrong_count,
)
from jobyard.protocols.glidemq.functions import fcall
from jobyard.protocols.glidemq.keyspace.finder import room_of
from jobyard.protocols.glidemq.prepared import Routine, may_recur, routine_of
from jobyard.protocols.glidemq.waits import HeldBack, TurnWait
from jobyard.protocols.login_attempts import STRANGER_MS
from jobyard.protocols.session import DOING_MAX, OUTPUT_MAX, Peer, Session
from jobyard.protocols.timeout import Timeout
from jobyard.wire.resp.read import LIMITS, STRANGER_LIMITS, BadResp, Command, RespReader
from jobyard.wire.resp.write import write_array, write_error, write_ok, write_simple

if TYPE_CHECKING:
    from jobyard.model.queue import Lease

# What the commands of a transaction may take together by their prices, and their bytes: it is run
# in one piece, which keeps all other connections waiting. What its commands may look at, in units
# of tasks, and answer together.
QUEUED_NS_MAX: Final = 8_000_000
QUEUED_SIZE_MAX: Final = 64 << 20
EXEC_UNITS: Final = 5000
EXEC_ANSWER_MAX: Final = 16 << 20
# Beside its price, what a command takes for each unit of work in tasks, and each byte it answers;
# more bytes than that are long values, which take no time.
UNIT_NS: Final = 1000
ANSWER_NS: Final = 4
ANSWER_SIZE_MAX: Final = 16 << 10
# A command of more arguments, or a transaction that takes so long, begins a turn of its own.
FEW_ARGUMENTS: Final = 512
LONG_NS: Final = 500_000
# How long a command may stay incomplete without another byte of it.
IDLE_MS: Final = 60_000

# Routines of a connection: what a producer, or a worker, says again and again.
ROUTINES_MAX: Final = 4
# How many routines may be made in a row before one is of use, and how often all may be tried in
# vain: who never says the same twice has none.
CHANCES: Final = 8
MISSES_MAX: Final = 64


@final
class GlidemqSession(Session):
    """Commands of one connection."""

    def __init__(self, door: GlidemqDoor, peer: Peer) -> None:
        super().__init__(peer, door.yard.journal)
        self.door = door
        self.is_known: bool = not door.password
        self._reader = RespReader(LIMITS if self.is_known else STRANGER_LIMITS)
        self.proto: i64 = 2
        door.sessions_total += 1
        self.id: i64 = door.sessions_total
        door.sessions[self.id] = self
        self.name: bytes = b""
        self.library: bytes = b""
        self.library_version: bytes = b""
        self.began_ms: i64 = -1
        self.heard_ms: i64 = 0
        self.last_command: bytes = b"NULL"
        self.replies: i64 = REPLIES_ON
        # The commands of a transaction; None outside of one.
        self.queued: list[Command] | None = None
        self._queued_size: i64 = 0
        self._queued_ns: i64 = 0
        self._is_spoiled: bool = False
        # What the transaction that runs may still look at; -1 outside of one.
        self.units_left: i64 = -1
        # What commands took since they were last let run, by their prices, in nanoseconds or so.
        self.work_ns: i64 = 0
        # A command that was read and is to begin with the next turn.
        self._kept: Command | None = None
        # Timers are made when they are first needed.
        self._idleness: Timeout | None = None
        self._blocked: Blocked | None = None
        self._patience: Timeout | None = None
        # What this connection says over and over; the last first.
        self._routines: list[Routine] = []
        self._chances: i64 = CHANCES
        self._misses: i64 = 0
        self._waits_no_more: bool = False
        self._input_ended: bool = False
        # The end of the time to authenticate.
        self._deadline: Timeout | None = None
        # Jobs that were taken since bytes came last; who took them may not have been told yet.
        self.handed: list[Lease] = []

    # -- the session ---------------------------------------------------------------------------

    def receive(self, data: bytes, now_ms: i64) -> None:
        """Run every complete command; keep what is not complete, or must wait."""
        if self.began_ms < 0:
            self.began_ms = now_ms
        self.heard_ms = now_ms
        self.door.read_bytes += len(data)
        if self.handed:
            self.handed = []
        self._reader.feed(data)
        self._go_on(now_ms)
        is_ahead = not self.is_known and self._reader.unread_size() > STRANGER_LIMITS.whole
        if is_ahead and not self.is_at_work():
            # One whose refusal is held back has nothing to send ahead.
            self.is_finished = True

    def _go_on(self, now_ms: i64) -> None:
        """Run commands until none is whole, one waits, or they took enough of this turn."""
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
            if self._routines and self._run_routine(now_ms):
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
        """Return the next command if all of it is here."""
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
            self._expect_more(now_ms + IDLE_MS)
        return command

    def _is_long(self, command: Command) -> bool:
        """Tell whether a command may take most of a turn by itself."""
        if self.queued is not None and command.is_word(0, b"EXEC"):
            return self._queued_ns > LONG_NS
        return command.count() > FEW_ARGUMENTS

    def _wait_for_turn(self) -> None:
        """Go on in the next turn, so that other connections come in between."""
        self.block(TurnWait(self), NEVER_MS)

    def _ahead_size(self) -> i64:
        kept = self._kept
        return self._reader.unread_size() + (0 if kept is None else kept.weight())

    def _expect_more(self, until_ms: i64) -> None:
        """See that a command of which no more comes is given up."""
        if self._idleness is None:
            self._idleness = Timeout(self.look_at_input)
        if self._idleness.pos < 0:
            self.door.yard.arm(self._idleness, until_ms)

    def look_at_input(self, now_ms: i64) -> None:
        """Give up on a command that has not grown for too long."""
        is_behind = self._blocked is not None or self.is_stalled
        if self._reader.unread_size() == 0 or is_behind or self.is_finished:
            return
        if now_ms < self.heard_ms + IDLE_MS:
            self._expect_more(self.heard_ms + IDLE_MS)
            return
        self.is_finished = True
        self.peer.stirred()

    def resume(self, now_ms: i64) -> None:
        """Go on with what waits, and with what was sent ahead."""
        blocked = self._blocked
        if blocked is not None and self._try(blocked, now_ms):
            self._end_wait(blocked)
        if self._blocked is None:
            self.is_stalled = self.peer.unsent_size() > OUTPUT_MAX and self._ahead_size() > 0
            if not self.is_stalled:
                self._go_on(now_ms)
        if self._input_ended and not self.is_stalled and self._blocked is None:
            self.is_finished = True

    def half_close(self, now_ms: i64) -> None:
        """Answer a command that waits; later ones do not."""
        self._waits_no_more = True
        blocked = self._blocked
        if blocked is not None and blocked.may_give_up():
            self._give_up(blocked)
        self.resume(now_ms)

    def end_input(self, now_ms: i64) -> None:
        """Answer what is complete; then there is no more to come."""
        self._input_ended = True
        self.half_close(now_ms)

    def closed(self, now_ms: i64) -> None:
        """Wait nowhere any more, and give back jobs of which nobody was told."""
        if self._blocked is not None:
            self._unblock()
        self.is_finished = True
        self.heard_ms = now_ms
        if self.handed and (len(self.out) > 0 or self.peer.unsent_size() > 0):
            untake(self.door.yard, self.handed, now_ms)
        self.handed = []
        if self._idleness is not None:
            self.door.yard.disarm(self._idleness)
            self._idleness = None
        self._patience = None
        self._stop_doubting()
        self.end_transaction()
        self._routines = []
        self._kept = None
        self._reader.forget()
        self.door.sessions.pop(self.id, None)
        self.let_go()

    def unread_size(self) -> i64:
        """Return how much was sent ahead of what can run; an incomplete command is not ahead."""
        is_behind = self._blocked is not None or self.is_stalled
        return self._ahead_size() if is_behind else 0

    def held_size(self) -> i64:
        """Return how much came of a command, was sent ahead, or waits in a transaction."""
        return self._ahead_size() + self._queued_size

    def refuse_input(self, now_ms: i64) -> None:  # noqa: ARG002  the session's
        """Refuse a command that is not all here, and close: its rest would be taken for others."""
        self.say_error(MEMORY_FULL)
        self.is_finished = True
        self.end_transaction()
        self._kept = None
        self._reader.forget()

    def keeps_out(self) -> bool:
        """Tell whether a command that waits will be answered later."""
        return self._blocked is not None

    def doing(self) -> str:
        """Return the command that runs, or ran last, without its arguments."""
        return "glide-mq " + self.last_command[:DOING_MAX].decode("utf-8", "replace")

    # -- routines ------------------------------------------------------------------------------

    def _run_routine(self, now_ms: i64) -> bool:
        """Run the next request if it is one that came before, but for some arguments."""
        if self.queued is not None or self.replies != REPLIES_ON or not self.is_known:
            return False
        if self._kept is not None:
            return False
        routine = self._fitting()
        if routine is None:
            return False
        before: i64 = len(self.out)
        try:
            if not routine.run(self, now_ms):
                return False
        except (Refused, StorageFull) as error:
            self.unwrite(before)
            self.say_error(self._words_of(error))
        self._reader.pass_over(routine.mould.end)
        self.work_ns += COMMAND_NS
        self.door.commands_count += 1
        self.last_command = routine.command
        self._chances = CHANCES
        self._misses = 0
        self.narrow(before, self.journal.appended)
        return True

    def _fitting(self) -> Routine | None:
        """Return the routine that the next request is, if all of it is here."""
        reader = self._reader
        ahead = reader.ahead()
        if not ahead:
            return None
        place = reader.place()
        routines = self._routines
        if routines[0].mould.fits(ahead, place):
            return routines[0]
        for at in range(1, len(routines)):
            routine = routines[at]
            if routine.mould.fits(ahead, place):
                routines[at] = routines[0]
                routines[0] = routine
                return routine
        self._misses += 1
        if self._misses > MISSES_MAX:
            self._routines = []
        return None

    def _learn(self, call: Call) -> None:
        """Make a routine of a request that was run, if more like it may come."""
        if not may_recur(call.command):
            return
        self._chances -= 1
        routine = routine_of(call)
        if routine is None:
            return
        others = [one for one in self._routines if not one.mould.equals(routine.mould)]
        self._routines = [routine, *others[: ROUTINES_MAX - 1]]

    # -- commands ------------------------------------------------------------------------------

    def _run(self, command: Command, now_ms: i64) -> None:
        """Run a command, or keep it for its transaction; answer it in any case."""
        door = self.door
        door.commands_count += 1
        replies = self.replies
        before: i64 = len(self.out)
        tasks = door.yard.tasks
        units = tasks.units_done
        try:
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
        """Run a command; return the batch that its answer waits for."""
        if self.queued is None and self.is_known and command.is_word(0, b"FCALL"):
            self._call_function(command, now_ms)
            return self.journal.appended
        name = command.word(0)
        spec = COMMANDS.get(name)
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
        """Run what nearly every command of a busy client is, without a look at the table."""
        if command.count() < 3:
            raise wrong_count("fcall")
        self.last_command = b"FCALL"
        self.work_ns += COMMAND_NS + FUNCTION_ARGUMENT_NS * command.count()
        call = Call(self, command, now_ms, may_wait=not self._waits_no_more)
        fcall.fcall(call)
        if self._chances > 0:
            self._learn(call)

    def _refuse_unknown(self, command: Command, name: bytes) -> None:
        if name in (b"POST", b"HOST:") or is_http(command):
            # A browser that was made to send an HTTP request here; nothing it sends counts.
            self.is_finished = True
            return
        if not self.is_known:
            raise Wrong(NO_AUTH)
        arguments = [command.text(at) for at in range(1, min(command.count(), 20))]
        raise unknown_command(command.text(0), arguments)

    def execute(self, now_ms: i64) -> None:
        """Run what the transaction holds, in one turn and hence in one batch."""
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
        spec = COMMANDS[command.word(0)]
        before: i64 = len(self.out)
        try:
            spec.run(Call(self, command, now_ms, may_wait=False))
            if len(self.out) - start > EXEC_ANSWER_MAX:
                raise Wrong(f"ERR a transaction is answered with at most {EXEC_ANSWER_MAX} bytes")
        except (Refused, StorageFull) as error:
            self.unwrite(before)
            self.say_error(self._words_of(error))
        if len(self.out) == before:
            # CLIENT REPLY says nothing, but each has its place in the answer.
            write_ok(self.out)

    def end_transaction(self) -> None:
        """Forget the transaction, if there is one."""
        self.queued = None
        self._queued_size = 0
        self._queued_ns = 0
        self._is_spoiled = False

    def expect_auth(self, now_ms: i64) -> None:
        """Give a connection so much time to say the password, and no more."""
        self._deadline = Timeout(self._auth_timed_out)
        self.door.yard.arm(self._deadline, now_ms + STRANGER_MS)

    def _auth_timed_out(self, now_ms: i64) -> None:
        """Give up on one who has not said the password."""
        del now_ms
        self._deadline = None
        if not self.is_known:
            self.say_error(AUTH_TIMED_OUT)
            self.is_finished = True
            self.peer.stirred()

    def _stop_doubting(self) -> None:
        if self._deadline is not None:
            self.door.yard.disarm(self._deadline)
            self._deadline = None

    def _deny(self, error: Denied, now_ms: i64) -> bool:
        """Hold a refusal back, the longer the more were wrong before; False for the first ones."""
        wait_ms = self.door.guard.attempts.fail(self.peer.host(), now_ms)
        if wait_ms == 0 or self._waits_no_more:
            return False
        self.block(HeldBack(self, str(error)), now_ms + wait_ms)
        return True

    def believe(self) -> None:
        """Let a connection ask for anything: it has said the password."""
        self.is_known = True
        self._stop_doubting()
        self._reader.limits = LIMITS

    def doubt(self) -> None:
        """Ask a connection for the password again, if there is one."""
        self.is_known = not self.door.password
        self._reader.limits = LIMITS if self.is_known else STRANGER_LIMITS

    # -- answers -------------------------------------------------------------------------------

    def say_error(self, text: str) -> None:
        """Answer that a command cannot be run."""
        before: i64 = len(self.out)
        write_error(self.out, text)
        self.work_ns += COMMAND_NS
        self.door.errors_count += 1
        self.narrow(before, self.journal.appended)

    def _words_of(self, error: Exception) -> str:
        if isinstance(error, Wrong):
            return str(error)
        if isinstance(error, StorageFull) or (isinstance(error, YardFull) and not str(error)):
            return DISK_FULL if self.door.yard.journal.is_full else OUT_OF_MEMORY
        return f"ERR {error}"

    # -- waiting -------------------------------------------------------------------------------

    def is_blocked(self) -> bool:
        """Tell whether a command of this connection waits."""
        return self._blocked is not None

    def is_at_work(self) -> bool:
        """Tell whether a command of this connection waits for nothing but its own long work."""
        return self._blocked is not None and not self._blocked.may_give_up()

    def block(self, blocked: Blocked, until_ms: i64) -> None:
        """Run nothing else until a command that waits is answered."""
        self._blocked = blocked
        if until_ms < NEVER_MS:
            if self._patience is None:
                self._patience = Timeout(self.waited_enough)
            self.door.yard.arm(self._patience, until_ms)

    def waited_enough(self, now_ms: i64) -> None:
        """Answer the command that waits: its time is over."""
        blocked = self._blocked
        if blocked is None:
            return
        if self._try(blocked, now_ms):
            self._end_wait(blocked)
        else:
            self._give_up(blocked)
        self.peer.stirred()

    def stand_aside(self, queue_name: str, consumer: str) -> None:
        """Give nothing more to a worker that signed off, if it waits here.

        Its reading waits on: answered now, it would look for jobs elsewhere before it goes.
        """
        if self._blocked is not None:
            self._blocked.stand_aside(queue_name, consumer)

    def take_back(self, queue_name: str, consumer: str, now_ms: i64) -> None:
        """Take back what a worker that signed off read last and never began."""
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
        """Go on behind a command that was answered, unless it waits for something else by now."""
        if self._blocked is blocked:
            self._unblock()
        else:
            blocked.leave()

    def _unblock(self) -> None:
        blocked = self._blocked
        assert blocked is not None
        self._blocked = None
        if self._patience is not None:
            self.door.yard.disarm(self._patience)
        blocked.leave()
