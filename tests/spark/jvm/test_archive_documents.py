"""The Python blocks of docs/archive.md, run as written, in order, in one program."""

import re
import runpy
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.servers.http import HttpYard, Topics

ROOT = Path(__file__).parents[3]


@pytest.mark.usefixtures("spark")
def test_the_blocks_of_the_page_run(
    yard: HttpYard, tmp_path: Path, capsys: pytest.CaptureFixture[str], spark: SparkSession
) -> None:
    topics = Topics(yard.address)
    for name in ("orders", "orders.again"):
        assert topics.ask("PUT", f"/v0/topics/{name}", {})[0] in (200, 201)
    records = [{"data": {"order": at}, "tag": f"u{at % 2}"} for at in range(10)]
    assert topics.ask("POST", "/v0/topics/orders", {"records": records})[0] < 300
    text = (ROOT / "docs" / "archive.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 4
    program = "\n".join(blocks).replace("http://127.0.0.1:6790", yard.url)
    program = program.replace('"archive/', f'"{tmp_path}/archive/').replace(
        '"archive"', f'"{tmp_path}/archive"'
    )
    (tmp_path / "page.py").write_text(program)
    runpy.run_path(str(tmp_path / "page.py"), run_name="__main__")
    assert "10 rows" in capsys.readouterr().out
    assert topics.ask("GET", "/v0/topics/orders.again")[1]["count"] == 10
    topics.close()
    assert spark.read.parquet(str(tmp_path / "archive")).count() >= 10
