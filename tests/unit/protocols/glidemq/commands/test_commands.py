"""Commands for keys, run as whole conversations: requests, and the required answers."""

from typing import Any, Final

import pytest

from jobyard.engine.state.yard import Yard
from jobyard.model.glidemq.stored_values import ValueKind
from jobyard.protocols.glidemq.keyspace.key import KeyScan, Projections, RedisKey
from jobyard.protocols.glidemq.keyspace.key_names import KeyName
from jobyard.protocols.glidemq.keyspace.stored import StoredKey
from tests.support.clients.glidemq import GlideClient
from tests.support.doors.glidemq import BareGlidemq
from tests.support.site.storage import MemoryStorage

TEXT: Final = "glide:{q}:tpm:1"
HASH: Final = "glide:{q}:budget:1"
LIST: Final = "glide:{q}:signals:1"
SET: Final = "glide:usage:queues"
SORTED: Final = "glide:{q}:sorted"
STREAM: Final = "glide:{q}:jstream:1"
NOT_INTEGER: Final = "ERR value is not an integer or out of range"
WRONG_TYPE: Final = "WRONGTYPE Operation against a key holding the wrong kind of value"


class Sorted(Projections):
    """Finds one key, which is a sorted set: no stored value is one."""

    def __init__(self, yard: Yard) -> None:
        self._yard = yard

    def find(self, name: KeyName, now_ms: int) -> RedisKey | None:
        if name.family == b"sorted":
            return StoredKey(self._yard, name.key, ValueKind.ZSET, now_ms)
        return None

    def scan(self, scan: KeyScan, most: int, now_ms: int) -> int:
        assert now_ms > 0
        while scan.cursor < 5 and most > 0 and not scan.is_enough():
            scan.names.append(b"glide:{q}:%d" % scan.cursor)
            scan.cursor += 1
            scan.looked += 1
            most -= 1
        scan.is_over = scan.cursor >= 5
        scan.cursor %= 5
        return 1


@pytest.fixture
def site() -> BareGlidemq:
    site = BareGlidemq()
    site.door.projections = Sorted(site.yard)
    return site


@pytest.fixture
def client(site: BareGlidemq) -> GlideClient:
    return site.connect()


def talk(client: GlideClient, *lines: tuple[str, Any]) -> None:
    for line, expected in lines:
        words = [word.replace("_", " ") if word != "''" else "" for word in line.split()]
        if isinstance(expected, str):
            assert client.refused(*words) == expected, line
        else:
            assert client.ask(*words) == expected, line


def test_strings(client: GlideClient) -> None:
    talk(
        client,
        (f"GET {TEXT}", None),
        (f"SET {TEXT} one", b"OK"),
        (f"GET {TEXT}", b"one"),
        (f"STRLEN {TEXT}", 3),
        (f"GETRANGE {TEXT} 1 -1", b"ne"),
        (f"GETRANGE {TEXT} 5 9", b""),
        (f"SET {TEXT} two NX", None),
        (f"SET {TEXT} two XX GET", b"one"),
        (f"SET {TEXT} three NX XX", "ERR syntax error"),
        (f"SET {TEXT} three EX", "ERR syntax error"),
        (f"SET {TEXT} three EX 0", "ERR invalid expire time in 'set' command"),
        (f"SET {TEXT} three PX x", NOT_INTEGER),
        (f"SET {TEXT} three EX 10 KEEPTTL", "ERR syntax error"),
        (f"SETNX {TEXT} three", 0),
        (f"MGET {TEXT} {HASH}", [b"two", None]),
        (f"GETDEL {TEXT}", b"two"),
        (f"GETDEL {TEXT}", None),
        (f"SETNX {TEXT} three", 1),
        (f"INCR {TEXT}", NOT_INTEGER),
        (f"HSET {HASH} a 1", 1),
        (f"GET {HASH}", WRONG_TYPE),
        (f"SET {HASH} x", f"ERR '{HASH}' can only be a hash"),
    )


