"""redis-py against the server, as far as it behaves like a Redis."""

import threading
from typing import Any

import pytest
import redis

from tests.support.servers.glidemq import Yard


def test_connecting(client: Any) -> None:
    assert client.ping() is True
    assert client.echo("x") == b"x"
    info = client.info()
    assert (info["role"], info["redis_mode"], info["arch_bits"]) == ("master", "standalone", 64)
    assert client.client_setname("me") is True
    assert client.client_getname() in (b"me", "me")
    assert client.client_info()["name"] == "me"
    assert client.client_info()["addr"].startswith("127.0.0.1:")
    assert client.client_id() > 0
    assert client.config_get("maxmemory*")["maxmemory-policy"] == "noeviction"
    assert client.dbsize() >= 0
    assert client.time()[0] > 1_700_000_000
    assert client.command_count() == len(client.command_list())


@pytest.mark.parametrize("protocol", [2, 3])
def test_a_client_of_a_cluster(shared: Yard, queue: str, protocol: int) -> None:
    host, port = shared.address
    with redis.RedisCluster(host=host, port=port, protocol=protocol) as client:
        [node] = client.get_nodes()
        assert (node.host, node.port, node.server_type) == (host, port, "primary")
        key = queue + "schedulers"
        assert client.cluster_keyslot(key) == client.keyslot(key)
        assert client.hset(key, "a", "b") == 1
        assert client.hset("glide:{other}:schedulers", "a", "b") in (0, 1)
        assert client.delete(key, "glide:{other}:schedulers") == 2
        assert client.fcall("glidemq_version", 1, "{glidemq}:_") == b"93"


def test_functions(client: Any) -> None:
    assert client.fcall("glidemq_version", 0) == b"93"
    assert client.function_load("#!lua name=glidemq\n", replace=True) in (b"glidemq", "glidemq")
    with pytest.raises(redis.ResponseError, match="Function not found"):
        client.fcall("glidemq_nothing", 0)


def test_strings_and_hashes(client: Any, queue: str) -> None:
    key = queue + "tpm:1"
    assert client.set(key, "5", nx=True) is True
    assert client.set(key, "6", nx=True) is None
    assert client.set(key, "6", px=60_000, get=True) == b"5"
    assert 0 < client.ttl(key) <= 60
    assert client.incrby(key, 4) == 10
    assert client.persist(key) in (True, 1)
    assert client.hset(queue + "schedulers", mapping={"a": "1", "b": "2"}) == 2
    assert client.hgetall(queue + "schedulers") == {b"a": b"1", b"b": b"2"}
    assert client.hincrbyfloat(queue + "schedulers", "a", 0.5) == 1.5
    assert client.hdel(queue + "schedulers", "a", "b") == 2
    assert client.type(queue + "schedulers") == b"none"


def test_lists_and_sets(client: Any, queue: str) -> None:
    assert client.rpush(queue + "signals:1", "a", "b", "c") == 3
    assert client.lrange(queue + "signals:1", 0, -1) == [b"a", b"b", b"c"]
    assert client.lpop(queue + "signals:1", 2) == [b"a", b"b"]
    prefix = queue.partition(":")[2].strip("{}:")
    assert client.sadd(f"{prefix}:usage:queues", "x", "y") == 2
    assert set(client.smembers(f"{prefix}:usage:queues")) == {b"x", b"y"}


def test_streams(client: Any, queue: str) -> None:
    key = queue + "jstream:1"
    first = client.xadd(key, {"a": "1"})
    second = client.xadd(key, {"a": "2"}, maxlen=10)
    assert [entry[0] for entry in client.xrange(key)] == [first, second]
    assert client.xrevrange(key, count=1)[0][1] == {b"a": b"2"}
    found = client.xread({key: first})
    assert second in str(found).encode()
    assert client.xread({key: "$"}, block=10) in ([], {}, None)
    assert client.xdel(key, first) == 1
    assert client.xlen(key) == 1


