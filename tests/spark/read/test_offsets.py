import json
from pathlib import Path

import pytest

from jobyard.client import JobyardError
from jobyard.spark.read.offsets import Reached, StreamOffsets, parse_stored

GOLDEN = Path(__file__).parent / "golden"
OFFSETS = {
    "one": StreamOffsets({"clicks": Reached("1882227471058731008", 123)}),
    "some": StreamOffsets({"b": Reached("2", 1), "a.b_c-d": Reached("1", 9_007_199_254_740_993)}),
    "none": StreamOffsets({}),
}


@pytest.mark.parametrize("name", list(OFFSETS))
def test_offsets_are_what_earlier_versions_wrote(name: str) -> None:
    """A failure means that existing checkpoints cannot be read: give the format a new version."""
    text = (GOLDEN / f"offsets-{name}.json").read_text().strip()
    assert json.dumps(OFFSETS[name].form(), separators=(",", ":")) == text
    assert parse_stored(json.loads(text)) == OFFSETS[name]


@pytest.mark.parametrize(
    "form",
    [
        {"logOffset": 3},
        {"v": 2, "t": {}},
        {"v": 1},
        {"v": 1, "t": {"a": 5}},
        {"v": 1, "t": {"a": {"id": 5, "0": 1}}},
        {"v": 1, "t": {"a": {"id": "5", "0": "1"}}},
        5,
    ],
)
def test_offsets_of_others_are_refused(form: object) -> None:
    with pytest.raises(JobyardError) as caught:
        parse_stored(form)
    assert caught.value.code == "bad_offsets"
    assert "checkpoint" in str(caught.value)
