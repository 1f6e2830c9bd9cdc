"""Calls to one yard over one connection that is kept open.

A call is repeated only if that cannot do harm: the caller says that it may be, or the server says
that it did nothing. Every failure is a JobyardError with url, status and code. Several threads must
not use one client at the same time, except for `interrupt`, nor may a call begin while a stream is
being read.
"""

import contextlib
import json
import random
import select
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from http.client import (
    BadStatusLine,
    HTTPConnection,
    HTTPException,
    HTTPResponse,
    HTTPSConnection,
)
from types import TracebackType
from typing import Final, TypeVar, final
from urllib.parse import quote, unquote, urlencode

from jobyard.client.address import parse_url
from jobyard.client.answer import Answer, not_a_yard, parsed, refusal
from jobyard.client.errors import Code, JobyardError
from jobyard.client.response import WholeResponse
from jobyard.client.stream import ByteStream
from jobyard.client.token import Token

ARROW_STREAM: Final = "application/vnd.apache.arrow.stream"
JSON_TYPE: Final = "application/json"
# The server did nothing: such a call may be sent again, whatever it was.
_DID_NOTHING: Final = frozenset({429})
# It may have: only what may be repeated is sent again.
_PASSING: Final = frozenset({502, 503, 504})
_PAUSE_S: Final = 0.25
_PAUSE_MAX_S: Final = 5.0
# The longest pause that a server or a proxy may ask for; for a longer one the call fails.
_RETRY_AFTER_MAX_S: Final = 60
# A proxy in between may have closed a connection that was quiet for longer.
_QUIET_MAX_S: Final = 30.0
_DETAIL_MAX: Final = 1 << 20
_TOPICS: Final = "/v0/topics/"
_T = TypeVar("_T")


