"""The expected answers of a yard, in plain dicts and sorted lists: no journal, no heaps.

The model runs every command after the yard did and compares the yard's answers with its own, one
answer at a time. It also records, job by job, what a restart may bring back: one entry for each
record the yard must have made, in order. Times are world times, which never jump.

Only the effects of time alone (`tick`) may happen in more than one order; there the model checks
that the yard's choice was legal and follows it.
"""

from bisect import insort
from collections.abc import Callable

from sim import workload as kinds
from sim.beanstalk import statistics
from sim.beanstalk.memory import DEAD, DELAYED, LEASED, READY, Records
from sim.state import FOREVER, Client, ModelJob, Tube, Violation
from sim.workload import COUNTED, Command


class Model:
    """The whole state that a yard should have."""

    def __init__(self, is_refusal_fair: Callable[[], bool], reach: Callable[[str], None]) -> None:
        self._is_refusal_fair = is_refusal_fair
        self._reach = reach
        self.jobs: dict[int, ModelJob] = {}
        self.tubes: dict[str, Tube] = {}
        self.clients: list[Client] = []
        self.records = Records()
        self.endings_count = 0
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
        """Forget everything that belongs to one process, before jobs are recovered."""
        self.jobs = {}
        self.tubes = {}
        self.clients = []
        self.records.recent = []
        self.counts = dict.fromkeys(COUNTED.values(), 0)
        self.started = now
        self.puts_count = self.timeouts_count = self.connections_total = self._leases_count = 0
        self._waits_count = 0

    # -- where jobs are ------------------------------------------------------------------------

    def open_tube(self, name: str) -> Tube:
        """Return a tube, created if it does not exist."""
        tube = self.tubes.get(name)
        if tube is None:
            tube = self.tubes[name] = Tube(name)
        return tube

    def enter(self, job: ModelJob, state: int) -> None:
        """Put a job where its state says."""
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
        self.records.add(job, READY, waited=False)

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
            self._reach("waiter served")
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
            word = COUNTED.get(command.kind)
            if word is not None:
                self.counts[word] += 1
            self._methods[command.kind](client, command)
        if client.is_ended:
            client.is_finished = True

    def end_input(self, client: Client) -> None:
        """Run what has arrived; the client can no longer wait."""
        client.is_ended = True
        if client.is_waiting:
            self._stop_waiting(client)
            client.say(b"TIMED_OUT\r\n", self.records.waited)
        self.run(client)

    def closed(self, client: Client) -> None:
        """Give back the jobs that a connection held."""
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
            client.say(b"OUT_OF_MEMORY\r\n", self.records.waited)
            return
        tube = client.used
        job = ModelJob(self.next_id, tube, command, self.now)
        job.created_walls.add(self.now + self.records.wall_offset)
        self.next_id += 1
        self.jobs[job.id] = job
        self.puts_count += 1
        tube.total_count += 1
        state = DELAYED if job.delay_ms else READY
        self.enter(job, state)
        self.records.add(job, state)
        awaited = self.records.waited
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
            self._reach("deadline soon")
            client.say(b"DEADLINE_SOON\r\n", self.records.waited)
        elif until <= self.now or client.is_ended:
            client.say(b"TIMED_OUT\r\n", self.records.waited)
        else:
            client.is_waiting = True
            client.until = until
            client.soon = soon
            self._waits_count += 1
            client.arrival = self._waits_count
            for tube in client.watched:
                tube.waiters.append(client)

    def _reserve_job(self, client: Client, command: Command) -> None:
        job = self.jobs.get(command.a)
        if job is None or job.state == LEASED:
            client.say(b"NOT_FOUND\r\n", self.records.waited)
            return
        client.is_worker = True
        self._take(job, client)
        self._say_job(client, b"RESERVED", job)

    def _delete(self, client: Client, command: Command) -> None:
        job = self.jobs.get(command.a)
        if job is None or (job.state == LEASED and job.holder is not client):
            client.say(b"NOT_FOUND\r\n", self.records.waited)
            return
        self._leave(job)
        del self.jobs[job.id]
        self.records.add_gone(job)
        job.tube.deleted_count += 1
        self._drop_if_idle(job.tube)
        client.say(b"DELETED\r\n", self.records.waited)

    def _end(self, job: ModelJob, state: int, *, waited: bool = True) -> None:
        self._leave(job)
        self.enter(job, state)
        self.records.add(job, state, waited=waited)

    def _release(self, client: Client, command: Command) -> None:
        job = client.held.get(command.a)
        if job is None:
            client.say(b"NOT_FOUND\r\n", self.records.waited)
            return
        self._leave(job)
        job.releases += 1
        is_light = job.rank == command.b and command.c == 0
        job.rank = command.b
        job.delay_ms = command.c * 1000
        job.due = self.now + job.delay_ms
        state = DELAYED if job.delay_ms else READY
        self.enter(job, state)
        self.records.add(job, state, is_light=is_light)
        awaited = self.records.waited
        self._offer(job.tube)
        client.say(b"RELEASED\r\n", awaited)

    def _bury(self, client: Client, command: Command) -> None:
        job = client.held.get(command.a)
        if job is None:
            client.say(b"NOT_FOUND\r\n", self.records.waited)
            return
        job.buries += 1
        job.rank = command.b
        self.endings_count += 1
        job.ending = self.endings_count
        self._end(job, DEAD)
        client.say(b"BURIED\r\n", self.records.waited)

    def _wake(self, job: ModelJob) -> None:
        self._leave(job)
        job.kicks += 1
        job.due = self.now
        self.enter(job, READY)
        self.records.add(job, READY)

    def _kick(self, client: Client, command: Command) -> None:
        tube = client.used
        if tube.buried:
            numbers = tube.buried[: command.a]
        else:
            numbers = [number for _, number in tube.delayed[: command.a]]
        for number in numbers:
            self._wake(self.jobs[number])
        awaited = self.records.waited
        self._offer(tube)
        client.say(b"KICKED %d\r\n" % len(numbers), awaited)

    def _kick_job(self, client: Client, command: Command) -> None:
        job = self.jobs.get(command.a)
        if job is None or job.state not in (DEAD, DELAYED):
            client.say(b"NOT_FOUND\r\n", self.records.waited)
            return
        self._wake(job)
        awaited = self.records.waited
        self._offer(job.tube)
        client.say(b"KICKED\r\n", awaited)

    def _touch(self, client: Client, command: Command) -> None:
        job = client.held.get(command.a)
        if job is None:
            client.say(b"NOT_FOUND\r\n", self.records.waited)
            return
        job.deadline = self.now + job.ttr_ms
        client.say(b"TOUCHED\r\n", self.records.waited)

    def _found(self, client: Client, number: int) -> None:
        job = self.jobs.get(number)
        if job is None:
            client.say(b"NOT_FOUND\r\n", self.records.waited)
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
        client.say(b"USING " + tube.name.encode() + b"\r\n", self.records.waited)

    def _watch(self, client: Client, command: Command) -> None:
        tube = self.open_tube(command.text)
        if tube not in client.watched:
            client.watched.append(tube)
            tube.watchers_count += 1
        client.say(b"WATCHING %d\r\n" % len(client.watched), self.records.waited)

    def _ignore(self, client: Client, command: Command) -> None:
        tube = self.tubes.get(command.text)
        if tube is not None and tube in client.watched:
            if len(client.watched) == 1:
                client.say(b"NOT_IGNORED\r\n", self.records.waited)
                return
            last = client.watched.pop()
            if last is not tube:
                client.watched[client.watched.index(tube)] = last
            tube.watchers_count -= 1
            self._drop_if_idle(tube)
        client.say(b"WATCHING %d\r\n" % len(client.watched), self.records.waited)

    def _pause_tube(self, client: Client, command: Command) -> None:
        tube = self.tubes.get(command.text)
        if tube is None:
            client.say(b"NOT_FOUND\r\n", self.records.waited)
            return
        tube.pause_ms = command.a * 1000
        tube.pause_until = self.now + tube.pause_ms
        tube.pauses_count += 1
        self._offer(tube)
        client.say(b"PAUSED\r\n", self.records.waited)

    def _quit(self, client: Client, _: Command) -> None:
        client.is_finished = True

    def _wrong(self, client: Client, command: Command) -> None:
        client.say(command.body, self.records.waited)

    def _nothing(self, client: Client, command: Command) -> None:
        """Ignore the line of a put that is too big: the answer comes after its last byte."""

    # -- lists and statistics ------------------------------------------------------------------

    def _say_list(self, client: Client, names: list[str]) -> None:
        text = "---\n" + "".join(f"- {name}\n" for name in names)
        answer = b"OK %d\r\n%s\r\n" % (len(text), text.encode())
        client.say(answer, self.records.certain)

    def _list_tubes(self, client: Client, _: Command) -> None:
        self._say_list(client, list(self.tubes))

    def _list_watched(self, client: Client, _: Command) -> None:
        self._say_list(client, [tube.name for tube in client.watched])

    def _list_tube_used(self, client: Client, _: Command) -> None:
        client.say(b"USING " + client.used.name.encode() + b"\r\n", 0)

    def _stats(self, client: Client, _: Command) -> None:
        client.say_facts(statistics.of_server(self), self.records.certain)

    def _stats_job(self, client: Client, command: Command) -> None:
        job = self.jobs.get(command.a)
        if job is None:
            client.say(b"NOT_FOUND\r\n", self.records.waited)
        else:
            client.say_facts(statistics.of_job(job, self.now), self.records.certain)

    def _stats_tube(self, client: Client, command: Command) -> None:
        tube = self.tubes.get(command.text)
        if tube is None:
            client.say(b"NOT_FOUND\r\n", self.records.waited)
        else:
            client.say_facts(statistics.of_tube(tube, self.now), self.records.certain)

    # -- time ----------------------------------------------------------------------------------

    def tick(self) -> None:
        """Apply everything that is due, and check which client was given what."""
        records = self.records
        before = records.count
        fresh = self._expire()
        waiting = [client for client in self.clients if client.is_waiting]
        waiting.sort(key=lambda client: client.arrival)
        for client in waiting:
            if client.observed.startswith(b"RESERVED "):
                self._check_given(client, fresh)
            elif client.soon <= self.now:
                self._stop_waiting(client)
                client.say(b"DEADLINE_SOON\r\n", self.records.waited)
            elif client.until <= self.now:
                self._stop_waiting(client)
                client.say(b"TIMED_OUT\r\n", self.records.waited)
        for client in waiting:
            if client.is_waiting and self._best(client.watched) is not None:
                story = f"client {client.number} waits although a job is ready"
                raise Violation("waiters", story)
        if records.count > before:
            records.blur(before)

    def _expire(self) -> set[int]:
        """End delays, pauses and leases; return the jobs that became ready."""
        fresh: set[int] = set()
        for tube in self.tubes.values():
            if tube.pause_ms and tube.pause_until <= self.now:
                tube.pause_ms = 0
            while tube.delayed and tube.delayed[0][0] <= self.now:
                job = self.jobs[tube.delayed[0][1]]
                self.records.note_over(job)
                self._leave(job)
                self.enter(job, READY)
                fresh.add(job.id)
        for client in self.clients:
            for job in [job for job in client.held.values() if job.deadline <= self.now]:
                fresh.add(job.id)
                job.timeouts += 1
                self._reach("lease ran out")
                self.timeouts_count += 1
                job.due = self.now
                self._end(job, READY, waited=False)
        return fresh

    def _check_given(self, client: Client, fresh: set[int]) -> None:
        number = int(client.observed.split(b" ", 2)[1])
        job = self.jobs.get(number)
        if job is None or job.state != READY:
            raise Violation("lease", f"job {number} was given to client {client.number}")
        tube = job.tube
        if tube not in client.watched or tube.pause_until > self.now:
            raise Violation("order", f"job {number} left tube {tube.name}, which is paused")
        for other in tube.waiters[: tube.waiters.index(client)]:
            if not other.observed and other.until > self.now and other.soon > self.now:
                raise Violation("waiters", f"client {other.number} came before {client.number}")
        least = tube.ready[0]
        if least < (job.rank, job.id) and least[1] not in fresh:
            raise Violation("order", f"job {number} was given before job {least[1]}")
        self._reach("waiter served by time")
        self._stop_waiting(client)
        self._take(job, client)
        self._say_job(client, b"RESERVED", job)
