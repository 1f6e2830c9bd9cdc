"""The commands of bunqueue clients in a run, and the options and commands a seed prefers.

Draws from a separate generator, so that runs without bunqueue clients keep their meaning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jobyard.model.job import DEAD, DELAYED, DONE, LEASED, READY
from sim.bunqueue.nouns import Ask, BunClient, BunJob, Reply

if TYPE_CHECKING:
    from random import Random

    from sim.bunqueue.model import BunModel

_COMMANDS: Final = (
    ("PUSH", 14.0),
    ("PUSHB", 3.0),
    ("PULL", 12.0),
    ("PULLB", 3.0),
    ("ACK", 9.0),
    ("ACKB", 1.5),
    ("FAIL", 5.0),
    ("Cancel", 0.7),
    ("Discard", 0.5),
    ("Update", 1.5),
    ("ChangePriority", 0.7),
    ("Promote", 0.7),
    ("MoveToDelayed", 0.7),
    ("MoveToWait", 0.7),
    ("ChangeDelay", 0.7),
    ("RetryCompleted", 0.3),
    ("Drain", 0.1),
    ("Obliterate", 0.05),
    ("RetryDlq", 0.8),
    ("PurgeDlq", 0.2),
    ("Pause", 0.3),
    ("Resume", 0.6),
    ("SetConcurrency", 0.2),
    ("ClearConcurrency", 0.3),
    ("JobHeartbeat", 0.7),
    ("ExtendLock", 0.4),
    ("Progress", 0.7),
    ("GetState", 1.0),
    ("GetResult", 0.7),
    ("GetJobCounts", 0.3),
)
_ALWAYS: Final = ("PUSH", "PULL", "ACK")
_LONG: Final = (4090, 4093, 4096, 9000, 19_000)
# Commands on a job are mostly sent for jobs in a state that allows them.
_FITTING: Final = {
    "Cancel": (READY, DELAYED),
    "Promote": (DELAYED,),
    "ChangePriority": (READY, DELAYED),
    "GetResult": (DONE,),
    "RetryDlq": (DEAD,),
    "RetryCompleted": (DONE,),
    "ChangeDelay": (READY, DELAYED),
    "MoveToWait": (DELAYED, DEAD),
    "Update": (READY, DELAYED, LEASED),
    "Progress": (LEASED,),
}
_OF_HOLDER: Final = frozenset(
    {"ACK", "FAIL", "JobHeartbeat", "ExtendLock", "MoveToDelayed", "Discard"}
)
_WITH_TOKEN: Final = _OF_HOLDER | {"ChangeDelay", "MoveToWait"}
# Commands that name only a queue.
_OF_QUEUE: Final[dict[str, Reply]] = {
    "Pause": {},
    "Resume": {},
    "SetConcurrency": {"limit": 1},
    "ClearConcurrency": {},
    "GetJobCounts": {},
    "Drain": {},
    "Obliterate": {},
    "PurgeDlq": {},
}
_DEDUPS: Final[tuple[Reply, ...]] = (
    {},
    {},
    {"ttl": 500},
    {"replace": True},
    {"ttl": 800, "extend": True},
)


class BunSwarm:
    """The choices of one seed for its bunqueue clients."""

    def __init__(self, rng: Random) -> None:
        pick = rng.choice
        self.queues = [f"q:{i}" for i in range(pick((1, 2, 3)))]
        self.clients_max = pick((1, 2, 4))
        self.commands: list[str] = []
        self._totals: list[float] = []
        total = 0.0
        for name, weight in _COMMANDS:
            if name not in _ALWAYS and rng.random() < 0.25:
                continue
            total += weight * (0.3 + 2 * rng.random())
            self.commands.append(name)
            self._totals.append(total)
        self.locks = pick(((30_000,), (40, 300, 2000), (300, 30_000)))
        self.owned_odds = pick((0.0, 0.5, 1.0))
        self.delays = pick(((0,), (0, 0, 0, 60, 900), (0, 5000)))
        self.backoffs = pick(((0, 50), (1000,), (0, {"type": "fixed", "delay": 200})))
        self.attempts = pick(((3,), (1, 2, 3), (1, 5)))
        self.option_odds = pick((0.05, 0.2, 0.5))
        self.priorities = pick(((0,), (0, 0, 5), (-1, 0, 1, 7)))
        self.customs = [f"c{i}" for i in range(pick((2, 6)))]
        self.keys = [f"k{i}" for i in range(pick((1, 3)))]
        self.long_odds = pick((0.0, 0.05, 0.25))
        self.small_max = pick((10, 300))
        self.jobs_aimed = pick((4, 12, 30))
        self.groups: tuple[str, ...] = pick(((), (), ("g1", "g2", "g3")))

    def draw(self, rng: Random) -> str:
        """Draw a command."""
        mark = rng.random() * self._totals[-1]
        for name, total in zip(self.commands, self._totals, strict=True):
            if mark < total:
                return name
        return self.commands[-1]


class BunAuthor:
    """Writes the commands of clients."""

    def __init__(self, rng: Random, swarm: BunSwarm) -> None:
        self._rng = rng
        self._swarm = swarm
        self._datas_count = 0

    def write(self, model: BunModel, client: BunClient) -> Ask:
        """Return one command."""
        name = self._swarm.draw(self._rng)
        if name.startswith("PUSH") and len(model.jobs) > self._swarm.jobs_aimed:
            name = self._rng.choice(("PULL", "ACK", "ACK", name))
        return self.command(name, model, client)

    def command(self, name: str, model: BunModel, client: BunClient) -> Ask:
        """Return a command of a given name."""
        rng = self._rng
        queue = rng.choice(self._swarm.queues)
        if name.startswith("PUSH"):
            new_job = self._new_job(model) if name == "PUSH" else {"jobs": self._new_jobs(model)}
            return Ask(name, {"queue": queue, **new_job})
        if name in {"PULL", "PULLB"}:
            return Ask(name, self._pull(name, queue))
        if name in _OF_QUEUE or (name == "RetryDlq" and rng.random() < 0.4):
            return Ask(name, {"queue": queue, **_OF_QUEUE.get(name, {})})
        if name == "ACKB":
            return self._ack_many(model, client)
        job = self._job(name, model, client)
        if name.startswith("Retry"):
            key = "jobId" if name == "RetryDlq" else "id"
            return Ask(name, {"queue": queue if job is None else job.queue, key: _id(job)})
        return Ask(name, self._with_job(name, job, client))

    def _new_jobs(self, model: BunModel) -> list[Reply]:
        new_jobs = [self._new_job(model) for _ in range(1 + int(self._rng.random() * 4))]
        names = [new_job.get("jobId") for new_job in new_jobs]
        for new_job in new_jobs:
            if any(name in names for name in _texts(new_job.get("dependsOn", []))):
                # No answer shows which of two jobs of that name it means.
                del new_job["dependsOn"]
        return new_jobs

    def _pull(self, name: str, queue: str) -> Reply:
        rng = self._rng
        fields: Reply = {"queue": queue}
        if name == "PULLB":
            fields["count"] = 1 + int(rng.random() * 4)
        if rng.random() < 0.3:
            fields["timeout"] = rng.choice((5, 200, 3000))
        if rng.random() < self._swarm.owned_odds:
            fields["owner"] = "worker"
            fields["lockTtl"] = rng.choice(self._swarm.locks)
        return fields

    def _job(self, name: str, model: BunModel, client: BunClient) -> BunJob | None:
        rng = self._rng
        jobs = list(model.jobs.values())
        if not jobs:
            return None
        chance = rng.random()
        if name in _OF_HOLDER:
            held = [job for job in jobs if job.lock is not None and job.lock.client is client]
            known = [job for job in jobs if job.id in client.tokens]
            if held and chance < 0.75:
                return rng.choice(held)
            if known and chance < 0.9:
                return rng.choice(known)
        fitting = [job for job in jobs if job.state in _FITTING.get(name, ())]
        if fitting and chance < 0.8:
            return rng.choice(fitting)
        if model.gone and chance > 0.97:
            return rng.choice(list(model.gone.values()))
        return rng.choice(jobs)

    def _token(self, job: BunJob, client: BunClient) -> str | None:
        lock = job.lock
        chance = self._rng.random()
        if chance < 0.04:
            return None
        if chance < 0.1 and lock is not None and lock.token is not None:
            return lock.token
        return client.tokens.get(job.id)

    def _with_job(self, name: str, job: BunJob | None, client: BunClient) -> Reply:
        rng = self._rng
        fields: Reply = {"id": _id(job)}
        token = None if job is None else self._token(job, client)
        if token is not None and name in _WITH_TOKEN:
            fields["token"] = token
        if name == "ACK" and rng.random() < 0.6:
            fields["result"] = self._data()
        elif name == "FAIL":
            fields["error"] = "no" * int(rng.random() * 30)
            if rng.random() < 0.1:
                fields["unrecoverable"] = True
        elif name == "Update":
            fields["data"] = self._data()
        elif name == "ChangePriority":
            fields["priority"] = rng.choice((*self._swarm.priorities, 3))
        elif name in {"MoveToDelayed", "ChangeDelay"}:
            fields["delay"] = rng.choice(self._swarm.delays)
        elif name == "ExtendLock":
            fields["duration"] = rng.choice((50, 1500))
        elif name == "Progress":
            fields["progress"] = int(rng.random() * 100)
            fields["message"] = "m" * int(rng.random() * 20)
        return fields

    def _ack_many(self, model: BunModel, client: BunClient) -> Ask:
        # None that may be given to another client while the others end.
        held = [
            job for job in model.jobs.values() if job.lock is not None and job.lock.client is client
        ]
        chosen = held[:4]
        fields: Reply = {
            "ids": [job.id for job in chosen],
            "results": [self._data() for _ in chosen],
            "tokens": [client.tokens.get(job.id, "") for job in chosen],
        }
        return Ask("ACKB", fields)

    # -- jobs --------------------------------------------------------------------------------------

    def _new_job(self, model: BunModel) -> Reply:
        rng = self._rng
        swarm = self._swarm
        new_job: Reply = {"data": self._data()}
        odds = swarm.option_odds
        if rng.random() < 0.5:
            return new_job
        for key, choices in (
            ("delay", swarm.delays),
            ("priority", swarm.priorities),
            ("maxAttempts", swarm.attempts),
            ("backoff", swarm.backoffs),
        ):
            new_job[key] = rng.choice(choices)
        for key, share, rare in (
            ("removeOnComplete", 1.0, (True,)),
            ("removeOnFail", 1.0, (True,)),
            ("lifo", 0.5, (True,)),
            ("timeout", 0.5, (30, 700)),
            ("ttl", 0.5, (100, 4000)),
            ("jobId", 1.0, tuple(swarm.customs)),
        ):
            if rng.random() < odds * share:
                new_job[key] = rng.choice(rare)
        if rng.random() < odds:
            new_job["uniqueKey"] = rng.choice(swarm.keys)
            dedup = rng.choice(_DEDUPS)
            if dedup:
                new_job["dedup"] = dedup
        if self._swarm.groups and rng.random() < 0.4:
            new_job["groupId"] = rng.choice(swarm.groups)
            # A group has no priorities below zero.
            new_job["priority"] = max(0, int(str(new_job["priority"])))
        if rng.random() < odds and model.jobs:
            others = [one.id for one in rng.choices(list(model.jobs.values()), k=2)]
            new_job["dependsOn"] = list(dict.fromkeys(others))
        return new_job

    def _data(self) -> object:
        rng = self._rng
        self._datas_count += 1
        size = int(rng.random() * rng.random() * self._swarm.small_max)
        if rng.random() < self._swarm.long_odds:
            size = rng.choice(_LONG)
        return {"n": self._datas_count, "fill": "x" * size}


def _id(job: BunJob | None) -> str:
    return "nobody" if job is None else job.id


def _texts(value: object) -> list[str]:
    assert isinstance(value, list)
    return value
