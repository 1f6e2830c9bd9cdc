"""Heavy commands on leftovers: expired keys and jobs, and groups that are removed.

Also on tables that grow with every job, whose growth must not delay a put.
"""

import socket
import time
from typing import Final

from bench.clients.resp import Resp, RespValue
from bench.doors import ANSWER_S_MAX, BUNDLE, Doors
from bench.heavy.row import Act, Heavy
from bench.load import BenchError

# Idempotency keys of writes: as many as a queue remembers.
KEYS: Final = 100_000
# Longer than writing all of them takes.
SHORT_MS: Final = 20_000
PIPELINE: Final = 100
_STREAM: Final = "glide:{q}:stream"
_READ: Final = ("XREADGROUP", "GROUP", "other", "w", "COUNT", "1000", "STREAMS", _STREAM, ">")


def _write_keyed(kind: str, window_ms: int) -> Act:
    """Return an act that writes many times, each time with another key."""

    def act(doors: Doors) -> None:
        config = {"type": kind, "idempotency_window_ms": window_ms}
        doors.request("PUT", "/v0/topics/keyed", config)
        address = ("127.0.0.1", doors.ports["http"])
        with socket.create_connection(address, ANSWER_S_MAX) as peer:
            for start in range(0, min(KEYS, doors.jobs), PIPELINE):
                peer.sendall(b"".join(_post(at) for at in range(start, start + PIPELINE)))
                _hear(peer, PIPELINE)

    return act


def _post(number: int) -> bytes:
    body = b'{"records":[{"data":1}],"idempotency_key":"key-%d"}' % number
    head = b"POST /v0/topics/keyed HTTP/1.1\r\nHost: localhost\r\n"
    return head + b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (
        len(body),
        body,
    )


def _hear(peer: socket.socket, answers: int) -> None:
    """Read this many answers, none of which contains the first word of the next."""
    heard = b""
    while heard.count(b"HTTP/1.1 200 ") < answers or not heard.endswith(b"}"):
        some = peer.recv(1 << 20)
        if not some or b"HTTP/1.1 4" in heard:
            raise BenchError(f"a write was answered with {heard[-300:]!r}")
        heard += some


def _write_once(doors: Doors) -> None:
    """Write with a key after all other keys have expired."""
    time.sleep(SHORT_MS / 1000)
    body = {"records": [{"data": 1}], "idempotency_key": "new"}
    doors.request("POST", "/v0/topics/keyed", body)


def _write_short_lived(doors: Doors) -> None:
    doors.request("PUT", "/v0/topics/q", {"type": "queue", "ttl_ms": 3_600_000})
    doors.push("q", doors.jobs)


def _outlive(doors: Doors) -> None:
    """Let all jobs expire at once, and wait until they are gone."""
    doors.request("PUT", "/v0/topics/q", {"type": "queue", "ttl_ms": 1})
    until = time.monotonic() + ANSWER_S_MAX
    while time.monotonic() < until:
        counts = doors.command("GetJobCounts", queue="q")["counts"]
        if isinstance(counts, dict) and not any(counts.values()):
            return
        time.sleep(0.05)
    raise BenchError("jobs outlived their TTL")


def _push_unique(doors: Doors) -> None:
    """Push jobs that each have a unique key."""
    for start in range(0, doors.jobs, BUNDLE):
        at = range(start, start + BUNDLE)
        jobs = [{"data": "x", "uniqueKey": f"key-{number}"} for number in at]
        doors.command("PUSHB", queue="q", jobs=jobs)


def _set_keys(doors: Doors) -> None:
    """Set many plain keys."""
    with Resp(doors.ports["glidemq"]) as peer:
        for start in range(0, doors.jobs, BUNDLE):
            at = range(start, start + BUNDLE)
            peer.ask_all([("SET", f"glide:{{q}}:w:{number}", "x") for number in at])


def _acknowledge_all(doors: Doors) -> None:
    """Put jobs, and let a group acknowledge all but the first."""
    doors.push("q", doors.jobs)
    with Resp(doors.ports["glidemq"]) as peer:
        peer.ask("XGROUP", "CREATE", _STREAM, "other", "0")
        is_first = True
        while (given := peer.ask(*_READ)) is not None:
            entries = _entries_in(given)
            peer.ask("XACK", _STREAM, "other", *entries[1 if is_first else 0 :])
            is_first = False


def _entries_in(given: RespValue) -> list[str]:
    """Return the entry ids of the one stream that was read."""
    match given:
        case [[_, [*entries]]]:
            return [str(entry[0]) for entry in entries if isinstance(entry, list)]
    raise BenchError(f"unexpected answer to a group read: {given!r}"[:200])


def _drop_consumer(doors: Doors) -> None:
    """Put jobs, deliver them all to one consumer, and delete it: all must be read again."""
    doors.push("q", doors.jobs)
    with Resp(doors.ports["glidemq"]) as peer:
        peer.ask("XGROUP", "CREATE", _STREAM, "other", "0")
        while peer.ask(*_READ) is not None:
            pass
        peer.ask("XGROUP", "DELCONSUMER", _STREAM, "other", "w")


def _group(*words: str) -> Act:
    return lambda doors: doors.resp("XGROUP", words[0], _STREAM, *words[1:])


LEFTOVERS: Final = (
    Heavy("keys-over", _write_keyed("queue", SHORT_MS), _write_once),
    Heavy("keys-over-log", _write_keyed("log", SHORT_MS), _write_once),
    Heavy(
        "DELETE-keys",
        _write_keyed("queue", 3_600_000),
        lambda doors: doors.request("DELETE", "/v0/topics/keyed"),
    ),
    Heavy(
        "DELETE-log-keys",
        _write_keyed("log", 3_600_000),
        lambda doors: doors.request("DELETE", "/v0/topics/keyed"),
    ),
    Heavy("ttl", _write_short_lived, _outlive),
    Heavy("PUSHB-unique", lambda _doors: None, _push_unique),
    Heavy("SET-many", lambda _doors: None, _set_keys),
    Heavy("SETID-group", _acknowledge_all, _group("SETID", "other", "0")),
    Heavy("DESTROY-group-done", _acknowledge_all, _group("DESTROY", "other")),
    Heavy("DESTROY-group-again", _drop_consumer, _group("DESTROY", "other")),
)