def test_counting(client: GlideClient) -> None:
    talk(
        client,
        (f"INCR {TEXT}", 1),
        (f"INCRBY {TEXT} 41", 42),
        (f"DECR {TEXT}", 41),
        (f"DECRBY {TEXT} -1", 42),
        (f"INCRBY {TEXT} x", NOT_INTEGER),
        (f"SET {TEXT} 9223372036854775807", b"OK"),
        (f"INCR {TEXT}", "ERR increment or decrement would overflow"),
        (f"DECRBY {TEXT} -9223372036854775808", "ERR increment or decrement would overflow"),
        (f"GET {TEXT}", b"9223372036854775807"),
    )


def test_keys_that_go_by_themselves(site: BareGlidemq, client: GlideClient) -> None:
    talk(
        client,
        (f"TTL {TEXT}", -2),
        (f"EXPIRE {TEXT} 10", 0),
        (f"SET {TEXT} 1 EX 10", b"OK"),
        (f"TTL {TEXT}", 10),
        (f"INCR {TEXT}", 2),
        (f"PTTL {TEXT}", 10_000),
        (f"SET {TEXT} 3 KEEPTTL", b"OK"),
        (f"PTTL {TEXT}", 10_000),
        (f"PERSIST {TEXT}", 1),
        (f"PERSIST {TEXT}", 0),
        (f"TTL {TEXT}", -1),
        (f"EXPIRE {TEXT} 10 XX", 0),
        (f"EXPIRE {TEXT} 10 NX", 1),
        (f"PEXPIRE {TEXT} 9000 GT", 0),
        (f"PEXPIRE {TEXT} 9000 LT", 1),
        (f"EXPIRE {TEXT} 10 FLY", "ERR Unsupported option FLY"),
        (f"EXPIRE {TEXT} 99999999999999999", "ERR invalid expire time in 'expire' command"),
        (f"PEXPIREAT {TEXT} {site.now_ms + 5000}", 1),
    )
    site.tick(4999)
    assert client.ask("GET", TEXT) == b"3"
    site.tick(1)
    assert client.ask("GET", TEXT) is None
    client.ask("PSETEX", TEXT, "100", "x")
    assert client.ask("EXPIRE", TEXT, "-1") == 1
    assert client.ask("EXISTS", TEXT) == 0


@pytest.mark.parametrize("seconds", ["100", "0", "-1"])
def test_a_key_that_shows_jobs_does_not_expire(client: GlideClient, seconds: str) -> None:
    stream = "glide:{mail}:stream"
    client.ask("XGROUP", "CREATE", stream, "workers", "0", "MKSTREAM")
    groups = client.ask("XINFO", "GROUPS", stream)
    assert groups
    assert client.refused("EXPIRE", stream, seconds).startswith("ERR")
    assert client.ask("XINFO", "GROUPS", stream) == groups


def test_hashes(client: GlideClient) -> None:
    talk(
        client,
        (f"HGETALL {HASH}", []),
        (f"HSET {HASH} a 1 b 2", 2),
        (f"HSET {HASH} a 3 c 4", 1),
        (f"HSET {HASH} a", "ERR wrong number of arguments for 'hset' command"),
        (f"HSET {HASH} a 1 b", "ERR wrong number of arguments for 'hset' command"),
        (f"HMSET {HASH} a 3", b"OK"),
        (f"HGET {HASH} a", b"3"),
        (f"HGET {HASH} z", None),
        (f"HMGET {HASH} a z b", [b"3", None, b"2"]),
        (f"HGETALL {HASH}", [b"a", b"3", b"b", b"2", b"c", b"4"]),
        (f"HKEYS {HASH}", [b"a", b"b", b"c"]),
        (f"HVALS {HASH}", [b"3", b"2", b"4"]),
        (f"HSCAN {HASH} 0", [b"0", [b"a", b"3", b"b", b"2", b"c", b"4"]]),
        (f"HSCAN {HASH} 0 MATCH [ab] COUNT 1", [b"0", [b"a", b"3", b"b", b"2"]]),
        (f"HSCAN {HASH} 0 NOVALUES", [b"0", [b"a", b"b", b"c"]]),
        (f"HSCAN {HASH} 0 MATCH", "ERR syntax error"),
        (f"HSCAN {HASH} x", "ERR invalid cursor"),
        (f"HLEN {HASH}", 3),
        (f"HEXISTS {HASH} a", 1),
        (f"HEXISTS {HASH} z", 0),
        (f"HSTRLEN {HASH} a", 1),
        (f"HSETNX {HASH} a 9", 0),
        (f"HSETNX {HASH} d x", 1),
        (f"HINCRBY {HASH} a 4", 7),
        (f"HINCRBY {HASH} new -1", -1),
        (f"HINCRBY {HASH} d 1", "ERR hash value is not an integer"),
        (f"HINCRBY {HASH} a 9223372036854775807", "ERR increment or decrement would overflow"),
        (f"HINCRBYFLOAT {HASH} f 0.1", b"0.1"),
        (f"HINCRBYFLOAT {HASH} f 0.2", b"0.3"),
        (f"HINCRBYFLOAT {HASH} f -0.3", b"0"),
        (f"HINCRBYFLOAT {HASH} f x", "ERR value is not a valid float"),
        (f"HINCRBYFLOAT {HASH} d 1", "ERR hash value is not a float"),
        (f"HDEL {HASH} a z", 1),
        (f"HDEL {HASH} b c d new f", 5),
        (f"EXISTS {HASH}", 0),
        (f"HDEL {HASH} a", 0),
        (f"RPUSH {HASH} a", f"ERR '{HASH}' can only be a hash"),
    )
    client.speak(3)
    client.ask("HSET", HASH, "a", "1")
    assert client.ask("HGETALL", HASH) == {b"a": b"1"}


