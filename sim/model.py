"""What a yard should answer, in plain dicts and sorted lists: no journal, no heaps.

The model runs every command after the yard did and checks the yard's own words against its own, one
answer at a time. It also writes down, job by job, what a restart may bring back: one entry for each
record the yard must have made, in their order. Times are the world's, which never jump.

Only what time alone brings about (`tick`) may happen in more than one order; there the model checks
that the yard's choice was a legal one and follows it.
"""

from bisect import insort
from collections.abc import Callable
from typing import Final

from sim import statistics
from sim import workload as kinds
from sim.state import (
    DEAD,
    DELAYED,
    FOREVER,
    LEASED,
    OVER,
    READY,
    Client,
    Entry,
    Memory,
    ModelJob,
    Tube,
    Violation,
)
from sim.workload import Command

_COUNTED: Final = {
    kinds.PUT_LINE: "put",
    kinds.TOO_BIG_LINE: "put",
    kinds.PEEK: "peek",
    kinds.PEEK_READY: "peek-ready",
    kinds.PEEK_DELAYED: "peek-delayed",
    kinds.PEEK_BURIED: "peek-buried",
    kinds.RESERVE: "reserve",
    kinds.RESERVE_WITH_TIMEOUT: "reserve-with-timeout",
    kinds.DELETE: "delete",
    kinds.RELEASE: "release",
    kinds.USE: "use",
    kinds.WATCH: "watch",
    kinds.IGNORE: "ignore",
    kinds.BURY: "bury",
    kinds.KICK: "kick",
    kinds.TOUCH: "touch",
    kinds.STATS: "stats",
    kinds.STATS_JOB: "stats-job",
    kinds.STATS_TUBE: "stats-tube",
    kinds.LIST_TUBES: "list-tubes",
    kinds.LIST_TUBE_USED: "list-tube-used",
    kinds.LIST_TUBES_WATCHED: "list-tubes-watched",
    kinds.PAUSE_TUBE: "pause-tube",
}


