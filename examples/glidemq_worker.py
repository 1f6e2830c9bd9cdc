"""Works off a queue with redis-py: takes jobs one by one, runs them, and tells how each ended.

    python examples/glidemq_worker.py [--url redis://127.0.0.1:6379] [--queue emails] [--jobs 4]

A job comes from one of two places: those with a priority lie in the list `priority` once they are
due, all others in the stream. It is activated, run, and completed or failed; a failed one comes
back until its attempts are used up. With --jobs the worker ends after so many. Left out here: a
parent learns of its children through four more keys of `complete`.
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
            # From 0 on: jobs that were added before there was a worker are delivered too.
            client.xgroup_create(self._key("stream"), GROUP, id="0", mkstream=True)
        except ResponseError as error:
            if not str(error).startswith("BUSYGROUP"):
                raise

    def work(self) -> bool:
        """Take one job and run it; say whether there was one."""
        self._call("promote", ["scheduled", "stream", "events"], _now_ms())
        taken = self._take_urgent() or self._take_next()
        if taken is None:
            return False
        job_id, entry = taken
        fields = self._call(
            "moveToActive", [f"job:{job_id}", "stream"], _now_ms(), entry, GROUP, job_id
        )
        if not isinstance(fields, list):
            print(job_id, "not run:", fields or "it is gone")
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
    """Stand for real work: any ValueError, LookupError or OSError is a failed attempt."""
    print(job["id"], "is", job["name"], job["data"])
    return "sent"


def main() -> None:
    """Work until the jobs that were asked for are done."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="redis://127.0.0.1:6379")
    parser.add_argument("--queue", default="emails")
    parser.add_argument("--jobs", type=int, help="end after so many")
    asked = parser.parse_args()
    client = redis.Redis.from_url(asked.url, decode_responses=True)
    worker = Worker(client, asked.queue, send)
    done = 0
    while asked.jobs is None or done < asked.jobs:
        done += worker.work()


if __name__ == "__main__":
    main()