def test_lists(client: GlideClient) -> None:
    talk(
        client,
        (f"RPUSH {LIST} c d", 2),
        (f"LPUSH {LIST} b a", 4),
        (f"LRANGE {LIST} 0 -1", [b"a", b"b", b"c", b"d"]),
        (f"LRANGE {LIST} -2 10", [b"c", b"d"]),
        (f"LRANGE {LIST} 2 1", []),
        (f"LRANGE {LIST} -9223372036854775808 9223372036854775807", [b"a", b"b", b"c", b"d"]),
        (f"LRANGE {LIST} x 1", NOT_INTEGER),
        (f"LINDEX {LIST} -1", b"d"),
        (f"LINDEX {LIST} 4", None),
        (f"LLEN {LIST}", 4),
        (f"LPOP {LIST}", b"a"),
        (f"RPOP {LIST} 2", [b"d", b"c"]),
        (f"RPOP {LIST} -1", "ERR value is out of range, must be positive"),
        (f"RPOP {LIST} 0", []),
        (f"LTRIM {LIST} 5 9", b"OK"),
        (f"EXISTS {LIST}", 0),
        (f"RPOP {LIST}", None),
        (f"LPOP {LIST} 2", None),
        (f"RPUSH {LIST} 1 2 3 4 5", 5),
        (f"LTRIM {LIST} 1 -2", b"OK"),
        (f"LRANGE {LIST} 0 -1", [b"2", b"3", b"4"]),
        (f"HGET {LIST} a", WRONG_TYPE),
    )


def test_sets(client: GlideClient) -> None:
    talk(
        client,
        (f"SADD {SET} a b a", 2),
        (f"SCARD {SET}", 2),
        (f"SISMEMBER {SET} a", 1),
        (f"SISMEMBER {SET} c", 0),
        (f"SMEMBERS {SET}", [b"a", b"b"]),
        (f"SSCAN {SET} 0", [b"0", [b"a", b"b"]]),
        (f"SSCAN {SET} 0 MATCH b*", [b"0", [b"b"]]),
        (f"SSCAN {SET} 0 NOVALUES", "ERR syntax error"),
        (f"SREM {SET} a c", 1),
        (f"SREM {SET} b", 1),
        (f"TYPE {SET}", b"none"),
        (f"SMEMBERS {SET}", []),
    )


