"""The token of the environment belongs to the source of a copy: what its target gets."""

import pytest

from jobyard.spark.mirror import _is_source
from jobyard.spark.source import JobyardSource

TARGET = {"url": "http://target:6790", "tokenEnv": "JOBYARD_TARGET_TOKEN"}


def test_the_target_of_a_copy_has_a_token_of_its_own_or_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("JOBYARD_TOKEN", "of-the-source")
    monkeypatch.delenv("JOBYARD_TARGET_TOKEN", raising=False)
    assert JobyardSource(dict(TARGET))._token is None
    monkeypatch.setenv("JOBYARD_TARGET_TOKEN", "of-the-target")
    token = JobyardSource(dict(TARGET))._token
    assert token is not None
    assert token.bearer() == "Bearer of-the-target"


@pytest.mark.parametrize(
    ("target", "source", "variable", "is_same"),
    [
        ("http://a:6790", {"url": "http://a"}, "", True),
        ("http://a:6790/", {"URL": "http://a:6790"}, "http://b", True),
        ("http://a", {}, "http://a:6790", True),
        ("http://a", {}, "", False),
        ("http://a", {"url": "http://b"}, "http://a", False),
        ("http://a:1", {"url": "http://a:2"}, "", False),
        ("https://a", {"url": "http://a"}, "", False),
    ],
)
def test_a_target_is_the_source_if_it_is_reached_in_the_same_way(
    monkeypatch: pytest.MonkeyPatch, target: str, source: dict[str, str], variable: str,
    *, is_same: bool,
) -> None:  # fmt: skip
    monkeypatch.setenv("JOBYARD_URL", variable)
    assert _is_source(target, source) is is_same
