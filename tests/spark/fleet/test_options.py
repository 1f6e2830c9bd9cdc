"""Options and columns of claims and ends: what is refused, and that nothing shows a token."""

import json
import subprocess
import sys
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql.types import LongType, StringType, StructField, StructType

import jobyard
from jobyard.client import JobyardError, Token
from jobyard.spark.fleet.calls import BatchCalls, RowCalls
from jobyard.spark.fleet.columns import arrow_schema, job_schema
from jobyard.spark.fleet.ends import check_columns
from jobyard.spark.fleet.jobs import Backoff
from jobyard.spark.fleet.offsets import ClaimOffset, parse_offset
from jobyard.spark.fleet.options import claim_options, end_options
from jobyard.spark.fleet.sink import EndsWriter
from jobyard.spark.fleet.source import ClaimStreamReader, SetPartition, SetRange
from jobyard.spark.fleet.work import FleetTask
from jobyard.spark.source import JobyardSource
from tests.support.values.pickled import packed, sent

URL = {"url": "http://127.0.0.1:1"}
CLAIMS = {**URL, "queue": "q", "worker": "w"}
SECRET = "tok-51ab-very-secret"
END = "queue worker claim lease_id _status"


# As on an executor to which only the pickle came.
LOAD = """
import pickle, sys
sys.modules["jobyard"] = None
print(*sorted(vars(pickle.loads(sys.stdin.buffer.read()))))
"""


def refusal(call: Any, *given: Any, **named: Any) -> JobyardError:
    with pytest.raises(JobyardError) as refused:
        call(*given, **named)
    assert len(str(refused.value).splitlines()) <= 3
    return refused.value


@pytest.mark.parametrize(
    ("given", "option"),
    [
        ({"worker": ""}, "worker"),
        ({"worker": "a b"}, "worker"),
        ({"worker": "x" * 129}, "worker"),
        ({"queue": "_x"}, "queue"),
        ({"queue": ""}, "queue"),
        ({"batch": "0"}, "batch"),
        ({"batch": "10001"}, "batch"),
        ({"batch": "1e3"}, "batch"),
        ({"leaseMs": "999"}, "leaseMs"),
        ({"leaseMs": "86400001"}, "leaseMs"),
        ({"minPartitions": "10001"}, "minPartitions"),
        ({"topic": "t"}, "topic"),
        ({"startingOffsets": "latest"}, "startingOffsets"),
    ],
    ids=json.dumps,
)
def test_a_wrong_option_of_claims_is_named(given: dict[str, str], option: str) -> None:
    error = refusal(claim_options, {**CLAIMS, **given}, None, 2)
    assert (error.code, error.option) == ("bad_option", option)


def test_options_have_any_case_and_defaults() -> None:
    found = claim_options({**CLAIMS, "BATCH": "7", "leasems": "2000"}, None, 5)
    assert (found.batch, found.lease_ms, found.partitions) == (7, 2000, 5)
    assert found.connecting.retries_max == 10
    assert refusal(claim_options, {**URL, "worker": "w"}, None, 1).option == "queue"
    assert refusal(end_options, {**URL, "results": "a b"}, None).option == "results"
    assert refusal(end_options, {**URL, "topic": "a"}, None).option == "topic"
    assert end_options({**URL, "checkpointLocation": "x", "path": "y"}, None).results == ""


def test_claims_are_a_stream_only() -> None:
    source = JobyardSource({**CLAIMS})
    assert source.schema() == job_schema()
    assert refusal(source.reader, schema=source.schema()).option == "queue"
    assert isinstance(source.streamReader(schema=source.schema()), ClaimStreamReader)
    some = StructType([StructField("seq", LongType()), StructField("value", StringType())])
    # It raises at the first call: Spark hides what is raised while it is made.
    assert refusal(source.streamReader(schema=some).initialOffset).option == "schema"


