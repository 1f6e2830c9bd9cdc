"""The floors: a client that keeps one request on the wire takes either for a beanstalk server."""

import os
import shutil
from pathlib import Path

import pytest

from bench.load import Load, Shape, compile_load
from bench.servers import KINDS, Stable

ROOT = Path(__file__).parents[3]


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
@pytest.mark.parametrize("name", ["bare", "echo"])
def test_the_load_generator_takes_its_answers(tmp_path: Path, name: str) -> None:
    load = Load(compile_load(tmp_path))
    # Plain, from the sources: what is compiled is the same text.
    path = f"{ROOT / 'bench'}{os.pathsep}{ROOT / 'src'}"
    stable = Stable(tmp_path / "servers", floors=path)
    with stable.serving(KINDS[name]) as server:
        result = load.cycle(server.port, server.pid, Shape(3, 1), 0.02, 0.0)
    assert result.errors == 0
    assert result.operations > 0
