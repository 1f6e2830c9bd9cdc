"""Add jobs to a queue with redis-py: one plain, one urgent, one delayed, one with a custom id.

    python examples/glidemq_producer.py [--url redis://127.0.0.1:6379] [--queue emails]

The keys and the seventeen arguments are those of the glide-mq wire protocol, so the same program
works with Jobyard and with a Valkey that has the glide-mq library loaded. It prints the job ids.
"""

import argparse
import json
import time
from typing import NamedTuple

import redis


class Options(NamedTuple):
    """Options of a job besides its name and its data."""

    delay_ms: int = 0
    priority: int = 0
    attempts: int = 0
    job_id: str = ""


PLAIN = Options()


def add(client: redis.Redis, queue: str, name: str, data: object, options: Options = PLAIN) -> str:
    """Add a job; return its id, or `duplicate` if a job with that id exists."""
    prefix = f"glide:{{{queue}}}"
    keys = [f"{prefix}:{key}" for key in ("id", "stream", "scheduled", "events")]
    now_ms = int(time.time() * 1000)
    job = [name, json.dumps(data), "{}", now_ms, options.delay_ms, options.priority]
    parent_id = ordering_key = ""
    group = [0, 0, 0, 0, 0, 0]  # concurrency, rate and its duration, bucket and its refill, cost
    ttl_ms = 0
    rest = [parent_id, options.attempts, ordering_key, *group, ttl_ms, options.job_id]
    return str(client.fcall("glidemq_addJob", len(keys), *keys, *job, *rest))


def main() -> None:
    """Add four jobs, and print how many are ready and how many are scheduled."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="redis://127.0.0.1:6379")
    parser.add_argument("--queue", default="emails")
    asked = parser.parse_args()
    client = redis.Redis.from_url(asked.url, decode_responses=True)
    day = time.strftime("%Y-%m-%d")
    ids = [
        add(client, asked.queue, "welcome", {"to": "ada@example.com"}, Options(attempts=3)),
        add(client, asked.queue, "password", {"to": "alan@example.com"}, Options(priority=1)),
        add(client, asked.queue, "reminder", {"to": "ada@example.com"}, Options(delay_ms=2_000)),
        add(client, asked.queue, "report", {"day": day}, Options(job_id=f"report-{day}")),
    ]
    print("added", *ids)
    prefix = f"glide:{{{asked.queue}}}"
    print("ready", client.xlen(f"{prefix}:stream"), "later", client.zcard(f"{prefix}:scheduled"))


if __name__ == "__main__":
    main()