def ends_schema(**other: Any) -> StructType:
    kinds: dict[str, Any] = {
        **{name: StringType() for name in END.split()},
        "epoch": LongType(), "seq": LongType(), **other,
    }  # fmt: skip
    return StructType([StructField(name, kind) for name, kind in kinds.items() if kind])


@pytest.mark.parametrize(
    ("columns", "option"),
    [
        ({"seq": None}, "seq"),
        ({"lease_id": None}, "lease_id"),
        ({"epoch": StringType()}, "epoch"),
        ({"_delay_ms": StringType()}, "_delay_ms"),
        ({"_result": LongType()}, "_result"),
    ],
)
def test_a_wrong_column_of_ends_is_named(columns: dict[str, Any], option: str) -> None:
    source = JobyardSource({**URL})
    error = refusal(source.streamWriter, schema=ends_schema(**columns), overwrite=False)
    assert (error.code, error.option) == ("bad_option", option)
    check_columns(ends_schema(value=StringType()))
    made = source.streamWriter(schema=ends_schema(), overwrite=False)
    assert isinstance(made, EndsWriter)


def test_what_spark_stores_stays_as_it_is() -> None:
    offset = ClaimOffset("mails", "mailer", 1838209311176044, 17, 5000)
    stored = (
        '{"v": 1, "queue": "mails", "worker": "mailer", "series": 1838209311176044, "n": 17, '
        '"jobs": 5000}'
    )
    assert json.dumps(offset.form()) == stored
    assert parse_offset(json.loads(stored), "mails", "mailer") == offset
    assert offset.claim_id == "mailer-1838209311176044-17"


@pytest.mark.parametrize(
    "change",
    [
        {"v": 2},
        {"n": -1},
        {"n": "1"},
        {"series": True},
        {"jobs": None},
        {"queue": "x"},
        {"worker": 1},
    ],
    ids=json.dumps,
)
def test_offsets_that_are_not_of_this_query_are_refused(change: dict[str, Any]) -> None:
    form = {**ClaimOffset("q", "w", 1, 1, 1).form(), **change}
    assert refusal(parse_offset, form, "q", "w").code == "bad_offsets"


def test_everything_arrives_on_executors_and_shows_no_token() -> None:
    options = claim_options(CLAIMS, Token(SECRET), 2)
    reader = ClaimStreamReader(options, arrow_schema(job_schema()))
    partition = SetPartition(SetRange(ClaimOffset("q", "w", 1, 2, 3), 4, 5, 6))
    writer = EndsWriter(end_options(URL, Token(SECRET)))
    for each in (reader, partition, writer):
        data = cloudpickle.dumps(each)  # type: ignore[no-untyped-call]
        assert SECRET.encode() not in data
        assert SECRET.encode() not in packed(each)
        assert SECRET not in repr(vars(sent(each)))
    assert sent(reader).options == options
    assert sent(partition).wanted == partition.wanted


def test_everything_arrives_where_the_package_comes_from_a_zip_file() -> None:
    reader = ClaimStreamReader(claim_options(CLAIMS, None, 2), arrow_schema(job_schema()))
    calls = [kind(print, Backoff(), has_results=True) for kind in (RowCalls, BatchCalls)]
    tasks = [FleetTask(each, 3) for each in calls]
    cloudpickle.register_pickle_by_value(jobyard)  # type: ignore[no-untyped-call]
    try:
        for each in (*tasks, reader, EndsWriter(end_options(URL, None))):
            data = cloudpickle.dumps(each)  # type: ignore[no-untyped-call]
            assert b"_make_skeleton_class" in data, "the package goes with it"
            # In a process of its own: here, the classes would become those of the pickle.
            done = subprocess.run(
                [sys.executable, "-c", LOAD], input=data, capture_output=True, check=False
            )
            assert done.stdout.decode().split() == sorted(vars(each)), done.stderr.decode()
    finally:
        cloudpickle.unregister_pickle_by_value(jobyard)  # type: ignore[no-untyped-call]
