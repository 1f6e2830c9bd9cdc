"""A package that came in a zip file reaches executors that have none."""

import subprocess
import sys
import zipfile
from pathlib import Path

from tests.support.servers.patience import PATIENCE_S

SOURCES = Path(__file__).parents[2] / "src"
PACK = """
import sys

import jobyard
from jobyard.spark.enqueue import _Task
from jobyard.spark.session import is_zipped
from jobyard.spark.write.sink import BatchWriter, StreamWriter
from jobyard.spark.source import JobyardSource
from jobyard.spark.write.options import write_options
from pyspark import cloudpickle

assert is_zipped(jobyard)
cloudpickle.register_pickle_by_value(jobyard)
source = JobyardSource({"url": "http://h:1", "topic": "a"})
reading = [source.reader(source.schema()), source.streamReader(source.schema())]
options = write_options({"url": "http://h:1", "topic": "a"}, None)
writing = [BatchWriter(options), StreamWriter(options), _Task(options, "t")]
with open(sys.argv[1], "wb") as file:
    cloudpickle.dump([JobyardSource, *reading, *writing], file)
"""
UNPACK = """
import sys

sys.modules["jobyard"] = None  # as if it were not installed
with open(sys.argv[1], "rb") as file:
    import pickle

    found = pickle.load(file)
print(*(type(each).__name__ for each in found[1:]))
"""


def run(program: str, file: Path, package: str = "") -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, str(file)],
        capture_output=True, text=True, timeout=PATIENCE_S * 2, check=False,
        env={"PYTHONPATH": package},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def zipped(file: Path) -> str:
    """Make a zip file of the package and return its path."""
    with zipfile.ZipFile(file, "w") as made:
        for path in sorted(SOURCES.rglob("*.py")):
            made.write(path, path.relative_to(SOURCES))
    return str(file)


def test_what_tasks_need_is_sent_along(tmp_path: Path) -> None:
    run(PACK, tmp_path / "packed", zipped(tmp_path / "jobyard.zip"))
    found = run(UNPACK, tmp_path / "packed")
    assert found.split() == [
        "BatchReader", "TopicStreamReader", "BatchWriter", "StreamWriter", "_Task",
    ]  # fmt: skip