def test_a_reader_is_woken(shared: Yard, client: Any, queue: str) -> None:
    key = queue + "jstream:1"
    found: list[object] = []

    def read() -> None:
        with shared.client() as other:
            found.append(other.xread({key: "0"}, block=15_000))

    reader = threading.Thread(target=read)
    reader.start()
    entry_id = client.xadd(key, {"a": "1"})
    reader.join(20)
    assert entry_id in str(found).encode()


def test_pipelines_and_transactions(client: Any, queue: str) -> None:
    with client.pipeline(transaction=False) as pipe:
        for number in range(1000):
            pipe.hset(queue + "budget:1", str(number), number)
        assert pipe.execute() == [1] * 1000
    with client.pipeline(transaction=True) as pipe:
        pipe.incr(queue + "tpm:1")
        pipe.hlen(queue + "budget:1")
        assert pipe.execute() == [1, 1000]
    with client.pipeline() as pipe, pytest.raises(redis.ResponseError, match="WATCH"):
        pipe.watch(queue + "tpm:1")


def test_scan(client: Any, queue: str) -> None:
    names = {f"{queue}w:{number}" for number in range(50)}
    for name in names:
        client.set(name, "x", ex=60)
    found = {key.decode() for key in client.scan_iter(match=queue.replace("{", "\\{") + "w:*")}
    assert found == names
    assert client.delete(*names) == 50


def test_other_keys_are_refused(client: Any) -> None:
    for attempt in ("set", "get", "lpush"):
        with pytest.raises(redis.ResponseError, match="is not a key of a queue"):
            client.execute_command(attempt, "foo", *(["x"] if attempt != "get" else []))


def test_big_values(client: Any, queue: str) -> None:
    value = bytes(range(256)) * (8 << 12)
    client.hset(queue + "schedulers", "big", value)
    assert client.hget(queue + "schedulers", "big") == value


def test_a_password(tmp_path_factory: pytest.TempPathFactory) -> None:
    data = tmp_path_factory.mktemp("password") / "data"
    yard = Yard("--data", str(data), "--glidemq-password", "secret")
    try:
        with yard.client() as stranger, pytest.raises(redis.AuthenticationError):
            stranger.ping()
        for protocol in (2, 3):
            with yard.client(password="secret", protocol=protocol) as friend:
                assert friend.ping() is True
        with yard.client(password="other") as wrong, pytest.raises(redis.AuthenticationError):
            wrong.ping()
    finally:
        yard.close()


def test_what_was_answered_survives_kill(tmp_path_factory: pytest.TempPathFactory) -> None:
    yard = Yard("--data", str(tmp_path_factory.mktemp("kill") / "data"))
    try:
        with yard.client() as client:
            client.hset("glide:{q}:schedulers", mapping={"a": "1", "b": "2"})
            client.rpush("glide:{q}:signals:1", "x", "y")
            entry_id = client.xadd("glide:{q}:jstream:1", {"f": "v"})
            client.set("glide:{q}:w:1", "alive", px=30_000)
            client.set("glide:{q}:tpm:1", "7", ex=86_400)
            client.hdel("glide:{q}:schedulers", "b")
        yard.kill()
        yard.start()
        with yard.client() as client:
            assert client.hgetall("glide:{q}:schedulers") == {b"a": b"1"}
            assert client.lrange("glide:{q}:signals:1", 0, -1) == [b"x", b"y"]
            assert client.xrange("glide:{q}:jstream:1") == [(entry_id, {b"f": b"v"})]
            assert client.exists("glide:{q}:w:1") == 0
            assert client.get("glide:{q}:tpm:1") == b"7"
            assert 86_000 < client.ttl("glide:{q}:tpm:1") <= 86_400
    finally:
        yard.close()


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_other_loops(loop: str) -> None:
    yard = Yard("--memory", "--loop", loop)
    try:
        with yard.client() as client, yard.client() as other:
            assert client.ping() is True
            blocked = client.connection_pool.get_connection()
            blocked.send_command("XREAD", "BLOCK", "0", "STREAMS", "glide:{q}:jstream:1", "0")
            entry_id = other.xadd("glide:{q}:jstream:1", {"a": "1"})
            assert entry_id in str(blocked.read_response()).encode()
            client.connection_pool.release(blocked)
    finally:
        yard.close()
