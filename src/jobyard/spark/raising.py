"""The boundary to Spark: errors leave it as short as they can be, and are found again behind it.

Spark shows the whole traceback of what a data source raised, and wraps it into an exception of its
own, so an error raised in one process is text in another. `raised_short` lets only the frame of
this module and the error itself be shown; `error_of` reads the error out of what Spark raised.
Knows neither readers nor writers.
"""

import re
from collections.abc import Callable, Generator, Iterator
from functools import wraps
from typing import Final, ParamSpec, TypeVar

from jobyard.client.errors import JobyardError

_P = ParamSpec("_P")
_T = TypeVar("_T")
_Y = TypeVar("_Y")

# The first line of an error in a text of Spark, after the name of its class.
_FIRST: Final = re.compile(r"JobyardError: \[(\w+)\] ([^\n]*)")
_PLACE: Final = "at "
# Of a place, up to the next name; an option may be two, and a url has no blanks.
_FACT: Final = re.compile(r"(option|topic|url|status) (.*?)(?=, (?:topic|url|status) |$)")
# How lines begin that Spark adds behind a message.
_OF_SPARK: Final = re.compile(
    r"\s|$|SQLSTATE|JVM stacktrace|During handling|Traceback|===|(?:org|java|scala|py4j)\."
)


def raised_short(call: Callable[_P, _T]) -> Callable[_P, _T]:
    """Return a call of which Spark shows an error of ours in a few lines."""

    @wraps(call)
    def bounded(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return call(*args, **kwargs)
        except JobyardError as error:
            raise error.with_traceback(None) from None

    return bounded


def rows_raised_short(
    call: Callable[_P, Iterator[_Y]],
) -> Callable[_P, Generator[_Y, None, None]]:
    """Return the same for a call that yields rows, whose errors come while they are taken."""

    @wraps(call)
    def bounded(*args: _P.args, **kwargs: _P.kwargs) -> Generator[_Y, None, None]:
        try:
            yield from call(*args, **kwargs)
        except JobyardError as error:
            raise error.with_traceback(None) from None

    return bounded


def error_of(raised: BaseException | None) -> JobyardError | None:
    """Return the error of ours behind an exception that Spark raised; None if there is none.

    It has code, message, option, topic, url, status and remedy, and no detail.
    """
    seen: set[int] = set()
    while raised is not None and id(raised) not in seen:
        if isinstance(raised, JobyardError):
            return raised
        found = _in_text(str(raised))
        if found is not None:
            return found
        seen.add(id(raised))
        raised = raised.__cause__ or raised.__context__
    return None


def _in_text(text: str) -> JobyardError | None:
    first = _FIRST.search(text)
    if first is None:
        return None
    lines = text[first.end() :].split("\n")[1:3]
    facts: dict[str, str] = {}
    if lines and lines[0].startswith(_PLACE):
        facts = dict(_FACT.findall(lines.pop(0).removeprefix(_PLACE)))
    remedy = lines[0].strip() if lines and _OF_SPARK.match(lines[0]) is None else ""
    status = facts.get("status", "")
    return JobyardError(
        first[1],
        first[2].strip(),
        url=facts.get("url", ""),
        status=int(status) if status.isdecimal() else 0,
        option=facts.get("option", ""),
        remedy=remedy,
    ).within(topic=facts.get("topic", ""))