@final
class YardClient:
    """A connection to a yard, opened when it is needed and opened again when it broke."""

    def __init__(
        self,
        url: str,
        token: Token | None = None,
        *,
        timeout_ms: int = 30_000,
        retries_max: int = 5,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        self._address = parse_url(url)
        self.url = self._address.url
        self._token = token
        self._timeout_s = timeout_ms / 1000
        self._retries_max = retries_max
        self._pause = pause
        self._connection: HTTPConnection | None = None
        self._used_s = 0.0

    def __enter__(self) -> "YardClient":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def interrupt(self) -> None:
        """End a call that another thread waits in, with an error there."""
        connection = self._connection
        sock = connection.sock if connection is not None else None
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def get(
        self, path: str, query: Mapping[str, object] | None = None, *, wait_ms: int = 0
    ) -> Answer:
        """Return the answer of a GET, which may take `wait_ms` longer than others."""
        return self.ask("GET", path, query=query, is_repeatable=True, wait_ms=wait_ms)

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        query: Mapping[str, object] | None = None,
        is_repeatable: bool,
        wait_ms: int = 0,
    ) -> Answer:
        """Send a call with a JSON body and return its answer."""
        data = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        return self._send(
            method, _target(path, query), data, JSON_TYPE, self._parsed,
            is_repeatable=is_repeatable, wait_ms=wait_ms,
        )  # fmt: skip

    def send(self, method: str, path: str, data: bytes, *, is_repeatable: bool) -> Answer:
        """Send a call whose JSON body is made already, and return its answer."""
        return self._send(method, path, data, JSON_TYPE, self._parsed, is_repeatable=is_repeatable)

    def _parsed(self, answer: HTTPResponse, path: str) -> Answer:
        stream = self._body(answer, path)
        content = stream.read()
        stream.finish()
        return parsed(content, self._place(path), answer.status)

    def _body(self, answer: HTTPResponse, path: str) -> ByteStream:
        if answer.length is None and not answer.chunked:
            answer.close()
            self._released(is_usable=False)
            raise not_a_yard(self._place(path), answer.status, "its answer has no length")
        return ByteStream(answer, self._place(path), topic_in(path), self._released)

    def head(self, path: str, query: Mapping[str, object]) -> dict[str, str]:
        """Return the headers that a GET would have; a refusal has no detail."""
        return self._send(
            "HEAD", _target(path, query), None, "*/*", self._headers, is_repeatable=True
        )

    def _headers(self, answer: HTTPResponse, _: str) -> dict[str, str]:
        headers = {name.lower(): value for name, value in answer.getheaders()}
        answer.close()
        self._released(is_usable=not answer.will_close)
        return headers

    def stream(
        self, path: str, query: Mapping[str, object], *, accept: str = ARROW_STREAM
    ) -> ByteStream:
        """Begin a GET and return its body, to be read while it arrives."""

        def begun(answer: HTTPResponse, path: str) -> ByteStream:
            found = answer.getheader("content-type") or ""
            if found.partition(";")[0].strip() != accept:
                status = answer.status
                answer.close()
                self._released(is_usable=False)
                said = f"it sends {found or 'no type'} and not {accept}"
                raise not_a_yard(self._place(path), status, said)
            return self._body(answer, path)

        return self._send("GET", _target(path, query), None, accept, begun, is_repeatable=True)

    def _place(self, path: str) -> str:
        return self.url + path

    def _released(self, is_usable: bool) -> None:  # noqa: FBT001  the callback of a stream
        self._used_s = time.monotonic()
        if not is_usable:
            self.close()

    def _send(
        self,
        method: str,
        target: str,
        data: bytes | None,
        accept: str,
        take: Callable[[HTTPResponse, str], _T],
        *,
        is_repeatable: bool,
        wait_ms: int = 0,
    ) -> _T:
        """Return what `take` makes of a good answer; repeat the call as often as that is allowed.

        An answer that breaks off while it is taken counts as none: the server may have acted.
        """
        path = target.partition("?")[0]
        failures = 0
        while True:
            pause_s = 0.0
            try:
                answer = self._once(method, target, data, accept, wait_ms)
                if answer.status < 300:
                    return take(answer, path)
                error, pause_s = self._refused(answer, path)
                may_repeat = answer.status in _DID_NOTHING or (
                    is_repeatable and (answer.status in _PASSING or error.code == Code.CUT_OFF)
                )
            except _Failed as failed:
                error = failed.error
                may_repeat = is_repeatable or not failed.was_sent
            except JobyardError as fault:
                error = fault
                may_repeat = is_repeatable and fault.code == Code.CUT_OFF
            failures += 1
            if not may_repeat or failures > self._retries_max:
                raise error.within(topic=topic_in(path))
            # Not a secret: clients that failed together should not come back together.
            self._pause(max(pause_s, _backoff_s(failures) * random.uniform(0.5, 1.0)))  # noqa: S311

    def _once(
        self, method: str, target: str, data: bytes | None, accept: str, wait_ms: int
    ) -> HTTPResponse:
        was_sent = False
        try:
            connection = self._connected(wait_ms)
            connection.putrequest(method, self._address.prefix + target)
            connection.putheader("Accept", accept)
            if self._token is not None:
                # In no variable: a trace may show them all.
                connection.putheader("Authorization", self._token.bearer())
            if data is not None:
                connection.putheader("Content-Type", JSON_TYPE)
                connection.putheader("Content-Length", str(len(data)))
            was_sent = True
            connection.endheaders(data)
            return connection.getresponse()
        except BadStatusLine:
            self.close()
            raise not_a_yard(
                self._place(target.partition("?")[0]), 0, "it does not speak HTTP"
            ) from None
        except (OSError, HTTPException, UnicodeError) as fault:
            self.close()
            why = str(fault) or type(fault).__name__
        raise _Failed(self._unreachable(why, target), was_sent=was_sent)

    def _connected(self, wait_ms: int) -> HTTPConnection:
        connection = self._connection
        if connection is not None and self._is_stale(connection):
            self.close()
            connection = None
        timeout_s = self._timeout_s + wait_ms / 1000
        if connection is None:
            connection = self._opened(timeout_s)
            self._connection = connection
        if connection.sock is not None:
            connection.sock.settimeout(timeout_s)
        return connection

    def _is_stale(self, connection: HTTPConnection) -> bool:
        if connection.sock is None or time.monotonic() - self._used_s > _QUIET_MAX_S:
            return True
        # Nothing may arrive between calls but the end of the connection.
        waiting = select.poll()
        waiting.register(connection.sock, select.POLLIN)
        return bool(waiting.poll(0))

    def _opened(self, timeout_s: float) -> HTTPConnection:
        host, port = self._address.host, self._address.port
        connection = (
            HTTPSConnection(host, port, timeout=timeout_s, context=ssl.create_default_context())
            if self._address.is_tls
            else HTTPConnection(host, port, timeout=timeout_s)
        )
        connection.response_class = WholeResponse
        connection.connect()
        return connection

    def _refused(self, answer: HTTPResponse, path: str) -> tuple[JobyardError, float]:
        """Return the error of a refusal, and for how many seconds the server asks to wait."""
        wait = answer.getheader("retry-after") or ""
        pause_s = float(min(int(wait[:9]), _RETRY_AFTER_MAX_S)) if wait.isdecimal() else 0.0
        body = b""
        if answer.length != 0:
            try:
                with contextlib.closing(self._body(answer, path)) as stream:
                    body = stream.read(_DETAIL_MAX)
            except JobyardError as error:
                return error, pause_s
        else:
            answer.close()
            self._released(is_usable=not answer.will_close)
        if body or answer.status not in _PASSING:
            return self._explained(body, path, answer.status), pause_s
        return self._unreachable(f"status {answer.status}", path, answer.status), pause_s

    def _explained(self, body: bytes, path: str, status: int) -> JobyardError:
        url = self._place(path)
        if not body:
            # The answer to a HEAD has none.
            error = JobyardError(f"status_{status}", "the call was refused", url=url, status=status)
        else:
            try:
                error = refusal(body, url, status)
            except JobyardError as fault:
                error = fault
        if status in (401, 403):
            error.within(
                option="token",
                remedy="Set token, tokenEnv or tokenFile to a key that may do this."
                if self._token is not None
                else "This server asks for a token: set token, tokenEnv or tokenFile.",
            )
        return error

    def _unreachable(self, why: str, target: str, status: int = 0) -> JobyardError:
        return JobyardError(
            Code.UNREACHABLE,
            f"no answer from the server: {why}",
            url=self._place(target.partition("?")[0]),
            status=status,
            option="url",
            remedy="Is `jobyard serve` running there, and reachable from this machine?",
        )


@final
class _Failed(Exception):
    """A call without an answer."""

    def __init__(self, error: JobyardError, *, was_sent: bool) -> None:
        super().__init__()
        self.error = error
        # Whether the server may have got the call.
        self.was_sent = was_sent


def _backoff_s(failures: int) -> float:
    return min(_PAUSE_S * 2.0 ** (failures - 1), _PAUSE_MAX_S)


def _target(path: str, query: Mapping[str, object] | None) -> str:
    return f"{path}?{urlencode(query)}" if query else path


def topic_path(topic: str, *more: str) -> str:
    """Return the path of a topic, or of something below it."""
    return "/".join(["/v0/topics", *(quote(part, safe="") for part in (topic, *more))])


def topic_in(path: str) -> str:
    """Return the topic that a path is about; empty if it is about none."""
    rest = path.removeprefix(_TOPICS) if path.startswith(_TOPICS) else ""
    return unquote(rest.partition("/")[0])
