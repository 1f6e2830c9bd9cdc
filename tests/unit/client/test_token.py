from pathlib import Path

import pytest

from jobyard.client import JobyardError, Token
from jobyard.client.errors import Code, bad_option
from tests.support.values.pickled import packed, sent

SECRET = "tok-51ab-very-secret"


def test_a_token_is_sent_and_not_shown() -> None:
    token = Token(SECRET)
    assert token.bearer() == f"Bearer {SECRET}"
    copy = sent(token)
    assert copy == token
    assert hash(copy) == hash(token)
    assert copy.bearer() == token.bearer()
    assert SECRET not in repr(token)
    assert SECRET.encode() not in packed(token)
    assert token != Token("another")


def test_a_variable_is_read_where_the_token_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    token = sent(Token(variable="YARD_TOKEN_OF_TEST"))
    monkeypatch.setenv("YARD_TOKEN_OF_TEST", SECRET)
    assert token.bearer() == f"Bearer {SECRET}"
    monkeypatch.delenv("YARD_TOKEN_OF_TEST")
    with pytest.raises(JobyardError, match="YARD_TOKEN_OF_TEST is empty"):
        token.bearer()


def test_a_file_is_read_again_each_time(tmp_path: Path) -> None:
    file = tmp_path / "token"
    token = Token(file=str(file))
    with pytest.raises(JobyardError, match="cannot be read"):
        token.bearer()
    file.write_text(f"{SECRET}\n")
    assert token.bearer() == f"Bearer {SECRET}"
    file.write_text("next")
    assert token.bearer() == "Bearer next"


@pytest.mark.parametrize("text", ["a b", "a\nb", "ä", "a\r\nX: y", "x" * 5000])
def test_what_cannot_be_a_header_is_refused_without_being_repeated(text: str) -> None:
    with pytest.raises(JobyardError) as caught:
        Token(text)
    assert caught.value.code == Code.BAD_TOKEN
    assert text not in str(caught.value)


def test_an_error_survives_a_pickle_with_all_it_says() -> None:
    error = bad_option("url", "wrong  and\nlong", "Do better.").within(topic="a")
    error.detail["x"] = 1
    copy = sent(error)
    assert (
        str(copy) == str(error) == "[bad_option] wrong and long\nat option url, topic a\nDo better."
    )
    assert copy.detail == {"x": 1}
    assert isinstance(copy, JobyardError)
