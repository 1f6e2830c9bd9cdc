from pathlib import Path

import pytest

from tools.module_map import first_sentence, page


@pytest.mark.parametrize(
    ("docstring", "sentence"),
    [
        ("Jobs by name.\n\nMore.", "Jobs by name"),
        ("The bytes of each record. All integers\nare small.", "The bytes of each record"),
        ("One place: the rest follows.", "One place: the rest follows"),
        ("Version 1.12 of it, a|b", "Version 1.12 of it, a\\|b"),
    ],
)
def test_the_first_sentence_of_a_charter_is_one_line(docstring: str, sentence: str) -> None:
    assert first_sentence(docstring) == sentence


def test_every_module_has_a_row_under_its_folder(tmp_path: Path) -> None:
    package = tmp_path / "src" / "jobyard"
    for room in ("model/index", "wire", "journal", "engine", "protocols", "server", "cli"):
        (package / room).mkdir(parents=True)
    for folder in ("model", "model/index"):
        (package / folder / "__init__.py").write_text(f'"""What {folder} is."""\n')
    (package / "model" / "job.py").write_text('"""One job. Not two."""\n')
    (package / "model" / "index" / "heap.py").write_text('"""A heap."""\n')
    (package / "config.py").write_text('"""Settings."""\n')
    text = page(tmp_path)
    assert text.index("## model\n\nWhat model is.\n") < text.index("| `job` | One job |")
    assert text.index("## model/index") < text.index("| `heap` | A heap |")
    assert text.index("## beside the rooms") < text.index("| `config` | Settings |")
