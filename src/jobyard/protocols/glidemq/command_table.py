"""All commands of the door by name, and COMMAND, which describes them."""

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from jobyard.protocols.glidemq.call import FUNCTION_ARGUMENT_NS, Call, CommandSpec
from jobyard.protocols.glidemq.commands import (
    cluster,
    connection,
    generic,
    hashes,
    lists,
    scans,
    server_info,
    streams,
    strings,
    zsets,
)
from jobyard.protocols.glidemq.errors import Wrong, unknown_subcommand, wrong_count
from jobyard.protocols.glidemq.functions import fcall
from jobyard.protocols.glidemq.groups import reads, workers
from jobyard.protocols.glidemq.many_arguments import check_whole
from jobyard.wire.resp.write import (
    write_array,
    write_bulk,
    write_integer,
    write_map,
    write_nil_array,
    write_set,
    write_simple,
)

NO_KEYS: Final = (0, 0, 0)
ONE_KEY: Final = (1, 1, 1)
ALL_KEYS: Final = (1, -1, 1)

# Cost of an argument that is a key to look up, or a job to remove.
LOOK_NS: Final = 3000
DROP_NS: Final = 6000
# Cost of commands that report much about the server.
TELL_NS: Final = 100_000

# These run at once even inside MULTI.
IMMEDIATE: Final = frozenset(
    {b"MULTI", b"EXEC", b"DISCARD", b"WATCH", b"UNWATCH", b"QUIT", b"RESET"}
)


def command(call: Call) -> None:
    """Describe commands."""
    check_whole(call)
    if call.count() == 1:
        _write_infos(call, list(REDIS_COMMANDS))
        return
    run = _SUBCOMMANDS.get(call.command.word(1))
    if run is None:
        raise unknown_subcommand("COMMAND", call.command.text(1))
    run(call)


def _count(call: Call) -> None:
    write_integer(call.out, len(REDIS_COMMANDS))


def _list(call: Call) -> None:
    write_array(call.out, len(REDIS_COMMANDS))
    for name in REDIS_COMMANDS:
        write_bulk(call.out, name.lower())


def _info(call: Call) -> None:
    _write_infos(
        call, [call.arg(at).upper() for at in range(2, call.count())] or list(REDIS_COMMANDS)
    )


def _write_infos(call: Call, names: list[bytes]) -> None:
    out = call.out
    write_array(out, len(names))
    for name in names:
        spec = REDIS_COMMANDS.get(name)
        if spec is None:
            write_nil_array(out, call.proto)
            continue
        write_array(out, 10)
        write_bulk(out, name.lower())
        write_integer(out, spec.arity)
        flags = [flag for flag in spec.flags if flag != "still"]
        write_set(out, len(flags), call.proto)
        for flag in flags:
            write_simple(out, flag.encode())
        for place in spec.keys:
            write_integer(out, place)
        # Categories, tips, key specifications, subcommands: left empty.
        write_set(out, 0, call.proto)
        write_array(out, 0)
        write_array(out, 0)
        write_array(out, 0)


def _docs(call: Call) -> None:
    names = [call.arg(at).upper() for at in range(2, call.count())] or list(REDIS_COMMANDS)
    known = [name for name in names if name in REDIS_COMMANDS]
    out = call.out
    write_map(out, len(known), call.proto)
    for name in known:
        write_bulk(out, name.lower())
        write_map(out, 1, call.proto)
        write_bulk(out, b"summary")
        # The original documents what a command does; only which commands exist is listed here.
        write_bulk(out, b"See the Valkey documentation")


def _get_keys(call: Call) -> None:
    if call.count() < 3:
        raise wrong_count("command|getkeys")
    spec = REDIS_COMMANDS.get(call.command.word(2))
    if spec is None:
        raise Wrong("ERR Invalid command specified")
    count: i64 = call.count() - 2
    if not spec.takes(count):
        raise Wrong("ERR Invalid number of arguments specified for command")
    keys: list[bytes] = []
    if call.is_word(2, b"FCALL") or call.is_word(2, b"FCALL_RO"):
        number = call.integer(4)
        if number < 0 or number > count - 3:
            raise Wrong("ERR Invalid arguments specified for command")
        keys = call.args(5)[:number]
    elif spec.keys[0] > 0:
        first, last, step = spec.keys
        end = (count + last if last < 0 else i64(last)) + 1
        keys = [call.arg(2 + at) for at in range(first, end, step)]
    if not keys:
        raise Wrong("ERR The command has no key arguments")
    write_array(call.out, len(keys))
    for key in keys:
        write_bulk(call.out, key)


