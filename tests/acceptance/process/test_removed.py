"""A data directory that is removed while a server runs: the server must stop answering."""

import contextlib
import shutil
from pathlib import Path

import pytest

from tests.acceptance.process.yards import SMALL_SEGMENTS, Yard, await_true, put_id


@pytest.mark.parametrize("what", ["directory", "segment"])
def test_a_server_whose_files_are_removed_stops_and_says_so(tmp_path: Path, what: str) -> None:
    folder = tmp_path / "data"
    with contextlib.closing(Yard(folder, *SMALL_SEGMENTS)) as yard:
        yard.start()
        assert put_id(yard.connect(), b"x") == 1
        if what == "directory":
            shutil.rmtree(folder)
        else:
            for path in folder.glob("*.journal"):
                path.unlink()
        await_true(lambda: yard.process.child.poll() is not None, "the server ends", 10.0)
        assert yard.process.child.returncode == 1, yard.errors()
        # A spare file that is just being made may be missed first.
        told = ("was removed while the server", ".spare: No such file")
        assert any(words in yard.errors() for words in told), yard.errors()
        assert "Traceback" not in yard.errors()
