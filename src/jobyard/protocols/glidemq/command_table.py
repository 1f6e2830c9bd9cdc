"""All commands of the door by name, and COMMAND, which tells about them."""

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from jobyard.protocols.glidemq.call import FUNCTION_ARGUMENT_NS, Call, Spec
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

# What an argument takes that is a key to be looked up, or a job that goes.
LOOK_NS: Final = 3000
DROP_NS: Final = 6000
# What commands take that tell much of the server.
TELL_NS: Final = 100_000

# These are run though a transaction is being put together.
IMMEDIATE: Final = frozenset(
    {b"MULTI", b"EXEC", b"DISCARD", b"WATCH", b"UNWATCH", b"QUIT", b"RESET"}
)


def command(call: Call) -> None:
    """Tell about commands."""
    check_whole(call)
    if call.count() == 1:
        _write_infos(call, list(COMMANDS))
        return
    run = _SUBCOMMANDS.get(call.command.word(1))
    if run is None:
        raise unknown_subcommand("COMMAND", call.command.text(1))
    run(call)


def _count(call: Call) -> None:
    write_integer(call.out, len(COMMANDS))


def _list(call: Call) -> None:
    write_array(call.out, len(COMMANDS))
    for name in COMMANDS:
        write_bulk(call.out, name.lower())


def _info(call: Call) -> None:
    _write_infos(call, [call.arg(at).upper() for at in range(2, call.count())] or list(COMMANDS))


def _write_infos(call: Call, names: list[bytes]) -> None:
    out = call.out
    write_array(out, len(names))
    for name in names:
        spec = COMMANDS.get(name)
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
        # Categories, tips, specifications of keys, subcommands: nothing is said of them.
        write_set(out, 0, call.proto)
        write_array(out, 0)
        write_array(out, 0)
        write_array(out, 0)


def _docs(call: Call) -> None:
    names = [call.arg(at).upper() for at in range(2, call.count())] or list(COMMANDS)
    known = [name for name in names if name in COMMANDS]
    out = call.out
    write_map(out, len(known), call.proto)
    for name in known:
        write_bulk(out, name.lower())
        write_map(out, 1, call.proto)
        write_bulk(out, b"summary")
        # What a command does is told by its original; here it is told which there are.
        write_bulk(out, b"See the document of Valkey")


def _get_keys(call: Call) -> None:
    if call.count() < 3:
        raise wrong_count("command|getkeys")
    spec = COMMANDS.get(call.command.word(2))
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

