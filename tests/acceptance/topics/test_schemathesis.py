"""A server checked against its own description, which is all that the checker reads.

schemathesis generates valid and invalid calls from the document, and checks the answers: no
server errors, no status or type or body that is not described, wrong methods refused, invalid data
refused, valid data accepted. Calls go to generated names, to a queue and to a log. Of
bunqueue's own API much less is described, and checked.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.servers.http import HttpYard, Topics

pytestmark = pytest.mark.skipif(
    find_spec("schemathesis") is None, reason="schemathesis is not installed"
)

EXAMPLES = 5
RUN_S = 900

# A call that waits for records is right, but there are too many of them to wait for.
HOOKS = """
import schemathesis

@schemathesis.hook
def before_call(context, case, kwargs):
    body = case.body
    if isinstance(body, dict) and isinstance(body.get("wait_ms"), int) and body["wait_ms"] > 1:
        body["wait_ms"] = 1
    query = case.query or {}
    wait = str(query.get("wait_ms", ""))
    if wait.isdecimal() and int(wait) > 1:
        query["wait_ms"] = 1
"""
# TRACE is not among them: it is refused when the request is parsed, as an unknown method.
METHODS = """
[phases.coverage]
unexpected-methods = ["GET", "PUT", "POST", "DELETE", "PATCH"]
"""
# As many lease_ids as there are seqs, a range and columns that are there, no unknown field with
# "strict": no schema can say that.
KNOWN = """
[parameters]
"path.topic" = "known"

[[operations]]
include-path-regex = "/(ack|nack|dead-letter|extend|export|redrive)$|/claims/"
checks.positive_data_acceptance.enabled = false
"""
# They have no end to be judged by.
STREAMS = "/work$|/watch/|^/(events|ws)|/wait$"
# Fields of jobs are not checked where a record is written to a log.
LENIENT = """
[[operations]]
include-operation-id = "post_v0_topics_topic"
checks.negative_data_rejection.enabled = false
"""


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[HttpYard]:
    server = HttpYard("--data", str(tmp_path / "data"))
    yield server
    server.close()


def judge(yard: HttpYard, folder: Path, config: str, *flags: str) -> None:
    """Run schemathesis against the server; fail with its findings."""
    (folder / "impatience.py").write_text(HOOKS, encoding="utf-8")
    (folder / "st.toml").write_text(METHODS + config, encoding="utf-8")
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", "st.toml", "run"]
    command += [f"{yard.url}/openapi.json", "--exclude-path-regex", STREAMS, *flags]
    command += ["--phases", "coverage,fuzzing", "--max-examples", str(EXAMPLES), "--seed", "1"]
    said = subprocess.run(
        [*command, "--continue-on-failure", "--no-color", "--warnings", "off"],
        cwd=folder,
        env={**os.environ, "SCHEMATHESIS_HOOKS": "impatience", "PYTHONPATH": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=RUN_S,
        check=False,
    )
    assert said.returncode == 0, said.stdout.decode("utf-8", "replace")[-20_000:]
    with closing(Topics(yard.address)) as caller:
        assert caller.ask("GET", "/v0/health")[0] == 200


def test_topics_of_any_name(yard: HttpYard, tmp_path: Path) -> None:
    # Valid data may still meet a full topic, a foreign cursor, a topic that is its own dead letter.
    flags = ("--include-path-regex", "^/(v0/|openapi)", "--exclude-checks")
    judge(yard, tmp_path, LENIENT, *flags, "positive_data_acceptance")


@pytest.mark.parametrize("kind", ["queue", "log"])
def test_a_topic_that_is_there(yard: HttpYard, tmp_path: Path, kind: str) -> None:
    config = {"type": kind, "max_deliveries": 2, "dead_letter": "dead"}
    records = [{"data": at, "tag": f"t:{at}", "node": "n", "meta": {}} for at in range(9)]
    with closing(Topics(yard.address)) as caller:
        assert caller.ask("PUT", "/v0/topics/known", config)[0] == 201
        assert caller.ask("POST", "/v0/topics/known", {"records": records})[0] == 200
    flags = ["--include-path-regex", r"^/v0/topics/\{topic\}"]
    for method in ("PUT", "DELETE"):
        flags += ["--exclude-method", method]
    judge(yard, tmp_path, KNOWN if kind == "queue" else KNOWN + LENIENT, *flags)


def test_bunqueues_own_api(yard: HttpYard, tmp_path: Path) -> None:
    # Little is described of its bodies, so that valid and invalid ones cannot be distinguished.
    unknown = "negative_data_rejection,positive_data_acceptance"
    judge(yard, tmp_path, "", "--include-tag", "bunqueue", "--exclude-checks", unknown)
