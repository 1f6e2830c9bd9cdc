"""The answers bunqueue clients may get: jobs as a worker or producer sees them, in plain dicts.

The model gets every command with its answer, after the yard gave it, and every tick. Where
the protocol leaves a choice (which of several ready jobs, how long a backoff) it checks that the
yard's choice was legal and follows it. Times are those of the boot's steady clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jobyard.model.job import BLOCKED, DEAD, DELAYED, DONE, LEASED, READY
from jobyard.protocols.bunqueue.ids import find_job
from jobyard.wire.msgpack.write import encode
from sim.bunqueue.nouns import Ask, BunClient, BunJob, Lock, Reply
from sim.bunqueue.state import BunState
from sim.state import Violation

if TYPE_CHECKING:
    from collections.abc import Callable

PLAIN_LOCK_MS: Final = 35_000
FULL: Final = "Storage full"
# Remove one job after the other, and may stop where there is no room for a record.
REMOVALS: Final = frozenset({"Drain", "Obliterate", "PurgeDlq"})
WORDS: Final = {
    READY: "waiting",
    DELAYED: "delayed",
    LEASED: "active",
    DEAD: "failed",
    DONE: "completed",
    BLOCKED: "waiting-children",
}


class BunModel(BunState):
    """The effect of each command, and its answer."""

    def __init__(self, is_refusal_fair: Callable[[], bool], reach: Callable[[str], None]) -> None:
        super().__init__(reach)
        self._is_refusal_fair = is_refusal_fair
        # Given in one turn of the yard, in an order that the answers do not show.
        self._just_given: set[str] = set()
        self._is_loose = False
        self._replaced_count = 0

    def answered(self, client: BunClient, ask: Ask, told: Reply) -> None:
        """Check the answer to one command and apply the command."""
        if told.get("error") == FULL:
            if not (self.may_fill and self._is_refusal_fair()) and not (
                ask.cmd == "ACK" and self._is_memory_used(ask.fields.get("result"))
            ):
                raise Violation("full disk", f"{ask.cmd} was refused although there is room")
            if ask.cmd in REMOVALS:
                self._follow_removals(ask.text("queue"))
            return
        method = getattr(self, f"_{ask.cmd.lower()}")
        method(client, ask, told)

    def _is_memory_used(self, result: object) -> bool:
        """Return whether parents may have no memory for the result of a child."""
        self.reach("no memory for the result of a child")
        return not self.yard.bodies.admits_value(len(encode(result)) * len(self.jobs))

    def _follow_removals(self, queue: str) -> None:
        """Drop jobs that were removed before the room for such records ran out."""
        for job in list(self.jobs.values()):
            if job.queue == queue and self.yard.jobs.get(job.number) is None:
                self.remove(job)

    def expect(self, told: Reply, ask: Ask, *, is_ok: bool) -> bool:
        """Check whether a command was done or refused; return whether it was done."""
        if bool(told["ok"]) != is_ok:
            word = "refused" if is_ok else "done"
            raise Violation("reply", f"{ask} was {word}: {told}")
        return is_ok

    def _push(self, _: BunClient, ask: Ask, told: Reply) -> None:
        queue = ask.text("queue")
        refusal = self._refusal(queue, ask.fields)
        if self.expect(told, ask, is_ok=not refusal):
            self._entered(queue, ask.fields, str(told["id"]))

    def _pushb(self, _: BunClient, ask: Ask, told: Reply) -> None:
        queue = ask.text("queue")
        new_jobs = ask.maps("jobs")
        if not told["ok"]:
            if not any(self._refusal(queue, new_job) for new_job in new_jobs):
                raise Violation("reply", f"{ask} was refused: {told}")
            return
        ids = told["ids"]
        assert isinstance(ids, list)
        assert len(ids) == len(new_jobs)
        for new_job, name in zip(new_jobs, ids, strict=True):
            self._entered(queue, new_job, str(name), is_batch=True)

    def _refusal(self, queue: str, new_job: Reply) -> str:
        """Return why a job may not enter, or nothing."""
        for name in _names(new_job, "dependsOn"):
            if name == new_job.get("jobId"):
                return "depends on itself"
            if name not in self.by_id and not _is_ours(name):
                return "dependency not found"
        owner = self._owner(queue, new_job)
        if owner is None or self._namesake(new_job) is not None:
            return ""
        mode = _mode(new_job)
        if mode == "replace" and owner.state != LEASED and self._is_needed(owner, new_job):
            return "others depend on it"
        if mode == "extend" and owner.state == LEASED:
            return "extended while active"
        return ""

    def _namesake(self, new_job: Reply) -> BunJob | None:
        same = self.by_id.get(str(new_job.get("jobId", "")))
        return same if same is not None and same.state not in {DEAD, DONE} else None

    def _owner(self, queue: str, new_job: Reply) -> BunJob | None:
        owner = self.keys.get((queue, str(new_job.get("uniqueKey", ""))))
        if owner is None or 0 < owner.key_until <= self.now:
            return None
        return owner

    def _stand_in(self, queue: str, new_job: Reply) -> tuple[BunJob | None, int]:
        """Return the existing job for a duplicate, and the number of a removed same-named job."""
        same = self.by_id.get(str(new_job["jobId"])) if "jobId" in new_job else None
        if same is not None and same.state not in {DEAD, DONE}:
            return same, 0
        owner = self._owner(queue, new_job)
        if owner is not None:
            mode = _mode(new_job)
            is_needed = owner.state != LEASED and self._is_needed(owner, new_job)
            if mode != "replace" or is_needed:
                if mode == "extend":
                    owner.key_until = self.now + _ttl(new_job)
                self.reach("duplicate put")
                return owner, 0
            if owner.state == LEASED:
                self.rest(owner)
                owner.key = ""
            else:
                self.remove(owner)
        if same is None:
            return None, 0
        self.remove(same)
        return None, same.number

    def _is_needed(self, owner: BunJob, new_job: Reply) -> bool:
        return bool(self.waiting_for(owner.number)) or owner.id in _names(new_job, "dependsOn")

    def _entered(self, queue: str, new_job: Reply, name: str, *, is_batch: bool = False) -> None:
        owner, before = self._stand_in(queue, new_job)
        if owner is not None:
            if owner.id != name:
                raise Violation("dedup", f"{new_job} became {name}, not {owner.id}")
            return
        if name in self.by_id or ("jobId" in new_job and new_job["jobId"] != name):
            raise Violation("dedup", f"{new_job} became {name}")
        job = BunJob(self._number_of(name, is_batch=is_batch), name, queue, new_job, self.now)
        self.jobs[job.number] = job
        self.by_id[name] = job
        if job.key:
            self.keys[queue, job.key] = job
        for child_name in _names(new_job, "dependsOn"):
            child = self.by_id.get(child_name)
            if child is not None and child.state != DONE:
                job.waits.add(child.number)
        if job.waits:
            job.state = BLOCKED
            job.is_plain = False
        heirs = self.waiting_for(before)
        if any(self.reaches(job, parent.number) for parent in heirs):
            # A cycle: they still wait for the one that is gone.
            return
        for parent in heirs:
            parent.waits.discard(before)
            parent.waits.add(job.number)

    def _number_of(self, name: str, *, is_batch: bool) -> int:
        """Return the number of a new job in the yard."""
        found = find_job(self.yard, name.encode())
        if found is None:
            if not is_batch:
                raise Violation("lost", f"{name} was put and is not there")
            # A job replaced by another one of its batch is already gone, with its number.
            self._replaced_count += 1
            return -self._replaced_count
        number = int(found.id)
        other = self.gone.get(number)
        if is_batch and other is not None and other.id == name:
            # The number belonged to this job: the other one was removed within the batch.
            self._replaced_count += 1
            other.number = -self._replaced_count
            self.gone[other.number] = self.gone.pop(number)
        if number in self.jobs or number in self.gone:
            raise Violation("ids", f"{number} was issued before")
        return number

    def _pull(self, client: BunClient, ask: Ask, told: Reply) -> None:
        self.expect(told, ask, is_ok=True)
        if "jobs" in told:
            shown = told["jobs"]
            tokens = told.get("tokens")
        else:
            shown = [told["job"]] if told.get("job") is not None else []
            tokens = [told.get("token")] if "token" in told else None
        assert isinstance(shown, list)
        if len(shown) > ask.number("count", 1):
            raise Violation("lease", f"{ask} was given {len(shown)} jobs")
        if not shown:
            self._check_empty(client, ask)
        for place, one in enumerate(shown):
            token = tokens[place] if isinstance(tokens, list) else None
            self._given(client, ask, one, token)

    _pullb = _pull

    def note_given(self, answers: list[Reply], *, is_loose: bool) -> None:
        """Note which jobs were given to any client in one turn; loose if they came one by one."""
        self._just_given = set()
        self._is_loose = is_loose
        for told in answers:
            shown = told.get("jobs", [told.get("job")])
            assert isinstance(shown, list)
            self._just_given.update(str(one["id"]) for one in shown if one is not None)

    def _check_empty(self, client: BunClient, ask: Ask) -> None:
        ready = [job for job in self.available(ask.text("queue")) if not self.is_old(job)]
        # A client whose timeout ended may have been answered just before a job came.
        if ready and not client.is_gone and ask.until > self.now:
            raise Violation("waiters", f"{ask} got nothing although {ready[0].id} is ready")

    def _given(self, client: BunClient, ask: Ask, shown: object, token: object) -> None:
        assert isinstance(shown, dict)
        job = self.by_id.get(str(shown["id"]))
        if job is None:
            raise Violation("lease", f"{shown['id']} was given to {ask} and should not exist")
        story = f"{job} was given to {ask}"
        if job.state != READY or job.queue != ask.text("queue") or self.is_old(job):
            raise Violation("lease", story)
        self._check_turn(job, story)
        if encode(shown["data"]) != job.data:
            raise Violation("body", f"{story} with {encode(shown['data'])[:40]!r}")
        if shown["attempts"] != job.attempts:
            raise Violation("attempts", f"{story} with {shown['attempts']} attempts")
        has_owner = "owner" in ask.fields
        if (token is not None) != has_owner or token in client.tokens.values():
            raise Violation("token", f"{story} with {token}")
        self._lock(client, ask, job, token)

    def _check_turn(self, job: BunJob, story: str) -> None:
        """Check that no other job should have been first."""
        ready = self.available(job.queue)
        if job not in ready:
            raise Violation("order", f"{story} from a paused queue")
        for other in ready:
            if self._is_loose or other.id in self._just_given or other is job:
                continue
            # An expired job that others wait for is removed with the next tick.
            if self.is_old(other):
                continue
            # Jobs without a group go first; groups take turns.
            if other.group and other.group != job.group:
                continue
            if job.group and not other.group:
                raise Violation("order", f"{story} before {other}, which has no group")
            is_alike = other.is_plain and job.is_plain and other.rank() == job.rank()
            if other.rank() < job.rank() or (is_alike and other.number < job.number):
                raise Violation("order", f"{story} before {other}")

    def _lock(self, client: BunClient, ask: Ask, job: BunJob, token: object) -> None:
        ttl = PLAIN_LOCK_MS if token is None else ask.number("lockTtl", 30_000)
        name = None if token is None else str(token)
        job.lock = Lock(client, name, ttl, self.now)
        if job.timeout_ms:
            job.lock.stop_at = self.now + job.timeout_ms
        job.last_token = None
        job.state = LEASED
        if name is not None:
            client.tokens[job.id] = name

    def _may_end(self, job: BunJob | None, token: object) -> bool:
        if job is None:
            return False
        lock = job.lock
        if lock is None:
            return job.last_token is not None and token == job.last_token
        return lock.token is None or token == lock.token

    def _is_late(self, job: BunJob | None, ask: Ask, told: Reply) -> bool:
        """Return whether the end came after another; then it is answered and changes nothing."""
        if job is None or job.state not in {DEAD, DONE}:
            return False
        if "token" not in ask.fields and not told["ok"]:
            return True
        data = told.get("data")
        if not told["ok"] or not isinstance(data, dict) or data.get("applied") is not False:
            raise Violation("reply", f"{ask} came too late and got {told}")
        return True

    def _ack(self, _: BunClient, ask: Ask, told: Reply) -> None:
        job = self.by_id.get(ask.text("id"))
        if self._is_late(job, ask, told):
            return
        if self.expect(told, ask, is_ok=self._may_end(job, ask.fields.get("token"))):
            assert job is not None
            self.complete(job, ask.fields.get("result"))

    def _ackb(self, _: BunClient, ask: Ask, told: Reply) -> None:
        data = told.get("data")
        self.expect(told, ask, is_ok=True)
        ignored = data["ignoredIndices"] if isinstance(data, dict) else []
        tokens = ask.fields.get("tokens")
        results = ask.fields["results"]
        assert isinstance(results, list)
        for place, name in enumerate(_names(ask.fields, "ids")):
            token = tokens[place] if isinstance(tokens, list) else None
            job = self.by_id.get(name)
            may = job is not None and job.state not in {DEAD, DONE} and self._may_end(job, token)
            is_full = place in ignored and (self.may_fill or self._is_memory_used(results[place]))
            if may == (place in ignored) and not is_full:
                raise Violation("reply", f"{ask}: {told}")
            if may and not is_full:
                assert job is not None
                self.complete(job, results[place])

    def _fail(self, _: BunClient, ask: Ask, told: Reply) -> None:
        job = self.by_id.get(ask.text("id"))
        if self._is_late(job, ask, told):
            return
        if self.expect(told, ask, is_ok=self._may_end(job, ask.fields.get("token"))):
            assert job is not None
            self.failed(job, is_final=ask.fields.get("unrecoverable") is True)

    def _cancel(self, _: BunClient, ask: Ask, told: Reply) -> None:
        job = self.by_id.get(ask.text("id"))
        may = job is not None and job.state in {READY, DELAYED, BLOCKED}
        if self.expect(told, ask, is_ok=may):
            assert job is not None
            self.remove(job)

    def _discard(self, _: BunClient, ask: Ask, told: Reply) -> None:
        job = self.by_id.get(ask.text("id"))
        may = job is not None and job.state not in {DEAD, DONE}
        if may and job is not None and job.state == LEASED:
            may = self._may_end(job, ask.fields.get("token"))
        if self.expect(told, ask, is_ok=may):
            assert job is not None
            if job.state == LEASED:
                job.attempts += 1
                self.free(job)
            if job.removes_dead:
                self.remove(job)
            else:
                job.state = DEAD
                self.rest(job)

    def _update(self, _: BunClient, ask: Ask, told: Reply) -> None:
        job = self.by_id.get(ask.text("id"))
        may = job is not None and job.state not in {DEAD, DONE}
        if self.expect(told, ask, is_ok=may):
            assert job is not None
            self.reach("body updated")
            job.data = encode(ask.fields["data"])

    def _changepriority(self, _: BunClient, ask: Ask, told: Reply) -> None:
        job = self.by_id.get(ask.text("id"))
        may = job is not None and job.state in {READY, DELAYED, BLOCKED}
        if job is not None and job.group and ask.number("priority", 0) < 0:
            may = False
        if self.expect(told, ask, is_ok=may):
            assert job is not None
            job.priority = ask.number("priority", 0)

    def _promote(self, _: BunClient, ask: Ask, told: Reply) -> None:
        job = self.by_id.get(ask.text("id"))
        if self.expect(told, ask, is_ok=job is not None and job.state == DELAYED):
            assert job is not None
            job.state = READY
            job.is_plain = False

    def _movetodelayed(self, _: BunClient, ask: Ask, told: Reply) -> None:
        job = self.by_id.get(ask.text("id"))
        may = (
            job is not None and job.lock is not None and self._may_end(job, ask.fields.get("token"))
        )
        if self.expect(told, ask, is_ok=may):
            assert job is not None
            delay = ask.number("delay", 0)
            self.free(job)
            job.is_plain = False
            job.state = DELAYED if delay else READY
            job.due = self.now + delay

    def _changedelay(self, client: BunClient, ask: Ask, told: Reply) -> None:
        job = self.by_id.get(ask.text("id"))
        if job is not None and job.lock is not None:
            self._movetodelayed(client, ask, told)
            return
        if self.expect(told, ask, is_ok=job is not None and job.state in {READY, DELAYED}):
            assert job is not None
            delay = ask.number("delay", 0)
            job.is_plain = False
            job.state = DELAYED if delay else READY
            job.due = self.now + delay

    def _movetowait(self, client: BunClient, ask: Ask, told: Reply) -> None:
        job = self.by_id.get(ask.text("id"))
        if job is not None and job.state == DELAYED:
            self._promote(client, ask, told)
            return
        may = job is not None and job.state in {READY, DEAD}
        if job is not None and job.lock is not None:
            may = self._may_end(job, ask.fields.get("token"))
        if not self.expect(told, ask, is_ok=may):
            return
        assert job is not None
        if job.state == DEAD:
            self.revived(job)
        elif job.lock is not None:
            self.free(job)
            job.state = READY

    def _retrycompleted(self, _: BunClient, ask: Ask, told: Reply) -> None:
        self.expect(told, ask, is_ok=True)
        job = self.by_id.get(ask.text("id"))
        if job is not None and job.state == DONE and job.queue == ask.text("queue"):
            self.revived(job)

    def _drain(self, _: BunClient, ask: Ask, told: Reply) -> None:
        self.expect(told, ask, is_ok=True)
        for job in list(self.jobs.values()):
            if job.queue == ask.text("queue") and job.state == READY:
                self.remove(job)

    def _obliterate(self, _: BunClient, ask: Ask, told: Reply) -> None:
        self.expect(told, ask, is_ok=True)
        queue = ask.text("queue")
        for job in list(self.jobs.values()):
            if job.queue == queue:
                self.remove(job)
        self.paused.discard(queue)
        self.most_active.pop(queue, None)

    def _retrydlq(self, _: BunClient, ask: Ask, told: Reply) -> None:
        self.expect(told, ask, is_ok=True)
        if "jobId" not in ask.fields:
            queue = ask.text("queue")
            dead = [one for one in self.jobs.values() if one.queue == queue and one.state == DEAD]
            # Of those with one key any may get it, and only one.
            dead.sort(key=lambda one: not self._owns_key(one))
            for job in dead:
                self.revived(job)
            return
        named = self.by_id.get(ask.text("jobId"))
        if named is not None and named.state == DEAD and named.queue == ask.text("queue"):
            self.revived(named)

    def _owns_key(self, job: BunJob) -> bool:
        queue = self.yard.queues.get(job.queue)
        owner = None if queue is None or queue.keys is None else queue.keys.get(job.key)
        return owner is not None and int(owner.id) == job.number

    def _purgedlq(self, _: BunClient, ask: Ask, told: Reply) -> None:
        self.expect(told, ask, is_ok=True)
        for job in list(self.jobs.values()):
            if job.queue == ask.text("queue") and job.state == DEAD:
                self.remove(job)

    def _pause(self, _: BunClient, ask: Ask, told: Reply) -> None:
        self.expect(told, ask, is_ok=True)
        self.paused.add(ask.text("queue"))

    def _resume(self, _: BunClient, ask: Ask, told: Reply) -> None:
        self.expect(told, ask, is_ok=True)
        self.paused.discard(ask.text("queue"))

    def _setconcurrency(self, _: BunClient, ask: Ask, told: Reply) -> None:
        self.expect(told, ask, is_ok=True)
        self.most_active[ask.text("queue")] = ask.number("limit", 0)

    def _clearconcurrency(self, _: BunClient, ask: Ask, told: Reply) -> None:
        self.expect(told, ask, is_ok=True)
        self.most_active.pop(ask.text("queue"), None)

    def _jobheartbeat(self, _: BunClient, ask: Ask, told: Reply) -> None:
        job = self.by_id.get(ask.text("id"))
        lock = None if job is None else job.lock
        token = ask.fields.get("token")
        may = lock is not None and (token is None or token == lock.token)
        if not self.expect(told, ask, is_ok=may):
            return
        assert lock is not None
        if token is not None:
            lock.until = self.now + max(lock.ttl, lock.until - self.now)
            lock.is_renewed = True
        elif lock.token is None:
            lock.until = self.now + PLAIN_LOCK_MS

    def _extendlock(self, _: BunClient, ask: Ask, told: Reply) -> None:
        job = self.by_id.get(ask.text("id"))
        lock = None if job is None else job.lock
        token = ask.fields.get("token")
        may = lock is not None and lock.token is not None and token in {None, lock.token}
        if self.expect(told, ask, is_ok=may):
            assert lock is not None
            lock.until = self.now + ask.number("duration", 0)
            lock.is_renewed = True

    def _progress(self, _: BunClient, ask: Ask, told: Reply) -> None:
        job = self.by_id.get(ask.text("id"))
        if self.expect(told, ask, is_ok=job is not None and job.lock is not None):
            assert job is not None
            assert job.lock is not None
            if job.lock.token is None:
                job.lock.until = self.now + PLAIN_LOCK_MS

    def _getstate(self, _: BunClient, ask: Ask, told: Reply) -> None:
        job = self.by_id.get(ask.text("id"))
        word = "unknown" if job is None else WORDS[job.state]
        if told.get("state") not in {word, "prioritized" if word == "waiting" else word}:
            raise Violation("reply", f"{ask}: expected {word}, got {told}")

    def _getresult(self, _: BunClient, ask: Ask, told: Reply) -> None:
        job = self.by_id.get(ask.text("id"))
        result = job.result if job is not None and job.state == DONE else None
        if told.get("result") != result:
            raise Violation("result", f"{ask}: expected {result}, got {told}"[:1500])

    def _getjobcounts(self, _: BunClient, ask: Ask, told: Reply) -> None:
        counts = told["counts"]
        assert isinstance(counts, dict)
        for state, word in WORDS.items():
            jobs = self.jobs.values()
            expected = sum(1 for j in jobs if j.queue == ask.text("queue") and j.state == state)
            is_shown_apart = state == READY and ask.text("queue") in self.paused
            if counts["paused" if is_shown_apart else word] != expected:
                raise Violation("counters", f"{expected} jobs are {word}, got {counts}")


def _names(new_job: Reply, key: str) -> list[str]:
    names = new_job.get(key, [])
    assert isinstance(names, list)
    return names


def _is_ours(name: str) -> bool:
    """Return whether an id is one that the yard generates."""
    return len(name) == 36 and name[14] == "7"


def _mode(new_job: Reply) -> str:
    dedup = new_job.get("dedup", {})
    assert isinstance(dedup, dict)
    if dedup.get("replace"):
        return "replace"
    return "extend" if dedup.get("extend") and dedup.get("ttl") else "plain"


def _ttl(new_job: Reply) -> int:
    dedup = new_job["dedup"]
    assert isinstance(dedup, dict)
    return int(dedup["ttl"])
