"""Process a queue with redis-py: take jobs one by one, run them, and print how each ended.

    python examples/glidemq_worker.py [--url redis://127.0.0.1:6379] [--queue emails] [--jobs 4]

Jobs come from two places: those with a priority from the list `priority` once they are due, all
others from the stream. A job is activated, run, and completed or failed; a failed job is retried
until its attempts are used up. With --jobs N the worker ends after N jobs. Not shown here: four
more keys of `complete` that report the end of a child job to its parent.
"""

import argparse
import json
import time
import uuid
from collections.abc import Callable

import redis
from redis.exceptions import ResponseError

GROUP = "workers"
BLOCK_MS = 1_000
BACKOFF_MS = 500
KEEP = ("0", "0", "0")  # finished jobs stay: mode, count, age

Job = dict[str, str]


class Worker:
    """One consumer of one queue."""

    def __init__(self, client: redis.Redis, queue: str, run: Callable[[Job], object]) -> None:
        self._client = client
        self._prefix = f"glide:{{{queue}}}"
        self._run = run
        self._name = f"worker-{uuid.uuid4()}"
        try:
            # Start at 0, so that jobs added before the first worker are delivered too.
            client.xgroup_create(self._key("stream"), GROUP, id="0", mkstream=True)
        except ResponseError as error:
            if not str(error).startswith("BUSYGROUP"):
                raise

    def work(self) -> bool:
        """Take one job and run it; return whether there was one."""
        self._call("promote", ["scheduled", "stream", "events"], _now_ms())
        taken = self._take_urgent() or self._take_next()
        if taken is None:
            return False
        job_id, entry = taken
        fields = self._call(
            "moveToActive", [f"job:{job_id}", "stream"], _now_ms(), entry, GROUP, job_id
        )
        if not isinstance(fields, list):
            print(job_id, "not run:", fields or "job no longer exists")
            return True
        self._finish(dict(zip(fields[::2], fields[1::2], strict=True)), entry)
        return True

    def _take_urgent(self) -> tuple[str, str] | None:
        keys = ["meta", "stream", "list-active", "priority"]
        ids = self._call("rpopAndReserve", keys, GROUP, 1)
        return (ids[0], "") if isinstance(ids, list) and ids else None

    def _take_next(self) -> tuple[str, str] | None:
        stream = self._key("stream")
        found: object = self._client.xreadgroup(
            GROUP, self._name, {stream: ">"}, count=1, block=BLOCK_MS
        )
        match found:
            case [[_, [(entry, {"jobId": job_id})]]]:
                return str(job_id), str(entry)
        return None

    def _finish(self, job: Job, entry: str) -> None:
        job_id, own = job["id"], f"job:{job['id']}"
        try:
            value = json.dumps(self._run(job))
        except (ValueError, LookupError, OSError) as error:
            keys = ["stream", "failed", "scheduled", "events", own, "metrics:failed"]
            ends = (job_id, entry, str(error), _now_ms(), job["maxAttempts"], BACKOFF_MS)
            print(job_id, self._call("fail", keys, *ends, GROUP, *KEEP))
        else:
            keys = ["stream", "completed", "events", own, "metrics:completed"]
            self._call("complete", keys, job_id, entry, value, _now_ms(), GROUP, *KEEP, "", "")
            print(job_id, "completed")

    def _key(self, name: str) -> str:
        return f"{self._prefix}:{name}"

    def _call(self, function: str, names: list[str], *words: str | int) -> object:
        keys = [self._key(name) for name in names]
        return self._client.fcall(f"glidemq_{function}", len(keys), *keys, *words)


def _now_ms() -> int:
    return int(time.time() * 1000)


def send(job: Job) -> str:
    """Stand in for real work: a ValueError, LookupError or OSError is a failed attempt."""
    print(job["id"], "is", job["name"], job["data"])
    return "sent"


def main() -> None:
    """Work until the requested number of jobs is done."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="redis://127.0.0.1:6379")
    parser.add_argument("--queue", default="emails")
    parser.add_argument("--jobs", type=int, help="end after this many jobs")
    asked = parser.parse_args()
    client = redis.Redis.from_url(asked.url, decode_responses=True)
    worker = Worker(client, asked.queue, send)
    done = 0
    while asked.jobs is None or done < asked.jobs:
        done += worker.work()


if __name__ == "__main__":
    main()