def test_sorted_sets(client: GlideClient) -> None:
    talk(
        client,
        (f"ZADD {SORTED} 1 a 2 b 3 c", 3),
        (f"ZADD {SORTED} CH 1 a 5 b", 1),
        (f"ZADD {SORTED} NX 9 a 4 d", 1),
        (f"ZADD {SORTED} XX GT 0 a 9 z", 0),
        (f"ZADD {SORTED} NX GT 1 a", _ZADD_CLASH),
        (f"ZADD {SORTED} x a", "ERR value is not a valid float"),
        (f"ZADD {SORTED} 1", "ERR wrong number of arguments for 'zadd' command"),
        (f"ZSCORE {SORTED} b", b"5"),
        (f"ZSCORE {SORTED} z", None),
        (f"ZCARD {SORTED}", 4),
        (f"ZRANGE {SORTED} 0 -1", [b"a", b"c", b"d", b"b"]),
        (f"ZRANGE {SORTED} 0 1 REV WITHSCORES", [b"b", b"5", b"d", b"4"]),
        (f"ZREVRANGE {SORTED} 0 0", [b"b"]),
        (f"ZRANGE {SORTED} (1 +inf BYSCORE LIMIT 1 1", [b"d"]),
        (f"ZRANGE {SORTED} (1 +inf BYSCORE LIMIT 1 9223372036854775807", [b"d", b"b"]),
        (f"ZRANGE {SORTED} 4 -inf BYSCORE REV", [b"d", b"c", b"a"]),
        (f"ZRANGEBYSCORE {SORTED} 3 4 WITHSCORES", [b"c", b"3", b"d", b"4"]),
        (f"ZREVRANGEBYSCORE {SORTED} 4 3", [b"d", b"c"]),
        (f"ZRANGEBYSCORE {SORTED} x 4", "ERR min or max is not a float"),
        (f"ZCOUNT {SORTED} 3 (5", 2),
        (f"ZSCAN {SORTED} 0 MATCH a", [b"0", [b"a", b"1"]]),
        (f"ZREM {SORTED} a z", 1),
        (f"ZPOPMIN {SORTED}", [b"c", b"3"]),
        (f"ZPOPMIN {SORTED} 5", [b"d", b"4", b"b", b"5"]),
        (f"EXISTS {SORTED}", 0),
    )
    client.speak(3)
    client.ask("ZADD", SORTED, "1.5", "a")
    assert client.ask("ZRANGE", SORTED, "0", "-1", "WITHSCORES") == [[b"a", 1.5]]
    assert client.ask("ZSCORE", SORTED, "a") == 1.5
    assert client.ask("ZPOPMIN", SORTED) == [b"a", 1.5]


_ZADD_CLASH: Final = "ERR GT, LT, and/or NX options at the same time are not compatible"


def test_keys_of_all_kinds(client: GlideClient) -> None:
    talk(
        client,
        (f"SET {TEXT} 1", b"OK"),
        (f"HSET {HASH} a 1", 1),
        (f"RPUSH {LIST} a", 1),
        (f"SADD {SET} a", 1),
        (f"ZADD {SORTED} 1 a", 1),
        (f"XADD {STREAM} 1-1 a b", b"1-1"),
        ("DBSIZE", 11),
        (f"EXISTS {TEXT} {TEXT} {HASH} glide:{{q}}:w:none", 3),
    )
    kinds = [client.ask("TYPE", key) for key in (TEXT, HASH, LIST, SET, SORTED, STREAM)]
    assert kinds == [b"string", b"hash", b"list", b"set", b"zset", b"stream"]
    assert client.ask("UNLINK", TEXT, HASH, TEXT) == 2
    assert client.ask("DEL", LIST, SET, SORTED, STREAM) == 4
    assert client.ask("DBSIZE") == 5


@pytest.mark.parametrize(
    "command",
    [
        "GET foo", "SET foo bar", "DEL foo", "EXISTS foo", "TYPE foo", "HGETALL glide:{q}:nothing",
        "SET glide:{q}:w 1", "HSET glide:{a:b}:schedulers a 1", "TTL foo", "XREAD STREAMS foo 0",
    ],
)  # fmt: skip
def test_other_keys_are_refused_and_nothing_is_kept(client: GlideClient, command: str) -> None:
    assert client.refused(*command.split()).startswith("ERR '")
    assert client.ask("DBSIZE") == 5


def test_nothing_goes_when_one_of_many_is_refused(client: GlideClient) -> None:
    client.ask("SET", TEXT, "1")
    assert client.refused("DEL", TEXT, "foo").startswith("ERR 'foo' is not a key of a queue")
    assert client.ask("EXISTS", TEXT) == 1


