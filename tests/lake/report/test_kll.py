"""Sketches are read as Spark reads them; what is no sketch is refused."""

import base64
import json
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobyard.client.errors import JobyardError
from jobyard.lake.report.kll import values_of
from tests.lake.report.synthetic import sketch

GOLDEN = json.loads((Path(__file__).parent / "golden" / "sketches.json").read_text())["sketches"]


def column(*sketches: bytes | None) -> pa.Array:
    return pa.array(sketches, pa.binary())


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_a_sketch_of_spark_gives_the_quantiles_that_spark_gives(name: str) -> None:
    golden = GOLDEN[name]
    found = values_of(column(base64.b64decode(golden["sketch"])))
    assert found.weight.sum() == golden["count"]
    if golden["quantiles"] is None:
        return
    order = np.argsort(found.value)
    sums = np.cumsum(found.weight[order])
    # The least and the greatest, 0 and 1, are not among the values that levels hold.
    for share, wanted in zip((0.5, 0.95, 0.99), golden["quantiles"][1:-1], strict=True):
        at = int(np.searchsorted(sums, share * golden["count"]))
        assert found.value[order][at] == wanted


def test_sketches_of_all_kinds_are_read_from_one_column() -> None:
    sketches = [base64.b64decode(each["sketch"]) for each in GOLDEN.values()]
    counts = [each["count"] for each in GOLDEN.values()]
    found = values_of(column(None, *sketches, b"", *reversed(sketches)))
    summed = np.bincount(found.row, found.weight, 2 * len(sketches) + 2)
    assert summed.tolist() == [0, *counts, 0, *reversed(counts)]


@given(
    st.lists(st.none() | st.lists(st.integers(-5, 2**62), max_size=30), max_size=12),
    st.integers(0, 5),
)
def test_values_come_back_from_any_part_of_a_column(
    groups: list[list[int] | None], offset: int
) -> None:
    sketches = column(*(None if each is None else sketch(each) for each in groups))[offset:]
    found = values_of(sketches)
    rows: list[list[int]] = [[] for _ in range(len(sketches))]
    for row, value in zip(found.row.tolist(), found.value.tolist(), strict=True):
        rows[row].append(value)
    assert rows == [sorted(each or []) for each in groups[offset:]]
    assert (found.weight == 1).all()


LARGE = base64.b64decode(GOLDEN["large"]["sketch"])


@pytest.mark.parametrize(
    "damaged",
    [
        LARGE[:-4],
        LARGE[:-2],
        LARGE[:44],
        LARGE[:2] + b"\x07" + LARGE[3:],
        LARGE[:18] + b"\x00" + LARGE[19:],
        LARGE[:18] + b"\xff" + LARGE[19:],
        LARGE[:24] + b"\xff\xff\xff\x7f" + LARGE[28:],
        base64.b64decode(GOLDEN["one"]["sketch"]) + bytes(8),
        b"abcd",
    ],
)
def test_what_is_no_sketch_is_refused(damaged: bytes) -> None:
    with pytest.raises(JobyardError) as error:
        values_of(column(sketch([1, 2]), damaged))
    assert error.value.code == "lake_damaged"
    assert str(error.value).count("\n") <= 2


@given(st.binary(max_size=120))
def test_no_bytes_end_in_another_error(content: bytes) -> None:
    with suppress(JobyardError):
        values_of(column(LARGE[:8] + content))