COMMANDS: Final[dict[bytes, Spec]] = {
    # the connection
    b"HELLO": Spec(connection.hello, -1, "noscript loading stale fast no_auth still", NO_KEYS),
    b"AUTH": Spec(connection.auth, -2, "noscript loading stale fast no_auth still", NO_KEYS),
    b"QUIT": Spec(connection.leave, -1, "fast no_auth still", NO_KEYS),
    b"RESET": Spec(connection.reset, 1, "noscript fast no_auth still", NO_KEYS),
    b"PING": Spec(connection.ping, -1, "fast still", NO_KEYS),
    b"ECHO": Spec(connection.echo, 2, "fast still", NO_KEYS),
    b"SELECT": Spec(connection.select, 2, "fast still", NO_KEYS),
    b"CLIENT": Spec(connection.client, -2, "admin noscript still", NO_KEYS),
    b"MULTI": Spec(connection.multi, 1, "noscript fast still", NO_KEYS),
    b"EXEC": Spec(connection.execute, 1, "noscript", NO_KEYS),
    b"DISCARD": Spec(connection.discard, 1, "noscript fast still", NO_KEYS),
    b"WATCH": Spec(connection.watch, -2, "noscript fast still", ALL_KEYS),
    b"UNWATCH": Spec(connection.unwatch, 1, "noscript fast still", NO_KEYS),
    # the server
    b"INFO": Spec(server_info.info, -1, "loading stale still", NO_KEYS, own_ns=TELL_NS),
    b"COMMAND": Spec(command, -1, "loading stale still", NO_KEYS, own_ns=TELL_NS),
    b"CONFIG": Spec(server_info.config, -2, "admin still", NO_KEYS),
    b"SLOWLOG": Spec(server_info.slowlog, -2, "admin still", NO_KEYS),
    b"LATENCY": Spec(server_info.latency, -2, "admin still", NO_KEYS),
    b"CLUSTER": Spec(cluster.cluster, -2, "still", NO_KEYS),
    b"READONLY": Spec(cluster.stay, 1, "fast still", NO_KEYS),
    b"READWRITE": Spec(cluster.stay, 1, "fast still", NO_KEYS),
    b"ASKING": Spec(cluster.stay, 1, "fast still", NO_KEYS),
    b"ROLE": Spec(server_info.role, 1, "fast still", NO_KEYS),
    b"TIME": Spec(server_info.time, 1, "fast still", NO_KEYS),
    b"MODULE": Spec(server_info.module, -2, "admin still", NO_KEYS),
    b"ACL": Spec(server_info.acl, -2, "admin still", NO_KEYS),
    b"EVAL": Spec(server_info.evaluate, -3, "noscript movablekeys still", NO_KEYS),
    b"EVALSHA": Spec(server_info.evaluate, -3, "noscript movablekeys still", NO_KEYS),
    b"EVAL_RO": Spec(server_info.evaluate, -3, "noscript movablekeys readonly still", NO_KEYS),
    b"EVALSHA_RO": Spec(server_info.evaluate, -3, "noscript movablekeys readonly still", NO_KEYS),
    b"SCRIPT": Spec(server_info.script, -2, "noscript still", NO_KEYS),
    b"FUNCTION": Spec(fcall.function, -2, "noscript still", NO_KEYS),
    b"FCALL": Spec(
        fcall.fcall, -3, "noscript movablekeys", NO_KEYS, argument_ns=FUNCTION_ARGUMENT_NS
    ),
    b"FCALL_RO": Spec(
        fcall.fcall_ro,
        -3,
        "noscript movablekeys readonly",
        NO_KEYS,
        argument_ns=FUNCTION_ARGUMENT_NS,
    ),
    # any key
    b"SCAN": Spec(generic.scan, -2, "readonly", NO_KEYS),
    b"KEYS": Spec(generic.keys, 2, "readonly", NO_KEYS),
    b"DBSIZE": Spec(generic.size, 1, "readonly fast", NO_KEYS),
    b"TYPE": Spec(generic.type_of, 2, "readonly fast", ONE_KEY),
    b"EXISTS": Spec(generic.exists, -2, "readonly fast", ALL_KEYS, argument_ns=LOOK_NS),
    b"DEL": Spec(generic.delete, -2, "write", ALL_KEYS, argument_ns=DROP_NS),
    b"UNLINK": Spec(generic.delete, -2, "write fast", ALL_KEYS, argument_ns=DROP_NS),
    b"TTL": Spec(generic.ttl, 2, "readonly fast", ONE_KEY),
    b"PTTL": Spec(generic.pttl, 2, "readonly fast", ONE_KEY),
    b"EXPIRE": Spec(generic.expire, -3, "write fast", ONE_KEY),
    b"PEXPIRE": Spec(generic.pexpire, -3, "write fast", ONE_KEY),
    b"EXPIREAT": Spec(generic.expire_at, -3, "write fast", ONE_KEY),
    b"PEXPIREAT": Spec(generic.pexpire_at, -3, "write fast", ONE_KEY),
    b"PERSIST": Spec(generic.persist, 2, "write fast", ONE_KEY),
    b"MEMORY": Spec(generic.memory, -2, "readonly", (2, 2, 1)),
    b"OBJECT": Spec(generic.encoding, -2, "readonly", (2, 2, 1)),
    # strings
    b"GET": Spec(strings.get, 2, "readonly fast", ONE_KEY),
    b"MGET": Spec(strings.mget, -2, "readonly fast", ALL_KEYS, argument_ns=LOOK_NS),
    b"GETRANGE": Spec(strings.getrange, 4, "readonly", ONE_KEY),
    b"STRLEN": Spec(strings.strlen, 2, "readonly fast", ONE_KEY),
    b"SET": Spec(strings.set_value, -3, "write denyoom", ONE_KEY),
    b"SETNX": Spec(strings.setnx, 3, "write denyoom fast", ONE_KEY),
    b"SETEX": Spec(strings.setex, 4, "write denyoom", ONE_KEY),
    b"PSETEX": Spec(strings.psetex, 4, "write denyoom", ONE_KEY),
    b"GETDEL": Spec(strings.getdel, 2, "write fast", ONE_KEY),
    b"INCR": Spec(strings.incr, 2, "write denyoom fast", ONE_KEY),
    b"DECR": Spec(strings.decr, 2, "write denyoom fast", ONE_KEY),
    b"INCRBY": Spec(strings.incrby, 3, "write denyoom fast", ONE_KEY),
    b"DECRBY": Spec(strings.decrby, 3, "write denyoom fast", ONE_KEY),
    # hashes
    b"HSET": Spec(hashes.hset, -4, "write denyoom fast", ONE_KEY),
    b"HMSET": Spec(hashes.hmset, -4, "write denyoom fast", ONE_KEY),
    b"HSETNX": Spec(hashes.hsetnx, 4, "write denyoom fast", ONE_KEY),
    b"HGET": Spec(hashes.hget, 3, "readonly fast", ONE_KEY),
    b"HMGET": Spec(hashes.hmget, -3, "readonly fast", ONE_KEY),
    b"HGETALL": Spec(hashes.hgetall, 2, "readonly", ONE_KEY),
    b"HKEYS": Spec(hashes.hkeys, 2, "readonly", ONE_KEY),
    b"HVALS": Spec(hashes.hvals, 2, "readonly", ONE_KEY),
    b"HSCAN": Spec(scans.hscan, -3, "readonly", ONE_KEY),
    b"HLEN": Spec(hashes.hlen, 2, "readonly fast", ONE_KEY),
    b"HEXISTS": Spec(hashes.hexists, 3, "readonly fast", ONE_KEY),
    b"HSTRLEN": Spec(hashes.hstrlen, 3, "readonly fast", ONE_KEY),
    b"HDEL": Spec(hashes.hdel, -3, "write fast", ONE_KEY),
    b"HINCRBY": Spec(hashes.hincrby, 4, "write denyoom fast", ONE_KEY),
    b"HINCRBYFLOAT": Spec(hashes.hincrbyfloat, 4, "write denyoom fast", ONE_KEY),
    # lists
    b"RPUSH": Spec(lists.rpush, -3, "write denyoom fast", ONE_KEY),
    b"LPUSH": Spec(lists.lpush, -3, "write denyoom fast", ONE_KEY),
    b"RPOP": Spec(lists.rpop, -2, "write fast", ONE_KEY),
    b"LPOP": Spec(lists.lpop, -2, "write fast", ONE_KEY),
    b"LRANGE": Spec(lists.lrange, 4, "readonly", ONE_KEY),
    b"LINDEX": Spec(lists.lindex, 3, "readonly", ONE_KEY),
    b"LLEN": Spec(lists.llen, 2, "readonly fast", ONE_KEY),
    b"LTRIM": Spec(lists.ltrim, 4, "write", ONE_KEY),
    # sets
    b"SADD": Spec(lists.sadd, -3, "write denyoom fast", ONE_KEY),
    b"SREM": Spec(lists.srem, -3, "write fast", ONE_KEY),
    b"SMEMBERS": Spec(lists.smembers, 2, "readonly", ONE_KEY),
    b"SSCAN": Spec(scans.sscan, -3, "readonly", ONE_KEY),
    b"SCARD": Spec(lists.scard, 2, "readonly fast", ONE_KEY),
    b"SISMEMBER": Spec(lists.sismember, 3, "readonly fast", ONE_KEY),
    # sorted sets
    b"ZADD": Spec(zsets.zadd, -4, "write denyoom fast", ONE_KEY),
    b"ZREM": Spec(zsets.zrem, -3, "write fast", ONE_KEY),
    b"ZSCORE": Spec(zsets.zscore, 3, "readonly fast", ONE_KEY),
    b"ZCARD": Spec(zsets.zcard, 2, "readonly fast", ONE_KEY),
    b"ZSCAN": Spec(scans.zscan, -3, "readonly", ONE_KEY),
    b"ZCOUNT": Spec(zsets.zcount, 4, "readonly fast", ONE_KEY),
    b"ZRANGE": Spec(zsets.zrange, -4, "readonly", ONE_KEY),
    b"ZREVRANGE": Spec(zsets.zrevrange, -4, "readonly", ONE_KEY),
    b"ZRANGEBYSCORE": Spec(zsets.zrangebyscore, -4, "readonly", ONE_KEY),
    b"ZREVRANGEBYSCORE": Spec(zsets.zrevrangebyscore, -4, "readonly", ONE_KEY),
    b"ZPOPMIN": Spec(zsets.zpopmin, -2, "write fast", ONE_KEY),
    # streams
    b"XADD": Spec(streams.xadd, -5, "write denyoom fast", ONE_KEY),
    b"XLEN": Spec(streams.xlen, 2, "readonly fast", ONE_KEY),
    b"XRANGE": Spec(streams.xrange, -4, "readonly", ONE_KEY),
    b"XREVRANGE": Spec(streams.xrevrange, -4, "readonly", ONE_KEY),
    b"XREAD": Spec(streams.xread, -4, "readonly blocking movablekeys", NO_KEYS),
    b"XTRIM": Spec(streams.xtrim, -4, "write", ONE_KEY),
    b"XDEL": Spec(streams.xdel, -3, "write fast", ONE_KEY, argument_ns=DROP_NS),
    b"XGROUP": Spec(workers.xgroup, -2, "write denyoom", (2, 2, 1)),
    b"XREADGROUP": Spec(reads.xreadgroup, -7, "write blocking movablekeys", NO_KEYS),
    b"XACK": Spec(workers.xack, -4, "write fast", ONE_KEY, argument_ns=DROP_NS),
    b"XPENDING": Spec(workers.xpending, -3, "readonly", ONE_KEY),
    b"XCLAIM": Spec(workers.xclaim, -6, "write fast", ONE_KEY),
    b"XAUTOCLAIM": Spec(workers.xautoclaim, -6, "write fast", ONE_KEY),
    b"XINFO": Spec(server_info.xinfo, -2, "readonly", (2, 2, 1)),
}