class Model:
    """All that a yard should remember."""

    def __init__(self, is_refusal_fair: Callable[[], bool]) -> None:
        self._is_refusal_fair = is_refusal_fair
        self.jobs: dict[int, ModelJob] = {}
        self.tubes: dict[str, Tube] = {}
        self.clients: list[Client] = []
        # Jobs with entries that a power cut might take back.
        self.recent: list[ModelJob] = []
        self.records_count = 0
        # The newest record that an answer may wait for, and the newest that was surely made.
        self.waited = 0
        self.certain = 0
        self.endings_count = 0
        self.may_skip_leases = False
        # Wall minus world time as the journal knows it.
        self.wall_offset = 0
        self.now = 0
        self.next_id = 1
        self._methods: list[Callable[[Client, Command], None]] = [
            *(self._put_line, self._put, self._reserve, self._reserve, self._reserve_job),
            *(self._delete, self._release, self._bury, self._kick, self._kick_job, self._touch),
            *(self._peek, self._peek_ready, self._peek_delayed, self._peek_buried),
            *(self._use, self._watch, self._ignore, self._stats, self._stats_job),
            *(self._stats_tube, self._list_tubes, self._list_tube_used, self._list_watched),
            *(self._pause_tube, self._quit, self._wrong, self._nothing),
        ]
        self.begin(0)

    def begin(self, now: int) -> None:
        """Forget all that belongs to one process, before jobs are brought back."""
        self.jobs = {}
        self.tubes = {}
        self.clients = []
        self.recent = []
        self.counts = dict.fromkeys(_COUNTED.values(), 0)
        self.started = now
        self.puts_count = self.timeouts_count = self.connections_total = self._leases_count = 0
        self._waits_count = 0

    # -- records -------------------------------------------------------------------------------

    def _record(self, job: ModelJob, state: int, *, waited: bool = True) -> None:
        self.records_count += 1
        memory = Memory(job, state, set())
        if state == DELAYED:
            memory.walls.add(job.due + self.wall_offset)
        job.history.append(Entry(self.records_count, [memory]))
        self.recent.append(job)
        self.certain = self.records_count
        if waited:
            self.waited = job.waited = self.records_count

    def _record_gone(self, job: ModelJob) -> None:
        self.records_count += 1
        job.history.append(Entry(self.records_count, None))
        self.recent.append(job)
        self.waited = self.certain = self.records_count

    def _record_lease(self, job: ModelJob) -> None:
        """Note a hand-over, whose record a full disk may go without."""
        before = job.history[-1].memories if self.may_skip_leases else None
        certain = self.certain
        self._record(job, READY, waited=False)
        if before is not None:
            self.certain = certain
            memories = job.history[-1].memories
            assert memories is not None
            memories += before

    def note_wall(self, offset: int) -> None:
        """Note that the journal dates records by another wall clock from now on."""
        self.wall_offset = offset
        for job in self.jobs.values():
            job.created_walls.add(job.created + offset)
            for memory in job.history[-1].memories or ():
                if memory.state == DELAYED:
                    memory.walls.add(job.due + offset)

    def settle(self, number: int) -> None:
        """Note that records up to `number` are on disk for good: no restart goes back behind."""
        recent: list[ModelJob] = []
        for job in self.recent:
            history = job.history
            while len(history) > 1 and history[1].last <= number:
                history.pop(0)
            if len(history) > 1 or history[0].last > number:
                recent.append(job)
        self.recent = recent

    # -- where jobs stand ----------------------------------------------------------------------

    def open_tube(self, name: str) -> Tube:
        """Return a tube, making it if need be."""
        tube = self.tubes.get(name)
        if tube is None:
            tube = self.tubes[name] = Tube(name)
        return tube

    def enter(self, job: ModelJob, state: int) -> None:
        """Stand a job where its state says."""
        job.state = state
        tube = job.tube
        if state == READY:
            insort(tube.ready, (job.rank, job.id))
        elif state == DELAYED:
            insort(tube.delayed, (job.due, job.id))
        elif state == DEAD:
            tube.buried.append(job.id)
        else:
            tube.leased_count += 1

    def _leave(self, job: ModelJob) -> None:
        tube = job.tube
        if job.state == READY:
            tube.ready.remove((job.rank, job.id))
        elif job.state == DELAYED:
            tube.delayed.remove((job.due, job.id))
        elif job.state == DEAD:
            tube.buried.remove(job.id)
        else:
            tube.leased_count -= 1
            assert job.holder is not None
            del job.holder.held[job.id]
            job.holder = None

    def _drop_if_idle(self, tube: Tube) -> None:
        if tube.users_count or tube.watchers_count or tube.jobs_count() or tube.name == "default":
            return
        del self.tubes[tube.name]

    def _take(self, job: ModelJob, client: Client) -> None:
        self._leave(job)
        job.reserves += 1
        self._leases_count += 1
        job.lease = self._leases_count
        job.deadline = self.now + job.ttr_ms
        job.holder = client
        client.held[job.id] = job
        self.enter(job, LEASED)
        self._record_lease(job)

    def _best(self, tubes: list[Tube]) -> ModelJob | None:
        least = min(
            (tube.ready[0] for tube in tubes if tube.ready and tube.pause_until <= self.now),
            default=None,
        )
        return None if least is None else self.jobs[least[1]]

    def _say_job(self, client: Client, word: bytes, job: ModelJob) -> None:
        answer = b"%s %d %d\r\n%s\r\n" % (word, job.id, len(job.body), job.body)
        client.say(answer, job.waited, job.id)

    def _stop_waiting(self, client: Client) -> None:
        client.is_waiting = False
        for tube in client.watched:
            tube.waiters.remove(client)

    def _offer(self, tube: Tube) -> None:
        while tube.waiters and tube.ready and tube.pause_until <= self.now:
            client = tube.waiters[0]
            job = self.jobs[tube.ready[0][1]]
            self._stop_waiting(client)
            self._take(job, client)
            self._say_job(client, b"RESERVED", job)

    # -- connections ---------------------------------------------------------------------------

    def connect(self, number: int) -> Client:
        """Open a connection."""
        client = Client(number, self.open_tube("default"))
        self.clients.append(client)
        self.connections_total += 1
        return client

    def run(self, client: Client) -> None:
        """Run what has arrived until the client has to wait."""
        commands = client.commands
        while commands and not client.is_waiting and not client.is_finished:
            command = commands.pop(0)
            word = _COUNTED.get(command.kind)
            if word is not None:
                self.counts[word] += 1
            self._methods[command.kind](client, command)
        if client.is_ended:
            client.is_finished = True

    def end_input(self, client: Client) -> None:
        """Run what has arrived; nobody can wait any longer."""
        client.is_ended = True
        if client.is_waiting:
            self._stop_waiting(client)
            client.say(b"TIMED_OUT\r\n", self.waited)
        self.run(client)

    def closed(self, client: Client) -> None:
        """Give back what a connection held."""
        self.clients.remove(client)
        if client.is_waiting:
            self._stop_waiting(client)
        for job in sorted(client.held.values(), key=lambda job: (job.deadline, job.lease)):
            self._end(job, READY, waited=False)
            self._offer(job.tube)
        client.used.users_count -= 1
        self._drop_if_idle(client.used)
        for tube in client.watched:
            tube.watchers_count -= 1
            self._drop_if_idle(tube)

    # -- commands ------------------------------------------------------------------------------

    def _put_line(self, client: Client, _: Command) -> None:
        client.is_producer = True

    def _put(self, client: Client, command: Command) -> None:
        if client.observed.startswith(b"OUT_OF_MEMORY\r\n"):
            if not self._is_refusal_fair():
                raise Violation("full disk", "a put was refused although there is room")
            client.say(b"OUT_OF_MEMORY\r\n", self.waited)
            return
        tube = client.used
        job = ModelJob(self.next_id, tube, command, self.now)
        job.created_walls.add(self.now + self.wall_offset)
        self.next_id += 1
        self.jobs[job.id] = job
        self.puts_count += 1
        tube.total_count += 1
        state = DELAYED if job.delay_ms else READY
        self.enter(job, state)
        self._record(job, state)
        awaited = self.waited
        self._offer(tube)
        client.say(b"INSERTED %d\r\n" % job.id, awaited, job.id)

    def _reserve(self, client: Client, command: Command) -> None:
        client.is_worker = True
        job = self._best(client.watched)
        if job is not None:
            self._take(job, client)
            self._say_job(client, b"RESERVED", job)
            return
        is_endless = command.kind == kinds.RESERVE
        until = FOREVER if is_endless else self.now + command.a * 1000
        soon = client.soonest() - 1000
        if soon <= self.now:
            client.say(b"DEADLINE_SOON\r\n", self.waited)
        elif until <= self.now or client.is_ended:
            client.say(b"TIMED_OUT\r\n", self.waited)
        else:
            client.is_waiting = True
            client.until = until
            client.soon = soon
            self._waits_count += 1
            client.arrival = self._waits_count
            for tube in client.watched:
                tube.waiters.append(client)

    def _reserve_job(self, client: Client, command: Command) -> None:
        client.is_worker = True
        job = self.jobs.get(command.a)
        if job is None or job.state == LEASED:
            client.say(b"NOT_FOUND\r\n", self.waited)
            return
        self._take(job, client)
        self._say_job(client, b"RESERVED", job)

    def _delete(self, client: Client, command: Command) -> None:
        job = self.jobs.get(command.a)
        if job is None or (job.state == LEASED and job.holder is not client):
            client.say(b"NOT_FOUND\r\n", self.waited)
            return
        self._leave(job)
        del self.jobs[job.id]
        self._record_gone(job)
        job.tube.deleted_count += 1
        self._drop_if_idle(job.tube)
        client.say(b"DELETED\r\n", self.waited)

    def _end(self, job: ModelJob, state: int, *, waited: bool = True) -> None:
        self._leave(job)
        self.enter(job, state)
        self._record(job, state, waited=waited)

    def _release(self, client: Client, command: Command) -> None:
        job = client.held.get(command.a)
        if job is None:
            client.say(b"NOT_FOUND\r\n", self.waited)
            return
        self._leave(job)
        job.releases += 1
        job.rank = command.b
        job.delay_ms = command.c * 1000
        job.due = self.now + job.delay_ms
        state = DELAYED if job.delay_ms else READY
        self.enter(job, state)
        self._record(job, state)
        awaited = self.waited
        self._offer(job.tube)
        client.say(b"RELEASED\r\n", awaited)

    def _bury(self, client: Client, command: Command) -> None:
        job = client.held.get(command.a)
        if job is None:
            client.say(b"NOT_FOUND\r\n", self.waited)
            return
        job.buries += 1
        job.rank = command.b
        self.endings_count += 1
        job.ending = self.endings_count
        self._end(job, DEAD)
        client.say(b"BURIED\r\n", self.waited)

    def _wake(self, job: ModelJob) -> None:
        self._leave(job)
        job.kicks += 1
        job.due = self.now
        self.enter(job, READY)
        self._record(job, READY)

    def _kick(self, client: Client, command: Command) -> None:
        tube = client.used
        if tube.buried:
            numbers = tube.buried[: command.a]
        else:
            numbers = [number for _, number in tube.delayed[: command.a]]
        for number in numbers:
            self._wake(self.jobs[number])
        awaited = self.waited
        self._offer(tube)
        client.say(b"KICKED %d\r\n" % len(numbers), awaited)

    def _kick_job(self, client: Client, command: Command) -> None:
        job = self.jobs.get(command.a)
        if job is None or job.state not in (DEAD, DELAYED):
            client.say(b"NOT_FOUND\r\n", self.waited)
            return
        self._wake(job)
        awaited = self.waited
        self._offer(job.tube)
        client.say(b"KICKED\r\n", awaited)

    def _touch(self, client: Client, command: Command) -> None:
        job = client.held.get(command.a)
        if job is None:
            client.say(b"NOT_FOUND\r\n", self.waited)
            return
        job.deadline = self.now + job.ttr_ms
        client.say(b"TOUCHED\r\n", self.waited)

    def _found(self, client: Client, number: int) -> None:
        job = self.jobs.get(number)
        if job is None:
            client.say(b"NOT_FOUND\r\n", self.waited)
        else:
            self._say_job(client, b"FOUND", job)

    def _peek(self, client: Client, command: Command) -> None:
        self._found(client, command.a)

    def _peek_ready(self, client: Client, _: Command) -> None:
        ready = client.used.ready
        self._found(client, ready[0][1] if ready else 0)

    def _peek_delayed(self, client: Client, _: Command) -> None:
        delayed = client.used.delayed
        self._found(client, delayed[0][1] if delayed else 0)

    def _peek_buried(self, client: Client, _: Command) -> None:
        buried = client.used.buried
        self._found(client, buried[0] if buried else 0)

    def _use(self, client: Client, command: Command) -> None:
        tube = self.open_tube(command.text)
        tube.users_count += 1
        client.used.users_count -= 1
        self._drop_if_idle(client.used)
        client.used = tube
        client.say(b"USING " + tube.name.encode() + b"\r\n", self.waited)

    def _watch(self, client: Client, command: Command) -> None:
        tube = self.open_tube(command.text)
        if tube not in client.watched:
            client.watched.append(tube)
            tube.watchers_count += 1
        client.say(b"WATCHING %d\r\n" % len(client.watched), self.waited)

    def _ignore(self, client: Client, command: Command) -> None:
        tube = self.tubes.get(command.text)
        if tube is not None and tube in client.watched:
            if len(client.watched) == 1:
                client.say(b"NOT_IGNORED\r\n", self.waited)
                return
            last = client.watched.pop()
            if last is not tube:
                client.watched[client.watched.index(tube)] = last
            tube.watchers_count -= 1
            self._drop_if_idle(tube)
        client.say(b"WATCHING %d\r\n" % len(client.watched), self.waited)

    def _pause_tube(self, client: Client, command: Command) -> None:
        tube = self.tubes.get(command.text)
        if tube is None:
            client.say(b"NOT_FOUND\r\n", self.waited)
            return
        tube.pause_ms = command.a * 1000
        tube.pause_until = self.now + tube.pause_ms
        tube.pauses_count += 1
        self._offer(tube)
        client.say(b"PAUSED\r\n", self.waited)

    def _quit(self, client: Client, _: Command) -> None:
        client.is_finished = True

    def _wrong(self, client: Client, command: Command) -> None:
        client.say(command.body, self.waited)

    def _nothing(self, client: Client, command: Command) -> None:
        """See the line of a put too big: nothing is answered before the last byte is here."""

    # -- listings ------------------------------------------------------------------------------

    def _say_list(self, client: Client, names: list[str]) -> None:
        text = "---\n" + "".join(f"- {name}\n" for name in names)
        answer = b"OK %d\r\n%s\r\n" % (len(text), text.encode())
        client.say(answer, self.certain)

    def _list_tubes(self, client: Client, _: Command) -> None:
        self._say_list(client, list(self.tubes))

    def _list_watched(self, client: Client, _: Command) -> None:
        self._say_list(client, [tube.name for tube in client.watched])

    def _list_tube_used(self, client: Client, _: Command) -> None:
        client.say(b"USING " + client.used.name.encode() + b"\r\n", self.waited)

    def _stats(self, client: Client, _: Command) -> None:
        client.say_facts(statistics.of_server(self), self.certain)

    def _stats_job(self, client: Client, command: Command) -> None:
        job = self.jobs.get(command.a)
        if job is None:
            client.say(b"NOT_FOUND\r\n", self.waited)
        else:
            client.say_facts(statistics.of_job(job, self.now), self.certain)

    def _stats_tube(self, client: Client, command: Command) -> None:
        tube = self.tubes.get(command.text)
        if tube is None:
            client.say(b"NOT_FOUND\r\n", self.waited)
        else:
            client.say_facts(statistics.of_tube(tube, self.now), self.certain)

    # -- time ----------------------------------------------------------------------------------

    def tick(self) -> None:
        """Let everything happen that is due, and check who was given what."""
        before = self.records_count
        expired = self._expire()
        waiting = [client for client in self.clients if client.is_waiting]
        waiting.sort(key=lambda client: client.arrival)
        for client in waiting:
            if client.observed.startswith(b"RESERVED "):
                self._check_given(client, expired)
            elif client.soon <= self.now:
                self._stop_waiting(client)
                client.say(b"DEADLINE_SOON\r\n", self.waited)
            elif client.until <= self.now:
                self._stop_waiting(client)
                client.say(b"TIMED_OUT\r\n", self.waited)
        for client in waiting:
            if client.is_waiting and self._best(client.watched) is not None:
                story = f"client {client.number} waits although a job is ready"
                raise Violation("waiters", story)
        if self.records_count > before:
            self._blur(before)

    def _blur(self, before: int) -> None:
        """Note that the order of the records after `before` is not known."""
        for job in self.recent:
            for entry in job.history:
                if entry.last > before:
                    entry.first = before + 1
                    entry.last = self.records_count

    def _expire(self) -> set[int]:
        """End delays, pauses and leases; return the jobs whose lease ended."""
        for tube in self.tubes.values():
            if tube.pause_ms and tube.pause_until <= self.now:
                tube.pause_ms = 0
            while tube.delayed and tube.delayed[0][0] <= self.now:
                job = self.jobs[tube.delayed[0][1]]
                for memory in job.history[-1].memories or ():
                    memory.walls.add(OVER)
                self._leave(job)
                self.enter(job, READY)
        expired: set[int] = set()
        for client in self.clients:
            for job in [job for job in client.held.values() if job.deadline <= self.now]:
                expired.add(job.id)
                job.timeouts += 1
                self.timeouts_count += 1
                job.due = self.now
                self._end(job, READY, waited=False)
        return expired

    def _check_given(self, client: Client, expired: set[int]) -> None:
        number = int(client.observed.split(b" ", 2)[1])
        job = self.jobs.get(number)
        if job is None or job.state != READY:
            raise Violation("lease", f"job {number} was given to client {client.number}")
        tube = job.tube
        if tube not in client.watched or tube.pause_until > self.now:
            raise Violation("order", f"job {number} left tube {tube.name}, which is closed to it")
        for other in tube.waiters[: tube.waiters.index(client)]:
            if not other.observed and other.until > self.now and other.soon > self.now:
                raise Violation("waiters", f"client {other.number} came before {client.number}")
        least = tube.ready[0]
        if least < (job.rank, job.id) and least[1] not in expired and number not in expired:
            raise Violation("order", f"job {number} was given before job {least[1]}")
        self._stop_waiting(client)
        self._take(job, client)
        self._say_job(client, b"RESERVED", job)
