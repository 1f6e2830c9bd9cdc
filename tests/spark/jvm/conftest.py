"""One Spark session for all tests; none are collected where Spark has no Java part."""

from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from jobyard.spark import session
from tests.support.servers.http import HttpYard

# The package of the development environment is Spark's Python half alone.
if not (Path(pyspark.__file__).parent / "jars").is_dir():
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session with two cores, where a task may fail four times."""
    found = session(
        "jobyard-tests",
        **{
            "spark.master": "local[2,4]",
            "spark.ui.enabled": False,
            "spark.ui.showConsoleProgress": False,
            "spark.sql.shuffle.partitions": 2,
            "spark.log.level": "ERROR",
        },
    )
    yield found
    found.stop()


@pytest.fixture(scope="session")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpYard]:
    """One server for all of them."""
    found = HttpYard("--data", str(tmp_path_factory.mktemp("yard")))
    yield found
    found.close()
