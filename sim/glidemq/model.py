"""The answers glide-mq clients may get: each command applied to plain jobs.

The model gets every command with its answer, after the yard gave it, and every tick. Where
the protocol leaves a choice it checks that the yard's choice was legal and follows it.
"""

from __future__ import annotations

import json

from jobyard.engine.glidemq.add import find as find_job
from jobyard.model.job import BLOCKED, DEAD, DELAYED, DONE, LEASED, READY
from jobyard.model.throttle.ready_lists import ReadyList
from sim.glidemq.keys import GlideKeys
from sim.glidemq.network import Answer, Error
from sim.glidemq.nouns import Ask, GlideJob, NewGlideJob
from sim.state import Violation


class GlideModel(GlideKeys):
    """The effect of each command, and its answer."""

    def _refused(self, ask: Ask, answer: Answer) -> int:
        if not isinstance(answer, Error) or not answer.text.startswith(ask.value.decode()):
            raise Violation("reply", f"{ask} was not refused: {answer!r}")
        return 0

    def _ok(self, ask: Ask, answer: Answer) -> int:
        self.expect(ask, answer, b"OK")
        return 0

    def _hello(self, ask: Ask, answer: Answer) -> int:
        if not isinstance(answer, list):
            raise Violation("reply", f"{ask}: {answer!r}")
        return 0

    def _queued(self, ask: Ask, answer: Answer) -> int:
        self.expect(ask, answer, b"QUEUED")
        return 0

    def _exec(self, ask: Ask, answer: Answer) -> int:
        if not isinstance(answer, list) or len(answer) != len(ask.inner):
            raise Violation("reply", f"{ask}: {answer!r}")
        self.reach("transaction")
        return max(self.answered(one, told) for one, told in zip(ask.inner, answer, strict=True))

    # -- adding ------------------------------------------------------------------------------------

    def _add(self, ask: Ask, answer: Answer) -> int:
        ((queue, new_job),) = ask.new_jobs
        if new_job.custom and self._is_taken(queue, new_job.custom):
            self.reach("duplicate id")
            self.expect(ask, answer, b"duplicate")
            return 0
        self._entered(ask, queue, new_job, answer)
        return self.batch

    def _is_taken(self, queue: str, name: str) -> bool:
        """Return whether an id is used by a job, or by a hash without a job."""
        key = f"glide:{{{queue}}}:job:{name}".encode()
        return self.find(queue, name) is not None or self.living(key) is not None

    def _entered(self, ask: Ask, queue: str, new_job: NewGlideJob, answer: object) -> GlideJob:
        """Add a job that the yard accepted."""
        if not isinstance(answer, bytes):
            raise Violation("reply", f"{ask}: {answer!r}")
        name = answer.decode()
        if self._is_taken(queue, name) or (new_job.custom and new_job.custom != name):
            raise Violation("ids", f"{ask} became {name}")
        place = self.yard.queues.get(queue)
        found = None if place is None else find_job(self.yard, place, name)
        if found is None:
            raise Violation("lost", f"{ask} was added and is not there")
        number = int(found.id)
        if number in self.jobs or number in self.gone:
            raise Violation("ids", f"{number} was issued before")
        job = GlideJob(number, int(found.key), queue, new_job, self.now)
        if new_job.ordering:
            job.order = max((other.order for other in self.ordering_of(job)), default=0) + 1
            part = None if found.details is None else found.details.glide
            if part is None or int(part.order) < job.order:
                raise Violation("ordering", f"{job} got order {part and part.order}")
            job.order = int(part.order)
        job.batch = self.batch
        self.jobs[number] = job
        self.advance(job)
        return job

    def _dedup(self, ask: Ask, answer: Answer) -> int:
        ((queue, new_job),) = ask.new_jobs
        if self._is_skipped(ask, queue, new_job):
            self.reach(f"skipped by {ask.mode.decode()}")
            self.expect(ask, answer, b"skipped")
            return 0
        batch = self._add(ask, answer)
        if answer != b"duplicate":
            assert isinstance(answer, bytes)
            table = self.open_side(ask.key, {})
            assert isinstance(table.value, dict)
            table.value[ask.value] = b"%s:%d" % (answer, new_job.ts)
            table.batch = self.batch
        return batch

    def _is_skipped(self, ask: Ask, queue: str, new_job: NewGlideJob) -> bool:
        """Return whether a job is a duplicate; remove a job that it replaces."""
        side = self.living(ask.key)
        table = {} if side is None else side.value
        assert isinstance(table, dict)
        entry = table.get(ask.value)
        if entry is None:
            return False
        old_id, _, ts = entry.partition(b":")
        if ask.mode == b"throttle":
            return ask.number > 0 and new_job.ts - int(ts) < ask.number
        job = self.find(queue, old_id.decode())
        if job is None or not job.is_open():
            return False
        if ask.mode == b"simple" or not job.is_scheduled():
            return True
        own = f"glide:{{{queue}}}:job:{new_job.custom}".encode()
        is_other = new_job.custom != job.id and self._is_taken(queue, new_job.custom)
        if new_job.custom and (is_other or self.living(own) is not None):
            return False
        self.reach("debounced")
        self.remove(job)
        return False

    def _flow(self, ask: Ask, answer: Answer) -> int:
        customs = [(queue, new_job.custom) for queue, new_job in ask.new_jobs if new_job.custom]
        is_taken = any(self._is_taken(queue, name) for queue, name in customs)
        ids = json.loads(answer) if isinstance(answer, bytes) else answer
        if is_taken or len(set(customs)) < len(customs):
            self.reach("flow refused")
            if ids != ["duplicate"]:
                raise Violation("reply", f"{ask}: {answer!r}")
            return 0
        if not isinstance(ids, list) or len(ids) != len(ask.new_jobs):
            raise Violation("reply", f"{ask}: {answer!r}")
        jobs = [
            self._entered(ask, queue, new_job, str(name).encode())
            for (queue, new_job), name in zip(ask.new_jobs, ids, strict=True)
        ]
        parent = jobs[0]
        parent.state, parent.ready_list = BLOCKED, ReadyList.STREAM
        if parent.delay > 0:
            # It waits for its children, not for a time.
            parent.note_delay(parent.delay)
            parent.delay, parent.due = 0, parent.created
        for child in jobs[1:]:
            child.parent_id = parent.id.encode()
            child.parent_queue = parent.queue.encode()
            label = f"glide:{{{child.queue}}}:{child.id}".encode()
            parent.members[label] = (child.number, False)
        return self.batch

    # -- taking ------------------------------------------------------------------------------------

    def _read(self, ask: Ask, answer: Answer) -> int:
        if answer is None:
            ready = self.available(ask.queue, ReadyList.STREAM)
            if ready and ask.until > self.now:
                raise Violation("waiters", f"{ask} got nothing: {ready}")
            return 0
        key = f"glide:{{{ask.queue}}}:stream".encode()
        pair = answer[0] if isinstance(answer, list) and len(answer) == 1 else answer
        if not isinstance(pair, list) or len(pair) != 2 or pair[0] != key:
            raise Violation("reply", f"{ask}: {answer!r}")
        entries = pair[1]
        if not isinstance(entries, list) or not 0 < len(entries) <= ask.count:
            raise Violation("reply", f"{ask}: {answer!r}")
        batch = 0
        for entry in entries:
            assert isinstance(entry, list)
            name, fields = entry
            assert isinstance(fields, list)
            job = self._given(ask, ReadyList.STREAM, fields[1])
            if name != job.entry().encode() or fields[3] != job.new_job.name:
                raise Violation("reply", f"{ask}: {entry} for {job}")
            batch = max(batch, job.batch)
        return batch

    def _given(self, ask: Ask, ready_list: int, job_id: object) -> GlideJob:
        """Lease a job to the worker that got it; it must have been the next one."""
        job = self.find(ask.queue, job_id.decode() if isinstance(job_id, bytes) else "")
        if job is None or job.state != READY or job.ready_list != ready_list:
            raise Violation("lease", f"{ask} was given {job_id!r}: {job}")
        ready = self.available(ask.queue, ready_list)
        is_barred = job.is_old(self.now) or job.queue in self.paused
        if job not in ready and (is_barred or not job.new_job.ordering or not self._was_let(job)):
            raise Violation("lease", f"{ask} was given {job}, which is held up")
        mine = (job.rank, self.place_of(job))
        for other in ready:
            is_before = (other.rank, self.place_of(other)) < mine
            # A waiting client may have been served before others of a key made room for the other.
            is_late = (other.queue, other.id) in self.just_given or self.came_up(other)
            if is_before and not is_late:
                raise Violation("order", f"{ask} was given {job} before {other}")
        found = self.yard.jobs.get(job.number)
        assert found is not None
        if job.deliveries > 0 and abs(mine[1]) <= self.boot_place:
            # A worker that lost it to a restart does not have its new entry id.
            self.reach("renamed")
            job.place, job.sign = None, 1
            self.place_of(job)
        self.run(job, ask.consumer, is_list=ready_list != ReadyList.STREAM)
        return job

    def _was_let(self, job: GlideJob) -> bool:
        """Return whether jobs of its key that go before it were given in the same turn."""
        most = max(job.new_job.concurrency, 1)
        if job.deliveries > 0:
            return sum(j.state == LEASED for j in self.ordering_of(job)) < most
        others = [j for j in self.ordering_of(job) if j.is_open() and not j.deliveries]
        if job.new_job.concurrency > 1:
            # A job that comes later blocks none; it may have come just after this one was given.
            others = [j for j in others if j.state == READY and j.stood < self.now]
        before = [j for j in others if j.order < job.order]
        started = sum(j.has_started() for j in self.ordering_of(job))
        if started >= most:
            return False
        return all((j.queue, j.id) in self.just_given for j in before)

    def _may_wait(self, job: GlideJob) -> bool:
        """Return whether others of its key may keep a job from a worker that has its entry.

        Which of the revived jobs continues may have changed in this turn, and also which is the
        next to start where several may run.
        """
        if not job.new_job.ordering:
            return False
        if job.deliveries == 0:
            return job.new_job.concurrency > 1 or not self.is_standing(job)
        return self.is_crowded(job)

    def _pop(self, ask: Ask, answer: Answer) -> int:
        """Take from one list, or from the first of both that has a job."""
        if not isinstance(answer, list) or len(answer) > ask.count:
            raise Violation("reply", f"{ask}: {answer!r}")
        ready_list = ReadyList.LIFO if ask.mode == b"lifo" else ReadyList.PROMOTED
        if ask.mode == b"both" and not self._comes_first(ask.queue, ReadyList.PROMOTED, answer):
            ready_list = ReadyList.LIFO
        if len(answer) < ask.count and len(self.available(ask.queue, ready_list)) > len(answer):
            raise Violation(
                "lease", f"{ask} got {answer} of {self.available(ask.queue, ready_list)}"
            )
        return max((self._given(ask, ready_list, one).batch for one in answer), default=0)

    def _comes_first(self, queue: str, ready_list: int, given: list[Answer]) -> bool:
        """Return whether a worker must get jobs of this ready list before those it was given."""
        ready = self.available(queue, ready_list)
        if all(self.came_late(job) for job in ready):
            return any(job.id.encode() in given for job in ready)
        return True

    def _active(self, ask: Ask, answer: Answer) -> int:
        job = self.find(ask.queue, ask.id)
        if job is None:
            self.expect(ask, answer, b"")
            return 0
        if job.held is None and not self._took_up(ask, answer, job):
            return job.batch
        held = job.held
        assert held is not None
        if not held.is_list and ask.entry != job.entry():
            return self.told(ask, answer, b"GROUP_FULL", job)
        held.beat = self.now
        if job.is_revoked:
            return self.told(ask, answer, b"REVOKED", job)
        self.same_fields(ask, answer, job)
        return job.batch

    def _took_up(self, ask: Ask, answer: Answer, job: GlideJob) -> bool:
        """Lease a job again to a worker that had it, if it is free; False if refused."""
        # A worker without an entry got the job from a list, so it was given at least once.
        was_given = ask.entry == job.entry() if ask.entry else job.deliveries > 0
        if job.state != READY or not was_given:
            self.expect(ask, answer, b"GROUP_FULL")
            return False
        if answer == b"EXPIRED" and job.is_old(self.now):
            self.lay(job, b"expired")
            return False
        if answer == b"GROUP_FULL" and self._may_wait(job):
            self.reach("not taken up again")
            return False
        if not self.is_standing(job) and not self._was_let(job):
            raise Violation("ordering", f"{ask} began {job}, which is held up")
        self.reach("taken up again")
        self.run(job, "", is_list=not ask.entry)
        return True

    # -- ending ------------------------------------------------------------------------------------

    def _is_held(self, job: GlideJob | None, entry: str) -> bool:
        """Return whether a worker with this entry may end the run of a job."""
        if job is None:
            return False
        if job.held is None:
            return job.state == READY and job.deliveries > 0 and entry in {"", job.entry()}
        return not entry if job.held.is_list else entry == job.entry()

    def _complete(self, ask: Ask, answer: Answer) -> int:
        self.expect(ask, answer, 1)
        return self._done(ask)

    def _done(self, ask: Ask) -> int:
        job = self.find(ask.queue, ask.id)
        if job is None or not self._is_held(job, ask.entry):
            self.reach("completed too late")
            return 0
        if job.held is None:
            self.reach("completed late")
        self.completed(job, ask.value, is_kept=ask.mode != b"true")
        if ask.mode == b"count":
            self._trim(ask.queue, DONE, ask.count)
        return self.batch

    def _trim(self, queue: str, state: int, count: int) -> None:
        resting = sorted(self.of_queue(queue, state), key=_ending)
        for job in resting[: max(len(resting) - count, 0)]:
            self.remove(job)

    def _next(self, ask: Ask, answer: Answer) -> int:
        """Complete one job, and take another."""
        batch = self._done(ask)
        if not isinstance(answer, list) or answer[1] != ask.id.encode():
            raise Violation("reply", f"{ask}: {answer!r}")
        ready_list = ReadyList.STREAM
        for one in (ReadyList.PROMOTED, ReadyList.LIFO):
            if ready_list == ReadyList.STREAM and self.available(ask.queue, one):
                ready_list = one
        if answer[0] == b"NEXT_NONE":
            ready = [j for j in self.available(ask.queue, ready_list) if not self._goes_to_other(j)]
            if ready:
                raise Violation("waiters", f"{ask} got nothing: {ready}")
            return batch
        given = self.find(ask.queue, str(answer[2], "utf-8"))  # type: ignore[arg-type]
        if given is not None and given.state == READY:
            # Waiting clients were served first, perhaps with all jobs of an earlier ready list.
            ready_list = (
                given.ready_list if self._is_passed_over(ask.queue, ready_list) else ready_list
            )
        job = self._given(ask, ready_list, answer[2])
        entry = b"" if ready_list != ReadyList.STREAM else job.entry().encode()
        if answer[3] != entry or (answer[0] == b"NEXT_REVOKED") != job.is_revoked:
            raise Violation("reply", f"{ask}: {answer!r} for {job}")
        if not job.is_revoked:
            self.same_fields(ask, answer[4:], job)
        return max(batch, job.batch)

    def _goes_to_other(self, job: GlideJob) -> bool:
        return (job.queue, job.id) in self.just_given

    def _is_passed_over(self, queue: str, ready_list: int) -> bool:
        ready = self.available(queue, ready_list)
        return all(self._goes_to_other(job) or self.came_late(job) for job in ready)

    def _fail(self, ask: Ask, answer: Answer) -> int:
        job = self.find(ask.queue, ask.id)
        if job is None or not self._is_held(job, ask.entry):
            self.expect(ask, answer, b"failed")
            return 0
        job.attempts += 1
        # A revoked job is not retried.
        is_last = job.is_revoked or job.attempts >= max(ask.count, 1)
        self.expect(ask, answer, b"failed" if is_last else b"retrying")
        started = self.now if job.held is None else job.held.since
        if job.delay > 0 and not job.is_delay_apart():
            job.note_delay(job.delay)
        job.failure, job.failure_began = ask.value, started
        if is_last:
            self.rest(job, DEAD)
            job.error, job.started = ask.value, started
            if ask.mode == b"true":
                self.remove(job)
        elif ask.number > 0:
            self.put_off(job, ask.number, is_new=False)
        else:
            self.stand(job, ReadyList.STAGED)
            job.due = self.now
        return self.batch

    def _defer(self, ask: Ask, answer: Answer) -> int:
        job = self.find(ask.queue, ask.id)
        is_held = job is not None and job.state == LEASED and self._is_held(job, ask.entry)
        self.expect(ask, answer, 1 if is_held else 0)
        if job is None or not is_held:
            return 0
        if job.delay > 0 and not job.is_delay_apart():
            job.note_delay(job.delay)
        self.stand(job, ReadyList.STREAM)
        job.delay = 0
        job.due = self.now
        return self.batch

    def _delay_active(self, ask: Ask, answer: Answer) -> int:
        job = self.find(ask.queue, ask.id)
        if job is None:
            self.expect(ask, answer, b"error:not_found")
            return 0
        if job.state != LEASED or not self._is_held(job, ask.entry):
            return self.told(ask, answer, b"error:not_active", job)
        self.expect(ask, answer, b"ok")
        job.data = ask.value or job.data
        if job.is_delay_apart():
            job.note_delay(max(ask.number, 1))
        self.put_off(job, max(ask.number, 1), is_new=True)
        return self.batch

    def _reclaim(self, ask: Ask, answer: Answer) -> int:
        silent = [
            job
            for job in self.of_queue(ask.queue, LEASED)
            if job.held is not None
            and job.held.is_list == ask.is_set
            and self.now - job.held.beat >= ask.number
        ]
        self.expect(ask, answer, len(silent))
        for job in silent:
            self.stalled(job, ask.count)
        return 0

    # -- jobs that do not run ----------------------------------------------------------------------

    def _promote(self, ask: Ask, answer: Answer) -> int:
        count = self.just_laid.count(ask.queue)
        staged: list[GlideJob] = []
        for job in self.of_queue(ask.queue, READY, DELAYED):
            if job.state == DELAYED and job.due <= self.now:
                self.come_due(job)
            if job.is_scheduled() and (job.state == READY or self._is_ahead(job, ask.number)):
                staged.append(job)
        last = 0
        for job in sorted(staged, key=self._turn):
            count += 1
            is_ready = job.state == READY
            if is_ready and job.is_old(self.now):
                self.lay(job, b"expired")
                continue
            self.promoted(job)
            place = abs(self.place_of(job))
            if is_ready and not job.new_job.ordering:
                if place < last:
                    raise Violation("order", f"{job} was promoted before others")
                last = place
        self.expect(ask, answer, count)
        return self.batch if count else 0

    def _is_ahead(self, job: GlideJob, ts: int) -> bool:
        """Return whether a delayed job is due by the clock of the caller."""
        return job.due_label(self.wall_offset) <= ts

    def _promote_job(self, ask: Ask, answer: Answer) -> int:
        job = self.find(ask.queue, ask.id)
        if job is None:
            self.expect(ask, answer, b"error:not_found")
            return 0
        if job.word() != b"delayed":
            return self.told(ask, answer, b"error:not_delayed", job)
        self.expect(ask, answer, b"ok")
        job.note_delay(0)
        self.promoted(job)
        return self.batch

    def _remove(self, ask: Ask, answer: Answer) -> int:
        job = self.find(ask.queue, ask.id)
        self.expect(ask, answer, 0 if job is None else 1)
        if job is None:
            return 0
        self.wipe(job)
        return self.batch

    def _revoke(self, ask: Ask, answer: Answer) -> int:
        job = self.find(ask.queue, ask.id)
        if job is None:
            self.expect(ask, answer, b"not_found")
            return 0
        is_laid = job.state in {READY, DELAYED}
        self.expect(ask, answer, b"revoked" if is_laid else b"flagged")
        job.is_revoked = True
        job.batch = self.batch
        if is_laid:
            if job.state == DELAYED and job.due <= self.now:
                self.come_due(job)
            self.lay(job, b"revoked")
        return self.batch

    def _why_not(self, job: GlideJob | None) -> bytes:
        if job is None:
            return b"error:not_found"
        if job.state not in {READY, DELAYED}:
            return b"error:invalid_state"
        if job.state == READY and job.ready_list in {ReadyList.PROMOTED, ReadyList.LIFO}:
            return b"error:not_in_stream"
        return b""

    def _set_priority(self, ask: Ask, answer: Answer) -> int:
        job = self.find(ask.queue, ask.id)
        why = self._why_not(job)
        if job is None or why:
            self.expect(ask, answer, why)
            return 0 if job is None else job.batch
        if job.rank == ask.number:
            return self.told(ask, answer, b"no_op", job)
        self.expect(ask, answer, b"ok")
        job.rank = ask.number
        if job.state == READY and (job.ready_list == ReadyList.STREAM or job.delay == 0):
            self.stand(job, ReadyList.STAGED if job.rank > 0 else ReadyList.STREAM)
        job.batch = self.batch
        return self.batch

    def _set_delay(self, ask: Ask, answer: Answer) -> int:
        job = self.find(ask.queue, ask.id)
        why = self._why_not(job)
        if job is None or why:
            self.expect(ask, answer, why)
            return 0 if job is None else job.batch
        if ask.number == 0 and job.state == READY and job.delay == 0:
            return self.told(ask, answer, b"no_op", job)
        self.expect(ask, answer, b"ok")
        if job.is_delay_apart():
            job.note_delay(ask.number)
        if ask.number > 0:
            self.put_off(job, ask.number, is_new=False)
        else:
            job.delay = 0
            job.due = self.now
            self.stand(job, job.first_list())
        return self.batch

    # -- many jobs ---------------------------------------------------------------------------------

    def _drain(self, ask: Ask, answer: Answer) -> int:
        jobs = self.of_queue(ask.queue, READY, DELAYED)
        gone = [job for job in jobs if ask.is_set or not job.is_scheduled()]
        self.expect(ask, answer, len(gone))
        for job in gone:
            self.wipe(job)
        return self.batch if gone else 0

    def _clean(self, ask: Ask, answer: Answer) -> int:
        before = ask.number - self.wall_offset
        state = DONE if ask.mode == b"completed" else DEAD
        resting = sorted(self.of_queue(ask.queue, state), key=_ending)
        gone: list[GlideJob] = []
        for job in resting:
            if job.ended > before or len(gone) == ask.count:
                break
            gone.append(job)
        self.expect(ask, answer, [job.id.encode() for job in gone])
        for job in gone:
            self.wipe(job)
        return self.batch if gone else 0

    def _retry(self, ask: Ask, answer: Answer) -> int:
        dead = sorted(self.of_queue(ask.queue, DEAD), key=_ending)
        if ask.count > 0:
            dead = dead[: ask.count]
        self.expect(ask, answer, len(dead))
        for job in dead:
            self.reach("revived")
            for label, (number, is_done) in job.members.items():
                child = self.jobs.get(number)
                is_over = child is None or child.state == DONE
                job.members[label] = (number, is_done or is_over)
            job.attempts = job.stalls = 0
            job.is_revoked = False
            job.due = self.now
            self.stand(job, ReadyList.STAGED)
            if job.open_members():
                job.state, job.ready_list = BLOCKED, ReadyList.STREAM
        return self.batch if dead else 0

    def _pause(self, ask: Ask, answer: Answer) -> int:
        self.expect(ask, answer, 1)
        must_log = ask.is_set != (ask.queue in self.paused)
        if ask.is_set:
            self.paused.add(ask.queue)
        else:
            self.paused.discard(ask.queue)
        return self.batch if must_log else 0

    def _group(self, ask: Ask, answer: Answer) -> int:
        if ask.queue in self.groups:
            return self._refused(ask, answer)
        self.expect(ask, answer, b"OK")
        self.groups[ask.queue] = (self.now, {})
        return 0


def _ending(job: GlideJob) -> int:
    return job.ending