_SUBCOMMANDS: Final[dict[bytes, Callable[[Call], None]]] = {
    b"COUNT": _count,
    b"LIST": _list,
    b"INFO": _info,
    b"DOCS": _docs,
    b"GETKEYS": _get_keys,
}

REDIS_COMMANDS: Final[dict[bytes, CommandSpec]] = {
    # the connection
    b"HELLO": CommandSpec(
        connection.hello, -1, "noscript loading stale fast no_auth still", NO_KEYS
    ),
    b"AUTH": CommandSpec(connection.auth, -2, "noscript loading stale fast no_auth still", NO_KEYS),
    b"QUIT": CommandSpec(connection.leave, -1, "fast no_auth still", NO_KEYS),
    b"RESET": CommandSpec(connection.reset, 1, "noscript fast no_auth still", NO_KEYS),
    b"PING": CommandSpec(connection.ping, -1, "fast still", NO_KEYS),
    b"ECHO": CommandSpec(connection.echo, 2, "fast still", NO_KEYS),
    b"SELECT": CommandSpec(connection.select, 2, "fast still", NO_KEYS),
    b"CLIENT": CommandSpec(connection.client, -2, "admin noscript still", NO_KEYS),
    b"MULTI": CommandSpec(connection.multi, 1, "noscript fast still", NO_KEYS),
    b"EXEC": CommandSpec(connection.execute, 1, "noscript", NO_KEYS),
    b"DISCARD": CommandSpec(connection.discard, 1, "noscript fast still", NO_KEYS),
    b"WATCH": CommandSpec(connection.watch, -2, "noscript fast still", ALL_KEYS),
    b"UNWATCH": CommandSpec(connection.unwatch, 1, "noscript fast still", NO_KEYS),
    # the server
    b"INFO": CommandSpec(server_info.info, -1, "loading stale still", NO_KEYS, own_ns=TELL_NS),
    b"COMMAND": CommandSpec(command, -1, "loading stale still", NO_KEYS, own_ns=TELL_NS),
    b"CONFIG": CommandSpec(server_info.config, -2, "admin still", NO_KEYS),
    b"SLOWLOG": CommandSpec(server_info.slowlog, -2, "admin still", NO_KEYS),
    b"LATENCY": CommandSpec(server_info.latency, -2, "admin still", NO_KEYS),
    b"CLUSTER": CommandSpec(cluster.cluster, -2, "still", NO_KEYS),
    b"READONLY": CommandSpec(cluster.stay, 1, "fast still", NO_KEYS),
    b"READWRITE": CommandSpec(cluster.stay, 1, "fast still", NO_KEYS),
    b"ASKING": CommandSpec(cluster.stay, 1, "fast still", NO_KEYS),
    b"ROLE": CommandSpec(server_info.role, 1, "fast still", NO_KEYS),
    b"TIME": CommandSpec(server_info.time, 1, "fast still", NO_KEYS),
    b"MODULE": CommandSpec(server_info.module, -2, "admin still", NO_KEYS),
    b"ACL": CommandSpec(server_info.acl, -2, "admin still", NO_KEYS),
    b"EVAL": CommandSpec(server_info.evaluate, -3, "noscript movablekeys still", NO_KEYS),
    b"EVALSHA": CommandSpec(server_info.evaluate, -3, "noscript movablekeys still", NO_KEYS),
    b"EVAL_RO": CommandSpec(
        server_info.evaluate, -3, "noscript movablekeys readonly still", NO_KEYS
    ),
    b"EVALSHA_RO": CommandSpec(
        server_info.evaluate, -3, "noscript movablekeys readonly still", NO_KEYS
    ),
    b"SCRIPT": CommandSpec(server_info.script, -2, "noscript still", NO_KEYS),
    b"FUNCTION": CommandSpec(fcall.function, -2, "noscript still", NO_KEYS),
    b"FCALL": CommandSpec(
        fcall.fcall, -3, "noscript movablekeys", NO_KEYS, argument_ns=FUNCTION_ARGUMENT_NS
    ),
    b"FCALL_RO": CommandSpec(
        fcall.fcall_ro,
        -3,
        "noscript movablekeys readonly",
        NO_KEYS,
        argument_ns=FUNCTION_ARGUMENT_NS,
    ),
    # any key
    b"SCAN": CommandSpec(generic.scan, -2, "readonly", NO_KEYS),
    b"KEYS": CommandSpec(generic.keys, 2, "readonly", NO_KEYS),
    b"DBSIZE": CommandSpec(generic.size, 1, "readonly fast", NO_KEYS),
    b"TYPE": CommandSpec(generic.type_of, 2, "readonly fast", ONE_KEY),
    b"EXISTS": CommandSpec(generic.exists, -2, "readonly fast", ALL_KEYS, argument_ns=LOOK_NS),
    b"DEL": CommandSpec(generic.delete, -2, "write", ALL_KEYS, argument_ns=DROP_NS),
    b"UNLINK": CommandSpec(generic.delete, -2, "write fast", ALL_KEYS, argument_ns=DROP_NS),
    b"TTL": CommandSpec(generic.ttl, 2, "readonly fast", ONE_KEY),
    b"PTTL": CommandSpec(generic.pttl, 2, "readonly fast", ONE_KEY),
    b"EXPIRE": CommandSpec(generic.expire, -3, "write fast", ONE_KEY),
    b"PEXPIRE": CommandSpec(generic.pexpire, -3, "write fast", ONE_KEY),
    b"EXPIREAT": CommandSpec(generic.expire_at, -3, "write fast", ONE_KEY),
    b"PEXPIREAT": CommandSpec(generic.pexpire_at, -3, "write fast", ONE_KEY),
    b"PERSIST": CommandSpec(generic.persist, 2, "write fast", ONE_KEY),
    b"MEMORY": CommandSpec(generic.memory, -2, "readonly", (2, 2, 1)),
    b"OBJECT": CommandSpec(generic.encoding, -2, "readonly", (2, 2, 1)),
    # strings
    b"GET": CommandSpec(strings.get, 2, "readonly fast", ONE_KEY),
    b"MGET": CommandSpec(strings.mget, -2, "readonly fast", ALL_KEYS, argument_ns=LOOK_NS),
    b"GETRANGE": CommandSpec(strings.getrange, 4, "readonly", ONE_KEY),
    b"STRLEN": CommandSpec(strings.strlen, 2, "readonly fast", ONE_KEY),
    b"SET": CommandSpec(strings.set_value, -3, "write denyoom", ONE_KEY),
    b"SETNX": CommandSpec(strings.setnx, 3, "write denyoom fast", ONE_KEY),
    b"SETEX": CommandSpec(strings.setex, 4, "write denyoom", ONE_KEY),
    b"PSETEX": CommandSpec(strings.psetex, 4, "write denyoom", ONE_KEY),
    b"GETDEL": CommandSpec(strings.getdel, 2, "write fast", ONE_KEY),
    b"INCR": CommandSpec(strings.incr, 2, "write denyoom fast", ONE_KEY),
    b"DECR": CommandSpec(strings.decr, 2, "write denyoom fast", ONE_KEY),
    b"INCRBY": CommandSpec(strings.incrby, 3, "write denyoom fast", ONE_KEY),
    b"DECRBY": CommandSpec(strings.decrby, 3, "write denyoom fast", ONE_KEY),
    # hashes
    b"HSET": CommandSpec(hashes.hset, -4, "write denyoom fast", ONE_KEY),
    b"HMSET": CommandSpec(hashes.hmset, -4, "write denyoom fast", ONE_KEY),
    b"HSETNX": CommandSpec(hashes.hsetnx, 4, "write denyoom fast", ONE_KEY),
    b"HGET": CommandSpec(hashes.hget, 3, "readonly fast", ONE_KEY),
    b"HMGET": CommandSpec(hashes.hmget, -3, "readonly fast", ONE_KEY),
    b"HGETALL": CommandSpec(hashes.hgetall, 2, "readonly", ONE_KEY),
    b"HKEYS": CommandSpec(hashes.hkeys, 2, "readonly", ONE_KEY),
    b"HVALS": CommandSpec(hashes.hvals, 2, "readonly", ONE_KEY),
    b"HSCAN": CommandSpec(scans.hscan, -3, "readonly", ONE_KEY),
    b"HLEN": CommandSpec(hashes.hlen, 2, "readonly fast", ONE_KEY),
    b"HEXISTS": CommandSpec(hashes.hexists, 3, "readonly fast", ONE_KEY),
    b"HSTRLEN": CommandSpec(hashes.hstrlen, 3, "readonly fast", ONE_KEY),
    b"HDEL": CommandSpec(hashes.hdel, -3, "write fast", ONE_KEY),
    b"HINCRBY": CommandSpec(hashes.hincrby, 4, "write denyoom fast", ONE_KEY),
    b"HINCRBYFLOAT": CommandSpec(hashes.hincrbyfloat, 4, "write denyoom fast", ONE_KEY),
    # lists
    b"RPUSH": CommandSpec(lists.rpush, -3, "write denyoom fast", ONE_KEY),
    b"LPUSH": CommandSpec(lists.lpush, -3, "write denyoom fast", ONE_KEY),
    b"RPOP": CommandSpec(lists.rpop, -2, "write fast", ONE_KEY),
    b"LPOP": CommandSpec(lists.lpop, -2, "write fast", ONE_KEY),
    b"LRANGE": CommandSpec(lists.lrange, 4, "readonly", ONE_KEY),
    b"LINDEX": CommandSpec(lists.lindex, 3, "readonly", ONE_KEY),
    b"LLEN": CommandSpec(lists.llen, 2, "readonly fast", ONE_KEY),
    b"LTRIM": CommandSpec(lists.ltrim, 4, "write", ONE_KEY),
    # sets
    b"SADD": CommandSpec(lists.sadd, -3, "write denyoom fast", ONE_KEY),
    b"SREM": CommandSpec(lists.srem, -3, "write fast", ONE_KEY),
    b"SMEMBERS": CommandSpec(lists.smembers, 2, "readonly", ONE_KEY),
    b"SSCAN": CommandSpec(scans.sscan, -3, "readonly", ONE_KEY),
    b"SCARD": CommandSpec(lists.scard, 2, "readonly fast", ONE_KEY),
    b"SISMEMBER": CommandSpec(lists.sismember, 3, "readonly fast", ONE_KEY),
    # sorted sets
    b"ZADD": CommandSpec(zsets.zadd, -4, "write denyoom fast", ONE_KEY),
    b"ZREM": CommandSpec(zsets.zrem, -3, "write fast", ONE_KEY),
    b"ZSCORE": CommandSpec(zsets.zscore, 3, "readonly fast", ONE_KEY),
    b"ZCARD": CommandSpec(zsets.zcard, 2, "readonly fast", ONE_KEY),
    b"ZSCAN": CommandSpec(scans.zscan, -3, "readonly", ONE_KEY),
    b"ZCOUNT": CommandSpec(zsets.zcount, 4, "readonly fast", ONE_KEY),
    b"ZRANGE": CommandSpec(zsets.zrange, -4, "readonly", ONE_KEY),
    b"ZREVRANGE": CommandSpec(zsets.zrevrange, -4, "readonly", ONE_KEY),
    b"ZRANGEBYSCORE": CommandSpec(zsets.zrangebyscore, -4, "readonly", ONE_KEY),
    b"ZREVRANGEBYSCORE": CommandSpec(zsets.zrevrangebyscore, -4, "readonly", ONE_KEY),
    b"ZPOPMIN": CommandSpec(zsets.zpopmin, -2, "write fast", ONE_KEY),
    # streams
    b"XADD": CommandSpec(streams.xadd, -5, "write denyoom fast", ONE_KEY),
    b"XLEN": CommandSpec(streams.xlen, 2, "readonly fast", ONE_KEY),
    b"XRANGE": CommandSpec(streams.xrange, -4, "readonly", ONE_KEY),
    b"XREVRANGE": CommandSpec(streams.xrevrange, -4, "readonly", ONE_KEY),
    b"XREAD": CommandSpec(streams.xread, -4, "readonly blocking movablekeys", NO_KEYS),
    b"XTRIM": CommandSpec(streams.xtrim, -4, "write", ONE_KEY),
    b"XDEL": CommandSpec(streams.xdel, -3, "write fast", ONE_KEY, argument_ns=DROP_NS),
    b"XGROUP": CommandSpec(workers.xgroup, -2, "write denyoom", (2, 2, 1)),
    b"XREADGROUP": CommandSpec(reads.xreadgroup, -7, "write blocking movablekeys", NO_KEYS),
    b"XACK": CommandSpec(workers.xack, -4, "write fast", ONE_KEY, argument_ns=DROP_NS),
    b"XPENDING": CommandSpec(workers.xpending, -3, "readonly", ONE_KEY),
    b"XCLAIM": CommandSpec(workers.xclaim, -6, "write fast", ONE_KEY),
    b"XAUTOCLAIM": CommandSpec(workers.xautoclaim, -6, "write fast", ONE_KEY),
    b"XINFO": CommandSpec(server_info.xinfo, -2, "readonly", (2, 2, 1)),
}
