"""A JSON object that a yard sent, read with checks.

Fields are read by name and type; a field that is missing or of another type means that the answer
is not a yard's, which is an error with the name of the field and not a failure further on.
"""

import json
from collections.abc import Iterator
from typing import final

from jobyard.client.errors import Code, JobyardError


@final
class Answer:
    """The fields of one object."""

    def __init__(self, fields: dict[str, object], url: str, status: int = 200) -> None:
        self.fields = fields
        self.url = url
        self.status = status

    def number(self, name: str) -> int:
        """Return a whole number."""
        value = self.fields.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        raise self._wrong(name)

    def text(self, name: str) -> str:
        """Return a text."""
        value = self.fields.get(name)
        if isinstance(value, str):
            return value
        raise self._wrong(name)

    def number_or(self, name: str, otherwise: int) -> int:
        """Return a whole number, or `otherwise` if the field is absent."""
        return self.number(name) if self.fields.get(name) is not None else otherwise

    def text_or(self, name: str, otherwise: str) -> str:
        """Return a text, or `otherwise` if the field is absent."""
        return self.text(name) if self.fields.get(name) is not None else otherwise

    def is_set(self, name: str) -> bool:
        """Return a boolean."""
        value = self.fields.get(name)
        if isinstance(value, bool):
            return value
        raise self._wrong(name)

    def size(self, name: str) -> int:
        """Return how many items an array has."""
        value = self.fields.get(name)
        if isinstance(value, list):
            return len(value)
        raise self._wrong(name)

    def pairs(self, name: str) -> Iterator[tuple[int, str]]:
        """Yield the items of an array of a number and a text each."""
        value = self.fields.get(name)
        if not isinstance(value, list):
            raise self._wrong(name)
        for item in value:
            match item:
                case [int(number), str(text)]:
                    yield number, text
                case _:
                    raise self._wrong(name)

    def objects(self, name: str) -> Iterator["Answer"]:
        """Yield the objects of an array."""
        value = self.fields.get(name)
        if not isinstance(value, list):
            raise self._wrong(name)
        for item in value:
            if not isinstance(item, dict):
                raise self._wrong(name)
            yield Answer(item, self.url, self.status)

    def _wrong(self, name: str) -> JobyardError:
        return not_a_yard(self.url, self.status, f"its answer has no usable field {name!r}")


def not_a_yard(url: str, status: int, why: str) -> JobyardError:
    """Return the error for an answer that no yard gives."""
    return JobyardError(
        Code.NOT_JOBYARD,
        f"the server at this url does not answer as Jobyard does: {why}",
        url=url,
        status=status,
        option="url",
        remedy="Set the url to the HTTP port of `jobyard serve` (6790 by default).",
    )


def parsed(data: bytes, url: str, status: int) -> Answer:
    """Return the object in the body of an answer."""
    try:
        fields = json.loads(data)
    except ValueError:
        raise not_a_yard(url, status, "the body is not JSON") from None
    if not isinstance(fields, dict):
        raise not_a_yard(url, status, "the body is not a JSON object")
    return Answer(fields, url, status)


def refusal(data: bytes, url: str, status: int) -> JobyardError:
    """Return the error in the body of a refused call."""
    answer = parsed(data, url, status)
    error = answer.fields.get("error")
    if not isinstance(error, dict):
        raise not_a_yard(url, status, "the body of the refusal has no error")
    said = Answer(error, url, status)
    detail = error.get("detail")
    return JobyardError(
        said.text("code"),
        said.text_or("message", ""),
        url=url,
        status=status,
        detail=detail if isinstance(detail, dict) else None,
    )
