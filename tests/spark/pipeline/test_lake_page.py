"""The page about lakes and the schemas say the same."""

from pathlib import Path

import pytest

from jobyard.lake.schemas import TABLES
from jobyard.spark.pipeline.objectives import read_objectives
from tests.support.lake.columns import lines_of

PAGE = Path("docs/lake.md")


@pytest.mark.parametrize("name", TABLES)
def test_every_column_is_on_the_page(name: str) -> None:
    wanted = "\n".join(lines_of(TABLES[name]))
    assert f"{wanted}\n" in PAGE.read_text() + "\n", f"python -m {lines_of.__module__} prints it"


def test_the_objectives_of_the_page_can_be_read(tmp_path: Path) -> None:
    text = PAGE.read_text().split("```toml\n")[1].split("```")[0]
    path = tmp_path / "slo.toml"
    path.write_text(text)
    assert [each.name for each in read_objectives(path).all] == ["fast-mails", "done-in-an-hour"]
