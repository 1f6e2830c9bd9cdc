"""The programs in examples/spark, run as a user runs them."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

from tests.support.servers.http import HttpYard, Topics

EXAMPLES = Path(__file__).parents[3] / "examples" / "spark"
RUN_S = 600


def test_a_job_for_kafka_is_moved_by_two_lines(yard: HttpYard, tmp_path: Path) -> None:
    topics = Topics(yard.address)
    records = [
        {"data": {"page": f"/{at % 2}", "ms": at}, "tag": f"u{at % 3}"} for at in range(30)
    ]  # fmt: skip
    assert topics.ask("POST", "/v0/topics/moved", {"records": records})[0] < 300
    topics.close()
    program = EXAMPLES / "kafka_job.py"
    # Without its docstring and comments: the format and the url are all that is not Kafka's.
    code = ast.parse(program.read_text())
    text = ast.unparse(ast.Module(code.body[1:], []))
    assert (text.count("jobyard"), text.count("'url'")) == (1, 1)
    assert program.read_text().count("# with Kafka:") == 2
    done = subprocess.run(
        [sys.executable, str(program), yard.url, "moved", str(tmp_path)],
        capture_output=True, text=True, timeout=RUN_S, check=False,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    rows = [
        json.loads(line)
        for file in (tmp_path / "views").glob("*.json")
        for line in file.read_text().splitlines()
    ]
    found: dict[str, dict[str, int]] = {}
    # The records may lie in two minutes.
    for row in rows:
        page = found.setdefault(row["page"], {"views": 0, "slowest_ms": 0, "users": 0})
        page["views"] += row["views"]
        page["slowest_ms"] = max(page["slowest_ms"], row["slowest_ms"])
        page["users"] = max(page["users"], row["users"])
    assert found == {
        "/0": {"views": 15, "slowest_ms": 28, "users": 3},
        "/1": {"views": 15, "slowest_ms": 29, "users": 3},
    }
