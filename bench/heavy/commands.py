"""Commands that are expensive with many jobs, queues or routers, and how each is prepared.

One row each in HEAVY: add a row, and the scenario `stalls` measures it. The preparation is not
measured; the command is, from its first byte to its answer.
"""

import http.client
import json
import socket
import struct
import time
from typing import Final

import msgspec

from bench.clients.resp import Resp
from bench.doors import ANSWER_S_MAX, BUNDLE, HEAD, Doors
from bench.heavy.leftovers import LEFTOVERS
from bench.heavy.row import Act, Heavy
from bench.load import BenchError

__all__ = ["HEAVY", "Doors", "Heavy"]

# The most jobs a server accepts in one command.
BUNDLE_MAX: Final = 100_000
# Limits of a body of bunqueue's HTTP API, of a message of its WebSocket, and of the data of a job.
BODY_MAX: Final = 11 << 20
MESSAGE_MAX: Final = 1 << 20
DATA_MAX: Final = 10 << 20
# The most jobs that one job may wait for.
MEMBERS_MAX: Final = 10_000
# The most jobs of a flow.
FLOW_MAX: Final = 10_000
# Waiting clients, and how many of them share one connection.
WAITING: Final = 10_000
PULLS: Final = 50
# Small values in one frame: about as many as it may have bytes.
VALUES_MAX: Final = 60 << 20
# Longer than the interval between two heartbeats of an event stream.
BEAT_S: Final = 6.0
ROUTED: Final = 10_000
# Records in a log from which many are deleted.
RECORDS: Final = 300_000
# The most arguments of a RESP command that is done as a whole, and of any RESP command.
WHOLE: Final = 4998
ARGUMENTS: Final = 99_000
# Children of a flow added at the glide-mq door.
CHILDREN: Final = 2000
# Commands in a transaction, and commands sent at once.
TRANSACTION: Final = 1000
PIPELINE: Final = 2000
# Pings after the client hung up, while the server frees what it prepared for it.
AFTER_LEAVING: Final = 200
_STREAM: Final = "glide:{q}:stream"


def _jobs(**fields: object) -> Act:
    return lambda doors: doors.push("q", doors.jobs, **fields)


def _command(cmd: str, **fields: object) -> Act:
    return lambda doors: doors.command(cmd, queue="q", **fields)


def _listen(doors: Doors) -> None:
    """Open an event stream until it sends something."""
    with socket.create_connection(("127.0.0.1", doors.ports["http"]), ANSWER_S_MAX) as peer:
        peer.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        until = time.monotonic() + BEAT_S
        peer.settimeout(BEAT_S)
        while time.monotonic() < until:
            try:
                if not peer.recv(1 << 20):
                    raise BenchError("the event stream ended")
            except TimeoutError:
                break


def _route(doors: Doors) -> None:
    doors.request("PUT", "/v0/topics/source", {"type": "log"})
    for at in range(doors.routers):
        doors.request("PUT", f"/v0/routers/r{at}", {"source": "source", "dest": f"copy{at}"})


def _write_routed(doors: Doors) -> None:
    count = min(ROUTED, doors.jobs)
    records = [{"data": at} for at in range(count)]
    doors.request("POST", "/v0/topics/source", {"records": records})
    last = f"/v0/topics/copy{doors.routers - 1}"
    until = time.monotonic() + ANSWER_S_MAX
    while time.monotonic() < until:
        if json.loads(doors.request("GET", last))["count"] == count:
            return
        time.sleep(0.05)
    raise BenchError("the copies did not arrive")


def _write_records(doors: Doors) -> None:
    """Write as many records at once as a topic accepts, each with every optional field."""
    count = min(ROUTED, doors.jobs)
    one: dict[str, object] = {"data": {"a": 1, "b": "x" * 8}, "tag": "t", "meta": {"k": "v"}}
    for kind in ("log", "queue"):
        doors.request("PUT", f"/v0/topics/{kind}", {"type": kind})
        doors.request("POST", f"/v0/topics/{kind}", {"records": [one] * count})


