"""The life of a job queue as in its guide, every command run as written there."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.servers.http import HttpYard

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")

CURSOR_QUEUE = r"""
curl -X PUT $TOPICS/v0/topics/transcode \
-H 'content-type: application/json' \
-d '{ "durable": true, "cap_records": 0, "ttl_ms": 0 }'
"""
PRODUCE = r"""
curl -X POST $TOPICS/v0/topics/transcode \
-H 'content-type: application/json' \
-d '{ "records": [
{ "data": { "src": "s3://uploads/clip-9001.mov", "preset": "1080p" }, "tag": "tenant42:clip-9001" },
{ "data": { "src": "s3://uploads/clip-9002.mov", "preset": "720p" }, "tag": "tenant42:clip-9002" }
] }'
"""
CONSUME = r"""
curl -X POST $TOPICS/v0/topics/transcode/diff \
-H 'content-type: application/json' \
-d '{ "from_seq": 0, "limit": 50, "node": "transcode-1" }'
"""
CANCEL = r"""
# Cancel one job by exact tag match.
curl -X POST $TOPICS/v0/topics/transcode/delete \
-H 'content-type: application/json' \
-d '{ "match": ["tag", "Eq", "tenant42:clip-9001"] }'
"""
COMPACT = r"""
curl -X POST $TOPICS/v0/topics/transcode/delete -d '{ "before_seq": 480000 }'
"""
LEASE_QUEUE = r"""
curl -X PUT $TOPICS/v0/topics/transcode \
-H 'content-type: application/json' \
-d '{ "type": "queue", "durable": true, "discard": "reject",
"lease_ms": 30000, "claim_jitter_ms": 0,
"max_deliveries": 5, "dead_letter": "transcode.dlq" }'
"""
CLAIM = r"""
curl -X POST $TOPICS/v0/topics/transcode/claim \
-H 'content-type: application/json' \
-d '{ "node": "transcode-1", "max": 8, "lease_ms": 30000 }'
"""
ACK = r"""
curl -X POST $TOPICS/v0/topics/transcode/ack \
-H 'content-type: application/json' \
-d '{ "node": "transcode-1", "seqs": [1] }'
"""
NACK = r"""
# Nack: release a job back to the queue, optionally delayed (backoff).
curl -X POST $TOPICS/v0/topics/transcode/nack \
-d '{ "node": "transcode-1", "seqs": [2], "delay_ms": 5000 }'
"""
EXTEND = r"""
# Extend: heartbeat a long-running job to push its deadline out.
curl -X POST $TOPICS/v0/topics/transcode/extend \
-d '{ "node": "transcode-1", "seqs": [3], "lease_ms": 30000 }'
"""
DEAD_LETTERS = r"""
curl -X POST $TOPICS/v0/topics/transcode.dlq/diff -d '{ "from_seq": 0, "include_meta": true }'
"""
WORK = r"""
curl -N "$TOPICS/v0/topics/transcode/work?node=transcode-1&max=8" \
-H 'accept: text/event-stream'
"""
CLIP_1 = {"src": "s3://uploads/clip-9001.mov", "preset": "1080p"}
CLIP_2 = {"src": "s3://uploads/clip-9002.mov", "preset": "720p"}


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[HttpYard]:
    server = HttpYard("--data", str(tmp_path / "data"))
    yield server
    server.close()


def type_in(yard: HttpYard, command: str) -> Any:
    """Run a command in a shell; return the JSON it printed."""
    said = subprocess.run(
        ["bash", "-c", command],
        env={**os.environ, "TOPICS": yard.url},
        capture_output=True,
        timeout=30,
        check=True,
    )
    return json.loads(said.stdout)


def test_the_cursor_queue(yard: HttpYard) -> None:
    made = type_in(yard, CURSOR_QUEUE)
    assert (made["topic"], made["created"]) == ("transcode", True)
    wanted = {
        "ttl_ms": 0,
        "cap_records": 0,
        "cap_bytes": 0,
        "discard": "old",
        "durable": True,
        "durability": "fsync",
        "auto_create": True,
        "idempotency_window_ms": 120000,
        "dedupe_node": True,
    }
    assert made["config"] | wanted == made["config"]
    assert made["performance"]["server_total_ms"] >= 0
    written = type_in(yard, PRODUCE)
    assert written.pop("performance")["fsync_ms"] > 0
    assert written == {
        "topic": "transcode",
        "first_seq": 1,
        "last_seq": 2,
        "seqs": [1, 2],
        "head_seq": 2,
        "count": 2,
        "created": False,
        "deduped": False,
    }
    page = type_in(yard, CONSUME)
    records = page.pop("records")
    assert page.pop("performance")["server_total_ms"] >= 0
    assert page == {
        "topic": "transcode",
        "next_from_seq": 2,
        "head_seq": 2,
        "earliest_seq": 1,
        "caught_up": True,
        "tombstone": None,
        "lag": 0,
    }
    assert [one["data"] for one in records] == [CLIP_1, CLIP_2]
    assert [set(one) for one in records] == [{"$seq", "$ts", "data"}] * 2
    gone = type_in(yard, CANCEL)
    assert (gone["deleted"], gone["earliest_seq"], gone["head_seq"], gone["count"]) == (1, 2, 2, 1)
    assert type_in(yard, COMPACT)["deleted"] == 1
    page = type_in(yard, CONSUME)
    assert (page["records"], page["next_from_seq"], page["caught_up"]) == ([], 2, True)
    assert page["tombstone"] is None


def test_the_lease_queue(yard: HttpYard) -> None:
    made = type_in(yard, LEASE_QUEUE)
    wanted = {
        "type": "queue",
        "durable": True,
        "durability": "fsync",
        "discard": "reject",
        "lease_ms": 30000,
        "claim_jitter_ms": 0,
        "max_deliveries": 5,
        "dead_letter": "transcode.dlq",
        "leases_durable": False,
    }
    assert made["created"]
    assert made["config"] | wanted == made["config"]
    type_in(yard, PRODUCE)
    type_in(yard, PRODUCE)
    claimed = type_in(yard, CLAIM)
    assert (claimed["count"], claimed["ready"]) == (4, 0)
    first = claimed["claimed"][0]
    assert (first["$seq"], first["$tag"], first["deliveries"]) == (1, "tenant42:clip-9001", 1)
    assert first["lease_id"].startswith("lease_")
    assert first["deadline"] >= first["$ts"] + 30000
    assert first["data"] == CLIP_1
    acked = type_in(yard, ACK)
    assert acked.pop("performance")["fsync_ms"] > 0
    assert acked == {
        "topic": "transcode",
        "acked": 1,
        "skipped": [],
        "ready": 0,
        "in_flight": 3,
    }
    assert type_in(yard, ACK)["skipped"] == [1]
    nacked = type_in(yard, NACK)
    assert (nacked["nacked"], nacked["ready"], nacked["in_flight"]) == (1, 0, 2)
    extended = type_in(yard, EXTEND)
    assert (extended["extended"], list(extended["deadlines"])) == (1, ["3"])


def test_flipping_the_type_is_refused(yard: HttpYard) -> None:
    type_in(yard, CURSOR_QUEUE)
    assert type_in(yard, LEASE_QUEUE)["error"]["code"] == "topic_exists_incompatible"
    assert type_in(yard, CLAIM)["error"]["code"] == "not_a_queue"


def test_dead_letters_are_read_as_any_topic(yard: HttpYard) -> None:
    poor = LEASE_QUEUE.replace('"max_deliveries": 5', '"max_deliveries": 1')
    type_in(yard, poor)
    type_in(yard, PRODUCE)
    type_in(yard, CLAIM)
    back = NACK.replace("[2]", "[1, 2]").replace("5000", "0")
    assert type_in(yard, back)["nacked"] == 2
    assert type_in(yard, CLAIM)["count"] == 0
    records = type_in(yard, DEAD_LETTERS)["records"]
    assert [one["data"] for one in records] == [CLIP_1, CLIP_2]
    assert records[0]["meta"]["$dead_letter_from"] == "transcode"
    assert records[1]["meta"]["$dead_letter_src_seq"] == "2"


def test_jobs_are_pushed_to_a_stream_and_come_back_when_it_ends(yard: HttpYard) -> None:
    type_in(yard, LEASE_QUEUE)
    type_in(yard, PRODUCE)
    stream = subprocess.Popen(
        ["bash", "-c", "exec " + WORK.strip()],
        env={**os.environ, "TOPICS": yard.url},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert stream.stdout is not None
    try:
        lines: list[bytes] = []
        while sum(line.startswith(b"data:") for line in lines) < 2:
            lines.append(stream.stdout.readline())
        assert lines[0] == b"retry: 2000\n"
        assert lines[2:4] == [b"id: 1\n", b"event: job\n"]
        job = json.loads(lines[4].removeprefix(b"data:"))
        assert (job["topic"], job["$seq"], job["deliveries"]) == ("transcode", 1, 1)
        assert type_in(yard, CLAIM)["count"] == 0
    finally:
        stream.kill()
        stream.wait()
        stream.stdout.close()
    # Given back at once; how soon the server sees the end of the stream is the kernel's affair.
    seqs: list[int] = []
    while len(seqs) < 2:
        claimed = type_in(yard, CLAIM)["claimed"]
        assert all(one["deliveries"] == 2 for one in claimed)
        seqs += [one["$seq"] for one in claimed]
    assert sorted(seqs) == [1, 2]
