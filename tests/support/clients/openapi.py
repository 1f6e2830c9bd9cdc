"""A reader of an OpenAPI document: finds operations, and validates answers against them.

Answers are checked more strictly than the document requires: a field it does not name is an error
here, although clients must ignore such fields.
"""

import json
from collections.abc import Iterator
from typing import Any

from jsonschema import Draft202012Validator

from tests.support.clients.http import Reply

METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")


class Reader:
    """A document, and the operations whose answers were seen."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        self.seen: set[tuple[str, str]] = set()
        self._components = closed(document["components"])

    def operations(self) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """Yield path, method and description of every operation."""
        for path, item in self.document["paths"].items():
            for method, operation in item.items():
                yield path, method, operation

    def find(self, method: str, path: str) -> tuple[str, dict[str, Any]]:
        """Return the operation that a request is for, fixed segments first."""
        parts = path.partition("?")[0].split("/")
        found = [
            pattern
            for pattern, item in self.document["paths"].items()
            if method.lower() in item and _fits(pattern.split("/"), parts)
        ]
        assert found, f"{method} {path} is not described"
        pattern = min(found, key=lambda one: one.count("{"))
        return pattern, self.document["paths"][pattern][method.lower()]

    def judge(self, method: str, path: str, reply: Reply) -> None:
        """Fail if an answer is not described."""
        pattern, operation = self.find(method, path)
        self.seen.add((method, pattern))
        responses = operation["responses"]
        known = responses.get(str(reply.status)) or responses.get("default")
        assert known, f"{method} {path}: {reply.status} is not described"
        kind = reply.headers["content-type"].partition(";")[0]
        assert kind in known["content"], f"{method} {path}: {kind} is not described"
        if kind == "application/json":
            self.validate(known["content"][kind]["schema"], json.loads(reply.body))

    def validate(self, schema: dict[str, Any], value: object) -> None:
        """Fail if a value does not fit a schema of the document."""
        whole = {**closed(schema), "components": self._components}
        faults = [
            f"{error.json_path}: {error.message[:500]}"
            for error in Draft202012Validator(whole).iter_errors(value)
        ]
        assert faults == [], "; ".join(faults)


def _fits(pattern: list[str], parts: list[str]) -> bool:
    return len(pattern) == len(parts) and all(
        one.startswith("{") or one == part for one, part in zip(pattern, parts, strict=True)
    )


def closed(value: Any) -> Any:
    """Return a schema whose objects allow only named fields."""
    if isinstance(value, list):
        return [closed(one) for one in value]
    if not isinstance(value, dict):
        return value
    made = {key: closed(one) for key, one in value.items()}
    if isinstance(value.get("properties"), dict) and value.get("type") == "object":
        made.setdefault("additionalProperties", False)
    return made


def schemas_in(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every schema under a `schema` key."""
    if isinstance(value, list):
        for one in value:
            yield from schemas_in(one)
    elif isinstance(value, dict):
        for key, one in value.items():
            if key == "schema":
                yield one
            yield from schemas_in(one)


def references_in(value: Any) -> Iterator[str]:
    """Yield every reference."""
    if isinstance(value, list):
        for one in value:
            yield from references_in(one)
    elif isinstance(value, dict):
        for key, one in value.items():
            if key == "$ref":
                yield one
            else:
                yield from references_in(one)
