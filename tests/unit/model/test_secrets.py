"""Secrets are compared as digests, all of them."""

import pytest

from jobyard.model import secrets
from jobyard.model.secrets import digest_of, is_digest_of, is_one_of


@pytest.mark.parametrize("shown", [b"", b"s", b"secret ", b"Secret", b"secret" * 1000, b"\xff"])
def test_only_the_secret_itself_is_right(shown: bytes) -> None:
    assert is_digest_of(b"secret", digest_of(b"secret"))
    assert not is_digest_of(shown, digest_of(b"secret"))
    digests = [digest_of(b"other"), digest_of(b"secret")]
    assert is_one_of(b"secret", digests)
    assert not is_one_of(shown, digests)
    assert not is_one_of(shown, [])


def test_digests_are_compared_and_every_one_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[int, int]] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((len(one), len(other)))
        return one == other

    monkeypatch.setattr(secrets, "compare_digest", compare)
    digests = [digest_of(b"first"), digest_of(b"a much longer second one")]
    assert is_one_of(b"first", digests)
    assert compared == [(32, 32)] * 2
