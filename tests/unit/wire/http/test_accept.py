import pytest

from jobyard.wire.http.accept import admits

JSON = "application/json"


@pytest.mark.parametrize(
    "accept",
    [
        "",
        "*/*",
        "application/*",
        "application/json",
        "Application/JSON",
        " application/json ; charset=utf-8",
        "text/html, application/json",
        "text/html, */*;q=0.1",
        "application/json;q=0.001",
        "application/json; Q = 1",
        "application/*;q=0, application/json",
        "*/*;q=0,application/json;q=0.5",
        "application/json;q=",
    ],
)
def test_headers_that_admit(accept: str) -> None:
    assert admits(accept, JSON)


@pytest.mark.parametrize(
    "accept",
    [
        "text/html",
        "text/*",
        "application/json+x",
        "application/jso*",
        "application",
        ",",
        "application/json;q=0",
        "application/json; q=0.000",
        "*/*, application/json;q=0",
        "application/json;q=0, */*",
        "application/*;q=0.0, */*;q=1",
    ],
)
def test_headers_that_do_not_admit(accept: str) -> None:
    assert not admits(accept, JSON)