def _fill(kind: str) -> Act:
    """Return an act that fills a topic; half of the records have one tag, half another."""

    def act(doors: Doors) -> None:
        doors.request("PUT", "/v0/topics/filled", {"type": kind})
        records = [{"data": at, "tag": "even" if at % 2 == 0 else "odd"} for at in range(BUNDLE)]
        for _ in range(0, min(RECORDS, doors.jobs), BUNDLE):
            doors.request("POST", "/v0/topics/filled", {"records": records})

    return act


def _delete(**asked: object) -> Act:
    return lambda doors: doors.request("POST", "/v0/topics/filled/delete", asked)


def _write_values(doors: Doors) -> None:
    """Write a few records that consist of small values only."""
    size = min(1 << 20, doors.jobs) - 100
    doors.request("POST", "/v0/topics/values", {"records": [{"data": [0] * (size // 3)}] * 50})


def _finish_at_once(doors: Doors) -> None:
    """Finish, in one command, jobs that no worker holds; none of them changes."""
    count = min(doors.jobs, BUNDLE_MAX)
    ids = [f"c{at}" for at in range(count)]
    doors.command("ACKB", ids=ids)


def _many_members(doors: Doors) -> None:
    count = min(doors.queues, doors.jobs)
    ids: list[object] = []
    for start in range(0, count, BUNDLE):
        jobs = [{"data": 1}] * min(BUNDLE, count - start)
        found = doors.command("PUSHB", queue="q", jobs=jobs)["ids"]
        assert isinstance(found, list)
        ids += found
    for start in range(0, len(ids), MEMBERS_MAX):
        doors.command("PUSH", queue="parents", data=1, dependsOn=ids[start : start + MEMBERS_MAX])


def _push_at_once(doors: Doors) -> None:
    count = min(doors.jobs, BUNDLE_MAX)
    doors.command("PUSHB", queue="q", jobs=[{"data": 1, "delay": 60_000}] * count)


def _push_chain(doors: Doors) -> None:
    """Push a chain of jobs at once, each waiting for the one before it."""
    jobs = [
        {"data": 1, "customId": f"c{at}", "dependsOn": [f"c{at - 1}"] if at else []}
        for at in range(min(doors.jobs, BUNDLE_MAX))
    ]
    doors.command("PUSHB", queue="q", jobs=jobs)


def _push_flow(*, is_chain: bool) -> Act:
    """Push the largest possible flow: a chain, or one parent of all others."""

    def push(doors: Doors) -> None:
        names = [f"f{at}" for at in range(min(doors.jobs, FLOW_MAX) - 1)]
        mine: dict[str, object] = {"__parentId": "p", "__parentQueue": "q"}
        child: dict[str, object] = {"data": mine, "parentId": "p"}
        parent: dict[str, object] = {"childrenIds": names, "dependsOn": names}
        parent["data"] = {"__childrenIds": names}
        inputs = [*[child] * len(names), parent]
        if is_chain:
            inputs = [{"data": {}, "dependsOn": names[at - 1 : at]} for at in range(len(names) + 1)]
        jobs = [
            {"id": name, "queue": "q", "input": given}
            for name, given in zip([*names, "p"], inputs, strict=True)
        ]
        doors.command("PUSHF", jobs=jobs)

    return push


def _wait_in_line(doors: Doors) -> None:
    """Make many clients wait for a job, as many on one connection as allowed."""
    asked = msgspec.msgpack.encode({"cmd": "PULL", "queue": "q", "timeout": 60_000, "reqId": "1"})
    frames = (HEAD.pack(len(asked)) + asked) * PULLS
    for at in range(min(doors.jobs, WAITING) // PULLS):
        peer = socket.create_connection(("127.0.0.1", doors.ports["bunqueue"]), ANSWER_S_MAX)
        peer.sendall(frames)
        doors.details[str(at)] = peer


def _serve_line(doors: Doors) -> None:
    """Push a job for each of them at once; wait until all have received theirs."""
    peers = list(doors.details.values())
    doors.details.clear()
    doors.command("PUSHB", queue="q", jobs=[{"data": 1}] * (PULLS * len(peers)))
    for peer in peers:
        with peer, peer.makefile("rb") as answers:
            for _ in range(PULLS):
                (size,) = HEAD.unpack(answers.read(HEAD.size))
                if msgspec.msgpack.decode(answers.read(size))["job"] is None:
                    raise BenchError("a waiting client got no job")


def _push_values(doors: Doors) -> None:
    """Push jobs that consist of small values only."""
    size = min(VALUES_MAX, 60 * doors.jobs)
    each = min(size, DATA_MAX // 2)
    doors.command("PUSHB", queue="q", jobs=[{"data": [0] * each}] * (size // each))


def _push_json(doors: Doors) -> None:
    """Push a job over HTTP whose data consists of small objects."""
    text = b'{"data":[%s0]}' % (b"{}," * (min(BODY_MAX - 100, 10 * doors.jobs) // 3))
    peer = http.client.HTTPConnection("127.0.0.1", doors.ports["http"], timeout=ANSWER_S_MAX)
    peer.request("POST", "/queues/q/jobs", text)
    answer = peer.getresponse()
    content = answer.read()
    peer.close()
    if answer.status != 200:
        raise BenchError(f"a long body was answered with {answer.status} {content[:200]!r}")


def _push_bulk(doors: Doors) -> None:
    """Push many jobs over HTTP."""
    count = min(doors.jobs, BUNDLE_MAX)
    doors.request("POST", "/queues/q/jobs/bulk", {"jobs": [{"data": at} for at in range(count)]})


_UPGRADE: Final = (
    b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


def _push_message(doors: Doors) -> None:
    """Push a job over a WebSocket whose data consists of small values."""
    count = (min(MESSAGE_MAX, doors.jobs) - 100) // 2
    text = b'{"cmd":"PUSH","queue":"q","reqId":"long","data":[%s0]}' % (b"0," * count)
    with socket.create_connection(("127.0.0.1", doors.ports["http"]), ANSWER_S_MAX) as peer:
        peer.sendall(_UPGRADE)
        form, shape = (b"\x81\xfe", ">H") if len(text) < 1 << 16 else (b"\x81\xff", ">Q")
        # Masked with zeros, which does not change the payload.
        peer.sendall(form + struct.pack(shape, len(text)) + bytes(4) + text)
        heard = b""
        while b'"reqId":"long"' not in heard:
            more = peer.recv(1 << 16)
            if not more:
                raise BenchError(f"a long message was answered with {heard[-200:]!r}")
            heard += more


_later = _jobs(delay=3_600_000)


def _key(part: str, command: str, *words: str) -> Act:
    return lambda doors: doors.resp(command, f"glide:{{q}}:{part}", *words)


def _leave_early(*words: str) -> Act:
    """Request a long answer, and hang up when it begins."""

    def act(doors: Doors) -> None:
        with Resp(doors.ports["glidemq"]) as peer:
            peer.hear_begin(*words)
        for _ in range(AFTER_LEAVING):
            doors.resp("PING")

    return act


def _drain(doors: Doors) -> None:
    keys = [f"glide:{{q}}:{part}" for part in ("stream", "scheduled", "events", "id")]
    doors.resp("FCALL", "glidemq_drain", "4", *keys, "0", "workers")


def _many(command: str, part: str, *words: str) -> Act:
    """Send a command with as many keys as it accepts, each `part` and a number."""
    keys = [f"glide:{{q}}:{part}{at}" for at in range(ARGUMENTS)]
    return lambda doors: doors.resp(command, *words, *keys)


def _fields(command: str, part: str) -> Act:
    """Send as many fields or members as a command accepts, in total as many as there are queues."""

    def ask(doors: Doors) -> None:
        with Resp(doors.ports["glidemq"]) as peer:
            for start in range(0, doors.queues, WHOLE):
                words = [str(at) for at in range(start, min(start + WHOLE, doors.queues))]
                peer.ask(command, f"glide:{{q}}:{part}", *words)

    return ask


def _add_words() -> list[str]:
    keys = [f"glide:{{q}}:{part}" for part in ("id", "stream", "scheduled", "events")]
    now = str(int(time.time() * 1000))
    return [
        "FCALL",
        "glidemq_addJob",
        "4",
        *keys,
        "n",
        "{}",
        "{}",
        now,
        *["0"] * 2,
        "",
        "0",
        "",
        *["0"] * 7,
        "",
    ]


def _transact(doors: Doors) -> None:
    with Resp(doors.ports["glidemq"]) as peer:
        peer.ask("MULTI")
        for _ in range(TRANSACTION):
            peer.ask(*_add_words())
        peer.ask("EXEC")


def _pipelined(*words: str) -> Act:
    """Send the same command many times at once."""

    def act(doors: Doors) -> None:
        with Resp(doors.ports["glidemq"]) as peer:
            peer.ask_together(PIPELINE, *words)

    return act


def _read_all(doors: Doors) -> None:
    """Put jobs, and lease them all to one consumer of glide-mq."""
    doors.push("q", doors.queues)
    with Resp(doors.ports["glidemq"]) as peer:
        while peer.ask(*_READ, ">") is not None:
            pass


def _read_other(doors: Doors) -> None:
    """Put jobs, and deliver them all to one consumer of a group other than `workers`."""
    doors.push("q", doors.jobs)
    with Resp(doors.ports["glidemq"]) as peer:
        peer.ask("XGROUP", "CREATE", _STREAM, "other", "0")
        while peer.ask(*_READ_OTHER, ">") is not None:
            pass


def _behind(doors: Doors) -> None:
    """Put jobs, and create a group other than `workers` that has read none of them."""
    doors.push("q", doors.jobs)
    doors.resp("XGROUP", "CREATE", _STREAM, "other", "0")


def _add_flow(doors: Doors) -> None:
    """Add a job with as many children as allowed, in one command."""
    count = min(CHILDREN, doors.jobs)
    keys = [f"glide:{{q}}:{part}" for part in ("id", "stream", "scheduled", "events")] * (count + 1)
    now = str(int(time.time() * 1000))
    parent = ["parent", "{}", "{}", now, "0", "0", "0", str(count), ""]
    child = ["child", "{}", "{}", "0", "0", "3", "", "", ""]
    doors.resp("FCALL", "glidemq_addFlow", str(len(keys)), *keys, *parent, *child * count)


def _converse(peer: socket.socket, said: bytes, lines: int) -> None:
    """Send commands to the beanstalk door, and read their answer lines."""
    with peer.makefile("rb") as answers:
        peer.sendall(said)
        for _ in range(lines):
            answers.readline()


def _beanstalk(doors: Doors) -> socket.socket:
    return socket.create_connection(("127.0.0.1", doors.ports["beanstalk"]), ANSWER_S_MAX)


def _hold_all(doors: Doors) -> None:
    """Put jobs, and reserve them all on one connection."""
    peer = _beanstalk(doors)
    doors.details["holder"] = peer
    for _ in range(0, doors.jobs, BUNDLE):
        _converse(peer, b"put 0 0 900 1\r\nx\r\nreserve\r\n" * BUNDLE, 3 * BUNDLE)


def _leave(doors: Doors) -> None:
    """Close the holder's connection; wait until all its jobs are ready."""
    doors.details.pop("holder").close()
    until = time.monotonic() + ANSWER_S_MAX
    with _beanstalk(doors) as peer, peer.makefile("rb") as answers:
        while time.monotonic() < until:
            peer.sendall(b"stats\r\n")
            size = int(answers.readline().split()[1])
            if b"current-jobs-reserved: 0\n" in answers.read(size + 2):
                return
            time.sleep(0.02)
    raise BenchError("the jobs of a closed connection did not come back")


def _put_later(doors: Doors) -> None:
    with _beanstalk(doors) as peer:
        for _ in range(0, doors.jobs, BUNDLE):
            _converse(peer, b"put 0 3600 900 1\r\nx\r\n" * BUNDLE, BUNDLE)


def _kick(doors: Doors) -> None:
    with _beanstalk(doors) as peer:
        peer.sendall(b"kick 4294967295\r\n")
        if not peer.recv(100).startswith(b"KICKED"):
            raise BenchError("a kick was refused")


def _bury(doors: Doors) -> None:
    """Bury jobs of a tube; bunqueue shows them as dead."""
    step = b"put 0 0 60 1\r\nx\r\nreserve\r\n"
    with (
        socket.create_connection(("127.0.0.1", doors.ports["beanstalk"]), ANSWER_S_MAX) as peer,
        peer.makefile("rb") as answers,
    ):
        peer.sendall(b"use q\r\nwatch q\r\nignore default\r\n")
        for _ in range(3):
            answers.readline()
        for start in range(0, doors.jobs, BUNDLE):
            count = min(BUNDLE, doors.jobs - start)
            peer.sendall(step * count)
            ids: list[bytes] = []
            for _ in range(count):
                answers.readline()
                ids.append(answers.readline().split()[1])
                answers.readline()
            peer.sendall(b"".join(b"bury %b 0\r\n" % one for one in ids))
            for _ in ids:
                if answers.readline() != b"BURIED\r\n":
                    raise BenchError("a job was not buried")


def _list_tubes(doors: Doors) -> None:
    with (
        socket.create_connection(("127.0.0.1", doors.ports["beanstalk"]), ANSWER_S_MAX) as peer,
        peer.makefile("rb") as answers,
    ):
        peer.sendall(b"list-tubes\r\n")
        answers.read(int(answers.readline().split()[1]) + 2)


_READ: Final = ("XREADGROUP", "GROUP", "workers", "w", "COUNT", "1000", "STREAMS", _STREAM)
_READ_OTHER: Final = (*_READ[:2], "other", *_READ[3:])
# No entry has been idle that long, so all of them are examined.
_IDLE_OTHER: Final = ("XPENDING", "other", "IDLE", "3600000", "-", "+", "9")
_DROP: Final = ("XGROUP", "DELCONSUMER")
_LIST: Final = "glide:{q}:signals:1"
_HASH: Final = "glide:{q}:budget:1"
_SET: Final = "glide:{q}:xq-pending"


def _keep(command: str, key: str, width: int) -> Act:
    """Return an act that fills a key with as many items as there are queues."""

    def act(doors: Doors) -> None:
        with Resp(doors.ports["glidemq"]) as peer:
            for start in range(0, doors.queues, BUNDLE):
                names = [f"item-{at}" for at in range(start, min(start + BUNDLE, doors.queues))]
                words = [word for name in names for word in [name] * width]
                peer.ask(command, key, *words)

    return act


def _write_large(doors: Doors) -> None:
    doors.request("PUT", "/v0/topics/large", {"type": "log"})
    records = [{"data": "x" * 7000}] * 250
    for _ in range(40):
        doors.request("POST", "/v0/topics/large", {"records": records})


def _diff(topic: str) -> Act:
    asked = {"from_seq": 0, "limit": 1000, "max_batch_bytes": 8 << 20}
    return lambda doors: doors.request("POST", f"/v0/topics/{topic}/diff", asked)


def _ask_socket(doors: Doors) -> None:
    """Request all jobs over a WebSocket."""
    text = b'{"cmd":"GetJobs","queue":"q","limit":1000000,"reqId":1}'
    with (
        socket.create_connection(("127.0.0.1", doors.ports["http"]), ANSWER_S_MAX) as peer,
        peer.makefile("rb") as answers,
    ):
        peer.sendall(_UPGRADE)
        while answers.readline() != b"\r\n":
            pass
        peer.sendall(bytes((0x81, 0x80 | len(text))) + bytes(4) + text)
        if answers.read(2)[1] != 127:
            raise BenchError("the answer is too short")
        answers.read(int.from_bytes(answers.read(8), "big"))


HEAVY: Final = (
    Heavy("Drain", _jobs(), _command("Drain")),
    Heavy("Obliterate", _jobs(), _command("Obliterate")),
    Heavy("Obliterate-members", _many_members, _command("Obliterate")),
    Heavy("Clean", _jobs(), _command("Clean", grace=0, limit=10**6)),
    Heavy("PromoteJobs", _jobs(delay=3_600_000), _command("PromoteJobs")),
    Heavy("GetJobs", _jobs(), _command("GetJobs", limit=10**6)),
    Heavy("GetCountsPerPriority", _jobs(priority=5), _command("GetCountsPerPriority")),
    Heavy("jobs-list", _jobs(), lambda d: d.request("GET", "/queues/q/jobs/list?limit=1000000")),
    Heavy("DELETE-topic", _jobs(), lambda doors: doors.request("DELETE", "/v0/topics/q")),
    Heavy("DELETE-log", _fill("log"), lambda doors: doors.request("DELETE", "/v0/topics/filled")),
    Heavy("delete-tagged", _fill("log"), _delete(match="odd")),
    Heavy("delete-below", _fill("log"), _delete(before_seq=RECORDS)),
    Heavy("delete-jobs", _fill("queue"), _delete(match="odd")),
    Heavy("PUSHB-delayed", lambda _doors: None, _push_at_once),
    Heavy("PUSHB-chain", lambda _doors: None, _push_chain),
    Heavy("PUSHF-tree", lambda _doors: None, _push_flow(is_chain=False)),
    Heavy("PUSHF-chain", lambda _doors: None, _push_flow(is_chain=True)),
    Heavy("waiting-pulls", _wait_in_line, _serve_line),
    Heavy("PUSHB-values", lambda _doors: None, _push_values),
    Heavy("PUSH-json", lambda _doors: None, _push_json),
    Heavy("bulk-json", lambda _doors: None, _push_bulk),
    Heavy("ws-json", lambda _doors: None, _push_message),
    Heavy("ACKB", _push_chain, _finish_at_once),
    Heavy("write", lambda _doors: None, _write_records),
    Heavy("write-values", lambda _doors: None, _write_values),
    Heavy("queues", Doors.spread, lambda doors: doors.request("GET", "/queues")),
    Heavy("dashboard", Doors.spread, lambda doors: doors.request("GET", "/dashboard/queues")),
    Heavy("topics", Doors.spread, lambda doors: doors.request("GET", "/v0/topics?page_size=1000")),
    Heavy("events", Doors.spread, _listen),
    Heavy("routers", _route, _write_routed),
    Heavy("XRANGE", _jobs(), _key("stream", "XRANGE", "-", "+")),
    Heavy("XRANGE-left", _jobs(), _leave_early("XRANGE", _STREAM, "-", "+")),
    Heavy("XTRIM", _jobs(), _key("stream", "XTRIM", "MAXLEN", "10")),
    Heavy("DEL-stream", _jobs(), _key("stream", "DEL")),
    Heavy("glidemq_drain", _jobs(), _drain),
    Heavy("ZRANGE-page", _later, _key("scheduled", "ZRANGE", "0", "10")),
    Heavy("ZRANGE", _later, _key("scheduled", "ZRANGE", "0", "-1")),
    Heavy("ZCOUNT", _later, _key("scheduled", "ZCOUNT", "1", "+inf")),
    Heavy(
        "ZRANGEBYSCORE", _later, _key("scheduled", "ZRANGEBYSCORE", "1", "+inf", "LIMIT", "9", "9")
    ),
    Heavy("DEL-scheduled", _later, _key("scheduled", "DEL")),
    Heavy("EXISTS-many", lambda _doors: None, _many("EXISTS", "w:")),
    Heavy("MGET-many", lambda _doors: None, _many("MGET", "w:")),
    Heavy("DEL-many", _jobs(), _many("DEL", "job:")),
    Heavy("DEL-hash", _fields("HSET", "rate"), _key("rate", "DEL")),
    Heavy("SREM-many", _fields("SADD", "xq-pending"), _fields("SREM", "xq-pending")),
    Heavy("HSET-whole", lambda _doors: None, _fields("HSET", "rate")),
    Heavy("EXEC", lambda _doors: None, _transact),
    Heavy("glidemq_addFlow", lambda _doors: None, _add_flow),
    Heavy("DBSIZE-pipelined", lambda doors: doors.push("q", 100), _pipelined("DBSIZE")),
    Heavy("KEYS-pipelined", lambda doors: doors.push("q", 100), _pipelined("KEYS", "*")),
    Heavy("INFO-pipelined", lambda doors: doors.push("q", 100), _pipelined("INFO")),
    Heavy("holder-leaves", _hold_all, _leave),
    Heavy("kick", _put_later, _kick),
    Heavy("XPENDING", _read_all, _key("stream", "XPENDING", "workers", "-", "+", "10000")),
    Heavy("XPENDING-count", _read_all, _key("stream", "XPENDING", "workers")),
    Heavy("XAUTOCLAIM", _read_all, _key("stream", "XAUTOCLAIM", "workers", "v", "0", "0")),
    Heavy("XREADGROUP-own", _read_all, lambda doors: doors.resp(*_READ, "0")),
    Heavy("XINFO", _read_all, lambda d: d.resp("XINFO", "CONSUMERS", _STREAM, "workers")),
    Heavy("DELCONSUMER", _read_all, lambda d: d.resp(*_DROP, _STREAM, "workers", "w")),
    Heavy("XPENDING-group", _read_other, _key("stream", *_IDLE_OTHER)),
    Heavy("XPENDING-group-count", _read_other, _key("stream", "XPENDING", "other")),
    Heavy("XAUTOCLAIM-group", _read_other, _key("stream", "XAUTOCLAIM", "other", "v", "0", "0")),
    Heavy("XREADGROUP-group-own", _read_other, lambda doors: doors.resp(*_READ_OTHER, "0")),
    Heavy("XINFO-group", _read_other, lambda d: d.resp("XINFO", "CONSUMERS", _STREAM, "other")),
    Heavy("XINFO-group-lags", _behind, lambda d: d.resp("XINFO", "GROUPS", _STREAM)),
    Heavy("DELCONSUMER-group", _read_other, lambda d: d.resp(*_DROP, _STREAM, "other", "w")),
    Heavy("DESTROY-group", _read_other, lambda d: d.resp("XGROUP", "DESTROY", _STREAM, "other")),
    Heavy("CREATE-group", _jobs(), lambda d: d.resp("XGROUP", "CREATE", _STREAM, "other", "0")),
    Heavy("KEYS", Doors.spread, lambda doors: doors.resp("KEYS", "*")),
    Heavy("KEYS-left", Doors.spread, _leave_early("KEYS", "*")),
    Heavy("SCAN", Doors.spread, lambda doors: doors.resp("SCAN", "0", "COUNT", "10000")),
    Heavy("DBSIZE", Doors.spread, lambda doors: doors.resp("DBSIZE")),
    Heavy("ws-GetJobs", _jobs(), _ask_socket),
    Heavy("Dlq", _bury, _command("Dlq")),
    Heavy("dlq-page", _bury, lambda doors: doors.request("GET", "/queues/q/dlq")),
    Heavy("list-tubes", Doors.spread, _list_tubes),
    Heavy("diff", _write_large, _diff("large")),
    Heavy("diff-jobs", _jobs(), _diff("q")),
    Heavy("LRANGE", _keep("RPUSH", _LIST, 1), lambda doors: doors.resp("LRANGE", _LIST, "0", "-1")),
    Heavy("HGETALL", _keep("HSET", _HASH, 2), lambda doors: doors.resp("HGETALL", _HASH)),
    Heavy("SMEMBERS", _keep("SADD", _SET, 1), lambda doors: doors.resp("SMEMBERS", _SET)),
    *LEFTOVERS,
)
