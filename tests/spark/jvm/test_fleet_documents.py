"""The Python blocks of docs/fleet.md, run as written, in order, in one program."""

import re
import runpy
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.clients.spark_fleet import counts, make_queue
from tests.support.servers.http import HttpYard, Topics

ROOT = Path(__file__).parents[3]


@pytest.mark.usefixtures("spark")
def test_the_blocks_of_the_page_run(
    yard: HttpYard,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    spark: SparkSession,
) -> None:
    topics = Topics(yard.address)
    make_queue(topics, "mails", 0)
    assert topics.ask("PUT", "/v0/topics/sent", {})[0] in (200, 201)
    names = ["a@example.org", "nobody", "b@busy.example"]
    records = [{"data": {"to": name}} for name in names]
    assert topics.ask("POST", "/v0/topics/mails", {"records": records})[0] == 200
    text = (ROOT / "docs" / "fleet.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 3
    program = "\n".join(blocks).replace("http://127.0.0.1:6790", yard.url)
    program = program.replace('"lake/', f'"{tmp_path}/lake/')
    (tmp_path / "page.py").write_text(program)
    runpy.run_path(str(tmp_path / "page.py"), run_name="__main__")
    assert '"claimed": 3' in capsys.readouterr().out
    assert topics.ask("GET", "/v0/topics/sent")[1]["count"] == 1
    assert counts(topics, "mails") == (0, 0, 1)
    topics.close()
    assert spark.version