def test_keys_that_no_queue_has_are_not_there(client: GlideClient) -> None:
    client.ask("SET", TEXT, "1")
    strange = "glide:{q}:list-active-ids"
    assert client.ask("EXISTS", strange, TEXT) == 1
    assert client.ask("UNLINK", strange, TEXT) == 1
    assert client.refused("SADD", strange, "1").startswith(f"ERR '{strange}' is not a known key")


def test_what_other_queues_are_to_be_told_is_kept(client: GlideClient) -> None:
    pending = "glide:{q}:xq-pending"
    assert client.ask("SADD", pending, "a") == 1
    assert client.ask("SMEMBERS", pending) == [b"a"]
    assert client.ask("SREM", pending, "a") == 1
    assert client.ask("EXISTS", pending) == 0


def test_scan_goes_through_shown_and_kept_keys(client: GlideClient) -> None:
    kept = {f"glide:{{q}}:w:{number}".encode() for number in range(25)}
    for name in sorted(kept):
        client.ask("SET", name, "x", "EX", "100")
    client.ask("HSET", HASH, "a", "1")
    shown = {b"glide:{q}:%d" % number for number in range(5)}
    assert walk(client) == kept | shown | {HASH.encode()}
    assert walk(client, "MATCH", "glide:{q}:w:*", "COUNT", "3") >= kept
    assert walk(client, "MATCH", "nothing") == shown
    assert client.ask("KEYS", "*budget*")[-1] == HASH.encode()
    assert client.refused("SCAN", "x") == "ERR invalid cursor"
    assert client.refused("SCAN", "0", "COUNT", "0") == "ERR syntax error"
    assert client.refused("SCAN", "0", "MATCH") == "ERR syntax error"


def walk(client: GlideClient, *options: str) -> set[bytes]:
    found: set[bytes] = set()
    cursor = b"0"
    while True:
        cursor, names = client.ask("SCAN", cursor, *options)
        found |= set(names)
        if cursor == b"0":
            return found


def test_scan_by_kind() -> None:
    client = BareGlidemq().connect()
    client.ask("SET", TEXT, "1")
    client.ask("HSET", HASH, "a", "1")
    assert client.ask("SCAN", "0", "TYPE", "hash") == [b"0", [HASH.encode()]]


def test_what_was_answered_survives_a_crash() -> None:
    site = BareGlidemq(MemoryStorage())
    client = site.connect()
    client.ask("MULTI")
    client.ask("HSET", HASH, "a", "1")
    client.ask("RPUSH", LIST, "x", "y")
    client.ask("EXEC")
    assert client.session.awaits == site.yard.journal.appended > 0
    again = site.reboot(1000).connect()
    assert again.ask("HGETALL", HASH) == [b"a", b"1"]
    assert again.ask("LRANGE", LIST, "0", "-1") == [b"x", b"y"]


def test_a_transaction_lies_in_one_batch() -> None:
    site = BareGlidemq(MemoryStorage(), segment_size=64 << 10)
    client = site.connect()
    numbers: set[int] = set()
    for turn in range(200):
        client.ask("MULTI")
        for number in range(5):
            client.ask("HSET", HASH, f"a{number}", f"{turn}" * 200, f"b{number}", "x" * 300)
        client.ask("EXEC")
        entries = [
            entry for key, entry in site.yard.journal.entries.items() if HASH.encode() in key[1]
        ]
        (segment,) = {int(entry.segment) for entry in entries if entry.key[-2:-1] == b"a"}
        numbers.add(segment)
        site.commit()
    assert len(numbers) > 3


def test_no_room_is_reported() -> None:
    client = BareGlidemq(budget=1000).connect()
    assert client.refused("SET", TEXT, "x" * 2000).startswith("OOM command not allowed")
    assert client.ask("EXISTS", TEXT) == 0
    site = BareGlidemq(MemoryStorage())
    site.yard.journal.is_full = True
    client = site.connect()
    assert client.refused("SET", TEXT, "x" * (2 << 20)).startswith("MISCONF no space left")
